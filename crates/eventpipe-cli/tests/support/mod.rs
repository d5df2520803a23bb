//! What the tests of the tool share.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of its own for a test, removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("eventpipe-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The tool.
pub(crate) fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_eventpipe"))
}

/// Runs the tool with arguments and gives code, standard output, standard error.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    answer(&tool().args(arguments).output().unwrap())
}

/// Code, standard output, standard error.
pub(crate) fn answer(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
