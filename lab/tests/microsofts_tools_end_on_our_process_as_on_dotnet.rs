//! Promise: Microsoft's tools, in every form in which they reach a process, end on ours as they do on one of .NET. What a native
//! process cannot do is refused, and the tool says so and ends.
//!
//! Each case runs twice: on the stress program of the peers on .NET 10, and on the same program on this engine.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Folder, HUNG, Program};
use dotnet_diagnostics::client::Endpoint;
use lab::process::Running;
use lab::stress::PROVIDER;
use peers::{Peers, Runtime};

/// Whose engine the traced program has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    DotNet,
    Ours,
}

/// How a tool gets at the program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// `-p PID`
    Pid,
    /// `--dport PATH,connect`: the program's own socket.
    Connect,
    /// `--dport PATH`: the tool listens, the program dials and is held at its start.
    Listen,
    /// `-- COMMAND`: the tool starts the program.
    Child,
}

/// How a tool ended and what it said, on both channels.
struct Ended {
    code: Option<i32>,
    text: String,
}

/// The stress program; it runs until it is ended.
fn program(peers: &Peers, target: Target) -> Command {
    let mut command = match target {
        Target::DotNet => peers.program(Runtime::Net10, "stress"),
        Target::Ours => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
            command.arg("target");
            command
        }
    };
    command.args("--threads 2 --rate 1000 --kind sequenced --seconds 600".split(' '));
    command
}

fn socket_of(pid: u32) -> PathBuf {
    let process = dotnet_diagnostics::discovery::find(pid).expect("it has a socket");
    match process.endpoint() {
        Endpoint::Socket(path) => path,
        Endpoint::Runtime(_) => panic!("a process is found by its socket"),
    }
}

/// A folder of the test's own, for sockets too: its name is short enough for their addresses.
fn folder() -> Folder {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    Folder::new(&format!("tools{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Runs `TOOL VERB [how] ARGUMENTS` on a program; `Err` is what it said when it does not end.
fn attempt(
    peers: &Peers,
    folder: &Folder,
    (mut program, form): (Command, Form),
    tool: &str,
    arguments: &[&str],
) -> Result<Ended, String> {
    let mut command = peers.tool(tool);
    let (verb, options) = arguments.split_first().expect("a verb");
    command.arg(verb);
    // Whoever is killed leaves its socket behind: here, where it is removed with the folder.
    command.env("TMPDIR", &folder.0).env("TERM", "xterm");
    program.env("TMPDIR", &folder.0);
    let _attached;
    let _dialling;
    match form {
        Form::Pid => {
            let program = Program::start_command(&mut program);
            command.args(["-p", &program.pid().to_string()]);
            _attached = program;
        }
        Form::Connect => {
            let program = Program::start_command(&mut program);
            let socket = socket_of(program.pid());
            command.arg("--dport");
            command.arg(format!("{},connect", socket.display()));
            _attached = program;
        }
        Form::Listen => {
            let port = folder.file("port");
            let child = program
                .env("DOTNET_DiagnosticPorts", &port)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            _dialling = Running(child.expect("the program starts"));
            command.arg("--dport").arg(port);
        }
        Form::Child => {}
    }
    command.args(options);
    if form == Form::Child {
        command
            .env_remove("DOTNET_EnableDiagnostics")
            .arg("--")
            .arg(program.get_program())
            .args(program.get_args());
    }
    wait(folder, &mut command)
}

/// The same on a program that the tool must not hang on.
fn run(
    peers: &Peers,
    folder: &Folder,
    program: (Command, Form),
    tool: &str,
    arguments: &[&str],
) -> Ended {
    attempt(peers, folder, program, tool, arguments)
        .unwrap_or_else(|said| panic!("{tool} {arguments:?} hangs:\n{said}"))
}

/// The same on a program of .NET. There the tools do hang, once in many runs on a busy machine: then again.
fn run_on_dotnet(
    peers: &Peers,
    folder: &Folder,
    form: Form,
    tool: &str,
    arguments: &[&str],
) -> Ended {
    for _ in 0..2 {
        let program = (program(peers, Target::DotNet), form);
        match attempt(peers, folder, program, tool, arguments) {
            Ok(ended) => return ended,
            Err(said) => eprintln!("{tool} {arguments:?} hung on .NET:\n{said}"),
        }
        drop(std::fs::remove_file(folder.file("port")));
    }
    let program = (program(peers, Target::DotNet), form);
    run(peers, folder, program, tool, arguments)
}

fn wait(folder: &Folder, command: &mut Command) -> Result<Ended, String> {
    let said = folder.file("said");
    let file = File::create(&said).expect("a file");
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("the same file"))
        .stderr(file)
        .spawn();
    let mut tool = Running(child.expect("the tool starts"));
    let ends = tool.wait_without_reaping(HUNG);
    let text = std::fs::read_to_string(&said).expect("text");
    if !ends {
        return Err(text);
    }
    let status = tool.0.wait().expect("our child");
    let code = status.code();
    Ok(Ended { code, text })
}

/// Runs it on .NET, then on ours; both end alike. Gives back how it ended on ours.
fn alike(peers: &Peers, folder: &Folder, form: Form, tool: &str, arguments: &[&str]) -> Ended {
    let there = run_on_dotnet(peers, folder, form, tool, arguments);
    let here = (program(peers, Target::Ours), form);
    let here = run(peers, folder, here, tool, arguments);
    assert_eq!(
        here.code, there.code,
        "{tool} {arguments:?} {form:?}\non .NET:\n{}\non ours:\n{}",
        there.text, here.text
    );
    here
}

/// Complete, without loss, with events of both threads.
fn is_recorded(peers: &Peers, file: &Path) {
    let events = peers.oracle_events(file);
    for thread in [0, 1] {
        let ours = events
            .iter()
            .filter(|event| event["provider"] == PROVIDER && event["payload"]["thread"] == thread);
        assert!(ours.count() > 100, "thread {thread}");
    }
    assert_eq!(peers.oracle_summary(file)["events_lost"], 0);
}

fn dotnet_trace_collects(test: &str, form: Form) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = folder();
    let file = folder.file("trace.nettrace");
    let path = file.display().to_string();
    let providers = format!("{PROVIDER}:FFFFFFFFFFFFFFFF:5");
    let ended = alike(
        &peers,
        &folder,
        form,
        "dotnet-trace",
        &[
            "collect",
            "--providers",
            &providers,
            "--duration",
            "00:00:01",
            "-o",
            &path,
        ],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.text.contains("Trace completed"), "{}", ended.text);
    is_recorded(&peers, &file);
}

#[test]
fn dotnet_trace_collects_by_pid() {
    dotnet_trace_collects("dotnet_trace_collects_by_pid", Form::Pid);
}

#[test]
fn dotnet_trace_collects_over_the_socket() {
    dotnet_trace_collects("dotnet_trace_collects_over_the_socket", Form::Connect);
}

#[test]
fn dotnet_trace_collects_over_a_port_that_the_process_dials() {
    dotnet_trace_collects(
        "dotnet_trace_collects_over_a_port_that_the_process_dials",
        Form::Listen,
    );
}

#[test]
fn dotnet_trace_collects_from_its_child() {
    dotnet_trace_collects("dotnet_trace_collects_from_its_child", Form::Child);
}

/// The profile that dotnet-trace has by default asks for samples too. It is answered: the other provider may have events.
#[test]
fn dotnet_trace_collects_with_its_default_profile() {
    let test = "dotnet_trace_collects_with_its_default_profile";
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = folder();
    let path = folder.file("trace.nettrace").display().to_string();
    let arguments = ["collect", "--duration", "00:00:01", "-o", &path];
    let ended = alike(&peers, &folder, Form::Pid, "dotnet-trace", &arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
}

/// A command that has ended by itself: the trace is complete, and its exit code is the tool's.
#[test]
fn dotnet_trace_ends_with_the_exit_code_of_its_child() {
    let test = "dotnet_trace_ends_with_the_exit_code_of_its_child";
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = folder();
    let file = folder.file("trace.nettrace");
    let mut command = peers.tool("dotnet-trace");
    command
        .env_remove("DOTNET_EnableDiagnostics")
        .args(["collect", "--providers", PROVIDER, "-o"])
        .arg(&file)
        .arg("--")
        .arg(env!("CARGO_BIN_EXE_lab"))
        .args("target --threads 2 --count 1000 --kind sequenced".split(' '));
    let ended = wait(&folder, &mut command).unwrap_or_else(|said| panic!("it hangs:\n{said}"));
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(
        ended.text.contains("exited with code '0'"),
        "{}",
        ended.text
    );
    let events = peers.oracle_events(&file);
    let ours = events.iter().filter(|event| event["provider"] == PROVIDER);
    assert_eq!(ours.count(), 2_000);
}

fn dotnet_dump_collects(test: &str, form: Form) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = folder();
    let core = folder.file("core");
    let path = core.display().to_string();
    for kind in ["Mini", "Heap", "Full", "Triage"] {
        let arguments = ["collect", "--type", kind, "-o", &path];
        let ended = alike(&peers, &folder, form, "dotnet-dump", &arguments);
        assert_eq!(ended.code, Some(0), "{kind}: {}", ended.text);
        assert!(ended.text.contains("Complete"), "{kind}: {}", ended.text);
        let bytes = std::fs::read(&core).expect("the core file");
        assert!(bytes.starts_with(b"\x7FELF"), "{kind}");
        std::fs::remove_file(&core).expect("it is ours");
    }
}

#[test]
fn dotnet_dump_collects_by_pid() {
    dotnet_dump_collects("dotnet_dump_collects_by_pid", Form::Pid);
}

#[test]
fn dotnet_dump_collects_over_the_socket() {
    dotnet_dump_collects("dotnet_dump_collects_over_the_socket", Form::Connect);
}

#[test]
fn dotnet_dump_says_why_a_file_cannot_be_written() {
    let test = "dotnet_dump_says_why_a_file_cannot_be_written";
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = folder();
    let arguments = ["collect", "-o", "/nowhere/core"];
    let ended = alike(&peers, &folder, Form::Pid, "dotnet-dump", &arguments);
    assert!(ended.text.contains("/nowhere/core"), "{}", ended.text);
}

/// What the tools that need managed threads or a managed heap say of a native process, in either form that they have.
fn is_refused(test: &str, tool: &str, arguments: &[&str], forms: &[Form], says: &[&str]) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = folder();
    for form in forms {
        let program = program(&peers, Target::Ours);
        let ended = run(&peers, &folder, (program, *form), tool, arguments);
        assert_eq!(ended.code, Some(255), "{form:?}: {}", ended.text);
        for text in says {
            assert!(ended.text.contains(text), "{form:?}: {}", ended.text);
        }
    }
}

const REFUSED: &str = "Not supported by this runtime";

#[test]
fn dotnet_gcdump_says_that_there_is_no_managed_heap() {
    let file = std::env::temp_dir().join(format!("no-{}.gcdump", std::process::id()));
    is_refused(
        "dotnet_gcdump_says_that_there_is_no_managed_heap",
        "dotnet-gcdump",
        &["collect", "-v", "-o", &file.display().to_string()],
        &[Form::Pid, Form::Connect],
        &["Failed to collect gcdump", REFUSED],
    );
    assert!(!file.exists());
}

#[test]
fn dotnet_gcdump_reports_nothing_of_a_process_without_a_managed_heap() {
    is_refused(
        "dotnet_gcdump_reports_nothing_of_a_process_without_a_managed_heap",
        "dotnet-gcdump",
        &["report"],
        &[Form::Pid],
        &["An error occured while collecting gcdump"],
    );
}

#[test]
fn dotnet_stack_says_that_there_are_no_managed_stacks() {
    is_refused(
        "dotnet_stack_says_that_there_are_no_managed_stacks",
        "dotnet-stack",
        &["report"],
        &[Form::Pid],
        &[REFUSED],
    );
}

/// The rows that dotnet-counters wrote, if it came to that: name and value.
fn rows(csv: &Path) -> Vec<(String, f64)> {
    let text = std::fs::read_to_string(csv).unwrap_or_default();
    if text.is_empty() {
        return Vec::new();
    }
    let mut lines = text.lines();
    let header = "Timestamp,Provider,Counter Name,Counter Type,Mean/Increment";
    assert_eq!(lines.next(), Some(header));
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let value = fields[4].parse().expect("a number");
        (format!("{} {}", fields[2], fields[3]), value)
    };
    lines.map(row).collect()
}

/// The file of `dotnet-counters collect`, in a test's folder.
const COUNTERS: &str = "counters.csv";

/// Runs `dotnet-counters` on a program with counters. The tool counts its own start in its duration, so on a busy machine there may
/// be nothing to show at its end: then it has more time.
fn counters(
    peers: &Peers,
    form: Form,
    arguments: &[&str],
    is_complete: impl Fn(&Folder, &Ended) -> bool,
) -> (Folder, Ended) {
    let mut durations = ["00:00:06", "00:00:20", "00:01:00"].into_iter();
    loop {
        let folder = folder();
        let duration = durations.next().expect("another");
        let mut program = Command::new(env!("CARGO_BIN_EXE_lab"));
        program.args(["counters", "--seconds", "600"]);
        let csv = folder.file(COUNTERS).display().to_string();
        let mut arguments = [arguments, &["--duration", duration]].concat();
        if arguments[0] == "collect" {
            arguments.extend(["-o", &csv]);
        }
        let program = (program, form);
        let ended = run(peers, &folder, program, "dotnet-counters", &arguments);
        if durations.len() == 0 || is_complete(&folder, &ended) {
            return (folder, ended);
        }
    }
}

/// Each kind of counter has rows, with the values that the program gives it. Beside it .NET: the counters of every process.
fn dotnet_counters_collects(test: &str, form: Form) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let there = {
        let folder = folder();
        let csv = folder.file(COUNTERS).display().to_string();
        let arguments = ["collect", "--duration", "00:00:02", "-o", &csv];
        run_on_dotnet(&peers, &folder, form, "dotnet-counters", &arguments)
    };
    let read = |folder: &Folder| rows(&folder.file(COUNTERS));
    let of = |rows: &[(String, f64)], name: &str| -> Vec<f64> {
        let named = rows.iter().filter(|(row, _)| row == name);
        named.map(|(_, value)| *value).collect()
    };
    // The rates are those of the time between two rows.
    let is_complete = |folder: &Folder, ended: &Ended| {
        let has_rate = |name| of(&read(folder), name).iter().any(|rate| *rate > 0.0);
        ended.code != Some(0)
            || has_rate("Requests (requests / 1 sec) Rate")
                && has_rate("turns (Count / 1 sec) Rate")
    };
    let arguments = ["collect", "--counters", lab::counters::PROVIDER];
    let (folder, here) = counters(&peers, form, &arguments, is_complete);
    assert_eq!(here.code, there.code, "{}\n{}", there.text, here.text);
    let rows = read(&folder);
    let answers = of(&rows, "The answer Metric");
    assert!(
        !answers.is_empty() && answers.iter().all(|value| *value == 42.0),
        "{rows:?}"
    );
    let latencies = of(&rows, "Latency (ms) Metric");
    assert!(
        !latencies.is_empty() && latencies.iter().all(|value| *value == 5.0),
        "{rows:?}"
    );
    let requests = of(&rows, "Requests (requests / 1 sec) Rate");
    assert!(requests.iter().any(|value| *value > 0.0), "{rows:?}");
    assert!(requests.iter().all(|value| value % 3.0 == 0.0), "{rows:?}");
    let turns = of(&rows, "turns (Count / 1 sec) Rate");
    assert!(turns.iter().any(|value| *value > 0.0), "{rows:?}");
}

#[test]
fn dotnet_counters_collects_by_pid() {
    dotnet_counters_collects("dotnet_counters_collects_by_pid", Form::Pid);
}

#[test]
fn dotnet_counters_collects_over_the_socket() {
    dotnet_counters_collects("dotnet_counters_collects_over_the_socket", Form::Connect);
}

#[test]
fn dotnet_counters_collects_over_a_port_that_the_process_dials() {
    dotnet_counters_collects(
        "dotnet_counters_collects_over_a_port_that_the_process_dials",
        Form::Listen,
    );
}

#[test]
fn dotnet_counters_collects_from_its_child() {
    dotnet_counters_collects("dotnet_counters_collects_from_its_child", Form::Child);
}

#[test]
fn dotnet_counters_monitors_what_every_process_has() {
    let test = "dotnet_counters_monitors_what_every_process_has";
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let shown = ["[System.Runtime]", "CPU Usage (%)", "Working Set (MB)"];
    let is_complete = |_: &Folder, ended: &Ended| {
        ended.code != Some(0) || shown.iter().all(|text| ended.text.contains(text))
    };
    let (_folder, ended) = counters(&peers, Form::Pid, &["monitor"], is_complete);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    for text in shown {
        assert!(ended.text.contains(text), "{}", ended.text);
    }
}
