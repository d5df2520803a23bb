//! Promise: attempted = delivered + lost, per thread and session, with every value as it was written and each thread's
//! events in their order.

mod common;

use std::collections::BTreeMap;

use common::{Recording, Trace, alone, everything_of};
use eventpipe::{Format, Guid, ProviderRequest, SessionRequest};

eventpipe::provider! {
    mod accounting = "Accounting";

    #[event(id = 1, level = Informational, keywords = 0x1)]
    fn everything(
        number: u64, truth: bool, letter: char, a: i8, b: u8, c: i16, d: u16, e: i32, f: u32, g: i64, single: f32,
        double: f64, guid: Guid, text: &str, bytes: &[u8],
    );

    #[event(id = 2, level = Verbose, keywords = 0x2, stack = false)]
    fn small(number: u64);

    #[event(id = 3, level = Verbose, stack = false)]
    fn sized(number: u64, bytes: &[u8]);
}

const THREADS: u64 = 4;

fn write_everything(n: u64) {
    let text = format!("text {n} ü🦀");
    let bytes = n.to_le_bytes();
    accounting::everything(
        n,
        n.is_multiple_of(2),
        char::from(b'a' + (n % 26) as u8),
        n as i8,
        n as u8,
        n as i16,
        n as u16,
        n as i32,
        n as u32,
        n as i64,
        n as f32,
        n as f64,
        Guid([n as u8; 16]),
        &text,
        &bytes[..(n % 9) as usize],
    );
}

fn expected_everything(n: u64) -> Vec<u8> {
    let mut out = n.to_le_bytes().to_vec();
    out.extend(u32::from(n.is_multiple_of(2)).to_le_bytes());
    out.extend(u16::from(b'a' + (n % 26) as u8).to_le_bytes());
    out.extend([n as u8, n as u8]);
    out.extend((n as u16).to_le_bytes());
    out.extend((n as u16).to_le_bytes());
    out.extend((n as u32).to_le_bytes());
    out.extend((n as u32).to_le_bytes());
    out.extend(n.to_le_bytes());
    out.extend((n as f32).to_le_bytes());
    out.extend((n as f64).to_le_bytes());
    out.extend([n as u8; 16]);
    out.extend(
        format!("text {n} ü🦀")
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes),
    );
    out.extend(((n % 9) as u16).to_le_bytes());
    out.extend(&n.to_le_bytes()[..(n % 9) as usize]);
    out
}

/// Runs writers and returns what each thread id attempted.
fn on_threads(write: impl Fn(u64) + Sync, per_thread: u64) -> BTreeMap<u64, u64> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    (0..per_thread).for_each(&write);
                    // Ids are not used again while the scope's other threads run.
                    std::thread::park_timeout(std::time::Duration::from_millis(50));
                    (eventpipe_os::thread::os_thread_id(), per_thread)
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"))
            .collect()
    })
}

/// Numbers are the first eight bytes of every payload here.
fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"))
}

fn check_accounting(trace: &Trace, attempted: &BTreeMap<u64, u64>) {
    for (thread, attempted) in attempted {
        let numbers: Vec<u64> = trace
            .of("Accounting")
            .filter(|event| event.thread == *thread)
            .map(|event| number(&event.payload))
            .collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "the order of thread {thread} is kept"
        );
        let lost = trace.lost.get(thread).copied().unwrap_or(0);
        assert_eq!(
            numbers.len() as u64 + lost,
            *attempted,
            "thread {thread}, {lost} lost"
        );
    }
}

#[test]
fn values_of_every_type_arrive_as_written() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Accounting"));
    let attempted = on_threads(write_everything, 5_000);
    let trace = recording.stop();
    check_accounting(&trace, &attempted);
    assert_eq!(
        trace.total_lost(),
        0,
        "a reader that reads loses nothing at this rate"
    );
    for event in trace.of("Accounting") {
        assert_eq!(event.payload, expected_everything(number(&event.payload)));
        assert_eq!((event.name.as_str(), event.id), ("Everything", 1));
    }
}

#[test]
fn a_burst_larger_than_every_buffer_is_accounted_for() {
    let _alone = alone();
    let mut request = everything_of("Accounting");
    request.buffer_mb = 1;
    let recording = Recording::start(&request);
    let attempted = on_threads(|n| accounting::sized(n, &[7; 1000]), 100_000);
    check_accounting(&recording.stop(), &attempted);
}

#[test]
fn payloads_up_to_the_limit_arrive_and_larger_ones_are_counted() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Accounting"));
    let large = vec![9_u8; 100 << 20];
    // 8 bytes of number and 2 of length are part of the payload, which may have 65,536.
    let sizes = [
        0,
        1,
        4_000,
        65_526,
        65_527,
        65_535,
        65_536,
        1 << 20,
        100 << 20,
    ];
    let attempted = on_threads(
        |n| {
            for size in sizes {
                accounting::sized(n * 10, &large[..size]);
                accounting::small(n * 10);
            }
        },
        20,
    );
    let trace = recording.stop();
    for thread in attempted.keys() {
        let of_thread = |id| {
            trace
                .events
                .iter()
                .filter(move |e| e.thread == *thread && e.id == id)
        };
        assert_eq!(
            of_thread(2).count(),
            20 * sizes.len(),
            "neighbours are unaffected"
        );
        assert_eq!(of_thread(3).count(), 20 * 4);
        assert_eq!(trace.lost.get(thread), Some(&(20 * 5)));
    }
}

#[test]
fn buffers_of_every_size_are_taken() {
    let _alone = alone();
    // 0 is 1 MB, as in the runtimes' settings (over the protocol it is refused, as they do). The rest is a limit and no
    // reservation, so the largest costs nothing.
    for megabytes in [0, 1, 4_096, u32::MAX] {
        let bytes: std::sync::Arc<std::sync::Mutex<Vec<u8>>> = Default::default();
        let sink = bytes.clone();
        let session = SessionRequest::new()
            .provider(ProviderRequest::new("Accounting"))
            .buffer_mb(megabytes)
            .start_callback(move |piece| sink.lock().expect("no panic").extend_from_slice(piece))
            .expect("starts");
        let attempted = on_threads(accounting::small, 100);
        assert!(session.stop());
        let trace = Trace::read(&bytes.lock().expect("no panic"));
        check_accounting(&trace, &attempted);
        assert_eq!(trace.total_lost(), 0, "{megabytes} MB");
    }
}

#[test]
fn a_file_and_a_function_get_the_same_events_as_a_socket_in_both_formats() {
    let _alone = alone();
    let path = std::env::temp_dir().join(format!("eventpipe-same-{}.nettrace", std::process::id()));
    let path_text = path.to_str().expect("a plain path");
    for format in [Format::V4, Format::V6] {
        let pieces: std::sync::Arc<std::sync::Mutex<Vec<u8>>> = Default::default();
        let sink = pieces.clone();
        let request = || {
            SessionRequest::new()
                .provider(ProviderRequest::new("Accounting"))
                .format(format)
        };
        let file = request().start_file(path_text).expect("starts");
        let function = request()
            .start_callback(move |piece| sink.lock().expect("no panic").extend_from_slice(piece))
            .expect("starts");
        let socket = Recording::start(&everything_of("Accounting"));
        on_threads(write_everything, 500);
        assert!(file.stop());
        assert!(function.stop());
        let statistics = file.statistics();
        let content = std::fs::read(&path).expect("the file is there");
        let in_file = Trace::read(&content);
        let in_function = Trace::read(&pieces.lock().expect("no panic"));
        let in_socket = socket.stop();
        let values = |trace: &Trace| {
            let mut values: Vec<Vec<u8>> = trace
                .of("Accounting")
                .map(|event| event.payload.clone())
                .collect();
            values.sort();
            values
        };
        assert_eq!(values(&in_file).len() as u64, THREADS * 500);
        assert_eq!(values(&in_file), values(&in_socket));
        assert_eq!(values(&in_file), values(&in_function));
        assert_eq!((statistics.delivered, statistics.lost), (THREADS * 500, 0));
        assert_eq!(statistics.bytes, content.len() as u64);
    }
    std::fs::remove_file(&path).expect("removable");
}

#[test]
fn filters_select_by_keyword_level_and_id() {
    use dotnet_diagnostics::codec::{CollectTracing, CollectVersion, EventFilter, ProviderConfig};
    let _alone = alone();
    let collect = |keywords, level, filter: Option<EventFilter>| {
        let mut provider = ProviderConfig::new("Accounting", keywords, level);
        provider.event_filter = filter;
        let mut request = CollectTracing::new([provider]);
        request.version = CollectVersion::V5;
        let recording = Recording::start(&request);
        write_everything(1);
        accounting::small(1);
        accounting::sized(1, &[]);
        let trace = recording.stop();
        trace
            .of("Accounting")
            .map(|event| event.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(collect(u64::MAX, 5, None), [1, 2, 3]);
    assert_eq!(
        collect(u64::MAX, 0, None),
        [1, 2, 3],
        "level 0 is all levels"
    );
    assert_eq!(
        collect(0, 5, None),
        [3],
        "without keywords only events without keywords"
    );
    assert_eq!(collect(0x1, 4, None), [1]);
    assert_eq!(collect(0x2, 5, None), [2, 3]);
    assert_eq!(collect(u64::MAX, 5, Some(EventFilter::Only(vec![2]))), [2]);
    assert_eq!(
        collect(u64::MAX, 5, Some(EventFilter::AllBut(vec![2]))),
        [1, 3]
    );
    assert_eq!(
        collect(u64::MAX, 5, Some(EventFilter::Only(vec![]))),
        [0_u32; 0]
    );
}

#[test]
fn the_same_thread_goes_on_counting_in_one_session_and_begins_anew_in_the_next() {
    let _alone = alone();
    for _ in 0..3 {
        let recording = Recording::start(&everything_of("Accounting"));
        (0..10).for_each(accounting::small);
        let trace = recording.stop();
        assert_eq!(trace.of("Accounting").count(), 10);
        assert_eq!(trace.total_lost(), 0);
    }
}
