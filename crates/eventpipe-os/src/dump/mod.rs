//! A core file of this process, written while it stands still, by a process of its own.
//!
//! A copy of the process is made that runs nothing but the module `writer`: no locks, no memory of the heap,
//! no exit hooks, only system calls. So a program whose heap or locks are broken can still be
//! dumped. The copy stops all threads of the original by `ptrace`, writes their registers and the
//! memory, and lets them go. If the copy dies, the kernel lets them go. The original allows the
//! copy to do so (`PR_SET_PTRACER`), which matters where Yama limits `ptrace`.
//!
//! The file has another name until it is complete. Nobody but the owner may read it. Zero pages are
//! holes in it.

mod buffer;
mod core_file;
mod maps;
mod threads;
mod writer;

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::{Error, process};

/// How much memory a core file holds. Registers and names of all threads and the list of modules
/// are always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Stacks, the variables of modules, and anonymous memory in pieces of up to 256 KiB.
    Stacks,
    /// And all private memory that is not as in the file that it was mapped from.
    Heap,
    /// All readable memory, but for that of devices.
    Full,
}

fn error(call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::new(call, errno.raw_os_error())
}

/// Writes a core file of this process, with mode 0600, in place of what has that name. The process
/// stands still meanwhile. Not for two threads at once.
///
/// # Errors
/// Which call failed: `open`, `fork`, `ptrace` (refused by the system: a process that is not
/// dumpable, or a container's filter), `read`, `write`, `rename`; the reason is in the number.
pub fn write_core(path: &[u8], content: Content) -> Result<(), Error> {
    let invalid = |_| Error::new("open", libc::EINVAL);
    let mut unfinished = Vec::from(path);
    unfinished.extend_from_slice(b".unfinished");
    let path = CString::new(path).map_err(invalid)?;
    let unfinished = CString::new(unfinished).map_err(invalid)?;
    let _ = rustix::fs::unlink(&*unfinished);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, &*unfinished, flags, Mode::RUSR | Mode::WUSR)
        .map_err(error("open"))?;
    let result = write_into(&file, content)
        .and_then(|()| rustix::fs::rename(&*unfinished, &*path).map_err(error("rename")));
    if result.is_err() {
        let _ = rustix::fs::unlink(&*unfinished);
    }
    result
}

fn write_into(file: &OwnedFd, content: Content) -> Result<(), Error> {
    let (begin, may_begin) = pipe_with(PipeFlags::CLOEXEC).map_err(error("pipe"))?;
    let (results, result) =
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(error("pipe"))?;
    let target = process::pid();
    let signals = block_signals();
    // SAFETY: a copy of the process with this thread only, without the C library's fork handlers.
    // It runs `writer::run`, which makes system calls only, takes no lock, touches no heap, and
    // never returns. The exit signal 0 keeps it from handlers of SIGCHLD and from calls of `wait`
    // elsewhere in the program.
    let copy = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if copy == 0 {
        drop(may_begin);
        let mut one = [0];
        if rustix::io::read(&begin, &mut one) == Ok(1) {
            let message = writer::message(writer::run(target, file, content));
            let _ = rustix::io::write(&result, &message);
        }
        // SAFETY: ends the copy at once, without hooks.
        unsafe { libc::_exit(0) };
    }
    let number = last_error();
    restore_signals(&signals);
    let Ok(copy) = libc::pid_t::try_from(copy) else {
        return Err(Error::new("fork", libc::EAGAIN));
    };
    if copy < 0 {
        return Err(Error::new("fork", number));
    }
    // SAFETY: plain numbers. Where Yama is missing the call fails and is not needed.
    unsafe {
        libc::prctl(
            libc::PR_SET_PTRACER,
            libc::c_ulong::from(copy.unsigned_abs()),
            0,
            0,
            0,
        )
    };
    let _ = rustix::io::write(&may_begin, &[1]);
    wait(copy);
    // SAFETY: as above; nobody is allowed any more.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, 0, 0, 0, 0) };
    let mut message = [0; writer::MESSAGE];
    match rustix::io::read(&results, &mut message) {
        Ok(writer::MESSAGE) => writer::result(message),
        // It was killed.
        _ => Err(Error::new("fork", libc::ECHILD)),
    }
}

fn last_error() -> i32 {
    // SAFETY: the C library's variable of this thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it lives as long as the thread.
    unsafe { *place }
}

fn wait(copy: libc::pid_t) {
    loop {
        // SAFETY: no status is asked for; the copy is a child of this process.
        let ended = unsafe { libc::waitpid(copy, core::ptr::null_mut(), libc::__WALL) };
        if ended == copy || last_error() != libc::EINTR {
            return;
        }
    }
}

/// The copy must not run the program's signal handlers.
fn block_signals() -> MaybeUninit<libc::sigset_t> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::zeroed();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set has been filled, the second is written to.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    before
}

fn restore_signals(before: &MaybeUninit<libc::sigset_t>) {
    // SAFETY: a set that `block_signals` has made; zeroed is the empty set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
}
