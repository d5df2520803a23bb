//! `eventpipe demo`: the project's main job in one command.
//!
//! Starts the demo program (this executable, as a process of its own), attaches to it over its
//! socket as to any process, records for some seconds, and prints the report: what the program says
//! it wrote stands beside what was recorded.

use crate::attach::{Channel, Recording};
use crate::cli::{Buffering, Demo};
use crate::commands::collect::begin;
use crate::commands::report;
use crate::demo_program::Written;
use crate::drive::Options;
use crate::exit_code::{ExitCode, Failure};
use crate::human;
use crate::input;
use crate::output::RecordingFile;
use crate::profiles::{self, Asked};
use crate::target;
use crate::terminal::{self, note};
use anyhow::Context as _;
use dotnet_diagnostics::client::Client;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Everything the demo program has.
const PROVIDERS: &str = "Demo-Requests:0xFFFFFFFF:Verbose,Demo-Internals:0xFFFFFFFF:Verbose";

/// How long the program may take to start, and to open its socket.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How long it may take to end before it is killed.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Runs the demo; gives the exit code.
pub(crate) fn demo(arguments: &Demo) -> anyhow::Result<u8> {
    refuse_other_than_files(&arguments.output)?;
    let channel = Channel::with_signals()?;
    let mut program = Program::start()?;
    let pid = program.child.id();
    let client = attach(&mut program)?;

    let providers = [PROVIDERS.to_owned()];
    let request = profiles::combine(&Asked {
        providers: &providers,
        ..Asked::default()
    })?;
    let file = RecordingFile::create(&arguments.output, true)?;
    let path = file.path().to_owned();
    let session = match begin(&client, &request, 256, Buffering::Drop) {
        Ok(session) => session,
        Err(error) => {
            file.discard();
            return Err(error);
        }
    };
    note(format_args!(
        "recording the demo program (process {pid}) into {}",
        file.name()
    ));
    let stop = channel.stopper();
    let recording = Recording::start(session, file, None, None, channel)?;
    let written = program.work(arguments.duration, stop)?;
    let options = Options {
        duration: None,
        rundown_timeout: None,
        ends_on_enter: true,
        fail_on_drop: true,
        first_signal_is_the_childs: false,
    };
    let finished = recording.run(&options, &[], true, None);
    drop(program);
    if finished.code != ExitCode::Ok {
        return Ok(finished.code as u8);
    }

    let (statistics, damage) = report::gather(&path)?;
    let mut out = terminal::out();
    writeln!(out)?;
    report::print(&mut out, &path.display().to_string(), &statistics)?;
    // Only a run that went its full time has told what it wrote.
    let mut code = ExitCode::Ok;
    if let Ok(written) = written.try_recv() {
        // The engine adds events of its own that describe the process.
        let own = statistics
            .events
            .iter()
            .filter(|row| row.provider.starts_with("Demo-"));
        let recorded: u64 = own.map(|row| row.count).sum();
        writeln!(
            out,
            "\nThe program wrote {}: {} recorded, {} lost.",
            human::number_of(written.events(), "event"),
            human::count(recorded),
            human::count(statistics.lost.total),
        )?;
        if recorded + statistics.lost.total != written.events() {
            writeln!(
                out,
                "These do not add up: this is a defect, please report it."
            )?;
            code = ExitCode::Unexpected;
        }
    }
    let name = path.display();
    writeln!(
        out,
        "\nNext: eventpipe events {name} | less\n      eventpipe report topn {name} --inclusive"
    )?;
    out.flush()?;
    Ok(if damage.is_some() {
        ExitCode::Damaged as u8
    } else {
        code as u8
    })
}

/// The file is read again for the report.
fn refuse_other_than_files(path: &Path) -> Result<(), Failure> {
    let is_file = |path: &Path| !path.exists() || path.is_dir() || path.is_file();
    if path.as_os_str() == "-" || !is_file(path) {
        let text = format!(
            "cannot write {}: the demo reads its trace again, which only a file allows",
            input::name_of(path).replace("input", "output")
        );
        return Err(Failure::new(ExitCode::Output, text));
    }
    Ok(())
}

/// Waits for the program's socket, and for an answer on it.
fn attach(program: &mut Program) -> anyhow::Result<Client> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let last = match target::by_id(program.child.id()) {
            Ok(process) => {
                let client = Client::new(process.endpoint());
                match client.process_info() {
                    Ok(_) => return Ok(client),
                    Err(error) => target::attach_failure(error).into(),
                }
            }
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(last);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The program's standard input, shared with the thread that tells it what to do.
type Input = Arc<Mutex<Option<ChildStdin>>>;

/// The demo program as a child; it ends when this is dropped.
#[derive(Debug)]
struct Program {
    child: Child,
    input: Input,
    output: Option<BufReader<ChildStdout>>,
}

impl Program {
    fn start() -> anyhow::Result<Program> {
        let failure = || Failure::new(ExitCode::Unexpected, "cannot start the demo program");
        let executable = std::env::current_exe().with_context(failure)?;
        // A group of its own: Ctrl+C is for the tool, which ends the recording in order.
        let mut child = Command::new(executable)
            .arg("demo-program")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(failure)?;
        let input = Arc::new(Mutex::new(child.stdin.take()));
        let output = child.stdout.take().map(BufReader::new);
        let mut program = Program {
            child,
            input,
            output,
        };
        let line = program
            .output
            .as_mut()
            .map(read_line)
            .transpose()
            .with_context(failure)?;
        if !line.unwrap_or_default().starts_with("ready ") {
            return Err(failure().into());
        }
        Ok(program)
    }

    /// Lets the program work for so long, then has it tell what it wrote and calls `stop`.
    fn work(
        &mut self,
        duration: Duration,
        stop: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Receiver<Written>> {
        let (sender, receiver) = channel();
        let Some(mut output) = self.output.take() else {
            anyhow::bail!("the demo program is already at work");
        };
        tell(&self.input, "begin").context("the demo program went away")?;
        let input = Arc::clone(&self.input);
        thread::Builder::new()
            .name("conductor".into())
            .spawn(move || {
                thread::sleep(duration);
                let told = tell(&input, "end").and_then(|()| read_line(&mut output));
                if let Some(written) = told.ok().and_then(|line| serde_json::from_str(&line).ok()) {
                    let _ = sender.send(written);
                }
                stop();
            })?;
        Ok(receiver)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The end of its input ends the program.
        if let Ok(mut input) = self.input.lock() {
            *input = None;
        }
        let deadline = Instant::now() + END_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says a line to the program.
fn tell(input: &Input, line: &str) -> io::Result<()> {
    match input.lock() {
        Ok(mut input) => match input.as_mut() {
            Some(input) => writeln!(input, "{line}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        },
        Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn read_line(output: &mut BufReader<ChildStdout>) -> io::Result<String> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    Ok(line)
}
