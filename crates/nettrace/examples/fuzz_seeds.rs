//! Writes the seeds of the fuzz targets `nettrace_reader` and `nettrace_metadata`: small traces of every version and
//! descriptions out of them, the same ones each time. Run it when the property tests' generator learns something new,
//! or the writer divides a trace into other blocks:
//!
//! ```text
//! cargo run -p nettrace --example fuzz_seeds fuzz/corpus
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;

use nettrace::{Metadata, WriteFormat};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use support::generate::{Step, info, steps, write};
use support::legacy::{Legacy, legacy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(corpora), None) = (arguments.next(), arguments.next()) else {
        return Err("usage: fuzz_seeds FOLDER, which holds a folder for each target".into());
    };
    let folder = |target: &str| -> std::io::Result<_> {
        let folder = Path::new(&corpora).join(target);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    let (traces, descriptions) = (folder("nettrace_reader")?, folder("nettrace_metadata")?);
    let (payload, stack) = ([7, 0, 0, 0], [0x1000, 0x2000]);
    let events: Vec<_> = (0..4)
        .map(|n| (2000 - n * 7, n as u32 % 2 + 1, &payload[..], &stack[..]))
        .collect();
    for (version, name) in [(Legacy::V1, "v1"), (Legacy::V2, "v2"), (Legacy::V3, "v3")] {
        fs::write(traces.join(name), legacy(version, &events))?;
    }
    let mut runner = TestRunner::deterministic();
    for (format, name) in [(WriteFormat::V4, "v4"), (WriteFormat::V6, "v6")] {
        for number in 0..3 {
            let name = format!("{name}-{number}");
            let steps = loop {
                let tree = steps(format).new_tree(&mut runner);
                let steps = tree.map_err(|reason| reason.to_string())?.current();
                if (10..25).contains(&steps.len()) {
                    break steps;
                }
            };
            let (bytes, _) = write(format, &info(8), 300, &steps);
            fs::write(traces.join(&name), bytes)?;
            for step in &steps {
                if let Step::Define(metadata) = step {
                    fs::write(descriptions.join(&name), description(format, metadata))?;
                }
            }
        }
    }
    Ok(())
}

/// The bytes of a description, out of a trace that has nothing else.
fn description(format: WriteFormat, metadata: &Metadata) -> Vec<u8> {
    let (bytes, _) = write(format, &info(8), 1, &[Step::Define(metadata.clone())]);
    // Behind the headers of the trace and of the block, up to the end tags: near enough for a seed.
    let (start, end) = match format {
        WriteFormat::V4 => (168, 2),
        _ => (150, 4),
    };
    bytes[start.min(bytes.len())..bytes.len() - end].to_vec()
}
