//! Floating-point numbers as .NET writes them ("R"): the fewest digits that read back the same, an exponent only for
//! large and small ones.

use std::io::Write;

/// Appends a double.
pub(crate) fn append_f64(value: f64, out: &mut Vec<u8>) {
    append(
        value.is_finite(),
        value.is_nan(),
        value.is_sign_negative(),
        15,
        out,
        |text| write!(text, "{value:e}"),
    );
}

/// Appends a single.
pub(crate) fn append_f32(value: f32, out: &mut Vec<u8>) {
    append(
        value.is_finite(),
        value.is_nan(),
        value.is_sign_negative(),
        7,
        out,
        |text| write!(text, "{value:e}"),
    );
}

/// `most_digits`: how many digits before the decimal point are written out when the number has fewer than these.
fn append(
    finite: bool,
    nan: bool,
    negative: bool,
    most_digits: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
) {
    if !finite {
        let text: &[u8] = match (nan, negative) {
            (true, _) => b"\"NaN\"",
            (false, false) => b"\"Infinity\"",
            (false, true) => b"\"-Infinity\"",
        };
        out.extend_from_slice(text);
        return;
    }
    let start = out.len();
    if write(out).is_err() {
        return;
    }
    // Now it reads "-1.2345e-6".
    let text = String::from_utf8_lossy(&out[start..]).into_owned();
    out.truncate(start);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    out.extend_from_slice(sign.as_bytes());
    let point = i64::from(exponent) + 1;
    let most = digits.len().max(most_digits) as i64;
    if point > most || point < -3 {
        let (first, rest) = digits.split_at(1);
        out.extend_from_slice(first.as_bytes());
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest.as_bytes());
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "E{sign}{:02}", exponent.unsigned_abs());
    } else if point <= 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', point.unsigned_abs() as usize));
        out.extend_from_slice(digits.as_bytes());
    } else {
        let whole = (point as usize).min(digits.len());
        let (before, after) = digits.split_at(whole);
        out.extend_from_slice(before.as_bytes());
        out.extend(std::iter::repeat_n(b'0', point as usize - whole));
        if !after.is_empty() {
            out.push(b'.');
            out.extend_from_slice(after.as_bytes());
        }
    }
}

/// Milliseconds with six decimals from ticks, as TraceEvent's double of them is shown. Times before the start of the
/// trace count as its start.
pub(crate) fn append_relative_ms(ticks: i64, sync: i64, ticks_per_second: i64, out: &mut Vec<u8>) {
    let ticks = ticks.saturating_sub(sync).max(0);
    let result = if ticks_per_second > 0 && 1_000_000_000 % ticks_per_second == 0 {
        let nanoseconds = i128::from(ticks) * i128::from(1_000_000_000 / ticks_per_second);
        write!(
            out,
            "{}.{:06}",
            nanoseconds / 1_000_000,
            nanoseconds % 1_000_000
        )
    } else if ticks_per_second > 0 {
        write!(
            out,
            "{:.6}",
            ticks as f64 * 1000.0 / ticks_per_second as f64
        )
    } else {
        write!(out, "0.000000")
    };
    // Writing to memory does not fail.
    let _ = result;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_dotnet_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (5.5, "5.5"),
            (-0.3333333333333333, "-0.3333333333333333"),
            (1e15, "1E+15"),
            (123_456_789_012_345_680.0, "1.2345678901234568E+17"),
            (123_456_789_012_345.0, "123456789012345"),
            (1_234_567_890_123_456.0, "1234567890123456"),
            (100_000_000_000_000.0, "100000000000000"),
            (0.0001, "0.0001"),
            (0.00001, "1E-05"),
            (0.0012, "0.0012"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::NAN, "\"NaN\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            let mut out = Vec::new();
            append_f64(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        for (value, text) in [
            (1.0063854f32, "1.0063854"),
            (1e7, "1E+07"),
            (16_777_216.0, "16777216"),
        ] {
            let mut out = Vec::new();
            append_f32(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn times_are_milliseconds_since_the_start_whatever_the_clock() {
        for (ticks, per_second, text) in [
            (1_234_567, 1_000_000_000, "0.234567"),
            (3_500_000, 10_000_000, "250.000000"),
            // What was written before the start of the trace counts as written then.
            (999_999, 1_000_000_000, "0.000000"),
            (i64::MIN, 1_000_000_000, "0.000000"),
            // A clock whose ticks are no whole nanoseconds, and none.
            (1_000_000 + 2_435_912, 2_435_912, "1000.000000"),
            (1_000_000 + 1, 3_000_000, "0.000333"),
            (1_000_001, 0, "0.000000"),
            (1_000_001, -5, "0.000000"),
        ] {
            let mut out = Vec::new();
            append_relative_ms(ticks, 1_000_000, per_second, &mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                text,
                "{ticks} {per_second}"
            );
        }
    }
}
