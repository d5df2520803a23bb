//! The options of `dotnet-trace collect` that say when a recording ends and how the process is treated, and response
//! files that hold them.

mod support;

use peers::{Peers, Runtime};
use std::process::Stdio;
use std::time::Duration;
use support::{Scratch, Target, answer, collecting, finish, run, tool};

#[test]
fn of_a_name_with_a_value() {
    let scratch = Scratch::new("stopping");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let provider = ["--stopping-event-provider-name", "Demo-Requests"];
    let (code, _, error) = finish(collecting(target.pid(), &file, &provider));
    assert_eq!(code, 0, "{error}");
    assert!(!error.contains("stopping event"), "{error}");
    assert!(support::report(&file).1["total_events"].as_u64().unwrap() > 0);

    // Which event and value there are, the trace itself says.
    let (_, line, _) = run(&[
        "events",
        file.to_str().unwrap(),
        "--json",
        "--provider",
        "Demo-Requests",
    ]);
    let event: serde_json::Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let name = event["event"].as_str().unwrap();
    let (field, _) = event["payload"].as_object().unwrap().iter().next().unwrap();

    let second = scratch.file("b.nettrace");
    let named = [
        provider[0],
        provider[1],
        "--stopping-event-event-name",
        name,
    ];
    let (code, _, error) = finish(collecting(target.pid(), &second, &named));
    assert_eq!(code, 0, "{error}");

    // A value that never comes does not end it: the duration does. A field that is not there is named.
    let third = scratch.file("c.nettrace");
    let never = format!("{field}:no-such-value");
    let filter = "--stopping-event-payload-filter";
    let mut arguments = named.to_vec();
    arguments.extend([filter, &never, "--duration", "1s"]);
    let started = std::time::Instant::now();
    let (code, _, error) = finish(collecting(target.pid(), &third, &arguments));
    assert_eq!(code, 0, "{error}");
    assert!(started.elapsed() >= Duration::from_secs(1));
    let said = format!("never came: Demo-Requests/{name} with {never} (");
    assert!(error.contains(&said), "{error}");
    let fourth = scratch.file("d.nettrace");
    let mut arguments = named.to_vec();
    arguments.extend([filter, "NoSuchField:1", "--duration", "500ms"]);
    let (code, _, error) = finish(collecting(target.pid(), &fourth, &arguments));
    assert_eq!(code, 0, "{error}");
    assert!(
        error.contains("no field is called 'NoSuchField'; ") && error.contains(field.as_str()),
        "{error}"
    );

    for wrong in [
        &["--stopping-event-event-name", "x"][..],
        &[provider[0], "p", filter, "a:b"],
        &[
            provider[0],
            "p",
            "--stopping-event-event-name",
            "x",
            filter,
            "a",
        ],
        &["--buffering-mode", "what"],
        &["--roll", "1 parsec"],
        &["--roll", "1KB"],
        &["--rundown-timeout", "0s"],
    ] {
        let (code, _, error) = finish(collecting(target.pid(), &fourth, wrong));
        assert_eq!(code, 3, "{wrong:?}: {error}");
    }
}

/// However it ended, whoever waited for the event learns that it did not come.
#[test]
fn that_never_came_which_is_said() {
    let scratch = Scratch::new("missed");
    let target = Target::at_work();
    let provider = "--stopping-event-provider-name";
    let file = scratch.file("a.nettrace");
    let options = [provider, "Nobody", "--duration", "300ms"];
    let (code, _, error) = finish(collecting(target.pid(), &file, &options));
    assert_eq!(code, 0, "{error}");
    assert!(
        error.contains("its provider 'Nobody' is not enabled"),
        "{error}"
    );
    let said =
        "a.nettrace: the stopping event never came: Nobody (nothing came from this provider)";
    assert!(error.contains(said), "{error}");

    let event = ["--stopping-event-event-name", "NoSuch"];
    let options = [&[provider, "demo-*"][..], &event, &["--roll", "10MB"]].concat();
    let recording = collecting(target.pid(), &scratch.file("b.nettrace"), &options);
    support::wait_for_bytes(&scratch.file("b.0001.nettrace.part"), 10_000);
    support::send(recording.id(), rustix::process::Signal::INT);
    let (code, _, error) = finish(recording);
    assert_eq!(code, 0, "{error}");
    assert!(!error.contains("not enabled"), "{error}");
    let said = "never came: demo-*/NoSuch (its provider wrote ";
    assert!(error.contains(said), "{error}");
}

#[test]
fn as_a_response_file_says() {
    let scratch = Scratch::new("response");
    let target = Target::at_work();
    let file = scratch.file("a b.nettrace");
    let response = scratch.file("options.rsp");
    let text = format!(
        "# what to record\n-p {}\n--providers Demo-Requests:ff:5\n-o \"{}\" --duration 300ms\n",
        target.pid(),
        file.display()
    );
    std::fs::write(&response, text).unwrap();
    let (code, _, error) = run(&["collect", &format!("@{}", response.display())]);
    assert_eq!(code, 0, "{error}");
    assert!(support::report(&file).1["total_events"].as_u64().unwrap() > 0);
    let (code, _, error) = run(&["collect", "@/no/such/file"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("response file /no/such/file"), "{error}");
}

#[test]
fn by_the_time_limit_of_a_rundown_that_does_not_end() {
    let scratch = Scratch::new("rundown");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let recording = collecting(target.pid(), &file, &["--rundown-timeout", "500ms"]);
    support::wait_for_bytes(&file, 300_000);
    target.signal(rustix::process::Signal::STOP);
    support::send(recording.id(), rustix::process::Signal::INT);
    // The process never answers: only the limit ends it.
    let (code, _, error) = finish(recording);
    target.signal(rustix::process::Signal::CONT);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("--rundown-timeout"), "{error}");
    assert_eq!(support::report(&file).1["complete"], true);
}

#[test]
fn while_dotnet_blocks_or_says_that_it_cannot() {
    let Some(peers) = Peers::for_test("while_dotnet_blocks_or_says_that_it_cannot") else {
        return;
    };
    let scratch = Scratch::new("blocking");
    for (runtime, expected) in [(Runtime::Net11, 0), (Runtime::Net10, 4)] {
        let trace = scratch.file("a.nettrace");
        let output = tool()
            .args([
                "collect",
                "--force",
                "--buffering-mode",
                "Block",
                "--clrevents",
                "gc",
            ])
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .arg(peers.dotnet(runtime))
            .arg(peers.program_path("workload"))
            .args(["gc", "--rounds", "2"])
            .output()
            .unwrap();
        let (code, _, error) = answer(&output);
        assert_eq!(code, expected, "{runtime:?}: {error}");
        let says_so = error.contains("blocking when the buffer is full is not supported");
        assert_eq!(says_so, expected == 4, "{error}");
    }
}

#[test]
fn while_a_suspended_process_stays_so() {
    let Some(peers) = Peers::for_test("while_a_suspended_process_stays_so") else {
        return;
    };
    let scratch = Scratch::new("suspended");
    let socket = scratch.file("s");
    let port = socket.to_str().unwrap();
    let mut child = peers
        .program(Runtime::Net11, "workload")
        .args(["log", "--count", "1"])
        .env("DOTNET_DiagnosticPorts", format!("{port},suspend"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let trace = scratch.file("a.nettrace");
    let (code, _, error) = run(&[
        "collect",
        "--dport",
        port,
        "--resume-runtime",
        "false",
        "--duration",
        "1s",
        "--clrevents",
        "gc",
        "-o",
        trace.to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{error}");
    assert!(child.try_wait().unwrap().is_none(), "it went on");
    // By its id it says yes, and waits for this port all the same.
    let (code, _, error) = run(&["resume", "-p", &child.id().to_string()]);
    let hint =
        format!("still waits, it does so for another port: eventpipe resume --dport {port}\n");
    assert!(code == 0 && error.ends_with(&hint), "{code}: {error}");
    assert!(child.try_wait().unwrap().is_none(), "it went on");
    let (code, _, error) = run(&["resume", "--dport", port]);
    assert_eq!(code, 0, "{error}");
    assert!(child.wait().unwrap().success());
}
