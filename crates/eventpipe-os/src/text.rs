//! What the system's texts mean. They are bytes, mostly ASCII, and these few lines read them without the machinery for every script and
//! radix, which would be three kilobytes of a program that only wants to be traced (docs/nativeaot.md).

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;

/// The bytes as a string in which what is not UTF-8, and every zero, which formats cannot hold, is `U+FFFD`.
pub fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (place, piece) in bytes.split(|byte| *byte == 0).enumerate() {
        if place > 0 {
            text.push_str(REPLACEMENT);
        }
        for chunk in piece.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push_str(REPLACEMENT);
            }
        }
    }
    text
}

const REPLACEMENT: &str = "\u{FFFD}";

/// Whether one of the bytes is zero. Without the search by words behind `contains`, which has no other use in the engine.
pub fn has_zero(bytes: &[u8]) -> bool {
    bytes.iter().position(|byte| *byte == 0).is_some()
}

/// The bytes as a C string; none where they hold a zero.
pub fn c_string(bytes: &[u8]) -> Option<CString> {
    if has_zero(bytes) {
        return None;
    }
    let mut text = Vec::with_capacity(bytes.len() + 1);
    text.extend_from_slice(bytes);
    text.push(0);
    // SAFETY: one zero, at the end.
    Some(unsafe { CString::from_vec_with_nul_unchecked(text) })
}

/// A number of digits only, at least one, in a radix up to 16; none when it does not fit.
pub fn number(digits: &[u8], radix: u8) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            // Letters of either case.
            _ => (byte | 0x20).checked_sub(b'a')?.checked_add(10)?,
        };
        if digit >= radix {
            return None;
        }
        number
            .checked_mul(u64::from(radix))?
            .checked_add(u64::from(digit))
    })
}

/// The parts of a text between separators, as many as there are separators and one.
pub fn split(text: &str, mut is_separator: impl FnMut(u8) -> bool) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let text = rest?;
        let end = text.bytes().position(&mut is_separator);
        let (part, behind) = text.split_at_checked(end.unwrap_or(text.len()))?;
        // A separator is one byte.
        rest = end.and_then(|_| behind.get(1..));
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn what_is_not_utf_8_and_zeros_are_replaced() {
        assert_eq!(lossy(b"plain \xC3\xA4"), "plain \u{E4}");
        assert_eq!(lossy(b"a\0b\xFFc"), "a\u{FFFD}b\u{FFFD}c");
        assert_eq!(lossy(b"\0"), "\u{FFFD}");
        assert_eq!(lossy(b""), "");
    }

    #[test]
    fn a_c_string_has_its_only_zero_at_the_end() {
        let text = |bytes| c_string(bytes).map(|text| text.into_bytes_with_nul());
        assert_eq!(text(b""), Some(b"\0".to_vec()));
        assert_eq!(text(b"ab"), Some(b"ab\0".to_vec()));
        assert_eq!(text(b"a\0b"), None);
        assert_eq!(text(b"\0"), None);
    }

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(number(b"0", 10), Some(0));
        assert_eq!(number(b"18446744073709551615", 10), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616", 10), None);
        assert_eq!(number(b"fFfFfFfFfFfFfFfF", 16), Some(u64::MAX));
        assert_eq!(number(b"10000000000000000", 16), None);
        for wrong in ["", "+1", "-1", " 1", "1 ", "g", "`", "@", "1_0", "\u{E9}"] {
            assert_eq!(number(wrong.as_bytes(), 16), None, "{wrong}");
        }
        assert_eq!(number(b"a", 10), None);
    }

    #[test]
    fn there_is_one_part_more_than_separators() {
        let parts = |text| split(text, |byte| byte == b';').collect::<Vec<_>>();
        assert_eq!(parts(""), [""]);
        assert_eq!(parts(";"), ["", ""]);
        assert_eq!(parts("\u{E4};b;;c"), ["\u{E4}", "b", "", "c"]);
    }
}
