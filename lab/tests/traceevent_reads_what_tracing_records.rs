//! Promise: TraceEvent reads spans and events of a program with the crate `tracing`: names, levels, values of every type and version, and
//! its activities are the program's spans, paired and nested.

mod common;

use std::collections::BTreeMap;

use common::Folder;
use eventpipe::{Level, ProviderRequest, SessionRequest};
use peers::Peers;
use serde_json::{Value, json};
use tracing::{error, info, info_span};
use tracing_subscriber::prelude::*;

const THREADS: u64 = 4;
const COUNT: u64 = 250;

/// One piece of work: a span in a span, the inner one left and closed by another thread at the end.
fn piece(thread: u64, number: u64) -> tracing::Span {
    let outer = info_span!(target: "t_oracle::net", "request", thread, number);
    outer.in_scope(|| {
        let inner = info_span!(target: "t_oracle", "query", text = "SELECT 'Grüße'");
        inner.in_scope(|| {
            info!(target: "t_oracle", number, real = number as f64 + 0.5, odd = number % 2 == 1, text = "日本\u{1F980}");
        });
        inner.record("text", "not declared as something that comes later, but it may");
        if number.is_multiple_of(2) {
            error!(target: "t_oracle::net", number = -1, even = true, bytes = &b"\x01\xFF"[..], wide = u128::MAX);
        }
        // The same callsite with other types.
        let value: &dyn tracing::Value = if number.is_multiple_of(3) { &1u64 } else { &"one" };
        info!(target: "t_oracle", parent: &inner, value);
        inner
    })
}

#[test]
fn values_and_activities() {
    let Some(peers) = Peers::for_test("values_and_activities") else {
        return;
    };
    let folder = Folder::new("tracing");
    let file = folder.file("trace.nettrace");
    tracing_subscriber::registry()
        .with(eventpipe_tracing::layer())
        .init();
    let wanted = ProviderRequest::new("t_oracle")
        .keywords(0)
        .level(Level::Verbose);
    let session = SessionRequest::new()
        .provider(wanted)
        .start_file(file.to_str().expect("UTF-8"))
        .expect("the session starts");
    let spans = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let spans = &spans;
            scope.spawn(move || {
                for number in 0..COUNT {
                    let inner = piece(thread, number);
                    spans.lock().expect("unpoisoned").push(inner);
                }
            });
        }
    });
    drop(spans);
    assert!(session.stop());
    assert_eq!(session.statistics().lost, 0);

    let events = peers.oracle_events(&file);
    let own = || {
        events
            .iter()
            .filter(|event| event["provider"] == "t_oracle")
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut starts: BTreeMap<&str, &Value> = BTreeMap::new();
    for event in own() {
        let (name, payload) = (event["event"].as_str().expect("a name"), &event["payload"]);
        let activity = event["activity"].as_str().expect("an id");
        *counts.entry(name.to_owned()).or_default() += 1;
        match name {
            "net::request/Start" => {
                starts.insert(activity, event);
                assert_eq!(event["level"], 4);
                assert!(number(payload) < COUNT && payload["thread"].is_string());
            }
            "query/Start" => {
                assert_eq!(*payload, json!({ "text": "SELECT 'Grüße'" }));
                let parent = starts[event["related"].as_str().expect("an id")];
                assert_eq!(parent["tid"], event["tid"]);
                starts.insert(activity, event);
            }
            "query/Extension" => assert!(
                payload["text"]
                    .as_str()
                    .is_some_and(|text| text.starts_with("not"))
            ),
            "query/Stop" | "net::request/Stop" => assert_eq!(*payload, json!({})),
            _ if name.starts_with("net:") => {
                assert_eq!(event["level"], 2);
                let wide = u128::MAX.to_string();
                let expected =
                    json!({ "number": "-1", "even": true, "bytes": "01ff", "wide": wide });
                assert_eq!(lower(payload), expected);
                assert_eq!(starts[activity]["event"], "net::request/Start");
            }
            _ => {
                assert_eq!(starts[activity]["event"], "query/Start");
                if payload["value"].is_null() {
                    let n = number(payload);
                    let expected = json!({
                        "number": n.to_string(), "real": n as f64 + 0.5, "odd": n % 2 == 1, "text": "日本🦀"
                    });
                    assert_eq!(*payload, expected);
                } else {
                    let value = payload["value"]
                        .as_str()
                        .expect("text, or a number of 64 bits");
                    *counts.entry(format!("value {value}")).or_default() += 1;
                }
            }
        }
    }
    let pieces = THREADS * COUNT;
    let of = |name: &str| counts.get(name).copied();
    for name in ["net::request", "query"] {
        assert_eq!(of(&format!("{name}/Start")), Some(pieces), "{counts:?}");
        assert_eq!(of(&format!("{name}/Stop")), Some(pieces), "{counts:?}");
    }
    let numbers = THREADS * COUNT.div_ceil(3);
    assert_eq!(of("value 1"), Some(numbers), "{counts:?}");
    assert_eq!(of("value one"), Some(pieces - numbers), "{counts:?}");
    assert_eq!(own().count() as u64, pieces * 7 + pieces / 2, "{counts:?}");

    let activities = peers.oracle_activities(&file);
    assert_eq!(activities.len() as u64, 2 * pieces);
    for activity in &activities {
        assert_eq!(activity["stopped"], true, "{activity}");
        match activity["task"].as_str() {
            // It has no parent. TraceEvent takes it for a part of whatever is open on its thread.
            Some("net::request") => {
                assert_eq!(activity["event_related"], nettrace::Guid::ZERO.to_string());
            }
            Some("query") => {
                let parent = activity["parent_index"].as_u64().expect("a parent");
                let parent = activities
                    .iter()
                    .find(|activity| activity["index"] == parent)
                    .expect("listed");
                assert_eq!(parent["task"], "net::request");
                assert_eq!(parent["event_activity"], activity["event_related"]);
                assert_eq!(activity["extra"], "/text=SELECT 'Grüße'");
            }
            other => panic!("{other:?}: {activity}"),
        }
    }
}

fn number(payload: &Value) -> u64 {
    let text = payload["number"]
        .as_str()
        .expect("64-bit numbers are strings");
    text.parse().expect("a number")
}

/// With the digits of bytes in lower case.
fn lower(payload: &Value) -> Value {
    let mut payload = payload.clone();
    if let Some(bytes) = payload["bytes"].as_str() {
        payload["bytes"] = bytes.to_lowercase().into();
    }
    payload
}
