//! The committed fuzz corpora of the reader and of descriptions, each file as it is and changed at each of its first
//! bytes. `cargo +nightly fuzz run nettrace_reader` and `nettrace_metadata` look further.

mod support;

use std::path::{Path, PathBuf};

use nettrace::{Metadata, WriteFormat};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use support::generate::{info, steps, write};
use support::legacy::{Legacy, legacy};
use support::property::{metadata_holds, reader_holds};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target)
}

fn replay(target: &str, holds: fn(&[u8])) {
    let mut files = 0;
    for entry in std::fs::read_dir(corpus(target)).unwrap() {
        let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
        holds(&bytes);
        for place in 0..bytes.len().min(400) {
            let before = bytes[place];
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                bytes[place] = value;
                holds(&bytes);
            }
            bytes[place] = before;
        }
        files += 1;
    }
    assert!(files >= 4, "{files} files");
}

#[test]
fn the_corpus_of_the_reader() {
    replay("nettrace_reader", reader_holds);
}

#[test]
fn the_corpus_of_descriptions() {
    replay("nettrace_metadata", metadata_holds);
}

/// Makes the seeds anew: `cargo test -p nettrace --test the_fuzz_corpus_finds_nothing -- --ignored`.
#[test]
#[ignore = "writes files of the repository"]
fn seeds_are_written() {
    let stack = [0x1000, 0x2000];
    let events: Vec<_> = (0..4)
        .map(|n| {
            (
                2000 - n * 7,
                n as u32 % 2 + 1,
                &[7, 0, 0, 0][..],
                &stack[..],
            )
        })
        .collect();
    for (version, name) in [(Legacy::V1, "v1"), (Legacy::V2, "v2"), (Legacy::V3, "v3")] {
        std::fs::write(
            corpus("nettrace_reader").join(name),
            legacy(version, &events),
        )
        .unwrap();
    }
    let mut runner = TestRunner::deterministic();
    for (format, name) in [(WriteFormat::V4, "v4"), (WriteFormat::V6, "v6")] {
        for number in 0..3 {
            let steps = loop {
                let steps = steps(format).new_tree(&mut runner).unwrap().current();
                if (10..25).contains(&steps.len()) {
                    break steps;
                }
            };
            let (bytes, _) = write(format, &info(8), 300, &steps);
            std::fs::write(
                corpus("nettrace_reader").join(format!("{name}-{number}")),
                bytes,
            )
            .unwrap();
            for step in &steps {
                if let support::generate::Step::Define(metadata) = step {
                    let bytes = description(format, metadata);
                    std::fs::write(
                        corpus("nettrace_metadata").join(format!("{name}-{number}")),
                        bytes,
                    )
                    .unwrap();
                }
            }
        }
    }
}

/// The bytes of a description, out of a trace that has nothing else.
fn description(format: WriteFormat, metadata: &Metadata) -> Vec<u8> {
    let (bytes, _) = write(
        format,
        &info(8),
        1,
        &[support::generate::Step::Define(metadata.clone())],
    );
    // Behind the headers of the trace and of the block, up to the end tags: near enough for a seed.
    let (start, end) = if format == WriteFormat::V4 {
        (168, 2)
    } else {
        (150, 4)
    };
    bytes[start.min(bytes.len())..bytes.len() - end].to_vec()
}
