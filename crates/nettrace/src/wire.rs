//! The primitives of every version, both directions side by side: little-endian integers, LEB128, strings.
//!
//! Invariant of [`Cursor`]: it never leaves its slice, and a failed read says at which offset of the file.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{Error, ErrorKind, Guid};

/// Reads from a piece of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Offset of `bytes` in the file.
    base: u64,
}

macro_rules! integers {
    ($($name:ident $put:ident $type:ty),*) => {
        impl Cursor<'_> {
            $(pub(crate) fn $name(&mut self) -> Result<$type, Error> {
                self.array().map(<$type>::from_le_bytes)
            })*
        }
        $(pub(crate) fn $put(out: &mut Vec<u8>, value: $type) {
            out.extend_from_slice(&value.to_le_bytes());
        })*
    };
}

integers!(u16 put_u16 u16, u32 put_u32 u32, u64 put_u64 u64, i16 put_i16 i16, i32 put_i32 i32, i64 put_i64 i64);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: u64) -> Cursor<'a> {
        Cursor {
            bytes,
            position: 0,
            base,
        }
    }

    /// Offset of the next byte in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.base.wrapping_add(self.position as u64)
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// An error at the next byte.
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        Error {
            offset: self.offset(),
            kind,
        }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let end = self.position.checked_add(length);
        match end.and_then(|end| Some((end, self.bytes.get(self.position..end)?))) {
            Some((end, taken)) => {
                self.position = end;
                Ok(taken)
            }
            None => Err(self.error(ErrorKind::RecordOverrun)),
        }
    }

    /// A cursor over the next `length` bytes, which are behind this one afterwards.
    pub(crate) fn part(&mut self, length: usize) -> Result<Cursor<'a>, Error> {
        let base = self.offset();
        Ok(Cursor::new(self.take(length)?, base))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.take(N)?;
        taken.first_chunk().copied().ok_or(Error {
            offset: self.offset(),
            kind: ErrorKind::RecordOverrun,
        })
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn guid(&mut self) -> Result<Guid, Error> {
        self.array().map(Guid)
    }

    pub(crate) fn varu64(&mut self) -> Result<u64, Error> {
        match varu64(self.bytes, self.position) {
            Ok((value, end)) => {
                self.position = end;
                Ok(value)
            }
            Err(kind) => Err(self.error(kind)),
        }
    }

    pub(crate) fn varu32(&mut self) -> Result<u32, Error> {
        let start = self.offset();
        let value = self.varu64()?;
        u32::try_from(value).map_err(|_| Error {
            offset: start,
            kind: ErrorKind::InvalidVarint,
        })
    }

    /// Zig-zag on top of LEB128.
    pub(crate) fn vari64(&mut self) -> Result<i64, Error> {
        let raw = self.varu64()?;
        Ok((raw >> 1) as i64 ^ 0i64.wrapping_sub((raw & 1) as i64))
    }

    /// A count of elements of at least `minimum` bytes each, which must fit into what is left.
    pub(crate) fn bounded(&self, count: u64, minimum: usize) -> Result<usize, Error> {
        let left = self.left();
        match usize::try_from(count) {
            Ok(fits) if fits.saturating_mul(minimum) <= left => Ok(fits),
            _ => Err(self.error(ErrorKind::InvalidCount {
                count,
                left: left as u64,
            })),
        }
    }

    /// UTF-16 up to and including a zero unit; what is not UTF-16 becomes U+FFFD.
    pub(crate) fn utf16z(&mut self) -> Result<String, Error> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let (units, _) = rest.as_chunks::<2>();
        let Some(length) = units.iter().position(|&unit| unit == [0, 0]) else {
            return Err(self.error(ErrorKind::UnterminatedString));
        };
        let text = units.get(..length).unwrap_or_default();
        self.position = self
            .position
            .saturating_add(length.saturating_add(1).saturating_mul(2));
        Ok(
            char::decode_utf16(text.iter().map(|&unit| u16::from_le_bytes(unit)))
                .map(|decoded| decoded.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect(),
        )
    }

    /// V6: a length in bytes, then UTF-8; what is not UTF-8 becomes U+FFFD.
    pub(crate) fn utf8(&mut self) -> Result<Cow<'a, str>, Error> {
        let length = self.varu32()?;
        self.take(length as usize).map(String::from_utf8_lossy)
    }
}

const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// LEB128 of at most ten bytes: the value and the position behind it.
#[inline(always)]
pub(crate) fn varu64(bytes: &[u8], position: usize) -> Result<(u64, usize), ErrorKind> {
    let Some(tail) = bytes.get(position..) else {
        return Err(ErrorKind::RecordOverrun);
    };
    match *tail {
        [first, ..] if first < 0x80 => return Ok((u64::from(first), position.wrapping_add(1))),
        [first, second, ..] if second < 0x80 => {
            let value = u64::from(first & 0x7f) | u64::from(second) << 7;
            return Ok((value, position.wrapping_add(2)));
        }
        _ => {}
    }
    if let Some(chunk) = tail.first_chunk::<8>() {
        // Up to eight bytes at once: find the last one by its clear high bit, then close the gaps between the groups.
        let word = u64::from_le_bytes(*chunk);
        let ends = !word & HIGH_BITS;
        if ends != 0 {
            let x = word & (ends ^ ends.wrapping_sub(1)) & !HIGH_BITS;
            let x = (x & 0x007f_007f_007f_007f) | (x & 0x7f00_7f00_7f00_7f00) >> 1;
            let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x3fff_0000_3fff_0000) >> 2;
            let x = (x & 0x0000_0000_0fff_ffff) | (x & 0x0fff_ffff_0000_0000) >> 4;
            let length = (ends.trailing_zeros() >> 3).wrapping_add(1) as usize;
            return Ok((x, position.wrapping_add(length)));
        }
    }
    varu64_by_bytes(tail, position)
}

#[cold]
fn varu64_by_bytes(tail: &[u8], position: usize) -> Result<(u64, usize), ErrorKind> {
    let mut value = 0u64;
    for (index, &byte) in tail.iter().take(10).enumerate() {
        let group = u64::from(byte & 0x7f);
        if index == 9 && group > 1 {
            return Err(ErrorKind::InvalidVarint);
        }
        value |= group << index.wrapping_mul(7);
        if byte < 0x80 {
            return Ok((value, position.wrapping_add(index).wrapping_add(1)));
        }
    }
    Err(if tail.len() < 10 {
        ErrorKind::RecordOverrun
    } else {
        ErrorKind::InvalidVarint
    })
}

/// Numbers below this have at most four bytes.
pub(crate) const SHORT_LIMIT: u64 = 1 << 28;

/// LEB128 of a number below [`SHORT_LIMIT`]: its bytes as a little-endian number, and how many bits they are. Without branches, as
/// nothing foretells how long the next difference of two times is.
#[inline(always)]
pub(crate) fn short_varu64(value: u64) -> (u64, u32) {
    let value = value as u32;
    let halves = value & 0x3fff | (value & 0x0fff_c000) << 2;
    let groups = halves & 0x007f_007f | (halves & 0x3f80_3f80) << 1;
    // Bits of the bytes that another one follows.
    let before = (groups | 1).ilog2() & 24;
    let more = 0x0080_8080 & 1u32.wrapping_shl(before).wrapping_sub(1);
    (u64::from(groups | more), before.wrapping_add(8))
}

/// Appends the lowest `bits` bits of a little-endian number, whole bytes.
#[inline(always)]
pub(crate) fn put_bits(out: &mut Vec<u8>, value: u64, bits: u32) {
    // A copy of constant size is one move instead of a call.
    let end = out.len().wrapping_add(bits as usize / 8);
    out.extend_from_slice(&value.to_le_bytes());
    out.truncate(end);
}

pub(crate) fn put_varu64(out: &mut Vec<u8>, mut value: u64) {
    if value < SHORT_LIMIT {
        let (bytes, bits) = short_varu64(value);
        put_bits(out, bytes, bits);
        return;
    }
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_vari64(out: &mut Vec<u8>, value: i64) {
    put_varu64(out, (value.wrapping_shl(1) ^ (value >> 63)) as u64);
}

/// UTF-16 with a zero behind it. A zero inside would end the string for every reader, so it ends it here.
pub(crate) fn put_utf16z(out: &mut Vec<u8>, text: &str) {
    for unit in text.encode_utf16().take_while(|&unit| unit != 0).chain([0]) {
        put_u16(out, unit);
    }
}

pub(crate) fn put_utf8(out: &mut Vec<u8>, text: &str) {
    put_varu64(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn variable_length_numbers_come_back() {
        for shift in 0..64 {
            for value in [
                1u64 << shift,
                (1u64 << shift) - 1,
                u64::MAX >> shift,
                0x5555_5555_5555_5555 >> shift,
            ] {
                let mut out = vec![];
                put_varu64(&mut out, value);
                assert_eq!(varu64(&out, 0), Ok((value, out.len())));
                let length = out.len();
                out.extend_from_slice(&[0xff; 12]);
                assert_eq!(varu64(&out, 0), Ok((value, length)), "with bytes behind it");
                assert!(varu64(&out[..length - 1], 0).is_err(), "cut");
                let signed = value as i64;
                let mut out = vec![];
                put_vari64(&mut out, signed);
                assert_eq!(Cursor::new(&out, 0).vari64(), Ok(signed));
            }
        }
    }

    #[test]
    fn numbers_that_are_too_long_are_refused() {
        assert_eq!(varu64(&[0x80; 11], 0), Err(ErrorKind::InvalidVarint));
        let mut eleven_bits_too_many = [0xff; 10];
        eleven_bits_too_many[9] = 2;
        assert_eq!(
            varu64(&eleven_bits_too_many, 0),
            Err(ErrorKind::InvalidVarint)
        );
        let mut out = vec![];
        put_varu64(&mut out, 1 << 32);
        assert_eq!(
            Cursor::new(&out, 7).varu32(),
            Err(Error {
                offset: 7,
                kind: ErrorKind::InvalidVarint
            })
        );
    }
}
