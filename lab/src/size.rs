//! `lab size`: what the engine adds to a program, stripped, beside the C engine.
//!
//! A difference of two programs that do the same but for the engine, linked the same way; so what both need anyway does not count.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::nativeaot::{self, App, NativeEngine, Net};

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// Each row: what, and its size.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
    /// The whole NativeAOT stress program, stripped, with the C engine.
    pub stripped_c: Option<i64>,
    /// The same with this engine, heap dumps included.
    pub stripped_rust: Option<i64>,
    /// The same without an engine.
    pub stripped_none: Option<i64>,
}

/// The size of one thing, or the difference of two.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub what: String,
    /// Code and constant data.
    pub text: i64,
    /// Data with a value at the start.
    pub data: i64,
    /// Data that is zero at the start.
    pub bss: i64,
    /// The stripped file.
    pub file: i64,
}

impl Row {
    fn less(&self, other: &Row, what: &str) -> Row {
        Row {
            what: what.to_owned(),
            text: self.text - other.text,
            data: self.data - other.data,
            bss: self.bss - other.bss,
            file: self.file - other.file,
        }
    }
}

impl Sizes {
    /// Writes the table as a part of a document.
    pub fn describe(&self, out: &mut String) {
        _ = writeln!(
            out,
            "## Code size\n\n\
             Bytes, stripped (`lab size`). Differences are between two programs linked the same way, which do the same but for the engine.\n\n\
             | what | text | data | bss | file |\n|---|---|---|---|---|"
        );
        for row in &self.rows {
            _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                row.what, row.text, row.data, row.bss, row.file
            );
        }
        for missing in &self.missing {
            _ = writeln!(out, "\nNot measured: {missing}");
        }
        _ = writeln!(out);
    }
}

/// Builds and measures all that can be built here.
///
/// # Errors
/// The programs of this repository do not build, or binutils are missing. What is missing of the foreign ones is told in the result.
pub fn measure() -> Result<Sizes> {
    let mut sizes = Sizes::default();
    rust_programs(&mut sizes)?;
    if let Err(error) = native_programs(&mut sizes) {
        eprintln!("not measured: {error:#}");
        // The chain of causes names folders of this machine.
        sizes.missing.push(error.to_string());
    }
    Ok(sizes)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo(arguments: &[&str]) -> Result<PathBuf> {
    let target = workspace().join("target");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .arg("--quiet")
        .arg("--target-dir")
        .arg(&target)
        .current_dir(workspace())
        .output()
        .context("starting cargo")?;
    ensure!(
        output.status.success(),
        "cargo {}: {}",
        arguments.join(" "),
        peers::stderr(&output)
    );
    Ok(target)
}

/// Builds this engine as the static library that takes the place of a NativeAOT program's own.
pub(crate) fn native_library() -> Result<PathBuf> {
    const PACKAGE: &str = "eventpipe-nativeaot";
    let target = cargo(&[
        "rustc",
        "--package",
        PACKAGE,
        "--profile",
        "nativeaot",
        "--features",
        "standalone",
        "--crate-type",
        "staticlib",
    ])?;
    Ok(target.join("nativeaot/libeventpipe_nativeaot.a"))
}

fn rust_programs(sizes: &mut Sizes) -> Result<()> {
    let folder = cargo(&["build", "--package", "lab-size", "--profile", "size"])?.join("size");
    let without = size_of(
        &folder.join("size-without"),
        "Rust program without the engine",
    )?;
    let engine = size_of(&folder.join("size-engine"), "")?;
    let server = size_of(&folder.join("size-engine-and-server"), "")?;
    sizes.rows.push(engine.less(
        &without,
        "this engine in a Rust program, file session, no server",
    ));
    sizes
        .rows
        .push(server.less(&without, "this engine in a Rust program, with server"));
    Ok(())
}

/// The NativeAOT stress program with the C engine, with the C engine's empty twin, and with ours.
fn native_programs(sizes: &mut Sizes) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("lab-size-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let link = |engine, heap_walk| -> Result<Row> {
        let program = folder.join("program");
        nativeaot::link(&program, App::Stress, Net::Net10, engine, heap_walk)?;
        size_of(&program, "")
    };
    let result = (|| {
        let none = link(NativeEngine::None, false)?;
        let c = link(NativeEngine::C, false)?;
        let ours = link(NativeEngine::Rust, true)?;
        let without_heap_walk = link(NativeEngine::Rust, false)?;
        sizes.rows.push(c.less(
            &none,
            "C engine with server in a NativeAOT program (.NET 10)",
        ));
        sizes.rows.push(ours.less(
            &none,
            "this engine with server in a NativeAOT program (.NET 10), heap dumps included",
        ));
        sizes
            .rows
            .push(without_heap_walk.less(&none, "the same without the objects that walk the heap"));
        (sizes.stripped_none, sizes.stripped_c, sizes.stripped_rust) =
            (Some(none.file), Some(c.file), Some(ours.file));
        Ok(())
    })();
    drop(std::fs::remove_dir_all(&folder));
    result
}

/// Sections by `size`, the file's length after `strip`.
fn size_of(program: &Path, what: &str) -> Result<Row> {
    let stripped = program.with_extension("stripped");
    let output = Command::new("strip")
        .arg("--strip-all")
        .arg("-o")
        .arg(&stripped)
        .arg(program)
        .output()
        .context("starting strip (binutils)")?;
    ensure!(output.status.success(), "strip: {}", peers::stderr(&output));
    let output = Command::new("size")
        .arg(&stripped)
        .output()
        .context("starting size (binutils)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<i64> = text
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_ascii_whitespace()
        .take(3)
        .filter_map(|number| number.parse().ok())
        .collect();
    let &[text, data, bss] = numbers.as_slice() else {
        anyhow::bail!("size printed {text:?}");
    };
    let file = std::fs::metadata(&stripped)?.len() as i64;
    drop(std::fs::remove_file(&stripped));
    Ok(Row {
        what: what.to_owned(),
        text,
        data,
        bss,
        file,
    })
}
