//! Whether the calling code runs in a signal handler: for writers that could wait, but not there.
//!
//! A handler may have interrupted anything, a thread that holds the allocator's lock for instance; whoever waits in it for
//! another thread may wait for ever. Nobody tells a function that it runs in a handler, so this looks for traces of one:
//!
//! 1. The thread runs on its alternate signal stack.
//! 2. A signal is blocked (or need not be, by `SA_NODEFER`) that has a handler, *and* the stack above holds the return
//!    address that the kernel leaves below a handler's frame. Without such a signal no handler runs, so a thread that blocks
//!    nothing is told apart by a few system calls, and the stack is not looked at.
//!
//! Not noticed: a handler that the kernel has reset on its way in (`SA_RESETHAND`). Taken for a handler although it is none:
//! a thread that blocks a signal that has a handler, and on whose stack an old handler's frame has not been overwritten, or
//! that runs on a stack of the program's own making. In doubt the answer is *yes*.

use core::mem::MaybeUninit;
use core::ptr;

/// As the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Whether this code runs, as far as can be told, in a signal handler (see the module). A few
/// microseconds; allocates nothing; async-signal-safe.
pub fn in_handler() -> bool {
    on_alternate_stack() || handlers_that_may_run().any(left_by_kernel)
}

fn on_alternate_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: asks only; a valid place for the answer.
    let asked = unsafe { libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value, and the call fills it.
    asked == 0 && unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}

/// The return addresses of the handlers that may be running on this thread; 0: not known.
fn handlers_that_may_run() -> impl Iterator<Item = usize> {
    const LAST: i32 = 64;
    let blocked = blocked_signals();
    (1..=LAST).filter_map(move |signal| {
        let action = action(signal)?;
        let ignored = action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN;
        let may_run =
            blocked >> (signal - 1) & 1 == 1 || action.flags & libc::SA_NODEFER as usize != 0;
        (!ignored && may_run).then_some(action.restorer)
    })
}

fn blocked_signals() -> u64 {
    let mut mask = 0_u64;
    let place: *mut u64 = &mut mask;
    // SAFETY: asks only; the place has the eight bytes that are named.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            ptr::null::<u64>(),
            place,
            size_of::<u64>(),
        )
    };
    mask
}

/// By system call, because the C library hides the return address.
fn action(signal: i32) -> Option<Action> {
    let mut action = Action::default();
    let place: *mut Action = &mut action;
    // SAFETY: asks only; the place is laid out as the kernel's structure.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<Action>(),
            place,
            size_of::<u64>(),
        )
    };
    (asked == 0).then_some(action)
}

/// Whether the stack above the caller holds a frame that returns through the kernel; also if it
/// cannot be looked at, because it is not the thread's own.
#[cfg(target_arch = "x86_64")]
fn left_by_kernel(restorer: usize) -> bool {
    let from: usize;
    // SAFETY: reads a register. (The address of a variable need not be on this stack: sanitizers
    // put variables elsewhere.)
    unsafe {
        core::arch::asm!("mov {0}, rsp", out(reg) from, options(nomem, nostack, preserves_flags));
    }
    let own = crate::thread::own_stack().filter(|bounds| bounds.contains(from));
    let Some(crate::thread::StackBounds { high: end, .. }) = own else {
        return true;
    };
    (from & !7..end.saturating_sub(FRAME))
        .step_by(8)
        .any(|at| word(at) == restorer && is_frame(at, end))
}

/// Bytes of a frame that are looked at.
#[cfg(target_arch = "x86_64")]
const FRAME: usize = 200;

/// Whether a handler's frame begins here: the address alone may stand anywhere, in variables of
/// this module to begin with. Behind it comes a `ucontext`: flags, a link that is always null, the
/// signal stack, and registers, among them the interrupted code's stack pointer, which is above,
/// and its code segment, which is that of all programs.
#[cfg(target_arch = "x86_64")]
fn is_frame(at: usize, end: usize) -> bool {
    const USER_CODE: usize = 0x33;
    word(at + 8) < 16
        && word(at + 16) == 0
        && (at..=end).contains(&word(at + 168))
        && word(at + 192) & 0xFFFF == USER_CODE
}

/// A word of the stack, whoever's it is. Not an ordinary load: the compiler's own checks would have something against it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn word(at: usize) -> usize {
    let word;
    // SAFETY: between the stack pointer and the end of the thread's stack; a read changes nothing.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr [{1}]", out(reg) word, in(reg) at, options(readonly, nostack, preserves_flags));
    }
    word
}

/// The kernel's return address is not on the stack here, or nobody has looked.
#[cfg(not(target_arch = "x86_64"))]
fn left_by_kernel(_: usize) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: i32) {
        SEEN.store(1 + u32::from(in_handler()), Ordering::SeqCst);
    }

    fn install(signal: i32, flags: i32) {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeroes are a valid value.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        // SAFETY: a valid action.
        let result = unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
        assert_eq!(result, 0);
    }

    fn raise(signal: i32) -> bool {
        SEEN.store(0, Ordering::SeqCst);
        // SAFETY: a signal with a handler.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
        SEEN.load(Ordering::SeqCst) == 2
    }

    fn block(signal: i32) {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a valid place.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        // SAFETY: filled above.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) };
    }

    // One test: the handlers are the process's.
    #[test]
    fn a_handler_is_told_from_ordinary_code() {
        std::thread::spawn(|| {
            assert!(!in_handler(), "nothing is blocked");
            // A thread that blocks a signal without a handler, as for sigwait.
            block(libc::SIGHUP);
            assert!(!in_handler(), "blocked, but without a handler");
            install(libc::SIGUSR1, 0);
            assert!(!in_handler(), "a handler that is not blocked");
            assert!(raise(libc::SIGUSR1), "in an ordinary handler");
            assert!(!in_handler(), "and out of it");
            install(libc::SIGUSR2, libc::SA_NODEFER);
            assert!(raise(libc::SIGUSR2), "in one that does not block itself");
            install(libc::SIGALRM, libc::SA_ONSTACK);
            let mut stack = std::vec![0_u8; 65_536];
            let alternate = libc::stack_t {
                ss_sp: stack.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: stack.len(),
            };
            // SAFETY: the memory outlives the thread's use of it: it is taken back below.
            unsafe { libc::sigaltstack(&alternate, ptr::null_mut()) };
            assert!(raise(libc::SIGALRM), "on the alternate stack");
            let none = libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            // SAFETY: takes the stack away again.
            unsafe { libc::sigaltstack(&none, ptr::null_mut()) };
            drop(stack);
        })
        .join()
        .unwrap();
        // A thread that blocks a signal with a handler, on a stack on which none ever ran.
        std::thread::spawn(|| {
            block(libc::SIGUSR1);
            #[cfg(target_arch = "x86_64")]
            {
                install(libc::SIGUSR2, 0);
                assert!(!in_handler(), "blocked, with a handler that does not run");
            }
        })
        .join()
        .unwrap();
    }
}
