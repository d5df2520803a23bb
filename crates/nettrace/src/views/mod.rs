//! Typed views of the events that tools need, one struct per event, borrowing from the payload.
//!
//! ```
//! # use nettrace::{Metadata, Schema};
//! use nettrace::views::{ExceptionThrown, View};
//!
//! fn print(metadata: &Metadata, schema: &Schema, payload: &[u8]) {
//!     if let Some(thrown) = ExceptionThrown::of(metadata, schema, payload) {
//!         println!("{}: {}", thrown.exception_type, thrown.message);
//!     }
//! }
//! ```
//!
//! A field that newer versions of an event added is an `Option`. A view of an event whose payload lacks one of the
//! other fields is `None`.

mod counters;
mod gc;
mod loader;
mod methods;
mod metrics;
mod process;
mod threads;
mod universal;

pub use counters::{Counter, CounterValue};
pub use gc::{
    AllocationKind, AllocationSampled, AllocationTick, GcEnd, GcHeapStats, GcRestartEnd, GcStart,
    GcSuspendBegin, GcTriggered,
};
pub use loader::{AppDomainLoad, AssemblyLoad, DomainModuleLoad, ModuleLoad};
pub use methods::{IlToNativeMap, MethodJittingStarted, MethodLoad, OptimizationTier};
pub use metrics::{
    Histogram, Instrument, InstrumentValue, METRICS, MetricsError, MetricsEvent, Tags, ValueKind,
};
pub use process::{ExecutionCheckpoint, ProcessInfo, RundownMark, RuntimeInformation};
pub use threads::{
    ContentionStart, ContentionStop, ExceptionThrown, SampleKind, ThreadCreated,
    ThreadPoolAdjustment, ThreadPoolWorkers, ThreadSample,
};
pub use universal::{ProcessMapping, ProcessMappingMetadata, ProcessStart, ProcessSymbol};

use crate::payload::{Fields, Utf16, Value};
use crate::{Guid, Metadata, Schema};

/// A typed reading of one kind of event.
pub trait View<'a>: Sized {
    /// Whether events of this row can be read so.
    fn matches(metadata: &Metadata) -> bool;

    /// The view of decoded fields.
    fn read(fields: Fields<'a>) -> Option<Self>;

    /// The view of an event; `None` when it is another event or its payload ends too early.
    fn of(metadata: &Metadata, schema: &'a Schema, payload: &'a [u8]) -> Option<Self> {
        if Self::matches(metadata) {
            Self::read(schema.fields(payload))
        } else {
            None
        }
    }
}

/// Types of the fields of views.
trait FromValue<'a>: Sized {
    fn from_value(value: Value<'a>) -> Option<Self>;
    /// What to take for a field that is not there.
    fn absent() -> Option<Self> {
        None
    }
}

macro_rules! unsigned {
    ($($of:ty),*) => {$(
        impl<'a> FromValue<'a> for $of {
            /// Fields that TraceEvent shows as signed are sizes, flags and ids: their bits are taken.
            fn from_value(value: Value<'a>) -> Option<Self> {
                match value {
                    Value::Int16(value) => Some(u16::from_le_bytes(value.to_le_bytes()).into()),
                    Value::Int32(value) => u32::from_le_bytes(value.to_le_bytes()).try_into().ok(),
                    Value::Int64(value) => u64::from_le_bytes(value.to_le_bytes()).try_into().ok(),
                    value => value.as_u64()?.try_into().ok(),
                }
            }
        }
    )*};
}
unsigned!(u16, u32, u64);

impl<'a> FromValue<'a> for u8 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl<'a> FromValue<'a> for i32 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.as_i64()?.try_into().ok()
    }
}

impl<'a> FromValue<'a> for i64 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.as_i64()
    }
}

impl<'a> FromValue<'a> for f64 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.as_f64()
    }
}

impl<'a> FromValue<'a> for Guid {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Guid(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Utf16<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::String(value) => Some(value),
            _ => None,
        }
    }
}

/// UTF-8 text of whole-machine traces.
impl<'a> FromValue<'a> for &'a [u8] {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Utf8(value) | Value::Bytes(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Value<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        Some(value)
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        Some(T::from_value(value))
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// Declares a view: which events, and from which field of the payload each member comes.
macro_rules! view {
    (
        $(#[$docs:meta])*
        $name:ident = $([$provider:expr, $ids:pat])+ {
            $($(#[$field_docs:meta])* $field:ident: $of:ty = $wire:literal,)*
        }
    ) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name<'a> {
            $($(#[$field_docs])* pub $field: $of,)*
            /// All fields, for what is not a member.
            pub fields: $crate::payload::Fields<'a>,
        }

        impl<'a> $crate::views::View<'a> for $name<'a> {
            fn matches(metadata: &$crate::Metadata) -> bool {
                $((matches!(metadata.event_id, $ids) && metadata.provider == $provider))||+
            }

            fn read(fields: $crate::payload::Fields<'a>) -> Option<Self> {
                $(let mut $field: Option<$of> = None;)*
                for (name, value) in fields {
                    match name {
                        $($wire => $field = $crate::views::FromValue::from_value(value),)*
                        _ => {}
                    }
                }
                Some($name {
                    $($field: match $field {
                        Some(value) => value,
                        None => <$of as $crate::views::FromValue>::absent()?,
                    },)*
                    fields,
                })
            }
        }
    };
}
pub(crate) use view;

#[cfg(test)]
use metrics::escapes as metrics_escapes;

#[cfg(test)]
mod tests;
