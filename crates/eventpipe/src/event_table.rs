//! All events of the process by index. Grows, never shrinks, and is read without a lock: by the drain for each record, and
//! in the child of a fork, where the control lock may be held by a thread that does not exist.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use eventpipe_os::sync::Once;

use crate::event::Event;

const SEGMENT: usize = 256;
const SEGMENTS: usize = 1024;

type Segment = Box<[Once<&'static Event>; SEGMENT]>;

#[derive(Debug)]
pub(crate) struct EventTable {
    length: AtomicU32,
    segments: [Once<Segment>; SEGMENTS],
}

impl EventTable {
    pub(crate) const fn new() -> Self {
        EventTable {
            length: AtomicU32::new(0),
            segments: [const { Once::new() }; SEGMENTS],
        }
    }

    /// Appends an event; one caller at a time. None when 262,144 events exist.
    pub(crate) fn push(&self, event: &'static Event) -> Option<u32> {
        let index = self.length.load(Ordering::Relaxed);
        let segment = self
            .segments
            .get(index as usize / SEGMENT)?
            .get_or_init(|| Box::new([const { Once::new() }; SEGMENT]));
        segment.get(index as usize % SEGMENT)?.get_or_init(|| event);
        self.length.store(index + 1, Ordering::Release);
        Some(index)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&'static Event> {
        let segment = self.segments.get(index as usize / SEGMENT)?.get()?;
        segment.get(index as usize % SEGMENT)?.get().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Event> {
        (0..self.length.load(Ordering::Acquire)).filter_map(|index| self.get(index))
    }
}
