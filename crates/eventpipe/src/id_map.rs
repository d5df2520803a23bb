//! What is known of threads by number: a sorted list.
//!
//! Numbers of threads mostly grow, so most of what is added comes last; there are as many entries as a process has threads. A hash
//! table would be four kilobytes of code, for a runtime that asks how large this engine is (docs/nativeaot.md).

use alloc::vec::Vec;

/// Numbers by number.
#[derive(Debug, Default)]
pub(crate) struct IdMap(Vec<(u64, u64)>);

impl IdMap {
    pub(crate) const fn new() -> Self {
        IdMap(Vec::new())
    }

    fn place(&self, key: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |entry| entry.0)
    }

    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let entry = self.0.get(self.place(key).ok()?)?;
        Some(entry.1)
    }

    /// What is known under the key; `value` from now on if nothing was.
    pub(crate) fn get_or_insert(&mut self, key: u64, value: u64) -> u64 {
        match self.place(key) {
            Ok(place) => self.0.get(place).map_or(value, |entry| entry.1),
            Err(place) => {
                self.0.insert(place, (key, value));
                value
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<u64> {
        let place = self.place(key).ok()?;
        Some(self.0.remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::IdMap;

    #[test]
    fn finds_what_was_added_in_any_order() {
        let mut map = IdMap::new();
        for key in [5, 1, 9, 3, 7] {
            assert_eq!(map.get_or_insert(key, key * 10), key * 10);
        }
        assert_eq!(map.get_or_insert(3, 4), 30, "the first value stays");
        assert_eq!(map.get(9), Some(90));
        assert_eq!(map.get(2), None);
        assert_eq!(map.remove(5), Some(50));
        assert_eq!(map.remove(5), None);
        assert_eq!(map.get(7), Some(70));
    }
}
