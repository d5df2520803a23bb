//! Promise: a provider's callback is called once for each change, starts and stops balance, and each call says what all
//! remaining sessions together ask for. No lock is held meanwhile: a callback may do anything.

mod common;

use std::sync::{Arc, Mutex};

use common::alone;
use eventpipe::{Cause, Definition, Level, Provider, ProviderRequest, Session, SessionRequest};

#[derive(Clone, Debug, PartialEq)]
struct Call {
    cause: Cause,
    enabled: bool,
    keywords: u64,
    level: Level,
    arguments: Option<String>,
}

fn recording_provider(name: &str) -> (&'static Provider, Arc<Mutex<Vec<Call>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let sink = calls.clone();
    let provider = Provider::builder(name)
        .on_change(move |change| {
            sink.lock().expect("no panic").push(Call {
                cause: change.cause,
                enabled: change.is_enabled,
                keywords: change.keywords,
                level: change.level,
                arguments: change.arguments.map(String::from),
            });
        })
        .register();
    (provider, calls)
}

fn session(provider: ProviderRequest) -> Session {
    SessionRequest::new()
        .provider(provider)
        .start_callback(|_| {})
        .expect("a session starts")
}

fn call(cause: Cause, enabled: bool, keywords: u64, level: Level, arguments: Option<&str>) -> Call {
    Call {
        cause,
        enabled,
        keywords,
        level,
        arguments: arguments.map(String::from),
    }
}

#[test]
fn each_change_is_told_once_with_the_union_of_the_sessions_that_remain() {
    let _alone = alone();
    let (provider, calls) = recording_provider("Balanced");
    let request = |keywords, level| {
        ProviderRequest::new("Balanced")
            .keywords(keywords)
            .level(level)
    };
    let first = session(request(0x1, Level::Error).arguments("a=1"));
    assert!(provider.is_enabled(Level::Error, 0x1));
    assert!(!provider.is_enabled(Level::Warning, 0x1));
    assert!(!provider.is_enabled(Level::Error, 0x2));
    let second = session(request(0x2, Level::Verbose).arguments("b=2"));
    let other = session(ProviderRequest::new("Unbalanced"));
    assert!(first.stop());
    assert!(first.stop(), "a second stop changes nothing");
    assert!(other.stop());
    assert!(second.stop());
    assert!(!provider.is_enabled(Level::LogAlways, 0));
    let expected = [
        call(Cause::SessionStarted, true, 0x1, Level::Error, Some("a=1")),
        call(
            Cause::SessionStarted,
            true,
            0x3,
            Level::Verbose,
            Some("b=2"),
        ),
        call(Cause::SessionStopped, true, 0x2, Level::Verbose, None),
        call(Cause::SessionStopped, false, 0, Level::LogAlways, None),
    ];
    assert_eq!(*calls.lock().expect("no panic"), expected);
}

#[test]
fn a_provider_that_registers_while_sessions_run_is_told_of_them() {
    let _alone = alone();
    let first = session(
        ProviderRequest::new("Late")
            .keywords(0x4)
            .level(Level::Warning)
            .arguments("x=y"),
    );
    let (_, calls) = recording_provider("Late");
    assert!(first.stop());
    let expected = [
        call(
            Cause::SessionStarted,
            true,
            0x4,
            Level::Warning,
            Some("x=y"),
        ),
        call(Cause::SessionStopped, false, 0, Level::LogAlways, None),
    ];
    assert_eq!(*calls.lock().expect("no panic"), expected);
}

#[test]
fn a_callback_may_start_and_stop_sessions_and_write_and_define_events() {
    let _alone = alone();
    let nested: Arc<Mutex<Vec<Session>>> = Arc::default();
    let started = nested.clone();
    let provider = Provider::builder("Busy").register();
    provider.on_change(move |change| {
        if change.cause == Cause::SessionStarted && change.arguments == Some("outer") {
            let inner = session(ProviderRequest::new("Busy").arguments("inner"));
            started.lock().expect("no panic").push(inner);
            provider.define(Definition::new("Nested")).write(());
        }
        if change.cause == Cause::SessionStopped {
            for inner in started.lock().expect("no panic").drain(..) {
                inner.stop();
            }
        }
    });
    let outer = session(ProviderRequest::new("Busy").arguments("outer"));
    assert_eq!(nested.lock().expect("no panic").len(), 1);
    assert!(outer.stop());
    assert!(nested.lock().expect("no panic").is_empty());
}

#[test]
fn a_provider_may_be_taken_away_from_within_its_own_callback() {
    let _alone = alone();
    let provider = Provider::builder("Leaving").register();
    let calls = Arc::new(Mutex::new(0));
    let counter = calls.clone();
    provider.on_change(move |_| {
        *counter.lock().expect("no panic") += 1;
        provider.unregister();
    });
    let first = session(ProviderRequest::new("Leaving"));
    assert!(first.stop());
    assert_eq!(
        *calls.lock().expect("no panic"),
        1,
        "nothing is told after the provider left"
    );
}

#[test]
fn a_callback_that_panics_ends_neither_the_session_nor_the_process() {
    let _alone = alone();
    let provider = Provider::builder("Panicking")
        .on_change(|_| panic!("on purpose"))
        .register();
    let first = session(ProviderRequest::new("Panicking"));
    assert!(provider.is_enabled(Level::Error, 0));
    assert!(first.stop());
}

#[test]
fn sessions_from_many_threads_leave_every_callback_balanced() {
    let _alone = alone();
    let (_, calls) = recording_provider("Contended");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(session(ProviderRequest::new("Contended")).stop());
                }
            });
        }
    });
    // Another thread may still be delivering the last change; a further session's change comes after it.
    assert!(session(ProviderRequest::new("Contended")).stop());
    let calls = calls.lock().expect("no panic");
    assert_eq!(calls.len(), 402);
    let mut running = 0_i64;
    for call in calls.iter() {
        running += if call.cause == Cause::SessionStarted {
            1
        } else {
            -1
        };
        assert!(running >= 0);
        assert_eq!(
            call.enabled,
            running > 0,
            "the union is that of the moment of the change"
        );
    }
    assert_eq!(running, 0);
    assert!(!calls[401].enabled);
}
