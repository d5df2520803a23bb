//! The committed fuzz corpora of the reader and of descriptions, each file as it is and changed at each of its first
//! bytes. `cargo +nightly fuzz run nettrace_reader` and `nettrace_metadata` look further. The seeds among them are made by
//! `cargo run -p nettrace --example fuzz_seeds fuzz/corpus`.

mod support;

use std::path::{Path, PathBuf};

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
