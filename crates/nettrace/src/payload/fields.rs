//! Walking over a payload. Values borrow from it; nothing is allocated, nothing is read twice but what lies inside
//! nested values of varying size, which is skipped once and read when asked for.

use core::fmt;

use crate::Guid;
use crate::payload::layout::{Count, Kind, LayoutField, Structure};
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
    Object(Object<'a>),
    /// Elements of one type.
    Array(Elements<'a>),
}

impl Value<'_> {
    /// The value as an unsigned number: integers that are not negative, booleans, characters, addresses.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::Boolean(value) => Some(u64::from(value)),
            Value::Char(value) | Value::UInt16(value) => Some(u64::from(value)),
            Value::Byte(value) => Some(u64::from(value)),
            Value::UInt32(value) => Some(u64::from(value)),
            Value::UInt64(value) | Value::Address(value) => Some(value),
            Value::SByte(value) => u64::try_from(value).ok(),
            Value::Int16(value) => u64::try_from(value).ok(),
            Value::Int32(value) => u64::try_from(value).ok(),
            Value::Int64(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The value as a signed number: of the same values those that fit.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::SByte(value) => Some(i64::from(value)),
            Value::Int16(value) => Some(i64::from(value)),
            Value::Int32(value) => Some(i64::from(value)),
            Value::Int64(value) => Some(value),
            _ => self.as_u64().and_then(|value| i64::try_from(value).ok()),
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
    cursor: Cursor<'a>,
    count: u32,
    short: bool,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn new(fields: &'a [LayoutField], payload: &'a [u8]) -> Self {
        Fields {
            fields,
            cursor: Cursor { payload, offset: 0 },
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
        self.cursor
            .payload
            .get(self.cursor.offset..)
            .unwrap_or_default()
    }

    /// The first remaining field of this name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        let mut fields = self;
        fields
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// The value of a counting field that comes next.
    #[cold]
    fn counted(&self, kind: &Kind) -> u32 {
        { self.cursor }.counted(kind).unwrap_or(0)
    }

    /// Where the last field ends; `None` when the payload runs short.
    pub(crate) fn end(self) -> Option<usize> {
        let mut cursor = self.cursor;
        cursor.skip_fields(self.fields, self.count)?;
        Some(cursor.offset)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (field, others) = self.fields.split_first()?;
        let count = self.count;
        if field.counts {
            self.count = self.counted(&field.kind);
        }
        self.fields = others;
        let read = self
            .cursor
            .read_as(&field.kind, count, |value| (field.name.as_ref(), value));
        if read.is_none() {
            self.short = true;
            self.fields = &[];
        }
        read
    }

    /// The fastest way to go over fields: `each` becomes part of the decoding of every type of value, so that values
    /// need not be passed on.
    #[inline]
    fn for_each<F: FnMut(Self::Item)>(self, mut each: F) {
        let Cursor { payload, offset } = self.cursor;
        let mut cursor = Cursor { payload, offset };
        let mut count = self.count;
        for field in self.fields {
            let counted = count;
            if field.counts {
                let mut here = cursor;
                count = here.counted(&field.kind).unwrap_or(0);
            }
            let name = field.name.as_ref();
            let read = cursor.read_as(&field.kind, counted, |value| each((name, value)));
            if read.is_none() {
                return;
            }
        }
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

/// A nested structure, decoded when it is iterated over.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    fields: &'a [LayoutField],
    cursor: Cursor<'a>,
}

impl<'a> Object<'a> {
    /// Its fields.
    #[inline]
    pub fn fields(self) -> Fields<'a> {
        Fields {
            fields: self.fields,
            cursor: self.cursor,
            count: 0,
            short: false,
        }
    }

    /// The first field of this name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.fields().get(name)
    }
}

impl<'a> IntoIterator for Object<'a> {
    type Item = (&'a str, Value<'a>);
    type IntoIter = Fields<'a>;

    fn into_iter(self) -> Fields<'a> {
        self.fields()
    }
}

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields().fmt(f)
    }
}

/// The elements of an array.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    kind: &'a Kind,
    cursor: Cursor<'a>,
    remaining: u32,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.cursor.read_as(self.kind, 0, |value| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = usize::try_from(self.remaining).unwrap_or(usize::MAX);
        (remaining, Some(remaining))
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

/// A place in a payload. All reads are checked; `None` means that the payload ends too early, and leaves the place
/// where it was.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    payload: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.payload.get(self.offset..)?.first_chunk::<N>()?;
        // No overflow: the bytes were there.
        self.offset = self.offset.wrapping_add(N);
        Some(bytes)
    }

    #[inline]
    fn advance(&mut self, length: usize) -> Option<()> {
        let end = self.offset.checked_add(length)?;
        if end > self.payload.len() {
            return None;
        }
        self.offset = end;
        Some(())
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline(always)]
    fn text(&mut self) -> Option<Utf16<'a>> {
        let (text, taken) = Utf16::terminated(self.payload.get(self.offset..)?)?;
        self.offset = self.offset.wrapping_add(taken);
        Some(text)
    }

    /// The value here, as `make` wants it. `count`: of the last counting field.
    ///
    /// Every arm makes its result in place. One value that all arms assign, made into the result afterwards, would be
    /// copied in wider pieces than it was written in, which stalls the processor at each field.
    #[inline(always)]
    fn read_as<T>(
        &mut self,
        kind: &'a Kind,
        count: u32,
        make: impl FnOnce(Value<'a>) -> T,
    ) -> Option<T> {
        match kind {
            Kind::String => Some(make(Value::String(self.text()?))),
            Kind::Int32 => Some(make(Value::Int32(i32::from_le_bytes(self.array()?)))),
            Kind::Int64 => Some(make(Value::Int64(i64::from_le_bytes(self.array()?)))),
            Kind::UInt32 => Some(make(Value::UInt32(u32::from_le_bytes(self.array()?)))),
            Kind::UInt64 => Some(make(Value::UInt64(u64::from_le_bytes(self.array()?)))),
            Kind::Double => Some(make(Value::Double(f64::from_le_bytes(self.array()?)))),
            Kind::Int16 => Some(make(Value::Int16(i16::from_le_bytes(self.array()?)))),
            Kind::UInt16 => Some(make(Value::UInt16(u16::from_le_bytes(self.array()?)))),
            Kind::Char => Some(make(Value::Char(u16::from_le_bytes(self.array()?)))),
            Kind::Byte => Some(make(Value::Byte(u8::from_le_bytes(self.array()?)))),
            Kind::Boolean8 => Some(make(Value::Boolean(self.array()? != [0u8; 1]))),
            Kind::Boolean32 => Some(make(Value::Boolean(self.array()? != [0u8; 4]))),
            Kind::Single => Some(make(Value::Single(f32::from_le_bytes(self.array()?)))),
            Kind::DateTime => Some(make(Value::DateTime(FileTime(i64::from_le_bytes(
                self.array()?,
            ))))),
            Kind::Guid => Some(make(Value::Guid(Guid(self.array()?)))),
            Kind::Address64 => Some(make(Value::Address(u64::from_le_bytes(self.array()?)))),
            _ => {
                // By value, so that this place need not be in memory for the others' sake.
                let mut here = *self;
                let value = here.read_other(kind, count)?;
                self.offset = here.offset;
                Some(make(value))
            }
        }
    }

    #[inline(never)]
    fn read_other(&mut self, kind: &'a Kind, count: u32) -> Option<Value<'a>> {
        Some(match kind {
            Kind::Address32 => Value::Address(u64::from(u32::from_le_bytes(self.array()?))),
            Kind::SByte => Value::SByte(i8::from_le_bytes(self.array()?)),
            Kind::Utf8CodeUnit => Value::Char(u16::from(u8::from_le_bytes(self.array()?))),
            Kind::Decimal => Value::Decimal(self.array()?),
            Kind::Empty => Value::Empty,
            Kind::Utf8 => {
                let bytes = self.payload.get(self.offset..)?;
                let length = bytes.iter().position(|byte| *byte == 0)?;
                self.advance(length.checked_add(1)?)?;
                Value::Utf8(bytes.get(..length)?)
            }
            Kind::CountedUtf8 => {
                let mut here = *self;
                let length = usize::from(here.u16()?);
                let start = here.offset;
                here.advance(length)?;
                *self = here;
                Value::Utf8(self.payload.get(start..self.offset)?)
            }
            Kind::VarUInt => Value::UInt64(self.leb128()?),
            Kind::VarInt => {
                let value = self.leb128()?;
                let half = i64::from_le_bytes((value >> 1).to_le_bytes());
                Value::Int64(if value & 1 == 0 { half } else { !half })
            }
            Kind::Object(structure) => {
                let object = Object {
                    fields: &structure.fields,
                    cursor: *self,
                };
                self.skip_structure(structure)?;
                Value::Object(object)
            }
            Kind::Array(how, element) => {
                let mut here = *self;
                let count = here.element_count(*how, count)?;
                let first = here;
                here.skip_elements(element, count)?;
                *self = here;
                elements(element, first, count, here.offset)?
            }
            Kind::Located(relative, element) => {
                let mut here = *self;
                let offset = usize::from(here.u16()?);
                let length = usize::from(here.u16()?);
                let base = if *relative { here.offset } else { 0 };
                let mut data = Cursor {
                    payload: self.payload,
                    offset: base.checked_add(offset)?,
                };
                let first = data;
                data.advance(length)?;
                let count = length.checked_div(element.fixed_size()?)?;
                *self = here;
                elements(element, first, u32::try_from(count).ok()?, data.offset)?
            }
            _ => return None,
        })
    }

    fn element_count(&mut self, how: Count, count: u32) -> Option<u32> {
        match how {
            Count::Prefix => self.u16().map(u32::from),
            Count::Fixed(count) => Some(u32::from(count)),
            Count::Field => Some(count),
        }
    }

    fn leb128(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0u32;
        for byte in self.payload.get(self.offset..)?.iter().take(10) {
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                return None;
            }
            value |= group.checked_shl(shift)?;
            shift = shift.checked_add(7)?;
            if byte & 0x80 == 0 {
                let taken = shift / 7;
                self.advance(usize::try_from(taken).ok()?)?;
                return Some(value);
            }
        }
        None
    }

    /// Goes behind the value here.
    fn skip(&mut self, kind: &Kind, count: u32) -> Option<()> {
        if let Some(size) = kind.fixed_size() {
            return self.advance(size);
        }
        match kind {
            Kind::String => self.text().map(drop),
            Kind::Utf8 => {
                let bytes = self.payload.get(self.offset..)?;
                self.advance(bytes.iter().position(|byte| *byte == 0)?.checked_add(1)?)
            }
            Kind::CountedUtf8 => {
                let length = usize::from(self.u16()?);
                self.advance(length)
            }
            Kind::VarInt | Kind::VarUInt => self.leb128().map(drop),
            Kind::Object(structure) => self.skip_structure(structure),
            Kind::Array(how, element) => {
                let count = self.element_count(*how, count)?;
                self.skip_elements(element, count)
            }
            _ => None,
        }
    }

    /// The value of a counting field.
    fn counted(&mut self, kind: &Kind) -> Option<u32> {
        match kind {
            Kind::UInt16 => self.u16().map(u32::from),
            _ => self.array().map(u32::from_le_bytes),
        }
    }

    fn skip_structure(&mut self, structure: &Structure) -> Option<()> {
        match structure.fixed_size {
            Some(size) => self.advance(size),
            None => self.skip_fields(&structure.fields, 0),
        }
    }

    fn skip_fields(&mut self, fields: &[LayoutField], count: u32) -> Option<()> {
        let mut here = *self;
        let mut count = count;
        for field in fields {
            if field.counts {
                count = here.counted(&field.kind)?;
            } else {
                here.skip(&field.kind, count)?;
            }
        }
        *self = here;
        Some(())
    }

    fn skip_elements(&mut self, element: &Kind, count: u32) -> Option<()> {
        if let Some(size) = element.fixed_size() {
            return self.advance(size.checked_mul(usize::try_from(count).ok()?)?);
        }
        (0..count).try_for_each(|_| self.skip(element, 0))
    }
}

/// An array as a value: bytes and text are shown as such.
fn elements<'a>(kind: &'a Kind, first: Cursor<'a>, count: u32, end: usize) -> Option<Value<'a>> {
    let bytes = first.payload.get(first.offset..end)?;
    Some(match kind {
        Kind::Byte => Value::Bytes(bytes),
        Kind::Char => Value::String(Utf16::new(bytes)),
        Kind::Utf8CodeUnit => Value::Utf8(bytes),
        _ => Value::Array(Elements {
            kind,
            cursor: first,
            remaining: count,
        }),
    })
}
