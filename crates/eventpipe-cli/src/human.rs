//! Durations, sizes, counts and rates as people write and read them.

use jiff::{SignedDuration, Timestamp};
use nettrace::TraceInfo;
use std::time::Duration;

/// What can be written for a duration.
const FORMS: &str = "write 10s, 1m30s, 500ms or dd:hh:mm:ss";
const TOO_SHORT: &str =
    "a duration must be longer than zero: write 10s, 1m30s, 500ms or dd:hh:mm:ss";

/// Reads a duration: `10s`, `1m30s`, `500ms`, `1h`, or `dotnet-trace`'s `dd:hh:mm:ss` (also
/// `hh:mm:ss`). A bare number is refused, because the other tool reads it as days.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    match text.strip_prefix('-').map(str::as_bytes) {
        None => {}
        Some([b'0'..=b'9' | b'.', ..]) => return Err(TOO_SHORT.into()),
        // Another option: the words of the command line are taken as they stand.
        Some(_) => return Err(format!("a time stands here: {FORMS}")),
    }
    let duration = if text.contains(':') {
        parse_colons(text)
    } else {
        parse_units(text)
    };
    match duration {
        Ok(duration) if duration.is_zero() => Err(TOO_SHORT.into()),
        other => other,
    }
}

fn parse_units(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "'{text}' has no unit: write {text}s, {text}m or {text}h"
        ));
    }
    let wrong = || format!("'{text}' is not a duration: {FORMS}");
    let duration: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| wrong())
}

fn parse_colons(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not of the form dd:hh:mm:ss or hh:mm:ss");
    let parts: Option<Vec<u64>> = text
        .split(':')
        .map(|part| {
            if part.starts_with('+') {
                None
            } else {
                part.parse().ok()
            }
        })
        .collect();
    let (days, hours, minutes, seconds) = match parts.ok_or_else(wrong)?[..] {
        [d, h, m, s] => (d, h, m, s),
        [h, m, s] => (0, h, m, s),
        _ => return Err(wrong()),
    };
    if hours > 23 || minutes > 59 || seconds > 59 || days > 36_500 {
        return Err(format!(
            "'{text}': hours go to 23, minutes and seconds to 59"
        ));
    }
    Ok(Duration::from_secs(
        ((days * 24 + hours) * 60 + minutes) * 60 + seconds,
    ))
}

/// A point within a trace, as `--from` and `--to` take it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    /// So long after the start of the trace.
    SinceStart(Duration),
    /// A date and time.
    At(Timestamp),
}

impl Moment {
    /// Nanoseconds from the start of a trace to the moment.
    pub(crate) fn since_start(self, info: &TraceInfo) -> i128 {
        match self {
            Moment::SinceStart(duration) => {
                i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
            }
            Moment::At(timestamp) => timestamp.as_nanosecond() - info.start.unix_ns(),
        }
    }
}

/// Whether there is no time between two moments of one trace.
pub(crate) fn is_backwards(from: Option<Moment>, to: Option<Moment>) -> bool {
    match (from, to) {
        (Some(Moment::SinceStart(from)), Some(Moment::SinceStart(to))) => from > to,
        (Some(Moment::At(from)), Some(Moment::At(to))) => from > to,
        // Only the trace can tell.
        _ => false,
    }
}

/// Reads a point in time: a duration since the start of the trace (`1.5s`, `2m`), or a date and
/// time with offset or `Z` (`2026-01-31T12:00:00Z`).
pub(crate) fn parse_moment(text: &str) -> Result<Moment, String> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Ok(Moment::At(timestamp));
    }
    if text.starts_with('-') {
        return Err(
            "a time since the start stands here (1.5s), or a date and time: 2026-01-31T12:00:00Z"
                .into(),
        );
    }
    if text.contains('-') {
        return Err(format!(
            "'{text}' is not a date and time such as 2026-01-31T12:00:00Z"
        ));
    }
    if matches!(text, "0" | "0s") {
        return Ok(Moment::SinceStart(Duration::ZERO));
    }
    let since_start = parse_duration(text).map(Moment::SinceStart);
    since_start.map_err(|cause| format!("{cause}; or a date and time: 2026-01-31T12:00:00Z"))
}

/// `dd:hh:mm:ss`, without the days while there are none.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let short = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if days == 0 {
        short
    } else {
        format!("{days:02}:{short}")
    }
}

/// A span of time in three significant digits: `1.23 s`, `45.6 ms`, `7 ns`.
pub(crate) fn span(nanoseconds: u128) -> String {
    let value = nanoseconds as f64;
    let (value, unit) = match value {
        v if v < 1e3 => return format!("{nanoseconds} ns"),
        v if v < 1e6 => (v / 1e3, "µs"),
        v if v < 1e9 => (v / 1e6, "ms"),
        v if v < 120e9 => (v / 1e9, "s"),
        v if v < 7_200e9 => (v / 60e9, "min"),
        v => (v / 3_600e9, "h"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A number of bytes in three significant digits, in powers of 1000: `532 B`, `1.23 MB`.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            let text = if unit == "B" {
                format!("{count}")
            } else {
                three_digits(value)
            };
            return format!("{text} {unit}");
        }
        value /= 1000.0;
    }
    format!("{} PB", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A measured number, as short as three digits allow and in full where it is whole.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e15 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(size as u64));
    }
    match size {
        size if !(1e-3..1e15).contains(&size) => format!("{value:.2e}"),
        size if size < 1.0 => format!("{value:.4}"),
        size if size < 100.0 => format!("{value:.2}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", count(size.round() as u64))
        }
    }
}

/// A count with thousands separated by commas.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count of things: `1 event`, `2,000 events`.
pub(crate) fn number_of(value: u64, thing: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(value))
}

/// The local time as the default file names carry it: `yyyyMMdd_HHmmss`.
pub(crate) fn file_time() -> String {
    jiff::Zoned::now().strftime("%Y%m%d_%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-3.0, "-3"),
            (1_234_567.0, "1,234,567"),
            (1234.56, "1,235"),
            (-1234.56, "-1,235"),
            (123.456, "123.5"),
            (36.958208, "36.96"),
            (0.00548, "0.0055"),
            (0.000012, "1.20e-5"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn durations_are_read_in_both_forms() {
        let seconds = |text| parse_duration(text).unwrap().as_secs_f64();
        assert_eq!(seconds("10s"), 10.0);
        assert_eq!(seconds("1m30s"), 90.0);
        assert_eq!(seconds("500ms"), 0.5);
        assert_eq!(seconds("1.5s"), 1.5);
        assert_eq!(seconds("2h"), 7200.0);
        assert_eq!(seconds("00:00:00:05"), 5.0);
        assert_eq!(seconds("01:02:03"), 3723.0);
        assert_eq!(seconds("02:00:00:00"), 172_800.0);
    }

    #[test]
    fn a_stretch_that_ends_before_it_begins_is_seen_where_both_are_of_one_kind() {
        let moment = |text: &str| (!text.is_empty()).then(|| parse_moment(text).unwrap());
        let (noon, one) = ("2026-01-31T12:00:00Z", "2026-01-31T14:00:00+01:00");
        for (from, to, expected) in [
            ("2s", "1s", true),
            ("1s", "1s", false),
            ("1s", "2s", false),
            (one, noon, true),
            (noon, noon, false),
            (noon, one, false),
            (one, "1s", false),
            ("2s", noon, false),
            ("2s", "", false),
            ("", noon, false),
        ] {
            assert_eq!(
                is_backwards(moment(from), moment(to)),
                expected,
                "{from} {to}"
            );
        }
    }

    #[test]
    fn wrong_durations_are_explained() {
        for (text, part) in [
            ("10", "no unit"),
            ("00:10", "hh:mm:ss"),
            ("00:61:00", "59"),
            ("-5s", "longer than zero"),
            ("--force", "a time stands here"),
            ("0s", "longer than zero"),
            ("soon", "not a duration"),
            ("", "not a duration"),
            ("1:2:3:4:5", "hh:mm:ss"),
            ("99999999999999999999:0:0:0", "hh:mm:ss"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn moments_are_relative_or_dates() {
        assert_eq!(
            parse_moment("2s"),
            Ok(Moment::SinceStart(Duration::from_secs(2)))
        );
        assert_eq!(parse_moment("0s"), Ok(Moment::SinceStart(Duration::ZERO)));
        assert!(matches!(
            parse_moment("2026-01-31T12:00:00Z"),
            Ok(Moment::At(_))
        ));
        assert!(
            parse_moment("2026-01-31")
                .unwrap_err()
                .contains("date and time")
        );
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(clock(Duration::from_secs(3_723)), "01:02:03");
        assert_eq!(clock(Duration::from_secs(90_000)), "01:01:00:00");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_567), "1.23 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(u64::MAX), "18447 PB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(0), "0");
        assert_eq!(number_of(0, "event"), "0 events");
        assert_eq!(number_of(1, "event"), "1 event");
        assert_eq!(number_of(1_000, "event"), "1,000 events");
        assert_eq!(span(0), "0 ns");
        assert_eq!(span(999), "999 ns");
        assert_eq!(span(1_500_000), "1.50 ms");
        assert_eq!(span(90_000_000_000), "90.0 s");
    }
}
