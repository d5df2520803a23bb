//! The runtimes' own events. Their metadata in a stream has neither names nor fields (nettrace.md 11.2), so what
//! they are called and what they hold is in tables here, by provider and event id, with tails by event version.
//!
//! Two views of a payload are kept apart. [`RuntimeEvent::layout`] is everything that lies in the bytes, arrays
//! included. What [`crate::Schema::show`] gives is what the TraceEvent library shows: same names, same order, some
//! values worked out from others, arrays left out. Tools that people know print the latter.

mod other;
mod private;
mod row;
mod rundown;
mod runtime;
mod show;
mod type_names;

pub use row::RuntimeEvent;
pub(crate) use show::{Shown, show};
pub use type_names::TypeNames;

/// The runtime: garbage collector, loader, compiler, threads, exceptions.
pub const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
/// What was there before a session, written at its end.
pub const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
/// For the runtime's own developers.
pub const PRIVATE: &str = "Microsoft-Windows-DotNETRuntimePrivate";
/// The runtime's stress log.
pub const STRESS: &str = "Microsoft-Windows-DotNETRuntimeStress";
/// Samples of all threads.
pub const SAMPLE_PROFILER: &str = "Microsoft-DotNETCore-SampleProfiler";
/// ProcessInfo.
pub const EVENT_PIPE: &str = "Microsoft-DotNETCore-EventPipe";
/// Processes, mappings and symbols of whole-machine traces.
pub const UNIVERSAL_SYSTEM: &str = "Universal.System";
/// Samples of whole-machine traces.
pub const UNIVERSAL_EVENTS: &str = "Universal.Events";

/// What is known about an event of the runtimes.
pub fn find(provider: &str, event_id: u32) -> Option<&'static RuntimeEvent> {
    let table = table(provider)?;
    let index = table
        .binary_search_by_key(&event_id, |event| event.id)
        .ok()?;
    table.get(index)
}

/// All known events of a provider, in ascending order of ids.
fn table(provider: &str) -> Option<&'static [RuntimeEvent]> {
    Some(match provider {
        RUNTIME => runtime::EVENTS,
        RUNDOWN => rundown::EVENTS,
        PRIVATE => private::EVENTS,
        STRESS => other::STRESS,
        SAMPLE_PROFILER => other::SAMPLE_PROFILER,
        UNIVERSAL_SYSTEM => other::UNIVERSAL_SYSTEM,
        _ => return None,
    })
}

/// The GC's dynamic event stands for others, told apart by a name in the payload.
pub(crate) fn refined(provider: &str, event_id: u32) -> Option<&'static RuntimeEvent> {
    (provider == RUNTIME && event_id == 39).then_some(&runtime::COMMITTED_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_name_only_fields_they_have() {
        for provider in [
            RUNTIME,
            RUNDOWN,
            PRIVATE,
            STRESS,
            SAMPLE_PROFILER,
            UNIVERSAL_SYSTEM,
        ] {
            let table = table(provider).unwrap();
            assert!(table.is_sorted_by(|a, b| a.id < b.id), "{provider}");
            for event in table.iter().chain(refined(provider, 39)) {
                assert!(
                    event.fields.len() <= show::MOST_FIELDS,
                    "{provider} {}",
                    event.id
                );
                Shown::compile(event, 0);
                assert_eq!(Shown::unknown(event), None, "{provider} {}", event.id);
            }
        }
    }
}
