//! What a trace says about itself and the machine it was recorded on.

use alloc::string::String;
use alloc::vec::Vec;

/// The versions of the format (nettrace.md section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FormatVersion {
    /// .NET Core 2.0 previews: one object, providers by GUID.
    V1,
    /// .NET Core 2.0: one object, providers by name.
    V2,
    /// .NET Core 2.1 and 2.2, "format 0" of later runtimes: event blocks with the stacks inside.
    V3,
    /// .NET Core 3.0 and later: blocks with compressed headers, and sequence points.
    V4,
    /// V4 with tags behind the metadata. The header says V4; a trace turns into V5 when the first tag is read.
    V5,
    /// Blocks without alignment, threads and labels as tables.
    V6,
}

/// A UTC time as the format holds it: Windows' SYSTEMTIME (nettrace.md section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SystemTime {
    pub year: i16,
    /// 1–12.
    pub month: i16,
    /// 0 is Sunday. Redundant, and wrong in some files.
    pub day_of_week: i16,
    /// 1–31.
    pub day: i16,
    pub hour: i16,
    pub minute: i16,
    pub second: i16,
    pub millisecond: i16,
}

/// The description at the beginning of a trace (nettrace.md section 2 and 6.1).
#[derive(Clone, Debug, PartialEq)]
pub struct TraceInfo {
    /// Version of the format. Ignored by the writer.
    pub format: FormatVersion,
    /// UTC when the trace was started, to the millisecond.
    pub start: SystemTime,
    /// The clock at that same moment.
    pub sync_ticks: i64,
    /// Ticks of the clock per second; positive.
    pub ticks_per_second: i64,
    /// 4 or 8. V1 and V2 do not say; it is taken to be 8.
    pub pointer_size: u32,
    /// The process; `None` for a trace of several processes or a version that does not say.
    pub process_id: Option<u64>,
    /// Processors of the machine.
    pub processor_count: Option<u32>,
    /// The intended time between two samples of the sample profiler, in nanoseconds.
    pub sampling_period_ns: Option<u64>,
    /// V6: pairs other than those above.
    pub pairs: Vec<(String, String)>,
}

impl SystemTime {
    /// The time a number of nanoseconds after 1970-01-01 UTC, cut to milliseconds.
    pub fn from_unix_ns(unix_ns: i64) -> SystemTime {
        let ms = unix_ns.div_euclid(1_000_000);
        let days = ms.div_euclid(86_400_000);
        let in_day = ms.rem_euclid(86_400_000);
        // Days to a civil date, with years that begin in March.
        let shifted = days.wrapping_add(719_468);
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = day_of_era
            .wrapping_sub(day_of_era / 1460)
            .wrapping_add(day_of_era / 36_524)
            .wrapping_sub(day_of_era / 146_096)
            / 365;
        let day_of_year = day_of_era.wrapping_sub(
            year_of_era
                .wrapping_mul(365)
                .wrapping_add(year_of_era / 4)
                .wrapping_sub(year_of_era / 100),
        );
        let shifted_month = day_of_year.wrapping_mul(5).wrapping_add(2) / 153;
        let day = day_of_year
            .wrapping_sub(shifted_month.wrapping_mul(153).wrapping_add(2) / 5)
            .wrapping_add(1);
        let month = if shifted_month < 10 {
            shifted_month.wrapping_add(3)
        } else {
            shifted_month.wrapping_sub(9)
        };
        let year = year_of_era
            .wrapping_add(era.wrapping_mul(400))
            .wrapping_add(i64::from(month <= 2));
        SystemTime {
            year: year as i16,
            month: month as i16,
            day_of_week: days.wrapping_add(4).rem_euclid(7) as i16,
            day: day as i16,
            hour: (in_day / 3_600_000) as i16,
            minute: (in_day / 60_000 % 60) as i16,
            second: (in_day / 1000 % 60) as i16,
            millisecond: (in_day % 1000) as i16,
        }
    }

    /// Nanoseconds since 1970-01-01 UTC. Fields out of their range are taken at their value, as a calendar would.
    pub fn unix_ns(self) -> i128 {
        let (y, m, d) = (
            i128::from(self.year),
            i128::from(self.month),
            i128::from(self.day),
        );
        let y = y.wrapping_sub(i128::from(m <= 2));
        let era = y.div_euclid(400);
        let year_of_era = y.rem_euclid(400);
        let shifted_month = m.wrapping_add(9).rem_euclid(12);
        let day_of_year = (shifted_month.wrapping_mul(153).wrapping_add(2) / 5)
            .wrapping_add(d)
            .wrapping_sub(1);
        let day_of_era = year_of_era
            .wrapping_mul(365)
            .wrapping_add(year_of_era / 4)
            .wrapping_sub(year_of_era / 100)
            .wrapping_add(day_of_year);
        let days = era
            .wrapping_mul(146_097)
            .wrapping_add(day_of_era)
            .wrapping_sub(719_468);
        days.wrapping_mul(24)
            .wrapping_add(i128::from(self.hour))
            .wrapping_mul(60)
            .wrapping_add(i128::from(self.minute))
            .wrapping_mul(60)
            .wrapping_add(i128::from(self.second))
            .wrapping_mul(1000)
            .wrapping_add(i128::from(self.millisecond))
            .wrapping_mul(1_000_000)
    }
}

impl TraceInfo {
    /// Nanoseconds from the start of the trace to a time stamp; negative before the start (nettrace.md 7.3).
    pub fn nanoseconds(&self, timestamp: i64) -> i64 {
        let ticks = i128::from(timestamp).wrapping_sub(i128::from(self.sync_ticks));
        let per_second = i128::from(self.ticks_per_second.max(1));
        let ns = ticks
            .wrapping_mul(1_000_000_000)
            .checked_div(per_second)
            .unwrap_or(0);
        i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
    }

    /// Nanoseconds since 1970-01-01 UTC of a time stamp. The start is known to the millisecond only.
    pub fn unix_ns(&self, timestamp: i64) -> i128 {
        self.start
            .unix_ns()
            .wrapping_add(i128::from(self.nanoseconds(timestamp)))
    }
}
