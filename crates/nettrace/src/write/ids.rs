//! Which metadata ids were defined.

use alloc::vec::Vec;

use super::interner::Interner;

/// The metadata ids that were defined: a bit each for the small ones, which are all there are in practice.
#[derive(Debug, Default)]
pub(super) struct DefinedIds {
    bits: Vec<u64>,
    large: Interner,
}

const SMALL_IDS: u32 = 1 << 20;

impl DefinedIds {
    pub(super) fn insert(&mut self, id: u32) {
        if id >= SMALL_IDS {
            self.large.number(&id.to_le_bytes());
            return;
        }
        let word = (id >> 6) as usize;
        if self.bits.len() <= word {
            self.bits.resize(word.saturating_add(1), 0);
        }
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= 1u64.wrapping_shl(id & 63);
        }
    }

    #[inline]
    pub(super) fn contains(&self, id: u32) -> bool {
        if id >= SMALL_IDS {
            return self.large.find(&id.to_le_bytes()).is_some();
        }
        self.bits
            .get((id >> 6) as usize)
            .is_some_and(|bits| bits.wrapping_shr(id & 63) & 1 == 1)
    }
}
