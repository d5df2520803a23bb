use std::io;
use std::path::PathBuf;
use std::string::{String, ToString};
use std::time::Duration;
use std::vec::Vec;

use crate::codec::{Command, DecodeError, EncodeError, ErrorCode};

/// Why a process could not be found, reached, or did not do what it was asked. Each failure names its own cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No process has this id.
    #[error("no process {pid}")]
    NoSuchProcess {
        /// As asked for.
        pid: u32,
    },
    /// The process has ended and waits for its parent to notice.
    #[error("process {pid} has ended (zombie)")]
    Zombie {
        /// As asked for.
        pid: u32,
    },
    /// Kernel threads run no program.
    #[error("process {pid} is a kernel thread")]
    KernelThread {
        /// As asked for.
        pid: u32,
    },
    /// The process runs, but has no diagnostics socket: no .NET or EventPipe program, or its port is switched off.
    #[error(
        "process {pid} has no diagnostics socket (looked in {})",
        join(searched)
    )]
    NoSocket {
        /// As asked for.
        pid: u32,
        /// The folders that were looked through.
        searched: Vec<PathBuf>,
    },
    /// The process or its socket belongs to another user.
    #[error("{what} belongs to {}", user(*uid))]
    OtherUser {
        /// `process 12` or the socket's path.
        what: String,
        /// Whose; `None` where even that is hidden.
        uid: Option<u32>,
    },
    /// A socket's file without anybody behind it: left over by a process that was killed.
    #[error("{} is stale: nobody listens there any more", path.display())]
    StaleSocket {
        /// The file.
        path: PathBuf,
    },
    /// There is no file at the socket's path.
    #[error("there is no socket {}", path.display())]
    SocketNotFound {
        /// The path.
        path: PathBuf,
    },
    /// What is at the path is something else: a file, a folder.
    #[error("{} is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else listens at the path.
    #[error("{} is in use", path.display())]
    AddressInUse {
        /// The path.
        path: PathBuf,
    },
    /// No socket can be made at the path: no such folder, no permission.
    #[error("cannot listen at {}: {source}", path.display())]
    CannotListen {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A socket's path is longer than the system can take (107 bytes).
    #[error("{} is too long for a socket: at most 107 bytes", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The other side did not do its part in time.
    #[error("not answering: {doing} took longer than {} s", limit.as_secs_f64())]
    NotAnswering {
        /// What was waited for.
        doing: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The other side closed the connection instead of answering.
    #[error("{} was not answered: the connection was closed", name(*command))]
    ConnectionClosed {
        /// The command that was sent.
        command: Command,
    },
    /// This version of the runtime does not know what was asked.
    #[error("{what} is not supported by this process's version ({} is unknown to it)", name(*command))]
    Unsupported {
        /// What was asked for, in words.
        what: &'static str,
        /// The command that the process did not know.
        command: Command,
    },
    /// The process refused the command.
    #[error("{} was refused: {code}{}{message}", name(*command), if message.is_empty() { "" } else { ": " })]
    Refused {
        /// The command that was sent.
        command: Command,
        /// Why.
        code: ErrorCode,
        /// What GenerateCoreDump3 adds; else empty.
        message: String,
    },
    /// An answer that makes no sense.
    #[error("the answer to {} is damaged: {error}", name(*command))]
    BadReply {
        /// The command that was sent.
        command: Command,
        /// What is wrong.
        error: DecodeError,
    },
    /// A request that cannot be sent.
    #[error("the request cannot be sent: {0}")]
    BadRequest(#[from] EncodeError),
    /// The listening port has been closed.
    #[error("the diagnostic port was closed")]
    PortClosed,
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Io { doing, source }
    }

    /// Whether the process said that its runtime is not up yet: the same may work a moment later.
    pub fn is_not_ready(&self) -> bool {
        matches!(
            self,
            Error::Refused {
                code: ErrorCode::NOT_YET_AVAILABLE | ErrorCode::RUNTIME_UNINITIALIZED,
                ..
            }
        )
    }

    /// Whether the process does not know the command, or cannot do it on its system.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Error::Unsupported { .. }
                | Error::Refused {
                    code: ErrorCode::UNKNOWN_COMMAND | ErrorCode::NOTSUPPORTED,
                    ..
                }
        )
    }
}

fn name(command: Command) -> &'static str {
    command.name().unwrap_or("the command")
}

fn user(uid: Option<u32>) -> String {
    match uid {
        Some(uid) => std::format!("another user (uid {uid})"),
        None => String::from("another user"),
    }
}

fn join(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    texts.join(", ")
}
