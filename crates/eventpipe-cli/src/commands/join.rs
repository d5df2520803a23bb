//! `eventpipe join`: several traces made into one.

use crate::cli::{Join, TargetFormat};
use crate::commands::rewrite::{exceptions, output_path, summarize};
use crate::exit_code::{ExitCode, Failure};
use crate::input::{self, Source};
use crate::meanwhile::Meanwhile;
use crate::output::WholeFile;
use crate::terminal;
use anyhow::Context as _;
use nettrace::rewrite::{RewriteError, RewriteOptions, join};
use nettrace::{FormatVersion, Reader, ReaderOptions, WriteFormat};
use serde_json::{Map, Value, json};
use std::io::Write as _;
use std::path::Path;

/// Joins traces; gives the exit code.
pub(crate) fn join_files(arguments: &Join) -> anyhow::Result<u8> {
    let refused = |text: String| Failure::new(ExitCode::Arguments, text);
    let standard_inputs = arguments
        .files
        .iter()
        .filter(|path| path.as_os_str() == "-");
    if standard_inputs.count() > 1 {
        return Err(refused("standard input is one trace, not several".into()).into());
    }
    let (first, output) = (
        arguments.files.first().map_or(Path::new("-"), |path| path),
        arguments.output.as_deref(),
    );
    let output = output_path(output, first, "joined");
    if arguments.json && output.as_os_str() == "-" {
        let text = "the trace and --json cannot both go to standard output";
        return Err(refused(text.into()).into());
    }
    let readers: Vec<Reader<Source>> = arguments
        .files
        .iter()
        .map(|path| input::open(path, ReaderOptions::default()))
        .collect::<Result<_, _>>()?;
    let format = match arguments.to {
        Some(TargetFormat::V4) => WriteFormat::V4,
        Some(TargetFormat::V6) => WriteFormat::V6,
        None => usual_format(&readers),
    };
    // A rolling recording of a thousand files needs no more memory at once than its readers do.
    let mut file = WholeFile::create(&output, arguments.force)?;
    let meanwhile = Meanwhile::reading();
    let result = join(readers, &RewriteOptions::new(format), &mut file);
    drop(meanwhile);
    let (report, damages) = result.map_err(|error| match error {
        RewriteError::PointerSizes(..) | RewriteError::NoTrace => {
            anyhow::Error::from(refused(format!("cannot join: {error}")))
        }
        error => anyhow::Error::from(error).context(file.failure()),
    })?;
    file.finish()?;
    if !arguments.json {
        summarize(&output, &report);
    }
    let mut code = ExitCode::Ok as u8;
    for (path, damage) in arguments.files.iter().zip(&damages) {
        code = code.max(input::conclude(path, *damage));
    }
    if arguments.json {
        let sources = arguments.files.iter().zip(&damages).map(|(path, damage)| {
            let error = damage.map(|error| error.to_string());
            json!({ "file": input::path_text(path, "standard input"), "error": error })
        });
        let mut all = Map::new();
        all.insert(
            "output".into(),
            input::path_text(&output, "standard output").into(),
        );
        let version = match format {
            WriteFormat::V4 => 4,
            WriteFormat::V6 => 6,
        };
        all.insert("format_version".into(), version.into());
        all.insert("events".into(), report.events.into());
        all.insert("bytes".into(), report.bytes.into());
        for (count, name, _) in exceptions(&report) {
            all.insert(name.into(), count.into());
        }
        all.insert("sources".into(), sources.collect());
        let mut out = terminal::out();
        serde_json::to_writer_pretty(&mut out, &Value::Object(all))?;
        writeln!(out)?;
        out.flush().context("writing to standard output")?;
    }
    Ok(code)
}

/// Version 6 if a trace has it, or if there are threads of several processes to be told apart.
fn usual_format(readers: &[Reader<Source>]) -> WriteFormat {
    let first = readers.first().and_then(|reader| reader.info().process_id);
    let needs_v6 = readers.iter().any(|reader| {
        reader.info().format == FormatVersion::V6 || reader.info().process_id != first
    });
    if needs_v6 {
        WriteFormat::V6
    } else {
        WriteFormat::V4
    }
}
