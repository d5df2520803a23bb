//! The child of a fork is not traced: sessions, sockets and threads belong to the parent. It must not touch them.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{ENGINE, EVENTS};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process is a forked copy of the one that started the engine.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Runs in the child, on its only thread. Locks may be held by threads that do not exist here, so none is taken.
pub(crate) fn forked_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    for event in EVENTS.iter() {
        event.key().mask.store(0, Ordering::Relaxed);
        event.key().stack_mask.store(0, Ordering::Relaxed);
    }
    ENGINE.ring.forked_child();
}
