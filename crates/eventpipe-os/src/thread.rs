//! Threads: ids, names, stack bounds, threads of our own, and one pointer per thread with an exit
//! hook.
//!
//! Invariants:
//! T1: the cell is one pointer per thread, null when the thread starts; only its own thread (and
//! signal handlers on it) touch it.
//! T2: the exit hook runs on the thread that armed it, after the destructors of Rust's and C++'s
//! thread-locals.

use crate::Error;
use crate::process::{TextBuffer, read_file};
use alloc::boxed::Box;
#[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

// ---- ids and names

#[cfg(feature = "std")]
std::thread_local! {
    // As `CELL`: constant, no destructor. 0: not asked yet.
    static OS_THREAD_ID: AtomicU64 = const { AtomicU64::new(0) };
}

/// 1: the child of a fork will forget what it inherited, so ids can be remembered.
static REMEMBER_IDS: AtomicU64 = AtomicU64::new(0);

/// The kernel's id of the calling thread (`gettid`). With the feature `std` and after [`cache_ids`]
/// it is asked for once per thread, else it is a system call. Async-signal-safe.
pub fn os_thread_id() -> u64 {
    let ask = || {
        rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs()
            .into()
    };
    #[cfg(feature = "std")]
    if REMEMBER_IDS.load(Ordering::Relaxed) != 0 {
        return OS_THREAD_ID.with(|id| match id.load(Ordering::Relaxed) {
            0 => {
                let new = ask();
                id.store(new, Ordering::Relaxed);
                new
            }
            known => known,
        });
    }
    ask()
}

/// Lets [`os_thread_id`] remember, by a hook that makes the child of a fork forget. Idempotent.
///
/// # Errors
/// No room for the hook; nothing is remembered then.
pub fn cache_ids() -> Result<(), Error> {
    if REMEMBER_IDS.load(Ordering::Relaxed) == 0 {
        crate::process::at_fork_child(|| {
            #[cfg(feature = "std")]
            OS_THREAD_ID.with(|id| id.store(0, Ordering::Relaxed));
        })?;
        REMEMBER_IDS.store(1, Ordering::Relaxed);
    }
    Ok(())
}

/// The name of a thread of this process, as bytes; `None` when it has ended.
pub fn name_of(os_thread_id: u64) -> Option<alloc::vec::Vec<u8>> {
    let mut path = TextBuffer::<48>::new();
    path.push(b"/proc/self/task/");
    path.push_decimal(os_thread_id);
    path.push(b"/comm");
    let mut text = [0u8; 64];
    let length = read_file(path.as_c_str()?, &mut text).ok()?;
    let name = text.get(..length)?;
    Some(name.strip_suffix(b"\n").unwrap_or(name).to_vec())
}

/// Sleeps at least `ns` nanoseconds.
pub fn sleep_ns(ns: u64) {
    let deadline = crate::clock::monotonic_ns().saturating_add(ns);
    loop {
        let left = deadline.saturating_sub(crate::clock::monotonic_ns());
        if left == 0 {
            return;
        }
        let request = rustix::thread::Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as _,
        };
        let _ = rustix::thread::nanosleep(&request);
    }
}

/// Lets another thread run.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

// ---- threads of our own

struct Start {
    /// As the kernel takes it: 15 bytes and a zero.
    name: [u8; 16],
    entry: Box<dyn FnOnce() + Send>,
}

extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `argument` is the box that `spawn` leaked for exactly this thread.
    let start = unsafe { Box::from_raw(argument.cast::<Start>()) };
    if let Ok(name) = CStr::from_bytes_until_nul(&start.name) {
        let _ = rustix::thread::set_name(name);
    }
    (start.entry)();
    ptr::null_mut()
}

/// Starts a detached thread with every signal blocked and a small stack (256 KiB). The name is cut
/// to 15 bytes. A panic of `entry` aborts the process.
///
/// # Errors
/// The system has no thread left.
pub fn spawn(name: &CStr, entry: Box<dyn FnOnce() + Send>) -> Result<(), Error> {
    let mut start = Start {
        name: [0; 16],
        entry,
    };
    for (place, byte) in start.name.iter_mut().take(15).zip(name.to_bytes()) {
        *place = *byte;
    }
    let argument = Box::into_raw(Box::new(start));
    let mut result = spawn_with_stack(argument.cast(), Some(256 * 1024));
    if matches!(
        result,
        Err(Error {
            number: libc::EINVAL,
            ..
        })
    ) {
        // A program with very large thread-local storage has no room in a small stack.
        result = spawn_with_stack(argument.cast(), None);
    }
    if result.is_err() {
        // SAFETY: no thread was started, so the box is still ours.
        drop(unsafe { Box::from_raw(argument) });
    }
    result
}

fn spawn_with_stack(argument: *mut c_void, stack: Option<usize>) -> Result<(), Error> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: a valid place for the attributes.
    check("pthread_attr_init", unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr())
    })?;
    let attributes = attributes.as_mut_ptr();
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED) };
    if let Some(stack) = stack {
        // SAFETY: initialised above.
        unsafe { libc::pthread_attr_setstacksize(attributes, stack) };
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a valid place for a set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` is initialised, `before` is a valid place.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: valid attributes; `run` takes over `argument` when, and only when, the call succeeds.
    let created = unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes, run, argument) };
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    // SAFETY: initialised above, not used afterwards.
    unsafe { libc::pthread_attr_destroy(attributes) };
    check("pthread_create", created)
}

fn check(call: &'static str, number: i32) -> Result<(), Error> {
    if number == 0 {
        Ok(())
    } else {
        Err(Error::new(call, number))
    }
}

// ---- one pointer per thread

#[cfg(feature = "std")]
std::thread_local! {
    // Constant and without destructor: usable at any time in a thread's life, also in signal
    // handlers and after the destructors of other thread-locals.
    static CELL: AtomicPtr<()> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// The calling thread's pointer; null until it was set. Async-signal-safe.
#[cfg(feature = "std")]
#[inline(always)]
pub fn cell() -> *mut () {
    CELL.with(|cell| cell.load(Ordering::Relaxed))
}

/// Sets the calling thread's pointer if it is still `expected`; else returns what it is. One step
/// even for a signal handler that comes in between.
///
/// # Errors
/// The pointer as a signal handler left it.
#[cfg(feature = "std")]
pub fn exchange_cell(expected: *mut (), new: *mut ()) -> Result<(), *mut ()> {
    CELL.with(|cell| cell.compare_exchange(expected, new, Ordering::Relaxed, Ordering::Relaxed))
        .map(|_| ())
}

/// Key + 1 of the thread-specific value; 0: not made yet.
#[cfg(not(any(feature = "std", target_arch = "x86_64")))]
static CELL_KEY: AtomicU64 = AtomicU64::new(0);
static EXIT_KEY: AtomicU64 = AtomicU64::new(0);
static EXIT_HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// What each thread has of ours: the cell, and the 16 bytes of [`note`]. Thread-local variables
/// need std or a nightly compiler, so this one is defined in assembly, with the model *initial
/// exec*: one load and one addition in a program, also in a library that is loaded with it, and in
/// one that is loaded later as long as the C library has 32 bytes of its reserve left.
#[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
mod block {
    use core::cell::UnsafeCell;
    use core::sync::atomic::AtomicPtr;

    #[repr(C, align(16))]
    pub(super) struct Block {
        pub(super) cell: AtomicPtr<()>,
        pub(super) note: UnsafeCell<[u8; 16]>,
    }

    core::arch::global_asm!(
        ".pushsection .tbss.eventpipe_thread, \"awT\", @nobits",
        ".p2align 4",
        ".hidden eventpipe_thread",
        ".globl eventpipe_thread",
        "eventpipe_thread:",
        ".zero {size}",
        ".size eventpipe_thread, {size}",
        ".popsection",
        size = const size_of::<Block>(),
    );

    /// The calling thread's block, all zero when the thread starts.
    #[inline(always)]
    pub(super) fn of_this_thread() -> *const Block {
        let address: *const Block;
        // SAFETY: reads the thread pointer and a word that the loader has filled; writes nothing
        // but the output. The address is the same for the life of the thread.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[0]",
                "add {0}, qword ptr [rip + eventpipe_thread@GOTTPOFF]",
                out(reg) address,
                options(pure, nomem, nostack),
            );
        }
        address
    }
}

/// The calling thread's pointer; null until it was set. Async-signal-safe.
#[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
#[inline(always)]
pub fn cell() -> *mut () {
    // SAFETY: the block lives as long as its thread, which is the calling one (T1); all zero is a
    // valid block.
    let block = unsafe { &*block::of_this_thread() };
    block.cell.load(Ordering::Relaxed)
}

/// Sets the calling thread's pointer if it is still `expected`; else returns what it is. One step
/// even for a signal handler that comes in between.
///
/// # Errors
/// The pointer as a signal handler left it.
#[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
pub fn exchange_cell(expected: *mut (), new: *mut ()) -> Result<(), *mut ()> {
    // SAFETY: as in `cell`.
    let block = unsafe { &*block::of_this_thread() };
    block
        .cell
        .compare_exchange(expected, new, Ordering::Relaxed, Ordering::Relaxed)
        .map(|_| ())
}

#[cfg(feature = "std")]
std::thread_local! {
    static NOTE: core::cell::Cell<[u8; 16]> = const { core::cell::Cell::new([0; 16]) };
}

/// 16 bytes that the calling thread keeps for its program, all zero when it starts (an activity
/// id). Without std they are kept on x86-64 only: elsewhere they stay zero.
#[inline]
pub fn note() -> [u8; 16] {
    #[cfg(feature = "std")]
    {
        NOTE.get()
    }
    #[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
    {
        // SAFETY: the block is the calling thread's own.
        let place = unsafe { &raw const (*block::of_this_thread()).note };
        // SAFETY: only this thread reads and writes it (T1), and no reference to it exists.
        unsafe { UnsafeCell::raw_get(place).read() }
    }
    #[cfg(not(any(feature = "std", target_arch = "x86_64")))]
    {
        [0; 16]
    }
}

/// Replaces the calling thread's [`note`] and gives the one before back.
pub fn set_note(note: [u8; 16]) -> [u8; 16] {
    #[cfg(feature = "std")]
    {
        NOTE.replace(note)
    }
    #[cfg(all(not(feature = "std"), target_arch = "x86_64"))]
    {
        // SAFETY: the block is the calling thread's own.
        let place = unsafe { &raw const (*block::of_this_thread()).note };
        // SAFETY: only this thread reads and writes it (T1), and no reference to it exists.
        unsafe { UnsafeCell::raw_get(place).replace(note) }
    }
    #[cfg(not(any(feature = "std", target_arch = "x86_64")))]
    {
        let _ = note;
        [0; 16]
    }
}

/// The calling thread's pointer; null until it was set.
#[cfg(not(any(feature = "std", target_arch = "x86_64")))]
#[inline]
pub fn cell() -> *mut () {
    match CELL_KEY.load(Ordering::Relaxed) {
        0 => ptr::null_mut(),
        // SAFETY: the key was made by `make_key` and is never deleted.
        key => unsafe { libc::pthread_getspecific((key - 1) as libc::pthread_key_t) }.cast(),
    }
}

/// Sets the calling thread's pointer if it is still `expected`; else returns what it is. A signal
/// handler in between two instructions of this can be overwritten: it loses its pointer, not its
/// event.
///
/// # Errors
/// The pointer as a signal handler left it, or null when the system has no key left.
#[cfg(not(any(feature = "std", target_arch = "x86_64")))]
pub fn exchange_cell(expected: *mut (), new: *mut ()) -> Result<(), *mut ()> {
    let key = make_key(&CELL_KEY, None).map_err(|_| ptr::null_mut())?;
    let now = cell();
    if now != expected {
        return Err(now);
    }
    // SAFETY: the key was made by `make_key`.
    match unsafe { libc::pthread_setspecific(key, new.cast_const().cast()) } {
        0 => Ok(()),
        _ => Err(ptr::null_mut()),
    }
}

fn make_key(
    place: &AtomicU64,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Result<libc::pthread_key_t, Error> {
    let known = place.load(Ordering::Acquire);
    if known != 0 {
        return Ok((known - 1) as libc::pthread_key_t);
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: a valid place for the key.
    check("pthread_key_create", unsafe {
        libc::pthread_key_create(&mut key, destructor)
    })?;
    match place.compare_exchange(0, u64::from(key) + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(key),
        Err(other) => {
            // SAFETY: our own key, which nobody has seen.
            unsafe { libc::pthread_key_delete(key) };
            Ok((other - 1) as libc::pthread_key_t)
        }
    }
}

extern "C" fn exiting(_: *mut c_void) {
    let hook = EXIT_HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: only `set_exit_hook` stores here, and it stores a `fn()`.
        let hook = unsafe { core::mem::transmute::<*mut (), fn()>(hook) };
        hook();
    }
}

/// Names the function that [`arm_exit_hook`] arms. One per process (the last one given); takes the
/// system's resources now, so that arming needs none.
///
/// # Errors
/// The process has no thread-specific key left: arming will do nothing.
pub fn set_exit_hook(hook: fn()) -> Result<(), Error> {
    EXIT_HOOK.store(hook as *mut (), Ordering::Release);
    make_key(&EXIT_KEY, Some(exiting))?;
    #[cfg(not(any(feature = "std", target_arch = "x86_64")))]
    make_key(&CELL_KEY, None)?;
    Ok(())
}

/// Has the exit hook run when the calling thread ends, after the destructors of its thread-locals
/// (T2). Armed again from within the hook or later it runs again, up to four times in all; `false`
/// when it cannot be armed. Not for a thread that ends the process.
pub fn arm_exit_hook() -> bool {
    match EXIT_KEY.load(Ordering::Acquire) {
        0 => false,
        // SAFETY: the key was made by `make_key`; the value is only a mark and never dereferenced.
        key => unsafe {
            libc::pthread_setspecific((key - 1) as libc::pthread_key_t, ptr::without_provenance(1))
                == 0
        },
    }
}

// ---- stack bounds

/// The calling thread's own stack, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBounds {
    /// The lowest address of the mapping (the main thread's grows downwards).
    pub low: usize,
    /// Above every frame.
    pub high: usize,
}

impl StackBounds {
    pub(crate) fn contains(self, address: usize) -> bool {
        self.low <= address && address < self.high
    }
}

/// The bounds of the calling thread's own stack, if `address` lies on it: nobody unmaps that while the
/// thread runs. `None` on any other stack (a fibre's, a signal handler's), of which nobody can say how
/// long it stays, nor what has been mapped beside it. Remembered per thread; the first time some system
/// calls on Linux 6.11 and later, else a walk through `/proc/self/maps`. Allocates nothing;
/// async-signal-safe.
#[inline]
pub fn stack_bounds(address: usize) -> Option<StackBounds> {
    match bounds_cache::load() {
        known if known.contains(address) => Some(known),
        // The first time; or the main thread's stack has grown, or this thread has changed to
        // another stack.
        known => find_stack_bounds(known, address),
    }
}

#[cold]
#[inline(never)]
fn find_stack_bounds(known: StackBounds, address: usize) -> Option<StackBounds> {
    if known.high != 0 && !is_first() {
        return None;
    }
    let bounds = own_stack()?;
    bounds_cache::store(bounds);
    bounds.contains(address).then_some(bounds)
}

/// The bounds of the calling thread's own stack, asked anew each time. Async-signal-safe.
pub(crate) fn own_stack() -> Option<StackBounds> {
    let high = if is_first() {
        // Random bytes that the kernel puts above the first thread's stack.
        // SAFETY: no preconditions.
        unsafe { libc::getauxval(libc::AT_RANDOM) as usize }
    } else {
        // A thread's descriptor lies at the top of its stack; a neighbour may follow it.
        // SAFETY: no preconditions.
        unsafe { libc::pthread_self() as usize }
    };
    let low = crate::process::mapping_of(high)?.low;
    Some(StackBounds { low, high })
}

fn is_first() -> bool {
    os_thread_id() == u64::from(crate::process::pid())
}

#[cfg(feature = "std")]
mod bounds_cache {
    use super::StackBounds;
    use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

    std::thread_local! {
        static BOUNDS: [AtomicUsize; 2] = const { [AtomicUsize::new(0), AtomicUsize::new(0)] };
    }

    #[inline(always)]
    pub(super) fn load() -> StackBounds {
        BOUNDS.with(|[low, high]| StackBounds {
            low: low.load(Ordering::Relaxed),
            high: high.load(Ordering::Relaxed),
        })
    }

    pub(super) fn store(bounds: StackBounds) {
        BOUNDS.with(|[low, high]| {
            // A signal handler in between finds bounds that contain nothing.
            high.store(0, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            low.store(bounds.low, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            high.store(bounds.high, Ordering::Relaxed);
        });
    }
}

#[cfg(not(feature = "std"))]
mod bounds_cache {
    use super::{StackBounds, make_key};
    use core::ptr;
    use core::sync::atomic::{AtomicU64, Ordering};

    static LOW: AtomicU64 = AtomicU64::new(0);
    static HIGH: AtomicU64 = AtomicU64::new(0);

    fn get(key: &AtomicU64) -> usize {
        match key.load(Ordering::Acquire) {
            0 => 0,
            // SAFETY: a key of `make_key`; the value is a number in the form of a pointer.
            key => unsafe { libc::pthread_getspecific((key - 1) as libc::pthread_key_t) }.addr(),
        }
    }

    fn set(key: &AtomicU64, value: usize) {
        if let Ok(key) = make_key(key, None) {
            // SAFETY: a key of `make_key`; the value is never dereferenced.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance(value)) };
        }
    }

    pub(super) fn load() -> StackBounds {
        StackBounds {
            low: get(&LOW),
            high: get(&HIGH),
        }
    }

    pub(super) fn store(bounds: StackBounds) {
        // A signal handler in between finds bounds that contain nothing.
        set(&HIGH, 0);
        set(&LOW, bounds.low);
        set(&HIGH, bounds.high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Signal;
    use std::sync::Arc;

    #[test]
    fn a_thread_of_ours_runs_under_its_name_with_signals_blocked() {
        let done = Arc::new((Signal::new(), std::sync::Mutex::new(None)));
        let inner = done.clone();
        spawn(
            c"ep-test",
            Box::new(move || {
                let mut set = MaybeUninit::<libc::sigset_t>::uninit();
                // SAFETY: asks for the mask only.
                unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr()) };
                // SAFETY: filled by the call above.
                let blocked = unsafe { libc::sigismember(set.as_ptr(), libc::SIGTERM) };
                sleep_ns(5_000_000);
                *inner.1.lock().unwrap() = Some((name_of(os_thread_id()), blocked));
                inner.0.set();
            }),
        )
        .unwrap();
        assert!(done.0.wait(None));
        let seen = done.1.lock().unwrap().take().unwrap();
        assert_eq!(seen, (Some(b"ep-test".to_vec()), 1));
    }

    #[test]
    fn the_stack_of_every_thread_has_bounds() {
        let check = || {
            let local = 0u8;
            let address = (&raw const local).addr();
            let bounds = stack_bounds(address).unwrap();
            assert!(
                bounds.low <= address && address < bounds.high,
                "{bounds:?} {address:x}"
            );
            bounds
        };
        let here = check();
        let there = std::thread::spawn(check).join().unwrap();
        assert_ne!(here, there);
    }

    #[test]
    fn the_exit_hook_runs_after_thread_locals_are_destroyed() {
        static RAN: AtomicU64 = AtomicU64::new(0);
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                assert_eq!(RAN.load(Ordering::SeqCst), 0);
                assert!(arm_exit_hook());
            }
        }
        std::thread_local!(static LAST: Last = const { Last });
        set_exit_hook(|| {
            RAN.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        std::thread::spawn(|| {
            assert!(arm_exit_hook());
            LAST.with(|_| ());
        })
        .join()
        .unwrap();
        assert_eq!(RAN.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_note_is_per_thread() {
        assert_eq!(set_note([7; 16]), [0; 16]);
        std::thread::spawn(|| assert_eq!(note(), [0; 16]))
            .join()
            .unwrap();
        assert_eq!(note(), [7; 16]);
        assert_eq!(set_note([0; 16]), [7; 16]);
    }

    #[test]
    fn the_cell_is_per_thread_and_exchanged_in_one_step() {
        assert!(cell().is_null());
        let mark = ptr::without_provenance_mut(64);
        exchange_cell(ptr::null_mut(), mark).unwrap();
        assert_eq!(exchange_cell(ptr::null_mut(), mark), Err(mark));
        assert_eq!(cell(), mark);
        std::thread::spawn(|| assert!(cell().is_null()))
            .join()
            .unwrap();
        exchange_cell(mark, ptr::null_mut()).unwrap();
    }
}
