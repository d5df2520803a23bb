//! Descriptions of events: metadata payloads up to V5, metadata rows of V6, and the field lists in them
//! (nettrace.md sections 3, 5.4, 6.2, 8.2, 8.3).

use alloc::string::ToString;
use alloc::vec::Vec;

use super::fields::{Layout, decode_fields, encode_fields, fits, patch};
use crate::wire::{Cursor, put_u16, put_u32, put_u64, put_utf8, put_utf16z, put_varu64};
use crate::{Error, FormatVersion, Metadata};

/// What was read, and how well.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) metadata: Metadata,
    /// The list of fields made no sense; the description has none.
    pub(crate) unreadable: bool,
    /// A tag of V5 was there.
    pub(crate) has_tags: bool,
}

const TAG_OPCODE: u8 = 1;
const TAG_V2_PARAMS: u8 = 2;

/// Reads the payload of a V3–V5 metadata record.
pub(crate) fn decode_v3_to_v5(cursor: &mut Cursor<'_>) -> Result<Decoded, Error> {
    let mut metadata = Metadata {
        id: cursor.u32()?,
        provider: cursor.utf16z()?,
        ..Metadata::default()
    };
    decode_common(cursor, &mut metadata)?;
    let mut decoded = Decoded {
        metadata,
        unreadable: false,
        has_tags: false,
    };
    match decode_fields(cursor, Layout::V1, 0) {
        Ok(fields) => decoded.metadata.fields = fields,
        Err(_) => {
            // Where the tags begin is not known either.
            decoded.unreadable = true;
            return Ok(decoded);
        }
    }
    while !cursor.is_empty() {
        let size = cursor.u32()?;
        let tag = cursor.u8()?;
        let mut data = cursor.part(size as usize)?;
        decoded.has_tags = true;
        match tag {
            TAG_OPCODE => decoded.metadata.opcode = data.u8()?,
            TAG_V2_PARAMS => match decode_fields(&mut data, Layout::V2, 0) {
                Ok(fields) => decoded.metadata.fields = fields,
                Err(_) => decoded.unreadable = true,
            },
            _ => {}
        }
    }
    Ok(decoded)
}

/// Reads the payload of a V1 or V2 metadata record, which lies at `record_offset` of the file.
pub(crate) fn decode_v1_v2(
    cursor: &mut Cursor<'_>,
    format: FormatVersion,
    record_offset: u64,
) -> Result<Decoded, Error> {
    let mut metadata = Metadata {
        id: record_offset as u32,
        ..Metadata::default()
    };
    if format == FormatVersion::V1 {
        let guid = cursor.guid()?;
        metadata.provider = match PROVIDERS
            .iter()
            .find(|(known, _)| *known == guid.to_string())
        {
            Some((_, name)) => (*name).to_string(),
            None => guid.to_string(),
        };
        metadata.provider_guid = Some(guid);
    } else {
        metadata.provider = cursor.utf16z()?;
    }
    metadata.event_id = cursor.u32()?;
    metadata.version = cursor.u32()?;
    let mut decoded = Decoded {
        metadata,
        unreadable: false,
        has_tags: false,
    };
    // What EventSource adds; native events have none.
    if cursor.u32()? != 0 {
        decode_common(cursor, &mut decoded.metadata)?;
        match decode_fields(cursor, Layout::V1, 0) {
            Ok(fields) => decoded.metadata.fields = fields,
            Err(_) => decoded.unreadable = true,
        }
    }
    Ok(decoded)
}

/// Names of the providers that V1 gives by GUID only (nettrace.md 11.1).
const PROVIDERS: [(&str, &str); 6] = [
    (
        "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4",
        "Microsoft-Windows-DotNETRuntime",
    ),
    (
        "a669021c-c450-4609-a035-5af59af4df18",
        "Microsoft-Windows-DotNETRuntimeRundown",
    ),
    (
        "763fd754-7086-4dfe-95eb-c01a46faf4ca",
        "Microsoft-Windows-DotNETRuntimePrivate",
    ),
    (
        "cc2bcbba-16b6-4cf3-8990-d74c2e8af500",
        "Microsoft-Windows-DotNETRuntimeStress",
    ),
    (
        "3c530d44-97ae-513a-1e6d-783e8f8e03a9",
        "Microsoft-DotNETCore-SampleProfiler",
    ),
    (
        "2e5dba47-a3d2-4d16-8ee0-6671ffdcd7b5",
        "System.Threading.Tasks.TplEventSource",
    ),
];

fn decode_common(cursor: &mut Cursor<'_>, metadata: &mut Metadata) -> Result<(), Error> {
    metadata.event_id = cursor.u32()?;
    metadata.name = cursor.utf16z()?;
    metadata.keywords = cursor.u64()?;
    metadata.version = cursor.u32()?;
    metadata.level = cursor.u32()?;
    Ok(())
}

/// Reads the next row of a V6 metadata block.
pub(crate) fn decode_v6_row(cursor: &mut Cursor<'_>) -> Result<Decoded, Error> {
    let size = cursor.u16()?;
    let mut row = cursor.part(usize::from(size))?;
    let metadata = Metadata {
        id: row.varu32()?,
        provider: row.utf8()?.into_owned(),
        event_id: row.varu32()?,
        name: row.utf8()?.into_owned(),
        ..Metadata::default()
    };
    let mut decoded = Decoded {
        metadata,
        unreadable: false,
        has_tags: false,
    };
    let mut after = row;
    match decode_fields(&mut row, Layout::V6, 0) {
        Ok(fields) => {
            decoded.metadata.fields = fields;
            after = row;
        }
        Err(_) => {
            // Every field says its size, so what follows the list is known nevertheless.
            decoded.unreadable = true;
            for _ in 0..after.u16()? {
                let size = after.u16()?;
                after.take(usize::from(size))?;
            }
        }
    }
    let size = after.u16()?;
    let mut optional = after.part(usize::from(size))?;
    let metadata = &mut decoded.metadata;
    while !optional.is_empty() {
        match optional.u8()? {
            1 => metadata.opcode = optional.u8()?,
            3 => metadata.keywords = optional.u64()?,
            4 => metadata.message_template = Some(optional.utf8()?.into_owned()),
            5 => metadata.description = Some(optional.utf8()?.into_owned()),
            6 => metadata
                .key_values
                .push((optional.utf8()?.into_owned(), optional.utf8()?.into_owned())),
            7 => metadata.provider_guid = Some(optional.guid()?),
            8 => metadata.level = u32::from(optional.u8()?),
            9 => metadata.version = u32::from(optional.u8()?),
            // Its size is not known: the rest of the row is lost, the row is good.
            _ => break,
        }
    }
    Ok(decoded)
}

/// Writes the payload of a V4 metadata record, with tags where it needs them.
pub(crate) fn encode_v4(out: &mut Vec<u8>, metadata: &Metadata) {
    put_u32(out, metadata.id);
    put_utf16z(out, &metadata.provider);
    put_u32(out, metadata.event_id);
    put_utf16z(out, &metadata.name);
    put_u64(out, metadata.keywords);
    put_u32(out, metadata.version);
    put_u32(out, metadata.level);
    let old_list = fits(&metadata.fields, Layout::V1, 0);
    let v2_params = !old_list && fits(&metadata.fields, Layout::V2, 0);
    encode_fields(
        out,
        if old_list { &metadata.fields } else { &[] },
        Layout::V1,
    );
    if metadata.opcode != 0 {
        put_u32(out, 1);
        out.extend_from_slice(&[TAG_OPCODE, metadata.opcode]);
    }
    if v2_params {
        let start = out.len();
        put_u32(out, 0);
        out.push(TAG_V2_PARAMS);
        let data = out.len();
        encode_fields(out, &metadata.fields, Layout::V2);
        let size = out.len().wrapping_sub(data) as u32;
        patch(out, start, &size.to_le_bytes());
    }
}

/// Writes a V6 row without its size.
pub(crate) fn encode_v6_row(out: &mut Vec<u8>, metadata: &Metadata) {
    put_varu64(out, u64::from(metadata.id));
    put_utf8(out, &metadata.provider);
    put_varu64(out, u64::from(metadata.event_id));
    put_utf8(out, &metadata.name);
    let fields = if fits(&metadata.fields, Layout::V6, 0) {
        metadata.fields.as_slice()
    } else {
        &[]
    };
    encode_fields(out, fields, Layout::V6);
    let start = out.len();
    put_u16(out, 0);
    if metadata.opcode != 0 {
        out.extend_from_slice(&[1, metadata.opcode]);
    }
    if metadata.keywords != 0 {
        out.push(3);
        put_u64(out, metadata.keywords);
    }
    if metadata.level != 0 {
        out.extend_from_slice(&[8, metadata.level.min(255) as u8]);
    }
    if metadata.version != 0 {
        out.extend_from_slice(&[9, metadata.version.min(255) as u8]);
    }
    if let Some(guid) = metadata.provider_guid {
        out.push(7);
        out.extend_from_slice(&guid.0);
    }
    if let Some(text) = &metadata.message_template {
        out.push(4);
        put_utf8(out, text);
    }
    if let Some(text) = &metadata.description {
        out.push(5);
        put_utf8(out, text);
    }
    for (key, value) in &metadata.key_values {
        out.push(6);
        put_utf8(out, key);
        put_utf8(out, value);
    }
    // A row that is too long is noticed by its own size.
    let size = out
        .len()
        .wrapping_sub(start)
        .wrapping_sub(2)
        .min(usize::from(u16::MAX)) as u16;
    patch(out, start, &size.to_le_bytes());
}

/// Something in a description that a format has no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Unrepresentable {
    /// The fields: a type that the format does not know, or too many of them. The event has no fields then.
    Fields,
    /// V6: a level above 255, written as 255.
    Level,
    /// V6: a version above 255, written as 255.
    Version,
    /// V4: message template, description, key-value pairs or the provider's GUID, left out.
    Annotations,
    /// V4: a name with a zero character, written up to it.
    ZeroInName,
}

/// What of a description is lost in a format.
pub fn unrepresentable(metadata: &Metadata, format: crate::WriteFormat) -> Vec<Unrepresentable> {
    let mut lost = Vec::new();
    match format {
        crate::WriteFormat::V4 => {
            if !fits(&metadata.fields, Layout::V1, 0) && !fits(&metadata.fields, Layout::V2, 0) {
                lost.push(Unrepresentable::Fields);
            }
            if metadata.message_template.is_some()
                || metadata.description.is_some()
                || metadata.provider_guid.is_some()
                || !metadata.key_values.is_empty()
            {
                lost.push(Unrepresentable::Annotations);
            }
            if metadata.provider.contains('\0') || metadata.name.contains('\0') {
                lost.push(Unrepresentable::ZeroInName);
            }
        }
        crate::WriteFormat::V6 => {
            if !fits(&metadata.fields, Layout::V6, 0) {
                lost.push(Unrepresentable::Fields);
            }
            if metadata.level > 255 {
                lost.push(Unrepresentable::Level);
            }
            if metadata.version > 255 {
                lost.push(Unrepresentable::Version);
            }
        }
    }
    lost
}
