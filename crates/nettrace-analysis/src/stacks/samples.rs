//! Thread time or events, added up by stack.

use super::{CallTree, Node};
use nettrace::views::{AllocationSampled, AllocationTick, SampleKind, ThreadSample, View};
use nettrace::{Event, TraceInfo};
use std::collections::HashMap;

/// What is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Thread time in nanoseconds, from the runtime's sample profiler: every sampled thread's time, whether it ran or waited.
    ///
    /// A thread's time from one sample to its next belongs to the first one's stack, as in TraceEvent. An event of the runtime's allocations
    /// counts as a sample of a running thread. The last sample of a thread has no time.
    ThreadTime,
    /// One for each event.
    Events,
}

/// What a thread was doing in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// It was in managed code.
    Managed,
    /// It was outside of managed code: in native code, or it waited. The sampler cannot tell which.
    External,
    /// It wrote an event.
    Event,
}

/// What is added up of one trace.
#[derive(Debug)]
pub struct Samples {
    measure: Measure,
    keeps_order: bool,
    tree: CallTree,
    threads: Vec<Thread>,
    by_id: HashMap<(u64, u64), usize>,
    total: u64,
    external: u64,
    left_out: u64,
    samples: u64,
    sampler: u64,
}

/// One thread's samples.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) process_id: u64,
    pub(super) thread_id: u64,
    /// When its first sample was, in nanoseconds since the start of the trace.
    pub(super) start_ns: i64,
    /// Since when it does what.
    current: Option<(i64, Node, Kind)>,
    /// What it did, in nanoseconds or events.
    pub(super) sums: HashMap<(Node, Kind), u64>,
    /// The same one after the other, if that is kept.
    pub(super) spans: Vec<(Node, Kind, u64)>,
}

impl Samples {
    /// Nothing added yet.
    pub fn new(measure: Measure) -> Samples {
        Samples {
            measure,
            keeps_order: false,
            tree: CallTree::default(),
            threads: Vec::new(),
            by_id: HashMap::new(),
            total: 0,
            external: 0,
            left_out: 0,
            samples: 0,
            sampler: 0,
        }
    }

    /// Keeps what each thread did in the order of time, as [`speedscope`](super::speedscope()) shows it: to be called before anything is added.
    /// Memory then grows with the number of samples.
    pub fn in_order(mut self) -> Samples {
        self.keeps_order = true;
        self
    }

    /// Adds an event, unless it is none that counts; whether it did. They are to come by time, thread for thread at least.
    pub fn add(&mut self, info: &TraceInfo, event: &Event<'_>) -> bool {
        let kind = match self.measure {
            Measure::Events => Kind::Event,
            Measure::ThreadTime => match kind_of_sample(event) {
                Some(kind) => kind,
                None => return false,
            },
        };
        let now = info.nanoseconds(event.timestamp());
        let node = self.tree.add(event);
        let thread = self.thread(event, now);
        self.samples += 1;
        self.sampler += u64::from(ThreadSample::matches(event.metadata()));
        match self.measure {
            Measure::Events => self.put(thread, node, kind, 1),
            Measure::ThreadTime => {
                let before = self.threads[thread].current.replace((now, node, kind));
                if let Some((since, node, kind)) = before {
                    let ns = u64::try_from(now.saturating_sub(since)).unwrap_or(0);
                    self.put(thread, node, kind, ns);
                }
            }
        }
        true
    }

    fn thread(&mut self, event: &Event<'_>, now: i64) -> usize {
        let key = (event.process_id(), event.thread_id());
        *self.by_id.entry(key).or_insert_with(|| {
            self.threads.push(Thread {
                process_id: key.0,
                thread_id: key.1,
                start_ns: now,
                current: None,
                sums: HashMap::new(),
                spans: Vec::new(),
            });
            self.threads.len() - 1
        })
    }

    fn put(&mut self, thread: usize, node: Node, kind: Kind, weight: u64) {
        self.total = self.total.saturating_add(weight);
        if kind == Kind::External {
            self.external = self.external.saturating_add(weight);
        }
        let thread = &mut self.threads[thread];
        let sum = thread.sums.entry((node, kind)).or_default();
        *sum = sum.saturating_add(weight);
        if !self.keeps_order {
            return;
        }
        match thread.spans.last_mut() {
            Some(last) if (last.0, last.1) == (node, kind) => {
                last.2 = last.2.saturating_add(weight);
            }
            _ => thread.spans.push((node, kind, weight)),
        }
    }

    /// Takes out the time outside of managed code. What is left of a thread's time then follows each other without gaps.
    pub fn leave_out_external(&mut self) {
        for thread in &mut self.threads {
            thread.sums.retain(|(_, kind), _| *kind != Kind::External);
            thread.spans.retain(|(_, kind, _)| *kind != Kind::External);
        }
        self.total = self.total.saturating_sub(self.external);
        self.left_out = core::mem::take(&mut self.external);
    }

    /// What was taken out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What is added up.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// The sum, in nanoseconds or events.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What of the sum lay outside of managed code.
    pub fn external(&self) -> u64 {
        self.external
    }

    /// Whether no event was added.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Whether the runtime's sample profiler took some of them. Where it did not, thread time between allocations means little.
    pub fn has_sampler(&self) -> bool {
        self.sampler > 0
    }

    /// Events that were added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The stacks.
    pub fn tree(&self) -> &CallTree {
        &self.tree
    }

    pub(super) fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter()
    }
}

/// What a thread was doing, if the event is a sample of it.
fn kind_of_sample(event: &Event<'_>) -> Option<Kind> {
    let metadata = event.metadata();
    if ThreadSample::matches(metadata) {
        let sample = ThreadSample::of(metadata, event.schema(), event.payload())?;
        return Some(match sample.kind() {
            SampleKind::Managed => Kind::Managed,
            SampleKind::External | SampleKind::Error => Kind::External,
        });
    }
    let is_allocation = AllocationTick::matches(metadata) || AllocationSampled::matches(metadata);
    is_allocation.then_some(Kind::Managed)
}
