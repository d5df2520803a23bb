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
    /// Whether every described field was there.
    pub complete: bool,
}

impl From<Fields<'_>> for OwnedFields {
    fn from(mut fields: Fields<'_>) -> Self {
        let owned = fields
            .by_ref()
            .map(|(name, value)| (name.to_string(), value.into()))
            .collect();
        OwnedFields {
            fields: owned,
            rest: fields.rest().to_vec(),
            complete: fields.is_complete(),
        }
    }
}

/// The nesting is that of the layout, which is bounded.
impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
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
            Value::String(value) => OwnedValue::String(value.chars().collect()),
            Value::Utf8(value) => OwnedValue::String(String::from_utf8_lossy(value).into_owned()),
            Value::Bytes(value) => OwnedValue::Bytes(value.to_vec()),
            Value::Object(object) => OwnedValue::Object(
                object
                    .fields()
                    .map(|(name, value)| (name.to_string(), value.into()))
                    .collect(),
            ),
            Value::Array(elements) => OwnedValue::Array(elements.map(Into::into).collect()),
        }
    }
}
