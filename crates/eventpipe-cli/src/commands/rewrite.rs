//! `eventpipe rewrite` and `eventpipe repair`: a trace written anew, in another format or without
//! its damage.

use crate::absent;
use crate::cli::{Repair, Rewrite, TargetFormat};
use crate::exit_code::{ExitCode, Failure};
use crate::human::{self, Moment};
use crate::input::{self, Source};
use crate::meanwhile::Meanwhile;
use crate::output::{self, WholeFile};
use crate::table;
use crate::terminal::note;
use anyhow::Context as _;
use nettrace::rewrite::{RewriteOptions, RewriteReport, rewrite};
use nettrace::{Error, ErrorKind, FormatVersion, Reader, ReaderOptions, TraceInfo, WriteFormat};
use std::path::{Path, PathBuf};

/// Writes a trace in another format; gives the exit code.
pub(crate) fn rewrite_to(arguments: &Rewrite) -> anyhow::Result<u8> {
    if human::is_backwards(arguments.from, arguments.until) {
        let text = "--from is later than --until";
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let mut reader = input::open(&arguments.file, ReaderOptions::default())?;
    let (format, infix) = match arguments.to {
        TargetFormat::V4 => (WriteFormat::V4, "v4"),
        TargetFormat::V6 => (WriteFormat::V6, "v6"),
    };
    let output = output_path(arguments.output.as_deref(), &arguments.file, infix);
    let mut options = RewriteOptions::new(format);
    options.filter.providers = arguments.provider.clone();
    options.filter.threads = arguments.thread.clone();
    options.filter.from = arguments.from.map(|moment| ticks(moment, reader.info()));
    options.filter.to = arguments.until.map(|moment| ticks(moment, reader.info()));
    let (report, damage) = run(&mut reader, &options, &output, arguments.force)?;
    summarize(&output, &report);
    let described = report.providers.iter().map(String::as_str);
    let name = input::name_of(&arguments.file);
    absent::tell_of_providers(&name, &arguments.provider, described);
    input::tell_of_more(&arguments.file, &reader);
    Ok(input::conclude(&arguments.file, damage))
}

/// Makes a complete trace of what can be read; gives the exit code.
pub(crate) fn repair(arguments: &Repair) -> anyhow::Result<u8> {
    let options = ReaderOptions {
        recover: true,
        ..ReaderOptions::default()
    };
    let mut reader = input::open(&arguments.file, options)?;
    let format = match reader.info().format {
        FormatVersion::V6 => WriteFormat::V6,
        _ => WriteFormat::V4,
    };
    let output = output_path(arguments.output.as_deref(), &arguments.file, "repaired");
    let options = RewriteOptions::new(format);
    let (report, damage) = run(&mut reader, &options, &output, arguments.force)?;
    input::tell_of_more(&arguments.file, &reader);
    let name = input::name_of(&arguments.file);
    for skipped in reader.skipped() {
        if skipped.length == 0 {
            note(format_args!(
                "{name}: at offset {}: {}",
                skipped.offset, skipped.reason
            ));
            continue;
        }
        note(format_args!(
            "{name}: left out {} bytes at offset {}: {}",
            human::count(skipped.length),
            skipped.offset,
            skipped.reason
        ));
    }
    match damage {
        Some(error) => note(format_args!("{name}: the rest is left out: {error}")),
        None if reader.skipped().is_empty() => {
            note(format_args!(
                "{name}: no damage found; the copy holds the same events"
            ));
        }
        None => {}
    }
    summarize(&output, &report);
    // A cut end is what repair is for; anything else that stopped it is worth a code of its own.
    let expected =
        |error: Error| matches!(error.kind, ErrorKind::Truncated | ErrorKind::TruncatedBlock);
    match damage {
        Some(error) if !expected(error) => Ok(ExitCode::Damaged as u8),
        _ => Ok(ExitCode::Ok as u8),
    }
}

fn run(
    reader: &mut Reader<Source>,
    options: &RewriteOptions,
    output: &Path,
    force: bool,
) -> anyhow::Result<(RewriteReport, Option<Error>)> {
    let mut file = WholeFile::create(output, force)?;
    let meanwhile = Meanwhile::reading();
    let result = rewrite(reader, options, &mut file);
    drop(meanwhile);
    let failure = || Failure::new(ExitCode::Output, format!("cannot write {}", called(output)));
    let result = result.with_context(failure)?;
    file.finish()?;
    Ok(result)
}

/// A moment as a time stamp of the trace.
fn ticks(moment: Moment, info: &TraceInfo) -> i64 {
    let nanoseconds = moment.since_start(info);
    let ticks = nanoseconds.saturating_mul(i128::from(info.ticks_per_second)) / 1_000_000_000;
    let ticks = ticks.saturating_add(i128::from(info.sync_ticks));
    i64::try_from(ticks).unwrap_or(if ticks < 0 { i64::MIN } else { i64::MAX })
}

pub(crate) fn output_path(given: Option<&Path>, input: &Path, infix: &str) -> PathBuf {
    match given {
        Some(path) => path.to_owned(),
        None => output::sibling(input, infix),
    }
}

pub(crate) fn summarize(output: &Path, report: &RewriteReport) {
    let name = called(output);
    note(format_args!(
        "{name}: {}, {}",
        human::number_of(report.events, "event"),
        human::bytes(report.bytes)
    ));
    for (count, _, what) in exceptions(report) {
        if count > 0 {
            note(format_args!("{name}: {what}: {}", human::count(count)));
        }
    }
}

/// How an output is called in messages, in one line.
pub(crate) fn called(output: &Path) -> String {
    table::printable(&input::path_text(output, "standard output"))
}

/// What is not as it was: how often, its name for programs, and in words.
pub(crate) fn exceptions(report: &RewriteReport) -> [(u64, &'static str, &'static str); 10] {
    [
        (
            report.events_filtered,
            "events_filtered",
            "events left out as asked",
        ),
        (
            report.events_left_out,
            "events_left_out",
            "events too large for the format, which count as lost",
        ),
        (
            report.lists_left_out,
            "lists_left_out",
            "stacks or label lists too large for the format",
        ),
        (
            report.events_out_of_order,
            "events_out_of_order",
            "events that came too late to be sorted by time",
        ),
        (
            report.labels_left_out,
            "labels_left_out",
            "labels that have no place in the format",
        ),
        (
            report.thread_names_left_out,
            "thread_names_left_out",
            "threads that lost their name or their pairs",
        ),
        (
            report.foreign_processes,
            "foreign_processes",
            "events of other processes, which the format cannot say",
        ),
        (
            report.threads_renamed,
            "threads_renamed",
            "threads that got another number, because two had the same",
        ),
        (
            report.pairs_left_out,
            "pairs_left_out",
            "pairs of the trace's description that have no place in the format",
        ),
        (
            report.descriptions_reduced,
            "descriptions_reduced",
            "descriptions of events that lost what the format cannot hold",
        ),
    ]
}
