//! The engines that are compared, and how each one's stress program is started.
//!
//! It is the same program everywhere: same options, same provider, same events, a line `ready PID`, a closing JSON line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use peers::{Peers, Runtime};
use serde::{Deserialize, Serialize};

/// An engine with a stress program.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    clap::ValueEnum,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// This project's.
    Ours,
    /// The C++ engine: .NET Core 3.1.
    #[value(name = "net3.1")]
    #[serde(rename = "net3.1")]
    Net3,
    /// The C engine of .NET 8.
    Net8,
    /// The C engine of .NET 10.
    Net10,
    /// The C engine of .NET 11.
    Net11,
    /// This project's engine linked into a NativeAOT program of .NET 10 in place of its own.
    #[value(name = "ours-aot10")]
    #[serde(rename = "ours-aot10")]
    OursAot10,
    /// The C engine linked into a NativeAOT program of .NET 10.
    Aot10,
    /// The C engine linked into a NativeAOT program of .NET 11.
    Aot11,
    /// The NativeAOT program of .NET 10 with an engine that only counts what it is given: what the program itself costs.
    #[value(name = "counting-aot10")]
    #[serde(rename = "counting-aot10")]
    CountingAot10,
}

impl Engine {
    /// All that deliver events, ours first, then by age.
    pub const ALL: [Engine; 8] = [
        Engine::Ours,
        Engine::OursAot10,
        Engine::Net3,
        Engine::Net8,
        Engine::Net10,
        Engine::Net11,
        Engine::Aot10,
        Engine::Aot11,
    ];

    /// The name on the command line and in tables of figures for programs.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Ours => "ours",
            Engine::OursAot10 => "ours-aot10",
            Engine::Net3 => "net3.1",
            Engine::Net8 => "net8",
            Engine::Net10 => "net10",
            Engine::Net11 => "net11",
            Engine::Aot10 => "aot10",
            Engine::Aot11 => "aot11",
            Engine::CountingAot10 => "counting-aot10",
        }
    }

    /// The name for readers of a table.
    pub fn title(self) -> &'static str {
        match self {
            Engine::Ours => "Rust (this project)",
            Engine::OursAot10 => "Rust (NativeAOT .NET 10)",
            Engine::Net3 => "C++ (.NET Core 3.1)",
            Engine::Net8 => "C (.NET 8)",
            Engine::Net10 => "C (.NET 10)",
            Engine::Net11 => "C (.NET 11)",
            Engine::Aot10 => "C (NativeAOT .NET 10)",
            Engine::Aot11 => "C (NativeAOT .NET 11)",
            Engine::CountingAot10 => "counts only (NativeAOT .NET 10)",
        }
    }

    fn runtime(self) -> Option<Runtime> {
        match self {
            Engine::Net3 => Some(Runtime::Net3),
            Engine::Net8 => Some(Runtime::Net8),
            Engine::Net10 => Some(Runtime::Net10),
            Engine::Net11 => Some(Runtime::Net11),
            Engine::Ours
            | Engine::OursAot10
            | Engine::Aot10
            | Engine::Aot11
            | Engine::CountingAot10 => None,
        }
    }

    /// Whether the engine can put stacks on the events of a native or managed program at all. NativeAOT programs have none.
    pub fn has_stacks(self) -> bool {
        use Engine::{Aot10, Aot11, CountingAot10, OursAot10};
        !matches!(self, OursAot10 | Aot10 | Aot11 | CountingAot10)
    }

    /// Whether events can be had without stacks: .NET Core 3.1 has no switch for it.
    pub fn can_omit_stacks(self) -> bool {
        self != Engine::Net3
    }

    /// Whether a session over the socket can ask that writers wait instead of losing events (CollectTracing6).
    pub fn can_block(self) -> bool {
        matches!(self, Engine::Ours | Engine::OursAot10 | Engine::Net11)
    }

    /// Whether CollectTracing3 can switch stacks off. .NET 8 needs a variable in the program's environment.
    pub(crate) fn switches_stacks_by_request(self) -> bool {
        !matches!(self, Engine::Net3 | Engine::Net8)
    }

    /// Whether the engine answers the request before its providers are on, so that events written in the first moments
    /// reach nobody.
    pub(crate) fn answers_early(self) -> bool {
        matches!(self, Engine::Net11 | Engine::Aot11)
    }

    fn peers(self) -> Result<Peers> {
        Peers::find().context("no peers: unpack them with ../shared/peers/unpack.sh target/peers")
    }

    /// A command that starts the stress program; `lab` is this program's file, which holds ours.
    ///
    /// # Errors
    /// The foreign program is not there, or (NativeAOT) cannot be linked.
    pub fn program(self, lab: &Path) -> Result<Command> {
        if let Some(runtime) = self.runtime() {
            let peers = self.peers()?;
            let file = peers.program_path("stress");
            if !file.is_file() || !peers.dotnet(runtime).is_file() {
                bail!("{} is not among the peers", self.title());
            }
            return Ok(peers.program(runtime, "stress"));
        }
        Ok(match self {
            Engine::OursAot10 => {
                let library = crate::nativeaot::library()?;
                Command::new(link_native("nativeaot-kit", Writing::Ours(&library))?)
            }
            Engine::Aot10 => Command::new(link_native("nativeaot-kit", Writing::Theirs)?),
            Engine::Aot11 => Command::new(link_native("nativeaot-kit-net11", Writing::Theirs)?),
            Engine::CountingAot10 => Command::new(link_native("nativeaot-kit", Writing::Counting)?),
            _ => {
                let mut command = Command::new(lab);
                command.arg("target");
                command
            }
        })
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What takes a NativeAOT program's events.
#[derive(Clone, Copy, Debug)]
enum Writing<'a> {
    /// This library.
    Ours(&'a Path),
    /// The kit's C engine.
    Theirs,
    /// The kit's C engine switches the provider on, and its events are only counted.
    Counting,
}

/// The NativeAOT stress program, linked from the kit's object.
fn link_native(kit: &str, writing: Writing<'_>) -> Result<PathBuf> {
    let shared = peers::shared().context("no ../shared (set EVENTPIPE_SHARED)")?;
    let script = shared.join("peers/nativeaot/link.sh");
    let kit_folder = crate::nativeaot::kit(kit)?;
    let own_engine = kit_folder.join("lib/libeventpipe-enabled.a");
    let (archive, engine) = match writing {
        Writing::Ours(library) => (library, "rust"),
        Writing::Theirs => (own_engine.as_path(), "c"),
        Writing::Counting => (own_engine.as_path(), "counting"),
    };
    let program = archive_folder().join(format!("stress-{kit}-{engine}"));
    let newer = |file: &Path| {
        std::fs::metadata(file)
            .and_then(|file| file.modified())
            .ok()
    };
    if newer(&program) > newer(archive) {
        return Ok(program);
    }
    std::fs::create_dir_all(archive_folder()).context("creating a folder under target")?;
    let mut command = Command::new("sh");
    command.arg(&script).arg(&program).arg(archive);
    if let Writing::Counting = writing {
        let source = archive_folder().join("counting.c");
        std::fs::write(&source, include_str!("nativeaot/counting.c"))
            .with_context(|| format!("writing {}", source.display()))?;
        command
            .arg("-Wl,--wrap=EventPipeInternal_WriteEventData")
            .args(["-O2", "-x", "c"])
            .arg(&source)
            .args(["-x", "none"]);
    }
    let output = command
        .env("KIT", &kit_folder)
        .env("APP", kit_folder.join("app/stress.o"))
        .output()
        .with_context(|| format!("starting {}", script.display()))?;
    if !output.status.success() {
        bail!(
            "linking the NativeAOT stress program: {}",
            peers::stderr(&output)
        );
    }
    Ok(program)
}

/// Where linked programs are kept.
fn archive_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab")
}
