//! `lab size`: what the engine adds to a program, stripped, beside the C engine.
//!
//! A difference of two programs that do the same but for the engine, linked the same way; so what both need anyway does not count.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// Each row: what, and its size.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
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

/// The NativeAOT application with the C engine, with the C engine's empty twin, and with ours.
fn native_programs(sizes: &mut Sizes) -> Result<()> {
    let shared = peers::shared().context("NativeAOT programs: there is no ../shared")?;
    let programs = std::env::var_os("PEERS_DIR")
        .map_or_else(|| workspace().join("target/peers"), PathBuf::from);
    let kit = programs
        .join("nativeaot-kit")
        .canonicalize()
        .context("NativeAOT programs: the link kit is not among the peers")?;
    let folder = std::env::temp_dir().join(format!("lab-size-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let link = |name: &str, archive: &Path| -> Result<Row> {
        let program = folder.join(name);
        let output = Command::new("sh")
            .arg(shared.join("peers/nativeaot/link.sh"))
            .arg(&program)
            .arg(archive)
            .env("KIT", &kit)
            .output()
            .context("starting link.sh")?;
        ensure!(
            output.status.success(),
            "linking {name}: {}",
            peers::stderr(&output)
        );
        size_of(&program, name)
    };
    let result = (|| {
        let disabled = link("disabled", &kit.join("lib/libeventpipe-disabled.a"))?;
        let enabled = link("enabled", &kit.join("lib/libeventpipe-enabled.a"))?;
        sizes.rows.push(enabled.less(
            &disabled,
            "C engine with server in a NativeAOT program (.NET 10)",
        ));
        let library = native_library()?;
        let ours = link("ours", &library)?;
        sizes.rows.push(ours.less(
            &disabled,
            "this engine with server in a NativeAOT program (.NET 10)",
        ));
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
