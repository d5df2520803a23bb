//! NativeAOT programs with either engine: links them, and runs the stress program on both, interleaved.
//!
//! The applications come from the link kits as objects; only the engine's library differs. With ours, three objects of the runtime's
//! own archive are linked too: they walk the collected heap for heap dumps, and depend on that very runtime (docs/nativeaot.md).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::{Engine, size, stress};

/// An application of the kit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum App {
    /// The stress program.
    Stress,
    /// Events of every kind.
    Epapp,
}

/// The runtime of a kit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Net {
    /// .NET 10.
    #[value(name = "10")]
    Net10,
    /// .NET 11.
    #[value(name = "11")]
    Net11,
}

/// The engine that is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NativeEngine {
    /// The runtime's own.
    C,
    /// This project's.
    Rust,
    /// The runtime's empty one. A program that was compiled with EventSource does not run with it.
    None,
}

/// What `lab nativeaot` is asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Only link the program, to this file.
    #[arg(long, value_name = "OUT")]
    pub link: Option<PathBuf>,
    /// The program that is linked.
    #[arg(long, value_enum, default_value = "stress")]
    pub app: App,
    /// The runtime.
    #[arg(long, value_enum, default_value = "10")]
    pub net: Net,
    /// The engine that is linked.
    #[arg(long, value_enum, default_value = "rust")]
    pub engine: NativeEngine,
    /// How often each engine runs, in turn.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// The options of each run.
    #[command(flatten)]
    pub options: stress::Options,
}

/// The objects of the runtime's own archive that walk the heap.
const HEAP_WALK: [&str; 3] = [
    "eventtrace_gcheap.cpp.o",
    "eventtrace_bulktype.cpp.o",
    "profheapwalkhelper.cpp.o",
];

/// Links, or runs both engines.
///
/// # Errors
/// The kits are missing, binutils or a C compiler are, or a program does not run.
pub fn run(arguments: &Arguments, lab: &Path, out: &mut dyn Write) -> Result<()> {
    if let Some(program) = &arguments.link {
        return link(
            program,
            arguments.app,
            arguments.net,
            arguments.engine,
            true,
        );
    }
    let mut outcomes = Vec::new();
    for _ in 0..arguments.rounds {
        for engine in [Engine::Aot10, Engine::OursAot10] {
            let outcome = stress::run_once(engine, &arguments.options, None, lab)
                .with_context(|| format!("stress on {engine}"))?;
            stress::print_outcome(out, &outcome, outcomes.is_empty())?;
            outcomes.push(outcome);
        }
    }
    stress::print_summary(out, &stress::summarize(&outcomes))?;
    Ok(())
}

/// Links an application of a kit. `heap_walk`: with the objects that make heap dumps possible.
///
/// # Errors
/// The kit, the shared link script, binutils or a C compiler are missing.
pub fn link(
    program: &Path,
    app: App,
    net: Net,
    engine: NativeEngine,
    heap_walk: bool,
) -> Result<()> {
    let shared = peers::shared().context("NativeAOT programs: there is no ../shared")?;
    let script = shared.join("peers/nativeaot/link.sh");
    let kit = kit(net)?;
    let folder = std::env::temp_dir().join(format!(
        "lab-nativeaot-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&folder)?;
    let result = (|| {
        let enabled = kit.join("lib/libeventpipe-enabled.a");
        let mut more = Vec::new();
        let archive = match engine {
            NativeEngine::C => enabled,
            NativeEngine::None => kit.join("lib/libeventpipe-disabled.a"),
            NativeEngine::Rust => {
                if heap_walk {
                    let mut command = Command::new("ar");
                    command.arg("x").arg(&enabled).args(HEAP_WALK);
                    succeed(command.current_dir(&folder))?;
                    more = HEAP_WALK.map(|object| folder.join(object)).to_vec();
                }
                library()?
            }
        };
        let object = match app {
            App::Stress => "app/stress.o",
            App::Epapp => "app/epapp.o",
        };
        succeed(
            Command::new("sh")
                .arg(&script)
                .arg(program)
                .arg(&archive)
                .args(&more)
                .env("KIT", &kit)
                .env("APP", kit.join(object)),
        )
    })();
    drop(std::fs::remove_dir_all(&folder));
    result
}

/// This engine as a static library for NativeAOT, without the tables for unwinding that nothing in it needs.
///
/// # Errors
/// It does not build, or binutils are missing.
pub fn library() -> Result<PathBuf> {
    // One at a time: tests of one program ask for it at once.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let built = size::native_library()?;
    let library = built.with_file_name("libeventpipe-nativeaot.a");
    let partial = built.with_file_name(format!("libeventpipe-nativeaot-{}.a", std::process::id()));
    succeed(
        Command::new("objcopy")
            .args([
                "--remove-section=.eh_frame",
                "--remove-section=.rela.eh_frame",
            ])
            .arg("--remove-section=.gcc_except_table")
            .arg(&built)
            .arg(&partial),
    )?;
    std::fs::rename(&partial, &library).context("placing the library")?;
    Ok(library)
}

fn kit(net: Net) -> Result<PathBuf> {
    let name = match net {
        Net::Net10 => "nativeaot-kit",
        Net::Net11 => "nativeaot-kit-net11",
    };
    let programs = std::env::var_os("PEERS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"),
        PathBuf::from,
    );
    programs
        .join(name)
        .canonicalize()
        .with_context(|| format!("NativeAOT programs: {name} is not among the peers"))
}

fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("starting {name}"))?;
    ensure!(
        output.status.success(),
        "{name}: {}",
        peers::stderr(&output)
    );
    Ok(())
}
