//! EventCounters (nettrace.md 11.5).

use super::{FromValue, View};
use crate::Metadata;
use crate::payload::{Fields, Utf16, Value};

/// One value of an EventCounter. Told apart by the event's name, not its id; read by the names of fields, whose order
/// differs between kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter<'a> {
    /// Name.
    pub name: Utf16<'a>,
    /// What to show.
    pub display_name: Utf16<'a>,
    /// Unit.
    pub display_units: Utf16<'a>,
    /// "k1:v1,k2:v2", without escapes.
    pub metadata: Utf16<'a>,
    /// "Interval=1000": which session's interval the value belongs to. All sessions get the values of all.
    pub series: Utf16<'a>,
    /// Length of the interval; the first of a session can be short.
    pub interval_seconds: f64,
    /// The figures.
    pub value: CounterValue<'a>,
}

/// The figures of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterValue<'a> {
    /// Of values measured in the interval.
    Mean {
        /// Average.
        mean: f64,
        /// Deviation.
        standard_deviation: f64,
        /// How many.
        count: i32,
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A sum grew.
    Sum {
        /// By how much in the interval.
        increment: f64,
        /// A time as text, "00:00:01", that a rate is to be given for; empty for a second.
        rate_time_scale: Utf16<'a>,
    },
}

impl Counter<'_> {
    /// The interval that the value was made for, from [`Counter::series`].
    pub fn series_interval_ms(&self) -> Option<u64> {
        let mut milliseconds = None;
        let mut prefix = "Interval=".chars();
        for character in self.series.chars() {
            if let Some(expected) = prefix.next() {
                if expected != character {
                    return None;
                }
            } else {
                let digit = u64::from(character.to_digit(10)?);
                let before: u64 = milliseconds.unwrap_or(0);
                milliseconds = Some(before.checked_mul(10)?.checked_add(digit)?);
            }
        }
        milliseconds
    }
}

impl<'a> View<'a> for Counter<'a> {
    fn matches(metadata: &Metadata) -> bool {
        metadata.name == "EventCounters"
    }

    fn read(fields: Fields<'a>) -> Option<Self> {
        let Value::Object(outer) = fields.get("").or_else(|| fields.get("Payload"))? else {
            return None;
        };
        let inner = match outer.get("Payload") {
            Some(Value::Object(inner)) => inner,
            _ => outer,
        };
        let text = |name: &str| {
            inner
                .get(name)
                .and_then(Utf16::from_value)
                .unwrap_or_default()
        };
        let number = |name: &str| inner.get(name).and_then(|value| value.as_f64());
        let value = match number("Increment") {
            Some(increment) => CounterValue::Sum {
                increment,
                rate_time_scale: text("DisplayRateTimeScale"),
            },
            None => CounterValue::Mean {
                mean: number("Mean")?,
                standard_deviation: number("StandardDeviation").unwrap_or(0.0),
                count: inner.get("Count").and_then(i32::from_value).unwrap_or(0),
                min: number("Min").unwrap_or(0.0),
                max: number("Max").unwrap_or(0.0),
            },
        };
        Some(Counter {
            name: inner.get("Name").and_then(Utf16::from_value)?,
            display_name: text("DisplayName"),
            display_units: text("DisplayUnits"),
            metadata: text("Metadata"),
            series: text("Series"),
            interval_seconds: number("IntervalSec").unwrap_or(0.0),
            value,
        })
    }
}
