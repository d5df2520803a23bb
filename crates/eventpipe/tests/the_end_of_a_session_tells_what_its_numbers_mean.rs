//! Promise: a session that asks for a rundown ends with what a reader needs to name addresses and threads: the executable ranges of
//! all modules with their build ids, the threads with their names, the events that are known. One that does not ask has none of it.

mod common;

use std::sync::{Arc, Barrier, Mutex};

use common::{Recording, Seen, Trace, alone, everything_of};
use eventpipe::{Format, ProviderRequest, SessionRequest};

eventpipe::provider! {
    mod told = "Told";

    #[event(id = 7, level = Warning, keywords = 0x20, version = 3)]
    fn something(number: u64);
}

/// Reads fields one after another.
struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (number, rest) = self.0.split_at(bytes);
        self.0 = rest;
        number
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
    fn text(&mut self) -> String {
        let mut units = Vec::new();
        loop {
            match self.number(2) as u16 {
                0 => return String::from_utf16(&units).expect("text"),
                unit => units.push(unit),
            }
        }
    }
}

fn rundown<'a>(trace: &'a Trace, name: &'a str) -> impl Iterator<Item = (&'a Seen, Payload<'a>)> {
    trace
        .of("EventPipe-Rundown")
        .filter(move |event| event.name == name)
        .map(|event| (event, Payload(&event.payload)))
}

/// The build id as it stands in the file: behind the head of its note.
fn build_id_in(file: &[u8]) -> String {
    let head = [4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0];
    let at = file
        .windows(16)
        .position(|part| part == head)
        .expect("a build id");
    file[at + 16..at + 36]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn check(trace: &Trace) {
    // Modules: the addresses of this program's event lie in it.
    let own = std::env::current_exe().expect("known");
    let id = build_id_in(&std::fs::read(&own).expect("readable"));
    let mut modules = Vec::new();
    for (_, mut module) in rundown(trace, "Module") {
        let (start, end, _offset) = (module.number(8), module.number(8), module.number(8));
        assert!(start < end);
        modules.push((start..end, module.text(), module.text()));
        assert!(module.0.is_empty());
    }
    let event = trace.of("Told").next().expect("written");
    assert!(!event.frames.is_empty());
    let (_, own_id, path) = modules
        .iter()
        .find(|(range, ..)| range.contains(&event.frames[0]))
        .expect("the frame lies in a module");
    assert_eq!((own_id, path.as_str()), (&id, own.to_str().expect("plain")));
    assert!(
        modules
            .iter()
            .any(|(_, id, path)| path.contains("libc") && id.len() == 40),
        "{modules:?}"
    );
    // Threads.
    let threads: Vec<_> = rundown(trace, "Thread")
        .map(|(_, mut thread)| (thread.number(8), thread.text()))
        .collect();
    assert!(
        threads.contains(&(event.about_thread, "told-by-name".to_owned())),
        "{threads:?}"
    );
    assert!(threads.iter().any(|(_, name)| name == "eventpipe-drain"));
    // Events.
    let events: Vec<_> = rundown(trace, "Event")
        .map(|(_, mut event)| {
            let provider = event.text();
            let id = event.number(4);
            let name = event.text();
            (
                provider,
                id,
                name,
                event.number(4),
                event.number(4),
                event.number(8),
            )
        })
        .collect();
    let expected = ("Told".to_owned(), 7, "Something".to_owned(), 3, 3, 0x20);
    assert!(events.contains(&expected), "{events:?}");
    // And how many there were.
    let complete: Vec<_> = rundown(trace, "Complete")
        .map(|(_, mut all)| [4, 4, 4, 4].map(|bytes| all.number(bytes)))
        .collect();
    let counts = [modules.len(), threads.len(), events.len()].map(|count| count as u64);
    assert_eq!(complete.len(), 1);
    if complete[0][3] == 1 {
        assert_eq!(complete[0][..3], counts);
    }
}

/// While a thread of this name lives that has written an event.
fn with_a_named_thread<T>(record: impl FnOnce() -> T) -> T {
    let barrier = Arc::new(Barrier::new(2));
    let thread = {
        let barrier = barrier.clone();
        let named = std::thread::Builder::new().name("told-by-name".into());
        let run = move || {
            barrier.wait();
            told::something(1);
            barrier.wait();
            barrier.wait();
        };
        named.spawn(run).expect("a thread")
    };
    // The first two are the caller's: before and after the event.
    barrier.wait();
    barrier.wait();
    let result = record();
    barrier.wait();
    thread.join().expect("no panic");
    result
}

#[test]
fn over_the_socket_when_the_client_asks_for_it() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Told"));
    let trace = with_a_named_thread(|| recording.stop());
    check(&trace);
    assert_eq!(trace.total_lost(), 0);
    let mut request = everything_of("Told");
    request.version = dotnet_diagnostics::codec::CollectVersion::V4;
    request.rundown_keyword = 0;
    let recording = Recording::start(&request);
    let trace = with_a_named_thread(|| recording.stop());
    assert_eq!(trace.of("EventPipe-Rundown").count(), 0);
    assert_eq!(trace.of("Told").count(), 1);
}

#[test]
fn in_both_formats_when_the_program_asks_for_it() {
    let _alone = alone();
    for format in [Format::V4, Format::V6] {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = bytes.clone();
        let session = SessionRequest::new()
            .provider(ProviderRequest::new("Told"))
            .format(format)
            .rundown_keywords(1)
            .start_callback(move |piece| sink.lock().expect("no panic").extend_from_slice(piece))
            .expect("starts");
        assert!(with_a_named_thread(|| session.stop()));
        check(&Trace::read(&bytes.lock().expect("no panic")));
    }
}
