use super::view;
use crate::payload::Utf16;
use crate::runtime_events::{RUNDOWN, RUNTIME, SAMPLE_PROFILER};

view! {
    /// The stack of one thread at one tick of the sampler. The thread is the event's; its stack the event's too.
    ThreadSample = [SAMPLE_PROFILER, 0] {
        /// See [`ThreadSample::kind`].
        kind_number: u32 = "Type",
    }
}

/// What a sampled thread was doing. Threads that wait are sampled like running ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// In native code.
    External,
    /// In managed code.
    Managed,
    /// The sampler could not tell.
    Error,
}

impl ThreadSample<'_> {
    /// What the thread was doing.
    pub fn kind(&self) -> SampleKind {
        match self.kind_number {
            1 => SampleKind::External,
            2 => SampleKind::Managed,
            _ => SampleKind::Error,
        }
    }
}

view! {
    /// An exception was thrown.
    ExceptionThrown = [RUNTIME, 80] {
        /// Name of its type.
        exception_type: Utf16<'a> = "ExceptionType",
        /// Its message.
        message: Utf16<'a> = "ExceptionMessage",
        /// Where it was thrown.
        address: u64 = "ExceptionEIP",
        /// Error code.
        hresult: u32 = "ExceptionHRESULT",
        /// 1 has an inner exception, 2 nested, 4 thrown again, 8 corrupted state, 0x10 of the runtime's own kind.
        flags: u16 = "ExceptionFlags",
    }
}

view! {
    /// A thread begins to wait for a lock.
    ContentionStart = [RUNTIME, 81] {
        /// 0 managed, 1 native.
        kind: u8 = "ContentionFlags",
        /// Key of the lock (.NET 8).
        lock_id: Option<u64> = "LockID",
        /// Address of the object that is locked.
        object_id: Option<u64> = "AssociatedObjectID",
        /// The operating system's number of the thread that holds the lock.
        owner_thread_id: Option<u64> = "LockOwnerThreadID",
    }
}

view! {
    /// The wait is over.
    ContentionStop = [RUNTIME, 91] {
        /// 0 managed, 1 native.
        kind: u8 = "ContentionFlags",
        /// How long it took (.NET Core 3.0).
        duration_ns: Option<f64> = "DurationNs",
    }
}

view! {
    /// A managed thread was created, or was there.
    ThreadCreated = [RUNTIME, 85] [RUNDOWN, 159] {
        /// Key of the thread.
        managed_thread_id: u64 = "ManagedThreadID",
        /// Key of its application domain.
        app_domain_id: u64 = "AppDomainID",
        /// 1 collector's, 2 finalizer's, 4 pool worker, …
        flags: u32 = "Flags",
        /// Its number in managed code.
        index: u32 = "ManagedThreadIndex",
        /// The operating system's number.
        os_thread_id: u32 = "OSThreadID",
    }
}

view! {
    /// A worker of the thread pool started, stopped or waits.
    ThreadPoolWorkers = [RUNTIME, 50 | 51 | 57] {
        /// Workers.
        active: u32 = "ActiveWorkerThreadCount",
        /// Workers kept in reserve.
        retired: u32 = "RetiredWorkerThreadCount",
    }
}

view! {
    /// The thread pool changed the number of its workers.
    ThreadPoolAdjustment = [RUNTIME, 55] {
        /// Work items per second before.
        average_throughput: f64 = "AverageThroughput",
        /// The new number.
        new_worker_count: u32 = "NewWorkerThreadCount",
        /// 0 warm-up, 1 initializing, 2 random move, 3 climbing move, 4 change point, 5 stabilizing, 6 starvation,
        /// 7 thread timed out.
        reason: u32 = "Reason",
    }
}
