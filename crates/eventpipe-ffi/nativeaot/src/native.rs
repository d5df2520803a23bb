//! Events that the runtime raises itself, most of them from the garbage collector. Called on allocating threads, on collector
//! threads and while the world is stopped (N2); whether or not anybody listens, so the first thing is one load.
//!
//! The payload is the arguments in order without gaps. Arguments that are arrays come last, as count, element size and address.
//! The two activity ids at the end are null in every call of the runtime, and not used.

use core::ffi::c_void;
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use eventpipe::{Cause, Definition, Event, EventOptions, Level, Provider};

use crate::event_source::{EventData, Pieces};
use crate::native_events::{NATIVE_EVENTS, Native, Source};
use crate::runtime::{self, CollectorEvents};
use crate::text;

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
            .stack(row.stack && crate::stacks_are_wanted());
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

/// The event; none before [`register`].
#[inline]
pub(crate) fn native_event(event: Native) -> Option<&'static Event> {
    let event = EVENTS.get(event as usize)?.load(Ordering::Acquire);
    // SAFETY: null, or an event that lives for ever (N3).
    unsafe { event.as_ref() }
}

/// The event if some session wants it. One call for each of seventy functions, because these tests seventy times would be 2 KB.
#[inline(never)]
pub(crate) fn enabled(event: Native) -> Option<&'static Event> {
    native_event(event).filter(|event| event.is_enabled())
}

/// The bytes of a packed structure of numbers.
pub(crate) fn bytes_of<T>(packed: &T) -> &[u8] {
    // SAFETY: used with `repr(C, packed)` structures of numbers, which have no padding: each byte is initialised.
    unsafe { slice::from_raw_parts(core::ptr::from_ref(packed).cast(), size_of::<T>()) }
}

/// An array of the runtime as bytes.
///
/// # Safety
/// `address` is null or points to so many bytes, which stay unchanged while the result is used.
unsafe fn array<'a>(address: *const u8, length: usize) -> &'a [u8] {
    if address.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(address, length) }
}

/// Writes an event whose payload is one piece.
#[inline(never)]
pub(crate) fn write(event: &'static Event, payload: &[u8]) {
    write_pieces(event, &[payload]);
}

/// Writes an event whose payload is in up to eight pieces.
#[inline(never)]
pub(crate) fn write_pieces(event: &'static Event, pieces: &[&[u8]]) {
    // The same kind of payload as that of managed events, because the write path exists once for each kind.
    let mut data = [const { EventData::of(&[]) }; 8];
    for (place, piece) in data.iter_mut().zip(pieces) {
        *place = EventData::of(piece);
    }
    let used = data.get(..pieces.len()).unwrap_or_default();
    event.write_encoded(&Pieces(used), &EventOptions::default());
}

/// Functions whose arguments are numbers only.
macro_rules! fire {
    ($($symbol:literal $event:ident($($argument:ident: $type:ty),*);)*) => {
        $(const _: () = {
            #[unsafe(export_name = $symbol)]
            extern "C" fn fire($($argument: $type,)* _: *const c_void, _: *const c_void) -> u32 {
                if let Some(event) = enabled(Native::$event) {
                    #[repr(C, packed)]
                    struct Payload($($type),*);
                    write(event, bytes_of(&Payload($($argument),*)));
                }
                0
            }
        };)*
    };
}

fire! {
    "_Z15FireEtwBGCBegintPK14minipal_guid__S1_" BGCBegin(clr: u16);
    "_Z15FireEtwGCEnd_V1jjtPK14minipal_guid__S1_" GCEndV1(count: u32, depth: u32, clr: u16);
    "_Z16FireEtwGCJoin_V2jjjtjPK14minipal_guid__S1_" GCJoinV2(heap: u32, join_time: u32, join_type: u32, clr: u16, join_id: u32);
    "_Z17FireEtwBGCRevisitmmjtPK14minipal_guid__S1_" BGCRevisit(pages: u64, objects: u64, is_large: u32, clr: u16);
    "_Z18FireEtwGCTriggeredjtPK14minipal_guid__S1_" GCTriggered(reason: u32, clr: u16);
    "_Z18FireEtwSetGCHandlePKvS0_jjmtPK14minipal_guid__S3_" SetGCHandle(handle: usize, object: usize, kind: u32, generation: u32, app_domain: u64, clr: u16);
    "_Z19FireEtwBGC1stConEndtPK14minipal_guid__S1_" BGC1stConEnd(clr: u16);
    "_Z19FireEtwBGC2ndConEndtPK14minipal_guid__S1_" BGC2ndConEnd(clr: u16);
    "_Z19FireEtwBGCDrainMarkmtPK14minipal_guid__S1_" BGCDrainMark(objects: u64, clr: u16);
    "_Z21FireEtwBGC1stSweepEndjtPK14minipal_guid__S1_" BGC1stSweepEnd(generation: u32, clr: u16);
    "_Z21FireEtwBGC2ndConBegintPK14minipal_guid__S1_" BGC2ndConBegin(clr: u16);
    "_Z21FireEtwBGCOverflow_V1mmmjtjPK14minipal_guid__S1_" BGCOverflowV1(min: u64, max: u64, objects: u64, is_large: u32, clr: u16, generation: u32);
    "_Z21FireEtwGCHeapStats_V2mmmmmmmmmmjjjtmmPK14minipal_guid__S1_" GCHeapStatsV2(generation_0: u64, promoted_0: u64, generation_1: u64, promoted_1: u64, generation_2: u64, promoted_2: u64, generation_3: u64, promoted_3: u64, finalization_size: u64, finalization_count: u64, pinned_objects: u32, sink_blocks: u32, handles: u32, clr: u16, generation_4: u64, promoted_4: u64);
    "_Z21FireEtwGCMarkWithTypejtjmPK14minipal_guid__S1_" GCMarkWithType(heap: u32, clr: u16, kind: u32, promoted: u64);
    "_Z21FireEtwPrvSetGCHandlePKvS0_jjmtPK14minipal_guid__S3_" PrvSetGCHandle(handle: usize, object: usize, kind: u32, generation: u32, app_domain: u64, clr: u16);
    "_Z22FireEtwBGC1stNonConEndtPK14minipal_guid__S1_" BGC1stNonConEnd(clr: u16);
    "_Z22FireEtwBGC2ndNonConEndtPK14minipal_guid__S1_" BGC2ndNonConEnd(clr: u16);
    "_Z22FireEtwBGCAllocWaitEndjtPK14minipal_guid__S1_" BGCAllocWaitEnd(reason: u32, clr: u16);
    "_Z22FireEtwDestroyGCHandlePKvtPK14minipal_guid__S3_" DestroyGCHandle(handle: usize, clr: u16);
    "_Z22FireEtwGCFullNotify_V1jjtPK14minipal_guid__S1_" GCFullNotifyV1(generation: u32, is_alloc: u32, clr: u16);
    "_Z22FireEtwPinPlugAtGCTimePKvS0_S0_tPK14minipal_guid__S3_" PinPlugAtGCTime(start: usize, end: usize, gap: usize, clr: u16);
    "_Z23FireEtwGCFreeSegment_V1mtPK14minipal_guid__S1_" GCFreeSegmentV1(address: u64, clr: u16);
    "_Z24FireEtwBGC2ndNonConBegintPK14minipal_guid__S1_" BGC2ndNonConBegin(clr: u16);
    "_Z24FireEtwBGCAllocWaitBeginjtPK14minipal_guid__S1_" BGCAllocWaitBegin(reason: u32, clr: u16);
    "_Z24FireEtwGCGenerationRangehPKvmmtPK14minipal_guid__S3_" GCGenerationRange(generation: u8, start: usize, used: u64, reserved: u64, clr: u16);
    "_Z24FireEtwGCRestartEEEnd_V1tPK14minipal_guid__S1_" GCRestartEEEndV1(clr: u16);
    "_Z24FireEtwGCSuspendEEEnd_V1tPK14minipal_guid__S1_" GCSuspendEEEndV1(clr: u16);
    "_Z25FireEtwGCCreateSegment_V1mmjtPK14minipal_guid__S1_" GCCreateSegmentV1(address: u64, size: u64, kind: u32, clr: u16);
    "_Z25FireEtwGCFinalizersEnd_V1jtPK14minipal_guid__S1_" GCFinalizersEndV1(count: u32, clr: u16);
    "_Z25FireEtwPrvDestroyGCHandlePKvtPK14minipal_guid__S3_" PrvDestroyGCHandle(handle: usize, clr: u16);
    "_Z26FireEtwGCRestartEEBegin_V1tPK14minipal_guid__S1_" GCRestartEEBeginV1(clr: u16);
    "_Z26FireEtwGCSuspendEEBegin_V1jjtPK14minipal_guid__S1_" GCSuspendEEBeginV1(reason: u32, count: u32, clr: u16);
    "_Z27FireEtwGCFinalizersBegin_V1tPK14minipal_guid__S1_" GCFinalizersBeginV1(clr: u16);
    "_Z32FireEtwYieldProcessorMeasurementtddPK14minipal_guid__S1_" YieldProcessorMeasurement(clr: u16, ns_per_yield: f64, established_ns_per_yield: f64);
    "_Z34FireEtwGCCreateConcurrentThread_V1tPK14minipal_guid__S1_" GCCreateConcurrentThreadV1(clr: u16);
    "_Z37FireEtwGCTerminateConcurrentThread_V1tPK14minipal_guid__S1_" GCTerminateConcurrentThreadV1(clr: u16);
}

/// Functions whose last arguments are an array: the number of its elements among the arguments before, then the size of an element and
/// the address.
macro_rules! fire_arrays {
    ($($symbol:literal $event:ident($($argument:ident: $type:ty),*; $count:ident);)*) => {
        $(const _: () = {
            #[unsafe(export_name = $symbol)]
            unsafe extern "C" fn fire(
                $($argument: $type,)* element_size: i32, address: *const u8, _: *const c_void, _: *const c_void,
            ) -> u32 {
                if let Some(event) = enabled(Native::$event) {
                    #[repr(C, packed)]
                    struct Payload($($type),*);
                    let length = $count as usize * usize::try_from(element_size).unwrap_or(0);
                    // SAFETY: the runtime gives an array of so many elements.
                    let elements = unsafe { array(address, length) };
                    write_pieces(event, &[bytes_of(&Payload($($argument),*)), elements]);
                }
                0
            }
        };)*
    };
}

fire_arrays! {
    "_Z19FireEtwGCLOHCompactttiPKvPK14minipal_guid__S3_" GCLOHCompact(clr: u16, count: u16; count);
    "_Z22FireEtwGCFitBucketInfottmtiPKvPK14minipal_guid__S3_" GCFitBucketInfo(clr: u16, bucket: u16, total: u64, count: u16; count);
    "_Z26FireEtwGCPerHeapHistory_V3tPKvS0_S0_S0_S0_S0_jjjjjjS0_jiS0_PK14minipal_guid__S3_" GCPerHeapHistoryV3(clr: u16, free_list_allocated: usize, free_list_rejected: usize, end_of_segment: usize, condemned: usize, pinned_allocated: usize, pinned_advance: usize, running_free_list: u32, condemn_0: u32, condemn_1: u32, compact: u32, expand: u32, heap: u32, extra_commit: usize, count: u32; count);
    "_Z29FireEtwGCGlobalHeapHistory_V4mijjjjtjjjjjiPKvPK14minipal_guid__S3_" GCGlobalHeapHistoryV4(final_youngest: u64, heaps: i32, condemned: u32, generation_0_reason: u32, mechanisms: u32, reason: u32, clr: u16, pause: u32, memory_load: u32, condemn_0: u32, condemn_1: u32, count: u32; count);
    "_Z21FireEtwGCBulkRootEdgejjtiPKvPK14minipal_guid__S3_" GCBulkRootEdge(index: u32, count: u32, clr: u16; count);
    "_Z48FireEtwGCBulkRootConditionalWeakTableElementEdgejjtiPKvPK14minipal_guid__S3_" GCBulkRootConditionalWeakTableElementEdge(index: u32, count: u32, clr: u16; count);
    "_Z17FireEtwGCBulkNodejjtiPKvPK14minipal_guid__S3_" GCBulkNode(index: u32, count: u32, clr: u16; count);
    "_Z17FireEtwGCBulkEdgejjtiPKvPK14minipal_guid__S3_" GCBulkEdge(index: u32, count: u32, clr: u16; count);
    "_Z34FireEtwGCBulkSurvivingObjectRangesjjtiPKvPK14minipal_guid__S3_" GCBulkSurvivingObjectRanges(index: u32, count: u32, clr: u16; count);
    "_Z30FireEtwGCBulkMovedObjectRangesjjtiPKvPK14minipal_guid__S3_" GCBulkMovedObjectRanges(index: u32, count: u32, clr: u16; count);
}

/// Descriptions of types, for heap dumps. Other than in the events above, the size is that of all elements together.
#[unsafe(export_name = "_Z15FireEtwBulkTypejtiPKvPK14minipal_guid__S3_")]
unsafe extern "C" fn bulk_type(
    count: u32,
    clr: u16,
    size: i32,
    address: *const u8,
    _: *const c_void,
    _: *const c_void,
) -> u32 {
    if let Some(event) = enabled(Native::BulkType) {
        #[repr(C, packed)]
        struct Payload(u32, u16);
        // SAFETY: the runtime gives so many bytes.
        let types = unsafe { array(address, usize::try_from(size).unwrap_or(0)) };
        write_pieces(event, &[bytes_of(&Payload(count, clr)), types]);
    }
    0
}

#[unsafe(export_name = "_Z21FireEtwGCDynamicEventPKDsjPKhtPK14minipal_guid__S5_")]
unsafe extern "C" fn gc_dynamic_event(
    name: *const u16,
    size: u32,
    data: *const u8,
    clr: u16,
    _: *const c_void,
    _: *const c_void,
) -> u32 {
    if let Some(event) = enabled(Native::GCDynamicEvent) {
        // SAFETY: the runtime gives a text.
        let name = unsafe { text::payload(name) };
        // SAFETY: the runtime gives so many bytes.
        let data = unsafe { array(data, size as usize) };
        let (size, clr) = (size.to_le_bytes(), clr.to_le_bytes());
        write_pieces(event, &[name, &size, data, &clr]);
    }
    0
}

#[unsafe(export_name = "_Z24FireEtwAllocationSampledjtPKvPKDsS0_mmPK14minipal_guid__S5_")]
unsafe extern "C" fn allocation_sampled(
    kind: u32,
    clr: u16,
    type_id: usize,
    type_name: *const u16,
    address: usize,
    size: u64,
    sampled_offset: u64,
    _: *const c_void,
    _: *const c_void,
) -> u32 {
    if let Some(event) = enabled(Native::AllocationSampled) {
        #[repr(C, packed)]
        struct Before(u32, u16, usize);
        #[repr(C, packed)]
        struct After(usize, u64, u64);
        // SAFETY: the runtime gives a text.
        let name = unsafe { text::payload(type_name) };
        let before = Before(kind, clr, type_id);
        let after = After(address, size, sampled_offset);
        write_pieces(event, &[bytes_of(&before), name, bytes_of(&after)]);
    }
    0
}

#[unsafe(export_name = "_Z24FireEtwPinObjectAtGCTimePKvS0_mPKDstPK14minipal_guid__S5_")]
unsafe extern "C" fn pin_object(
    handle: usize,
    object: usize,
    size: u64,
    type_name: *const u16,
    clr: u16,
    _: *const c_void,
    _: *const c_void,
) -> u32 {
    if let Some(event) = enabled(Native::PinObjectAtGCTime) {
        #[repr(C, packed)]
        struct Before(usize, usize, u64);
        // SAFETY: the runtime gives a text.
        let name = unsafe { text::payload(type_name) };
        let before = Before(handle, object, size);
        write_pieces(event, &[bytes_of(&before), name, &clr.to_le_bytes()]);
    }
    0
}

#[unsafe(export_name = "_Z26FireEtwGCAllocationTick_V4jjtmPKvPKDsjS0_mPK14minipal_guid__S5_")]
unsafe extern "C" fn allocation_tick(
    amount: u32,
    kind: u32,
    clr: u16,
    amount_64: u64,
    type_id: usize,
    type_name: *const u16,
    heap: u32,
    address: usize,
    size: u64,
    _: *const c_void,
    _: *const c_void,
) -> u32 {
    if let Some(event) = enabled(Native::GCAllocationTickV4) {
        #[repr(C, packed)]
        struct Before(u32, u32, u16, u64, usize);
        #[repr(C, packed)]
        struct After(u32, usize, u64);
        // SAFETY: the runtime gives a text.
        let name = unsafe { text::payload(type_name) };
        let before = Before(amount, kind, clr, amount_64, type_id);
        let after = After(heap, address, size);
        write_pieces(event, &[bytes_of(&before), name, bytes_of(&after)]);
    }
    0
}

/// A collection starts; `info` is its number, generation, reason and kind.
#[unsafe(export_name = "_ZN3ETW5GCLog11FireGcStartEPNS0_14st_GCEventInfoE")]
unsafe extern "C" fn gc_start(info: *const [u32; 4]) {
    if let Some(event) = enabled(Native::GCStartV2) {
        #[repr(C, packed)]
        struct Payload([u32; 4], u16, u64);
        // SAFETY: the runtime gives four numbers. The last field is the number of the client that asked for the collection; no
        // command of the diagnostics protocol has one.
        let payload = Payload(unsafe { info.read() }, 0, 0);
        write(event, bytes_of(&payload));
    }
}

#[unsafe(export_name = "_Z37EventEnabledYieldProcessorMeasurementv")]
extern "C" fn is_yield_processor_measurement_enabled() -> i32 {
    i32::from(enabled(Native::YieldProcessorMeasurement).is_some())
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
