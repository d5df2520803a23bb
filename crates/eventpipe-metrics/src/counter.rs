//! What a counter is, and the two kinds that a program feeds by itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What tools show of a counter beside its value.
#[derive(Clone, Debug)]
pub struct About {
    pub(crate) name: String,
    pub(crate) display_name: String,
    pub(crate) units: String,
    pub(crate) rate_scale: Option<Duration>,
}

impl About {
    /// A counter of this name, which is also its display name until [`display_name`](Self::display_name) gives another.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        About {
            display_name: name.clone(),
            name,
            units: String::new(),
            rate_scale: None,
        }
    }

    /// The name for people.
    #[must_use]
    pub fn display_name(mut self, name: impl Into<String>) -> Self {
        self.display_name = name.into();
        self
    }

    /// The unit: `MB`, `ms`, `requests`.
    #[must_use]
    pub fn units(mut self, units: impl Into<String>) -> Self {
        self.units = units.into();
        self
    }

    /// For counters that are shown as a rate: per how much time; one second if this is not called.
    #[must_use]
    pub fn per(mut self, scale: Duration) -> Self {
        self.rate_scale = Some(scale);
        self
    }
}

/// A number that grows. Tools show how much it grew per interval.
#[derive(Debug, Default)]
pub struct Sum(AtomicU64);

impl Sum {
    /// Zero.
    pub const fn new() -> Self {
        Sum(AtomicU64::new(0))
    }

    /// Adds: one relaxed atomic addition, whether or not anybody looks.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What has been added so far, modulo 2^64.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Single measurements. Tools show their mean per interval; the events also have count, smallest, largest and standard deviation.
#[derive(Debug, Default)]
pub struct Samples {
    wanted: AtomicBool,
    accumulators: Mutex<Vec<(SeriesId, Statistics)>>,
}

/// One group at one interval, for as long as somebody asks for it.
pub(crate) type SeriesId = u64;

impl Samples {
    /// None yet.
    pub const fn new() -> Self {
        Samples {
            wanted: AtomicBool::new(false),
            accumulators: Mutex::new(Vec::new()),
        }
    }

    /// Notes a measurement: one relaxed load while nobody looks, else a few additions under a lock.
    #[inline]
    pub fn record(&self, value: f64) {
        if self.wanted.load(Ordering::Relaxed) {
            for (_, statistics) in self.lock().iter_mut() {
                statistics.add(value);
            }
        }
    }

    pub(crate) fn begin(&self, series: SeriesId) {
        self.lock().push((series, Statistics::default()));
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// What came since the last time.
    pub(crate) fn take(&self, series: SeriesId) -> Statistics {
        self.lock()
            .iter_mut()
            .find(|(id, _)| *id == series)
            .map(|(_, statistics)| std::mem::take(statistics))
            .unwrap_or_default()
    }

    pub(crate) fn end(&self, series: SeriesId) {
        let mut accumulators = self.lock();
        accumulators.retain(|(id, _)| *id != series);
        self.wanted
            .store(!accumulators.is_empty(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(SeriesId, Statistics)>> {
        self.accumulators
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of the measurements of one interval. The sums of squares are taken about the first value, which keeps the precision of values that
/// are large and close together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) count: i32,
    pub(crate) min: f64,
    pub(crate) max: f64,
    first: f64,
    sum: f64,
    squares: f64,
}

impl Statistics {
    pub(crate) fn of(value: f64) -> Self {
        let mut statistics = Statistics::default();
        statistics.add(value);
        statistics
    }

    fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.first, self.min, self.max) = (value, value, value);
        }
        let difference = value - self.first;
        self.sum += difference;
        self.squares += difference * difference;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count = self.count.saturating_add(1);
    }

    /// 0 for none.
    pub(crate) fn mean(&self) -> f64 {
        self.first + self.sum / f64::from(self.count.max(1))
    }

    /// Of the measurements as the whole population, as .NET computes it.
    pub(crate) fn standard_deviation(&self) -> f64 {
        let count = f64::from(self.count.max(1));
        let mean = self.sum / count;
        (self.squares / count - mean * mean).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_the_textbook() {
        let mut statistics = Statistics::default();
        assert_eq!(
            (statistics.mean(), statistics.standard_deviation()),
            (0.0, 0.0)
        );
        for value in 1..=10 {
            statistics.add(1e9 + f64::from(value));
        }
        assert_eq!(statistics.mean(), 1e9 + 5.5);
        assert!((statistics.standard_deviation() - 8.25f64.sqrt()).abs() < 1e-12);
        assert_eq!((statistics.min, statistics.max), (1e9 + 1.0, 1e9 + 10.0));
        assert_eq!(statistics.count, 10);
    }

    #[test]
    fn measurements_are_kept_only_for_those_who_ask_and_for_each_of_them() {
        let samples = Samples::new();
        samples.record(1.0);
        samples.begin(7);
        samples.record(2.0);
        samples.begin(8);
        samples.record(4.0);
        assert_eq!(samples.take(7).mean(), 3.0);
        assert_eq!(samples.take(7).count, 0);
        assert_eq!(samples.take(8).mean(), 4.0);
        samples.end(7);
        samples.record(5.0);
        assert_eq!(samples.take(7).count, 0);
        assert_eq!(samples.take(8).count, 1);
        samples.end(8);
        assert!(!samples.wanted.load(Ordering::Relaxed));
    }
}
