//! A blocking client: one connection per command, as the protocol wants it, and a time limit on every wait.

mod fallback;
mod session;

pub use fallback::{Fallback, Fallbacks};
pub use session::{Session, StopOutcome, Stopper};

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::string::{String, ToString};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use crate::Error;
use crate::codec::{
    AttachProfiler, CollectTracing, CollectVersion, Command, DecodeError, DumpFlags, DumpType,
    DumpVersion, ErrorCode, GenerateCoreDump, HEADER_SIZE, Header, PerfMapType, ProcessInfo,
    ProcessInfoVersion, Reply, Request, SessionId, StartupProfiler, decode_environment,
    decode_environment_reply, decode_session,
};
use crate::port::Runtime;
use crate::socket::{self, Deadline, Timed};

/// A bound on what a process may send as its environment.
const MAX_ENVIRONMENT: u32 = 64 << 20;

/// How a process is reached.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// The process listens at this path: the default port, or a port argument with `connect`.
    Socket(PathBuf),
    /// The process dials in to a [`Listener`](crate::port::Listener).
    Runtime(Runtime),
}

/// How long a client waits. Microsoft's tools wait for ever on a process that does not answer; this one does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, and for a process that dials in to do so again. Default 10 s.
    pub connect: Duration,
    /// For sending a command and receiving its answer, as one. Default 15 s.
    pub reply: Duration,
    /// For a StopTracing *without any progress*: a stop takes as long as the rundown does, so the limit begins anew
    /// with every byte that the session's reader takes off the stream. Default 60 s.
    pub stop: Duration,
    /// For a dump to be written. Default 30 min.
    pub dump: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(10),
            reply: Duration::from_secs(15),
            stop: Duration::from_secs(60),
            dump: Duration::from_secs(30 * 60),
        }
    }
}

/// Asks one process. Cheap to clone; all methods may be called from several threads at once.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    timeouts: Timeouts,
}

impl Client {
    /// A client with the default time limits. Nothing is connected yet: each command makes its own connection.
    pub fn new(endpoint: Endpoint) -> Client {
        Client {
            endpoint,
            timeouts: Timeouts::default(),
        }
    }

    /// The same client with other time limits.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Client {
        Client { timeouts, ..self }
    }

    /// How the process is reached.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The time limits.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// What the process says of itself: ProcessInfo3, else 2, else 1 ([`ProcessInfo::version`] says which).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for .NET Core 3, which knows none of them.
    pub fn process_info(&self) -> Result<ProcessInfo, Error> {
        for version in ProcessInfoVersion::NEWEST_FIRST {
            match self.process_info_exactly(version) {
                Err(error) if error.is_unknown_command() => {}
                result => return result,
            }
        }
        Err(Error::Unsupported {
            what: "process information",
            command: Command::PROCESS_INFO,
        })
    }

    /// As [`Client::process_info`] by one command, without fall-back.
    ///
    /// # Errors
    /// [`Error::Refused`] with UNKNOWN_COMMAND where the process does not know it.
    pub fn process_info_exactly(&self, version: ProcessInfoVersion) -> Result<ProcessInfo, Error> {
        let request = Request::ProcessInfo(version);
        let payload = self.call(&request)?.payload;
        ProcessInfo::decode(version, &payload).map_err(bad_reply(request.command()))
    }

    /// The environment as entries `NAME=value`; an entry may have no `=`.
    ///
    /// # Errors
    /// [`Error::BadReply`] also where the process closes before everything has come.
    pub fn environment(&self) -> Result<Vec<String>, Error> {
        let request = Request::ProcessEnvironment;
        let bad = bad_reply(request.command());
        let answered = self.call(&request)?;
        let size = decode_environment_reply(&answered.payload).map_err(&bad)?;
        if size > MAX_ENVIRONMENT {
            return Err(bad(DecodeError::OutOfRange));
        }
        let mut continuation = Vec::new();
        let mut timed = Timed {
            stream: &answered.stream,
            deadline: answered.deadline,
            doing: "receiving the environment",
        };
        let mut missing = usize::try_from(size).map_err(|_| bad(DecodeError::OutOfRange))?;
        let mut chunk = vec![0; 64 << 10];
        while missing > 0 {
            let wanted = missing.min(chunk.len());
            let part = chunk.get_mut(..wanted).unwrap_or_default();
            let count = timed.read_full(part)?;
            continuation.extend_from_slice(part.get(..count).unwrap_or_default());
            if count < wanted {
                return Err(bad(DecodeError::Truncated));
            }
            missing = missing.saturating_sub(count);
        }
        decode_environment(&continuation).map_err(bad)
    }

    /// Begins a session with the lowest command that can say what is asked ([`CollectTracing::lowest_version`];
    /// [`CollectTracing::version`] is not looked at). Where the process does not know that command, what `fallbacks`
    /// allows is given up step by step, and [`Session::fallbacks`] names it. Duplicate event ids are removed first,
    /// because existing runtimes then send nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names what the process's version cannot do; [`Error::Refused`] with FAIL usually is the
    /// 65th session.
    pub fn collect(
        &self,
        request: &CollectTracing,
        fallbacks: Fallbacks,
    ) -> Result<Session, Error> {
        let mut request = fallback::prepared(request);
        let mut given_up = Vec::new();
        loop {
            match self.collect_exactly(&request) {
                Err(error) if error.is_unknown_command() => {
                    given_up.extend(fallback::step_down(&mut request, fallbacks)?);
                }
                Ok(session) => return Ok(session.with_fallbacks(given_up)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins a session with the very command that `request` names.
    ///
    /// # Errors
    /// As [`Client::collect`]; [`Error::BadRequest`] where the command cannot say what is asked.
    pub fn collect_exactly(&self, request: &CollectTracing) -> Result<Session, Error> {
        let version = request.version;
        let request = Request::CollectTracing(request.clone());
        let answered = self.call(&request)?;
        self.session(version, answered)
    }

    /// Begins a session that writes to the kernel's tracepoints: `user_events_data` is the kernel's open file, handed
    /// to the process behind the request. The session has no stream; it ends with [`Stopper::stop`], or when the
    /// [`Session`] is dropped.
    ///
    /// # Errors
    /// [`Error::Refused`] with FAIL or NOTSUPPORTED where the kernel has no user_events.
    pub fn collect_user_events(
        &self,
        request: &CollectTracing,
        user_events_data: BorrowedFd<'_>,
    ) -> Result<Session, Error> {
        let mut request = fallback::prepared(request);
        request.version = request.version.max(CollectVersion::V5);
        let version = request.version;
        let request = Request::CollectTracing(request);
        let (stream, deadline) = self.send(&request, self.timeouts.reply)?;
        let passed = socket::send_descriptor(&stream, user_events_data);
        // A process that refuses the request closes before the descriptor comes; its answer says why.
        let answered = match receive(stream, deadline, request.command()) {
            Err(Error::ConnectionClosed { .. }) => {
                return Err(passed.err().unwrap_or(Error::ConnectionClosed {
                    command: request.command(),
                }));
            }
            Err(error) if error.is_unknown_command() => {
                return Err(Error::Unsupported {
                    what: "a user_events session",
                    command: request.command(),
                });
            }
            result => result?,
        };
        passed?;
        self.session(version, answered)
    }

    fn session(&self, version: CollectVersion, answered: Answered) -> Result<Session, Error> {
        let id = decode_session(&answered.payload).map_err(bad_reply(version.command()))?;
        Session::new(self.clone(), id, version, answered.stream)
    }

    /// Ends a session by its id. OK also for an id that does not exist, and dangerous for one that has ended: ids are
    /// reused at once. Prefer [`Stopper::stop`], which knows. Somebody has to read the session's stream meanwhile.
    ///
    /// # Errors
    /// [`Error::NotAnswering`] when nobody does.
    pub fn stop_tracing(&self, session: SessionId) -> Result<(), Error> {
        self.call_within(&Request::StopTracing(session), self.timeouts.stop)
            .map(drop)
    }

    /// Lets a process go on that is suspended at its start; has no effect otherwise.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for .NET Core 3, which cannot be suspended.
    pub fn resume_runtime(&self) -> Result<(), Error> {
        self.command(&Request::ResumeRuntime, "resuming a suspended start")
    }

    /// Sets a variable of the process's environment, or removes it (`None`).
    ///
    /// # Errors
    /// [`Error::Refused`] with ENVVAR_NOT_FOUND for one to remove that is not there, INVALIDARG for an empty name.
    pub fn set_environment_variable(&self, name: &str, value: Option<&str>) -> Result<(), Error> {
        let request = Request::SetEnvironmentVariable {
            name: Some(name)
                .filter(|name| !name.is_empty())
                .map(str::to_string),
            value: value.map(str::to_string),
        };
        self.command(&request, "setting an environment variable")
    }

    /// Makes the process write files that perf understands. Crashes .NET 8 and 9 while they are suspended (ipc.md 0).
    ///
    /// # Errors
    /// [`Error::Unsupported`] before .NET 8.
    pub fn enable_perf_map(&self, kind: PerfMapType) -> Result<(), Error> {
        self.command(&Request::EnablePerfMap(kind), "a perf map")
    }

    /// No longer.
    ///
    /// # Errors
    /// As [`Client::enable_perf_map`].
    pub fn disable_perf_map(&self) -> Result<(), Error> {
        self.command(&Request::DisablePerfMap, "a perf map")
    }

    /// Runs a managed assembly's start-up hook. The path is the target's; the file must exist, or .NET 9 and 10 abort.
    ///
    /// # Errors
    /// [`Error::Refused`] with INVALIDARG where it is too late (.NET 8) or the file does not exist (.NET 11).
    pub fn apply_startup_hook(&self, path: &str) -> Result<(), Error> {
        let request = Request::ApplyStartupHook {
            path: Some(path.to_string()),
        };
        self.command(&request, "a start-up hook")
    }

    /// Loads a profiler into the running process.
    ///
    /// # Errors
    /// [`Error::is_not_ready`] while the process is suspended.
    pub fn attach_profiler(&self, profiler: AttachProfiler) -> Result<(), Error> {
        self.command(&Request::AttachProfiler(profiler), "attaching a profiler")
    }

    /// Loads a profiler when the suspended process goes on.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn startup_profiler(&self, profiler: StartupProfiler) -> Result<(), Error> {
        self.command(&Request::StartupProfiler(profiler), "a profiler at start")
    }

    /// Has the process write a core dump: GenerateCoreDump3, else 2, else 1; says which. The path is the target's.
    ///
    /// # Errors
    /// [`Error::Refused`] with the dump program's text, if there is one.
    pub fn generate_core_dump(
        &self,
        path: &str,
        dump_type: DumpType,
        flags: DumpFlags,
    ) -> Result<DumpVersion, Error> {
        for version in DumpVersion::NEWEST_FIRST {
            let request = Request::GenerateCoreDump(GenerateCoreDump {
                version,
                path: path.to_string(),
                dump_type,
                flags: match version {
                    DumpVersion::V1 => DumpFlags(u32::from(flags.0 != 0)),
                    _ => flags,
                },
            });
            match self.call_within(&request, self.timeouts.dump) {
                Err(error) if error.is_unknown_command() => {}
                result => return result.map(|_| version),
            }
        }
        Err(Error::Unsupported {
            what: "a core dump",
            command: Command::GENERATE_CORE_DUMP,
        })
    }

    /// Sends any request, by exactly its command, and returns the payload of its OK answer. What follows behind an answer
    /// (a session's stream, the environment) is lost: [`Client::collect_exactly`] and [`Client::environment`] keep it.
    ///
    /// # Errors
    /// [`Error::Refused`] with whatever code the process gives.
    pub fn request(&self, request: &Request) -> Result<Vec<u8>, Error> {
        Ok(self.call(request)?.payload)
    }

    fn command(&self, request: &Request, what: &'static str) -> Result<(), Error> {
        match self.call(request) {
            Err(error) if error.is_unknown_command() => Err(Error::Unsupported {
                what,
                command: request.command(),
            }),
            result => result.map(drop),
        }
    }

    fn call(&self, request: &Request) -> Result<Answered, Error> {
        self.call_within(request, self.timeouts.reply)
    }

    fn call_within(&self, request: &Request, limit: Duration) -> Result<Answered, Error> {
        let (stream, deadline) = self.send(request, limit)?;
        receive(stream, deadline, request.command())
    }

    /// Connects and sends the request in one write, right after connecting: existing servers read without a limit.
    fn send(&self, request: &Request, limit: Duration) -> Result<(UnixStream, Deadline), Error> {
        let message = request.encode()?;
        let stream = self.connect()?;
        let deadline = Deadline::after(limit);
        let mut timed = Timed {
            stream: &stream,
            deadline,
            doing: "sending a command",
        };
        match timed.write_all(&message) {
            Err(Error::Io { .. }) => Err(Error::ConnectionClosed {
                command: request.command(),
            }),
            result => result,
        }?;
        Ok((stream, deadline))
    }

    fn connect(&self) -> Result<UnixStream, Error> {
        match &self.endpoint {
            Endpoint::Socket(path) => {
                socket::connect(path, &Deadline::after(self.timeouts.connect))
            }
            Endpoint::Runtime(runtime) => runtime.connect(self.timeouts.connect),
        }
    }
}

/// An OK answer, and the connection for what follows it.
#[derive(Debug)]
struct Answered {
    payload: Vec<u8>,
    stream: UnixStream,
    deadline: Deadline,
}

fn receive(stream: UnixStream, deadline: Deadline, command: Command) -> Result<Answered, Error> {
    let bad = bad_reply(command);
    let mut timed = Timed {
        stream: &stream,
        deadline,
        doing: "waiting for the answer",
    };
    let mut header = [0; HEADER_SIZE];
    match timed.read_full(&mut header)? {
        HEADER_SIZE => {}
        0 => return Err(Error::ConnectionClosed { command }),
        _ => return Err(bad(DecodeError::Truncated)),
    }
    let header = Header::decode(&header).map_err(&bad)?;
    let mut payload = vec![0; header.payload_size()];
    if timed.read_full(&mut payload)? != payload.len() {
        return Err(bad(DecodeError::Truncated));
    }
    match Reply::decode(&header, &payload).map_err(bad)? {
        Reply::Ok(_) => Ok(Answered {
            payload,
            stream,
            deadline,
        }),
        Reply::Error { code, message } => Err(Error::Refused {
            command,
            code,
            message,
        }),
    }
}

fn bad_reply(command: Command) -> impl Fn(DecodeError) -> Error {
    move |error| Error::BadReply { command, error }
}

impl Error {
    fn is_unknown_command(&self) -> bool {
        matches!(
            self,
            Error::Refused {
                code: ErrorCode::UNKNOWN_COMMAND,
                ..
            }
        )
    }
}
