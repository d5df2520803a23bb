//! Whatever is given to the tool, it says what is wrong in one line and ends with the documented
//! number; it never panics.

mod support;

use std::fs;
use support::{Scratch, Target, collecting, finish, run};

/// Runs the tool, which must fail with this code and one line that holds all these words.
#[track_caller]
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let (got, out, error) = run(arguments);
    assert_eq!(got, code, "{arguments:?}: {error}");
    assert!(out.is_empty(), "{arguments:?} printed {out}");
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(
        error.trim_end().lines().count(),
        1,
        "{arguments:?}: {error}"
    );
    for word in words {
        assert!(
            error.contains(word),
            "{arguments:?}: '{word}' is not in: {error}"
        );
    }
}

#[test]
fn a_file_that_is_no_trace_is_named_with_its_fault() {
    let scratch = Scratch::new("input");
    let garbage = scratch.file("garbage.nettrace");
    fs::write(
        &garbage,
        b"this is not a trace at all, but long enough to be one",
    )
    .unwrap();
    let empty = scratch.file("empty.nettrace");
    fs::write(&empty, b"").unwrap();
    let short = scratch.file("short.nettrace");
    fs::write(&short, b"Nettr").unwrap();
    let packed = scratch.file("packed.nettrace.gz");
    fs::write(&packed, b"\x1f\x8b\x08\x00 and so on").unwrap();
    let missing = scratch.file("missing.nettrace");
    let garbage = garbage.to_str().unwrap();
    let directory = scratch.path().to_str().unwrap();
    for command in [&["events"][..], &["info"], &["report", "stat"], &["repair"]] {
        let with = |file: &str, words: &[&str]| {
            let arguments: Vec<&str> = command.iter().copied().chain([file]).collect();
            refused(&arguments, 6, words);
        };
        with(garbage, &[garbage, "not a trace"]);
        with(empty.to_str().unwrap(), &["is empty"]);
        with(short.to_str().unwrap(), &["ends before"]);
        with(packed.to_str().unwrap(), &["compressed", "gzip -dc"]);
        with(
            missing.to_str().unwrap(),
            &["missing.nettrace", "no such file"],
        );
        with(directory, &["is a directory"]);
        // Files of the kernel say that they have no bytes.
        with("/proc/version", &["not a trace"]);
    }
    refused(&["rewrite", garbage, "--to", "v6"], 6, &["not a trace"]);
    assert_eq!(
        fs::read_dir(scratch.path()).unwrap().count(),
        4,
        "nothing was left behind"
    );
}

#[test]
fn a_wrong_provider_string_is_refused_before_anything_is_attached() {
    let pid = std::process::id().to_string();
    let with = |list: &str, words: &[&str]| {
        refused(&["collect", "-p", &pid, "--providers", list], 3, words);
    };
    with("Foo:xyz", &["Foo:xyz", "keywords 'xyz'", "hexadecimal"]);
    with("Foo:1:loud", &["level 'loud'"]);
    with("Foo:1:4:a=\"x", &["not closed"]);
    with(":1", &["name is empty"]);
    with("", &["--providers ''", "no provider is named"]);
    with(",", &["--providers ','", "no provider is named"]);
    // No process knows patterns, and the trace would be empty.
    with("No*", &["--providers 'No*'", "'*' alone"]);
    with("A,Demo-?:1", &["--providers 'Demo-?:1'", "'*' alone"]);
    refused(
        &["collect", "-p", &pid, "--profile", "none"],
        3,
        &["profile 'none'", "gc-verbose"],
    );
    refused(
        &["collect", "-p", &pid, "--clrevents", "gc+x"],
        3,
        &["'x'", "gchandle"],
    );
}

#[test]
fn wrong_arguments_end_with_code_3() {
    for arguments in [
        &["collect", "-p", "1", "--duration", "10"][..],
        &["collect", "-p", "many"],
        &["collect", "-p", "1", "-n", "a"],
        &["collect"],
        &["events", "a", "--json", "--csv"],
        &["nothing"],
        &["events", "a", "--from", "2s", "--to", "1s"],
        &[
            "rewrite", "a", "--to", "v6", "--from", "2s", "--until", "1s",
        ],
        &["events", "a", "--thread", "one"],
        &["set-env", "-p", "1", "--unset", ""],
        &["set-env", "-p", "1", "--unset", "A=B"],
        &["set-env", "-p", "1", "A=1", "--unset", "A"],
        &["collect", "--dport", "a,connect,listen"],
        &["collect", "-p", "1", "--show-child-io"],
        &[],
    ] {
        let (code, out, error) = run(arguments);
        assert_eq!(code, 3, "{arguments:?}: {error}");
        assert!(out.is_empty());
        assert!(!error.contains("panicked"));
    }
    let (code, out, _) = run(&["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Exit codes"));
}

#[test]
fn a_target_that_cannot_be_traced_is_named_with_the_reason() {
    // The highest id of a process that the kernel gives out is below 2^22.
    refused(&["collect", "-p", "4194304"], 1, &["4194304", "no"]);
    let pid = std::process::id().to_string();
    refused(&["collect", "-p", &pid], 1, &[&pid, "socket"]);
    refused(
        &["collect", "-n", "no-process-has-this-name"],
        1,
        &["no-process-has-this-name"],
    );
    refused(
        &["collect", "--", "/no/such/command"],
        1,
        &["/no/such/command", "no such command"],
    );
}

#[test]
fn options_that_are_known_by_name_only_say_so() {
    let pid = std::process::id().to_string();
    refused(
        &["collect", "-p", &pid, "--format:chromium"],
        4,
        &["eventpipe convert"],
    );
    refused(
        &["collect", "-p", &pid, "--dsrouter", "ios"],
        4,
        &["dotnet-dsrouter"],
    );
}

#[test]
fn an_output_file_is_not_overwritten_unasked() {
    let scratch = Scratch::new("output");
    let existing = scratch.file("existing.nettrace");
    fs::write(&existing, b"precious").unwrap();
    let pid = std::process::id().to_string();
    let existing_text = existing.to_str().unwrap();
    refused(
        &["collect", "-p", &pid, "-o", existing_text],
        8,
        &["exists already", "--force"],
    );
    let directory = scratch.path().to_str().unwrap();
    refused(
        &["collect", "-p", &pid, "-o", directory],
        8,
        &["is a directory"],
    );
    refused(
        &["collect", "-p", &pid, "-o", "/no/such/dir/a"],
        8,
        &["directory does not exist"],
    );
    assert_eq!(fs::read(&existing).unwrap(), b"precious");
}

#[test]
fn a_place_where_no_file_can_be_made_is_named_with_the_reason() {
    let scratch = Scratch::new("places");
    let file = scratch.file("a.nettrace");
    let target = Target::at_work();
    assert_eq!(
        finish(collecting(target.pid(), &file, &["--duration", "200ms"])).0,
        0
    );
    let pid = target.pid().to_string();
    let file = file.to_str().unwrap();
    let below = format!("{file}/x.nettrace");
    let each = |output: &str, words: &[&str]| {
        let with = |arguments: &[&str]| {
            let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", output]).collect();
            refused(&arguments, 8, words);
        };
        with(&["collect", "-p", &pid, "--providers", "A:1"]);
        with(&["collect", "-p", &pid, "--providers", "A:1", "--roll", "1MB"]);
        with(&["rewrite", file, "--to", "v6"]);
        with(&["join", file]);
        with(&["repair", file]);
    };
    each("/proc/x.nettrace", &["no file can be made in /proc"]);
    each(&below, &["a.nettrace is no directory"]);
    each("/no/such/x.nettrace", &["the directory does not exist"]);
    // A dump is made by the process, whose own words would be numbers.
    let dump = ["dump", "-p", &pid, "--type", "mini", "-o", "/proc/x"];
    refused(&dump, 8, &["no file can be made in /proc"]);
    let dump = ["dump", "-p", &pid, "--type", "mini", "-o", "core_%p"];
    refused(&dump, 3, &["core_%p", "stands for something else"]);
    // Names of several files that come from one that is none.
    for (output, words) in [
        (scratch.path().to_str().unwrap(), "is a directory"),
        ("..", "is a directory"),
        ("/dev/null", "device"),
    ] {
        for more in [&["--roll", "1MB"][..], &["--tree"]] {
            let base = ["collect", "-p", &pid, "--providers", "A:1", "-o", output];
            let arguments: Vec<&str> = base.iter().chain(more).copied().collect();
            refused(&arguments, 8, &[words]);
        }
    }
    for output in ["-", "/dev/null"] {
        refused(&["demo", "-o", output], 8, &["reads its trace again"]);
    }
}

#[test]
fn names_that_are_not_utf_8_stay_what_they_are() {
    use std::os::unix::ffi::OsStringExt as _;
    let scratch = Scratch::new("names");
    let named = |name: &[u8]| {
        let name = std::ffi::OsString::from_vec(name.to_vec());
        scratch.path().join(name)
    };
    let file = named(b"\xff.nettrace");
    let target = Target::at_work();
    let (code, _, error) = finish(collecting(target.pid(), &file, &["--duration", "200ms"]));
    assert_eq!(code, 0, "{error}");
    for (command, made) in [
        (&["rewrite", "--to", "v6"][..], &b"\xff.v6.nettrace"[..]),
        (&["repair"], b"\xff.repaired.nettrace"),
        (&["join"], b"\xff.joined.nettrace"),
    ] {
        let output = support::tool().args(command).arg(&file).output().unwrap();
        let (code, _, error) = support::answer(&output);
        assert_eq!(code, 0, "{command:?}: {error}");
        assert!(named(made).exists(), "{command:?}: {error}");
    }
    let rolled = named(b"\xfe.nettrace");
    let more = ["--roll", "10MB", "--duration", "200ms"];
    let (code, _, error) = finish(collecting(target.pid(), &rolled, &more));
    assert_eq!(code, 0, "{error}");
    assert!(named(b"\xfe.0001.nettrace").exists(), "{error}");
}

#[test]
fn completions_and_manual_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, error) = run(&["completions", shell]);
        assert_eq!(code, 0, "{error}");
        assert!(out.contains("collect"), "{shell}");
        // What `--help` does not show is not offered.
        assert!(!out.contains("demo-program"), "{shell}");
        assert!(!out.contains("manual page"), "{shell}");
    }
    let (code, out, _) = run(&["man"]);
    assert_eq!(code, 0);
    assert!(out.contains(".TH eventpipe 1"));
}

#[test]
fn bash_completes_what_help_shows() {
    const TEST: &str = "bash_completes_what_help_shows";
    // (`compopt` complains outside of a completion.)
    const LOAD: &str = r#"eval "$SCRIPT"; compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _eventpipe "$1" "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[*]}""#;
    let (_, script, _) = run(&["completions", "bash"]);
    let offered = |words: &[&str]| {
        let output = std::process::Command::new("bash")
            .args(["--norc", "-uc", LOAD, "bash"])
            .args(words)
            .env("SCRIPT", &script)
            .output();
        output.map(|output| {
            let (code, out, error) = support::answer(&output);
            assert_eq!((code, error.as_str()), (0, ""), "{words:?}");
            out.trim().to_owned()
        })
    };
    if offered(&["eventpipe", ""]).is_err() {
        return peers::skipped(TEST, "no bash on this system");
    }
    for (words, expected) in [
        (
            &["eventpipe", "co"][..],
            "collect counters convert completions",
        ),
        (&["eventpipe", "m"], ""),
        (&["eventpipe", "demo"], "demo"),
        (&["eventpipe", "help", "demo"], "demo"),
        (&["eventpipe", "record", "--buffering-"], "--buffering-mode"),
        (&["eventpipe", "report", "stat", "--j"], "--json"),
        (
            &["eventpipe", "collect", "--format", ""],
            "NetTrace Speedscope",
        ),
        (
            &["eventpipe", "collect", "--profile", "gc-"],
            "gc-verbose gc-collect",
        ),
        (
            &["eventpipe", "collect", "--clrevents", "gchan"],
            "gchandle",
        ),
        // A duration is no file, the output is one.
        (&["eventpipe", "collect", "--duration", "c"], "c"),
        (&["eventpipe", "collect", "-o", "Cargo.t"], "Cargo.toml"),
    ] {
        assert_eq!(offered(words).unwrap(), expected, "{words:?}");
    }
}

#[test]
fn a_command_of_another_tool_is_answered_with_what_to_do() {
    let this_file = std::env::current_exe().unwrap();
    for (words, tip) in [
        (&["flamegraph", "x"][..], "eventpipe convert FILE"),
        (&["gcdump", "collect"], "dotnet-gcdump collect"),
        (&["stop", "1"], "eventpipe session stop"),
        (&["list"], "eventpipe ps"),
        (&["topn", "x"], "eventpipe report topn FILE"),
        (
            &["collect", "-p", "1", "-d", "5s"],
            "unexpected argument '-d'",
        ),
        (&["report", "x", "topN"], "eventpipe report topn FILE"),
        (&["gc", "x"], "eventpipe report gc FILE"),
        (&["stat", "x"], "eventpipe report stat FILE"),
        (&["record", "dotnet", "x.dll"], "two dashes: -- dotnet"),
        (
            &["collect", "-p", "1", "--providers", "A,", "B"],
            "without blanks: A,B",
        ),
        (
            &["report", this_file.to_str().unwrap()],
            "eventpipe report stat FILE",
        ),
    ] {
        let (code, _, error) = run(words);
        assert_eq!(code, 3, "{words:?}: {error}");
        assert!(error.contains(tip), "{words:?}: {error}");
        for misleading in ["similar", "as a value"] {
            assert!(!error.contains(misleading), "{words:?}: {error}");
        }
    }
}

/// What begins with a dash is no option where an option's value stands; a tip to write `-- -5s` helps nobody.
#[test]
fn a_value_below_zero_is_refused_by_the_option_it_was_given_to() {
    for (words, option, what) in [
        (
            &["collect", "-p", "1", "--duration", "-5s"][..],
            "--duration",
            "longer than zero: write 10s",
        ),
        (
            &["collect", "-p", "1", "--duration=-5s"],
            "--duration",
            "longer than zero: write 10s",
        ),
        (
            &["collect", "-p", "1", "--duration", "-00:00:01"],
            "--duration",
            "dd:hh:mm:ss",
        ),
        (
            &["collect", "-p", "1", "--duration", "--force"],
            "--duration",
            "a time stands here: write 10s",
        ),
        (
            &["collect", "-p", "1", "--rundown-timeout", "-1m"],
            "--rundown-timeout",
            "longer than zero",
        ),
        (&["demo", "--duration", "-.5s"], "--duration", "1m30s"),
        (
            &["collect", "-p", "1", "--roll", "-1MB"],
            "--roll",
            "a size such as 100MB",
        ),
        (
            &["collect", "-p", "1", "--roll", "1MB", "--keep", "-1"],
            "--keep",
            "-1 is not in 1..",
        ),
        (
            &["collect", "-p", "1", "--buffersize", "-1"],
            "--buffersize",
            "-1 is not in 1..",
        ),
        (
            &["events", "a", "--from", "-5s"],
            "--from",
            "since the start",
        ),
        (&["events", "a", "--to", "-5s"], "--to", "since the start"),
        (
            &["events", "a", "--thread", "-1"],
            "--thread",
            "not the number of a thread",
        ),
        (
            &["rewrite", "a", "--to", "v6", "--until", "-5s"],
            "--until",
            "since the start",
        ),
    ] {
        let (code, _, error) = run(words);
        assert_eq!(code, 3, "{words:?}: {error}");
        for part in [option, what] {
            assert!(
                error.contains(part),
                "{words:?}: '{part}' is not in {error}"
            );
        }
        assert!(!error.contains("tip:"), "{words:?}: {error}");
    }
}

#[test]
fn standard_output_that_takes_no_more_is_named() {
    const TEST: &str = "standard_output_that_takes_no_more_is_named";
    let full = || fs::OpenOptions::new().write(true).open("/dev/full");
    if full().is_err() {
        return peers::skipped(TEST, "no /dev/full on this system");
    }
    let scratch = Scratch::new("full-output");
    let trace = scratch.file("a.nettrace");
    let target = Target::at_work();
    assert_eq!(
        finish(collecting(target.pid(), &trace, &["--duration", "200ms"])).0,
        0
    );
    let trace = trace.to_str().unwrap();
    for arguments in [
        &["events", trace][..],
        &["events", "--json", trace],
        &["events", "--csv", trace],
        &["report", "stat", trace],
        &["report", "stat", "--json", trace],
        &["info", trace],
        &["info", "--json", trace],
        &["ps"],
        &["ps", "--json"],
        &["list-profiles"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["collect", "-h"],
        &["--version"],
    ] {
        let output = support::tool()
            .args(arguments)
            .stdout(full().unwrap())
            .output()
            .unwrap();
        let (code, _, error) = support::answer(&output);
        assert_eq!(code, 8, "{arguments:?}: {error}");
        assert!(
            error.contains("standard output: No space left"),
            "{arguments:?}: {error}"
        );
    }
}
