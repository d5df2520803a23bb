//! What the models share: bounds, a sink that checks the law, and the run of a negative control.

use eventpipe_ring::model::ticks;
use eventpipe_ring::{EventKey, LossReason, Record, Ring, Sink, ThreadInfo};
use loom::sync::Arc;
use std::collections::BTreeMap;

/// Every interleaving with at most so many preemptions.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Runs the named test of this program again with the protocol weakened; it must fail, and by a
/// finding of the model.
pub(crate) fn must_fail(control: &str, test: &str) {
    if std::env::var_os("NEGATIVE_CONTROL").is_some() {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("NEGATIVE_CONTROL", control)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("running 1 test"), "{test} exists: {text}");
    assert!(
        !output.status.success(),
        "the model did not notice {control}"
    );
    assert!(
        text.contains("panicked at"),
        "a finding, not another failure: {text}"
    );
    assert!(
        !text.contains("Model exceeded maximum number of branches"),
        "{control}: {text}"
    );
}

pub(crate) type Shared<T> = Arc<T>;

pub(crate) fn key() -> Shared<EventKey> {
    Arc::new(EventKey::new(1))
}

pub(crate) fn ring(small: u32, slots: u32) -> Shared<Ring> {
    Arc::new(Ring::model(small, 0, slots))
}

/// A payload that makes a record of 32 bytes: three to a block.
pub(crate) fn small(number: u64) -> [u8; 8] {
    number.to_ne_bytes()
}

/// A payload that makes a record of 56 bytes: one to a block.
pub(crate) fn large(number: u64) -> [u8; 32] {
    let mut payload = [number as u8; 32];
    payload[..8].copy_from_slice(&number.to_ne_bytes());
    payload
}

#[derive(Debug, Default)]
pub(crate) struct PerThread {
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) ended: bool,
}

/// Checks that each thread's events come in order, none twice, every gap told where it is; that
/// what was marked sorted was so; that nothing comes after the boundary passed it.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    pub(crate) threads: BTreeMap<u64, PerThread>,
    current: u64,
    sorted_from: u64,
    boundary: u64,
}

impl Checker {
    pub(crate) fn accounted(&self) -> u64 {
        self.threads
            .values()
            .map(|thread| thread.delivered + thread.lost)
            .sum()
    }
    pub(crate) fn lost(&self) -> u64 {
        self.threads.values().map(|thread| thread.lost).sum()
    }
    pub(crate) fn all_ended(&self) -> bool {
        self.threads.values().all(|thread| thread.ended)
    }
}

impl Sink for Checker {
    fn thread(&mut self, thread: ThreadInfo) {
        self.current = thread.uid;
        assert_eq!(thread.os_thread_id, thread.uid + 1000);
        assert!(
            !self.threads.entry(thread.uid).or_default().ended,
            "a thread that has ended"
        );
    }
    fn record(&mut self, record: &Record<'_>, sorted: bool) {
        assert!(record.ticks > self.boundary, "older than the boundary");
        assert!(
            record.ticks >= self.sorted_from,
            "older than a sorted record"
        );
        if sorted {
            self.sorted_from = record.ticks;
        }
        let number = u64::from_ne_bytes(record.payload[..8].try_into().unwrap());
        assert!(
            record.payload[8..].iter().all(|byte| *byte == number as u8),
            "torn"
        );
        let thread = self.threads.get_mut(&self.current).unwrap();
        assert_eq!(
            number,
            thread.delivered + thread.lost,
            "out of order, or a gap that was not told"
        );
        thread.delivered += 1;
    }
    fn lost(&mut self, session: u32, count: u64, _: LossReason) {
        assert_eq!(session, 0);
        assert_ne!(count, 0);
        self.threads.get_mut(&self.current).unwrap().lost += count;
    }
    fn thread_ended(&mut self, uid: u64) {
        let thread = self
            .threads
            .get_mut(&uid)
            .expect("a thread that was told of");
        assert!(!std::mem::replace(&mut thread.ended, true), "ended twice");
    }
    fn boundary(&mut self, ticks: u64) {
        assert!(ticks >= self.boundary);
        self.boundary = ticks;
    }
}

/// Rounds until everything up to now has been given: an event in the making, if only for others,
/// may hold a round back.
pub(crate) fn drain_to_now(ring: &Ring, checker: &mut Checker) {
    let now = ticks();
    let mut drain = ring.drain().unwrap();
    while drain.round(checker).boundary_ticks < now {
        loom::thread::yield_now();
    }
}

/// Everything that is left, when nobody writes any more.
pub(crate) fn drain_all(ring: &Ring, checker: &mut Checker) {
    let mut drain = ring.drain().unwrap();
    drain.take_back_idle();
    // The first round may find blocks whose records it frees, the second the ends of their threads.
    drain.round(checker);
    drain.round(checker);
    drain.collect_lost(1, checker);
}

/// All that came from a session is there already: what its last writer still does adds nothing.
pub(crate) fn nothing_more<T>(
    ring: &Ring,
    checker: &mut Checker,
    writer: loom::thread::JoinHandle<T>,
) {
    let at_the_end = checker.accounted();
    writer.join().unwrap();
    drain_all(ring, checker);
    assert_eq!(
        checker.accounted(),
        at_the_end,
        "an event after the end of its session"
    );
}

/// Every block has come back.
pub(crate) fn check_blocks(ring: &Ring) {
    let statistics = ring.statistics();
    assert_eq!(
        statistics.free_bytes, statistics.pool_bytes,
        "a block has gone astray"
    );
}
