//! `eventpipe dump`: the process writes a core dump of itself.
//!
//! The path is the process's own, so it is made absolute here and looked at through the process's root.
//! The dump is made under a temporary name beside its final one, which it gets when it is complete.

use crate::cli::{Dump, DumpKind};
use crate::exit_code::{ExitCode, Failure};
use crate::human;
use crate::reach::reach_once;
use crate::target::attach_failure;
use crate::terminal::note;
use anyhow::Context as _;
use dotnet_diagnostics::codec::{DumpFlags, DumpType, DumpVersion};
use std::path::{Path, PathBuf};

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
    let root = Root::of(reached.pid);
    if root.visible(&path).exists() && !arguments.force {
        return Err(cannot_write(&path, "it exists already (--force writes over it)").into());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    if !root.visible(parent).is_dir() {
        let cause = "the directory does not exist where the process runs";
        return Err(cannot_write(&path, cause).into());
    }
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(format!(".{}.part", std::process::id()));
    let temporary = path.with_file_name(temporary_name);
    let text = temporary
        .to_str()
        .ok_or_else(|| cannot_write(&path, "the path is not UTF-8, as the protocol needs it"))?;
    let (kind, kind_name) = match arguments.kind {
        DumpKind::Full => (DumpType::FULL, "full"),
        DumpKind::Heap => (DumpType::WITH_HEAP, "heap"),
        DumpKind::Mini => (DumpType::NORMAL, "mini"),
        DumpKind::Triage => (DumpType::TRIAGE, "triage"),
    };
    let mut flags = 0;
    if arguments.diag {
        flags |= DumpFlags::LOGGING.0;
    }
    if arguments.crash_report {
        flags |= DumpFlags::CRASH_REPORT.0;
    }
    note(format_args!(
        "dumping {} (process {}) into {} ({kind_name}); the process stands still meanwhile",
        reached.name,
        reached.pid,
        path.display()
    ));
    let made = root.visible(&temporary);
    let answer = reached
        .client
        .generate_core_dump(text, kind, DumpFlags(flags));
    let version = match answer {
        Ok(version) => version,
        Err(error) => {
            let _ = std::fs::remove_file(&made);
            return Err(attach_failure(error).into());
        }
    };
    let found = std::fs::metadata(&made).map_err(|error| {
        cannot_write(
            &path,
            &format!("the process said that it is done, but there is no dump: {error}"),
        )
    })?;
    std::fs::rename(&made, root.visible(&path)).with_context(|| {
        cannot_write(&path, &format!("the dump stays as {}", temporary.display()))
    })?;
    if version == DumpVersion::V1 && arguments.crash_report {
        note("there is no crash report: that needs .NET 7");
    }
    note(format_args!(
        "{}: {} ({kind_name})",
        path.display(),
        human::bytes(found.len())
    ));
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
