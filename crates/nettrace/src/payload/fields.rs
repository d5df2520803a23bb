//! Walking over a payload. Values borrow from it; nothing is allocated, nothing is read twice but what lies inside
//! nested values of varying size, which is skipped once and read when asked for.

use core::fmt;

use crate::Guid;
use crate::payload::layout::{Count, Kind, LayoutField, Object};
use crate::payload::{FileTime, Utf16};

/// One decoded value, borrowing from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "most names are those of the format document")]
pub enum Value<'a> {
    Empty,
    Boolean(bool),
    /// One UTF-16 unit.
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
    /// The 16 bytes of a .NET decimal: flags, high, low, middle.
    Decimal([u8; 16]),
    DateTime(FileTime),
    Guid(Guid),
    /// A pointer of the traced machine's size.
    Address(u64),
    /// UTF-16 text.
    String(Utf16<'a>),
    /// UTF-8 text, unchecked.
    Utf8(&'a [u8]),
    /// An array of bytes.
    Bytes(&'a [u8]),
    /// Nested fields.
    Object(Fields<'a>),
    /// Elements of one type.
    Array(Elements<'a>),
}

impl Value<'_> {
    /// The value as an unsigned number, for integers, booleans, characters and addresses that are not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::Boolean(value) => Some(u64::from(value)),
            Value::Char(value) | Value::UInt16(value) => Some(u64::from(value)),
            Value::Byte(value) => Some(u64::from(value)),
            Value::UInt32(value) => Some(u64::from(value)),
            Value::UInt64(value) | Value::Address(value) => Some(value),
            _ => u64::try_from(self.as_i64()?).ok(),
        }
    }

    /// The value as a signed number, for integers that fit.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::SByte(value) => Some(i64::from(value)),
            Value::Int16(value) => Some(i64::from(value)),
            Value::Int32(value) => Some(i64::from(value)),
            Value::Int64(value) => Some(value),
            _ => i64::try_from(self.as_u64_unsigned()?).ok(),
        }
    }

    fn as_u64_unsigned(&self) -> Option<u64> {
        match *self {
            Value::Boolean(value) => Some(u64::from(value)),
            Value::Char(value) | Value::UInt16(value) => Some(u64::from(value)),
            Value::Byte(value) => Some(u64::from(value)),
            Value::UInt32(value) => Some(u64::from(value)),
            Value::UInt64(value) | Value::Address(value) => Some(value),
            _ => None,
        }
    }

    /// The value as a floating-point number, for all numbers.
    #[expect(
        clippy::cast_precision_loss,
        reason = "documented: a double of the same magnitude"
    )]
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Single(value) => Some(f64::from(value)),
            Value::Double(value) => Some(value),
            Value::UInt64(value) | Value::Address(value) => Some(value as f64),
            _ => self.as_i64().map(|value| value as f64),
        }
    }
}

/// The fields of a payload or of a nested object, in order. Iteration ends early where the payload ends before its
/// description does; [`is_complete`](Fields::is_complete) and [`rest`](Fields::rest) tell.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    fields: &'a [LayoutField],
    payload: &'a [u8],
    offset: usize,
    pointer_size: usize,
    count: usize,
    short: bool,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn new(fields: &'a [LayoutField], payload: &'a [u8], pointer_size: usize) -> Self {
        Fields {
            fields,
            payload,
            offset: 0,
            pointer_size,
            count: 0,
            short: false,
        }
    }

    /// False once a field was described but its bytes were not there.
    pub fn is_complete(&self) -> bool {
        !self.short
    }

    /// The bytes behind the fields read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.payload.get(self.offset..).unwrap_or_default()
    }

    /// The first remaining field of this name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        let mut fields = self;
        fields
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// Where the last field ends; `None` when the payload runs short.
    pub(crate) fn end(mut self) -> Option<usize> {
        let mut cursor = Cursor {
            payload: self.payload,
            pointer_size: self.pointer_size,
        };
        for field in self.fields {
            let next = cursor.skip(&field.kind, self.offset, self.count)?;
            if field.counts {
                self.count = cursor.number(&field.kind, self.offset)?;
            }
            self.offset = next;
        }
        Some(self.offset)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.short {
            return None;
        }
        let (field, others) = self.fields.split_first()?;
        let mut cursor = Cursor {
            payload: self.payload,
            pointer_size: self.pointer_size,
        };
        let Some((value, next)) = cursor.read(&field.kind, self.offset, self.count) else {
            self.short = true;
            return None;
        };
        if field.counts {
            self.count = cursor.number(&field.kind, self.offset).unwrap_or(0);
        }
        self.offset = next;
        self.fields = others;
        Some((field.name.as_ref(), value))
    }
}

/// Two runs of fields are equal when their names and values are.
impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(*self).finish()
    }
}

/// The elements of an array.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    kind: &'a Kind,
    payload: &'a [u8],
    offset: usize,
    remaining: usize,
    pointer_size: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let mut cursor = Cursor {
            payload: self.payload,
            pointer_size: self.pointer_size,
        };
        let (value, next) = cursor.read(self.kind, self.offset, 0)?;
        self.offset = next;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Elements<'_> {}

impl PartialEq for Elements<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl fmt::Debug for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// A payload and how wide its pointers are. All reads are checked; `None` means that the payload ends too early.
struct Cursor<'a> {
    payload: &'a [u8],
    pointer_size: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.payload.get(offset..)?.first_chunk::<N>().copied()
    }

    #[inline]
    fn slice(&self, offset: usize, length: usize) -> Option<&'a [u8]> {
        self.payload.get(offset..offset.checked_add(length)?)
    }

    #[inline]
    fn pointer(&self, offset: usize) -> Option<u64> {
        if self.pointer_size == 4 {
            Some(u64::from(u32::from_le_bytes(self.array(offset)?)))
        } else {
            Some(u64::from_le_bytes(self.array(offset)?))
        }
    }

    /// An integer field that counts elements.
    fn number(&self, kind: &Kind, offset: usize) -> Option<usize> {
        match kind {
            Kind::Int16 | Kind::UInt16 => {
                Some(usize::from(u16::from_le_bytes(self.array(offset)?)))
            }
            Kind::Int32 | Kind::UInt32 => {
                usize::try_from(u32::from_le_bytes(self.array(offset)?)).ok()
            }
            _ => None,
        }
    }

    /// The value at `offset` and where the next one begins.
    #[inline]
    fn read(&mut self, kind: &'a Kind, offset: usize, count: usize) -> Option<(Value<'a>, usize)> {
        macro_rules! fixed {
            ($n:literal, $make:expr) => {
                Some(($make(self.array::<$n>(offset)?), offset.checked_add($n)?))
            };
        }
        match kind {
            Kind::String => {
                let (text, taken) = Utf16::terminated(self.payload.get(offset..)?)?;
                Some((Value::String(text), offset.checked_add(taken)?))
            }
            Kind::Int32 => fixed!(4, |b| Value::Int32(i32::from_le_bytes(b))),
            Kind::Int64 => fixed!(8, |b| Value::Int64(i64::from_le_bytes(b))),
            Kind::UInt32 => fixed!(4, |b| Value::UInt32(u32::from_le_bytes(b))),
            Kind::UInt64 => fixed!(8, |b| Value::UInt64(u64::from_le_bytes(b))),
            Kind::Double => fixed!(8, |b| Value::Double(f64::from_le_bytes(b))),
            Kind::Int16 => fixed!(2, |b| Value::Int16(i16::from_le_bytes(b))),
            Kind::UInt16 => fixed!(2, |b| Value::UInt16(u16::from_le_bytes(b))),
            Kind::Char => fixed!(2, |b| Value::Char(u16::from_le_bytes(b))),
            Kind::Byte => fixed!(1, |[b]: [u8; 1]| Value::Byte(b)),
            Kind::Utf8CodeUnit => fixed!(1, |[b]: [u8; 1]| Value::Char(u16::from(b))),
            Kind::SByte => fixed!(1, |b| Value::SByte(i8::from_le_bytes(b))),
            Kind::Boolean8 => fixed!(1, |[b]: [u8; 1]| Value::Boolean(b != 0)),
            Kind::Boolean32 => fixed!(4, |b: [u8; 4]| Value::Boolean(b != [0; 4])),
            Kind::Single => fixed!(4, |b| Value::Single(f32::from_le_bytes(b))),
            Kind::Decimal => fixed!(16, Value::Decimal),
            Kind::DateTime => fixed!(8, |b| Value::DateTime(FileTime(i64::from_le_bytes(b)))),
            Kind::Guid => fixed!(16, |b| Value::Guid(Guid(b))),
            Kind::Empty => Some((Value::Empty, offset)),
            _ => self.read_varying(kind, offset, count),
        }
    }

    fn read_varying(
        &mut self,
        kind: &'a Kind,
        offset: usize,
        count: usize,
    ) -> Option<(Value<'a>, usize)> {
        match kind {
            Kind::Pointer => {
                let value = Value::Address(self.pointer(offset)?);
                Some((value, offset.checked_add(self.pointer_size)?))
            }
            Kind::Utf8 => {
                let bytes = self.payload.get(offset..)?;
                let length = bytes.iter().position(|byte| *byte == 0)?;
                let next = offset.checked_add(length)?.checked_add(1)?;
                Some((Value::Utf8(bytes.get(..length)?), next))
            }
            Kind::CountedUtf8 => {
                let length = usize::from(u16::from_le_bytes(self.array(offset)?));
                let start = offset.checked_add(2)?;
                Some((
                    Value::Utf8(self.slice(start, length)?),
                    start.checked_add(length)?,
                ))
            }
            Kind::VarUInt => {
                let (value, next) = self.leb128(offset)?;
                Some((Value::UInt64(value), next))
            }
            Kind::VarInt => {
                let (value, next) = self.leb128(offset)?;
                let half = i64::from_le_bytes((value >> 1).to_le_bytes());
                let value = if value & 1 == 0 { half } else { !half };
                Some((Value::Int64(value), next))
            }
            Kind::Object(object) => {
                let next = self.skip_object(object, offset)?;
                let fields = Fields {
                    fields: &object.fields,
                    payload: self.payload,
                    offset,
                    pointer_size: self.pointer_size,
                    count: 0,
                    short: false,
                };
                Some((Value::Object(fields), next))
            }
            Kind::Array(how, element) => {
                let (count, start) = self.element_count(*how, offset, count)?;
                let next = self.skip_elements(element, start, count)?;
                Some((self.elements(element, start, count, next)?, next))
            }
            Kind::Located(relative, element) => {
                let next = offset.checked_add(4)?;
                let [low, high, size_low, size_high] = self.array::<4>(offset)?;
                let length = usize::from(u16::from_le_bytes([size_low, size_high]));
                let base = if *relative { next } else { 0 };
                let start = base.checked_add(usize::from(u16::from_le_bytes([low, high])))?;
                let end = start.checked_add(length)?;
                self.slice(start, length)?;
                let count = length.checked_div(element.fixed_size()?)?;
                Some((self.elements(element, start, count, end)?, next))
            }
            _ => None,
        }
    }

    /// An array as a value: bytes and text are shown as such.
    fn elements(
        &self,
        kind: &'a Kind,
        offset: usize,
        remaining: usize,
        end: usize,
    ) -> Option<Value<'a>> {
        let bytes = self.payload.get(offset..end)?;
        Some(match kind {
            Kind::Byte => Value::Bytes(bytes),
            Kind::Char => Value::String(Utf16::new(bytes)),
            Kind::Utf8CodeUnit => Value::Utf8(bytes),
            _ => Value::Array(Elements {
                kind,
                payload: self.payload,
                offset,
                remaining,
                pointer_size: self.pointer_size,
            }),
        })
    }

    fn element_count(&self, how: Count, offset: usize, count: usize) -> Option<(usize, usize)> {
        match how {
            Count::Prefix => {
                let count = usize::from(u16::from_le_bytes(self.array(offset)?));
                Some((count, offset.checked_add(2)?))
            }
            Count::Fixed(count) => Some((usize::from(count), offset)),
            Count::Field => Some((count, offset)),
        }
    }

    fn leb128(&self, offset: usize) -> Option<(u64, usize)> {
        let mut value = 0u64;
        for (index, byte) in self.payload.get(offset..)?.iter().take(10).enumerate() {
            let group = u64::from(byte & 0x7f);
            let shift = u32::try_from(index).ok()?.checked_mul(7)?;
            if shift == 63 && group > 1 {
                return None;
            }
            value |= group.checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some((value, offset.checked_add(index)?.checked_add(1)?));
            }
        }
        None
    }

    /// Where the value at `offset` ends.
    fn skip(&mut self, kind: &Kind, offset: usize, count: usize) -> Option<usize> {
        if let Some(size) = kind.fixed_size() {
            let end = offset.checked_add(size)?;
            return (end <= self.payload.len()).then_some(end);
        }
        match kind {
            Kind::Pointer => self.skip_bytes(offset, self.pointer_size),
            Kind::String => {
                let (_, taken) = Utf16::terminated(self.payload.get(offset..)?)?;
                offset.checked_add(taken)
            }
            Kind::Utf8 => {
                let length = self
                    .payload
                    .get(offset..)?
                    .iter()
                    .position(|byte| *byte == 0)?;
                offset.checked_add(length)?.checked_add(1)
            }
            Kind::CountedUtf8 => {
                let length = usize::from(u16::from_le_bytes(self.array(offset)?));
                self.skip_bytes(offset, length.checked_add(2)?)
            }
            Kind::VarInt | Kind::VarUInt => self.leb128(offset).map(|(_, next)| next),
            Kind::Object(object) => self.skip_object(object, offset),
            Kind::Array(how, element) => {
                let (count, start) = self.element_count(*how, offset, count)?;
                self.skip_elements(element, start, count)
            }
            _ => None,
        }
    }

    fn skip_bytes(&self, offset: usize, length: usize) -> Option<usize> {
        let end = offset.checked_add(length)?;
        (end <= self.payload.len()).then_some(end)
    }

    fn skip_object(&mut self, object: &Object, offset: usize) -> Option<usize> {
        if let Some(size) = object.fixed_size {
            return self.skip_bytes(offset, size);
        }
        let mut at = offset;
        let mut count = 0;
        for field in &object.fields {
            let next = self.skip(&field.kind, at, count)?;
            if field.counts {
                count = self.number(&field.kind, at)?;
            }
            at = next;
        }
        Some(at)
    }

    fn skip_elements(&mut self, element: &Kind, start: usize, count: usize) -> Option<usize> {
        let size = match element {
            Kind::Pointer => Some(self.pointer_size),
            kind => kind.fixed_size(),
        };
        if let Some(size) = size {
            return self.skip_bytes(start, size.checked_mul(count)?);
        }
        let mut at = start;
        for _ in 0..count {
            at = self.skip(element, at, 0)?;
        }
        Some(at)
    }
}
