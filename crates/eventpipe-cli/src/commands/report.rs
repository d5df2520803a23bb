//! `eventpipe report stat`: the statistics of `nettrace_analysis`, as tables or JSON.

use crate::cli::Stat;
use crate::human;
use crate::input;
use crate::meanwhile::Meanwhile;
use crate::table::{self, Align, Table};
use crate::terminal;
use nettrace::ReaderOptions;
use nettrace_analysis::statistics::{Collector, TraceStatistics};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

/// Prints the report and gives the exit code.
pub(crate) fn stat(arguments: &Stat) -> anyhow::Result<u8> {
    let (statistics, damage) = gather(&arguments.file)?;
    let mut out = terminal::out();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &statistics)?;
        writeln!(out)?;
    } else {
        print(&mut out, &input::name_of(&arguments.file), &statistics)?;
    }
    out.flush()?;
    Ok(input::conclude(&arguments.file, damage))
}

/// Reads a trace through; what was found before a damage, and the damage.
pub(crate) fn gather(path: &Path) -> anyhow::Result<(TraceStatistics, Option<nettrace::Error>)> {
    let _meanwhile = Meanwhile::reading();
    let mut reader = input::open(path, ReaderOptions::default())?;
    let mut collector = Collector::new();
    let damage = loop {
        match reader.next_event() {
            Ok(Some(event)) => collector.add(&event),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    input::tell_of_more(path, &reader);
    Ok((collector.finish(&reader), damage))
}

/// Prints the report for people.
pub(crate) fn print(
    out: &mut impl Write,
    name: &str,
    statistics: &TraceStatistics,
) -> anyhow::Result<()> {
    let width = table::stdout_width();
    let head = format!("{}: {}", table::printable(name), headline(statistics));
    writeln!(out, "{}", table::wrapped(&head, width, 2))?;
    if !statistics.events.is_empty() {
        let mut events = Table::new(&[
            ("EVENTS", Align::Right),
            ("PAYLOAD", Align::Right),
            ("FIRST s", Align::Right),
            ("LAST s", Align::Right),
            ("PROVIDER", Align::Left),
            ("EVENT", Align::Left),
        ])
        .may_cut_start(4)
        .may_cut_middle(5)
        // The names are what a row is about. So much of them has room beside the counts and bytes at 80 columns.
        .keeps(4, "Microsoft-Windows-DotNETRuntime".len())
        .keeps(5, 20)
        .may_leave_out(&[3, 2, 1]);
        // A provider may have several events of one name; their numbers tell them apart.
        let mut called: HashMap<(&str, &str), u32> = HashMap::new();
        for row in &statistics.events {
            *called.entry((&row.provider, &row.event)).or_default() += 1;
        }
        for row in &statistics.events {
            let is_only = called.get(&(&*row.provider, &*row.event)) == Some(&1);
            let event = if is_only {
                row.event.clone()
            } else {
                format!("{} (id {})", row.event, row.id)
            };
            events.row([
                human::count(row.count),
                human::bytes(row.payload_bytes),
                seconds(row.first_ms),
                seconds(row.last_ms),
                row.provider.clone(),
                event,
            ]);
        }
        write!(out, "\n{}", events.render(width))?;
    }
    if !statistics.threads.is_empty() {
        let mut threads = Table::new(&[
            ("THREAD", Align::Right),
            ("EVENTS", Align::Right),
            ("WRITTEN", Align::Right),
            ("LOST", Align::Right),
            ("PAYLOAD", Align::Right),
            ("FIRST s", Align::Right),
            ("LAST s", Align::Right),
        ])
        .may_leave_out(&[6, 5, 4]);
        for row in &statistics.threads {
            threads.row([
                row.thread_id.to_string(),
                human::count(row.events),
                human::count(row.written),
                human::count(row.lost),
                human::bytes(row.payload_bytes),
                row.first_ms.map(seconds).unwrap_or_default(),
                row.last_ms.map(seconds).unwrap_or_default(),
            ]);
        }
        write!(out, "\n{}", threads.render(width))?;
    }
    Ok(())
}

/// The first line of the report.
fn headline(statistics: &TraceStatistics) -> String {
    let lost = statistics.lost;
    let process = match statistics.process_id {
        Some(pid) => format!(", process {pid}"),
        None => String::new(),
    };
    format!(
        "format {}{process}, {} from {}\n{}, {} of payloads, {} lost{}",
        statistics.format,
        human::span((statistics.duration_ms.max(0.0) * 1e6) as u128),
        statistics.start,
        human::number_of(statistics.total_events, "event"),
        human::bytes(statistics.total_payload_bytes),
        lost_text(lost.total, lost.at_least),
        if statistics.complete {
            why_unknown(lost.total, lost.at_least, statistics.format)
        } else {
            " (the trace is not complete)"
        },
    )
}

/// A number of lost events, honest about what is not known.
pub(crate) fn lost_text(lost: u64, at_least: bool) -> String {
    match (lost, at_least) {
        (0, true) => "an unknown number".to_owned(),
        (_, true) => format!("at least {}", human::count(lost)),
        _ => human::count(lost),
    }
}

/// Why a number of lost events is not known at all, with a blank before it; nothing where it is.
pub(crate) fn why_unknown(lost: u64, at_least: bool, format: u32) -> &'static str {
    match (lost, at_least) {
        (0, true) if format < 4 => " (this version of the format does not count them)",
        (0, true) => " (only the end of the stream would tell)",
        _ => "",
    }
}

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1e3)
}
