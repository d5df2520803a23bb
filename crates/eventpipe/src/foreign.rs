//! Calls of code that is not ours. With `std` a panic in it ends there: our threads and locks are not its to break.

/// Calls `function`; false when it panicked.
pub(crate) fn call(function: impl FnOnce()) -> bool {
    #[cfg(feature = "std")]
    {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(function)).is_ok()
    }
    #[cfg(not(feature = "std"))]
    {
        function();
        true
    }
}
