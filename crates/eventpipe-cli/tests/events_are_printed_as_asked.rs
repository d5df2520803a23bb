//! `eventpipe events`: filters, orders and forms over a small trace made here.

mod support;

use nettrace::{
    EventRecord, FORGET_METADATA, Field, FieldType, FormatVersion, Guid, Metadata, SystemTime,
    ThreadRow, TraceInfo, TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use support::{Scratch, Target, answer, collecting, finish, run, tool};
use unicode_width::UnicodeWidthStr as _;

fn info() -> TraceInfo {
    TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime {
            year: 2026,
            month: 1,
            day: 31,
            hour: 12,
            ..SystemTime::default()
        },
        sync_ticks: 1_000_000,
        ticks_per_second: 1_000_000_000,
        pointer_size: 8,
        process_id: Some(77),
        processor_count: Some(2),
        sampling_period_ns: None,
        pairs: Vec::new(),
    }
}

/// Two providers, two threads, times out of order across the threads: 0, 2, 4 ms and 1, 3 ms.
fn trace(scratch: &Scratch) -> PathBuf {
    let mut writer = TraceWriter::new(WriteFormat::V4, &info());
    let field = |name: &str, field_type| Field {
        name: name.into(),
        field_type,
    };
    for (id, provider, event_id, name) in [
        (1, "Shop-Orders", 1, "OrderStart"),
        (2, "Shop-Stock", 9, "Low"),
    ] {
        let metadata = Metadata {
            id,
            provider: provider.into(),
            event_id,
            name: name.into(),
            level: 4,
            fields: vec![
                field("number", FieldType::Int64),
                field("what", FieldType::String),
            ],
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
    }
    let stack = writer
        .stack(&[0x1000_u64, 0x2000].map(u64::to_le_bytes).concat())
        .unwrap();
    for (metadata_id, thread_id, ms, number) in [
        (1, 5, 0, 10_i64),
        (2, 5, 2, 12),
        (1, 5, 4, 14),
        (1, 6, 1, 11),
        (2, 6, 3, 13),
    ] {
        let mut payload = number.to_le_bytes().to_vec();
        payload.extend("a,\"b\"\0".encode_utf16().flat_map(u16::to_le_bytes));
        let record = EventRecord {
            metadata_id,
            sequence_number: if thread_id == 5 {
                ms / 2 + 1
            } else {
                ms.div_ceil(2)
            },
            thread_id,
            capture_thread_id: thread_id,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id: if ms == 0 { stack } else { 0 },
            timestamp: u64::from(ms) * 1_000_000 + 1_000_000,
            activity_id: Guid::default(),
            related_activity_id: Guid::default(),
            is_sorted: false,
            label_list: 0,
            payload: &payload,
        };
        writer.event(&record).unwrap();
    }
    writer.sequence_point(9_000_000, 0, [(5, 3), (6, 4)]);
    writer.finish();
    let file = scratch.file("small.nettrace");
    fs::write(&file, writer.output()).unwrap();
    file
}

/// The field "number" of the events printed with these arguments.
#[track_caller]
fn numbers(file: &str, arguments: &[&str]) -> Vec<i64> {
    let all: Vec<&str> = ["events", file, "--json"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    let (code, out, error) = run(&all);
    assert_eq!(code, 0, "{error}");
    out.lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["payload"]["number"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

#[test]
fn in_both_orders_and_through_every_filter() {
    let scratch = Scratch::new("filters");
    let file = trace(&scratch);
    let file = file.to_str().unwrap();
    assert_eq!(numbers(file, &[]), [10, 11, 12, 13, 14]);
    assert_eq!(numbers(file, &["--order", "file"]), [10, 12, 14, 11, 13]);
    assert_eq!(numbers(file, &["--provider", "shop-stock"]), [12, 13]);
    assert_eq!(
        numbers(file, &["--provider", "shop-*", "--thread", "6"]),
        [11, 13]
    );
    assert_eq!(numbers(file, &["--event", "Order/Start"]), [10, 11, 14]);
    assert_eq!(numbers(file, &["--event", "OrderStart"]), [10, 11, 14]);
    assert_eq!(numbers(file, &["--event", "9"]), [12, 13]);
    assert_eq!(numbers(file, &["--where", "number=13"]), [13]);
    assert_eq!(
        numbers(file, &["--where", "what=a,\"b\"", "--where", "number=10"]),
        [10]
    );
    assert!(numbers(file, &["--where", "nothing=13"]).is_empty());
    // A value that none has is one thing, a field that none has another.
    for (condition, hint) in [
        (&["nothing=13"][..], true),
        (&["number=13", "nothing.here=1"], true),
        (&["number=99"], false),
        (&["number=99", "what=x"], false),
    ] {
        let mut words = vec!["events", file];
        words.extend(condition.iter().flat_map(|field| ["--where", field]));
        let (code, out, said) = run(&words);
        assert!(code == 0 && out.is_empty(), "{condition:?}: {out}{said}");
        let has = ["Order/Start has number, what", "Low has number, what"];
        let is_said = said.contains("no field is called 'nothing");
        assert_eq!(is_said, hint, "{condition:?}: {said}");
        let has = has.iter().any(|has| said.contains(has));
        assert_eq!(has, hint, "{condition:?}: {said}");
    }
    let (code, out, error) = run(&["events", file, "--provider", "Nobody"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(error.contains("none of 5 events"), "{error}");
    assert_eq!(numbers(file, &["--from", "1ms", "--to", "2ms"]), [11, 12]);
    assert_eq!(
        numbers(file, &["--from", "2026-01-31T12:00:00.003Z"]),
        [13, 14]
    );
}

#[test]
fn as_json_csv_and_text() {
    let scratch = Scratch::new("forms");
    let file = trace(&scratch);
    let file = file.to_str().unwrap();
    let (_, out, _) = run(&["events", file, "--json", "--raw", "--stacks"]);
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let keys = [
        "i",
        "provider",
        "event",
        "id",
        "version",
        "opcode",
        "level",
        "keywords",
        "ts_rel_ms",
        "ts_qpc",
        "pid",
        "tid",
        "proc",
        "activity",
        "related",
        "payload",
        "raw",
        "raw_len",
        "template",
        "stack",
    ];
    for key in keys {
        assert!(first.get(key).is_some(), "{key} is missing: {first}");
    }
    assert_eq!(first["raw_len"], 20);
    assert_eq!(first["stack"].as_array().unwrap().len(), 2);

    let (_, out, _) = run(&["events", file, "--csv"]);
    let mut rows = csv::Reader::from_reader(out.as_bytes());
    let column = rows
        .headers()
        .unwrap()
        .iter()
        .position(|name| name == "payload")
        .unwrap();
    let payloads: Vec<Value> = rows
        .records()
        .map(|row| serde_json::from_str(&row.unwrap()[column]).unwrap())
        .collect();
    assert_eq!(payloads.len(), 5);
    assert_eq!(payloads[0]["what"], "a,\"b\"");

    let (_, out, _) = run(&["events", file, "--stacks"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 7);
    assert!(
        lines[0].ends_with(r#"Shop-Orders/Order/Start  number=10 what="a,\"b\"""#),
        "{out}"
    );
    assert_eq!(lines[1].trim(), "0x1000");
}

#[test]
fn csv_has_the_columns_that_json_has_keys() {
    let scratch = Scratch::new("columns");
    let file = trace(&scratch);
    let file = file.to_str().unwrap();
    for more in [&[][..], &["--raw"], &["--stacks"], &["--raw", "--stacks"]] {
        let (_, json, _) = run(&[&["events", file, "--json"], more].concat());
        let (_, csv, _) = run(&[&["events", file, "--csv"], more].concat());
        let mut rows = csv::Reader::from_reader(csv.as_bytes());
        let heading = rows.headers().unwrap().clone();
        // A row that has more or fewer values than the heading is an error.
        let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), json.lines().count());
        for (row, line) in rows.iter().zip(json.lines()) {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(event.as_object().unwrap().len(), heading.len(), "{more:?}");
            for (name, value) in heading.iter().zip(row) {
                match &event[name] {
                    Value::String(text) => assert_eq!(text, value, "{name}"),
                    other => assert_eq!(*other, serde_json::from_str::<Value>(value).unwrap()),
                }
            }
        }
        assert_eq!(
            heading.iter().any(|name| name == "raw"),
            more.contains(&"--raw")
        );
        assert_eq!(
            heading.iter().any(|name| name == "stack"),
            more.contains(&"--stacks")
        );
    }
}

#[test]
fn from_a_pipe_and_into_a_pipe_that_closes() {
    let scratch = Scratch::new("pipes");
    let file = trace(&scratch);
    let mut reading = tool()
        .args(["events", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reading
        .stdin
        .take()
        .unwrap()
        .write_all(&fs::read(&file).unwrap())
        .unwrap();
    let (code, out, _) = answer(&reading.wait_with_output().unwrap());
    assert_eq!((code, out.lines().count()), (0, 5));

    // The reader goes away before the first line: no message, no failure.
    for arguments in [&["events"][..], &["report", "stat"], &["info"]] {
        let mut writing = tool()
            .args(arguments)
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(writing.stdout.take());
        let (code, _, error) = answer(&writing.wait_with_output().unwrap());
        assert_eq!((code, error.as_str()), (0, ""));
    }
}

/// A large file is looked at where it lies in memory, unless somebody may write to it or it is a pipe.
#[test]
fn a_large_file_in_whatever_way_it_is_read() {
    let scratch = Scratch::new("large");
    let mut writer = TraceWriter::new(WriteFormat::V4, &info());
    let metadata = Metadata {
        id: 1,
        provider: "Shop-Orders".into(),
        event_id: 1,
        fields: vec![Field {
            name: "what".into(),
            field_type: FieldType::String,
        }],
        ..Metadata::default()
    };
    writer.define_event(&metadata).unwrap();
    let payload: Vec<u8> = ("x".repeat(999) + "\0")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for number in 1..=5_000 {
        let record = EventRecord {
            metadata_id: 1,
            sequence_number: number,
            thread_id: 5,
            capture_thread_id: 5,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id: 0,
            timestamp: u64::from(number),
            activity_id: Guid::ZERO,
            related_activity_id: Guid::ZERO,
            is_sorted: number % 1000 == 1,
            label_list: 0,
            payload: &payload,
        };
        writer.event(&record).unwrap();
    }
    writer.finish();
    let file = scratch.file("large.nettrace");
    fs::write(&file, writer.output()).unwrap();

    for order in ["file", "dispatch"] {
        let arguments = ["events", "--json", "--order", order];
        let read = || tool().args(arguments).arg(&file).output().unwrap();
        let mapped = read();
        let appending = fs::OpenOptions::new().append(true).open(&file).unwrap();
        let while_written = read();
        drop(appending);
        let piped = tool()
            .args(arguments)
            .arg("-")
            .stdin(fs::File::open(&file).unwrap())
            .output()
            .unwrap();
        let (code, out, error) = answer(&mapped);
        assert_eq!((code, out.lines().count()), (0, 5_000), "{error}");
        assert!(answer(&while_written) == (code, out.clone(), error.clone()));
        assert!(answer(&piped) == (code, out, error));
    }
}

#[test]
fn up_to_the_damage_of_a_file_that_was_cut_off() {
    let scratch = Scratch::new("cut");
    let file = trace(&scratch);
    let whole = fs::read(&file).unwrap();
    for cut in [whole.len() - 1, whole.len() - 20] {
        fs::write(&file, &whole[..cut]).unwrap();
        let (code, out, error) = run(&["events", file.to_str().unwrap(), "--json"]);
        assert_eq!((code, out.lines().count()), (7, 5), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1);
        assert!(error.contains("offset"), "{error}");
    }
}

#[test]
fn the_same_after_rewriting_in_the_other_format() {
    let scratch = Scratch::new("rewrite");
    let file = trace(&scratch);
    let printed = |file: &PathBuf| {
        let (code, out, error) = run(&[
            "events",
            file.to_str().unwrap(),
            "--json",
            "--raw",
            "--stacks",
            "--order",
            "file",
        ]);
        assert_eq!(code, 0, "{error}");
        out
    };
    let (code, _, error) = run(&["rewrite", file.to_str().unwrap(), "--to", "v6"]);
    assert_eq!(code, 0, "{error}");
    let v6 = scratch.file("small.v6.nettrace");
    let back = scratch.file("back.nettrace");
    let (code, _, error) = run(&[
        "rewrite",
        v6.to_str().unwrap(),
        "--to",
        "v4",
        "-o",
        back.to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(printed(&v6), printed(&file));
    assert_eq!(printed(&back), printed(&file));
    let (code, _, error) = run(&["rewrite", file.to_str().unwrap(), "--to", "v6"]);
    assert_eq!(code, 8, "not over an existing file: {error}");

    // Two events of thread 6 never came, and every file says so.
    for file in [&file, &v6, &back] {
        let (_, report) = support::report(file);
        assert_eq!(report["lost"]["total"], 2, "{report}");
    }
    let (_, out, _) = run(&["info", v6.to_str().unwrap(), "--json"]);
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (info["format"].as_u64(), info["events"].as_u64()),
        (Some(6), Some(5))
    );
    assert_eq!(info["start"], "2026-01-31T12:00:00.000Z");
    // A change of thread begins a block; threads have blocks of their own in version 6 only.
    assert_eq!(
        info["blocks"],
        json!({"event": 2, "metadata": 1, "stack": 1, "sequence_point": 1, "thread": 1, "label": 0, "unknown": 0})
    );
    let (_, out, _) = run(&["info", file.to_str().unwrap()]);
    assert!(
        out.contains("2 event, 1 metadata, 1 stack, 1 sequence point\n"),
        "{out}"
    );
}

/// A file may be called anything, and what is said of it is still one line for each thing that is said.
#[test]
fn a_name_of_two_lines_is_said_in_one() {
    let scratch = Scratch::new("two-lines");
    let file = scratch.file("a\nb\x1b[2J.nettrace");
    std::fs::rename(trace(&scratch), &file).unwrap();
    let shown = format!("{}/a·b·[2J", scratch.path().display());
    let name = file.to_str().unwrap();
    let (code, out, _) = run(&["report", "stat", name]);
    assert_eq!(code, 0);
    assert!(
        out.starts_with(&format!("{shown}.nettrace: format ")),
        "{out}"
    );
    let (code, _, said) = run(&["events", name, "--provider", "Nobody"]);
    assert_eq!(code, 0);
    for line in said.lines() {
        assert!(line.starts_with(&format!("{shown}.nettrace: ")), "{said}");
    }
    let (code, _, said) = run(&["rewrite", "--to", "v6", name]);
    assert_eq!(code, 0);
    assert!(
        said.starts_with(&format!("{shown}.v6.nettrace: ")),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    // Programs get the name as it is.
    let (code, out, _) = run(&["join", name, "--json"]);
    assert_eq!(code, 0);
    let joined: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(joined["sources"][0]["file"], name);
}

/// Half of the trace comes, and the other half when the line that tells of it is seen.
#[test]
fn a_long_wait_is_told_on_the_terminal() {
    const TEST: &str = "a_long_wait_is_told_on_the_terminal";
    let scratch = Scratch::new("meanwhile");
    let file = trace(&scratch);
    let tool = tool().get_program().display().to_string();
    for (command, last) in [
        ("report stat -", " lost"),
        ("info -", "blocks"),
        ("events - >events", "code="),
        ("rewrite --to v6 - -o v6.nettrace", "v6.nettrace: "),
    ] {
        let line = format!(
            "cd '{}' && {{ head -c 200 '{file}'; timeout --foreground 60 head -n 1 </dev/tty >/dev/null; tail -c +201 '{file}'; }} | '{tool}' {command}; echo code=$?.",
            scratch.path().display(),
            file = file.display(),
        );
        let Some((shown, _)) = support::in_a_terminal(TEST, &line, &[("200 B read", "\n")]) else {
            return;
        };
        // Drawn over and over in one place, and gone before anything else is shown.
        assert!(
            shown.contains("\r\x1b[2K200 B read"),
            "{command}: {shown:?}"
        );
        let after = shown.rsplit_once("\x1b[2K").unwrap().1;
        assert!(!after.contains(" read"), "{command}: {shown:?}");
        assert!(after.contains(last), "{command}: {shown:?}");
        assert!(after.contains("code=0."), "{command}: {shown:?}");
    }
    // A pager has the terminal to itself.
    let line = format!(
        "{{ head -c 200 '{file}'; sleep 1.5; tail -c +201 '{file}'; }} | '{tool}' report stat - | cat",
        file = file.display(),
    );
    let (shown, _) = support::in_a_terminal(TEST, &line, &[]).unwrap();
    assert!(
        !shown.contains(" read") && shown.contains(" lost"),
        "{shown:?}"
    );
}

/// Sentences and lists go on in the next line, between words; nothing is cut that is not in a table.
#[test]
fn lines_fit_the_terminal_whatever_its_width() {
    const TEST: &str = "lines_fit_the_terminal_whatever_its_width";
    let scratch = Scratch::new("narrow");
    let file = trace(&scratch);
    let shown = |columns: usize, command: &str| {
        // From where the file is, which has a short name there.
        let line = format!(
            "cd '{}' && stty rows 50 cols {columns} && '{}' {command}",
            scratch.path().display(),
            tool().get_program().display(),
        );
        let (shown, went_well) = support::in_a_terminal(TEST, &line, &[])?;
        assert!(went_well, "{command}: {shown}");
        Some(shown.replace('\r', ""))
    };
    let name = file.file_name().unwrap().to_str().unwrap();
    for columns in [40, 60, 100] {
        for command in [
            "info",
            "events",
            "events --stacks",
            "events --provider Nobody",
            "report stat",
        ] {
            let Some(text) = shown(columns, &format!("{command} {name}")) else {
                return;
            };
            for line in text.lines() {
                assert!(line.width() <= columns, "{columns}: {command}: {text}");
            }
            if command == "report stat" {
                continue;
            }
            // Whatever is broken is so between words.
            let whole = tool()
                .args(command.split(' '))
                .arg(name)
                .current_dir(scratch.path())
                .output();
            let (_, out, said) = answer(&whole.unwrap());
            let whole = format!("{out}{said}");
            let whole: Vec<&str> = whole.split_whitespace().collect();
            let words: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(words, whole, "{columns}: {command}");
        }
        let profiles = shown(columns, "list-profiles").unwrap_or_default();
        let profiles: Vec<&str> = profiles.split_whitespace().collect();
        let sentence = "gc-collect GC collections only, at very low overhead";
        assert!(profiles.join(" ").contains(sentence), "{profiles:?}");
    }
    let wrong = shown(40, "events x --from -5s || true").unwrap_or_default();
    assert!(wrong.contains("2026-01-31T12:00:00Z"), "{wrong}");
    for line in wrong.lines() {
        assert!(line.width() <= 40, "{wrong}");
    }
    let help = shown(40, "collect -h").unwrap_or_default();
    assert!(help.contains("<PID>\n          The process id"), "{help}");
}

/// A pipe or a device stays what it is, also for root, who could put a file in its place; so does a link.
#[test]
fn what_is_no_file_is_written_to_and_never_replaced() {
    let scratch = Scratch::new("as-it-is");
    let file = trace(&scratch);
    let rewrite = |output: &std::path::Path| {
        let words = ["rewrite", "--to", "v6", "--force"];
        let mut tool = tool();
        tool.args(words).arg(&file).arg("-o").arg(output);
        answer(&tool.output().unwrap())
    };
    let whole = scratch.file("whole.nettrace");
    assert_eq!(rewrite(&whole).0, 0);
    let whole = fs::read(whole).unwrap();

    let link = scratch.file("link.nettrace");
    fs::write(scratch.file("behind.nettrace"), b"old").unwrap();
    std::os::unix::fs::symlink("behind.nettrace", &link).unwrap();
    assert_eq!(rewrite(&link).0, 0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(scratch.file("behind.nettrace")).unwrap(), whole);

    let pipe = scratch.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|made| made.success()));
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe)
    });
    let (code, _, error) = rewrite(&pipe);
    let kind = fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(!kind.is_file(), "there is a file in place of the pipe");
    assert_eq!(
        (code, reading.join().unwrap().unwrap()),
        (0, whole),
        "{error}"
    );

    // Through a link, lest a mistake costs the machine its device.
    let full = scratch.file("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    if std::path::Path::new("/dev/full").exists() {
        let (code, _, error) = rewrite(&full);
        assert!(code == 8 && error.contains("No space left"), "{error}");
        assert!(fs::symlink_metadata(&full).unwrap().is_symlink());
    }
}

/// The same words choose the same events of a file, whether they are printed or written anew.
#[test]
fn names_and_patterns_mean_the_same_in_each_command() {
    let scratch = Scratch::new("patterns");
    let trace = scratch.file("a.nettrace");
    let target = Target::at_work();
    let (code, _, error) = finish(collecting(target.pid(), &trace, &["--duration", "300ms"]));
    assert_eq!(code, 0, "{error}");
    let trace = trace.to_str().unwrap();
    let kept = scratch.file("kept.nettrace");
    let kept = kept.to_str().unwrap();
    for (pattern, hint) in [
        ("Demo-Requests", ""),
        ("demo-requests", ""),
        ("demo-*", ""),
        ("*REQ*", ""),
        ("Demo-Request?", ""),
        (
            "Demo-Request",
            "no provider is called 'Demo-Request'; there is Demo-Requests",
        ),
        (
            "Nothing",
            "no provider is called 'Nothing'; there are Demo-",
        ),
    ] {
        let words = ["events", trace, "--json", "--provider", pattern];
        let (code, out, said) = run(&words);
        assert_eq!(code, 0, "{pattern}: {said}");
        assert!(said.contains(hint), "{pattern}: {said}");
        assert_eq!(out.is_empty(), !hint.is_empty(), "{pattern}");
        let (code, _, said) = run(&[
            "rewrite",
            trace,
            "--to",
            "v6",
            "--force",
            "-o",
            kept,
            "--provider",
            pattern,
        ]);
        assert_eq!(code, 0, "{pattern}: {said}");
        assert!(said.contains(hint), "{pattern}: {said}");
        assert_eq!(said.contains("no provider"), !hint.is_empty(), "{said}");
        let events = support::report(std::path::Path::new(kept)).1["total_events"].as_u64();
        assert_eq!(events, Some(out.lines().count() as u64), "{pattern}");
    }
    let (_, out, said) = run(&["events", trace, "--event", "Steps", "--event", "request*"]);
    assert!(!out.is_empty());
    assert!(
        said.contains("no event is called 'Steps'; there is Step"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let (_, _, said) = run(&["events", trace, "--event", "4711", "--event", "3"]);
    assert!(said.contains("no event is called '4711'"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Version 6 can forget what it described, in the middle of a file.
#[test]
fn a_name_that_a_trace_never_had_is_said_also_where_descriptions_are_forgotten() {
    let mut writer = TraceWriter::new(WriteFormat::V6, &info());
    let row = ThreadRow {
        thread_id: Some(7),
        ..ThreadRow::default()
    };
    writer.define_thread(1, &row).unwrap();
    for (number, provider) in [(1, "Shop-Orders"), (2, "Shop-Stock")] {
        let metadata = Metadata {
            id: 1,
            provider: provider.into(),
            event_id: 1,
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
        let record = EventRecord {
            metadata_id: 1,
            sequence_number: number,
            thread_id: 1,
            capture_thread_id: 1,
            timestamp: 1_000_000 + u64::from(number),
            is_sorted: true,
            ..EventRecord::default()
        };
        writer.event(&record).unwrap();
        let flags = if number == 1 { FORGET_METADATA } else { 0 };
        writer.sequence_point(1_000_000 + u64::from(number), flags, [(1, number)]);
    }
    writer.finish();
    let scratch = Scratch::new("forgotten");
    let (file, kept) = (scratch.file("a.nettrace"), scratch.file("kept.nettrace"));
    fs::write(&file, writer.output()).unwrap();
    let (file, kept) = (file.to_str().unwrap(), kept.to_str().unwrap());
    for (names, hint) in [
        (&["Shop-Orders", "Shop-Stock"][..], None),
        (&["Shop-Order?"], None),
        (
            &["Shop-Order", "Shop-Stock"],
            Some("a.nettrace: no provider is called 'Shop-Order'; there is Shop-Orders"),
        ),
    ] {
        let mut words = vec!["rewrite", file, "--to", "v6", "--force", "-o", kept];
        words.extend(names.iter().flat_map(|name| ["--provider", name]));
        let (code, _, said) = run(&words);
        assert_eq!(code, 0, "{names:?}: {said}");
        assert_eq!(said.contains("no provider"), hint.is_some(), "{said}");
        assert!(said.contains(hint.unwrap_or_default()), "{said}");
    }
}
