//! Promise: ending a session while threads end, the defect that the existing engine had for years, is harmless: no crash, no
//! hang, and what a thread wrote into the session is there, from its first event on, without a hole.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{Trace, alone};
use eventpipe::{ProviderRequest, SessionRequest};

eventpipe::provider! {
    mod ending = "Ending";

    #[event(id = 1, level = Informational, stack = false)]
    fn step(thread: u64, number: u64);
}

const EVENTS: u64 = 5;

/// The full number with `EVENTPIPE_TEST_FULL`, as `.ci/run` sets it, else a tenth.
fn rounds(full: u64) -> u64 {
    if std::env::var_os("EVENTPIPE_TEST_FULL").is_some() {
        full
    } else {
        full / 10
    }
}

/// Threads write a few events and end, while the session starts and stops.
fn race(rounds: u64, threads: u64) {
    for _ in 0..rounds {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = bytes.clone();
        let session = SessionRequest::new()
            .provider(ProviderRequest::new("Ending"))
            .start_callback(move |piece| sink.lock().expect("no panic").extend_from_slice(piece))
            .expect("starts");
        let early =
            std::thread::spawn(|| (0..EVENTS).for_each(|number| ending::step(u64::MAX, number)));
        early.join().expect("no panic");
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                std::thread::spawn(move || {
                    (0..EVENTS).for_each(|number| ending::step(thread, number))
                })
            })
            .collect();
        assert!(session.stop());
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("no panic"));
        let trace = Trace::read(&bytes.lock().expect("no panic"));
        let mut next = BTreeMap::<u64, u64>::new();
        for event in trace.of("Ending") {
            let word = |at: usize| {
                u64::from_le_bytes(event.payload[at..at + 8].try_into().expect("eight"))
            };
            let expected = next.entry(word(0)).or_default();
            assert_eq!(word(8), *expected, "no hole in thread {}", word(0));
            *expected += 1;
        }
        assert_eq!(
            next.get(&u64::MAX),
            Some(&EVENTS),
            "a thread that ended before the stop is complete"
        );
        assert_eq!(trace.total_lost(), 0);
    }
}

#[test]
fn thousands_of_sessions_end_while_threads_end() {
    let _alone = alone();
    race(rounds(10_000), 2);
}

#[test]
fn sessions_start_and_stop_under_threads_that_write_all_the_time() {
    let _alone = alone();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|thread| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                for number in 0_u64.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    ending::step(thread, number);
                }
            })
        })
        .collect();
    for _ in 0..rounds(300) {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = bytes.clone();
        let session = SessionRequest::new()
            .provider(ProviderRequest::new("Ending"))
            .buffer_mb(1)
            .start_callback(move |piece| sink.lock().expect("no panic").extend_from_slice(piece))
            .expect("starts");
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(session.stop());
        let trace = Trace::read(&bytes.lock().expect("no panic"));
        // Within a session the numbers of a thread have exactly the holes that are counted.
        let mut seen = BTreeMap::<u64, (u64, u64, u64)>::new();
        for event in trace.of("Ending") {
            let number = u64::from_le_bytes(event.payload[8..].try_into().expect("eight bytes"));
            let (first, last, count) = seen.entry(event.thread).or_insert((number, number, 0));
            *last = number.max(*last);
            *first = number.min(*first);
            *count += 1;
        }
        for (thread, (first, last, count)) in seen {
            let lost = trace.lost.get(&thread).copied().unwrap_or(0);
            assert!(
                last - first < count + lost,
                "{thread}: {first}..={last}, {count} seen, {lost} lost"
            );
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writers
        .into_iter()
        .for_each(|writer| writer.join().expect("no panic"));
}
