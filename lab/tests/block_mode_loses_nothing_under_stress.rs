//! Promise: the stress suite reads every event that a session in block mode asked for, from a reader that stalls and from one that
//! is slow; and the same stress without block mode loses events, all of them counted.

use std::path::Path;

use lab::Engine;
use lab::stress::{Full, Options, Outcome, ReaderMode, run_once};

fn stress(reader: ReaderMode, buffering: Full) -> Outcome {
    let options = Options {
        threads: Some(4),
        count: Some(50_000),
        event_size: 500,
        buffer_mb: 1,
        reader,
        stall: Some(1.0),
        slow_rate: 60.0,
        buffering,
        ..Options::default()
    };
    run_once(
        Engine::Ours,
        &options,
        None,
        Path::new(env!("CARGO_BIN_EXE_lab")),
    )
    .expect("a run")
}

#[test]
fn a_stalled_reader_gets_every_event() {
    let outcome = stress(ReaderMode::Stalled, Full::Block);
    assert_eq!(
        (outcome.read, outcome.lost, outcome.unaccounted),
        (Some(outcome.attempted), Some(0), Some(0))
    );
}

#[test]
fn a_slow_reader_gets_every_event() {
    let outcome = stress(ReaderMode::Slow, Full::Block);
    assert_eq!(
        (outcome.read, outcome.lost, outcome.unaccounted),
        (Some(outcome.attempted), Some(0), Some(0))
    );
}

#[test]
fn without_block_mode_events_are_lost_and_counted() {
    let outcome = stress(ReaderMode::Stalled, Full::Drop);
    assert_eq!(outcome.unaccounted, Some(0));
    assert!(outcome.lost > Some(0), "the buffer was to be too small");
}
