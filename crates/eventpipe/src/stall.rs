//! Whether a session that drops events has been without room for so long that nothing should be written for it for now.
//!
//! Not at once: a burst that a small buffer cannot take at its writers' speed may be taken by the reader a moment later, and what lies in
//! the ring meanwhile is not lost yet.

/// So long most of what comes must have found no room.
const PATIENCE_NS: u64 = 50_000_000;

/// So long nothing must have come to say that it was silent. Where writers are many and events large, rounds follow each other so fast
/// that nothing was finished in between.
const SILENCE_NS: u64 = 10_000_000;

/// What the session's part of the drain counts between two boundaries.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// Events that found no room since the last boundary.
    pub(crate) refused: u64,
    /// How many had been delivered up to there.
    delivered: u64,
    /// When most events began to find none.
    since_ns: Option<u64>,
    /// When something came last.
    came_ns: u64,
}

impl Stall {
    /// At a boundary, with the number of events delivered so far: whether the session's writers should be held.
    pub(crate) fn holds(&mut self, delivered: u64, time_ns: u64) -> bool {
        let refused = core::mem::take(&mut self.refused);
        let new = delivered - core::mem::replace(&mut self.delivered, delivered);
        let is_quiet = refused == 0 && new == 0;
        if !is_quiet {
            self.came_ns = time_ns;
        }
        if refused > new {
            let since = *self.since_ns.get_or_insert(time_ns);
            return time_ns.saturating_sub(since) >= PATIENCE_NS;
        }
        // A silence too: after it there may be room.
        if !is_quiet || time_ns.saturating_sub(self.came_ns) >= SILENCE_NS {
            self.since_ns = None;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_what_lasts() {
        let mut stall = Stall::default();
        let mut round = |refused, delivered, ms: u64| {
            stall.refused += refused;
            stall.holds(delivered, 1 + ms * 1_000_000)
        };
        // A burst that is over soon, and one of which the larger part is delivered.
        assert!(!round(10, 5, 0));
        assert!(!round(10, 5, 49));
        assert!(!round(5, 15, 60));
        assert!(!round(10, 15, 70));
        // Two with a silence between them.
        assert!(!round(0, 15, 100));
        assert!(!round(10, 20, 130));
        assert!(!round(10, 20, 179));
        // One that lasts.
        assert!(round(1, 20, 180));
        assert!(round(2, 21, 181));
        assert!(!round(2, 25, 182));
        // One with rounds in it in which nothing was finished.
        assert!(!round(1, 25, 200));
        for ms in (201..=248).step_by(3) {
            assert!(!round(0, 25, ms) && !round(1, 25, ms + 1));
        }
        assert!(round(1, 25, 250));
    }
}
