//! Points in time as payloads hold them: 100 ns since 1601 (nettrace.md 8.1), and the calendar they are shown in.

use core::fmt;

const TICKS_PER_SECOND: i64 = 10_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// Days from 0000-03-01 to 1601-01-01 in the proleptic Gregorian calendar.
const DAYS_FROM_MARCH_0000: i64 = 584_694;

/// 100-nanosecond ticks since 1601-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime(pub i64);

impl FileTime {
    /// Nanoseconds since 1970-01-01 UTC; saturates far away from it.
    pub fn unix_nanoseconds(self) -> i64 {
        self.0
            .saturating_sub(116_444_736_000_000_000)
            .saturating_mul(100)
    }
}

/// `2024-02-29T12:34:56.7890000Z`, also for times that .NET's calendar (years 1 to 9999) cannot show.
impl fmt::Display for FileTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(TICKS_PER_SECOND);
        let ticks = self.0.rem_euclid(TICKS_PER_SECOND);
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let second = seconds.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ticks:07}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

/// Year, month and day of a day number counted from 1601-01-01. Years begin in March in between, so that the leap
/// day is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(DAYS_FROM_MARCH_0000);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let leap_days = (day_of_era / 1460)
        .wrapping_sub(day_of_era / 36_524)
        .wrapping_add(day_of_era / 146_096);
    let year_of_era = day_of_era.wrapping_sub(leap_days) / 365;
    let before = year_of_era
        .wrapping_mul(365)
        .wrapping_add(year_of_era / 4)
        .wrapping_sub(year_of_era / 100);
    let day_of_year = day_of_era.wrapping_sub(before);
    let shifted = day_of_year.wrapping_mul(5).wrapping_add(2) / 153;
    let day = day_of_year
        .wrapping_sub(shifted.wrapping_mul(153).wrapping_add(2) / 5)
        .wrapping_add(1);
    let month = if shifted < 10 {
        shifted.wrapping_add(3)
    } else {
        shifted.wrapping_sub(9)
    };
    let year = year_of_era
        .wrapping_add(era.wrapping_mul(400))
        .wrapping_add(i64::from(month <= 2));
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ticks, text) in [
            (0, "1601-01-01T00:00:00.0000000Z"),
            (116_444_736_000_000_000, "1970-01-01T00:00:00.0000000Z"),
            (133_536_836_967_890_000, "2024-02-29T12:34:56.7890000Z"),
            (-1, "1600-12-31T23:59:59.9999999Z"),
            (2_650_467_743_999_999_999, "9999-12-31T23:59:59.9999999Z"),
        ] {
            assert_eq!(FileTime(ticks).to_string(), text);
        }
        assert_eq!(FileTime(116_444_736_000_000_001).unix_nanoseconds(), 100);
        let _ = FileTime(i64::MAX).to_string() + &FileTime(i64::MIN).to_string();
    }
}
