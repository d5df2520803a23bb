//! A target in its own pid and mount namespace with a private `/tmp`; other users; a `/proc` that hides processes.
//! Needs the privilege to make namespaces and to become another user.

mod live;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Fallbacks};
use dotnet_diagnostics::codec::*;
use dotnet_diagnostics::discovery;
use live::{Target, scratch};
use peers::{Peers, Runtime};

const NOBODY: u32 = 65534;

fn root(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    if !root {
        peers::skipped(test, "it takes root to make namespaces and other users");
    }
    root
}

#[test]
fn a_target_in_a_container_is_found_by_the_pid_seen_here() {
    const TEST: &str = "a_target_in_a_container";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    if !root(TEST) {
        return;
    }
    let dotnet = peers.dotnet(Runtime::Net10);
    let all = dotnet.parent().and_then(|folder| folder.parent()).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["-pmf", "--mount-proc", "sh", "-c"])
        .arg(
            "mount --bind \"$PROGRAMS\" /mnt && mount -t tmpfs none /tmp && \
             exec /mnt/net10/dotnet /mnt/workload/workload.dll log --count 1 --wait --hold",
        )
        .env("PROGRAMS", all)
        .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
    let mut target = Target::spawn(command, Runtime::Net10);
    let ready = target.wait_for("ready");
    assert_eq!(
        ready.trim(),
        "ready 1",
        "it is the first process of its namespace"
    );
    let outer = target.pid();
    let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    let pid: u32 = children.trim().parse().unwrap();

    let process = discovery::find(pid).unwrap();
    assert_eq!((process.pid, process.container_pid), (pid, 1));
    let seen_from_here: PathBuf = ["/proc", &pid.to_string(), "root", "tmp"].iter().collect();
    assert!(process.socket.starts_with(seen_from_here));
    assert!(discovery::processes().unwrap().contains(&process));
    let client = Client::new(process.endpoint());
    assert_eq!(client.process_info().unwrap().process_id, 1);
    let request = CollectTracing::new([ProviderConfig::new("EventPipe-Workload-Log", u64::MAX, 5)]);
    let mut session = client.collect(&request, Fallbacks::NONE).unwrap();
    target.go();
    target.wait_for("done");
    let mut trace = Vec::new();
    session.stop_into(&mut trace).unwrap();
    assert!(trace.starts_with(b"Nettrace"));
    // Ending the first process of a namespace ends all of it.
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

/// What `find` says of the process, asked by another user: runs this test's program again as that user.
fn seen_by_nobody(pid: u32, mut command: Command) -> String {
    let output = command
        .args(["--exact", "what_another_user_sees", "--nocapture"])
        .env("DD_ASKED_FOR", pid.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn what_another_user_sees() {
    const TEST: &str = "what_another_user_sees";
    if let Ok(pid) = std::env::var("DD_ASKED_FOR") {
        let error = discovery::find(pid.parse().unwrap()).unwrap_err();
        assert!(matches!(error, Error::OtherUser { .. }), "{error:?}");
        println!("said: {error}");
        return;
    }
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    if !root(TEST) {
        return;
    }
    let target = Target::start(&peers, Runtime::Net8);
    // Where this program lies may be closed to others.
    let copy = scratch("test-program");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut as_nobody = Command::new(&copy);
    as_nobody.uid(NOBODY).gid(NOBODY).current_dir("/");
    let said = seen_by_nobody(target.pid(), as_nobody);
    let expected = format!("process {} belongs to another user (uid 0)", target.pid());
    assert!(said.contains(&expected), "{said}");

    let mut hidden = Command::new("unshare");
    hidden
        .current_dir("/")
        .args(["-m", "sh", "-c"])
        .arg(format!(
            "mount -t proc -o hidepid=2 none /proc && \
         exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {} \"$@\"",
            copy.display()
        ));
    hidden.arg("sh");
    let said = seen_by_nobody(target.pid(), hidden);
    assert!(said.contains("belongs to another user"), "{said}");
    std::fs::remove_file(&copy).unwrap();
}
