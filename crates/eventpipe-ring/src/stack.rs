//! A lock-free stack of indexes, for everything that is handed over: free blocks, full blocks, free
//! slots, slots in debt.
//!
//! The head is one word: index + 1 in the low half (0: empty), a tag in the high half that changes
//! with every change of the head. So a thread that read the head, slept, and finds the same index
//! there again (though the stack below it has changed) is told so by the tag: no ABA within 2^32
//! changes. Elements hold a link word: index + 1 of the one below, and in the high half the weight
//! of the stack up to and including themselves, so that the weight of all is known without a shared
//! counter.
//!
//! Invariant K1: an index is on at most one stack, at most once; who popped it (or took all) has it
//! alone. Orderings: the exchange that pushes releases, the load of the head that precedes a pop
//! acquires. Every change of the head is a read-modify-write, so each continues the release
//! sequence of all pushes below: an acquire of the head sees what every pusher did before.

use crate::sync::{AtomicU64, Ordering, const_unless_loom, negative};

/// Where the links of a stack's elements are.
pub(crate) trait Links {
    fn link(&self, index: u32) -> &AtomicU64;
}

#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct TaggedStack {
    head: AtomicU64,
}

#[inline]
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline]
fn word(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The head that follows `head` with another index.
#[inline]
fn next_head(head: u64, index_plus_one: u32) -> u64 {
    let tag = if negative!("untagged_stack") {
        0
    } else {
        high(head).wrapping_add(1)
    };
    word(index_plus_one, tag)
}

impl TaggedStack {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self { head: AtomicU64::new(0) }
        }
    }

    /// Puts an index on top; the weight of the stack before.
    pub(crate) fn push(&self, links: &impl Links, index: u32, weight: u32) -> u32 {
        let published = if negative!("relaxed_push") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let below = self.weight_at(links, head);
            links.link(index).store(
                word(low(head), below.wrapping_add(weight)),
                Ordering::Relaxed,
            );
            match self.head.compare_exchange_weak(
                head,
                next_head(head, index + 1),
                published,
                Ordering::Relaxed,
            ) {
                Ok(_) => return below,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the index on top.
    pub(crate) fn pop(&self, links: &impl Links) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = low(head).checked_sub(1)?;
            // May be of another life of the element when somebody else popped it: then the exchange
            // fails by the tag.
            let below = low(links.link(index).load(Ordering::Relaxed));
            match self.head.compare_exchange_weak(
                head,
                next_head(head, below),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything; the indexes from the last pushed to the first.
    pub(crate) fn take_all<'l, L: Links>(&self, links: &'l L) -> Taken<'l, L> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if low(head) == 0 {
                return Taken { links, next: 0 };
            }
            match self.head.compare_exchange_weak(
                head,
                next_head(head, 0),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    return Taken {
                        links,
                        next: low(head),
                    };
                }
                Err(now) => head = now,
            }
        }
    }

    /// Empties it, whatever was on it. Only while nobody else uses it.
    pub(crate) fn reset(&self) {
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(next_head(head, 0), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        low(self.head.load(Ordering::Relaxed)) == 0
    }

    /// The weight of everything on it.
    #[inline]
    pub(crate) fn weight(&self, links: &impl Links) -> u32 {
        self.weight_at(links, self.head.load(Ordering::Relaxed))
    }

    #[inline]
    fn weight_at(&self, links: &impl Links, head: u64) -> u32 {
        low(head)
            .checked_sub(1)
            .map_or(0, |top| high(links.link(top).load(Ordering::Relaxed)))
    }
}

/// What [`TaggedStack::take_all`] took. A copy can go over the links again until the first index is
/// pushed elsewhere.
pub(crate) struct Taken<'l, L> {
    links: &'l L,
    next: u32,
}

impl<L> Clone for Taken<'_, L> {
    fn clone(&self) -> Self {
        Self {
            links: self.links,
            next: self.next,
        }
    }
}

impl<L: Links> Iterator for Taken<'_, L> {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        let index = self.next.checked_sub(1)?;
        // Read before the index is given out, as the element may be pushed elsewhere then.
        self.next = low(self.links.link(index).load(Ordering::Relaxed));
        Some(index)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    struct Table(Vec<AtomicU64>);
    impl Links for Table {
        fn link(&self, index: u32) -> &AtomicU64 {
            &self.0[index as usize]
        }
    }

    #[test]
    fn the_last_one_in_is_the_first_one_out_and_the_weight_is_known() {
        let table = Table((0..4).map(|_| AtomicU64::new(0)).collect());
        let stack = TaggedStack::new();
        assert_eq!(stack.push(&table, 2, 18), 0);
        assert_eq!(stack.push(&table, 0, 1), 18);
        assert_eq!(stack.weight(&table), 19);
        assert_eq!(stack.pop(&table), Some(0));
        assert_eq!(stack.weight(&table), 18);
        stack.push(&table, 3, 1);
        assert_eq!(stack.take_all(&table).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(stack.pop(&table), None);
        assert!(stack.is_empty());
    }
}
