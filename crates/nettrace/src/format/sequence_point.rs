//! Sequence point blocks (nettrace.md 5.6 and 6.7).

use alloc::vec::Vec;

use crate::wire::{Cursor, put_u32, put_u64, put_varu64};
use crate::{Error, FormatVersion};

/// Reads a sequence point: time and flags; `threads` gets capture thread (V6: index) and number.
pub(crate) fn decode(
    mut cursor: Cursor<'_>,
    format: FormatVersion,
    threads: &mut Vec<(u64, u32)>,
) -> Result<(i64, u32), Error> {
    threads.clear();
    let timestamp = cursor.i64()?;
    if format == FormatVersion::V6 {
        let flags = cursor.u32()?;
        let count = cursor.u32()?;
        for _ in 0..cursor.bounded(u64::from(count), 2)? {
            threads.push((cursor.varu64()?, cursor.varu32()?));
        }
        Ok((timestamp, flags))
    } else {
        let count = cursor.u32()?;
        for _ in 0..cursor.bounded(u64::from(count), 12)? {
            threads.push((cursor.u64()?, cursor.u32()?));
        }
        Ok((timestamp, 0))
    }
}

/// Writes a sequence point.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    format: FormatVersion,
    timestamp: u64,
    flags: u32,
    threads: &mut dyn Iterator<Item = (u64, u32)>,
) {
    put_u64(out, timestamp);
    if format == FormatVersion::V6 {
        put_u32(out, flags);
    }
    let count_at = out.len();
    put_u32(out, 0);
    let mut count = 0u32;
    for (thread, number) in threads {
        count = count.wrapping_add(1);
        if format == FormatVersion::V6 {
            put_varu64(out, thread);
            put_varu64(out, u64::from(number));
        } else {
            put_u64(out, thread);
            put_u32(out, number);
        }
    }
    if let Some(place) = out.get_mut(count_at..count_at.saturating_add(4)) {
        place.copy_from_slice(&count.to_le_bytes());
    }
}

/// Puts the flags into a V6 sequence point that was just written.
pub(crate) fn set_flags(block: &mut [u8], flags: u32) {
    if let Some(place) = block.get_mut(8..12) {
        place.copy_from_slice(&flags.to_le_bytes());
    }
}
