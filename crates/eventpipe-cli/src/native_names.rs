//! Names of native functions, from the files of the modules that a trace tells of.

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use nettrace_analysis::stacks::{CodeNames, Samples};
use std::collections::BTreeMap;
use std::path::Path;

/// Puts in what the files on this machine know of the frames of a trace. A file counts if it has the build id that ran.
pub(crate) fn look_up(samples: &Samples, names: &mut CodeNames) {
    let mut wanted: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for frame in samples.tree().all_frames() {
        if let Some((module, offset)) = names.native(frame) {
            let file = (module.path.clone(), module.build_id.clone());
            wanted.entry(file).or_default().push(offset);
        }
    }
    let symbolizer = Symbolizer::new();
    let mut found: BTreeMap<(String, u64), String> = BTreeMap::new();
    for ((path, build_id), offsets) in wanted {
        if build_id.is_empty() || !has_build_id(&path, &build_id) {
            continue;
        }
        let mut elf = Elf::new(&path);
        // The names of debugging information lack the path of a Rust function.
        elf.debug_syms = false;
        let source = Source::Elf(elf);
        let Ok(symbols) = symbolizer.symbolize(&source, Input::FileOffset(&offsets)) else {
            continue;
        };
        for (offset, symbol) in offsets.into_iter().zip(symbols) {
            if let Symbolized::Sym(symbol) = symbol {
                found.insert((path.clone(), offset), symbol.name.into_owned());
            }
        }
    }
    for frame in samples.tree().all_frames() {
        if let Some((module, offset)) = names.native(frame)
            && let Some(name) = found.get(&(module.path.clone(), offset))
        {
            module.functions.insert(offset, name.clone());
        }
    }
}

fn has_build_id(path: &str, expected: &str) -> bool {
    // A device or a pipe would be waited for.
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    let found = is_file.then(|| read_elf_build_id(Path::new(path)));
    let hexadecimal = |id: &[u8]| {
        id.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    matches!(found, Some(Ok(Some(id))) if hexadecimal(&id) == expected)
}
