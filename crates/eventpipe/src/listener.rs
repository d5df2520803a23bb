//! Sessions whose events are read by the program itself, one at a time, in the order of time (engine.md 5.7).
//!
//! The drain hands the events of a round over at the round's boundary, when it is certain that nothing older will come, sorted by
//! time. What is not read stays within the session's buffer size; beyond that events are lost and counted.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use eventpipe_os::order::heap_sort;
use eventpipe_os::sync::{Mutex, Signal};
use eventpipe_ring::{Record, ThreadInfo};
use nettrace::{Guid, TraceInfo};

use crate::control;
use crate::engine::{ENGINE, RING};
use crate::environment;
use crate::event::Event;
use crate::session::{self, Buffering, Session, SessionError, SessionRequest, SessionState};
use crate::stall::Stall;

/// An event as a [`Listener`] gives it.
#[derive(Clone, Debug)]
pub struct HeardEvent {
    /// What was written.
    pub event: &'static Event,
    /// When, in nanoseconds of the monotonic clock.
    pub timestamp_ns: u64,
    /// By which thread: the system's id.
    pub thread_id: u64,
    /// Activity, zero for none.
    pub activity_id: Guid,
    /// Related activity, zero for none.
    pub related_activity_id: Guid,
    /// The payload, laid out as [`Event::metadata`] says.
    pub payload: Box<[u8]>,
}

/// A session that the program reads itself. Several threads may read; each event goes to one of them.
///
/// Values are decoded by the crate `nettrace`, from what the event says of itself:
///
/// ```
/// use eventpipe::{ProviderRequest, SessionRequest};
///
/// eventpipe::provider! {
///     mod requests = "Demo-Requests";
///     #[event(id = 1)]
///     fn request_start(id: u64, path: &str);
/// }
///
/// let listener = SessionRequest::new().provider(ProviderRequest::new("Demo-Requests")).listen()?;
/// requests::request_start(7, "/");
///
/// listener.wait(Some(1_000_000_000)); // at most a second: events come in batches, some milliseconds after they were written
/// listener.session().stop(); // no more events; waits until all that were written can be read
/// # let mut count = 0;
/// while let Some(heard) = listener.next() {
///     let schema = nettrace::Schema::new(&heard.event.metadata(), 8); // a program with many events keeps it
///     print!("{} {}", heard.timestamp_ns, schema.event_name());
///     for (name, value) in schema.fields(&heard.payload) {
///         print!(" {name}={value:?}");
///     }
///     println!();
/// #   assert_eq!(schema.fields(&heard.payload).get("id").and_then(|id| id.as_u64()), Some(7));
/// #   count += 1;
/// }
/// # assert_eq!(count, 1);
/// # Ok::<(), eventpipe::SessionError>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    session: Session,
    feed: Arc<Feed>,
    start: TraceInfo,
}

/// What drain and reader share.
#[derive(Debug)]
struct Feed {
    events: Mutex<VecDeque<Box<HeardEvent>>>,
    /// Bytes of the events that wait, and how many may.
    used: AtomicUsize,
    limit: usize,
    /// Writers wait for room.
    blocking: bool,
    /// In block mode writers are held while more than this waits; else those that were held go on when no more does.
    backlog_limit: usize,
    /// The writers are held.
    held: AtomicBool,
    signal: Signal,
}

impl Feed {
    fn has_backlog(&self) -> bool {
        self.used.load(Ordering::SeqCst) > self.backlog_limit
    }
}

impl SessionRequest {
    /// Starts the session for this program itself.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn listen(self) -> Result<Listener, SessionError> {
        session::start_listener(self)
    }
}

impl Listener {
    /// The session and the part of it that the drain gets.
    pub(crate) fn new(
        bit: u32,
        session: Session,
        state: Arc<SessionState>,
        limit: usize,
        start: TraceInfo,
    ) -> (Listener, Box<Ear>) {
        let (backlog_limit, limit) = match state.buffering {
            Buffering::Drop => (limit / 2, limit),
            Buffering::Block => {
                let backlog = session::backlog_limit(limit);
                let most = backlog.saturating_add(environment::pool_bytes().saturating_mul(2));
                (backlog, limit.max(most))
            }
        };
        let feed = Arc::new(Feed {
            events: Mutex::new(VecDeque::new()),
            used: AtomicUsize::new(0),
            limit,
            blocking: state.buffering == Buffering::Block,
            backlog_limit,
            held: AtomicBool::new(false),
            signal: Signal::new(),
        });
        let ear = Ear {
            bit,
            session: state,
            feed: feed.clone(),
            batch: Vec::new(),
            stall: Stall::default(),
            delivered: 0,
            lost: 0,
        };
        let listener = Listener {
            session,
            feed,
            start,
        };
        (listener, Box::new(ear))
    }

    /// The oldest event that has not been read, if one is there.
    pub fn next(&self) -> Option<HeardEvent> {
        let feed = &self.feed;
        if feed.blocking {
            // This thread is what the writers wait for.
            RING.never_wait();
        }
        let heard = feed.events.lock().pop_front()?;
        feed.used.fetch_sub(size(&heard), Ordering::SeqCst);
        if feed.held.load(Ordering::SeqCst) && !feed.has_backlog() {
            ENGINE.drain.set();
        }
        Some(*heard)
    }

    /// Waits for events or [`signal`](Self::signal), at most so many nanoseconds; false when the time is over.
    pub fn wait(&self, timeout_ns: Option<u64>) -> bool {
        self.feed.signal.wait(timeout_ns)
    }

    /// Ends a [`wait`](Self::wait), now or the next one.
    pub fn signal(&self) {
        self.feed.signal.set();
    }

    /// When the session started: in UTC, and by the clock of the [time stamps](HeardEvent::timestamp_ns).
    pub fn start(&self) -> &TraceInfo {
        &self.start
    }

    /// The session, for its counts, and to wait for its end.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Turns the events off, without waiting: what was written before is still to be read, the last of it a moment later. To wait for it, stop
    /// the [`session`](Self::session).
    pub fn stop(&self) {
        control::disable(self.session.id(), true);
    }
}

impl Drop for Listener {
    /// Nobody else can read, so the session would only keep its place, and writers that wait for a reader would wait for ever.
    fn drop(&mut self) {
        self.stop();
    }
}

fn size(heard: &HeardEvent) -> usize {
    size_of::<HeardEvent>() + heard.payload.len()
}

/// The drain's part of a listener.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) bit: u32,
    session: Arc<SessionState>,
    feed: Arc<Feed>,
    /// With the order of arrival.
    batch: Vec<(u64, Box<HeardEvent>)>,
    stall: Stall,
    delivered: u64,
    lost: u64,
}

impl Ear {
    pub(crate) fn record(
        &mut self,
        thread: ThreadInfo,
        event: &'static Event,
        record: &Record<'_>,
        time_ns: u64,
    ) {
        let size = size_of::<HeardEvent>() + record.payload.len();
        let used = self.feed.used.load(Ordering::Relaxed);
        if used.saturating_add(size) > self.feed.limit {
            self.lost += 1;
            self.stall.refused += 1;
            return;
        }
        self.feed.used.fetch_add(size, Ordering::Relaxed);
        let heard = Box::new(HeardEvent {
            event,
            timestamp_ns: time_ns,
            thread_id: record.event_thread.unwrap_or(thread.os_thread_id),
            activity_id: record.activity.map_or(Guid::ZERO, |id| Guid(*id)),
            related_activity_id: record.related.map_or(Guid::ZERO, |id| Guid(*id)),
            payload: Box::from(record.payload),
        });
        self.batch.push((self.delivered, heard));
        self.delivered += 1;
    }

    pub(crate) fn lost(&mut self, count: u64) {
        self.lost += count;
    }

    pub(crate) fn boundary(&mut self, time_ns: u64) {
        self.session.publish(self.delivered, self.lost);
        let stalls = self.stall.holds(self.delivered, time_ns);
        self.hold_or_lift(stalls || self.feed.blocking);
        if self.batch.is_empty() {
            return;
        }
        // The order of arrival decides between equal times, so that a thread's events keep theirs.
        heap_sort(&mut self.batch, |(a, first), (b, second)| {
            (first.timestamp_ns, *a) < (second.timestamp_ns, *b)
        });
        let batch = self.batch.drain(..).map(|(_, heard)| heard);
        self.feed.events.lock().extend(batch);
        self.feed.signal.set();
    }

    fn hold_or_lift(&self, may_hold: bool) {
        let held = &self.feed.held;
        if may_hold && self.feed.has_backlog() && !held.load(Ordering::Relaxed) {
            // First the request to be woken, then another look: as the reader makes room first, then looks for the request.
            held.store(true, Ordering::SeqCst);
            RING.hold(self.bit);
        }
        if held.load(Ordering::Relaxed) && !self.feed.has_backlog() {
            held.store(false, Ordering::Relaxed);
            RING.lift(self.bit);
        }
    }

    pub(crate) fn finish(mut self, time_ns: u64, before_the_end: impl FnOnce()) {
        self.boundary(time_ns);
        before_the_end();
        self.feed.signal.set();
        self.session.set_ended();
    }
}
