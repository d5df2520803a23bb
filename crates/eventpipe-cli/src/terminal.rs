//! Writing to standard output and standard error without ever panicking.
//!
//! Results go to standard output through [`Out`], whose errors are returned: a closed pipe ends the
//! tool quietly (see `main`). Everything said *about* the work goes to standard error, where a
//! failure to write is nobody's concern.

use crate::exit_code::{ExitCode, Failure};
use crate::table;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buffered standard output.
pub(crate) type Out = BufWriter<Screen<io::StdoutLock<'static>>>;

/// Standard output, locked and buffered; the caller flushes at the end.
pub(crate) fn out() -> Out {
    let output = io::stdout().lock();
    let is_terminal = output.is_terminal();
    BufWriter::with_capacity(64 * 1024, Screen::new(output, is_terminal))
}

/// Where results go. Programs get every byte; on a terminal what controls it, or the direction of writing, gives way to
/// other characters, because JSON and CSV hold a trace's text as it is.
#[derive(Debug)]
pub(crate) struct Screen<W> {
    output: W,
    is_terminal: bool,
    /// The beginning of a character whose end has not come yet.
    begun: Vec<u8>,
    shown: String,
}

impl<W> Screen<W> {
    fn new(output: W, is_terminal: bool) -> Screen<W> {
        Screen {
            output,
            is_terminal,
            begun: Vec::new(),
            shown: String::new(),
        }
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.output.write(bytes).map_err(cannot_write);
        }
        let mut text = std::mem::take(&mut self.begun);
        text.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&text[whole(&text)..])
            && error.error_len().is_none()
        {
            self.begun = text.split_off(whole(&text));
        }
        self.shown.clear();
        self.shown
            .extend(String::from_utf8_lossy(&text).chars().map(|c| match c {
                '\n' | '\t' => c,
                // The lines of CSV end in both.
                '\r' => ' ',
                '\0'..' ' | '\x7f' => '?',
                c if table::is_control(c) => '\u{b7}',
                c => c,
            }));
        self.output
            .write_all(self.shown.as_bytes())
            .map_err(cannot_write)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush().map_err(cannot_write)
    }
}

/// How much of a text is whole characters, if its last one is not.
fn whole(text: &[u8]) -> usize {
    let mut tail = text.iter().rev().take(3);
    let back = tail.position(|byte| *byte >= 0xc0);
    back.map_or(text.len(), |back| text.len() - back - 1)
}

/// An error of standard output that says so.
pub(crate) fn cannot_write(error: io::Error) -> io::Error {
    let text = format!("cannot write standard output: {error}");
    io::Error::new(error.kind(), Failure::new(ExitCode::Output, text))
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
    // Names of processes are among what is said.
    let text = text.to_string();
    let lines: Vec<String> = text.lines().map(table::printable).collect();
    let text = table::wrapped(&lines.join("\n"), table::stderr_columns(), 2);
    let _ = error.write_all(format!("{away}{text}\n").as_bytes());
}

/// Draws a line in place of the one before; an empty one takes it away. For terminals only.
pub(crate) fn line(text: &str) {
    let mut error = io::stderr().lock();
    HAS_LINE.store(!text.is_empty(), Ordering::Relaxed);
    // In one piece: a terminal may echo something at any time.
    let _ = error.write_all(format!("{AWAY}{text}").as_bytes());
}

/// Takes the line away, so that other text can follow.
pub(crate) fn line_is_over() {
    if HAS_LINE.load(Ordering::Relaxed) && is_in_foreground() {
        line("");
    }
}

/// Whether lines can be drawn over and over on standard error.
pub(crate) fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

/// Whether standard error is this process's to draw on: a job in the background shares the terminal with what its user
/// types meanwhile. One that does not control this process has no foreground that could be asked for.
pub(crate) fn is_in_foreground() -> bool {
    tcgetpgrp(io::stderr()).map_or(true, |foreground| foreground == getpgrp())
}

/// Leaves a line where it is: the terminal is somebody else's now.
pub(crate) fn leave_line() {
    HAS_LINE.store(false, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_control_characters_and_a_program_every_byte() {
        let text =
            "{\"a\":\"\u{9b}2J\u{7f}é\u{300}ł\u{202e}\u{61c}\u{2066}𝄞…\"}\tb\x1b[31m\x07\r\n"
                .as_bytes();
        let shown = |is_terminal, piece| {
            let mut screen = Screen::new(Vec::new(), is_terminal);
            for part in text.chunks(piece) {
                screen.write_all(part).unwrap();
            }
            String::from_utf8(screen.output).unwrap()
        };
        for piece in [1, 2, 3, 100] {
            assert_eq!(shown(false, piece).as_bytes(), text);
            assert_eq!(
                shown(true, piece),
                "{\"a\":\"\u{b7}2J?é\u{300}ł···𝄞…\"}\tb?[31m? \n"
            );
        }
    }
}
