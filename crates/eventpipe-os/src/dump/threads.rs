//! Stops the threads of another process, and lets them go.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};

use super::buffer::Buffer;
use crate::Error;
use crate::process::TextBuffer;
use crate::thread::sleep_ns;

const POLL_NS: u64 = 200_000;
/// A thread in an uninterruptible call does not stop; it is left out after three seconds.
const POLLS: u32 = 15_000;

#[derive(Clone, Copy)]
pub(super) struct Thread {
    pub(super) id: libc::pid_t,
    /// It runs again with this signal, whose delivery the stop has caught.
    signal: libc::c_int,
    /// It has come to a halt; else its registers are not known.
    pub(super) is_stopped: bool,
}

fn ptrace(
    request: libc::c_int,
    thread: libc::pid_t,
    address: usize,
    data: *mut c_void,
) -> Result<(), Error> {
    // SAFETY: the callers pass for `data` a number, or a structure of the kind that the request
    // writes to.
    let result = unsafe { libc::ptrace(request as _, thread, address as *mut c_void, data) };
    match result {
        -1 => Err(Error::new("ptrace", super::last_error())),
        _ => Ok(()),
    }
}

/// Stops all threads of the process, also those that are started meanwhile. The first of them comes
/// first.
pub(super) fn stop_all(target: u32, threads: &mut Buffer<Thread>) -> Result<(), Error> {
    let mut path = TextBuffer::<64>::new();
    path.push(b"/proc/");
    path.push_decimal(u64::from(target));
    path.push(b"/task");
    let failed = |errno: rustix::io::Errno| Error::new("open", errno.raw_os_error());
    loop {
        let known = threads.as_slice().len();
        let path = path
            .as_c_str()
            .ok_or(Error::new("open", libc::ENAMETOOLONG))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(folder, &mut space);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name = core::str::from_utf8(entry.file_name().to_bytes());
            let Some(id) = name.ok().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if threads.as_slice().iter().all(|thread| thread.id != id) {
                stop(id, threads)?;
            }
        }
        // A round without a new one: all that could start others stand still.
        if threads.as_slice().len() == known {
            return Ok(());
        }
    }
}

fn stop(id: libc::pid_t, threads: &mut Buffer<Thread>) -> Result<(), Error> {
    const NOTHING: *mut c_void = core::ptr::null_mut();
    let mut thread = Thread {
        id,
        signal: 0,
        is_stopped: false,
    };
    match ptrace(libc::PTRACE_SEIZE as libc::c_int, id, 0, NOTHING) {
        // It is ending, or has ended and waits for its threads.
        Err(error)
            if error.number == libc::ESRCH || (error.number == libc::EPERM && has_ended(id)) =>
        {
            return threads.push(thread);
        }
        other => other?,
    }
    let _ = ptrace(libc::PTRACE_INTERRUPT as libc::c_int, id, 0, NOTHING);
    for _ in 0..POLLS {
        let mut status = 0;
        // SAFETY: the status is a place of ours.
        let changed = unsafe { libc::waitpid(id, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if changed == id {
            thread.is_stopped = libc::WIFSTOPPED(status);
            // A stop that is no event is a signal on its way to the thread.
            if thread.is_stopped && status >> 16 == 0 {
                thread.signal = libc::WSTOPSIG(status);
            }
            break;
        }
        if changed < 0 {
            break;
        }
        sleep_ns(POLL_NS);
    }
    threads.push(thread)
}

/// State Z or X of `/proc/ID/stat`, behind the name in parentheses.
fn has_ended(id: libc::pid_t) -> bool {
    let mut path = TextBuffer::<64>::new();
    path.push(b"/proc/");
    path.push_decimal(u64::from(id.unsigned_abs()));
    path.push(b"/stat");
    let mut text = [0; 512];
    let length = path
        .as_c_str()
        .and_then(|path| crate::process::read_file(path, &mut text).ok());
    let text = text.get(..length.unwrap_or(0)).unwrap_or_default();
    let name_end = text.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    matches!(text.get(name_end + 2), None | Some(b'Z' | b'X'))
}

pub(super) fn resume_all(threads: &Buffer<Thread>) {
    for thread in threads.as_slice() {
        if thread.is_stopped {
            let signal = core::ptr::without_provenance_mut(thread.signal.unsigned_abs() as usize);
            let _ = ptrace(libc::PTRACE_DETACH as libc::c_int, thread.id, 0, signal);
        }
    }
}

/// A set of registers, as the core file's note of that type has it.
pub(super) fn registers(thread: Thread, kind: u32, out: &mut [u8]) -> Option<&[u8]> {
    let mut place = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let data = (&raw mut place).cast();
    ptrace(
        libc::PTRACE_GETREGSET as libc::c_int,
        thread.id,
        kind as usize,
        data,
    )
    .ok()?;
    out.get(..place.iov_len)
}
