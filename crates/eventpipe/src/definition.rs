//! What an event is, for readers and for filters: id, version, level, keywords, opcode, fields.

use alloc::string::String;
use alloc::vec::Vec;

#[cfg(feature = "netperf")]
use nettrace::NetPerfWriter;
use nettrace::{Field, Metadata, TraceWriter, WriteError};

use crate::argument::FieldKind;

/// How important an event is; a session asks for all events up to a level (engine.md 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Wanted by every session of the provider.
    LogAlways = 0,
    /// A fault that ends the program.
    Critical = 1,
    /// A fault.
    Error = 2,
    /// Something suspicious.
    Warning = 3,
    /// The normal course of things.
    Informational = 4,
    /// Details.
    Verbose = 5,
}

impl Level {
    /// The level of a number, numbers above 5 being [`Level::Verbose`].
    pub fn from_number(number: u32) -> Level {
        match number {
            0 => Level::LogAlways,
            1 => Level::Critical,
            2 => Level::Error,
            3 => Level::Warning,
            4 => Level::Informational,
            _ => Level::Verbose,
        }
    }
}

/// What step of an operation an event stands for. Readers pair events by `Start` and `Stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Nothing special.
    pub const INFO: Opcode = Opcode(0);
    /// An operation begins.
    pub const START: Opcode = Opcode(1);
    /// An operation ends.
    pub const STOP: Opcode = Opcode(2);
    /// The state when collection starts.
    pub const DATA_COLLECTION_START: Opcode = Opcode(3);
    /// The state when collection ends.
    pub const DATA_COLLECTION_STOP: Opcode = Opcode(4);
    /// An operation was extended.
    pub const EXTENSION: Opcode = Opcode(5);
    /// An answer to an operation.
    pub const REPLY: Opcode = Opcode(6);
    /// An operation goes on after a pause.
    pub const RESUME: Opcode = Opcode(7);
    /// An operation pauses.
    pub const SUSPEND: Opcode = Opcode(8);
    /// An activity is handed over.
    pub const SEND: Opcode = Opcode(9);
    /// An activity was taken over.
    pub const RECEIVE: Opcode = Opcode(240);
}

/// One field of an event's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldDescription {
    /// Name as readers show it.
    pub name: &'static str,
    /// Type.
    pub kind: FieldKind,
}

impl FieldDescription {
    fn field(&self) -> Field {
        Field {
            name: String::from(self.name),
            field_type: self.kind.field_type(),
        }
    }
}

/// What is known about an event before it is written. Made by [`provider!`](crate::provider) or by hand:
///
/// ```
/// use eventpipe::{Definition, Level, Opcode};
///
/// const STARTED: Definition = Definition::new("RequestStart").id(1).level(Level::Informational).opcode(Opcode::START);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub(crate) id: u32,
    pub(crate) name: &'static str,
    pub(crate) keywords: u64,
    pub(crate) level: Level,
    pub(crate) opcode: Opcode,
    pub(crate) version: u32,
    pub(crate) stack: bool,
    fields: Fields,
    /// Tells a trace of the event. A function that goes with the fields, and not a match over them, so that a program which never types
    /// its fields does not contain what encodes types: 3 KB (docs/nativeaot.md).
    describe: Describe,
}

/// Describes an event under that metadata id, as one of that provider.
type Describe = fn(&Definition, &mut TraceWriter, u32, &str) -> Result<(), WriteError>;

/// The fields of a definition: those of the typed API, or any description of the format.
#[derive(Clone, Copy, Debug)]
enum Fields {
    Typed(&'static [FieldDescription]),
    Described(&'static [Field]),
    Encoded(&'static [u8]),
}

/// Bits that EventSource puts into keywords for its own sessions. They take no part in filters (engine.md 2, "reserved
/// keyword bits"), except when a provider asks for all keywords.
const RESERVED_KEYWORDS: u64 = 0x0000_F000_0000_0000;

impl Definition {
    /// An event of this name: id 0, version 0, no keywords, level informational, with stack, without fields.
    pub const fn new(name: &'static str) -> Self {
        Definition {
            id: 0,
            name,
            keywords: 0,
            level: Level::Informational,
            opcode: Opcode::INFO,
            version: 0,
            stack: true,
            fields: Fields::Typed(&[]),
            describe: Definition::describe_bare,
        }
    }

    /// The provider's number for the event, from 1. Event-id filters name it, and readers tell events apart by it: each event of a
    /// provider needs its own.
    #[must_use]
    pub const fn id(mut self, id: u32) -> Self {
        self.id = id;
        self
    }

    /// Another name than the one given first.
    #[must_use]
    pub const fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Groups the event belongs to; a session gets it when it asks for one of them. 0 = every session of the provider.
    /// Bits 44–47 are reserved and are dropped, unless all bits are set.
    #[must_use]
    pub const fn keywords(mut self, keywords: u64) -> Self {
        self.keywords = if keywords == u64::MAX {
            keywords
        } else {
            keywords & !RESERVED_KEYWORDS
        };
        self
    }

    /// Level.
    #[must_use]
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Opcode.
    #[must_use]
    pub const fn opcode(mut self, opcode: Opcode) -> Self {
        self.opcode = opcode;
        self
    }

    /// Version of the field list.
    #[must_use]
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Whether a call stack is taken with the event, for sessions that ask for stacks.
    #[must_use]
    pub const fn stack(mut self, stack: bool) -> Self {
        self.stack = stack;
        self
    }

    /// The payload's fields, for events written by [`Event::write`](crate::Event::write).
    #[must_use]
    pub const fn fields(mut self, fields: &'static [FieldDescription]) -> Self {
        self.fields = Fields::Typed(fields);
        self.describe = Definition::describe_typed;
        self
    }

    /// The payload's fields as the trace format describes them, for events written by
    /// [`Event::write_payload`](crate::Event::write_payload): any type of nettrace.md 8.1.
    #[must_use]
    pub const fn described(mut self, fields: &'static [Field]) -> Self {
        self.fields = Fields::Described(fields);
        self.describe = Definition::describe_described;
        self
    }

    /// The whole description as a runtime keeps it: what a metadata record of the trace format V4 holds after the metadata id and
    /// the provider's name (nettrace.md 5.4). Traces get it as it is; filters go by this definition's own values.
    #[must_use]
    pub const fn encoded(mut self, description: &'static [u8]) -> Self {
        self.fields = Fields::Encoded(description);
        self.describe = Definition::describe_encoded;
        self
    }

    /// What [`id`](Self::id) set.
    pub const fn event_id(&self) -> u32 {
        self.id
    }

    pub(crate) fn accepts(&self, kinds: &[FieldKind]) -> bool {
        match self.fields {
            Fields::Typed(fields) => {
                fields.len() == kinds.len()
                    && fields
                        .iter()
                        .zip(kinds)
                        .all(|(field, kind)| field.kind == *kind)
            }
            Fields::Described(_) | Fields::Encoded(_) => false,
        }
    }

    /// Tells a trace of the event.
    pub(crate) fn define(
        &self,
        writer: &mut TraceWriter,
        metadata_id: u32,
        provider: &str,
    ) -> Result<(), WriteError> {
        (self.describe)(self, writer, metadata_id, provider)
    }

    /// Tells a trace of version 3 of the event.
    #[cfg(feature = "netperf")]
    pub(crate) fn define_netperf(
        &self,
        writer: &mut NetPerfWriter,
        metadata_id: u32,
        provider: &str,
    ) {
        let fields = match self.fields {
            Fields::Typed(fields) => fields.iter().map(FieldDescription::field).collect(),
            Fields::Described(fields) => fields.to_vec(),
            Fields::Encoded(description) => {
                return writer.define_encoded(metadata_id, provider, description);
            }
        };
        writer.define_event(&self.metadata(metadata_id, provider, fields));
    }

    fn describe_bare(
        &self,
        writer: &mut TraceWriter,
        metadata_id: u32,
        provider: &str,
    ) -> Result<(), WriteError> {
        let description = self.description(&[]);
        writer.define_encoded(metadata_id, provider, &description)
    }

    fn describe_encoded(
        &self,
        writer: &mut TraceWriter,
        metadata_id: u32,
        provider: &str,
    ) -> Result<(), WriteError> {
        let description = match self.fields {
            Fields::Encoded(description) => description,
            Fields::Typed(_) | Fields::Described(_) => &[],
        };
        writer.define_encoded(metadata_id, provider, description)
    }

    fn describe_typed(
        &self,
        writer: &mut TraceWriter,
        metadata_id: u32,
        provider: &str,
    ) -> Result<(), WriteError> {
        let fields = match self.fields {
            Fields::Typed(fields) => fields,
            Fields::Described(_) | Fields::Encoded(_) => &[],
        };
        let fields = fields.iter().map(FieldDescription::field).collect();
        writer.define_event(&self.metadata(metadata_id, provider, fields))
    }

    fn describe_described(
        &self,
        writer: &mut TraceWriter,
        metadata_id: u32,
        provider: &str,
    ) -> Result<(), WriteError> {
        let fields = match self.fields {
            Fields::Described(fields) => fields.to_vec(),
            Fields::Typed(_) | Fields::Encoded(_) => Vec::new(),
        };
        writer.define_event(&self.metadata(metadata_id, provider, fields))
    }

    pub(crate) fn metadata_of(&self, provider: &str) -> Metadata {
        let fields = match self.fields {
            Fields::Typed(fields) => fields.iter().map(FieldDescription::field).collect(),
            Fields::Described(fields) => fields.to_vec(),
            Fields::Encoded(_) => Vec::new(),
        };
        self.metadata(0, provider, fields)
    }

    fn metadata(&self, id: u32, provider: &str, fields: Vec<Field>) -> Metadata {
        Metadata {
            id,
            provider: String::from(provider),
            event_id: self.id,
            name: String::from(self.name),
            keywords: self.keywords,
            version: self.version,
            level: u32::from(self.level as u8),
            opcode: self.opcode.0,
            fields,
            ..Metadata::default()
        }
    }

    /// The description as a runtime would keep it (nettrace.md 5.4), with fields that are all texts.
    pub(crate) fn description(&self, texts: &[&str]) -> Vec<u8> {
        const STRING: u32 = 18;
        const OPCODE: u8 = 1;
        fn put_text(out: &mut Vec<u8>, text: &str) {
            for unit in text.encode_utf16().chain([0]) {
                out.extend_from_slice(&unit.to_le_bytes());
            }
        }
        let mut out = Vec::new();
        out.extend_from_slice(&self.id.to_le_bytes());
        put_text(&mut out, self.name);
        out.extend_from_slice(&self.keywords.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&u32::from(self.level as u8).to_le_bytes());
        out.extend_from_slice(&(texts.len() as u32).to_le_bytes());
        for text in texts {
            out.extend_from_slice(&STRING.to_le_bytes());
            put_text(&mut out, text);
        }
        if self.opcode != Opcode::INFO {
            out.extend_from_slice(&[1, 0, 0, 0, OPCODE, self.opcode.0]);
        }
        out
    }
}
