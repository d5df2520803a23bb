//! What events are called. Streams name events by one word; TraceEvent, and so every tool that people know, shows
//! a task and an opcode, `Request/Start` (nettrace.md 11.1). Counting by name across tools needs the same names.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};

use crate::metadata::Metadata;

/// The opcode of the first of two events that belong together.
pub const OPCODE_START: u8 = 1;
/// The opcode of the second.
pub const OPCODE_STOP: u8 = 2;

/// The name of an opcode that EventSource defines; others are shown as numbers.
pub fn opcode_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        0 => "Info",
        1 => "Start",
        2 => "Stop",
        3 => "DataCollectionStart",
        4 => "DataCollectionStop",
        5 => "Extension",
        6 => "Reply",
        7 => "Resume",
        8 => "Suspend",
        9 => "Transfer",
        240 => "Receive",
        _ => return None,
    })
}

/// The opcode that an event's metadata gives, or that its name implies: a name that ends in Start or Stop, in any
/// case of letters.
pub fn implied_opcode(metadata: &Metadata) -> u8 {
    if metadata.opcode != 0 {
        metadata.opcode
    } else if without_suffix(&metadata.name, "start").is_some() {
        OPCODE_START
    } else if without_suffix(&metadata.name, "stop").is_some() {
        OPCODE_STOP
    } else {
        0
    }
}

/// The name of a described event as TraceEvent shows it, `EventID(7)` for one without a name. The runtimes' own
/// events have their names in [`crate::runtime_events`]; [`crate::Schema::event_name`] knows both.
pub fn described_name(metadata: &Metadata) -> String {
    if metadata.name.is_empty() {
        return match metadata.event_id {
            0 => "EventWriteString".to_string(),
            id => format!("EventID({id})"),
        };
    }
    let opcode = implied_opcode(metadata);
    let suffix = match opcode {
        OPCODE_START => "start",
        OPCODE_STOP => "stop",
        _ => "",
    };
    let task = without_suffix(&metadata.name, suffix).unwrap_or(&metadata.name);
    task_and_opcode(task, opcode)
}

fn task_and_opcode(task: &str, opcode: u8) -> String {
    match opcode {
        0 => task.to_string(),
        _ => {
            let opcode =
                opcode_name(opcode).map_or_else(|| Cow::Owned(opcode.to_string()), Cow::Borrowed);
            format!("{task}/{opcode}")
        }
    }
}

fn without_suffix<'a>(name: &'a str, lower_case_suffix: &str) -> Option<&'a str> {
    let start = name.len().checked_sub(lower_case_suffix.len())?;
    let (head, tail) = name.split_at_checked(start)?;
    (!tail.is_empty() && tail.eq_ignore_ascii_case(lower_case_suffix)).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_task_and_opcode() {
        for (name, opcode, id, shown) in [
            ("RequestStart", 0, 1, "Request/Start"),
            ("RequestSTOP", 0, 1, "Request/Stop"),
            ("Request", 1, 1, "Request/Start"),
            ("RequestStop", 1, 1, "RequestStop/Start"),
            ("Start", 0, 1, "/Start"),
            ("JobStep", 40, 1, "JobStep/40"),
            ("Transfer", 9, 1, "Transfer/Transfer"),
            ("Started", 0, 1, "Started"),
            ("é", 0, 1, "é"),
            ("", 0, 200, "EventID(200)"),
            ("", 1, 0, "EventWriteString"),
        ] {
            let metadata = Metadata {
                name: name.into(),
                opcode,
                event_id: id,
                ..Metadata::default()
            };
            assert_eq!(described_name(&metadata), shown);
        }
    }
}
