//! Promise: a NativeAOT program that is linked with this project's engine in place of its own shows TraceEvent the same events: names,
//! ids, versions, levels, keywords, opcodes, field names, and the same values wherever they do not depend on the run.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Folder;
use lab::nativeaot::{self, App, NativeEngine, Net};
use peers::Peers;
use serde_json::Value;

/// What is recorded: everything that the program and its runtime have, but for the events about handles, of which there are
/// hundreds that differ from run to run.
const PROVIDERS: &str = "EpApp:FFFFFFFFFFFFFFFF:5,Microsoft-Windows-DotNETRuntime:14C14FCCBD:5,\
     Microsoft-Windows-DotNETRuntimePrivate:1:5,System.Runtime:FFFFFFFF:5:EventCounterIntervalSec=1,\
     System.Threading.Tasks.TplEventSource:FFFFFFFF:5,System.Diagnostics.Metrics:FFFFFFFF:5:\
     \"SessionId=test;Metrics=EpApp.Meter;RefreshInterval=1;MaxTimeSeries=100;MaxHistograms=10\",\
     Microsoft-DotNETCore-SampleProfiler:0:5";

/// The program's modes, with their arguments.
const MODES: [&[&str]; 7] = [
    &["types", "--seconds", "2"],
    &["exception", "--seconds", "5"],
    &["gc", "--seconds", "3"],
    &["counters", "--seconds", "3"],
    &["metrics", "--seconds", "3"],
    &["stress", "--seconds", "0.05"],
    &["listener", "--seconds", "3"],
];

/// Events that come only if something happened to happen in a run, whatever the engine: (provider, ids, why).
const BY_CHANCE: [(&str, &[u64], &str); 6] = [
    (
        "Microsoft-Windows-DotNETRuntime",
        &[6, 11, 12, 20, 32, 33, 202, 203, 208, 209, 303],
        "segments, background collections and samples come when the heap has grown so far",
    ),
    (
        "Microsoft-Windows-DotNETRuntime",
        &[
            50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 81, 90, 91, 301, 302,
        ],
        "thread pool and locks depend on scheduling",
    ),
    (
        "Microsoft-Windows-DotNETRuntime",
        &[10, 13, 14, 39, 65524],
        "allocation ticks, finalizers and the collector's own statistics depend on how much was allocated",
    ),
    (
        "Microsoft-Windows-DotNETRuntimePrivate",
        &[11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 25, 26, 199],
        "background collections come when the heap has grown so far",
    ),
    (
        "Microsoft-DotNETCore-SampleProfiler",
        &[0],
        "a short program may end before it is sampled",
    ),
    (
        "System.Diagnostics.Metrics",
        &[2, 3],
        "a collection of metrics may fall into the run or not",
    ),
];

fn record(program: &Path, arguments: &[&str], trace: &Path) -> Vec<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("DOTNET_EnableEventPipe", "1")
        .env("DOTNET_EventPipeConfig", PROVIDERS)
        .env("DOTNET_EventPipeOutputPath", trace)
        .env("DOTNET_EventPipeOutputStreaming", "1")
        .env("DOTNET_EventPipeCircularMB", "400")
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", peers::stderr(&output));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn text(event: &Value, key: &str) -> String {
    event[key].as_str().unwrap_or_default().to_owned()
}

/// What an event is, apart from what it says: everything that a reader knows of its kind.
fn kind(event: &Value) -> String {
    let fields: Vec<&String> = event["payload"]
        .as_object()
        .map(|fields| fields.keys().collect())
        .unwrap_or_default();
    format!(
        "{} {} id {} version {} level {} keywords {} opcode {} {fields:?}",
        text(event, "provider"),
        text(event, "event"),
        event["id"],
        event["version"],
        event["level"],
        event["keywords"],
        event["opcode"],
    )
}

fn is_by_chance(event: &Value) -> bool {
    BY_CHANCE.iter().any(|(provider, ids, _)| {
        text(event, "provider") == *provider
            && event["id"].as_u64().is_some_and(|id| ids.contains(&id))
    })
}

/// An activity id without its last four bytes, which EventSource makes of the process id.
fn activity(event: &Value, key: &str) -> String {
    text(event, key).chars().take(28).collect()
}

/// The values of the program's own events, in order.
fn values(events: &[Value]) -> Vec<Value> {
    events
        .iter()
        .filter(|event| text(event, "provider") == "EpApp")
        .map(|event| {
            serde_json::json!([
                event["event"],
                event["payload"],
                event["raw"],
                activity(event, "activity"),
                activity(event, "related"),
            ])
        })
        .collect()
}

fn compare(test: &str, net: Net) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    if peers::shared_for_test(test).is_none() {
        return;
    }
    let folder = Folder::new(test);
    let programs: Vec<(&str, PathBuf)> = [("c", NativeEngine::C), ("rust", NativeEngine::Rust)]
        .into_iter()
        .map(|(name, engine)| {
            // The same length, because the programs say how they are called.
            let program = folder.file(&format!("epapp-{name:_<4}"));
            nativeaot::link(&program, App::Epapp, net, engine, true).expect("the program links");
            (name, program)
        })
        .collect();
    for mode in MODES {
        let recorded: BTreeMap<&str, (Vec<Value>, Vec<String>)> = programs
            .iter()
            .map(|(name, program)| {
                let trace = folder.file(&format!("{}-{name}.nettrace", mode[0]));
                let output = record(program, mode, &trace);
                (*name, (peers.oracle_events(&trace), output))
            })
            .collect();
        let kinds = |name: &str| -> BTreeSet<String> {
            recorded[name]
                .0
                .iter()
                .filter(|event| !is_by_chance(event))
                .map(kind)
                .collect()
        };
        let (c, rust) = (kinds("c"), kinds("rust"));
        assert!(c.len() > 3, "{mode:?}: the C engine's trace has {c:?}");
        assert_eq!(
            c.difference(&rust).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{mode:?}: events of the C engine only"
        );
        // The C engine loses events of a program that collects without a pause, whole kinds of them among those.
        let lost = |name: &str| {
            let trace = folder.file(&format!("{}-{name}.nettrace", mode[0]));
            peers.oracle_summary(&trace)["events_lost"].as_u64()
        };
        assert_eq!(lost("rust"), Some(0), "{mode:?}");
        if lost("c") == Some(0) {
            assert_eq!(
                rust.difference(&c).collect::<Vec<_>>(),
                Vec::<&String>::new(),
                "{mode:?}: events of this engine only"
            );
        }
        // Kinds that come by chance must still be the same where both have them.
        let by_chance = |name: &str| -> BTreeMap<String, String> {
            let events = recorded[name].0.iter().filter(|event| is_by_chance(event));
            let key = |event: &Value| format!("{} {}", text(event, "provider"), event["id"]);
            events.map(|event| (key(event), kind(event))).collect()
        };
        let (c, rust) = (by_chance("c"), by_chance("rust"));
        for (key, kind) in &c {
            if let Some(ours) = rust.get(key) {
                assert_eq!(kind, ours, "{mode:?}");
            }
        }
        if mode[0] == "types" {
            let (c, rust) = (values(&recorded["c"].0), values(&recorded["rust"].0));
            assert_eq!(c.len(), 22, "{mode:?}");
            for (c, rust) in c.iter().zip(&rust) {
                assert_eq!(c, rust, "{mode:?}");
            }
            assert_eq!(c.len(), rust.len(), "{mode:?}");
        }
        if mode[0] == "listener" {
            // What the program's own listener heard: `listener PROVIDER/ID/NAME COUNT`.
            let heard = |name: &str| -> BTreeSet<String> {
                let lines = recorded[name].1.iter();
                lines
                    .filter_map(|line| line.strip_prefix("listener "))
                    .filter_map(|line| line.split(' ').next())
                    .filter(|what| {
                        let mut parts = what.split('/');
                        let provider = parts.next().unwrap_or_default();
                        let id = parts.next().and_then(|id| id.parse().ok()).unwrap_or(0);
                        !BY_CHANCE
                            .iter()
                            .any(|(name, ids, _)| *name == provider && ids.contains(&id))
                    })
                    .map(str::to_owned)
                    .collect()
            };
            assert!(heard("c").len() > 10);
            assert_eq!(heard("c"), heard("rust"));
        }
    }
}

#[test]
fn in_every_mode_on_net_10() {
    compare("in_every_mode_on_net_10", Net::Net10);
}

#[test]
fn in_every_mode_on_net_11() {
    compare("in_every_mode_on_net_11", Net::Net11);
}
