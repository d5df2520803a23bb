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
    let rows: Vec<String> = list.lines().skip(1).map(str::to_owned).collect();
    assert!(rows.len() > 100);
    let names = Native::NAMES.iter().zip(Native::ARGUMENTS);
    let named = names.zip(Native::STACKS);
    for (event, ((name, arguments), has_stack)) in NATIVE_EVENTS.iter().zip(named) {
        // What the table says beyond the runtime's list.
        let arguments = arguments
            .replace("n16", "u16")
            .replace("n32", "u32")
            .replace("size ptr", "i32 ptr")
            .replace("zero", "u16");
        let provider = match event.source {
            Source::Runtime => "Microsoft-Windows-DotNETRuntime",
            Source::Private => "Microsoft-Windows-DotNETRuntimePrivate",
            Source::Rundown => "Microsoft-Windows-DotNETRuntimeRundown",
        };
        let found = rows.iter().any(|row| {
            let fields: Vec<&str> = row.split(',').collect();
            let [of, id, named, version, level, keywords, stack, listed] = fields[..] else {
                panic!("a row of eight fields: {row}");
            };
            of == provider
                && id == event.id.to_string()
                && named.replace('_', "") == *name
                && version == event.version.to_string()
                && level == event.level.to_string()
                && keywords == format!("{:#x}", event.keywords)
                && stack == u8::from(*has_stack).to_string()
                // Events of modules are put together elsewhere.
                && (listed == arguments || named.starts_with("Module"))
        });
        assert!(found, "{name} is not in the list as {event:?}");
    }
}
