//! One client: request in, answer out, close. Every step is one non-blocking call.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dotnet_diagnostics::codec::{ErrorCode, Progress, RequestReader, Strictness, encode_error};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags};

use super::commands::{self, Answer};
#[cfg(any(feature = "perf-map", feature = "dump"))]
use super::job::Job;
use super::ports::PortNumber;
use crate::output::hang_up;
use crate::session::SessionState;

/// A client has so long for its whole request, and then for taking the whole answer.
const LIMIT_NS: u64 = 5_000_000_000;

#[derive(Debug)]
pub(super) struct Connection {
    socket: Arc<OwnedFd>,
    port: PortNumber,
    step: Step,
    deadline_ns: u64,
}

#[derive(Debug)]
enum Step {
    Reading(RequestReader),
    /// The client is to send a byte with a descriptor; this is the answer if it does.
    Receiving(ErrorCode),
    /// The answer follows when this session has ended.
    Waiting {
        session: Arc<SessionState>,
        answer: Vec<u8>,
    },
    Writing {
        answer: Vec<u8>,
        sent: usize,
    },
    /// The answer follows when this has been done.
    #[cfg(any(feature = "perf-map", feature = "dump"))]
    Working(Arc<Job>),
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, port: PortNumber, now_ns: u64) -> Self {
        Connection {
            socket: Arc::new(socket),
            port,
            step: Step::Reading(RequestReader::new(Strictness::Exact)),
            deadline_ns: now_ns + LIMIT_NS,
        }
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let events = match self.step {
            Step::Reading(_) | Step::Receiving(_) => PollFlags::IN,
            Step::Waiting { .. } => PollFlags::empty(),
            Step::Writing { .. } => PollFlags::OUT,
            #[cfg(any(feature = "perf-map", feature = "dump"))]
            Step::Working(_) => PollFlags::empty(),
        };
        PollFd::new(&*self.socket, events)
    }

    pub(super) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Whether the client has not said yet what it wants.
    pub(super) fn is_undecided(&self) -> bool {
        matches!(self.step, Step::Reading(_))
    }

    /// Whether it has not said anything at all.
    pub(super) fn is_silent(&self) -> bool {
        matches!(&self.step, Step::Reading(reader) if reader.is_empty())
    }

    /// Does what can be done; false when the connection is over.
    pub(super) fn advance(&mut self, ready: PollFlags, now_ns: u64) -> bool {
        let goes_on = match &self.step {
            Step::Reading(_) if !ready.is_empty() => self.read(now_ns),
            Step::Receiving(code) if !ready.is_empty() => self.receive(*code, now_ns),
            Step::Waiting { session, .. } if session.has_ended() => self.stop_waiting(now_ns),
            Step::Waiting { .. } => !ready.intersects(PollFlags::HUP | PollFlags::ERR),
            Step::Writing { .. } if !ready.is_empty() => self.write(),
            #[cfg(any(feature = "perf-map", feature = "dump"))]
            Step::Working(job) => match job.take() {
                Some(answer) => self.answer(answer, now_ns),
                None => !ready.intersects(PollFlags::HUP | PollFlags::ERR),
            },
            _ => true,
        };
        goes_on && now_ns < self.deadline_ns
    }

    fn read(&mut self, now_ns: u64) -> bool {
        let Step::Reading(reader) = &mut self.step else {
            return true;
        };
        let mut bytes = [0; 4096];
        loop {
            // No more than belongs to the request: what follows is not ours to take.
            let wanted = reader.needed().min(bytes.len());
            let buffer = bytes.get_mut(..wanted).unwrap_or_default();
            let progress = match rustix::net::recv(&*self.socket, &mut *buffer, RecvFlags::DONTWAIT)
            {
                Ok((0, _)) if reader.is_empty() => return false,
                // The peer has shut its side down in the middle of a request; it may still read.
                Ok((0, _)) => Progress::Error(reader.end_of_input()),
                Ok((count, _)) => reader.feed(buffer.get(..count).unwrap_or_default()).1,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            };
            let answer = match progress {
                Progress::Need(_) => continue,
                Progress::Error(code) => Answer::Message(encode_error(code).into()),
                Progress::Request(request) => commands::execute(request, &self.socket, self.port),
            };
            return match answer {
                Answer::Message(answer) => self.answer(answer, now_ns),
                Answer::AfterEnd { session, answer } => {
                    self.step = Step::Waiting { session, answer };
                    // The end comes by itself: a session's sender has limits of its own.
                    self.deadline_ns = u64::MAX;
                    true
                }
                #[cfg(any(feature = "perf-map", feature = "dump"))]
                Answer::Later(job) => {
                    self.step = Step::Working(job);
                    self.deadline_ns = u64::MAX;
                    true
                }
                // The socket belongs to the session now, and this client has said what it wants.
                Answer::Stream => {
                    self.step = Step::Writing {
                        answer: Vec::new(),
                        sent: 0,
                    };
                    false
                }
                Answer::AfterDescriptor(code) => {
                    self.step = Step::Receiving(code);
                    self.receive(code, now_ns)
                }
            };
        }
    }

    /// Takes the byte that comes with a descriptor, and leaves the descriptor: without room for one the kernel closes it, and says that
    /// there was something. A byte without one is a request that does not parse.
    fn receive(&mut self, code: ErrorCode, now_ns: u64) -> bool {
        let mut control = RecvAncillaryBuffer::default();
        let mut byte = [0];
        let mut pieces = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match rustix::net::recvmsg(&*self.socket, &mut pieces, &mut control, flags) {
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
            Ok(received) => received,
        };
        let has_descriptor = received.flags.contains(ReturnFlags::CTRUNC);
        let code = if has_descriptor {
            code
        } else {
            ErrorCode::BAD_ENCODING
        };
        self.answer(encode_error(code).into(), now_ns)
    }

    fn stop_waiting(&mut self, now_ns: u64) -> bool {
        let Step::Waiting { answer, .. } = &mut self.step else {
            return true;
        };
        let answer = core::mem::take(answer);
        self.answer(answer, now_ns)
    }

    fn answer(&mut self, answer: Vec<u8>, now_ns: u64) -> bool {
        self.step = Step::Writing { answer, sent: 0 };
        self.deadline_ns = now_ns + LIMIT_NS;
        self.write()
    }

    fn write(&mut self) -> bool {
        let Step::Writing { answer, sent } = &mut self.step else {
            return true;
        };
        while let Some(rest) = answer.get(*sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(
                &*self.socket,
                rest,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(count) => *sent += count,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        hang_up(&self.socket);
        false
    }
}
