//! Promise: a NativeAOT program with this project's engine is a program of .NET to Microsoft's tools and to this project's: they record its
//! events, counters, metrics, samples and heap.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Folder, Program};
use lab::nativeaot::{self, App, Extras, NativeEngine, Net};
use peers::Peers;

/// Runs the test on the program of both runtimes. It is there until its `Program` is dropped.
fn with_each(test: &str, mode: &[&str], mut each: impl FnMut(&Peers, &Folder, &Program, Net)) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    if peers::shared_for_test(test).is_none() {
        return;
    }
    for net in [Net::Net10, Net::Net11] {
        let folder = Folder::new(&format!("{test}-{net:?}"));
        let path = folder.file("program");
        nativeaot::link(
            &path,
            App::Epapp,
            net,
            NativeEngine::Rust,
            Extras::HEAP_WALK,
        )
        .expect("the program links");
        let program = Program::start_command(Command::new(&path).args(mode));
        each(&peers, &folder, &program, net);
    }
}

fn succeeds(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the tool starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        peers::stderr(&output)
    );
    text
}

/// What docs/nativeaot.md says to add to a project file.
fn project_lines() -> &'static str {
    let document = include_str!("../../docs/nativeaot.md");
    let (_, rest) = document.split_once("```xml\n").expect("the lines");
    rest.split_once("```").expect("the lines").0
}

/// The lines of docs/nativeaot.md, read by an MSBuild engine, put the library and its objects before the runtime's archives and change nothing
/// else; of the runtime's own engine the linker then takes nothing.
#[test]
fn the_build_of_a_project_takes_this_engine() {
    let test = "the_build_of_a_project_takes_this_engine";
    if Peers::for_test(test).is_none() || peers::shared_for_test(test).is_none() {
        return;
    }
    if Command::new("xbuild").arg("/version").output().is_err() {
        return peers::skipped(test, "there is no program 'xbuild' (Debian: mono-xbuild)");
    }
    let without = "<PropertyGroup><EventSourceSupport>true</EventSourceSupport></PropertyGroup>";
    for net in [Net::Net10, Net::Net11] {
        let folder = Folder::new(&format!("{test}-{net:?}"));
        let (program, map) = (folder.file("program"), folder.file("map"));
        let other = folder.file("other");
        let runtimes = nativeaot::link_project(without, &other, App::Epapp, net).expect("it links");
        let ours = format!(
            "{}<ItemGroup><ExtraLinkerArg Include=\"-Map={}\" /></ItemGroup>\n",
            project_lines(),
            map.display()
        );
        let mut ours = nativeaot::link_project(&ours, &program, App::Epapp, net).expect("it links");
        ours.retain(|argument| !argument.starts_with("-Wl,-Map="));
        let first = runtimes
            .iter()
            .position(|argument| argument.ends_with(".a"));
        let first = first.expect("an archive");
        let added: Vec<String> = ours.drain(first..first + 4).collect();
        assert_eq!(
            added,
            [
                "libeventpipe-nativeaot.a",
                "eventtrace_gcheap.cpp.o",
                "eventtrace_bulktype.cpp.o",
                "profheapwalkhelper.cpp.o"
            ]
        );
        assert_eq!(ours, runtimes);
        assert!(
            runtimes
                .iter()
                .any(|a| a.ends_with("/libeventpipe-enabled.a"))
        );

        let map = std::fs::read(&map).expect("a map");
        let map = String::from_utf8_lossy(&map);
        assert!(map.contains("libeventpipe-nativeaot.a("));
        assert!(!map.contains("libeventpipe-enabled.a("));
        let text = succeeds(Command::new(&program).args(["types", "--seconds", "1"]));
        assert!(text.ends_with("types rounds=1\ndone types\n"), "{text}");
    }
}

const PROVIDERS: &str =
    "Microsoft-Windows-DotNETRuntime:1:4,Microsoft-DotNETCore-SampleProfiler:0:5";

/// Collections and samples are in the trace, and the samples have stacks.
fn has_collections_and_samples(peers: &Peers, trace: &Path) {
    let events = peers.oracle_events(trace);
    let of = |provider: &str, id: u64| {
        let named = events.iter().filter(|event| event["provider"] == provider);
        named.filter(|event| event["id"] == id).count()
    };
    assert!(of("Microsoft-Windows-DotNETRuntime", 1) > 3, "collections");
    assert!(of("Microsoft-DotNETCore-SampleProfiler", 0) > 10, "samples");
    assert_eq!(peers.oracle_summary(trace)["events_lost"], 0);
    let file = std::fs::File::open(trace).expect("a trace");
    let mut reader = nettrace::Reader::new(file).expect("a trace");
    let mut deepest = 0;
    while let Some(event) = reader.next_event().expect("readable to its end") {
        if event.metadata().provider == "Microsoft-DotNETCore-SampleProfiler" {
            let depth = event.stack().frames().len();
            assert!(depth > 0, "a sample without frames");
            deepest = deepest.max(depth);
        }
    }
    assert!(deepest >= 3, "the deepest stack has {deepest} frames");
}

#[test]
fn dotnet_trace_records_collections_and_samples_with_stacks() {
    with_each(
        "dotnet_trace_records_collections_and_samples_with_stacks",
        &["gc", "--seconds", "100000"],
        |peers, folder, program, _| {
            let trace = folder.file("trace.nettrace");
            let mut command = peers.tool("dotnet-trace");
            command.args(["collect", "-p", &program.pid().to_string()]);
            command.args(["--providers", PROVIDERS, "--duration", "00:00:02", "-o"]);
            let text = succeeds(command.arg(&trace));
            assert!(text.contains("Trace completed"), "{text}");
            has_collections_and_samples(peers, &trace);
        },
    );
}

#[test]
fn our_tool_records_collections_and_samples_with_stacks() {
    with_each(
        "our_tool_records_collections_and_samples_with_stacks",
        &["gc", "--seconds", "100000"],
        |peers, folder, program, _| {
            let trace = folder.file("trace.nettrace");
            let mut command = Command::new(tool());
            command.args(["collect", "-p", &program.pid().to_string()]);
            command.args(["--providers", PROVIDERS, "--duration", "2s", "-o"]);
            succeeds(command.arg(&trace));
            has_collections_and_samples(peers, &trace);
        },
    );
}

/// The tool of this project, built if it was not.
fn tool() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "eventpipe-cli"])
        .current_dir(workspace)
        .status();
    assert!(built.expect("cargo starts").success());
    target.join("eventpipe")
}

#[test]
fn dotnet_counters_collects_counters_and_metrics() {
    with_each(
        "dotnet_counters_collects_counters_and_metrics",
        &["counters", "--seconds", "100000"],
        |peers, folder, program, _| {
            let file = folder.file("counters.csv");
            let mut command = peers.tool("dotnet-counters");
            command.args(["collect", "-p", &program.pid().to_string()]);
            command.args(["--counters", "EpApp,System.Runtime", "--format", "csv"]);
            succeeds(command.args(["--duration", "00:00:04", "-o"]).arg(&file));
            let rows = std::fs::read_to_string(&file).expect("the file");
            for counter in [
                // A PollingCounter, an EventCounter, an IncrementingEventCounter, meters of the runtime.
                "EpApp,Attempted (events)",
                "EpApp,Sample",
                "EpApp,Rate (Count / 1 sec)",
                "System.Runtime,dotnet.process.cpu.count ({cpu})",
                "System.Runtime,dotnet.gc.last_collection.heap.size (By)[gc.heap.generation=gen2]",
            ] {
                assert!(rows.contains(counter), "no {counter} in\n{rows}");
            }
        },
    );
}

#[test]
fn dotnet_gcdump_sees_the_heap() {
    with_each(
        "dotnet_gcdump_sees_the_heap",
        &["gc", "--seconds", "100000"],
        |peers, folder, program, _| {
            let file = folder.file("heap.gcdump");
            let mut command = peers.tool("dotnet-gcdump");
            command.args(["collect", "-p", &program.pid().to_string(), "-o"]);
            succeeds(command.arg(&file));
            let report = succeeds(peers.tool("dotnet-gcdump").arg("report").arg(&file));
            let objects: u64 = report
                .lines()
                .find_map(|line| line.trim().strip_suffix("GC Heap objects"))
                .expect("a number of objects")
                .chars()
                .filter(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .expect("a number");
            // The program keeps a thousand arrays.
            assert!(objects > 1000, "{report}");
        },
    );
}
