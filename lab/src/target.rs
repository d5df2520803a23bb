//! `lab target`: the stress program of the peers, written on this engine.
//!
//! The work is the same on purpose, event by event: provider `EventPipeStress`, events Text 1, Number 2, Bytes 3,
//! Sequenced 4, the same rhythms, the same lines on standard output.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;

eventpipe::provider! {
    /// The provider of the stress program.
    pub mod stress = "EventPipeStress";

    /// A text of the chosen size.
    #[event(id = 1, name = "Text")]
    fn text(payload: &str);

    /// A running number.
    #[event(id = 2, name = "Number")]
    fn number(value: i64);

    /// Bytes of the chosen size.
    #[event(id = 3, name = "Bytes")]
    fn bytes(payload: &[u8]);

    /// Thread number and running number first: a reader can check order and gaps exactly.
    #[event(id = 4, name = "Sequenced")]
    fn sequenced(thread: i32, number: i64, payload: &str);
}

/// What the stress program does.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Writing threads [default: the number of processors].
    #[arg(long)]
    threads: Option<usize>,
    /// How long to write, when no count is given.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Events for each thread; 0 = write for --seconds.
    #[arg(long, default_value_t = 0)]
    count: u64,
    /// Characters or bytes in each event.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Events per second and thread; 0 = without a pause.
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// The event written.
    #[arg(long, value_enum, default_value_t = Kind::Text)]
    kind: Kind,
    /// The rhythm.
    #[arg(long, value_enum, default_value_t = Pattern::None)]
    pattern: Pattern,
    /// Start after a line on standard input.
    #[arg(long)]
    wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Text,
    Number,
    Bytes,
    Sequenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Without a pause (or one event each period with --rate).
    None,
    /// One event each period.
    Drip,
    /// A second's worth at once.
    Bolus,
    /// A tenth of a second's worth at a time.
    HeavyDrip,
}

/// Tells all writers to stop, also those that sleep.
#[derive(Default)]
struct Stop {
    flag: AtomicBool,
    mutex: Mutex<()>,
    condition: Condvar,
}

impl Stop {
    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
        drop(self.mutex.lock());
        self.condition.notify_all();
    }

    fn sleep(&self, duration: Duration) {
        let Ok(guard) = self.mutex.lock() else { return };
        if !self.is_set() {
            drop(self.condition.wait_timeout(guard, duration));
        }
    }
}

/// Runs the stress program and prints its lines.
pub fn run(arguments: &Arguments) -> Result<()> {
    eventpipe::start();
    stress::PROVIDER.register();
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    println!("ready {}", std::process::id());
    std::io::stdout().flush()?;
    if arguments.wait {
        std::io::stdin().lock().read_line(&mut String::new())?;
    }

    let stop = Arc::new(Stop::default());
    let cpu_before = process_cpu_seconds()?;
    let clock = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (arguments, stop) = (arguments.clone(), Arc::clone(&stop));
            std::thread::Builder::new()
                .name(format!("writer-{thread}"))
                .spawn(move || write_events(thread, &arguments, &stop))
        })
        .collect::<std::io::Result<_>>()
        .context("starting the writers")?;
    if arguments.count == 0 {
        std::thread::sleep(Duration::from_secs_f64(arguments.seconds));
        stop.set();
    }
    let mut per_thread = Vec::with_capacity(threads);
    for worker in workers {
        per_thread.push(
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a writer panicked"))?,
        );
    }
    let seconds = clock.elapsed().as_secs_f64();
    let attempted: u64 = per_thread.iter().sum();
    let line = serde_json::json!({
        "runtime": concat!("eventpipe ", env!("CARGO_PKG_VERSION")),
        "threads": threads,
        "kind": arguments.kind.to_possible_value().map(|value| value.get_name().to_owned()),
        "size": arguments.size,
        "pattern": arguments.pattern.to_possible_value().map(|value| value.get_name().to_owned()),
        "rate": arguments.rate,
        "seconds": seconds,
        "attempted": attempted,
        "per_thread": per_thread,
        "events_per_second": attempted as f64 / seconds,
        "ns_per_event": seconds * 1e9 * threads as f64 / attempted.max(1) as f64,
        "process_cpu_seconds": process_cpu_seconds()? - cpu_before,
    });
    println!("{line}");
    Ok(())
}

/// What one thread does; returns how many events it wrote.
fn write_events(thread: usize, arguments: &Arguments, stop: &Stop) -> u64 {
    let text = "a".repeat(arguments.size);
    let bytes = vec![0u8; arguments.size];
    let mut written = 0u64;
    let write = |number: u64| match arguments.kind {
        Kind::Text => stress::text(&text),
        Kind::Number => stress::number(number as i64),
        Kind::Bytes => stress::bytes(&bytes),
        Kind::Sequenced => stress::sequenced(thread as i32, number as i64, &text),
    };
    let done = |written: u64| {
        if arguments.count > 0 {
            written >= arguments.count
        } else {
            stop.is_set()
        }
    };
    if arguments.pattern == Pattern::None && arguments.rate <= 0.0 {
        while !done(written) {
            write(written);
            written += 1;
        }
        return written;
    }
    let per_second = if arguments.rate > 0.0 {
        arguments.rate
    } else {
        1000.0
    };
    let burst = match arguments.pattern {
        Pattern::Bolus => per_second as u64,
        Pattern::HeavyDrip => ((per_second / 10.0) as u64).max(1),
        Pattern::None | Pattern::Drip => 1,
    };
    let clock = Instant::now();
    let due = |written: u64| written as f64 / per_second - clock.elapsed().as_secs_f64();
    while !done(written) {
        for _ in 0..burst {
            if done(written) {
                break;
            }
            write(written);
            written += 1;
        }
        loop {
            let pause = due(written);
            if pause <= 0.0 || done(written) {
                break;
            }
            if pause > 0.002 {
                stop.sleep(Duration::from_secs_f64((pause - 0.001).min(0.1)));
            } else {
                (0..20).for_each(|_| std::hint::spin_loop());
            }
        }
    }
    written
}

/// User and system time of this process so far, from the kernel's 14th and 15th fields.
fn process_cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    let after_name = stat
        .rsplit_once(')')
        .context("no process name in /proc/self/stat")?
        .1;
    let ticks: u64 = after_name
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap_or(0))
        .sum();
    Ok(ticks as f64 / 100.0)
}
