//! A program that can be traced: `cargo run -p eventpipe --example hello`, then `eventpipe collect -n hello`, or
//! `dotnet-trace collect -p PID --providers Hello:1`.
//!
//! With an argument it runs for so many seconds.

use std::time::{Duration, Instant};

eventpipe::provider! {
    /// What this program does.
    pub mod hello = "Hello";

    /// A piece of work begins.
    #[event(id = 1, level = Informational, keywords = 0x1, opcode = Start)]
    fn work_start(number: u64, name: &str);

    /// The piece of work ends.
    #[event(id = 2, level = Informational, keywords = 0x1, opcode = Stop)]
    fn work_stop(number: u64, result: f64);
}

fn main() {
    eventpipe::start();
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(60);
    println!("ready {}", std::process::id());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut number = 0;
    while Instant::now() < end {
        hello::work_start(number, "a piece of work");
        std::thread::sleep(Duration::from_millis(1));
        hello::work_stop(number, (number as f64).sqrt());
        number += 1;
    }
}
