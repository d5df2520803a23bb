//! What every process has.

use std::sync::Mutex;
use std::time::Instant;

use crate::counter::About;
use crate::group::Counters;

/// Registers the group `System.Runtime`, which tools ask for when the user names none, with the two of its counters that a process without
/// a managed heap has: `cpu-usage`, the share of all processors in percent, and `working-set` in megabytes. Under the names and units
/// that .NET gives them.
pub fn process_counters() {
    let since = Mutex::new((Instant::now(), cpu_seconds().unwrap_or(0.0)));
    let usage = move || {
        let Ok(mut since) = since.lock() else {
            return f64::NAN;
        };
        let (now, cpu) = (Instant::now(), cpu_seconds().unwrap_or(0.0));
        let (then, cpu_then) = std::mem::replace(&mut *since, (now, cpu));
        let processors = f64::from(eventpipe_os::process::processor_count().max(1));
        let whole = (now - then).as_secs_f64() * processors;
        if whole > 0.0 {
            (cpu - cpu_then) / whole * 100.0
        } else {
            0.0
        }
    };
    Counters::new("System.Runtime")
        .value(
            About::new("cpu-usage").display_name("CPU Usage").units("%"),
            usage,
        )
        .value(
            About::new("working-set")
                .display_name("Working Set")
                .units("MB"),
            || resident_bytes().unwrap_or(0.0) / 1e6,
        )
        .register();
}

/// User and system time so far. Clock ticks are 10 ms on every Linux that runs .NET.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_both() {
        assert!(cpu_seconds().is_some());
        assert!(resident_bytes() > Some(1e5));
    }
}
