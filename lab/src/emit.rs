//! `lab emit`: a program that writes a known sequence of events with every type of argument, for tests that compare value by value.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};

eventpipe::provider! {
    /// Every type of argument.
    pub mod types = "EventPipeLabTypes";

    /// Integers of all widths.
    #[event(id = 1, keywords = 0x1)]
    fn integers(thread: u32, number: u64, i8: i8, u8: u8, i16: i16, u16: u16, i32: i32, u32: u32, i64: i64, u64: u64);

    /// Floating-point numbers and a truth value.
    #[event(id = 2, keywords = 0x2, level = Verbose)]
    fn reals(thread: u32, number: u64, single: f32, double: f64, truth: bool);

    /// A text.
    #[event(id = 3, keywords = 0x4, level = Warning, opcode = Start)]
    fn text(thread: u32, number: u64, text: &str);

    /// A GUID and bytes.
    #[event(id = 4, keywords = 0x8, version = 2)]
    fn blob(thread: u32, number: u64, guid: eventpipe::Guid, bytes: &[u8]);
}

/// The provider's name.
pub const PROVIDER: &str = "EventPipeLabTypes";

/// What the program does.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Writing threads.
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Events for each thread; 0 = until the process ends.
    #[arg(long, default_value_t = 50_000)]
    count: u64,
    /// End the process so many milliseconds after the start, in the midst of the writing.
    #[arg(long, value_name = "MS")]
    exit_after: Option<u64>,
    /// Return from main at the next line of standard input, the writers still writing.
    #[arg(long)]
    exit_on_line: bool,
    /// Start after a line on standard input.
    #[arg(long)]
    wait: bool,
    /// Print `done` at the end and stay until the next line on standard input.
    #[arg(long)]
    hold: bool,
}

/// The arguments of one event of the sequence.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the events' arguments")]
pub enum Values {
    Integers {
        i8: i8,
        u8: u8,
        i16: i16,
        u16: u16,
        i32: i32,
        u32: u32,
        i64: i64,
        u64: u64,
    },
    Reals {
        single: f32,
        double: f64,
        truth: bool,
    },
    Text(String),
    Blob {
        guid: [u8; 16],
        bytes: Vec<u8>,
    },
}

impl Values {
    /// The event id.
    pub fn event_id(&self) -> u32 {
        match self {
            Values::Integers { .. } => 1,
            Values::Reals { .. } => 2,
            Values::Text(_) => 3,
            Values::Blob { .. } => 4,
        }
    }
}

/// The `number`th event of a thread: known to the program and to whoever checks it.
pub fn values(thread: u32, number: u64) -> Values {
    // A mixing function (of SplitMix64): every bit pattern comes up, and each event has its own.
    let mut mixed = number
        .wrapping_add(u64::from(thread) << 40)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^= mixed >> 27;
    let bytes = mixed.to_le_bytes();
    match number % 4 {
        0 => Values::Integers {
            i8: bytes[0] as i8,
            u8: bytes[1],
            i16: mixed as i16,
            u16: (mixed >> 16) as u16,
            i32: mixed as i32,
            u32: (mixed >> 32) as u32,
            i64: mixed as i64,
            u64: mixed.rotate_left(17),
        },
        1 => Values::Reals {
            // Few enough digits that text and number are the same thing everywhere.
            single: ((mixed >> 40) as i32 - (1 << 23)) as f32 / 256.0,
            double: ((mixed >> 24) as i64 - (1 << 39)) as f64 / 1000.0,
            truth: mixed & 1 == 1,
        },
        2 => Values::Text(
            ["", "plain", "Grüße", "日本語", "x🦀y"][(mixed % 5) as usize]
                .repeat((mixed >> 8) as usize % 20),
        ),
        _ => Values::Blob {
            guid: (u128::from(mixed) << 64 | u128::from(!mixed)).to_le_bytes(),
            bytes: bytes.repeat(1 + (mixed >> 8) as usize % 30)[..(mixed % 9) as usize].to_vec(),
        },
    }
}

impl Values {
    /// The payload as the format lays it out, put together here without the engine: thread, number, then the values.
    pub fn payload(&self, thread: u32, number: u64) -> Vec<u8> {
        let mut out = thread.to_le_bytes().to_vec();
        out.extend(number.to_le_bytes());
        match self {
            Values::Integers {
                i8,
                u8,
                i16,
                u16,
                i32,
                u32,
                i64,
                u64,
            } => {
                out.extend(i8.to_le_bytes());
                out.extend(u8.to_le_bytes());
                out.extend(i16.to_le_bytes());
                out.extend(u16.to_le_bytes());
                out.extend(i32.to_le_bytes());
                out.extend(u32.to_le_bytes());
                out.extend(i64.to_le_bytes());
                out.extend(u64.to_le_bytes());
            }
            Values::Reals {
                single,
                double,
                truth,
            } => {
                out.extend(single.to_le_bytes());
                out.extend(double.to_le_bytes());
                out.extend(i32::from(*truth).to_le_bytes());
            }
            Values::Text(text) => {
                out.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
            }
            Values::Blob { guid, bytes } => {
                out.extend(guid);
                out.extend((bytes.len() as u16).to_le_bytes());
                out.extend(bytes);
            }
        }
        out
    }
}

/// Runs the program. Prints `ready PID`, at the end one JSON line.
///
/// # Errors
/// Standard input or output is gone, a thread cannot be started.
pub fn run(arguments: &Arguments) -> Result<()> {
    eventpipe::start();
    types::PROVIDER.register();
    println!("ready {}", std::process::id());
    std::io::stdout().flush()?;
    let mut lines = std::io::stdin().lock().lines();
    if arguments.wait {
        lines.next().transpose()?;
    }
    let count = match arguments.count {
        0 => u64::MAX,
        count => count,
    };
    let threads: Vec<_> = (0..arguments.threads)
        .map(|thread| {
            std::thread::Builder::new()
                .name(format!("emit-{thread}"))
                .spawn(move || (0..count).for_each(|number| emit(thread, number)))
        })
        .collect::<std::io::Result<_>>()
        .context("starting the writers")?;
    if let Some(ms) = arguments.exit_after {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        return Ok(());
    }
    if arguments.exit_on_line {
        lines.next().transpose()?;
        return Ok(());
    }
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a writer panicked"))?;
    }
    println!(
        "{}",
        serde_json::json!({ "threads": arguments.threads, "count": arguments.count })
    );
    if arguments.hold {
        println!("done");
        lines.next().transpose()?;
    }
    Ok(())
}

fn emit(thread: u32, number: u64) {
    match values(thread, number) {
        Values::Integers {
            i8,
            u8,
            i16,
            u16,
            i32,
            u32,
            i64,
            u64,
        } => types::integers(thread, number, i8, u8, i16, u16, i32, u32, i64, u64),
        Values::Reals {
            single,
            double,
            truth,
        } => types::reals(thread, number, single, double, truth),
        Values::Text(text) => types::text(thread, number, &text),
        Values::Blob { guid, bytes } => {
            types::blob(thread, number, eventpipe::Guid(guid), &bytes);
        }
    }
}
