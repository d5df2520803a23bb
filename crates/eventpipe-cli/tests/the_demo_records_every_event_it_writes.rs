//! `eventpipe demo` is the project's main job in one command: it must succeed anywhere, and what it
//! records is what was written, by the tool's own reader, by the format checker and by TraceEvent.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Scratch, report, run, tool};

fn demo(scratch: &Scratch) -> (PathBuf, String) {
    let output = tool()
        .current_dir(scratch.path())
        .args(["demo", "--duration", "700ms"])
        .output()
        .unwrap();
    let (code, out, error) = support::answer(&output);
    assert_eq!(code, 0, "{out}{error}");
    (scratch.file("demo.nettrace"), out)
}

/// Count per "Provider/Event".
fn counts(path: &Path) -> BTreeMap<String, u64> {
    let (code, report) = report(path);
    assert_eq!(code, 0);
    assert_eq!(report["lost"]["total"], 0);
    assert_eq!(report["complete"], true);
    let rows = report["events"].as_array().unwrap().iter();
    rows.map(|row| {
        let name = format!(
            "{}/{}",
            row["provider"].as_str().unwrap(),
            row["event"].as_str().unwrap()
        );
        (name, row["count"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn nothing_is_lost_and_the_figures_add_up() {
    let scratch = Scratch::new("demo");
    let (file, out) = demo(&scratch);
    let last = out
        .lines()
        .find(|line| line.starts_with("The program wrote"))
        .unwrap();
    assert!(last.ends_with(" 0 lost."), "{last}");
    let counts = counts(&file);
    assert_eq!(
        counts["Demo-Requests/Request/Start"],
        counts["Demo-Requests/Request/Stop"]
    );
    assert_eq!(
        counts["Demo-Requests/Step/Start"],
        counts["Demo-Requests/Step/Stop"]
    );
    assert!(counts["Demo-Requests/Request/Start"] > 0);

    let (code, lines, _) = run(&[
        "events",
        file.to_str().unwrap(),
        "--json",
        "--raw",
        "--stacks",
    ]);
    assert_eq!(code, 0);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut started = BTreeMap::new();
    for line in lines.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        *seen
            .entry(format!("{}/{}", text("provider"), text("event")))
            .or_default() += 1;
        if text("provider") == "Demo-Requests" {
            assert_ne!(text("activity"), "00000000-0000-0000-0000-000000000000");
            assert!(!event["stack"].as_array().unwrap().is_empty());
        }
        // Start and stop of a request lie in one activity.
        match text("event").as_str() {
            "Request/Start" => {
                drop(started.insert(event["payload"]["id"].clone().to_string(), text("activity")))
            }
            "Request/Stop" => {
                let id = event["payload"]["id"].to_string();
                assert_eq!(started.get(&id), Some(&text("activity")));
            }
            _ => {}
        }
    }
    assert_eq!(seen, counts);
}

#[test]
fn the_format_checker_and_traceevent_read_the_same_counts() {
    const TEST: &str = "the_format_checker_and_traceevent_read_the_same_counts";
    let Some(peers) = peers::Peers::for_test(TEST) else {
        return;
    };
    let Some(shared) = peers::shared_for_test(TEST) else {
        return;
    };
    let scratch = Scratch::new("demo-peers");
    let (file, _) = demo(&scratch);
    let counts = counts(&file);

    let summary = peers.oracle_summary(&file);
    assert_eq!(summary["events_lost"], 0);
    let mut traceevent = BTreeMap::new();
    for (name, row) in summary["counts"].as_object().unwrap() {
        let (name, _) = name.split_once(" #").unwrap();
        traceevent.insert(name.to_owned(), row["n"].as_u64().unwrap());
    }
    assert_eq!(traceevent, counts);

    let checker = Command::new("python3")
        .arg(shared.join("tools/nettrace_check.py"))
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&checker.stdout);
    assert!(checker.status.success(), "{text}");
    assert!(
        text.contains(&format!("{} events;", counts.values().sum::<u64>())),
        "{text}"
    );
    assert!(text.contains("dropped 0 + 0 at start"), "{text}");
}
