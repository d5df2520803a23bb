//! The drain: one thread that takes what writers left in the ring and gives each session its part.
//!
//! It sleeps without a timer when there is nothing to do: before, it takes open blocks back from idle threads, so that the
//! next event of any thread has to take a block, and taking one wakes the drain.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eventpipe_os::clock::{self, Clock};
use eventpipe_os::sync::Mutex;
use eventpipe_os::{process, thread};
use eventpipe_ring::{Drain, LossReason, Record, Records, Round, Sink, ThreadInfo};

use crate::consumer::Consumer;
use crate::control::{DrainCommand, MAX_SESSIONS};
use crate::engine::{ENGINE, EVENTS};
use crate::environment;
use crate::event::Event;
use crate::exit;
use crate::fork;
use crate::id_map::IdMap;
use crate::session::SessionError;

/// Time between two rounds while events come. An event is with its reader's socket within twice this.
const INTERVAL_NS: u64 = 30_000_000;

/// What comes after a silence is a burst, often. It is not looked at while it is being written: that would make both slower.
const GATHER_NS: u64 = 2_000_000;

/// The clock's rate is known better with every look at it, so an idle drain still looks now and then, for a while.
const YOUNG_NS: u64 = 5_000_000_000;
const YOUNG_INTERVAL_NS: u64 = 1_500_000_000;

/// How long a round is waited for that a stopping session needs.
const STOP_INTERVAL_NS: u64 = 20_000;

/// So many bytes of records are given to one of several sessions before the next one has its turn: what the first has read is still in
/// the core's nearest cache when the last one does.
const STRETCH: usize = 16 << 10;

/// The pool is given back so long after the last session.
const KEEP_POOL_NS: u64 = 5_000_000_000;

/// Whether the drain thread runs. Also held while the pool's memory is taken or given back, so that a session that starts
/// never loses the pool that it has just been given.
static RUNNING: Mutex<bool> = Mutex::new(false);

/// Gets everything ready that a session needs: drain thread, hooks of the process.
pub(crate) fn start() -> Result<(), SessionError> {
    if fork::is_child() {
        return Err(SessionError::ShuttingDown);
    }
    let mut running = RUNNING.lock();
    if !*running {
        #[cfg(feature = "std")]
        process::stay_loaded();
        clock::note_start();
        ENGINE.ring.set_wake(&ENGINE.drain);
        process::at_exit(exit::shutdown)?;
        process::at_fork_child(fork::forked_child)?;
        thread::spawn(c"eventpipe-drain", Box::new(run))?;
        *running = true;
    }
    Ok(())
}

/// Gives the ring its memory; called by a session that has its bit already.
pub(crate) fn take_pool() -> Result<(), SessionError> {
    let _running = RUNNING.lock();
    ENGINE.ring.start(environment::pool_bytes())?;
    Ok(())
}

/// Keeps the drain's thread from being started; `false` when it runs already. See [`ManualDrain`](crate::measure::ManualDrain).
pub(crate) fn stand_in() -> bool {
    !core::mem::replace(&mut *RUNNING.lock(), true)
}

fn run() {
    // It is what the others wait for.
    ENGINE.ring.never_wait();
    let mut sessions = Sessions::new();
    let mut drain = None;
    let mut last_session_ns = None;
    loop {
        sessions.take_inbox();
        if sessions.active == 0 && sessions.finishing.is_empty() {
            match last_session_ns {
                None => {
                    // Woken and no session: one that did not start may have left the pool behind.
                    ENGINE.drain.wait(None);
                    last_session_ns = Some(clock::monotonic_ns());
                }
                Some(since) => {
                    let kept = clock::monotonic_ns().saturating_sub(since);
                    if let Some(left) = KEEP_POOL_NS.checked_sub(kept).filter(|left| *left > 0) {
                        ENGINE.drain.wait(Some(left));
                    } else {
                        // A writer that holds a block just now is waited for once more.
                        last_session_ns =
                            (!release_pool(&mut drain, &mut sessions)).then(clock::monotonic_ns);
                    }
                }
            }
            continue;
        }
        if drain.is_none() {
            drain = ENGINE.ring.drain();
        }
        let Some(drain) = drain.as_mut() else {
            // Somebody else drains this ring: that can only be a mistake of ours, and waiting is the harmless answer.
            ENGINE.drain.wait(Some(INTERVAL_NS));
            continue;
        };
        last_session_ns = Some(clock::monotonic_ns());
        let round = drain.round(&mut sessions);
        sessions.keep_time(&round);
        sessions.finish_due(drain, round.boundary_ticks);
        if sessions.active == 0 {
            continue;
        }
        if !sessions.finishing.is_empty() || round.starved {
            ENGINE.drain.wait(Some(STOP_INTERVAL_NS));
        } else if round.records > 0 || round.lost > 0 || sessions.has_pending() {
            ENGINE.drain.wait(Some(INTERVAL_NS));
        } else {
            drain.take_back_idle();
            let timeout = match drain.prepare_idle() {
                true if sessions.clock_is_young() => Some(YOUNG_INTERVAL_NS),
                true => None,
                false => Some(INTERVAL_NS),
            };
            if ENGINE.drain.wait(timeout) && timeout != Some(INTERVAL_NS) {
                sessions.take_inbox();
                if sessions.finishing.is_empty() {
                    // Ends early when much waits, or a session is to stop.
                    ENGINE.drain.wait(Some(GATHER_NS));
                }
            }
        }
    }
}

/// Gives the pool's memory back, unless a session is just starting. Threads may still hold open blocks of the last session. Whether
/// it is given back.
fn release_pool(drain: &mut Option<Drain<'static>>, sessions: &mut Sessions) -> bool {
    if let Some(mut drain) = drain.take().or_else(|| ENGINE.ring.drain()) {
        for _ in 0..3 {
            drain.take_back_idle();
            drain.round(sessions);
        }
    }
    let _running = RUNNING.lock();
    let unused = ENGINE
        .control
        .lock()
        .is_some_and(|control| control.has_no_sessions());
    unused && ENGINE.ring.release()
}

/// All sessions as the drain knows them.
#[derive(Debug)]
pub(crate) struct Sessions {
    encoders: [Option<Consumer>; MAX_SESSIONS],
    /// Bits of the encoders that are there.
    active: u64,
    /// Sessions that end: bit, and the tick up to which they must have been given everything.
    finishing: Vec<(u32, u64)>,
    clock: Clock,
    clock_since_ns: u64,
    thread: ThreadInfo,
    run: u64,
    /// The event of the last record: most follow one of their kind.
    event: Option<(u32, &'static Event)>,
    /// The system's ids of threads that have been told and have not ended.
    live: IdMap,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Sessions {
            encoders: [const { None }; MAX_SESSIONS],
            active: 0,
            finishing: Vec::new(),
            clock: Clock::new(),
            clock_since_ns: 0,
            thread: ThreadInfo {
                uid: 0,
                os_thread_id: 0,
            },
            run: 0,
            event: None,
            live: IdMap::new(),
        }
    }

    pub(crate) fn take_inbox(&mut self) {
        let commands = match ENGINE.control.lock() {
            Some(mut control) => control.take_inbox(),
            None => return,
        };
        for command in commands {
            match command {
                DrainCommand::Attach(encoder) => {
                    let bit = encoder.bit();
                    if let Some(place) = self.encoders.get_mut(bit as usize) {
                        *place = Some(encoder);
                        self.active |= 1 << bit;
                    }
                }
                DrainCommand::Finish { bit, cut } => self.finishing.push((bit, cut)),
            }
        }
    }

    /// Ends the sessions that have been given everything.
    pub(crate) fn finish_due(&mut self, drain: &mut Drain<'_>, boundary_ticks: u64) {
        while let Some(position) = self
            .finishing
            .iter()
            .position(|(_, cut)| *cut <= boundary_ticks)
        {
            let (bit, _) = self.finishing.swap_remove(position);
            drain.collect_lost(1 << bit, self);
            self.active &= !(1 << bit);
            let encoder = self.encoders.get_mut(bit as usize).and_then(Option::take);
            // Whoever waits for the end may start another session at once, and finds the place free.
            let release = || {
                if let Some(mut control) = ENGINE.control.lock() {
                    control.release(bit);
                }
            };
            match encoder {
                Some(encoder) => encoder.finish(self.clock.to_ns(boundary_ticks), release),
                None => release(),
            }
        }
    }

    /// Corrects the clock, where nothing that was given is younger than the boundary: as long as a thread is stuck inside an event
    /// there is.
    pub(crate) fn keep_time(&mut self, round: &Round) {
        if round.all_sorted {
            self.clock.reanchor(round.boundary_ticks);
        }
    }

    fn clock_is_young(&self) -> bool {
        clock::monotonic_ns().saturating_sub(self.clock_since_ns) < YOUNG_NS
    }

    fn has_pending(&self) -> bool {
        self.encoders
            .iter()
            .flatten()
            .any(|encoder| encoder.has_pending())
    }

    #[inline]
    fn encoder(&mut self, bit: u32) -> Option<&mut Consumer> {
        if self.active & 1 << bit == 0 {
            // The record was written after the session had started and before the inbox was looked into.
            self.take_inbox();
        }
        self.encoders.get_mut(bit as usize)?.as_mut()
    }

    /// Gives a record to these sessions (a mask), which are all or some of those that it is for.
    #[inline]
    fn record_for(&mut self, mut sessions: u64, record: &Record<'_>, sorted: bool) {
        let event = match self.event {
            Some((index, event)) if index == record.event_index => event,
            _ => match EVENTS.get(record.event_index) {
                Some(event) => self.event.insert((record.event_index, event)).1,
                None => return,
            },
        };
        let (run, thread) = (self.run, self.thread);
        let time_ns = self.clock.to_ns(record.ticks);
        while sessions != 0 {
            let bit = sessions.trailing_zeros();
            sessions &= sessions - 1;
            if let Some(encoder) = self.encoder(bit) {
                encoder.record(run, thread, event, record, time_ns, sorted);
            }
        }
    }

    /// Gives what follows `first`, and is for the same sessions, to one of them after the other: each goes through it as if it were alone.
    #[inline(never)]
    fn stretch(&mut self, first: Record<'_>, records: Records<'_>) {
        let mut sessions = first.sessions;
        while sessions != 0 {
            let bit = sessions.trailing_zeros();
            sessions &= sessions - 1;
            let (mut last, mut rest) = (first, records.clone());
            loop {
                if let Some(Some(Consumer::Stream(encoder))) = self.encoders.get_mut(bit as usize) {
                    encoder.records(&self.clock, &last, &mut rest);
                }
                // At what an encoder cannot say in short it stops.
                let Some(record) = rest.next() else {
                    break;
                };
                self.record_for(1 << bit, &record, false);
                last = record;
            }
        }
    }
}

impl Sink for Sessions {
    fn thread(&mut self, thread: ThreadInfo) {
        self.thread = thread;
        self.run += 1;
        self.live.get_or_insert(thread.uid, thread.os_thread_id);
    }

    fn record(&mut self, record: &Record<'_>, sorted: bool) {
        self.record_for(record.sessions, record, sorted);
    }

    fn records(&mut self, records: &mut Records<'_>, mut sorted: bool) {
        while let Some(record) = records.next() {
            self.record(&record, sorted);
            sorted = false;
            if !record.sessions.is_power_of_two() {
                self.stretch(record, records.take_for(record.sessions, STRETCH));
            } else if let bit = record.sessions.trailing_zeros() as usize
                && let Some(Some(Consumer::Stream(encoder))) = self.encoders.get_mut(bit)
            {
                // Most are for one session, as the one before was.
                encoder.records(&self.clock, &record, records);
            }
        }
    }

    fn lost(&mut self, session: u32, count: u64, _reason: LossReason) {
        let (run, thread) = (self.run, self.thread);
        if let Some(encoder) = self.encoder(session) {
            encoder.lost(run, thread, count);
        }
    }

    fn thread_ended(&mut self, uid: u64) {
        if let Some(os_thread_id) = self.live.remove(uid) {
            for encoder in self.encoders.iter_mut().flatten() {
                encoder.thread_ended(ThreadInfo { uid, os_thread_id });
            }
        }
    }

    fn boundary(&mut self, ticks: u64) {
        let time_ns = self.clock.to_ns(ticks);
        for encoder in self.encoders.iter_mut().flatten() {
            encoder.boundary(time_ns);
        }
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
