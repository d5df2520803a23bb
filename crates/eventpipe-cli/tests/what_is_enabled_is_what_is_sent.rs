//! The table that `collect` prints is made of the request that it sends, and the request is the one that
//! `dotnet-trace collect` sends for the same options. A server of the test's own takes the bytes.

mod support;

use dotnet_diagnostics::codec::{CollectTracing, Request};
use peers::Peers;
use std::process::{Command, Stdio};
use support::fake::{Fake, dotnet10};
use support::{Scratch, Target, answer, tool};

/// The first request for a session that a command sends to a server, and what the command said.
fn asked_by(mut command: Command, server: &Fake) -> (CollectTracing, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (_, out, error) = answer(&output);
    let requests = server.requests();
    let collect = requests.into_iter().find_map(|request| match request {
        Request::CollectTracing(collect) => Some(collect),
        _ => None,
    });
    (
        collect.unwrap_or_else(|| panic!("{command:?}: {out}{error}")),
        error,
    )
}

fn ours(server: &Fake, options: &[&str]) -> (CollectTracing, String) {
    let mut command = tool();
    command
        .args(["collect", "--dport", &server.port()])
        .args(options)
        .args(["-o", "/dev/null", "--force"]);
    asked_by(command, server)
}

/// A server whose sessions end at once.
fn server(scratch: &Scratch) -> Fake {
    Fake::at(&scratch.file("s"), |request| Some(dotnet10(request, &[])))
}

/// The rows of the table of providers; nothing is cut where there is no terminal.
fn table(said: &str) -> Vec<Vec<String>> {
    let lines = said
        .lines()
        .skip_while(|line| !line.starts_with("PROVIDER"));
    lines
        .take_while(|line| line.contains("  "))
        .map(|line| {
            let cells = line.split("  ").map(str::trim);
            cells
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect()
}

#[test]
fn the_table_shows_the_request() {
    let scratch = Scratch::new("table");
    let server = server(&scratch);
    let levels = [
        "LogAlways(0)",
        "Critical(1)",
        "Error(2)",
        "Warning(3)",
        "Informational(4)",
        "Verbose(5)",
    ];
    for options in [
        &[][..],
        &["--profile", "database,gc-collect"],
        &["--clrevents", "gc+exception", "--clreventlevel", "Verbose"],
        &["--providers", "A:0xff:0,B,C::critical,a:100:LogAlways"],
        &[
            "--providers",
            "A:1:4:k=\"x,y;z:w=1\";m=a=b",
            "--profile",
            "gc-verbose",
        ],
        &[
            "--providers",
            "Microsoft-Windows-DotNETRuntime:1:1",
            "--profile",
            "dotnet-common,gc-collect",
        ],
    ] {
        let (request, said) = ours(&server, options);
        let rows = table(&said);
        let sent: Vec<Vec<String>> = request
            .providers
            .iter()
            .map(|provider| {
                let mut row = vec![
                    provider.name.clone(),
                    format!("{:#x}", provider.keywords),
                    levels[usize::from(provider.level)].to_owned(),
                ];
                let printable = |c: char| if c.is_control() { '\u{b7}' } else { c };
                row.extend(
                    provider
                        .arguments
                        .as_ref()
                        .map(|text| text.chars().map(printable).collect()),
                );
                row
            })
            .collect();
        let shown: Vec<Vec<String>> = rows[1..]
            .iter()
            .map(|row| {
                let mut row = row.clone();
                assert!(row[3].starts_with("--"), "enabled by: {row:?}");
                row.remove(3);
                row
            })
            .collect();
        if options.is_empty() {
            assert_eq!(sent.len(), 2, "the default profiles");
        }
        assert_eq!(shown, sent, "{said}");
    }
}

#[test]
fn the_request_is_the_one_of_dotnet_trace() {
    const TEST: &str = "the_request_is_the_one_of_dotnet_trace";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    let scratch = Scratch::new("same-request");
    let server = server(&scratch);
    for options in [
        &[][..],
        &["--profile", "gc-verbose"],
        &["--profile", "gc-collect"],
        &["--profile", "database,dotnet-common"],
        &["--providers", "A:0xFF:5,B:1:Warning,C"],
        &["--providers", ",A,,B C:1,"],
        &["--providers", "*:ffffffffffffffff:5"],
        &[
            "--providers",
            "A:1:4:first=a;second=\"x;y=z\"",
            "--buffersize",
            "64",
        ],
        &["--providers", "A:1:2,a:10:4", "--rundown", "false"],
        &[
            "--clrevents",
            "gc+loader+exception",
            "--clreventlevel",
            "verbose",
        ],
        &[
            "--clrevents",
            "gc",
            "--profile",
            "gc-collect",
            "--rundown:true",
        ],
        &[
            "--providers",
            "Microsoft-Windows-DotNETRuntime:1:1",
            "--profile",
            "dotnet-sampled-thread-time,dotnet-common",
        ],
    ] {
        let (mut ours, said) = ours(&server, options);
        let mut command = peers.tool("dotnet-trace");
        command
            .args(["collect", "--dport", &server.port()])
            .args(options)
            .arg("-o")
            .arg(scratch.file("theirs.nettrace"));
        let (mut theirs, _) = asked_by(command, &server);
        // The lowest command that says it, here; and the order of providers has no meaning.
        theirs.version = ours.version;
        for request in [&mut ours, &mut theirs] {
            request.providers.sort_by(|a, b| a.name.cmp(&b.name));
            for provider in &mut request.providers {
                provider.arguments = provider.arguments.take().filter(|text| !text.is_empty());
            }
        }
        assert_eq!(ours, theirs, "{options:?}: {said}");
    }
}

/// A name that is wrong, keywords that no event has, no keywords where all events have some: nothing comes, and the tool
/// says so.
#[test]
fn who_asks_for_what_never_comes_is_told() {
    let scratch = Scratch::new("silent");
    let target = Target::at_work();
    let pid = target.pid().to_string();
    for roll in [&[][..], &["--roll", "10MB"]] {
        let mut recording = tool();
        recording
            .args(["collect", "--pid", &pid, "--force", "-o"])
            .arg(scratch.file("a.nettrace"))
            .args(["--stopping-event-provider-name", "Demo-Requests"])
            .args([
                "--providers",
                "Demo-Requests:ff:5,Demo-Internals,Demo-Requets:1",
            ])
            .args(roll);
        let (code, _, error) = answer(&recording.output().unwrap());
        assert_eq!(code, 0, "{error}");
        let hint = "Demo-Internals without keywords: only events that have none come";
        assert!(error.contains(hint), "{error}");
        let silent = "a.nettrace: nothing came from Demo-Internals, Demo-Requets: ";
        assert!(error.contains(silent), "{error}");
    }
}
