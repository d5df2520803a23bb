//! The current activity of a thread (engine.md 4.10): events written without an explicit activity carry it.

use eventpipe_os::thread;
use nettrace::Guid;

use crate::process_info;

/// The current activity of this thread.
#[inline]
pub fn current() -> Option<Guid> {
    Some(Guid(thread::note())).filter(|id| !id.is_zero())
}

/// Whether the thread has no current activity.
#[inline(always)]
pub(crate) fn is_none() -> bool {
    u128::from_ne_bytes(thread::note()) == 0
}

/// A new id, random.
pub fn create() -> Guid {
    Guid(process_info::random_guid())
}

/// Makes `id` the current activity of this thread and gives the one before back; [`Guid::ZERO`] is none.
pub fn set_current(id: Guid) -> Guid {
    Guid(thread::set_note(id.0))
}
