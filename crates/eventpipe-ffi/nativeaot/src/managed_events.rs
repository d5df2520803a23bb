//! Events of the runtime that are raised from managed code: exceptions, contention, thread pool. Called on the thread concerned,
//! in preemptive mode, and only while the managed half of the provider is on.

use crate::native::{bytes_of, enabled, write, write_pieces};
use crate::native_events::Native;
use crate::text;

macro_rules! log {
    ($($function:ident $event:ident($($argument:ident: $type:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $function($($argument: $type),*) {
            if let Some(event) = enabled(Native::$event) {
                #[repr(C, packed)]
                struct Payload($($type),*);
                write(event, bytes_of(&Payload($($argument),*)));
            }
        })*
    };
}

log! {
    NativeRuntimeEventSource_LogContentionLockCreated ContentionLockCreated(lock: usize, object: usize, clr: u16);
    NativeRuntimeEventSource_LogContentionStart ContentionStartV2(flags: u8, clr: u16, lock: usize, object: usize, owner_thread: u64);
    NativeRuntimeEventSource_LogContentionStop ContentionStopV1(flags: u8, clr: u16, duration_ns: f64);
    NativeRuntimeEventSource_LogThreadPoolIODequeue ThreadPoolIODequeue(native_overlapped: usize, overlapped: usize, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolIOEnqueue ThreadPoolIOEnqueue(native_overlapped: usize, overlapped: usize, multi_dequeues: i32, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolIOPack ThreadPoolIOPack(native_overlapped: usize, overlapped: usize, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolMinMaxThreads ThreadPoolMinMaxThreads(min_worker: u16, max_worker: u16, min_io: u16, max_io: u16, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkerThreadAdjustmentAdjustment ThreadPoolWorkerThreadAdjustmentAdjustment(throughput: f64, count: u32, reason: u32, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkerThreadAdjustmentSample ThreadPoolWorkerThreadAdjustmentSample(throughput: f64, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkerThreadAdjustmentStats ThreadPoolWorkerThreadAdjustmentStats(duration: f64, throughput: f64, thread_wave: f64, throughput_wave: f64, throughput_error: f64, average_error: f64, confidence: f64, new_control: f64, new_thread_wave: f64, magnitude: u16, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkerThreadStart ThreadPoolWorkerThreadStart(active: u32, retired: u32, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkerThreadStop ThreadPoolWorkerThreadStop(active: u32, retired: u32, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkerThreadWait ThreadPoolWorkerThreadWait(active: u32, retired: u32, clr: u16);
    NativeRuntimeEventSource_LogThreadPoolWorkingThreadCount ThreadPoolWorkingThreadCount(count: u32, clr: u16);
    NativeRuntimeEventSource_LogWaitHandleWaitStart WaitHandleWaitStart(source: u8, object: usize, clr: u16);
    NativeRuntimeEventSource_LogWaitHandleWaitStop WaitHandleWaitStop(clr: u16);
}

/// An exception was thrown.
///
/// # Safety
/// The texts are null or zero-terminated.
#[unsafe(no_mangle)]
unsafe extern "C" fn NativeRuntimeEventSource_LogExceptionThrown(
    kind: *const u16,
    message: *const u16,
    address: usize,
    hresult: i32,
) {
    if let Some(event) = enabled(Native::ExceptionThrownV1) {
        // Flags and instance of the runtime are 0.
        #[repr(C, packed)]
        struct After(usize, i32, u16, u16);
        // SAFETY: the caller's promise.
        let kind = unsafe { text::payload(kind) };
        // SAFETY: the caller's promise.
        let message = unsafe { text::payload(message) };
        let after = After(address, hresult, 0, 0);
        write_pieces(event, &[kind, message, bytes_of(&after)]);
    }
}
