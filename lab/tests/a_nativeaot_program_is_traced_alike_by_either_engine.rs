//! Promise: a NativeAOT program that is linked with this project's engine in place of its own shows TraceEvent the same events: names,
//! ids, versions, levels, keywords, opcodes, field names, and in each field the same values, but for those of [`VARYING`], which
//! differ from run to run with one engine too.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Folder;
use lab::nativeaot::{self, App, Extras, NativeEngine, Net};
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
const MODES: [&[&str]; 8] = [
    &["types", "--seconds", "2"],
    &["exception", "--seconds", "5"],
    &["gc", "--seconds", "1.5"],
    &["counters", "--seconds", "3"],
    &["metrics", "--seconds", "3"],
    &["stress", "--seconds", "0.05"],
    &["listener", "--seconds", "1.5"],
    &["idle", "--seconds", "2"],
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

/// How the values of a field compare, where it is not that all values which a run has are those that the other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    /// Some value is common to both runs.
    Common,
    /// One engine's text begins with the other's.
    Begins,
    /// If one has anything but zeros, so has the other.
    Presence,
}

const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
const METRICS: &str = "System.Diagnostics.Metrics";
const TASKS: &str = "System.Threading.Tasks.TplEventSource";

/// Fields that differ from run to run with one engine too: (provider, ids, all if there are none, fields, how they are compared, why). Found
/// by running the runtime's own engine several times. `(length)` is that of the payload, `(activity)` and `(related)` are the ids.
type Varying = (
    &'static str,
    &'static [u64],
    &'static [&'static str],
    Compared,
    &'static str,
);
const VARYING: &[Varying] = &[
    (
        RUNTIME,
        &[],
        &[
            "Address",
            "TypeID",
            "RangeStart",
            "ExceptionEIP",
            "AssociatedObjectID",
            "LockID",
            "ModuleID",
            "ObjectID",
            "HandleID",
        ],
        Compared::Presence,
        "addresses",
    ),
    (
        RUNTIME,
        &[],
        &["(activity)"],
        Compared::Common,
        "an allocation or a switch of threads falls into an activity or beside it",
    ),
    (RUNDOWN, &[], &["ModuleID"], Compared::Presence, "addresses"),
    (
        RUNTIME,
        &[54, 56, 58, 91],
        &[
            "Throughput",
            "Duration",
            "EstablishedNsPerYield",
            "NsPerYield",
            "DurationNs",
        ],
        Compared::Presence,
        "times and what is computed of them",
    ),
    (
        RUNTIME,
        &[81],
        &["LockOwnerThreadID"],
        Compared::Presence,
        "whoever came first",
    ),
    (
        RUNTIME,
        &[50, 51, 55, 56, 57, 60],
        &[
            "ActiveWorkerThreadCount",
            "RetiredWorkerThreadCount",
            "NewWorkerThreadCount",
            "NewControlSetting",
            "NewThreadWaveMagnitude",
            "Reason",
            "AverageThroughput",
            "Count",
        ],
        Compared::Presence,
        "what the thread pool decided",
    ),
    (
        RUNTIME,
        &[1, 2, 9, 23, 33, 35, 202, 204, 205],
        &[
            "Count",
            "Depth",
            "Reason",
            "Type",
            "Generation",
            "RangeReservedLength",
            "RangeUsedLength",
            "Promoted",
            "CondemnReasons0",
            "CondemnReasons1",
            "CompactMechanisms",
            "ExpandMechanisms",
            "FinalYoungestDesired",
            "GlobalMechanisms",
            "(length)",
        ],
        Compared::Common,
        "what the collector decided",
    ),
    (
        RUNTIME,
        &[4],
        &[
            "Depth",
            "FinalizationPromotedCount",
            "FinalizationPromotedSize",
        ],
        Compared::Common,
        "what the collector decided",
    ),
    (
        RUNTIME,
        &[4],
        &[
            "GenerationSize0",
            "GenerationSize1",
            "GenerationSize2",
            "GenerationSize3",
            "TotalPromotedSize0",
            "TotalPromotedSize1",
            "TotalPromotedSize2",
            "TotalPromotedSize3",
            "TotalHeapSize",
            "TotalPromoted",
            "GCHandleCount",
        ],
        Compared::Presence,
        "what was in the heap when it was collected",
    ),
    (
        RUNTIME,
        &[4],
        &["PinnedObjectCount"],
        Compared::Common,
        "what was in the heap when it was collected",
    ),
    (
        RUNTIME,
        &[5],
        &["Size", "Type"],
        Compared::Common,
        "how the heap grew",
    ),
    (
        RUNTIME,
        &[10, 33],
        &[
            "AllocationAmount",
            "AllocationAmount64",
            "AllocationKind",
            "ObjectSize",
        ],
        Compared::Common,
        "which allocation came after 100 KB of others",
    ),
    (
        RUNTIME,
        &[13],
        &["Count"],
        Compared::Common,
        "how many objects were found dead at once",
    ),
    (
        RUNTIME,
        &[205],
        &["MemoryPressure"],
        Compared::Presence,
        "the load of the machine",
    ),
    (
        RUNTIME,
        &[65524],
        &[
            "TotalBookkeepingCommitted",
            "TotalCommittedInFree",
            "TotalCommittedInUse",
        ],
        Compared::Presence,
        "how the heap grew",
    ),
    (
        "Microsoft-DotNETCore-SampleProfiler",
        &[],
        &["Type"],
        Compared::Common,
        "where a sample met its thread",
    ),
    (
        METRICS,
        &[],
        &["sessionId", "runningSessionId", "Message"],
        Compared::Presence,
        "ids chosen at random",
    ),
    (
        METRICS,
        &[],
        &["intervalStartTime", "intervalEndTime"],
        Compared::Presence,
        "times",
    ),
    (
        METRICS,
        &[2, 3],
        &["(activity)"],
        Compared::Common,
        "numbered by how many there were before",
    ),
    (
        TASKS,
        &[23, 24, 25],
        &["Message", "NewId", "(activity)"],
        Compared::Common,
        "numbered by how many there were before",
    ),
    (
        "System.Runtime",
        &[82, 83],
        &[
            ".Payload.IntervalSec",
            ".Payload.Mean",
            ".Payload.Min",
            ".Payload.Max",
            ".Payload.Increment",
            ".Payload.StandardDeviation",
        ],
        Compared::Presence,
        "what was counted and measured",
    ),
    (
        "EpApp",
        &[],
        &[
            "value",
            ".Payload.IntervalSec",
            ".Payload.Mean",
            ".Payload.Min",
            ".Payload.Max",
            ".Payload.Increment",
            ".Payload.StandardDeviation",
            ".Payload.Count",
        ],
        Compared::Common,
        "counts up while there is time; in mode types they are compared one by one",
    ),
    (
        "Microsoft-DotNETCore-EventPipe",
        &[1],
        &["CommandLine"],
        Compared::Begins,
        "the runtime's engine gives the first argument only, this one all",
    ),
    (
        "Microsoft-DotNETCore-EventPipe",
        &[1],
        &["(length)"],
        Compared::Presence,
        "of the command line",
    ),
    (
        RUNTIME,
        &[152],
        &["ModuleNativePath"],
        Compared::Begins,
        "the runtime's engine writes bytes that do not belong to the path behind it",
    ),
    (
        RUNTIME,
        &[152],
        &["(length)"],
        Compared::Presence,
        "the same",
    ),
    (
        RUNDOWN,
        &[154],
        &["ModuleNativePath"],
        Compared::Begins,
        "the same",
    ),
    (
        RUNDOWN,
        &[154],
        &["(length)"],
        Compared::Presence,
        "the same",
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

/// What the program's own event says; nothing for others.
fn value(event: &Value) -> Option<Value> {
    (text(event, "provider") == "EpApp").then(|| {
        serde_json::json!([
            event["event"],
            event["payload"],
            event["raw"],
            activity(event, "activity"),
            activity(event, "related"),
        ])
    })
}

/// Each value that a field of a kind of event has in a run.
type Fields = BTreeMap<(String, u64, String), BTreeSet<String>>;

fn add_fields(fields: &mut Fields, event: &Value) {
    fn add(into: &mut Fields, event: &Value, name: String, value: &Value) {
        if let Some(inner) = value.as_object() {
            for (part, value) in inner {
                add(into, event, format!("{name}.{part}"), value);
            }
            return;
        }
        // The two programs differ in one letter sequence of their names, of equal length.
        let mut value = value.to_string().replace("epapp-c___", "epapp-rust");
        if text(event, "provider") == TASKS && value.len() == "\"\"".len() + 36 {
            // An activity id: its end is made of the process id.
            value.truncate("\"".len() + 28);
        }
        let key = (
            text(event, "provider"),
            event["id"].as_u64().unwrap_or(0),
            name,
        );
        into.entry(key).or_default().insert(value);
    }
    for (name, value) in event["payload"].as_object().into_iter().flatten() {
        add(fields, event, name.clone(), value);
    }
    for (name, key) in [("(activity)", "activity"), ("(related)", "related")] {
        let value = Value::String(activity(event, key));
        add(fields, event, name.to_owned(), &value);
    }
    add(fields, event, "(length)".to_owned(), &event["raw_len"]);
}

/// What one run of a program was, as TraceEvent tells it.
#[derive(Default)]
struct Seen {
    /// The kinds of events, but for those that come by chance.
    kinds: BTreeSet<String>,
    /// The kinds of those, by provider and id.
    by_chance: BTreeMap<String, String>,
    fields: Fields,
    /// What the program's own events say, in order.
    values: Vec<Value>,
    lost: Option<u64>,
    /// What the program printed.
    output: Vec<String>,
}

impl Seen {
    fn add(&mut self, event: &Value) {
        if is_by_chance(event) {
            let key = format!("{} {}", text(event, "provider"), event["id"]);
            self.by_chance.insert(key, kind(event));
        } else {
            self.kinds.insert(kind(event));
        }
        add_fields(&mut self.fields, event);
        self.values.extend(value(event));
    }
}

/// Compares the values of all events field by field. Says how many fields it compared fully.
fn compare_values(mode: &str, c: &Fields, rust: &Fields) -> usize {
    let mut fully = 0;
    for (key, ours) in rust {
        let (provider, id, field) = key;
        // Kinds of events that only one run has are the business of the comparison of kinds.
        let Some(theirs) = c.get(key) else { continue };
        let varying = VARYING.iter().find(|(of, ids, fields, ..)| {
            of == provider
                && (ids.is_empty() || ids.contains(id))
                && fields.contains(&field.as_str())
        });
        let place = format!("mode {mode}: {provider} {id} {field}");
        match varying.map(|(.., how, _)| *how) {
            None => {
                assert_eq!(theirs, ours, "{place}");
                fully += 1;
            }
            Some(Compared::Common) => assert!(
                !theirs.is_disjoint(ours),
                "{place}: no common value: {theirs:?}, {ours:?}"
            ),
            Some(Compared::Begins) => {
                for ours in ours {
                    let ours = ours.trim_matches('"');
                    let begins = theirs.iter().any(|theirs| {
                        let theirs = theirs.trim_matches('"');
                        theirs.starts_with(ours) || ours.starts_with(theirs)
                    });
                    assert!(begins, "{place}: {theirs:?}, {ours:?}");
                }
            }
            Some(Compared::Presence) => {
                let zero = |value: &String| {
                    value
                        .trim_matches('"')
                        .chars()
                        .all(|letter| matches!(letter, '0' | '.' | '-'))
                };
                let (nothing, ours_nothing) = (theirs.iter().all(zero), ours.iter().all(zero));
                assert!(nothing == ours_nothing, "{place}: {theirs:?}, {ours:?}");
            }
        }
    }
    fully
}

/// As `readelf` (binutils) prints it.
fn build_id(program: &Path) -> String {
    let output = Command::new("readelf").arg("-n").arg(program).output();
    let output = output.expect("readelf starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, id) = text.split_once("Build ID: ").expect("it has a build id");
    id.lines().next().unwrap_or_default().trim().to_owned()
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
            nativeaot::link(&program, App::Epapp, net, engine, Extras::HEAP_WALK)
                .expect("the program links");
            (name, program)
        })
        .collect();
    for mode in MODES {
        // What is due to chance differs in one pair of runs or another; what the engines do differently, in each.
        for attempt in 1..=ATTEMPTS {
            let compared = panic::catch_unwind(AssertUnwindSafe(|| {
                compare_mode(&peers, &folder, &programs, mode)
            }));
            match compared {
                Ok(()) => break,
                Err(difference) if attempt == ATTEMPTS => panic::resume_unwind(difference),
                Err(_) => println!("{mode:?}: recorded again"),
            }
        }
    }
}

/// Pairs of runs that are recorded of a mode before a difference counts.
const ATTEMPTS: u32 = 3;

fn compare_mode(peers: &Peers, folder: &Folder, programs: &[(&str, PathBuf)], mode: &[&str]) {
    let recorded: BTreeMap<&str, Seen> = programs
        .iter()
        .map(|(name, program)| {
            let trace = folder.file(&format!("{}-{name}.nettrace", mode[0]));
            let mut seen = Seen {
                output: record(program, mode, &trace),
                lost: peers.oracle_summary(&trace)["events_lost"].as_u64(),
                ..Seen::default()
            };
            peers.for_each_oracle_event(&trace, |event| seen.add(&event));
            (*name, seen)
        })
        .collect();
    let (c, rust) = (&recorded["c"], &recorded["rust"]);
    assert!(
        c.kinds.len() > 3,
        "{mode:?}: the C engine's trace has {:?}",
        c.kinds
    );
    assert_eq!(
        c.kinds.difference(&rust.kinds).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "{mode:?}: events of the C engine only"
    );
    // The C engine loses events of a program that collects without a pause, whole kinds of them among those.
    assert_eq!(rust.lost, Some(0), "{mode:?}");
    if c.lost == Some(0) {
        assert_eq!(
            rust.kinds.difference(&c.kinds).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{mode:?}: events of this engine only"
        );
        let fully = compare_values(mode[0], &c.fields, &rust.fields);
        assert!(fully > 30, "{mode:?}: {fully} fields compared");
    }
    // Kinds that come by chance must still be the same where both have them.
    for (key, kind) in &c.by_chance {
        if let Some(ours) = rust.by_chance.get(key) {
            assert_eq!(kind, ours, "{mode:?}");
        }
    }
    // TraceEvent does not show the last field of a module: its build id, as the engines write it.
    for (name, program) in programs {
        let trace = std::fs::read(folder.file(&format!("{}-{name}.nettrace", mode[0])));
        let id: Vec<u8> = build_id(program)
            .bytes()
            .flat_map(|digit| [digit.to_ascii_uppercase(), 0])
            .collect();
        let trace = trace.expect("the trace is there");
        let found = trace.windows(id.len()).any(|bytes| bytes == id);
        assert!(found, "{mode:?}: no build id in the trace of {name}");
    }
    if mode[0] == "types" {
        assert_eq!(c.values.len(), 22, "{mode:?}");
        for (c, rust) in c.values.iter().zip(&rust.values) {
            assert_eq!(c, rust, "{mode:?}");
        }
        assert_eq!(c.values.len(), rust.values.len(), "{mode:?}");
    }
    if mode[0] == "listener" {
        // What the program's own listener heard: `listener PROVIDER/ID/NAME COUNT`.
        let heard = |seen: &Seen| -> BTreeSet<String> {
            let lines = seen.output.iter();
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
        assert!(heard(c).len() > 10);
        assert_eq!(heard(c), heard(rust));
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
