//! Promise: sixty-four sessions at once, each with its own filter and output; the slow or dead client of one costs the others
//! nothing, and costs itself events that are counted.

mod common;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Recording, Trace, alone, client, everything_of, socket};
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig, SessionId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use eventpipe::{
    Definition, FieldDescription, FieldKind, Provider, ProviderRequest, SessionError,
    SessionRequest,
};

eventpipe::provider! {
    mod shared = "Shared";

    #[event(id = 1, level = Informational, keywords = 0x1, stack = false)]
    fn one(number: u64, filling: &[u8]);

    #[event(id = 2, level = Informational, keywords = 0x2, stack = false)]
    fn two(number: u64);
}

#[test]
fn there_can_be_sixty_four_sessions_and_the_next_one_is_refused() {
    let _alone = alone();
    let of = |bit: u64| {
        let keywords = if bit.is_multiple_of(2) { 0x1 } else { 0x2 };
        CollectTracing::new([ProviderConfig::new("Shared", keywords, 5)])
    };
    for _ in 0..2 {
        let recordings: Vec<_> = (0..64)
            .map(|bit| (bit, Recording::start(&of(bit))))
            .collect();
        client()
            .collect(&of(0), Fallbacks::NONE)
            .expect_err("the sixty-fifth is refused");
        let refused = SessionRequest::new()
            .provider(ProviderRequest::new("Shared"))
            .start_callback(|_| {});
        assert_eq!(refused.err(), Some(SessionError::TooManySessions));
        let recorded = std::env::temp_dir().join(format!("refused-{}", std::process::id()));
        let before = vec![7_u8; 1 << 20];
        std::fs::write(&recorded, &before).expect("writable");
        let path = recorded.to_str().expect("a name in UTF-8");
        let into_a_file = || {
            SessionRequest::new()
                .provider(ProviderRequest::new("Nothing"))
                .start_file(path)
        };
        assert_eq!(into_a_file().err(), Some(SessionError::TooManySessions));
        assert!(std::fs::read(&recorded).expect("it is there") == before);
        for number in 0..100 {
            shared::one(number, &[]);
            shared::two(number);
        }
        for (bit, recording) in recordings {
            let trace = recording.stop();
            let expected = if bit.is_multiple_of(2) { 1 } else { 2 };
            let ids: Vec<_> = trace.of("Shared").map(|event| event.id).collect();
            assert_eq!(ids, [expected; 100]);
            assert_eq!(trace.total_lost(), 0);
        }
        assert!(into_a_file().expect("there is a place").stop());
        let bytes = std::fs::read(&recorded).expect("it is there");
        assert!(
            bytes.len() < before.len(),
            "nothing is left of what was there"
        );
        let mut reader = nettrace::Reader::new(&bytes[..]).expect("a trace");
        while reader.next_event().expect("readable").is_some() {}
        std::fs::remove_file(&recorded).expect("the file goes");
    }
}

#[test]
fn the_place_of_a_session_that_has_ended_is_free_at_once() {
    let _alone = alone();
    let start = || {
        SessionRequest::new()
            .provider(ProviderRequest::new("Shared"))
            .start_callback(|_| {})
    };
    let mut sessions: Vec<_> = (0..64).map(|_| start().expect("a place")).collect();
    for round in 0..200 {
        let session = &mut sessions[round * 7 % 64];
        assert!(session.stop());
        *session = start().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    assert!(sessions.iter().all(|session| session.stop()));
}

/// As sandboxes do it: then `poll` fails, too.
#[test]
fn a_program_that_lets_itself_open_no_files_stays_traced() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Shared"));
    let limit = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..limit
    };
    setrlimit(Resource::Nofile, none).expect("a lower limit");
    for number in 0..20 {
        shared::two(number);
        std::thread::sleep(Duration::from_millis(10));
    }
    setrlimit(Resource::Nofile, limit).expect("the limit of before");
    let trace = recording.stop();
    assert_eq!(trace.of("Shared").count(), 20);
    assert_eq!(trace.total_lost(), 0);
}

/// One after the other more than there are places: those that were dropped keep none.
#[test]
fn a_program_that_stops_listening_to_itself_frees_the_place() {
    let _alone = alone();
    for number in 0..200 {
        let request = || SessionRequest::new().provider(ProviderRequest::new("Shared"));
        // The place is free as soon as the drain has had its turn.
        let listener = (0..10_000).find_map(|_| match request().listen() {
            Ok(listener) => Some(listener),
            Err(error) => {
                assert_eq!(error, SessionError::TooManySessions);
                std::thread::sleep(Duration::from_millis(1));
                None
            }
        });
        assert!(listener.is_some(), "place {number} is never free");
    }
}

#[test]
fn ids_are_never_used_again() {
    let _alone = alone();
    let mut last = 0;
    for _ in 0..20 {
        let session = SessionRequest::new()
            .provider(ProviderRequest::new("Shared"))
            .start_callback(|_| {})
            .expect("starts");
        assert!(session.id().0 > last);
        last = session.id().0;
        assert!(session.stop());
    }
}

#[test]
fn a_client_that_does_not_read_loses_its_own_events_only() {
    let _alone = alone();
    let mut request = everything_of("Shared");
    request.buffer_mb = 1;
    let mut stalled = client().collect(&request, Fallbacks::NONE).expect("starts");
    let healthy = Recording::start(&everything_of("Shared"));
    let (count, filling) = (30_000, [1; 400]);
    for number in 0..count {
        shared::one(number, &filling);
    }
    let whole = healthy.stop();
    assert_eq!(
        whole.of("Shared").count() as u64 + whole.total_lost(),
        count
    );
    assert_eq!(
        whole.total_lost(),
        0,
        "the healthy session is not slowed down"
    );
    let stopper = stalled.stopper();
    let stopping = std::thread::spawn(move || stopper.stop());
    let mut bytes = Vec::new();
    stalled
        .read_to_end(&mut bytes)
        .expect("the stream ends in order");
    stopping
        .join()
        .expect("no panic")
        .expect("the stop is answered");
    let part = Trace::read(&bytes);
    let delivered = part.of("Shared").count() as u64;
    assert!(
        delivered > 0 && part.total_lost() > 0,
        "{delivered} delivered"
    );
    assert_eq!(delivered + part.total_lost(), count);
}

/// Clients come and break off at every point of what they have to say, sessions that they have just started included, while a thread writes
/// without a pause.
#[test]
fn clients_that_break_off_under_load_disturb_nobody() {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    use dotnet_diagnostics::codec::Request;

    let _alone = alone();
    let recording = Recording::start(&everything_of("Shared"));
    let request = Request::CollectTracing(everything_of("Shared"))
        .encode()
        .expect("valid");
    let stop = AtomicBool::new(false);
    let attempted = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                shared::one(number, &[1; 100]);
                number += 1;
            }
            number
        });
        for number in 0..600 {
            let mut stream = UnixStream::connect(socket()).expect("the server listens");
            let length = number % (request.len() + 1);
            stream.write_all(&request[..length]).expect("taken");
            if number % 50 == 0 {
                client().process_info().expect("answered meanwhile");
            }
        }
        // The last byte of the request, so that sessions start and lose their client at once.
        for _ in 0..100 {
            let mut stream = UnixStream::connect(socket()).expect("the server listens");
            stream.write_all(&request).expect("taken");
        }
        client().process_info().expect("answered at last");
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("no panic")
    });
    let trace = recording.stop();
    let delivered = trace.of("Shared").count() as u64;
    assert!(delivered > 0);
    assert_eq!(delivered + trace.total_lost(), attempted);
    // The sessions without a client end, in their own time, and free their places.
    let places = || {
        let request = || SessionRequest::new().provider(ProviderRequest::new("Shared"));
        let sessions: Vec<_> = (0..64)
            .map_while(|_| request().start_callback(|_| {}).ok())
            .collect();
        sessions.iter().filter(|session| session.stop()).count()
    };
    let begin = Instant::now();
    while places() < 64 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "a session that lost its client is never freed"
        );
    }
}

#[test]
fn a_client_that_goes_away_frees_its_session_even_when_nothing_is_written() {
    let _alone = alone();
    for round in 0..3 {
        let abandoned: Vec<_> = (0..64)
            .map(|_| {
                client()
                    .collect(&everything_of("Shared"), Fallbacks::NONE)
                    .expect("starts")
            })
            .collect();
        drop(abandoned);
        let begin = Instant::now();
        // The bits come back without anybody writing an event.
        let session = loop {
            match client().collect(&everything_of("Shared"), Fallbacks::NONE) {
                Ok(session) => break session,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "round {round}: sessions are not freed"
            );
        };
        assert!(Recording::of(session).stop().total_lost() == 0);
    }
}

#[test]
fn a_stop_that_is_sent_twice_or_to_a_stranger_does_no_harm() {
    let _alone = alone();
    let session = client()
        .collect(&everything_of("Shared"), Fallbacks::NONE)
        .expect("starts");
    let id = session.id();
    client()
        .stop_tracing(SessionId(id.0 + 1000))
        .expect("answered");
    let recording = Recording::of(session);
    shared::two(5);
    let trace = recording.stop();
    assert_eq!(trace.of("Shared").count(), 1);
    client().stop_tracing(id).expect("answered");
}

#[test]
fn a_provider_that_registers_later_is_picked_up_with_its_first_event() {
    let _alone = alone();
    let recording = Recording::start(&everything_of("Latecomer"));
    let provider = Provider::builder("Latecomer").register();
    let fields = &[FieldDescription {
        name: "Number",
        kind: FieldKind::UInt64,
    }];
    let event = provider.define(Definition::new("First").id(1).fields(fields));
    assert!(event.is_enabled());
    event.write((7_u64,));
    let other = provider.define(Definition::new("Second").id(2).fields(fields));
    other.write((8_u64,));
    let trace = recording.stop();
    let names: Vec<_> = trace
        .of("Latecomer")
        .map(|event| event.name.as_str())
        .collect();
    assert_eq!(names, ["First", "Second"]);
    assert!(!event.is_enabled());
}

#[test]
fn an_event_written_after_the_answer_was_read_is_in_the_stream() {
    let _alone = alone();
    for number in 0..200 {
        let session = client()
            .collect(&everything_of("Shared"), Fallbacks::NONE)
            .expect("starts");
        // The answer has been read: nothing else is waited for.
        shared::two(number);
        let trace = Recording::of(session).stop();
        assert_eq!(trace.of("Shared").count(), 1, "session {number}");
    }
}

#[test]
fn a_small_batch_reaches_its_reader_without_a_stop() {
    let _alone = alone();
    let mut session = client()
        .collect(&everything_of("Shared"), Fallbacks::NONE)
        .expect("starts");
    let mut bytes = vec![0; 102];
    session
        .read_exact(&mut bytes)
        .expect("the header comes at once");
    for number in 1..=20_u64 {
        shared::two(number);
        // The whole event has arrived when its number can be read from the stream's end. A failure is a hang here.
        let mut buffer = [0; 4096];
        while Trace::read_prefix(&bytes).map_or(0, |trace| trace.events.len() as u64) < number
            && !contains(&bytes, &number.to_le_bytes())
        {
            let count = session.read(&mut buffer).expect("the stream flows");
            bytes.extend_from_slice(&buffer[..count]);
        }
    }
    Recording::of(session).stop_without_reading();
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_plain_connection_is_closed_after_the_end_of_the_stream() {
    let _alone = alone();
    let message = dotnet_diagnostics::codec::Request::CollectTracing(everything_of("Shared"));
    let mut stream = UnixStream::connect(common::socket()).expect("connects");
    std::io::Write::write_all(&mut stream, &message.encode().expect("valid")).expect("taken");
    // Bytes that do not belong there must not harm the stream that follows.
    std::io::Write::write_all(&mut stream, b"rubbish behind the request").expect("taken");
    let mut answer = [0; 28];
    stream.read_exact(&mut answer).expect("answered");
    let id = u64::from_le_bytes(answer[20..].try_into().expect("eight bytes"));
    shared::two(1);
    let stopping = std::thread::spawn(move || client().stop_tracing(SessionId(id)));
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("closed in order");
    stopping.join().expect("no panic").expect("answered");
    assert_eq!(Trace::read(&bytes).of("Shared").count(), 1);
}
