//! Writing to standard output and standard error without ever panicking.
//!
//! Results go to standard output through [`Out`], whose errors are returned: a closed pipe ends the
//! tool quietly (see `main`). Everything said *about* the work goes to standard error, where a
//! failure to write is nobody's concern.

use std::fmt;
use std::io::{self, BufWriter, Write};

/// Buffered standard output.
pub(crate) type Out = BufWriter<io::StdoutLock<'static>>;

/// Standard output, locked and buffered; the caller flushes at the end.
pub(crate) fn out() -> Out {
    BufWriter::with_capacity(64 * 1024, io::stdout().lock())
}

/// Says something on standard error.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
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
