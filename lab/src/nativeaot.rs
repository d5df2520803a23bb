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

/// The project file of [`link_project`] for what `lines` say; MSBuild and its like read the targets behind them.
const PROJECT: (&str, &str) = (
    "<Project xmlns=\"http://schemas.microsoft.com/developer/msbuild/2003\">\n",
    "<Import Project=\"project.targets\" />\n</Project>\n",
);

/// Links a program as the build files of .NET do for a project file with these lines, by `xbuild`, Mono's MSBuild. This engine's library and
/// the three objects lie beside the project. Gives the linker's arguments, without what is said of the application.
///
/// # Errors
/// `xbuild` is missing, or as for [`link`].
pub fn link_project(lines: &str, program: &Path, app: App, net: Net) -> Result<Vec<String>> {
    let kit = kit(net.kit())?;
    let folder = std::env::temp_dir().join(format!(
        "lab-project-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&folder)?;
    let result = (|| {
        heap_walk(&kit, &folder)?;
        std::fs::copy(library()?, folder.join("libeventpipe-nativeaot.a"))?;
        let (begin, end) = PROJECT;
        std::fs::write(folder.join("program.proj"), format!("{begin}{lines}{end}"))?;
        std::fs::write(
            folder.join("project.targets"),
            include_str!("nativeaot/project.targets"),
        )?;
        let arguments = folder.join("arguments");
        let libraries = format!("{}/", kit.join("lib").display());
        let mut command = Command::new("xbuild");
        command.args(["/nologo", "/verbosity:quiet", "/target:LinkNative"]);
        for (name, value) in [
            ("IlcSdkPath", libraries.clone()),
            ("IlcFrameworkNativePath", libraries),
            ("NativeObject", kit.join(app.object()).display().to_string()),
            ("NativeBinary", program.display().to_string()),
            (
                "ExportsFile",
                kit.join("app/epapp.exports").display().to_string(),
            ),
            ("LinkerArgFile", arguments.display().to_string()),
        ] {
            command.arg(format!("/property:{name}={value}"));
        }
        succeed(command.arg("program.proj").current_dir(&folder))?;
        let arguments = std::fs::read_to_string(arguments)?;
        Ok(arguments.lines().map(str::to_owned).collect())
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
        "{name}: {}{}",
        peers::stderr(&output),
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(())
}
