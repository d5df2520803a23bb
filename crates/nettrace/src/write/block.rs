//! Event and metadata blocks under construction.

use alloc::vec::Vec;

use crate::format::event::{self, BlockHeader, EventHeader, LIKE_HEADER};
use crate::wire::put_bits;

/// For payloads up to this length room is made for many at once, which costs filling it with zeros. A library that is built small saves
/// two calls for each event by that.
const SMALL: usize = if cfg!(feature = "std") { 64 } else { 512 };

/// Records of an event or metadata block under construction.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) content: Vec<u8>,
    /// Where the first record begins: an event block is made with its frame and header in front, which are filled in when it is closed.
    pub(super) records_at: usize,
    /// Offset in the stream where the block was going to begin when it was opened.
    pub(super) offset: u64,
    pub(super) previous: EventHeader,
    min_timestamp: i64,
    max_timestamp: i64,
}

impl Block {
    pub(super) fn new() -> Block {
        Block {
            content: Vec::new(),
            records_at: 0,
            offset: 0,
            previous: EventHeader::BLOCK_START,
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
        }
    }

    /// Bytes of the records.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.content.len().saturating_sub(self.records_at)
    }

    #[inline]
    pub(super) fn add<const V6: bool>(
        &mut self,
        header: &EventHeader,
        payload: &[u8],
        is_compressed: bool,
    ) {
        let timestamp = header.timestamp as i64;
        self.min_timestamp = self.min_timestamp.min(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if is_compressed {
            event::encode_compressed::<V6>(&mut self.content, &mut self.previous, header, payload);
        } else {
            event::encode_uncompressed::<V6>(&mut self.content, header, payload);
            self.previous.capture_thread_id = header.capture_thread_id;
        }
    }

    /// See [`event::encode_similar`].
    #[inline(always)]
    pub(super) fn add_similar(
        &mut self,
        metadata_id: u32,
        stack_id: u32,
        timestamp: u64,
        payload: &[u8],
    ) -> bool {
        let (out, previous) = (&mut self.content, &mut self.previous);
        let is_done =
            event::encode_similar(out, previous, metadata_id, stack_id, timestamp, payload);
        if is_done {
            // It is not older than the one before.
            self.max_timestamp = self.max_timestamp.max(timestamp as i64);
        }
        is_done
    }

    /// Adds records that are like the last one in all but time and payload, until there are `full` bytes; how many.
    pub(super) fn add_like(&mut self, full: usize, events: &[(u64, &[u8])]) -> usize {
        let size = self.previous.payload_size as usize;
        let mut time = self.previous.timestamp;
        let mut count = 0_usize;
        let content = &mut self.content;
        let mut end = content.len();
        let is_small = size <= SMALL;
        if is_small {
            // Room for all of them is made at once: to ask for it each time would cost as much as all the rest.
            let most = size
                .saturating_add(LIKE_HEADER)
                .saturating_mul(events.len());
            content.resize(end.saturating_add(most).min(content.capacity()), 0);
        }
        for &(timestamp, payload) in events {
            let header = event::like_header(timestamp.wrapping_sub(time));
            let Some(header) = header.filter(|_| end < full && payload.len() == size) else {
                break;
            };
            if is_small {
                let place = content.get_mut(end..).unwrap_or_default();
                let Some(length) = event::put_like(place, header, payload) else {
                    break;
                };
                end = end.wrapping_add(length);
            } else {
                put_bits(content, header.0, header.1);
                content.extend_from_slice(payload);
                end = content.len();
            }
            time = timestamp;
            count = count.wrapping_add(1);
        }
        content.truncate(end);
        // They are not older than the one before.
        self.max_timestamp = self.max_timestamp.max(time as i64);
        self.previous.timestamp = time;
        let number = self.previous.sequence_number;
        self.previous.sequence_number = number.wrapping_add(count as u32);
        count
    }

    pub(super) fn header(&self, is_compressed: bool) -> BlockHeader {
        let (min_timestamp, max_timestamp) = (self.min_timestamp, self.max_timestamp);
        if min_timestamp > max_timestamp {
            return BlockHeader {
                is_compressed,
                min_timestamp: 0,
                max_timestamp: 0,
            };
        }
        BlockHeader {
            is_compressed,
            min_timestamp,
            max_timestamp,
        }
    }

    pub(super) fn restart(&mut self) {
        let content = core::mem::take(&mut self.content);
        *self = Block {
            content,
            ..Block::new()
        };
        self.content.clear();
    }
}
