//! The one thread that publishes. It is there while a session asks for counters, and ends with the last of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::counter::{SeriesId, Statistics};
use crate::group::{Group, Source};
use crate::payload::{Interval, write_mean, write_sum};

/// What the thread is told.
#[derive(Default)]
struct State {
    /// Groups whose sessions have changed.
    changed: Vec<&'static Group>,
    /// The thread is there, and will look at `changed` before it ends.
    runs: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    changed: Vec::new(),
    runs: false,
});
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another session asks for the group, or one does no more.
pub(crate) fn review(group: &'static Group) {
    let mut state = state();
    state.changed.push(group);
    if state.runs {
        CHANGED.notify_one();
    } else {
        // Without a thread there are no counters, and nothing else is wrong: the next session tries again.
        state.runs = eventpipe_os::thread::spawn(c"eventpipe-count", Box::new(run)).is_ok();
    }
}

fn run() {
    let mut series: Vec<Series> = Vec::new();
    let mut last_id = 0;
    loop {
        let changed = {
            let mut state = state();
            loop {
                let now = Instant::now();
                let due = series.iter().map(|one| one.due).min();
                if !state.changed.is_empty() || due.is_some_and(|due| due <= now) {
                    break std::mem::take(&mut state.changed);
                }
                let Some(due) = due else {
                    state.runs = false;
                    return;
                };
                let wait = CHANGED.wait_timeout(state, due - now);
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        // No lock is held from here on: the functions of counters are not ours.
        for group in changed {
            let intervals = group.intervals();
            series.retain(|one| {
                !std::ptr::eq(one.group, group) || intervals.contains(&one.interval_ms)
            });
            for interval_ms in intervals {
                let known = series
                    .iter()
                    .any(|one| std::ptr::eq(one.group, group) && one.interval_ms == interval_ms);
                if !known {
                    last_id += 1;
                    series.push(Series::new(last_id, group, interval_ms));
                }
            }
        }
        let now = Instant::now();
        for one in series.iter_mut().filter(|one| one.due <= now) {
            one.publish(now);
        }
    }
}

/// A group at one interval.
struct Series {
    id: SeriesId,
    group: &'static Group,
    interval_ms: u32,
    interval: Duration,
    since: Instant,
    due: Instant,
    /// For each counter that is shown as a rate: where it stood.
    totals: Vec<f64>,
}

impl Series {
    fn new(id: SeriesId, group: &'static Group, interval_ms: u32) -> Self {
        let totals = group.counters.iter().map(|(_, source)| match source {
            Source::Samples(samples) => {
                samples.begin(id);
                0.0
            }
            Source::Sum(sum) => sum.total() as f64,
            Source::Total(function) => call(function).unwrap_or(0.0),
            Source::Value(_) => 0.0,
        });
        let totals = totals.collect();
        let since = Instant::now();
        let interval = Duration::from_millis(u64::from(interval_ms));
        Series {
            id,
            group,
            interval_ms,
            interval,
            since,
            due: since + interval,
            totals,
        }
    }

    fn publish(&mut self, now: Instant) {
        let interval = Interval {
            elapsed: now - self.since,
            series: format!("Interval={}", self.interval_ms),
        };
        let (mean, sum) = (self.group.mean, self.group.sum);
        for ((about, source), last) in self.group.counters.iter().zip(&mut self.totals) {
            let mut write_growth = |total: f64| {
                let growth = total - std::mem::replace(last, total);
                write_sum(sum, about, growth, &interval);
            };
            match source {
                Source::Samples(samples) => {
                    write_mean(mean, about, &samples.take(self.id), &interval);
                }
                Source::Value(function) => {
                    if let Some(value) = call(function) {
                        write_mean(mean, about, &Statistics::of(value), &interval);
                    }
                }
                Source::Sum(sum) => write_growth(sum.total() as f64),
                Source::Total(function) => {
                    if let Some(total) = call(function) {
                        write_growth(total);
                    }
                }
            }
        }
        self.since = now;
        // In step, unless a step has been missed.
        self.due += self.interval;
        if self.due <= now {
            self.due = now + self.interval;
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        for (_, source) in &self.group.counters {
            if let Source::Samples(samples) = source {
                samples.end(self.id);
            }
        }
    }
}

fn call(function: &dyn Fn() -> f64) -> Option<f64> {
    catch_unwind(AssertUnwindSafe(function)).ok()
}
