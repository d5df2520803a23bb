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
use crate::message;
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

/// Our descriptors have high numbers. A program that closes whatever is open (as daemons do when they begin) gives the low ones to its own
/// files next, and what we did not know to be closed would be written into those. Where none is left up there, it stays where it is.
pub(crate) fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    #[cfg(feature = "std")]
    {
        const FIRST: i32 = 512;
        rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST).unwrap_or(descriptor)
    }
    // Without std: a runtime closes nothing that it has not opened.
    #[cfg(not(feature = "std"))]
    descriptor
}

/// Opens a file for a session, not inherited by programs that are started. The session's sender empties it: a session that is refused
/// leaves alone what was recorded there before. It may also be a FIFO or a terminal, and is then waited for like a socket once it is open.
pub(crate) fn create_file(path: &str) -> Result<OwnedFd, SessionError> {
    let path =
        text::c_string(path.as_bytes()).ok_or(SessionError::File(Errno::INVAL.raw_os_error()))?;
    let file = rustix::fs::open(
        &*path,
        OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o666),
    )
    .map_err(|errno| SessionError::File(errno.raw_os_error()))?;
    // Not when it is opened: a FIFO has no reader yet.
    let _ = rustix::fs::fcntl_setfl(&file, OFlags::NONBLOCK);
    Ok(out_of_the_way(file))
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

fn run(session: &Arc<SessionState>, mut output: Output) {
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
                    Output::Socket(socket) => send(socket, part, queue, None),
                    Output::File(file) => send(file, part, queue, Some(start)),
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
                let peer = match &output {
                    Output::Socket(socket) => Some(&**socket),
                    Output::File(file) => Some(file),
                    Output::Callback(_) => None,
                };
                if !wait(queue, peer) {
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
    #[cfg(feature = "std")]
    if rustix::io::fcntl_getfd(queue.wake_fd()) == Err(Errno::BADF) {
        // The program has closed all that was open. What has such a number now is not ours to close.
        core::mem::forget((output, session.clone()));
    } else {
        drop(output);
    }
    #[cfg(not(feature = "std"))]
    drop(output);
    // A reader that goes away ends its session. When the session was stopped this does nothing.
    control::disable(session.id(), !exit::has_begun());
    session.set_ended();
    server::notify();
}

/// Sleeps until the queue wakes us; false when the peer has closed.
fn wait(queue: &Queue, peer: Option<&OwnedFd>) -> bool {
    let wake = queue.wake_fd();
    let mut fds = [
        PollFd::new(&wake, PollFlags::IN),
        // No events asked for: a hang-up or an error is reported anyway. A peer that only shut its sending side down reads on.
        PollFd::from_borrowed_fd(peer.map_or(wake, AsFd::as_fd), PollFlags::empty()),
    ];
    let pause = queue.has_much_to_spare().then(|| timespec(PAUSE_NS));
    match poll(&mut fds, pause.as_ref()) {
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
    queue.clear_wake();
    // `NVAL`: the program has closed it.
    let [_, peer] = &fds;
    !peer
        .revents()
        .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Sends all of a part of a piece, waiting for the peer as long as the session runs; false when the peer is gone or does not read.
///
/// A file is a peer that nearly never has to be waited for (a FIFO is another); the part begins at `start` of it. A piece that does not fit
/// on the disk is taken away again, so that the file ends with a whole block. It is said, because whoever started the session may never look.
fn send(peer: &OwnedFd, mut part: &[u8], queue: &Queue, start: Option<u64>) -> bool {
    let mut last_progress = clock::monotonic_ns();
    while !part.is_empty() {
        let sent = match start {
            None => rustix::net::send(peer, part, SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
            Some(_) => rustix::io::write(peer, part),
        };
        match sent {
            Ok(sent) => {
                part = part.get(sent..).unwrap_or_default();
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
                if !wait_writable(peer, queue, wait_ns) {
                    return false;
                }
            }
            Err(errno) => {
                if let Some(start) = start {
                    let _ = rustix::fs::ftruncate(peer, start);
                    if cfg!(feature = "std") {
                        let number =
                            message::decimal(u64::from(errno.raw_os_error().unsigned_abs()));
                        message::warn(&[
                            "a session ends: its file takes no more (error ",
                            &number,
                            ")",
                        ]);
                    }
                }
                return false;
            }
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

fn wait_writable(peer: &OwnedFd, queue: &Queue, wait_ns: Option<u64>) -> bool {
    let wake = queue.wake_fd();
    let mut fds = [
        PollFd::new(peer, PollFlags::OUT),
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
