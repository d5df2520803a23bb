//! `lab size`: what the engine adds to a program, stripped, beside the C engine.
//!
//! A difference of two programs that do the same but for the engine, linked the same way; so what both need anyway does not count.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::nativeaot::{self, App, Extras, HEAP_WALK, NativeEngine, Net};

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// Each row: what, and its size.
    pub rows: Vec<Row>,
    /// What takes the bytes that this engine adds to the NativeAOT program.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
    /// The whole NativeAOT stress program, stripped, with the C engine.
    pub stripped_c: Option<i64>,
    /// The same with this engine, heap dumps included.
    pub stripped_rust: Option<i64>,
    /// The same without an engine.
    pub stripped_none: Option<i64>,
}

/// What one part of the engine takes of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    pub what: String,
    /// Code and data.
    pub bytes: i64,
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
        if !self.parts.is_empty() {
            _ = writeln!(
                out,
                "\nWhat takes the bytes that this engine adds to the NativeAOT program, by the linker's map; code that the compiler merged \
                 into its caller counts there.\n\n| what | bytes |\n|---|---|"
            );
            for part in &self.parts {
                _ = writeln!(out, "| {} | {} |", part.what, part.bytes);
            }
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

fn cargo(arguments: &[&str], flags: Option<&str>) -> Result<PathBuf> {
    let target = workspace().join("target");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .envs(flags.map(|flags| ("RUSTFLAGS", flags)))
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
    // The workspace keeps frame pointers for walks of the stack, and this library has none.
    const FLAGS: &str = "-Cforce-frame-pointers=no";
    let arguments = [
        "rustc",
        "--package",
        PACKAGE,
        "--profile",
        "nativeaot",
        "--features",
        "standalone",
        "--crate-type",
        "staticlib",
    ];
    let target = cargo(&arguments, Some(FLAGS))?;
    Ok(target.join("nativeaot/libeventpipe_nativeaot.a"))
}

fn rust_programs(sizes: &mut Sizes) -> Result<()> {
    let folder = cargo(
        &["build", "--package", "lab-size", "--profile", "size"],
        None,
    )?
    .join("size");
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
    let link = |engine, extras: Extras<'_>| -> Result<Row> {
        let program = folder.join("program");
        nativeaot::link(&program, App::Stress, Net::Net10, engine, extras)?;
        size_of(&program, "")
    };
    let result = (|| {
        let none = link(NativeEngine::None, Extras::NONE)?;
        let c = link(NativeEngine::C, Extras::NONE)?;
        let map = folder.join("map");
        let extras = Extras {
            map: Some(&map),
            ..Extras::HEAP_WALK
        };
        let ours = link(NativeEngine::Rust, extras)?;
        let map = std::fs::read(&map).context("reading the linker's map")?;
        sizes.parts = parts(&String::from_utf8_lossy(&map), ours.file - none.file);
        let without_heap_walk = link(NativeEngine::Rust, Extras::NONE)?;
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

/// Parts of the engine, and what their symbols have in their mangled names. The first that fits counts.
const PARTS: [(&str, &[&str]); 8] = [
    (
        "diagnostics server: its commands, messages and ports",
        &["eventpipe6server", "dotnet_diagnostics", "DiagnosticServer"],
    ),
    ("ring and its drain", &["eventpipe_ring"]),
    (
        "trace format, sessions' encoders and outputs",
        &[
            "nettrace",
            "eventpipe7encoder",
            "eventpipe6output",
            "eventpipe5queue",
            "eventpipe8consumer",
        ],
    ),
    (
        "threads, clocks, memory, environment",
        &["eventpipe_os", "rustix", "eventpipe_sampler"],
    ),
    (
        "the runtime's functions and its events",
        &[
            "eventpipe_nativeaot",
            "EventPipe",
            "FireEtw",
            "NativeRuntimeEventSource",
            "ETW",
            "IsRuntimeProviderEnabled",
            "EventEnabled",
        ],
    ),
    ("providers, filters, sessions, listeners", &["9eventpipe"]),
    ("bodies of the engine's threads", &["call_once"]),
    ("the standard library's collections, texts, numbers", &[""]),
];

/// Adds up what the linker's map says of the engine's library and of the objects that walk the heap.
fn parts(map: &str, added: i64) -> Vec<Part> {
    let mut sums = [0; PARTS.len()];
    let mut heap_walk = 0;
    // ` .text.name  0xADDRESS  0xSIZE  FILE`, the line broken behind long names.
    let mut section = "";
    let layout = map.split_once("\nLinker script and memory map");
    for line in layout.map_or("", |(_, layout)| layout).lines() {
        let mut words = line.split_ascii_whitespace();
        if line.starts_with(" .") {
            section = words.next().unwrap_or_default();
        } else if !line.starts_with("    ") {
            section = "";
        }
        let number = |word: Option<&str>| {
            let digits = word?.strip_prefix("0x")?;
            i64::from_str_radix(digits, 16).ok()
        };
        let (Some(address), Some(size)) = (number(words.next()), number(words.next())) else {
            continue;
        };
        let file = words.next().unwrap_or_default();
        let is_in_file = [".text", ".rodata", ".data"]
            .iter()
            .any(|kind| section.starts_with(kind));
        if address == 0 || !is_in_file {
            continue;
        }
        if HEAP_WALK.iter().any(|object| file.ends_with(object)) {
            heap_walk += size;
        } else if file.contains("libeventpipe-nativeaot.a") {
            let part = PARTS
                .iter()
                .position(|(_, names)| names.iter().any(|name| section.contains(name)));
            sums[part.unwrap_or(PARTS.len() - 1)] += size;
        }
    }
    let mut parts: Vec<Part> = PARTS
        .iter()
        .zip(sums)
        .map(|((what, _), bytes)| Part {
            what: (*what).to_owned(),
            bytes,
        })
        .collect();
    parts.push(Part {
        what: "the runtime's own objects that walk the heap".to_owned(),
        bytes: heap_walk,
    });
    let told: i64 = parts.iter().map(|part| part.bytes).sum();
    parts.push(Part {
        what: "relocations, symbols, the rounding of segments to pages".to_owned(),
        bytes: added - told,
    });
    parts
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
