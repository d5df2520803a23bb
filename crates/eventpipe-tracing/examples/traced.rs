//! A program that uses `tracing`, made traceable: `cargo run -p eventpipe-tracing --example traced`, then, while it runs,
//! `eventpipe collect -n traced --providers traced,shop`, or
//! `dotnet-trace collect -p PID --providers traced,shop`.
//!
//! It also prints warnings, as programs with `tracing` do; what is traced is not limited by that. With an argument it serves so many
//! customers, else as many as come within a minute.

use std::time::{Duration, Instant};

use tracing::{debug, error, info, instrument, trace, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

#[instrument(target = "shop::checkout", fields(total))]
fn checkout(customer: u64, basket: &[f64]) -> Result<f64, std::num::ParseFloatError> {
    for (number, price) in basket.iter().enumerate() {
        debug!(target: "shop::checkout", number, price, "scanned");
    }
    let total = basket.iter().sum::<f64>();
    tracing::Span::current().record("total", total);
    if customer % 10 == 3 {
        let unreadable = "12,50".parse::<f64>().expect_err("a comma");
        error!(target: "shop::checkout", error = &unreadable as &dyn std::error::Error, "no price");
        return Err(unreadable);
    }
    trace!(target: "shop::checkout", "the till opens");
    Ok(total)
}

#[instrument]
fn serve(customer: u64) {
    let basket = [1.5, 2.25, customer as f64];
    match checkout(customer, &basket) {
        Ok(total) => info!(customer, total, cash = customer.is_multiple_of(2), "paid"),
        Err(_) => warn!(customer, "sent away"),
    }
}

fn main() {
    eventpipe::start();
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_filter(LevelFilter::WARN))
        .with(eventpipe_tracing::layer())
        .init();

    let customers = std::env::args().nth(1).and_then(|text| text.parse().ok());
    println!("ready {}", std::process::id());
    if customers.is_some() {
        // Whoever says how many wants to see them all.
        std::io::stdin().read_line(&mut String::new()).ok();
    }
    let end = Instant::now() + Duration::from_secs(60);
    for customer in 0..customers.unwrap_or(u64::MAX) {
        if customers.is_none() {
            if Instant::now() > end {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        serve(customer);
    }
    if customers.is_some() {
        println!("done");
        std::io::stdin().read_line(&mut String::new()).ok();
    }
}
