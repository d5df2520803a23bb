//! The listening socket: its name, its protection, and that it disappears with the process (ipc.md 3).

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;

use eventpipe_os::process;
use eventpipe_os::text::c_string;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::message;
use crate::output::out_of_the_way;

const BACKLOG: i32 = 255;

/// Why there is no socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListenError {
    PathTooLong,
    /// Another engine in this very process, or a file that is not ours, has the name.
    NameTaken,
    System(i32),
}

impl ListenError {
    pub(super) fn text(self) -> &'static str {
        match self {
            ListenError::PathTooLong => "its path does not fit into a socket address; set TMPDIR",
            ListenError::NameTaken => "its name is taken",
            ListenError::System(_) => "the operating system refused",
        }
    }

    pub(super) fn number(self) -> i32 {
        match self {
            ListenError::PathTooLong => Errno::NAMETOOLONG.raw_os_error(),
            ListenError::NameTaken => Errno::ADDRINUSE.raw_os_error(),
            ListenError::System(number) => number,
        }
    }
}

impl From<Errno> for ListenError {
    fn from(errno: Errno) -> Self {
        ListenError::System(errno.raw_os_error())
    }
}

#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: CString,
    /// Only the process that made the file removes it.
    pid: u32,
}

/// `{directory}/dotnet-diagnostic-{pid}-{start time}-socket`.
fn path() -> Vec<u8> {
    let directory = process::env("TMPDIR").filter(|directory| !directory.is_empty());
    let mut path = directory.unwrap_or_else(|| Vec::from(b"/tmp"));
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(b"dotnet-diagnostic-");
    path.extend_from_slice(message::decimal(u64::from(process::pid())).as_bytes());
    path.push(b'-');
    path.extend_from_slice(message::decimal(process::start_ticks()).as_bytes());
    path.extend_from_slice(b"-socket");
    path
}

impl Listener {
    pub(super) fn open() -> Result<Self, ListenError> {
        let path = c_string(&path()).ok_or(Errno::INVAL)?;
        let address = SocketAddrUnix::new(&*path).map_err(|_| ListenError::PathTooLong)?;
        let socket = stream_socket()?;
        // The mode of the descriptor becomes the mode of the file at the bind: there is no moment with a wider one.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(&path, &address)?;
                rustix::net::bind(&socket, &address)?;
            }
            other => other?,
        }
        let listener = Listener {
            socket,
            path,
            pid: process::pid(),
        };
        if let Err(errno) = rustix::net::listen(&listener.socket, BACKLOG) {
            listener.remove();
            return Err(errno.into());
        }
        Ok(listener)
    }

    pub(super) fn duplicate(&self) -> Result<OwnedFd, ListenError> {
        let duplicate = rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)?;
        Ok(out_of_the_way(duplicate))
    }

    pub(super) fn remove(&self) {
        if self.pid == process::pid() {
            let _ = rustix::fs::unlink(&*self.path);
        }
    }
}

pub(super) fn stream_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map(out_of_the_way)
}

/// A file of our name with nobody behind it: left by the program that this process ran before an `exec`.
fn remove_stale(path: &CStr, address: &SocketAddrUnix) -> Result<(), ListenError> {
    let file = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_ours = FileType::from_raw_mode(file.st_mode) == FileType::Socket
        && file.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours || rustix::net::connect(&stream_socket()?, address) != Err(Errno::CONNREFUSED) {
        return Err(ListenError::NameTaken);
    }
    rustix::fs::unlink(path)?;
    Ok(())
}

/// The next client. None: it belongs to another user, and was refused.
pub(super) fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let own = rustix::process::geteuid().as_raw();
    let allowed = process::peer_user(socket.as_fd()).is_some_and(|user| user == own || user == 0);
    Ok(allowed.then(|| out_of_the_way(socket)))
}
