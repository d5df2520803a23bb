//! The figures beside their targets.

use std::io::{self, Write};

use super::Figures;

struct Row {
    name: &'static str,
    what: &'static str,
    target: Option<f64>,
}

const fn row(name: &'static str, what: &'static str, target: Option<f64>) -> Row {
    Row { name, what, target }
}

const ROWS: &[Row] = &[
    row("disabled_ns", "nobody listens", Some(1.0)),
    row("event_8b_ns", "8 bytes", None),
    row("event_100b_ns", "100 bytes", Some(25.0)),
    row(
        "event_100b_flood_ns",
        "100 bytes, faster than the drain: cold memory",
        None,
    ),
    row("event_1kib_ns", "1 KiB", None),
    row(
        "event_text_49_chars_ns",
        "text of 49 characters, widened to 100 bytes",
        None,
    ),
    row(
        "event_8b_os_clock_ns",
        "8 bytes, operating system's clock",
        None,
    ),
    row(
        "event_100b_os_clock_ns",
        "100 bytes, operating system's clock",
        Some(45.0),
    ),
    row(
        "event_100b_16_frames_ns",
        "100 bytes, stack of 16 frames",
        None,
    ),
    row(
        "event_100b_30_frames_ns",
        "100 bytes, stack of 30 frames",
        Some(90.0),
    ),
    row("event_100b_block_ns", "100 bytes, block mode", None),
    row(
        "event_100b_block_flood_ns",
        "100 bytes, block mode, waiting for the drain",
        None,
    ),
    row("event_100b_1_session_ns", "100 bytes, after a rest", None),
    row(
        "event_100b_8_sessions_ns",
        "100 bytes, after a rest, 8 sessions",
        None,
    ),
    row(
        "event_100b_64_sessions_ns",
        "100 bytes, after a rest, 64 sessions",
        None,
    ),
    row("sessions_8_over_1", "8 sessions by one", None),
    row("sessions_64_over_1", "64 sessions by one", Some(1.2)),
    row("dropped_ns", "dropped, no block is free", Some(10.0)),
    row(
        "attach_detach_ns",
        "a thread's first event and its end",
        Some(200.0),
    ),
    row(
        "enable_1000_threads_us",
        "start a session, 1,000 threads (µs)",
        Some(1_000.0),
    ),
    row(
        "disable_1000_threads_us",
        "stop it, last bytes included (µs)",
        Some(1_000.0),
    ),
];

/// Prints a table.
pub fn print(out: &mut dyn Write, figures: &Figures) -> io::Result<()> {
    writeln!(
        out,
        "ns per event of one writer; {} rounds, interleaved; clock: {}\n",
        figures.rounds, figures.clock
    )?;
    writeln!(
        out,
        "{:<46} {:>9} {:>9} {:>8}",
        "", "median", "best", "target"
    )?;
    for row in ROWS {
        let (Some(median), Some(best)) =
            (figures.medians.get(row.name), figures.best.get(row.name))
        else {
            continue;
        };
        let (target, verdict) = match row.target {
            Some(target) => (
                format!("{target}"),
                if *median <= target { "met" } else { "missed" },
            ),
            None => (String::new(), ""),
        };
        writeln!(
            out,
            "{:<46} {median:>9.2} {best:>9.2} {target:>8} {verdict}",
            row.what
        )?;
    }
    Ok(())
}
