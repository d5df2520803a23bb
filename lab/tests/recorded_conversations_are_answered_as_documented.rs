//! Promise: what Microsoft's tools and library said to .NET 8 and 10, in every conversation that was recorded, gets from our
//! server the same kind of answer; or, where a native process is another thing, the documented one.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use common::{Folder, Program};
use dotnet_diagnostics::client::Endpoint;
use dotnet_diagnostics::codec::{
    Command, ErrorCode, HEADER_SIZE, Header, PerfMapType, ProcessInfoVersion, Reply, Request,
    SessionId, Strictness, decode_environment, decode_environment_reply, decode_session,
};
use serde_json::Value;

/// An answer without its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Ok,
    Error(ErrorCode),
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn number(message: &Value, key: &str) -> u64 {
    message[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {message}"))
}

/// What the runtime answered to the request at `place`.
fn recorded(messages: &[Value], place: usize) -> Option<Answer> {
    let connection = &messages[place]["connection"];
    let answer = messages[place + 1..].iter().find(|message| {
        message["connection"] == *connection
            && message["direction"] == "response"
            && message["name"].is_string()
    })?;
    match answer["name"].as_str()? {
        "OK" => Some(Answer::Ok),
        _ => {
            let payload = bytes(answer["payload"].as_str()?);
            let code = u32::from_le_bytes(*payload.first_chunk()?);
            Some(Answer::Error(ErrorCode(code)))
        }
    }
}

/// What our server answers by its documents (docs/compat.md), given what the runtime answered.
fn documented(request: &Request, recorded: Answer) -> Answer {
    let refused = Answer::Error(ErrorCode::NOTSUPPORTED);
    match request {
        // No managed code to profile, to hook into, to compile or to sample.
        Request::AttachProfiler(_)
        | Request::StartupProfiler(_)
        | Request::ApplyStartupHook { .. }
        | Request::EnablePerfMap(PerfMapType::JIT_DUMP) => refused,
        Request::CollectTracing(collect)
            if collect
                .providers
                .iter()
                .all(|provider| provider.name == "Microsoft-DotNETCore-SampleProfiler") =>
        {
            refused
        }
        // .NET 8 and 10 lack the newest commands.
        _ if recorded == Answer::Error(ErrorCode::UNKNOWN_COMMAND) => Answer::Ok,
        _ => recorded,
    }
}

/// One side of the replay: the sessions that the conversation has opened.
struct Replay {
    socket: PathBuf,
    /// By the id that the runtime gave: our id, and the stream.
    sessions: BTreeMap<u64, (SessionId, JoinHandle<Vec<u8>>)>,
}

impl Replay {
    /// Sends a message; gives the answer and, where a stream follows it, the connection.
    fn send(&self, command: Command, payload: &[u8]) -> (Header, Vec<u8>, UnixStream) {
        let size = u16::try_from(HEADER_SIZE + payload.len()).expect("it was a message");
        let header = Header { size, command };
        let mut stream = UnixStream::connect(&self.socket).expect("the server listens");
        let message = [&header.encode()[..], payload].concat();
        stream.write_all(&message).expect("it is taken");
        let mut header = [0; HEADER_SIZE];
        stream.read_exact(&mut header).expect("an answer");
        let header = Header::decode(&header).expect("a header");
        let mut payload = vec![0; usize::from(header.size) - HEADER_SIZE];
        stream.read_exact(&mut payload).expect("its payload");
        (header, payload, stream)
    }

    fn stop(&mut self, recorded: u64) {
        let Some((id, reader)) = self.sessions.remove(&recorded) else {
            return;
        };
        let (header, payload, _) = self.send(Command::STOP_TRACING, &id.0.to_le_bytes());
        assert_eq!(header.command, Command::OK);
        assert_eq!(decode_session(&payload).expect("an id"), id);
        let trace = reader.join().expect("the reader ends");
        let mut reader = nettrace::Reader::new(&trace[..]).expect("a trace");
        while reader.next_event().expect("complete").is_some() {}
    }

    /// Replays one conversation; gives how many requests it had.
    fn conversation(&mut self, messages: &[Value], folder: &Folder, pid: u32) -> usize {
        let mut count = 0;
        for (place, message) in messages.iter().enumerate() {
            let (Some(payload), "request") = (
                message["payload"].as_str(),
                message["direction"].as_str().unwrap_or_default(),
            ) else {
                continue;
            };
            let payload = bytes(payload);
            if number(message, "payload_len") != payload.len() as u64 {
                continue; // Only the first 4 KiB were kept.
            }
            let command = Command {
                set: number(message, "set") as u8,
                id: number(message, "command") as u8,
            };
            count += 1;
            let Ok(mut request) = Request::decode(command, &payload, Strictness::Exact) else {
                // The driver also says what nobody should: an error and a close.
                let (header, ..) = self.send(command, &payload);
                assert_eq!(header.command, Command::ERROR, "{message}");
                continue;
            };
            if let Request::StopTracing(id) = request
                && self.sessions.contains_key(&id.0)
            {
                self.stop(id.0);
                continue;
            }
            let Some(recorded) = recorded(messages, place) else {
                continue; // The runtime's answer did not come before the end.
            };
            if let Request::GenerateCoreDump(dump) = &mut request {
                // The folder of the recording is not here; what could not be written there cannot be written here.
                let name = if recorded == Answer::Ok {
                    "core"
                } else {
                    "no/core"
                };
                dump.path = folder.file(name).display().to_string();
            }
            let expected = documented(&request, recorded);
            let encoded = request.encode().expect("it was sent");
            let (header, answer, stream) = self.send(command, &encoded[HEADER_SIZE..]);
            let reply = Reply::decode(&header, &answer).expect("a reply");
            let said = match reply {
                Reply::Ok(_) => Answer::Ok,
                Reply::Error { code, .. } => Answer::Error(code),
            };
            assert_eq!(said, expected, "{request:?}");
            if said == Answer::Ok {
                self.check(&request, &answer, stream, (messages, place), pid);
            }
        }
        let left: Vec<u64> = self.sessions.keys().copied().collect();
        left.into_iter().for_each(|session| self.stop(session));
        count
    }

    /// The payload of an OK, and what follows it.
    fn check(
        &mut self,
        request: &Request,
        answer: &[u8],
        mut stream: UnixStream,
        (messages, place): (&[Value], usize),
        pid: u32,
    ) {
        let mut rest = || {
            let mut rest = Vec::new();
            stream
                .read_to_end(&mut rest)
                .expect("the connection is closed");
            rest
        };
        match request {
            Request::CollectTracing(_) => {
                let connection = &messages[place]["connection"];
                let theirs = messages[place..].iter().find(|message| {
                    message["connection"] == *connection && message["name"] == "OK"
                });
                // Where the runtime refused, any number that it never gave.
                let theirs = theirs.map_or(place as u64, |message| {
                    let payload = bytes(message["payload"].as_str().expect("an id"));
                    decode_session(&payload).expect("an id").0
                });
                let ours = decode_session(answer).expect("an id");
                let reader = std::thread::spawn(move || {
                    let mut trace = Vec::new();
                    stream.read_to_end(&mut trace).expect("the stream ends");
                    trace
                });
                self.sessions.insert(theirs, (ours, reader));
            }
            Request::ProcessEnvironment => {
                let size = decode_environment_reply(answer).expect("a size");
                let rest = rest();
                assert_eq!(rest.len(), size as usize);
                let entries = decode_environment(&rest).expect("texts");
                assert!(entries.iter().any(|entry| entry.starts_with("PATH=")));
            }
            Request::ProcessInfo(version) => {
                let at = if matches!(version, ProcessInfoVersion::V3) {
                    4
                } else {
                    0
                };
                assert_eq!(answer[at..at + 8], u64::from(pid).to_le_bytes());
                assert!(rest().is_empty());
            }
            _ => assert!(rest().is_empty(), "{request:?}"),
        }
    }
}

#[test]
fn every_recorded_conversation_is_answered_as_documented() {
    let test = "every_recorded_conversation_is_answered_as_documented";
    let Some(shared) = peers::shared_for_test(test) else {
        return;
    };
    let folder = Folder::new("replay");
    let entries = std::fs::read_dir(shared.join("peers/conversations")).expect("conversations");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 43, "{files:?}");
    let mut requests = 0;
    for file in files {
        requests += replay(&file, &folder);
    }
    assert!(requests > 150, "{requests}");
}

/// Each conversation has a process of its own, as it had when it was recorded.
fn replay(file: &Path, folder: &Folder) -> usize {
    let program = Program::start(&[
        "target",
        "--threads",
        "1",
        "--rate",
        "100",
        "--seconds",
        "600",
    ]);
    let pid = program.pid();
    let process = dotnet_diagnostics::discovery::find(pid).expect("it has a socket");
    let Endpoint::Socket(socket) = process.endpoint() else {
        panic!("a process is found by its socket");
    };
    let text = std::fs::read_to_string(file).expect("readable");
    let conversation: Value = serde_json::from_str(&text).expect("JSON");
    eprintln!("{}", conversation["title"].as_str().unwrap_or_default());
    let messages = conversation["messages"].as_array().expect("messages");
    let mut replay = Replay {
        socket: socket.clone(),
        sessions: BTreeMap::new(),
    };
    let count = replay.conversation(messages, folder, pid);
    drop(program);
    // It was killed, and a map of its functions may have been asked for.
    drop(std::fs::remove_file(socket));
    drop(std::fs::remove_file(format!("/tmp/perf-{pid}.map")));
    count
}
