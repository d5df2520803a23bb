//! The events that the runtime itself raises: those of the 117 of its manifest that anything in a NativeAOT program raises.
//!
//! Facts of the runtime (.NET 10 and 11), one line an event. The test `the_table_of_native_events_is_that_of_the_runtime`
//! compares it with the list that was taken from the runtime's archive.

/// The provider of an event of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `Microsoft-Windows-DotNETRuntime`
    Runtime,
    /// `Microsoft-Windows-DotNETRuntimePrivate`
    Private,
    /// `Microsoft-Windows-DotNETRuntimeRundown`
    Rundown,
}

/// What filters and readers need to know of an event. Traces name it by provider, id and version only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeEvent {
    pub(crate) keywords: u64,
    pub(crate) source: Source,
    pub(crate) id: u16,
    pub(crate) version: u8,
    pub(crate) level: u8,
    pub(crate) stack: bool,
}

macro_rules! native_events {
    ($($name:ident: $source:ident $id:literal V $version:literal level $level:literal keywords $keywords:literal stack $stack:literal;)*) => {
        /// An event of the table, by the name that the runtime's manifest gives it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Native { $($name),* }

        #[allow(dead_code, reason = "for the test that compares the table with the runtime's")]
        impl Native {
            pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
        }

        pub(crate) const NATIVE_EVENTS: [NativeEvent; [$(stringify!($name)),*].len()] = [$(NativeEvent {
            keywords: $keywords,
            source: Source::$source,
            id: $id,
            version: $version,
            level: $level,
            stack: $stack,
        }),*];
    };
}

native_events! {
    GCStartV2: Runtime 1 V 2 level 4 keywords 0x1 stack false;
    GCEndV1: Runtime 2 V 1 level 4 keywords 0x1 stack false;
    GCRestartEEEndV1: Runtime 3 V 1 level 4 keywords 0x1 stack false;
    GCHeapStatsV2: Runtime 4 V 2 level 4 keywords 0x1 stack false;
    GCCreateSegmentV1: Runtime 5 V 1 level 4 keywords 0x1 stack false;
    GCFreeSegmentV1: Runtime 6 V 1 level 4 keywords 0x1 stack false;
    GCRestartEEBeginV1: Runtime 7 V 1 level 4 keywords 0x1 stack false;
    GCSuspendEEEndV1: Runtime 8 V 1 level 4 keywords 0x1 stack false;
    GCSuspendEEBeginV1: Runtime 9 V 1 level 4 keywords 0x1 stack false;
    GCAllocationTickV4: Runtime 10 V 4 level 5 keywords 0x1 stack true;
    GCCreateConcurrentThreadV1: Runtime 11 V 1 level 4 keywords 0x10001 stack false;
    GCTerminateConcurrentThreadV1: Runtime 12 V 1 level 4 keywords 0x10001 stack false;
    GCFinalizersEndV1: Runtime 13 V 1 level 4 keywords 0x1 stack false;
    GCFinalizersBeginV1: Runtime 14 V 1 level 4 keywords 0x1 stack false;
    BulkType: Runtime 15 V 0 level 4 keywords 0x80000 stack false;
    GCBulkRootEdge: Runtime 16 V 0 level 4 keywords 0x100000 stack false;
    GCBulkRootConditionalWeakTableElementEdge: Runtime 17 V 0 level 4 keywords 0x100000 stack false;
    GCBulkNode: Runtime 18 V 0 level 4 keywords 0x100000 stack false;
    GCBulkEdge: Runtime 19 V 0 level 4 keywords 0x100000 stack false;
    GCBulkSurvivingObjectRanges: Runtime 21 V 0 level 4 keywords 0x400000 stack false;
    GCBulkMovedObjectRanges: Runtime 22 V 0 level 4 keywords 0x400000 stack false;
    GCGenerationRange: Runtime 23 V 0 level 4 keywords 0x400000 stack false;
    SetGCHandle: Runtime 30 V 0 level 4 keywords 0x2 stack true;
    DestroyGCHandle: Runtime 31 V 0 level 4 keywords 0x2 stack true;
    PinObjectAtGCTime: Runtime 33 V 0 level 5 keywords 0x1 stack false;
    GCTriggered: Runtime 35 V 0 level 4 keywords 0x1 stack true;
    GCDynamicEvent: Runtime 39 V 0 level 4 keywords 0x3f00003 stack true;
    ThreadPoolWorkerThreadStart: Runtime 50 V 0 level 4 keywords 0x10000 stack false;
    ThreadPoolWorkerThreadStop: Runtime 51 V 0 level 4 keywords 0x10000 stack false;
    ThreadPoolWorkerThreadAdjustmentSample: Runtime 54 V 0 level 4 keywords 0x10000 stack false;
    ThreadPoolWorkerThreadAdjustmentAdjustment: Runtime 55 V 0 level 4 keywords 0x10000 stack false;
    ThreadPoolWorkerThreadAdjustmentStats: Runtime 56 V 0 level 5 keywords 0x10000 stack true;
    ThreadPoolWorkerThreadWait: Runtime 57 V 0 level 4 keywords 0x10000 stack false;
    YieldProcessorMeasurement: Runtime 58 V 0 level 4 keywords 0x10000 stack false;
    ThreadPoolMinMaxThreads: Runtime 59 V 0 level 4 keywords 0x10000 stack true;
    ThreadPoolWorkingThreadCount: Runtime 60 V 0 level 5 keywords 0x10000 stack true;
    ThreadPoolIOEnqueue: Runtime 63 V 0 level 5 keywords 0x80010000 stack true;
    ThreadPoolIODequeue: Runtime 64 V 0 level 5 keywords 0x80010000 stack true;
    ThreadPoolIOPack: Runtime 65 V 0 level 5 keywords 0x10000 stack true;
    ExceptionThrownV1: Runtime 80 V 1 level 2 keywords 0x200008000 stack true;
    ContentionStartV2: Runtime 81 V 2 level 4 keywords 0x4000 stack true;
    ContentionStopV1: Runtime 91 V 1 level 4 keywords 0x4000 stack false;
    ContentionLockCreated: Runtime 90 V 0 level 4 keywords 0x4000 stack true;
    ModuleLoadV3: Runtime 152 V 3 level 4 keywords 0x20000008 stack true;
    GCMarkWithType: Runtime 202 V 0 level 4 keywords 0x1 stack false;
    GCJoinV2: Runtime 203 V 2 level 5 keywords 0x1 stack true;
    GCPerHeapHistoryV3: Runtime 204 V 3 level 4 keywords 0x1 stack false;
    GCGlobalHeapHistoryV4: Runtime 205 V 4 level 4 keywords 0x1 stack true;
    GCLOHCompact: Runtime 208 V 0 level 4 keywords 0x1 stack true;
    GCFitBucketInfo: Runtime 209 V 0 level 5 keywords 0x1 stack true;
    WaitHandleWaitStart: Runtime 301 V 0 level 5 keywords 0x40000000000 stack true;
    WaitHandleWaitStop: Runtime 302 V 0 level 5 keywords 0x40000000000 stack false;
    AllocationSampled: Runtime 303 V 0 level 4 keywords 0x80000000000 stack true;
    DCEndCompleteV1: Rundown 146 V 1 level 4 keywords 0x20038 stack true;
    DCEndInitV1: Rundown 148 V 1 level 4 keywords 0x20038 stack true;
    ModuleDCEndV3: Rundown 154 V 3 level 4 keywords 0x20000008 stack true;
    BGCBegin: Private 11 V 0 level 4 keywords 0x1 stack true;
    BGC1stNonConEnd: Private 12 V 0 level 4 keywords 0x1 stack true;
    BGC1stConEnd: Private 13 V 0 level 4 keywords 0x1 stack true;
    BGC2ndNonConBegin: Private 14 V 0 level 4 keywords 0x1 stack true;
    BGC2ndNonConEnd: Private 15 V 0 level 4 keywords 0x1 stack true;
    BGC2ndConBegin: Private 16 V 0 level 4 keywords 0x1 stack true;
    BGC2ndConEnd: Private 17 V 0 level 4 keywords 0x1 stack true;
    BGCDrainMark: Private 20 V 0 level 4 keywords 0x1 stack true;
    BGCRevisit: Private 21 V 0 level 4 keywords 0x1 stack true;
    BGCOverflowV1: Private 22 V 1 level 4 keywords 0x1 stack true;
    BGCAllocWaitBegin: Private 23 V 0 level 4 keywords 0x1 stack true;
    BGCAllocWaitEnd: Private 24 V 0 level 4 keywords 0x1 stack true;
    GCFullNotifyV1: Private 25 V 1 level 4 keywords 0x1 stack true;
    BGC1stSweepEnd: Private 26 V 0 level 4 keywords 0x1 stack true;
    PrvSetGCHandle: Private 194 V 0 level 5 keywords 0x4000 stack true;
    PrvDestroyGCHandle: Private 195 V 0 level 5 keywords 0x4000 stack true;
    PinPlugAtGCTime: Private 199 V 0 level 5 keywords 0x1 stack true;
}
