//! Lists of fields and their types, in the three layouts that descriptions have (nettrace.md 8.1–8.3).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::wire::{Cursor, put_u16, put_u32, put_utf8, put_utf16z, put_varu64};
use crate::{Error, ErrorKind, Field, FieldType, MAX_NESTING};

/// How a list of fields is written down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Layout {
    /// V1–V5: type, then name.
    V1,
    /// The tag V2Params of V5: size, name, type.
    V2,
    /// V6: short size, name, type.
    V6,
}

/// Reads a list of fields.
pub(super) fn decode_fields(
    cursor: &mut Cursor<'_>,
    layout: Layout,
    depth: usize,
) -> Result<Vec<Field>, Error> {
    // The payload may end after the level, or after any field (nettrace.md 5.4).
    if layout == Layout::V1 && depth == 0 && cursor.is_empty() {
        return Ok(Vec::new());
    }
    let (count, minimum) = match layout {
        Layout::V1 => (cursor.u32()?, 0),
        Layout::V2 => (cursor.u32()?, 10),
        Layout::V6 => (u32::from(cursor.u16()?), 4),
    };
    if layout != Layout::V1 {
        cursor.bounded(u64::from(count), minimum)?;
    }
    let mut fields = Vec::with_capacity((count as usize).min(64));
    for _ in 0..count {
        if layout == Layout::V1 && depth == 0 && cursor.is_empty() {
            break;
        }
        fields.push(decode_field(cursor, layout, depth)?);
    }
    fields.shrink_to_fit();
    Ok(fields)
}

fn decode_field(cursor: &mut Cursor<'_>, layout: Layout, depth: usize) -> Result<Field, Error> {
    match layout {
        Layout::V1 => {
            let field_type = decode_type(cursor, layout, depth)?;
            Ok(Field {
                name: cursor.utf16z()?,
                field_type,
            })
        }
        Layout::V2 => {
            // This size counts itself.
            let size = cursor
                .u32()?
                .checked_sub(4)
                .ok_or(cursor.error(ErrorKind::RecordOverrun))?;
            let mut part = cursor.part(size as usize)?;
            Ok(Field {
                name: part.utf16z()?,
                field_type: decode_type(&mut part, layout, depth)?,
            })
        }
        Layout::V6 => {
            let size = cursor.u16()?;
            let mut part = cursor.part(usize::from(size))?;
            Ok(Field {
                name: part.utf8()?.into_owned(),
                field_type: decode_type(&mut part, layout, depth)?,
            })
        }
    }
}

/// Arrays count for so many levels more: they take a byte each in the file, and a piece of memory here.
const ARRAY_LEVELS: usize = 3;

fn decode_type(cursor: &mut Cursor<'_>, layout: Layout, depth: usize) -> Result<FieldType, Error> {
    let depth = depth.saturating_add(1);
    if depth > MAX_NESTING {
        return Err(cursor.error(ErrorKind::NestedTooDeeply));
    }
    let offset = cursor.offset();
    let code = if layout == Layout::V6 {
        u32::from(cursor.u8()?)
    } else {
        cursor.u32()?
    };
    let inner = depth.saturating_add(ARRAY_LEVELS);
    let element = |cursor: &mut Cursor<'_>| decode_type(cursor, layout, inner).map(Box::new);
    Ok(match code {
        1 => FieldType::Object(decode_fields(cursor, layout, depth)?),
        19 if layout != Layout::V1 => FieldType::Array(element(cursor)?),
        22 if layout == Layout::V6 => {
            let element = element(cursor)?;
            FieldType::FixedLengthArray(element, cursor.u16()?)
        }
        24 | 25 if layout == Layout::V6 => {
            let element = element(cursor)?;
            if !has_fixed_size(&element) {
                return Err(Error {
                    offset,
                    kind: ErrorKind::UnsizedElement,
                });
            }
            if code == 24 {
                FieldType::RelLoc(element)
            } else {
                FieldType::DataLoc(element)
            }
        }
        _ => {
            let is_known = layout == Layout::V6 || !matches!(code, 20 | 21 | 23 | 26);
            let simple = FieldType::of_code(code).filter(|_| is_known);
            return simple.ok_or(Error {
                offset,
                kind: ErrorKind::UnknownFieldType(code),
            });
        }
    })
}

/// Whether every value of the type takes the same number of bytes. The type was read, so its nesting is bounded.
fn has_fixed_size(field_type: &FieldType) -> bool {
    match field_type {
        FieldType::Array(_) | FieldType::String | FieldType::VarInt | FieldType::VarUInt => false,
        FieldType::RelLoc(_) | FieldType::DataLoc(_) => false,
        FieldType::FixedLengthArray(element, _) => has_fixed_size(element),
        FieldType::Object(fields) => fields.iter().all(|field| has_fixed_size(&field.field_type)),
        _ => true,
    }
}

/// Writes a list of fields that [`fits`].
pub(super) fn encode_fields(out: &mut Vec<u8>, fields: &[Field], layout: Layout) {
    if layout == Layout::V6 {
        put_u16(out, fields.len() as u16);
    } else {
        put_u32(out, fields.len() as u32);
    }
    for field in fields {
        let start = out.len();
        match layout {
            Layout::V1 => {
                encode_type(out, &field.field_type, layout);
                put_utf16z(out, &field.name);
            }
            Layout::V2 => {
                put_u32(out, 0);
                put_utf16z(out, &field.name);
                encode_type(out, &field.field_type, layout);
                let size = out.len().wrapping_sub(start) as u32;
                patch(out, start, &size.to_le_bytes());
            }
            Layout::V6 => {
                put_u16(out, 0);
                put_utf8(out, &field.name);
                encode_type(out, &field.field_type, layout);
                let size = out.len().wrapping_sub(start).wrapping_sub(2) as u16;
                patch(out, start, &size.to_le_bytes());
            }
        }
    }
}

fn encode_type(out: &mut Vec<u8>, field_type: &FieldType, layout: Layout) {
    let code = field_type.code();
    if layout == Layout::V6 {
        out.push(code);
    } else {
        put_u32(out, u32::from(code));
    }
    match field_type {
        FieldType::Object(fields) => encode_fields(out, fields, layout),
        FieldType::Array(element) | FieldType::RelLoc(element) | FieldType::DataLoc(element) => {
            encode_type(out, element, layout);
        }
        FieldType::FixedLengthArray(element, count) => {
            encode_type(out, element, layout);
            put_u16(out, *count);
        }
        _ => {}
    }
}

/// Whether a list of fields can be written in a layout and be read again.
pub(super) fn fits(fields: &[Field], layout: Layout, depth: usize) -> bool {
    fields.len() <= usize::from(u16::MAX)
        && fields.iter().all(|field| {
            fits_type(&field.field_type, layout, depth)
                && (layout != Layout::V6 || encoded_v6_size(field) <= usize::from(u16::MAX))
        })
}

fn fits_type(field_type: &FieldType, layout: Layout, depth: usize) -> bool {
    let depth = depth.saturating_add(1);
    if depth > MAX_NESTING {
        return false;
    }
    let inner = depth.saturating_add(ARRAY_LEVELS);
    match field_type {
        FieldType::Empty => false,
        FieldType::Object(fields) => fits(fields, layout, depth),
        FieldType::Array(element) => layout != Layout::V1 && fits_type(element, layout, inner),
        FieldType::FixedLengthArray(element, _) => {
            layout == Layout::V6 && fits_type(element, layout, inner)
        }
        FieldType::RelLoc(element) | FieldType::DataLoc(element) => {
            layout == Layout::V6 && fits_type(element, layout, inner) && has_fixed_size(element)
        }
        FieldType::VarInt | FieldType::VarUInt | FieldType::Utf8CodeUnit | FieldType::Boolean8 => {
            layout == Layout::V6
        }
        _ => true,
    }
}

/// Bytes of a field in V6, without its size; the type fits in depth.
fn encoded_v6_size(field: &Field) -> usize {
    let mut name = Vec::new();
    put_varu64(&mut name, field.name.len() as u64);
    name.len()
        .saturating_add(field.name.len())
        .saturating_add(type_v6_size(&field.field_type))
}

fn type_v6_size(field_type: &FieldType) -> usize {
    match field_type {
        FieldType::Object(fields) => fields
            .iter()
            .map(|field| encoded_v6_size(field).saturating_add(2))
            .fold(3, usize::saturating_add),
        FieldType::Array(element) | FieldType::RelLoc(element) | FieldType::DataLoc(element) => {
            type_v6_size(element).saturating_add(1)
        }
        FieldType::FixedLengthArray(element, _) => type_v6_size(element).saturating_add(3),
        _ => 1,
    }
}

/// Puts a size where room was left for it.
pub(super) fn patch(out: &mut [u8], start: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(start..start.saturating_add(bytes.len())) {
        place.copy_from_slice(bytes);
    }
}
