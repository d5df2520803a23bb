//! What TraceEvent shows of a runtime event: a selection of the payload's fields, and values worked out from them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::row::{RuntimeEvent, Type};
use super::type_names::TypeNames;
use crate::Guid;
use crate::payload::{Fields, Utf16, Value};

/// More fields than any row has.
pub(crate) const MOST_FIELDS: usize = 24;

/// One shown value: where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// A field of the payload, by its position in this version.
    Field(&'static str, usize),
    /// A field that this version of the event lacks.
    Absent(&'static str, Option<Type>),
    Derived(&'static str, Derived),
}

/// Values that TraceEvent computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Derived {
    MethodFlags,
    OptimizationTier,
    ModuleIlFileName,
    TotalHeapSize,
    TotalPromoted,
    Depth,
    TypeName,
    FirstTypeId,
    FirstTypeName,
    CompactMechanisms,
    ExpandMechanisms,
}

impl Derived {
    fn parse(name: &str) -> Option<Derived> {
        Some(match name {
            "MethodFlags" => Derived::MethodFlags,
            "OptimizationTier" => Derived::OptimizationTier,
            "ModuleILFileName" => Derived::ModuleIlFileName,
            "TotalHeapSize" => Derived::TotalHeapSize,
            "TotalPromoted" => Derived::TotalPromoted,
            "Depth" => Derived::Depth,
            "TypeName" => Derived::TypeName,
            "TypeID_0" => Derived::FirstTypeId,
            "TypeName_0" => Derived::FirstTypeName,
            "CompactMechanisms" => Derived::CompactMechanisms,
            "ExpandMechanisms" => Derived::ExpandMechanisms,
            _ => return None,
        })
    }
}

impl Shown {
    /// What to show of version `version`.
    pub(crate) fn compile(event: &'static RuntimeEvent, version: u32) -> Box<[Shown]> {
        let all = event.fields.iter().filter(|wire| wire.is_shown());
        if event.shown.is_empty() {
            let mut seen: Vec<&str> = Vec::new();
            let names = all.map(|wire| wire.name());
            let first = names.filter(|name| {
                let new = !seen.contains(name);
                seen.push(name);
                new
            });
            return first.map(|name| Shown::one(event, version, name)).collect();
        }
        event
            .shown
            .split_whitespace()
            .map(|word| Shown::one(event, version, word))
            .collect()
    }

    fn one(event: &'static RuntimeEvent, version: u32, word: &'static str) -> Shown {
        if let Some(name) = word.strip_prefix('=') {
            return Derived::parse(name).map_or(Shown::Absent(name, None), |derived| {
                Shown::Derived(name, derived)
            });
        }
        if let Some(name) = word.strip_prefix('-') {
            return Shown::Absent(name, None);
        }
        let (name, default) = match word.strip_prefix('?') {
            Some(name) => (name, None),
            None => (word, event.type_of(word)),
        };
        match event.position(name, version) {
            Some(index) => Shown::Field(name, index),
            None => Shown::Absent(name, default),
        }
    }

    /// A word in a row's `shown` that means nothing: a slip in the table.
    #[cfg(test)]
    pub(crate) fn unknown(event: &'static RuntimeEvent) -> Option<&'static str> {
        event
            .shown
            .split_whitespace()
            .find(|word| match word.strip_prefix('=') {
                Some(name) => Derived::parse(name).is_none(),
                None => !word.starts_with(['?', '-']) && event.type_of(word).is_none(),
            })
    }
}

/// The first fields of a payload, by position.
struct Decoded<'a> {
    values: [Option<Value<'a>>; MOST_FIELDS],
    fields: Fields<'a>,
}

impl<'a> Decoded<'a> {
    fn get(&self, name: &str) -> Option<Value<'a>> {
        self.fields.get(name)
    }

    fn number(&self, name: &str) -> i64 {
        self.get(name).and_then(|value| value.as_i64()).unwrap_or(0)
    }

    /// The lower half of a number as it lies in 32 bits.
    fn bits(&self, name: &str) -> Option<u32> {
        let [a, b, c, d, ..] = self.get(name)?.as_i64()?.to_le_bytes();
        Some(u32::from_le_bytes([a, b, c, d]))
    }
}

/// Calls `visit` for each shown value; `None` is what TraceEvent shows as null.
pub(crate) fn show<'a>(
    shown: &'a [Shown],
    fields: Fields<'a>,
    process_id: u64,
    types: &'a TypeNames,
    visit: &mut dyn FnMut(&'a str, Option<Value<'a>>),
) {
    let mut decoded = Decoded {
        values: [None; MOST_FIELDS],
        fields,
    };
    let needed = shown.iter().filter_map(|one| match one {
        Shown::Field(_, index) => Some(index.saturating_add(1)),
        _ => None,
    });
    let needed = needed.max().unwrap_or(0);
    for (place, (_, value)) in decoded.values.iter_mut().take(needed).zip(fields) {
        *place = Some(value);
    }
    for one in shown {
        match *one {
            Shown::Field(name, index) => visit(name, decoded.values.get(index).copied().flatten()),
            Shown::Absent(name, of) => visit(name, of.map(zero)),
            Shown::Derived(name, derived) => {
                visit(name, derive(derived, &decoded, process_id, types))
            }
        }
    }
}

fn derive<'a>(
    derived: Derived,
    decoded: &Decoded<'a>,
    process_id: u64,
    types: &'a TypeNames,
) -> Option<Value<'a>> {
    let sum = |prefix: &[&str]| {
        prefix
            .iter()
            .fold(0i64, |sum, name| sum.wrapping_add(decoded.number(name)))
    };
    let first_type = || match decoded.get("Values")? {
        Value::Array(mut elements) => match elements.next()? {
            Value::Object(object) => Some(object),
            _ => None,
        },
        _ => None,
    };
    match derived {
        // Bits 7–9 are the tier, 28–31 the extent.
        Derived::MethodFlags => {
            let flags = decoded.bits("MethodFlags")? & !0xF000_0380;
            Some(Value::Int32(i32::from_le_bytes(flags.to_le_bytes())))
        }
        Derived::OptimizationTier => {
            let flags = decoded.bits("MethodFlags")?;
            let tier = if flags & 8 == 0 { 0 } else { (flags >> 7) & 7 };
            u8::try_from(tier).ok().map(Value::Byte)
        }
        Derived::ModuleIlFileName => match decoded.get("ModuleILPath")? {
            Value::String(path) => Some(Value::String(file_name(path))),
            _ => None,
        },
        Derived::TotalHeapSize => Some(Value::Int64(sum(&[
            "GenerationSize0",
            "GenerationSize1",
            "GenerationSize2",
            "GenerationSize3",
            "GenerationSize4",
        ]))),
        Derived::TotalPromoted => Some(Value::Int64(sum(&[
            "TotalPromotedSize0",
            "TotalPromotedSize1",
            "TotalPromotedSize2",
            "TotalPromotedSize3",
            "TotalPromotedSize4",
        ]))),
        Derived::Depth => Some(Value::Int32(if decoded.number("TotalPromotedSize2") != 0 {
            2
        } else {
            i32::from(decoded.number("TotalPromotedSize1") != 0)
        })),
        Derived::TypeName => {
            let id = decoded.get("TypeID")?.as_u64()?;
            Some(Value::Utf8(
                types.name(process_id, id).unwrap_or_default().as_bytes(),
            ))
        }
        Derived::FirstTypeId => Some(
            first_type()
                .and_then(|fields| fields.get("TypeID"))
                .unwrap_or(Value::UInt64(0)),
        ),
        Derived::FirstTypeName => {
            let name = first_type().and_then(|object| object.get("TypeName"));
            Some(name.unwrap_or(Value::Utf8(&[])))
        }
        Derived::CompactMechanisms => lowest_bit(decoded.bits("CompactMechanisms")?, 11),
        Derived::ExpandMechanisms => lowest_bit(decoded.bits("ExpandMechanisms")?, 6),
    }
}

/// The GC marks a reason as given in bit 31 and names it by another bit; 1024 stands for none.
fn lowest_bit(bits: u32, count: u32) -> Option<Value<'static>> {
    let index = bits.trailing_zeros();
    let index = if index < count { index } else { 1024 };
    i32::try_from(index).ok().map(Value::Int32)
}

/// What follows the last separator of a path. As on Linux only `/` counts.
fn file_name(path: Utf16<'_>) -> Utf16<'_> {
    let bytes = path.as_bytes();
    let units = bytes.as_chunks::<2>().0;
    let start = units.iter().rposition(|unit| *unit == [b'/', 0]);
    let start = start.map_or(0, |index| index.saturating_add(1).saturating_mul(2));
    Utf16::new(bytes.get(start..).unwrap_or_default())
}

fn zero(of: Type) -> Value<'static> {
    match of {
        Type::U8 => Value::Byte(0),
        Type::I16 | Type::U16 | Type::Count16 => Value::Int16(0),
        Type::I32 | Type::Count32 => Value::Int32(0),
        Type::U32 => Value::UInt32(0),
        Type::I64 => Value::Int64(0),
        Type::U64 | Type::VarU => Value::UInt64(0),
        Type::F64 => Value::Double(0.0),
        Type::Bool => Value::Boolean(false),
        Type::Ptr => Value::Address(0),
        Type::Str | Type::Utf8 | Type::ShortUtf8 => Value::Utf8(&[]),
        Type::Guid => Value::Guid(Guid::ZERO),
        Type::List(_) | Type::Structs(_) | Type::Octets => Value::Bytes(&[]),
    }
}
