//! The recorded conversations of dotnet-trace, -counters, -gcdump, -dump, -stack and of Microsoft's client library: an
//! exacting server takes every request that they send.

mod common;

use common::bytes;
use dotnet_diagnostics::codec::*;

#[test]
fn every_request_is_taken_by_an_exacting_server() {
    let Some(shared) = peers::shared_for_test("conversations_of_microsofts_tools") else {
        return;
    };
    let mut seen = std::collections::BTreeMap::<Command, usize>::new();
    for file in std::fs::read_dir(shared.join("peers/conversations")).expect("conversations") {
        let path = file.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let conversation: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for message in conversation["messages"].as_array().expect("messages") {
            let (Some(payload), "request") = (
                message["payload"].as_str(),
                message["direction"].as_str().unwrap_or_default(),
            ) else {
                continue;
            };
            let payload = bytes(payload);
            if message["payload_len"] != payload.len() {
                continue; // Only the first 4 KiB are kept.
            }
            let command = Command {
                set: message["set"].as_u64().expect("set") as u8,
                id: message["command"].as_u64().expect("command") as u8,
            };
            let request = Request::decode(command, &payload, Strictness::Exact);
            let label = format!("{} {:?}: {message}", path.display(), command.name());
            // The driver also says things that nobody should, to see the answer.
            let Ok(request) = request else {
                assert!(label.contains("driver"), "{label}: {request:?}");
                continue;
            };
            *seen.entry(command).or_default() += 1;
            let again = request.encode().expect("it was sent");
            assert_eq!(again[HEADER_SIZE..], payload, "{label}");
        }
    }
    assert!(seen.values().sum::<usize>() > 100, "{seen:?}");
    assert!(seen.len() >= 12, "{seen:?}");
}
