//! Which runs are made. Rounds are the outermost loop, so that a slow spell of the machine falls on all engines.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::{Arguments, Comparison, Measured};
use crate::nativeaot::tables;
use crate::stress::{Full, Kind, OnOff, Options, ReaderMode, run_once};
use crate::{Engine, bench, floor, size};

/// A row of the document's tables.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) part: Part,
    pub(super) kind: Kind,
    pub(super) event_size: usize,
    pub(super) threads: usize,
    /// Cores that the program is pinned to.
    pub(super) cores: Option<usize>,
    pub(super) stacks: OnOff,
    pub(super) reader: ReaderMode,
    /// Events a second and thread; 0 = without a pause.
    pub(super) rate: f64,
    pub(super) buffer_mb: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// Everybody as fast as it goes.
    Throughput,
    /// How much is lost at which rate.
    LossByRate,
    /// The suite of the runtime's own team.
    Suite,
}

const BASE: Case = Case {
    part: Part::Throughput,
    kind: Kind::Text,
    event_size: 100,
    threads: 1,
    cores: None,
    stacks: OnOff::On,
    reader: ReaderMode::Parse,
    rate: 0.0,
    buffer_mb: 256,
};

fn throughput() -> Vec<Case> {
    let mut cases = Vec::new();
    for stacks in [OnOff::On, OnOff::Off] {
        for kind in [Kind::Text, Kind::Number] {
            for threads in [1, 2] {
                cases.push(Case {
                    kind,
                    threads,
                    stacks,
                    ..BASE
                });
            }
        }
    }
    cases
}

fn loss_by_rate() -> Vec<Case> {
    const RATES: [f64; 8] = [50e3, 100e3, 200e3, 500e3, 1e6, 2e6, 4e6, 0.0];
    RATES
        .into_iter()
        .map(|rate| Case {
            part: Part::LossByRate,
            stacks: OnOff::Off,
            threads: 2,
            rate,
            buffer_mb: 16,
            ..BASE
        })
        .collect()
}

fn suite(cores: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for event_size in [100, 10_000] {
        for cores in 1..=cores {
            for reader in [ReaderMode::Parse, ReaderMode::File] {
                cases.push(Case {
                    part: Part::Suite,
                    event_size,
                    threads: cores,
                    cores: Some(cores),
                    stacks: OnOff::Off,
                    reader,
                    ..BASE
                });
            }
        }
    }
    cases
}

impl Case {
    /// Whether the engine can do it. Without a switch for stacks an engine is compared with them: the document says so.
    pub(super) fn suits(&self, engine: Engine) -> bool {
        match (self.part, self.stacks) {
            (Part::Throughput, OnOff::On) => engine.has_stacks(),
            (Part::Throughput, OnOff::Off) => engine.can_omit_stacks(),
            (Part::LossByRate | Part::Suite, _) => true,
        }
    }

    /// The engines of the case among those that were found, and how their buffers are used. Block mode in the main tables only.
    pub(super) fn contenders(&self, engines: &[Engine]) -> Vec<(Engine, Full)> {
        let mut contenders = Vec::new();
        for &engine in engines.iter().filter(|engine| self.suits(**engine)) {
            contenders.push((engine, Full::Drop));
            if self.part == Part::Throughput && engine.can_block() {
                contenders.push((engine, Full::Block));
            }
        }
        contenders
    }

    /// The cases that are run once are many: a second of each is enough for their tables.
    fn seconds(&self, duration: f64) -> f64 {
        match self.part {
            Part::Throughput => duration,
            Part::LossByRate | Part::Suite => duration.min(1.0),
        }
    }

    fn options(&self, engine: Engine, buffering: Full, duration: f64) -> Options {
        Options {
            threads: Some(self.threads),
            duration,
            event_size: self.event_size,
            kind: self.kind,
            rate: self.rate,
            buffer_mb: self.buffer_mb,
            buffering,
            reader: self.reader,
            stacks: if engine.can_omit_stacks() {
                self.stacks
            } else {
                OnOff::On
            },
            ..Options::default()
        }
    }
}

pub(super) fn measure(arguments: &Arguments, lab: &Path) -> Result<Comparison> {
    let machine = Machine::here();
    let mut missing = Vec::new();
    let mut engines = Vec::new();
    for engine in Engine::ALL {
        match engine.program(lab) {
            Ok(_) => engines.push(engine),
            Err(error) => {
                eprintln!("left out: {}: {error:#}", engine.title());
                missing.push(engine.title().to_owned());
            }
        }
    }
    let mut work: Vec<(Case, usize)> = throughput()
        .into_iter()
        .map(|case| (case, arguments.rounds))
        .collect();
    if !arguments.brief {
        work.extend(loss_by_rate().into_iter().map(|case| (case, 1)));
        work.extend(suite(machine.cores).into_iter().map(|case| (case, 1)));
    }
    let total: usize = work
        .iter()
        .map(|(case, rounds)| rounds * case.contenders(&engines).len())
        .sum();
    let mut cases: Vec<Measured> = work
        .iter()
        .map(|(case, _)| Measured {
            case: *case,
            runs: Vec::new(),
        })
        .collect();
    let mut done = 0;
    let mut least = Vec::new();
    for round in 0..arguments.rounds {
        for (measured, (case, rounds)) in cases.iter_mut().zip(&work) {
            if round >= *rounds {
                continue;
            }
            for (engine, buffering) in case.contenders(&engines) {
                done += 1;
                let outcome = run_once(
                    engine,
                    &case.options(engine, buffering, case.seconds(arguments.duration)),
                    case.cores,
                    lab,
                )
                .with_context(|| format!("{} in {case:?}", engine.title()))?;
                eprintln!(
                    "[{done}/{total}] {:<10} {:?} {:?} {} bytes, {} threads, stacks {:?}, {:?}: {:.0} k events/s read, {:.1} % lost",
                    engine,
                    buffering,
                    case.kind,
                    case.event_size,
                    case.threads,
                    case.stacks,
                    case.reader,
                    outcome.events_per_second.unwrap_or(0.0) / 1e3,
                    100.0 - outcome.efficiency.unwrap_or(0.0) * 100.0,
                );
                measured.runs.push(outcome);
            }
        }
        least.extend(floor::round(arguments.duration, lab).context("measuring without an engine")?);
    }
    let engine = bench::measure(&bench::Arguments {
        rounds: 15,
        json: false,
        os_clock: false,
    })
    .context("measuring the engine alone")?;
    let (mut sizes, mut nativeaot) = (None, None);
    if !arguments.brief {
        sizes = Some(size::measure().context("measuring sizes")?);
        if [Engine::Aot10, Engine::OursAot10]
            .iter()
            .all(|engine| engines.contains(engine))
        {
            nativeaot = Some(tables::measure(
                arguments.rounds,
                arguments.duration.min(1.0),
                lab,
            )?);
        }
    }
    Ok(Comparison {
        machine,
        rounds: arguments.rounds,
        duration: arguments.duration,
        missing,
        cases,
        floor: least,
        engine: Some(engine),
        sizes,
        nativeaot,
    })
}
