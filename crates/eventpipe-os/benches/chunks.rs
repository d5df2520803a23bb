//! What it costs to fill memory that another thread has read: chunks, which go past the caches where that thread ran on another
//! processor, beside a plain copy into buffers that go round in the same way. GB a second, medians of some rounds in turn.
//!
//! `cargo bench -p eventpipe-os --bench chunks`. Not a criterion bench: only one side of a hand-over is to be measured, on threads that
//! stay on their processors.

use eventpipe_os::chunks::Chunks;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// As a session's queue has them.
const BYTES: usize = 104 << 10;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(150);
/// So many wait for the reader at most.
const AHEAD: usize = 2;

fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).expect("a processor of this process");
}

/// Fills what `take` gives and hands it to a thread on `reader`, which reads it and gives it to `give_back`; GB a second of the filling.
fn fill<T: Send + AsRef<[u8]>>(
    reader: usize,
    mut take: impl FnMut() -> T,
    mut fill: impl FnMut(&mut T, &[u8]),
    mut give_back: impl FnMut(T) + Send,
) -> f64 {
    let mut source = vec![0; BYTES];
    let (mut bytes, mut spent) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<T>(AHEAD);
        scope.spawn(move || {
            stay_on(reader);
            let mut copy = vec![0; BYTES];
            for piece in receive {
                copy.copy_from_slice(piece.as_ref());
                black_box(&copy);
                give_back(piece);
            }
        });
        let start = Instant::now();
        while start.elapsed() < ROUND {
            // As an encoder leaves it: in the nearest caches.
            source.fill(bytes as u8);
            let mut piece = take();
            let begin = Instant::now();
            fill(&mut piece, black_box(&source));
            spent += begin.elapsed();
            bytes += BYTES;
            send.send(piece).expect("the reader reads on");
        }
    });
    bytes as f64 / spent.as_nanos() as f64
}

struct Piece(eventpipe_os::chunks::Chunk);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn chunks(reader: usize) -> f64 {
    let chunks = Chunks::new(BYTES, 64).expect("address space");
    fill(
        reader,
        || Piece(chunks.take().expect("a chunk")),
        |piece, bytes| {
            piece.0.fill(bytes);
        },
        drop,
    )
}

fn plain(reader: usize) -> f64 {
    let (back, free) = mpsc::channel();
    for _ in 0..AHEAD + 2 {
        back.send(vec![0; BYTES]).expect("it is kept");
    }
    fill(
        reader,
        || free.recv().expect("it comes back"),
        |buffer: &mut Vec<u8>, bytes| buffer.copy_from_slice(bytes),
        move |buffer| {
            let _ = back.send(buffer);
        },
    )
}

fn main() {
    let mine = sched_getaffinity(None).expect("the processors of this process");
    let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| mine.is_set(*processor));
    let (Some(here), there) = (processors.next(), processors.next()) else {
        return;
    };
    stay_on(here);
    for (name, reader) in [
        ("another processor", there),
        ("the same processor", Some(here)),
    ] {
        let Some(reader) = reader else {
            println!("read on {name}: there is none");
            continue;
        };
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rates[0].push(chunks(reader));
            rates[1].push(plain(reader));
        }
        let [chunks, plain] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            let last = rates.len() - 1;
            format!(
                "{:.1} ({:.1}–{:.1})",
                rates[last / 2],
                rates[0],
                rates[last]
            )
        });
        println!("read on {name}, GB/s: chunks {chunks}, plain copy {plain}");
    }
}
