//! Groups of counters under one provider's name.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use eventpipe::{Cause, Event, Provider, ProviderChange, SessionId};

use crate::counter::{About, Samples, Sum};
use crate::{payload, publisher};

type Function = Box<dyn Fn() -> f64 + Send + Sync>;

/// Where the values of a counter come from.
pub(crate) enum Source {
    Sum(&'static Sum),
    Samples(&'static Samples),
    Value(Function),
    Total(Function),
}

/// A group of counters: made once, at the start of a program, and there for its whole life.
pub struct Counters {
    name: String,
    counters: Vec<(About, Source)>,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .counters
            .iter()
            .map(|(about, _)| &*about.name)
            .collect();
        f.debug_struct("Counters")
            .field("name", &self.name)
            .field("counters", &names)
            .finish()
    }
}

impl Counters {
    /// A group of this name, which tools ask for. A provider of events may have the same name.
    pub fn new(name: impl Into<String>) -> Self {
        Counters {
            name: name.into(),
            counters: Vec::new(),
        }
    }

    /// Shows how much `sum` grows.
    #[must_use]
    pub fn sum(self, about: About, sum: &'static Sum) -> Self {
        self.with(about, Source::Sum(sum))
    }

    /// Shows the mean of the measurements.
    #[must_use]
    pub fn samples(self, about: About, samples: &'static Samples) -> Self {
        self.with(about, Source::Samples(samples))
    }

    /// Shows a value that `function` says once per interval: a length, a size, a share. It runs on the thread that publishes all
    /// counters, so it should be quick; where it panics its counter is left out.
    #[must_use]
    pub fn value(self, about: About, function: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.with(about, Source::Value(Box::new(function)))
    }

    /// Shows how much a number grows that `function` says once per interval. As for [`value`](Self::value).
    #[must_use]
    pub fn total(self, about: About, function: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.with(about, Source::Total(Box::new(function)))
    }

    fn with(mut self, about: About, source: Source) -> Self {
        self.counters.push((about, source));
        self
    }

    /// Makes the group known to sessions, those that run and those to come. It is never given back.
    pub fn register(self) {
        let provider = Provider::builder(self.name).register();
        let group: &'static Group = Box::leak(Box::new(Group {
            mean: provider.define(payload::mean()),
            sum: provider.define(payload::sum()),
            counters: self.counters,
            sessions: Mutex::new(Vec::new()),
        }));
        provider.on_change(|change| group.change(change));
    }
}

/// A registered group.
pub(crate) struct Group {
    pub(crate) mean: &'static Event,
    pub(crate) sum: &'static Event,
    pub(crate) counters: Vec<(About, Source)>,
    /// Who asks for the counters, and at which interval in milliseconds.
    sessions: Mutex<Vec<(SessionId, u32)>>,
}

impl Group {
    fn change(&'static self, change: &ProviderChange<'_>) {
        {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.retain(|(session, _)| *session != change.session);
            if change.cause == Cause::SessionStarted
                && let Some(interval) = change.arguments.and_then(interval_ms)
            {
                sessions.push((change.session, interval));
            }
        }
        publisher::review(self);
    }

    /// Each interval once.
    pub(crate) fn intervals(&self) -> Vec<u32> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut intervals: Vec<u32> = sessions.iter().map(|(_, interval)| *interval).collect();
        intervals.sort_unstable();
        intervals.dedup();
        intervals
    }
}

/// Shorter ones would be all work and no news.
const SHORTEST_MS: f64 = 10.0;

/// `EventCounterIntervalSec` of a provider's arguments.
fn interval_ms(arguments: &str) -> Option<u32> {
    let (_, value) = arguments
        .split(';')
        .filter_map(|argument| argument.split_once('='))
        .find(|(key, _)| key.trim() == "EventCounterIntervalSec")?;
    let seconds: f64 = value.trim().trim_matches('"').parse().ok()?;
    // A number above the range becomes the largest of it.
    (seconds > 0.0).then(|| (seconds * 1000.0).max(SHORTEST_MS) as u32)
}

#[cfg(test)]
mod tests {
    use super::interval_ms;

    #[test]
    fn the_interval_is_read_as_tools_write_it_and_nonsense_is_none() {
        for (text, interval) in [
            ("EventCounterIntervalSec=1", Some(1_000)),
            ("a=b;EventCounterIntervalSec=0.5;c", Some(500)),
            ("EventCounterIntervalSec=\"5\"", Some(5_000)),
            ("EventCounterIntervalSec=1e-9", Some(10)),
            ("EventCounterIntervalSec=1e300", Some(u32::MAX)),
            ("EventCounterIntervalSec=0", None),
            ("EventCounterIntervalSec=-1", None),
            ("EventCounterIntervalSec=NaN", None),
            ("EventCounterIntervalSec=x", None),
            ("EventCounterIntervalSec", None),
            ("", None),
        ] {
            assert_eq!(interval_ms(text), interval, "{text}");
        }
    }
}
