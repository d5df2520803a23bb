//! What was allocated, by type.

use nettrace::Event;
use nettrace::views::{AllocationKind, AllocationTick, View};
use serde::Serialize;
use std::collections::HashMap;

/// Allocations of a trace by type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AllocationReport {
    /// Events: about one for each 100 KB.
    pub ticks: u64,
    /// Bytes that were allocated, of whatever types.
    pub bytes: u64,
    /// The types of the objects with which each 100 KB were full, the one with most bytes first.
    pub types: Vec<AllocatedType>,
}

/// One type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AllocatedType {
    /// Its name; empty where the trace has none.
    #[serde(rename = "type")]
    pub name: String,
    /// Events.
    pub count: u64,
    /// Bytes that were allocated up to those events: an estimate of the type's own share, the better the more events there are.
    pub bytes: u64,
    /// Of the events, those for small objects,
    pub small: u64,
    /// for the large object heap
    pub large: u64,
    /// and for the pinned one.
    pub pinned: u64,
}

/// Gathers allocations. It needs the keyword GC (0x1) at level Verbose.
#[derive(Debug, Default)]
pub struct Allocations {
    types: HashMap<String, AllocatedType>,
    ticks: u64,
    bytes: u64,
}

impl Allocations {
    /// Nothing gathered yet.
    pub fn new() -> Allocations {
        Allocations::default()
    }

    /// Takes an event.
    pub fn add(&mut self, event: &Event<'_>) {
        let Some(tick) = AllocationTick::of(event.metadata(), event.schema(), event.payload())
        else {
            return;
        };
        let amount = tick.amount();
        self.ticks += 1;
        self.bytes = self.bytes.saturating_add(amount);
        let name = tick
            .type_name
            .map_or_else(String::new, |name| name.to_string());
        let row = self.types.entry(name).or_default();
        row.count += 1;
        row.bytes = row.bytes.saturating_add(amount);
        match AllocationKind::from(tick.kind) {
            AllocationKind::Small => row.small += 1,
            AllocationKind::Large => row.large += 1,
            AllocationKind::Pinned => row.pinned += 1,
            AllocationKind::Other(_) => {}
        }
    }

    /// The report.
    pub fn finish(self) -> AllocationReport {
        let rows = self.types.into_iter();
        let mut types: Vec<_> = rows
            .map(|(name, row)| AllocatedType { name, ..row })
            .collect();
        types.sort_by(|a, b| (b.bytes, b.count, &a.name).cmp(&(a.bytes, a.count, &b.name)));
        AllocationReport {
            ticks: self.ticks,
            bytes: self.bytes,
            types,
        }
    }
}
