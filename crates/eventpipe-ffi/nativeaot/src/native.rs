//! Events that the runtime raises itself, most of them from the garbage collector. Called on allocating threads, on collector
//! threads and while the world is stopped (N2); whether or not anybody listens, so the first thing is one load. The functions that
//! raise them are in [`crate::raise`].

use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use eventpipe::{Cause, Definition, Event, Level, Provider};

use crate::event_source::{self, EventData};
use crate::native_events::{NATIVE_EVENTS, Native, Source};
use crate::runtime::{self, CollectorEvents};

static RUNTIME: Provider = Provider::new("Microsoft-Windows-DotNETRuntime", &[]);
static PRIVATE: Provider = Provider::new("Microsoft-Windows-DotNETRuntimePrivate", &[]);
static RUNDOWN: Provider = Provider::new("Microsoft-Windows-DotNETRuntimeRundown", &[]);

/// Events by their place in the table; null before [`register`].
static EVENTS: [AtomicPtr<Event>; NATIVE_EVENTS.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; NATIVE_EVENTS.len()];

/// The keyword that asks for a full collection at the start of a session: the collection whose end is the heap dump.
const COLLECT_ON_START: u64 = 0x80_0000;

/// Makes the runtime's providers and events known. Before there is a second thread.
pub(crate) fn register() {
    for (row, place) in NATIVE_EVENTS.iter().zip(&EVENTS) {
        let provider = match row.source {
            Source::Runtime => &RUNTIME,
            Source::Private => &PRIVATE,
            Source::Rundown => &RUNDOWN,
        };
        let definition = Definition::new("")
            .id(u32::from(row.id))
            .version(u32::from(row.version))
            .level(Level::from_number(u32::from(row.level)))
            .keywords(row.keywords)
            .stack(false);
        let event: &'static Event = provider.define(definition);
        place.store(core::ptr::from_ref(event).cast_mut(), Ordering::Release);
    }
    RUNTIME.on_change(|change| {
        let level = if change.is_enabled {
            change.level as u8
        } else {
            0
        };
        runtime::switch_collector_events(CollectorEvents::Public, change.keywords, level);
        let collects = change.keywords & COLLECT_ON_START != 0;
        if collects && change.cause == Cause::SessionStarted {
            runtime::collect_everything();
        }
    });
    PRIVATE.on_change(|change| {
        let level = if change.is_enabled {
            change.level as u8
        } else {
            0
        };
        runtime::switch_collector_events(CollectorEvents::Private, change.keywords, level);
    });
}

/// Whether a session wants events of the runtime of this level with one of these keywords.
fn is_enabled(level: u8, keywords: u64) -> bool {
    RUNTIME.is_enabled(Level::from_number(u32::from(level)), keywords)
}

/// The event at a place of the table; none before [`register`].
#[inline]
pub(crate) fn native_event(place: usize) -> Option<&'static Event> {
    let event = EVENTS.get(place)?.load(Ordering::Acquire);
    // SAFETY: null, or an event that lives for ever (N3).
    unsafe { event.as_ref() }
}

/// The event at a place of the table if some session wants it.
pub(crate) fn enabled(place: usize) -> Option<&'static Event> {
    native_event(place).filter(|event| event.is_enabled())
}

/// The bytes of a packed structure of numbers.
pub(crate) fn bytes_of<T>(packed: &T) -> &[u8] {
    // SAFETY: used with `repr(C, packed)` structures of numbers, which have no padding: each byte is initialised.
    unsafe { slice::from_raw_parts(core::ptr::from_ref(packed).cast(), size_of::<T>()) }
}

/// Writes an event whose payload is in up to eight pieces.
#[inline(never)]
pub(crate) fn write_pieces(event: &'static Event, pieces: &[&[u8]]) {
    let mut data = [const { EventData::of(&[]) }; 8];
    for (place, piece) in data.iter_mut().zip(pieces) {
        *place = EventData::of(piece);
    }
    let used = data.get(..pieces.len()).unwrap_or_default();
    event_source::write(event, used);
}

/// A collection starts; `info` is its number, generation, reason and kind.
#[unsafe(export_name = "_ZN3ETW5GCLog11FireGcStartEPNS0_14st_GCEventInfoE")]
unsafe extern "C" fn gc_start(info: *const [u32; 4]) {
    if let Some(event) = enabled(Native::GCStartV2 as usize) {
        #[repr(C, packed)]
        struct Payload([u32; 4], u16, u64);
        // SAFETY: the runtime gives four numbers. The last field is the number of the client that asked for the collection; no
        // command of the diagnostics protocol has one.
        let payload = Payload(unsafe { info.read() }, 0, 0);
        write_pieces(event, &[bytes_of(&payload)]);
    }
}

#[unsafe(export_name = "_Z37EventEnabledYieldProcessorMeasurementv")]
extern "C" fn is_yield_processor_measurement_enabled() -> i32 {
    i32::from(enabled(Native::YieldProcessorMeasurement as usize).is_some())
}

/// Asked by allocations on their slow path.
#[unsafe(export_name = "_Z24IsRuntimeProviderEnabledhm")]
extern "C" fn is_runtime_provider_enabled(level: u8, keywords: u64) -> bool {
    is_enabled(level, keywords)
}

/// The same question, asked by the objects that walk the heap.
#[unsafe(export_name = "_Z31DotNETRuntimeProvider_IsEnabledhy")]
extern "C" fn is_runtime_provider_enabled_for_heap_walk(level: u8, keywords: u64) -> bool {
    is_enabled(level, keywords)
}

/// `ETW::GCLog::s_l64LastClientSequenceNumber`: the objects that walk the heap keep a number here that no one reads.
#[unsafe(export_name = "_ZN3ETW5GCLog29s_l64LastClientSequenceNumberE")]
static LAST_CLIENT_SEQUENCE_NUMBER: core::sync::atomic::AtomicI64 =
    core::sync::atomic::AtomicI64::new(0);
