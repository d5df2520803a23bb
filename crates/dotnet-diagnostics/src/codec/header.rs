use alloc::vec::Vec;

use super::wire::{Bytes, DecodeError};

/// The first 14 bytes of every message.
pub const MAGIC: [u8; 14] = *b"DOTNET_IPC_V1\0";
/// Bytes of a header: magic, u16 size of the whole message, u8 command set, u8 command id, u16 reserved.
pub const HEADER_SIZE: usize = 20;
/// The largest message that the size field can say, header included.
pub const MAX_MESSAGE_SIZE: usize = 65_535;
/// The largest payload of a message.
pub const MAX_PAYLOAD_SIZE: usize = MAX_MESSAGE_SIZE - HEADER_SIZE;

/// A command: its set and its id within the set (ipc.md 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// The command set: 1 Dump, 2 EventPipe, 3 Profiler, 4 Process, 0xFF answers.
    pub set: u8,
    /// The id within the set.
    pub id: u8,
}

macro_rules! commands {
    ($($name:ident = $set:literal $id:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names of the protocol's document")]
        impl Command {
            $(pub const $name: Command = Command { set: $set, id: $id };)*

            /// Every command that a request can carry, in order of set and id.
            pub const ALL: &[Command] = &[$(Command::$name),*];

            /// The command's name in the protocol's document, if it is a known one.
            pub const fn name(self) -> Option<&'static str> {
                match (self.set, self.id) {
                    $(($set, $id) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

commands! {
    GENERATE_CORE_DUMP = 0x01 0x01, "GenerateCoreDump";
    GENERATE_CORE_DUMP2 = 0x01 0x02, "GenerateCoreDump2";
    GENERATE_CORE_DUMP3 = 0x01 0x03, "GenerateCoreDump3";
    STOP_TRACING = 0x02 0x01, "StopTracing";
    COLLECT_TRACING = 0x02 0x02, "CollectTracing";
    COLLECT_TRACING2 = 0x02 0x03, "CollectTracing2";
    COLLECT_TRACING3 = 0x02 0x04, "CollectTracing3";
    COLLECT_TRACING4 = 0x02 0x05, "CollectTracing4";
    COLLECT_TRACING5 = 0x02 0x06, "CollectTracing5";
    COLLECT_TRACING6 = 0x02 0x07, "CollectTracing6";
    ATTACH_PROFILER = 0x03 0x01, "AttachProfiler";
    STARTUP_PROFILER = 0x03 0x02, "StartupProfiler";
    PROCESS_INFO = 0x04 0x00, "ProcessInfo";
    RESUME_RUNTIME = 0x04 0x01, "ResumeRuntime";
    PROCESS_ENVIRONMENT = 0x04 0x02, "ProcessEnvironment";
    SET_ENVIRONMENT_VARIABLE = 0x04 0x03, "SetEnvironmentVariable";
    PROCESS_INFO2 = 0x04 0x04, "ProcessInfo2";
    ENABLE_PERF_MAP = 0x04 0x05, "EnablePerfMap";
    DISABLE_PERF_MAP = 0x04 0x06, "DisablePerfMap";
    APPLY_STARTUP_HOOK = 0x04 0x07, "ApplyStartupHook";
    PROCESS_INFO3 = 0x04 0x08, "ProcessInfo3";
}

impl Command {
    /// The answer that a command was done.
    pub const OK: Command = Command {
        set: 0xFF,
        id: 0x00,
    };
    /// The answer that a command was refused, with an [`ErrorCode`](super::ErrorCode).
    pub const ERROR: Command = Command {
        set: 0xFF,
        id: 0xFF,
    };
}

/// The 20 bytes in front of every message; the reserved word is ignored, as the runtimes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Size of the whole message, header included: 20 to 65,535.
    pub size: u16,
    /// What the message is.
    pub command: Command,
}

impl Header {
    /// Takes the first 20 bytes of a message apart.
    ///
    /// # Errors
    /// [`DecodeError::UnknownMagic`]; [`DecodeError::BadSize`] for a size below 20.
    pub fn decode(bytes: &[u8; HEADER_SIZE]) -> Result<Header, DecodeError> {
        let mut bytes = Bytes::new(bytes);
        if bytes.take(MAGIC.len())? != MAGIC {
            return Err(DecodeError::UnknownMagic);
        }
        let size = bytes.u16()?;
        if usize::from(size) < HEADER_SIZE {
            return Err(DecodeError::BadSize);
        }
        let command = Command {
            set: bytes.u8()?,
            id: bytes.u8()?,
        };
        Ok(Header { size, command })
    }

    /// Bytes that follow the header in this message.
    pub fn payload_size(&self) -> usize {
        usize::from(self.size).saturating_sub(HEADER_SIZE)
    }

    /// The 20 bytes.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut out = Vec::with_capacity(HEADER_SIZE);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&[self.command.set, self.command.id, 0, 0]);
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(&out);
        bytes
    }
}
