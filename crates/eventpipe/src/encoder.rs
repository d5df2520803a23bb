//! One session's stream: records in, blocks of the trace format out, into the session's queue.
//!
//! Only the drain calls it. Invariant, per session and thread: sequence number of an event = delivered + lost so far on that
//! thread, this one included. So every event that is not in the stream shows as a gap (nettrace.md 7.2), and the numbers
//! that a sequence point gives are exact.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use eventpipe_os::clock::Clock;
use eventpipe_os::{process, thread};
use eventpipe_ring::{Like, Record, Records, ThreadInfo};
use nettrace::{
    EventRecord, Guid, ThreadRow, TraceInfo, TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};

use crate::engine::RING;
use crate::event::Event;
use crate::id_map::IdMap;
use crate::process_info;
use crate::session::{Buffering, SessionState};
use crate::stall::Stall;

/// Bytes that are handed to the queue at once while a round goes on: each block of the writer's usual size alone, because a block that
/// finds the output empty gets there without being copied.
pub(crate) const PIECE: usize = 64 << 10;

/// A sequence point lets readers put everything before it in order, so there is one at least this often while events come.
const POINT_INTERVAL_NS: u64 = 30_000_000;

/// And after so many bytes, because readers keep what stands between two points.
const POINT_BYTES: u64 = 10 << 20;

/// So long at most a block waits for more events in a flood.
const GATHER_NS: u64 = 5_000_000;

/// What an event takes beside its payload, at most, for the question whether there is room.
const EVENT_OVERHEAD: usize = 256;

/// So many records of one kind are encoded at once.
const BATCH: usize = 16;

fn metadata_id(event_index: u32) -> u32 {
    event_index + 1 + process_info::PROCESS_INFO_METADATA
}

/// Whether both ids are there and the same, or both are not, which costs no call.
#[inline(always)]
fn is_same(one: Option<&[u8; 16]>, other: Option<&[u8; 16]>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

#[derive(Debug)]
pub(crate) struct SessionEncoder {
    pub(crate) bit: u32,
    session: Arc<SessionState>,
    writer: TraceWriter,
    stacks: bool,
    /// Writers are held while too much waits for the reader.
    blocking: bool,
    /// Until so little waits: they wait, or lose what only this session wants.
    held: Option<usize>,
    stall: Stall,
    /// What the rundown at the end tells of; 0 = no rundown.
    rundown: u64,
    /// Where a thread's row is, by the system's id. An id that is used again goes on counting, as readers of V4 know threads
    /// by this id only.
    by_thread_id: IdMap,
    threads: Vec<Thread>,
    /// The row of the run that is being encoded, and which run that is.
    current: usize,
    run: u64,
    /// The last record is in the stream, and the next one of its thread can be told by what differs.
    may_go_on: bool,
    /// Rows whose count has changed since the last sequence point.
    changed: Vec<usize>,
    /// Time of the newest event or point in the stream: nothing after the last point may be older than it.
    newest_ns: u64,
    point_ns: u64,
    flushed_ns: u64,
    /// Events delivered up to the last boundary.
    seen: u64,
    bytes_since_point: u64,
    /// Bytes for which there was room in the queue at the last look; the sender makes room meanwhile, nobody else takes any.
    budget: usize,
    delivered: u64,
    lost: u64,
}

/// Writes what a host says at the end of one session, so that readers can make sense of it (engine.md 6.5).
#[derive(Debug)]
pub struct Rundown<'a> {
    keywords: u64,
    time_ns: u64,
    encoder: &'a mut SessionEncoder,
}

impl Rundown<'_> {
    /// Writes an event into the session that ends, whatever the session's providers, if it has one of the rundown's keywords.
    /// Definitions need not be on; the payload is given in pieces.
    pub fn write(&mut self, event: &'static Event, pieces: &[&[u8]]) {
        let wanted = event.definition().keywords;
        let index = event.key().index.load(Ordering::Relaxed);
        let metadata_id = metadata_id(index);
        let is_wanted = wanted == 0 || wanted & self.keywords != 0;
        if is_wanted && self.encoder.define(metadata_id, event) {
            self.encoder
                .own_event(metadata_id, self.time_ns, &pieces.concat());
            if self.encoder.writer.output().len() >= PIECE {
                // The reader sees that it goes on.
                self.encoder.hand_over();
            }
        }
    }
}

#[derive(Debug)]
struct Thread {
    thread_id: u64,
    uid: u64,
    sequence: u32,
    changed: bool,
    ended: bool,
}

impl SessionEncoder {
    /// The header of the trace is in the queue afterwards.
    pub(crate) fn new(
        bit: u32,
        session: Arc<SessionState>,
        format: WriteFormat,
        info: &TraceInfo,
        stacks: bool,
        rundown: u64,
    ) -> Self {
        let start = u64::try_from(info.sync_ticks).unwrap_or_default();
        let mut encoder = SessionEncoder {
            bit,
            blocking: session.buffering == Buffering::Block,
            held: None,
            stall: Stall::default(),
            session,
            writer: TraceWriter::new(format, info),
            stacks,
            rundown,
            by_thread_id: IdMap::new(),
            threads: Vec::new(),
            current: 0,
            run: u64::MAX,
            may_go_on: false,
            changed: Vec::new(),
            newest_ns: start,
            point_ns: start,
            flushed_ns: start,
            seen: 0,
            bytes_since_point: 0,
            budget: 0,
            delivered: 0,
            lost: 0,
        };
        encoder.hand_over();
        encoder
    }

    /// As many as possible of the records that follow `last`, in the short form of what differs from the one before in kind, stack, time
    /// and payload alone.
    pub(crate) fn records<'r>(
        &mut self,
        clock: &Clock,
        last: &Record<'r>,
        records: &mut Records<'r>,
    ) {
        if !core::mem::take(&mut self.may_go_on) {
            return;
        }
        let mut count = self.like(clock, last, records);
        let (mut event_index, mut length) = (last.event_index, last.payload.len());
        while self.writer.output().len() < PIECE {
            let mut after = records.clone();
            let Some(record) = after.next_for(last.sessions) else {
                break;
            };
            if !self.similar(clock, last, event_index, &record) {
                break;
            }
            *records = after;
            count += 1;
            // Where kinds or lengths come by turns, to look for the same again would be in vain.
            if (event_index, length) == (record.event_index, record.payload.len()) {
                count += self.like(clock, &record, records);
            }
            (event_index, length) = (record.event_index, record.payload.len());
        }
        if let Some(thread) = self.threads.get_mut(self.current) {
            thread.sequence = thread.sequence.wrapping_add(count);
        }
        self.delivered += u64::from(count);
        if self.writer.output().len() >= PIECE {
            self.hand_over();
        }
    }

    /// Of those records, as many as are like `last` in all but time and payload; how many that is.
    #[inline(never)]
    fn like<'r>(&mut self, clock: &Clock, last: &Record<'r>, records: &mut Records<'r>) -> u32 {
        let Some(like) = Like::of(last).filter(|like| records.clone().next_like(like).is_some())
        else {
            return 0;
        };
        let size = last.payload.len() + last.frames.len() + EVENT_OVERHEAD;
        let mut batch = [(0, [].as_slice()); BATCH];
        let mut count = 0;
        while self.budget >= size * BATCH {
            let mut ahead = records.clone();
            let (mut gathered, mut newest_ticks) = (0, 0);
            for place in &mut batch {
                let Some((ticks, payload)) = ahead.next_like(&like) else {
                    break;
                };
                newest_ticks = ticks;
                *place = (clock.to_ns(ticks).max(self.point_ns), payload);
                gathered += 1;
            }
            // Read after the records, see `record`.
            if newest_ticks > self.session.stopped_ticks.load(Ordering::Acquire) {
                break;
            }
            let events = batch.get(..gathered).unwrap_or_default();
            let written = self.writer.like_events(events);
            if let Some((time_ns, _)) = events.get(written.wrapping_sub(1)) {
                self.newest_ns = self.newest_ns.max(*time_ns);
            }
            records.skip_like(&like, written);
            self.budget -= size * written;
            count += written as u32;
            if written < BATCH {
                break;
            }
        }
        count
    }

    /// A record that differs from the one before in kind, stack, time and payload alone, if it has a short form. `first` is that of the
    /// stretch, `event_index` that of the one before.
    #[inline(always)]
    fn similar(
        &mut self,
        clock: &Clock,
        first: &Record<'_>,
        event_index: u32,
        record: &Record<'_>,
    ) -> bool {
        let frames = if self.stacks { record.frames } else { &[] };
        let size = record.payload.len() + frames.len() + EVENT_OVERHEAD;
        let metadata_id = metadata_id(record.event_index);
        if size > self.budget
            || record.ticks > self.session.stopped_ticks.load(Ordering::Acquire)
            || record.event_index != event_index && !self.writer.is_defined(metadata_id)
            || !is_same(record.activity, first.activity)
            || !is_same(record.related, first.related)
            || record.event_thread.is_some()
        {
            return false;
        }
        let Ok(stack_id) = self.writer.stack(frames) else {
            return false;
        };
        let time_ns = clock.to_ns(record.ticks).max(self.point_ns);
        let (writer, payload) = (&mut self.writer, record.payload);
        if !writer.similar_event(metadata_id, stack_id, time_ns, payload) {
            return false;
        }
        self.budget -= size;
        self.newest_ns = self.newest_ns.max(time_ns);
        true
    }

    /// An event of `thread`; `run` numbers the uninterrupted runs of one thread.
    pub(crate) fn record(
        &mut self,
        run: u64,
        thread: ThreadInfo,
        event: &Event,
        record: &Record<'_>,
        time_ns: u64,
        sorted: bool,
    ) {
        self.may_go_on = false;
        // Read after the record: a writer that passed over an event with a cleared mask did so after this was stored.
        if record.ticks > self.session.stopped_ticks.load(Ordering::Acquire) {
            return;
        }
        let row = self.row(run, thread);
        let sequence = self.count(row, 1);
        let metadata_id = metadata_id(record.event_index);
        let frames = if self.stacks { record.frames } else { &[] };
        let size = record.payload.len() + frames.len() + EVENT_OVERHEAD;
        let room = size <= self.budget || self.look_for_room(size, sequence == 1);
        if !room || !self.define(metadata_id, event) {
            self.lost += 1;
            self.stall.refused += 1;
            return;
        }
        let Ok(stack_id) = self.writer.stack(frames) else {
            self.lost += 1;
            return;
        };
        // Times of one thread rise, and raising all to the same floor keeps it so.
        let time_ns = time_ns.max(self.point_ns);
        let capture_thread_id = self.thread_key(row);
        let thread_id = match record.event_thread {
            Some(id) => {
                let row = self.row_of(ThreadInfo {
                    uid: 0,
                    os_thread_id: id,
                });
                self.thread_key(row)
            }
            None => capture_thread_id,
        };
        let written = self.writer.event(&EventRecord {
            metadata_id,
            sequence_number: sequence,
            thread_id,
            capture_thread_id,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id,
            timestamp: time_ns,
            activity_id: record.activity.map_or(Guid::ZERO, |id| Guid(*id)),
            related_activity_id: record.related.map_or(Guid::ZERO, |id| Guid(*id)),
            is_sorted: sorted,
            label_list: 0,
            payload: record.payload,
        });
        if written.is_err() {
            self.lost += 1;
            return;
        }
        self.may_go_on = record.event_thread.is_none();
        self.budget = self.budget.saturating_sub(size);
        self.delivered += 1;
        self.newest_ns = self.newest_ns.max(time_ns);
        if self.writer.output().len() >= PIECE {
            self.hand_over();
        }
    }

    /// Whether the queue has room for so many bytes more. With it comes the budget for the events that follow.
    #[inline(never)]
    fn look_for_room(&mut self, size: usize, is_first: bool) -> bool {
        let queue = &self.session.queue;
        let encoded = self.writer.output().len();
        self.budget = queue.room().saturating_sub(encoded);
        // TraceEvent counts a thread's losses only from the first of its events that it sees (nettrace.md 7.2).
        size <= self.budget || is_first && queue.has_room_for_a_first(encoded + size)
    }

    /// So many events of the thread were lost before they came here.
    pub(crate) fn lost(&mut self, run: u64, thread: ThreadInfo, count: u64) {
        let row = self.row(run, thread);
        // Numbers wrap, as the format has 32 bits for them.
        self.count(row, count as u32);
        self.lost += count;
    }

    /// Nothing of the thread will come again.
    pub(crate) fn thread_ended(&mut self, thread: ThreadInfo) {
        let row = self.by_thread_id.get(thread.os_thread_id);
        if let Some(thread_row) = row.and_then(|row| self.threads.get_mut(row as usize))
            && thread_row.uid == thread.uid
        {
            thread_row.ended = true;
        }
    }

    /// Everything up to this time has been given.
    pub(crate) fn boundary(&mut self, time_ns: u64) {
        let due = time_ns.saturating_sub(self.point_ns) >= POINT_INTERVAL_NS
            || self.bytes_since_point >= POINT_BYTES;
        // While a thread is stuck inside an event the boundary stays behind events that were already given: a point would
        // lie. And a full queue would grow without end by points, so they wait until there is room; what they say is not lost.
        let possible = time_ns >= self.newest_ns && !self.session.queue.has_backlog();
        if self.has_pending() && due && possible {
            self.sequence_point(time_ns, false);
        } else if !self.may_gather(time_ns) {
            self.writer.flush();
            self.flushed_ns = time_ns;
        }
        self.seen = self.delivered;
        self.hand_over();
        let holds = self.stall.holds(self.delivered, time_ns);
        if holds && !self.blocking && self.held.is_none() {
            self.held = Some(self.session.queue.resume_mark());
            RING.hold(self.bit);
        }
        if let Some(mark) = self.held
            && self.session.queue.is_down_to_or_wakes(mark)
        {
            self.held = None;
            RING.lift(self.bit);
        }
        self.publish_counts();
    }

    /// Whether a block that is not full may wait for more: in a flood, where rounds are short and follow each other. A round that brought nothing
    /// may be the last one for long.
    fn may_gather(&self, time_ns: u64) -> bool {
        RING.is_flooded()
            && self.delivered != self.seen
            && time_ns.saturating_sub(self.flushed_ns) < GATHER_NS
    }

    /// Whether events or losses wait for a sequence point that there is room for.
    pub(crate) fn has_pending(&self) -> bool {
        !self.changed.is_empty() && self.session.queue.has_room_or_wakes()
    }

    /// Ends the stream: `ProcessInfo`, the last sequence point, the end tag. `before_the_end` runs when all of it has been handed over
    /// and before anybody is told.
    pub(crate) fn finish(mut self, time_ns: u64, before_the_end: impl FnOnce()) {
        let time_ns = time_ns.max(self.newest_ns);
        self.process_info(time_ns);
        if self.rundown != 0 {
            process_info::run_down(&mut Rundown {
                keywords: self.rundown,
                time_ns,
                encoder: &mut self,
            });
        }
        self.sequence_point(time_ns, true);
        self.writer.finish();
        self.hand_over();
        self.publish_counts();
        before_the_end();
        self.session.queue.close();
    }

    /// The event that runtimes write at the end of every session; ours is in this session only. It is not lost when the queue
    /// is full, because it is one event of known size.
    fn process_info(&mut self, time_ns: u64) {
        if process_info::define(&mut self.writer).is_ok() {
            let id = process_info::PROCESS_INFO_METADATA;
            self.own_event(id, time_ns, &process_info::payload());
        }
    }

    /// An event of the drain's own, in this session only.
    fn own_event(&mut self, metadata_id: u32, time_ns: u64, payload: &[u8]) {
        let me = ThreadInfo {
            uid: 0,
            os_thread_id: thread::os_thread_id(),
        };
        let row = self.row_of(me);
        let sequence_number = self.count(row, 1);
        let key = self.thread_key(row);
        let written = self.writer.event(&EventRecord {
            metadata_id,
            sequence_number,
            thread_id: key,
            capture_thread_id: key,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id: 0,
            timestamp: time_ns,
            activity_id: Guid::ZERO,
            related_activity_id: Guid::ZERO,
            is_sorted: true,
            label_list: 0,
            payload,
        });
        if written.is_ok() {
            self.newest_ns = time_ns;
        }
    }

    /// Closes the blocks with a sequence point that lists the threads with news, the last one also all that live.
    fn sequence_point(&mut self, time_ns: u64, last: bool) {
        let format = self.writer.format();
        let threads = &mut self.threads;
        let entry = |row: usize, thread: &Thread| match format {
            WriteFormat::V4 => (thread.thread_id, thread.sequence),
            WriteFormat::V6 => (row as u64 + 1, thread.sequence),
        };
        if last {
            let rows = threads.iter().enumerate();
            let told = rows.filter(|(_, thread)| thread.changed || !thread.ended);
            let told = told.map(|(row, thread)| entry(row, thread));
            self.writer.sequence_point(time_ns, 0, told);
        } else {
            let rows = self.changed.iter();
            let told = rows.filter_map(|row| Some(entry(*row, threads.get(*row)?)));
            self.writer.sequence_point(time_ns, 0, told);
        }
        for row in self.changed.drain(..) {
            if let Some(thread) = threads.get_mut(row) {
                thread.changed = false;
            }
        }
        self.newest_ns = time_ns;
        self.point_ns = time_ns;
        self.bytes_since_point = 0;
    }

    #[inline]
    fn define(&mut self, metadata_id: u32, event: &Event) -> bool {
        self.writer.is_defined(metadata_id) || self.define_first(metadata_id, event)
    }

    #[cold]
    fn define_first(&mut self, metadata_id: u32, event: &Event) -> bool {
        let (definition, provider) = (event.definition(), event.provider().name());
        let defined = definition.define(&mut self.writer, metadata_id, provider);
        defined.is_ok()
    }

    #[inline]
    fn row(&mut self, run: u64, thread: ThreadInfo) -> usize {
        if self.run != run {
            self.run = run;
            self.current = self.row_of(thread);
        }
        self.current
    }

    fn row_of(&mut self, thread: ThreadInfo) -> usize {
        let next = self.threads.len();
        let row = self
            .by_thread_id
            .get_or_insert(thread.os_thread_id, next as u64) as usize;
        if row == next {
            self.threads.push(Thread {
                thread_id: thread.os_thread_id,
                uid: thread.uid,
                sequence: 0,
                changed: false,
                ended: false,
            });
            self.name_thread(row, thread.os_thread_id);
        } else if let Some(known) = self.threads.get_mut(row)
            && thread.uid != 0
            && known.uid != thread.uid
        {
            // The system has given the id to another thread.
            known.uid = thread.uid;
            known.ended = false;
        }
        row
    }

    /// V6 has a table of threads; V4 has none, and nothing happens.
    fn name_thread(&mut self, row: usize, thread_id: u64) {
        if self.writer.format() != WriteFormat::V6 {
            return;
        }
        let name = thread::name_of(thread_id).map(|name| process_info::text(&name));
        let described = ThreadRow {
            process_id: Some(u64::from(process::pid())),
            thread_id: Some(thread_id),
            name,
            ..ThreadRow::default()
        };
        // A thread without a row is shown by its index alone.
        let _ = self.writer.define_thread(row as u64 + 1, &described);
    }

    /// How the stream names the thread of a row.
    #[inline]
    fn thread_key(&self, row: usize) -> u64 {
        match self.writer.format() {
            WriteFormat::V4 => self.threads.get(row).map_or(0, |thread| thread.thread_id),
            WriteFormat::V6 => row as u64 + 1,
        }
    }

    /// Counts events of a thread and returns the number of the last one.
    #[inline]
    fn count(&mut self, row: usize, events: u32) -> u32 {
        let Some(thread) = self.threads.get_mut(row) else {
            return 0;
        };
        thread.sequence = thread.sequence.wrapping_add(events);
        if !thread.changed {
            thread.changed = true;
            self.changed.push(row);
        }
        thread.sequence
    }

    fn hand_over(&mut self) {
        let output = self.writer.output();
        self.bytes_since_point += output.len() as u64;
        self.session.queue.push(output);
        // Time for another look at what the sender has done.
        self.budget = 0;
        if !self.blocking {
            if RING.is_flooded() && self.session.queue.is_long() {
                RING.rein_in();
            }
        } else if self.held.is_none() {
            self.held = self.session.queue.held_until();
            if self.held.is_some() {
                RING.hold(self.bit);
            }
        }
    }

    fn publish_counts(&self) {
        self.session.publish(self.delivered, self.lost);
    }
}
