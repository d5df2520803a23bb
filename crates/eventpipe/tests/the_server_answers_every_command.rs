//! Promise: every complete request gets the documented answer, however wrong it is, and no peer holds up another.

mod common;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Recording, client, everything_of, socket};
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::{
    Command, ErrorCode, HEADER_SIZE, Header, MAGIC, PerfMapType, ProcessInfoVersion, Reply, Request,
};

fn ask(message: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket()).expect("the server listens");
    stream.write_all(message).expect("the request is taken");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("the answer is followed by a close");
    answer
}

fn message(set: u8, id: u8, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(HEADER_SIZE + payload.len()).expect("short");
    [&MAGIC[..], &size.to_le_bytes(), &[set, id, 0, 0], payload].concat()
}

fn header_of(answer: &[u8]) -> Header {
    let header = answer.first_chunk().expect("the answer has a header");
    Header::decode(header).expect("the header is valid")
}

fn error_of(answer: &[u8]) -> ErrorCode {
    let header = header_of(answer);
    assert_eq!(
        usize::from(header.size),
        answer.len(),
        "the answer is one message"
    );
    match Reply::decode(&header, &answer[HEADER_SIZE..]).expect("the answer is a reply") {
        Reply::Error { code, .. } => code,
        reply => panic!("an error was expected: {reply:?}"),
    }
}

#[test]
fn process_info_says_the_truth_in_every_version() {
    for version in ProcessInfoVersion::NEWEST_FIRST {
        let info = client().process_info_exactly(version).expect("answered");
        assert_eq!(info.process_id, u64::from(std::process::id()));
        assert_eq!(info.operating_system, "Linux");
        assert!(
            info.command_line
                .contains("the_server_answers_every_command")
        );
        assert_eq!(
            info.runtime_cookie,
            client().process_info().expect("answered").runtime_cookie
        );
        if version != ProcessInfoVersion::V1 {
            assert!(
                info.entry_assembly
                    .starts_with("the_server_answers_every_command")
            );
            assert!(!info.product_version.is_empty());
        }
        if version == ProcessInfoVersion::V3 {
            assert!(info.runtime_identifier.starts_with("linux-"));
        }
    }
}

#[test]
fn the_environment_is_that_of_the_process() {
    let environment = client().environment().expect("answered");
    for (name, value) in std::env::vars() {
        assert!(environment.contains(&format!("{name}={value}")), "{name}");
    }
}

#[test]
fn resume_is_fine_at_any_time_and_stop_of_an_unknown_session_too() {
    client().resume_runtime().expect("answered");
    client().resume_runtime().expect("answered");
    client()
        .stop_tracing(dotnet_diagnostics::codec::SessionId(u64::MAX))
        .expect("answered");
    client()
        .stop_tracing(dotnet_diagnostics::codec::SessionId(0))
        .expect("answered");
}

#[test]
fn what_a_native_process_cannot_do_is_refused_as_not_supported() {
    let requests = [
        Request::EnablePerfMap(PerfMapType::JIT_DUMP),
        Request::ApplyStartupHook {
            path: Some("/nowhere".into()),
        },
        // Nobody takes samples, so a session for nothing else would be silent for ever.
        Request::CollectTracing(everything_of("Microsoft-DotNETCore-SampleProfiler")),
    ];
    for request in requests {
        let answer = ask(&request.encode().expect("valid"));
        assert_eq!(error_of(&answer), ErrorCode::NOTSUPPORTED, "{request:?}");
    }
}

#[test]
fn commands_that_do_not_exist_are_unknown_and_wrong_magic_is_told() {
    for (set, id) in [
        (0, 0),
        (1, 4),
        (2, 0),
        (2, 8),
        (3, 3),
        (4, 9),
        (5, 0),
        (0xFF, 0),
        (0xFF, 0xFF),
    ] {
        for payload in [&[][..], &[1, 2, 3], &[0; 64]] {
            let answer = ask(&message(set, id, payload));
            assert_eq!(error_of(&answer), ErrorCode::UNKNOWN_COMMAND, "{set} {id}");
        }
    }
    let mut wrong = message(4, 0, &[]);
    wrong[0] = b'X';
    assert_eq!(error_of(&ask(&wrong)), ErrorCode::UNKNOWN_MAGIC);
}

#[test]
fn malformed_payloads_are_bad_encodings_and_never_close_without_an_answer() {
    let collect = |id: u8, payload: &[u8]| error_of(&ask(&message(2, id, payload)));
    for id in 2..=7 {
        assert_eq!(
            collect(id, &[]),
            ErrorCode::BAD_ENCODING,
            "empty payload of {id}"
        );
        assert_eq!(
            collect(id, &[0xFF; 40]),
            ErrorCode::BAD_ENCODING,
            "rubbish for {id}"
        );
    }
    assert_eq!(
        error_of(&ask(&message(2, 1, &[1, 2, 3, 4]))),
        ErrorCode::BAD_ENCODING
    );
    assert_eq!(
        error_of(&ask(&message(4, 0, &[0]))),
        ErrorCode::BAD_ENCODING
    );
    for set_and_id in [
        (1, 1),
        (1, 2),
        (1, 3),
        (3, 1),
        (3, 2),
        (4, 3),
        (4, 5),
        (4, 7),
    ] {
        let answer = ask(&message(set_and_id.0, set_and_id.1, &[]));
        assert_eq!(error_of(&answer), ErrorCode::BAD_ENCODING, "{set_and_id:?}");
    }
    // Sizes that lie: smaller than a header, and a body that never comes because the peer has shut its side.
    let mut short = message(4, 0, &[]);
    short[14..16].copy_from_slice(&19_u16.to_le_bytes());
    assert_eq!(error_of(&ask(&short)), ErrorCode::BAD_ENCODING);
    let whole = Request::CollectTracing(everything_of("P"))
        .encode()
        .expect("valid");
    for cut in [1, 13, 20, 25, whole.len() - 1] {
        let mut stream = UnixStream::connect(socket()).expect("the server listens");
        stream.write_all(&whole[..cut]).expect("taken");
        stream.shutdown(std::net::Shutdown::Write).expect("shut");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("closed");
        assert_eq!(error_of(&answer), ErrorCode::BAD_ENCODING, "cut at {cut}");
    }
}

#[test]
fn silent_and_slow_peers_hold_up_nobody() {
    let silent: Vec<_> = (0..40)
        .map(|_| UnixStream::connect(socket()).expect("connects"))
        .collect();
    let mut half = UnixStream::connect(socket()).expect("connects");
    half.write_all(&message(4, 0, &[])[..7]).expect("taken");
    for _ in 0..20 {
        client()
            .process_info()
            .expect("answered while others are silent");
    }
    // A request that comes byte by byte is answered all the same.
    let mut slow = UnixStream::connect(socket()).expect("connects");
    for byte in message(Command::RESUME_RUNTIME.set, Command::RESUME_RUNTIME.id, &[]) {
        slow.write_all(&[byte]).expect("taken");
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).expect("closed");
    assert_eq!(header_of(&answer).command, Command::OK);
    // The silent ones are closed in the end; this waits for the server's own limit, however long that is.
    let mut first = &silent[0];
    let begin = Instant::now();
    assert_eq!(
        first.read(&mut [0; 1]).expect("closed in order"),
        0,
        "after {:?}",
        begin.elapsed()
    );
}

/// A whole request would take 20 seconds so, which is beyond the server's limit.
#[test]
fn a_peer_with_a_byte_per_second_is_given_up_and_holds_up_nobody() {
    let mut slow = UnixStream::connect(socket()).expect("connects");
    slow.set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a limit");
    for byte in message(4, 1, &[]) {
        if slow.write_all(&[byte]).is_err() {
            return;
        }
        client().process_info().expect("answered meanwhile");
        // A second without a byte, unless the server hangs up.
        if slow.read(&mut [0; 1]).is_ok_and(|count| count == 0) {
            return;
        }
    }
    panic!("the server took a request of 20 seconds");
}

#[test]
fn of_more_peers_than_connections_the_latest_are_served() {
    let many: Vec<_> = (0..300)
        .map(|_| UnixStream::connect(socket()).expect("connects"))
        .collect();
    let mut served = 0;
    for mut stream in many {
        // The oldest silent ones have given way to later ones.
        if stream.write_all(&message(4, 1, &[])).is_err() {
            continue;
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("closed");
        assert!(answer.is_empty() || answer.len() == 24);
        served += usize::from(!answer.is_empty());
    }
    assert!(served >= 64, "{served}");
    client().process_info().expect("answered");
}

#[test]
fn the_socket_is_for_its_owner_only() {
    let mode = std::fs::metadata(socket())
        .expect("the socket exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

eventpipe::provider! {
    mod netperf = "Test-NetPerf";
    #[event(id = 1, name = "Numbered")]
    fn numbered(thread: u32, number: u32);
}

/// Format 0: a stream in version 3, in the order of time, with stacks and payloads.
#[test]
fn a_client_that_asks_for_format_0_gets_a_trace_in_version_3() {
    let mut request = everything_of("Test-NetPerf");
    request.format = dotnet_diagnostics::codec::Format::NetPerf;
    let recording = Recording::start(&request);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || (0..1_000).for_each(|number| netperf::numbered(thread, number)));
        }
    });
    let trace = recording.stop();
    let events: Vec<_> = trace.of("Test-NetPerf").collect();
    assert_eq!(events.len(), 3_000);
    assert!(events.is_sorted_by_key(|event| event.time));
    assert!(events.iter().all(|event| !event.frames.is_empty()));
    for thread in 0..3u32 {
        let numbers = events
            .iter()
            .filter(|event| event.payload[..4] == thread.to_le_bytes())
            .map(|event| u32::from_le_bytes(event.payload[4..].try_into().expect("four bytes")));
        assert!(numbers.eq(0..1_000), "thread {thread}");
    }
}

/// Where runtimes cannot write tracepoints they say so after the descriptor has come.
#[test]
fn tracepoints_are_refused_once_the_descriptor_has_come_and_been_closed() {
    use dotnet_diagnostics::codec::{CollectVersion, SessionKind, Tracepoints};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    let _alone = common::alone();
    let mut request = everything_of("P");
    request.version = CollectVersion::V5;
    request.session = SessionKind::UserEvents;
    (
        request.stack_walk,
        request.buffer_mb,
        request.rundown_keyword,
    ) = (false, 0, 0);
    for provider in &mut request.providers {
        provider.tracepoints = Some(Tracepoints {
            default_tracepoint: "tp".into(),
            sets: Vec::new(),
        });
    }
    let request = Request::CollectTracing(request).encode().expect("valid");
    let descriptors = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("the kernel lists descriptors");
        let opens_ours = |file: &std::fs::DirEntry| {
            std::fs::read_link(file.path()).is_ok_and(|path| path.ends_with("file-of-the-test"))
        };
        all.flatten().filter(opens_ours).count()
    };
    let path = std::env::temp_dir().join("file-of-the-test");
    let file = std::fs::File::create(&path).expect("a file");
    for with_descriptor in [true, false, true] {
        let mut stream = UnixStream::connect(socket()).expect("the server listens");
        stream.write_all(&request).expect("the request is taken");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sent = [std::os::fd::AsFd::as_fd(&file)];
        if with_descriptor {
            assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        }
        let byte = [std::io::IoSlice::new(&[0])];
        rustix::net::sendmsg(&stream, &byte, &mut control, SendFlags::empty()).expect("sent");
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .expect("an answer and a close");
        let code = if with_descriptor {
            ErrorCode::FAIL
        } else {
            ErrorCode::BAD_ENCODING
        };
        assert_eq!(error_of(&answer), code);
    }
    assert_eq!(descriptors(), 1, "only the test's own is open");
    std::fs::remove_file(path).expect("it is ours");
}

#[test]
fn unsupported_kinds_of_sessions_fail_and_leave_nothing_behind() {
    use dotnet_diagnostics::codec::{BufferingMode, CollectVersion, Format};
    for _ in 0..100 {
        let mut both = everything_of("P");
        both.version = CollectVersion::V6;
        both.buffering_mode = BufferingMode::Block;
        both.format = Format::NetPerf;
        client()
            .collect(&both, Fallbacks::NONE)
            .expect_err("version 3 without loss");
    }
}
