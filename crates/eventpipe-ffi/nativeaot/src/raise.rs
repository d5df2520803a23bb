//! The functions that raise the runtime's own events: the runtime and the class library call seventy of them, which differ in their
//! arguments only, and the table of events tells those ([`crate::native_events`]).
//!
//! So each function is an entry of two instructions, which says which event it is. They lead to one place, which puts the registers that
//! may hold arguments beside the arguments on the stack, and to one function, which makes the payload: the arguments in order without
//! gaps. The two activity ids at the end are null in every call of the runtime, and not used.
//!
//! Functions that return nothing get a zero returned like the others, which their callers do not look at.

use core::mem::MaybeUninit;
use core::slice;

use crate::event_source::{self, EventData};
use crate::native::enabled;
use crate::native_events::{Argument, NATIVE_EVENTS, Native};
use crate::text;

/// Integer arguments in registers, then as many words until the floating-point ones end, until the stack's begin.
const INTEGERS: usize = 6;
const FLOATS: usize = 8;
const ON_STACK: usize = INTEGERS + FLOATS + 2;

// From the top: arguments on the stack, return address, a word that keeps the stack aligned, eight floating-point registers, six integer
// registers.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.eventpipe_nativeaot_raise, \"ax\", @progbits",
    ".hidden eventpipe_nativeaot_raise",
    ".globl eventpipe_nativeaot_raise",
    "eventpipe_nativeaot_raise:",
    "sub rsp, 72",
    "movsd [rsp], xmm0",
    "movsd [rsp + 8], xmm1",
    "movsd [rsp + 16], xmm2",
    "movsd [rsp + 24], xmm3",
    "movsd [rsp + 32], xmm4",
    "movsd [rsp + 40], xmm5",
    "movsd [rsp + 48], xmm6",
    "movsd [rsp + 56], xmm7",
    "push r9",
    "push r8",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "movzx edi, al",
    "mov rsi, rsp",
    "call {raise}",
    "xor eax, eax",
    "add rsp, 120",
    "ret",
    ".popsection",
    raise = sym raise,
);

macro_rules! entries {
    ($($symbol:literal => $event:ident,)*) => {
        $(#[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            ".pushsection .text.eventpipe_nativeaot_raise, \"ax\", @progbits",
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", @function"),
            concat!($symbol, ":"),
            "mov al, {event}",
            "jmp eventpipe_nativeaot_raise",
            ".popsection",
            event = const Native::$event as u8,
        );)*
    };
}

const _: () = assert!(
    NATIVE_EVENTS.len() <= 256,
    "the number of an event is a byte"
);

entries! {
    "_Z15FireEtwBGCBegintPK14minipal_guid__S1_" => BGCBegin,
    "_Z15FireEtwGCEnd_V1jjtPK14minipal_guid__S1_" => GCEndV1,
    "_Z16FireEtwGCJoin_V2jjjtjPK14minipal_guid__S1_" => GCJoinV2,
    "_Z17FireEtwBGCRevisitmmjtPK14minipal_guid__S1_" => BGCRevisit,
    "_Z18FireEtwGCTriggeredjtPK14minipal_guid__S1_" => GCTriggered,
    "_Z18FireEtwSetGCHandlePKvS0_jjmtPK14minipal_guid__S3_" => SetGCHandle,
    "_Z19FireEtwBGC1stConEndtPK14minipal_guid__S1_" => BGC1stConEnd,
    "_Z19FireEtwBGC2ndConEndtPK14minipal_guid__S1_" => BGC2ndConEnd,
    "_Z19FireEtwBGCDrainMarkmtPK14minipal_guid__S1_" => BGCDrainMark,
    "_Z21FireEtwBGC1stSweepEndjtPK14minipal_guid__S1_" => BGC1stSweepEnd,
    "_Z21FireEtwBGC2ndConBegintPK14minipal_guid__S1_" => BGC2ndConBegin,
    "_Z21FireEtwBGCOverflow_V1mmmjtjPK14minipal_guid__S1_" => BGCOverflowV1,
    "_Z21FireEtwGCHeapStats_V2mmmmmmmmmmjjjtmmPK14minipal_guid__S1_" => GCHeapStatsV2,
    "_Z21FireEtwGCMarkWithTypejtjmPK14minipal_guid__S1_" => GCMarkWithType,
    "_Z21FireEtwPrvSetGCHandlePKvS0_jjmtPK14minipal_guid__S3_" => PrvSetGCHandle,
    "_Z22FireEtwBGC1stNonConEndtPK14minipal_guid__S1_" => BGC1stNonConEnd,
    "_Z22FireEtwBGC2ndNonConEndtPK14minipal_guid__S1_" => BGC2ndNonConEnd,
    "_Z22FireEtwBGCAllocWaitEndjtPK14minipal_guid__S1_" => BGCAllocWaitEnd,
    "_Z22FireEtwDestroyGCHandlePKvtPK14minipal_guid__S3_" => DestroyGCHandle,
    "_Z22FireEtwGCFullNotify_V1jjtPK14minipal_guid__S1_" => GCFullNotifyV1,
    "_Z22FireEtwPinPlugAtGCTimePKvS0_S0_tPK14minipal_guid__S3_" => PinPlugAtGCTime,
    "_Z23FireEtwGCFreeSegment_V1mtPK14minipal_guid__S1_" => GCFreeSegmentV1,
    "_Z24FireEtwBGC2ndNonConBegintPK14minipal_guid__S1_" => BGC2ndNonConBegin,
    "_Z24FireEtwBGCAllocWaitBeginjtPK14minipal_guid__S1_" => BGCAllocWaitBegin,
    "_Z24FireEtwGCGenerationRangehPKvmmtPK14minipal_guid__S3_" => GCGenerationRange,
    "_Z24FireEtwGCRestartEEEnd_V1tPK14minipal_guid__S1_" => GCRestartEEEndV1,
    "_Z24FireEtwGCSuspendEEEnd_V1tPK14minipal_guid__S1_" => GCSuspendEEEndV1,
    "_Z25FireEtwGCCreateSegment_V1mmjtPK14minipal_guid__S1_" => GCCreateSegmentV1,
    "_Z25FireEtwGCFinalizersEnd_V1jtPK14minipal_guid__S1_" => GCFinalizersEndV1,
    "_Z25FireEtwPrvDestroyGCHandlePKvtPK14minipal_guid__S3_" => PrvDestroyGCHandle,
    "_Z26FireEtwGCRestartEEBegin_V1tPK14minipal_guid__S1_" => GCRestartEEBeginV1,
    "_Z26FireEtwGCSuspendEEBegin_V1jjtPK14minipal_guid__S1_" => GCSuspendEEBeginV1,
    "_Z27FireEtwGCFinalizersBegin_V1tPK14minipal_guid__S1_" => GCFinalizersBeginV1,
    "_Z32FireEtwYieldProcessorMeasurementtddPK14minipal_guid__S1_" => YieldProcessorMeasurement,
    "_Z34FireEtwGCCreateConcurrentThread_V1tPK14minipal_guid__S1_" => GCCreateConcurrentThreadV1,
    "_Z37FireEtwGCTerminateConcurrentThread_V1tPK14minipal_guid__S1_" => GCTerminateConcurrentThreadV1,
    "_Z19FireEtwGCLOHCompactttiPKvPK14minipal_guid__S3_" => GCLOHCompact,
    "_Z22FireEtwGCFitBucketInfottmtiPKvPK14minipal_guid__S3_" => GCFitBucketInfo,
    "_Z26FireEtwGCPerHeapHistory_V3tPKvS0_S0_S0_S0_S0_jjjjjjS0_jiS0_PK14minipal_guid__S3_" => GCPerHeapHistoryV3,
    "_Z29FireEtwGCGlobalHeapHistory_V4mijjjjtjjjjjiPKvPK14minipal_guid__S3_" => GCGlobalHeapHistoryV4,
    "_Z21FireEtwGCBulkRootEdgejjtiPKvPK14minipal_guid__S3_" => GCBulkRootEdge,
    "_Z48FireEtwGCBulkRootConditionalWeakTableElementEdgejjtiPKvPK14minipal_guid__S3_" => GCBulkRootConditionalWeakTableElementEdge,
    "_Z17FireEtwGCBulkNodejjtiPKvPK14minipal_guid__S3_" => GCBulkNode,
    "_Z17FireEtwGCBulkEdgejjtiPKvPK14minipal_guid__S3_" => GCBulkEdge,
    "_Z34FireEtwGCBulkSurvivingObjectRangesjjtiPKvPK14minipal_guid__S3_" => GCBulkSurvivingObjectRanges,
    "_Z30FireEtwGCBulkMovedObjectRangesjjtiPKvPK14minipal_guid__S3_" => GCBulkMovedObjectRanges,
    "_Z15FireEtwBulkTypejtiPKvPK14minipal_guid__S3_" => BulkType,
    "_Z21FireEtwGCDynamicEventPKDsjPKhtPK14minipal_guid__S5_" => GCDynamicEvent,
    "_Z24FireEtwAllocationSampledjtPKvPKDsS0_mmPK14minipal_guid__S5_" => AllocationSampled,
    "_Z24FireEtwPinObjectAtGCTimePKvS0_mPKDstPK14minipal_guid__S5_" => PinObjectAtGCTime,
    "_Z26FireEtwGCAllocationTick_V4jjtmPKvPKDsjS0_mPK14minipal_guid__S5_" => GCAllocationTickV4,
    "NativeRuntimeEventSource_LogContentionLockCreated" => ContentionLockCreated,
    "NativeRuntimeEventSource_LogContentionStart" => ContentionStartV2,
    "NativeRuntimeEventSource_LogContentionStop" => ContentionStopV1,
    "NativeRuntimeEventSource_LogThreadPoolIODequeue" => ThreadPoolIODequeue,
    "NativeRuntimeEventSource_LogThreadPoolIOEnqueue" => ThreadPoolIOEnqueue,
    "NativeRuntimeEventSource_LogThreadPoolIOPack" => ThreadPoolIOPack,
    "NativeRuntimeEventSource_LogThreadPoolMinMaxThreads" => ThreadPoolMinMaxThreads,
    "NativeRuntimeEventSource_LogThreadPoolWorkerThreadAdjustmentAdjustment" => ThreadPoolWorkerThreadAdjustmentAdjustment,
    "NativeRuntimeEventSource_LogThreadPoolWorkerThreadAdjustmentSample" => ThreadPoolWorkerThreadAdjustmentSample,
    "NativeRuntimeEventSource_LogThreadPoolWorkerThreadAdjustmentStats" => ThreadPoolWorkerThreadAdjustmentStats,
    "NativeRuntimeEventSource_LogThreadPoolWorkerThreadStart" => ThreadPoolWorkerThreadStart,
    "NativeRuntimeEventSource_LogThreadPoolWorkerThreadStop" => ThreadPoolWorkerThreadStop,
    "NativeRuntimeEventSource_LogThreadPoolWorkerThreadWait" => ThreadPoolWorkerThreadWait,
    "NativeRuntimeEventSource_LogThreadPoolWorkingThreadCount" => ThreadPoolWorkingThreadCount,
    "NativeRuntimeEventSource_LogWaitHandleWaitStart" => WaitHandleWaitStart,
    "NativeRuntimeEventSource_LogWaitHandleWaitStop" => WaitHandleWaitStop,
    "NativeRuntimeEventSource_LogExceptionThrown" => ExceptionThrownV1,
}

/// The arguments of a call.
struct Call {
    words: *const u64,
    integers: usize,
    floats: usize,
    on_stack: usize,
}

impl Call {
    /// The next argument.
    ///
    /// # Safety
    /// The call has one more.
    unsafe fn next(&mut self, is_float: bool) -> u64 {
        let (next, end) = match is_float {
            false => (&mut self.integers, INTEGERS),
            true => (&mut self.floats, INTEGERS + FLOATS),
        };
        let next = if *next < end {
            next
        } else {
            &mut self.on_stack
        };
        let place = *next;
        *next += 1;
        // SAFETY: the caller's promise, and arguments lie where the calling convention puts them.
        let word = unsafe { self.words.add(place) };
        // SAFETY: as above.
        unsafe { word.read() }
    }
}

/// Longest payload but for texts and arrays, and room for a whole word at its end.
const NUMBERS: usize = 128;

/// # Safety
/// `event` is that of the function which was called, and `words` are its arguments as laid out above.
unsafe extern "C" fn raise(event: usize, words: *const u64) {
    let (Some(row), Some(event)) = (NATIVE_EVENTS.get(event), enabled(event)) else {
        return;
    };
    let mut call = Call {
        words,
        integers: 0,
        floats: INTEGERS,
        on_stack: ON_STACK,
    };
    let mut room = MaybeUninit::<[u8; NUMBERS]>::uninit();
    let numbers = room.as_mut_ptr().cast::<u8>();
    // So many bytes of them are in a piece; so many there are.
    let (mut told, mut end) = (0, 0);
    let mut pieces = [const { EventData::of(&[]) }; 8];
    let mut places = pieces.iter_mut();
    let mut count = 0_usize;
    let mut rest = row.arguments;
    loop {
        let argument = rest.split_first();
        let size = match argument {
            Some((Argument::U8, _)) => 1,
            Some((Argument::U16 | Argument::Count16 | Argument::Zero, _)) => 2,
            Some((Argument::U32 | Argument::Count32, _)) => 4,
            Some((Argument::U64 | Argument::F64, _)) => 8,
            _ => 0,
        };
        if size == 0 && told < end {
            // What comes is no number: those so far are a piece.
            if let Some(place) = places.next() {
                // SAFETY: `told` is less than the room's size.
                *place = EventData::at(unsafe { numbers.add(told) }, end - told);
            }
            told = end;
        }
        let Some((argument, others)) = argument else {
            break;
        };
        rest = others;
        let value = match argument {
            Argument::Zero => 0,
            // SAFETY: the table has the arguments of the function.
            _ => unsafe { call.next(argument == Argument::F64) },
        };
        let piece = match argument {
            // SAFETY: the runtime gives a text or null.
            Argument::Text => unsafe { text::payload(value as *const u16) },
            Argument::Elements | Argument::Size => {
                let size = usize::try_from(value as i32).unwrap_or(0);
                let length = match argument {
                    Argument::Size => size,
                    _ => size * count,
                };
                // SAFETY: the address follows the size.
                let address = unsafe { call.next(false) };
                // SAFETY: the runtime gives an array of so many elements.
                unsafe { array(address as *const u8, length) }
            }
            // SAFETY: the runtime gives so many bytes.
            Argument::Bytes => unsafe { array(value as *const u8, count) },
            _ => {
                match argument {
                    Argument::Count16 => count = usize::from(value as u16),
                    Argument::Count32 => count = value as u32 as usize,
                    _ => {}
                }
                if end + size_of::<u64>() > NUMBERS {
                    return;
                }
                // Higher bytes are overwritten by what follows.
                // SAFETY: there is room, as was just tested.
                let place = unsafe { numbers.add(end) };
                // SAFETY: as above; the place need not be aligned.
                unsafe { place.cast::<u64>().write_unaligned(value) };
                end += size;
                continue;
            }
        };
        if let Some(place) = places.next() {
            *place = EventData::of(piece);
        }
    }
    event_source::write(event, &pieces);
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
