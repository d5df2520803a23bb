//! UTF-16 text where it lies in a payload. Nearly all of it is ASCII, so both the search for the terminator and the
//! conversion work on blocks that a compiler turns into vector instructions, and fall back to units.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

const BLOCK: usize = 32;

/// Little-endian UTF-16 code units inside a payload, without the terminator. Unpaired surrogates are possible and
/// read as U+FFFD.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Utf16<'a> {
    bytes: &'a [u8],
}

impl<'a> Utf16<'a> {
    /// Text of the given bytes; a last odd byte is left out.
    pub fn new(bytes: &'a [u8]) -> Self {
        let even = bytes.len() & !1;
        Utf16 {
            bytes: bytes.get(..even).unwrap_or_default(),
        }
    }

    /// The text up to the first zero unit, and the number of bytes taken, terminator included. `None` without a
    /// terminator.
    #[inline(always)]
    pub fn terminated(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let length = zero_unit(bytes)?;
        Some((
            Utf16 {
                bytes: bytes.get(..length)?,
            },
            length.checked_add(2)?,
        ))
    }

    /// The bytes, two per unit.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Number of UTF-16 units.
    pub fn len(self) -> usize {
        self.bytes.len() / 2
    }

    /// Whether there is no unit.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The units.
    pub fn units(self) -> impl Iterator<Item = u16> + 'a {
        self.bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|unit| u16::from_le_bytes(*unit))
    }

    /// The characters, U+FFFD for unpaired surrogates.
    pub fn chars(self) -> impl Iterator<Item = char> + 'a {
        char::decode_utf16(self.units()).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Appends the text as UTF-8.
    #[inline]
    pub fn append_to(self, out: &mut Vec<u8>) {
        let start = out.len();
        // One pass that narrows and sees whether all was ASCII, which nearly always it was. A length that is known
        // beforehand lets the compiler make vector instructions of it, without a look at the room for each byte.
        let mut all = 0u16;
        out.extend(self.bytes.as_chunks::<2>().0.iter().map(|unit| {
            all |= u16::from_le_bytes(*unit);
            let [low, _] = *unit;
            low
        }));
        if all >= 0x80 {
            out.truncate(start);
            self.append_units(out);
        }
    }

    #[cold]
    fn append_units(self, out: &mut Vec<u8>) {
        let mut encoded = [0u8; 4];
        for character in self.chars() {
            out.extend_from_slice(character.encode_utf8(&mut encoded).as_bytes());
        }
    }

    /// The text as UTF-8 in `scratch`, whose former content is dropped.
    #[inline]
    pub fn to_str(self, scratch: &mut String) -> &str {
        let mut bytes = core::mem::take(scratch).into_bytes();
        bytes.clear();
        self.append_to(&mut bytes);
        // Only whole characters were appended; the lossy path is never taken.
        *scratch = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        scratch
    }
}

/// Offset in bytes of the first zero unit at an even offset.
#[inline(always)]
fn zero_unit(bytes: &[u8]) -> Option<usize> {
    let mut start = 0usize;
    while let Some(block) = bytes.get(start..).and_then(|rest| rest.first_chunk()) {
        if has_zero(block) {
            return Some(start.wrapping_add(first_zero(block)));
        }
        start = start.wrapping_add(BLOCK);
    }
    // What is left is the end of one more block; the units before it are known not to be zero.
    let whole = bytes.get(..bytes.len() & !1)?;
    match whole.last_chunk() {
        Some(block) if has_zero(block) => {
            let start = whole.len().wrapping_sub(BLOCK);
            Some(start.wrapping_add(first_zero(block)))
        }
        Some(_) => None,
        None => zero_in_words(whole),
    }
}

/// Whether a unit is zero: two comparisons of eight units each where a processor has them.
#[inline(always)]
fn has_zero(block: &[u8; BLOCK]) -> bool {
    let mut zero = false;
    for unit in block.as_chunks::<2>().0 {
        zero |= u16::from_le_bytes(*unit) == 0;
    }
    zero
}

/// Where in a block that has a zero unit the first one is. No branches: where texts end cannot be predicted.
#[inline(always)]
fn first_zero(block: &[u8; BLOCK]) -> usize {
    let (mut first, mut at) = ((0, 0usize), BLOCK);
    for word in block.as_chunks::<8>().0.iter().rev() {
        let zeros = zero_units(u64::from_le_bytes(*word));
        at = at.wrapping_sub(8);
        first = if zeros == 0 { first } else { (zeros, at) };
    }
    let (zeros, at) = first;
    at.wrapping_add((zeros.trailing_zeros() >> 4 << 1) as usize)
}

/// The high bit of each unit that is zero; a borrow can set it in units above, never below, the first one.
#[inline(always)]
fn zero_units(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & (LOW << 15)
}

/// Less than a block.
#[inline(never)]
fn zero_in_words(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut start = 0usize;
    for word in words {
        let zeros = zero_units(u64::from_le_bytes(*word));
        if zeros != 0 {
            return Some(start.wrapping_add((zeros.trailing_zeros() >> 4 << 1) as usize));
        }
        start = start.wrapping_add(8);
    }
    let index = rest
        .as_chunks::<2>()
        .0
        .iter()
        .position(|unit| *unit == [0, 0])?;
    index.checked_mul(2)?.checked_add(start)
}

/// The low bit of each unit of a word.
const LOW: u64 = 0x0001_0001_0001_0001;

impl PartialEq<str> for Utf16<'_> {
    fn eq(&self, other: &str) -> bool {
        self.units().eq(other.encode_utf16())
    }
}

impl fmt::Display for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chars()
            .try_for_each(|character| fmt::Write::write_char(f, character))
    }
}

impl fmt::Debug for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Write::write_char(f, '"')?;
        for character in self.chars() {
            fmt::Display::fmt(&character.escape_debug(), f)?;
        }
        fmt::Write::write_char(f, '"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn bytes(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn text_of_every_length_is_found_and_converted() {
        for length in 0..130 {
            for special in ["x", "\u{4ff}", "\u{1d11e}", "\u{100}"] {
                let text = "a".repeat(length) + special + &"b".repeat(length % 7);
                let mut payload = bytes(&text);
                payload.extend_from_slice(&[0, 0, 0xff, 0, 0]);
                let (found, taken) = Utf16::terminated(&payload).unwrap();
                assert_eq!(taken, payload.len() - 3);
                let mut scratch = String::from("old");
                assert_eq!(found.to_str(&mut scratch), text);
                assert_eq!(found.to_string(), text);
                assert!(found == *text.as_str());
            }
        }
    }

    #[test]
    fn a_zero_between_two_units_is_no_terminator() {
        assert!(Utf16::terminated(&[1, 0, 0, 1, 0]).is_none());
        assert!(Utf16::terminated(&[]).is_none());
        assert_eq!(Utf16::terminated(&[0, 0]).unwrap().1, 2);
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        let text = Utf16::new(&[0x34, 0xd8, 0x41, 0, 9]);
        assert_eq!(text.to_string(), "\u{fffd}A");
        assert_eq!(text.len(), 2);
    }
}
