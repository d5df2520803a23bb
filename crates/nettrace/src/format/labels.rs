//! Label lists of V6 (nettrace.md 6.6).

use alloc::vec::Vec;

use crate::wire::{Cursor, put_u64, put_utf8, put_vari64};
use crate::{Error, ErrorKind, Label};

const LAST: u8 = 0x80;

/// Reads a label list block: `found` gets each index with the bytes of its list.
pub(crate) fn decode_block<'a>(
    mut cursor: Cursor<'a>,
    mut found: impl FnMut(u32, &'a [u8]),
) -> Result<(), Error> {
    let first = cursor.u32()?;
    let count = cursor.u32()?;
    for index in 0..cursor.bounded(u64::from(count), 2)? {
        let start = cursor;
        while !decode(&mut cursor)?.1 {}
        let length = cursor.position().saturating_sub(start.position());
        let mut list = start;
        found(first.wrapping_add(index as u32), list.take(length)?);
    }
    Ok(())
}

/// Reads a label, and whether it is the last of its list.
pub(crate) fn decode<'a>(cursor: &mut Cursor<'a>) -> Result<(Label<'a>, bool), Error> {
    let offset = cursor.offset();
    let kind = cursor.u8()?;
    let label = match kind & !LAST {
        1 => Label::ActivityId(cursor.guid()?),
        2 => Label::RelatedActivityId(cursor.guid()?),
        3 => Label::TraceId(cursor.guid()?.0),
        4 => Label::SpanId(cursor.u64()?),
        5 => Label::String {
            key: cursor.utf8()?,
            value: cursor.utf8()?,
        },
        6 => Label::Number {
            key: cursor.utf8()?,
            value: cursor.vari64()?,
        },
        7 => Label::OpCode(cursor.u8()?),
        8 => Label::Keywords(cursor.u64()?),
        9 => Label::Level(cursor.u8()?),
        10 => Label::Version(cursor.u8()?),
        unknown => {
            return Err(Error {
                offset,
                kind: ErrorKind::UnknownLabel(unknown),
            });
        }
    };
    Ok((label, kind & LAST != 0))
}

/// Writes one list; it must not be empty.
pub(crate) fn encode(out: &mut Vec<u8>, labels: &[Label<'_>]) {
    let last = labels.len().saturating_sub(1);
    for (index, label) in labels.iter().enumerate() {
        let end = if index == last { LAST } else { 0 };
        match label {
            Label::ActivityId(id) => {
                out.push(1 | end);
                out.extend_from_slice(&id.0);
            }
            Label::RelatedActivityId(id) => {
                out.push(2 | end);
                out.extend_from_slice(&id.0);
            }
            Label::TraceId(id) => {
                out.push(3 | end);
                out.extend_from_slice(id);
            }
            Label::SpanId(id) => {
                out.push(4 | end);
                put_u64(out, *id);
            }
            Label::String { key, value } => {
                out.push(5 | end);
                put_utf8(out, key);
                put_utf8(out, value);
            }
            Label::Number { key, value } => {
                out.push(6 | end);
                put_utf8(out, key);
                put_vari64(out, *value);
            }
            Label::OpCode(value) => out.extend_from_slice(&[7 | end, *value]),
            Label::Keywords(value) => {
                out.push(8 | end);
                put_u64(out, *value);
            }
            Label::Level(value) => out.extend_from_slice(&[9 | end, *value]),
            Label::Version(value) => out.extend_from_slice(&[10 | end, *value]),
        }
    }
}
