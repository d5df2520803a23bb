//! The events that the runtime itself raises: those of the 117 of its manifest that anything in a NativeAOT program raises.
//!
//! Facts of the runtime (.NET 10 and 11), one line an event. The test `the_table_of_native_events_is_that_of_the_runtime`
//! compares it with the list that was taken from the runtime's archive.
//!
//! The last column are the arguments of the function that raises the event; its payload is the same in the same order. Beyond what the
//! runtime's list says it tells `n16` and `n32`, numbers of elements of what follows; `i32 ptr`, the size of an element and the address
//! of the elements; `size ptr`, the size of all elements together and their address; `zero`, a 16-bit field that is no argument.

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
    pub(crate) arguments: Arguments,
}

/// The arguments of an event: four bits each, the first ones lowest; 0 ends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arguments(u64);

/// An argument of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Argument {
    /// A number of one byte.
    U8 = 1,
    /// A number of two bytes.
    U16 = 2,
    /// A number of four bytes.
    U32 = 3,
    /// A number or an address of eight bytes.
    U64 = 4,
    /// A floating-point number of eight bytes.
    F64 = 5,
    /// The address of zero-terminated UTF-16.
    Text = 6,
    /// A number of elements, two bytes.
    Count16 = 7,
    /// A number of elements, four bytes.
    Count32 = 8,
    /// The size of an element and the address of the elements, of which the payload has only the elements.
    Elements = 9,
    /// The size of all elements together, and their address.
    Size = 10,
    /// The address of bytes as many as counted before.
    Bytes = 11,
    /// Two bytes that are zero, of no argument.
    Zero = 12,
}

impl Arguments {
    /// From the words of the table.
    const fn of(words: &str) -> Arguments {
        let mut arguments = 0;
        let mut place = 0;
        let mut rest = words.as_bytes();
        while !rest.is_empty() {
            let (argument, length) = match rest {
                [b'u', b'8', ..] => (Argument::U8, 2),
                [b'u', b'1', b'6', ..] => (Argument::U16, 3),
                [b'i', b'3', b'2', b' ', b'p', b't', b'r', ..] => (Argument::Elements, 7),
                [b'u' | b'i', b'3', b'2', ..] => (Argument::U32, 3),
                [b'u', b'6', b'4', ..] | [b'p', b't', b'r', ..] => (Argument::U64, 3),
                [b'f', b'6', b'4', ..] => (Argument::F64, 3),
                [b'w', b's', b't', b'r', ..] => (Argument::Text, 4),
                [b'n', b'1', b'6', ..] => (Argument::Count16, 3),
                [b'n', b'3', b'2', ..] => (Argument::Count32, 3),
                [b's', b'i', b'z', b'e', b' ', b'p', b't', b'r', ..] => (Argument::Size, 8),
                [b'b', b'y', b't', b'e', b's', ..] => (Argument::Bytes, 5),
                [b'z', b'e', b'r', b'o', ..] => (Argument::Zero, 4),
                _ => panic!("a word that the table does not know"),
            };
            assert!(place < 16, "sixteen arguments at most");
            arguments |= (argument as u64) << (4 * place);
            place += 1;
            rest = rest.split_at(length).1;
            if let [b' ', after @ ..] = rest {
                rest = after;
            }
        }
        Arguments(arguments)
    }

    /// The first argument, and the others; none when there are no more.
    pub(crate) fn split_first(self) -> Option<(Argument, Arguments)> {
        let argument = match self.0 & 15 {
            1 => Argument::U8,
            2 => Argument::U16,
            3 => Argument::U32,
            4 => Argument::U64,
            5 => Argument::F64,
            6 => Argument::Text,
            7 => Argument::Count16,
            8 => Argument::Count32,
            9 => Argument::Elements,
            10 => Argument::Size,
            11 => Argument::Bytes,
            12 => Argument::Zero,
            _ => return None,
        };
        Some((argument, Arguments(self.0 >> 4)))
    }
}

macro_rules! native_events {
    ($($name:ident: $source:ident $id:literal V $version:literal level $level:literal keywords $keywords:literal stack $stack:literal $arguments:literal;)*) => {
        /// An event of the table, by the name that the runtime's manifest gives it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Native { $($name),* }

        #[allow(dead_code, reason = "for the test that compares the table with the runtime's")]
        impl Native {
            pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
            pub(crate) const ARGUMENTS: &[&str] = &[$($arguments),*];
            /// Whether they would have stacks in a runtime that has any; NativeAOT has none.
            pub(crate) const STACKS: &[bool] = &[$($stack),*];
        }

        pub(crate) const NATIVE_EVENTS: [NativeEvent; [$(stringify!($name)),*].len()] = [$(NativeEvent {
            keywords: $keywords,
            source: Source::$source,
            id: $id,
            version: $version,
            level: $level,
            arguments: Arguments::of($arguments),
        }),*];
    };
}

native_events! {
    GCStartV2: Runtime 1 V 2 level 4 keywords 0x1 stack false "u32 u32 u32 u32 u16 u64";
    GCEndV1: Runtime 2 V 1 level 4 keywords 0x1 stack false "u32 u32 u16";
    GCRestartEEEndV1: Runtime 3 V 1 level 4 keywords 0x1 stack false "u16";
    GCHeapStatsV2: Runtime 4 V 2 level 4 keywords 0x1 stack false "u64 u64 u64 u64 u64 u64 u64 u64 u64 u64 u32 u32 u32 u16 u64 u64";
    GCCreateSegmentV1: Runtime 5 V 1 level 4 keywords 0x1 stack false "u64 u64 u32 u16";
    GCFreeSegmentV1: Runtime 6 V 1 level 4 keywords 0x1 stack false "u64 u16";
    GCRestartEEBeginV1: Runtime 7 V 1 level 4 keywords 0x1 stack false "u16";
    GCSuspendEEEndV1: Runtime 8 V 1 level 4 keywords 0x1 stack false "u16";
    GCSuspendEEBeginV1: Runtime 9 V 1 level 4 keywords 0x1 stack false "u32 u32 u16";
    GCAllocationTickV4: Runtime 10 V 4 level 5 keywords 0x1 stack true "u32 u32 u16 u64 ptr wstr u32 ptr u64";
    GCCreateConcurrentThreadV1: Runtime 11 V 1 level 4 keywords 0x10001 stack false "u16";
    GCTerminateConcurrentThreadV1: Runtime 12 V 1 level 4 keywords 0x10001 stack false "u16";
    GCFinalizersEndV1: Runtime 13 V 1 level 4 keywords 0x1 stack false "u32 u16";
    GCFinalizersBeginV1: Runtime 14 V 1 level 4 keywords 0x1 stack false "u16";
    BulkType: Runtime 15 V 0 level 4 keywords 0x80000 stack false "u32 u16 size ptr";
    GCBulkRootEdge: Runtime 16 V 0 level 4 keywords 0x100000 stack false "u32 n32 u16 i32 ptr";
    GCBulkRootConditionalWeakTableElementEdge: Runtime 17 V 0 level 4 keywords 0x100000 stack false "u32 n32 u16 i32 ptr";
    GCBulkNode: Runtime 18 V 0 level 4 keywords 0x100000 stack false "u32 n32 u16 i32 ptr";
    GCBulkEdge: Runtime 19 V 0 level 4 keywords 0x100000 stack false "u32 n32 u16 i32 ptr";
    GCBulkSurvivingObjectRanges: Runtime 21 V 0 level 4 keywords 0x400000 stack false "u32 n32 u16 i32 ptr";
    GCBulkMovedObjectRanges: Runtime 22 V 0 level 4 keywords 0x400000 stack false "u32 n32 u16 i32 ptr";
    GCGenerationRange: Runtime 23 V 0 level 4 keywords 0x400000 stack false "u8 ptr u64 u64 u16";
    SetGCHandle: Runtime 30 V 0 level 4 keywords 0x2 stack true "ptr ptr u32 u32 u64 u16";
    DestroyGCHandle: Runtime 31 V 0 level 4 keywords 0x2 stack true "ptr u16";
    PinObjectAtGCTime: Runtime 33 V 0 level 5 keywords 0x1 stack false "ptr ptr u64 wstr u16";
    GCTriggered: Runtime 35 V 0 level 4 keywords 0x1 stack true "u32 u16";
    GCDynamicEvent: Runtime 39 V 0 level 4 keywords 0x3f00003 stack true "wstr n32 bytes u16";
    ThreadPoolWorkerThreadStart: Runtime 50 V 0 level 4 keywords 0x10000 stack false "u32 u32 u16";
    ThreadPoolWorkerThreadStop: Runtime 51 V 0 level 4 keywords 0x10000 stack false "u32 u32 u16";
    ThreadPoolWorkerThreadAdjustmentSample: Runtime 54 V 0 level 4 keywords 0x10000 stack false "f64 u16";
    ThreadPoolWorkerThreadAdjustmentAdjustment: Runtime 55 V 0 level 4 keywords 0x10000 stack false "f64 u32 u32 u16";
    ThreadPoolWorkerThreadAdjustmentStats: Runtime 56 V 0 level 5 keywords 0x10000 stack true "f64 f64 f64 f64 f64 f64 f64 f64 f64 u16 u16";
    ThreadPoolWorkerThreadWait: Runtime 57 V 0 level 4 keywords 0x10000 stack false "u32 u32 u16";
    YieldProcessorMeasurement: Runtime 58 V 0 level 4 keywords 0x10000 stack false "u16 f64 f64";
    ThreadPoolMinMaxThreads: Runtime 59 V 0 level 4 keywords 0x10000 stack true "u16 u16 u16 u16 u16";
    ThreadPoolWorkingThreadCount: Runtime 60 V 0 level 5 keywords 0x10000 stack true "u32 u16";
    ThreadPoolIOEnqueue: Runtime 63 V 0 level 5 keywords 0x80010000 stack true "ptr ptr i32 u16";
    ThreadPoolIODequeue: Runtime 64 V 0 level 5 keywords 0x80010000 stack true "ptr ptr u16";
    ThreadPoolIOPack: Runtime 65 V 0 level 5 keywords 0x10000 stack true "ptr ptr u16";
    ExceptionThrownV1: Runtime 80 V 1 level 2 keywords 0x200008000 stack true "wstr wstr ptr u32 zero zero";
    ContentionStartV2: Runtime 81 V 2 level 4 keywords 0x4000 stack true "u8 u16 ptr ptr u64";
    ContentionStopV1: Runtime 91 V 1 level 4 keywords 0x4000 stack false "u8 u16 f64";
    ContentionLockCreated: Runtime 90 V 0 level 4 keywords 0x4000 stack true "ptr ptr u16";
    ModuleLoadV3: Runtime 152 V 3 level 4 keywords 0x20000008 stack true "";
    GCMarkWithType: Runtime 202 V 0 level 4 keywords 0x1 stack false "u32 u16 u32 u64";
    GCJoinV2: Runtime 203 V 2 level 5 keywords 0x1 stack true "u32 u32 u32 u16 u32";
    GCPerHeapHistoryV3: Runtime 204 V 3 level 4 keywords 0x1 stack false "u16 ptr ptr ptr ptr ptr ptr u32 u32 u32 u32 u32 u32 ptr n32 i32 ptr";
    GCGlobalHeapHistoryV4: Runtime 205 V 4 level 4 keywords 0x1 stack true "u64 i32 u32 u32 u32 u32 u16 u32 u32 u32 u32 n32 i32 ptr";
    GCLOHCompact: Runtime 208 V 0 level 4 keywords 0x1 stack true "u16 n16 i32 ptr";
    GCFitBucketInfo: Runtime 209 V 0 level 5 keywords 0x1 stack true "u16 u16 u64 n16 i32 ptr";
    WaitHandleWaitStart: Runtime 301 V 0 level 5 keywords 0x40000000000 stack true "u8 ptr u16";
    WaitHandleWaitStop: Runtime 302 V 0 level 5 keywords 0x40000000000 stack false "u16";
    AllocationSampled: Runtime 303 V 0 level 4 keywords 0x80000000000 stack true "u32 u16 ptr wstr ptr u64 u64";
    DCEndCompleteV1: Rundown 146 V 1 level 4 keywords 0x20038 stack true "u16";
    DCEndInitV1: Rundown 148 V 1 level 4 keywords 0x20038 stack true "u16";
    ModuleDCEndV3: Rundown 154 V 3 level 4 keywords 0x20000008 stack true "";
    BGCBegin: Private 11 V 0 level 4 keywords 0x1 stack true "u16";
    BGC1stNonConEnd: Private 12 V 0 level 4 keywords 0x1 stack true "u16";
    BGC1stConEnd: Private 13 V 0 level 4 keywords 0x1 stack true "u16";
    BGC2ndNonConBegin: Private 14 V 0 level 4 keywords 0x1 stack true "u16";
    BGC2ndNonConEnd: Private 15 V 0 level 4 keywords 0x1 stack true "u16";
    BGC2ndConBegin: Private 16 V 0 level 4 keywords 0x1 stack true "u16";
    BGC2ndConEnd: Private 17 V 0 level 4 keywords 0x1 stack true "u16";
    BGCDrainMark: Private 20 V 0 level 4 keywords 0x1 stack true "u64 u16";
    BGCRevisit: Private 21 V 0 level 4 keywords 0x1 stack true "u64 u64 u32 u16";
    BGCOverflowV1: Private 22 V 1 level 4 keywords 0x1 stack true "u64 u64 u64 u32 u16 u32";
    BGCAllocWaitBegin: Private 23 V 0 level 4 keywords 0x1 stack true "u32 u16";
    BGCAllocWaitEnd: Private 24 V 0 level 4 keywords 0x1 stack true "u32 u16";
    GCFullNotifyV1: Private 25 V 1 level 4 keywords 0x1 stack true "u32 u32 u16";
    BGC1stSweepEnd: Private 26 V 0 level 4 keywords 0x1 stack true "u32 u16";
    PrvSetGCHandle: Private 194 V 0 level 5 keywords 0x4000 stack true "ptr ptr u32 u32 u64 u16";
    PrvDestroyGCHandle: Private 195 V 0 level 5 keywords 0x4000 stack true "ptr u16";
    PinPlugAtGCTime: Private 199 V 0 level 5 keywords 0x1 stack true "ptr ptr ptr u16";
}
