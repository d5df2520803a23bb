//! Writing to standard output and standard error without ever panicking.
//!
//! Results go to standard output through [`Out`], whose errors are returned: a closed pipe ends the
//! tool quietly (see `main`). Everything said *about* the work goes to standard error, where a
//! failure to write is nobody's concern.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buffered standard output.
pub(crate) type Out = BufWriter<io::StdoutLock<'static>>;

/// Standard output, locked and buffered; the caller flushes at the end.
pub(crate) fn out() -> Out {
    BufWriter::with_capacity(64 * 1024, io::stdout().lock())
}

/// Whether a live line stands on the terminal, with the cursor behind it.
static HAS_LINE: AtomicBool = AtomicBool::new(false);

/// To the first column, and the line away.
const AWAY: &str = "\r\x1b[2K";

/// Says something on standard error; a live line makes room, until it is drawn again.
pub(crate) fn note(text: impl fmt::Display) {
    let mut error = io::stderr().lock();
    let away = if HAS_LINE.swap(false, Ordering::Relaxed) {
        AWAY
    } else {
        ""
    };
    let _ = error.write_all(format!("{away}{text}\n").as_bytes());
}

/// Draws a line in place of the one before; an empty one takes it away. For terminals only.
pub(crate) fn line(text: &str) {
    let mut error = io::stderr().lock();
    HAS_LINE.store(!text.is_empty(), Ordering::Relaxed);
    // In one piece: a terminal may echo something at any time.
    let _ = error.write_all(format!("{AWAY}{text}").as_bytes());
}

/// The terminal has echoed a line's end: takes the live line away that it left above, so that the next is drawn there.
pub(crate) fn line_was_entered() {
    let mut error = io::stderr().lock();
    if HAS_LINE.load(Ordering::Relaxed) {
        let _ = error.write_all(format!("{AWAY}\x1b[A{AWAY}").as_bytes());
    }
}

/// Says something on standard error unless it was said before: recordings of several processes have much in common.
pub(crate) fn note_once(text: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&text) {
        note(&text);
        said.insert(text);
    }
}

/// Whether an error is a reader that went away (`eventpipe events … | head`).
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(|e| e.io_error_kind());
        io == Some(io::ErrorKind::BrokenPipe) || json == Some(io::ErrorKind::BrokenPipe)
    })
}
