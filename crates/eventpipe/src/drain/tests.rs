//! What several sessions want, each gets as if it were alone: the same bytes, the same counts.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use eventpipe_ring::{
    EventKey, LossReason, Record, RecordOptions, Records, Ring, Sink, ThreadInfo,
};
use nettrace::{TraceInfo, WriteFormat};

use super::Sessions;
use crate::consumer::Consumer;
use crate::definition::Definition;
use crate::encoder::SessionEncoder;
use crate::netperf::NetPerfEncoder;
use crate::process_info;
use crate::provider::Provider;
use crate::queue::Next;
use crate::session::{Buffering, SessionId, SessionState};

/// Not those that real sessions have first.
const SAME: u32 = 40;
const AS_SAME: u32 = 41;
const SIX: u32 = 42;
const SECOND: u32 = 43;
const STOPS: u32 = 44;
const FULL: u32 = 45;
const NETPERF: u32 = 46;
const ALL: [u32; 7] = [SAME, AS_SAME, SIX, SECOND, STOPS, FULL, NETPERF];

fn bits(sessions: &[u32]) -> u64 {
    sessions.iter().map(|bit| 1 << bit).sum()
}

/// One session's part, in the sink of all or in one of its own.
fn add(sessions: &mut Sessions, bit: u32, info: &TraceInfo) -> Arc<SessionState> {
    let limit = if bit == FULL { 300 << 10 } else { 64 << 20 };
    let state = SessionState::new(SessionId(u64::from(bit)), limit, Buffering::Drop).expect("made");
    let format = if bit == SIX {
        WriteFormat::V6
    } else {
        WriteFormat::V4
    };
    let place = &mut sessions.encoders[bit as usize];
    *place = Some(if bit == NETPERF {
        Consumer::NetPerf(Box::new(NetPerfEncoder::new(
            bit,
            state.clone(),
            info,
            true,
        )))
    } else {
        let encoder = SessionEncoder::new(bit, state.clone(), format, info, true, 0);
        Consumer::Stream(Box::new(encoder))
    });
    sessions.active |= 1 << bit;
    state
}

/// What was handed over: bytes, and events delivered and lost.
fn result(state: &SessionState) -> (Vec<u8>, u64, u64) {
    state.queue.open();
    let mut bytes = Vec::new();
    while let Next::Send(piece) = state.queue.next() {
        piece
            .parts()
            .iter()
            .for_each(|part| bytes.extend_from_slice(part));
    }
    (
        bytes,
        state.delivered.load(Ordering::Relaxed),
        state.lost.load(Ordering::Relaxed),
    )
}

struct Compared {
    together: Sessions,
    alone: Vec<(u32, Sessions)>,
    /// Those of the session that stops: it does so in the middle of the first stretch.
    stopping: [Arc<SessionState>; 2],
    /// By session: how many events it should have been asked to take.
    wanted: [u64; 64],
}

impl Sink for Compared {
    fn thread(&mut self, thread: ThreadInfo) {
        self.together.thread(thread);
        for (_, alone) in &mut self.alone {
            alone.thread(thread);
        }
    }

    fn record(&mut self, _: &Record<'_>, _: bool) {
        unreachable!("all come in stretches");
    }

    fn records(&mut self, records: &mut Records<'_>, sorted: bool) {
        let seen: Vec<_> = records.clone().collect();
        if self.wanted[STOPS as usize] == 0 {
            let stop = seen[seen.len() / 2].ticks;
            for state in &self.stopping {
                state.stopped_ticks.store(stop, Ordering::Release);
            }
        }
        let stopped = self.stopping[0].stopped_ticks.load(Ordering::Acquire);
        for (index, record) in seen.iter().enumerate() {
            for (bit, alone) in &mut self.alone {
                if record.sessions & 1 << *bit != 0 {
                    let takes = *bit != STOPS || record.ticks <= stopped;
                    self.wanted[*bit as usize] += u64::from(takes);
                    alone.record_for(1 << *bit, record, sorted && index == 0);
                }
            }
        }
        self.together.records(records, sorted);
    }

    fn lost(&mut self, session: u32, count: u64, reason: LossReason) {
        panic!("session {session} lost {count} events: {reason:?}");
    }

    fn thread_ended(&mut self, uid: u64) {
        self.together.thread_ended(uid);
        for (_, alone) in &mut self.alone {
            alone.thread_ended(uid);
        }
    }

    fn boundary(&mut self, ticks: u64) {
        self.together.boundary(ticks);
        for (_, alone) in &mut self.alone {
            alone.boundary(ticks);
        }
    }
}

/// Events of two kinds and many sizes, mostly runs of a kind; some with what the short form cannot say. How many.
fn write(ring: &'static Ring, first: &EventKey, second: &EventKey) -> u64 {
    let payload = vec![7; 2_000];
    let activity = [1; 16];
    for number in 0..3_000_usize {
        let frames = [0x1000, 0x2000 + number / 50];
        let options = RecordOptions {
            activity: (number % 97 > 90).then_some(&activity),
            event_thread: (number % 301 == 300).then_some(77),
            frames: if number % 64 < 32 { &frames } else { &[] },
            ..RecordOptions::default()
        };
        let event = if number % 40 > 35 { second } else { first };
        let length = match number % 500 {
            499 => 2_000,
            other => other % 130,
        };
        ring.write(event, &payload[..length], &options);
    }
    3_000
}

#[test]
fn what_several_sessions_want_each_gets_as_if_it_were_alone() {
    static RING: Ring = Ring::new();
    let provider = Provider::builder("Several").register();
    let key = |name, sessions| {
        let event = provider.define(Definition::new(name));
        EventKey {
            mask: AtomicU64::new(sessions),
            stack_mask: AtomicU64::new(0),
            index: AtomicU32::new(event.key().index.load(Ordering::Relaxed)),
        }
    };
    let first = key("First", bits(&ALL) & !bits(&[SECOND]));
    let second = key("Second", bits(&ALL) & !bits(&[SAME, AS_SAME]));

    let info = process_info::trace_info();
    let mut together = Sessions::new();
    let states = ALL.map(|bit| add(&mut together, bit, &info));
    let mut alone = Vec::new();
    let states_alone = ALL.map(|bit| {
        let mut sessions = Sessions::new();
        sessions.clock = together.clock.clone();
        let state = add(&mut sessions, bit, &info);
        alone.push((bit, sessions));
        state
    });
    let index_of = |bit| ALL.iter().position(|one| *one == bit).expect("one of them");
    let mut sink = Compared {
        together,
        alone,
        stopping: [&states, &states_alone].map(|states| states[index_of(STOPS)].clone()),
        wanted: [0; 64],
    };

    RING.start(16 << 20).expect("memory for the ring");
    let mut drain = RING.drain().expect("nobody else drains it");
    for _ in 0..3 {
        let mut written = write(&RING, &first, &second);
        written += std::thread::scope(|scope| {
            let other = scope.spawn(|| write(&RING, &first, &second));
            other.join().expect("no panic")
        });
        let mut given = 0;
        while given < written {
            given += drain.round(&mut sink).records;
        }
        assert_eq!(given, written);
    }
    drain.round(&mut sink);

    for (index, bit) in ALL.into_iter().enumerate() {
        let (bytes, delivered, lost) = result(&states[index]);
        let (bytes_alone, delivered_alone, lost_alone) = result(&states_alone[index]);
        assert_eq!((delivered, lost), (delivered_alone, lost_alone), "{bit}");
        assert_eq!(delivered + lost, sink.wanted[bit as usize], "session {bit}");
        assert_eq!(lost > 0, bit == FULL, "session {bit} lost {lost}");
        assert!(delivered > 10, "session {bit} got {delivered}");
        assert!(bytes == bytes_alone, "the stream of session {bit} differs");
    }
}
