//! Sessions: somebody who wants events. What they want, where it goes, and how it ends.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(feature = "std")]
use eventpipe_os::memory;
use eventpipe_os::sync::Signal;
use eventpipe_os::{clock, thread};
use nettrace::WriteFormat;

use crate::consumer::Consumer;
use crate::control;
use crate::encoder::SessionEncoder;
use crate::engine::ENGINE;
use crate::filter::{Filter, ProviderRequest};
use crate::fork;
use crate::listener::Listener;
#[cfg(feature = "netperf")]
use crate::netperf::NetPerfEncoder;
use crate::output::{self, Output};
use crate::queue::Queue;
use crate::{drain, environment, process_info};

/// Names a session. Never 0, never used again in the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// The version of the trace format that a session's stream has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// V4, which every reader takes.
    #[default]
    V4,
    /// V6.
    V6,
    /// V3, for old readers: in it losses do not show, and no [`Host`](crate::Host) is asked for a rundown.
    #[cfg(feature = "netperf")]
    V3,
}

/// What becomes of events for which there is no room, because the reader is slower than the writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Buffering {
    /// They are lost, and counted.
    #[default]
    Drop,
    /// Their writers wait until there is room, the reader goes away or the session stops: nothing is lost, and a reader that
    /// does not read stops the program. Lost (and counted) are still events above the largest size, and those of code that must
    /// not wait: signal handlers, events inside events, threads that make room (those of the engine, a session's callback, a thread that
    /// has read from a [`Listener`] of this kind).
    Block,
}

/// Why a session did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// 64 sessions run.
    TooManySessions,
    /// The session asks for no provider.
    NoProviders,
    /// The process is ending, or is the child of a fork.
    ShuttingDown,
    /// The call came from inside the engine, out of an allocator.
    InsideEngine,
    /// The operating system refused memory, a thread or a descriptor; its error number.
    System(i32),
    /// The output file could not be made; the operating system's error number.
    File(i32),
    /// The session asks for something that this engine does not have.
    Unsupported,
}

impl SessionError {
    /// What is wrong, in words.
    pub fn text(&self) -> &'static str {
        match self {
            SessionError::TooManySessions => "64 sessions run already",
            SessionError::NoProviders => "the session asks for no provider",
            SessionError::ShuttingDown => "the process is ending, or it is the child of a fork",
            SessionError::InsideEngine => "called from inside the engine",
            SessionError::System(_) => {
                "the operating system refused memory, a thread or a descriptor"
            }
            SessionError::File(_) => "the output file cannot be made",
            SessionError::Unsupported => "the session asks for what is not supported",
        }
    }

    /// The operating system's error number, 0 where the cause is another.
    pub fn number(&self) -> i32 {
        match self {
            SessionError::System(number) | SessionError::File(number) => *number,
            _ => 0,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match self.number() {
            0 => Ok(()),
            number => write!(f, " (error {number})"),
        }
    }
}

impl core::error::Error for SessionError {}

impl From<rustix::io::Errno> for SessionError {
    fn from(errno: rustix::io::Errno) -> Self {
        SessionError::System(errno.raw_os_error())
    }
}

impl From<eventpipe_os::Error> for SessionError {
    fn from(error: eventpipe_os::Error) -> Self {
        SessionError::System(error.number)
    }
}

/// What a session is to be.
///
/// ```no_run
/// use eventpipe::{Level, ProviderRequest, SessionRequest};
///
/// let session = SessionRequest::new()
///     .provider(ProviderRequest::new("Demo-Requests").level(Level::Informational))
///     .start_file("requests.nettrace")?;
/// // …
/// session.stop();
/// # Ok::<(), eventpipe::SessionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SessionRequest {
    pub(crate) providers: Vec<ProviderRequest>,
    pub(crate) buffer_mb: u32,
    pub(crate) buffering: Buffering,
    pub(crate) format: Format,
    pub(crate) stacks: bool,
    pub(crate) rundown_keywords: u64,
    /// Nothing is sent before the end.
    pub(crate) hold_until_stop: bool,
}

impl Default for SessionRequest {
    fn default() -> Self {
        SessionRequest::new()
    }
}

impl SessionRequest {
    /// A session for no provider yet, with a buffer of 256 MB, V4 and stacks.
    pub fn new() -> Self {
        SessionRequest {
            providers: Vec::new(),
            buffer_mb: 256,
            buffering: Buffering::Drop,
            format: Format::V4,
            stacks: true,
            rundown_keywords: 0,
            hold_until_stop: false,
        }
    }

    /// Asks for a provider.
    #[must_use]
    pub fn provider(mut self, provider: ProviderRequest) -> Self {
        self.providers.push(provider);
        self
    }

    /// How many megabytes may wait for a slow reader before events are lost: at least 1, and less than 4096, as in .NET. In a process whose
    /// address space is limited (`ulimit -v`) it is no more than a quarter of what is left of that.
    #[must_use]
    pub fn buffer_mb(mut self, megabytes: u32) -> Self {
        self.buffer_mb = megabytes;
        self
    }

    /// What becomes of events when there is no room.
    #[must_use]
    pub fn buffering(mut self, buffering: Buffering) -> Self {
        self.buffering = buffering;
        self
    }

    /// Version of the trace format.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Whether events carry call stacks: up to 100 frames, the innermost first. A stack of 100 frames was cut (or is exactly so deep).
    /// An event whose definition says `stack = false` has none in any session.
    #[must_use]
    pub fn stacks(mut self, stacks: bool) -> Self {
        self.stacks = stacks;
        self
    }

    /// Has the end of the session tell of modules, threads and events (provider `EventPipe-Rundown`), and what a host tells for these
    /// keywords ([`Host::rundown`](crate::Host)); 0, as in the beginning, is nothing.
    #[must_use]
    pub fn rundown_keywords(mut self, keywords: u64) -> Self {
        self.rundown_keywords = keywords;
        self
    }

    fn check(&self) -> Result<(), SessionError> {
        if self.providers.is_empty() {
            return Err(SessionError::NoProviders);
        }
        if self.hold_until_stop && self.buffering == Buffering::Block {
            // Nobody would ever make room.
            return Err(SessionError::Unsupported);
        }
        #[cfg(feature = "netperf")]
        if self.format == Format::V3 && self.buffering == Buffering::Block {
            return Err(SessionError::Unsupported);
        }
        Ok(())
    }

    /// Starts the session into a file, which is made or replaced. It is written as the events come, and is a readable trace at
    /// any moment.
    ///
    /// # Errors
    /// See [`SessionError`]; [`SessionError::File`] if the file cannot be opened. A file that is there stays as it is then.
    pub fn start_file(self, path: &str) -> Result<Session, SessionError> {
        self.check()?;
        let file = output::create_file(path)?;
        let session = start(self, Output::File(file), |_| Vec::new())?;
        session.begin();
        Ok(session)
    }

    /// Starts the session into a function, which gets the stream of a trace in pieces, on a thread of the session's own. A
    /// slow function costs this session events, nobody else.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn start_callback(
        self,
        callback: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Session, SessionError> {
        let session = start(self, Output::Callback(Box::new(callback)), |_| Vec::new())?;
        session.begin();
        Ok(session)
    }
}

/// Starts a session whose output waits for [`Session::begin`], or for the end of the process. `first` makes what stands before the stream.
pub(crate) fn start(
    mut request: SessionRequest,
    output: Output,
    first: fn(SessionId) -> Vec<u8>,
) -> Result<Session, SessionError> {
    request.check()?;
    drain::start()?;
    let hold = request.hold_until_stop;
    let (bit, id) = control::reserve(
        Filter::new(core::mem::take(&mut request.providers)),
        request.stacks,
        request.buffering,
    )?;
    let built = drain::take_pool().and_then(|()| build(request, output, first(id), bit, id));
    match built {
        Ok((state, consumer)) => {
            control::enable(bit, state.clone(), consumer).inspect_err(|_| state.queue.abort())?;
            // A reader that went away before there was a session to stop: its sender found none, and nobody else would ever stop it.
            if state.queue.is_aborted() {
                control::disable(id, true);
                if state.has_ended() {
                    state.set_ended();
                }
            }
            Ok(Session { id, state, hold })
        }
        Err(error) => {
            control::cancel(bit);
            Err(error)
        }
    }
}

/// Starts a session that the program reads itself.
pub(crate) fn start_listener(mut request: SessionRequest) -> Result<Listener, SessionError> {
    request.check()?;
    drain::start()?;
    let filter = Filter::new(core::mem::take(&mut request.providers));
    let buffering = request.buffering;
    let (bit, id) = control::reserve(filter, false, buffering)?;
    let limit = buffer_bytes(&request);
    let built = drain::take_pool().and_then(|()| SessionState::new(id, limit, buffering));
    match built {
        Ok(state) => {
            let session = Session {
                id,
                state: state.clone(),
                hold: false,
            };
            let info = process_info::trace_info();
            let (listener, ear) = Listener::new(bit, session, state.clone(), limit, info);
            control::enable(bit, state, Consumer::Listener(ear))?;
            Ok(listener)
        }
        Err(error) => {
            control::cancel(bit);
            Err(error)
        }
    }
}

/// A request may name any number of megabytes; it is the traced program whose memory they are.
fn buffer_bytes(request: &SessionRequest) -> usize {
    const MOST: u64 = (4 << 30) - 1;
    let bytes = (u64::from(request.buffer_mb.max(1)) << 20).min(MOST);
    // A program that reaches its limit may not survive it. A quarter for address space that the session takes at once, a quarter for what
    // it allocates bit by bit, and half for the program.
    #[cfg(feature = "std")]
    let bytes = bytes.min(memory::address_space_left().map_or(u64::MAX, |left| left / 4));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn build(
    request: SessionRequest,
    output: Output,
    mut first: Vec<u8>,
    bit: u32,
    id: SessionId,
) -> Result<(Arc<SessionState>, Consumer), SessionError> {
    let state = SessionState::new(id, buffer_bytes(&request), request.buffering)?;
    // Before the encoder, which begins with the header of the trace.
    state.queue.push(&mut first);
    let info = process_info::trace_info();
    let stream = |format| {
        Consumer::Stream(Box::new(SessionEncoder::new(
            bit,
            state.clone(),
            format,
            &info,
            request.stacks,
            request.rundown_keywords,
        )))
    };
    let consumer = match request.format {
        Format::V4 => stream(WriteFormat::V4),
        Format::V6 => stream(WriteFormat::V6),
        #[cfg(feature = "netperf")]
        Format::V3 => {
            let encoder = NetPerfEncoder::new(bit, state.clone(), &info, request.stacks);
            Consumer::NetPerf(Box::new(encoder))
        }
    };
    output::start(state.clone(), output)?;
    Ok((state, consumer))
}

/// How much may wait for the reader of a session in block mode before writers are held. Below its limit, because what is in
/// the pool, and what they still write into the blocks that they have, comes on top.
pub(crate) fn backlog_limit(limit: usize) -> usize {
    (limit / 2).max(limit.saturating_sub(environment::pool_bytes()))
}

/// A running session. Dropping it does not stop the session.
#[derive(Clone, Debug)]
pub struct Session {
    id: SessionId,
    state: Arc<SessionState>,
    hold: bool,
}

/// What has become of the events of a session so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Events in the stream.
    pub delivered: u64,
    /// Events that were written but are not in the stream. The stream says of which thread.
    pub lost: u64,
    /// Bytes of the stream that were sent.
    pub bytes: u64,
}

impl Session {
    /// Id, as StopTracing names it.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Turns the events off and waits until everything is delivered, as long as the reader keeps reading: one that
    /// takes nothing for ten seconds is given up. Returns whether the stream is complete; false in the child of a fork, whose parent has the
    /// session.
    pub fn stop(&self) -> bool {
        control::disable(self.id, true);
        self.state.wait_ended(u64::MAX) && !self.state.queue.is_aborted()
    }

    /// Counts.
    pub fn statistics(&self) -> SessionStatistics {
        SessionStatistics {
            delivered: self.state.delivered.load(Ordering::Relaxed),
            lost: self.state.lost.load(Ordering::Relaxed),
            bytes: self.state.bytes.load(Ordering::Relaxed),
        }
    }

    /// Whether the output has ended: stopped and complete, or given up.
    pub fn has_ended(&self) -> bool {
        self.state.has_ended()
    }

    /// Lets the output begin.
    pub(crate) fn begin(&self) {
        if !self.hold {
            self.state.queue.open();
        }
    }
}

/// A reader that takes nothing for so long, after the end of its session, has given up.
pub(crate) const STALL_NS: u64 = 10_000_000_000;

/// The part of a session that the drain, its sender and those who wait for its end share.
#[derive(Debug)]
pub(crate) struct SessionState {
    id: SessionId,
    pub(crate) queue: Queue,
    pub(crate) buffering: Buffering,
    pub(crate) delivered: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// When the session was told to stop: what is younger does not belong to it. The masks of its events are cleared one after another, and
    /// without this line in time a thread could be seen to skip an event whose mask was cleared and to write one whose mask was not yet.
    pub(crate) stopped_ticks: AtomicU64,
    /// Thread id of the sender, 0 before it runs.
    pub(crate) sender: AtomicU64,
    ended: AtomicBool,
    end: Signal,
}

impl SessionState {
    pub(crate) fn new(
        id: SessionId,
        limit: usize,
        buffering: Buffering,
    ) -> Result<Arc<Self>, SessionError> {
        Ok(Arc::new(SessionState {
            id,
            queue: match buffering {
                Buffering::Drop => Queue::new(limit, limit),
                Buffering::Block => {
                    let backlog = backlog_limit(limit);
                    let most = backlog.saturating_add(environment::pool_bytes().saturating_mul(2));
                    Queue::new(limit.max(most), backlog)
                }
            }?,
            buffering,
            delivered: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            stopped_ticks: AtomicU64::new(u64::MAX),
            sender: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            end: Signal::new(),
        }))
    }

    /// Counts so far.
    pub(crate) fn publish(&self, delivered: u64, lost: u64) {
        self.delivered.store(delivered, Ordering::Relaxed);
        self.lost.store(lost, Ordering::Relaxed);
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The sender has nothing more to do.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
        self.end.set();
        let forgotten = ENGINE
            .control
            .lock()
            .and_then(|mut control| control.forget(self.id));
        drop(forgotten);
    }

    /// Waits for the end, until a time of the monotonic clock. The session's own sender (in a callback) does not wait, nor does the child of
    /// a fork, which has nobody to wait for.
    pub(crate) fn wait_ended(&self, deadline_ns: u64) -> bool {
        if fork::is_child() || self.sender.load(Ordering::Relaxed) == thread::os_thread_id() {
            return self.has_ended();
        }
        loop {
            if self.has_ended() {
                // Several may wait: pass it on.
                self.end.set();
                return true;
            }
            let now = clock::monotonic_ns();
            if now >= deadline_ns {
                return false;
            }
            // A waiter that consumed the signal passes it on only after it has run, so look again now and then.
            self.end.wait(Some((deadline_ns - now).min(100_000_000)));
        }
    }
}
