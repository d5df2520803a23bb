use alloc::vec::Vec;

use super::error_code::ErrorCode;
use super::header::{HEADER_SIZE, Header};
use super::request::{Request, Strictness};

/// What a [`RequestReader`] says after bytes were fed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is not complete. At most this many further bytes belong to it.
    Need(usize),
    /// The request is complete.
    Request(Request),
    /// Answer with this code, then close.
    Error(ErrorCode),
}

/// Puts one request together from bytes as they arrive, without reading anything itself.
///
/// Memory is bounded by the size of a message (64 KiB) and grows only with the bytes that have arrived. Time is the
/// caller's business: give a connection a limit, because a silent client must not hold up others (ipc.md 8).
///
/// ```
/// use dotnet_diagnostics::codec::{Progress, ProcessInfoVersion, Request, RequestReader, Strictness};
///
/// let message = Request::ProcessInfo(ProcessInfoVersion::V2).encode()?;
/// let mut reader = RequestReader::new(Strictness::Exact);
/// assert_eq!(reader.feed(&message[..7]), (7, Progress::Need(13)));
/// let (taken, progress) = reader.feed(&message[7..]);
/// assert_eq!(taken, 13);
/// assert_eq!(progress, Progress::Request(Request::ProcessInfo(ProcessInfoVersion::V2)));
/// # Ok::<(), dotnet_diagnostics::codec::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct RequestReader {
    strictness: Strictness,
    /// The header's bytes first, then, once those are complete and sound, the payload's.
    bytes: Vec<u8>,
    header: Option<Header>,
}

impl RequestReader {
    /// A reader that has seen nothing yet.
    pub const fn new(strictness: Strictness) -> RequestReader {
        RequestReader {
            strictness,
            bytes: Vec::new(),
            header: None,
        }
    }

    /// How many bytes to read next: what is missing of the header, then of the payload. Reading no more than that
    /// leaves what belongs to a second message (the descriptor of a user_events session) on the socket.
    pub fn needed(&self) -> usize {
        let whole = match &self.header {
            None => HEADER_SIZE,
            Some(header) => header.payload_size(),
        };
        whole.saturating_sub(self.bytes.len())
    }

    /// Whether nothing has arrived yet: a connection that ends here was never a request.
    pub fn is_empty(&self) -> bool {
        self.header.is_none() && self.bytes.is_empty()
    }

    /// Takes what belongs to the request from the front of `input` and says how many bytes that was.
    ///
    /// After [`Progress::Request`] or [`Progress::Error`] the reader begins anew.
    pub fn feed(&mut self, input: &[u8]) -> (usize, Progress) {
        let mut taken = 0_usize;
        loop {
            let rest = input.get(taken..).unwrap_or_default();
            let part = rest.get(..self.needed()).unwrap_or(rest);
            self.bytes.extend_from_slice(part);
            taken = taken.saturating_add(part.len());
            if self.needed() > 0 {
                return (taken, Progress::Need(self.needed()));
            }
            match self.complete() {
                None => {}
                Some(progress) => {
                    *self = RequestReader::new(self.strictness);
                    return (taken, progress);
                }
            }
        }
    }

    /// The code for a peer that closed in the middle of a request: a body shorter than said.
    pub fn end_of_input(&self) -> ErrorCode {
        ErrorCode::BAD_ENCODING
    }

    /// Goes from the header to the payload (`None`), or to the end.
    fn complete(&mut self) -> Option<Progress> {
        match self.header {
            Some(header) => Some(
                match Request::decode(header.command, &self.bytes, self.strictness) {
                    Ok(request) => Progress::Request(request),
                    Err(code) => Progress::Error(code),
                },
            ),
            None => {
                let header = self.bytes.first_chunk::<HEADER_SIZE>();
                match header.map(Header::decode)? {
                    Ok(header) => self.header = Some(header),
                    Err(error) => return Some(Progress::Error(error.into())),
                }
                self.bytes.clear();
                None
            }
        }
    }
}
