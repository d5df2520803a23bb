//! `eventpipe info`: what a trace file is.

use crate::cli::Info;
use crate::commands::report::{lost_text, why_unknown};
use crate::human;
use crate::input;
use crate::meanwhile::Meanwhile;
use crate::table;
use crate::terminal;
use nettrace::{FormatVersion, Item, ReaderOptions, Statistics};
use nettrace_analysis::statistics::{start_text, version_number};
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use unicode_width::UnicodeWidthStr as _;

/// The facts, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Facts {
    format: u32,
    bytes: u64,
    complete: bool,
    start: String,
    duration_ms: f64,
    process_id: Option<u64>,
    pointer_size: u32,
    processor_count: Option<u32>,
    sampling_period_ns: Option<u64>,
    ticks_per_second: i64,
    pairs: Vec<(String, String)>,
    events: u64,
    events_with_stack: u64,
    lost: u64,
    lost_at_least: bool,
    threads: usize,
    providers: usize,
    event_descriptions: u64,
    sequence_points: u64,
    blocks: Blocks,
}

/// How many blocks of each kind the file has; versions 1 and 2 have none.
#[derive(Debug, Serialize)]
struct Blocks {
    event: u64,
    metadata: u64,
    stack: u64,
    sequence_point: u64,
    thread: u64,
    label: u64,
    unknown: u64,
}

impl Blocks {
    fn new(format: FormatVersion, seen: &Statistics) -> Blocks {
        let is_in_blocks = format >= FormatVersion::V3;
        Blocks {
            event: if is_in_blocks { seen.event_blocks } else { 0 },
            metadata: seen.metadata_blocks,
            stack: seen.stack_blocks,
            sequence_point: seen.sequence_points,
            thread: seen.thread_blocks,
            label: seen.label_blocks,
            unknown: seen.unknown_blocks,
        }
    }

    fn text(&self) -> String {
        let kinds = [
            (self.event, "event"),
            (self.metadata, "metadata"),
            (self.stack, "stack"),
            (self.sequence_point, "sequence point"),
            (self.thread, "thread"),
            (self.label, "label list"),
            (self.unknown, "of an unknown kind"),
        ];
        let some = kinds.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = some
            .map(|(count, kind)| format!("{} {kind}", human::count(*count)))
            .collect();
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Prints the facts and gives the exit code.
pub(crate) fn info(arguments: &Info) -> anyhow::Result<u8> {
    let mut reader = input::open(&arguments.file, ReaderOptions::default())?;
    let meanwhile = Meanwhile::reading();
    let mut last_timestamp = None;
    let (mut events, mut events_with_stack, mut event_descriptions) = (0, 0, 0);
    let mut threads = HashSet::new();
    let mut providers = HashSet::new();
    let damage = loop {
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => {
                events += 1;
                events_with_stack += u64::from(!event.stack().is_empty());
                threads.insert(event.thread_id());
                last_timestamp = last_timestamp.max(Some(event.timestamp()));
            }
            Ok(Some(Item::Metadata(metadata))) => {
                event_descriptions += 1;
                if !providers.contains(&metadata.provider) {
                    providers.insert(metadata.provider.clone());
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    drop(meanwhile);
    let trace = reader.info();
    let facts = Facts {
        format: version_number(trace.format),
        bytes: reader.offset(),
        complete: reader.is_complete(),
        start: start_text(trace),
        duration_ms: last_timestamp.map_or(0.0, |at| trace.nanoseconds(at) as f64 / 1e6),
        process_id: trace.process_id,
        pointer_size: trace.pointer_size,
        processor_count: trace.processor_count,
        sampling_period_ns: trace.sampling_period_ns,
        ticks_per_second: trace.ticks_per_second,
        pairs: trace.pairs.clone(),
        events,
        events_with_stack,
        lost: reader.losses().total(),
        lost_at_least: reader.losses().is_lower_bound,
        threads: threads.len(),
        providers: providers.len(),
        event_descriptions,
        sequence_points: reader.statistics().sequence_points,
        blocks: Blocks::new(trace.format, reader.statistics()),
    };
    let mut out = terminal::out();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &facts)?;
        writeln!(out)?;
    } else {
        print(&mut out, &facts)?;
    }
    out.flush()?;
    input::tell_of_more(&arguments.file, &reader);
    Ok(input::conclude(&arguments.file, damage))
}

/// Where the values begin.
const COLUMN: usize = 18;

fn print(out: &mut impl Write, facts: &Facts) -> std::io::Result<()> {
    let unknown = || "unknown".to_owned();
    let mut lines: Vec<(&str, String)> = Vec::new();
    let mut line = |name, value| lines.push((name, value));
    line("format", format!("version {}", facts.format));
    let state = if facts.complete {
        "complete"
    } else {
        "ends without its end tag"
    };
    line(
        "size",
        format!("{} bytes, {state}", human::count(facts.bytes)),
    );
    line("start", facts.start.clone());
    line(
        "duration",
        human::span((facts.duration_ms.max(0.0) * 1e6) as u128),
    );
    line(
        "process",
        facts.process_id.map_or_else(unknown, |pid| pid.to_string()),
    );
    line("pointers", format!("{} bytes", facts.pointer_size));
    line(
        "processors",
        facts
            .processor_count
            .map_or_else(unknown, |n| n.to_string()),
    );
    let period = facts.sampling_period_ns.filter(|&ns| ns > 0);
    line(
        "sampling period",
        period.map_or_else(unknown, |ns| human::span(u128::from(ns))),
    );
    line(
        "clock",
        format!(
            "{} ticks per second",
            human::count(facts.ticks_per_second.max(0) as u64)
        ),
    );
    for (key, value) in &facts.pairs {
        line(key, value.clone());
    }
    line(
        "events",
        format!(
            "{} ({} with a stack)",
            human::count(facts.events),
            human::count(facts.events_with_stack)
        ),
    );
    let why = why_unknown(facts.lost, facts.lost_at_least, facts.format);
    line("lost", lost_text(facts.lost, facts.lost_at_least) + why);
    line("threads", human::count(facts.threads as u64));
    line(
        "descriptions",
        format!(
            "{} of {}",
            human::number_of(facts.event_descriptions, "event"),
            human::number_of(facts.providers as u64, "provider")
        ),
    );
    line("blocks", facts.blocks.text());

    let width = table::stdout_width();
    // On a narrow terminal the values need the room.
    let longest = lines.iter().map(|(name, _)| name.width()).max();
    let column = if table::stdout_is_narrow() {
        longest.unwrap_or(0).min(COLUMN)
    } else {
        COLUMN
    };
    for (name, value) in &lines {
        let (name, value) = (table::printable(name), table::printable(value));
        let text = format!("{name:<column$} {value}");
        writeln!(out, "{}", table::wrapped(&text, width, column + 1))?;
    }
    Ok(())
}
