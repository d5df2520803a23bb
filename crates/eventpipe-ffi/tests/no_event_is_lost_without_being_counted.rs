//! Promise: attempted = delivered + lost, per thread and session, in the worst that was thought of: a small pool with a reader that
//! stalls and comes back; sixty-four sessions that come and go under eight writers; 100,000 threads of which half only lose an event and
//! end; events inside signal handlers and inside events. (A fork: the_child_of_a_fork_is_not_traced.rs. The end of the process:
//! eventpipe/tests/the_process_may_exit_while_it_is_traced.rs.)
//!
//! Here and not beside the engine's other tests, because a signal handler needs unsafe code, and the crate `eventpipe` has none.
//!
//! This program has its own `main`: each scenario is a process of its own, with a pool of 1 MB.

#[path = "../../eventpipe/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use common::{Seen, Trace, client, everything_of};
use dotnet_diagnostics::client::Fallbacks;
use eventpipe::{EventOptions, Format, Payload, ProviderRequest, SessionRequest};

eventpipe::provider! {
    mod events = "Conservation";

    #[event(id = 1, level = Informational, keywords = 0x1, stack = false)]
    fn first(number: u64, bytes: &[u8]);

    #[event(id = 2, level = Informational, keywords = 0x2, stack = false)]
    fn second(number: u64, bytes: &[u8]);

    #[event(id = 3, level = Informational, keywords = 0x4)]
    fn third(number: u64, bytes: &[u8]);
}

const SCENARIOS: [(&str, fn()); 4] = [
    (
        "a_reader_stalls_and_comes_back",
        a_reader_stalls_and_comes_back,
    ),
    (
        "sixty_four_sessions_come_and_go",
        sixty_four_sessions_come_and_go,
    ),
    (
        "a_hundred_thousand_threads_cost_no_memory_and_no_doubt",
        a_hundred_thousand_threads,
    ),
    (
        "events_inside_handlers_and_inside_events",
        events_inside_handlers_and_events,
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = arguments.as_slice()
        && flag == "--scenario"
    {
        let scenario = SCENARIOS.iter().find(|(known, _)| known == name);
        return scenario.expect("a scenario").1();
    }
    for (name, _) in SCENARIOS {
        if arguments.is_empty() || arguments.iter().any(|wanted| name.contains(wanted)) {
            let status = Command::new(std::env::current_exe().expect("known"))
                .args(["--scenario", name])
                .env("EVENTPIPE_EventPipePoolMB", "1")
                .stdin(Stdio::null())
                .status()
                .expect("starts");
            assert!(status.success(), "{name}: {status}");
            println!("test {name} ... ok");
        }
    }
}

/// The full number with `EVENTPIPE_TEST_FULL`, as `.ci/run` sets it, else a tenth.
fn part(full: u64) -> u64 {
    if std::env::var_os("EVENTPIPE_TEST_FULL").is_some() {
        full
    } else {
        full / 10
    }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"))
}

/// Which of the three events a thread writes as its `number`th.
fn write(number: u64) {
    let bytes = [number as u8; 100];
    match number % 3 {
        0 => events::first(number, &bytes),
        1 => events::second(number, &bytes),
        _ => events::third(number, &bytes),
    }
}

/// How many of the numbers `from..to` a session wants that asks for these keywords.
fn wanted(from: u64, to: u64, keywords: u64) -> u64 {
    (from..to).filter(|n| keywords >> (n % 3) & 1 == 1).count() as u64
}

/// A gap in the numbers of the stream is as wide as what the program wrote in between, for each thread, everywhere; from a
/// millisecond after the start of the session returned on (events are switched on one after another, and time stamps are exact to
/// some microseconds).
fn check_gaps(trace: &Trace, keywords: u64, started: i64) {
    let mut last: BTreeMap<u64, &Seen> = BTreeMap::new();
    for event in trace.of("Conservation") {
        let now = number(&event.payload);
        assert_eq!(event.id as u64, now % 3 + 1);
        assert_eq!(
            event.payload[10..],
            [now as u8; 100],
            "the payload is whole"
        );
        if let Some(before) = last.insert(event.thread, event)
            && before.time > started + 1_000_000
        {
            let before_number = number(&before.payload);
            assert!(before_number < now, "in order");
            assert_eq!(
                u64::from(event.sequence.wrapping_sub(before.sequence)),
                wanted(before_number + 1, now + 1, keywords),
                "thread {}: {before_number}, then {now}, {} ns after the start",
                event.thread,
                event.time - started
            );
        }
    }
}

/// Now, as the time stamps of a stream have it.
fn now() -> i64 {
    eventpipe_os::clock::monotonic_ns() as i64
}

fn a_reader_stalls_and_comes_back() {
    const EVENTS: u64 = 60_000;
    const WRITERS: usize = 4;
    let mut request = everything_of("Conservation");
    request.buffer_mb = 1;
    let mut session = client().collect(&request, Fallbacks::NONE).expect("starts");
    let stopper = session.stopper();
    // Half of the events while nobody reads, the other half while somebody does.
    let half = Arc::new(Barrier::new(WRITERS + 1));
    let resumed = half.clone();
    let reader = std::thread::spawn(move || {
        resumed.wait();
        let mut bytes = Vec::new();
        session.read_to_end(&mut bytes).expect("readable");
        bytes
    });
    let done = Barrier::new(WRITERS);
    let threads: Vec<u64> = std::thread::scope(|scope| {
        let writer = || {
            (0..EVENTS / 2).for_each(write);
            half.wait();
            // Some at a pace that the reader can follow: so they come after the gap.
            for n in EVENTS / 2..EVENTS {
                write(n);
                if n % 500 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            done.wait();
            eventpipe_os::thread::os_thread_id()
        };
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
        writers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .collect()
    });
    stopper.stop().expect("answered");
    let trace = Trace::read(&reader.join().expect("no panic"));
    check_gaps(&trace, 7, 0);
    assert!(trace.total_lost() > 0, "the buffers were to be too small");
    for thread in threads {
        let of_thread = |event: &&Seen| event.thread == thread;
        let delivered = trace.of("Conservation").filter(of_thread).count() as u64;
        let lost = trace.lost.get(&thread).copied().unwrap_or(0);
        assert_eq!(delivered + lost, EVENTS, "thread {thread}: {lost} lost");
        assert!(delivered > 0);
    }
}

struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn sixty_four_sessions_come_and_go() {
    let end = Instant::now() + Duration::from_secs(part(60));
    let stop = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    let (mut ended, mut delivered, mut lost) = (0_u64, 0, 0);
    std::thread::scope(|scope| {
        // Also when a check fails, or the writers would keep the process.
        let _stop = StopWhenDropped(&stop);
        for _ in 0..8 {
            scope.spawn(|| {
                // At the pace of the sessions' changes, or streams would become longer and changes slower without end; and now
                // and then a burst that the pool cannot hold.
                let mut n = 0;
                let mut turn = 0;
                while !stop.load(Ordering::Relaxed) {
                    if turn > turns.load(Ordering::Relaxed) + 4 {
                        std::thread::sleep(Duration::from_micros(100));
                        continue;
                    }
                    turn += 1;
                    let burst = if turn % 64 == 0 { 4_000 } else { 20 };
                    (n..n + burst).for_each(write);
                    n += burst;
                }
            });
        }
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut sessions: Vec<_> = (0..64).map(|_| None).collect();
        while Instant::now() < end || ended < 64 || sessions.iter().any(Option::is_some) {
            turns.fetch_add(1, Ordering::Relaxed);
            let place = &mut sessions[next(64) as usize];
            match place.take() {
                None if Instant::now() < end || ended < 64 => {
                    let keywords = next(7) + 1;
                    let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
                    let sink = bytes.clone();
                    let started = SessionRequest::new()
                        .provider(ProviderRequest::new("Conservation").keywords(keywords))
                        .buffer_mb(1 + next(4) as u32)
                        .format([Format::V4, Format::V6][next(2) as usize])
                        .stacks(next(2) == 0)
                        .start_callback(move |piece| {
                            sink.lock().expect("no panic").extend_from_slice(piece);
                        })
                        .expect("there is a place for it");
                    *place = Some((started, bytes, keywords, now()));
                }
                None => {}
                Some((session, bytes, keywords, started)) => {
                    assert!(session.stop());
                    let statistics = session.statistics();
                    let trace = Trace::read(&bytes.lock().expect("no panic"));
                    let count = trace.of("Conservation").count() as u64;
                    check_gaps(&trace, keywords, started);
                    assert_eq!(statistics.delivered, count);
                    assert_eq!(statistics.lost, trace.total_lost());
                    (ended, delivered, lost) =
                        (ended + 1, delivered + count, lost + statistics.lost);
                }
            }
        }
    });
    println!("{ended} sessions: {delivered} events delivered, {lost} lost and counted");
    assert!(delivered > 0, "{ended} sessions");
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("there");
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

/// Processor time of the process.
fn cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Half of them write an event, the others try one that is too large: those lose it and end, and are known by that alone.
fn a_hundred_thousand_threads() {
    eventpipe::start();
    let threads = part(100_000);
    let path =
        std::env::temp_dir().join(format!("eventpipe-threads-{}.nettrace", std::process::id()));
    let session = SessionRequest::new()
        .provider(ProviderRequest::new("Conservation"))
        .start_file(path.to_str().expect("a plain path"))
        .expect("starts");
    let large = vec![0_u8; 100_000];
    let mut costs = Vec::new();
    let mut before = 0;
    for batch in 0..threads / 100 {
        let start = cpu();
        std::thread::scope(|scope| {
            for number in batch * 100..(batch + 1) * 100 {
                let large = &large;
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                let run = move || match number % 2 {
                    0 => events::first(number * 3, &[(number * 3) as u8; 100]),
                    _ => events::first(number * 3, large),
                };
                thread.spawn_scoped(scope, run).expect("a thread");
            }
        });
        costs.push((cpu() - start).as_nanos() as f64);
        if batch == threads / 1000 {
            before = resident();
        }
    }
    let grown = resident().saturating_sub(before);
    // What a hundred threads cost, the drain's work included: the second fifth, and the last. The least of each, as a busy
    // machine only adds to it.
    let fifth = costs.len() / 5;
    let least = |costs: &[f64]| costs.iter().copied().fold(f64::MAX, f64::min);
    let (early, late) = (least(&costs[fifth..2 * fifth]), least(&costs[4 * fifth..]));
    assert!(session.stop());
    let statistics = session.statistics();
    let trace = Trace::read(&std::fs::read(&path).expect("there"));
    std::fs::remove_file(&path).expect("removable");
    println!(
        "{threads} threads: {} MB more, {:.2} times the cost at the end",
        grown >> 20,
        late / early
    );
    let read = trace.of("Conservation").count() as u64;
    assert_eq!(
        (statistics.delivered, statistics.lost),
        (read, trace.total_lost())
    );
    // Some of the others may have found the pool full.
    assert_eq!(read + trace.total_lost(), threads);
    assert!(trace.total_lost() >= threads / 2 && read > 0);
    assert!(grown < 50 << 20, "{grown} bytes more");
    assert!(
        late <= 1.5 * early,
        "{early} at the start, {late} at the end"
    );
}

static IN_HANDLERS: AtomicU64 = AtomicU64::new(0);

/// Bytes of an event in whose copying a signal arrives.
struct Interrupted(u64, i32);

impl Payload for Interrupted {
    fn len(&self) -> usize {
        8 + 2 + 100
    }
    fn copy_to(&self, out: &mut [u8]) {
        if self.1 != 0 {
            // SAFETY: the handler is installed and only writes events.
            unsafe { libc::raise(self.1) };
        }
        let fill = self.0 as u8;
        out[..8].copy_from_slice(&self.0.to_le_bytes());
        out[8..10].copy_from_slice(&100_u16.to_le_bytes());
        out[10..].fill(fill);
    }
}

/// Numbers are their thread's alone, so that each stream of a thread is in order: handlers do not number.
extern "C" fn handler(signal: i32) {
    let inner = if signal == libc::SIGUSR1 {
        libc::SIGUSR2
    } else {
        0
    };
    let event = &events::second::EVENT;
    event.write_encoded(&Interrupted(1, inner), &EventOptions::default());
    IN_HANDLERS.fetch_add(u64::from(signal == libc::SIGALRM), Ordering::Relaxed);
}

fn events_inside_handlers_and_events() {
    const EVENTS: u64 = 5_000;
    eventpipe::start();
    for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM] {
        // SAFETY: all zero is a valid action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: a complete action.
        let installed = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        assert_eq!(installed, 0);
    }
    let session = common::Recording::start(&everything_of("Conservation"));
    let running = AtomicBool::new(true);
    let target = AtomicU64::new(0);
    let (thread, other) = std::thread::scope(|scope| {
        // An event, a handler inside it that writes an event, a handler inside that which writes one.
        let nested = scope.spawn(|| {
            for n in 0..EVENTS {
                let event = &events::first::EVENT;
                event.write_encoded(&Interrupted(3 * n, libc::SIGUSR1), &EventOptions::default());
            }
            eventpipe_os::thread::os_thread_id()
        });
        // And handlers at any moment of a thread that writes.
        let interrupted = scope.spawn(|| {
            // SAFETY: no preconditions.
            target.store(unsafe { libc::pthread_self() } as u64, Ordering::Release);
            let mut n = 0;
            while running.load(Ordering::Relaxed) {
                events::first(3 * n, &[(3 * n) as u8; 100]);
                n += 1;
                if n % 1_000 == 0 {
                    // The small pool is for the other thread, too.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            target.store(0, Ordering::Release);
            (eventpipe_os::thread::os_thread_id(), n)
        });
        let sent = 2_000;
        let mut count = 0;
        while count < sent {
            let thread = target.load(Ordering::Acquire);
            if thread != 0 {
                // SAFETY: the thread runs until it is told to stop, below.
                unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGALRM) };
                count += 1;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        running.store(false, Ordering::Relaxed);
        (
            nested.join().expect("no panic"),
            interrupted.join().expect("no panic"),
        )
    });
    let trace = session.stop();
    let of = |thread: u64, id: u32| {
        let wanted = move |event: &&Seen| event.thread == thread && event.id == id;
        trace.of("Conservation").filter(wanted).count() as u64
    };
    let lost = |thread: u64| trace.lost.get(&thread).copied().unwrap_or(0);
    // An event is copied, and so interrupted, when it is written: each that is written attempts one more.
    let (first, second) = (of(thread, 1), of(thread, 2));
    assert_eq!(first + second + lost(thread), EVENTS + first + second);
    // The third level is always lost.
    assert!(second > 0 && lost(thread) >= second);
    let (other, attempted) = other;
    let handlers = IN_HANDLERS.load(Ordering::Relaxed);
    assert_eq!(
        of(other, 1) + of(other, 2) + lost(other),
        attempted + handlers
    );
    println!("{handlers} handlers in the midst of {attempted} events");
    for event in trace.of("Conservation") {
        let now = number(&event.payload);
        assert_eq!(
            event.payload[10..],
            [now as u8; 100],
            "not torn by what came in between"
        );
    }
}
