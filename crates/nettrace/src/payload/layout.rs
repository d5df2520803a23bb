//! A payload description in the form that decoding wants: sizes worked out, hostile shapes refused once, so that
//! reading an event is a walk over a slice without allocation.
//!
//! Invariants that keep every walk proportional to the payload:
//! * elements of arrays, and all fields inside them, take at least one byte;
//! * located data (RelLoc, DataLoc) is never an array's element and there are at most [`MOST_LOCATED`] of it, so that
//!   one payload cannot be shown more than that many times over;
//! * nesting is at most [`DEEPEST`].

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::metadata::{Field, FieldType, Metadata};
use crate::payload::Fields;

/// Deepest nesting of types that is decoded (nettrace.md 9).
pub(crate) const DEEPEST: usize = crate::MAX_NESTING;
/// Most located fields in one description.
pub(crate) const MOST_LOCATED: usize = 64;

/// How the payload of one type of event is laid out. Made once per metadata row, used for every event.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    fields: Box<[LayoutField]>,
    /// The reading with 1-byte Boolean and 8-byte Decimal, which is how EventSource writes events in its
    /// self-describing format while describing them otherwise (nettrace.md 8.1, 8.4). Neither keywords nor the shape of
    /// the description tell these events from others, so the payload's length decides: an event is read so when this
    /// reading ends exactly at its end and the other does not.
    narrow: Option<Box<[LayoutField]>>,
}

#[derive(Clone, Debug)]
pub(crate) struct LayoutField {
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: Kind,
    /// Its value is the number of elements of the [`Count::Field`] arrays that follow.
    pub(crate) counts: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Empty,
    Boolean32,
    Boolean8,
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
    /// A pointer of the traced machine's size.
    Address32,
    Address64,
    /// UTF-16 up to a zero unit.
    String,
    /// UTF-8 up to a zero byte.
    Utf8,
    /// `u16` byte length, then UTF-8.
    CountedUtf8,
    Utf8CodeUnit,
    VarInt,
    VarUInt,
    Object(Box<Structure>),
    Array(Count, Box<Kind>),
    /// Data elsewhere in the payload; `true`: the offset counts from behind the descriptor.
    Located(bool, Box<Kind>),
}

#[derive(Clone, Debug)]
pub(crate) struct Structure {
    pub(crate) fields: Box<[LayoutField]>,
    pub(crate) fixed_size: Option<usize>,
}

impl PartialEq for Structure {
    fn eq(&self, other: &Self) -> bool {
        let kinds = |object: &Structure| -> Vec<Kind> {
            object
                .fields
                .iter()
                .map(|field| field.kind.clone())
                .collect()
        };
        kinds(self) == kinds(other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    /// A `u16` before the elements.
    Prefix,
    Fixed(u16),
    /// The last field marked [`LayoutField::counts`].
    Field,
}

impl Layout {
    /// The layout that a metadata row describes. A row whose description cannot be decoded (nested too deeply,
    /// arrays of nothing) counts as one without fields, as nettrace.md 5.4 asks for.
    pub fn new(metadata: &Metadata) -> Layout {
        let compile = |narrow| {
            let fields = Compiler { narrow, located: 0 }.fields(&metadata.fields, 0, false);
            fields.unwrap_or_default()
        };
        let narrow = any_wide(&metadata.fields, 0);
        Layout {
            fields: compile(false),
            narrow: narrow.then(|| compile(true)),
        }
    }

    pub(crate) fn from_fields(fields: Vec<LayoutField>) -> Layout {
        Layout {
            fields: fields.into(),
            narrow: None,
        }
    }

    /// Whether nothing is described: the payload is bytes.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The names of the outer fields, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_ref())
    }

    /// The fields of one payload, decoded as they are asked for.
    #[inline]
    pub fn fields<'a>(&'a self, payload: &'a [u8]) -> Fields<'a> {
        let wide = Fields::new(&self.fields, payload);
        let Some(narrow) = &self.narrow else {
            return wide;
        };
        if wide.end() == Some(payload.len()) {
            return wide;
        }
        let narrow = Fields::new(narrow, payload);
        if narrow.end() == Some(payload.len()) {
            narrow
        } else {
            wide
        }
    }
}

fn any_wide(fields: &[Field], depth: usize) -> bool {
    depth < DEEPEST && fields.iter().any(|field| is_wide(&field.field_type, depth))
}

fn is_wide(field_type: &FieldType, depth: usize) -> bool {
    match field_type {
        FieldType::Boolean | FieldType::Decimal => true,
        FieldType::Object(fields) => any_wide(fields, depth.saturating_add(1)),
        FieldType::Array(element) | FieldType::FixedLengthArray(element, _) => {
            depth < DEEPEST && is_wide(element, depth.saturating_add(1))
        }
        _ => false,
    }
}

struct Compiler {
    narrow: bool,
    located: usize,
}

impl Compiler {
    fn fields(
        &mut self,
        fields: &[Field],
        depth: usize,
        in_array: bool,
    ) -> Option<Box<[LayoutField]>> {
        fields
            .iter()
            .map(|field| {
                let kind = self.kind(&field.field_type, depth, in_array)?;
                let name = Cow::Owned(field.name.to_string());
                let bounded = !in_array || kind.least_size() > 0;
                bounded.then_some(LayoutField {
                    name,
                    kind,
                    counts: false,
                })
            })
            .collect()
    }

    fn kind(&mut self, field_type: &FieldType, depth: usize, in_array: bool) -> Option<Kind> {
        if depth > DEEPEST {
            return None;
        }
        let deeper = depth.saturating_add(1);
        Some(match field_type {
            FieldType::Empty => Kind::Empty,
            FieldType::Object(fields) => Kind::object(self.fields(fields, deeper, in_array)?),
            FieldType::Boolean if self.narrow => Kind::Boolean8,
            FieldType::Boolean => Kind::Boolean32,
            FieldType::Boolean8 => Kind::Boolean8,
            FieldType::Char => Kind::Char,
            FieldType::SByte => Kind::SByte,
            FieldType::Byte => Kind::Byte,
            FieldType::Int16 => Kind::Int16,
            FieldType::UInt16 => Kind::UInt16,
            FieldType::Int32 => Kind::Int32,
            FieldType::UInt32 => Kind::UInt32,
            FieldType::Int64 => Kind::Int64,
            FieldType::UInt64 => Kind::UInt64,
            FieldType::Single => Kind::Single,
            FieldType::Double => Kind::Double,
            FieldType::Decimal if self.narrow => Kind::Double,
            FieldType::Decimal => Kind::Decimal,
            FieldType::DateTime => Kind::DateTime,
            FieldType::Guid => Kind::Guid,
            FieldType::String => Kind::String,
            FieldType::VarInt => Kind::VarInt,
            FieldType::VarUInt => Kind::VarUInt,
            FieldType::Utf8CodeUnit => Kind::Utf8CodeUnit,
            FieldType::Array(element) => {
                Kind::Array(Count::Prefix, Box::new(self.element(element, deeper)?))
            }
            FieldType::FixedLengthArray(element, count) => Kind::Array(
                Count::Fixed(*count),
                Box::new(self.element(element, deeper)?),
            ),
            FieldType::RelLoc(element) => self.located(true, element, deeper, in_array)?,
            FieldType::DataLoc(element) => self.located(false, element, deeper, in_array)?,
        })
    }

    fn element(&mut self, element: &FieldType, depth: usize) -> Option<Kind> {
        let kind = self.kind(element, depth, true)?;
        (kind.least_size() > 0).then_some(kind)
    }

    fn located(
        &mut self,
        relative: bool,
        element: &FieldType,
        depth: usize,
        in_array: bool,
    ) -> Option<Kind> {
        self.located = self.located.saturating_add(1);
        if in_array || self.located > MOST_LOCATED {
            return None;
        }
        let kind = self.element(element, depth)?;
        kind.fixed_size()?;
        Some(Kind::Located(relative, Box::new(kind)))
    }
}

impl Kind {
    pub(crate) fn object(fields: Box<[LayoutField]>) -> Kind {
        let fixed_size = fields.iter().try_fold(0usize, |size, field| {
            size.checked_add(field.kind.fixed_size()?)
        });
        Kind::Object(Box::new(Structure { fields, fixed_size }))
    }

    /// The bytes that every value of this kind takes, `None` when they differ.
    pub(crate) fn fixed_size(&self) -> Option<usize> {
        Some(match self {
            Kind::Empty => 0,
            Kind::Boolean8 | Kind::SByte | Kind::Byte | Kind::Utf8CodeUnit => 1,
            Kind::Char | Kind::Int16 | Kind::UInt16 => 2,
            Kind::Boolean32
            | Kind::Int32
            | Kind::UInt32
            | Kind::Single
            | Kind::Address32
            | Kind::Located(..) => 4,
            Kind::Int64 | Kind::UInt64 | Kind::Double | Kind::DateTime | Kind::Address64 => 8,
            Kind::Decimal | Kind::Guid => 16,
            Kind::Object(object) => object.fixed_size?,
            Kind::Array(Count::Fixed(count), element) => {
                element.fixed_size()?.checked_mul(usize::from(*count))?
            }
            Kind::String
            | Kind::Utf8
            | Kind::CountedUtf8
            | Kind::VarInt
            | Kind::VarUInt
            | Kind::Array(..) => return None,
        })
    }

    /// The fewest bytes that a value can take.
    fn least_size(&self) -> usize {
        match self {
            Kind::String | Kind::CountedUtf8 | Kind::Array(Count::Prefix, _) => 2,
            Kind::Utf8 | Kind::VarInt | Kind::VarUInt => 1,
            Kind::Array(Count::Field, _) => 0,
            Kind::Array(Count::Fixed(count), element) => {
                element.least_size().saturating_mul(usize::from(*count))
            }
            Kind::Object(object) => object.fields.iter().fold(0usize, |size, field| {
                size.saturating_add(field.kind.least_size())
            }),
            kind => kind.fixed_size().unwrap_or(0),
        }
    }
}
