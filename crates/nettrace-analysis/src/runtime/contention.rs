//! Waits for locks.

use super::milliseconds;
use nettrace::views::{ContentionStart, ContentionStop, View};
use nettrace::{Event, TraceInfo};
use serde::Serialize;
use std::collections::HashMap;

/// Waits for locks of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ContentionReport {
    /// Waits that began.
    pub starts: u64,
    /// Waits that ended.
    pub stops: u64,
    /// How long all waits were together that have an end.
    pub wait_total_ms: f64,
    /// The longest.
    pub wait_max_ms: f64,
    /// By waiting thread, the one that waited longest first.
    pub threads: Vec<Waits>,
}

/// The waits of one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waits {
    /// The process, 0 if the trace does not say.
    pub process_id: u64,
    /// The operating system's number of the thread.
    pub thread_id: u64,
    /// Waits that began.
    pub starts: u64,
    /// Waits that ended.
    pub stops: u64,
    /// How long these were together.
    pub wait_total_ms: f64,
    /// The longest.
    pub wait_max_ms: f64,
}

/// Gathers waits. It needs the keyword Contention (0x4000) at level Informational.
#[derive(Debug, Default)]
pub struct Contention {
    threads: HashMap<(u64, u64), Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    starts: u64,
    stops: u64,
    total_ms: f64,
    max_ms: f64,
    /// When waits began that have not ended. A thread may run other code while it waits.
    open: Vec<f64>,
}

impl Contention {
    /// Nothing gathered yet.
    pub fn new() -> Contention {
        Contention::default()
    }

    /// Takes an event.
    pub fn add(&mut self, info: &TraceInfo, event: &Event<'_>) {
        let metadata = event.metadata();
        let key = (event.process_id(), event.thread_id());
        let now = milliseconds(info, event);
        if ContentionStart::matches(metadata) {
            let thread = self.threads.entry(key).or_default();
            thread.starts += 1;
            thread.open.push(now);
        } else if ContentionStop::matches(metadata) {
            let stop = ContentionStop::of(metadata, event.schema(), event.payload());
            let thread = self.threads.entry(key).or_default();
            thread.stops += 1;
            let start = thread.open.pop();
            // Old runtimes do not say how long it was.
            let ms = match (stop.and_then(|stop| stop.duration_ns), start) {
                (Some(ns), _) => ns / 1e6,
                (None, Some(start)) => now - start,
                (None, None) => return,
            };
            thread.total_ms += ms;
            thread.max_ms = thread.max_ms.max(ms);
        }
    }

    /// The report.
    pub fn finish(self) -> ContentionReport {
        let rows = self.threads.into_iter();
        let mut threads: Vec<Waits> = rows
            .map(|((process_id, thread_id), thread)| Waits {
                process_id,
                thread_id,
                starts: thread.starts,
                stops: thread.stops,
                wait_total_ms: thread.total_ms,
                wait_max_ms: thread.max_ms,
            })
            .collect();
        threads.sort_by(|a, b| {
            let by_id = (a.process_id, a.thread_id).cmp(&(b.process_id, b.thread_id));
            b.wait_total_ms.total_cmp(&a.wait_total_ms).then(by_id)
        });
        let max = threads
            .iter()
            .map(|row| row.wait_max_ms)
            .fold(0.0, f64::max);
        ContentionReport {
            starts: threads.iter().map(|row| row.starts).sum(),
            stops: threads.iter().map(|row| row.stops).sum(),
            wait_total_ms: threads.iter().map(|row| row.wait_total_ms).sum(),
            wait_max_ms: max,
            threads,
        }
    }
}
