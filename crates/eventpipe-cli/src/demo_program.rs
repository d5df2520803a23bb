//! The program that `eventpipe demo` traces: a small make-believe server on the engine's API.
//!
//! Threads answer requests. A request has an activity of its own; its steps (a lookup that may go to
//! a store, the answer) are activities within it. Some requests fail. Now and then a thread writes a
//! burst of thousands of events without a pause.
//!
//! The program is told when to begin and when to end by lines on its standard input, and says on its
//! standard output which events it wrote: `ready PID`, then one line of JSON.

use crate::cli::DemoProgram;
use eventpipe::Guid;
use eventpipe::activity::set_current;
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

eventpipe::provider! {
    /// What the server does for its clients.
    pub(crate) mod requests = "Demo-Requests";

    /// A request came in.
    #[event(id = 1, level = Informational, keywords = 0x1, opcode = Start, name = "Request")]
    fn request_start(id: u64, path: &str);

    /// A request was answered.
    #[event(id = 2, level = Informational, keywords = 0x1, opcode = Stop, name = "Request")]
    fn request_stop(id: u64, status: u16, microseconds: u32);

    /// A step of a request began.
    #[event(id = 3, level = Verbose, keywords = 0x2, opcode = Start, name = "Step")]
    fn step_start(request: u64, step: &str);

    /// A step of a request ended.
    #[event(id = 4, level = Verbose, keywords = 0x2, opcode = Stop, name = "Step")]
    fn step_stop(request: u64, rows: u32);

    /// A request could not be answered.
    #[event(id = 5, level = Error, keywords = 0x4, name = "RequestFailed")]
    fn request_failed(id: u64, message: &str);
}

eventpipe::provider! {
    /// What happens inside.
    pub(crate) mod internals = "Demo-Internals";

    /// One of very many.
    #[event(id = 1, level = Verbose, keywords = 0x1, stack = false)]
    fn cell_visited(burst: u64, cell: u32, weight: f64);

    /// So many cells were visited without a pause.
    #[event(id = 2, level = Informational, keywords = 0x1)]
    fn burst_done(burst: u64, cells: u32);
}

/// The events a run wrote, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Of the provider Demo-Requests.
    pub(crate) requests: u64,
    /// Steps within them.
    pub(crate) steps: u64,
    /// Requests that failed.
    pub(crate) failures: u64,
    /// Cells visited in bursts.
    pub(crate) cells: u64,
    /// Bursts.
    pub(crate) bursts: u64,
}

impl Written {
    /// All events: requests and steps have a start and a stop.
    pub(crate) fn events(&self) -> u64 {
        2 * self.requests + 2 * self.steps + self.failures + self.cells + self.bursts
    }
}

/// Cells of one burst.
const BURST: u32 = 5_000;
/// Every so many requests a thread has a burst.
const BURST_EVERY: u64 = 400;
/// Every so many requests one fails.
const FAILURE_EVERY: u64 = 23;

const PATHS: [&str; 4] = ["/", "/search?q=eventpipe", "/article/7", "/über/uns"];

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    steps: AtomicU64,
    failures: AtomicU64,
    bursts: AtomicU64,
}

/// Runs the program.
pub(crate) fn run(arguments: &DemoProgram) -> anyhow::Result<()> {
    eventpipe::start();
    requests::PROVIDER.register();
    internals::PROVIDER.register();
    let mut out = std::io::stdout();
    writeln!(out, "ready {}", std::process::id())?;
    out.flush()?;

    let mut lines = std::io::stdin().lock().lines();
    // The end of the input (the tool is gone) ends the program like a line does.
    if lines.next().is_some() {
        let counters = Counters::default();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..arguments.threads {
                let (counters, end) = (&counters, &end);
                let serving = move || serve(number, counters, end);
                // A thread that cannot be started is one that serves nothing.
                let name = format!("server-{number}");
                let _ = std::thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, serving);
            }
            let _ = lines.next();
            end.store(true, Ordering::Relaxed);
        });
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let written = Written {
            requests: count(&counters.requests),
            steps: count(&counters.steps),
            failures: count(&counters.failures),
            cells: count(&counters.bursts) * u64::from(BURST),
            bursts: count(&counters.bursts),
        };
        serde_json::to_writer(&mut out, &written)?;
        writeln!(out)?;
        out.flush()?;
        // Stays until the recording has ended, as a server would.
        let _ = lines.next();
    }
    Ok(())
}

/// One thread's work.
fn serve(number: u32, counters: &Counters, end: &AtomicBool) {
    let mut served = 0_u64;
    while !end.load(Ordering::Relaxed) {
        let id = u64::from(number) << 32 | served;
        answer(id, counters);
        served += 1;
        // The threads do not all have their bursts at once.
        if served % BURST_EVERY == u64::from(number) * 97 % BURST_EVERY {
            burst(id, counters);
        }
        sleep(Duration::from_micros(500));
    }
}

fn answer(id: u64, counters: &Counters) {
    let begun = Instant::now();
    let outer = set_current(activity_of(id, 0));
    counters.requests.fetch_add(1, Ordering::Relaxed);
    requests::request_start(id, PATHS[(id % 4) as usize]);
    let rows = step(id, 1, counters);
    let status = if id % FAILURE_EVERY == FAILURE_EVERY - 1 {
        counters.failures.fetch_add(1, Ordering::Relaxed);
        requests::request_failed(id, "the store did not answer in time");
        503
    } else if rows == 0 {
        404
    } else {
        200
    };
    let microseconds = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
    requests::request_stop(id, status, microseconds);
    set_current(outer);
}

/// A step, with another one inside it until three deep: lookup, store, page.
#[inline(never)]
fn step(request: u64, depth: u8, counters: &Counters) -> u32 {
    let outer = set_current(activity_of(request, depth));
    counters.steps.fetch_add(1, Ordering::Relaxed);
    let name = ["lookup", "store", "page"][usize::from(depth - 1) % 3];
    requests::step_start(request, name);
    let inner = if depth < 3 {
        step(request, depth + 1, counters)
    } else {
        1
    };
    let rows = inner + think(20_000 * u32::from(depth)) % 7;
    requests::step_stop(request, rows);
    set_current(outer);
    rows
}

/// Some arithmetic, so that the steps take time.
#[inline(never)]
fn think(rounds: u32) -> u32 {
    (0..rounds).fold(1, |sum, round| {
        std::hint::black_box(sum * 31 + round % 7) % 65_521
    })
}

fn burst(id: u64, counters: &Counters) {
    let burst = counters.bursts.fetch_add(1, Ordering::Relaxed);
    for cell in 0..BURST {
        internals::cell_visited(burst, cell, f64::from(cell) / 3.0);
    }
    internals::burst_done(burst, BURST);
    std::hint::black_box(id);
}

/// An id for a request's activity, and for those of its steps.
fn activity_of(request: u64, depth: u8) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&request.to_le_bytes());
    bytes[8] = depth;
    bytes[15] = 0xEE;
    Guid(bytes)
}
