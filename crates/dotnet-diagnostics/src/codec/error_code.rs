use core::fmt;

use super::wire::DecodeError;

/// The HRESULT of an error answer. Codes that the operation behind a command gives pass through, so any value can come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: ErrorCode = ErrorCode($value);)*

            /// The code's documented name, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The payload does not parse, or a value is outside its range.
    BAD_ENCODING = 0x8013_1384;
    /// The command set or id is not known to this process.
    UNKNOWN_COMMAND = 0x8013_1385;
    /// The message does not begin with the magic.
    UNKNOWN_MAGIC = 0x8013_1386;
    /// Something else went wrong.
    UNKNOWN_ERROR = 0x8013_1387;
    /// The command cannot be done in this kind of process or on this system.
    NOTSUPPORTED = 0x8013_1515;
    /// Generic: too many sessions, a dump that failed.
    FAIL = 0x8000_4005;
    /// The runtime is not up yet.
    NOT_YET_AVAILABLE = 0x8013_135B;
    /// The runtime is not initialised.
    RUNTIME_UNINITIALIZED = 0x8013_1371;
    /// A value is not one that the command takes now.
    INVALIDARG = 0x8007_0057;
    /// Something did not fit.
    INSUFFICIENT_BUFFER = 0x8007_007A;
    /// The environment variable to remove is not there.
    ENVVAR_NOT_FOUND = 0x8007_00CB;
    /// A profiler is attached already.
    PROFILER_ALREADY_ACTIVE = 0x8013_136A;
    /// The profiler's file cannot be loaded.
    MODULE_NOT_FOUND = 0x8007_007E;
}

/// `0x80131385 UNKNOWN_COMMAND`, or the number alone.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08X}", self.0)?;
        match self.name() {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The answer that a server owes for bytes that it cannot take.
impl From<DecodeError> for ErrorCode {
    fn from(error: DecodeError) -> ErrorCode {
        match error {
            DecodeError::UnknownMagic => ErrorCode::UNKNOWN_MAGIC,
            _ => ErrorCode::BAD_ENCODING,
        }
    }
}
