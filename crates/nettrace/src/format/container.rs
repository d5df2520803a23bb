//! How blocks are framed: tagged objects up to V5, sized blocks in V6 (nettrace.md sections 1, 2 and 6).

use alloc::vec::Vec;

use crate::wire::{Cursor, put_i32, put_u32};
use crate::{Error, ErrorKind, MAX_FORMAT};

/// The first bytes of V4 and later.
pub(crate) const MAGIC: &[u8; 8] = b"Nettrace";
/// The first bytes of V1–V3, and what follows the magic of V4 and V5.
pub(crate) const FAST_SERIALIZATION: &[u8; 24] = b"\x14\0\0\0!FastSerialization.1";

pub(crate) const TAG_NULL: u8 = 1;
pub(crate) const TAG_BEGIN: u8 = 4;
pub(crate) const TAG_BEGIN_PRIVATE: u8 = 5;
pub(crate) const TAG_END: u8 = 6;

/// The longest name of an object that is looked at.
const MAX_NAME: i32 = 256;
/// Bytes of an object header without its name: three tags, two versions, the name's length, the closing tag.
const OBJECT_HEADER: usize = 16;

/// The kinds of blocks, of objects as of V6 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    EndOfStream,
    Trace,
    Event,
    Metadata,
    SequencePoint,
    Stack,
    Thread,
    RemoveThread,
    LabelList,
    /// V1 and V2: everything in one object.
    EventPipeFile,
    Unknown,
}

impl BlockKind {
    pub(crate) fn from_name(name: &[u8]) -> BlockKind {
        match name {
            b"Trace" => BlockKind::Trace,
            b"EventBlock" => BlockKind::Event,
            b"MetadataBlock" => BlockKind::Metadata,
            b"SPBlock" => BlockKind::SequencePoint,
            b"StackBlock" => BlockKind::Stack,
            b"Microsoft.DotNet.Runtime.EventPipeFile" => BlockKind::EventPipeFile,
            _ => BlockKind::Unknown,
        }
    }

    /// Name, version and minimum reader version of the object in V4.
    fn object(self) -> (&'static [u8], i32, i32) {
        match self {
            BlockKind::Trace => (b"Trace", 4, 4),
            BlockKind::Metadata => (b"MetadataBlock", 2, 2),
            BlockKind::SequencePoint => (b"SPBlock", 2, 2),
            BlockKind::Stack => (b"StackBlock", 2, 2),
            _ => (b"EventBlock", 2, 2),
        }
    }

    pub(crate) fn from_code(code: u8) -> BlockKind {
        match code {
            0 => BlockKind::EndOfStream,
            1 => BlockKind::Trace,
            2 => BlockKind::Event,
            3 => BlockKind::Metadata,
            4 => BlockKind::SequencePoint,
            5 => BlockKind::Stack,
            6 => BlockKind::Thread,
            7 => BlockKind::RemoveThread,
            8 => BlockKind::LabelList,
            _ => BlockKind::Unknown,
        }
    }

    fn code(self) -> u8 {
        match self {
            BlockKind::EndOfStream => 0,
            BlockKind::Trace => 1,
            BlockKind::Event | BlockKind::EventPipeFile | BlockKind::Unknown => 2,
            BlockKind::Metadata => 3,
            BlockKind::SequencePoint => 4,
            BlockKind::Stack => 5,
            BlockKind::Thread => 6,
            BlockKind::RemoveThread => 7,
            BlockKind::LabelList => 8,
        }
    }
}

/// The beginning of an object of V1–V5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectHeader {
    pub(crate) kind: BlockKind,
    pub(crate) version: i32,
    /// Bytes of the header.
    pub(crate) length: usize,
}

/// What a decoder makes of bytes that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial<T> {
    Complete(T),
    /// At least so many bytes are needed in all.
    Needs(usize),
}

impl ObjectHeader {
    /// Reads a header that begins at `offset` of the file; `begin` is the tag that opens objects in this version.
    pub(crate) fn decode(
        bytes: &[u8],
        offset: u64,
        begin: u8,
    ) -> Result<Partial<ObjectHeader>, Error> {
        for (index, expected) in [begin, begin, TAG_NULL].into_iter().enumerate() {
            match bytes.get(index) {
                Some(&found) if found != expected => {
                    let offset = offset.wrapping_add(index as u64);
                    return Err(Error {
                        offset,
                        kind: ErrorKind::UnexpectedTag { expected, found },
                    });
                }
                _ => {}
            }
        }
        if bytes.len() < OBJECT_HEADER {
            return Ok(Partial::Needs(OBJECT_HEADER));
        }
        let mut cursor = Cursor::new(bytes, offset);
        cursor.take(3)?;
        let version = cursor.i32()?;
        let minimum_offset = cursor.offset();
        let minimum = cursor.i32()?;
        let name_offset = cursor.offset();
        let length = cursor.i32()?;
        if !(0..=MAX_NAME).contains(&length) {
            return Err(Error {
                offset: name_offset,
                kind: ErrorKind::InvalidNameLength { length },
            });
        }
        let needed = OBJECT_HEADER.wrapping_add(length as usize);
        if bytes.len() < needed {
            return Ok(Partial::Needs(needed));
        }
        let name = cursor.take(length as usize)?;
        let found = cursor.u8()?;
        if found != TAG_END {
            let offset = cursor.offset().wrapping_sub(1);
            return Err(Error {
                offset,
                kind: ErrorKind::UnexpectedTag {
                    expected: TAG_END,
                    found,
                },
            });
        }
        if minimum > MAX_FORMAT as i32 {
            let kind = ErrorKind::UnsupportedVersion {
                needed: minimum as u32,
            };
            return Err(Error {
                offset: minimum_offset,
                kind,
            });
        }
        Ok(Partial::Complete(ObjectHeader {
            kind: BlockKind::from_name(name),
            version,
            length: needed,
        }))
    }

    /// Writes the header of a V4 object.
    pub(crate) fn encode(out: &mut Vec<u8>, kind: BlockKind) {
        ObjectHeader::put(out, TAG_BEGIN_PRIVATE, kind.object());
    }

    /// Writes the header of a V3 object: the trace or an event block.
    pub(crate) fn encode_v3(out: &mut Vec<u8>, kind: BlockKind) {
        let (name, ..) = kind.object();
        let version = if kind == BlockKind::Trace { 3 } else { 1 };
        ObjectHeader::put(out, TAG_BEGIN, (name, version, 0));
    }

    fn put(out: &mut Vec<u8>, begin: u8, (name, version, minimum): (&[u8], i32, i32)) {
        out.extend_from_slice(&[begin, begin, TAG_NULL]);
        put_i32(out, version);
        put_i32(out, minimum);
        put_u32(out, name.len() as u32);
        out.extend_from_slice(name);
        out.push(TAG_END);
    }
}

/// Bytes from a file offset to the next multiple of four: block contents of V3–V5 begin there.
pub(crate) fn padding(offset: u64) -> usize {
    (offset.wrapping_neg() & 3) as usize
}

/// The largest block of V6.
pub(crate) const MAX_V6_BLOCK: usize = 0xff_ffff;

/// Size and kind of a V6 block from its first four bytes.
pub(crate) fn decode_v6_header(word: [u8; 4]) -> (usize, BlockKind) {
    let [a, b, c, kind] = word;
    (
        u32::from_le_bytes([a, b, c, 0]) as usize,
        BlockKind::from_code(kind),
    )
}

/// The first four bytes of a V6 block; `size` is at most [`MAX_V6_BLOCK`].
pub(crate) fn put_v6_header(out: &mut Vec<u8>, kind: BlockKind, size: usize) {
    put_u32(
        out,
        (size & MAX_V6_BLOCK) as u32 | u32::from(kind.code()) << 24,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn an_object_header_comes_back_and_asks_for_what_is_missing() {
        for kind in [
            BlockKind::Trace,
            BlockKind::Event,
            BlockKind::Metadata,
            BlockKind::Stack,
            BlockKind::SequencePoint,
        ] {
            let mut out = vec![];
            ObjectHeader::encode(&mut out, kind);
            for cut in 0..out.len() {
                let partial = ObjectHeader::decode(&out[..cut], 0, TAG_BEGIN_PRIVATE);
                assert!(
                    matches!(partial, Ok(Partial::Needs(needed)) if needed > cut),
                    "{cut}: {partial:?}"
                );
            }
            let version = if kind == BlockKind::Trace { 4 } else { 2 };
            let header = ObjectHeader {
                kind,
                version,
                length: out.len(),
            };
            assert_eq!(
                ObjectHeader::decode(&out, 0, TAG_BEGIN_PRIVATE),
                Ok(Partial::Complete(header))
            );
        }
    }

    #[test]
    fn an_object_for_newer_readers_is_refused_by_its_number() {
        let mut out = vec![];
        ObjectHeader::encode(&mut out, BlockKind::Event);
        out[7] = 9;
        let error = Error {
            offset: 107,
            kind: ErrorKind::UnsupportedVersion { needed: 9 },
        };
        assert_eq!(
            ObjectHeader::decode(&out, 100, TAG_BEGIN_PRIVATE),
            Err(error)
        );
    }
}
