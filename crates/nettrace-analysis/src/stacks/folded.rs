//! Stacks as lines, for flame graphs.

use super::samples::Thread;
use super::{CodeNames, Frame, Kind, Samples};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Writes `Thread (N);outermost;…;innermost;CPU_TIME 1234`: the frames of a stack, what the thread was doing, and microseconds or events. Lines are
/// sorted; inferno and flamegraph.pl make pictures of them.
///
/// # Errors
/// The output fails.
pub fn folded(samples: &Samples, names: &CodeNames, out: &mut impl Write) -> io::Result<()> {
    let mut known = Known::default();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for thread in samples.threads() {
        for ((node, kind), weight) in &thread.sums {
            let mut line = title(thread);
            let mut frames: Vec<Frame> = samples.tree().frames(*node).collect();
            frames.reverse();
            for frame in frames {
                line.push(';');
                line.push_str(known.name(names, frame));
            }
            if let Some(leaf) = leaf(*kind) {
                line.push(';');
                line.push_str(leaf);
            }
            let sum: &mut u64 = lines.entry(line).or_default();
            *sum = weight.saturating_add(*sum);
        }
    }
    for (line, weight) in lines {
        let weight = match samples.measure() {
            super::Measure::ThreadTime => weight.saturating_add(500) / 1000,
            super::Measure::Events => weight,
        };
        writeln!(out, "{line} {weight}")?;
    }
    Ok(())
}

/// Names of frames, looked up once, with what separates frames replaced.
#[derive(Default)]
struct Known(HashMap<Frame, String>);

impl Known {
    fn name(&mut self, names: &CodeNames, frame: Frame) -> &str {
        let name = || names.name(frame).replace(';', ",").replace('\n', " ");
        self.0.entry(frame).or_insert_with(name)
    }
}

/// How a thread is called.
pub(super) fn title(thread: &Thread) -> String {
    format!("Thread ({})", thread.thread_id)
}

/// The frame below all others that says what the thread was doing, in dotnet-trace's words.
pub(super) fn leaf(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Managed => Some("CPU_TIME"),
        Kind::External => Some("UNMANAGED_CODE_TIME"),
        Kind::Event => None,
    }
}
