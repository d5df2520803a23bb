//! Labels: what V6 attaches to events beside the payload (nettrace.md 6.6).

use alloc::borrow::Cow;

use crate::Guid;

/// One label of an event. V4 and V5 know the first two only.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the format document")]
pub enum Label<'a> {
    ActivityId(Guid),
    RelatedActivityId(Guid),
    TraceId([u8; 16]),
    SpanId(u64),
    String {
        key: Cow<'a, str>,
        value: Cow<'a, str>,
    },
    Number {
        key: Cow<'a, str>,
        value: i64,
    },
    /// Takes the place of the metadata's opcode for this event, as the next three do for theirs.
    OpCode(u8),
    Keywords(u64),
    Level(u8),
    Version(u8),
}
