//! `collect --fail-on-drop`: lost events are counted in the summary, and make the recording a failure where that is
//! wished, whatever else is done with it.

mod support;

use nettrace::{
    EventRecord, FormatVersion, Metadata, SystemTime, TraceInfo, TraceWriter, WriteFormat,
};
use support::fake::{Fake, dotnet10};
use support::{Scratch, report, run};

/// A stream in which a thread has lost so many of its events.
fn stream(lost: u32) -> Vec<u8> {
    let info = TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(1_796_000_000_000_000_000),
        sync_ticks: 1,
        ticks_per_second: 1_000_000_000,
        pointer_size: 8,
        process_id: Some(7),
        processor_count: Some(1),
        sampling_period_ns: None,
        pairs: Vec::new(),
    };
    let mut writer = TraceWriter::new(WriteFormat::V4, &info);
    let metadata = Metadata {
        id: 1,
        provider: "P".into(),
        event_id: 1,
        ..Metadata::default()
    };
    writer.define_event(&metadata).unwrap();
    for (number, timestamp) in [(1, 10), (2 + lost, 20)] {
        let event = EventRecord {
            metadata_id: 1,
            sequence_number: number,
            thread_id: 7,
            capture_thread_id: 7,
            timestamp,
            is_sorted: true,
            ..EventRecord::default()
        };
        writer.event(&event).unwrap();
    }
    writer.sequence_point(30, 0, [(7, 2 + lost)]);
    writer.finish();
    std::mem::take(writer.output())
}

#[test]
fn with_its_own_exit_code() {
    let scratch = Scratch::new("drop");
    for (name, lost) in [("none", 0), ("some", 5)] {
        let stream = stream(lost);
        let answer = move |request: &_| Some(dotnet10(request, &stream));
        let server = Fake::at(&scratch.file(name), answer);
        for more in [
            &[][..],
            &["--fail-on-drop"],
            &["--fail-on-drop", "--roll", "1MB"],
        ] {
            let file = scratch.file(&format!("{name}{}.nettrace", more.len()));
            let port = server.port();
            let mut words = vec!["collect", "--dport", &port, "--providers", "P", "-o"];
            words.push(file.to_str().unwrap());
            words.extend(more);
            let (code, _, error) = run(&words);
            let is_failure = lost > 0 && !more.is_empty();
            assert_eq!(code, if is_failure { 9 } else { 0 }, "{error}");
            assert!(error.contains(&format!("{lost} lost")), "{error}");
            assert_eq!(
                error.contains("5 events lost, which --fail-on-drop"),
                is_failure,
                "{error}"
            );
            let written = match more.len() {
                3 => scratch.file(&format!("{name}3.0001.nettrace")),
                _ => file,
            };
            let (code, report) = report(&written);
            assert_eq!(
                (code, &report["lost"]["total"]),
                (0, &lost.into()),
                "complete all the same"
            );
        }
    }
}
