//! Unix sockets with a time limit on every step; std has none for connecting, and none for a whole exchange.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::time::{Duration, Instant};
use std::vec::Vec;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::Error;

/// A point in time up to which something has to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Deadline {
        Deadline {
            at: Instant::now().checked_add(limit),
            limit,
        }
    }

    /// What is left, or the error that says what took too long.
    pub(crate) fn left(&self, doing: &'static str) -> Result<Duration, Error> {
        let Some(at) = self.at else {
            return Ok(Duration::MAX);
        };
        match at.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(self.passed(doing)),
        }
    }

    pub(crate) fn passed(&self, doing: &'static str) -> Error {
        Error::NotAnswering {
            doing,
            limit: self.limit,
        }
    }
}

/// A connected stream whose reads and writes all end before one deadline.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) deadline: Deadline,
    pub(crate) doing: &'static str,
}

impl Timed<'_> {
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let left = self.deadline.left(self.doing)?;
            self.stream
                .set_write_timeout(Some(left))
                .map_err(Error::io(self.doing))?;
            match self.stream.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) => self.check(error)?,
            }
        }
        Ok(())
    }

    /// Fills the buffer as far as the stream goes: less than the whole is the end of the stream.
    pub(crate) fn read_full(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0_usize;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let left = self.deadline.left(self.doing)?;
            self.stream
                .set_read_timeout(Some(left))
                .map_err(Error::io(self.doing))?;
            match self.stream.read(rest) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                // A server that closes without having read everything resets the connection behind its answer.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => self.check(error)?,
            }
        }
        Ok(filled)
    }

    /// `Ok` for what the loop tries again.
    fn check(&self, error: io::Error) -> Result<(), Error> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                self.deadline.left(self.doing).map(drop)
            }
            _ => Err(Error::io(self.doing)(error)),
        }
    }
}

/// How old a socket file is at which nobody listens and will not: a younger one may lie between a server's `bind` and its `listen`.
const STALE: Duration = Duration::from_secs(1);

/// Connects, waiting while the server's queue is full, and while the server may only be about to listen.
pub(crate) fn connect(path: &Path, deadline: &Deadline) -> Result<UnixStream, Error> {
    const DOING: &str = "connecting";
    let alias = Alias::of(path)?;
    let address = SocketAddrUnix::new(alias.path.as_path()).map_err(|_| Error::PathTooLong {
        path: path.to_path_buf(),
    })?;
    let mut pause = Duration::from_millis(1);
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|error| Error::io("making a socket")(error.into()))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false).map_err(Error::io(DOING))?;
                return Ok(stream);
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                let left = deadline.left(DOING)?;
                std::thread::sleep(pause.min(left));
                pause = pause.saturating_mul(2).min(Duration::from_millis(50));
            }
            Err(Errno::CONNREFUSED) if is_new(path) => match deadline.left(DOING) {
                Ok(left) => std::thread::sleep(left.min(Duration::from_millis(10))),
                Err(_) => return Err(connect_error(path, Errno::CONNREFUSED)),
            },
            Err(error) => return Err(connect_error(path, error)),
        }
    }
}

fn is_new(path: &Path) -> bool {
    let Ok(file) = std::fs::metadata(path) else {
        return false;
    };
    let age = file.modified().map(|made| made.elapsed());
    file.file_type().is_socket() && age.is_ok_and(|age| age.is_ok_and(|age| age < STALE))
}

fn connect_error(path: &Path, error: Errno) -> Error {
    let path = path.to_path_buf();
    let is_other =
        |path: &Path| std::fs::metadata(path).is_ok_and(|file| !file.file_type().is_socket());
    match error {
        Errno::CONNREFUSED if is_other(&path) => Error::NotASocket { path },
        Errno::CONNREFUSED => Error::StaleSocket { path },
        Errno::NOENT | Errno::NOTDIR => Error::SocketNotFound { path },
        Errno::ACCESS | Errno::PERM => Error::OtherUser {
            what: path.display().to_string(),
            uid: owner(&path),
        },
        _ => Error::io("connecting")(error.into()),
    }
}

pub(crate) fn owner(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|file| file.uid())
}

/// A path that fits into a socket address: long ones go through a descriptor of their folder (ipc.md 3).
struct Alias {
    path: PathBuf,
    /// Keeps `/proc/self/fd/N` alive.
    _folder: Option<rustix::fd::OwnedFd>,
}

impl Alias {
    fn of(path: &Path) -> Result<Alias, Error> {
        if path.as_os_str().len() <= MAX_SOCKET_PATH {
            return Ok(Alias {
                path: path.to_path_buf(),
                _folder: None,
            });
        }
        let too_long = || Error::PathTooLong {
            path: path.to_path_buf(),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(too_long());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|error| connect_error(path, error))?;
        let mut alias = PathBuf::from("/proc/self/fd");
        alias.push(folder.as_raw_fd().to_string());
        alias.push(name);
        if alias.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(too_long());
        }
        Ok(Alias {
            path: alias,
            _folder: Some(folder),
        })
    }
}

/// Bytes of a path in a socket address on Linux, without its terminator.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// A text of the system as far as it is text.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    OsStr::from_bytes(bytes).to_string_lossy().into_owned()
}

/// Bytes of a small file whose size the system does not say (`/proc`), with a bound.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(limit)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether something can be read within the limit: bytes, or the end.
pub(crate) fn readable(stream: &UnixStream, limit: Duration) -> Result<bool, Error> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec::try_from(limit).ok();
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    match poll(&mut fds, limit.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(Error::io("waiting")(error.into())),
    }
}

/// The second message of a user_events request: one byte and, beside it, a descriptor (ipc.md 2.1).
pub(crate) fn send_descriptor(
    stream: &UnixStream,
    descriptor: BorrowedFd<'_>,
) -> Result<(), Error> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [io::IoSlice::new(&[0])];
    loop {
        match sendmsg(stream, &byte, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io("passing a descriptor")(error.into())),
        }
    }
}
