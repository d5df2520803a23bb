//! The figures as tables, which are Markdown as well: BENCHMARKING.md has them as they are printed.

use std::io::{self, Write};

use super::{Line, Outcome, Trace};
use crate::statistics::Spread;

/// The columns.
const HEAD: [&str; 7] = [
    "reader, pass",
    "MB/s",
    "Mevents/s",
    "MB/cpu s",
    "peak MB",
    "over TraceEvent",
    "by processor time",
];

/// Prints tables.
pub fn print(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    for trace in &outcome.traces {
        print_trace(out, trace)?;
    }
    for (how, figures) in [
        ("", &outcome.endless),
        (", reading ahead", &outcome.endless_ahead),
    ] {
        for (bytes, kib) in figures {
            writeln!(
                out,
                "Peak memory of reading {:.1} GB{how}: {:.1} MB.",
                *bytes as f64 / 1e9,
                *kib as f64 * 1024.0 / 1e6
            )?;
        }
    }
    let (rounds, warm) = (outcome.rounds, outcome.warm);
    writeln!(
        out,
        "Medians and ranges of {rounds} rounds, in each the fastest of {warm} goes; {:.0} s in all.",
        outcome.seconds
    )
}

fn print_trace(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    writeln!(
        out,
        "**{}**: {:.0} MB, {} events\n",
        trace.name,
        trace.bytes as f64 / 1e6,
        trace.events
    )?;
    for note in &trace.notes {
        writeln!(out, "{note}\n")?;
    }
    if trace.lines.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = trace.lines.iter().map(row).collect();
    let head = HEAD.map(str::to_owned);
    let rule = |width: usize, column: usize| match column {
        0 => "-".repeat(width),
        _ => "-".repeat(width - 1) + ":",
    };
    let widths: [usize; HEAD.len()] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&head]).map(|row| &row[column]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    let rules = std::array::from_fn(|column| rule(widths[column], column));
    for row in [&head, &rules].into_iter().chain(&rows) {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            match column {
                0 => write!(out, "| {cell:<width$} |")?,
                _ => write!(out, " {cell:>width$} |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn row(line: &Line) -> [String; HEAD.len()] {
    [
        format!("{}, {}", line.reader, line.pass),
        format!("{:.0}", line.mb_per_second.median),
        format!("{:.2}", line.million_events_per_second.median),
        format!("{:.0}", line.mb_per_cpu_second.median),
        format!("{:.1}", line.peak_kib as f64 * 1024.0 / 1e6),
        ratio(line.ratio),
        ratio(line.cpu_ratio),
    ]
}

fn ratio(ratio: Option<Spread>) -> String {
    ratio.map_or_else(String::new, |ratio| {
        format!("{:.1} ({:.1}–{:.1})", ratio.median, ratio.min, ratio.max)
    })
}
