//! The figures as tables.

use std::io::{self, Write};

use super::{Line, Outcome};
use crate::statistics::Spread;

/// Prints tables.
pub fn print(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    for trace in &outcome.traces {
        writeln!(
            out,
            "{}: {:.0} MB, {} events",
            trace.name,
            trace.bytes as f64 / 1e6,
            trace.events
        )?;
        for note in &trace.notes {
            writeln!(out, "  {note}")?;
        }
        if !trace.lines.is_empty() {
            writeln!(
                out,
                "  {:<32} {:>8} {:>10} {:>8} {:>10}   {:<20} by processor time",
                "", "MB/s", "Mevents/s", "MB/cpu s", "peak MB", "over TraceEvent"
            )?;
        }
        for line in &trace.lines {
            print_line(out, line)?;
        }
        writeln!(out)?;
    }
    for (bytes, kib) in &outcome.endless {
        writeln!(
            out,
            "peak memory of reading {:.1} GB: {:.1} MB",
            *bytes as f64 / 1e9,
            *kib as f64 * 1024.0 / 1e6
        )?;
    }
    Ok(())
}

fn print_line(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    writeln!(
        out,
        "  {:<32} {:>8.0} {:>10.2} {:>8.0} {:>10.1}   {:<20} {}",
        format!("{}, {}", line.reader, line.pass),
        line.mb_per_second.median,
        line.million_events_per_second.median,
        line.mb_per_cpu_second.median,
        line.peak_kib as f64 * 1024.0 / 1e6,
        ratio(line.ratio),
        ratio(line.cpu_ratio)
    )
}

fn ratio(ratio: Option<Spread>) -> String {
    ratio.map_or_else(String::new, |ratio| {
        format!("{:.1} ({:.1}–{:.1})", ratio.median, ratio.min, ratio.max)
    })
}
