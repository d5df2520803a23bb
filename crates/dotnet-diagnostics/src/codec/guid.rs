use core::fmt;
use core::str::FromStr;

/// A GUID as it travels: 16 bytes, the first three fields little-endian (ipc.md 1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

/// `123e4567-e89b-12d3-a456-426614174000`: lower case, no braces.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a0, a1, a2, a3, b0, b1, c0, c1, d0, d1, e @ ..] = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{d0:02x}{d1:02x}-",
            u32::from_le_bytes([a0, a1, a2, a3]),
            u16::from_le_bytes([b0, b1]),
            u16::from_le_bytes([c0, c1]),
        )?;
        e.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a GUID: 32 hexadecimal digits, with or without the usual dashes and braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a GUID: 32 hexadecimal digits, grouped 8-4-4-4-12")]
pub struct ParseGuidError;

impl FromStr for Guid {
    type Err = ParseGuidError;

    fn from_str(text: &str) -> Result<Self, ParseGuidError> {
        let text = text
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(text);
        let dashes_in_place = match text.len() {
            32 => !text.contains('-'),
            36 => text
                .bytes()
                .enumerate()
                .all(|(at, byte)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23)),
            _ => false,
        };
        if !dashes_in_place {
            return Err(ParseGuidError);
        }
        let mut digits = text.chars().filter(|digit| *digit != '-');
        let mut bytes = [0_u8; 16];
        for byte in &mut bytes {
            for _ in 0..2 {
                let digit = digits
                    .next()
                    .and_then(|digit| digit.to_digit(16))
                    .and_then(|digit| u8::try_from(digit).ok())
                    .ok_or(ParseGuidError)?;
                *byte = (*byte << 4) | digit;
            }
        }
        let [a0, a1, a2, a3, b0, b1, c0, c1, rest @ ..] = bytes;
        let [d0, d1, e0, e1, e2, e3, e4, e5] = rest;
        Ok(Guid([
            a3, a2, a1, a0, b1, b0, c1, c0, d0, d1, e0, e1, e2, e3, e4, e5,
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn text_and_bytes_agree() {
        let text = "123e4567-e89b-12d3-a456-426614174000";
        let guid: Guid = text.parse().unwrap();
        assert_eq!(
            guid.0[..8],
            [0x67, 0x45, 0x3e, 0x12, 0x9b, 0xe8, 0xd3, 0x12]
        );
        assert_eq!(guid.to_string(), text);
        assert_eq!("{123E4567E89B12D3A456426614174000}".parse(), Ok(guid));
        for wrong in [
            "",
            "123e4567-e89b-12d3-a456-42661417400",
            "123e4567ee89b-12d3-a456-426614174000",
            "é23e4567-e89b-12d3-a456-42661417400",
        ] {
            assert_eq!(wrong.parse::<Guid>(), Err(ParseGuidError), "{wrong}");
        }
    }
}
