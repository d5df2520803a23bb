//! The sample profiler: at an interval, what each managed thread is doing.
//!
//! As in the runtime's own engine it samples time, not processors: a thread of ours stops all managed threads, walks the stack of each
//! with the runtime's own walker, writes an event for it, and lets them go on. While they are stopped the thread takes no lock that a
//! managed thread may hold: it writes into the ring, which takes none.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use eventpipe::{Definition, Event, EventOptions, Level, Provider};
use eventpipe_os::sync::Signal;
use eventpipe_os::{clock, process, text, thread};

use crate::event_source::{EventData, Pieces};

static PROVIDER: Provider = Provider::new("Microsoft-DotNETCore-SampleProfiler", &[&SAMPLE]);
static SAMPLE: Event = Event::new(
    &PROVIDER,
    Definition::new("").level(Level::Informational).stack(false),
);

/// Frames that are taken of a stack.
const MAX_FRAMES: usize = 100;

/// The sampled thread was in native code, or it is not known.
const EXTERNAL: u32 = 1;

/// The runtime is ready to be stopped.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// A session asks for samples.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The sampling thread exists.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Something of the above changed.
static CHANGED: Signal = Signal::new();
static INTERVAL_NS: AtomicU64 = AtomicU64::new(0);
/// Whether the state of a thread tells managed from native: its bit.
static MANAGED_BIT: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    #[link_name = "_Z14GetThreadStorev"]
    fn thread_store() -> *mut c_void;
    /// Makes the calling thread one of the runtime.
    #[link_name = "_ZN11ThreadStore19AttachCurrentThreadEv"]
    fn attach_current_thread();
    #[link_name = "_ZN11ThreadStore19GetSuspendingThreadEv"]
    fn suspending_thread() -> *mut c_void;
    #[link_name = "_ZN11ThreadStore15LockThreadStoreEv"]
    fn lock_thread_store(store: *mut c_void);
    #[link_name = "_ZN11ThreadStore17UnlockThreadStoreEv"]
    fn unlock_thread_store(store: *mut c_void);
    #[link_name = "_ZN11ThreadStore17SuspendAllThreadsEb"]
    fn suspend_all_threads(store: *mut c_void, wait_for_collection: bool);
    #[link_name = "_ZN11ThreadStore16ResumeAllThreadsEb"]
    fn resume_all_threads(store: *mut c_void, wait_for_collection: bool);
    #[link_name = "_ZN11ThreadStore8IteratorC1Ev"]
    fn iterator_new(iterator: *mut ThreadIterator);
    #[link_name = "_ZN11ThreadStore8Iterator7GetNextEv"]
    fn iterator_next(iterator: *mut ThreadIterator) -> *mut c_void;
    #[link_name = "_ZN11ThreadStore8IteratorD1Ev"]
    fn iterator_end(iterator: *mut ThreadIterator);
    #[link_name = "_ZN6Thread29GetTransitionFrameForSamplingEv"]
    fn transition_frame(thread: *mut c_void) -> *mut c_void;
    /// Below.
    #[link_name = "eventpipe_nativeaot_system_thread_id"]
    fn system_thread_id(thread: *mut c_void) -> u64;
    #[link_name = "_ZN18StackFrameIteratorC1EP6ThreadP22PInvokeTransitionFrame"]
    fn frames_new(frames: *mut FrameIterator, thread: *mut c_void, frame: *mut c_void);
    #[link_name = "_ZN18StackFrameIterator7IsValidEv"]
    fn frames_is_valid(frames: *mut FrameIterator) -> bool;
    #[link_name = "_ZN18StackFrameIterator27CalculateCurrentMethodStateEv"]
    fn frames_find_method(frames: *mut FrameIterator);
    #[link_name = "_ZN18StackFrameIterator4NextEv"]
    fn frames_next(frames: *mut FrameIterator);
}

// The system's id of a runtime's thread. The function is called `Thread::GetPalThreadIdForLogging()` in .NET 10 and
// `Thread::GetOSThreadId()` in .NET 11: weak references, of which one is null.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.eventpipe_nativeaot_system_thread_id, \"ax\", @progbits",
    ".weak _ZN6Thread24GetPalThreadIdForLoggingEv",
    ".weak _ZN6Thread13GetOSThreadIdEv",
    ".hidden eventpipe_nativeaot_system_thread_id",
    ".globl eventpipe_nativeaot_system_thread_id",
    "eventpipe_nativeaot_system_thread_id:",
    "mov rax, qword ptr [rip + _ZN6Thread24GetPalThreadIdForLoggingEv@GOTPCREL]",
    "test rax, rax",
    "jne 2f",
    "mov rax, qword ptr [rip + _ZN6Thread13GetOSThreadIdEv@GOTPCREL]",
    "2: jmp rax",
    ".popsection",
);

/// The runtime's iterator over its threads: one pointer; more room than that.
#[repr(C, align(16))]
struct ThreadIterator([u64; 8]);

/// The runtime's iterator over the frames of a thread: 0x168 bytes in .NET 10 and 11, nothing to destroy; more room than that.
#[repr(C, align(16))]
struct FrameIterator([u64; 256]);

impl FrameIterator {
    /// The instruction pointer, 0x18 bytes into it.
    fn instruction_pointer(&self) -> usize {
        self.0[3] as usize
    }
}

/// Makes the provider known; a session that asks for it starts the sampling.
pub(crate) fn register(version: &str) {
    // From .NET 11 on every 10 ms, and a sample says whether its thread was in managed code; before, every 1 ms, and it does not.
    let is_old = version.starts_with("10.");
    let milliseconds = setting_ms(!is_old).unwrap_or(if is_old { 1 } else { 10 });
    INTERVAL_NS.store(milliseconds.saturating_mul(1_000_000), Ordering::Relaxed);
    MANAGED_BIT.store(if is_old { 0 } else { 1 << 10 }, Ordering::Relaxed);
    PROVIDER.on_change(|change| {
        WANTED.store(change.is_enabled, Ordering::Release);
        if change.is_enabled && !RUNS.swap(true, Ordering::AcqRel) {
            let started = thread::spawn(c"eventpipe-sample", Box::new(run));
            RUNS.store(started.is_ok(), Ordering::Release);
        }
        CHANGED.set();
    });
}

/// `DOTNET_EventPipeThreadSamplingRate` in milliseconds: hexadecimal in .NET 10, decimal from .NET 11 on; 0 means the usual one.
fn setting_ms(is_decimal: bool) -> Option<u64> {
    let value = process::env("DOTNET_EventPipeThreadSamplingRate")?;
    let radix = if is_decimal { 10 } else { 16 };
    text::number(value.trim_ascii(), radix).filter(|ms| *ms > 0)
}

/// The runtime's threads can be stopped from now on.
pub(crate) fn allow() {
    ALLOWED.store(true, Ordering::Release);
    CHANGED.set();
}

fn run() {
    let mut is_attached = false;
    loop {
        if !WANTED.load(Ordering::Acquire) || !ALLOWED.load(Ordering::Acquire) {
            CHANGED.wait(None);
            continue;
        }
        if !is_attached {
            // SAFETY: the runtime is ready, and this thread lives as long as the process.
            unsafe { attach_current_thread() };
            is_attached = true;
        }
        let started = clock::monotonic_ns();
        // SAFETY: the runtime is ready and this thread is attached, in preemptive mode.
        unsafe { sample_all_threads() };
        let interval = INTERVAL_NS.load(Ordering::Relaxed);
        let spent = clock::monotonic_ns().saturating_sub(started);
        // At least a pause as long as the work, however short the interval: the program must get on.
        CHANGED.wait(Some(interval.max(spent)));
    }
}

/// # Safety
/// The runtime is ready; the calling thread is attached and in preemptive mode.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one conversation with the runtime, in the order of its own engine"
)]
unsafe fn sample_all_threads() {
    // SAFETY: the store exists as long as the runtime. Nobody is stopped while another thread is stopping them; the lock keeps threads
    // from coming and going. Between suspension and resumption this thread calls the runtime's walker and the ring only.
    unsafe {
        let store = thread_store();
        if store.is_null() || !suspending_thread().is_null() {
            return;
        }
        lock_thread_store(store);
        suspend_all_threads(store, false);
        let mut threads = ThreadIterator([0; 8]);
        iterator_new(&mut threads);
        loop {
            let thread = iterator_next(&mut threads);
            if thread.is_null() {
                break;
            }
            sample(thread);
        }
        iterator_end(&mut threads);
        resume_all_threads(store, false);
        unlock_thread_store(store);
    }
}

/// # Safety
/// `thread` is a thread of the runtime, stopped.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one conversation with the runtime"
)]
unsafe fn sample(thread: *mut c_void) {
    let mut frames = [0_usize; MAX_FRAMES];
    let mut depth = 0;
    let mut walker = FrameIterator([0; 256]);
    // SAFETY: the thread is stopped, so its stack stays as it is; the walker has room for the runtime's object.
    let id = unsafe {
        frames_new(&mut walker, thread, transition_frame(thread));
        while frames_is_valid(&mut walker) {
            frames_find_method(&mut walker);
            let address = walker.instruction_pointer();
            if let Some(place) = frames.get_mut(depth).filter(|_| address != 0) {
                *place = address;
                depth += 1;
            }
            frames_next(&mut walker);
        }
        system_thread_id(thread)
    };
    let frames = frames.get(..depth).unwrap_or_default();
    if frames.is_empty() {
        return;
    }
    let managed_bit = MANAGED_BIT.load(Ordering::Relaxed);
    let kind = if managed_bit != 0 {
        // SAFETY: the state of a thread, 64 bytes into it from .NET 11 on, as the runtime's data descriptor says.
        let state = unsafe { thread.cast::<u8>().add(64).cast::<u32>().read() };
        EXTERNAL + u32::from(state & managed_bit != 0)
    } else {
        EXTERNAL
    };
    SAMPLE.write_encoded_with(
        &Pieces(&[EventData::of(&kind.to_le_bytes())]),
        &EventOptions {
            stack: Some(frames),
            thread_id: Some(id),
            ..EventOptions::default()
        },
    );
}
