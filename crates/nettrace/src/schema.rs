//! Everything about a type of event that does not change from event to event: its name, its layout, what of it is
//! shown. Worked out once per metadata row.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::metadata::{Field, FieldType, Metadata};
use crate::names;
use crate::payload::{Fields, Layout, Value};
use crate::runtime_events::{self, RuntimeEvent, Shown, TypeNames};

/// How to name and decode the events of one metadata row.
#[derive(Clone, Debug)]
pub struct Schema {
    event_name: String,
    opcode: u8,
    template: &'static str,
    layout: Layout,
    runtime: Option<&'static RuntimeEvent>,
    shown: Box<[Shown]>,
    /// What an event is instead whose payload begins with a certain name.
    refined: Option<Box<Schema>>,
}

/// The class that TraceEvent uses for events that it knows by their metadata only.
const DYNAMIC: &str = "DynamicTraceEventData";

impl Schema {
    /// The schema for a row; `pointer_size` is the trace's.
    pub fn new(metadata: &Metadata, pointer_size: u32) -> Schema {
        let known = runtime_events::find(&metadata.provider, metadata.event_id);
        if let Some(event) = known {
            let mut schema = Schema::runtime(event, metadata.version, pointer_size);
            let refined = runtime_events::refined(&metadata.provider, metadata.event_id);
            schema.refined = refined
                .map(|event| Box::new(Schema::runtime(event, metadata.version, pointer_size)));
            return schema;
        }
        let layout = match undescribed(metadata) {
            Some(fields) => Layout::new(&Metadata {
                fields,
                keywords: metadata.keywords,
                ..Metadata::default()
            }),
            None => Layout::new(metadata),
        };
        Schema {
            event_name: names::described_name(metadata),
            opcode: names::implied_opcode(metadata),
            template: DYNAMIC,
            layout,
            runtime: None,
            shown: Box::default(),
            refined: None,
        }
    }

    fn runtime(event: &'static RuntimeEvent, version: u32, pointer_size: u32) -> Schema {
        let event_name = match event.opcode_name {
            "" => event.task.to_string(),
            opcode => format!("{}/{opcode}", event.task),
        };
        Schema {
            event_name,
            opcode: event.opcode,
            template: if event.template.is_empty() {
                DYNAMIC
            } else {
                event.template
            },
            layout: event.layout(version, pointer_size),
            runtime: Some(event),
            shown: Shown::compile(event, version),
            refined: None,
        }
    }

    /// The schema of a particular event: another one where a name in the payload decides, as in the GC's dynamic
    /// events. All other methods are to be called on the result.
    #[inline]
    pub fn of_payload(&self, payload: &[u8]) -> &Schema {
        match &self.refined {
            Some(refined) if refined.begins(payload) => refined,
            _ => self,
        }
    }

    fn begins(&self, payload: &[u8]) -> bool {
        let mut fields = self.layout.fields(payload);
        let name = fields.next();
        let names_it = match (name, self.runtime) {
            (Some((_, Value::String(name))), Some(event)) => {
                let expected = event.opcode_name.chars();
                name.len() == event.opcode_name.len()
                    && name
                        .chars()
                        .zip(expected)
                        .all(|(a, b)| a.eq_ignore_ascii_case(&b))
            }
            _ => false,
        };
        names_it && fields.by_ref().last().is_some() && fields.is_complete()
    }

    /// The event's name as TraceEvent shows it, such as `GC/Start`.
    pub fn event_name(&self) -> &str {
        &self.event_name
    }

    /// The event's opcode: the metadata's, or the one known or implied.
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// The TraceEvent class that stands for the event.
    pub fn template(&self) -> &'static str {
        self.template
    }

    /// Whether the event is one of the runtimes' own, known from tables.
    pub fn is_runtime_event(&self) -> bool {
        self.runtime.is_some()
    }

    /// How the payload is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Everything in the payload, in its order.
    #[inline]
    pub fn fields<'a>(&'a self, payload: &'a [u8]) -> Fields<'a> {
        self.layout.fields(payload)
    }

    /// What TraceEvent shows of the payload: calls `visit` with each name and value. `None` stands for null: a field
    /// that the payload ends before.
    pub fn show<'a>(
        &'a self,
        payload: &'a [u8],
        process_id: u64,
        types: &'a TypeNames,
        visit: &mut dyn FnMut(&'a str, Option<Value<'a>>),
    ) {
        let fields = self.layout.fields(payload);
        if self.runtime.is_some() {
            return runtime_events::show(&self.shown, fields, process_id, types, visit);
        }
        let mut shown = 0usize;
        for (name, value) in fields {
            visit(name, Some(value));
            shown = shown.saturating_add(1);
        }
        self.layout
            .names()
            .skip(shown)
            .for_each(|name| visit(name, None));
    }
}

/// Fields of well-known events whose arrays the old metadata cannot describe (nettrace.md 11.7).
fn undescribed(metadata: &Metadata) -> Option<Vec<Field>> {
    const NAMES: [&str; 9] = [
        "Event",
        "Activity1Start",
        "Activity1Stop",
        "Activity2Start",
        "Activity2Stop",
        "RecursiveActivity1Start",
        "RecursiveActivity1Stop",
        "ActivityStart",
        "ActivityStop",
    ];
    let known = metadata.fields.is_empty()
        && metadata.provider == "Microsoft-Diagnostics-DiagnosticSource"
        && NAMES.contains(&metadata.name.as_str());
    if !known {
        return None;
    }
    let text = |name: &str| Field {
        name: name.to_string(),
        field_type: FieldType::String,
    };
    let pair = FieldType::Object(vec![text("Key"), text("Value")]);
    let arguments = Field {
        name: "Arguments".to_string(),
        field_type: FieldType::Array(Box::new(pair)),
    };
    Some(vec![text("SourceName"), text("EventName"), arguments])
}
