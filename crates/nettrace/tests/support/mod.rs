//! The recorded traces of the shared folder, for the tests that read all of them.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod generate;
pub(crate) mod legacy;
pub(crate) mod property;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A recorded trace.
pub(crate) struct Sample {
    /// Folder and name without extensions: `net10.0/types`.
    pub(crate) name: String,
    /// The file, possibly compressed.
    pub(crate) path: PathBuf,
}

impl Sample {
    /// The trace.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        read(&self.path)
    }

    /// A file of the same name with another extension.
    pub(crate) fn beside(&self, extension: &str) -> PathBuf {
        let stem = self.name.rsplit('/').next().unwrap();
        self.path.with_file_name(format!("{stem}.{extension}"))
    }
}

/// All recorded traces, sorted; `None` where there are none, which fails the test when `CI=true`.
pub(crate) fn samples(test: &str) -> Option<Vec<Sample>> {
    let folder = peers::shared_for_test(test)?.join("samples");
    let mut found = Vec::new();
    collect(&folder, &folder, &mut found);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() > 100, "{} samples", found.len());
    Some(found)
}

/// One of them.
pub(crate) fn sample(test: &str, name: &str) -> Option<Sample> {
    let found = samples(test)?
        .into_iter()
        .find(|sample| sample.name == name);
    assert!(found.is_some(), "no sample {name}");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Sample>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, found);
            continue;
        }
        let relative = path.strip_prefix(root).unwrap().to_str().unwrap();
        let plain = relative.trim_end_matches(".xz").trim_end_matches(".gz");
        if let Some(name) = plain
            .strip_suffix(".nettrace")
            .or(plain.strip_suffix(".netperf"))
        {
            found.push(Sample {
                name: name.to_owned(),
                path,
            });
        }
    }
}

/// A file, unpacked.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("gz") => "gzip",
        _ => return fs::read(path).unwrap(),
    };
    let output = Command::new(program).arg("-dc").arg(path).output();
    let output = output.unwrap_or_else(|error| panic!("{program}, which unpacks samples: {error}"));
    assert!(output.status.success(), "{program} -dc {}", path.display());
    output.stdout
}
