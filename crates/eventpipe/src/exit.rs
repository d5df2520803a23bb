//! The end of the process: sessions that still run are stopped and delivered, within a limit (engine.md 6.7, 12.3).
//!
//! Nothing is torn down. Threads that still write find their events off; those that are inside a write finish it.

use core::sync::atomic::{AtomicBool, Ordering};

use eventpipe_os::clock;

use crate::control;
use crate::engine::ENGINE;
use crate::fork;
use crate::server;

/// A reader that takes nothing for so long while the process waits to end is left behind.
pub(crate) const STALL_NS: u64 = 2_000_000_000;

/// However slowly the readers read, the process ends after this.
const LIMIT_NS: u64 = 20_000_000_000;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the process is ending; then no callback of a provider is called any more.
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// Ends all sessions and the diagnostics server: every session is delivered completely as long as its reader reads, or else
/// given up after two seconds without progress, all within twenty seconds. Runs by itself when the process exits; may be
/// called earlier, at any time, by several threads. No session can be started afterwards.
pub fn shutdown() {
    if fork::is_child() {
        return;
    }
    BEGUN.store(true, Ordering::Relaxed);
    server::close();
    let unfinished = {
        let Some(mut control) = ENGINE.control.lock() else {
            return;
        };
        control.close();
        control.unfinished()
    };
    for session in &unfinished {
        control::disable(session.id(), false);
        // A sender that was already waiting for a slow reader learns of the shorter limit.
        session.queue.wake();
    }
    let deadline = clock::monotonic_ns().saturating_add(LIMIT_NS);
    for session in &unfinished {
        session.wait_ended(deadline);
    }
}
