//! Events held back so that they can be written by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::vec::Vec;

use hashbrown::HashMap;

use crate::{Event, EventRecord, Metadata, UNKNOWN_PROCESSOR};

/// Holds events up to a number of bytes and gives back the oldest.
#[derive(Debug)]
pub(super) struct Window {
    limit: usize,
    bytes: usize,
    /// Time, order of arrival, and where the event is.
    order: BinaryHeap<Reverse<Place>>,
    events: Vec<Option<Held>>,
    free: Vec<usize>,
    arrived: u64,
    metadata: HashMap<u32, Rc<Metadata>>,
}

/// Where an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    timestamp: i64,
    arrived: u64,
    index: usize,
}

impl Place {
    pub(super) fn timestamp(&self) -> i64 {
        self.timestamp
    }
}

/// An event that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) metadata: Rc<Metadata>,
    pub(super) thread_id: u64,
    timestamp: i64,
    activity: (crate::Guid, crate::Guid),
    /// Payload, then stack.
    bytes: Vec<u8>,
    payload: usize,
}

/// What an event takes beside its bytes.
const OVERHEAD: usize = 160;

impl Window {
    pub(super) fn new(limit: usize) -> Window {
        Window {
            limit,
            bytes: 0,
            order: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            arrived: 0,
            metadata: HashMap::new(),
        }
    }

    pub(super) fn hold(&mut self, event: &Event<'_>) {
        let metadata = event.metadata();
        let known = self
            .metadata
            .entry(metadata.id)
            .or_insert_with(|| Rc::new(metadata.clone()));
        let stack = event.stack().bytes();
        let mut bytes = Vec::with_capacity(event.payload().len().saturating_add(stack.len()));
        bytes.extend_from_slice(event.payload());
        bytes.extend_from_slice(stack);
        self.bytes = self
            .bytes
            .saturating_add(bytes.len())
            .saturating_add(OVERHEAD);
        let held = Held {
            metadata: Rc::clone(known),
            thread_id: event.thread_id(),
            timestamp: event.timestamp(),
            activity: (event.activity_id(), event.related_activity_id()),
            payload: event.payload().len(),
            bytes,
        };
        let index = self.free.pop().unwrap_or(self.events.len());
        let place = Place {
            timestamp: held.timestamp,
            arrived: self.arrived,
            index,
        };
        match self.events.get_mut(index) {
            Some(free) => *free = Some(held),
            None => self.events.push(Some(held)),
        }
        self.arrived = self.arrived.wrapping_add(1);
        self.order.push(Reverse(place));
    }

    /// The oldest event, if more is held than allowed.
    pub(super) fn overfull(&mut self) -> Option<Place> {
        if self.bytes > self.limit {
            self.oldest()
        } else {
            None
        }
    }

    /// The oldest event; [`Window::take`] must get it.
    pub(super) fn oldest(&mut self) -> Option<Place> {
        self.order.pop().map(|Reverse(place)| place)
    }

    /// Gives an event out, for the last time.
    pub(super) fn take(&mut self, place: Place) -> Option<Held> {
        let held = self.events.get_mut(place.index).and_then(Option::take)?;
        self.free.push(place.index);
        self.bytes = self
            .bytes
            .saturating_sub(held.bytes.len())
            .saturating_sub(OVERHEAD);
        Some(held)
    }
}

impl Held {
    /// The pointers of its stack.
    pub(super) fn stack(&self) -> &[u8] {
        self.bytes.get(self.payload..).unwrap_or_default()
    }

    /// The event without what the target numbers.
    pub(super) fn record(&self) -> EventRecord<'_> {
        let (activity_id, related_activity_id) = self.activity;
        EventRecord {
            metadata_id: 0,
            sequence_number: 0,
            thread_id: self.thread_id,
            capture_thread_id: self.thread_id,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id: 0,
            timestamp: self.timestamp as u64,
            activity_id,
            related_activity_id,
            is_sorted: false,
            label_list: 0,
            payload: self.bytes.get(..self.payload).unwrap_or_default(),
        }
    }
}
