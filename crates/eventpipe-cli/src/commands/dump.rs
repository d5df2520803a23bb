//! `eventpipe dump`: the process writes a core dump of itself.
//!
//! The path is the process's own, so it is made absolute here and looked at through the process's root.
//! The dump is made under a temporary name beside its final one, which it gets when it is complete. Nothing stops a process
//! that writes one: Ctrl+C waits for its answer and removes what it wrote, a second one names what it leaves.

use crate::cli::{Dump, DumpKind};
use crate::exit_code::{ExitCode, Failure};
use crate::human;
use crate::meanwhile::Meanwhile;
use crate::output;
use crate::reach::reach_once;
use crate::signals;
use crate::table;
use crate::target::attach_failure;
use crate::terminal::note;
use anyhow::Context as _;
use dotnet_diagnostics::Error;
use dotnet_diagnostics::codec::{DumpFlags, DumpType};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Has a dump written.
pub(crate) fn dump(arguments: &Dump) -> anyhow::Result<()> {
    let reached = reach_once(&arguments.target)?;
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("core_{}", human::file_time())),
    };
    let path = std::path::absolute(&path).context("the current directory")?;
    let name = path
        .file_name()
        .filter(|_| !path.is_dir())
        .ok_or_else(|| cannot_write(&path, "it is a directory"))?;
    if path.as_os_str().as_encoded_bytes().contains(&b'%') {
        let text = format!(
            "cannot write {}: for a process % in the name of a dump stands for something else",
            path.display()
        );
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let root = Root::of(reached.pid);
    let mut written = vec![path.clone()];
    if arguments.crash_report {
        written.push(report_of(&path));
    }
    for path in &written {
        if root.visible(path).exists() && !arguments.force {
            return Err(cannot_write(path, "it exists already (--force writes over it)").into());
        }
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    if !root.visible(parent).is_dir() {
        let cause = "the directory does not exist where the process runs";
        return Err(cannot_write(&path, cause).into());
    }
    let temporary = path.with_file_name(output::unfinished(name));
    let text = temporary
        .to_str()
        .ok_or_else(|| cannot_write(&path, "the path is not UTF-8, as the protocol needs it"))?;
    let (kind, kind_name) = match arguments.kind {
        DumpKind::Full => (DumpType::FULL, "full"),
        DumpKind::Heap => (DumpType::WITH_HEAP, "heap"),
        DumpKind::Mini => (DumpType::NORMAL, "mini"),
        DumpKind::Triage => (DumpType::TRIAGE, "triage"),
    };
    probe(&root.visible(&temporary)).map_err(|error| output::cannot_write(&path, error))?;
    let mut flags = 0;
    if arguments.diag {
        flags |= DumpFlags::LOGGING.0;
    }
    if arguments.crash_report {
        flags |= DumpFlags::CRASH_REPORT.0;
    }
    let made = root.visible(&temporary);
    let mut left = made.display().to_string();
    if arguments.crash_report {
        left = format!("{left} and {}", report_of(&made).display());
    }
    let port = reached.port_file();
    let interrupted = Interrupted::watch(left.clone(), port).context("preparing for signals")?;
    note(format_args!(
        "dumping {} (process {}) into {} ({kind_name}); the process stands still meanwhile",
        reached.name,
        reached.pid,
        table::printable(&path.display().to_string())
    ));
    let growing = made.clone();
    let meanwhile = Meanwhile::saying(move || {
        let size = std::fs::metadata(&growing).map_or(0, |found| found.len());
        format!("{} written", human::bytes(size))
    });
    let answer = reached
        .client
        .generate_core_dump(text, kind, DumpFlags(flags));
    drop(meanwhile);
    let signal = interrupted.answered();
    let answer = match answer {
        Err(error) if may_go_on(&error) => {
            let failure = attach_failure(error);
            let text = format!("{failure}; what the process writes is {left}");
            return Err(Failure::new(failure.code(), text).into());
        }
        answer => answer,
    };
    if signal.is_some() || answer.is_err() {
        for made in [&made, &report_of(&made)] {
            let _ = std::fs::remove_file(made);
        }
    }
    if let Some(signal) = signal {
        note("eventpipe: interrupted: there is no dump");
        // With the port that it may have.
        drop(reached);
        signals::end_by(signal);
    }
    answer.map_err(attach_failure)?;
    let found = std::fs::metadata(&made).map_err(|error| {
        cannot_write(
            &path,
            &format!("the process said that it is done, but there is no dump: {error}"),
        )
    })?;
    std::fs::rename(&made, root.visible(&path)).with_context(|| {
        cannot_write(&path, &format!("the dump stays as {}", temporary.display()))
    })?;
    if arguments.crash_report {
        keep_report(&made, &path, &root)?;
    }
    note(format_args!(
        "{}: {} ({kind_name})",
        path.display(),
        human::bytes(found.len())
    ));
    Ok(())
}

/// The signal that came first while the process writes; 0 if none did.
struct Interrupted(Arc<AtomicI32>);

/// The process has answered: what is left to do takes no time.
const ANSWERED: i32 = -1;

impl Interrupted {
    /// The first signal is kept until the process has answered; another one ends the tool. `left` is what it leaves then.
    /// So is the socket of its own that it listens at, if it does.
    fn watch(left: String, port: Option<PathBuf>) -> std::io::Result<Interrupted> {
        let first = Arc::new(AtomicI32::new(0));
        let kept = Arc::clone(&first);
        signals::forward(move |signal| {
            match kept.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => note(
                    "eventpipe: a process cannot be stopped while it writes; what it writes is removed when it is done (Ctrl+C: end now and leave it)",
                ),
                Err(ANSWERED) => {}
                Err(_) => {
                    note(format_args!(
                        "eventpipe: the process goes on writing {left}"
                    ));
                    if let Some(port) = &port {
                        let _ = std::fs::remove_file(port);
                    }
                    signals::end_by(signal);
                }
            }
        })?;
        Ok(Interrupted(first))
    }

    /// The process has answered: gives the signal that came before.
    fn answered(self) -> Option<i32> {
        match self.0.swap(ANSWERED, Ordering::AcqRel) {
            0 => None,
            signal => Some(signal),
        }
    }
}

/// Whether the process may be writing still, who then needs its file: it was only not waited for any longer.
fn may_go_on(error: &Error) -> bool {
    matches!(error, Error::NotAnswering { .. })
}

/// Whether a file can be made there at all: what a process says of its failure has numbers in place of causes, if anything.
fn probe(path: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)?;
    std::fs::remove_file(path)
}

/// The crash report that .NET writes beside a dump.
fn report_of(dump: &Path) -> PathBuf {
    let mut name = dump.as_os_str().to_owned();
    name.push(".crashreport.json");
    PathBuf::from(name)
}

/// Gives the crash report the name that goes with the dump's final one.
fn keep_report(made: &Path, dump: &Path, root: &Root) -> anyhow::Result<()> {
    let (made, report) = (report_of(made), report_of(dump));
    if !made.exists() {
        note("there is no crash report: only .NET 7 and later write one");
        return Ok(());
    }
    std::fs::rename(&made, root.visible(&report)).with_context(|| {
        cannot_write(&report, &format!("the report stays as {}", made.display()))
    })?;
    note(format_args!("{}: the crash report", report.display()));
    Ok(())
}

/// How the process's files are reached.
enum Root {
    Same,
    Other(PathBuf),
}

impl Root {
    fn of(pid: u32) -> Root {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        // Its own root by another name, if it is not in a container.
        let place = |path: &Path| {
            use std::os::unix::fs::MetadataExt as _;
            std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
        };
        match (place(&root.join(".")), place(Path::new("/"))) {
            (Ok(theirs), Ok(ours)) if theirs != ours => Root::Other(root),
            _ => Root::Same,
        }
    }

    fn visible(&self, path: &Path) -> PathBuf {
        match self {
            Root::Same => path.to_owned(),
            Root::Other(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        }
    }
}

fn cannot_write(path: &Path, cause: &str) -> Failure {
    Failure::new(
        ExitCode::Output,
        format!("cannot write {}: {cause}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dotnet_diagnostics::codec::{Command, ErrorCode};

    #[test]
    fn what_a_process_may_be_writing_still_is_left_to_it() {
        let command = Command::GENERATE_CORE_DUMP;
        assert!(may_go_on(&Error::NotAnswering {
            doing: "waiting for the answer",
            limit: std::time::Duration::from_secs(1800),
        }));
        assert!(!may_go_on(&Error::ConnectionClosed { command }));
        assert!(!may_go_on(&Error::Refused {
            command,
            code: ErrorCode::FAIL,
            message: String::new(),
        }));
    }
}
