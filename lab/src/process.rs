//! What the kernel says about a process: processor time, peak memory, state; and pinning it to cores.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Clock ticks per second of `/proc/PID/stat`: 100 on every Linux that runs .NET.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time of a process with all its threads, in seconds, to 10 ms. Works for a process that has ended but was not waited
/// for.
///
/// # Errors
/// There is no such process.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let fields = stat(pid)?;
    let ticks: u64 = fields
        .iter()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap_or(0))
        .sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Whether the process has ended (and waits for its parent).
pub fn has_ended(pid: u32) -> bool {
    match stat(pid) {
        Ok(fields) => matches!(fields.first().map(String::as_str), Some("Z" | "X")),
        Err(_) => true,
    }
}

/// The fields of `/proc/PID/stat` behind the name.
fn stat(pid: u32) -> Result<Vec<String>> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let behind_name = text
        .rsplit_once(')')
        .with_context(|| format!("no name in {}", path.display()))?
        .1;
    Ok(behind_name
        .split_ascii_whitespace()
        .map(str::to_owned)
        .collect())
}

/// User and system time of each thread that the process has now, in seconds, to 10 ms: by thread id, with the thread's name.
pub fn thread_seconds(pid: u32) -> Vec<(u32, String, f64, f64)> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let seconds = |field: Option<&str>| -> f64 {
        field
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0) as f64
            / TICKS_PER_SECOND
    };
    tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let text = std::fs::read_to_string(path.join("stat")).ok()?;
            let (before, after) = text.rsplit_once(')')?;
            let name = before.split_once('(')?.1.to_owned();
            let mut fields = after.split_ascii_whitespace().skip(11);
            let id = path.file_name()?.to_str()?.parse().ok()?;
            Some((id, name, seconds(fields.next()), seconds(fields.next())))
        })
        .collect()
}

/// The most memory that the process has had present, in bytes; 0 once it has ended.
pub fn peak_rss(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:") * 1024
}

/// The memory that the process has present, in bytes; 0 once it has ended.
pub fn rss(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:") * 1024
}

fn status_kib(pid: u32, name: &str) -> u64 {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        })
        .unwrap_or(0)
}

/// Starts a program on the first `cores` of the cores that this thread may use (all when `None`).
///
/// # Errors
/// There are not so many cores, or the program does not start.
pub fn spawn_pinned(command: &mut Command, cores: Option<usize>) -> Result<Child> {
    let Some(cores) = cores else {
        return command.spawn().context("starting the program");
    };
    let all = sched_getaffinity(None).context("reading the processors of this thread")?;
    let mut some = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| all.is_set(*cpu))
        .take(cores)
        .for_each(|cpu| some.set(cpu));
    anyhow::ensure!(
        cores > 0 && some.count() as usize == cores,
        "cannot pin to {cores} cores: this machine gives us {}",
        all.count()
    );
    // The child inherits the mask of the thread that starts it.
    sched_setaffinity(None, &some).context("pinning")?;
    let child = command.spawn().context("starting the program");
    sched_setaffinity(None, &all).context("giving the cores back")?;
    child
}

/// Ends a program when it is dropped, so that a failing test or measurement leaves nothing running.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until the process has ended, *without* reaping it, so that its figures can still be read; `false` when it runs on after
    /// `limit`.
    pub fn wait_without_reaping(&self, limit: Duration) -> bool {
        let start = std::time::Instant::now();
        while !has_ended(self.pid()) {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}
