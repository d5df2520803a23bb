//! The sample traces beside the repository.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// All files below `folder`, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the samples can be listed") {
            let path = entry.expect("the samples can be listed").path();
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

/// The trace of this name, compressed or not.
#[allow(dead_code, reason = "not every test looks for traces")]
pub(crate) fn trace(stem: &Path) -> Option<PathBuf> {
    ["nettrace", "nettrace.xz", "netperf", "netperf.xz"]
        .iter()
        .map(|extension| PathBuf::from(format!("{}.{extension}", stem.display())))
        .find(|path| path.exists())
}

/// A file's content, unpacked if its name ends in `.xz`.
pub(crate) fn open(path: &Path) -> Box<dyn Read + Send> {
    let file = BufReader::new(
        File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    );
    if path.extension().is_some_and(|extension| extension == "xz") {
        Box::new(lzma_rust2::XzReader::new(file, true))
    } else {
        Box::new(file)
    }
}

/// All of a file as text.
#[allow(dead_code, reason = "not every test reads texts")]
pub(crate) fn text(path: &Path) -> String {
    let mut text = String::new();
    open(path)
        .read_to_string(&mut text)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text
}

/// Calls `work` for each item on as many threads as there are processors, and returns what it gave in order.
#[allow(dead_code, reason = "not every test has many traces")]
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut results = Vec::new();
                    loop {
                        let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(item) = items.get(index) else {
                            return results;
                        };
                        results.push((index, work(item)));
                    }
                })
            })
            .collect();
        handles
            .into_iter()
            .flat_map(|handle| match handle.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
