//! Trace files as input: opened with errors that name the cause.

use crate::exit_code::{ExitCode, Failure};
use crate::human;
use crate::meanwhile;
use crate::table;
use crate::terminal;
use anyhow::Context as _;
use bytes::Bytes;
use eventpipe_os::mapped_file::MappedFile;
use eventpipe_os::memory;
use nettrace::{Error, ErrorKind, ReadAhead, Reader, ReaderOptions};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Any source of a trace; how much of it was read is counted.
#[derive(Debug)]
pub(crate) enum Source {
    StandardInput(io::Stdin),
    /// With the place up to which what was shown is counted.
    File(MappedFile, u64),
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::StandardInput(input) => input.read(out),
            Source::File(file, _) => file.read(out),
        }
        .inspect(|&length| meanwhile::was_read(length as u64))
    }
}

impl Source {
    /// What of it can be looked at where it lies.
    fn window(&mut self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        match self {
            Source::StandardInput(_) => Ok(None),
            Source::File(file, counted) => {
                meanwhile::was_read(offset.saturating_sub(*counted));
                *counted = offset.max(*counted);
                file.window(offset, length)
            }
        }
    }
}

/// How a file is called in messages, in one line.
pub(crate) fn name_of(path: &Path) -> String {
    table::printable(&path_text(path, "standard input"))
}

/// A path as it is; `standard` where it stands for the standard input or output.
pub(crate) fn path_text(path: &Path, standard: &str) -> String {
    if path.as_os_str() == "-" {
        standard.to_owned()
    } else {
        path.display().to_string()
    }
}

/// Opens a trace and reads its header; `-` is standard input. A large file is looked at where it lies in memory; where that
/// cannot be, and of a pipe, a second thread reads ahead.
pub(crate) fn open(path: &Path, options: ReaderOptions) -> anyhow::Result<Reader<Source>> {
    let name = name_of(path);
    let fail = |cause: &str| Failure::new(ExitCode::Input, format!("{name}: {cause}"));
    let source = if path.as_os_str() == "-" {
        Source::StandardInput(io::stdin())
    } else {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => fail("no such file"),
            _ => fail(&format!("cannot be opened: {error}")),
        })?;
        let metadata = file.metadata().context(fail("cannot be examined"))?;
        if metadata.is_dir() {
            return Err(fail("is a directory, not a trace").into());
        }
        meanwhile::will_be_read(metadata.len());
        Source::File(MappedFile::new(file), 0)
    };
    let options = ReaderOptions {
        prefetch: Some(memory::prefetch),
        ..options
    };
    let opened = Reader::in_place(source, Source::window, options, ReadAhead::default());
    opened.map_err(|error| {
        let cause = match error.kind {
            ErrorKind::HeaderTruncated if error.offset == 0 => "is empty".to_owned(),
            ErrorKind::NotATrace => match packer_of(path) {
                Some(packer) => format!(
                    "is compressed: unpack it first, or pipe it in: {packer} -dc {name} | eventpipe … -"
                ),
                None => error.to_string(),
            },
            _ => error.to_string(),
        };
        fail(&cause).into()
    })
}

/// The program that packed a file, by the file's first bytes.
fn packer_of(path: &Path) -> Option<&'static str> {
    let mut start = [0; 6];
    File::open(path).ok()?.read_exact(&mut start).ok()?;
    match start {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("xz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        _ => None,
    }
}

/// Tells of what stands behind the end of a trace that was read to its end: nothing reads that. Of a pipe only what has come by
/// then is known.
pub(crate) fn tell_of_more<R: Read>(path: &Path, reader: &Reader<R>) {
    if !reader.is_complete() {
        return;
    }
    let behind = match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len().saturating_sub(reader.offset()),
        _ => reader.statistics().trailing_bytes,
    };
    if behind != 0 {
        terminal::note(format_args!(
            "eventpipe: {}: the trace ends at offset {}; {} bytes behind it were not read \
             (several traces in one file? `eventpipe join` makes one of several files)",
            name_of(path),
            reader.offset(),
            human::count(behind)
        ));
    }
}

/// Ends a command that read a trace: an error found on the way becomes exit code 7, after the
/// command printed what came before it.
pub(crate) fn conclude(path: &Path, damage: Option<Error>) -> u8 {
    let Some(error) = damage else {
        return ExitCode::Ok as u8;
    };
    let hint = match error.kind {
        ErrorKind::Truncated | ErrorKind::TruncatedBlock => {
            " (everything before was used; `eventpipe repair` makes a complete file)"
        }
        _ => " (everything before was used)",
    };
    terminal::note(format_args!("eventpipe: {}: {error}{hint}", name_of(path)));
    ExitCode::Damaged as u8
}
