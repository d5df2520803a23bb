use core::fmt;

/// A GUID as it lies in a trace: 16 bytes, the first three fields little-endian (nettrace.md, introduction).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// Sixteen zero bytes: "none" wherever the format has an optional GUID.
    pub const ZERO: Guid = Guid([0; 16]);

    /// Whether this is [`Guid::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Guid::ZERO
    }
}

/// `e13c0d23-ccbc-4e12-931b-d9cc2eee27e4`: lower case, no braces.
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
