//! What the drain can take: events a second of one core, from blocks that 64 threads have filled beforehand to the pieces of a session's
//! stream. The core's time counts (user and system, of the draining thread), so other work on the machine does not.
//!
//! `cargo bench -p eventpipe --bench drain`

use std::hint::black_box;
use std::sync::{Arc, Barrier};

use eventpipe::measure::ManualDrain;
use eventpipe::{Format, ProviderRequest, SessionRequest};
use rustix::time::{ClockId, clock_gettime};

eventpipe::provider! {
    mod events = "EventPipeDrainBench";

    #[event(id = 1)]
    fn bytes(data: &[u8]);

    #[event(id = 2)]
    fn number(value: u64);

    #[event(id = 3)]
    fn text(text: &str);
}

const THREADS: usize = 64;
const EVENTS: u64 = 2_000;
const ROUNDS: usize = 15;
/// Events a second: acceptance point of the project.
const TARGET: f64 = 10e6;

fn main() {
    let mut drain = ManualDrain::new().expect("the first to drain");
    let hundred = [7_u8; 98];
    let text = "x".repeat(100);
    println!(
        "{:<52} {:>9} {:>9}   M events/s of one core",
        "", "median", "best"
    );
    for format in [Format::V4, Format::V6] {
        for stacks in [false, true] {
            let what = |event: &str| {
                let frames = if stacks { ", stacks" } else { "" };
                format!("{event}, {THREADS} threads, {format:?}{frames}")
            };
            let hundred = move || events::bytes(black_box(&hundred));
            case(
                &mut drain,
                &what("100 bytes"),
                format,
                stacks,
                Some(TARGET),
                &hundred,
            );
            if !stacks {
                let number = || events::number(black_box(7));
                case(&mut drain, &what("8 bytes"), format, stacks, None, &number);
                let text = || events::text(black_box(&text));
                case(
                    &mut drain,
                    &what("text of 100 characters"),
                    format,
                    stacks,
                    None,
                    &text,
                );
            }
        }
    }
}

fn case(
    drain: &mut ManualDrain,
    name: &str,
    format: Format,
    stacks: bool,
    target: Option<f64>,
    write: &(dyn Fn() + Sync),
) {
    let session = SessionRequest::new()
        .provider(ProviderRequest::new("EventPipeDrainBench"))
        .format(format)
        .stacks(stacks)
        .start_callback(|_| {})
        .expect("a session");
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let mut rates = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let barrier = Arc::clone(&barrier);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    (0..EVENTS).for_each(|_| write());
                    barrier.wait();
                }
            });
        }
        for _ in 0..ROUNDS {
            barrier.wait();
            barrier.wait();
            let before = seconds();
            let events = drain.run();
            let rate = events as f64 / (seconds() - before) / 1e6;
            assert_eq!(events, THREADS as u64 * EVENTS, "the pool holds a round");
            rates.push(rate);
        }
    });
    assert!(drain.stop(&session), "the stream is complete");
    let figures = session.statistics();
    let written = (ROUNDS * THREADS) as u64 * EVENTS;
    assert_eq!((figures.delivered, figures.lost), (written, 0));
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[ROUNDS / 2], rates[ROUNDS - 1]);
    let verdict = match target {
        None => String::new(),
        Some(target) if median * 1e6 >= target => format!("   at least {} met", target / 1e6),
        Some(target) => format!("   at least {} missed", target / 1e6),
    };
    println!("{name:<52} {median:>9.2} {best:>9.2}{verdict}");
}

/// The calling thread's time on a core.
fn seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
