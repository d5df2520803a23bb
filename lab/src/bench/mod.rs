//! `lab engine`: what an event costs its writer on this project's engine, path by path, beside the targets.
//!
//! Each round runs every case once, so that a slow spell of the machine falls on all of them; a case is pieces of events written by one pinned
//! thread, with pauses for the drain, and the figure of a round is the median of its pieces. A burst that lost events is no figure but an error.

mod cases;
mod report;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use report::print;

use crate::statistics::Spread;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How often each case is run, interleaved with the others.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub rounds: usize,
    /// One JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Only the cases that need the operating system's clock instead of the processor's counter; they need a process of their own.
    #[arg(long, hide = true)]
    pub os_clock: bool,
}

/// What was measured: by name of the figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Medians. The unit is the end of the name; a name ending in `over_1` is a ratio.
    #[serde(flatten)]
    pub medians: BTreeMap<String, f64>,
    /// The smallest of the rounds.
    pub best: BTreeMap<String, f64>,
    /// Where the ticks came from: `Counter` or `Os`.
    pub clock: String,
    /// How many rounds.
    pub rounds: usize,
}

impl Figures {
    fn from_samples(samples: BTreeMap<&'static str, Vec<f64>>, rounds: usize) -> Figures {
        let (mut medians, mut best) = (BTreeMap::new(), BTreeMap::new());
        for (name, values) in samples {
            if let Some(spread) = Spread::of(values) {
                medians.insert(name.to_owned(), spread.median);
                best.insert(name.to_owned(), spread.min);
            }
        }
        Figures {
            medians,
            best,
            clock: format!("{:?}", eventpipe_os::clock::source()),
            rounds,
        }
    }

    /// A ratio of two figures of the same run.
    fn ratio(&mut self, name: &str, of: &str, over: &str) {
        for figures in [&mut self.medians, &mut self.best] {
            if let (Some(of), Some(over)) = (figures.get(of), figures.get(over)) {
                let ratio = of / over;
                figures.insert(name.to_owned(), ratio);
            }
        }
    }
}

/// Measures everything.
///
/// # Errors
/// A session does not start, events were lost that had room, or this program cannot start itself for the other clock.
pub fn measure(arguments: &Arguments) -> Result<Figures> {
    if arguments.os_clock {
        eventpipe_os::clock::use_os_clock();
    }
    // The engine's threads start before this one is pinned, and so may run anywhere.
    eventpipe::start();
    let samples = cases::run(arguments.rounds, arguments.os_clock)?;
    let mut figures = Figures::from_samples(samples, arguments.rounds);
    if arguments.os_clock {
        return Ok(figures);
    }
    figures.ratio(
        "sessions_8_over_1",
        "event_100b_8_sessions_ns",
        "event_100b_1_session_ns",
    );
    figures.ratio(
        "sessions_64_over_1",
        "event_100b_64_sessions_ns",
        "event_100b_1_session_ns",
    );
    let other = with_os_clock(arguments.rounds)?;
    for (name, value) in other.medians {
        figures.medians.insert(name, value);
    }
    for (name, value) in other.best {
        figures.best.insert(name, value);
    }
    Ok(figures)
}

/// The clock of a process is chosen once, so the other clock takes another process.
fn with_os_clock(rounds: usize) -> Result<Figures> {
    let output = std::process::Command::new(std::env::current_exe()?)
        .args([
            "engine",
            "--os-clock",
            "--json",
            "--rounds",
            &rounds.to_string(),
        ])
        .output()
        .context("starting the measurement with the other clock")?;
    anyhow::ensure!(
        output.status.success(),
        "the measurement with the other clock: {}",
        peers::stderr(&output)
    );
    serde_json::from_slice(&output.stdout).context("reading the figures of the other clock")
}
