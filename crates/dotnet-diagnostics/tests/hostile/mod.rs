//! A client that does everything a diagnostics server has to survive. It can be aimed at any socket: include this file
//! with `#[path]`. Each case says what the server did, and how it was afterwards.
#![allow(dead_code, reason = "each user takes a part of it")]

use std::fmt;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dotnet_diagnostics::client::{Client, Endpoint, Timeouts};
use dotnet_diagnostics::codec::*;

/// How long an answer may take before the server counts as silent.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// What a server did with one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// OK with so many bytes of payload.
    Ok(usize),
    /// An error answer.
    Error(ErrorCode),
    /// Closed without a byte.
    Closed,
    /// Bytes that are no answer.
    Nonsense,
    /// Nothing within the limit.
    Silent,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Ok(_) => f.write_str("OK"),
            Answer::Error(code) => write!(f, "{}", code.name().unwrap_or("other error")),
            Answer::Closed => f.write_str("closed"),
            Answer::Nonsense => f.write_str("no valid answer"),
            Answer::Silent => f.write_str("no answer"),
        }
    }
}

/// How a server is after, or during, a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It answers ProcessInfo, after this time.
    Answers(Duration),
    /// It has a socket and does not answer.
    Wedged,
    /// Nobody is there.
    Dead,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Health::Answers(_) => f.write_str("answers"),
            Health::Wedged => f.write_str("blocked"),
            Health::Dead => f.write_str("dead"),
        }
    }
}

/// Asks for ProcessInfo. "Unknown command" is an answer too (.NET Core 3.1).
pub(crate) fn health(socket: &Path) -> Health {
    let begin = Instant::now();
    let timeouts = Timeouts {
        connect: ANSWER_LIMIT,
        reply: ANSWER_LIMIT,
        ..Timeouts::default()
    };
    let client = Client::new(Endpoint::Socket(socket.to_path_buf())).with_timeouts(timeouts);
    use dotnet_diagnostics::Error;
    match client.process_info_exactly(ProcessInfoVersion::V1) {
        Ok(_) | Err(Error::Refused { .. }) => Health::Answers(begin.elapsed()),
        Err(Error::NotAnswering { .. }) => Health::Wedged,
        Err(_) => Health::Dead,
    }
}

/// The same; where the answer takes more than 100 ms, the quickest of ten, because the machine may be busy with something else.
fn promptness(socket: &Path) -> Health {
    let mut quickest = health(socket);
    for _ in 0..9 {
        match quickest {
            Health::Answers(time) if time >= Duration::from_millis(100) => {
                if let Health::Answers(again) = health(socket) {
                    quickest = Health::Answers(time.min(again));
                }
            }
            _ => break,
        }
    }
    quickest
}

/// Sends bytes, then waits for the answer; `half_close` says that nothing more will come.
pub(crate) fn exchange(socket: &Path, message: &[u8], half_close: bool) -> Answer {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return Answer::Closed;
    };
    let _ = stream.set_read_timeout(Some(ANSWER_LIMIT));
    let _ = stream.set_write_timeout(Some(ANSWER_LIMIT));
    // A server may answer and close before it has read everything.
    let _ = stream.write_all(message);
    if half_close {
        let _ = stream.shutdown(Shutdown::Write);
    }
    answer(&mut stream)
}

fn answer(stream: &mut UnixStream) -> Answer {
    let mut header = [0; HEADER_SIZE];
    match stream.read(&mut header) {
        Ok(0) => return Answer::Closed,
        Ok(HEADER_SIZE..) => {}
        Ok(count) => {
            if stream.read_exact(&mut header[count..]).is_err() {
                return Answer::Nonsense;
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Answer::Silent,
        Err(_) => return Answer::Closed,
    }
    let Ok(header) = Header::decode(&header) else {
        return Answer::Nonsense;
    };
    let mut payload = vec![0; header.payload_size()];
    if stream.read_exact(&mut payload).is_err() {
        return Answer::Nonsense;
    }
    match Reply::decode(&header, &payload) {
        Ok(Reply::Ok(payload)) => Answer::Ok(payload.len()),
        Ok(Reply::Error { code, .. }) => Answer::Error(code),
        Err(_) => Answer::Nonsense,
    }
}

/// One thing to survive.
pub(crate) struct Case {
    /// In words, for a table.
    pub(crate) name: String,
    /// Existing runtimes are known to take the machine's memory: not to be tried on them.
    pub(crate) takes_memory: bool,
    messages: Vec<Sent>,
    expected: Expected,
}

struct Sent {
    bytes: Vec<u8>,
    half_close: bool,
}

/// What a sound server does.
enum Expected {
    /// One of these codes, or a close where the message is not complete.
    Codes(&'static [ErrorCode]),
    /// The same, and OK is fine too.
    OkOr(&'static [ErrorCode]),
    /// Stays as it is while this goes on.
    Meanwhile(fn(&Path) -> Vec<UnixStream>),
}

/// What came of a case.
pub(crate) struct Outcome {
    /// The first answer that was not as expected, or the last one.
    pub(crate) answer: Option<Answer>,
    /// Whether all answers were as expected.
    pub(crate) as_expected: bool,
    /// While it went on, for cases that go on; afterwards for the others.
    pub(crate) health: Health,
}

impl Case {
    /// Does it.
    pub(crate) fn run(&self, socket: &Path) -> Outcome {
        if let Expected::Meanwhile(hold) = self.expected {
            let held = hold(socket);
            let health = promptness(socket);
            drop(held);
            return Outcome {
                answer: None,
                as_expected: matches!(health, Health::Answers(_)),
                health,
            };
        }
        let mut last = None;
        for sent in &self.messages {
            let answer = exchange(socket, &sent.bytes, sent.half_close);
            let fine = match (&self.expected, &answer) {
                (Expected::OkOr(_), Answer::Ok(_)) => true,
                (Expected::Codes(codes) | Expected::OkOr(codes), Answer::Error(code)) => {
                    codes.contains(code)
                }
                (_, Answer::Closed) => sent.half_close,
                _ => false,
            };
            last = Some(answer);
            if !fine {
                break;
            }
        }
        let health = promptness(socket);
        let fine = match (&self.expected, &last) {
            (Expected::OkOr(_), Some(Answer::Ok(_))) => true,
            (Expected::Codes(codes) | Expected::OkOr(codes), Some(Answer::Error(code))) => {
                codes.contains(code)
            }
            (_, Some(Answer::Closed)) => self.messages.iter().any(|sent| sent.half_close),
            _ => false,
        };
        Outcome {
            as_expected: fine && matches!(health, Health::Answers(_)),
            answer: last,
            health,
        }
    }
}

const BAD_ENCODING: &[ErrorCode] = &[ErrorCode::BAD_ENCODING];
const UNKNOWN_COMMAND: &[ErrorCode] = &[ErrorCode::UNKNOWN_COMMAND];
const UNKNOWN_MAGIC: &[ErrorCode] = &[ErrorCode::UNKNOWN_MAGIC];

fn whole(bytes: Vec<u8>) -> Sent {
    Sent {
        bytes,
        half_close: false,
    }
}

fn case(
    name: impl Into<String>,
    expected: Expected,
    messages: impl IntoIterator<Item = Vec<u8>>,
) -> Case {
    Case {
        name: name.into(),
        takes_memory: false,
        messages: messages.into_iter().map(whole).collect(),
        expected,
    }
}

fn meanwhile(name: &str, hold: fn(&Path) -> Vec<UnixStream>) -> Case {
    case(name, Expected::Meanwhile(hold), [])
}

/// The message with another payload, its size filled in.
fn with_payload(command: Command, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        size: u16::try_from(HEADER_SIZE + payload.len()).expect("it fits"),
        command,
    };
    [&header.encode()[..], payload].concat()
}

fn payload_of(request: &Request) -> Vec<u8> {
    request.encode().expect("a sound request")[HEADER_SIZE..].to_vec()
}

fn collect(version: CollectVersion) -> CollectTracing {
    let mut provider = ProviderConfig::new("Nobody-Has-This-Provider", 1, 4);
    if version >= CollectVersion::V5 {
        provider.event_filter = Some(EventFilter::Only(vec![1, 7]));
    }
    let mut request = CollectTracing::new([provider]);
    request.version = version;
    request
}

/// A request of each command with a payload, none of which does harm as it stands or cut.
fn requests() -> Vec<Request> {
    let mut all: Vec<Request> = CollectVersion::ALL
        .map(|version| Request::CollectTracing(collect(version)))
        .into();
    let dump = |version| {
        Request::GenerateCoreDump(GenerateCoreDump {
            version,
            path: "/no/such/folder/core".into(),
            dump_type: DumpType::NORMAL,
            flags: DumpFlags(0),
        })
    };
    all.extend(DumpVersion::NEWEST_FIRST.map(dump));
    all.extend([
        Request::StopTracing(SessionId(0x12_3456)),
        Request::AttachProfiler(AttachProfiler {
            timeout: 1,
            class_id: Guid([1; 16]),
            path: "/no/such.so".into(),
            client_data: vec![1, 2, 3],
        }),
        Request::StartupProfiler(StartupProfiler {
            class_id: Guid([1; 16]),
            path: "/no/such.so".into(),
        }),
        Request::SetEnvironmentVariable {
            name: Some("HOSTILE".into()),
            value: Some("1".into()),
        },
        Request::EnablePerfMap(PerfMapType(9)),
        Request::ApplyStartupHook {
            path: Some("/no/such.dll".into()),
        },
    ]);
    all
}

/// Everything, roughly from harmless to hard.
pub(crate) fn cases() -> Vec<Case> {
    let info = Request::ProcessInfo(ProcessInfoVersion::V1)
        .encode()
        .expect("sound");
    let with = |at: usize, byte: u8| {
        let mut message = info.clone();
        message[at] = byte;
        message
    };
    let mut cases = vec![
        case(
            "wrong magic, at each of its bytes",
            Expected::Codes(UNKNOWN_MAGIC),
            (0..14).map(|at| with(at, b'#')),
        ),
        case(
            "an HTTP request",
            Expected::Codes(UNKNOWN_MAGIC),
            [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()],
        ),
        case(
            "size 0 to 19",
            Expected::Codes(BAD_ENCODING),
            (0..20).map(|size| with(14, size)),
        ),
        case(
            "unknown command sets",
            Expected::Codes(UNKNOWN_COMMAND),
            [0, 5, 6, 0x7F, 0xFE, 0xFF].map(|set| with(16, set)),
        ),
        case(
            "unknown commands of each set",
            Expected::Codes(UNKNOWN_COMMAND),
            [
                (1, 0),
                (1, 4),
                (2, 0),
                (2, 8),
                (3, 0),
                (3, 3),
                (4, 9),
                (4, 0xFF),
            ]
            .map(|(set, id)| {
                let mut message = with(16, set);
                message[17] = id;
                message
            }),
        ),
        Case {
            name: "half a header, then no more".into(),
            takes_memory: false,
            messages: (1..20)
                .map(|count| Sent {
                    bytes: info[..count].to_vec(),
                    half_close: true,
                })
                .collect(),
            expected: Expected::Codes(BAD_ENCODING),
        },
        Case {
            name: "a size of 65,535, then no more".into(),
            takes_memory: false,
            messages: vec![Sent {
                bytes: {
                    let mut message = with(14, 0xFF);
                    message[15] = 0xFF;
                    message
                },
                half_close: true,
            }],
            expected: Expected::Codes(BAD_ENCODING),
        },
    ];
    for request in requests() {
        let command = request.command();
        let name = command.name().unwrap_or_default();
        let payload = payload_of(&request);
        let codes: &[ErrorCode] = &[ErrorCode::BAD_ENCODING, ErrorCode::UNKNOWN_COMMAND];
        cases.push(case(
            format!("{name}, every truncation"),
            Expected::Codes(codes),
            (0..payload.len()).map(|count| with_payload(command, &payload[..count])),
        ));
    }
    cases.extend(counts_and_strings());
    cases.push(case(
        "bytes behind the last field",
        // Each is fine: to ignore them, or to refuse them.
        Expected::OkOr(BAD_ENCODING),
        [
            Command::RESUME_RUNTIME,
            Command::PROCESS_INFO,
            Command::PROCESS_ENVIRONMENT,
        ]
        .map(|command| with_payload(command, &[0xAA; 64])),
    ));
    cases.extend([
        meanwhile("a silent connection: others", |socket| {
            vec![UnixStream::connect(socket).expect("connects")]
        }),
        meanwhile("half a message, then silence: others", |socket| {
            let mut stream = UnixStream::connect(socket).expect("connects");
            let _ = stream.write_all(&with_payload(Command::STOP_TRACING, &[0; 8])[..24]);
            vec![stream]
        }),
        meanwhile("a byte now and then: others", |socket| {
            let mut stream = UnixStream::connect(socket).expect("connects");
            for byte in b"DOT" {
                let _ = stream.write_all(&[*byte]);
                std::thread::sleep(Duration::from_millis(100));
            }
            vec![stream]
        }),
        meanwhile(
            "a request for tracepoints without the descriptor: others",
            |socket| {
                let mut request = collect(CollectVersion::V5);
                request.session = SessionKind::UserEvents;
                (request.buffer_mb, request.stack_walk) = (0, false);
                request.providers[0].tracepoints = Some(Tracepoints {
                    default_tracepoint: "nowhere".into(),
                    sets: vec![],
                });
                let message = Request::CollectTracing(request).encode().expect("sound");
                let mut stream = UnixStream::connect(socket).expect("connects");
                let _ = stream.write_all(&message);
                vec![stream]
            },
        ),
        meanwhile("10 sessions whose streams nobody reads: others", |socket| {
            let mut request = CollectTracing::new([ProviderConfig::new("*", u64::MAX, 5)]);
            (request.rundown_keyword, request.buffer_mb) = (0, 1);
            let message = Request::CollectTracing(request).encode().expect("sound");
            let one = |_| {
                let mut stream = UnixStream::connect(socket).ok()?;
                let _ = stream.set_read_timeout(Some(ANSWER_LIMIT));
                stream.write_all(&message).ok()?;
                answer(&mut stream);
                Some(stream)
            };
            (0..10).filter_map(one).collect()
        }),
        meanwhile("2,000 connections closed at once: others", |socket| {
            let message = with_payload(Command::PROCESS_INFO, &[]);
            for number in 0..2000 {
                if let Some(mut stream) = connect_now(socket) {
                    let _ = stream.write_all(&message[..number % (message.len() + 1)]);
                }
            }
            vec![]
        }),
        meanwhile("1,000 silent connections: others", |socket| {
            (0..1000).filter_map(|_| connect_now(socket)).collect()
        }),
    ]);
    cases
}

/// Connects unless that takes long: a full queue must not hold up the attacker.
fn connect_now(socket: &Path) -> Option<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(socket).ok()?;
    for _ in 0..20 {
        let stream =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        if rustix::net::connect(&stream, &address).is_ok() {
            return Some(UnixStream::from(stream));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn counts_and_strings() -> Vec<Case> {
    let sound = payload_of(&Request::CollectTracing(collect(CollectVersion::V2)));
    let changed = |at: usize, bytes: &[u8]| {
        let mut payload = sound.clone();
        payload[at..at + bytes.len()].copy_from_slice(bytes);
        with_payload(Command::COLLECT_TRACING2, &payload)
    };
    let count = |value: u32| value.to_le_bytes();
    let counts = [2, 1000, 1001, 1 << 20, 0x7FFF_FFFF, u32::MAX];
    let bad =
        |name: &str, messages: Vec<Vec<u8>>| case(name, Expected::Codes(BAD_ENCODING), messages);
    // In front of the name: 4 MB, 4 format, 1 rundown, 4 count, 8 keywords, 4 level, 4 length.
    let (providers_at, level_at, length_at, name_at) = (9, 21, 25, 29);
    let mut many = vec![0; 9];
    many[0] = 1;
    many[4] = 1;
    many.extend(count(1001));
    for _ in 0..1001 {
        many.extend(
            [
                [0; 8].as_slice(),
                &count(1),
                &count(2),
                b"A\0\0\0",
                &count(0),
            ]
            .concat(),
        );
    }
    let filter = payload_of(&Request::CollectTracing(collect(CollectVersion::V5)));
    // The filter is the last: u8 only, u32 count, two ids.
    let filter_count_at = filter.len() - 12;
    let filtered = |value: u32| {
        let mut payload = filter[..filter_count_at].to_vec();
        payload.extend(count(value));
        with_payload(Command::COLLECT_TRACING5, &payload)
    };
    let codes: &[ErrorCode] = &[ErrorCode::BAD_ENCODING, ErrorCode::UNKNOWN_COMMAND];
    let mut cases = vec![
        bad(
            "a provider count without the providers",
            counts
                .map(|value| changed(providers_at, &count(value)))
                .into(),
        ),
        bad("no providers", vec![changed(providers_at, &count(0))]),
        bad(
            "1,001 providers",
            vec![with_payload(Command::COLLECT_TRACING2, &many)],
        ),
        bad("a buffer of 0 MB", vec![changed(0, &count(0))]),
        bad(
            "a format that does not exist",
            vec![changed(4, &count(2)), changed(4, &count(u32::MAX))],
        ),
        bad(
            "a level above 5",
            vec![
                changed(level_at, &count(6)),
                changed(level_at, &count(u32::MAX)),
            ],
        ),
        bad(
            "a string's length beyond the message",
            [0x100, 0x7FFF_FFFF, 0x8000_0000, u32::MAX]
                .map(|value| changed(length_at, &count(value)))
                .into(),
        ),
        bad(
            "a string without terminator",
            vec![changed(length_at, &count(5))],
        ),
        bad(
            "an empty provider name",
            vec![changed(name_at - 4, &[0, 0, 0, 0])],
        ),
        case(
            "half a surrogate pair in a name",
            Expected::OkOr(BAD_ENCODING),
            [
                changed(name_at, &[0x00, 0xD8]),
                changed(name_at, &[0x00, 0xDC]),
            ],
        ),
        case(
            "a zero inside a name",
            Expected::OkOr(BAD_ENCODING),
            [changed(name_at + 4, &[0, 0])],
        ),
        case(
            "a filter of 1,000,000 ids without the ids",
            Expected::Codes(codes),
            [filtered(1_000_000)],
        ),
    ];
    let mut gigabytes = case(
        "a filter of 4,294,967,295 ids without the ids",
        Expected::Codes(codes),
        [filtered(u32::MAX)],
    );
    gigabytes.takes_memory = true;
    cases.push(gigabytes);
    cases
}

/// What a process holds, to compare before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) resident_kb: u64,
}

impl Vitals {
    /// Of a process of ours.
    pub(crate) fn of(pid: u32) -> std::io::Result<Vitals> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let count =
            |name: &str| Ok::<_, std::io::Error>(std::fs::read_dir(folder.join(name))?.count());
        let status = std::fs::read_to_string(folder.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.split_whitespace().next());
        Ok(Vitals {
            descriptors: count("fd")?,
            threads: count("task")?,
            resident_kb: resident.and_then(|number| number.parse().ok()).unwrap_or(0),
        })
    }
}
