//! Arguments of events and how they lie in a payload (nettrace.md 8.1).
//!
//! Invariant: encoding runs inside the ring's write section, so nothing here calls code that is not ours. The trait
//! [`Argument`] is sealed for that reason: a `Display` or `AsRef` of a user could allocate, block or write an event.
//! `put` never panics: it works on checked splits, and `size` and `put` look at the same immutable bytes.

use eventpipe_ring::Payload;
use nettrace::{FieldType, Guid};

/// The type of one field as it is described to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// `bool`: four bytes, 0 or 1.
    Boolean,
    /// `char`: one UTF-16 unit; a character outside the basic plane becomes U+FFFD.
    Char,
    /// `i8`.
    SByte,
    /// `u8`.
    Byte,
    /// `i16`.
    Int16,
    /// `u16`.
    UInt16,
    /// `i32`.
    Int32,
    /// `u32`.
    UInt32,
    /// `i64` and `isize`.
    Int64,
    /// `u64` and `usize`.
    UInt64,
    /// `f32`.
    Single,
    /// `f64`.
    Double,
    /// [`Guid`]: 16 bytes.
    Guid,
    /// `&str`: UTF-16 up to a zero unit. A NUL inside the string becomes U+FFFD, because a reader would end the string there.
    String,
    /// `&[u8]`: u16 count, then the bytes.
    Bytes,
}

impl FieldKind {
    pub(crate) fn field_type(self) -> FieldType {
        match self {
            FieldKind::Boolean => FieldType::Boolean,
            FieldKind::Char => FieldType::Char,
            FieldKind::SByte => FieldType::SByte,
            FieldKind::Byte => FieldType::Byte,
            FieldKind::Int16 => FieldType::Int16,
            FieldKind::UInt16 => FieldType::UInt16,
            FieldKind::Int32 => FieldType::Int32,
            FieldKind::UInt32 => FieldType::UInt32,
            FieldKind::Int64 => FieldType::Int64,
            FieldKind::UInt64 => FieldType::UInt64,
            FieldKind::Single => FieldType::Single,
            FieldKind::Double => FieldType::Double,
            FieldKind::Guid => FieldType::Guid,
            FieldKind::String => FieldType::String,
            FieldKind::Bytes => FieldType::Array(alloc::boxed::Box::new(FieldType::Byte)),
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A value that an event can carry: `bool`, `char`, an integer of up to 64 bits, `f32`, `f64`, [`Guid`], `&str` or `&[u8]`. [`FieldKind`] says
/// how each lies in the payload. Sealed: encoding must not call code that is not the engine's.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of an event",
    label = "an event cannot carry this type",
    note = "an event carries bool, char, integers of up to 64 bits, f32, f64, eventpipe::Guid, &str and &[u8]"
)]
pub trait Argument: sealed::Sealed {
    /// How the value is described to readers.
    const KIND: FieldKind;

    /// Bytes in the payload.
    #[doc(hidden)]
    fn size(&self) -> usize;

    /// Writes the value at the start of `out` and gives back what is left of it.
    #[doc(hidden)]
    fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8];
}

/// The arguments of one event: a tuple of up to sixteen [`Argument`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of an event",
    note = "an event has at most sixteen arguments; `Event::write` takes them as a tuple: `(7u64, \"/\")`, `(7u64,)`, `()`"
)]
pub trait Arguments: sealed::Sealed {
    /// The kinds of the fields, in order.
    const KINDS: &'static [FieldKind];

    /// Bytes of the whole payload.
    #[doc(hidden)]
    fn size(&self) -> usize;

    /// Writes all fields to `out`, which has `size()` bytes.
    #[doc(hidden)]
    fn put_all(&self, out: &mut [u8]);
}

/// [`Arguments`] as the ring wants them. It asks for the size once, and not if the event is lost for want of room: to find out how many
/// units a long text has takes longer than all the rest of that.
#[derive(Debug)]
pub(crate) struct Encoded<A>(pub(crate) A);

impl<A: Arguments> Payload for Encoded<A> {
    #[inline]
    fn len(&self) -> usize {
        self.0.size()
    }

    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        self.0.put_all(out);
    }
}

macro_rules! fixed_size {
    ($($type:ty => $kind:ident, $value:ident -> $bytes:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Argument for $type {
            const KIND: FieldKind = FieldKind::$kind;

            #[inline]
            fn size(&self) -> usize {
                let $value = *self;
                $bytes.len()
            }

            #[inline]
            fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
                let $value = *self;
                put_chunk($bytes, out)
            }
        }
    )*};
}

fixed_size! {
    bool => Boolean, value -> u32::from(value).to_le_bytes();
    char => Char, value -> u16::try_from(u32::from(value)).unwrap_or(0xFFFD).to_le_bytes();
    i8 => SByte, value -> value.to_le_bytes();
    u8 => Byte, value -> value.to_le_bytes();
    i16 => Int16, value -> value.to_le_bytes();
    u16 => UInt16, value -> value.to_le_bytes();
    i32 => Int32, value -> value.to_le_bytes();
    u32 => UInt32, value -> value.to_le_bytes();
    i64 => Int64, value -> value.to_le_bytes();
    u64 => UInt64, value -> value.to_le_bytes();
    isize => Int64, value -> (value as i64).to_le_bytes();
    usize => UInt64, value -> (value as u64).to_le_bytes();
    f32 => Single, value -> value.to_le_bytes();
    f64 => Double, value -> value.to_le_bytes();
    Guid => Guid, value -> value.0;
}

impl sealed::Sealed for &str {}
impl Argument for &str {
    const KIND: FieldKind = FieldKind::String;

    #[inline]
    fn size(&self) -> usize {
        utf16_units(self) * 2 + 2
    }

    #[inline]
    fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        put_chunk([0, 0], put_utf16(self, out))
    }
}

impl sealed::Sealed for &[u8] {}
impl Argument for &[u8] {
    const KIND: FieldKind = FieldKind::Bytes;

    // More than 65,535 bytes cannot be counted in the u16, and are over the largest payload anyway: the ring refuses the
    // event by its size before `put` is called.
    #[inline]
    fn size(&self) -> usize {
        self.len() + 2
    }

    #[inline]
    fn put<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        let out = put_chunk(
            u16::try_from(self.len()).unwrap_or(u16::MAX).to_le_bytes(),
            out,
        );
        match out.split_at_mut_checked(self.len()) {
            Some((field, rest)) => {
                field.copy_from_slice(self);
                rest
            }
            None => &mut [],
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident),*))*) => {$(
        impl<$($name: Argument),*> sealed::Sealed for ($($name,)*) {}
        impl<$($name: Argument),*> Arguments for ($($name,)*) {
            const KINDS: &'static [FieldKind] = &[$($name::KIND),*];

            #[inline]
            fn size(&self) -> usize {
                #[allow(non_snake_case, reason = "the type parameters name the fields")]
                let ($($name,)*) = self;
                0usize $(.saturating_add($name.size()))*
            }

            #[inline]
            fn put_all(&self, out: &mut [u8]) {
                #[allow(non_snake_case, reason = "the type parameters name the fields")]
                let ($($name,)*) = self;
                $(let out = $name.put(out);)*
                let _ = out;
            }
        }
    )*};
}

tuples! {
    ()
    (A)
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I)
    (A, B, C, D, E, F, G, H, I, J)
    (A, B, C, D, E, F, G, H, I, J, K)
    (A, B, C, D, E, F, G, H, I, J, K, L)
    (A, B, C, D, E, F, G, H, I, J, K, L, M)
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N)
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O)
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P)
}

#[inline]
fn put_chunk<const N: usize>(bytes: [u8; N], out: &mut [u8]) -> &mut [u8] {
    match out.split_first_chunk_mut::<N>() {
        Some((field, rest)) => {
            *field = bytes;
            rest
        }
        None => &mut [],
    }
}

/// Bytes that are read, or written twice as wide, in one go: so many fill a register of every x86-64 and ARM64.
const STEP: usize = 16;
const WORD: usize = size_of::<u64>();

/// Units of `text` in UTF-16: one for each character, two for those of four bytes.
#[inline]
pub(crate) fn utf16_units(text: &str) -> usize {
    let bytes = text.as_bytes();
    if is_ascii(bytes) {
        return bytes.len();
    }
    bytes
        .iter()
        .map(|&byte| usize::from(byte & 0xC0 != 0x80) + usize::from(byte >= 0xF0))
        .sum()
}

/// As the standard library's, which looks at what is left over behind whole steps byte by byte. Here that is the end of a last word, of
/// which a part is looked at twice.
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk() else {
        return bytes.iter().all(|byte| *byte < 0x80);
    };
    let mut seen = u64::from_ne_bytes(*last);
    for word in bytes.as_chunks::<WORD>().0 {
        seen |= u64::from_ne_bytes(*word);
    }
    seen & HIGH == 0
}

/// The highest bit of each byte of a word.
const HIGH: u64 = u64::from_ne_bytes([0x80; WORD]);

/// Widens `text` to UTF-16 (little-endian) at the start of `out`, without terminator.
#[inline]
pub(crate) fn put_utf16<'o>(text: &str, out: &'o mut [u8]) -> &'o mut [u8] {
    let size = text.len() * 2;
    // Widened as if it were ASCII without a zero, and looked at meanwhile whether it is.
    let is_plain = out
        .get_mut(..size)
        .is_some_and(|field| widen(text.as_bytes(), field));
    if is_plain {
        return out.get_mut(size..).unwrap_or_default();
    }
    put_utf16_mixed(text, out)
}

/// Writes each byte as a unit; false: some byte is none that stands for itself, and what was written is of no use.
#[inline]
fn widen(bytes: &[u8], field: &mut [u8]) -> bool {
    let (units, _) = field.as_chunks_mut::<2>();
    // Where the engine is built small, its own few texts are all that comes here.
    let steps = cfg!(feature = "std");
    let (true, Some(last), Some(place)) = (steps, bytes.last_chunk(), units.last_chunk_mut())
    else {
        let mut seen = 0;
        for (unit, &byte) in units.iter_mut().zip(bytes) {
            seen |= byte;
            *unit = without_nul(u16::from(byte)).to_le_bytes();
        }
        return seen < 0x80;
    };
    // What is left over behind whole steps is the end of this one, and a part is written twice.
    let mut odd = widen_step(last, place);
    let (places, _) = units.as_chunks_mut();
    for (step, place) in bytes.as_chunks().0.iter().zip(places) {
        odd |= widen_step(step, place);
    }
    odd & HIGH == 0
}

/// A word with the highest bit of a byte where one of the bytes is not ASCII, or zero. (What a zero borrows from the byte above it does
/// not matter any more.)
#[inline(always)]
fn widen_step(bytes: &[u8; STEP], place: &mut [[u8; 2]; STEP]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; WORD]);
    *place = bytes.map(|byte| u16::from(byte).to_le_bytes());
    let words = bytes.as_chunks::<WORD>().0.iter();
    words
        .map(|word| u64::from_ne_bytes(*word))
        .fold(0, |odd, word| odd | word | word.wrapping_sub(ONES))
}

#[cold]
fn put_utf16_mixed<'o>(text: &str, mut out: &'o mut [u8]) -> &'o mut [u8] {
    for unit in text.encode_utf16() {
        out = put_chunk(without_nul(unit).to_le_bytes(), out);
    }
    out
}

#[inline]
fn without_nul(unit: u16) -> u16 {
    if unit == 0 { 0xFFFD } else { unit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    fn encode<A: Arguments>(arguments: A) -> Vec<u8> {
        let payload = Encoded(arguments);
        let mut out = vec![0xEE; payload.len()];
        payload.copy_to(&mut out);
        out
    }

    fn z16(text: &str) -> Vec<u8> {
        text.encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect()
    }

    #[test]
    fn numbers_lie_little_endian_in_order() {
        assert_eq!(
            encode((true, 'x', -1i8, 2u8, -3i16, 4u16, -5i32, 6u32, -7i64, 8u64)),
            [
                &[
                    1, 0, 0, 0, b'x', 0, 0xFF, 2, 0xFD, 0xFF, 4, 0, 0xFB, 0xFF, 0xFF, 0xFF, 6, 0,
                    0, 0
                ][..],
                &(-7i64).to_le_bytes(),
                &8u64.to_le_bytes()
            ]
            .concat()
        );
        assert_eq!(
            encode((1.5f32, -2.5f64)),
            [&1.5f32.to_le_bytes()[..], &(-2.5f64).to_le_bytes()].concat()
        );
        assert_eq!(encode(()), []);
    }

    #[test]
    fn strings_become_utf16_with_a_terminator() {
        let all: String = (1..=126).map(char::from).collect();
        for end in 0..all.len() {
            for text in [&all[..end], &all[end..]] {
                assert_eq!(encode((text,)), z16(text), "{text:?}");
                assert_eq!(utf16_units(text), text.len());
            }
        }
        // What is not ASCII, and a zero, at each place of each length.
        for length in 1..70 {
            for place in 0..length {
                let text = |odd: &str| format!("{}{odd}{}", &all[..place], &all[place + 1..length]);
                let umlaut = text("ü");
                assert_eq!(encode((umlaut.as_str(),)), z16(&umlaut));
                assert_eq!(utf16_units(&umlaut), length);
                assert_eq!(encode((text("\0").as_str(),)), z16(&text("\u{FFFD}")));
            }
        }
        for text in ["", "a", "Grüße", "日本語", "x🦀y", "🦀"] {
            assert_eq!(encode((text,)), z16(text), "{text}");
            assert_eq!(utf16_units(text), text.encode_utf16().count());
        }
        assert_eq!(
            encode(("a\0b", 7u8)),
            [&z16("a\u{FFFD}b")[..], &[7]].concat()
        );
        assert_eq!(
            encode(("ü\0b", 7u8)),
            [&z16("ü\u{FFFD}b")[..], &[7]].concat()
        );
    }

    #[test]
    fn byte_slices_are_counted_by_a_u16() {
        assert_eq!(encode((&[1u8, 2, 3][..], 9u8)), [3, 0, 1, 2, 3, 9]);
        let large = vec![7u8; 65_534];
        assert_eq!(encode((&large[..],)).len(), 65_536);
    }

    #[test]
    fn a_payload_area_that_is_too_short_is_never_overrun() {
        for size in 0..24 {
            let mut out = vec![0u8; size];
            (1u64, "abc", &[1u8, 2][..]).put_all(&mut out);
        }
    }
}
