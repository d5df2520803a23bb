//! `collect --roll`: a stream into files that are complete in themselves, of which the newest are kept.
//!
//! The file at hand has `.part` at the end of its name until it is complete, so that what bears a final name can be
//! read even if the tool is killed. The stream is decoded and written anew (`nettrace::rewrite::Pieces`): every file
//! has its own header and descriptions, and no event is missing between neighbours.

use crate::exit_code::Failure;
use crate::output::{cannot_write, check, check_beside, with_infix};
use crate::recording::{
    self, Outcome, Progress, RolledFiles, StopWhen, StreamEnd, UPDATE_EVERY, empty, end_of, publish,
};
use nettrace::rewrite::Pieces;
use nettrace::{FormatVersion, Item, Reader, WriteFormat};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Bytes gathered before they are written.
const CHUNK: usize = 64 << 10;

/// The files of a recording.
#[derive(Debug)]
pub(crate) struct Rolling {
    /// The path that was asked for; a number goes in front of its extension.
    path: PathBuf,
    limit: u64,
    keep: Option<usize>,
    force: bool,
    made: u64,
    complete: VecDeque<PathBuf>,
    /// The file at hand and its final name.
    current: Option<(File, PathBuf)>,
    written: u64,
    /// What was worked at last, for messages.
    at: PathBuf,
}

impl Rolling {
    /// Begins with the first file. `limit` is the size of a file in bytes, `keep` how many stay.
    pub(crate) fn create(
        path: &Path,
        limit: u64,
        keep: Option<usize>,
        force: bool,
    ) -> Result<Rolling, Failure> {
        let mut rolling = Rolling {
            path: path.to_owned(),
            limit,
            keep,
            force,
            made: 0,
            complete: VecDeque::new(),
            current: None,
            written: 0,
            at: PathBuf::new(),
        };
        check_beside(path)?;
        let first = rolling.first();
        check(&first, force)?;
        rolling
            .begin()
            .map_err(|error| cannot_write(&first, error))?;
        Ok(rolling)
    }

    /// The name that the first file gets.
    pub(crate) fn first(&self) -> PathBuf {
        self.numbered(1)
    }

    fn numbered(&self, number: u64) -> PathBuf {
        with_infix(&self.path, &format!("{number:04}"), None)
    }

    fn begin(&mut self) -> io::Result<()> {
        let path = self.numbered(self.made + 1);
        self.at.clone_from(&path);
        if path.exists() && !self.force {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // An unfinished one of an earlier recording has no owner any more.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(part(&path))?;
        self.current = Some((file, path));
        self.written = 0;
        self.made += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if let Some((file, _)) = &mut self.current {
            file.write_all(bytes)?;
            self.written += bytes.len() as u64;
        }
        bytes.clear();
        Ok(())
    }

    /// Gives the file at hand its final name, and removes the oldest beyond those to keep.
    fn complete(&mut self, mut rest: Vec<u8>) -> io::Result<()> {
        self.write(&mut rest)?;
        match self.current.take() {
            Some((_, path)) => self.name(path),
            None => Ok(()),
        }
    }

    fn name(&mut self, path: PathBuf) -> io::Result<()> {
        std::fs::rename(part(&path), &path)?;
        self.complete.push_back(path);
        while self.keep.is_some_and(|keep| self.complete.len() > keep) {
            if let Some(oldest) = self.complete.pop_front() {
                self.at.clone_from(&oldest);
                std::fs::remove_file(oldest)?;
            }
        }
        Ok(())
    }

    /// A file that takes no more is brought to its last complete block and gets its final name, or goes where it has not
    /// even a header. Where that cannot be done either, it stays as it is: gives its name then.
    fn complete_what_is_there(&mut self) -> Option<PathBuf> {
        let (mut file, path) = self.current.take()?;
        let part = part(&path);
        let Ok(again) = File::open(&part) else {
            return Some(part);
        };
        let reread = recording::record(again, io::sink(), &Progress::default(), None);
        let done = match (reread.format, reread.complete_bytes) {
            (Some(format), Some(length)) => {
                recording::close_cut(&mut file, format, length).and_then(|()| self.name(path))
            }
            _ => std::fs::remove_file(&part),
        };
        done.is_err().then_some(part)
    }

    /// Removes the first file again, because nothing was recorded.
    pub(crate) fn discard(mut self) {
        self.remove_current();
    }

    fn remove_current(&mut self) {
        if let Some((_, path)) = self.current.take() {
            let _ = std::fs::remove_file(part(&path));
        }
    }
}

/// The name of a file that is not complete.
fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Records a stream until it ends.
pub(crate) fn record<R: Read>(
    stream: R,
    mut rolling: Rolling,
    progress: &Progress,
    stop_when: Option<&mut StopWhen>,
) -> Outcome {
    let mut counted = Counted {
        stream,
        progress,
        bytes: 0,
    };
    let mut outcome = empty();
    let mut failed = None;
    match Reader::new(&mut counted) {
        Ok(mut reader) => {
            let result = pieces(&mut reader, &mut rolling, progress, stop_when, &mut outcome);
            if let Err(error) = result {
                outcome.write_error = Some(error);
                progress.write_failed.store(true, Ordering::Release);
                failed = Some((rolling.at.clone(), rolling.complete_what_is_there()));
                // What was lost stands in the rest of the stream.
                count_the_rest(&mut reader, progress, &mut outcome);
            }
            outcome.lost = reader.losses().total();
            outcome.lost_at_least = reader.losses().is_lower_bound;
            outcome.format = Some(reader.info().format);
            outcome.providers = recording::providers(&reader);
        }
        Err(error) => outcome.end = end_of(error),
    }
    if failed.is_none() && rolling.written == 0 {
        rolling.remove_current();
    }
    // The target answers the request to stop only while its stream is read.
    let mut buffer = vec![0; 256 * 1024];
    while !matches!(counted.read(&mut buffer), Ok(0) | Err(_)) {}
    outcome.bytes = counted.bytes;
    outcome.pieces = Some(RolledFiles {
        made: rolling.made,
        kept: rolling.complete.len() as u64,
        failed,
    });
    publish(progress, outcome.events, outcome.lost);
    outcome
}

fn pieces<R: Read>(
    reader: &mut Reader<R>,
    rolling: &mut Rolling,
    progress: &Progress,
    mut stop_when: Option<&mut StopWhen>,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let format = match reader.info().format {
        FormatVersion::V6 => WriteFormat::V6,
        _ => WriteFormat::V4,
    };
    let mut pieces = Pieces::new(reader.info(), format);
    // The file says from the start what it is, also while nothing happens.
    rolling.write(pieces.output())?;
    // Events in the piece at hand: a piece is not cut before it has one.
    let mut has_events = false;
    outcome.end = loop {
        let at_point = match reader.next_item() {
            Ok(Some(item)) => {
                pieces.item(&item).map_err(io::Error::other)?;
                if let Item::Event(event) = &item {
                    has_events = true;
                    outcome.events += 1;
                    if let Some(stop_when) = &mut stop_when {
                        stop_when.see(event);
                    }
                }
                matches!(item, Item::SequencePoint(_))
            }
            Ok(None) => break StreamEnd::Complete,
            Err(error) => break end_of(error),
        };
        if outcome.events.is_multiple_of(UPDATE_EVERY) {
            publish(progress, outcome.events, reader.losses().total());
        }
        let pending = pieces.output().len();
        if pending >= CHUNK {
            rolling.write(pieces.output())?;
        }
        // Best where everything before is older than everything behind, but nowhere beyond the limit.
        let limit = if at_point {
            rolling.limit / 4 * 3
        } else {
            rolling.limit
        };
        if has_events && rolling.written + pending as u64 >= limit {
            rolling.write(pieces.output())?;
            let (rest, _) = pieces.cut(|index| reader.thread(index).cloned());
            rolling.complete(rest)?;
            rolling.begin()?;
            has_events = false;
        }
    };
    let mut pieces = pieces;
    rolling.write(pieces.output())?;
    let (rest, _) = pieces.finish();
    rolling.complete(rest)
}

/// Reads a stream to its end without writing it.
fn count_the_rest<R: Read>(reader: &mut Reader<R>, progress: &Progress, outcome: &mut Outcome) {
    outcome.end = loop {
        match reader.next_event() {
            Ok(Some(_)) => outcome.events += 1,
            Ok(None) => break StreamEnd::Complete,
            Err(error) => break end_of(error),
        }
        if outcome.events.is_multiple_of(UPDATE_EVERY) {
            publish(progress, outcome.events, reader.losses().total());
        }
    };
}

/// Counts what a stream gives.
struct Counted<'a, R> {
    stream: R,
    progress: &'a Progress,
    bytes: u64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.bytes += length as u64;
        self.progress.bytes.store(self.bytes, Ordering::Relaxed);
        Ok(length)
    }
}
