//! The value encodings that all messages are made of (ipc.md 1): little-endian integers, counted UTF-16 strings.
//!
//! Invariant: nothing is allocated for a count before the bytes that it promises have been seen.

use alloc::string::String;
use alloc::vec::Vec;

use super::guid::Guid;
use super::header::{Command, HEADER_SIZE, MAGIC, MAX_MESSAGE_SIZE};

/// Why bytes from the other side are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a value, or a count promises more than there is.
    #[error("the message ends inside a value")]
    Truncated,
    /// Bytes follow the last value where none belong.
    #[error("bytes follow the last value of the message")]
    TrailingBytes,
    /// A message that does not begin with `DOTNET_IPC_V1`, or a packet that does not begin with `ADVR_V1`.
    #[error("the message does not begin with the protocol's magic")]
    UnknownMagic,
    /// A size below that of a header.
    #[error("the message says it is shorter than its own header")]
    BadSize,
    /// A string without terminator, with one inside, or that is not UTF-16.
    #[error("a string is not terminated UTF-16")]
    BadString,
    /// A value outside its documented range.
    #[error("a value is outside its range")]
    OutOfRange,
    /// Neither an OK nor an error answer.
    #[error("the message is not an answer")]
    NotAReply,
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Longer than the 65,535 bytes that a message's size field can say.
    #[error("the message is longer than 65,535 bytes")]
    TooLong,
    /// A string holds a zero, which would end it early on the other side.
    #[error("a string holds a zero character")]
    EmbeddedZero,
    /// A session without a provider.
    #[error("a session needs at least one provider")]
    NoProviders,
    /// More than 1,000 providers.
    #[error("more than 1,000 providers")]
    TooManyProviders,
    /// A provider without a name.
    #[error("a provider has no name")]
    EmptyProviderName,
    /// A level above 5 (Verbose).
    #[error("a level is above 5 (Verbose)")]
    LevelOutOfRange,
    /// A session with a buffer of 0 MB.
    #[error("the session's buffer must be at least 1 MB")]
    ZeroBuffer,
    /// This version of the command cannot say what is asked.
    #[error("{0} cannot be expressed by this version of the command")]
    NotExpressible(&'static str),
    /// Tracepoints of a user_events session: none for a provider, a set without ids, or an id in two sets.
    #[error("tracepoints need a default or sets with ids, and an id belongs to one set only")]
    BadTracepoints,
}

/// The bytes of a payload that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Bytes(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .0
            .split_at_checked(count)
            .ok_or(DecodeError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Any value but 0 is true (ipc.md 1).
    pub(crate) fn bool(&mut self) -> Result<bool, DecodeError> {
        self.u8().map(|byte| byte != 0)
    }

    pub(crate) fn guid(&mut self) -> Result<Guid, DecodeError> {
        self.array().map(Guid)
    }

    /// The count of an array, refused where the elements cannot be in the bytes that are left.
    pub(crate) fn count(&mut self, smallest_element: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.u32()?).map_err(|_| DecodeError::Truncated)?;
        let least = count
            .checked_mul(smallest_element)
            .ok_or(DecodeError::Truncated)?;
        if least > self.0.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    pub(crate) fn u32_array(&mut self) -> Result<Vec<u32>, DecodeError> {
        let count = self.count(4)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(self.u32()?);
        }
        Ok(values)
    }

    /// The units of a string without its terminator; `None` where the count is 0.
    fn units(
        &mut self,
    ) -> Result<Option<impl Iterator<Item = u16> + Clone + use<'a>>, DecodeError> {
        let count = self.count(2)?;
        if count == 0 {
            return Ok(None);
        }
        let bytes = self.take(count.checked_mul(2).ok_or(DecodeError::Truncated)?)?;
        let Some((text, [0, 0])) = bytes.split_last_chunk::<2>() else {
            return Err(DecodeError::BadString);
        };
        Ok(Some(text.chunks_exact(2).map(|unit| {
            unit.first_chunk::<2>()
                .map_or(0, |unit| u16::from_le_bytes(*unit))
        })))
    }

    /// A string as a server takes it: well-formed UTF-16 without a zero inside. `None` where its count is 0.
    pub(crate) fn string(&mut self) -> Result<Option<String>, DecodeError> {
        let Some(units) = self.units()? else {
            return Ok(None);
        };
        let mut text = String::new();
        for unit in char::decode_utf16(units) {
            match unit {
                Ok('\0') | Err(_) => return Err(DecodeError::BadString),
                Ok(character) => text.push(character),
            }
        }
        Ok(Some(text))
    }

    /// A string as a client takes it: what is not UTF-16 becomes U+FFFD, so that the rest can be shown.
    pub(crate) fn string_lossy(&mut self) -> Result<String, DecodeError> {
        let Some(units) = self.units()? else {
            return Ok(String::new());
        };
        Ok(char::decode_utf16(units)
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect())
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) -> Result<(), EncodeError> {
    put_u32(out, u32::try_from(count).map_err(|_| EncodeError::TooLong)?);
    Ok(())
}

pub(crate) fn put_u32_array(out: &mut Vec<u8>, values: &[u32]) -> Result<(), EncodeError> {
    put_count(out, values.len())?;
    for value in values {
        put_u32(out, *value);
    }
    Ok(())
}

/// `None` is a count of 0, an empty string a lone terminator: some commands tell them apart (ipc.md 0, §2.6).
pub(crate) fn put_string(out: &mut Vec<u8>, text: Option<&str>) -> Result<(), EncodeError> {
    let Some(text) = text else {
        put_u32(out, 0);
        return Ok(());
    };
    if text.bytes().any(|byte| byte == 0) {
        return Err(EncodeError::EmbeddedZero);
    }
    put_count(out, text.encode_utf16().count().saturating_add(1))?;
    for unit in text.encode_utf16() {
        put_u16(out, unit);
    }
    put_u16(out, 0);
    Ok(())
}

/// A message under construction: a header whose size is filled in at the end.
pub(crate) fn begin_message(command: Command) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&MAGIC);
    put_u16(&mut out, 0);
    out.push(command.set);
    out.push(command.id);
    put_u16(&mut out, 0);
    debug_assert_eq!(out.len(), HEADER_SIZE);
    out
}

/// Fills the size in, if the message is not too long for one.
pub(crate) fn finish_message(mut out: Vec<u8>) -> Result<Vec<u8>, EncodeError> {
    let size = u16::try_from(out.len()).map_err(|_| EncodeError::TooLong)?;
    debug_assert!(usize::from(size) <= MAX_MESSAGE_SIZE);
    if let Some(field) = out.get_mut(MAGIC.len()..MAGIC.len().saturating_add(2)) {
        field.copy_from_slice(&size.to_le_bytes());
    }
    Ok(out)
}
