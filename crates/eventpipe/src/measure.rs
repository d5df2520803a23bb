//! The drain by hand, in place of the engine's thread: to measure what draining costs, and what an event costs a writer whom nobody
//! disturbs. Not part of the interface.

use core::fmt;

use eventpipe_os::clock;
use eventpipe_ring::Drain;

use crate::drain::{self, Sessions};
use crate::engine::ENGINE;
#[cfg(feature = "std")]
use crate::session::Session;

/// Drains when it is told to. While it exists no thread of the engine does, so a session ends only through [`stop`](Self::stop).
pub struct ManualDrain {
    drain: Drain<'static>,
    sessions: Sessions,
}

impl fmt::Debug for ManualDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualDrain").finish_non_exhaustive()
    }
}

impl ManualDrain {
    /// Before the first session of the process; `None` after it.
    pub fn new() -> Option<Self> {
        drain::stand_in().then_some(())?;
        clock::note_start();
        Some(ManualDrain {
            drain: ENGINE.ring.drain()?,
            sessions: Sessions::new(),
        })
    }

    /// Gives the sessions everything that was written before the call; how many events that were.
    pub fn run(&mut self) -> u64 {
        let now = clock::ticks();
        let mut records = 0;
        self.sessions.take_inbox();
        loop {
            let round = self.drain.round(&mut self.sessions);
            records += round.records;
            self.sessions.keep_time(&round);
            self.sessions
                .finish_due(&mut self.drain, round.boundary_ticks);
            if round.boundary_ticks >= now {
                return records;
            }
        }
    }

    /// Stops a session and gives it the rest; whether its stream is complete.
    #[cfg(feature = "std")]
    pub fn stop(&mut self, session: &Session) -> bool {
        std::thread::scope(|scope| {
            let stop = scope.spawn(|| session.stop());
            while !stop.is_finished() {
                self.run();
                std::thread::yield_now();
            }
            stop.join().unwrap_or(false)
        })
    }
}
