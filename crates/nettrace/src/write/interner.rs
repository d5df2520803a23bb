//! Numbers for byte strings: stacks and label lists, which are written once and then named by number.
//!
//! A hash table of its own, because the general one with its hash function is five kilobytes of code in a program that wants to be
//! traced (docs/nativeaot.md), and this one only ever adds.

use alloc::vec::Vec;

/// Gives equal byte strings equal numbers, from 1 until [`Interner::forget`].
#[derive(Debug, Default)]
pub(crate) struct Interner {
    bytes: Vec<u8>,
    /// End of each string in `bytes`; it begins at the end of the one before.
    ends: Vec<usize>,
    /// Numbers by hash, 0 where there is none: a power of two of places, at least half of them free. A number that finds its place taken
    /// goes into the next free one.
    places: Vec<u32>,
    /// Where the places lie: nobody outside can tell which strings will meet in one place.
    seed: u64,
    /// The number given last, and where its string is: callers repeat themselves.
    last: u32,
    last_span: (usize, usize),
    /// Strings with numbers up to this one were handed out by [`Interner::pending`].
    written: u32,
    pending_bytes: usize,
}

/// Places of the first table.
const FIRST: usize = 16;

impl Interner {
    /// The number of a string.
    #[inline]
    pub(crate) fn number(&mut self, string: &[u8]) -> u32 {
        let (start, end) = self.last_span;
        if self.bytes.get(start..end) != Some(string) || self.last == 0 {
            self.last = self.another(string);
            let start = self.start(self.last);
            self.last_span = (start, start.saturating_add(string.len()));
        }
        self.last
    }

    /// The number of a string that is not the last one.
    #[inline(never)]
    fn another(&mut self, string: &[u8]) -> u32 {
        if let Some(number) = self.find(string) {
            return number;
        }
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
        let number = self.ends.len() as u32;
        if self.ends.len() > self.places.len() / 2 {
            self.grow();
        } else {
            self.put(number);
        }
        self.pending_bytes = self
            .pending_bytes
            .saturating_add(string.len())
            .saturating_add(4);
        number
    }

    /// The number that a string has.
    pub(crate) fn find(&self, string: &[u8]) -> Option<u32> {
        let mut place = self.first_place(string);
        loop {
            match *self.places.get(place)? {
                0 => return None,
                number if self.string(number) == string => return Some(number),
                _ => place = self.next_place(place),
            }
        }
    }

    fn put(&mut self, number: u32) {
        let mut place = self.first_place(self.string(number));
        loop {
            match self.places.get_mut(place) {
                Some(free) if *free == 0 => {
                    *free = number;
                    return;
                }
                Some(_) => place = self.next_place(place),
                None => return,
            }
        }
    }

    /// Twice as many places, and every number into its own.
    #[cold]
    fn grow(&mut self) {
        let places = self.places.len().saturating_mul(2).max(FIRST);
        self.places.clear();
        self.places.resize(places, 0);
        self.seed = self.places.as_ptr() as usize as u64;
        for number in 1..=self.ends.len() as u32 {
            self.put(number);
        }
    }

    fn first_place(&self, string: &[u8]) -> usize {
        hash(self.seed, string) as usize & self.places.len().wrapping_sub(1)
    }

    fn next_place(&self, place: usize) -> usize {
        place.wrapping_add(1) & self.places.len().wrapping_sub(1)
    }

    /// Where a string begins: where the one before it ends.
    fn start(&self, number: u32) -> usize {
        let before = (number as usize).wrapping_sub(2);
        self.ends.get(before).copied().unwrap_or(0)
    }

    fn string(&self, number: u32) -> &[u8] {
        let end = self.ends.get((number as usize).wrapping_sub(1));
        let end = end.copied().unwrap_or(0);
        self.bytes.get(self.start(number)..end).unwrap_or_default()
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
        if !self.ends.is_empty() {
            self.places.fill(0);
        }
        self.bytes.clear();
        self.ends.clear();
        self.last = 0;
        self.written = 0;
        self.pending_bytes = 0;
    }
}

/// Eight bytes at a time, each of which reaches all bits of the result by a multiplication into twice the width.
fn hash(seed: u64, string: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = seed ^ string.len() as u64;
    for chunk in string.chunks(8) {
        let mut word = [0; 8];
        for (place, byte) in word.iter_mut().zip(chunk) {
            *place = *byte;
        }
        let product = u128::from(hash ^ u64::from_le_bytes(word)).wrapping_mul(u128::from(ODD));
        hash = product as u64 ^ (product >> 64) as u64;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::Interner;
    use alloc::vec::Vec;

    #[test]
    fn equal_strings_have_equal_numbers_until_they_are_forgotten() {
        let mut interner = Interner::default();
        let strings: Vec<Vec<u8>> = (0..1000_u32)
            .map(|at| at.to_le_bytes().repeat(at as usize % 7))
            .collect();
        let mut numbers: Vec<u32> = Vec::new();
        for string in &strings {
            numbers.push(interner.number(string));
        }
        // Every seventh one is empty.
        let different = numbers.iter().max().copied();
        assert_eq!(different, Some(1000 - 1000_u32.div_ceil(7) + 1));
        for (string, number) in strings.iter().zip(&numbers) {
            assert_eq!(interner.find(string), Some(*number));
            assert_eq!(interner.number(string), *number);
        }
        assert_eq!(interner.find(b"another"), None);
        interner.forget();
        assert_eq!(interner.find(b""), None);
        assert_eq!(interner.number(b"another"), 1);
    }
}
