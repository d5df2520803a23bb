//! Promise: where the process listens and whom it dials is what its environment says; it leaves nothing behind and takes nothing
//! that is somebody else's.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dotnet_diagnostics::client::{Client, Endpoint};
use dotnet_diagnostics::codec::{Advertise, Command as Id, Header, Request};

/// The traced program, when this file's program is started as one: started, then there until its standard input ends.
#[test]
fn child() {
    let Some(role) = std::env::var_os("PORTS_CHILD") else {
        return;
    };
    let mut out = std::io::stdout();
    eventpipe::start();
    if role == "exec" {
        // The process goes on as another program, and the socket of the first one stays.
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        let error = again
            .args(std::env::args_os().skip(1))
            .env("PORTS_CHILD", "plain")
            .exec();
        panic!("{error}");
    }
    if role == "spawn" {
        let mut list = Command::new("sh");
        list.args(["-c", "ls -l /proc/self/fd"]);
        let list = list.output().expect("sh runs").stdout;
        out.write_all(&list).expect("the test reads");
    }
    out.write_all(b"started\n").expect("the test reads");
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .expect("the test ends it");
}

/// A folder of the test's own, short enough for addresses of sockets.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ep-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder").flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A running traced program.
struct Traced {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Traced {
    fn start(folder: &Folder, role: &str, variables: &[(&str, &str)]) -> Traced {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "child", "--nocapture"])
            .env("PORTS_CHILD", role)
            .env("TMPDIR", &folder.0)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Traced { child, output }
    }

    /// What it says before it has started.
    fn started(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("text");
            assert!(count > 0, "it ended before it started: {said:?}");
            if line.ends_with("started\n") {
                return said;
            }
            said.push(line);
        }
    }

    /// The line on standard error that has this in it.
    fn warning(&mut self, text: &str) -> String {
        let stderr = BufReader::new(self.child.stderr.take().expect("a pipe"));
        let mut lines = stderr.lines().map(|line| line.expect("text"));
        let found = lines.find(|line| line.contains(text));
        // Nobody reads the rest, which must not end the program.
        std::thread::spawn(move || lines.for_each(drop));
        found.unwrap_or_else(|| panic!("no warning with {text:?}"))
    }

    /// Ends it in order.
    fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).expect("its output ends");
        let output = self.child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        output
    }
}

fn client_of(path: PathBuf) -> Client {
    Client::new(Endpoint::Socket(path))
}

fn socket_in(folder: &Folder) -> PathBuf {
    let names = folder.names();
    let mut sockets = names
        .iter()
        .filter(|name| name.starts_with("dotnet-diagnostic-"));
    let socket = sockets
        .next()
        .unwrap_or_else(|| panic!("a socket: {names:?}"));
    assert!(sockets.next().is_none(), "one socket: {names:?}");
    folder.file(socket)
}

#[test]
fn the_socket_lies_in_tmpdir_for_its_owner_and_goes_with_the_process() {
    let folder = Folder::new("tmpdir");
    let mut traced = Traced::start(&folder, "plain", &[]);
    traced.started();
    let socket = socket_in(&folder);
    let mode = std::fs::metadata(&socket)
        .expect("it exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let info = client_of(socket).process_info().expect("answered");
    assert_eq!(info.process_id, u64::from(traced.child.id()));
    traced.end();
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn the_folder_may_have_any_name_that_the_system_knows() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new("bytes");
    let odd = Folder(folder.0.join(std::ffi::OsStr::from_bytes(b"caf\xE9")));
    std::fs::create_dir(&odd.0).expect("a folder");
    let mut traced = Traced::start(&odd, "plain", &[]);
    traced.started();
    let info = client_of(socket_in(&odd)).process_info().expect("answered");
    assert_eq!(info.process_id, u64::from(traced.child.id()));
    traced.end();
    assert_eq!(odd.names(), [""; 0]);
}

#[test]
fn a_folder_whose_name_is_too_long_gives_a_warning_and_no_socket() {
    let folder = Folder::new("long");
    let long = folder.file(&"x".repeat(100));
    std::fs::create_dir(&long).expect("a folder");
    let long = long.display().to_string();
    let mut traced = Traced::start(&folder, "plain", &[("TMPDIR", &long)]);
    traced.started();
    let line = traced.warning("TMPDIR");
    assert!(line.contains("does not fit"), "{line}");
    assert_eq!(std::fs::read_dir(&long).expect("it is there").count(), 0);
    traced.end();
}

#[test]
fn the_socket_that_the_process_left_before_an_exec_is_replaced() {
    let folder = Folder::new("exec");
    let mut traced = Traced::start(&folder, "exec", &[]);
    traced.started();
    let info = client_of(socket_in(&folder))
        .process_info()
        .expect("answered");
    assert_eq!(info.process_id, u64::from(traced.child.id()));
    traced.end();
    assert_eq!(folder.names(), [""; 0]);
}

/// The name is taken by something that is not a dead socket of ours: it stays, and the program runs without a server.
#[test]
fn what_is_not_ours_is_never_removed() {
    let folder = Folder::new("foreign");
    // The name has the program's pid and start time in it, so a program that goes on as another one is looked at in between.
    let script = "start=$(cut -d' ' -f22 /proc/$$/stat); echo precious > $TMPDIR/dotnet-diagnostic-$$-$start-socket; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env("PORTS_CHILD", "plain")
        .env("TMPDIR", &folder.0)
        .stdin(Stdio::null());
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(warnings.contains("its name is taken"), "{warnings}");
    let file = std::fs::read_to_string(socket_in(&folder)).expect("the file is still there");
    assert_eq!(file, "precious\n");
}

#[test]
fn either_switch_leaves_neither_socket_nor_ports() {
    for switch in ["DOTNET_EnableDiagnostics", "DOTNET_EnableDiagnostics_IPC"] {
        let folder = Folder::new("off");
        let port = folder.file("port");
        let monitor = UnixListener::bind(&port).expect("a monitor");
        monitor.set_nonblocking(true).expect("it does not wait");
        let port = port.display().to_string();
        let variables = [(switch, "0"), ("DOTNET_DiagnosticPorts", port.as_str())];
        let mut traced = Traced::start(&folder, "plain", &variables);
        // Not held by the port either.
        traced.started();
        assert_eq!(folder.names(), ["port"]);
        traced.end();
        assert!(monitor.accept().is_err(), "{switch}: nobody has dialled");
    }
}

#[test]
fn a_spawned_program_inherits_no_descriptor() {
    let folder = Folder::new("spawn");
    let mut traced = Traced::start(&folder, "spawn", &[]);
    let listed = traced.started().concat();
    // The three of every program, and that of the listing.
    assert!(listed.contains("/proc"), "{listed}");
    for text in ["socket:", "eventfd", "memfd"] {
        assert!(!listed.contains(text), "{listed}");
    }
    traced.end();
}

/// With `CI=true` nothing may be.
fn skipped(test: &str, why: &str) {
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!is_ci, "{test}: {why}, and CI=true skips nothing");
    eprintln!("skipped: {test}: {why}");
}

/// Whoever may open the socket all the same is asked who he is.
#[test]
fn another_user_gets_no_answer() {
    if std::fs::metadata("/proc/self").map_or(0, |me| me.uid()) != 0 {
        return skipped(
            "another_user_gets_no_answer",
            "only root can be somebody else",
        );
    }
    let folder = Folder::new("user");
    let mut traced = Traced::start(&folder, "plain", &[]);
    traced.started();
    let socket = socket_in(&folder);
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder.0, everybody.clone()).expect("the folder is ours");
    std::fs::set_permissions(&socket, everybody).expect("the socket is ours");
    let request = Request::ProcessEnvironment.encode().expect("valid");
    let mut ask = Command::new("python3");
    ask.args(["-c", ASK])
        .arg(&socket)
        .arg(hex(&request))
        .uid(65_534);
    let Ok(output) = ask.output() else {
        return skipped("another_user_gets_no_answer", "no python3");
    };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 bytes\n");
    client_of(socket)
        .process_info()
        .expect("the owner is answered");
    traced.end();
}

/// Sends a request and prints how many bytes come back.
const ASK: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
count = 0
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    while True:
        part = s.recv(4096)
        if not part: break
        count += len(part)
except OSError: pass
print(count, 'bytes')
";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A monitor's side of one connection: the introduction has been read.
fn accept(monitor: &UnixListener, traced: &Traced) -> UnixStream {
    let (mut connection, _) = monitor.accept().expect("the process dials");
    let mut packet = [0; Advertise::SIZE];
    connection
        .read_exact(&mut packet)
        .expect("it introduces itself");
    let advertise = Advertise::decode(&packet).expect("as documented");
    assert_eq!(advertise.process_id, u64::from(traced.child.id()));
    connection
}

fn ask(mut connection: UnixStream, request: &Request) {
    let message = request.encode().expect("valid");
    connection.write_all(&message).expect("taken");
    let mut answer = Vec::new();
    connection
        .read_to_end(&mut answer)
        .expect("answered and closed");
    let header = answer.first_chunk().expect("a header");
    let header = Header::decode(header).expect("a header");
    assert_eq!(header.command, Id::OK);
}

fn bind(path: &Path) -> UnixListener {
    UnixListener::bind(path).expect("a monitor")
}

/// Three ports: two hold the start, and each has to let it go; one does not. Who is there late is found, and whoever goes away and comes
/// back is dialled again. The default port works all the while.
#[test]
fn several_ports_are_dialled_each_for_itself_and_again_when_a_monitor_comes_back() {
    let folder = Folder::new("ports");
    let [first, second, third] = ["1", "2", "3"].map(|name| folder.file(name));
    let ports = format!(
        "{};{},suspend,connect;{},nosuspend",
        first.display(),
        second.display(),
        third.display()
    );
    let monitor = bind(&first);
    let mut traced = Traced::start(&folder, "plain", &[("DOTNET_DiagnosticPorts", &ports)]);
    ask(accept(&monitor, &traced), &Request::ResumeRuntime);
    // A second resume on the same port does not stand in for the other port.
    ask(accept(&monitor, &traced), &Request::ResumeRuntime);
    let late = bind(&second);
    let held = accept(&late, &traced);
    client_of(socket_in(&folder))
        .process_info()
        .expect("answered while it is held");
    ask(held, &Request::ResumeRuntime);
    traced.started();

    // The port that holds nothing finds its monitor too, then loses it, and finds it again.
    let info = Request::ProcessInfo(dotnet_diagnostics::codec::ProcessInfoVersion::V3);
    for _ in 0..3 {
        let monitor = bind(&third);
        ask(accept(&monitor, &traced), &info);
        // With a connection open that waits for a request.
        let waiting = accept(&monitor, &traced);
        drop((monitor, waiting));
        std::fs::remove_file(&third).expect("ours");
    }
    traced.end();
}

/// The traced program has better things to do than to dial as fast as a monitor hangs up.
#[test]
fn a_monitor_that_hangs_up_at_once_is_left_alone_for_a_moment() {
    let folder = Folder::new("hang-up");
    let path = folder.file("monitor");
    let monitor = bind(&path);
    let ports = format!("{},nosuspend", path.display());
    let mut traced = Traced::start(&folder, "plain", &[("DOTNET_DiagnosticPorts", &ports)]);
    traced.started();
    drop(accept(&monitor, &traced));
    let begun = Instant::now();
    for _ in 0..20 {
        drop(accept(&monitor, &traced));
    }
    // Ten milliseconds each. (At least so long: a slow machine makes it longer.)
    assert!(begun.elapsed() >= Duration::from_millis(190));
    traced.end();
}

/// Somebody who does not know of the port is told after five seconds what the program waits for.
#[test]
fn a_held_start_says_what_it_waits_for() {
    let folder = Folder::new("hint");
    let port = folder.file("nobody");
    let port = port.display().to_string();
    let mut traced = Traced::start(&folder, "plain", &[("DOTNET_DiagnosticPorts", &port)]);
    let line = traced.warning("waits for");
    assert!(line.contains(&port), "{line}");
    let monitor = bind(Path::new(&port));
    ask(accept(&monitor, &traced), &Request::ResumeRuntime);
    traced.started();
    traced.end();
}

/// The default port may hold the start as well.
#[test]
fn the_default_port_holds_the_start_when_it_is_told_to() {
    let folder = Folder::new("default");
    let variables = [("DOTNET_DefaultDiagnosticPortSuspend", "1")];
    let mut traced = Traced::start(&folder, "plain", &variables);
    while folder.names().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let client = client_of(socket_in(&folder));
    client.process_info().expect("answered while it is held");
    client.resume_runtime().expect("resumed");
    traced.started();
    traced.end();
}

/// A port on which to listen is not made; it is said, and the others work.
#[test]
fn a_port_that_should_listen_is_refused_in_one_line() {
    let folder = Folder::new("listen");
    let port = folder.file("port");
    let ports = format!("{},listen,nosuspend", port.display());
    let mut traced = Traced::start(&folder, "plain", &[("DOTNET_DiagnosticPorts", &ports)]);
    traced.started();
    let line = traced.warning("only the default port listens");
    assert!(line.contains(&port.display().to_string()), "{line}");
    assert!(!port.exists());
    client_of(socket_in(&folder))
        .process_info()
        .expect("answered");
    traced.end();
}

/// One port more than there can be is refused for that reason.
#[test]
fn there_are_sixty_three_ports_at_most() {
    let folder = Folder::new("many");
    let ports: Vec<String> = (0..64)
        .map(|number| folder.file(&format!("p{number}")))
        .map(|path| format!("{},nosuspend", path.display()))
        .collect();
    let variables = [("DOTNET_DiagnosticPorts", ports.join(";"))];
    let variables = variables.each_ref().map(|(name, value)| (*name, &**value));
    let mut traced = Traced::start(&folder, "plain", &variables);
    traced.started();
    let line = traced.warning("there are 63 already");
    assert!(line.contains("p63"), "{line}");
    traced.end();
}
