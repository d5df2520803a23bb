//! What kind of machine the figures come from: kind, not name.

use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) is_virtual: bool,
    pub(super) linux: String,
    pub(super) clock_source: String,
    /// Load average before the first run: other work on the machine.
    pub(super) load: String,
}

impl Machine {
    pub(super) fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let processor = match field("vendor_id").as_str() {
            "GenuineIntel" => "Intel x86-64".to_owned(),
            "AuthenticAMD" => "AMD x86-64".to_owned(),
            _ => std::env::consts::ARCH.to_owned(),
        };
        let kib: u64 = read("/proc/meminfo")
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        let first = |text: String, count: usize, separator: char| {
            let parts: Vec<&str> = text.trim().split(separator).take(count).collect();
            parts.join(&separator.to_string())
        };
        Machine {
            processor,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_gib: (kib + (1 << 19)) >> 20,
            is_virtual: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            linux: first(read("/proc/sys/kernel/osrelease"), 2, '.'),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .trim()
                .to_owned(),
            load: first(read("/proc/loadavg"), 1, ' '),
        }
    }
}
