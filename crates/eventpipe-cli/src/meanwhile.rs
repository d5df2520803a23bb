//! What is said on the terminal while something takes its time: a long trace that is read, a dump that a process writes.

use crate::human;
use crate::table;
use crate::terminal;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What takes less time needs no words.
const FIRST: Duration = Duration::from_secs(1);
/// How often the line is drawn anew after that.
const INTERVAL: Duration = Duration::from_millis(200);
/// Columns left free for what a terminal echoes.
const ROOM: usize = 4;

/// Bytes of traces that were read so far, and those of all files that were opened.
static READ: AtomicU64 = AtomicU64::new(0);
static TO_READ: AtomicU64 = AtomicU64::new(0);

/// So many bytes of a trace were read.
pub(crate) fn was_read(bytes: u64) {
    READ.fetch_add(bytes, Ordering::Relaxed);
}

/// So many bytes are going to be read.
pub(crate) fn will_be_read(bytes: u64) {
    TO_READ.fetch_add(bytes, Ordering::Relaxed);
}

/// A line on the terminal for as long as this lives; it is gone when this is.
#[derive(Debug)]
pub(crate) struct Meanwhile {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Meanwhile {
    /// Says how much of the traces is read, where nothing else is shown before the end.
    pub(crate) fn reading() -> Meanwhile {
        if is_piped() {
            return Meanwhile::silent();
        }
        Meanwhile::saying(|| {
            let (read, of) = (
                READ.load(Ordering::Relaxed),
                TO_READ.load(Ordering::Relaxed),
            );
            match of {
                0 => format!("{} read", human::bytes(read)),
                of => format!(
                    "{} of {} read",
                    human::bytes(read.min(of)),
                    human::bytes(of)
                ),
            }
        })
    }

    /// Draws what `text` gives. Without a terminal, and without a thread to do it, nothing is said.
    pub(crate) fn saying(text: impl Fn() -> String + Send + 'static) -> Meanwhile {
        if !terminal::can_draw() {
            return Meanwhile::silent();
        }
        let (ended, end) = channel::<()>();
        let thread = thread::Builder::new()
            .name("meanwhile".into())
            .spawn(move || {
                let mut wait = FIRST;
                while end.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    wait = INTERVAL;
                    if terminal::is_in_foreground() {
                        let width = table::stderr_columns().unwrap_or(usize::MAX);
                        terminal::line(&table::cut(
                            &text(),
                            width.saturating_sub(ROOM),
                            table::Cut::End,
                        ));
                    } else {
                        terminal::leave_line();
                    }
                }
            });
        Meanwhile {
            ended: Some(ended),
            thread: thread.ok(),
        }
    }

    /// Nothing to say.
    pub(crate) fn silent() -> Meanwhile {
        Meanwhile {
            ended: None,
            thread: None,
        }
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
            terminal::line_is_over();
        }
    }
}

/// Whether standard output goes to another program, which may have the terminal to itself: a pager.
fn is_piped() -> bool {
    let Ok(output) = io::stdout().as_fd().try_clone_to_owned() else {
        return false;
    };
    let metadata = File::from(output).metadata();
    metadata.is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}
