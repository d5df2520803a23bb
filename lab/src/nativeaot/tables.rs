//! Both engines inside the same NativeAOT program: what an event costs inside of the engine, and what is lost at which rate and buffer.
//!
//! What the program itself needs for an event is measured beside them, with an engine that only counts, and taken off.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::statistics::Spread;
use crate::stress::{Kind, OnOff, Options, Outcome, Pattern, ReaderMode, run_once};

/// Theirs, ours.
const ENGINES: [Engine; 2] = [Engine::Aot10, Engine::OursAot10];

/// Both tables' figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tables {
    rounds: usize,
    seconds: f64,
    costs: Vec<Cost>,
    losses: Vec<Loss>,
}

/// What becomes of the events whose cost is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fate {
    /// Nobody reads until the threads are done writing, so almost all are dropped.
    Dropped,
    /// As fast as the threads can, with a reader: as many arrive as the engine manages.
    Flood,
    /// Written in bursts that leave each engine time to deliver all of them.
    Delivered,
}

/// One row of the costs: runs on both engines and on the one that only counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cost {
    fate: Fate,
    kind: Kind,
    threads: usize,
    runs: Vec<Run>,
}

/// One row of the losses: runs on both engines.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Loss {
    rate: f64,
    buffer_mb: u32,
    runs: Vec<Run>,
}

/// What counts of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    engine: Engine,
    round: usize,
    attempted: f64,
    read: f64,
    /// Processor time of the whole process, until the last byte was taken; of dropped events until the threads were done.
    cpu_seconds: f64,
}

impl Run {
    fn of(outcome: &Outcome, round: usize, fate: Option<Fate>) -> Run {
        Run {
            engine: outcome.engine,
            round,
            attempted: outcome.attempted as f64,
            read: outcome.read.unwrap_or(0) as f64,
            cpu_seconds: match fate {
                Some(Fate::Dropped) => outcome.writing_cpu_seconds,
                _ => outcome.cpu_seconds,
            },
        }
    }

    /// What a longer run had beyond a shorter one: without the filling of the buffers, which both began with.
    fn since(self, shorter: &Run) -> Run {
        Run {
            attempted: self.attempted - shorter.attempted,
            read: self.read - shorter.read,
            cpu_seconds: self.cpu_seconds - shorter.cpu_seconds,
            ..self
        }
    }

    fn lost_percent(&self) -> f64 {
        100.0 - self.read / self.attempted * 100.0
    }
}

impl Cost {
    fn options(&self, seconds: f64) -> Options {
        let options = Options {
            kind: self.kind,
            threads: Some(self.threads),
            duration: seconds,
            stacks: OnOff::Off,
            ..Options::default()
        };
        match self.fate {
            Fate::Dropped => Options {
                reader: ReaderMode::Stalled,
                stall: Some(seconds + 0.5),
                buffer_mb: 1,
                ..options
            },
            Fate::Flood => options,
            Fate::Delivered => Options {
                rate: 500e3,
                // The kernel tells the time of a process in hundredths of a second, which would be a third of what a shorter run takes.
                duration: seconds * 4.0,
                pattern: Pattern::HeavyDrip,
                ..options
            },
        }
    }

    fn runs(&self, engine: Engine) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.engine == engine)
    }

    /// Nanoseconds that the program itself needs for an event, in a round.
    fn own_share(&self, round: usize) -> Option<f64> {
        let run = self
            .runs(Engine::CountingAot10)
            .find(|run| run.round == round)?;
        Some(run.cpu_seconds / run.attempted * 1e9)
    }

    /// Nanoseconds inside of the engine, by round: for each event that was attempted where they are dropped, else for each that was read.
    fn inside(&self, engine: Engine) -> Vec<f64> {
        self.runs(engine)
            .filter_map(|run| {
                let own = self.own_share(run.round)?;
                let engine = run.cpu_seconds * 1e9 - own * run.attempted;
                Some(match self.fate {
                    Fate::Dropped => engine / run.attempted,
                    Fate::Flood | Fate::Delivered => engine / run.read,
                })
            })
            .collect()
    }
}

impl Loss {
    fn lost(&self, engine: Engine) -> Option<Spread> {
        Spread::of(
            self.runs
                .iter()
                .filter(|run| run.engine == engine)
                .map(Run::lost_percent),
        )
    }
}

fn costs() -> Vec<Cost> {
    let mut costs = Vec::new();
    for fate in [Fate::Dropped, Fate::Flood, Fate::Delivered] {
        for kind in [Kind::Number, Kind::Text] {
            for threads in [1, 2] {
                costs.push(Cost {
                    fate,
                    kind,
                    threads,
                    runs: Vec::new(),
                });
            }
        }
    }
    costs
}

fn losses() -> Vec<Loss> {
    let mut losses = Vec::new();
    for rate in [0.5e6, 1e6, 2e6, 3e6] {
        for buffer_mb in [1, 16, 256] {
            losses.push(Loss {
                rate,
                buffer_mb,
                runs: Vec::new(),
            });
        }
    }
    losses
}

/// Runs everything, `rounds` times in turn, `seconds` of writing each.
///
/// # Errors
/// The programs cannot be linked, or one of them does not run.
pub fn measure(rounds: usize, seconds: f64, lab: &Path) -> Result<Tables> {
    let mut tables = Tables {
        rounds,
        seconds,
        costs: costs(),
        losses: losses(),
    };
    let run = |engine: Engine, options: &Options| {
        run_once(engine, options, None, lab)
            .with_context(|| format!("{} with {options:?}", engine.title()))
    };
    for round in 0..rounds {
        for cost in &mut tables.costs {
            for engine in [Engine::CountingAot10].into_iter().chain(ENGINES) {
                let outcome = run(engine, &cost.options(seconds))?;
                let mut whole = Run::of(&outcome, round, Some(cost.fate));
                if cost.fate == Fate::Dropped {
                    let outcome = run(engine, &cost.options(seconds * 3.0))?;
                    whole = Run::of(&outcome, round, Some(cost.fate)).since(&whole);
                }
                cost.runs.push(whole);
            }
            eprintln!(
                "[round {}/{rounds}] {:?} {:?}, {} threads: ns inside {:.0?} (C), {:.0?} (Rust)",
                round + 1,
                cost.fate,
                cost.kind,
                cost.threads,
                cost.inside(Engine::Aot10),
                cost.inside(Engine::OursAot10)
            );
        }
        for loss in &mut tables.losses {
            let options = Options {
                threads: Some(2),
                duration: seconds,
                rate: loss.rate / 2.0,
                buffer_mb: loss.buffer_mb,
                stacks: OnOff::Off,
                ..Options::default()
            };
            for engine in ENGINES {
                let outcome = run(engine, &options)?;
                loss.runs.push(Run::of(&outcome, round, None));
            }
            eprintln!(
                "[round {}/{rounds}] {} k events/s, {} MB: {:.1} % lost (C), {:.1} % (Rust)",
                round + 1,
                loss.rate / 1e3,
                loss.buffer_mb,
                loss.lost(Engine::Aot10)
                    .map_or(f64::NAN, |lost| lost.median),
                loss.lost(Engine::OursAot10)
                    .map_or(f64::NAN, |lost| lost.median)
            );
        }
    }
    Ok(tables)
}

impl Tables {
    /// Writes both tables as a part of a document.
    pub fn describe(&self, out: &mut String) {
        _ = writeln!(
            out,
            "## Inside of a NativeAOT program\n\n\
             The stress program of .NET 10, linked with the C engine and with this one; {} rounds of {} s in turn, medians with (smallest–largest).\n\n\
             Processor time inside of the engine, in ns: that of the whole process less the *program's own share*, which was measured in the same\n\
             round with an engine that only counts events. *Dropped*: nobody reads until the threads are done, 1 MB of buffer, ns per event\n\
             attempted: what a run of three times the length has beyond a short one, so filling the buffers does not count. *Flood*: as fast as the threads can, 256 MB, ns per event that was read (so whoever\n\
             drops more pays for that here as well). *All delivered*: 500,000 events a second and thread in ten bursts each second, four times as long, ns per event.\n\n\
             | events | threads | program's own share | C engine | this engine | C ÷ this |\n|---|---|---|---|---|---|",
            self.rounds, self.seconds
        );
        for cost in &self.costs {
            let spread = |values: Vec<f64>| match Spread::of(values) {
                Some(spread) => {
                    format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
                }
                None => "–".to_owned(),
            };
            let (theirs, ours) = (cost.inside(Engine::Aot10), cost.inside(Engine::OursAot10));
            let ratios = theirs.iter().zip(&ours).map(|(c, ours)| c / ours);
            let own = (0..self.rounds).filter_map(|round| cost.own_share(round));
            _ = writeln!(
                out,
                "| {}, {} | {} | {} | {} | {} | {} |",
                match cost.fate {
                    Fate::Dropped => "dropped",
                    Fate::Flood => "flood",
                    Fate::Delivered => "all delivered",
                },
                match cost.kind {
                    Kind::Number => "a number",
                    _ => "text of 100 characters",
                },
                cost.threads,
                spread(own.collect()),
                spread(theirs.clone()),
                spread(ours.clone()),
                Spread::of(ratios).map_or("–".to_owned(), |ratio| format!("{:.1}", ratio.median)),
            );
        }
        let less = |loss: &&Loss| {
            let (theirs, ours) = (loss.lost(Engine::Aot10), loss.lost(Engine::OursAot10));
            theirs
                .zip(ours)
                .is_some_and(|(theirs, ours)| ours.median <= theirs.median)
        };
        _ = writeln!(
            out,
            "\nLost events in %, text of 100 characters, two threads, by rate and buffer. This engine loses no more than the C engine in {} of {}.\n\n\
             | events/s | buffer | C engine | this engine |\n|---|---|---|---|",
            self.losses.iter().filter(less).count(),
            self.losses.len()
        );
        for loss in &self.losses {
            let cell = |engine| {
                loss.lost(engine).map_or("–".to_owned(), |spread| {
                    format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max)
                })
            };
            _ = writeln!(
                out,
                "| {:.1} M | {} MB | {} | {} |",
                loss.rate / 1e6,
                loss.buffer_mb,
                cell(Engine::Aot10),
                cell(Engine::OursAot10)
            );
        }
        _ = writeln!(out);
    }
}
