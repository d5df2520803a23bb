use super::view;
use crate::payload::Utf16;
use crate::runtime_events::RUNTIME;

view! {
    /// A collection begins.
    GcStart = [RUNTIME, 1] {
        /// Number of the collection, from 1.
        number: u32 = "Count",
        /// Oldest generation that is collected.
        generation: Option<u32> = "Depth",
        /// 0 small allocation, 1 induced, 2 low memory, 3 empty, 4 large allocation, 5 and 6 out of space, 7 induced
        /// without force, … (the runtime's gc_reason).
        reason: u32 = "Reason",
        /// 0 blocking, 1 background, 2 blocking during a background collection.
        kind: Option<u32> = "Type",
        /// Number given by the session that asked for the collection.
        client_sequence_number: Option<u64> = "ClientSequenceNumber",
    }
}

view! {
    /// A collection ended.
    GcEnd = [RUNTIME, 2] {
        /// Number of the collection.
        number: u32 = "Count",
        /// Oldest generation that was collected.
        generation: u32 = "Depth",
    }
}

view! {
    /// The runtime begins to stop its threads.
    GcSuspendBegin = [RUNTIME, 9] {
        /// 0 other, 1 for a collection, 2 application domain shutdown, 3 code pitching, 4 shutdown, 5 debugger,
        /// 6 preparation of a collection, 7 debugger sweep; the sampler's suspensions are 0.
        reason: u32 = "Reason",
        /// Number of the collection, if for one.
        number: Option<u32> = "Count",
    }
}

view! {
    /// The runtime's threads run again.
    GcRestartEnd = [RUNTIME, 3] {
        /// The runtime of the process.
        clr_instance: Option<u16> = "ClrInstanceID",
    }
}

view! {
    /// A collection was asked for.
    GcTriggered = [RUNTIME, 35] {
        /// As [`GcStart::reason`].
        reason: u32 = "Reason",
    }
}

view! {
    /// Sizes after a collection, in bytes. Generations 3 and 4 are the large and the pinned object heap.
    GcHeapStats = [RUNTIME, 4] {
        /// Size of generation 0.
        size_0: u64 = "GenerationSize0",
        /// Bytes that survived a collection of it.
        promoted_0: u64 = "TotalPromotedSize0",
        /// Generation 1.
        size_1: u64 = "GenerationSize1",
        /// The same.
        promoted_1: u64 = "TotalPromotedSize1",
        /// Generation 2.
        size_2: u64 = "GenerationSize2",
        /// The same.
        promoted_2: u64 = "TotalPromotedSize2",
        /// Large objects.
        size_3: u64 = "GenerationSize3",
        /// The same.
        promoted_3: u64 = "TotalPromotedSize3",
        /// Pinned objects (.NET 5).
        size_4: Option<u64> = "GenerationSize4",
        /// The same.
        promoted_4: Option<u64> = "TotalPromotedSize4",
        /// Bytes kept alive for finalization only.
        finalization_promoted_size: u64 = "FinalizationPromotedSize",
        /// Objects ready for finalization.
        finalization_promoted_count: u64 = "FinalizationPromotedCount",
        /// Pinned objects.
        pinned_objects: u32 = "PinnedObjectCount",
        /// Synchronisation blocks.
        sync_blocks: u32 = "SinkBlockCount",
        /// Handles.
        handles: u32 = "GCHandleCount",
    }
}

impl GcHeapStats<'_> {
    /// Size of all generations.
    pub fn total_size(&self) -> u64 {
        [
            self.size_0,
            self.size_1,
            self.size_2,
            self.size_3,
            self.size_4.unwrap_or(0),
        ]
        .iter()
        .fold(0, |sum, size| sum.saturating_add(*size))
    }
}

/// Where an object was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the runtime's words")]
pub enum AllocationKind {
    Small,
    Large,
    Pinned,
    Other(u32),
}

impl From<u32> for AllocationKind {
    fn from(kind: u32) -> Self {
        match kind {
            0 => AllocationKind::Small,
            1 => AllocationKind::Large,
            2 => AllocationKind::Pinned,
            other => AllocationKind::Other(other),
        }
    }
}

view! {
    /// About 100 KB were allocated since the last such event; the object is the one that crossed the mark.
    AllocationTick = [RUNTIME, 10] {
        /// Bytes since the last event, cut to 32 bits.
        amount_32: u32 = "AllocationAmount",
        /// See [`AllocationKind`].
        kind: u32 = "AllocationKind",
        /// Bytes since the last event.
        amount_64: Option<u64> = "AllocationAmount64",
        /// Id of the object's type.
        type_id: Option<u64> = "TypeID",
        /// Name of the object's type.
        type_name: Option<Utf16<'a>> = "TypeName",
        /// Heap, with the server collector.
        heap: Option<u32> = "HeapIndex",
        /// Where the object lies.
        address: Option<u64> = "Address",
        /// Its size in bytes.
        object_size: Option<u64> = "ObjectSize",
    }
}

impl AllocationTick<'_> {
    /// Bytes since the last event.
    pub fn amount(&self) -> u64 {
        self.amount_64.unwrap_or(u64::from(self.amount_32))
    }
}

view! {
    /// An object chosen at random, with a chance in proportion to its size (.NET 10).
    AllocationSampled = [RUNTIME, 303] {
        /// See [`AllocationKind`].
        kind: u32 = "AllocationKind",
        /// Id of the object's type.
        type_id: u64 = "TypeID",
        /// Name of the object's type.
        type_name: Utf16<'a> = "TypeName",
        /// Where the object lies.
        address: u64 = "Address",
        /// Its size in bytes.
        object_size: u64 = "ObjectSize",
        /// Which byte of it was drawn.
        sampled_byte_offset: u64 = "SampledByteOffset",
    }
}
