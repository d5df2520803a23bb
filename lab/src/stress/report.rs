//! The figures as tables and as a summary.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::Outcome;
use crate::Engine;
use crate::statistics::Spread;

/// Median, smallest and largest of each figure over the iterations of one engine and number of cores.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Whose engine.
    pub engine: Engine,
    /// Cores that the program was pinned to.
    pub cores: Option<usize>,
    /// Writing threads.
    pub threads: usize,
    /// How many iterations.
    pub iterations: usize,
    /// By the names of [`Outcome`]'s fields. What is unknown is left out.
    pub figures: BTreeMap<&'static str, Spread>,
}

type Figure = (&'static str, fn(&Outcome) -> Option<f64>);

const FIGURES: [Figure; 12] = [
    ("attempted", |run| Some(run.attempted as f64)),
    ("read", |run| run.read.map(|events| events as f64)),
    ("lost", |run| run.lost.map(|events| events as f64)),
    ("unaccounted", |run| {
        run.unaccounted.map(|events| events as f64)
    }),
    ("events_per_second", |run| run.events_per_second),
    ("attempted_per_second", |run| Some(run.attempted_per_second)),
    ("mb_per_second", |run| Some(run.mb_per_second)),
    ("efficiency", |run| run.efficiency),
    ("cpu_seconds_per_million", |run| {
        Some(run.cpu_seconds_per_million)
    }),
    ("cpu_seconds_per_million_read", |run| {
        run.cpu_seconds_per_million_read
    }),
    ("peak_rss", |run| Some(run.peak_rss as f64)),
    ("frames_per_event", |run| run.frames_per_event),
];

/// Summaries in the order of first appearance.
pub fn summarize(outcomes: &[Outcome]) -> Vec<Summary> {
    let mut groups: Vec<Vec<&Outcome>> = Vec::new();
    for outcome in outcomes {
        let key = |run: &Outcome| (run.engine, run.cores, run.threads);
        match groups
            .iter_mut()
            .find(|group| key(group[0]) == key(outcome))
        {
            Some(group) => group.push(outcome),
            None => groups.push(vec![outcome]),
        }
    }
    groups
        .into_iter()
        .map(|group| Summary {
            engine: group[0].engine,
            cores: group[0].cores,
            threads: group[0].threads,
            iterations: group.len(),
            figures: FIGURES
                .into_iter()
                .filter_map(|(name, value)| {
                    let values = group.iter().filter_map(|run| value(run));
                    Some((name, Spread::of(values)?))
                })
                .collect(),
        })
        .collect()
}

/// Prints one iteration as a line; with `header`, the column names first.
pub fn print_outcome(out: &mut dyn Write, outcome: &Outcome, header: bool) -> io::Result<()> {
    if header {
        writeln!(
            out,
            "{:<10} {:>5} {:>7} {:>11} {:>11} {:>11} {:>8} {:>9} {:>7} {:>6} {:>8} {:>7} {:>6}",
            "engine",
            "cores",
            "threads",
            "attempted",
            "read",
            "lost",
            "unacc.",
            "k ev/s",
            "MB/s",
            "eff.%",
            "CPU s/M",
            "RSS MB",
            "frames"
        )?;
    }
    let number = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    writeln!(
        out,
        "{:<10} {:>5} {:>7} {:>11} {:>11} {:>11} {:>8} {:>9} {:>7.1} {:>6} {:>8.3} {:>7.1} {:>6}",
        outcome.engine,
        outcome
            .cores
            .map_or("all".to_owned(), |cores| cores.to_string()),
        outcome.threads,
        outcome.attempted,
        number(outcome.read),
        number(outcome.lost),
        or_unknown(outcome.unaccounted.map(|count| count.to_string())),
        or_unknown(
            outcome
                .events_per_second
                .map(|rate| format!("{:.1}", rate / 1e3))
        ),
        outcome.mb_per_second,
        or_unknown(
            outcome
                .efficiency
                .map(|part| format!("{:.1}", part * 100.0))
        ),
        outcome.cpu_seconds_per_million,
        outcome.peak_rss as f64 / 1e6,
        or_unknown(
            outcome
                .frames_per_event
                .map(|frames| format!("{frames:.1}"))
        ),
    )?;
    if let Some(error) = outcome
        .reading
        .counts
        .as_ref()
        .and_then(|counts| counts.error.as_ref())
    {
        writeln!(out, "        the trace is damaged: {error}")?;
    }
    let disorder: u64 = outcome
        .reading
        .counts
        .iter()
        .flat_map(|counts| counts.sequenced.values())
        .map(|thread| thread.disorder)
        .sum();
    if disorder > 0 {
        writeln!(out, "        {disorder} events out of their thread's order")?;
    }
    Ok(())
}

/// Prints median, smallest and largest of the figures that matter.
pub fn print_summary(out: &mut dyn Write, summaries: &[Summary]) -> io::Result<()> {
    for summary in summaries {
        writeln!(
            out,
            "\n{}, {} threads on {} cores, {} iterations: median (min–max)",
            summary.engine,
            summary.threads,
            summary
                .cores
                .map_or("all".to_owned(), |cores| cores.to_string()),
            summary.iterations
        )?;
        for (name, label, scale, digits) in LINES {
            if let Some(spread) = summary.figures.get(name) {
                let digits = *digits;
                writeln!(
                    out,
                    "  {label:<36} {:>12.digits$}  ({:.digits$}–{:.digits$})",
                    spread.median * scale,
                    spread.min * scale,
                    spread.max * scale
                )?;
            }
        }
    }
    Ok(())
}

/// Figure, label, factor, digits.
const LINES: &[(&str, &str, f64, usize)] = &[
    (
        "events_per_second",
        "events read, thousands a second",
        1e-3,
        1,
    ),
    (
        "attempted_per_second",
        "events attempted, thousands a second",
        1e-3,
        1,
    ),
    ("mb_per_second", "stream, MB a second", 1.0, 1),
    ("efficiency", "efficiency, %", 100.0, 2),
    ("lost", "events lost", 1.0, 0),
    ("unaccounted", "events unaccounted for", 1.0, 0),
    (
        "cpu_seconds_per_million",
        "CPU seconds per million attempted",
        1.0,
        3,
    ),
    (
        "cpu_seconds_per_million_read",
        "CPU seconds per million read",
        1.0,
        3,
    ),
    ("peak_rss", "peak memory, MB", 1e-6, 1),
];
