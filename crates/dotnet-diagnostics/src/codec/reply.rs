//! Answers: OK with a payload that depends on the command, or an error with an HRESULT (ipc.md 1, "Responses").

use alloc::string::String;
use alloc::vec::Vec;

use super::error_code::ErrorCode;
use super::header::{Command, HEADER_SIZE, Header};
use super::request::SessionId;
use super::wire::{
    Bytes, DecodeError, EncodeError, begin_message, finish_message, put_count, put_string, put_u32,
};

/// An answer, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The command was done. The payload is the command's own.
    Ok(&'a [u8]),
    /// The command was refused.
    Error {
        /// Why.
        code: ErrorCode,
        /// What GenerateCoreDump3 adds: the dump program's own text. Empty for every other command.
        message: String,
    },
}

impl<'a> Reply<'a> {
    /// An answer from its header and the `header.payload_size()` bytes behind it.
    ///
    /// # Errors
    /// [`DecodeError::NotAReply`] for any command but OK and error; [`DecodeError::Truncated`] for an error without a
    /// code.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Reply<'a>, DecodeError> {
        match header.command {
            Command::OK => Ok(Reply::Ok(payload)),
            Command::ERROR => {
                let mut bytes = Bytes::new(payload);
                let code = ErrorCode(bytes.u32()?);
                let message = if bytes.is_empty() {
                    String::new()
                } else {
                    bytes.string_lossy()?
                };
                Ok(Reply::Error { code, message })
            }
            _ => Err(DecodeError::NotAReply),
        }
    }
}

/// The payload of the OK answer to CollectTracing* and StopTracing.
///
/// # Errors
/// [`DecodeError::Truncated`] for less than 8 bytes.
pub fn decode_session(payload: &[u8]) -> Result<SessionId, DecodeError> {
    Bytes::new(payload).u64().map(SessionId)
}

/// The payload of the OK answer to ProcessEnvironment: how many bytes follow behind the message (ipc.md 2.5).
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn decode_environment_reply(payload: &[u8]) -> Result<u32, DecodeError> {
    let mut bytes = Bytes::new(payload);
    let size = bytes.u32()?;
    bytes.u16()?;
    Ok(size)
}

/// The continuation of ProcessEnvironment: strings `NAME=value`. An entry may have no `=`, or begin with one.
///
/// # Errors
/// [`DecodeError`] where it ends early or a string has no terminator.
pub fn decode_environment(continuation: &[u8]) -> Result<Vec<String>, DecodeError> {
    let mut bytes = Bytes::new(continuation);
    let count = bytes.count(4)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(bytes.string_lossy()?);
    }
    if bytes.is_empty() {
        Ok(entries)
    } else {
        Err(DecodeError::TrailingBytes)
    }
}

/// The answer to ProcessEnvironment with the continuation behind it, in the order in which they are sent.
///
/// # Errors
/// [`EncodeError`] for an entry with a zero inside, or more than 4 GiB of them.
pub fn encode_environment<'a, I>(entries: I) -> Result<Vec<u8>, EncodeError>
where
    I: IntoIterator<Item = &'a str, IntoIter: Clone>,
{
    let entries = entries.into_iter();
    let mut continuation = Vec::new();
    put_count(&mut continuation, entries.clone().count())?;
    for entry in entries {
        put_string(&mut continuation, Some(entry))?;
    }
    let mut message = begin_message(Command::OK);
    put_count(&mut message, continuation.len())?;
    message.extend_from_slice(&[0, 0]);
    let mut message = finish_message(message)?;
    message.extend_from_slice(&continuation);
    Ok(message)
}

/// A short OK or error answer: header and one value. These cannot fail, so a server can send them whatever happened.
fn short<const N: usize>(command: Command, value: &[u8]) -> [u8; N] {
    let header = Header {
        size: u16::try_from(N).unwrap_or(u16::MAX),
        command,
    };
    let mut message = [0; N];
    for (byte, value) in message.iter_mut().zip(header.encode().iter().chain(value)) {
        *byte = *value;
    }
    message
}

/// "Done": the OK answer with result 0 of all commands without an answer of their own.
pub fn encode_result() -> [u8; HEADER_SIZE + 4] {
    short(Command::OK, &0_u32.to_le_bytes())
}

/// The OK answer to CollectTracing* and StopTracing.
pub fn encode_session(session: SessionId) -> [u8; HEADER_SIZE + 8] {
    short(Command::OK, &session.0.to_le_bytes())
}

/// The error answer.
pub fn encode_error(code: ErrorCode) -> [u8; HEADER_SIZE + 4] {
    short(Command::ERROR, &code.0.to_le_bytes())
}

/// The error answer to GenerateCoreDump3, which carries a text for people; cut at 1,024 characters and at a zero.
pub fn encode_error_with_message(code: ErrorCode, message: &str) -> Vec<u8> {
    let mut out = begin_message(Command::ERROR);
    put_u32(&mut out, code.0);
    let text: String = message
        .chars()
        .take_while(|character| *character != '\0')
        .take(1024)
        .collect();
    match put_string(&mut out, Some(&text)).and_then(|()| finish_message(out)) {
        Ok(message) => message,
        Err(_) => encode_error(code).to_vec(),
    }
}
