//! Enter on the terminal, which ends a recording as the first Ctrl+C does.
//!
//! Nothing is read that was meant for somebody else: not while the tool is a job in the background, which the terminal
//! would stop for it; not from a terminal that is not in line mode, because a pager or an editor has it then; and not
//! what was typed ahead, which is for the shell. The terminal's settings are left as they are.

use crate::terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often a terminal that has others' input is looked at again.
const LOOK: Duration = Duration::from_millis(200);

/// As many bytes as a line of a terminal has at most.
const LINE: usize = 4096;

/// Whether Enter ends the recording at the moment.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// Whether it will not any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Calls `on_enter` when Enter is pressed on standard input, if that is a terminal.
pub(crate) fn watch(on_enter: impl FnOnce() + Send + 'static) {
    let input = io::stdin();
    // A terminal that does not control this process has no foreground that could be asked for.
    if !input.is_terminal() || tcgetpgrp(&input).is_err() {
        return;
    }
    IS_AWAITED.store(is_ours() && is_empty(), Ordering::Relaxed);
    let watching = thread::Builder::new().name("enter".into()).spawn(|| {
        let is_pressed = await_line();
        IS_AWAITED.store(false, Ordering::Relaxed);
        if is_pressed {
            terminal::line_was_entered();
            on_enter();
        }
    });
    if watching.is_err() {
        IS_AWAITED.store(false, Ordering::Relaxed);
    }
}

/// Reads nothing any more: the recording ends, and what is typed now is for the shell.
pub(crate) fn ignore() {
    IS_OVER.store(true, Ordering::Relaxed);
    IS_AWAITED.store(false, Ordering::Relaxed);
}

/// What ends a recording now, for messages.
pub(crate) fn keys() -> &'static str {
    if IS_AWAITED.load(Ordering::Relaxed) && is_ours() {
        "Enter or Ctrl+C"
    } else {
        "Ctrl+C"
    }
}

/// Waits for a line that is typed from now on; `false` if there will be none.
fn await_line() -> bool {
    let input = io::stdin();
    while !IS_OVER.load(Ordering::Relaxed) {
        let is_awaited = is_ours() && (IS_AWAITED.load(Ordering::Relaxed) || is_empty());
        IS_AWAITED.store(is_awaited, Ordering::Relaxed);
        if !is_awaited {
            thread::sleep(LOOK);
            continue;
        }
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        let happened = polled[0].revents();
        if happened.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return false;
        }
        // Others may have come to the foreground meanwhile.
        if !happened.contains(PollFlags::IN) || !is_ours() {
            continue;
        }
        match read(&input, &mut [0; LINE]) {
            // Ctrl+D says that no more will be typed, and means nothing here.
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// Whether what is typed goes to this process, line by line.
fn is_ours() -> bool {
    let input = io::stdin();
    !IS_OVER.load(Ordering::Relaxed)
        && tcgetpgrp(&input).is_ok_and(|foreground| foreground == getpgrp())
        && tcgetattr(&input).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
}

/// Whether nothing waits to be read.
fn is_empty() -> bool {
    ioctl_fionread(io::stdin()).is_ok_and(|bytes| bytes == 0)
}
