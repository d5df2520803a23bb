//! Frames have the names, and stacks the thread time, with which TraceEvent's reading of the samples was recorded.

mod samples;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nettrace::{Event, Reader};
use nettrace_analysis::stacks::{
    CallTree, CodeNames, Frame, Measure, Node, Samples, folded, functions,
};
use serde_json::Value;

/// The samples whose name ends so, with their traces.
fn recorded(test: &str, infix: &str) -> Option<Vec<(PathBuf, PathBuf)>> {
    let shared = peers::shared_for_test(test)?;
    let found: Vec<_> = samples::files(&shared.join("samples"))
        .into_iter()
        .filter_map(|path| {
            let name = path.to_str()?;
            let stem = name.split_once(infix)?.0;
            Some((samples::trace(Path::new(stem))?, path.clone()))
        })
        .collect();
    assert!(!found.is_empty(), "no samples {infix}");
    Some(found)
}

/// Gives every event, by time.
fn read(trace: &Path, mut each: impl FnMut(&nettrace::TraceInfo, &Event<'_>)) {
    let reader = Reader::new(samples::open(trace)).expect("a trace");
    let info = reader.info().clone();
    let mut ordered = reader.dispatch_order();
    while let Some(event) = ordered.next_event().expect("a whole trace") {
        each(&info, &event);
    }
}

#[test]
fn frames_have_the_names_that_traceevent_gives_them() {
    let test = "frames_have_the_names_that_traceevent_gives_them";
    let Some(recorded) = recorded(test, ".stacks.json") else {
        return;
    };
    let counts = samples::in_parallel(&recorded, |(trace, golden)| {
        let (mut stacks, mut frames) = (0, 0);
        let (mut names, mut tree) = (CodeNames::new(), CallTree::default());
        // By what identifies an event in both readings.
        let mut found: BTreeMap<(String, u64, String), Vec<Node>> = BTreeMap::new();
        read(trace, |_, event| {
            names.add(event);
            let metadata = event.metadata();
            let key = (
                event.timestamp().to_string(),
                event.thread_id(),
                metadata.provider.clone(),
            );
            found.entry(key).or_default().push(tree.add(event));
        });
        for line in samples::text(golden).lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let number = |key: &str| line[key].as_u64().expect("a number");
            let text = |key: &str| line[key].as_str().expect("a text").to_owned();
            let key = (text("ts_qpc"), number("tid"), text("provider"));
            let nodes = found
                .get(&key)
                .unwrap_or_else(|| panic!("{trace:?}: no event {key:?}"));
            let expected: Vec<&str> = line["stack"]
                .as_array()
                .map(|stack| stack.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            let named = |node: &Node| -> Vec<String> {
                let name = |frame: Frame| match names.find(frame) {
                    Some(name) => name.into_owned(),
                    None => format!("{:#x}", frame.address),
                };
                tree.frames(*node).map(name).collect()
            };
            assert!(
                nodes.iter().any(|node| named(node) == expected),
                "{}: event {key:?}\n{:#?}\n{expected:#?}",
                trace.display(),
                nodes.iter().map(named).collect::<Vec<_>>()
            );
            stacks += 1;
            frames += expected.len();
        }
        (stacks, frames)
    });
    let stacks: usize = counts.iter().map(|(stacks, _)| stacks).sum();
    let frames: usize = counts.iter().map(|(_, frames)| frames).sum();
    println!(
        "{} traces, {stacks} stacks, {frames} frames",
        recorded.len()
    );
    assert!(frames > 10_000);
}

/// Thread time of a trace.
fn thread_time(trace: &Path) -> (Samples, CodeNames) {
    let (mut samples, mut names) = (Samples::new(Measure::ThreadTime), CodeNames::new());
    read(trace, |info, event| {
        names.add(event);
        samples.add(info, event);
    });
    (samples, names)
}

#[test]
fn stacks_have_the_thread_time_that_traceevent_gives_them() {
    let test = "stacks_have_the_thread_time_that_traceevent_gives_them";
    let Some(recorded) = recorded(test, ".cpustacks.txt") else {
        return;
    };
    for (trace, golden) in &recorded {
        let (samples, names) = thread_time(trace);
        let mut lines = Vec::new();
        folded(&samples, &names, &mut lines).unwrap();
        let ours = by_stack(&String::from_utf8(lines).unwrap(), 1e-3);
        // It adds to a thread's number what it takes the thread for, by the events on it.
        let theirs = samples::text(golden).replace(") (.NET ThreadPool);", ");");
        let theirs = by_stack(&theirs, 1.0);
        let is_same = |a: f64, b: f64| (a - b).abs() < 0.01;
        for (stack, ms) in &theirs {
            let ours = ours.get(stack).copied().unwrap_or(f64::NAN);
            assert!(
                is_same(ours, *ms),
                "{trace:?}: {ours} ms, not {ms}: {stack}"
            );
        }
        for (stack, ms) in ours
            .iter()
            .filter(|(stack, _)| !theirs.contains_key(*stack))
        {
            assert!(is_same(*ms, 0.0), "{trace:?}: {ms} ms too many: {stack}");
        }
        // The sum of what stands in the table is that of the lines.
        let table = functions(&samples, &names);
        let exclusive: u64 = table.rows.iter().map(|row| row.exclusive).sum();
        assert_eq!((exclusive, table.total), (samples.total(), samples.total()));
        let all: f64 = theirs.values().sum();
        let ms = samples.total() as f64 * 1e-6;
        assert!(
            (all - ms).abs() < all * 1e-4,
            "{trace:?}: {all} and {ms} ms in all"
        );
        println!("{}: {} stacks, {ms:.1} ms", trace.display(), theirs.len());
    }
}

/// Milliseconds by stack.
fn by_stack(text: &str, scale: f64) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        let weight: f64 = weight.parse().expect("a number");
        *sums.entry(stack.to_owned()).or_insert(0.0) += weight * scale;
    }
    sums
}
