//! What no engine can be without: reading the clock, one copy of the event, the socket.
//!
//! One thread does that and nothing else: no buffer for other threads, no filter, no order, no losses, no format but as many bytes as the
//! format has. So it is a bound for what processor time an engine can save, not an engine.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::stress::Kind;

/// Events in each run: a fraction of a second.
const EVENTS: u32 = 4_000_000;
/// As much as the engine gives to the socket at a time.
const PIECE: usize = 64 << 10;
/// Bytes that the format has for each event besides its payload, in its short form.
const HEADER: usize = 2;

/// Processor time of one event, in ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Least {
    /// A text or a number.
    pub(super) kind: Kind,
    /// Of the thread that writes.
    pub(super) written: f64,
    /// Of the thread that takes the bytes out of the socket, and does not look at them.
    pub(super) taken: f64,
}

/// Measures a text of 100 characters and a number, in turn.
pub(super) fn measure(rounds: usize) -> Result<Vec<Least>> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        for kind in [Kind::Text, Kind::Number] {
            all.push(once(kind).context("measuring what no engine can be without")?);
        }
    }
    Ok(all)
}

fn once(kind: Kind) -> Result<Least> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let reader = std::thread::spawn(move || -> std::io::Result<f64> {
        let mut bytes = vec![0; 256 << 10];
        while theirs.read(&mut bytes)? != 0 {}
        Ok(thread_ns())
    });
    let text = "x".repeat(100);
    let mut piece = Vec::with_capacity(PIECE + 1024);
    let before = thread_ns();
    for number in 0..EVENTS {
        let ticks = black_box(eventpipe_os::clock::ticks()).to_le_bytes();
        piece.extend_from_slice(ticks.first_chunk::<HEADER>().unwrap_or(&[0; HEADER]));
        match kind {
            Kind::Text => {
                // UTF-16 with a zero at the end, as the format has it.
                piece.extend(black_box(&text).bytes().flat_map(|byte| [byte, 0]));
                piece.extend_from_slice(&[0; 2]);
            }
            _ => piece.extend_from_slice(&u64::from(number).to_le_bytes()),
        }
        if piece.len() >= PIECE {
            ours.write_all(&piece)?;
            piece.clear();
        }
    }
    ours.write_all(&piece)?;
    let written = thread_ns() - before;
    drop(ours);
    let taken = reader
        .join()
        .map_err(|_| anyhow!("the reading thread panicked"))??;
    let per_event = |ns: f64| ns / f64::from(EVENTS);
    Ok(Least {
        kind,
        written: per_event(written),
        taken: per_event(taken),
    })
}

fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_costs_more_than_a_number() {
        let all = measure(1).unwrap();
        let [text, number] = all.as_slice() else {
            panic!("{all:?}");
        };
        println!("{text:?} {number:?}");
        assert_eq!((text.kind, number.kind), (Kind::Text, Kind::Number));
        assert!(
            text.written > number.written && number.written > 0.0,
            "{all:?}"
        );
        assert!(text.taken > number.taken && number.taken > 0.0, "{all:?}");
    }
}
