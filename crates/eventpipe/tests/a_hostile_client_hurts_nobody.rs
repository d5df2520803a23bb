//! Malformed, silent, slow, abrupt and crowding clients: each gets the right error, others are answered meanwhile, and
//! afterwards the process holds what it held before.

#[path = "../../dotnet-diagnostics/tests/hostile/mod.rs"]
mod hostile;

use std::time::Duration;

use hostile::{Health, Vitals};

/// One test at a time looks at the process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn everything_is_answered_and_nothing_is_kept() {
    let _alone = ALONE.lock();
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
            // The promise is 100 ms; a busy machine may take longer once, not ten times.
            if let Health::Answers(time) = outcome.health {
                assert!(time < Duration::from_millis(100), "{}: {time:?}", case.name);
            }
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

/// Complete exchanges, half requests, closes at once and broken ones, in turn. 100,000 with `EVENTPIPE_TEST_FULL`, else a tenth.
#[test]
fn a_hundred_thousand_connections_leave_nothing() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use dotnet_diagnostics::codec::{ProcessInfoVersion, Request};

    let _alone = ALONE.lock();
    eventpipe::start();
    let pid = std::process::id();
    let socket = dotnet_diagnostics::discovery::find(pid)
        .expect("our own socket")
        .socket;
    let request = Request::ProcessInfo(ProcessInfoVersion::V3)
        .encode()
        .expect("valid");
    let connect = |number: usize| {
        let mut stream = UnixStream::connect(&socket).expect("the server listens");
        let (message, reads): (&[u8], _) = match number % 4 {
            0 => (&request, true),
            1 => (&request[..7], false),
            2 => (b"DOTNET_IPC_V9 and so on, and so on", true),
            _ => (&[], false),
        };
        stream.write_all(message).expect("taken");
        if reads {
            let mut answer = Vec::new();
            // A server may close before it has read everything, which resets the connection.
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() >= 24, "connection {number}: {answer:?}");
        }
    };
    let settled = || {
        // The last ones are still being closed.
        assert!(matches!(hostile::health(&socket), Health::Answers(_)));
        std::thread::sleep(Duration::from_millis(500));
        Vitals::of(pid).expect("/proc")
    };
    let full = std::env::var_os("EVENTPIPE_TEST_FULL").is_some();
    (0..1_000).for_each(connect);
    let before = settled();
    (0..if full { 100_000 } else { 10_000 }).for_each(connect);
    let after = settled();
    assert_eq!(after.descriptors, before.descriptors);
    assert_eq!(after.threads, before.threads);
    let growth_kb = after.resident_kb.saturating_sub(before.resident_kb);
    assert!(growth_kb < 4 << 10, "{growth_kb} KiB more");
}
