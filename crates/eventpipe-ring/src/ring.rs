//! Under construction: the border of the crate; what it does follows.

use crate::{EventKey, Payload, RecordOptions, Sink};
use eventpipe_os::Error;
use eventpipe_os::sync::Signal;

/// The buffer. One per process, in a static.
#[derive(Debug)]
pub struct Ring {
    _private: (),
}

impl Ring {
    /// A ring without memory.
    #[allow(clippy::new_without_default, reason = "belongs in a static")]
    pub const fn new() -> Self {
        Self { _private: () }
    }

    /// Reserves `pool_bytes` for blocks (at least 256 KiB, at most 64 GiB; a third less or more is fitted) and makes the pages present. Does nothing when the ring has
    /// its memory already (whatever the size then was). 64 MiB take about 40 ms.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub fn start(&'static self, pool_bytes: usize) -> Result<(), Error> {
        let _ = pool_bytes;
        Ok(())
    }

    /// Writes an event: one copy, tagged with `event.mask` as it is now; or nothing, when no session wants it; or a loss, counted for each
    /// session that wanted it. Never blocks, locks, allocates, or calls the system, except: a thread's first event (its slot), and a
    /// wake-up of a drain that sleeps idle. Works in signal handlers, inside itself (one level), after the destruction of thread-locals, and
    /// without [`start`](Self::start) (then everything is lost, and counted).
    #[inline]
    pub fn write<P: Payload + ?Sized>(
        &'static self,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        let _ = (event, payload, options);
    }

    /// Returns when every write that was under way at the call has ended. Called after clearing mask bits: no record with
    /// those bits is written afterwards. Waits for writers only (nanoseconds, unless one is preempted), holds no lock. Not inside an event.
    pub fn quiesce(&self) {}

    /// The right to drain; `None` while somebody has it.
    pub fn drain(&'static self) -> Option<Drain<'static>> {
        Some(Drain { ring: self })
    }

    /// The signal that writers set: when a block is taken, an event lost or a thread with something to tell ends while the drain sleeps idle
    /// ([`Drain::prepare_idle`]); and when an eighth of the pool waits to be drained. Set once, before the first session.
    pub fn set_wake(&self, signal: &'static Signal) {
        let _ = signal;
    }

    /// Gives the pool's memory back to the system; the next [`start`](Self::start) takes it again, with a new size. For some seconds after the last session's end: every
    /// mask is zero and [`quiesce`](Self::quiesce) has returned. `false` when a block is still in use (drain first) or a `Drain` exists.
    pub fn release(&self) -> bool {
        true
    }

    /// Forgets everything that was written and every thread but the calling one. Only in the child of a fork, before other threads
    /// exist: from an at-fork handler, after every mask was set to zero.
    pub fn forked_child(&'static self) {}

    /// Figures that can be read at any time.
    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// Figures of a ring, each exact at some moment close to the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes of the pool; 0 when it is given back.
    pub pool_bytes: u64,
    /// Bytes in free blocks.
    pub free_bytes: u64,
    /// Bytes in blocks that wait to be drained.
    pub full_bytes: u64,
    /// Slots ever made: the largest number of threads with events at a time.
    pub slots: u64,
    /// Events lost since the process started, summed over sessions.
    pub lost: u64,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Everything with ticks up to this has been given.
    pub boundary_ticks: u64,
    /// Records given in this round.
    pub records: u64,
    /// Losses given in this round.
    pub lost: u64,
    /// Whether every run of this round was marked sorted; `false` while a thread is stuck in the middle of an event (more than 20 ms): then
    /// `boundary_ticks` stays behind.
    pub all_sorted: bool,
    /// No record is waiting (too young for this round), no thread is in the middle of an event.
    pub idle: bool,
}

/// The right to drain a ring.
#[derive(Debug)]
pub struct Drain<'a> {
    ring: &'a Ring,
}

impl Drain<'_> {
    /// Gives everything that was written up to about a microsecond ago to `sink`, see [`Sink`] for the order.
    pub fn round<S: Sink + ?Sized>(&mut self, sink: &mut S) -> Round {
        let _ = (self.ring, sink);
        Round {
            boundary_ticks: eventpipe_os::clock::ticks(),
            all_sorted: true,
            idle: true,
            ..Round::default()
        }
    }

    /// Reports to `sink` the losses of the given sessions (a mask) that no record has told yet, on every thread. For the end of
    /// a session: bits cleared, [`Ring::quiesce`], rounds up to a boundary after that, then this. The bits may then be used again.
    pub fn collect_lost<S: Sink + ?Sized>(&mut self, sessions: u64, sink: &mut S) -> u64 {
        let _ = (sessions, sink);
        0
    }

    /// Takes the open blocks from the threads that wrote nothing since the round before, so that their next event takes a new one. Their
    /// records come with the next rounds.
    pub fn take_back_idle(&mut self) {}

    /// To be called before a long sleep: `true` when nothing is pending anywhere; then the next event, loss or thread end of interest sets the wake
    /// signal, until the next round. `false`: keep on polling (threads hold blocks; [`take_back_idle`](Self::take_back_idle) was called).
    pub fn prepare_idle(&mut self) -> bool {
        true
    }
}
