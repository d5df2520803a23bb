//! Stack blocks, the same from V4 to V6 (nettrace.md 5.5).

use alloc::vec::Vec;

use crate::Error;
use crate::wire::{Cursor, put_u32};

/// Reads a stack block: `found` gets each id with its pointers.
pub(crate) fn decode<'a>(
    mut cursor: Cursor<'a>,
    mut found: impl FnMut(u32, &'a [u8]),
) -> Result<(), Error> {
    let first = cursor.u32()?;
    let count = cursor.u32()?;
    for index in 0..cursor.bounded(u64::from(count), 4)? {
        let size = cursor.u32()?;
        found(
            first.wrapping_add(index as u32),
            cursor.take(size as usize)?,
        );
    }
    Ok(())
}

/// Writes the beginning of a stack block, and of a label list block, which is the same.
pub(crate) fn encode_header(out: &mut Vec<u8>, first: u32, count: u32) {
    put_u32(out, first);
    put_u32(out, count);
}

/// Writes one stack.
pub(crate) fn encode(out: &mut Vec<u8>, frames: &[u8]) {
    put_u32(out, frames.len() as u32);
    out.extend_from_slice(frames);
}
