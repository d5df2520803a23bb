//! What stands in for the diagnostics server in a program that is built without the feature `server`.

/// There is nothing to start.
pub(crate) fn start() {}

/// Nor to close.
pub(crate) fn close() {}

/// Nobody waits.
pub(crate) fn notify() {}

/// No port holds up the start.
pub(crate) fn wait_for_resume() {}
