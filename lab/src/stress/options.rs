//! What a run of the stress program can be asked for.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::ReaderMode;

/// The options of one run, whatever the engine.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Options {
    /// Writing threads [default: as many as --cores, else one per processor].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seconds to write, when no --count is given.
    #[arg(long, alias = "seconds", value_name = "S", default_value_t = 3.0)]
    pub duration: f64,
    /// Events for each thread instead of a time.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Characters of the text or bytes in each event.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub event_size: usize,
    /// The event.
    #[arg(long, value_enum, default_value_t = Kind::Text)]
    pub kind: Kind,
    /// Events a second and thread; 0 = without a pause.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub rate: f64,
    /// The rhythm.
    #[arg(long, value_enum, default_value_t = Pattern::None)]
    pub pattern: Pattern,
    /// The session's buffer.
    #[arg(long, value_name = "MB", default_value_t = 256)]
    pub buffer_mb: u32,
    /// How the stream is read.
    #[arg(long, value_enum, default_value_t = ReaderMode::Parse)]
    pub reader: ReaderMode,
    /// MB a second that the slow reader takes.
    #[arg(long, value_name = "MB", default_value_t = 10.0)]
    pub slow_rate: f64,
    /// Seconds in which the stalled reader takes nothing [default: half of --duration].
    #[arg(long, value_name = "S")]
    pub stall: Option<f64>,
    /// Framing of the stream.
    #[arg(long, value_enum, default_value_t = StreamFormat::Nettrace)]
    pub format: StreamFormat,
    /// A rundown at the end.
    #[arg(long)]
    pub rundown: bool,
    /// Stacks with the events.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub stacks: OnOff,
    /// What becomes of events when the buffer is full: dropped, or their writers wait (.NET 11 and this project).
    #[arg(long, value_enum, default_value_t = Full::Drop)]
    pub buffering: Full,
    /// Where the file of --reader file is written [default: the folder for temporary files].
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Keep the file of --reader file, under this name.
    #[arg(long, value_name = "FILE")]
    pub keep: Option<PathBuf>,
}

impl Default for Options {
    /// What `lab stress` does without options.
    fn default() -> Options {
        Options {
            threads: None,
            duration: 3.0,
            count: None,
            event_size: 100,
            kind: Kind::Text,
            rate: 0.0,
            pattern: Pattern::None,
            buffer_mb: 256,
            reader: ReaderMode::Parse,
            slow_rate: 10.0,
            stall: None,
            format: StreamFormat::Nettrace,
            rundown: false,
            stacks: OnOff::On,
            buffering: Full::Drop,
            folder: None,
            keep: None,
        }
    }
}

/// The event that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Text(string).
    Text,
    /// Number(i64).
    Number,
    /// Bytes(byte array).
    Bytes,
    /// Sequenced(i32 thread, i64 number, string): the reader checks the order.
    Sequenced,
}

/// The rhythm in which a thread writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Without a pause (with --rate: one event each period).
    None,
    /// One event each period.
    Drip,
    /// A second's worth at once.
    Bolus,
    /// A tenth of a second's worth at a time.
    HeavyDrip,
}

/// Framing of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamFormat {
    /// Version 3 of the format.
    Netperf,
    /// Version 4 and later.
    Nettrace,
}

/// What happens when the buffer is full.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Full {
    /// Events are lost.
    #[default]
    Drop,
    /// Writers wait.
    Block,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum OnOff {
    On,
    Off,
}

/// The word on the command line.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
