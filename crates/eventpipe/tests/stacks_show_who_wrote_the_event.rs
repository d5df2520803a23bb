//! Promise: the first frame of an event's stack is in the function that wrote the event, the next in that function's caller,
//! and sessions that do not ask for stacks get none, whatever others ask for.

mod common;

use std::hint::black_box;

use common::{Recording, alone, everything_of};
use dotnet_diagnostics::codec::CollectVersion;
use eventpipe::{Definition, EventOptions, Guid, Provider};

eventpipe::provider! {
    mod stacks = "Stacks";

    #[event(id = 1, level = Informational)]
    fn with(number: u64);

    #[event(id = 2, level = Informational, stack = false)]
    fn without(number: u64);
}

#[inline(never)]
fn inner(number: u64) {
    stacks::with(number);
    stacks::without(number);
    black_box(number);
}

#[inline(never)]
fn outer(number: u64) {
    inner(number);
    black_box(number);
}

/// Whether an address lies in a (small) function.
fn lies_in(address: u64, function: fn(u64)) -> bool {
    let start = function as usize as u64;
    (start..start + 512).contains(&address)
}

#[test]
fn the_innermost_frames_are_the_programs_own() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Stacks"));
    outer(1);
    let trace = recording.stop();
    let events: Vec<_> = trace.of("Stacks").collect();
    assert_eq!(
        events.iter().map(|event| event.id).collect::<Vec<_>>(),
        [1, 2]
    );
    // Without frame pointers in the standard library a walk may end early, but never before the functions of this crate.
    assert!(events[0].frames.len() >= 2, "{:?}", events[0].frames);
    assert!(
        lies_in(events[0].frames[0], inner),
        "{:x?}",
        events[0].frames
    );
    assert!(
        lies_in(events[0].frames[1], outer),
        "{:x?}",
        events[0].frames
    );
    assert!(
        events[1].frames.is_empty(),
        "the event says that it wants no stack"
    );
}

#[inline(never)]
fn deeper(levels: u64) {
    if levels == 0 {
        stacks::with(0);
    } else {
        deeper(levels - 1);
    }
    // Not a tail call: the frame stays.
    black_box(levels);
}

#[test]
fn a_stack_of_a_hundred_frames_was_cut_and_has_its_innermost() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Stacks"));
    deeper(50);
    deeper(300);
    let trace = recording.stop();
    let frames: Vec<_> = trace.of("Stacks").map(|event| &event.frames).collect();
    assert!((51..100).contains(&frames[0].len()), "{}", frames[0].len());
    assert_eq!(frames[1].len(), 100);
    assert!(frames[1].iter().all(|address| lies_in(*address, deeper)));
}

#[test]
fn stacks_are_switched_per_session() {
    let _alone = alone();
    let with = Recording::start(&everything_of("Stacks"));
    let mut request = everything_of("Stacks");
    request.version = CollectVersion::V3;
    request.stack_walk = false;
    let without = Recording::start(&request);
    outer(1);
    assert!(
        !with
            .stop()
            .of("Stacks")
            .next()
            .expect("an event")
            .frames
            .is_empty()
    );
    assert!(
        without
            .stop()
            .of("Stacks")
            .all(|event| event.frames.is_empty())
    );
}

#[test]
fn activities_other_threads_and_given_stacks_are_carried() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Carried"));
    let provider = Provider::builder("Carried").register();
    let event = provider.define(Definition::new("Carried").id(1));
    let (activity, related) = (Guid([7; 16]), Guid([8; 16]));
    event.write(());
    eventpipe::activity::set_current(activity);
    event.write(());
    eventpipe::activity::set_current(Guid::ZERO);
    event.write_with(
        (),
        &EventOptions {
            activity_id: Some(&related),
            related_activity_id: Some(&activity),
            stack: Some(&[0x1234, 0x5678]),
            thread_id: Some(99),
        },
    );
    let trace = recording.stop();
    let events: Vec<_> = trace.of("Carried").collect();
    let ids: Vec<_> = events
        .iter()
        .map(|event| (event.activity, event.related))
        .collect();
    assert_eq!(
        ids,
        [
            (Guid::ZERO, Guid::ZERO),
            (activity, Guid::ZERO),
            (related, activity)
        ]
    );
    assert_eq!(events[2].frames, [0x1234, 0x5678]);
    assert_eq!(events[2].about_thread, 99);
    assert_eq!(events[2].thread, events[0].thread);
    assert_eq!(events[0].about_thread, events[0].thread);
}
