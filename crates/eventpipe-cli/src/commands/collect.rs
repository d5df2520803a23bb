//! `eventpipe collect`: options → request → target → session → recording → summary.

use crate::attach::{Channel, Finished, Recording};
use crate::child::Launched;
use crate::cli::{Buffering, Collect, TraceFormat};
use crate::commands::{convert, dialled, several};
use crate::drive::Options;
use crate::exit_code::{ExitCode, Failure};
use crate::launch::Launch;
use crate::output::{self, RecordingFile};
use crate::profiles::{self, Asked, Request};
use crate::providers;
use crate::reach::{Reached, reach};
use crate::recording::StopWhen;
use crate::roll::Rolling;
use crate::table::{self, Align, Table};
use crate::target::attach_failure;
use crate::terminal::{note, note_once};
use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Fallbacks, Session};
use dotnet_diagnostics::codec::{BufferingMode, CollectTracing, ProviderConfig};
use std::path::{Path, PathBuf};

/// Records a trace; gives the exit code.
pub(crate) fn collect(arguments: &Collect) -> anyhow::Result<u8> {
    let asked = Asked {
        providers: &arguments.providers,
        profiles: &arguments.profile,
        clr_events: arguments.clr_events.as_deref(),
        clr_event_level: arguments.clr_event_level.as_deref(),
        rundown: arguments.rundown,
        native: false,
    };
    refuse_what_is_not_there(arguments)?;
    if arguments.show_child_io && arguments.command.is_empty() {
        let text = "--show-child-io is for a command that is started: -- COMMAND";
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let is_one_file = arguments.roll.is_none()
        && arguments
            .output
            .as_deref()
            .is_none_or(|path| path.as_os_str() != "-");
    if arguments.format == TraceFormat::Speedscope && !is_one_file {
        let text = "--format Speedscope is made of one file: not with --roll, nor with -o -";
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    // Before anything is started or attached to, so that a wrong word or path costs nothing.
    profiles::combine(&asked)?;
    if let Some(path) = &arguments.output {
        if arguments.roll.is_some() && path.as_os_str() == "-" {
            let text = "--roll writes several files, and standard output is one";
            return Err(Failure::new(ExitCode::Arguments, text).into());
        }
        if arguments.roll.is_none() && !several::is_asked(arguments) {
            output::check(path, arguments.force)?;
        } else if path.as_os_str() != "-" {
            output::check_beside(path)?;
        }
    }
    if dialled::is_asked(arguments) {
        return dialled::collect(arguments, &asked);
    }
    if several::is_asked(arguments) {
        return several::collect(arguments, &asked);
    }
    let channel = Channel::with_signals()?;

    let output = arguments.output.as_deref();
    if arguments.command.is_empty() {
        let mut reached = reach(&arguments.target, &channel)?;
        reached.tell_of_others()?;
        return record(arguments, &asked, reached, channel, output, true);
    }
    let mut launch = Launch::start(arguments)?;
    let client = launch.dialled_in(&channel)?;
    let name = launch.program.clone();
    let mut reached = Reached::found(client, name, launch.child.id(), launch.is_native);
    reached.by_port = true;
    let child = Some(&mut launch.child);
    let finished = run(arguments, &asked, &reached, channel, output, true, child)?;
    Ok(launch.finish(&finished))
}

/// Options of the existing tool that this one only knows by name.
fn refuse_what_is_not_there(arguments: &Collect) -> Result<(), Failure> {
    let text = if arguments.dsrouter.is_some() {
        "--dsrouter is not supported: start dotnet-dsrouter yourself, and give its process id to -p"
    } else if arguments.format == TraceFormat::Chromium {
        "--format Chromium is not supported: Speedscope is, and `eventpipe convert` makes flame graphs"
    } else {
        return Ok(());
    };
    Err(Failure::new(ExitCode::Unsupported, text))
}

/// Records a process that runs, alone or as one of several; gives the exit code.
pub(crate) fn record(
    arguments: &Collect,
    asked: &Asked<'_>,
    reached: Reached,
    channel: Channel,
    output: Option<&Path>,
    is_alone: bool,
) -> anyhow::Result<u8> {
    let finished = run(arguments, asked, &reached, channel, output, is_alone, None)?;
    Ok(finished.code as u8)
}

fn run(
    arguments: &Collect,
    asked: &Asked<'_>,
    reached: &Reached,
    channel: Channel,
    output: Option<&Path>,
    is_alone: bool,
    child: Option<&mut Launched>,
) -> anyhow::Result<Finished> {
    let mut request = profiles::combine(&Asked {
        native: reached.is_native,
        ..*asked
    })?;
    if let Some(provider) = &arguments.stopping_provider
        && !request.enables(provider)
    {
        request.notes.push(format!(
            "the stopping event will hardly come: its provider '{provider}' is not enabled"
        ));
    }
    let (client, name, pid) = (&reached.client, &reached.name, reached.pid);
    let (file, rolling) = files(arguments, output, name)?;
    let path = file.path().to_owned();
    let session = match begin(
        client,
        &request,
        arguments.buffer_mb,
        arguments.buffering_mode,
    ) {
        Ok(session) => session,
        Err(error) => {
            file.discard();
            if let Some(rolling) = rolling {
                rolling.discard();
            }
            return Err(error);
        }
    };
    let into = match &rolling {
        Some(rolling) => format!(
            "{} and so on",
            table::printable(&rolling.first().display().to_string())
        ),
        None => file.name(),
    };
    note(format_args!(
        "recording {} (process {pid}, session {:#x}) into {into}",
        table::printable(name),
        session.id().0,
    ));
    let stop_when = arguments.stopping_provider.as_ref().map(|provider| {
        let event = arguments.stopping_event.as_deref();
        StopWhen::new(provider, event, &arguments.stopping_fields)
    });
    let recording = Recording::start(session, file, rolling, stop_when, channel)?;
    // Whatever the target, as the existing tool does; and after the recorder runs, because a suspended runtime
    // sends nothing until it is resumed. One that cannot be suspended does not know the command.
    if arguments.resume_runtime
        && let Err(error) = client.resume_runtime()
        && reached.by_port
        && !error.is_unsupported()
    {
        note(format_args!(
            "eventpipe: the process could not be resumed: {error}"
        ));
    }
    // Several share the terminal, and a command may have it to itself.
    let has_terminal = is_alone && !arguments.show_child_io;
    let options = Options {
        duration: reached.duration.or(arguments.duration),
        rundown_timeout: arguments.rundown_timeout,
        ends_on_enter: has_terminal,
        fail_on_drop: arguments.fail_on_drop,
        first_signal_is_the_childs: arguments.show_child_io,
    };
    let mut finished = recording.run(&options, &request.providers, has_terminal, child);
    if arguments.format == TraceFormat::Speedscope
        && let Err(error) = convert::recording(&path, arguments.force)
    {
        // The recording is there all the same.
        note(format_args!("eventpipe: {error:#}"));
        if finished.code == ExitCode::Ok {
            finished.code = Failure::code_of(&error);
        }
    }
    Ok(finished)
}

/// The file to write, or those of `--roll`.
fn files(
    arguments: &Collect,
    output: Option<&Path>,
    name: &str,
) -> anyhow::Result<(RecordingFile, Option<Rolling>)> {
    if let Some(limit) = arguments.roll {
        let default = PathBuf::from(format!("{}.nettrace", output::default_stem(name)));
        let path = output.unwrap_or(&default);
        let keep = arguments.keep.map(|keep| keep as usize);
        let rolling = Rolling::create(path, limit, keep, arguments.force)?;
        return Ok((RecordingFile::of_several(path), Some(rolling)));
    }
    let file = match output {
        Some(path) => RecordingFile::create(path, arguments.force)?,
        None => RecordingFile::create_default(name)?,
    };
    Ok((file, None))
}

/// Begins the session, and shows what was enabled: the table is made from the request itself.
pub(crate) fn begin(
    client: &Client,
    request: &Request,
    buffer_mb: u32,
    buffering: Buffering,
) -> anyhow::Result<Session> {
    let configs = request.providers.iter().map(|provider| {
        let mut config =
            ProviderConfig::new(provider.name.as_str(), provider.keywords, provider.level);
        config.arguments = Some(provider.argument_text()).filter(|text| !text.is_empty());
        config
    });
    let mut collect = CollectTracing::new(configs);
    collect.buffer_mb = buffer_mb;
    collect.buffering_mode = match buffering {
        Buffering::Drop => BufferingMode::Drop,
        Buffering::Block => BufferingMode::Block,
    };
    collect.rundown_keyword = request.rundown_keyword;
    let mut notes = request.notes.clone();
    let session = match client.collect(&collect, Fallbacks::NONE) {
        // A profile that wants a part of the rundown only goes without where that cannot be said.
        Err(Error::Unsupported { .. }) if collect.rundown_keyword != 0 => {
            notes.push(
                "there is no rundown: a part of it (--profile gc-collect) needs .NET 9".to_owned(),
            );
            collect.rundown_keyword = 0;
            client.collect(&collect, Fallbacks::LOSSLESS)
        }
        other => other,
    }
    .map_err(attach_failure)?;
    notes.extend(session.fallbacks().iter().map(ToString::to_string));
    notes.push(enabled(&collect, request).trim_end().to_owned());
    note_once(notes.join("\n"));
    Ok(session)
}

/// The table of what is enabled.
fn enabled(collect: &CollectTracing, request: &Request) -> String {
    let with_arguments = collect
        .providers
        .iter()
        .any(|config| config.arguments.is_some());
    let mut headers = vec![
        ("PROVIDER", Align::Left),
        ("KEYWORDS", Align::Right),
        ("LEVEL", Align::Left),
        ("ENABLED BY", Align::Left),
    ];
    if with_arguments {
        headers.push(("ARGUMENTS", Align::Left));
    }
    let mut list = Table::new(&headers);
    if with_arguments {
        list = list.may_cut_end(4);
    }
    list = list
        .may_cut_end(3)
        .may_cut_start(0)
        .may_cut_end(2)
        .may_leave_out(&[3, 4]);
    for (config, provider) in collect.providers.iter().zip(&request.providers) {
        list.row([
            config.name.clone(),
            format!("{:#x}", config.keywords),
            providers::level_text(config.level),
            provider.enabled_by.clone(),
            config.arguments.clone().unwrap_or_default(),
        ]);
    }
    list.render(table::stderr_width())
}
