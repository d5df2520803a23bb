//! Promise: each session gets the counters at the interval that it asks for, exact, and when nobody asks nothing runs.

use std::io::Cursor;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use eventpipe::{ProviderRequest, Session, SessionRequest};
use eventpipe_metrics::{About, Counters, Samples, Sum};
use nettrace::Reader;
use nettrace::views::{Counter, CounterValue, View};

static REQUESTS: Sum = Sum::new();
static LATENCY: Samples = Samples::new();
static BYTES: AtomicU64 = AtomicU64::new(0);

/// A counter's event.
#[derive(Debug)]
struct Row {
    name: String,
    series: u64,
    seconds: f64,
    /// Increment or mean.
    value: f64,
    count: i32,
    units: String,
}

/// A session whose stream is collected.
struct Listening {
    session: Session,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Listening {
    fn start(arguments: &str) -> Listening {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let request = ProviderRequest::new("Test-Counters")
            .keywords(0)
            .arguments(arguments);
        let session = SessionRequest::new()
            .provider(request)
            .start_callback(move |piece| sink.lock().expect("unpoisoned").extend_from_slice(piece))
            .expect("the session starts");
        Listening { session, bytes }
    }

    fn stop(self) -> Vec<Row> {
        assert!(self.session.stop(), "the stream is complete");
        self.rows()
    }

    /// What has come so far.
    fn rows(&self) -> Vec<Row> {
        let bytes = self.bytes.lock().expect("unpoisoned").clone();
        if bytes.is_empty() {
            // The thread that sends has not begun yet.
            return Vec::new();
        }
        let mut reader = Reader::new(Cursor::new(bytes)).expect("a trace");
        let mut rows = Vec::new();
        while let Ok(Some(event)) = reader.next_event() {
            let Some(counter) = Counter::of(event.metadata(), event.schema(), event.payload())
            else {
                continue;
            };
            let (value, count) = match counter.value {
                CounterValue::Mean { mean, count, .. } => (mean, count),
                CounterValue::Sum { increment, .. } => (increment, 0),
            };
            rows.push(Row {
                name: counter.name.to_string(),
                series: counter.series_interval_ms().expect("a series"),
                seconds: counter.interval_seconds,
                value,
                count,
                units: counter.display_units.to_string(),
            });
        }
        rows
    }
}

fn publishers() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("the kernel lists threads")
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.trim() == "eventpipe-count")
        .count()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("not within a minute: {what}");
}

fn of<'a>(rows: &'a [Row], series: u64, name: &str) -> Vec<&'a Row> {
    let wanted = |row: &&Row| row.series == series && row.name == name;
    rows.iter().filter(wanted).collect()
}

#[test]
fn counters_are_published_while_somebody_asks() {
    eventpipe::start();
    Counters::new("Test-Counters")
        .sum(About::new("requests").units("requests"), &REQUESTS)
        .samples(About::new("latency").units("ms"), &LATENCY)
        .value(About::new("answer"), || 42.0)
        .value(About::new("broken"), || {
            // As a panic, without its noise.
            std::panic::resume_unwind(Box::new("a counter of the test's that fails"))
        })
        .total(About::new("bytes"), || BYTES.load(Ordering::Relaxed) as f64)
        .register();
    REQUESTS.add(1_000_000); // before anybody asks: in no interval
    LATENCY.record(1e9);

    // A session that does not say an interval gets no counters.
    let silent = Listening::start("Other=1");
    sleep(Duration::from_millis(100));
    assert_eq!(publishers(), 0);
    assert!(silent.stop().is_empty());

    let fast = Listening::start("EventCounterIntervalSec=0.05");
    let slow = Listening::start("EventCounterIntervalSec=0.2");
    until("the publisher runs", || publishers() == 1);
    for series in [50, 200] {
        until("the series have begun", || {
            !of(&slow.rows(), series, "answer").is_empty()
        });
    }
    for turn in 0..50 {
        REQUESTS.add(3);
        BYTES.fetch_add(100, Ordering::Relaxed);
        LATENCY.record(f64::from(turn % 2));
        sleep(Duration::from_millis(10));
    }
    let growth = |rows: &[Row], series| {
        of(rows, series, "requests")
            .iter()
            .map(|row| row.value)
            .sum::<f64>()
    };
    for series in [50, 200] {
        until("all has been published", || {
            [&slow, &fast]
                .iter()
                .all(|one| growth(&one.rows(), series) == 150.0)
        });
    }
    let slow = slow.stop();
    let fast = fast.stop();
    until("the publisher has ended", || publishers() == 0);

    // Both sessions hear both series; each series has everything.
    for rows in [&slow, &fast] {
        assert!(rows.iter().all(|row| row.seconds > 0.0));
        for series in [50, 200] {
            let requests = of(rows, series, "requests");
            assert_eq!(requests.iter().map(|row| row.value).sum::<f64>(), 150.0);
            assert!(requests.iter().all(|row| row.units == "requests"));
            let bytes = of(rows, series, "bytes");
            assert_eq!(bytes.iter().map(|row| row.value).sum::<f64>(), 5_000.0);
            let latency = of(rows, series, "latency");
            assert_eq!(latency.iter().map(|row| row.count).sum::<i32>(), 50);
            let total: f64 = latency
                .iter()
                .map(|row| row.value * f64::from(row.count))
                .sum();
            assert!((total - 25.0).abs() < 1e-9, "{total}");
            assert!(
                of(rows, series, "answer")
                    .iter()
                    .all(|row| row.value == 42.0)
            );
            assert!(of(rows, series, "broken").is_empty());
        }
    }
    assert!(of(&fast, 50, "answer").len() > of(&fast, 200, "answer").len());

    // And again.
    let again = Listening::start("EventCounterIntervalSec=0.05");
    until("the publisher runs again", || publishers() == 1);
    REQUESTS.add(5);
    until("it publishes", || !again.rows().is_empty());
    let again = again.stop();
    assert!(
        of(&again, 50, "requests")
            .iter()
            .map(|row| row.value)
            .sum::<f64>()
            <= 5.0
    );
    assert!(!of(&again, 50, "answer").is_empty());
    until("the publisher has ended again", || publishers() == 0);
}
