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

pub mod tables;

/// An application of the kit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum App {
    /// The stress program.
    Stress,
    /// Events of every kind.
    Epapp,
}

impl App {
    /// Its place in a kit.
    fn object(self) -> &'static str {
        match self {
            App::Stress => "app/stress.o",
            App::Epapp => "app/epapp.o",
        }
    }
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

impl Net {
    /// Its kit's name.
    fn kit(self) -> &'static str {
        match self {
            Net::Net10 => "nativeaot-kit",
            Net::Net11 => "nativeaot-kit-net11",
        }
    }
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
    /// Measure what an event costs inside of either engine and what is lost by rate and buffer; prints two tables. Of the options of a run
    /// only --rounds and --duration count.
    #[arg(long, conflicts_with = "link")]
    pub tables: bool,
    /// How often each engine runs, in turn.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// The options of each run.
    #[command(flatten)]
    pub options: stress::Options,
}

/// The objects of the runtime's own archive that walk the heap.
pub(crate) const HEAP_WALK: [&str; 3] = [
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
            Extras::HEAP_WALK,
        );
    }
    if arguments.tables {
        let tables = tables::measure(arguments.rounds, arguments.options.duration, lab)?;
        let mut text = String::new();
        tables.describe(&mut text);
        out.write_all(text.as_bytes())?;
        return Ok(());
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

/// What a link may have beyond what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Extras<'a> {
    /// With this engine: the objects that make heap dumps possible.
    pub heap_walk: bool,
    /// The linker tells here what came from where.
    pub map: Option<&'a Path>,
    /// Objects and libraries of one's own.
    pub objects: &'a [PathBuf],
}

impl Extras<'_> {
    /// With heap dumps.
    pub const HEAP_WALK: Extras<'static> = Extras {
        heap_walk: true,
        map: None,
        objects: &[],
    };
    /// Without.
    pub const NONE: Extras<'static> = Extras {
        heap_walk: false,
        map: None,
        objects: &[],
    };
}

/// Links an application of a kit.
///
/// # Errors
/// The kit, the shared link script, binutils or a C compiler are missing.
pub fn link(
    program: &Path,
    app: App,
    net: Net,
    engine: NativeEngine,
    extras: Extras<'_>,
) -> Result<()> {
    let shared = peers::shared().context("NativeAOT programs: there is no ../shared")?;
    let script = shared.join("peers/nativeaot/link.sh");
    let kit = kit(net.kit())?;
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
                if extras.heap_walk {
                    more = heap_walk(&kit, &folder)?;
                }
                library()?
            }
        };
        let mut command = Command::new("sh");
        command
            .arg(&script)
            .arg(program)
            .arg(&archive)
            .args(&more)
            .args(extras.objects);
        if let Some(map) = extras.map {
            command.arg(format!("-Wl,-Map={}", map.display()));
        }
        succeed(command.env("KIT", &kit).env("APP", kit.join(app.object())))
    })();
    drop(std::fs::remove_dir_all(&folder));
    result
}

/// Links a program with this engine as the build files of .NET would: what a project names as `NativeLibrary` comes first, then all archives
/// of the runtime, its own engine among them, each once and in their order. `map` is where the linker tells what it took from where.
///
/// # Errors
/// As for [`link`].
pub fn link_as_msbuild_does(program: &Path, app: App, net: Net, map: &Path) -> Result<()> {
    let kit = kit(net.kit())?;
    let folder = std::env::temp_dir().join(format!(
        "lab-msbuild-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&folder)?;
    let result = (|| {
        let objects = heap_walk(&kit, &folder)?;
        let mut command = Command::new("cc");
        command.arg(kit.join(app.object())).arg("-o").arg(program);
        command.arg(format!(
            "-Wl,--version-script={}",
            kit.join("app/epapp.exports").display()
        ));
        command.arg("-Wl,--export-dynamic");
        command.arg(library()?).args(objects);
        // Microsoft.NETCore.Native.Unix.targets of the runtime, but for libraries that the programs of the kits do not need.
        for archive in [
            "libSystem.Native.a",
            "libbootstrapper.o",
            "libRuntime.WorkstationGC.a",
            "libeventpipe-enabled.a",
            "libRuntime.VxsortDisabled.a",
            "libstandalonegc-disabled.a",
            "libaotminipal.a",
            "libstdc++compat.a",
        ] {
            command.arg(kit.join("lib").join(archive));
        }
        command.args(
            "-Wl,--build-id=sha1 -Wl,--as-needed -pthread -ldl -lrt -lm -pie -Wl,-pie -Wl,-z,relro -Wl,-z,now \
             -Wl,--eh-frame-hdr -Wl,--discard-all -Wl,--gc-sections"
                .split_ascii_whitespace(),
        );
        succeed(command.arg(format!("-Wl,-Map={}", map.display())))
    })();
    drop(std::fs::remove_dir_all(&folder));
    result
}

/// Takes the objects that walk the heap out of the runtime's own archive.
fn heap_walk(kit: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ar");
    command.arg("x").arg(kit.join("lib/libeventpipe-enabled.a"));
    succeed(command.args(HEAP_WALK).current_dir(folder))?;
    Ok(HEAP_WALK.map(|object| folder.join(object)).to_vec())
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
            // The compiler's own, for systems without a library of mathematics: the runtime has a faster one.
            .arg("--localize-symbol=ceil")
            .arg(&built)
            .arg(&partial),
    )?;
    std::fs::rename(&partial, &library).context("placing the library")?;
    Ok(library)
}

/// The folder of a link kit, unpacked if it was not yet.
pub(crate) fn kit(name: &str) -> Result<PathBuf> {
    static UNPACKING: Mutex<()> = Mutex::new(());
    let _unpacking = UNPACKING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let programs = std::env::var_os("PEERS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"),
        PathBuf::from,
    );
    let folder = programs.join(name);
    if !folder.is_dir()
        && let Some(shared) = peers::shared()
    {
        let script = shared.join("peers/unpack.sh");
        succeed(Command::new("sh").arg(&script).arg(&programs))?;
    }
    folder
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
