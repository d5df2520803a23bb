//! Messages as bytes and as types: every command of the protocol in both directions (ipc.md 1 and 2).
//!
//! The same description serves client and server, so a message is written down once. Nothing here reads a socket:
//! a server feeds the bytes that it has to a [`RequestReader`], a client decodes a [`Header`] and then a [`Reply`].
//!
//! Requests are validated on both sides by the same rules: what [`Request::decode`] refuses, [`Request::encode`]
//! does not produce. That matters, because malformed requests kill existing runtimes (ipc.md 10).

mod advertise;
mod collect;
mod error_code;
mod guid;
mod header;
mod process_info;
mod reply;
mod request;
mod request_reader;
mod wire;

pub use advertise::Advertise;
pub use collect::{
    BufferingMode, CollectTracing, CollectVersion, DEFAULT_RUNDOWN_KEYWORD, EventFilter, Format,
    MAX_LEVEL, MAX_PROVIDERS, ProviderConfig, SessionKind, TracepointSet, Tracepoints,
};
pub use error_code::ErrorCode;
pub use guid::{Guid, ParseGuidError};
pub use header::{Command, HEADER_SIZE, Header, MAGIC, MAX_MESSAGE_SIZE, MAX_PAYLOAD_SIZE};
pub use process_info::{ProcessInfo, ProcessInfoVersion};
pub use reply::{
    Reply, decode_environment, decode_environment_reply, decode_session, encode_environment,
    encode_error, encode_error_with_message, encode_result, encode_session,
};
pub use request::{
    AttachProfiler, DumpFlags, DumpType, DumpVersion, GenerateCoreDump, PerfMapType, Request,
    SessionId, StartupProfiler, Strictness,
};
pub use request_reader::{Progress, RequestReader};
pub use wire::{DecodeError, EncodeError};
