//! Malformed, silent, slow, abrupt and crowding clients: each gets the right error, others are answered meanwhile, and
//! afterwards the process holds what it held before.

#[path = "../../dotnet-diagnostics/tests/hostile/mod.rs"]
mod hostile;

use std::time::Duration;

use hostile::Vitals;

#[test]
fn everything_is_answered_and_nothing_is_kept() {
    eventpipe::start();
    let pid = std::process::id();
    let process = dotnet_diagnostics::discovery::find(pid).expect("our own socket");
    let all = || {
        for case in hostile::cases() {
            let outcome = case.run(&process.socket);
            assert!(
                outcome.as_expected,
                "{}: {:?}, then {:?}",
                case.name, outcome.answer, outcome.health
            );
        }
    };
    all();
    // What is made once (threads, the pool of buffers) is there now.
    let flat = || {
        // Sessions whose clients have gone end by themselves, in their own time.
        let mut vitals = Vitals::of(pid).expect("/proc");
        loop {
            std::thread::sleep(Duration::from_secs(2));
            let now = Vitals::of(pid).expect("/proc");
            if (now.descriptors, now.threads) == (vitals.descriptors, vitals.threads) {
                return now;
            }
            vitals = now;
        }
    };
    let before = flat();
    all();
    let after = flat();
    assert_eq!(after.descriptors, before.descriptors);
    assert_eq!(after.threads, before.threads);
    let growth_kb = after.resident_kb.saturating_sub(before.resident_kb);
    assert!(growth_kb < 32 << 10, "{growth_kb} KiB more");
}
