//! Which events `eventpipe events` prints.

use crate::cli::Events;
use crate::human::Moment;
use nettrace::payload::{Fields, Value};
use nettrace::runtime_events::TypeNames;
use nettrace::{Event, TraceInfo};
use nettrace_analysis::events::append_json_value;

/// The conditions of a command line, all of which must hold.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    arguments: &'a Events,
    /// Nanoseconds since the start of the trace.
    from: Option<i128>,
    to: Option<i128>,
    info: TraceInfo,
    types: TypeNames,
    /// The value at hand, as JSON.
    text: Vec<u8>,
}

impl<'a> Filter<'a> {
    /// The filter of a command line for a trace.
    pub(crate) fn new(arguments: &'a Events, info: &TraceInfo) -> Filter<'a> {
        let nanoseconds = |moment: Moment| moment.since_start(info);
        Filter {
            arguments,
            from: arguments.from.map(nanoseconds),
            to: arguments.to.map(nanoseconds),
            info: info.clone(),
            types: TypeNames::default(),
            text: Vec::new(),
        }
    }

    /// Whether an event passes. Every event has to be shown to the filter, in order.
    pub(crate) fn passes(&mut self, event: &Event<'_>) -> bool {
        self.types.see(event);
        let metadata = event.metadata();
        let wanted = self.arguments;
        if !wanted.thread.is_empty() && !wanted.thread.contains(&event.thread_id()) {
            return false;
        }
        if !matches_any(&wanted.provider, &metadata.provider) {
            return false;
        }
        let time = i128::from(self.info.nanoseconds(event.timestamp()));
        if self.from.is_some_and(|from| time < from) || self.to.is_some_and(|to| time > to) {
            return false;
        }
        if wanted.event.is_empty() && wanted.conditions.is_empty() {
            return true;
        }
        let schema = event.schema();
        if !wanted.event.is_empty() {
            let id = metadata.event_id.to_string();
            let named = |pattern: &String| {
                *pattern == id
                    || matches(pattern, schema.event_name())
                    || matches(pattern, &metadata.name)
            };
            if !wanted.event.iter().any(named) {
                return false;
            }
        }
        let (types, text) = (&self.types, &mut self.text);
        wanted.conditions.iter().all(|(path, expected)| {
            let mut holds = false;
            let mut visit = |name: &str, value: Option<Value<'_>>| {
                holds |= field_is(name, value, path, expected, text);
            };
            schema.show(event.payload(), event.process_id(), types, &mut visit);
            holds
        })
    }
}

/// Whether the field `name`, or one inside it that `path` leads to, has the expected value.
pub(crate) fn field_is(
    name: &str,
    value: Option<Value<'_>>,
    path: &str,
    expected: &str,
    text: &mut Vec<u8>,
) -> bool {
    // The one field of a self-describing event has no name: its fields are the event's.
    let inside = if name.is_empty() {
        Some(path)
    } else {
        path.strip_prefix(name)
    };
    match (inside, value) {
        (Some(""), None) => expected == "null",
        (Some(""), Some(value)) => value_is(value, expected, text),
        (Some(rest), Some(Value::Object(object))) => {
            let rest = if name.is_empty() {
                Some(rest)
            } else {
                rest.strip_prefix('.')
            };
            rest.is_some_and(|rest| inner_is(object.fields(), rest, expected, text))
        }
        _ => false,
    }
}

fn inner_is(mut fields: Fields<'_>, path: &str, expected: &str, text: &mut Vec<u8>) -> bool {
    fields.any(|(name, value)| field_is(name, Some(value), path, expected, text))
}

/// Values are compared as the JSON output shows them, strings without their quotes.
fn value_is(value: Value<'_>, expected: &str, text: &mut Vec<u8>) -> bool {
    text.clear();
    append_json_value(value, text);
    if text.first() == Some(&b'"') {
        return serde_json::from_slice::<String>(text).is_ok_and(|shown| shown == expected);
    }
    text.as_slice() == expected.as_bytes()
}

fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
}

/// Names are compared without regard to case; `*` at the end of a pattern stands for any rest.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name
            .get(..beginning.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(beginning)),
        None => name.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_without_case_and_with_a_star_at_the_end() {
        assert!(matches("gc/start", "GC/Start"));
        assert!(matches("Microsoft-*", "microsoft-Windows"));
        assert!(matches("*", ""));
        assert!(!matches("GC", "GC/Start"));
        assert!(!matches("äö*", "a"));
    }

    #[test]
    fn values_are_compared_as_they_are_shown() {
        let mut text = Vec::new();
        assert!(value_is(Value::Int64(-5), "-5", &mut text));
        assert!(value_is(Value::Boolean(true), "true", &mut text));
        assert!(value_is(Value::Utf8(b"a \"b\""), "a \"b\"", &mut text));
        assert!(field_is(
            "Count",
            Some(Value::UInt32(7)),
            "Count",
            "7",
            &mut text
        ));
        assert!(!field_is(
            "Count",
            Some(Value::UInt32(7)),
            "Counter",
            "7",
            &mut text
        ));
        assert!(field_is("Gone", None, "Gone", "null", &mut text));
    }
}
