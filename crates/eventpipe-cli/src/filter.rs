//! Which events of a trace are asked for.

use crate::absent;
use crate::cli::Selection;
use crate::human::Moment;
use crate::terminal::note;
use nettrace::pattern::matches;
use nettrace::payload::{Fields, Value};
use nettrace::runtime_events::TypeNames;
use nettrace::{Event, Metadata, TraceInfo};
use nettrace_analysis::events::append_json_value;

/// The conditions of a command line, all of which must hold.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    arguments: &'a Selection,
    /// Nanoseconds since the start of the trace.
    from: Option<i128>,
    to: Option<i128>,
    info: TraceInfo,
    types: TypeNames,
    /// Which of the names that were asked for some event has.
    found_providers: Vec<bool>,
    found_events: Vec<bool>,
    conditions: Conditions,
}

impl<'a> Filter<'a> {
    /// The filter of a command line for a trace.
    pub(crate) fn new(arguments: &'a Selection, info: &TraceInfo) -> Filter<'a> {
        let nanoseconds = |moment: Moment| moment.since_start(info);
        Filter {
            arguments,
            from: arguments.from.map(nanoseconds),
            to: arguments.to.map(nanoseconds),
            info: info.clone(),
            types: TypeNames::default(),
            found_providers: vec![false; arguments.provider.len()],
            found_events: vec![false; arguments.event.len()],
            conditions: Conditions::new(&arguments.conditions),
        }
    }

    /// Says which names that were asked for stand for nothing that the trace describes.
    pub(crate) fn tell_of_absent(&self, file: &str, described: &[Metadata]) {
        let not_seen = |asked: &[String], found: &[bool]| -> Vec<String> {
            let pairs = asked.iter().zip(found);
            let absent = pairs.filter(|(_, is_found)| !**is_found);
            absent.map(|(name, _)| name.clone()).collect()
        };
        let providers = not_seen(&self.arguments.provider, &self.found_providers);
        let there = described.iter().map(|one| one.provider.as_str());
        absent::tell_of_providers(file, &providers, there);
        let events = not_seen(&self.arguments.event, &self.found_events);
        absent::tell_of_events(file, &events, described, self.info.pointer_size);
        if let Some(absent) = self.conditions.absent() {
            note(format_args!("{file}: {absent}"));
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
        let (provider, found) = (&metadata.provider, &mut self.found_providers);
        if !one_matches(&wanted.provider, found, |pattern| {
            matches(pattern, provider)
        }) {
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
            let named = |pattern: &str| {
                pattern == id
                    || matches(pattern, schema.event_name())
                    || matches(pattern, &metadata.name)
            };
            if !one_matches(&wanted.event, &mut self.found_events, named) {
                return false;
            }
        }
        self.conditions.hold(event, &self.types)
    }
}

/// Fields that must have certain values. Remembers whether any event had them.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// Paths of fields, and the values.
    list: Vec<(String, String)>,
    /// Which of the fields some event had.
    found: Vec<bool>,
    /// For each an event that lacks it, and what that has.
    lacking: Vec<Option<(String, Vec<String>)>>,
    /// The value at hand, as JSON.
    text: Vec<u8>,
}

impl Conditions {
    pub(crate) fn new(list: &[(String, String)]) -> Conditions {
        Conditions {
            list: list.to_vec(),
            found: vec![false; list.len()],
            lacking: vec![None; list.len()],
            text: Vec::new(),
        }
    }

    /// Whether an event has all the values.
    pub(crate) fn hold(&mut self, event: &Event<'_>, types: &TypeNames) -> bool {
        let schema = event.schema();
        let (payload, process) = (event.payload(), event.process_id());
        let states = self.found.iter_mut().zip(&mut self.lacking);
        for ((path, expected), (found, lacking)) in self.list.iter().zip(states) {
            let (mut holds, mut has) = (false, false);
            schema.show(payload, process, types, &mut |name, value| {
                has |= leads_to(path, name);
                holds |= field_is(name, value, path, expected, &mut self.text);
            });
            *found |= has;
            if !has && lacking.is_none() {
                let mut names = Vec::new();
                schema.show(payload, process, types, &mut |name, _| {
                    names.push(name.to_owned());
                });
                *lacking = Some((schema.event_name().to_owned(), names));
            }
            if !holds {
                return false;
            }
        }
        true
    }

    /// The first of the fields that no event had, in words.
    pub(crate) fn absent(&self) -> Option<String> {
        let states = self.found.iter().zip(&self.lacking);
        let mut absent = self.list.iter().zip(states);
        let (path, (event, names)) = absent.find_map(|((path, _), (found, lacking))| {
            let lacking = lacking.as_ref().filter(|_| !found)?;
            Some((path, lacking))
        })?;
        let names = match names.as_slice() {
            [] => "no fields".to_owned(),
            names => names.join(", "),
        };
        Some(format!("no field is called '{path}'; {event} has {names}"))
    }
}

/// Whether a path is that of a field, or of one inside it. The one field of a self-describing event has no name.
fn leads_to(path: &str, name: &str) -> bool {
    name.is_empty()
        || path
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether the field `name`, or one inside it that `path` leads to, has the expected value.
fn field_is(
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

/// Whether one of the patterns, if there are any, stands for a name; notes which do.
fn one_matches(patterns: &[String], found: &mut [bool], is_it: impl Fn(&str) -> bool) -> bool {
    let first = patterns.iter().position(|pattern| is_it(pattern));
    if let Some(found) = first.and_then(|first| found.get_mut(first)) {
        *found = true;
    }
    patterns.is_empty() || first.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

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
