//! The current activity of a thread (engine.md 4.10): events written without an explicit activity carry it.
//!
//! Without the feature `std` there is no thread-local variable to keep it in, and events carry only explicit ids.

use nettrace::Guid;

#[cfg(feature = "std")]
std::thread_local! {
    static CURRENT: core::cell::Cell<Guid> = const { core::cell::Cell::new(Guid::ZERO) };
}

/// The current activity of this thread.
#[inline]
pub fn current() -> Option<Guid> {
    #[cfg(feature = "std")]
    {
        CURRENT
            .try_with(core::cell::Cell::get)
            .ok()
            .filter(|id| !id.is_zero())
    }
    #[cfg(not(feature = "std"))]
    {
        None
    }
}

/// Makes `id` the current activity of this thread and gives the one before back; [`Guid::ZERO`] is none.
#[cfg(feature = "std")]
pub fn set_current(id: Guid) -> Guid {
    CURRENT
        .try_with(|current| current.replace(id))
        .unwrap_or(Guid::ZERO)
}
