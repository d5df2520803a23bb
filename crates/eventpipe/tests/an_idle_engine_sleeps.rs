//! Promise: without a session no thread of the engine wakes; an idle session costs at most one wake-up a second; and a small batch of
//! events is with its reader within a tenth of a second. The first two are counted in context switches, not in time.

mod common;

use std::io::Read;
use std::time::{Duration, Instant};

use common::{Recording, client, everything_of};
use dotnet_diagnostics::client::Fallbacks;

eventpipe::provider! {
    mod idle = "Idle";

    #[event(id = 1, level = Informational, stack = false)]
    fn step(number: u64);
}

/// How often the engine's threads have gone to sleep so far.
fn switches() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("readable");
    let of_thread = |folder: std::path::PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        name.starts_with("eventpipe-")
            .then(|| count.trim().parse::<u64>().expect("a number"))
    };
    threads
        .filter_map(|thread| of_thread(thread.ok()?.path()))
        .sum()
}

fn in_the_next(seconds: u64) -> u64 {
    let before = switches();
    std::thread::sleep(Duration::from_secs(seconds));
    switches() - before
}

#[test]
fn nothing_wakes_without_a_reason() {
    eventpipe::start();
    client().process_info().expect("answered");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(in_the_next(3), 0, "no session yet");
    let mut session = client()
        .collect(&everything_of("Idle"), Fallbacks::NONE)
        .expect("starts");
    // Both clocks are read so many times while they are young (five seconds); then there is nothing to do.
    let mut header = [0; 102];
    session
        .read_exact(&mut header)
        .expect("the header comes before any event");
    assert_eq!(&header[..8], b"Nettrace");
    let young = in_the_next(6);
    assert!(young <= 12, "{young} in the first six seconds");
    idle::step(1);
    std::thread::sleep(Duration::from_secs(2));
    let idle = in_the_next(4);
    assert!(idle <= 4, "{idle} in four seconds of an idle session");
    // A batch while the drain sleeps: measured often, as the machine may be busy with other things, and the best counts.
    let mut best = Duration::MAX;
    for number in 0..20 {
        let written = Instant::now();
        (0..10).for_each(|n| idle::step(number * 10 + n));
        let mut piece = [0; 4096];
        assert_ne!(session.read(&mut piece).expect("the stream flows"), 0);
        best = best.min(written.elapsed());
        // What follows of the batch (a sequence point) is read, too.
        std::thread::sleep(Duration::from_millis(120));
    }
    println!("a batch of ten is with its reader after {best:?}");
    assert!(best < Duration::from_millis(100), "{best:?}");
    Recording::of(session).stop_without_reading();
    // The pool is kept for five seconds, and then given back.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(in_the_next(3), 0, "no session any more");
}
