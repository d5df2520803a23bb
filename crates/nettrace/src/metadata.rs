//! What a trace says about a type of event: the rows of metadata blocks, the same for reader and writer.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::Guid;

/// The description of one type of event (nettrace.md 5.4 and 6.2). Key everything by [`id`](Metadata::id): several
/// rows may describe the same provider and event id (nettrace.md 9).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Number of this row in its stream, from 1. In V1 and V2 it is the file offset of the defining record.
    pub id: u32,
    /// Name of the provider.
    pub provider: String,
    /// The provider's number for the event; not unique in a stream.
    pub event_id: u32,
    /// Name of the event; empty for the runtime's own events.
    pub name: String,
    /// Keywords, with the four session bits 44–47 that EventSource sets.
    pub keywords: u64,
    /// Version of the event.
    pub version: u32,
    /// 0 LogAlways, 1 Critical, 2 Error, 3 Warning, 4 Informational, 5 Verbose.
    pub level: u32,
    /// Opcode, 0 when the stream does not say.
    pub opcode: u8,
    /// The payload's fields in order; empty when unknown or none.
    pub fields: Vec<Field>,
    /// V6: message template.
    pub message_template: Option<String>,
    /// V6: description.
    pub description: Option<String>,
    /// V6: key-value pairs.
    pub key_values: Vec<(String, String)>,
    /// V6: the provider's GUID.
    pub provider_guid: Option<Guid>,
}

/// One field of a payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name, empty for the outer field of a self-describing event.
    pub name: String,
    /// Type.
    pub field_type: FieldType,
}

/// The types of nettrace.md 8.1. What each takes in the payload stands there.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the format document")]
pub enum FieldType {
    Empty,
    Object(Vec<Field>),
    Boolean,
    Char,
    SByte,
    Byte,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Single,
    Double,
    Decimal,
    DateTime,
    Guid,
    String,
    Array(Box<FieldType>),
    VarInt,
    VarUInt,
    FixedLengthArray(Box<FieldType>, u16),
    Utf8CodeUnit,
    RelLoc(Box<FieldType>),
    DataLoc(Box<FieldType>),
    Boolean8,
}

impl FieldType {
    /// The type with this code, of those that have nothing but a code: numbers, texts, times.
    pub fn of_code(code: u32) -> Option<FieldType> {
        Some(match code {
            3 => FieldType::Boolean,
            4 => FieldType::Char,
            5 => FieldType::SByte,
            6 => FieldType::Byte,
            7 => FieldType::Int16,
            8 => FieldType::UInt16,
            9 => FieldType::Int32,
            10 => FieldType::UInt32,
            11 => FieldType::Int64,
            12 => FieldType::UInt64,
            13 => FieldType::Single,
            14 => FieldType::Double,
            15 => FieldType::Decimal,
            16 => FieldType::DateTime,
            17 => FieldType::Guid,
            18 => FieldType::String,
            20 => FieldType::VarInt,
            21 => FieldType::VarUInt,
            23 => FieldType::Utf8CodeUnit,
            26 => FieldType::Boolean8,
            _ => return None,
        })
    }

    /// Its code (nettrace.md 8.1).
    pub(crate) fn code(&self) -> u8 {
        match self {
            FieldType::Empty => 0,
            FieldType::Object(_) => 1,
            FieldType::Boolean => 3,
            FieldType::Char => 4,
            FieldType::SByte => 5,
            FieldType::Byte => 6,
            FieldType::Int16 => 7,
            FieldType::UInt16 => 8,
            FieldType::Int32 => 9,
            FieldType::UInt32 => 10,
            FieldType::Int64 => 11,
            FieldType::UInt64 => 12,
            FieldType::Single => 13,
            FieldType::Double => 14,
            FieldType::Decimal => 15,
            FieldType::DateTime => 16,
            FieldType::Guid => 17,
            FieldType::String => 18,
            FieldType::Array(_) => 19,
            FieldType::VarInt => 20,
            FieldType::VarUInt => 21,
            FieldType::FixedLengthArray(..) => 22,
            FieldType::Utf8CodeUnit => 23,
            FieldType::RelLoc(_) => 24,
            FieldType::DataLoc(_) => 25,
            FieldType::Boolean8 => 26,
        }
    }
}
