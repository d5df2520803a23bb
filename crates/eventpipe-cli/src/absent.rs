//! Names that a trace does not have: said, with those that may have been meant.

use crate::human;
use crate::terminal::note;
use nettrace::pattern::matches;
use nettrace::{Metadata, Schema};
use std::collections::BTreeSet;

/// So many names are shown.
const SHOWN: usize = 5;

/// How alike two names must be, between 0 and 1: as for the words of the command line.
const NEAR: f64 = 0.7;

/// Says which of the patterns stand for none of the providers of which the trace describes an event.
pub(crate) fn tell_of_providers<'a>(
    file: &str,
    asked: &[String],
    described: impl Iterator<Item = &'a str>,
) {
    tell(file, "provider", asked, &described.collect());
}

/// The same for names and numbers of events.
pub(crate) fn tell_of_events(
    file: &str,
    asked: &[String],
    described: &[Metadata],
    pointer_size: u32,
) {
    if asked.is_empty() {
        return;
    }
    let is_number_of = |text: &str| {
        let number: Option<u32> = text.parse().ok();
        described.iter().any(|one| Some(one.event_id) == number)
    };
    let schemas: Vec<Schema> = described
        .iter()
        .map(|metadata| Schema::new(metadata, pointer_size))
        .collect();
    let there = schemas.iter().map(Schema::event_name);
    let there: BTreeSet<&str> = there
        .chain(described.iter().map(|one| one.name.as_str()))
        .filter(|name| !name.is_empty())
        .collect();
    let asked: Vec<String> = asked
        .iter()
        .filter(|text| !is_number_of(text))
        .cloned()
        .collect();
    tell(file, "event", &asked, &there);
}

fn tell(file: &str, what: &str, asked: &[String], there: &BTreeSet<&str>) {
    for pattern in asked {
        if !there.iter().any(|name| matches(pattern, name)) {
            note(format_args!(
                "{file}: no {what} is called '{pattern}'{}",
                which(pattern, what, there)
            ));
        }
    }
}

/// Those that are like it; else all, if they are few.
fn which(pattern: &str, what: &str, there: &BTreeSet<&str>) -> String {
    let lower = pattern.to_ascii_lowercase();
    let likeness = |name: &str| {
        let name = name.to_ascii_lowercase();
        let is_part = !lower.is_empty() && name.contains(lower.trim_matches('*'));
        if is_part {
            1.0
        } else {
            strsim::jaro(&lower, &name)
        }
    };
    let mut near: Vec<(f64, &str)> = there
        .iter()
        .map(|name| (likeness(name), *name))
        .filter(|(likeness, _)| *likeness > NEAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names = |names: Vec<&str>| names.join(", ");
    match (near.as_slice(), there.len()) {
        ([], 0) => "; the trace has none".to_owned(),
        ([], 1..=SHOWN) => format!("; there are {}", names(there.iter().copied().collect())),
        ([], count) => format!(
            "; there are {} (`eventpipe report stat FILE` lists them)",
            human::number_of(count as u64, what)
        ),
        (near, _) => {
            let near = near.iter().map(|(_, name)| *name).take(SHOWN);
            format!("; there is {}", names(near.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_like_it_come_first() {
        let there = BTreeSet::from(["Demo-Requests", "Demo-Internals", "Other", "X", "Y", "Z"]);
        let which = |pattern| which(pattern, "provider", &there);
        assert_eq!(
            which("Demo-Request"),
            "; there is Demo-Requests, Demo-Internals"
        );
        assert_eq!(which("internals"), "; there is Demo-Internals");
        assert!(which("Microsoft-Windows").contains("6 providers"));
        assert_eq!(
            super::which("a", "event", &BTreeSet::new()),
            "; the trace has none"
        );
    }
}
