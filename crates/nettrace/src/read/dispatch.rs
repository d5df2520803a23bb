//! The order in which TraceEvent dispatches events.
//!
//! Events that wait are not copied: a run of them in a block, all of one thread, waits as its bytes and the header
//! of its first event. The reader walks over the run to check and count it; here it is walked again when it goes out.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::io::Read;
use std::vec::Vec;

use hashbrown::HashMap;

use super::load::Block;
use super::source::Kept;
use super::{Event, MISSING, Reader, RecordForm, names};
use crate::format::container::BlockKind;
use crate::format::event::EventHeader;
use crate::wire::Cursor;
use crate::{Error, ErrorKind, FormatVersion};

/// Gives the events of a [`Reader`] by time, in the order in which TraceEvent dispatches them (nettrace.md 7.1).
///
/// The rule: events wait in a queue for each capture thread. One that is marked as sorted goes out at once, after all
/// that wait and are older; a sequence point and the end let everything out. Of equal times the thread that was seen
/// first comes first, and one that waits comes after one that is marked. Memory is bounded by what the writer puts
/// between two such marks. V1–V3 have neither: their events come in the order of the file, as from TraceEvent.
#[derive(Debug)]
pub struct DispatchOrder<R> {
    reader: Reader<R>,
    queues: Vec<VecDeque<Run>>,
    places: HashMap<u64, usize>,
    /// The first event of every queue that has one, but for the queue in `merge`: time and place of the queue.
    heads: BinaryHeap<Reverse<(i64, usize)>>,
    /// The queue that events come from at the moment, and the head of the next one: a run needs no heap.
    merge: Option<(usize, (i64, usize))>,
    /// Everything older than this goes out.
    until: Until,
    buffers: Buffers,
    /// The queue of the event before, if it waits: the next one may belong to its run.
    last: Option<usize>,
    /// A block that was loaded and not yet taken in, since events must go out first.
    held: Option<Block>,
    /// The queue whose first event was given out.
    out: Option<usize>,
    /// V6: names of the thread of the event before.
    resolved: Option<(u64, (u64, u64))>,
    failed: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Until {
    Nothing,
    /// The event at the reader is marked as sorted and goes out after those older than it.
    Marked(i64),
    Everything,
}

/// Events of one thread that follow each other in a block, and wait.
#[derive(Debug)]
struct Run {
    /// Of the first one.
    header: EventHeader,
    /// Where its record begins, and where its payload lies.
    record: usize,
    payload: (usize, usize),
    /// Where the next record begins, and where the run ends.
    next: usize,
    end: usize,
    form: RecordForm,
    /// Number of the buffer.
    buffer: u64,
}

/// The buffers with runs that wait, the oldest first, and how many runs. The reader's is the one behind them.
#[derive(Debug, Default)]
struct Buffers {
    kept: VecDeque<(Kept, usize)>,
    /// Number of the first one.
    first: u64,
    /// Runs that wait in the reader's.
    waiting_here: usize,
    pool: Vec<Vec<u8>>,
}

/// Buffers kept for blocks to come.
const POOL: usize = 16;

impl<R: Read> DispatchOrder<R> {
    pub(super) fn new(mut reader: Reader<R>) -> DispatchOrder<R> {
        // Events of a thread can wait when it is removed.
        reader.keeps_removed_threads = true;
        DispatchOrder {
            reader,
            queues: Vec::new(),
            places: HashMap::new(),
            heads: BinaryHeap::new(),
            merge: None,
            until: Until::Nothing,
            buffers: Buffers::default(),
            last: None,
            held: None,
            out: None,
            resolved: None,
            failed: None,
        }
    }

    /// The reader, for its tables and figures. They run ahead of the events given.
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    /// The next event by time.
    ///
    /// # Errors
    /// Those of [`Reader::next_event`], after all events before them.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if self.reader.tables.info.format <= FormatVersion::V3 {
            return self.reader.next_event();
        }
        self.release();
        loop {
            if self.until != Until::Nothing {
                if let Some(place) = self.oldest() {
                    self.out = Some(place);
                    return Ok(Some(self.lend(place)));
                }
                if let Until::Marked(_) = std::mem::replace(&mut self.until, Until::Nothing) {
                    return Ok(Some(self.reader.event()));
                }
            }
            if let Some(block) = self.held.take() {
                self.take_in(block);
                continue;
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            match self.reader.advance() {
                Ok(true) => self.enqueue_or_mark(),
                Ok(false) => {
                    if !self.load()? {
                        return Ok(None);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// The event that [`DispatchOrder::next_event`] gave last, again.
    pub(crate) fn current(&mut self) -> Event<'_> {
        match self.out {
            Some(place) => self.lend(place),
            None => self.reader.event(),
        }
    }

    /// Everything that waits goes out before the error.
    fn fail(&mut self, error: Error) {
        self.failed = Some(error);
        self.until = Until::Everything;
    }

    /// Loads a block. `false` at the end, when nothing waits.
    fn load(&mut self) -> Result<bool, Error> {
        self.last = None;
        match self.load_beside() {
            Ok(Some(block)) => {
                // Stacks and labels are forgotten there, and by the promise of the format nothing before is newer.
                if block.kind == BlockKind::SequencePoint {
                    self.until = Until::Everything;
                }
                self.held = Some(block);
                Ok(true)
            }
            Ok(None) if self.heads.is_empty() && self.merge.is_none() => Ok(false),
            Ok(None) => {
                self.until = Until::Everything;
                Ok(true)
            }
            Err(error) if matches!(error.kind, ErrorKind::Source(_)) => Err(error),
            Err(error) => {
                self.fail(error);
                Ok(true)
            }
        }
    }

    /// Loads a block while those whose events wait stay where they are.
    fn load_beside(&mut self) -> Result<Option<Block>, Error> {
        let buffers = &mut self.buffers;
        if buffers.waiting_here > 0 {
            let spare = buffers.pool.pop().unwrap_or_default();
            self.reader.source.keep(spare);
        }
        let loaded = self.reader.load_next();
        match self.reader.source.end_keeping() {
            Ok(kept) => {
                let runs = std::mem::take(&mut buffers.waiting_here);
                buffers.kept.push_back((kept, runs));
            }
            Err(unused) => buffers.pool.extend(unused),
        }
        loaded
    }

    fn take_in(&mut self, block: Block) {
        if block.kind == BlockKind::SequencePoint {
            // Nothing waits: threads that are gone need no queue any more.
            self.queues.clear();
            self.places.clear();
        }
        if let Err(error) = self.reader.apply(block) {
            self.fail(error);
        }
        self.reader.notices.clear();
        (self.resolved, self.last) = (None, None);
    }

    fn enqueue_or_mark(&mut self) {
        let records = &self.reader.records;
        let timestamp = records.header.timestamp as i64;
        let (is_sorted, capture_thread) =
            (records.header.is_sorted, records.header.capture_thread_id);
        let (record, end) = (self.reader.current.record, records.position);
        if let (false, Some(place)) = (is_sorted, self.last)
            && let Some(run) = self.queues.get_mut(place).and_then(VecDeque::back_mut)
            && run.header.capture_thread_id == capture_thread
            && run.end == record
        {
            run.end = end;
            return;
        }
        let place = *self.places.entry(capture_thread).or_insert_with(|| {
            self.queues.push(VecDeque::new());
            self.queues.len().wrapping_sub(1)
        });
        if is_sorted {
            self.last = None;
            self.until = Until::Marked(timestamp);
            return;
        }
        let run = Run {
            header: records.header,
            record,
            payload: self.reader.current.payload,
            next: end,
            end,
            form: records.form,
            buffer: self.buffers.add(),
        };
        self.last = Some(place);
        let Some(queue) = self.queues.get_mut(place) else {
            return;
        };
        queue.push_back(run);
        if queue.len() == 1 {
            self.heads.push(Reverse((timestamp, place)));
        }
    }

    /// The queue with the oldest event, if that may go out.
    fn oldest(&mut self) -> Option<usize> {
        let limit = match self.until {
            Until::Nothing => return None,
            Until::Marked(timestamp) => (timestamp, 0),
            Until::Everything => (i64::MAX, usize::MAX),
        };
        loop {
            let mut head = None;
            if let Some((place, next)) = self.merge {
                let queue = self.queues.get_mut(place)?;
                head = queue
                    .front()
                    .map(|run| (run.header.timestamp as i64, place));
                match head {
                    Some(head) if head < next && head < limit => return Some(place),
                    Some(_) => {}
                    None => queue.shrink_to(4),
                }
            }
            self.merge = None;
            let top = self.heads.peek_mut();
            let Some(mut top) = top.filter(|top| top.0 < limit) else {
                self.heads.extend(head.map(Reverse));
                return None;
            };
            // The head that is left goes where the oldest one comes from: the heap is put in order once, not twice.
            let Reverse((_, place)) = match head {
                Some(head) => {
                    let oldest = std::mem::replace(&mut *top, Reverse(head));
                    drop(top);
                    oldest
                }
                None => PeekMut::pop(top),
            };
            let next = self
                .heads
                .peek()
                .map_or((i64::MAX, usize::MAX), |&Reverse(next)| next);
            self.merge = Some((place, next));
        }
    }

    /// The event that was given out is done with: the run goes on, or is over.
    fn release(&mut self) {
        let Some(queue) = self.out.take().and_then(|place| self.queues.get_mut(place)) else {
            return;
        };
        let Some(run) = queue.front_mut() else { return };
        if run.next < run.end {
            let bytes = self.buffers.bytes(run.buffer, &self.reader);
            let start = run.next;
            run.advance(bytes, self.reader.tables.is_v6());
            self.reader
                .source
                .prefetch_behind_part(bytes, (start, run.next));
        } else {
            self.buffers.remove(run.buffer);
            queue.pop_front();
        }
    }

    fn lend(&mut self, place: usize) -> Event<'_> {
        let reader = &mut self.reader;
        let Some(run) = self.queues.get(place).and_then(VecDeque::front) else {
            return reader.event();
        };
        let metadata = reader.tables.metadata.place(run.header.metadata_id);
        if metadata == MISSING {
            reader.tables.metadata.missing.id = run.header.metadata_id;
        }
        let thread = run.header.thread_id;
        let process_id = reader.tables.info.process_id.unwrap_or(0);
        let (thread_id, process_id) = match self.resolved {
            _ if !reader.tables.is_v6() => (thread, process_id),
            Some((known, names)) if known == thread => names,
            _ => {
                let resolved = names(reader.tables.threads.get(&thread), process_id);
                self.resolved = Some((thread, resolved));
                resolved
            }
        };
        let (start, end) = run.payload;
        Event {
            header: &run.header,
            metadata: reader.tables.metadata.at(metadata),
            payload: self
                .buffers
                .bytes(run.buffer, reader)
                .get(start..end)
                .unwrap_or_default(),
            inline_stack: &[],
            tables: &reader.tables,
            process_id,
            thread_id,
            offset: self
                .buffers
                .base(run.buffer, reader)
                .wrapping_add(run.record as u64),
            place: metadata,
        }
    }
}

impl Run {
    /// Goes to the next event. The reader was here before, so the records are good.
    fn advance(&mut self, bytes: &[u8], v6: bool) {
        let bytes = bytes.get(..self.end).unwrap_or_default();
        let start = self.next;
        let payload = match self.form {
            RecordForm::CompressedV4 => self
                .header
                .decode_compressed::<false>(bytes, start)
                .map_or(self.end, |(payload, _)| payload),
            RecordForm::CompressedV6 => self
                .header
                .decode_compressed::<true>(bytes, start)
                .map_or(self.end, |(payload, _)| payload),
            RecordForm::Uncompressed | RecordForm::WithStack => {
                let mut cursor = Cursor::new(bytes.get(start..).unwrap_or_default(), 0);
                let payload = self
                    .header
                    .decode_uncompressed(&mut cursor, v6)
                    .unwrap_or_default();
                self.next = start.wrapping_add(cursor.position());
                start.wrapping_add(payload)
            }
        };
        self.record = start;
        self.payload = (
            payload,
            payload.wrapping_add(self.header.payload_size as usize),
        );
        if self.form != RecordForm::Uncompressed {
            self.next = self.payload.1;
        }
    }
}

impl Buffers {
    /// Another run waits in the reader's buffer; the buffer's number.
    fn add(&mut self) -> u64 {
        self.waiting_here = self.waiting_here.wrapping_add(1);
        self.first.wrapping_add(self.kept.len() as u64)
    }

    /// A run is over.
    fn remove(&mut self, buffer: u64) {
        match self.kept.get_mut(buffer.wrapping_sub(self.first) as usize) {
            Some((kept, runs)) => {
                *runs = runs.saturating_sub(1);
                if *runs == 0 {
                    let bytes = std::mem::take(&mut kept.bytes).into_own();
                    if self.pool.len() < POOL {
                        self.pool.push(bytes);
                    }
                }
            }
            None => self.waiting_here = self.waiting_here.saturating_sub(1),
        }
        while let Some((_, 0)) = self.kept.front() {
            self.kept.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    #[inline]
    fn bytes<'a, R: Read>(&'a self, buffer: u64, reader: &'a Reader<R>) -> &'a [u8] {
        match self.kept.get(buffer.wrapping_sub(self.first) as usize) {
            Some((kept, _)) => &kept.bytes,
            None => reader.source.buffer(),
        }
    }

    /// Offset in the file of the first byte.
    #[inline]
    fn base<R: Read>(&self, buffer: u64, reader: &Reader<R>) -> u64 {
        match self.kept.get(buffer.wrapping_sub(self.first) as usize) {
            Some((kept, _)) => kept.base,
            None => reader.source.offset_of(0),
        }
    }
}
