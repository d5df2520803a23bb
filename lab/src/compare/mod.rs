//! `lab compare`: the same program on every engine that is found, interleaved, read by the same reader, written down as a document.

mod chart;
mod document;
mod machine;
mod matrix;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::bench::Figures;
use crate::floor;
use crate::nativeaot::tables::{self, Tables};
use crate::size::{self, Sizes};
use crate::stress::Outcome;
use machine::Machine;
use matrix::Case;

/// What to compare and where to write it.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Rounds of the main tables.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of writing in each run.
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    pub duration: f64,
    /// The document; pictures and raw figures go into a folder of the same name beside it.
    #[arg(long, value_name = "FILE", default_value = "docs/comparison.md")]
    pub output: PathBuf,
    /// Do not measure: write the document anew from the raw figures of an earlier run.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// With --from: measure sizes and what is inside of NativeAOT programs anew, and keep the rest.
    #[arg(long, requires = "from")]
    pub nativeaot: bool,
    /// Leave out the loss by rate, the large events, the sizes and what is inside of NativeAOT programs.
    #[arg(long)]
    pub brief: bool,
}

/// A whole comparison: what the document is made of.
#[derive(Debug, Serialize, Deserialize)]
struct Comparison {
    machine: Machine,
    rounds: usize,
    duration: f64,
    /// Engines that were not found, and why.
    missing: Vec<String>,
    cases: Vec<Measured>,
    /// What events cost without an engine, round by round.
    #[serde(default)]
    floor: Vec<floor::Run>,
    engine: Option<Figures>,
    sizes: Option<Sizes>,
    #[serde(default)]
    nativeaot: Option<Tables>,
}

/// A case with its runs on each engine, in rounds.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    case: Case,
    runs: Vec<Outcome>,
}

/// Measures (or reads the figures of an earlier run) and writes the document.
///
/// # Errors
/// A run fails, or a file cannot be read or written.
pub fn run(arguments: &Arguments, lab: &Path) -> Result<()> {
    let mut comparison = match &arguments.from {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("reading {}", file.display()))?;
            serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?
        }
        None => matrix::measure(arguments, lab)?,
    };
    if arguments.nativeaot {
        comparison.sizes = Some(size::measure().context("measuring sizes")?);
        comparison.nativeaot = Some(tables::measure(arguments.rounds, arguments.duration, lab)?);
    }
    let folder = arguments.output.with_extension("");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    };
    if arguments.from.is_none() || arguments.nativeaot {
        let raw = serde_json::to_string(&comparison)?;
        write(&folder.join("figures.json"), &raw)?;
    }
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let (text, pictures) = document::compose(&comparison, &name);
    for (file, svg) in pictures {
        write(&folder.join(file), &svg)?;
    }
    write(&arguments.output, &text)?;
    eprintln!("wrote {}", arguments.output.display());
    Ok(())
}
