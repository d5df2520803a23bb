//! System.Diagnostics.Metrics (nettrace.md 11.6). Numbers are text, "" where nothing was measured.

use alloc::string::String;
use alloc::vec::Vec;

use super::FromValue;
use crate::payload::{Fields, FileTime, Utf16, Value};
use crate::{Metadata, Schema};

/// The provider.
pub const METRICS: &str = "System.Diagnostics.Metrics";

/// An event of the metrics provider.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricsEvent<'a> {
    /// A remark about the session, such as its arguments.
    Message(Utf16<'a>),
    /// Values of an interval follow.
    CollectionStart {
        /// Whose.
        session_id: Utf16<'a>,
        /// The interval's begin.
        start: FileTime,
        /// Its end.
        end: FileTime,
    },
    /// All values of the interval were given.
    CollectionStop {
        /// Whose.
        session_id: Utf16<'a>,
        /// The interval's begin.
        start: FileTime,
        /// Its end.
        end: FileTime,
    },
    /// A value of an instrument.
    Value(InstrumentValue<'a>),
    /// An instrument exists (keyword 4).
    InstrumentPublished(Instrument<'a>),
    /// An instrument's values will be given.
    BeginReporting(Instrument<'a>),
    /// They will not be given any more.
    EndReporting(Instrument<'a>),
    /// All instruments that exist were published.
    EnumerationComplete {
        /// To whom.
        session_id: Utf16<'a>,
    },
    /// Something is wrong or cut short.
    Error(MetricsError<'a>),
    /// Version of the library.
    Version {
        /// Major.
        major: i32,
        /// Minor.
        minor: i32,
        /// Patch.
        patch: i32,
    },
}

/// What went wrong in a metrics session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricsError<'a> {
    /// An error of the session, with its message.
    Session(Utf16<'a>),
    /// More time series than the session asked for: the rest is left out.
    TimeSeriesLimit,
    /// More histograms than the session asked for.
    HistogramLimit,
    /// An instrument's callback threw, with the message.
    Callback(Utf16<'a>),
    /// Another session runs already: its id.
    AnotherSession(Utf16<'a>),
    /// A shared session was asked for with other settings than the running one.
    OtherSettings,
}

/// An instrument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instrument<'a> {
    /// Of which session.
    pub session_id: Utf16<'a>,
    /// Its meter.
    pub meter_name: Utf16<'a>,
    /// The meter's version.
    pub meter_version: Utf16<'a>,
    /// Its name.
    pub name: Utf16<'a>,
    /// The .NET type with generic mark: "Counter`1".
    pub instrument_type: Utf16<'a>,
    /// Unit.
    pub unit: Utf16<'a>,
    /// Description.
    pub description: Utf16<'a>,
    /// Tags of the instrument (.NET 8).
    pub instrument_tags: Tags<'a>,
    /// Tags of its meter (.NET 8).
    pub meter_tags: Tags<'a>,
    /// Tells meters of one name apart (.NET 8).
    pub meter_scope_hash: Utf16<'a>,
    /// Number of the instrument (.NET 9).
    pub id: Option<i32>,
}

/// A value of an instrument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstrumentValue<'a> {
    /// Of which session.
    pub session_id: Utf16<'a>,
    /// Its meter.
    pub meter_name: Utf16<'a>,
    /// The meter's version.
    pub meter_version: Utf16<'a>,
    /// Its name.
    pub instrument_name: Utf16<'a>,
    /// Unit.
    pub unit: Utf16<'a>,
    /// Which series of the instrument.
    pub tags: Tags<'a>,
    /// Number of the instrument (.NET 9).
    pub instrument_id: Option<i32>,
    /// The figures.
    pub kind: ValueKind<'a>,
}

/// The figures of an instrument. Texts are numbers, "" for none.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ValueKind<'a> {
    /// A counter: growth in the interval, and the sum (.NET 8).
    Counter {
        /// Growth.
        rate: Utf16<'a>,
        /// Sum.
        value: Option<Utf16<'a>>,
    },
    /// A counter that may fall.
    UpDownCounter {
        /// Growth.
        rate: Utf16<'a>,
        /// Sum.
        value: Option<Utf16<'a>>,
    },
    /// A gauge.
    Gauge {
        /// The last value.
        last_value: Utf16<'a>,
    },
    /// A histogram.
    Histogram(Histogram<'a>),
    /// A histogram in buckets of growing size (.NET 10).
    Base2ExponentialHistogram {
        /// The figures as they are called in the event.
        fields: Fields<'a>,
    },
}

/// A histogram as quantiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram<'a> {
    /// "0.5=4;0.95=9;0.99=9".
    pub quantiles: Utf16<'a>,
    /// How many values (.NET 8).
    pub count: Option<i32>,
    /// Their sum (.NET 8).
    pub sum: Option<f64>,
}

/// Tags of an instrument, meter or series: "k=v,k=v".
///
/// Until .NET 11 nothing is escaped: a value may hold commas and equal signs, and where one tag ends is a guess. The
/// versions of the events after that put a backslash before `\`, `,` and `=` of keys and values (dotnet/runtime pull
/// request 132262).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tags<'a> {
    /// The text as it is in the event: the key of a series.
    pub text: Utf16<'a>,
    /// Whether the event's version escapes.
    pub escaped: bool,
}

impl Tags<'_> {
    /// Keys and values. Unescaped text is split at commas that a key and `=` follow.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut part = Part::default();
        let mut escape = false;
        for character in self.text.chars() {
            if escape {
                escape = false;
                part.push(character);
                continue;
            }
            match character {
                '\\' if self.escaped => escape = true,
                ',' => core::mem::take(&mut part).add_to(&mut pairs),
                '=' if part.value.is_none() => part.value = Some(String::new()),
                _ => part.push(character),
            }
        }
        if !self.text.is_empty() {
            part.add_to(&mut pairs);
        }
        pairs
    }
}

#[derive(Default)]
struct Part {
    key: String,
    value: Option<String>,
}

impl Part {
    fn push(&mut self, character: char) {
        self.value.as_mut().unwrap_or(&mut self.key).push(character);
    }

    /// A part without `=` belongs to the value before it.
    fn add_to(self, pairs: &mut Vec<(String, String)>) {
        match (self.value, pairs.last_mut()) {
            (Some(value), _) => pairs.push((self.key, value)),
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(&self.key);
            }
            (None, None) => pairs.push((self.key, String::new())),
        }
    }
}

/// The first version of an event that escapes tags: one above the last that is known not to.
pub(super) fn escapes(event_id: u32, version: u32) -> bool {
    match event_id {
        4 | 5 | 6 | 16 => version >= 3,
        7 | 8 | 11 => version >= 4,
        19 => version >= 2,
        _ => false,
    }
}

impl<'a> MetricsEvent<'a> {
    /// The event, if it is one of the metrics provider.
    pub fn of(metadata: &Metadata, schema: &'a Schema, payload: &'a [u8]) -> Option<Self> {
        if metadata.provider != METRICS {
            return None;
        }
        let fields = schema.fields(payload);
        let found = Found {
            fields,
            escaped: escapes(metadata.event_id, metadata.version),
        };
        Some(match metadata.event_id {
            1 => MetricsEvent::Message(found.text("Message")?),
            2 => {
                let (session_id, start, end) = found.interval()?;
                MetricsEvent::CollectionStart {
                    session_id,
                    start,
                    end,
                }
            }
            3 => {
                let (session_id, start, end) = found.interval()?;
                MetricsEvent::CollectionStop {
                    session_id,
                    start,
                    end,
                }
            }
            4 => MetricsEvent::Value(found.value(ValueKind::Counter {
                rate: found.text("rate")?,
                value: found.text("value"),
            })?),
            5 => MetricsEvent::Value(found.value(ValueKind::Gauge {
                last_value: found.text("lastValue")?,
            })?),
            6 => MetricsEvent::Value(found.value(ValueKind::Histogram(Histogram {
                quantiles: found.text("quantiles")?,
                count: found.number("count"),
                sum: found.fields.get("sum").and_then(|value| value.as_f64()),
            }))?),
            7 => MetricsEvent::BeginReporting(found.instrument()?),
            8 => MetricsEvent::EndReporting(found.instrument()?),
            9 => MetricsEvent::Error(MetricsError::Session(found.text("errorMessage")?)),
            10 => MetricsEvent::EnumerationComplete {
                session_id: found.text("sessionId")?,
            },
            11 => MetricsEvent::InstrumentPublished(found.instrument()?),
            12 => MetricsEvent::Error(MetricsError::TimeSeriesLimit),
            13 => MetricsEvent::Error(MetricsError::HistogramLimit),
            14 => MetricsEvent::Error(MetricsError::Callback(found.text("errorMessage")?)),
            15 => MetricsEvent::Error(MetricsError::AnotherSession(
                found.text("runningSessionId")?,
            )),
            16 => MetricsEvent::Value(found.value(ValueKind::UpDownCounter {
                rate: found.text("rate")?,
                value: found.text("value"),
            })?),
            17 => MetricsEvent::Error(MetricsError::OtherSettings),
            18 => MetricsEvent::Version {
                major: found.number("Major")?,
                minor: found.number("Minor")?,
                patch: found.number("Patch")?,
            },
            19 => {
                MetricsEvent::Value(found.value(ValueKind::Base2ExponentialHistogram { fields })?)
            }
            _ => return None,
        })
    }
}

#[derive(Clone, Copy)]
struct Found<'a> {
    fields: Fields<'a>,
    escaped: bool,
}

impl<'a> Found<'a> {
    fn text(&self, name: &str) -> Option<Utf16<'a>> {
        self.fields.get(name).and_then(Utf16::from_value)
    }

    fn number(&self, name: &str) -> Option<i32> {
        self.fields.get(name).and_then(i32::from_value)
    }

    fn tags(&self, name: &str) -> Tags<'a> {
        Tags {
            text: self.text(name).unwrap_or_default(),
            escaped: self.escaped,
        }
    }

    fn interval(&self) -> Option<(Utf16<'a>, FileTime, FileTime)> {
        let time = |name: &str| match self.fields.get(name)? {
            Value::DateTime(time) => Some(time),
            _ => None,
        };
        Some((
            self.text("sessionId")?,
            time("intervalStartTime")?,
            time("intervalEndTime")?,
        ))
    }

    fn value(&self, kind: ValueKind<'a>) -> Option<InstrumentValue<'a>> {
        Some(InstrumentValue {
            session_id: self.text("sessionId")?,
            meter_name: self.text("meterName")?,
            meter_version: self.text("meterVersion")?,
            instrument_name: self.text("instrumentName")?,
            unit: self.text("unit")?,
            tags: self.tags("tags"),
            instrument_id: self.number("instrumentId"),
            kind,
        })
    }

    fn instrument(&self) -> Option<Instrument<'a>> {
        Some(Instrument {
            session_id: self.text("sessionId")?,
            meter_name: self.text("meterName")?,
            meter_version: self.text("meterVersion")?,
            name: self.text("instrumentName")?,
            instrument_type: self.text("instrumentType")?,
            unit: self.text("unit")?,
            description: self.text("description")?,
            instrument_tags: self.tags("instrumentTags"),
            meter_tags: self.tags("meterTags"),
            meter_scope_hash: self.text("meterScopeHash").unwrap_or_default(),
            id: self.number("instrumentId"),
        })
    }
}
