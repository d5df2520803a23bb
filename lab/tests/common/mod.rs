//! What the tests share: programs of the lab as child processes, sessions of our client, temporary folders.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use dotnet_diagnostics::client::{Client, Fallbacks, Session};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use lab::process::Running;

/// After so long a program hangs. Not a measure of speed.
pub(crate) const HUNG: Duration = Duration::from_secs(120);

/// Arguments of a program that writes a thousand numbered events a second in each of two threads until it is told to end.
pub(crate) const NUMBERS: [&str; 9] = [
    "target",
    "--threads",
    "2",
    "--seconds",
    "600",
    "--rate",
    "1000",
    "--kind",
    "sequenced",
];

/// A subcommand of `lab` that waits for a line before it starts its work.
pub(crate) struct Program {
    pub(crate) running: Running,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts `lab` with these arguments and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Program {
        Program::start_command(Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments))
    }

    /// The same with a command of one's own.
    pub(crate) fn start_command(command: &mut Command) -> Program {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        let mut program = Program {
            running: Running(child),
            input,
            lines,
        };
        let ready = program.line();
        assert_eq!(ready, format!("ready {}", program.pid()));
        program
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        self.lines
            .next()
            .expect("the program prints a line")
            .expect("it is text")
    }

    /// Sends it a line.
    pub(crate) fn go(&mut self) {
        let input = self.input.as_mut().expect("standard input");
        input.write_all(b"go\n").expect("the program listens");
    }

    /// A client of its diagnostics port.
    pub(crate) fn client(&self) -> Client {
        let process = dotnet_diagnostics::discovery::find(self.pid()).expect("it has a socket");
        Client::new(process.endpoint())
    }

    /// A session for one provider, everything it has.
    pub(crate) fn session(&self, provider: &str, buffer_mb: u32) -> Session {
        let mut request = CollectTracing::new([ProviderConfig::new(provider, u64::MAX, 5)]);
        request.buffer_mb = buffer_mb;
        request.rundown_keyword = 0;
        self.client()
            .collect(&request, Fallbacks::NONE)
            .expect("the session opens")
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        assert!(self.running.wait_without_reaping(HUNG), "the program hangs");
        self.running.0.wait().expect("it is our child")
    }
}

/// The whole stream, read on a thread of its own as long as it lasts.
pub(crate) fn reading(mut session: Session) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut trace = Vec::new();
        session.read_to_end(&mut trace).expect("the stream is read");
        trace
    })
}

/// The stream of a session that is stopped after `pause`.
pub(crate) fn short_session(client: &Client, request: &CollectTracing, pause: Duration) -> Vec<u8> {
    let session = client
        .collect(request, Fallbacks::NONE)
        .expect("the session opens");
    let stopper = session.stopper();
    let reader = reading(session);
    std::thread::sleep(pause);
    stopper.stop().expect("the stop is answered");
    reader.join().expect("the reader ends")
}

/// A folder of its own for a test, removed at its end unless it failed.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("eventpipe-lab-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test's files are kept: {}", self.0.display());
        } else {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }
}
