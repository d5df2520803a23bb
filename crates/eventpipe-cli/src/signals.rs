//! Signals as messages.
//!
//! A thread of signal-hook's turns SIGINT, SIGTERM, SIGHUP and SIGQUIT into calls of a closure, so
//! that ending a recording is one more message to the loop that drives it.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;

/// Which signals end a recording.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Calls `on_signal` with the number of every ending signal from now on.
///
/// # Errors
/// If the handlers cannot be installed or the thread cannot be started.
pub(crate) fn forward(mut on_signal: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(ENDING)?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                on_signal(signal);
            }
        })?;
    Ok(())
}

/// Ends the tool as the signal does that nobody handles.
pub(crate) fn end_by(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}
