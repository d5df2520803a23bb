//! Promise: however large a buffer is asked for, a program whose address space is limited does not die of a reader that takes nothing.
//!
//! This program has its own `main`: started with an argument it is the program that is traced.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use eventpipe::{ProviderRequest, SessionRequest};
use rustix::process::{Resource, Rlimit, setrlimit};

eventpipe::provider! {
    mod flood = "Flood";

    #[event(id = 1, level = Informational, stack = false)]
    fn wave(number: u64, filling: &[u8]);
}

/// Enough for the pool (64 MB), threads and their heaps, and for several programs of this size.
const ADDRESS_SPACE: u64 = 600 << 20;

const FILLING: [u8; 1000] = [7; 1000];

fn main() {
    if std::env::args().nth(1).as_deref() == Some("limited") {
        return limited();
    }
    let limited = Command::new(std::env::current_exe().expect("known"))
        .arg("limited")
        .env("EVENTPIPE_EnableDiagnostics", "0")
        .status()
        .expect("starts");
    assert!(limited.success(), "{limited}");
    println!("a flood that nobody reads was survived");
}

fn limited() {
    let limit = Rlimit {
        current: Some(ADDRESS_SPACE),
        maximum: Some(ADDRESS_SPACE),
    };
    setrlimit(Resource::As, limit).expect("a lower limit");
    eventpipe::start();
    let (go_on, stalled) = mpsc::channel::<()>();
    let session = SessionRequest::new()
        .provider(ProviderRequest::new("Flood"))
        .buffer_mb(u32::MAX)
        .start_callback(move |_| while stalled.recv().is_ok() {})
        .expect("starts");
    let accounted = || {
        let counts = session.statistics();
        counts.delivered + counts.lost
    };
    let mut attempted = 0;
    while attempted * FILLING.len() as u64 <= ADDRESS_SPACE {
        // A part of the pool each time, so that it is the session's queue that takes it or does not.
        for _ in 0..8_000 {
            flood::wave(attempted, &FILLING);
            attempted += 1;
        }
        while accounted() < attempted {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(
        session.statistics().lost > 0,
        "more than the queue may hold"
    );
    // The program has memory of its own left.
    assert_eq!(vec![7_u8; 50 << 20].len(), 50 << 20);
    drop(go_on);
    assert!(session.stop());
    assert_eq!(accounted(), attempted);
}
