//! `eventpipe collect`: options → request → target → session → recording → summary.

use crate::attach::{Channel, Finished, Recording};
use crate::child::{Launched, exit_code_of};
use crate::cli::Collect;
use crate::drive::{Options, Reason};
use crate::exit_code::{ExitCode, Failure};
use crate::output::{self, RecordingFile};
use crate::profiles::{self, Asked, Request};
use crate::providers;
use crate::table::{self, Align, Table};
use crate::target::{self, attach_failure};
use crate::terminal::note;
use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Endpoint, Fallbacks, Session};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use dotnet_diagnostics::port::Listener;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a started command may take to dial in.
const DIAL_IN_LIMIT: Duration = Duration::from_secs(10);

/// How often something that may take long is looked after.
const POLL: Duration = Duration::from_millis(50);

/// Records a trace; gives the exit code.
pub(crate) fn collect(arguments: &Collect) -> anyhow::Result<u8> {
    let mut asked = Asked {
        providers: &arguments.providers,
        profiles: &arguments.profile,
        clr_events: arguments.clr_events.as_deref(),
        clr_event_level: arguments.clr_event_level.as_deref(),
        rundown: arguments.rundown,
        native: false,
    };
    // Before anything is started or attached to, so that a wrong word or path costs nothing.
    profiles::combine(&asked)?;
    if let Some(path) = &arguments.output {
        output::check(path, arguments.force)?;
    }
    let channel = Channel::with_signals()?;

    let mut launch = None;
    let (client, name, pid) = if arguments.command.is_empty() {
        let process = match (arguments.target.process_id, &arguments.target.name) {
            (Some(pid), _) => target::by_id(pid)?,
            (None, Some(name)) => target::by_name(name)?,
            (None, None) => return Err(no_target().into()),
        };
        let (client, pid) = (Client::new(process.endpoint()), process.pid);
        let described = target::describe(process, &client);
        asked.native = described.is_native();
        (client, described.name(), pid)
    } else {
        let launched = launch.insert(Launch::start(arguments)?);
        let client = launched.dialled_in(&channel)?;
        asked.native = launched.is_native;
        (client, launched.program.clone(), launched.child.id())
    };
    let request = profiles::combine(&asked)?;

    let file = match &arguments.output {
        Some(path) => RecordingFile::create(path, arguments.force)?,
        None => RecordingFile::create_default(&name)?,
    };
    let session = match begin(&client, &request, arguments.buffer_mb) {
        Ok(session) => session,
        Err(error) => {
            file.discard();
            return Err(error);
        }
    };
    note(format_args!(
        "recording {name} (process {pid}) into {}",
        file.name()
    ));
    let recording = Recording::start(session, file, channel)?;
    // Always, as the existing tool does; and after the recorder runs, because a suspended runtime
    // sends nothing until it is resumed. One that cannot be suspended does not know the command.
    if let Err(error) = client.resume_runtime()
        && launch.is_some()
        && !error.is_unsupported()
    {
        note(format_args!(
            "eventpipe: the process could not be resumed: {error}"
        ));
    }
    let options = Options {
        duration: arguments.duration,
        fail_on_drop: arguments.fail_on_drop,
        first_signal_is_the_childs: arguments.show_child_io,
    };
    let show_line = !arguments.show_child_io && io::stderr().is_terminal();
    let child = launch.as_mut().map(|launch| &mut launch.child);
    let finished = recording.run(&options, show_line, child);
    Ok(match launch {
        Some(launch) => launch.finish(&finished),
        None => finished.code as u8,
    })
}

fn no_target() -> Failure {
    Failure::new(
        ExitCode::Arguments,
        "say what to trace: -p PID, -n NAME, or -- COMMAND (`eventpipe ps` lists processes)",
    )
}

/// Begins the session, and shows what was enabled: the table is made from the request itself.
pub(crate) fn begin(client: &Client, request: &Request, buffer_mb: u32) -> anyhow::Result<Session> {
    let configs = request.providers.iter().map(|provider| {
        let mut config =
            ProviderConfig::new(provider.name.as_str(), provider.keywords, provider.level);
        config.arguments = Some(provider.argument_text()).filter(|text| !text.is_empty());
        config
    });
    let mut collect = CollectTracing::new(configs);
    collect.buffer_mb = buffer_mb;
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
    for line in notes {
        note(line);
    }
    note(enabled(&collect, request).trim_end());
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
    list = list.may_cut_end(3).may_cut_end(0);
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

/// A command that was started to be traced, and the port at which it dials in.
#[derive(Debug)]
struct Launch {
    child: Launched,
    listener: Option<Listener>,
    program: String,
    is_native: bool,
}

impl Launch {
    fn start(arguments: &Collect) -> anyhow::Result<Launch> {
        let name = format!(
            "eventpipe-{}-{}.socket",
            std::process::id(),
            jiff::Timestamp::now().as_millisecond()
        );
        let listener = Listener::bind(std::env::temp_dir().join(name)).map_err(attach_failure)?;
        let child = Launched::start(&arguments.command, listener.path(), arguments.show_child_io)?;
        let program = arguments.command.first().map(|word| {
            let path = Path::new(word);
            path.file_name()
                .unwrap_or(word)
                .to_string_lossy()
                .into_owned()
        });
        Ok(Launch {
            child,
            listener: Some(listener),
            program: program.unwrap_or_default(),
            is_native: false,
        })
    }

    /// Waits for the command to dial in; it is suspended then.
    fn dialled_in(&mut self, channel: &Channel) -> anyhow::Result<Client> {
        let failure = |code, text: String| Err(Failure::new(code, text).into());
        let deadline = Instant::now() + DIAL_IN_LIMIT;
        let Some(listener) = self.listener.take() else {
            return failure(ExitCode::Unexpected, "the port was closed".into());
        };
        loop {
            let runtime = listener.next_runtime(POLL).map_err(attach_failure)?;
            if let Some(runtime) = runtime {
                let client = Client::new(Endpoint::Runtime(runtime));
                if let Ok(info) = client.process_info() {
                    self.is_native = target::is_native(&info);
                    self.program = Some(info.entry_assembly)
                        .filter(|name| !name.is_empty())
                        .unwrap_or_else(|| self.program.clone());
                }
                let_others_go_on(listener);
                return Ok(client);
            }
            let name = &self.program;
            if let Some(status) = self.child.status() {
                let text = format!("'{name}' ended ({status}) before it could be traced");
                return failure(ExitCode::Session, text);
            }
            if channel.was_signalled() {
                return failure(ExitCode::Session, "interrupted".into());
            }
            if Instant::now() >= deadline {
                let text = format!(
                    "'{name}' did not dial in within {} s: it is no program with EventPipe, or its \
                     diagnostics are switched off",
                    DIAL_IN_LIMIT.as_secs()
                );
                return failure(ExitCode::Session, text);
            }
        }
    }

    /// Ends what is left of the command; gives the exit code of the whole.
    fn finish(mut self, finished: &Finished) -> u8 {
        if finished.reason == Reason::Target {
            // The runtime closed the stream because it ends; its process does a moment later.
            while self.child.wait_at_most(POLL).is_none() {
                if finished.channel.was_signalled() {
                    self.child.end();
                }
            }
        } else {
            self.child.end();
        }
        match (finished.reason, finished.code, self.child.status()) {
            // A command that was killed breaks its stream off; its own code says so.
            (Reason::Target, ExitCode::Ok | ExitCode::Tracing, Some(status)) => {
                exit_code_of(status)
            }
            (_, code, _) => code as u8,
        }
    }
}

/// Programs that the command starts inherit its variable and would wait for ever: they are told to
/// go on, untraced. Runs until the tool ends.
fn let_others_go_on(listener: Listener) {
    let _ = thread::Builder::new().name("port".into()).spawn(move || {
        while let Ok(next) = listener.next_runtime(Duration::from_secs(3600)) {
            let Some(runtime) = next else { continue };
            let pid = runtime.process_id();
            if Client::new(Endpoint::Runtime(runtime))
                .resume_runtime()
                .is_ok()
            {
                note(format_args!(
                    "process {pid}, started by the command, is not traced"
                ));
            }
        }
    });
}
