//! Counters and metrics of a program, over the time of the trace.

use super::milliseconds;
use nettrace::views::{Counter, CounterValue, InstrumentValue, MetricsEvent, ValueKind, View};
use nettrace::{Event, TraceInfo};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// The counters of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CounterReport {
    /// Values, of all counters.
    pub values: u64,
    /// By provider, name and tags.
    pub counters: Vec<CounterSeries>,
}

/// The values of one counter, or of an instrument with certain tags.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterSeries {
    /// The provider, or the instrument's meter.
    pub provider: String,
    /// Its name; of a histogram with the quantile behind it, such as `latency p95`.
    pub name: String,
    /// How it is shown; the name where nothing else is said.
    pub display_name: String,
    /// The unit; may be empty.
    pub unit: String,
    /// Tags, `key=value` with commas between; empty if there are none.
    pub tags: String,
    /// `mean`: of what was measured in an interval; `increment`: by how much a sum grew in an interval; `value`: what it was.
    pub kind: &'static str,
    /// Intervals with a value.
    pub count: u64,
    /// The smallest value.
    pub min: f64,
    /// The mean of the values.
    pub mean: f64,
    /// The largest.
    pub max: f64,
    /// The last.
    pub last: f64,
    /// When the last came.
    pub last_ms: f64,
}

/// Gathers counters: events `EventCounters` (a provider with the argument `EventCounterIntervalSec`), and of the provider
/// System.Diagnostics.Metrics. An interval in which an instrument measured nothing has no value.
#[derive(Debug, Default)]
pub struct Counters {
    /// By provider, name, tags and kind.
    found: HashMap<(String, String, String, &'static str), Series>,
    values: u64,
    /// Only values of EventCounters that were made for this interval.
    interval_ms: Option<u64>,
}

#[derive(Clone, Debug)]
struct Series {
    display_name: String,
    unit: String,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    last: f64,
    last_ms: f64,
}

/// What a value belongs to.
struct Of {
    provider: String,
    name: String,
    display_name: String,
    unit: String,
    tags: String,
    kind: &'static str,
}

impl Counters {
    /// Nothing gathered yet.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// For a session with this interval. A provider gives every session the values that it makes for any of them.
    pub fn of_interval(interval: Duration) -> Counters {
        Counters {
            interval_ms: u64::try_from(interval.as_millis()).ok(),
            ..Counters::default()
        }
    }

    /// Takes an event; whether there was a value in it.
    pub fn add(&mut self, info: &TraceInfo, event: &Event<'_>) -> bool {
        let before = self.values;
        self.take(info, event);
        self.values != before
    }

    fn take(&mut self, info: &TraceInfo, event: &Event<'_>) {
        let (metadata, payload) = (event.metadata(), event.payload());
        let now = milliseconds(info, event);
        if Counter::matches(metadata) {
            let Some(counter) = Counter::of(metadata, event.schema(), payload) else {
                return;
            };
            let series = counter.series_interval_ms();
            if self.interval_ms.is_some() && series.is_some() && series != self.interval_ms {
                return;
            }
            let (kind, value) = match counter.value {
                CounterValue::Mean { mean, .. } => ("mean", mean),
                CounterValue::Sum { increment, .. } => ("increment", increment),
            };
            let of = Of {
                provider: metadata.provider.clone(),
                name: counter.name.to_string(),
                display_name: counter.display_name.to_string(),
                unit: counter.display_units.to_string(),
                tags: counter.metadata.to_string(),
                kind,
            };
            self.put(of, value, now);
        } else if let Some(MetricsEvent::Value(value)) =
            MetricsEvent::of(metadata, event.schema(), payload)
        {
            self.instrument(&value, now);
        }
    }

    fn instrument(&mut self, value: &InstrumentValue<'_>, now: f64) {
        let of = |kind, suffix: &str| Of {
            provider: value.meter_name.to_string(),
            name: format!("{}{suffix}", value.instrument_name),
            display_name: String::new(),
            unit: value.unit.to_string(),
            tags: value.tags.text.to_string(),
            kind,
        };
        let number = |text: &dyn std::fmt::Display| text.to_string().parse::<f64>().ok();
        match value.kind {
            ValueKind::Counter { rate, .. } => {
                if let Some(rate) = number(&rate) {
                    self.put(of("increment", ""), rate, now);
                }
            }
            ValueKind::UpDownCounter { value: sum, rate } => {
                // Before .NET 8 only the growth is told.
                match (sum.and_then(|sum| number(&sum)), number(&rate)) {
                    (Some(sum), _) => self.put(of("value", ""), sum, now),
                    (None, Some(rate)) => self.put(of("increment", ""), rate, now),
                    (None, None) => {}
                }
            }
            ValueKind::Gauge { last_value } => {
                if let Some(last) = number(&last_value) {
                    self.put(of("value", ""), last, now);
                }
            }
            ValueKind::Histogram(histogram) => {
                for pair in histogram.quantiles.to_string().split(';') {
                    let Some((quantile, value)) = pair.split_once('=') else {
                        continue;
                    };
                    if let (Some(quantile), Some(value)) = (number(&quantile), number(&value)) {
                        // Such as 0.999: its digits without noise.
                        let percent = (quantile * 1e6).round() / 1e4;
                        self.put(of("value", &format!(" p{percent}")), value, now);
                    }
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, of: Of, value: f64, now: f64) {
        if value.is_nan() {
            return;
        }
        let key = (of.provider, of.name, of.tags, of.kind);
        let series = self.found.entry(key).or_insert(Series {
            display_name: of.display_name,
            unit: of.unit,
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            last: value,
            last_ms: now,
        });
        self.values += 1;
        series.count += 1;
        series.sum += value;
        series.min = series.min.min(value);
        series.max = series.max.max(value);
        series.last = value;
        series.last_ms = now;
    }

    /// The report on what has come so far.
    pub fn report(&self) -> CounterReport {
        let rows = self.found.clone().into_iter();
        let mut counters: Vec<CounterSeries> = rows
            .map(|((provider, name, tags, kind), series)| CounterSeries {
                display_name: match series.display_name.as_str() {
                    "" => name.clone(),
                    shown => shown.to_owned(),
                },
                provider,
                name,
                unit: series.unit,
                tags,
                kind,
                count: series.count,
                min: series.min,
                mean: series.sum / series.count as f64,
                max: series.max,
                last: series.last,
                last_ms: series.last_ms,
            })
            .collect();
        counters.sort_by(|a, b| {
            let key =
                |row: &CounterSeries| (row.provider.clone(), row.name.clone(), row.tags.clone());
            key(a).cmp(&key(b)).then(a.kind.cmp(b.kind))
        });
        CounterReport {
            values: counters.iter().map(|row| row.count).sum(),
            counters,
        }
    }
}
