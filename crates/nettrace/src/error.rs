//! What can be wrong with a trace, and where.

/// A trace could not be read further: what is wrong, and at which byte of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset} (0x{offset:x}): {kind}")]
pub struct Error {
    /// Offset from the first byte of the stream, the magic included.
    pub offset: u64,
    /// What is wrong there.
    pub kind: ErrorKind,
}

/// The ways in which a trace can be wrong. Sections are those of the format description, nettrace.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The source of the bytes (file, pipe, socket) failed; the file may be good.
    #[cfg(feature = "std")]
    #[error("the source failed: {0}")]
    Source(std::io::ErrorKind),
    /// The file is empty, or ends before it says what it is.
    #[error("the file ends before its header does: not a trace, or nothing but its beginning")]
    HeaderTruncated,
    /// Neither "Nettrace" nor "!FastSerialization.1" stands at the beginning (section 1).
    #[error("not a trace: neither \"Nettrace\" nor \"!FastSerialization.1\" at the beginning")]
    NotATrace,
    /// The header of a V6 file names a version below 6 (section 1).
    #[error("the header announces format 6 or later, but names version {major}")]
    InvalidVersion {
        /// The major version that the file names.
        major: u32,
    },
    /// The file needs a newer reader (section 1 and 2).
    #[error(
        "the file needs a reader of version {needed}; this one reads up to {}",
        crate::MAX_FORMAT
    )]
    UnsupportedVersion {
        /// The major version, or the minimum reader version of an object.
        needed: u32,
    },
    /// The first object of a V1–V5 file is not a trace object, or the first block of a V6 file is not a trace block.
    #[error("the trace does not begin with its description (the Trace object or block)")]
    NoTraceObject,
    /// Another byte stands where the format wants a certain tag (section 2).
    #[error("tag {found} where tag {expected} is due")]
    UnexpectedTag {
        /// The tag that the format wants here.
        expected: u8,
        /// The byte found.
        found: u8,
    },
    /// The name of an object is longer than any name can be, or its length is negative (section 2).
    #[error("an object's name is {length} bytes long")]
    InvalidNameLength {
        /// The length that the file gives.
        length: i32,
    },
    /// An object that is not described (section 2): its size cannot be known.
    #[error("an object of an unknown kind")]
    UnknownObject,
    /// The pointer size is neither 4 nor 8 (section 2 and 6.1).
    #[error("pointers of {0} bytes")]
    InvalidPointerSize(u32),
    /// Less than one tick per second: times cannot be computed (section 2).
    #[error("a clock of {0} ticks per second")]
    InvalidFrequency(i64),
    /// A block is larger than the limit of the reader, or its size is negative.
    #[error("a block of {size} bytes; the limit is {limit}")]
    BlockTooLarge {
        /// The size that the file gives.
        size: u64,
        /// The limit in force.
        limit: u64,
    },
    /// The stream ends without its end tag, between two blocks. What was read is complete up to here.
    #[error("the stream ends without an end tag: recording was cut off here")]
    Truncated,
    /// The stream ends inside a block.
    #[error("the stream ends inside a block: recording or copying was cut off here")]
    TruncatedBlock,
    /// The header of an event or metadata block is smaller than its fields (section 5.1).
    #[error("a block header of {0} bytes")]
    InvalidBlockHeader(u32),
    /// A record, row or list runs past the end of its block.
    #[error("a record runs past the end of its block")]
    RecordOverrun,
    /// The size of a record is too small for its own header (sections 3, 4, 5.2).
    #[error("a record of {0} bytes, less than its header")]
    RecordTooSmall(u32),
    /// A variable-length number is longer than its type allows (section 5.3).
    #[error("a variable-length number that is too long")]
    InvalidVarint,
    /// A string does not end inside the record that holds it.
    #[error("a string without an end")]
    UnterminatedString,
    /// A count is larger than the bytes that are left could hold.
    #[error("a list of {count} elements in {left} bytes")]
    InvalidCount {
        /// The count that the file gives.
        count: u64,
        /// The bytes that are left.
        left: u64,
    },
    /// A type code of a payload field that is not defined (section 8.1).
    #[error("field type {0}")]
    UnknownFieldType(u32),
    /// Types are nested deeper than 32 levels, of which an array counts for four (section 9).
    #[error("types are nested deeper than {} levels", crate::MAX_NESTING)]
    NestedTooDeeply,
    /// A RelLoc or DataLoc whose elements have no fixed size (section 8.1).
    #[error("a RelLoc or DataLoc of elements without a fixed size")]
    UnsizedElement,
    /// A label kind that is not defined; its size cannot be known (section 6.6).
    #[error("label kind {0}")]
    UnknownLabel(u8),
    /// The trailer of a V1 or V2 file does not lead to its forward reference table (section 3).
    #[error("the trailer of the file does not describe it")]
    InvalidTrailer,
}
