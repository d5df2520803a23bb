//! Reading traces of every version from any [`Read`].
//!
//! A block is loaded whole into a buffer that is used again for the next one, and its events are lent from there:
//! [`load`] finds blocks, [`apply`] takes them in, this module walks over the events of the current one.
//! Invariant: tables are changed only by [`apply`], so an order that delays events ([`dispatch`]) can do so up to
//! the next block that forgets something.

mod ahead;
mod apply;
mod dispatch;
mod event;
mod item;
mod load;
mod losses;
mod recover;
mod source;
mod tables;

use std::collections::VecDeque;
use std::io::Read;
use std::vec::Vec;

use hashbrown::HashSet;

use crate::format::event::{EventHeader, METADATA_ID, SEQUENCE, THREAD_ID};
use crate::wire::Cursor;
use crate::{Error, ErrorKind, Metadata, ThreadRow, TraceInfo};

pub use ahead::ReadAhead;
pub use dispatch::DispatchOrder;
pub use event::{Event, Stack};
pub use item::{Item, SequencePoint, Statistics};
pub use losses::{Losses, ThreadLosses};
pub use recover::Skipped;
use source::Source;
pub use source::Window;
use tables::{MISSING, Tables};

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Skip damaged parts and go on behind them instead of stopping with an error. What was skipped is in
    /// [`Reader::skipped`], a missing end included; after the header no error but that of the source comes up then.
    pub recover: bool,
    /// The largest block that is read, 256 MiB unless changed. Memory grows with what arrives, not with what a block
    /// claims, so this is about traces that go on for ever.
    pub max_block_size: u32,
    /// Asks the processor for bytes that will be looked at soon; not done unless given. It pays where they are far away:
    /// in memory that the source shows ([`Reader::in_place`]), or with another thread ([`Reader::with_read_ahead`]).
    pub prefetch: Option<fn(&[u8])>,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        ReaderOptions {
            recover: false,
            max_block_size: 256 << 20,
            prefetch: None,
        }
    }
}

/// Reads a trace as a stream: no seeking, events in the order of the file. Memory holds one block, and what its
/// stacks, labels, threads and descriptions need until the file itself says that they are forgotten.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    options: ReaderOptions,
    /// V1–V5: the tag that begins objects.
    begin: u8,
    /// V1 and V2: which entry of the table at the end says where the events end.
    forward_reference: u32,
    tables: Tables,
    losses: Losses,
    statistics: Statistics,
    skipped: Vec<Skipped>,
    state: State,
    records: Records,
    current: Current,
    notices: VecDeque<Notice>,
    /// V6: rows of removed threads stay until the next sequence point, for events that wait.
    keeps_removed_threads: bool,
    removed_threads: HashSet<u64>,
    /// Of the sequence point read last.
    point: (i64, u32),
    point_threads: Vec<(u64, u32)>,
    complete_length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Reading,
    /// The file ended inside the block at hand: its whole records are given, then this.
    Cut(Error),
    /// After the end tag, or the end of a file without one, or an error.
    Ended {
        is_complete: bool,
    },
}

/// The records of the block at hand, as positions in the source's buffer.
#[derive(Debug)]
struct Records {
    form: RecordForm,
    position: usize,
    end: usize,
    /// Behind the whole block.
    block_end: usize,
    header: EventHeader,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum RecordForm {
    CompressedV4,
    CompressedV6,
    Uncompressed,
    /// V1–V3.
    WithStack,
}

/// The event at hand, beside its header in [`Records`].
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    record: usize,
    payload: (usize, usize),
    inline_stack: (usize, usize),
    /// In the table of metadata.
    place: u32,
    /// V6: the thread index that the next two belong to, if any.
    resolved: Option<u64>,
    process_id: u64,
    thread_id: u64,
    /// The next record may be like it: the block's records are compressed, and everything that it refers to is known.
    can_repeat: bool,
}

/// What [`Reader::next_item`] gives beside events.
#[derive(Clone, Copy, Debug)]
enum Notice {
    Metadata(u32),
    SequencePoint,
    ThreadDefined(u64),
    ThreadRemoved(u64, u32),
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// An [`Error`]: the source failed, or does not begin as a trace of a known version does (nettrace.md 1 and 2).
    pub fn new(source: R) -> Result<Reader<R>, Error> {
        Reader::with_options(source, ReaderOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// Those of [`Reader::new`].
    pub fn with_options(source: R, options: ReaderOptions) -> Result<Reader<R>, Error> {
        Reader::open(Source::new(source, options.prefetch), options)
    }

    /// The same for large traces: while events are looked at, a thread of its own fetches the next bytes. What is read
    /// is the same, and errors come up at the same places.
    ///
    /// A source that gives little at a time is not delayed; it is read on behind the trace's end, up to its own or a few
    /// buffers. If no thread can be made, and after an error of the source, reading goes on without. When the reader is
    /// dropped the thread ends; only if it waits in a read of the source then, it is left to itself, and ends and drops
    /// the source when that returns.
    ///
    /// # Errors
    /// Those of [`Reader::new`].
    pub fn with_read_ahead(
        source: R,
        options: ReaderOptions,
        ahead: ReadAhead,
    ) -> Result<Reader<R>, Error>
    where
        R: Send + 'static,
    {
        Reader::open(
            Source::with_read_ahead(source, ahead, options.prefetch),
            options,
        )
    }

    /// The same for traces that lie in memory, as a mapped file does: events are looked at where they are, and nothing is
    /// copied. What `window` does not show is read from the source instead, ahead as in [`Reader::with_read_ahead`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use bytes::Bytes;
    /// use nettrace::{ReadAhead, Reader, ReaderOptions};
    /// use std::io::{self, Cursor};
    ///
    /// # let info = nettrace::TraceInfo {
    /// #     format: nettrace::FormatVersion::V4, start: nettrace::SystemTime::from_unix_ns(0), sync_ticks: 0, ticks_per_second: 1_000_000_000,
    /// #     pointer_size: 8, process_id: None, processor_count: None, sampling_period_ns: None, pairs: Vec::new(),
    /// # };
    /// # let mut writer = nettrace::TraceWriter::new(nettrace::WriteFormat::V4, &info);
    /// # writer.finish();
    /// # let trace = Bytes::from(std::mem::take(writer.output()));
    /// // A whole trace in memory: each window is all that follows. At the end, and behind it, there is nothing to read.
    /// fn window(trace: &mut Cursor<Bytes>, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
    ///     trace.set_position(offset);
    ///     let rest = trace.get_ref().get(offset as usize..).unwrap_or_default();
    ///     Ok((rest.len() >= length).then(|| trace.get_ref().slice_ref(rest)))
    /// }
    /// let mut reader =
    ///     Reader::in_place(Cursor::new(trace), window, ReaderOptions::default(), ReadAhead::default())?;
    /// while let Some(event) = reader.next_event()? {
    ///     println!("{}", event.timestamp());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Reader::new`]; `window` fails like the source.
    pub fn in_place(
        source: R,
        window: Window<R>,
        options: ReaderOptions,
        ahead: ReadAhead,
    ) -> Result<Reader<R>, Error>
    where
        R: Send + 'static,
    {
        Reader::open(
            Source::in_place(source, window, ahead, options.prefetch),
            options,
        )
    }

    /// The next event in the order of the file; `None` after the end, and after an error.
    ///
    /// # Errors
    /// An [`Error`] names what is wrong and at which offset. Of a file that was cut off every complete event is given, then one error. An error of the source
    /// ([`ErrorKind::Source`]) is not the end: reading can be tried again.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        // What moves on is a call; what an event is made of is left to the caller's code, which needs only some of it.
        Ok(if self.repeat() || self.advance_over_blocks()? {
            Some(self.event())
        } else {
            None
        })
    }

    /// Goes on to the next event; `false` at the end.
    fn advance_over_blocks(&mut self) -> Result<bool, Error> {
        while !self.advance()? {
            if !self.next_block()? {
                return Ok(false);
            }
            self.notices.clear();
        }
        Ok(true)
    }

    /// The next thing in the order of the file. Blocks of stacks and labels are taken in silently.
    ///
    /// # Errors
    /// Those of [`next_event`](Self::next_event).
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Error> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(self.item(notice)));
            }
            if self.records.position < self.records.end {
                match self.read_record() {
                    Ok(true) => return Ok(Some(Item::Event(self.event()))),
                    Ok(false) => {}
                    Err(error) => self.damaged_record(error)?,
                }
            } else if !self.next_block()? {
                return Ok(None);
            }
        }
    }

    fn item(&self, notice: Notice) -> Item<'_> {
        match notice {
            Notice::Metadata(place) => Item::Metadata(self.tables.metadata.at(place)),
            Notice::SequencePoint => {
                let (timestamp, flags) = self.point;
                Item::SequencePoint(SequencePoint {
                    timestamp,
                    flags,
                    threads: &self.point_threads,
                })
            }
            Notice::ThreadDefined(index) => Item::ThreadDefined {
                index,
                row: self.tables.threads.get(&index).unwrap_or(&NO_THREAD),
            },
            Notice::ThreadRemoved(index, sequence_number) => Item::ThreadRemoved {
                index,
                sequence_number,
            },
        }
    }

    /// Goes on to the next event of the block at hand; `false` if there is none.
    #[inline]
    fn advance(&mut self) -> Result<bool, Error> {
        if self.repeat() {
            return Ok(true);
        }
        while self.records.position < self.records.end {
            match self.read_record() {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => self.damaged_record(error)?,
            }
        }
        Ok(false)
    }

    /// Reads a record; `false` if it is not an event.
    #[inline(always)]
    fn read_record(&mut self) -> Result<bool, Error> {
        match self.records.form {
            RecordForm::CompressedV4 => self.read_compressed::<false>().map(|()| true),
            RecordForm::CompressedV6 => self.read_compressed::<true>().map(|()| true),
            RecordForm::Uncompressed | RecordForm::WithStack => self.read_plain(),
        }
    }

    /// Goes on to the next event if it differs from the one at hand by its number and its time only, as most do where
    /// a thread writes the same again and again. `false` says nothing: the record is still to be read.
    #[inline(always)]
    fn repeat(&mut self) -> bool {
        if !self.current.can_repeat {
            return false;
        }
        let Records {
            position,
            end,
            header,
            ..
        } = &mut self.records;
        let start = *position;
        let (delta, length) = match self.source.buffer().get(start..*end) {
            Some(&[0, time, ..]) if time < 0x80 => (u64::from(time), 2),
            Some(&[0, low, high, ..]) if high < 0x80 => {
                (u64::from(low & 0x7f) | u64::from(high) << 7, 3)
            }
            _ => return false,
        };
        let payload = start.wrapping_add(length);
        let payload_end = payload.wrapping_add(header.payload_size as usize);
        if payload_end > *end || !self.losses.following() {
            return false;
        }
        self.source.comes_to(start);
        header.timestamp = header.timestamp.wrapping_add(delta);
        header.sequence_number = header.sequence_number.wrapping_add(1);
        header.is_sorted = false;
        *position = payload_end;
        self.current.record = start;
        self.current.payload = (payload, payload_end);
        self.count();
        true
    }

    /// Reads a record of which only what differs from the one before is there, so only that is looked up and counted anew.
    #[inline(always)]
    fn read_compressed<const V6: bool>(&mut self) -> Result<(), Error> {
        let Records {
            position,
            end,
            header,
            ..
        } = &mut self.records;
        let start = *position;
        self.source.comes_to(start);
        let bytes = self.source.buffer().get(..*end).unwrap_or_default();
        let decoded = header.decode_compressed::<V6>(bytes, start);
        let flags = match decoded {
            Ok((payload, flags)) => {
                let payload_end = payload.wrapping_add(header.payload_size as usize);
                if payload_end > *end {
                    return Err(self.bad_record(start, ErrorKind::RecordOverrun));
                }
                self.current.payload = (payload, payload_end);
                *position = payload_end;
                flags
            }
            Err(kind) => return Err(self.bad_record(start, kind)),
        };
        self.current.record = start;
        if flags & METADATA_ID != 0 {
            self.current.place = self.tables.metadata.place(header.metadata_id);
        }
        if self.current.place == MISSING {
            self.undescribed();
        }
        if V6 {
            if self.current.resolved != Some(self.records.header.thread_id) {
                self.resolve_thread();
            }
        } else if flags & THREAD_ID != 0 {
            self.current.thread_id = self.records.header.thread_id;
        }
        // A record without an own number has the next one of the same thread; only those that are no events have none.
        let follows = flags & SEQUENCE == 0 && self.records.header.metadata_id != 0;
        if !(follows && self.losses.following()) {
            self.count_number();
        }
        self.count();
        self.current.can_repeat = self.records.header.metadata_id != 0
            && self.current.place != MISSING
            && (!V6 || self.current.resolved.is_some());
        Ok(())
    }

    #[cold]
    fn bad_record(&self, start: usize, kind: ErrorKind) -> Error {
        Error {
            offset: self.source.offset_of(start),
            kind,
        }
    }

    /// Reads a record that says everything.
    #[inline(never)]
    fn read_plain(&mut self) -> Result<bool, Error> {
        let Records {
            form,
            position,
            end,
            header,
            ..
        } = &mut self.records;
        let start = *position;
        let bytes = self.source.buffer().get(start..*end).unwrap_or_default();
        let mut cursor = Cursor::new(bytes, self.source.offset_of(start));
        self.current.inline_stack = (0, 0);
        let payload = start.wrapping_add(match form {
            RecordForm::WithStack => {
                let (payload, stack, size) = header.decode_with_stack(&mut cursor)?;
                let stack = start.wrapping_add(stack);
                self.current.inline_stack = (stack, stack.wrapping_add(size));
                payload
            }
            _ => header.decode_uncompressed(&mut cursor, self.tables.is_v6())?,
        });
        self.current.payload = (payload, payload.wrapping_add(header.payload_size as usize));
        *position = start.wrapping_add(cursor.position());
        self.current.record = start;
        if *form == RecordForm::WithStack {
            if header.metadata_id == 0 {
                return self.define_from_record(start).map(|()| false);
            }
            self.losses
                .unnumbered_event(header.thread_id, self.current.process_id);
        }
        self.current.place = self.tables.metadata.place(header.metadata_id);
        if self.current.place == MISSING {
            self.undescribed();
        }
        let header = &self.records.header;
        if !self.tables.is_v6() {
            self.current.thread_id = header.thread_id;
        } else if self.current.resolved != Some(header.thread_id) {
            self.resolve_thread();
        }
        if self.records.form != RecordForm::WithStack {
            self.count_number();
        }
        self.count();
        Ok(true)
    }

    #[cold]
    fn undescribed(&mut self) {
        self.statistics.undescribed_events = self.statistics.undescribed_events.wrapping_add(1);
        self.tables.metadata.missing.id = self.records.header.metadata_id;
    }

    /// Counts the event at hand among those of its capture thread, by its number.
    #[inline(never)]
    fn count_number(&mut self) {
        let (header, tables) = (&self.records.header, &self.tables);
        let key = header.capture_thread_id;
        let process = tables.info.process_id.unwrap_or(0);
        self.losses.event(key, header.sequence_number, || {
            if tables.is_v6() {
                names(tables.threads.get(&key), process)
            } else {
                (key, process)
            }
        });
    }

    /// Counts the event at hand.
    #[inline(always)]
    fn count(&mut self) {
        let (header, statistics) = (&self.records.header, &mut self.statistics);
        let timestamp = header.timestamp as i64;
        if statistics.events == 0 {
            statistics.timestamps = (timestamp, timestamp);
        }
        let (oldest, newest) = &mut statistics.timestamps;
        *oldest = timestamp.min(*oldest);
        *newest = timestamp.max(*newest);
        statistics.events = statistics.events.wrapping_add(1);
        statistics.payload_bytes = statistics
            .payload_bytes
            .wrapping_add(u64::from(header.payload_size));
    }

    #[inline(never)]
    fn resolve_thread(&mut self) {
        let index = self.records.header.thread_id;
        let row = self.tables.threads.get(&index);
        if row.is_none() {
            self.statistics.unknown_threads = self.statistics.unknown_threads.wrapping_add(1);
        }
        (self.current.thread_id, self.current.process_id) =
            names(row, self.tables.info.process_id.unwrap_or(0));
        self.current.resolved = row.map(|_| index);
    }

    /// The event at hand.
    #[inline(always)]
    fn event(&self) -> Event<'_> {
        let Current {
            record,
            payload,
            inline_stack,
            place,
            process_id,
            thread_id,
            ..
        } = self.current;
        let buffer = self.source.buffer();
        Event {
            header: &self.records.header,
            metadata: self.tables.metadata.at(place),
            payload: buffer.get(payload.0..payload.1).unwrap_or_default(),
            inline_stack: buffer
                .get(inline_stack.0..inline_stack.1)
                .unwrap_or_default(),
            tables: &self.tables,
            process_id,
            thread_id,
            offset: self.source.offset_of(record),
            place,
        }
    }

    /// What the trace says about itself.
    pub fn info(&self) -> &TraceInfo {
        &self.tables.info
    }

    /// Events that the writer could not keep, as far as read.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The description with this id.
    pub fn metadata(&self, id: u32) -> Option<&Metadata> {
        match self.tables.metadata.place(id) {
            MISSING => None,
            place => Some(self.tables.metadata.at(place)),
        }
    }

    /// All descriptions so far, in the order of the file. V6 can forget them: since then.
    pub fn all_metadata(&self) -> &[Metadata] {
        self.tables.metadata.rows()
    }

    /// V6: the thread with this index.
    pub fn thread(&self, index: u64) -> Option<&ThreadRow> {
        self.tables.threads.get(&index)
    }

    /// Counts of what was read, and of oddities that were tolerated.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// What was skipped in recover mode, up to a thousand parts.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Whether the end tag was read: the trace is complete.
    pub fn is_complete(&self) -> bool {
        self.state == State::Ended { is_complete: true }
    }

    /// Offset of the next byte that was not read.
    pub fn offset(&self) -> u64 {
        self.source
            .offset_of(self.records.position.max(self.source.start()))
    }

    /// How many bytes of the file are whole blocks that have been read: where a V3–V6 file that was cut off can be
    /// cut and given an end tag.
    pub fn complete_length(&self) -> u64 {
        self.complete_length
    }

    /// Changes the order to that in which TraceEvent dispatches events: by time. Before the first event is read.
    pub fn dispatch_order(self) -> DispatchOrder<R> {
        DispatchOrder::new(self)
    }
}

/// Thread and process of a row of V6; the process of the trace where the row does not say.
fn names(row: Option<&ThreadRow>, process_id: u64) -> (u64, u64) {
    row.map_or((0, process_id), |row| {
        (
            row.thread_id.unwrap_or(0),
            row.process_id.unwrap_or(process_id),
        )
    })
}

static NO_THREAD: ThreadRow = ThreadRow {
    process_id: None,
    thread_id: None,
    name: None,
    key_values: Vec::new(),
};
