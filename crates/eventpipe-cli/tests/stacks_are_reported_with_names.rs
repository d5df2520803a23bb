//! `report topn` and `convert`: methods of .NET have the names and shares that dotnet-trace gives them, native functions those of
//! their files.

mod support;

use peers::{Peers, Runtime};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{Scratch, answer, run, tool};

/// A recorded trace, unpacked.
fn sample(scratch: &Scratch, shared: &Path, name: &str) -> PathBuf {
    let unpacked = scratch.file("sample.nettrace");
    let packed = shared.join(format!("samples/{name}.nettrace.xz"));
    let packed = std::fs::File::open(packed).expect("a sample");
    let mut output = std::fs::File::create(&unpacked).unwrap();
    let mut reader = lzma_rust2::XzReader::new(packed, true);
    std::io::copy(&mut reader, &mut output).expect("a packed trace");
    unpacked
}

fn json(words: &[&str]) -> Value {
    let (code, out, error) = run(words);
    assert_eq!(code, 0, "{words:?}: {error}");
    serde_json::from_str(&out).unwrap()
}

fn functions(report: &Value) -> Vec<(&str, f64, f64)> {
    let rows = report["functions"].as_array().unwrap().iter();
    let percent = |row: &Value, key| row[key].as_f64().unwrap();
    rows.map(|row| {
        (
            row["name"].as_str().unwrap(),
            percent(row, "inclusive_percent"),
            percent(row, "exclusive_percent"),
        )
    })
    .collect()
}

/// Rows of dotnet-trace's report: the end of the name (its beginning is not printed), inclusive and exclusive percent.
fn rows_of_dotnet_trace(text: &str) -> Vec<(String, f64, f64)> {
    let mut rows: Vec<(String, f64, f64)> = Vec::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let percent = |word: &str| word.strip_suffix('%')?.parse::<f64>().ok();
        match words.as_slice() {
            [number, name @ .., inclusive, exclusive] if number.ends_with('.') => rows.push((
                name.join(" "),
                percent(inclusive).unwrap(),
                percent(exclusive).unwrap(),
            )),
            // A name that goes on.
            rest => rows.last_mut().unwrap().0.push_str(&rest.join(" ")),
        }
    }
    rows
}

#[test]
fn methods_have_the_shares_that_dotnet_trace_gives_them() {
    let Some(shared) =
        peers::shared_for_test("methods_have_the_shares_that_dotnet_trace_gives_them")
    else {
        return;
    };
    let scratch = Scratch::new("topn");
    let trace = sample(&scratch, &shared, "aspnet10/web-default");
    let report = json(&["report", "topn", trace.to_str().unwrap(), "--json"]);
    assert_eq!(report["measure"], "thread_time");
    let ours = functions(&report);
    let mut compared = 0;
    for which in ["exclusive", "inclusive"] {
        let path = shared.join(format!("samples/aspnet10/web-default.topN-{which}.txt"));
        let text = std::fs::read_to_string(path).unwrap();
        for (name, inclusive, exclusive) in rows_of_dotnet_trace(&text) {
            // Frames that stand above all threads, and shares too small for its two digits.
            if ["(Non-Activities)", "Threads"].contains(&name.as_str()) || inclusive < 0.02 {
                continue;
            }
            let name = if name == "Missing Symbol" {
                "?!?"
            } else {
                &name
            };
            let is_same = |a: f64, b: f64| (a - b).abs() < 0.0051;
            let found = ours.iter().find(|(ours, a, b)| {
                let squeezed: String = ours.split_whitespace().collect();
                let name: String = name.split_whitespace().collect();
                squeezed.ends_with(&name) && is_same(*a, inclusive) && is_same(*b, exclusive)
            });
            assert!(
                found.is_some(),
                "{which}: {name} {inclusive} {exclusive}\n{ours:#?}"
            );
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");

    let managed = json(&[
        "report",
        "topn",
        trace.to_str().unwrap(),
        "--managed",
        "--json",
        "-n",
        "3",
    ]);
    assert_eq!(functions(&managed).len(), 3);
    assert!(managed["total"].as_u64().unwrap() < report["total"].as_u64().unwrap() / 100);
    // The trace that comes through a pipe is the same.
    let piped = tool()
        .args(["report", "topn", "-", "--json"])
        .stdin(Stdio::from(std::fs::File::open(&trace).unwrap()))
        .output()
        .unwrap();
    let (code, out, _) = answer(&piped);
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), report);
}

#[test]
fn speedscope_files_hold_the_time_of_every_thread() {
    let Some(shared) = peers::shared_for_test("speedscope_files_hold_the_time_of_every_thread")
    else {
        return;
    };
    let scratch = Scratch::new("speedscope");
    let trace = sample(&scratch, &shared, "aspnet10/web-default");
    let trace = trace.to_str().unwrap();
    let (code, _, error) = run(&["convert", trace, "--format", "Speedscope"]);
    assert_eq!(code, 0, "{error}");
    let text = std::fs::read_to_string(scratch.file("sample.speedscope.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
    let profiles = file["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 10, "threads");
    let mut all = 0.0;
    for profile in profiles {
        assert_eq!(
            (&profile["type"], &profile["unit"]),
            (&"sampled".into(), &"milliseconds".into())
        );
        let (samples, weights) = (&profile["samples"], &profile["weights"]);
        let samples = samples.as_array().unwrap();
        let weights = weights.as_array().unwrap();
        assert_eq!(samples.len(), weights.len());
        let used = samples.iter().flat_map(|stack| stack.as_array().unwrap());
        assert!(
            used.map(|place| place.as_u64().unwrap())
                .all(|place| place < frames)
        );
        let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        let number = |key: &str| profile[key].as_f64().unwrap();
        assert!((number("endValue") - number("startValue") - sum).abs() < 1e-3);
        all += sum;
    }
    let report = json(&["report", "topn", trace, "--json"]);
    let total = report["total"].as_f64().unwrap() * 1e-6;
    assert!((all - total).abs() < 0.01, "{all} {total}");
    // What is there is not written over.
    let (code, _, error) = run(&["convert", trace, "--format", "speedscope"]);
    assert_eq!(code, 8, "{error}");
    assert!(error.contains("exists already"), "{error}");

    let (code, out, _) = run(&["convert", trace, "--format", "flamegraph", "-o", "-"]);
    assert_eq!(code, 0);
    assert!(out.contains("<svg") && out.trim_end().ends_with("</svg>"));
    assert!(out.contains("LowLevelLifoSemaphore.WaitForSignal(int32)"));
}

#[test]
fn native_functions_are_named_by_their_files() {
    let scratch = Scratch::new("native");
    let output = tool()
        .current_dir(scratch.path())
        .args(["demo", "--duration", "500ms"])
        .output()
        .unwrap();
    let (code, out, error) = answer(&output);
    assert_eq!(code, 0, "{out}{error}");
    let trace = scratch.file("demo.nettrace");
    let trace = trace.to_str().unwrap();
    let report = json(&["report", "topn", trace, "--json", "--inclusive"]);
    assert_eq!(report["measure"], "events");
    let all = functions(&report);
    let is_named = |(name, inclusive, _): &(&str, f64, f64)| {
        name.starts_with("eventpipe!eventpipe::demo_program::") && *inclusive > 50.0
    };
    assert!(all.iter().any(is_named), "{all:#?}");
    // Of one event only.
    let some = json(&[
        "report",
        "topn",
        trace,
        "--json",
        "--event",
        "Request/Start",
    ]);
    let total = |report: &Value| report["total"].as_u64().unwrap();
    assert!(total(&some) > 0 && total(&some) < total(&report));
    let (code, folded, _) = run(&["convert", trace, "--format", "folded", "-o", "-"]);
    assert_eq!(code, 0);
    let sum: u64 = folded
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, total(&report));
    let (code, _, error) = run(&["report", "topn", trace, "--managed"]);
    assert_eq!(code, 3, "{error}");

    // By an event that has no stacks, there is one row.
    let none = json(&["report", "topn", trace, "--json", "--event", "ProcessInfo"]);
    assert_eq!(functions(&none), [("(no stack)", 100.0, 100.0)]);

    // A trace without stacks has nothing to convert, and a report says so.
    let bare = scratch.file("bare.nettrace");
    let bare = bare.to_str().unwrap();
    let (code, _, error) = run(&[
        "rewrite",
        trace,
        "--to",
        "v4",
        "--provider",
        "Microsoft-DotNETCore-EventPipe",
        "-o",
        bare,
    ]);
    assert_eq!(code, 0, "{error}");
    let (code, out, _) = run(&["report", "topn", bare]);
    assert_eq!(code, 0);
    assert!(out.contains("no samples of threads"), "{out}");
    let (code, _, error) = run(&["convert", bare, "--format", "folded", "-o", "-"]);
    assert_eq!(code, 6, "{error}");
    // What was read before a damage is reported.
    let bytes = std::fs::read(trace).unwrap();
    std::fs::write(bare, &bytes[..bytes.len() / 2]).unwrap();
    let (code, out, _) = run(&["report", "topn", bare, "--json"]);
    assert_eq!(code, 7);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(total(&report) > 0);
}

#[test]
fn a_recording_is_converted_at_once() {
    let scratch = Scratch::new("at-once");
    let trace = scratch.file("a.nettrace");
    let target = support::Target::at_work();
    let more = [
        "--duration",
        "300ms",
        "--format",
        "Speedscope",
        "--rundown",
        "true",
    ];
    let (code, _, error) = support::finish(support::collecting(target.pid(), &trace, &more));
    assert_eq!(code, 0, "{error}");
    let text = std::fs::read_to_string(scratch.file("a.speedscope.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap();
    let is_ours = |frame: &Value| frame["name"].as_str().unwrap().starts_with("eventpipe!");
    assert!(frames.iter().any(is_ours), "{frames:?}");
    // What is beside it already stays, and so does the recording.
    let again = scratch.file("b.nettrace");
    std::fs::write(scratch.file("b.speedscope.json"), "mine").unwrap();
    let (code, _, error) = support::finish(support::collecting(target.pid(), &again, &more));
    assert_eq!(code, 8, "{error}");
    assert!(again.exists());
    let mine = std::fs::read_to_string(scratch.file("b.speedscope.json")).unwrap();
    assert_eq!(mine, "mine");
    let (code, _, error) = run(&["collect", "-p", "1", "--format", "speedscope", "-o", "-"]);
    assert_eq!(code, 3, "{error}");
}

#[test]
fn threads_are_shown_as_dotnet_stack_shows_them() {
    const TEST: &str = "threads_are_shown_as_dotnet_stack_shows_them";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    for runtime in [Runtime::Net8, Runtime::Net10, Runtime::Net11] {
        // It waits for a line of its input.
        let mut program = peers.program(runtime, "workload");
        program.args(["idle", "--wait"]).stdin(Stdio::piped());
        let (mut child, _output, line) = support::started(&mut program);
        assert!(line.starts_with("ready "), "{line}");
        let pid = child.id().to_string();
        let theirs = peers
            .tool("dotnet-stack")
            .args(["report", "-p", &pid])
            .output()
            .unwrap();
        let (code, out, error) = run(&["stack", "-p", &pid]);
        let (json_code, json, _) = run(&["stack", "-p", &pid, "--json"]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((code, json_code), (0, 0), "{error}");

        let theirs = threads(&String::from_utf8_lossy(&theirs.stdout), "[Native Frames]");
        let ours = threads(&out, "[in native code, or waiting]");
        let main = |threads: &[(u64, bool, Vec<String>)]| {
            let mut threads = threads.iter();
            let main =
                threads.find(|(_, _, frames)| frames.iter().any(|it| it.contains("Program.Main(")));
            main.cloned().expect("the main thread")
        };
        assert_eq!(main(&ours), main(&theirs), "{runtime:?}");
        let json: Value = serde_json::from_str(&json).unwrap();
        let (thread_id, _, frames) = main(&ours);
        let mut objects = json.as_array().unwrap().iter();
        let object = objects
            .find(|object| object["thread_id"] == thread_id)
            .unwrap();
        assert_eq!(object["stack"], Value::from(frames));
        assert_eq!(
            (&object["state"], &object["name"]),
            (&"external".into(), &"dotnet".into())
        );
    }
}

/// Number, whether it is outside of managed code, and frames of each thread; ours are numbered in decimal digits, theirs in hexadecimal ones.
fn threads(text: &str, mark: &str) -> Vec<(u64, bool, Vec<String>)> {
    let mut threads: Vec<(u64, bool, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(head) = line.strip_prefix("Thread ") {
            let hexadecimal = head
                .strip_prefix("(0x")
                .and_then(|head| head.split_once(')'));
            let id = match hexadecimal {
                Some((id, _)) => u64::from_str_radix(id, 16),
                None => head.split([' ', ':']).next().unwrap().parse(),
            };
            threads.push((id.expect("a thread's number"), false, Vec::new()));
        } else if let Some((_, is_outside, frames)) = threads.last_mut() {
            match line.trim() {
                line if line == mark => *is_outside = true,
                frame => frames.push(frame.to_owned()),
            }
        }
    }
    threads
}

#[test]
fn a_native_program_has_no_managed_threads() {
    let target = support::Target::at_work();
    let (code, _, error) = run(&["stack", "-p", &target.pid().to_string()]);
    assert_eq!(code, 4, "{error}");
    assert!(error.contains("is a native program"), "{error}");
}
