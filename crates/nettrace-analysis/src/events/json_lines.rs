use nettrace::runtime_events::TypeNames;
use nettrace::{Event, Schema, TraceInfo};

use super::number::append_relative_ms;
use super::value::{append_display, append_hex, append_integer, append_json, append_str, quoted};

/// What to write for each event.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The keys `raw` and `raw_len`: the payload's bytes.
    pub raw: bool,
    /// At most so many bytes in `raw`.
    pub raw_limit: usize,
    /// The key `stack`: addresses, innermost first.
    pub stacks: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            raw: true,
            raw_limit: usize::MAX,
            stacks: false,
        }
    }
}

/// Writes events as JSON, one line each, with the keys `i provider event id version opcode level keywords ts_rel_ms
/// ts_qpc pid tid proc activity related payload raw raw_len template` and, on request, `stack`.
///
/// Holds what must be remembered from event to event: names of types, the running number. Memory does not
/// grow with the trace.
#[derive(Debug)]
pub struct JsonLines {
    options: Options,
    types: TypeNames,
    next_index: u64,
    sync_ticks: i64,
    ticks_per_second: i64,
}

impl JsonLines {
    /// For the events of a trace.
    pub fn new(info: &TraceInfo, options: Options) -> JsonLines {
        JsonLines {
            options,
            types: TypeNames::default(),
            next_index: 0,
            sync_ticks: info.sync_ticks,
            ticks_per_second: info.ticks_per_second,
        }
    }

    /// Learns from an event that is not written but that later events refer to.
    pub fn pass(&mut self, event: &Event<'_>) {
        self.types.see(event);
        self.next_index += 1;
    }

    /// Appends the event's line to `out`. The numbers `i` count all events passed or written.
    pub fn append(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let index = self.next_index;
        self.pass(event);
        let metadata = event.metadata();
        let payload = event.payload();
        let schema = event.schema();

        out.extend_from_slice(b"{\"i\":");
        append_integer(index, out);
        key("provider", out);
        append_str(&metadata.provider, out);
        key("event", out);
        append_str(schema.event_name(), out);
        key("id", out);
        append_integer(metadata.event_id, out);
        key("version", out);
        append_integer(event.version(), out);
        key("opcode", out);
        let label = event.opcode();
        append_integer(
            if label == metadata.opcode {
                schema.opcode()
            } else {
                label
            },
            out,
        );
        key("level", out);
        append_integer(event.level(), out);
        append_display(
            format_args!(",\"keywords\":\"0x{:x}\"", event.keywords()),
            out,
        );
        key("ts_rel_ms", out);
        append_relative_ms(
            event.timestamp(),
            self.sync_ticks,
            self.ticks_per_second,
            out,
        );
        key("ts_qpc", out);
        quoted(out, |out| append_integer(event.timestamp(), out));
        key("pid", out);
        append_integer(event.process_id(), out);
        key("tid", out);
        append_integer(event.thread_id(), out);
        key("proc", out);
        append_integer(processor(event), out);
        append_display(
            format_args!(
                ",\"activity\":\"{}\",\"related\":\"{}\"",
                event.activity_id(),
                event.related_activity_id()
            ),
            out,
        );
        key("payload", out);
        append_payload(schema, payload, event.process_id(), &self.types, out);
        if self.options.raw {
            key("raw", out);
            let end = payload.len().min(self.options.raw_limit);
            quoted(out, |out| append_hex(&payload[..end], out));
            key("raw_len", out);
            append_integer(payload.len(), out);
        }
        key("template", out);
        append_str(schema.template(), out);
        if self.options.stacks {
            key("stack", out);
            append_stack(event, out);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The processor, 0 when unknown. Before V6 it is that of the writing thread, which says nothing about another thread
/// that the event is about.
fn processor(event: &Event<'_>) -> u32 {
    let own = event.thread_index().is_some() || event.thread_id() == event.capture_thread_id();
    if own {
        event.processor_number().unwrap_or(0)
    } else {
        0
    }
}

fn key(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// What TraceEvent shows of a payload, as a JSON object.
pub fn append_payload(
    schema: &Schema,
    payload: &[u8],
    process_id: u64,
    types: &TypeNames,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let mut first = true;
    schema.show(payload, process_id, types, &mut |name, value| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        append_str(name, out);
        out.push(b':');
        match value {
            Some(value) => append_json(value, out),
            None => out.extend_from_slice(b"null"),
        }
    });
    out.push(b'}');
}

pub(crate) fn append_stack(event: &Event<'_>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, frame) in event.stack().frames().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        append_display(format_args!("{comma}\"0x{frame:x}\""), out);
    }
    out.push(b']');
}
