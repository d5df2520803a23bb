//! A session's stream in version 3 of the format, for clients that ask for format 0. Events stand in it in the order of their time, as
//! readers of that version expect, so they wait here for the boundary before which nothing will come any more. The format has no place
//! for losses: they show in the session's counts only.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use eventpipe_os::order::heap_sort;
use eventpipe_os::thread;
use eventpipe_ring::{Record, ThreadInfo};
use nettrace::{EventRecord, Guid, NetPerfWriter, TraceInfo, UNKNOWN_PROCESSOR};

use crate::event::Event;
use crate::process_info;
use crate::session::SessionState;

/// What an event takes beside its payload and its stack, at most.
const EVENT_OVERHEAD: usize = 256;

#[derive(Debug)]
pub(crate) struct NetPerfEncoder {
    pub(crate) bit: u32,
    session: Arc<SessionState>,
    writer: NetPerfWriter,
    stacks: bool,
    /// Events that wait for the boundary, and their bytes.
    waiting: Vec<Waiting>,
    bytes: Vec<u8>,
    delivered: u64,
    lost: u64,
}

#[derive(Debug)]
struct Waiting {
    time_ns: u64,
    /// Among all events: decides between equal times, so that a thread's events keep their order.
    arrival: u64,
    event: &'static Event,
    metadata_id: u32,
    thread_id: u64,
    activity_id: Guid,
    related_activity_id: Guid,
    payload: Range<usize>,
    frames: Range<usize>,
}

impl NetPerfEncoder {
    /// The header of the trace is in the queue afterwards.
    pub(crate) fn new(
        bit: u32,
        session: Arc<SessionState>,
        info: &TraceInfo,
        stacks: bool,
    ) -> Self {
        let mut encoder = NetPerfEncoder {
            bit,
            session,
            writer: NetPerfWriter::new(info),
            stacks,
            waiting: Vec::new(),
            bytes: Vec::new(),
            delivered: 0,
            lost: 0,
        };
        encoder.hand_over();
        encoder
    }

    pub(crate) fn record(
        &mut self,
        thread: ThreadInfo,
        event: &'static Event,
        record: &Record<'_>,
        time_ns: u64,
    ) {
        let stopped = &self.session.stopped_ticks;
        if record.ticks > stopped.load(core::sync::atomic::Ordering::Acquire) {
            return;
        }
        let frames = if self.stacks { record.frames } else { &[] };
        let waiting = self.bytes.len() + self.waiting.len() * EVENT_OVERHEAD;
        let size = record.payload.len() + frames.len() + EVENT_OVERHEAD;
        if !self.session.queue.has_room(waiting + size) {
            self.lost += 1;
            return;
        }
        let mut put = |bytes: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            start..self.bytes.len()
        };
        let (payload, frames) = (put(record.payload), put(frames));
        self.waiting.push(Waiting {
            time_ns,
            arrival: self.delivered + self.waiting.len() as u64,
            event,
            metadata_id: record.event_index + 1 + process_info::PROCESS_INFO_METADATA,
            thread_id: record.event_thread.unwrap_or(thread.os_thread_id),
            activity_id: record.activity.map_or(Guid::ZERO, |id| Guid(*id)),
            related_activity_id: record.related.map_or(Guid::ZERO, |id| Guid(*id)),
            payload,
            frames,
        });
    }

    pub(crate) fn lost(&mut self, count: u64) {
        self.lost += count;
    }

    /// Everything up to this time has been given. What is younger waits on: something older than it may come.
    pub(crate) fn boundary(&mut self, time_ns: u64) {
        let mut waiting = core::mem::take(&mut self.waiting);
        heap_sort(&mut waiting, |a, b| {
            (a.time_ns, a.arrival) < (b.time_ns, b.arrival)
        });
        let due = waiting.partition_point(|event| event.time_ns <= time_ns);
        for event in waiting.drain(..due) {
            self.write(&event);
        }
        // Of what stays the bytes move to the front.
        let bytes = core::mem::take(&mut self.bytes);
        for mut event in waiting {
            for range in [&mut event.payload, &mut event.frames] {
                let start = self.bytes.len();
                let part = bytes.get(range.clone()).unwrap_or_default();
                self.bytes.extend_from_slice(part);
                *range = start..self.bytes.len();
            }
            self.waiting.push(event);
        }
        self.writer.flush();
        self.hand_over();
        self.session.publish(self.delivered, self.lost);
    }

    fn write(&mut self, waiting: &Waiting) {
        if !self.writer.is_defined(waiting.metadata_id) {
            let provider = waiting.event.provider().name();
            let definition = waiting.event.definition();
            definition.define_netperf(&mut self.writer, waiting.metadata_id, provider);
        }
        let part = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        let record = EventRecord {
            metadata_id: waiting.metadata_id,
            thread_id: waiting.thread_id,
            timestamp: waiting.time_ns,
            activity_id: waiting.activity_id,
            related_activity_id: waiting.related_activity_id,
            payload: part(&waiting.payload),
            ..PLAIN
        };
        match self.writer.event(&record, part(&waiting.frames)) {
            Ok(()) => self.delivered += 1,
            Err(_) => self.lost += 1,
        }
    }

    /// Ends the stream: `ProcessInfo` and the end tag; otherwise as [`SessionEncoder::finish`](crate::encoder::SessionEncoder::finish).
    pub(crate) fn finish(mut self, time_ns: u64, before_the_end: impl FnOnce()) {
        self.boundary(u64::MAX);
        self.writer.define_encoded(
            process_info::PROCESS_INFO_METADATA,
            process_info::PROCESS_INFO_PROVIDER,
            &process_info::description(),
        );
        let payload = process_info::payload();
        let record = EventRecord {
            metadata_id: process_info::PROCESS_INFO_METADATA,
            thread_id: thread::os_thread_id(),
            timestamp: time_ns,
            payload: &payload,
            ..PLAIN
        };
        // A command line of this size always fits.
        let _ = self.writer.event(&record, &[]);
        self.writer.finish();
        self.hand_over();
        before_the_end();
        self.session.queue.close();
    }

    fn hand_over(&mut self) {
        self.session.queue.push(self.writer.output());
    }
}

/// What the format has no place for.
const PLAIN: EventRecord<'_> = EventRecord {
    metadata_id: 0,
    sequence_number: 0,
    thread_id: 0,
    capture_thread_id: 0,
    processor_number: UNKNOWN_PROCESSOR,
    stack_id: 0,
    timestamp: 0,
    activity_id: Guid::ZERO,
    related_activity_id: Guid::ZERO,
    is_sorted: true,
    label_list: 0,
    payload: &[],
};
