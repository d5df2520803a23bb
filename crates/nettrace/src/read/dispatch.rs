//! The order in which TraceEvent dispatches events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::Read;
use std::vec::Vec;

use hashbrown::HashMap;

use super::load::Block;
use super::{Current, Event, Reader};
use crate::format::container::BlockKind;
use crate::format::event::EventHeader;
use crate::{Error, FormatVersion};

/// Gives the events of a [`Reader`] by time, in the order in which TraceEvent dispatches them (nettrace.md 7.1).
///
/// The rule: events wait in a queue for each capture thread. One that is marked as sorted goes out at once, after all
/// that wait and are older; a sequence point and the end let everything out. Of equal times the thread that was seen
/// first comes first, and one that waits comes after one that is marked. Memory is bounded by what the writer puts
/// between two such marks. V1–V3 have neither: their events come in the order of the file, as from TraceEvent.
#[derive(Debug)]
pub struct DispatchOrder<R> {
    reader: Reader<R>,
    queues: Vec<VecDeque<Waiting>>,
    places: HashMap<u64, usize>,
    /// The first event of every queue that has one: time and place of the queue.
    heads: BinaryHeap<Reverse<(i64, usize)>>,
    /// The queue that events come from at the moment, and the head of the next one: a run needs no heap.
    run: Option<(usize, (i64, usize))>,
    /// Everything older than this goes out.
    until: Until,
    /// Blocks whose events wait, the oldest first, and how many do.
    blocks: VecDeque<(Vec<u8>, u64, usize)>,
    /// Number of the first of `blocks`.
    first_block: u64,
    /// Events of the reader's block that wait.
    waiting_here: usize,
    /// A block that was loaded and not yet taken in, since events must go out first.
    held: Option<Block>,
    /// The event that was given out.
    out: Option<Waiting>,
    pool: Vec<Vec<u8>>,
    failed: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Until {
    Nothing,
    /// The event at the reader is marked as sorted and goes out after those older than it.
    Marked(i64),
    Everything,
}

/// An event that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    header: EventHeader,
    current: Current,
    offset: u64,
    block: u64,
}

/// Buffers kept for blocks to come.
const POOL: usize = 8;

impl<R: Read> DispatchOrder<R> {
    pub(super) fn new(reader: Reader<R>) -> DispatchOrder<R> {
        DispatchOrder {
            reader,
            queues: Vec::new(),
            places: HashMap::new(),
            heads: BinaryHeap::new(),
            run: None,
            until: Until::Nothing,
            blocks: VecDeque::new(),
            first_block: 0,
            waiting_here: 0,
            held: None,
            out: None,
            pool: Vec::new(),
            failed: None,
        }
    }

    /// The reader, for its tables and figures. They run ahead of the events given.
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    /// The next event by time. Errors come after all events before them.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if self.reader.tables.info.format <= FormatVersion::V3 {
            return self.reader.next_event();
        }
        self.release();
        loop {
            if self.until != Until::Nothing {
                if let Some(waiting) = self.pop() {
                    self.out = Some(waiting);
                    return Ok(Some(self.lend_waiting(waiting.block)));
                }
                if let Until::Marked(_) = std::mem::replace(&mut self.until, Until::Nothing) {
                    return Ok(Some(self.reader.event()));
                }
            }
            if let Some(block) = self.held.take() {
                self.forget_threads_before(block);
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
        match &self.out {
            Some(waiting) => self.lend_waiting(waiting.block),
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
        self.detach();
        match self.reader.load_next() {
            Ok(Some(block)) => {
                // Stacks and labels are forgotten there, and by the promise of the format nothing before is newer.
                if block.kind == BlockKind::SequencePoint {
                    self.until = Until::Everything;
                }
                self.held = Some(block);
                Ok(true)
            }
            Ok(None) if self.heads.is_empty() && self.run.is_none() => Ok(false),
            Ok(None) => {
                self.until = Until::Everything;
                Ok(true)
            }
            Err(error) if matches!(error.kind, crate::ErrorKind::Source(_)) => Err(error),
            Err(error) => {
                self.fail(error);
                Ok(true)
            }
        }
    }

    fn take_in(&mut self, block: Block) {
        if let Err(error) = self.reader.apply(block) {
            self.fail(error);
        }
        self.reader.notices.clear();
    }

    /// Threads that have no events keep an empty queue until the next sequence point.
    fn forget_threads_before(&mut self, block: Block) {
        if block.kind == BlockKind::SequencePoint && self.queues.len() > 64 {
            self.queues.clear();
            self.places.clear();
        }
    }

    fn enqueue_or_mark(&mut self) {
        let header = self.reader.records.header;
        let timestamp = header.timestamp as i64;
        if header.is_sorted {
            self.place_of(header.capture_thread_id);
            self.until = Until::Marked(timestamp);
            return;
        }
        let place = self.place_of(header.capture_thread_id);
        let current = self.reader.current;
        let waiting = Waiting {
            header,
            current,
            offset: self.reader.source.offset_of(current.record),
            block: self.first_block.wrapping_add(self.blocks.len() as u64),
        };
        self.waiting_here = self.waiting_here.wrapping_add(1);
        let Some(queue) = self.queues.get_mut(place) else {
            return;
        };
        queue.push_back(waiting);
        if queue.len() == 1 {
            self.heads.push(Reverse((timestamp, place)));
        }
    }

    fn place_of(&mut self, capture_thread: u64) -> usize {
        *self.places.entry(capture_thread).or_insert_with(|| {
            self.queues.push(VecDeque::new());
            self.queues.len().wrapping_sub(1)
        })
    }

    /// Takes the oldest event that may go out.
    fn pop(&mut self) -> Option<Waiting> {
        let limit = match self.until {
            Until::Nothing => return None,
            Until::Marked(timestamp) => (timestamp, 0),
            Until::Everything => (i64::MAX, usize::MAX),
        };
        loop {
            if let Some((place, next)) = self.run {
                let queue = self.queues.get_mut(place)?;
                let head = queue
                    .front()
                    .map(|waiting| (waiting.header.timestamp as i64, place));
                if head.is_some_and(|head| head < next && head < limit) {
                    return queue.pop_front();
                }
                self.run = None;
                match head {
                    Some(head) => self.heads.push(Reverse(head)),
                    None => queue.shrink_to(16),
                }
            }
            let &Reverse(head) = self.heads.peek()?;
            if head >= limit {
                return None;
            }
            self.heads.pop();
            let next = self
                .heads
                .peek()
                .map_or((i64::MAX, usize::MAX), |&Reverse(next)| next);
            self.run = Some((head.1, next));
        }
    }

    /// Keeps the bytes of the reader's block if its events wait.
    fn detach(&mut self) {
        if self.waiting_here == 0 {
            return;
        }
        let reader = &mut self.reader;
        reader.leave_block();
        let base = reader.source.offset_of(0);
        let bytes = reader.source.detach(self.pool.pop().unwrap_or_default());
        reader.leave_nothing();
        self.blocks.push_back((bytes, base, self.waiting_here));
        self.waiting_here = 0;
    }

    /// The event that was given out is done with: its block may be.
    fn release(&mut self) {
        let Some(waiting) = self.out.take() else {
            return;
        };
        let index = waiting.block.wrapping_sub(self.first_block) as usize;
        match self.blocks.get_mut(index) {
            Some((_, _, count)) => *count = count.saturating_sub(1),
            None => self.waiting_here = self.waiting_here.saturating_sub(1),
        }
        while let Some((_, _, 0)) = self.blocks.front() {
            if let Some((bytes, _, _)) = self.blocks.pop_front()
                && self.pool.len() < POOL
            {
                self.pool.push(bytes);
            }
            self.first_block = self.first_block.wrapping_add(1);
        }
    }

    fn lend_waiting(&mut self, block: u64) -> Event<'_> {
        let index = block.wrapping_sub(self.first_block) as usize;
        let reader = &mut self.reader;
        let Some(waiting) = &self.out else {
            return reader.event();
        };
        if waiting.current.place == super::MISSING {
            reader.tables.metadata.missing.id = waiting.header.metadata_id;
        }
        let buffer = self
            .blocks
            .get(index)
            .map_or(reader.source.buffer(), |(bytes, _, _)| bytes);
        let (start, end) = waiting.current.payload;
        Event {
            header: &waiting.header,
            metadata: reader.tables.metadata.at(waiting.current.place),
            payload: buffer.get(start..end).unwrap_or_default(),
            inline_stack: &[],
            tables: &reader.tables,
            process_id: waiting.current.process_id,
            thread_id: waiting.current.thread_id,
            offset: waiting.offset,
            place: waiting.current.place,
        }
    }
}
