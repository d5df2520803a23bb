use super::view;
use crate::payload::{Utf16, Value};
use crate::runtime_events::{RUNDOWN, RUNTIME};

view! {
    /// Machine code of a method was loaded or unloaded, or was there. The names are there in the verbose events.
    MethodLoad = [RUNTIME, 137..=144] [RUNDOWN, 141..=144] {
        /// Key of the method. Tiered compilation gives several ranges of code to one key.
        method_id: u64 = "MethodID",
        /// Key of its module.
        module_id: u64 = "ModuleID",
        /// Where the code begins.
        start_address: u64 = "MethodStartAddress",
        /// Its size in bytes.
        size: u32 = "MethodSize",
        /// Metadata token.
        token: u32 = "MethodToken",
        /// Flags, tier and extent; see the methods.
        flags: u32 = "MethodFlags",
        /// Namespace and type.
        namespace: Option<Utf16<'a>> = "MethodNamespace",
        /// Name.
        name: Option<Utf16<'a>> = "MethodName",
        /// Signature in the syntax of the intermediate language.
        signature: Option<Utf16<'a>> = "MethodSignature",
        /// Version of the method's body.
        rejit_id: Option<u64> = "ReJITID",
    }
}

/// How the code of a method was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the runtime's words")]
pub enum OptimizationTier {
    Unknown,
    MinOptJitted,
    Optimized,
    QuickJitted,
    OptimizedTier1,
    OptimizedTier1Osr,
    InstrumentedTier0,
    InstrumentedTier1,
}

impl MethodLoad<'_> {
    /// Made at run time, without metadata.
    pub fn is_dynamic(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Compiled at run time, not ahead of it.
    pub fn is_jitted(&self) -> bool {
        self.flags & 8 != 0
    }

    /// The seldom executed part of a method whose code is in two places.
    pub fn is_cold(&self) -> bool {
        self.flags >> 28 == 1
    }

    /// The tier; of code compiled ahead of time it is unknown.
    pub fn tier(&self) -> OptimizationTier {
        match (self.is_jitted(), (self.flags >> 7) & 7) {
            (true, 1) => OptimizationTier::MinOptJitted,
            (true, 2) => OptimizationTier::Optimized,
            (true, 3) => OptimizationTier::QuickJitted,
            (true, 4) => OptimizationTier::OptimizedTier1,
            (true, 5) => OptimizationTier::OptimizedTier1Osr,
            (true, 6) => OptimizationTier::InstrumentedTier0,
            (true, 7) => OptimizationTier::InstrumentedTier1,
            _ => OptimizationTier::Unknown,
        }
    }
}

view! {
    /// The compiler begins with a method.
    MethodJittingStarted = [RUNTIME, 145] {
        /// Key of the method.
        method_id: u64 = "MethodID",
        /// Key of its module.
        module_id: u64 = "ModuleID",
        /// Metadata token.
        token: u32 = "MethodToken",
        /// Bytes of intermediate language.
        il_size: u32 = "MethodILSize",
        /// Namespace and type.
        namespace: Utf16<'a> = "MethodNamespace",
        /// Name.
        name: Utf16<'a> = "MethodName",
        /// Signature.
        signature: Utf16<'a> = "MethodSignature",
    }
}

view! {
    /// Which machine code came from which intermediate language.
    IlToNativeMap = [RUNTIME, 190] [RUNDOWN, 149 | 150] {
        /// Key of the method.
        method_id: u64 = "MethodID",
        /// Version of the method's body.
        rejit_id: u64 = "ReJITID",
        /// 0 hot, 1 cold.
        extent: u8 = "MethodExtent",
        /// See [`IlToNativeMap::entries`].
        il_offsets: Value<'a> = "ILOffsets",
        /// The same.
        native_offsets: Value<'a> = "NativeOffsets",
    }
}

impl<'a> IlToNativeMap<'a> {
    /// Offsets in the intermediate language (-1 none, -2 prologue, -3 epilogue) and in the code, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (i32, u32)> + 'a {
        let (il, native) = match (self.il_offsets, self.native_offsets) {
            (Value::Array(il), Value::Array(native)) => (Some(il), Some(native)),
            _ => (None, None),
        };
        let pairs = il.into_iter().flatten().zip(native.into_iter().flatten());
        pairs.filter_map(|pair| match pair {
            (Value::Int32(il), Value::UInt32(native)) => Some((il, native)),
            _ => None,
        })
    }
}
