//! Event records and their headers: compressed and uncompressed, V1 to V6 (nettrace.md sections 3, 4, 5.1–5.3, 6.3).
//!
//! Invariant: [`EventHeader::decode_compressed`] and [`encode_compressed`] keep the same "previous record"; both
//! begin a block with [`EventHeader::BLOCK_START`].

use alloc::vec::Vec;

use crate::wire::{
    Cursor, SHORT_LIMIT, put_bits, put_i64, put_u16, put_u32, put_u64, put_varu64, short_varu64,
    varu64,
};
use crate::{Error, ErrorKind, Guid};

/// All fields of a record's header. Which of the ids mean what depends on the version, see [`crate::EventRecord`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EventHeader {
    pub(crate) metadata_id: u32,
    pub(crate) sequence_number: u32,
    pub(crate) thread_id: u64,
    pub(crate) capture_thread_id: u64,
    pub(crate) processor_number: u32,
    pub(crate) stack_id: u32,
    pub(crate) timestamp: u64,
    pub(crate) activity_id: Guid,
    pub(crate) related_activity_id: Guid,
    /// V6 only.
    pub(crate) label_list: u32,
    pub(crate) payload_size: u32,
    pub(crate) is_sorted: bool,
}

pub(crate) const METADATA_ID: u8 = 0x01;
pub(crate) const SEQUENCE: u8 = 0x02;
pub(crate) const THREAD_ID: u8 = 0x04;
const STACK_ID: u8 = 0x08;
const ACTIVITY_ID: u8 = 0x10;
/// V6 has one list of labels in place of two ids.
const LABEL_LIST: u8 = 0x10;
const RELATED_ACTIVITY_ID: u8 = 0x20;
const SORTED: u8 = 0x40;
const PAYLOAD_SIZE: u8 = 0x80;

impl EventHeader {
    /// What stands before the first record of a block.
    pub(crate) const BLOCK_START: EventHeader = EventHeader {
        metadata_id: 0,
        sequence_number: 0,
        thread_id: 0,
        capture_thread_id: 0,
        processor_number: 0,
        stack_id: 0,
        timestamp: 0,
        activity_id: Guid::ZERO,
        related_activity_id: Guid::ZERO,
        label_list: 0,
        payload_size: 0,
        is_sorted: false,
    };

    /// Makes this record out of the previous one and the bytes at `position`; gives where the payload begins, and the
    /// flags, which say what is not that of the previous record.
    #[inline(always)]
    pub(crate) fn decode_compressed<const V6: bool>(
        &mut self,
        bytes: &[u8],
        position: usize,
    ) -> Result<(usize, u8), ErrorKind> {
        let Some(&flags) = bytes.get(position) else {
            return Err(ErrorKind::RecordOverrun);
        };
        let mut at = position.wrapping_add(1);
        if flags & METADATA_ID != 0 {
            self.metadata_id = narrow(bytes, &mut at)?;
        }
        if flags & SEQUENCE != 0 {
            let delta = narrow(bytes, &mut at)?;
            self.sequence_number = self.sequence_number.wrapping_add(delta).wrapping_add(1);
            (self.capture_thread_id, at) = varu64(bytes, at)?;
            self.processor_number = narrow(bytes, &mut at)?;
        } else if self.metadata_id != 0 {
            self.sequence_number = self.sequence_number.wrapping_add(1);
        }
        if flags & THREAD_ID != 0 {
            (self.thread_id, at) = varu64(bytes, at)?;
        }
        if flags & STACK_ID != 0 {
            self.stack_id = narrow(bytes, &mut at)?;
        }
        let delta;
        (delta, at) = varu64(bytes, at)?;
        // Modular: blocks hold the events of several threads one after another, so time goes back in between.
        self.timestamp = self.timestamp.wrapping_add(delta);
        if V6 {
            if flags & LABEL_LIST != 0 {
                self.label_list = narrow(bytes, &mut at)?;
            }
        } else if flags & (ACTIVITY_ID | RELATED_ACTIVITY_ID) != 0 {
            if flags & ACTIVITY_ID != 0 {
                self.activity_id = guid(bytes, &mut at)?;
            }
            if flags & RELATED_ACTIVITY_ID != 0 {
                self.related_activity_id = guid(bytes, &mut at)?;
            }
        }
        self.is_sorted = flags & SORTED != 0;
        if flags & PAYLOAD_SIZE != 0 {
            self.payload_size = narrow(bytes, &mut at)?;
        }
        Ok((at, flags))
    }

    /// Reads an uncompressed record that begins at the cursor, which is behind it afterwards; gives where in the record
    /// the payload begins.
    pub(crate) fn decode_uncompressed(
        &mut self,
        cursor: &mut Cursor<'_>,
        v6: bool,
    ) -> Result<usize, Error> {
        let offset = cursor.offset();
        let size = cursor.u32()?;
        let mut record = cursor
            .part(size as usize)
            .map_err(|error| Error { offset, ..error })?;
        let mut parse = || {
            let id = record.u32()?;
            self.metadata_id = id & !UNSORTED;
            self.is_sorted = id & UNSORTED == 0;
            self.sequence_number = record.u32()?;
            self.thread_id = record.u64()?;
            self.capture_thread_id = record.u64()?;
            self.processor_number = record.u32()?;
            self.stack_id = record.u32()?;
            self.timestamp = record.u64()?;
            if v6 {
                self.label_list = record.u32()?;
            } else {
                self.activity_id = record.guid()?;
                self.related_activity_id = record.guid()?;
            }
            self.payload_size = record.u32()?;
            let payload = record.position();
            record.take(self.payload_size as usize)?;
            Ok(payload.wrapping_add(SIZE_FIELD))
        };
        parse().map_err(|_: Error| Error {
            offset,
            kind: ErrorKind::RecordTooSmall(size),
        })
    }

    /// Reads a record of V1–V3 that begins at the cursor, which is behind it afterwards; gives where in the record the
    /// payload and the stack begin, and the size of the stack.
    pub(crate) fn decode_with_stack(
        &mut self,
        cursor: &mut Cursor<'_>,
    ) -> Result<(usize, usize, usize), Error> {
        let offset = cursor.offset();
        let size = cursor.u32()?;
        let mut record = cursor
            .part(size as usize)
            .map_err(|error| Error { offset, ..error })?;
        let mut parse = || {
            self.metadata_id = record.u32()?;
            self.thread_id = u64::from(record.u32()?);
            self.capture_thread_id = self.thread_id;
            self.timestamp = record.u64()?;
            self.activity_id = record.guid()?;
            self.related_activity_id = record.guid()?;
            self.payload_size = record.u32()?;
            let payload = record.position();
            record.take(self.payload_size as usize)?;
            let stack_size = record.u32()? as usize;
            let stack = record.position();
            record.take(stack_size)?;
            Ok((
                payload.wrapping_add(SIZE_FIELD),
                stack.wrapping_add(SIZE_FIELD),
                stack_size,
            ))
        };
        parse().map_err(|_: Error| Error {
            offset,
            kind: ErrorKind::RecordTooSmall(size),
        })
    }
}

/// Bytes of the size at the beginning of a record, which does not count itself.
const SIZE_FIELD: usize = 4;
/// Set in the metadata id of an uncompressed record: the record is *not* sorted (nettrace.md 5.2).
const UNSORTED: u32 = 1 << 31;

#[inline(always)]
fn narrow(bytes: &[u8], at: &mut usize) -> Result<u32, ErrorKind> {
    let (value, end) = varu64(bytes, *at)?;
    *at = end;
    u32::try_from(value).map_err(|_| ErrorKind::InvalidVarint)
}

#[inline]
fn guid(bytes: &[u8], at: &mut usize) -> Result<Guid, ErrorKind> {
    let Some(found) = bytes.get(*at..).and_then(|tail| tail.first_chunk()) else {
        return Err(ErrorKind::RecordOverrun);
    };
    *at = at.wrapping_add(16);
    Ok(Guid(*found))
}

/// Writes a record after `previous`, which becomes this one.
#[inline(never)]
pub(crate) fn encode_compressed<const V6: bool>(
    out: &mut Vec<u8>,
    previous: &mut EventHeader,
    header: &EventHeader,
    payload: &[u8],
) {
    let start = out.len();
    let mut flags = 0;
    out.push(0);
    if header.metadata_id != previous.metadata_id {
        flags |= METADATA_ID;
        put_varu64(out, u64::from(header.metadata_id));
    }
    let implied = previous
        .sequence_number
        .wrapping_add(u32::from(header.metadata_id != 0));
    if header.sequence_number != implied
        || header.capture_thread_id != previous.capture_thread_id
        || header.processor_number != previous.processor_number
    {
        flags |= SEQUENCE;
        let delta = header
            .sequence_number
            .wrapping_sub(previous.sequence_number)
            .wrapping_sub(1);
        put_varu64(out, u64::from(delta));
        put_varu64(out, header.capture_thread_id);
        put_varu64(out, u64::from(header.processor_number));
    }
    if header.thread_id != previous.thread_id {
        flags |= THREAD_ID;
        put_varu64(out, header.thread_id);
    }
    if header.stack_id != previous.stack_id {
        flags |= STACK_ID;
        put_varu64(out, u64::from(header.stack_id));
    }
    put_varu64(out, header.timestamp.wrapping_sub(previous.timestamp));
    if V6 {
        if header.label_list != previous.label_list {
            flags |= LABEL_LIST;
            put_varu64(out, u64::from(header.label_list));
        }
    } else {
        if header.activity_id != previous.activity_id {
            flags |= ACTIVITY_ID;
            out.extend_from_slice(&header.activity_id.0);
        }
        if header.related_activity_id != previous.related_activity_id {
            flags |= RELATED_ACTIVITY_ID;
            out.extend_from_slice(&header.related_activity_id.0);
        }
    }
    if header.is_sorted {
        flags |= SORTED;
    }
    if header.payload_size != previous.payload_size {
        flags |= PAYLOAD_SIZE;
        put_varu64(out, u64::from(header.payload_size));
    }
    if let Some(place) = out.get_mut(start) {
        *place = flags;
    }
    out.extend_from_slice(payload);
    *previous = *header;
}

/// Writes a record that differs from `previous` in its kind, stack, time and payload alone, has the next sequence number and is
/// not sorted: what most records are. `false`, and nothing is written, where the differences are no short numbers.
#[inline(always)]
pub(crate) fn encode_similar(
    out: &mut Vec<u8>,
    previous: &mut EventHeader,
    metadata_id: u32,
    stack_id: u32,
    timestamp: u64,
    payload: &[u8],
) -> bool {
    let elapsed = timestamp.wrapping_sub(previous.timestamp);
    if elapsed >= SHORT_LIMIT || payload.len() >= SHORT_PAYLOAD {
        return false;
    }
    let payload_size = payload.len() as u32;
    let has_other_size = payload_size != previous.payload_size;
    let mut word = if has_other_size {
        u64::from(PAYLOAD_SIZE)
    } else {
        0
    };
    let mut bits = 8;
    if (metadata_id, stack_id) != (previous.metadata_id, previous.stack_id) {
        if u64::from(metadata_id) >= SHORT_LIMIT {
            return false;
        }
        let has_other_stack = stack_id != previous.stack_id;
        if has_other_stack {
            word |= u64::from(STACK_ID);
        }
        if metadata_id != previous.metadata_id {
            let (id, id_bits) = short_varu64(u64::from(metadata_id));
            word |= u64::from(METADATA_ID) | id.wrapping_shl(bits);
            bits = bits.wrapping_add(id_bits);
            previous.metadata_id = metadata_id;
        }
        put_bits(out, word, bits);
        if has_other_stack {
            put_varu64(out, u64::from(stack_id));
            previous.stack_id = stack_id;
        }
        (word, bits) = (0, 0);
    }
    let (time, time_bits) = short_varu64(elapsed);
    word |= time.wrapping_shl(bits);
    bits = bits.wrapping_add(time_bits);
    if has_other_size {
        let (size, size_bits) = short_varu64(u64::from(payload_size));
        word |= size.wrapping_shl(bits);
        bits = bits.wrapping_add(size_bits);
        previous.payload_size = payload_size;
    }
    put_bits(out, word, bits);
    out.extend_from_slice(payload);
    previous.sequence_number = previous.sequence_number.wrapping_add(1);
    previous.timestamp = timestamp;
    true
}

/// The bytes of [`like_header`]'s number.
pub(crate) const LIKE_HEADER: usize = 8;

/// What stands before the payload of a record that differs from the one before in that and in time, by `elapsed`, alone (see
/// [`encode_similar`]): a little-endian number, and how many of its bits. `None` where there is no short form.
#[inline(always)]
pub(crate) fn like_header(elapsed: u64) -> Option<(u64, u32)> {
    if elapsed >= SHORT_LIMIT {
        return None;
    }
    let (time, bits) = short_varu64(elapsed);
    // Behind the flags, of which there are none.
    Some((time << 8, bits.wrapping_add(8)))
}

/// Writes such a header and a payload; how long both are. `None` where there is no room.
#[inline(always)]
pub(crate) fn put_like(
    out: &mut [u8],
    (header, bits): (u64, u32),
    payload: &[u8],
) -> Option<usize> {
    *out.first_chunk_mut::<LIKE_HEADER>()? = header.to_le_bytes();
    let begin = bits as usize / 8;
    let end = begin.wrapping_add(payload.len());
    let place = out.get_mut(begin..end)?;
    match (<&mut [u8; 8]>::try_from(&mut *place), payload.first_chunk()) {
        // A number, for which a call would be the larger part of the work.
        (Ok(place), Some(number)) => *place = *number,
        _ => place.copy_from_slice(payload),
    }
    Some(end)
}

/// Sizes below this are three bytes: with the flags and a short time they fit a word.
const SHORT_PAYLOAD: usize = 1 << 21;

/// Writes a record of V3, which has its stack behind its payload. The next one begins at a multiple of four.
pub(crate) fn encode_with_stack(
    out: &mut Vec<u8>,
    header: &EventHeader,
    payload: &[u8],
    stack: &[u8],
) {
    let start = out.len();
    put_u32(out, 0);
    put_u32(out, header.metadata_id);
    put_u32(out, header.thread_id as u32);
    put_u64(out, header.timestamp);
    out.extend_from_slice(&header.activity_id.0);
    out.extend_from_slice(&header.related_activity_id.0);
    put_u32(out, payload.len() as u32);
    out.extend_from_slice(payload);
    put_u32(out, stack.len() as u32);
    out.extend_from_slice(stack);
    let padded = out.len().next_multiple_of(4);
    out.resize(padded, 0);
    let size = padded.wrapping_sub(start).wrapping_sub(SIZE_FIELD) as u32;
    if let Some(place) = out
        .get_mut(start..)
        .and_then(|record| record.first_chunk_mut())
    {
        *place = size.to_le_bytes();
    }
}

/// Writes an uncompressed record. V4's document pads records to four bytes; TraceEvent (3.2.8, 4.0.0) steps over the
/// payload only and loses its way then, so there is no padding, which the size of the record says to other readers.
pub(crate) fn encode_uncompressed<const V6: bool>(
    out: &mut Vec<u8>,
    header: &EventHeader,
    payload: &[u8],
) {
    let start = out.len();
    put_u32(out, 0);
    put_u32(
        out,
        header.metadata_id & !UNSORTED | if header.is_sorted { 0 } else { UNSORTED },
    );
    put_u32(out, header.sequence_number);
    put_u64(out, header.thread_id);
    put_u64(out, header.capture_thread_id);
    put_u32(out, header.processor_number);
    put_u32(out, header.stack_id);
    put_u64(out, header.timestamp);
    if V6 {
        put_u32(out, header.label_list);
    } else {
        out.extend_from_slice(&header.activity_id.0);
        out.extend_from_slice(&header.related_activity_id.0);
    }
    put_u32(out, header.payload_size);
    out.extend_from_slice(payload);
    let size = (out.len().wrapping_sub(start) as u32).wrapping_sub(4);
    if let Some(place) = out.get_mut(start..start.saturating_add(4)) {
        place.copy_from_slice(&size.to_le_bytes());
    }
}

/// The beginning of event blocks, and of V4's metadata blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockHeader {
    pub(crate) is_compressed: bool,
    pub(crate) min_timestamp: i64,
    pub(crate) max_timestamp: i64,
}

impl BlockHeader {
    pub(crate) const LENGTH: usize = 20;

    /// Reads the header; the cursor is at the first record afterwards.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<BlockHeader, Error> {
        let offset = cursor.offset();
        let size = cursor.u16()?;
        let flags = cursor.u16()?;
        let header = BlockHeader {
            is_compressed: flags & 1 != 0,
            min_timestamp: cursor.i64()?,
            max_timestamp: cursor.i64()?,
        };
        match usize::from(size).checked_sub(BlockHeader::LENGTH) {
            Some(more) => cursor.take(more)?,
            None => {
                return Err(Error {
                    offset,
                    kind: ErrorKind::InvalidBlockHeader(u32::from(size)),
                });
            }
        };
        Ok(header)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u16(out, BlockHeader::LENGTH as u16);
        put_u16(out, u16::from(self.is_compressed));
        put_i64(out, self.min_timestamp);
        put_i64(out, self.max_timestamp);
    }
}
