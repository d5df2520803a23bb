//! 273 requests and answers exchanged with .NET 9, 10 and 11: each decodes as the newest runtime took it, and encodes
//! to the same bytes.

mod common;

use std::collections::HashMap;

use common::{bytes, read};
use dotnet_diagnostics::codec::*;
use serde_json::Value;

fn vectors(test: &str) -> Option<Vec<Value>> {
    let file = peers::shared_for_test(test)?.join("samples/ipc-vectors.json");
    let text = std::fs::read_to_string(&file).expect("the vectors can be read");
    let mut all: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    let Value::Array(vectors) = all["vectors"].take() else {
        panic!("no list of vectors");
    };
    assert!(vectors.len() >= 273);
    Some(vectors)
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_default()
}

/// What a sound parser says: the code by which the newest runtime refused the message itself. Other errors, and the
/// deaths of older runtimes, come after parsing or from not parsing.
fn expected_code(vector: &Value, newest: &HashMap<&str, &Value>) -> Option<ErrorCode> {
    let name = text(vector, "name");
    match name {
        // The message is sound; its second message is not.
        _ if name.contains("one byte without descriptor") => return None,
        // Existing runtimes ignore it, at the risk of answering with stale memory.
        "ResumeRuntime with a payload" => return Some(ErrorCode::BAD_ENCODING),
        _ => {}
    }
    let judged = newest.get(name).copied().unwrap_or(vector);
    let code = text(judged, "hresult").strip_prefix("0x")?;
    let code = ErrorCode(u32::from_str_radix(code, 16).expect("a code"));
    [
        ErrorCode::BAD_ENCODING,
        ErrorCode::UNKNOWN_COMMAND,
        ErrorCode::UNKNOWN_MAGIC,
    ]
    .contains(&code)
    .then_some(code)
}

#[test]
fn requests() {
    let Some(vectors) = vectors("every_recorded_request") else {
        return;
    };
    let newest: HashMap<&str, &Value> = vectors
        .iter()
        .filter(|vector| text(vector, "runtime").starts_with("11."))
        .map(|vector| (text(vector, "name"), vector))
        .collect();
    let (mut understood, mut refused) = (0, 0);
    for vector in &vectors {
        let label = format!("{} {}", text(vector, "runtime"), text(vector, "name"));
        let request = bytes(text(vector, "request"));
        if request.is_empty() {
            continue;
        }
        let progress = read(&request, Strictness::Exact);
        if text(vector, "note").contains("request cut") {
            assert!(
                matches!(progress, Progress::Need(_)),
                "{label}: {progress:?}"
            );
            continue;
        }
        match (progress, expected_code(vector, &newest)) {
            (Progress::Request(decoded), None) => {
                let mut canonical = request.clone();
                // The reserved word means nothing and is not kept.
                canonical[18..20].fill(0);
                assert_eq!(decoded.encode().as_ref(), Ok(&canonical), "{label}");
                assert_eq!(decoded.command().set, vector["set"], "{label}");
                assert_eq!(decoded.command().id, vector["id"], "{label}");
                understood += 1;
            }
            (Progress::Error(code), Some(expected)) => {
                assert_eq!(code, expected, "{label}");
                refused += 1;
            }
            (progress, expected) => panic!("{label}: {progress:?}, expected {expected:?}"),
        }
        if text(vector, "name") == "ResumeRuntime with a payload" {
            assert_eq!(
                read(&request, Strictness::Lenient),
                Progress::Request(Request::ResumeRuntime)
            );
        }
    }
    assert!(understood > 150 && refused > 60, "{understood} {refused}");
}

#[test]
fn answers() {
    let Some(vectors) = vectors("every_recorded_answer") else {
        return;
    };
    let mut seen = 0;
    for vector in &vectors {
        let label = format!("{} {}", text(vector, "runtime"), text(vector, "name"));
        if let Some(packet) = vector["advertise"].as_str() {
            let packet: [u8; Advertise::SIZE] = bytes(packet).try_into().expect("34 bytes");
            let advertise = Advertise::decode(&packet).expect("an advertise packet");
            assert_eq!(advertise.encode(), packet, "{label}");
            assert!(advertise.process_id > 0);
            continue;
        }
        let reply = bytes(text(vector, "reply"));
        let Some(header) = reply.first_chunk::<HEADER_SIZE>() else {
            assert_eq!(text(vector, "result"), "target ended", "{label}");
            continue;
        };
        let header = Header::decode(header).expect("a header");
        assert_eq!(usize::from(header.size), reply.len(), "{label}");
        let payload = &reply[HEADER_SIZE..];
        let again = match Reply::decode(&header, payload).expect("an answer") {
            Reply::Error { code, message } => {
                assert_eq!(
                    format!("0x{:08X}", code.0),
                    text(vector, "hresult"),
                    "{label}"
                );
                match vector["set"] == 1 && vector["id"] == 3 {
                    true => encode_error_with_message(code, &message),
                    false => encode_error(code).to_vec(),
                }
            }
            Reply::Ok(payload) => ok_again(vector, payload),
        };
        let mut whole = reply.clone();
        whole.extend(bytes(text(vector, "continuation")));
        assert_eq!(again, whole, "{label}");
        seen += 1;
    }
    assert!(seen > 200, "{seen}");
}

fn ok_again(vector: &Value, payload: &[u8]) -> Vec<u8> {
    let command = Command {
        set: vector["set"].as_u64().expect("a set") as u8,
        id: vector["id"].as_u64().expect("an id") as u8,
    };
    let info = |version| {
        ProcessInfo::decode(version, payload)
            .expect("process information")
            .encode_reply(version)
            .expect("it was sent")
    };
    match command {
        Command::PROCESS_INFO => info(ProcessInfoVersion::V1),
        Command::PROCESS_INFO2 => info(ProcessInfoVersion::V2),
        Command::PROCESS_INFO3 => info(ProcessInfoVersion::V3),
        Command::PROCESS_ENVIRONMENT => {
            let continuation = bytes(text(vector, "continuation"));
            let size = decode_environment_reply(payload).expect("a size");
            assert_eq!(size as usize, continuation.len());
            let entries = decode_environment(&continuation).expect("an environment");
            assert!(entries.iter().any(|entry| entry.starts_with("PATH=")));
            encode_environment(entries.iter().map(String::as_str)).expect("it was sent")
        }
        Command { set: 2, .. } => {
            encode_session(decode_session(payload).expect("a session")).to_vec()
        }
        _ => encode_result().to_vec(),
    }
}
