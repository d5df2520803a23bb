//! Values that outlive the block they were read from.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::Guid;
use crate::payload::{Fields, FileTime, Value};

/// One decoded value with everything it holds. For speed and bounded memory prefer [`Value`]; this is for events
/// that are kept.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "as in Value")]
pub enum OwnedValue {
    Empty,
    Boolean(bool),
    Char(u16),
    SByte(i8),
    Byte(u8),
    Int16(i16),
    UInt16(u16),
    Int32(i32),
    UInt32(u32),
    Int64(i64),
    UInt64(u64),
    Single(f32),
    Double(f64),
    Decimal([u8; 16]),
    DateTime(FileTime),
    Guid(Guid),
    Address(u64),
    String(String),
    Bytes(Vec<u8>),
    Object(Vec<(String, OwnedValue)>),
    Array(Vec<OwnedValue>),
}

/// All fields of a payload, and the bytes that no field describes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedFields {
    /// Names and values in order.
    pub fields: Vec<(String, OwnedValue)>,
    /// What lies behind the last field that could be read.
    pub rest: Vec<u8>,
    /// Whether every described field was there (and small enough to be copied: names that an array repeats can make a
    /// payload a thousand times larger).
    pub complete: bool,
}

/// More memory than this plus [`PER_BYTE`] times the payload one event's values do not take: a description can repeat
/// a long name for every element of an array, or show the same bytes several times.
const MOST_MEMORY: usize = 1 << 20;
const PER_BYTE: usize = 256;

impl OwnedFields {
    /// Copies the fields of a payload.
    pub fn new(mut fields: Fields<'_>) -> OwnedFields {
        let mut memory = Memory(
            fields
                .rest()
                .len()
                .saturating_mul(PER_BYTE)
                .saturating_add(MOST_MEMORY),
        );
        let owned = object(&mut fields, &mut memory);
        let complete = fields.is_complete() && !memory.is_used_up();
        OwnedFields {
            fields: owned,
            rest: fields.rest().to_vec(),
            complete,
        }
    }
}

impl From<Fields<'_>> for OwnedFields {
    fn from(fields: Fields<'_>) -> Self {
        OwnedFields::new(fields)
    }
}

/// What may still be used.
struct Memory(usize);

impl Memory {
    fn take(&mut self, bytes: usize) -> bool {
        let own = core::mem::size_of::<(String, OwnedValue)>();
        self.0 = self.0.saturating_sub(bytes.saturating_add(own));
        self.0 > 0
    }

    fn is_used_up(&self) -> bool {
        self.0 == 0
    }
}

fn object(fields: &mut Fields<'_>, memory: &mut Memory) -> Vec<(String, OwnedValue)> {
    let mut owned = Vec::new();
    while let Some((name, value)) = (!memory.is_used_up()).then(|| fields.next()).flatten() {
        if memory.take(name.len()) {
            owned.push((name.to_string(), value_of(value, memory)));
        }
    }
    owned
}

/// The nesting is that of the layout, which is bounded.
fn value_of(value: Value<'_>, memory: &mut Memory) -> OwnedValue {
    match value {
        Value::Empty => OwnedValue::Empty,
        Value::Boolean(value) => OwnedValue::Boolean(value),
        Value::Char(value) => OwnedValue::Char(value),
        Value::SByte(value) => OwnedValue::SByte(value),
        Value::Byte(value) => OwnedValue::Byte(value),
        Value::Int16(value) => OwnedValue::Int16(value),
        Value::UInt16(value) => OwnedValue::UInt16(value),
        Value::Int32(value) => OwnedValue::Int32(value),
        Value::UInt32(value) => OwnedValue::UInt32(value),
        Value::Int64(value) => OwnedValue::Int64(value),
        Value::UInt64(value) => OwnedValue::UInt64(value),
        Value::Single(value) => OwnedValue::Single(value),
        Value::Double(value) => OwnedValue::Double(value),
        Value::Decimal(value) => OwnedValue::Decimal(value),
        Value::DateTime(value) => OwnedValue::DateTime(value),
        Value::Guid(value) => OwnedValue::Guid(value),
        Value::Address(value) => OwnedValue::Address(value),
        Value::String(value) => {
            memory.take(value.as_bytes().len());
            OwnedValue::String(value.chars().collect())
        }
        Value::Utf8(value) => {
            memory.take(value.len());
            OwnedValue::String(String::from_utf8_lossy(value).into_owned())
        }
        Value::Bytes(value) => {
            memory.take(value.len());
            OwnedValue::Bytes(value.to_vec())
        }
        Value::Object(fields) => OwnedValue::Object(object(&mut fields.fields(), memory)),
        Value::Array(elements) => {
            let mut owned = Vec::new();
            for element in elements {
                if !memory.take(0) {
                    break;
                }
                owned.push(value_of(element, memory));
            }
            OwnedValue::Array(owned)
        }
    }
}
