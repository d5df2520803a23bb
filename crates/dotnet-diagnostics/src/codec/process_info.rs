use alloc::string::String;
use alloc::vec::Vec;

use super::guid::Guid;
use super::header::{Command, MAX_MESSAGE_SIZE};
use super::wire::{
    Bytes, DecodeError, EncodeError, begin_message, finish_message, put_string, put_u32, put_u64,
};

/// Which of the three commands asks or answers (ipc.md 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessInfoVersion {
    /// .NET 5 and later.
    V1,
    /// Adds entry assembly and product version.
    V2,
    /// .NET 8 and later; adds the runtime identifier.
    V3,
}

impl ProcessInfoVersion {
    /// Newest first: the order in which a client asks, going on only on UNKNOWN_COMMAND.
    pub const NEWEST_FIRST: [ProcessInfoVersion; 3] = [
        ProcessInfoVersion::V3,
        ProcessInfoVersion::V2,
        ProcessInfoVersion::V1,
    ];

    /// The command's set and id.
    pub const fn command(self) -> Command {
        match self {
            ProcessInfoVersion::V1 => Command::PROCESS_INFO,
            ProcessInfoVersion::V2 => Command::PROCESS_INFO2,
            ProcessInfoVersion::V3 => Command::PROCESS_INFO3,
        }
    }
}

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Which command was answered; the fields that it does not have are empty.
    pub version: ProcessInfoVersion,
    /// As the process sees itself, inside its pid namespace.
    pub process_id: u64,
    /// Random, stable over the life of the process.
    pub runtime_cookie: Guid,
    /// The command line; only the host's path while the process is suspended at its start.
    pub command_line: String,
    /// `Linux`, `Windows`, `macOS`, `Unknown`.
    pub operating_system: String,
    /// `x64`, `arm64`, `x86`, `arm32` and others.
    pub architecture: String,
    /// Version 2 and later: name of the managed entry assembly, or of the executable.
    pub entry_assembly: String,
    /// Version 2 and later: like `8.0.4` or `10.0.0-preview.1+hash`.
    pub product_version: String,
    /// Version 3: like `linux-x64`.
    pub runtime_identifier: String,
}

impl ProcessInfo {
    /// The payload of an OK answer to the command `version`. Fields that a newer process adds at the end are ignored.
    ///
    /// # Errors
    /// [`DecodeError`] where the payload ends early or a string has no terminator.
    pub fn decode(version: ProcessInfoVersion, payload: &[u8]) -> Result<ProcessInfo, DecodeError> {
        let mut bytes = Bytes::new(payload);
        if version == ProcessInfoVersion::V3 && bytes.u32()? == 0 {
            return Err(DecodeError::OutOfRange);
        }
        let mut info = ProcessInfo {
            version,
            process_id: bytes.u64()?,
            runtime_cookie: bytes.guid()?,
            command_line: bytes.string_lossy()?,
            operating_system: bytes.string_lossy()?,
            architecture: bytes.string_lossy()?,
            entry_assembly: String::new(),
            product_version: String::new(),
            runtime_identifier: String::new(),
        };
        if version >= ProcessInfoVersion::V2 {
            info.entry_assembly = bytes.string_lossy()?;
            info.product_version = bytes.string_lossy()?;
        }
        if version >= ProcessInfoVersion::V3 {
            info.runtime_identifier = bytes.string_lossy()?;
        }
        Ok(info)
    }

    /// The whole OK answer to the command `version`.
    ///
    /// An answer holds at most 65,535 bytes and command lines may be longer: the command line is cut to what fits.
    /// Empty strings travel as a lone terminator, because a client in use cannot read a count of 0 (ipc.md 1).
    ///
    /// # Errors
    /// [`EncodeError`] for a string with a zero inside, or where the other strings alone are too long.
    pub fn encode_reply(&self, version: ProcessInfoVersion) -> Result<Vec<u8>, EncodeError> {
        let room = MAX_MESSAGE_SIZE
            .checked_sub(self.encode_with(version, "")?.len())
            .ok_or(EncodeError::TooLong)?;
        let mut units_left = room / 2;
        let fits = self
            .command_line
            .char_indices()
            .find_map(
                |(at, character)| match units_left.checked_sub(character.len_utf16()) {
                    Some(left) => {
                        units_left = left;
                        None
                    }
                    None => Some(at),
                },
            );
        let command_line = fits
            .and_then(|at| self.command_line.get(..at))
            .unwrap_or(&self.command_line);
        finish_message(self.encode_with(version, command_line)?)
    }

    fn encode_with(
        &self,
        version: ProcessInfoVersion,
        command_line: &str,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut out = begin_message(Command::OK);
        if version == ProcessInfoVersion::V3 {
            put_u32(&mut out, 1);
        }
        put_u64(&mut out, self.process_id);
        out.extend_from_slice(&self.runtime_cookie.0);
        put_string(&mut out, Some(command_line))?;
        put_string(&mut out, Some(&self.operating_system))?;
        put_string(&mut out, Some(&self.architecture))?;
        if version >= ProcessInfoVersion::V2 {
            put_string(&mut out, Some(&self.entry_assembly))?;
            put_string(&mut out, Some(&self.product_version))?;
        }
        if version >= ProcessInfoVersion::V3 {
            put_string(&mut out, Some(&self.runtime_identifier))?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_command_line_that_is_too_long_is_cut_between_characters() {
        let info = ProcessInfo {
            version: ProcessInfoVersion::V3,
            process_id: 7,
            runtime_cookie: Guid([3; 16]),
            command_line: "a\u{1F600}".repeat(40_000),
            operating_system: "Linux".to_string(),
            architecture: "x64".to_string(),
            entry_assembly: "app".to_string(),
            product_version: "1".to_string(),
            runtime_identifier: "linux-x64".to_string(),
        };
        let message = info.encode_reply(ProcessInfoVersion::V3).unwrap();
        assert!(message.len() > MAX_MESSAGE_SIZE - 8 && message.len() <= MAX_MESSAGE_SIZE);
        let read = ProcessInfo::decode(ProcessInfoVersion::V3, &message[20..]).unwrap();
        assert!(info.command_line.starts_with(&read.command_line));
        assert_eq!(read.runtime_identifier, "linux-x64");
    }
}
