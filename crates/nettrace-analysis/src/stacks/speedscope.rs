//! The file format of <https://speedscope.app>.

use super::folded::{leaf, title};
use super::{CodeNames, Frame, Measure, Samples};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: &'a str,
    shared: Shared<'a>,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: &'a [Name],
}

#[derive(Serialize)]
struct Name {
    name: String,
}

/// One thread: stacks in the order of time, each with its weight.
#[derive(Serialize)]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: f64,
    #[serde(rename = "endValue")]
    end: f64,
    samples: Vec<Vec<u32>>,
    weights: Vec<f64>,
}

/// Writes the file: a profile for each thread, in milliseconds or events. `name` is shown as its title. The samples must have been kept in
/// order ([`Samples::in_order`]).
///
/// # Errors
/// The output fails.
pub fn speedscope(
    samples: &Samples,
    names: &CodeNames,
    name: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut frames = Frames::default();
    let (unit, scale) = match samples.measure() {
        Measure::ThreadTime => ("milliseconds", 1e-6),
        Measure::Events => ("none", 1.0),
    };
    // By process and thread, whoever came first.
    let threads: BTreeMap<_, _> = samples
        .threads()
        .map(|thread| ((thread.process_id, thread.thread_id), thread))
        .collect();
    let process_of = |key: Option<&(u64, u64)>| key.map(|(process_id, _)| *process_id);
    let several = process_of(threads.keys().next()) != process_of(threads.keys().next_back());
    let mut profiles = Vec::new();
    for ((process_id, _), thread) in threads {
        let (mut stacks, mut weights, mut total) = (Vec::new(), Vec::new(), 0.0);
        for (node, kind, weight) in &thread.spans {
            let mut stack: Vec<u32> = samples
                .tree()
                .frames(*node)
                .map(|frame| match frames.known.get(&frame) {
                    Some(place) => *place,
                    None => {
                        let place = frames.place(&names.name(frame));
                        frames.known.insert(frame, place);
                        place
                    }
                })
                .collect();
            stack.reverse();
            stack.extend(leaf(*kind).map(|leaf| frames.place(leaf)));
            let weight = *weight as f64 * scale;
            stacks.push(stack);
            weights.push(weight);
            total += weight;
        }
        let start = match samples.measure() {
            Measure::ThreadTime => thread.start_ns as f64 * scale,
            Measure::Events => 0.0,
        };
        let process = if several {
            format!("Process {process_id} ")
        } else {
            String::new()
        };
        profiles.push(Profile {
            kind: "sampled",
            name: format!("{process}{}", title(thread)),
            unit,
            start,
            end: start + total,
            samples: stacks,
            weights,
        });
    }
    let file = File {
        schema: SCHEMA,
        exporter: format!("eventpipe {}", env!("CARGO_PKG_VERSION")),
        name,
        shared: Shared {
            frames: &frames.names,
        },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// The names of frames, each once.
#[derive(Default)]
struct Frames {
    names: Vec<Name>,
    places: HashMap<String, u32>,
    known: HashMap<Frame, u32>,
}

impl Frames {
    fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(Name {
            name: name.to_owned(),
        });
        self.places.insert(name.to_owned(), place);
        place
    }
}
