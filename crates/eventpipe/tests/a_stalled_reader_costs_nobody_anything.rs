//! Promise: a session whose reader takes nothing is soon not written for any more: its events are lost where they are written, and
//! counted, and neither the pool nor the drain works for it. A session beside, or one that starts meanwhile, has all of its events.
//! When the reader goes on, so does the session.
//!
//! The drain is driven by hand, so nothing here depends on time.
#![cfg(feature = "std")]

use std::sync::mpsc;

use eventpipe::measure::ManualDrain;
use eventpipe::{Format, ProviderRequest, Session, SessionRequest};

eventpipe::provider! {
    mod slow = "Slow";

    #[event(id = 1, level = Informational, stack = false)]
    fn work(number: u64, bytes: &[u8]);
}

eventpipe::provider! {
    mod swift = "Swift";

    #[event(id = 1, level = Informational, stack = false)]
    fn step(number: u64);
}

/// Events that are more than a block holds, and less than the pool.
const MANY: u64 = 4_000;

fn write(count: u64) -> u64 {
    (0..count).for_each(|number| slow::work(number, &[7; 400]));
    count
}

/// Events, until they are lost where they are written: soon after the buffer is full.
fn until_nothing_is_written(drain: &mut ManualDrain) -> u64 {
    let mut attempted = 0;
    loop {
        attempted += write(MANY);
        if drain.run() == 0 {
            return attempted;
        }
    }
}

/// A session of 1 MB whose reader takes nothing until the sender is dropped.
fn stalled(format: Format) -> (Session, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let session = SessionRequest::new()
        .provider(ProviderRequest::new("Slow"))
        .buffer_mb(1)
        .format(format)
        .start_callback(move |_| _ = wait.recv())
        .expect("starts");
    (session, go)
}

fn accounted(session: &Session) -> u64 {
    let counts = session.statistics();
    counts.delivered + counts.lost
}

#[test]
fn its_events_are_lost_where_they_are_written() {
    let mut drain = ManualDrain::new().expect("no session yet");
    slow::PROVIDER.register();
    swift::PROVIDER.register();
    for format in [Format::V4, Format::V6] {
        let (session, go) = stalled(format);
        let mut attempted = until_nothing_is_written(&mut drain);
        let before = session.statistics();
        assert!(before.delivered > 0 && before.lost > MANY, "{before:?}");
        attempted += write(MANY);
        assert_eq!(drain.run(), 0, "the drain has nothing to do");
        assert_eq!(session.statistics().delivered, before.delivered);
        assert_eq!(accounted(&session), attempted);

        // One that starts now, and one for the same events: it has all of them, and the first one counts them.
        let beside = SessionRequest::new()
            .provider(ProviderRequest::new("Swift"))
            .start_callback(|_| {})
            .expect("starts");
        for _ in 0..5 {
            attempted += write(MANY);
            (0..MANY).for_each(swift::step);
            drain.run();
        }
        let counts = beside.statistics();
        assert_eq!((counts.delivered, counts.lost), (5 * MANY, 0));
        assert!(drain.stop(&beside));
        let same = SessionRequest::new()
            .provider(ProviderRequest::new("Slow"))
            .start_callback(|_| {})
            .expect("starts");
        attempted += write(MANY);
        drain.run();
        let counts = same.statistics();
        assert_eq!((counts.delivered, counts.lost), (MANY, 0));
        assert!(drain.stop(&same));
        assert_eq!(accounted(&session), attempted);

        // A thread that is new to the stream is seen in it.
        std::thread::spawn(|| write(1)).join().expect("no panic");
        attempted += 1;
        assert_eq!(drain.run(), 1);

        // The reader goes on.
        drop(go);
        while session.statistics().delivered <= before.delivered {
            attempted += write(1);
            drain.run();
            std::thread::yield_now();
        }
        attempted += write(MANY);
        assert!(drain.stop(&session), "the stream is complete");
        assert_eq!(accounted(&session), attempted);
    }

    // A session that ends while nothing is written for it leaves nothing of that to the next one in its place.
    for _ in 0..3 {
        let (session, go) = stalled(Format::V4);
        let attempted = until_nothing_is_written(&mut drain);
        drop(go);
        assert!(drain.stop(&session));
        assert_eq!(accounted(&session), attempted);
        let next = SessionRequest::new()
            .provider(ProviderRequest::new("Slow"))
            .start_callback(|_| {})
            .expect("starts");
        write(MANY);
        assert!(drain.stop(&next));
        let counts = next.statistics();
        assert_eq!((counts.delivered, counts.lost), (MANY, 0));
    }

    // A program that listens to itself and does not take its events.
    let listener = SessionRequest::new()
        .provider(ProviderRequest::new("Slow"))
        .buffer_mb(1)
        .listen()
        .expect("starts");
    let mut attempted = until_nothing_is_written(&mut drain);
    assert_eq!(accounted(listener.session()), attempted);
    while listener.next().is_some() {}
    drain.run();
    attempted += write(100);
    assert_eq!(drain.run(), 100);
    assert_eq!(accounted(listener.session()), attempted);
    listener.stop();
    drain.run();
}
