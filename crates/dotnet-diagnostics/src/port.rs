//! The listening end of reverse connections: processes dial in, say who they are, and wait to be asked (ipc.md 4).
//!
//! One thread accepts, reads the advertise packets and keeps the connections. It keeps every connection open until it
//! is used or the process closes it: existing runtimes reconnect without any pause to a port that closes on them.
//! Processes are told apart by their cookie, never by their pid. The thread sleeps unless something happens.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::vec::Vec;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::Error;
use crate::codec::{Advertise, Guid};
use crate::socket::{self, Deadline, MAX_SOCKET_PATH};

/// How long a connection may take to say who it is.
const ADVERTISE_LIMIT: Duration = Duration::from_secs(1);
/// Connections that have not said who they are.
const MAX_UNKNOWN: usize = 256;
/// Connections kept for one process: one for each of its ports that point here, and some room.
const MAX_KEPT: usize = 16;
/// Processes remembered; of more, those without a connection are forgotten.
const MAX_RUNTIMES: usize = 1024;
/// A pause after the system could not accept a connection (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket to which processes connect that were started with `DOTNET_DiagnosticPorts=PATH` (or are configured so).
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    /// Device and inode of the file, so that only our own is removed.
    identity: Option<(u64, u64)>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens at the path, mode 0600. A stale socket of our own that lies there is replaced.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] where somebody listens or the socket is none of ours; [`Error::NotASocket`];
    /// [`Error::PathTooLong`]; [`Error::CannotListen`].
    pub fn bind(path: impl Into<PathBuf>) -> Result<Listener, Error> {
        let path = path.into();
        let listener = bind(&path)?;
        let identity = identity(&path);
        let (wake, woken) = UnixStream::pair().map_err(Error::io("making a socket"))?;
        for socket in [&wake, &woken] {
            socket
                .set_nonblocking(true)
                .map_err(Error::io("making a socket"))?;
        }
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake,
        });
        let accepting = Acceptor {
            listener,
            woken,
            shared: shared.clone(),
            unknown: VecDeque::new(),
        };
        let thread = std::thread::Builder::new()
            .name("diagnostic-port".into())
            .spawn(move || accepting.run())
            .map_err(Error::io("starting a thread"))?;
        Ok(Listener {
            path,
            identity,
            shared,
            thread: Some(thread),
        })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next process that has dialled in for the first time, in the order of their coming; `None` after the limit.
    /// A process that was started again is a new one. Each is returned once.
    ///
    /// # Errors
    /// [`Error::PortClosed`] where the accepting thread has ended.
    pub fn next_runtime(&self, limit: Duration) -> Result<Option<Runtime>, Error> {
        let deadline = Deadline::after(limit);
        let mut state = self.shared.lock();
        loop {
            if let Some(cookie) = state.new.pop_front() {
                let Some(known) = state.runtimes.get(&cookie) else {
                    continue;
                };
                return Ok(Some(Runtime {
                    cookie,
                    process_id: known.process_id,
                    shared: self.shared.clone(),
                }));
            }
            if state.closed {
                return Err(Error::PortClosed);
            }
            let Ok(left) = deadline.left("waiting for a process") else {
                return Ok(None);
            };
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by itself.
            let _ = thread.join();
        }
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A process that has dialled in.
#[derive(Clone, Debug)]
pub struct Runtime {
    cookie: Guid,
    process_id: u64,
    shared: Arc<Shared>,
}

impl Runtime {
    /// The process's cookie: the same as in its ProcessInfo, and never that of another process.
    pub fn cookie(&self) -> Guid {
        self.cookie
    }

    /// The process's id as it sees itself, inside its pid namespace.
    pub fn process_id(&self) -> u64 {
        self.process_id
    }

    /// Whether the process holds a connection now. It does not for a moment after each command.
    pub fn is_connected(&self) -> bool {
        let state = self.shared.lock();
        let known = state.runtimes.get(&self.cookie);
        known.is_some_and(|known| !known.connections.is_empty())
    }

    /// Takes a connection of the process to send a command on, waiting for it to dial in again where there is none.
    ///
    /// # Errors
    /// [`Error::NotAnswering`], [`Error::PortClosed`].
    pub fn connect(&self, limit: Duration) -> Result<UnixStream, Error> {
        const DOING: &str = "waiting for the process to connect again";
        let deadline = Deadline::after(limit);
        let mut state = self.shared.lock();
        loop {
            let known = state.runtimes.get_mut(&self.cookie);
            if let Some(kept) = known.and_then(|known| known.connections.pop()) {
                self.shared.wake();
                // A connection that can be read before anything was asked has ended.
                if socket::readable(&kept, Duration::ZERO)? {
                    continue;
                }
                let stream = kept.try_clone().map_err(Error::io("taking a connection"))?;
                stream
                    .set_nonblocking(false)
                    .map_err(Error::io("taking a connection"))?;
                return Ok(stream);
            }
            if state.closed {
                return Err(Error::PortClosed);
            }
            state = self.shared.wait(state, deadline.left(DOING)?);
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// A byte here makes the accepting thread look at the state again.
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    runtimes: HashMap<Guid, Known>,
    /// Not yet given out by `next_runtime`.
    new: VecDeque<Guid>,
    closed: bool,
}

#[derive(Debug)]
struct Known {
    process_id: u64,
    /// Oldest first. Shared with the thread for as long as it polls them.
    connections: Vec<Arc<UnixStream>>,
}

impl Shared {
    /// A panic elsewhere leaves the state sound: every change is complete before the guard goes.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout(state, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn wake(&self) {
        // A full pipe is a wake-up that is on its way already.
        let _ = (&self.wake).write(&[0]);
    }
}

/// A connection that has not said who it is, and what it has said.
struct Unknown {
    stream: UnixStream,
    packet: Vec<u8>,
    until: Instant,
}

struct Acceptor {
    listener: UnixListener,
    woken: UnixStream,
    shared: Arc<Shared>,
    unknown: VecDeque<Unknown>,
}

impl Acceptor {
    fn run(mut self) {
        while !self.shared.lock().closed {
            if self.round().is_err() {
                break;
            }
        }
        // Whoever waits learns that nobody will come any more.
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }

    /// Sleeps until something happens, then does it.
    fn round(&mut self) -> Result<(), Errno> {
        let kept: Vec<(Guid, Arc<UnixStream>)> = {
            let state = self.shared.lock();
            let connections = |(cookie, known): (&Guid, &Known)| {
                let cookie = *cookie;
                let connections = known.connections.clone();
                connections.into_iter().map(move |one| (cookie, one))
            };
            state.runtimes.iter().flat_map(connections).collect()
        };
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.push(PollFd::new(&self.woken, PollFlags::IN));
        let unknown = self.unknown.iter().map(|unknown| unknown.stream.as_fd());
        let kept_fds = kept.iter().map(|(_, stream)| stream.as_fd());
        fds.extend(
            unknown
                .chain(kept_fds)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let limit = self.unknown.iter().map(|unknown| unknown.until).min();
        let limit = limit.and_then(|until| {
            let left = until.saturating_duration_since(Instant::now());
            // A millisecond more, so that the time is over when the poll is.
            Timespec::try_from(left.saturating_add(Duration::from_millis(1))).ok()
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error),
        }
        let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut happened = happened.into_iter();
        let accepts = happened.next().unwrap_or_default();
        if happened.next().unwrap_or_default() {
            let _ = (&self.woken).read(&mut [0; 64]);
        }
        let now = Instant::now();
        for mut unknown in core::mem::take(&mut self.unknown) {
            let readable = happened.next().unwrap_or_default();
            match if readable { unknown.read() } else { Told::More } {
                Told::More if unknown.until > now => self.unknown.push_back(unknown),
                Told::More | Told::Nothing => {}
                Told::Who(advertise) => self.keep(advertise, unknown.stream),
            }
        }
        let ended = kept.into_iter().zip(happened).filter(|(_, ended)| *ended);
        for ((cookie, stream), _) in ended {
            self.forget(cookie, &stream);
        }
        if accepts {
            self.accept();
        }
        Ok(())
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let now = Instant::now();
                    let until = now.checked_add(ADVERTISE_LIMIT).unwrap_or(now);
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.unknown.len() >= MAX_UNKNOWN {
                        self.unknown.pop_front();
                    }
                    self.unknown.push_back(Unknown {
                        stream,
                        packet: Vec::new(),
                        until,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn keep(&mut self, advertise: Advertise, stream: UnixStream) {
        let cookie = advertise.runtime_cookie;
        let mut state = self.shared.lock();
        if state.runtimes.len() >= MAX_RUNTIMES && !state.runtimes.contains_key(&cookie) {
            state
                .runtimes
                .retain(|_, known| !known.connections.is_empty());
            let State { runtimes, new, .. } = &mut *state;
            new.retain(|cookie| runtimes.contains_key(cookie));
        }
        let mut is_new = false;
        let known = state.runtimes.entry(cookie).or_insert_with(|| {
            is_new = true;
            Known {
                process_id: advertise.process_id,
                connections: Vec::new(),
            }
        });
        if known.connections.len() >= MAX_KEPT {
            known.connections.remove(0);
        }
        known.connections.push(Arc::new(stream));
        if is_new {
            state.new.push_back(cookie);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// A kept connection can be read: it has ended, or says what it should not. Unless it has been taken meanwhile.
    fn forget(&mut self, cookie: Guid, stream: &Arc<UnixStream>) {
        let mut state = self.shared.lock();
        if let Some(known) = state.runtimes.get_mut(&cookie) {
            known.connections.retain(|kept| !Arc::ptr_eq(kept, stream));
        }
    }
}

enum Told {
    More,
    Nothing,
    Who(Advertise),
}

impl Unknown {
    fn read(&mut self) -> Told {
        let mut buffer = [0; Advertise::SIZE];
        let missing = Advertise::SIZE.saturating_sub(self.packet.len());
        let part = buffer.get_mut(..missing).unwrap_or_default();
        match self.stream.read(part) {
            Ok(0) => Told::Nothing,
            Ok(count) => {
                self.packet
                    .extend_from_slice(part.get(..count).unwrap_or_default());
                match self.packet.first_chunk() {
                    Some(packet) => Advertise::decode(packet).map_or(Told::Nothing, Told::Who),
                    None => Told::More,
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Told::More
            }
            Err(_) => Told::Nothing,
        }
    }
}

fn bind(path: &Path) -> Result<UnixListener, Error> {
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(Error::PathTooLong {
            path: path.to_path_buf(),
        });
    }
    let system = |error: Errno| Error::CannotListen {
        path: path.to_path_buf(),
        source: error.into(),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(system)?;
    // Before binding, so that the file never has another mode.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(system)?;
    let address = SocketAddrUnix::new(path).map_err(system)?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path)?;
            rustix::net::bind(&socket, &address).map_err(system)?;
        }
        result => result.map_err(system)?,
    }
    rustix::net::listen(&socket, 255).map_err(system)?;
    Ok(UnixListener::from(socket))
}

/// Removes the file if it is a socket of our own at which nobody listens.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let in_use = || Error::AddressInUse {
        path: path.to_path_buf(),
    };
    let file = std::fs::symlink_metadata(path).map_err(|_| in_use())?;
    if !file.file_type().is_socket() {
        return Err(Error::NotASocket {
            path: path.to_path_buf(),
        });
    }
    if file.uid() != rustix::process::geteuid().as_raw() {
        return Err(in_use());
    }
    match socket::connect(path, &Deadline::after(Duration::from_millis(250))) {
        Err(Error::StaleSocket { .. }) => {
            std::fs::remove_file(path).map_err(Error::io("removing a stale socket"))
        }
        _ => Err(in_use()),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}
