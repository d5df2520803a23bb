//! `eventpipe convert`: the stacks of a trace in the forms of other tools.

use crate::cli::{Conversion, Convert, Selection};
use crate::exit_code::{ExitCode, Failure};
use crate::human;
use crate::input;
use crate::output::WholeFile;
use crate::profile::{self, Profile, Wanted};
use crate::table;
use crate::terminal::note;
use anyhow::Context as _;
use nettrace_analysis::stacks::{Measure, folded, speedscope};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Converts and gives the exit code.
pub(crate) fn convert(arguments: &Convert) -> anyhow::Result<u8> {
    let output = match &arguments.output {
        Some(path) => path.clone(),
        None => beside(&arguments.file, arguments.format),
    };
    // Before a long trace is read.
    let mut file = WholeFile::create(&output, arguments.force)?;
    let wanted = Wanted {
        selection: &arguments.selection,
        only_managed: arguments.managed,
        in_order: arguments.format == Conversion::Speedscope,
    };
    let profile = profile::gather(&arguments.file, &wanted)?;
    let name = input::name_of(&arguments.file);
    if profile.samples.total() == 0 {
        let what = match profile.samples.left_out() {
            0 => "no samples of threads and no event with a stack",
            _ => "all of its thread time is outside of managed code",
        };
        let text = format!("{name}: {what}");
        return Err(Failure::new(ExitCode::Input, text).into());
    }
    write(&profile, arguments.format, &name, &mut file).with_context(|| file.failure())?;
    file.finish()?;
    let amount = match profile.samples.measure() {
        Measure::ThreadTime => {
            let time = human::span(profile.samples.total().into());
            format!("{time} of thread time")
        }
        Measure::Events => human::number_of(profile.samples.total(), "event"),
    };
    let shown = table::printable(&input::path_text(&output, "standard output"));
    note(format_args!(
        "{shown}: {amount}{}",
        how_to_look(arguments.format)
    ));
    Ok(input::conclude(&arguments.file, profile.damage))
}

/// Makes a file for speedscope.app beside a recording that has just been made.
pub(crate) fn recording(file: &Path, force: bool) -> anyhow::Result<u8> {
    convert(&Convert {
        file: file.to_owned(),
        format: Conversion::Speedscope,
        output: None,
        force,
        managed: false,
        selection: Selection::default(),
    })
}

/// What to do with the file.
fn how_to_look(format: Conversion) -> &'static str {
    match format {
        Conversion::Speedscope => " (open it at https://speedscope.app)",
        Conversion::Flamegraph => " (open it in a browser)",
        Conversion::Folded => "",
    }
}

fn write(
    profile: &Profile,
    format: Conversion,
    name: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let (samples, names) = (&profile.samples, &profile.names);
    match format {
        Conversion::Speedscope => speedscope(samples, names, name, out),
        Conversion::Folded => folded(samples, names, out),
        Conversion::Flamegraph => {
            let mut lines = Vec::new();
            folded(samples, names, &mut lines)?;
            let mut options = inferno::flamegraph::Options::default();
            options.title = name.to_owned();
            options.count_name = match samples.measure() {
                Measure::ThreadTime => "µs",
                Measure::Events => "events",
            }
            .to_owned();
            inferno::flamegraph::from_reader(&mut options, lines.as_slice(), out)
                .map_err(io::Error::other)
        }
    }
}

/// The default name: the trace's with another ending.
fn beside(input: &Path, format: Conversion) -> PathBuf {
    let ending = match format {
        Conversion::Speedscope => "speedscope.json",
        Conversion::Flamegraph => "svg",
        Conversion::Folded => "folded.txt",
    };
    let name = if input.as_os_str() == "-" {
        Path::new("trace")
    } else {
        input
    };
    name.with_extension(ending)
}
