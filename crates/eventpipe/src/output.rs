//! Where a session's stream goes, and the thread that sends it there.
//!
//! Each session has a sender of its own, so a reader, a disk or a function that is slow or dead costs its own session
//! events and nobody else anything. A sender sleeps in `poll` when there is nothing to send, and there it also notices a reader
//! that has gone away.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use eventpipe_os::{clock, text, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::control;
use crate::engine::ENGINE;
use crate::exit;
use crate::foreign;
use crate::queue::{Next, Queue};
use crate::server;
use crate::session::{STALL_NS, SessionError, SessionState};

/// Takes pieces of a stream.
pub(crate) type StreamFunction = dyn FnMut(&[u8]) + Send;

pub(crate) enum Output {
    /// A connected stream socket, non-blocking or not: it is never waited for in a call.
    #[cfg_attr(not(feature = "server"), expect(dead_code, reason = "the server's"))]
    Socket(Arc<OwnedFd>),
    File(OwnedFd),
    Callback(Box<StreamFunction>),
}

/// Opens a file for a session, not inherited by programs that are started. The session's sender empties it: a session that is refused
/// leaves alone what was recorded there before.
pub(crate) fn create_file(path: &str) -> Result<OwnedFd, SessionError> {
    let path =
        text::c_string(path.as_bytes()).ok_or(SessionError::File(Errno::INVAL.raw_os_error()))?;
    rustix::fs::open(
        &*path,
        OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o666),
    )
    .map_err(|errno| SessionError::File(errno.raw_os_error()))
}

/// A stream that has had nothing to send for so long has paused.
const PAUSE_NS: u64 = 1_000_000_000;

/// Between two looks where `poll` does not work: for want of memory, or in a process that lets itself open no more files (a sandbox).
const REST_NS: u64 = 10_000_000;

/// Bytes that a socket is asked to hold for its reader. The system makes it twice as much, which is twice what a socket has unless
/// asked, and no more than every system allows: so sender and reader sleep and wake half as often.
const SOCKET_BYTES: usize = 208 << 10;

/// Starts the session's sender.
pub(crate) fn start(session: Arc<SessionState>, output: Output) -> Result<(), SessionError> {
    if let Output::Socket(socket) = &output {
        // Refused, it is a little slower.
        let _ = sockopt::set_socket_send_buffer_size(&**socket, SOCKET_BYTES);
    }
    thread::spawn(c"eventpipe-send", Box::new(move || run(&session, output)))?;
    Ok(())
}

fn run(session: &SessionState, mut output: Output) {
    session
        .sender
        .store(thread::os_thread_id(), Ordering::Relaxed);
    // It makes the room that others wait for.
    ENGINE.ring.never_wait();
    let queue = &session.queue;
    let complete = loop {
        match queue.next() {
            Next::End => break !queue.is_aborted(),
            Next::Send(piece) => {
                let start = session.bytes.load(Ordering::Relaxed);
                if let (Output::File(file), 0) = (&output, start) {
                    // A device cannot be emptied, nor needs it.
                    let _ = rustix::fs::ftruncate(file, 0);
                }
                let written = piece.parts().into_iter().all(|part| match &mut output {
                    _ if part.is_empty() => true,
                    Output::Socket(socket) => send(socket, part, queue),
                    Output::File(file) => write(file, part, start),
                    Output::Callback(callback) => foreign::call(|| callback(part)),
                });
                if !written {
                    break false;
                }
                session
                    .bytes
                    .fetch_add(piece.length() as u64, Ordering::Relaxed);
                queue.sent(piece);
            }
            Next::Wait => {
                let socket = match &output {
                    Output::Socket(socket) => Some(&**socket),
                    _ => None,
                };
                if !wait(queue, socket) {
                    break false;
                }
            }
        }
    };
    if !complete {
        queue.abort();
    }
    // Before the end is announced: who waits for the end may expect the reader to have seen it.
    if let Output::Socket(socket) = &output {
        hang_up(socket);
    }
    drop(output);
    // A reader that goes away ends its session. When the session was stopped this does nothing.
    control::disable(session.id(), !exit::has_begun());
    session.set_ended();
    server::notify();
}

/// Sleeps until the queue wakes us; false when the peer has closed.
fn wait(queue: &Queue, socket: Option<&OwnedFd>) -> bool {
    let wake = queue.wake_fd();
    let mut fds = [
        PollFd::new(&wake, PollFlags::IN),
        // No events asked for: a hang-up or an error is reported anyway. A peer that only shut its sending side down reads on.
        PollFd::from_borrowed_fd(socket.map_or(wake, AsFd::as_fd), PollFlags::empty()),
    ];
    let used = if socket.is_some() { 2 } else { 1 };
    let pause = queue.has_much_to_spare().then(|| timespec(PAUSE_NS));
    match poll(fds.get_mut(..used).unwrap_or_default(), pause.as_ref()) {
        Err(_) => {
            rest();
            return true;
        }
        Ok(0) => {
            queue.trim();
            return true;
        }
        Ok(_) => {}
    }
    let hung_up = used == 2
        && fds
            .get(1)
            .is_some_and(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR));
    queue.clear_wake();
    !hung_up
}

/// Sends all of a piece, waiting for the peer as long as the session runs; false when the peer is gone or does not read.
fn send(socket: &OwnedFd, mut piece: &[u8], queue: &Queue) -> bool {
    let mut last_progress = clock::monotonic_ns();
    while !piece.is_empty() {
        match rustix::net::send(socket, piece, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => {
                piece = piece.get(sent..).unwrap_or_default();
                last_progress = clock::monotonic_ns();
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let wait_ns = match queue.closed_at() {
                    None => None,
                    Some(closed) => {
                        let stalled =
                            clock::monotonic_ns().saturating_sub(last_progress.max(closed));
                        match stall_limit_ns().checked_sub(stalled) {
                            None | Some(0) => return false,
                            left => left,
                        }
                    }
                };
                if !wait_writable(socket, queue, wait_ns) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// How long a reader may take nothing when its session has been stopped.
fn stall_limit_ns() -> u64 {
    if exit::has_begun() {
        exit::STALL_NS
    } else {
        STALL_NS
    }
}

fn wait_writable(socket: &OwnedFd, queue: &Queue, wait_ns: Option<u64>) -> bool {
    let wake = queue.wake_fd();
    let mut fds = [
        PollFd::new(socket, PollFlags::OUT),
        PollFd::new(&wake, PollFlags::IN),
    ];
    let timeout = wait_ns.map(timespec);
    if poll(&mut fds, timeout.as_ref()).is_err() {
        rest();
    }
    let [_, woken] = &fds;
    if !woken.revents().is_empty() {
        queue.clear_wake();
    }
    !queue.is_aborted()
}

#[cold]
#[inline(never)]
fn rest() {
    thread::sleep_ns(REST_NS);
}

pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// Writes all of a part of a piece, which begins at `start` of the file. A piece that does not fit on the disk is taken away again, so that
/// the file ends with a whole block.
fn write(file: &OwnedFd, mut piece: &[u8], start: u64) -> bool {
    while !piece.is_empty() {
        match rustix::io::write(file, piece) {
            Ok(0) => return false,
            Ok(written) => piece = piece.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(_) => {
                let _ = rustix::fs::ftruncate(file, start);
                return false;
            }
        }
    }
    true
}

/// Ends a connection in order. What the peer has sent is thrown away: a socket that is closed with unread bytes resets the
/// connection, and the peer could lose the end of what we sent. And the connection is shut down, not only closed, because a
/// child that this process forked may hold the socket open too.
pub(crate) fn hang_up(socket: &OwnedFd) {
    let mut bytes = [0; 4096];
    for _ in 0..16 {
        match rustix::net::recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}
