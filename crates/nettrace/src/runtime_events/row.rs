//! The shape of a row in the tables, and the short words they are written with.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::payload::{Count, Kind, Layout, LayoutField};

/// One of the runtimes' own events: its name and what its payload holds.
#[derive(Debug)]
pub struct RuntimeEvent {
    pub(crate) id: u32,
    pub(crate) template: &'static str,
    pub(crate) task: &'static str,
    pub(crate) opcode: u8,
    pub(crate) opcode_name: &'static str,
    pub(crate) fields: &'static [Wire],
    pub(crate) shown: &'static str,
}

impl RuntimeEvent {
    /// The name of the class that stands for the event in the TraceEvent library; empty when it has none.
    pub fn template(&self) -> &'static str {
        self.template
    }

    /// The opcode that TraceEvent gives to the event. The stream has none for these events.
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// All that lies in the payload of a given version of the event. Names are TraceEvent's where it has one, else
    /// those of the runtime's manifest.
    pub fn layout(&self, version: u32, pointer_size: u32) -> Layout {
        Layout::from_fields(compile(self.fields, version, pointer_size))
    }

    /// The place of a field among those of version `version`.
    pub(crate) fn position(&self, name: &str, version: u32) -> Option<usize> {
        let mut present = self.fields.iter().filter(|wire| wire.is_in(version));
        present.position(|wire| wire.name == name)
    }

    pub(crate) fn type_of(&self, name: &str) -> Option<Type> {
        self.fields
            .iter()
            .find(|wire| wire.name == name)
            .map(|wire| wire.of)
    }
}

/// A field as it lies in the payload of versions `from` up to, but not including, `before`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    name: &'static str,
    of: Type,
    from: u32,
    before: u32,
}

impl Wire {
    fn is_in(&self, version: u32) -> bool {
        (self.from..self.before).contains(&version)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether TraceEvent shows such a field: it leaves arrays out.
    pub(crate) fn is_shown(&self) -> bool {
        !matches!(self.of, Type::List(_) | Type::Structs(_) | Type::Octets)
    }
}

/// Types of fields. Signs are those that TraceEvent shows, not the manifest's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F64,
    Bool,
    Ptr,
    Str,
    Utf8,
    Guid,
    /// Counts the elements of the arrays that follow.
    Count16,
    /// The same.
    Count32,
    /// As many of these as the count before says.
    List(&'static Type),
    /// The same with structures.
    Structs(&'static [Wire]),
    /// Bytes, as many as the count before says.
    Octets,
    /// A `u16` byte length and UTF-8.
    ShortUtf8,
    VarU,
}

pub(crate) const fn w(name: &'static str, of: Type) -> Wire {
    Wire {
        name,
        of,
        from: 0,
        before: u32::MAX,
    }
}

pub(crate) const fn since(from: u32, name: &'static str, of: Type) -> Wire {
    Wire {
        name,
        of,
        from,
        before: u32::MAX,
    }
}

pub(crate) const fn before(before: u32, name: &'static str, of: Type) -> Wire {
    Wire {
        name,
        of,
        from: 0,
        before,
    }
}

pub(crate) const CLR: Wire = w("ClrInstanceID", Type::I16);
pub(crate) const CLR1: Wire = since(1, "ClrInstanceID", Type::I16);

/// `shown`: names in TraceEvent's order, empty for all scalars in the payload's order. `?name` is null instead of
/// zero in versions that lack it, `-name` is always null, `=name` is worked out from other fields.
pub(crate) const fn row(
    id: u32,
    template: &'static str,
    task: &'static str,
    opcode: u8,
    opcode_name: &'static str,
    fields: &'static [Wire],
    shown: &'static str,
) -> RuntimeEvent {
    RuntimeEvent {
        id,
        template,
        task,
        opcode,
        opcode_name,
        fields,
        shown,
    }
}

fn compile(fields: &[Wire], version: u32, pointer_size: u32) -> Vec<LayoutField> {
    let present = fields.iter().filter(|wire| wire.is_in(version));
    present
        .map(|wire| LayoutField {
            name: Cow::Borrowed(wire.name),
            kind: wire.of.kind(version, pointer_size),
            counts: matches!(wire.of, Type::Count16 | Type::Count32),
        })
        .collect()
}

impl Type {
    fn kind(self, version: u32, pointer_size: u32) -> Kind {
        match self {
            Type::U8 => Kind::Byte,
            Type::I16 => Kind::Int16,
            Type::U16 | Type::Count16 => Kind::UInt16,
            Type::I32 | Type::Count32 => Kind::Int32,
            Type::U32 => Kind::UInt32,
            Type::I64 => Kind::Int64,
            Type::U64 => Kind::UInt64,
            Type::F64 => Kind::Double,
            Type::Bool => Kind::Boolean32,
            Type::Ptr if pointer_size == 4 => Kind::Address32,
            Type::Ptr => Kind::Address64,
            Type::Str => Kind::String,
            Type::Utf8 => Kind::Utf8,
            Type::Guid => Kind::Guid,
            Type::ShortUtf8 => Kind::CountedUtf8,
            Type::VarU => Kind::VarUInt,
            Type::Octets => Kind::Array(Count::Field, Box::new(Kind::Byte)),
            Type::List(element) => {
                Kind::Array(Count::Field, Box::new(element.kind(version, pointer_size)))
            }
            Type::Structs(fields) => {
                let fields = compile(fields, version, pointer_size).into();
                Kind::Array(Count::Field, Box::new(Kind::object(fields)))
            }
        }
    }
}
