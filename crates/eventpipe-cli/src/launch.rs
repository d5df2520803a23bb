//! The command that `collect -- COMMAND` traces from its first event on: started suspended, with a port
//! at which it dials in.

use crate::attach::{Channel, Finished};
use crate::child::{Launched, exit_code_of};
use crate::cli::Collect;
use crate::drive::Reason;
use crate::exit_code::{ExitCode, Failure};
use crate::target::{self, attach_failure};
use crate::terminal::note;
use anyhow::Context as _;
use dotnet_diagnostics::client::{Client, Endpoint};
use dotnet_diagnostics::port::{Listener, Runtime};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a started command may take to dial in.
const DIAL_IN_LIMIT: Duration = Duration::from_secs(10);

/// How often something that may take long is looked after.
const POLL: Duration = Duration::from_millis(50);

/// A command that was started to be traced, and the port at which it dials in.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The command.
    pub(crate) child: Launched,
    /// The program's name: the command's, and the managed program's once it has dialled in.
    pub(crate) program: String,
    /// Whether it has this project's engine.
    pub(crate) is_native: bool,
    /// Where to see why it did not become what was expected.
    hint: &'static str,
    listener: Option<Listener>,
    others: Option<Others>,
}

impl Launch {
    /// Opens a port and starts the command, which dials in there.
    pub(crate) fn start(arguments: &Collect) -> anyhow::Result<Launch> {
        let listener = own_listener()?;
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
            hint: hint(arguments),
            others: None,
        })
    }

    /// Waits for the command to dial in; it is suspended then.
    pub(crate) fn dialled_in(&mut self, channel: &Channel) -> anyhow::Result<Client> {
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
                self.others = Some(Others::go_on(listener)?);
                return Ok(client);
            }
            let name = &self.program;
            if let Some(status) = self.child.status() {
                let hint = self.hint;
                let text = format!("'{name}' ended ({status}) before it could be traced{hint}");
                return failure(ExitCode::Session, text);
            }
            if channel.was_signalled() {
                return failure(ExitCode::Session, "interrupted".into());
            }
            if Instant::now() >= deadline {
                let text = format!(
                    "'{name}' did not dial in within {} s: it is no program with EventPipe, or its \
                     diagnostics are switched off{}",
                    DIAL_IN_LIMIT.as_secs(),
                    self.hint
                );
                return failure(ExitCode::Session, text);
            }
        }
    }

    /// Ends what is left of the command; gives the exit code of the whole.
    pub(crate) fn finish(mut self, finished: &Finished) -> u8 {
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

/// Where the user sees why a command did not become what was expected.
pub(crate) fn hint(arguments: &Collect) -> &'static str {
    if arguments.show_child_io {
        ""
    } else {
        " (--show-child-io shows what it says)"
    }
}

/// A port that nobody else knows of.
pub(crate) fn own_listener() -> anyhow::Result<Listener> {
    let name = format!(
        "eventpipe-{}-{}.socket",
        std::process::id(),
        jiff::Timestamp::now().as_millisecond()
    );
    Ok(Listener::bind(std::env::temp_dir().join(name)).map_err(attach_failure)?)
}

/// What becomes of processes that dial in beside those that are recorded. Programs that a command starts inherit its
/// variable and would wait for ever. The port is closed, and its file removed, when this is dropped.
#[derive(Debug)]
pub(crate) struct Others {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Others {
    /// Takes the port over: who dials in is told to go on.
    pub(crate) fn go_on(listener: Listener) -> anyhow::Result<Others> {
        Others::each(listener, |runtime| {
            let pid = runtime.process_id();
            let client = Client::new(Endpoint::Runtime(runtime));
            if client.resume_runtime().is_ok() {
                note(format_args!(
                    "process {pid} is not traced (--tree traces all that the command starts)"
                ));
            }
        })
    }

    /// Takes the port over: who dials in is left as it is, perhaps waiting for the next tool.
    pub(crate) fn leave(listener: Listener) -> anyhow::Result<Others> {
        Others::each(listener, |runtime| {
            note(format_args!(
                "process {} has dialled in too, and is not recorded (--all records every one)",
                runtime.process_id()
            ));
        })
    }

    fn each(
        listener: Listener,
        mut act: impl FnMut(Runtime) + Send + 'static,
    ) -> anyhow::Result<Others> {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let body = move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.next_runtime(POLL) {
                    Ok(Some(runtime)) => act(runtime),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
        };
        let thread = thread::Builder::new().name("port".into()).spawn(body);
        Ok(Others {
            end,
            thread: Some(thread.context("starting a thread")?),
        })
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
