//! Promise: what filters and readers are told of the runtime's own events is what its own engine tells them.

#[path = "../src/native_events.rs"]
#[allow(
    dead_code,
    reason = "the events are constructed by the functions that raise them"
)]
mod native_events;

use native_events::{NATIVE_EVENTS, Native, Source};

const TEST: &str = "the_table_of_native_events_is_that_of_the_runtime";

#[test]
fn each_row_is_a_row_of_the_list_taken_from_the_archive() {
    let Some(shared) = peers::shared_for_test(TEST) else {
        return;
    };
    let list = std::fs::read_to_string(shared.join("peers/nativeaot/native-events.csv"))
        .expect("the list is there");
    let rows: Vec<String> = list
        .lines()
        .skip(1)
        .map(|line| line.split(',').take(7).collect::<Vec<_>>().join(","))
        .collect();
    assert!(rows.len() > 100);
    for (event, name) in NATIVE_EVENTS.iter().zip(Native::NAMES) {
        let provider = match event.source {
            Source::Runtime => "Microsoft-Windows-DotNETRuntime",
            Source::Private => "Microsoft-Windows-DotNETRuntimePrivate",
            Source::Rundown => "Microsoft-Windows-DotNETRuntimeRundown",
        };
        let found = rows.iter().any(|row| {
            let fields: Vec<&str> = row.split(',').collect();
            let [of, id, named, version, level, keywords, stack] = fields[..] else {
                panic!("a row of seven fields: {row}");
            };
            of == provider
                && id == event.id.to_string()
                && named.replace('_', "") == *name
                && version == event.version.to_string()
                && level == event.level.to_string()
                && keywords == format!("{:#x}", event.keywords)
                && stack == u8::from(event.stack).to_string()
        });
        assert!(found, "{name} is not in the list as {event:?}");
    }
}
