//! Thread and remove-thread blocks of V6 (nettrace.md 6.5).

use alloc::vec::Vec;

use crate::wire::{Cursor, put_utf8, put_varu64};
use crate::{Error, ThreadRow};

/// Reads the next row of a thread block. `false` with it: the rest of the row was of an unknown kind, and dropped.
pub(crate) fn decode_row(cursor: &mut Cursor<'_>) -> Result<(u64, ThreadRow, bool), Error> {
    let size = cursor.u16()?;
    let mut row = cursor.part(usize::from(size))?;
    let index = row.varu64()?;
    let mut thread = ThreadRow::default();
    while !row.is_empty() {
        match row.u8()? {
            1 => thread.name = Some(row.utf8()?.into_owned()),
            2 => thread.process_id = Some(row.varu64()?),
            3 => thread.thread_id = Some(row.varu64()?),
            4 => thread
                .key_values
                .push((row.utf8()?.into_owned(), row.utf8()?.into_owned())),
            _ => return Ok((index, thread, false)),
        }
    }
    Ok((index, thread, true))
}

/// Writes a row without its size.
pub(crate) fn encode_row(out: &mut Vec<u8>, index: u64, thread: &ThreadRow) {
    put_varu64(out, index);
    if let Some(process) = thread.process_id {
        out.push(2);
        put_varu64(out, process);
    }
    if let Some(id) = thread.thread_id {
        out.push(3);
        put_varu64(out, id);
    }
    if let Some(name) = &thread.name {
        out.push(1);
        put_utf8(out, name);
    }
    for (key, value) in &thread.key_values {
        out.push(4);
        put_utf8(out, key);
        put_utf8(out, value);
    }
}

/// Reads the next entry of a remove-thread block: index and number of events tried.
pub(crate) fn decode_removed(cursor: &mut Cursor<'_>) -> Result<(u64, u32), Error> {
    Ok((cursor.varu64()?, cursor.varu32()?))
}

/// Writes an entry of a remove-thread block.
pub(crate) fn encode_removed(out: &mut Vec<u8>, index: u64, sequence_number: u32) {
    put_varu64(out, index);
    put_varu64(out, u64::from(sequence_number));
}
