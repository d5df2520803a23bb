//! Counting what the writer could not keep (nettrace.md 7.2).
//!
//! Each capture thread numbers the events that it tries to write, so what is missing between two numbers was lost.
//! Where this goes beyond TraceEvent: what is missing before the first event of a thread is counted too.

use std::vec::Vec;

use hashbrown::HashMap;

/// Events that were not delivered, from the numbers of those that were (nettrace.md 7.2).
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Missing between events, and between the last event of a thread and a sequence point: what TraceEvent counts.
    pub gaps: u64,
    /// Missing before the first event seen of a thread, and all events of threads of which none was seen. The
    /// runtime of .NET Core 3.1 numbers some threads from 2: it seems to lose one event for each.
    pub at_start: u64,
    /// Whether more may be lost than the file can tell: say "at least". True of V1–V3, which number nothing; of a
    /// trace without its end; and of V4 and V5 as soon as anything is lost, since a thread that never got a buffer
    /// is nowhere in such a file (nettrace.md section 0). Also true where a trace has more than a million threads: what
    /// is missing before the first event of a thread is not counted any more then.
    pub is_lower_bound: bool,
    threads: Vec<ThreadLosses>,
    places: HashMap<u64, usize>,
    /// The list of threads began again: those that come may have come before.
    began_again: bool,
    /// The thread of the last event; most events follow one of their own thread.
    current: usize,
}

/// Deliveries and losses of one capture thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadLosses {
    /// The operating system's number of the thread, as far as the file says.
    pub thread_id: u64,
    /// Its process, as far as the file says.
    pub process_id: u64,
    /// Events in the file.
    pub delivered: u64,
    /// See [`Losses::gaps`].
    pub gaps: u64,
    /// See [`Losses::at_start`].
    pub at_start: u64,
    /// What events name it by: `thread_id`, in V6 its index.
    key: u64,
    last: u32,
    /// Whether `last` is a number that was seen.
    is_numbered: bool,
}

impl ThreadLosses {
    /// What events name it by: number of the system, in V6 index.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// The last number known.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }
}

/// Threads that are told apart. Beyond that the table begins again, and only the totals remember.
const MAX_THREADS: usize = 1 << 20;

impl Losses {
    /// All.
    pub fn total(&self) -> u64 {
        self.gaps.saturating_add(self.at_start)
    }

    /// Per capture thread, in the order of first appearance. A thread that V6 removed stays in the list. Beyond a
    /// million threads the list begins again.
    pub fn threads(&self) -> &[ThreadLosses] {
        &self.threads
    }

    /// What follows is not counted by [`Losses::following`] before an event was counted by [`Losses::event`].
    pub(crate) fn leave(&mut self) {
        self.current = usize::MAX;
    }

    /// An event of the same thread as the one before, with the next number. `false` if none came before.
    #[inline(always)]
    pub(crate) fn following(&mut self) -> bool {
        match self.threads.get_mut(self.current) {
            Some(thread) => {
                thread.last = thread.last.wrapping_add(1);
                thread.delivered = thread.delivered.wrapping_add(1);
                true
            }
            None => false,
        }
    }

    /// An event of a thread that numbers its events.
    #[inline(always)]
    pub(crate) fn event(&mut self, key: u64, number: u32, names: impl FnOnce() -> (u64, u64)) {
        match self.threads.get_mut(self.current) {
            Some(thread)
                if thread.key == key
                    && thread.last.wrapping_add(1) == number
                    && thread.is_numbered =>
            {
                thread.last = number;
                thread.delivered = thread.delivered.wrapping_add(1);
            }
            _ => self.event_elsewhere(key, number, names()),
        }
    }

    #[inline(never)]
    fn event_elsewhere(&mut self, key: u64, number: u32, names: (u64, u64)) {
        self.current = self.find(key, names);
        let Some(thread) = self.threads.get_mut(self.current) else {
            return;
        };
        thread.delivered = thread.delivered.wrapping_add(1);
        if !thread.is_numbered {
            let missing = if self.began_again {
                0
            } else {
                u64::from(number.saturating_sub(1))
            };
            thread.at_start = thread.at_start.saturating_add(missing);
            self.at_start = self.at_start.saturating_add(missing);
        } else if number != 1 {
            // Back at 1: the system gave the number of a thread that ended to a new one, or the writer counts per
            // block, as some writers of V6 do.
            let missing = gap(thread.last, number.wrapping_sub(1));
            thread.gaps = thread.gaps.saturating_add(missing);
            self.gaps = self.gaps.saturating_add(missing);
        }
        thread.last = number;
        thread.is_numbered = true;
    }

    /// An event of V1–V3.
    #[inline]
    pub(crate) fn unnumbered_event(&mut self, thread_id: u64, process_id: u64) {
        if self
            .threads
            .get(self.current)
            .is_none_or(|thread| thread.key != thread_id)
        {
            self.current = self.find(thread_id, (thread_id, process_id));
        }
        if let Some(thread) = self.threads.get_mut(self.current) {
            thread.delivered = thread.delivered.wrapping_add(1);
        }
    }

    /// A sequence point or the end of a thread: so many events were tried.
    pub(crate) fn tried(&mut self, key: u64, number: u32, names: (u64, u64)) {
        let place = self.find(key, names);
        let Some(thread) = self.threads.get_mut(place) else {
            return;
        };
        if thread.is_numbered {
            let missing = gap(thread.last, number);
            thread.gaps = thread.gaps.saturating_add(missing);
            self.gaps = self.gaps.saturating_add(missing);
            if missing > 0 {
                thread.last = number;
            }
        } else {
            let missing = if self.began_again { 0 } else { number };
            thread.at_start = thread.at_start.saturating_add(u64::from(missing));
            self.at_start = self.at_start.saturating_add(u64::from(missing));
            thread.last = number;
            thread.is_numbered = true;
        }
    }

    /// The trace has its end. `may_hide_more`: whether losses of its format may be nowhere in it.
    pub(crate) fn conclude(&mut self, may_hide_more: bool) {
        self.is_lower_bound = may_hide_more || self.began_again;
    }

    /// V6: the thread ended; the next event with this key is another thread's.
    pub(crate) fn forget(&mut self, key: u64) {
        self.places.remove(&key);
        self.current = usize::MAX;
    }

    /// V6: all keys are free again.
    pub(crate) fn forget_all(&mut self) {
        self.places.clear();
        self.current = usize::MAX;
    }

    fn find(&mut self, key: u64, (thread_id, process_id): (u64, u64)) -> usize {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
            self.places.clear();
            self.began_again = true;
        }
        let place = self.threads.len();
        self.threads.push(ThreadLosses {
            thread_id,
            process_id,
            key,
            ..ThreadLosses::default()
        });
        self.places.insert(key, place);
        place
    }
}

/// How much is missing from one number to another; numbers wrap, and going back is no loss.
fn gap(last: u32, tried: u32) -> u64 {
    u64::try_from(tried.wrapping_sub(last) as i32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(losses: &mut Losses, key: u64, number: u32) {
        losses.event(key, number, || (key, 0));
    }

    #[test]
    fn gaps_starts_and_points_add_up_across_the_wrap() {
        let mut losses = Losses::default();
        event(&mut losses, 7, u32::MAX - 1);
        assert_eq!((losses.at_start, losses.gaps), (u64::from(u32::MAX - 2), 0));
        event(&mut losses, 7, u32::MAX);
        event(&mut losses, 7, 0);
        event(&mut losses, 7, 3);
        assert_eq!(losses.gaps, 2);
        losses.tried(7, 10, (7, 0));
        assert_eq!(losses.gaps, 9);
        losses.tried(7, 9, (7, 0));
        event(&mut losses, 7, 11);
        assert_eq!(
            losses.gaps, 9,
            "a lower number takes nothing back and adds nothing"
        );
        assert_eq!(losses.threads()[0].delivered, 5);
    }

    #[test]
    fn beyond_the_most_threads_nothing_is_said_to_be_lost_that_may_have_been_delivered() {
        let mut losses = Losses::default();
        for number in 1..=5 {
            event(&mut losses, 0, number);
        }
        for key in 1..MAX_THREADS as u64 {
            event(&mut losses, key, 1);
        }
        losses.conclude(false);
        assert!(!losses.is_lower_bound && losses.threads().len() == MAX_THREADS);
        event(&mut losses, u64::MAX, 1);
        event(&mut losses, 0, 6);
        losses.tried(1, 1, (1, 0));
        assert_eq!(losses.total(), 0, "these came before");
        event(&mut losses, 0, 8);
        losses.conclude(false);
        assert_eq!((losses.total(), losses.is_lower_bound), (1, true));
        assert_eq!(losses.threads().len(), 3);
    }

    #[test]
    fn a_thread_id_that_is_used_again_loses_nothing() {
        let mut losses = Losses::default();
        for number in [1, 2, 3, 1, 2] {
            event(&mut losses, 7, number);
        }
        assert_eq!(losses.total(), 0);
    }

    #[test]
    fn a_thread_that_was_never_seen_lost_everything() {
        let mut losses = Losses::default();
        losses.tried(7, 5, (7, 0));
        event(&mut losses, 7, 6);
        assert_eq!((losses.at_start, losses.gaps), (5, 0));
    }
}
