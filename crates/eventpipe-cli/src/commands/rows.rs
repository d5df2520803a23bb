//! The reports that are one table: `eventpipe report activities`, `gc`, `alloc`, `exceptions`, `contention`, `counters`.

use crate::cli::Rows;
use crate::human;
use crate::input;
use crate::meanwhile::Meanwhile;
use crate::table::{self, Align, Table};
use crate::terminal;
use nettrace::{Error, Event, ReaderOptions, TraceInfo};
use nettrace_analysis::activities::Activities;
use nettrace_analysis::runtime::{
    Allocations, Collections, Contention, CounterReport, Counters, Exceptions,
};
use serde::Serialize;
use std::io::Write;

/// So many rows are shown unless the number is given.
const USUAL: usize = 20;

/// Prints the collections and gives the exit code.
pub(crate) fn gc(arguments: &Rows) -> anyhow::Result<u8> {
    let mut collections = Collections::new();
    let damage = read(arguments, |info, event| collections.add(info, event))?;
    let mut report = collections.finish();
    let left_out = cut(arguments, &mut report.collections);
    let head = match report.count {
        0 => "no collection (`--profile gc-collect` records them)".to_owned(),
        count => format!(
            "{}: {} of generation 0, {} of 1, {} of 2\npauses {} in all, median {}, longest {}; {} survived",
            human::number_of(count, "collection"),
            report.count_per_generation[0],
            report.count_per_generation[1],
            report.count_per_generation[2],
            span(report.pause_total_ms),
            span(report.pause_median_ms),
            span(report.pause_max_ms),
            human::bytes(report.promoted_bytes),
        ),
    };
    let mut rows = Table::new(&[
        ("GC", Align::Right),
        ("GEN", Align::Right),
        ("AT s", Align::Right),
        ("PAUSE", Align::Right),
        ("TOOK", Align::Right),
        ("AFTER", Align::Right),
        ("SURVIVED", Align::Right),
        ("KIND", Align::Left),
        ("REASON", Align::Left),
    ])
    .may_leave_out(&[6, 4, 7]);
    let unknown = || "?".to_owned();
    for one in &report.collections {
        rows.row([
            one.number.to_string(),
            one.generation.map_or_else(unknown, |it| it.to_string()),
            format!("{:.3}", one.pause_start_ms / 1e3),
            one.pause_ms.map_or_else(unknown, span),
            one.duration_ms.map_or_else(unknown, span),
            one.size_after.map_or_else(unknown, human::bytes),
            one.promoted.map_or_else(unknown, human::bytes),
            one.kind.clone(),
            one.reason.clone(),
        ]);
    }
    answer(arguments, &report, &head, &rows, left_out, damage)
}

/// Prints what was allocated and gives the exit code.
pub(crate) fn allocations(arguments: &Rows) -> anyhow::Result<u8> {
    let mut allocations = Allocations::new();
    let damage = read(arguments, |_, event| allocations.add(event))?;
    let mut report = allocations.finish();
    let all = report.bytes;
    let left_out = cut(arguments, &mut report.types);
    let head = match report.ticks {
        0 => "no allocation (`--profile gc-verbose` records them)".to_owned(),
        ticks => format!(
            "{} allocated, by {} of about 100 kB each",
            human::bytes(all),
            human::number_of(ticks, "event"),
        ),
    };
    let mut rows = Table::new(&[
        ("%", Align::Right),
        ("BYTES", Align::Right),
        ("EVENTS", Align::Right),
        ("LARGE", Align::Right),
        ("PINNED", Align::Right),
        ("TYPE", Align::Left),
    ])
    .may_cut_end(5)
    .may_leave_out(&[4, 3]);
    for one in &report.types {
        rows.row([
            format!("{:.2}", 100.0 * one.bytes as f64 / all.max(1) as f64),
            human::bytes(one.bytes),
            human::count(one.count),
            human::count(one.large),
            human::count(one.pinned),
            one.name.clone(),
        ]);
    }
    answer(arguments, &report, &head, &rows, left_out, damage)
}

/// Prints what was thrown and gives the exit code.
pub(crate) fn exceptions(arguments: &Rows) -> anyhow::Result<u8> {
    let mut exceptions = Exceptions::new();
    let damage = read(arguments, |info, event| exceptions.add(info, event))?;
    let mut report = exceptions.finish();
    let left_out = cut(arguments, &mut report.exceptions);
    let head = match report.thrown {
        0 => "no exception (`--clrevents exception` records them)".to_owned(),
        thrown => format!("{} thrown", human::number_of(thrown, "exception")),
    };
    let mut rows = Table::new(&[
        ("THROWN", Align::Right),
        ("FIRST s", Align::Right),
        ("LAST s", Align::Right),
        ("TYPE", Align::Left),
        ("MESSAGE", Align::Left),
    ])
    .may_cut_end(4)
    .may_cut_start(3)
    .may_leave_out(&[2, 1]);
    for one in &report.exceptions {
        rows.row([
            human::count(one.count),
            format!("{:.3}", one.first_ms / 1e3),
            format!("{:.3}", one.last_ms / 1e3),
            one.exception_type.clone(),
            one.message.clone(),
        ]);
    }
    answer(arguments, &report, &head, &rows, left_out, damage)
}

/// Prints who waited for locks and gives the exit code.
pub(crate) fn contention(arguments: &Rows) -> anyhow::Result<u8> {
    let mut contention = Contention::new();
    let damage = read(arguments, |info, event| contention.add(info, event))?;
    let mut report = contention.finish();
    let left_out = cut(arguments, &mut report.threads);
    let head = match report.starts {
        0 => "no wait for a lock (`--clrevents contention` records them)".to_owned(),
        starts => format!(
            "{} for a lock: {} in all, longest {}",
            human::number_of(starts, "wait"),
            span(report.wait_total_ms),
            span(report.wait_max_ms)
        ),
    };
    let mut rows = Table::new(&[
        ("THREAD", Align::Right),
        ("WAITS", Align::Right),
        ("ENDED", Align::Right),
        ("WAITED", Align::Right),
        ("LONGEST", Align::Right),
    ]);
    for one in &report.threads {
        rows.row([
            one.thread_id.to_string(),
            human::count(one.starts),
            human::count(one.stops),
            span(one.wait_total_ms),
            span(one.wait_max_ms),
        ]);
    }
    answer(arguments, &report, &head, &rows, left_out, damage)
}

/// Prints activities and gives the exit code.
pub(crate) fn activities(arguments: &Rows) -> anyhow::Result<u8> {
    let mut activities = Activities::new();
    let damage = read(arguments, |info, event| activities.add(info, event))?;
    let mut report = activities.finish();
    let left_out = cut(arguments, &mut report.activities);
    let head = match (report.count, report.open) {
        (0, 0) => "no activity: no start and stop events".to_owned(),
        (count, open) => format!(
            "{} with a start and a stop, {} without a stop",
            human::count(count),
            human::count(open)
        ),
    };
    let mut rows = Table::new(&[
        ("COUNT", Align::Right),
        ("OPEN", Align::Right),
        ("TOTAL", Align::Right),
        ("MEDIAN", Align::Right),
        ("95 %", Align::Right),
        ("LONGEST", Align::Right),
        ("ACTIVITY", Align::Left),
        ("PROVIDER", Align::Left),
    ])
    .may_cut_start(7)
    .may_cut_start(6)
    .may_leave_out(&[1, 7, 2, 4]);
    for one in &report.activities {
        rows.row([
            human::count(one.count),
            human::count(one.open),
            span(one.total_ms),
            span(one.median_ms),
            span(one.p95_ms),
            span(one.max_ms),
            one.activity.clone(),
            one.provider.clone(),
        ]);
    }
    answer(arguments, &report, &head, &rows, left_out, damage)
}

/// Prints counters and gives the exit code.
pub(crate) fn counters(arguments: &Rows) -> anyhow::Result<u8> {
    let mut counters = Counters::new();
    let damage = read(arguments, |info, event| {
        counters.add(info, event);
    })?;
    let mut report = counters.report();
    // There are not many, and none is more worth than the others.
    let left_out = cut_to(arguments.number.unwrap_or(usize::MAX), &mut report.counters);
    let head = match report.values {
        0 => "no counter (`--providers System.Runtime:0:4:EventCounterIntervalSec=1` records them)"
            .to_owned(),
        values => format!(
            "{} of {}",
            human::number_of(values, "value"),
            human::number_of((report.counters.len() + left_out) as u64, "counter")
        ),
    };
    let rows = of_counters(&report);
    answer(arguments, &report, &head, &rows, left_out, damage)
}

/// The table of counters.
pub(crate) fn of_counters(report: &CounterReport) -> Table {
    let mut rows = Table::new(&[
        ("LAST", Align::Right),
        ("MIN", Align::Right),
        ("MEAN", Align::Right),
        ("MAX", Align::Right),
        ("VALUES", Align::Right),
        ("COUNTER", Align::Left),
        ("PROVIDER", Align::Left),
    ])
    .may_cut_end(5)
    .may_cut_start(6)
    .may_leave_out(&[4, 6, 2]);
    for one in &report.counters {
        let mut name = one.display_name.clone();
        let unit = match (one.unit.as_str(), one.kind) {
            ("", "increment") => "in an interval".to_owned(),
            (unit, "increment") => format!("{unit} in an interval"),
            (unit, _) => unit.to_owned(),
        };
        if !unit.is_empty() {
            name.push_str(&format!(" ({unit})"));
        }
        if !one.tags.is_empty() {
            name.push_str(&format!(" [{}]", one.tags));
        }
        rows.row([
            human::number(one.last),
            human::number(one.min),
            human::number(one.mean),
            human::number(one.max),
            human::count(one.count),
            name,
            one.provider.clone(),
        ]);
    }
    rows
}

/// Gives every event, by time; what ended the reading too early.
fn read(
    arguments: &Rows,
    mut each: impl FnMut(&TraceInfo, &Event<'_>),
) -> anyhow::Result<Option<Error>> {
    let reader = input::open(&arguments.file, ReaderOptions::default())?;
    let _meanwhile = Meanwhile::reading();
    let info = reader.info().clone();
    let mut ordered = reader.dispatch_order();
    let damage = loop {
        match ordered.next_event() {
            Ok(Some(event)) => each(&info, &event),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    input::tell_of_more(&arguments.file, ordered.reader());
    Ok(damage)
}

/// Leaves as many rows as are to be shown; how many are not.
fn cut<T>(arguments: &Rows, rows: &mut Vec<T>) -> usize {
    let usual = if arguments.json { usize::MAX } else { USUAL };
    cut_to(arguments.number.unwrap_or(usual), rows)
}

fn cut_to<T>(number: usize, rows: &mut Vec<T>) -> usize {
    let all = rows.len();
    rows.truncate(number);
    all - rows.len()
}

fn answer(
    arguments: &Rows,
    report: &impl Serialize,
    head: &str,
    rows: &Table,
    left_out: usize,
    damage: Option<Error>,
) -> anyhow::Result<u8> {
    let mut out = terminal::out();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        let width = table::stdout_width();
        let head = format!("{}: {head}", input::name_of(&arguments.file));
        writeln!(out, "{}", table::wrapped(&head, width, 2))?;
        if !rows.is_empty() {
            write!(out, "\n{}", rows.render(width))?;
        }
        table::tell_of_more(&mut out, left_out, "row")?;
    }
    out.flush()?;
    Ok(input::conclude(&arguments.file, damage))
}

fn span(ms: f64) -> String {
    human::span((ms.max(0.0) * 1e6) as u128)
}
