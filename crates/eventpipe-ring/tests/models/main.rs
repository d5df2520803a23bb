//! The hand-shakes of the buffer, every interleaving of them (within a bound on preemptions), under
//! loom; and for each the proof that its model can fail: the protocol weakened in one place must be
//! rejected.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p eventpipe-ring --test models`
//! (`.ci/models` does).
#![cfg(all(loom, not(shuttle)))]

mod common;

mod blocks_go_round;
mod enabling_races_attach;
mod full_outputs_refuse;
mod idle_blocks_are_taken_back;
mod losses_are_told_where_they_happened;
mod published_records_are_read;
mod sessions_end_after_quiescence;
mod sleeping_drains_are_woken;
mod stacks_hand_over;
mod threads_end_while_draining;
mod writers_wait_for_room;
