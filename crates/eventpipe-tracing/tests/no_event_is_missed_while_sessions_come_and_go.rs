//! Promise: from the moment at which a session has started to that at which it is stopped, every event of `tracing` is attempted, also where its
//! callsite was off before, or is used for the first time just then; and attempted = delivered + lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use eventpipe::{Level, Listener, ProviderRequest, SessionRequest};
use tracing::{debug, info, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

const THREADS: usize = 8;
const EACH: u64 = 20;
/// The number of an event that is written while the session starts.
const EARLY: u64 = u64::MAX;

/// Functions with a callsite of their own, which nobody has used before.
macro_rules! fresh {
    ($provider:literal: $($round:literal)*) => {
        [$({
            fn write(number: u64) {
                debug!(target: $provider, number, round = $round);
            }
            write as fn(u64)
        }),*]
    };
}

/// One test at a time: sessions of all providers are no others' business.
static ALONE: Mutex<()> = Mutex::new(());

/// The formatting layer makes `tracing` ask about INFO each time, and never about DEBUG.
fn subscribe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let sink = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
        tracing_subscriber::registry()
            .with(sink.with_filter(LevelFilter::INFO))
            .with(eventpipe_tracing::layer())
            .init();
    });
}

fn session(provider: &str) -> Listener {
    session_with_buffer(provider, 64)
}

fn session_with_buffer(provider: &str, megabytes: u32) -> Listener {
    let request = ProviderRequest::new(provider)
        .keywords(0)
        .level(Level::Verbose);
    SessionRequest::new()
        .provider(request)
        .buffer_mb(megabytes)
        .listen()
        .expect("the session starts")
}

/// Delivered, without those that were early, and lost.
fn count(listener: &Listener) -> (u64, u64) {
    listener.session().stop();
    let statistics = listener.session().statistics();
    let all: Vec<_> = std::iter::from_fn(|| listener.next()).collect();
    assert_eq!(statistics.delivered, all.len() as u64);
    let early = all
        .iter()
        .filter(|heard| heard.payload.starts_with(&EARLY.to_le_bytes()));
    ((all.len() - early.count()) as u64, statistics.lost)
}

/// Starts and stops sessions for a provider until it is told to end.
fn toggle(provider: &str, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let other = session(provider);
        info!(target: "t_others", "a callsite of another provider");
        let (delivered, lost) = count(&other);
        assert!(delivered + lost >= 1, "its own event is missing");
    }
}

#[test]
fn a_session_gets_all_from_its_start_to_its_end() {
    const EVENTS: u64 = 5;
    fn piece(number: u64, fresh: fn(u64)) {
        info_span!(target: "t_rounds", "piece", number).in_scope(|| {
            info!(target: "t_rounds", number, text = "of the test");
            debug!(target: "t_rounds", number, "off between the sessions");
            fresh(number);
        });
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    subscribe();
    let all_fresh = fresh!("t_rounds":
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75);
    let barrier = Barrier::new(THREADS + 1);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for fresh in all_fresh {
                    barrier.wait();
                    // Meanwhile the session starts.
                    fresh(EARLY);
                    barrier.wait();
                    (0..EACH).for_each(|number| piece(number, fresh));
                    barrier.wait();
                }
            });
        }
        scope.spawn(|| toggle("t_others", &ended));
        for _ in all_fresh {
            barrier.wait();
            let listener = session("t_rounds");
            barrier.wait();
            barrier.wait();
            let (delivered, lost) = count(&listener);
            let attempted = THREADS as u64 * EACH * EVENTS;
            // Early ones may have been lost as well.
            let right = delivered <= attempted && delivered + lost >= attempted;
            assert!(right, "{delivered} of {attempted} came, {lost} were lost");
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_long_session_is_not_disturbed_by_short_ones() {
    // There is room for all.
    assert_eq!(lost_in_a_long_session(64), 0);
}

#[test]
fn what_a_session_has_no_room_for_is_counted() {
    assert!(lost_in_a_long_session(1) > 0);
}

/// How many events are lost in a session of that size that is not read before its end, while eight threads write and other sessions come and go.
fn lost_in_a_long_session(megabytes: u32) -> u64 {
    const PIECES: u64 = 1_000;
    const EVENTS: u64 = 4;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    subscribe();
    let ended = AtomicBool::new(false);
    let long = session_with_buffer("t_long", megabytes);
    thread::scope(|scope| {
        for provider in ["t_long", "t_others", "*"] {
            let ended = &ended;
            scope.spawn(move || {
                if provider == "t_long" {
                    while !ended.load(Ordering::Relaxed) {
                        count(&session(provider));
                    }
                } else {
                    toggle(provider, ended);
                }
            });
        }
        let writers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    for number in 0..PIECES {
                        info_span!(target: "t_long", "piece", number).in_scope(|| {
                            info!(target: "t_long", number, text = "of the test");
                            debug!(target: "t_long", number);
                        });
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        ended.store(true, Ordering::Relaxed);
    });
    let (delivered, lost) = count(&long);
    let attempted = THREADS as u64 * PIECES * EVENTS;
    assert_eq!(delivered + lost, attempted, "{lost} were lost");
    lost
}
