//! `lab counters`: a program with one counter of each kind, for the tests with dotnet-counters.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use eventpipe_metrics::{About, Counters, Samples, Sum, process_counters};

/// The group's name.
pub const PROVIDER: &str = "EventPipeLab-Counters";

static REQUESTS: Sum = Sum::new();
static LATENCY: Samples = Samples::new();
static TURNS: AtomicU64 = AtomicU64::new(0);

/// How long it runs.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// Prints `ready PID`, then counts for the time.
pub fn run(arguments: &Arguments) -> Result<()> {
    eventpipe::start();
    process_counters();
    Counters::new(PROVIDER)
        .sum(
            About::new("requests")
                .display_name("Requests")
                .units("requests"),
            &REQUESTS,
        )
        .samples(
            About::new("latency").display_name("Latency").units("ms"),
            &LATENCY,
        )
        .value(About::new("answer").display_name("The answer"), || 42.0)
        .total(About::new("turns").per(Duration::from_secs(60)), || {
            TURNS.load(Ordering::Relaxed) as f64
        })
        .register();
    println!("ready {}", std::process::id());
    std::io::stdout().flush()?;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < arguments.seconds {
        REQUESTS.add(3);
        LATENCY.record(5.0);
        TURNS.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
