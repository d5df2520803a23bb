//! Promise: the documented variables, under either prefix, start a session with the process; what is wrong with them is said
//! and stops nobody.

mod common;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::Trace;

eventpipe::provider! {
    mod environment = "Environment-Test";

    #[event(id = 1, level = Informational, keywords = 0x10)]
    fn hello(number: u64);

    #[event(id = 2, level = Verbose, keywords = 0x20)]
    fn detail(number: u64);
}

/// Run as a process of its own by the tests below; does nothing in the normal run.
#[test]
fn child() {
    if std::env::var_os("EVENTPIPE_TEST_CHILD").is_some() {
        eventpipe::start();
        let events = std::env::var("EVENTPIPE_TEST_EVENTS");
        let events = events.map_or(100, |text| text.parse().expect("a number"));
        for number in 0..events {
            environment::hello(number);
            environment::detail(number);
        }
        std::process::exit(0);
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!(
        "eventpipe-environment-{}-{name}",
        std::process::id()
    ));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn run(folder: &Path, variables: &[(&str, &str)]) -> Output {
    let output = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "child", "--nocapture"])
        .env("EVENTPIPE_TEST_CHILD", "1")
        .env("TMPDIR", folder)
        .current_dir(folder)
        .envs(variables.iter().copied())
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
    output
}

fn events(path: &Path) -> Vec<u32> {
    let trace = Trace::read(&std::fs::read(path).expect("the trace is there"));
    assert_eq!(trace.total_lost(), 0);
    trace.of("Environment-Test").map(|event| event.id).collect()
}

fn warnings(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_variables_nothing_is_recorded_and_nothing_said() {
    let folder = folder("none");
    let output = run(&folder, &[]);
    assert_eq!(warnings(&output), "");
    assert_eq!(
        std::fs::read_dir(&folder).expect("readable").count(),
        0,
        "the socket is gone too"
    );
}

#[test]
fn the_default_session_records_everything_into_the_working_directory() {
    let folder = folder("default");
    run(&folder, &[("DOTNET_EnableEventPipe", "1")]);
    assert_eq!(events(&folder.join("trace.nettrace")).len(), 200);
}

#[test]
fn either_prefix_works_and_ours_wins() {
    let folder = folder("prefix");
    run(
        &folder,
        &[
            ("DOTNET_EnableEventPipe", "1"),
            ("DOTNET_EventPipeOutputPath", "dotnet.nettrace"),
            ("DOTNET_EventPipeConfig", "Environment-Test:0x10:4"),
            ("EVENTPIPE_EventPipeOutputPath", "ours-{pid}.nettrace"),
        ],
    );
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("readable")
        .map(|e| e.expect("entry").path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let name = files[0]
        .file_name()
        .expect("named")
        .to_string_lossy()
        .into_owned();
    let pid = name
        .strip_prefix("ours-")
        .and_then(|rest| rest.strip_suffix(".nettrace"));
    assert!(pid.is_some_and(|pid| pid.parse::<u32>().is_ok()), "{name}");
    assert_eq!(events(&files[0]), [1; 100]);
}

#[test]
fn numbers_are_hexadecimal_and_nought_switches_off() {
    let folder = folder("numbers");
    run(
        &folder,
        &[
            ("EVENTPIPE_EnableEventPipe", "0"),
            ("DOTNET_EnableEventPipe", "1"),
        ],
    );
    assert!(!folder.join("trace.nettrace").exists());
    run(
        &folder,
        &[
            ("EVENTPIPE_EnableEventPipe", "0x1"),
            ("EVENTPIPE_EventPipeCircularMB", "A"),
            ("EVENTPIPE_EventPipeOutputStreaming", "0"),
            ("EVENTPIPE_EventPipeNetTraceFormat", "6"),
            ("EVENTPIPE_EventPipeConfig", "Environment-Test:20:5"),
        ],
    );
    assert_eq!(events(&folder.join("trace.nettrace")), [2; 100]);
    let bytes = std::fs::read(folder.join("trace.nettrace")).expect("there");
    assert_eq!(
        bytes[8..12],
        [0; 4],
        "format 6 begins with a zero after the magic"
    );
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_the_program_runs_on() {
    let folder = folder("wrong");
    for (variables, cause) in [
        (
            vec![("EVENTPIPE_EventPipeConfig", "A,:1")],
            "a provider without a name at byte 2",
        ),
        (
            vec![("EVENTPIPE_EventPipeConfig", "A:xyz")],
            "not hexadecimal",
        ),
        (
            vec![("EVENTPIPE_EventPipeOutputPath", "/nowhere/at/all.nettrace")],
            "/nowhere/at/all.nettrace",
        ),
        // 16 TB.
        (
            vec![("EVENTPIPE_EventPipePoolMB", "FFFFFF")],
            "refused memory",
        ),
        (
            vec![("EVENTPIPE_EventPipeCircularMB", "lots")],
            "EventPipeCircularMB",
        ),
        // A disk without room.
        (
            vec![("EVENTPIPE_EventPipeOutputPath", "/dev/full")],
            "its file takes no more (error 28)",
        ),
    ] {
        let variables = [vec![("EVENTPIPE_EnableEventPipe", "1")], variables].concat();
        let said = warnings(&run(&folder, &variables));
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with("eventpipe: ") && said.contains(cause),
            "{said}"
        );
    }
    let long = folder.join("x".repeat(120));
    std::fs::create_dir_all(&long).expect("made");
    let said = warnings(&run(&folder, &[("TMPDIR", long.to_str().expect("plain"))]));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no diagnostics socket"), "{said}");
}

#[test]
fn diagnostics_can_be_switched_off_without_switching_the_session_off() {
    let folder = folder("off");
    let variables = [
        ("DOTNET_EnableDiagnostics", "0"),
        ("EVENTPIPE_EnableEventPipe", "1"),
    ];
    run(&folder, &variables);
    assert_eq!(events(&folder.join("trace.nettrace")).len(), 200);
}

/// The output may be a FIFO. A reader that stands still costs the session its events, and the end of the process two seconds; what it reads
/// later is a trace that breaks off.
#[test]
fn a_fifo_whose_reader_stands_still_does_not_hold_the_end() {
    let folder = folder("fifo");
    let fifo = folder.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    let path = fifo.clone();
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut file = std::fs::File::open(path).expect("a reader");
        let _ = end.recv();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("read");
        bytes
    });
    let mut variables = vec![
        ("EVENTPIPE_EnableEventPipe", "1"),
        ("EVENTPIPE_EventPipeOutputPath", "fifo"),
    ];
    // More than a FIFO holds.
    variables.push(("EVENTPIPE_TEST_EVENTS", "20000"));
    run(&folder, &variables);
    drop(ended);
    let bytes = reader.join().expect("no panic");
    let mut reader = nettrace::Reader::new(bytes.as_slice()).expect("a trace");
    let mut events = 0;
    while let Ok(Some(event)) = reader.next_event() {
        events += u32::from(event.metadata().provider == "Environment-Test");
    }
    assert!(0 < events && events < 40_000, "{events}");
}
