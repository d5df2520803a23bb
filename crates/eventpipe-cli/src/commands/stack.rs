//! `eventpipe stack`: what each managed thread of a process is doing now.

use crate::cli::Stack;
use crate::exit_code::{ExitCode, Failure};
use crate::reach::reach_once;
use crate::table::printable;
use crate::target::attach_failure;
use crate::terminal;
use anyhow::Context as _;
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use nettrace::Reader;
use nettrace::runtime_events::SAMPLE_PROFILER;
use nettrace::views::{SampleKind, ThreadSample, View};
use nettrace_analysis::stacks::{CallTree, CodeNames, Node};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::thread;

/// The level at which the sampler works.
const INFORMATIONAL: u8 = 4;

/// One thread.
#[derive(Serialize)]
struct Thread {
    thread_id: u64,
    /// As the system has it, where it can be seen.
    name: Option<String>,
    /// `managed`, or `external`: in native code, or waiting.
    state: &'static str,
    /// Innermost first.
    stack: Vec<String>,
}

/// Prints the stacks.
pub(crate) fn stack(arguments: &Stack) -> anyhow::Result<()> {
    let reached = reach_once(&arguments.target)?;
    if reached.is_native {
        let text = format!(
            "{} (process {}) is a native program: it has no managed threads",
            printable(&reached.name),
            reached.pid
        );
        return Err(Failure::new(ExitCode::Unsupported, text).into());
    }
    let sampler = ProviderConfig::new(SAMPLE_PROFILER, 0, INFORMATIONAL);
    let mut collect = CollectTracing::new([sampler]);
    collect.buffer_mb = 64;
    let session = reached
        .client
        .collect(&collect, Fallbacks::LOSSLESS)
        .map_err(attach_failure)?;
    let stopper = session.stopper();
    let duration = arguments.duration;
    // It has to be read while it is stopped.
    let stopping = thread::spawn(move || {
        thread::sleep(duration);
        stopper.stop()
    });
    let (mut names, mut tree) = (CodeNames::new(), CallTree::default());
    let mut samples: BTreeMap<u64, (Node, SampleKind)> = BTreeMap::new();
    let broken = || Failure::new(ExitCode::Session, "the process's answer broke off");
    let mut reader = Reader::new(session).with_context(broken)?;
    while let Some(event) = reader.next_event().with_context(broken)? {
        names.add(&event);
        let sample = ThreadSample::of(event.metadata(), event.schema(), event.payload());
        if let Some(sample) = sample {
            let node = tree.add(&event);
            samples.insert(event.thread_id(), (node, sample.kind()));
        }
    }
    match stopping.join() {
        Ok(stopped) => drop(stopped.map_err(attach_failure)?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    let threads: Vec<Thread> = samples
        .into_iter()
        .map(|(thread_id, (node, kind))| Thread {
            thread_id,
            name: name_of_thread(reached.pid, thread_id),
            state: match kind {
                SampleKind::Managed => "managed",
                SampleKind::External | SampleKind::Error => "external",
            },
            stack: tree
                .frames(node)
                .map(|frame| names.name(frame).into_owned())
                .collect(),
        })
        .collect();
    print(arguments, &threads)
}

fn print(arguments: &Stack, threads: &[Thread]) -> anyhow::Result<()> {
    let mut out = terminal::out();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, threads)?;
        writeln!(out)?;
        out.flush()?;
        return Ok(());
    }
    for thread in threads {
        let name = thread.name.as_deref().unwrap_or_default();
        let name = match name {
            "" => String::new(),
            name => format!(" {}", printable(name)),
        };
        writeln!(out, "Thread {}{name}:", thread.thread_id)?;
        if thread.state == "external" {
            writeln!(out, "  [in native code, or waiting]")?;
        }
        for frame in &thread.stack {
            writeln!(out, "  {}", printable(frame))?;
        }
        writeln!(out)?;
    }
    out.flush()?;
    if threads.is_empty() {
        let text = "no thread was seen: a machine with much to do may take longer (--duration 1s)";
        return Err(Failure::new(ExitCode::Session, text).into());
    }
    Ok(())
}

/// The system's name of a thread of a process of the same namespace.
fn name_of_thread(pid: u32, thread_id: u64) -> Option<String> {
    let path = format!("/proc/{pid}/task/{thread_id}/comm");
    let name = std::fs::read_to_string(path).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}
