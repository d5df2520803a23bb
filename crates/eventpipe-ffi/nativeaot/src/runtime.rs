//! What is taken of the runtime, and the symbols that must exist whatever is linked with.

use alloc::string::String;
use core::ffi::{c_char, c_void};
use core::slice;

use eventpipe_os::text::lossy;

unsafe extern "C" {
    /// `GCHeapUtilities::RecordEventStateChange(bool, GCEventKeyword, GCEventLevel)`: stores what the garbage collector tests before it
    /// raises an event. Plain stores: any thread may call it, also before there is a heap.
    #[link_name = "_ZN15GCHeapUtilities22RecordEventStateChangeEb14GCEventKeyword12GCEventLevel"]
    safe fn record_event_state_change(is_public: bool, keywords: i32, level: i32);

    /// Gives the version as a C string and its length.
    fn RhGetRuntimeVersion(length: *mut i32) -> *const c_char;

    /// `ETW::GCLog::ForceGC(long)`: a blocking collection of everything. Of the objects that walk the heap, else the empty one below.
    #[link_name = "_ZN3ETW5GCLog7ForceGCEl"]
    fn force_collection(client_sequence_number: i64);

    /// The collector, null until it exists.
    static g_pGCHeap: *const c_void;
}

// Stand-ins for the three objects that walk the heap. They are weak: where those objects are linked, these give way.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.eventpipe_no_heap_walk, \"ax\", @progbits",
    ".weak _ZN3ETW5GCLog8WalkHeapEv",
    ".weak _ZN3ETW5GCLog7ForceGCEl",
    ".weak _ZN3ETW5GCLog20BeginMovedReferencesEPm",
    ".weak _ZN3ETW5GCLog18EndMovedReferencesEmi",
    ".weak _ZN3ETW5GCLog25ShouldTrackMovementForEtwEv",
    "_ZN3ETW5GCLog8WalkHeapEv:",
    "_ZN3ETW5GCLog7ForceGCEl:",
    "_ZN3ETW5GCLog20BeginMovedReferencesEPm:",
    "_ZN3ETW5GCLog18EndMovedReferencesEmi:",
    "_ZN3ETW5GCLog25ShouldTrackMovementForEtwEv:",
    "xor eax, eax",
    "ret",
    ".popsection",
);
/// Which of the collector's two sources of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectorEvents {
    Public,
    Private,
}

/// Tells the garbage collector which events to raise: keywords and level that all sessions together ask for.
pub(crate) fn switch_collector_events(events: CollectorEvents, keywords: u64, level: u8) {
    // The collector knows 32 keywords.
    record_event_state_change(
        events == CollectorEvents::Public,
        keywords as u32 as i32,
        i32::from(level),
    );
}

/// A blocking collection of all generations, on the calling thread, which becomes a thread of the runtime if it was none. Not before
/// there is a heap, and not from a callback of the runtime.
pub(crate) fn collect_everything() {
    // SAFETY: a word that the runtime sets once.
    let heap = unsafe { (&raw const g_pGCHeap).read_volatile() };
    if !heap.is_null() {
        // SAFETY: there is a heap, and the caller is a thread in native code that holds no lock.
        unsafe { force_collection(0) };
    }
}

/// The runtime's version, such as `10.0.12`.
pub(crate) fn version() -> String {
    let mut length = 0;
    // SAFETY: a valid place for the length.
    let text = unsafe { RhGetRuntimeVersion(&mut length) };
    let length = usize::try_from(length).unwrap_or(0);
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the runtime's constant has so many bytes.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length) };
    lossy(bytes)
}
