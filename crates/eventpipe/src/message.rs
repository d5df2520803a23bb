//! The few lines that the engine says to people, on standard error. No formatting machinery: it is large.

use alloc::string::String;

use eventpipe_os::process;

/// Writes `eventpipe: …` as one line.
pub(crate) fn warn(parts: &[&str]) {
    let mut line = String::from("eventpipe: ");
    for part in parts {
        line.push_str(part);
    }
    line.push('\n');
    process::write_standard_error(line.as_bytes());
}

/// A number in decimal digits.
pub(crate) fn decimal(mut number: u64) -> String {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        if let Some(digit) = digits.get_mut(start) {
            *digit = b'0' + (number % 10) as u8;
        }
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits
        .get(start..)
        .unwrap_or_default()
        .iter()
        .map(|digit| char::from(*digit))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::decimal;
    use alloc::string::ToString;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 12_345, u64::MAX] {
            assert_eq!(decimal(number), number.to_string());
        }
    }
}
