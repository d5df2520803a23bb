//! The diagnostics server: what makes the process visible to `dotnet-trace ps` and lets tools start sessions.
//!
//! One thread, one poll loop, no call that waits for a peer. A connection has a time limit and a bounded buffer, and
//! there is a bounded number of them; a peer that is slow or silent holds up nobody. The way of a command: socket → codec →
//! [`commands`] → registry of sessions.

mod commands;
mod connection;
#[cfg(feature = "dump")]
mod dump;
#[cfg(feature = "perf-map")]
mod elf;
#[cfg(any(feature = "perf-map", feature = "dump"))]
mod job;
mod limits;
#[cfg(feature = "perf-map")]
mod perf_map;
mod ports;
mod socket;

use alloc::boxed::Box;
use alloc::vec::Vec;

use eventpipe_os::sync::{Mutex, Once};
use eventpipe_os::{clock, thread};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::engine::ENGINE;
use crate::message;
use crate::output::{out_of_the_way, timespec};
use connection::Connection;
pub use limits::{ServerCommands, limit_server};
pub(crate) use ports::wait_for_resume;
use ports::{DEFAULT_PORT, Port};
use socket::Listener;

/// More connections than this are not kept. A further one takes the place of the oldest that has not said yet what it wants,
/// so that a crowd of silent clients holds up nobody; where all have, it waits in the listening socket's queue.
const MAX_CONNECTIONS: usize = 128;

/// So many are taken before the others have their turn.
const ACCEPTS_PER_ROUND: usize = 32;

/// After an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);
static STARTED: Once<()> = Once::new();
static WAKE: Once<Option<OwnedFd>> = Once::new();

/// Opens the socket and starts the server. Does nothing when it was called before. What is wrong is said once on standard error,
/// and the program runs on without a server.
pub(crate) fn start() {
    STARTED.get_or_init(|| {
        let ports = ports::from_environment();
        let listener = Listener::open()
            .and_then(|listener| Ok((listener.duplicate()?, listener)))
            .map_err(|error| warn(error.text(), error.number()))
            .ok();
        if listener.is_none() && ports.is_empty() {
            return ports::resume_all();
        }
        WAKE.get_or_init(|| {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            wake.ok().map(out_of_the_way)
        });
        let (socket, listener) = match listener {
            Some((socket, listener)) => (Some(socket), Some(listener)),
            None => (None, None),
        };
        let server = Box::new(move || run(socket.as_ref(), ports));
        match thread::spawn(c"eventpipe-ipc", server) {
            Ok(()) => *LISTENER.lock() = listener,
            Err(error) => {
                if let Some(listener) = listener {
                    listener.remove();
                }
                warn("no thread for the server", error.number);
                ports::resume_all();
            }
        }
    });
}

fn warn(text: &str, number: i32) {
    let number = message::decimal(u64::from(number.unsigned_abs()));
    message::warn(&["no diagnostics socket: ", text, " (error ", &number, ")"]);
}

/// Removes the socket: no new clients from now on.
pub(crate) fn close() {
    let listener = LISTENER.lock().take();
    if let Some(listener) = listener {
        listener.remove();
        // The server goes on with its duplicate, so nothing would end if this one were closed; and it may have been.
        core::mem::forget(listener);
    }
}

/// Something that a connection waits for has happened.
pub(crate) fn notify() {
    if let Some(Some(wake)) = WAKE.get() {
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }
}

fn run(listener: Option<&OwnedFd>, mut ports: Vec<Port>) {
    let Some(Some(wake)) = WAKE.get() else { return };
    // Its clients end sessions, which may be what writers wait for.
    ENGINE.ring.never_wait();
    let mut connections: Vec<Connection> = Vec::new();
    let mut accept_after_ns = 0;
    loop {
        let now = clock::monotonic_ns();
        for port in &mut ports {
            port.dial(now);
        }
        let room = has_room(&connections);
        let accepting = room && now >= accept_after_ns;
        let mut fds = Vec::with_capacity(ports.len() + connections.len() + 2);
        fds.push(PollFd::new(wake, PollFlags::IN));
        let accept_events = if accepting && listener.is_some() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        fds.push(PollFd::new(listener.unwrap_or(wake), accept_events));
        let mut next_ns = if accepting {
            u64::MAX
        } else {
            accept_after_ns.max(now + 1)
        };
        if !room {
            next_ns = u64::MAX;
        }
        for port in &ports {
            fds.push(port.poll_fd(wake));
            next_ns = next_ns.min(port.dial_at_ns());
        }
        for connection in &connections {
            fds.push(connection.poll_fd());
            next_ns = next_ns.min(connection.deadline_ns());
        }
        let timeout = (next_ns != u64::MAX).then(|| timespec(next_ns.saturating_sub(now)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => thread::sleep_ns(ACCEPT_PAUSE_NS),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if ready.first().is_some_and(|flags| !flags.is_empty()) {
            let woken = rustix::io::read(wake, &mut [0; 8]);
            // The program has closed all that was open. What has such a number now is not ours to close.
            while cfg!(feature = "std") && woken == Err(Errno::BADF) {
                thread::sleep_ns(u64::MAX);
            }
        }
        let now = clock::monotonic_ns();
        let mut flags = ready.iter().skip(2 + ports.len()).copied();
        connections.retain_mut(|connection| {
            connection.advance(flags.next().unwrap_or(PollFlags::empty()), now)
        });
        for (port, ready) in ports.iter_mut().zip(ready.iter().skip(2)) {
            let Some(mut connection) = port.take(*ready, now) else {
                continue;
            };
            if connection.advance(PollFlags::IN, now) {
                connections.push(connection);
            } else if connection.is_silent() {
                port.pause(now);
            }
        }
        let Some(listener) = listener else { continue };
        if ready.get(1).is_some_and(|flags| !flags.is_empty()) {
            for _ in 0..ACCEPTS_PER_ROUND {
                if !has_room(&connections) {
                    break;
                }
                match socket::accept(listener) {
                    Ok(Some(socket)) => {
                        let mut connection = Connection::new(socket, DEFAULT_PORT, now);
                        // Most clients have sent their request by now, and are never among those that give way.
                        if connection.advance(PollFlags::IN, now) {
                            connections.push(connection);
                        }
                        make_room(&mut connections);
                    }
                    Ok(None) => {}
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(_) => {
                        accept_after_ns = now + ACCEPT_PAUSE_NS;
                        break;
                    }
                }
            }
        }
    }
}

fn has_room(connections: &[Connection]) -> bool {
    connections.len() < MAX_CONNECTIONS || connections.iter().any(Connection::is_undecided)
}

/// Takes back the place of the oldest connection that has not said anything, else of the oldest that has not said all.
fn make_room(connections: &mut Vec<Connection>) {
    if connections.len() > MAX_CONNECTIONS {
        let silent = connections.iter().position(Connection::is_silent);
        let oldest = silent.or_else(|| connections.iter().position(Connection::is_undecided));
        if let Some(oldest) = oldest {
            connections.remove(oldest);
        }
    }
}
