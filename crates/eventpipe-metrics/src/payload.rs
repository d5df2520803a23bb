//! The two events `EventCounters`, field by field as .NET writes them (nettrace.md 11.5).

use std::sync::OnceLock;
use std::time::Duration;

use eventpipe::{Definition, Event, Level};
use nettrace::{Field, FieldType};

use crate::counter::{About, Statistics};

/// Readers go by the events' name. The ids only have to differ from those that a program gives its own events.
const MEAN_ID: u32 = 0xFF01;
const SUM_ID: u32 = 0xFF02;

use FieldType::{Double, Int32, Single, String as Text};

/// Of counters that are shown as a value.
pub(crate) fn mean() -> Definition {
    static FIELDS: OnceLock<Vec<Field>> = OnceLock::new();
    definition(MEAN_ID).described(FIELDS.get_or_init(|| {
        nested(&[
            ("Name", Text),
            ("DisplayName", Text),
            ("Mean", Double),
            ("StandardDeviation", Double),
            ("Count", Int32),
            ("Min", Double),
            ("Max", Double),
            ("IntervalSec", Single),
            ("Series", Text),
            ("CounterType", Text),
            ("Metadata", Text),
            ("DisplayUnits", Text),
        ])
    }))
}

/// Of counters that are shown as a rate.
pub(crate) fn sum() -> Definition {
    static FIELDS: OnceLock<Vec<Field>> = OnceLock::new();
    definition(SUM_ID).described(FIELDS.get_or_init(|| {
        nested(&[
            ("Name", Text),
            ("DisplayName", Text),
            ("DisplayRateTimeScale", Text),
            ("Increment", Double),
            ("IntervalSec", Single),
            ("Metadata", Text),
            ("Series", Text),
            ("CounterType", Text),
            ("DisplayUnits", Text),
        ])
    }))
}

/// No keywords and the level of what is always sent: whoever asks for the provider gets its counters.
fn definition(id: u32) -> Definition {
    Definition::new("EventCounters")
        .id(id)
        .level(Level::LogAlways)
        .stack(false)
}

/// One field without a name, in it one called `Payload`, in it the fields.
fn nested(fields: &[(&str, FieldType)]) -> Vec<Field> {
    let field = |name: &str, field_type| Field {
        name: name.into(),
        field_type,
    };
    let fields = fields.iter().map(|(name, kind)| field(name, kind.clone()));
    let payload = field("Payload", FieldType::Object(fields.collect()));
    vec![field("", FieldType::Object(vec![payload]))]
}

/// The time that a value stands for.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) elapsed: Duration,
    /// `Interval=MILLISECONDS`, as it was asked for.
    pub(crate) series: String,
}

pub(crate) fn write_mean(
    event: &'static Event,
    about: &About,
    values: &Statistics,
    interval: &Interval,
) {
    // The tuple is the list of fields above.
    event.write_matching((
        &*about.name,
        &*about.display_name,
        values.mean(),
        values.standard_deviation(),
        values.count,
        values.min,
        values.max,
        interval.elapsed.as_secs_f32(),
        &*interval.series,
        "Mean",
        "",
        &*about.units,
    ));
}

pub(crate) fn write_sum(event: &'static Event, about: &About, increment: f64, interval: &Interval) {
    event.write_matching((
        &*about.name,
        &*about.display_name,
        &*about.rate_scale.map(time_span).unwrap_or_default(),
        increment,
        interval.elapsed.as_secs_f32(),
        "",
        &*interval.series,
        "Sum",
        &*about.units,
    ));
}

/// As .NET prints a `TimeSpan`: `[days.]hours:minutes:seconds[.fraction]`, to 100 ns.
fn time_span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    let days = if days > 0 {
        format!("{days}.")
    } else {
        String::new()
    };
    let fraction = match time.subsec_nanos() / 100 {
        0 => String::new(),
        ticks => format!(".{ticks:07}"),
    };
    format!("{days}{hours:02}:{minutes:02}:{seconds:02}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_look_as_dotnet_prints_them() {
        for (time, text) in [
            (Duration::from_secs(1), "00:00:01"),
            (Duration::from_secs(3_600), "01:00:00"),
            (Duration::from_millis(1_500), "00:00:01.5000000"),
            (Duration::from_secs(2 * 86_400 + 61), "2.00:01:01"),
        ] {
            assert_eq!(time_span(time), text);
        }
    }
}
