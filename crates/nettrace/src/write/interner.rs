//! Numbers for byte strings: stacks and label lists, which are written once and then named by number.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Gives equal byte strings equal numbers, from 1 until [`Interner::forget`].
#[derive(Debug, Default)]
pub(crate) struct Interner {
    bytes: Vec<u8>,
    /// End of each string in `bytes`; it begins at the end of the one before.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The number given last: callers repeat themselves.
    last: u32,
    /// Strings with numbers up to this one were handed out by [`Interner::pending`].
    written: u32,
    pending_bytes: usize,
}

impl Interner {
    /// The number of a string.
    pub(crate) fn number(&mut self, string: &[u8]) -> u32 {
        if self.last != 0 && self.string(self.last) == string {
            return self.last;
        }
        let hash = self.hasher.hash_one(string);
        let (bytes, ends) = (&self.bytes, &self.ends);
        if let Some(&number) = self
            .numbers
            .find(hash, |&number| span(bytes, ends, number) == string)
        {
            self.last = number;
            return number;
        }
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
        let number = self.ends.len() as u32;
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        self.numbers.insert_unique(hash, number, |&number| {
            hasher.hash_one(span(bytes, ends, number))
        });
        self.pending_bytes = self
            .pending_bytes
            .saturating_add(string.len())
            .saturating_add(4);
        self.last = number;
        number
    }

    fn string(&self, number: u32) -> &[u8] {
        span(&self.bytes, &self.ends, number)
    }

    /// Size of what was not written yet, with four bytes for each string.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The first string that was not written yet, and its number.
    pub(crate) fn pending(&self) -> Option<(u32, &[u8])> {
        let number = self.written.wrapping_add(1);
        (number as usize <= self.ends.len()).then(|| (number, self.string(number)))
    }

    /// The first pending string was written.
    pub(crate) fn mark_written(&mut self) {
        self.written = self.written.wrapping_add(1);
        if self.written as usize >= self.ends.len() {
            self.pending_bytes = 0;
        }
    }

    /// Begins again at 1.
    pub(crate) fn forget(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.numbers.clear();
        self.last = 0;
        self.written = 0;
        self.pending_bytes = 0;
    }
}

fn span<'a>(bytes: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let index = (number as usize).wrapping_sub(1);
    let start = index
        .checked_sub(1)
        .and_then(|before| ends.get(before))
        .copied()
        .unwrap_or(0);
    let end = ends.get(index).copied().unwrap_or(0);
    bytes.get(start..end).unwrap_or_default()
}
