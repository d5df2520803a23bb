//! A running session: the stream to read, and the way to end it from another thread.
//!
//! Two facts of the protocol shape this. A stop is answered only while somebody drains the stream, so the two are
//! separate values for separate threads. And a session's id is reused as soon as the session has ended, so a stop is
//! never sent once the end of the stream was seen.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::vec;
use std::vec::Vec;

use super::{Client, Fallback, receive};
use crate::Error;
use crate::codec::{CollectVersion, Command, Request, SessionId};
use crate::socket::Deadline;

/// How often a waiting stop looks whether the stream still flows.
const STOP_SLICE: Duration = Duration::from_millis(250);
/// How long a dropped session may hold up its owner.
const DROP_LIMIT: Duration = Duration::from_secs(2);

/// A session of a process, read as a stream of nettrace (or, for user_events, of nothing).
///
/// Dropping it without a stop sends one, because existing runtimes never notice an abandoned session that has nothing to
/// write, and have room for 64. What still comes is thrown away for up to 2 s: when the stream is closed under a
/// .NET Core 3.1 that is ending the session, it may end the next session with the same id too.
#[derive(Debug)]
pub struct Session {
    stream: UnixStream,
    stopper: Stopper,
    version: CollectVersion,
    fallbacks: Vec<Fallback>,
}

impl Session {
    pub(super) fn new(
        client: Client,
        id: SessionId,
        version: CollectVersion,
        stream: UnixStream,
    ) -> Result<Session, Error> {
        stream
            .set_read_timeout(None)
            .map_err(Error::io("preparing the stream"))?;
        Ok(Session {
            stream,
            stopper: Stopper {
                client,
                id,
                shared: Arc::default(),
            },
            version,
            fallbacks: Vec::new(),
        })
    }

    pub(super) fn with_fallbacks(mut self, fallbacks: Vec<Fallback>) -> Session {
        self.fallbacks = fallbacks;
        self
    }

    /// The session's id in the process.
    pub fn id(&self) -> SessionId {
        self.stopper.id
    }

    /// The command that began the session.
    pub fn version(&self) -> CollectVersion {
        self.version
    }

    /// What the session does differently from what was asked; empty where all is as asked.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// The way to end the session, for another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Limits one [`Read::read`]; it then fails with `WouldBlock`, and the session goes on. Default: no limit, since a
    /// session without events is silent.
    ///
    /// # Errors
    /// The system's, for a limit of 0.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }

    /// Ends the session and writes what still comes, rundown included, to `sink`. The answer to the stop is waited for
    /// on a thread of its own. Returns how many bytes were written.
    ///
    /// # Errors
    /// That of the stop, before those of reading and writing. The stream is drained to its end even when `sink` fails,
    /// because the process waits for that.
    pub fn stop_into(&mut self, sink: &mut dyn Write) -> Result<u64, Error> {
        let stopper = self.stopper();
        self.set_read_timeout(None)
            .map_err(Error::io("reading the stream"))?;
        std::thread::scope(|scope| {
            let stop = scope.spawn(move || {
                let result = stopper.stop();
                if result.is_err() {
                    stopper.abandon();
                }
                result
            });
            let drained = self.drain(sink);
            match stop.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            drained
        })
    }

    fn drain(&mut self, sink: &mut dyn Write) -> Result<u64, Error> {
        let mut buffer = vec![0; 64 << 10];
        let (mut total, mut failed) = (0_u64, None);
        loop {
            // After a failed stop nothing more is certain to come: look from time to time.
            self.set_read_timeout(Some(STOP_SLICE))
                .map_err(Error::io("reading the stream"))?;
            match self.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if failed.is_none() => {
                    let part = buffer.get(..count).unwrap_or_default();
                    match sink.write_all(part) {
                        Ok(()) => {
                            total = total.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                        }
                        Err(error) => failed = Some(error),
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.stopper.shared.abandoned.load(Ordering::Acquire) {
                        break;
                    }
                }
                Err(error) => return Err(Error::io("reading the stream")(error)),
            }
        }
        match failed {
            None => Ok(total),
            Some(error) => Err(Error::io("writing what the session sent")(error)),
        }
    }
}

impl Read for Session {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.stream.read(buffer);
        match &result {
            Ok(0) if !buffer.is_empty() => self.stopper.shared.ended.store(true, Ordering::Release),
            Ok(count) => {
                let count = u64::try_from(*count).unwrap_or(u64::MAX);
                self.stopper
                    .shared
                    .received
                    .fetch_add(count, Ordering::Release);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.stopper.shared.ended.store(true, Ordering::Release);
            }
            Err(_) => {}
        }
        result
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let shared = &self.stopper.shared;
        if shared.ended.load(Ordering::Acquire) || shared.sent.load(Ordering::Acquire) {
            return;
        }
        let mut client = self.stopper.client.clone();
        client.timeouts.connect = DROP_LIMIT;
        let deadline = Deadline::after(DROP_LIMIT);
        // Nobody can be told of an error here; closing the stream is the other half of giving the session up.
        let Ok(_answer) = client.send(&Request::StopTracing(self.stopper.id), DROP_LIMIT) else {
            return;
        };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(left) = deadline.left("ending a session") {
            let read = self
                .set_read_timeout(Some(left))
                .and_then(|()| self.read(&mut buffer));
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
    }
}

/// How a stop went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// The process has ended the session and written everything.
    Stopped,
    /// The stream had ended before: the process has exited, or somebody else stopped the session. Nothing was sent.
    AlreadyEnded,
}

/// Ends one session; works from any thread, on a connection of its own.
#[derive(Clone, Debug)]
pub struct Stopper {
    client: Client,
    id: SessionId,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes that the reader has taken off the stream.
    received: AtomicU64,
    /// The reader has seen the end of the stream: the id may belong to another session from now on.
    ended: AtomicBool,
    /// A stop has reached the process.
    sent: AtomicBool,
    /// The stop failed; who drains the stream need not wait for its end.
    abandoned: AtomicBool,
}

impl Stopper {
    /// The session's id in the process.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Ends the session and waits until the process has written all of it. **Somebody has to read the [`Session`]
    /// meanwhile**, or both sides wait for each other until the limit.
    ///
    /// Does nothing once the reader has seen the end of the stream, because the id may then belong to another session.
    ///
    /// # Errors
    /// [`Error::NotAnswering`] when neither the answer comes nor the stream flows within the limit
    /// [`Timeouts::stop`](super::Timeouts::stop). It may be tried again.
    pub fn stop(&self) -> Result<StopOutcome, Error> {
        if self.shared.ended.load(Ordering::Acquire) {
            return Ok(StopOutcome::AlreadyEnded);
        }
        let limit = self.client.timeouts.stop;
        let (stream, _) = match self.client.send(&Request::StopTracing(self.id), limit) {
            // The process went away, or ended the session, while the stop was on its way.
            Err(_) if self.wait_for_end() => return Ok(StopOutcome::AlreadyEnded),
            result => result?,
        };
        self.shared.sent.store(true, Ordering::Release);
        self.wait_for_answer(&stream, limit)?;
        match receive(stream, Deadline::after(limit), Command::STOP_TRACING) {
            Err(Error::ConnectionClosed { .. }) if self.wait_for_end() => {
                Ok(StopOutcome::AlreadyEnded)
            }
            result => result.map(|_| StopOutcome::Stopped),
        }
    }

    /// Whether the reader sees the end of the stream within a moment.
    fn wait_for_end(&self) -> bool {
        let pauses = [0, 20, 80, 200];
        pauses.into_iter().any(|pause| {
            std::thread::sleep(Duration::from_millis(pause));
            self.shared.ended.load(Ordering::Acquire)
        })
    }

    /// Waits until the answer begins. The limit begins anew as long as the stream flows.
    fn wait_for_answer(&self, stream: &UnixStream, limit: Duration) -> Result<(), Error> {
        let mut received = self.shared.received.load(Ordering::Acquire);
        let mut since = Instant::now();
        while !crate::socket::readable(stream, STOP_SLICE.min(limit))? {
            let now = self.shared.received.load(Ordering::Acquire);
            if now != received {
                (received, since) = (now, Instant::now());
            }
            if since.elapsed() >= limit {
                return Err(Error::NotAnswering {
                    doing: "waiting for the session's end, without any byte of it,",
                    limit,
                });
            }
        }
        Ok(())
    }

    fn abandon(&self) {
        self.shared.abandoned.store(true, Ordering::Release);
    }
}
