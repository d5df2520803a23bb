//! Property tests: every construct of V4 and V6 comes back from a reader as it was written, from any way of cutting
//! the bytes into reads; and every beginning of a trace gives a beginning of its contents.

mod support;

use std::io::{self, Read};

use nettrace::{ErrorKind, Reader, WriteFormat};
use proptest::prelude::*;
use support::generate::{info, read, steps, write};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn v4_comes_back(steps in steps(WriteFormat::V4), pointer_size in prop_oneof![Just(4u32), Just(8)], block in 1usize..2000) {
        let (bytes, expected) = write(WriteFormat::V4, &info(pointer_size), block, &steps);
        prop_assert_eq!(read(&bytes), (expected, None));
    }

    #[test]
    fn v6_comes_back(steps in steps(WriteFormat::V6), pointer_size in prop_oneof![Just(4u32), Just(8)], block in 1usize..2000) {
        let (bytes, expected) = write(WriteFormat::V6, &info(pointer_size), block, &steps);
        prop_assert_eq!(read(&bytes), (expected, None));
    }

    #[test]
    fn a_beginning_gives_a_beginning(steps in steps(WriteFormat::V6), v6: bool, cuts in proptest::collection::vec(any::<prop::sample::Index>(), 20)) {
        let format = if v6 { WriteFormat::V6 } else { WriteFormat::V4 };
        // What only V6 can hold is left out of V4; here it matters that nothing is made up.
        let (bytes, _) = write(format, &info(8), 300, &steps);
        let (whole, _) = read(&bytes);
        for cut in cuts {
            let cut = cut.index(bytes.len());
            let (part, error) = read(&bytes[..cut]);
            prop_assert!(whole.starts_with(&part));
            let kind = error.map(|error| error.kind);
            prop_assert!(matches!(
                kind,
                Some(ErrorKind::HeaderTruncated | ErrorKind::Truncated | ErrorKind::TruncatedBlock)
            ), "{kind:?}");
            prop_assert!(error.is_some_and(|error| error.offset == cut as u64), "{error:?} of {cut}");
        }
    }

    #[test]
    fn a_source_that_gives_little_and_fails_in_between_changes_nothing(steps in steps(WriteFormat::V6), v6: bool, reads in proptest::collection::vec(0usize..40, 1..20)) {
        let format = if v6 { WriteFormat::V6 } else { WriteFormat::V4 };
        let (bytes, _) = write(format, &info(8), 300, &steps);
        let events = |source: &mut dyn Read| {
            // The header must be there in one go; only behind it reading can be tried again.
            let mut reader = Reader::new(source).unwrap();
            let mut found = Vec::new();
            loop {
                match reader.next_event() {
                    Ok(Some(event)) => found.push((event.offset(), event.timestamp(), event.payload().to_vec())),
                    Ok(None) => return found,
                    Err(error) => assert!(matches!(error.kind, ErrorKind::Source(_)), "{error}"),
                }
            }
        };
        let expected = events(&mut &bytes[..]);
        let header = bytes.len().min(if v6 { 20 + 4 + 200 } else { 102 });
        let mut slow = Slow { bytes: &bytes, header, reads: &reads, turn: 0 };
        prop_assert_eq!(events(&mut slow), expected);
    }
}

/// Gives the header at once, then small pieces, and "not now" for a piece of nothing.
struct Slow<'a> {
    bytes: &'a [u8],
    header: usize,
    reads: &'a [usize],
    turn: usize,
}

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let piece = match self.header {
            0 => {
                self.turn += 1;
                self.reads[self.turn % self.reads.len()]
            }
            header => header,
        };
        // Every tenth read gives something, whatever was drawn.
        let piece = if self.turn.is_multiple_of(10) {
            piece.max(1)
        } else {
            piece
        };
        if piece == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = piece.min(out.len()).min(self.bytes.len());
        out[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        self.header = self.header.saturating_sub(count);
        Ok(count)
    }
}
