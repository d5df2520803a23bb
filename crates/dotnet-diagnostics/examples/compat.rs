//! Makes docs/compat.md: what each runtime answers to each command, and what each survives.
//!
//! `PEERS_DIR=… cargo run -p dotnet-diagnostics --example compat -- docs/compat.md [PROGRAM ARGUMENTS…]`
//!
//! Rewrites what stands between two marks in the file, and leaves the rest. PROGRAM is one with this project's server: it
//! prints `ready PID` and waits for a line on its input, as `lab target --wait` does. The foreign runtimes are those of the
//! peers. A runtime that dies of a case is started again for the next.

#[path = "../tests/hostile/mod.rs"]
mod hostile;
#[path = "../tests/live/mod.rs"]
mod live;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Fallbacks, Timeouts};
use dotnet_diagnostics::codec::*;
use hostile::{Health, Vitals};
use live::Target;
use peers::{Peers, Runtime};

/// A column of the tables.
struct Column {
    title: String,
    start: Box<dyn Fn() -> Target>,
}

fn main() {
    let Some(peers) = Peers::find() else {
        eprintln!("compat: no peers (set PEERS_DIR, see ../shared/peers/README.md)");
        std::process::exit(1);
    };
    let mut columns: Vec<Column> = Runtime::ALL
        .into_iter()
        .map(|runtime| {
            let peers = peers.clone();
            Column {
                title: format!(".NET {}", runtime.name().trim_start_matches("net")),
                start: Box::new(move || {
                    let mut command = live::command(&peers, runtime);
                    command.stderr(std::process::Stdio::null());
                    ready(command, runtime)
                }),
            }
        })
        .collect();
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: compat FILE [PROGRAM ARGUMENTS…]");
        std::process::exit(2);
    };
    if let Some(program) = arguments.next() {
        let rest: Vec<String> = arguments.collect();
        columns.push(Column {
            title: OURS.into(),
            start: Box::new(move || {
                let mut command = Command::new(&program);
                command.args(&rest);
                ready(command, Runtime::Net10)
            }),
        });
    }
    let mut text = format!(
        "## The diagnostics protocol\n\n\
         Made by `cargo run -p dotnet-diagnostics --example compat -- docs/compat.md target/debug/lab target --wait`.\n\
         Linux x64, .NET {}.\n",
        versions(&columns)
    );
    text += &commands(&columns);
    text += &survival(&columns);
    if let Err(error) = replace(&file, &text) {
        eprintln!("compat: {}: {error}", file.display());
        std::process::exit(1);
    }
}

const OURS: &str = "this project";
const BEGIN: &str = "<!-- made by examples/compat: do not edit -->";
const END: &str = "<!-- end -->";

/// Puts the text between the marks of the file, or at its end.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let old = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Compatibility\n".into(),
        result => result?,
    };
    let (before, after) = match old.split_once(BEGIN) {
        Some((before, rest)) => (before, rest.split_once(END).map_or("", |(_, after)| after)),
        None => (old.as_str(), "\n"),
    };
    let before = before.trim_end();
    std::fs::write(file, format!("{before}\n\n{BEGIN}\n{text}{END}{after}"))
}

fn ready(command: Command, runtime: Runtime) -> Target {
    let mut target = Target::spawn(command, runtime);
    target.wait_for("ready");
    target
}

fn client(target: &Target) -> Client {
    target.client().with_timeouts(Timeouts {
        connect: Duration::from_secs(3),
        reply: Duration::from_secs(5),
        stop: Duration::from_secs(10),
        dump: Duration::from_secs(60),
    })
}

fn versions(columns: &[Column]) -> String {
    let versions = columns.iter().filter_map(|column| {
        let info = client(&(column.start)()).process_info().ok()?;
        let version = info.product_version;
        let plain = version.split(['+', '-']).next()?.to_string();
        plain
            .starts_with(|digit: char| digit.is_ascii_digit())
            .then_some(plain)
    });
    let mut versions: Vec<String> = versions.collect();
    versions.truncate(Runtime::ALL.len() - 1);
    format!("3.1, {}", versions.join(", "))
}

fn table(rows: &[String], columns: &[Column], cells: &BTreeMap<(usize, usize), String>) -> String {
    let titles: Vec<&str> = columns.iter().map(|column| column.title.as_str()).collect();
    let mut text = format!("| | {} |\n", titles.join(" | "));
    text += &format!("|---{}|\n", "|---".repeat(columns.len()));
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<&str> = (0..columns.len())
            .map(|column| cells.get(&(number, column)).map_or("", String::as_str))
            .collect();
        text += &format!("| {row} | {} |\n", cells.join(" | "));
    }
    text
}

fn said<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "OK".into(),
        Err(Error::Unsupported { .. }) => "UNKNOWN_COMMAND".into(),
        Err(Error::Refused { code, .. }) => match code.name() {
            Some(name) => name.into(),
            None => code.to_string(),
        },
        Err(Error::NotAnswering { .. }) => "no answer".into(),
        Err(Error::ConnectionClosed { .. }) => "closed".into(),
        Err(Error::BadReply { error, .. }) => format!("damaged answer ({error})"),
        Err(error) => error.to_string(),
    }
}

type Try = fn(&Client) -> String;

fn collect(client: &Client, version: CollectVersion, change: fn(&mut CollectTracing)) -> String {
    let mut request = CollectTracing::new([ProviderConfig::new("*", u64::MAX, 4)]);
    request.version = version;
    change(&mut request);
    match client.collect_exactly(&request) {
        Ok(mut session) => match session.stop_into(&mut std::io::sink()) {
            Ok(_) => "OK".into(),
            Err(error) => format!("OK, stop: {}", said::<()>(Err(error))),
        },
        Err(error) => said::<()>(Err(error)),
    }
}

fn commands(columns: &[Column]) -> String {
    let tries: [(&str, Try); 27] = [
        ("ProcessInfo", |c| {
            said(c.process_info_exactly(ProcessInfoVersion::V1))
        }),
        ("ProcessInfo2", |c| {
            said(c.process_info_exactly(ProcessInfoVersion::V2))
        }),
        ("ProcessInfo3", |c| {
            said(c.process_info_exactly(ProcessInfoVersion::V3))
        }),
        ("ProcessEnvironment", |c| said(c.environment())),
        ("SetEnvironmentVariable", |c| {
            said(c.set_environment_variable("COMPAT", Some("1")))
        }),
        ("SetEnvironmentVariable, remove", |c| {
            said(c.set_environment_variable("COMPAT", None))
        }),
        ("SetEnvironmentVariable, remove what is not there", |c| {
            said(c.set_environment_variable("COMPAT", None))
        }),
        ("ResumeRuntime (not suspended)", |c| {
            said(c.resume_runtime())
        }),
        ("EnablePerfMap, perf map", |c| {
            said(c.enable_perf_map(PerfMapType::PERF_MAP))
        }),
        ("DisablePerfMap", |c| said(c.disable_perf_map())),
        ("CollectTracing", |c| collect(c, CollectVersion::V1, |_| {})),
        ("CollectTracing2", |c| {
            collect(c, CollectVersion::V2, |_| {})
        }),
        ("CollectTracing2, NetPerf format", |c| {
            collect(c, CollectVersion::V2, |r| r.format = Format::NetPerf)
        }),
        ("CollectTracing3, no stacks", |c| {
            collect(c, CollectVersion::V3, |r| r.stack_walk = false)
        }),
        ("CollectTracing4, rundown keyword", |c| {
            collect(c, CollectVersion::V4, |r| r.rundown_keyword = 8)
        }),
        ("CollectTracing5, event filter", |c| {
            collect(c, CollectVersion::V5, |r| {
                r.providers[0] = ProviderConfig::new("System.Runtime", 0, 4);
                r.providers[0].event_filter = Some(EventFilter::Only(vec![1, 2]));
            })
        }),
        ("CollectTracing6, block", |c| {
            collect(c, CollectVersion::V6, |r| {
                r.buffering_mode = BufferingMode::Block
            })
        }),
        ("CollectTracing5, user_events without kernel support", |c| {
            use std::os::fd::AsFd;
            let file = std::fs::File::open("/dev/null").expect("/dev/null");
            let mut request = CollectTracing::new([ProviderConfig::new("P", 1, 4)]);
            request.session = SessionKind::UserEvents;
            (request.buffer_mb, request.stack_walk) = (0, false);
            request.providers[0].tracepoints = Some(Tracepoints {
                default_tracepoint: "compat".into(),
                sets: vec![],
            });
            said(c.collect_user_events(&request, file.as_fd()))
        }),
        ("the 65th session", |c| {
            let request = CollectTracing::new([ProviderConfig::new("P", 1, 4)]);
            let sessions: Vec<_> = (0..64)
                .map_while(|_| c.collect(&request, Fallbacks::NONE).ok())
                .collect();
            let last = said(c.collect(&request, Fallbacks::NONE));
            std::thread::scope(|scope| {
                sessions
                    .into_iter()
                    .for_each(|one| drop(scope.spawn(|| drop(one))))
            });
            last
        }),
        ("StopTracing, unknown id", |c| {
            said(c.stop_tracing(SessionId(0x1234)))
        }),
        ("AttachProfiler, no such file", |c| {
            said(c.attach_profiler(AttachProfiler {
                timeout: 1,
                class_id: Guid([1; 16]),
                path: "/no/such.so".into(),
                client_data: vec![],
            }))
        }),
        ("StartupProfiler", |c| {
            said(c.startup_profiler(StartupProfiler {
                class_id: Guid([1; 16]),
                path: "/no/such.so".into(),
            }))
        }),
        ("GenerateCoreDump, no such folder", |c| {
            dump(c, DumpVersion::V1, "/no/such/folder/core")
        }),
        ("GenerateCoreDump2, no such folder", |c| {
            dump(c, DumpVersion::V2, "/no/such/folder/core")
        }),
        ("GenerateCoreDump3, no such folder", |c| {
            dump(c, DumpVersion::V3, "/no/such/folder/core")
        }),
        ("a core dump", |c| {
            let path = std::env::temp_dir().join(format!("compat-{}", std::process::id()));
            let result =
                c.generate_core_dump(&path.to_string_lossy(), DumpType::NORMAL, DumpFlags(0));
            let file = std::fs::read(&path).unwrap_or_default();
            let _ = std::fs::remove_file(&path);
            match result {
                Ok(_) if file.starts_with(b"\x7FELF") => "OK".into(),
                Ok(_) => "OK, but no core file".into(),
                Err(error) => said::<()>(Err(error)),
            }
        }),
        (
            "ApplyStartupHook, no such file (last: it may end the process)",
            |c| said(c.apply_startup_hook("/no/such.dll")),
        ),
    ];
    let mut cells = BTreeMap::new();
    for (at, column) in columns.iter().enumerate() {
        let mut target = (column.start)();
        let mut path = socket(&target);
        for (number, (name, attempt)) in tries.iter().enumerate() {
            eprintln!("{}: {name}", column.title);
            let asked = client(&target);
            let mut said = attempt(&asked);
            match afterwards(&mut target, &path) {
                After::Well => {}
                worse => {
                    said = format!("{said}, **{worse}**");
                    target = (column.start)();
                    path = socket(&target);
                }
            }
            let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", target.pid()));
            cells.insert((number, at), said);
        }
    }
    let rows: Vec<String> = tries.iter().map(|(name, _)| (*name).into()).collect();
    "\n### Commands\n\nWhat the client of this project hears from a running process.\n\
     (The .NET 3.1 of the peers lacks a library that its dump program needs.)\n\n"
        .to_string()
        + &table(&rows, columns, &cells)
}

/// How a target is after what was done to it.
enum After {
    Well,
    Blocked,
    Dead,
}

impl std::fmt::Display for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            After::Well => "well",
            After::Blocked => "blocked",
            After::Dead => "dies",
        })
    }
}

fn afterwards(target: &mut Target, path: &Path) -> After {
    // A process that goes down needs a moment for it, and may answer once more before.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..2 {
        if !matches!(target.child.try_wait(), Ok(None)) {
            return After::Dead;
        }
        match hostile::health(path) {
            Health::Answers(_) => return After::Well,
            _ => std::thread::sleep(Duration::from_secs(3)),
        }
    }
    match target.child.try_wait() {
        Ok(None) => After::Blocked,
        _ => After::Dead,
    }
}

fn dump(client: &Client, version: DumpVersion, path: &str) -> String {
    let request = Request::GenerateCoreDump(GenerateCoreDump {
        version,
        path: path.into(),
        dump_type: DumpType::NORMAL,
        flags: DumpFlags(0),
    });
    said(client.request(&request))
}

fn socket(target: &Target) -> PathBuf {
    match target.client().endpoint() {
        dotnet_diagnostics::client::Endpoint::Socket(path) => path.clone(),
        other => panic!("{other:?}"),
    }
}

fn survival(columns: &[Column]) -> String {
    let cases = hostile::cases();
    let mut cells = BTreeMap::new();
    let mut rows: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    rows.push("growth over all cases: descriptors, threads, resident MB".into());
    for (at, column) in columns.iter().enumerate() {
        let ours = column.title == OURS;
        let mut target = (column.start)();
        let mut path = socket(&target);
        let begin = Vitals::of(target.pid()).expect("it runs");
        let mut restarted = false;
        for (number, case) in cases.iter().enumerate() {
            eprintln!("{}: {}", column.title, case.name);
            if case.takes_memory && !ours {
                cells.insert((number, at), "not tried: takes gigabytes".into());
                continue;
            }
            let outcome = case.run(&path);
            let mut text = match &outcome.answer {
                Some(answer) => answer.to_string(),
                None => match outcome.health {
                    Health::Answers(after) if after < Duration::from_millis(100) => {
                        "answered".into()
                    }
                    Health::Answers(after) => format!("answered after {} ms", after.as_millis()),
                    _ => String::new(),
                },
            };
            let after = afterwards(&mut target, &path);
            match (&after, &outcome.health) {
                (After::Dead, _) => text = "**dies**".into(),
                (After::Well, Health::Answers(_)) => {}
                _ if text.is_empty() => text = "**wait**".into(),
                _ => text = format!("{text}, then **blocked**"),
            }
            cells.insert((number, at), text);
            if !matches!(after, After::Well) {
                target = (column.start)();
                path = socket(&target);
                restarted = true;
            }
        }
        // What was closed last needs a moment to go.
        std::thread::sleep(Duration::from_secs(6));
        let growth = match Vitals::of(target.pid()) {
            Ok(end) if !restarted => {
                let more = |end: usize, begin: usize| end as i64 - begin as i64;
                format!(
                    "{:+}, {:+}, {:+.1}",
                    more(end.descriptors, begin.descriptors),
                    more(end.threads, begin.threads),
                    (end.resident_kb as f64 - begin.resident_kb as f64) / 1024.0
                )
            }
            _ => "restarted".into(),
        };
        cells.insert((cases.len(), at), growth);
    }
    let head = "\n### Hostile clients\n\n\
        What the server does, and how it is afterwards; where several messages are sent, the first answer that is wrong,\n\
        else the last. \"others\": whether ProcessInfo is answered meanwhile. BAD_ENCODING, UNKNOWN_COMMAND, UNKNOWN_MAGIC\n\
        and a close of what was cut short are right answers; OK is right for bytes behind the last field and odd names.\n\n";
    head.to_string() + &table(&rows, columns, &cells)
}
