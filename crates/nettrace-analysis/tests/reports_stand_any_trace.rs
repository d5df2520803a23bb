//! Reports on stacks and on the runtime end, whatever is in a trace: the fuzz corpus of the reader, and recorded traces with changed bytes.

mod samples;

use std::path::Path;

use nettrace::{Reader, ReaderOptions};
use nettrace_analysis::activities::Activities;
use nettrace_analysis::runtime::{Allocations, Collections, Contention, Counters, Exceptions};
use nettrace_analysis::stacks::{CodeNames, Measure, Samples, folded, functions, speedscope};

/// Everything is made of what can be read; how many events that was.
fn report(trace: &[u8]) -> u64 {
    let options = ReaderOptions {
        recover: true,
        ..ReaderOptions::default()
    };
    let Ok(reader) = Reader::with_options(trace, options) else {
        return 0;
    };
    let info = reader.info().clone();
    let mut names = CodeNames::new();
    let mut all =
        [Measure::ThreadTime, Measure::Events].map(|measure| Samples::new(measure).in_order());
    let (mut collections, mut allocations) = (Collections::new(), Allocations::new());
    let (mut contention, mut exceptions) = (Contention::new(), Exceptions::new());
    let (mut counters, mut activities) = (Counters::new(), Activities::new());
    let mut events = reader.dispatch_order();
    let mut count = 0;
    while let Ok(Some(event)) = events.next_event() {
        names.add(&event);
        for samples in &mut all {
            samples.add(&info, &event);
        }
        collections.add(&info, &event);
        allocations.add(&event);
        contention.add(&info, &event);
        exceptions.add(&info, &event);
        counters.add(&info, &event);
        activities.add(&info, &event);
        count += 1;
    }
    for mut samples in all {
        let mut out = Vec::new();
        folded(&samples, &names, &mut out).unwrap();
        speedscope(&samples, &names, "any", &mut out).unwrap();
        let table = functions(&samples, &names);
        assert_eq!(table.total, samples.total());
        samples.leave_out_external();
        assert!(functions(&samples, &names).total <= table.total);
    }
    collections.finish();
    allocations.finish();
    contention.finish();
    exceptions.finish();
    counters.report();
    activities.finish();
    count
}

#[test]
fn the_corpus_of_the_reader() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/nettrace_reader"
    );
    let mut events = 0;
    for file in samples::files(Path::new(folder)) {
        events += report(&std::fs::read(file).unwrap());
    }
    assert!(events >= 40, "{events}");
}

#[test]
fn recorded_traces_with_changed_bytes() {
    let Some(shared) = peers::shared_for_test("recorded_traces_with_changed_bytes") else {
        return;
    };
    let names = [
        "native/native-names",
        "net10.0/gc",
        "net10.0/exceptions",
        "net10.0/contention",
    ];
    let events = samples::in_parallel(&names, |name| {
        let path = shared.join(format!("samples/{name}.nettrace"));
        let mut trace = std::fs::read(path).unwrap();
        let whole = report(&trace);
        // The same places each time: about six hundred of them.
        let step = (trace.len() / 600).max(1);
        for at in (0..trace.len()).step_by(step) {
            let before = trace[at];
            for byte in [0, 0x7f, 0xff, before ^ 0x10] {
                trace[at] = byte;
                report(&trace);
            }
            trace[at] = before;
        }
        whole
    });
    assert!(events.iter().all(|events| *events >= 10), "{events:?}");
}
