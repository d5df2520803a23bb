//! Each event of the samples that a typed view is for can be read through it, in every version of .NET there is.

mod samples;

use std::collections::BTreeMap;
use std::path::PathBuf;

use nettrace::views::{self, View};
use nettrace::{Event, Reader};

/// Views that no event of the samples matches; the corpus of the fuzz target `payload` and unit tests reach them.
const WITHOUT_SAMPLES: [&str; 6] = [
    "AllocationSampled",
    "ProcessMapping",
    "ProcessMappingMetadata",
    "ProcessStart",
    "ProcessSymbol",
    "MetricsEvent::Error",
];

#[test]
fn typed_views_read_every_event_of_the_samples() {
    let Some(shared) = peers::shared_for_test("typed_views_read_every_event_of_the_samples") else {
        return;
    };
    let traces: Vec<PathBuf> = samples::files(&shared.join("samples"))
        .into_iter()
        .filter(|path| {
            let name = path.to_string_lossy();
            [".nettrace", ".nettrace.xz", ".netperf", ".netperf.xz"]
                .iter()
                .any(|end| name.ends_with(end))
        })
        .collect();
    let read = samples::in_parallel(&traces, |path| {
        let mut counts = BTreeMap::new();
        let mut reader =
            Reader::new(samples::open(path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        // Some samples are cut off; their events count.
        while let Ok(Some(event)) = reader.next_event() {
            if let Some(failed) = try_all(&event, &mut counts) {
                let metadata = event.metadata();
                panic!(
                    "{path:?}: {failed} of {} {} v{}",
                    metadata.provider, metadata.event_id, metadata.version
                );
            }
        }
        counts
    });
    let mut total: BTreeMap<&str, u64> = WITHOUT_SAMPLES.iter().map(|view| (*view, 0)).collect();
    read.into_iter()
        .flatten()
        .for_each(|(view, count)| *total.entry(view).or_default() += count);
    println!("{total:?}");
    for (view, count) in &total {
        assert_eq!(
            *count == 0,
            WITHOUT_SAMPLES.contains(view),
            "{view}: {count}"
        );
    }
}

/// The name of a view that should read the event and does not.
fn try_all(event: &Event<'_>, counts: &mut BTreeMap<&'static str, u64>) -> Option<&'static str> {
    let (metadata, schema, payload) = (event.metadata(), event.schema(), event.payload());
    macro_rules! attempt {
        ($($view:ident)*) => {$(
            counts.entry(stringify!($view)).or_default();
            if views::$view::matches(metadata) {
                if views::$view::of(metadata, schema, payload).is_none() {
                    return Some(stringify!($view));
                }
                *counts.entry(stringify!($view)).or_default() += 1;
            }
        )*};
    }
    attempt!(GcStart GcEnd GcSuspendBegin GcRestartEnd GcTriggered GcHeapStats AllocationTick AllocationSampled);
    attempt!(ModuleLoad DomainModuleLoad AssemblyLoad AppDomainLoad MethodLoad MethodJittingStarted IlToNativeMap);
    attempt!(ThreadSample ExceptionThrown ContentionStart ContentionStop ThreadCreated ThreadPoolWorkers);
    attempt!(ThreadPoolAdjustment ProcessInfo RuntimeInformation RundownMark ExecutionCheckpoint Counter);
    attempt!(ProcessStart ProcessMapping ProcessSymbol ProcessMappingMetadata);
    if metadata.provider == views::METRICS {
        let name = match views::MetricsEvent::of(metadata, schema, payload) {
            Some(views::MetricsEvent::Value(value)) => {
                assert_eq!(value.tags.pairs().is_empty(), value.tags.text.is_empty());
                "MetricsEvent::Value"
            }
            Some(views::MetricsEvent::BeginReporting(_)) => "MetricsEvent::BeginReporting",
            Some(views::MetricsEvent::InstrumentPublished(_)) => {
                "MetricsEvent::InstrumentPublished"
            }
            Some(views::MetricsEvent::CollectionStart { .. }) => "MetricsEvent::CollectionStart",
            Some(views::MetricsEvent::CollectionStop { .. }) => "MetricsEvent::CollectionStop",
            Some(views::MetricsEvent::Error(_)) => "MetricsEvent::Error",
            Some(_) => "MetricsEvent",
            None => return Some("MetricsEvent"),
        };
        *counts.entry(name).or_default() += 1;
    }
    None
}
