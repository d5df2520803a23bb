//! The one engine of the process: everything global stands here.

use eventpipe_os::sync::Signal;
use eventpipe_ring::Ring;

use crate::control::ControlLock;
use crate::event_table::EventTable;

/// What all threads of the process share. Nothing in it is ever torn down: threads go on writing while the process exits.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The buffer between writers and the drain.
    pub(crate) ring: &'static Ring,
    /// Providers, sessions, what the drain is asked to do.
    pub(crate) control: ControlLock,
    /// Wakes the drain.
    pub(crate) drain: Signal,
}

/// The ring. Apart from the rest as [`EVENTS`] is.
pub(crate) static RING: Ring = Ring::new();

/// Every event that was ever registered. Apart from the rest, because it is all zero at first and need not lie in the program's file.
pub(crate) static EVENTS: EventTable = EventTable::new();

pub(crate) static ENGINE: Engine = Engine {
    ring: &RING,
    control: ControlLock::new(),
    drain: Signal::new(),
};
