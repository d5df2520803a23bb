//! The recorder: a session's stream into a file, byte for byte, counted on the way.
//!
//! The bytes go to the file first and to the counting reader second, so nothing that the counting
//! does can change or delay what is recorded by more than one read. A file that can take no more
//! (full disk) does not end the draining: the target answers the request to stop only while its
//! stream is read.
//!
//! A recording is readable at any length. One that was cut off inside a block is brought to its last
//! complete block and given its end tag by [`close_cut`], so that readers which refuse unfinished
//! files take it too.

use crate::filter::Conditions;
use crate::human;
use crate::terminal::note;
use nettrace::pattern;
use nettrace::runtime_events::TypeNames;
use nettrace::{Error, ErrorKind, Event, FormatVersion, Reader};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Figures of a recording under way; written by the recorder, read by the live line.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes received.
    pub(crate) bytes: AtomicU64,
    /// Events in them.
    pub(crate) events: AtomicU64,
    /// Events lost so far, as far as the stream tells.
    pub(crate) lost: AtomicU64,
    /// The file could not take the bytes.
    pub(crate) write_failed: AtomicBool,
}

/// How a recording ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Bytes received.
    pub(crate) bytes: u64,
    /// Bytes of the beginning of the file that are whole blocks; `None` if that is not known.
    pub(crate) complete_bytes: Option<u64>,
    /// Version of the format, once the header was there.
    pub(crate) format: Option<FormatVersion>,
    /// The figures at the end.
    pub(crate) events: u64,
    /// Events lost, and whether there may be more.
    pub(crate) lost: u64,
    /// Whether more may be lost than the stream can tell.
    pub(crate) lost_at_least: bool,
    /// How the stream ended.
    pub(crate) end: StreamEnd,
    /// Why the file could not be written further.
    pub(crate) write_error: Option<io::Error>,
    /// Providers of which events came.
    pub(crate) providers: BTreeSet<String>,
    /// `--roll`: the files.
    pub(crate) pieces: Option<RolledFiles>,
    /// The event that was to end the recording, if it never came, and what came instead.
    pub(crate) missed: Option<String>,
}

/// What became of the files of `--roll`.
#[derive(Debug)]
pub(crate) struct RolledFiles {
    /// How many were made.
    pub(crate) made: u64,
    /// How many there still are, each complete.
    pub(crate) kept: u64,
    /// The one that took no more, and its name if it could not be completed.
    pub(crate) failed: Option<(PathBuf, Option<PathBuf>)>,
}

/// The event that ends a recording.
pub(crate) struct StopWhen {
    /// Its provider.
    provider: String,
    /// Its name; any event of the provider if there is none.
    event: Option<String>,
    /// Fields and their values.
    fields: Vec<(String, String)>,
    conditions: Conditions,
    /// Called once.
    pub(crate) stop: Option<Box<dyn FnOnce() + Send>>,
    /// Whether it was said that the event does not have the field.
    has_warned: bool,
    /// Events of this provider and name, whatever their fields.
    alike: u64,
    /// Names of other events of the provider, some.
    others: BTreeSet<String>,
}

/// So many names of events are shown in place of one that never came.
const SHOWN: usize = 5;

impl StopWhen {
    /// What the options ask for.
    pub(crate) fn new(
        provider: &str,
        event: Option<&str>,
        fields: &[(String, String)],
    ) -> StopWhen {
        StopWhen {
            provider: provider.to_owned(),
            event: event.map(str::to_owned),
            fields: fields.to_vec(),
            conditions: Conditions::new(fields),
            stop: None,
            has_warned: false,
            alike: 0,
            others: BTreeSet::new(),
        }
    }

    /// The event in words, and what came instead, if it has not come.
    pub(crate) fn missed(&self) -> Option<String> {
        self.stop.as_ref()?;
        let mut called = self.provider.clone();
        if let Some(event) = &self.event {
            called = format!("{called}/{event}");
        }
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(field, value)| format!("{field}:{value}"))
            .collect();
        if !fields.is_empty() {
            called = format!("{called} with {}", fields.join(","));
        }
        let instead = if self.alike > 0 {
            let count = human::number_of(self.alike, "event");
            format!("{count} of this name came with other values")
        } else if self.others.is_empty() {
            "nothing came from this provider".to_owned()
        } else {
            let mut names: Vec<&str> = self.others.iter().map(String::as_str).collect();
            if names.len() > SHOWN {
                names.truncate(SHOWN);
                names.push("…");
            }
            format!("its provider wrote {}", names.join(", "))
        };
        Some(format!("{called} ({instead})"))
    }

    /// Looks at an event.
    pub(crate) fn see(&mut self, event: &Event<'_>) {
        if self.stop.is_none() || !pattern::matches(&self.provider, &event.metadata().provider) {
            return;
        }
        let schema = event.schema();
        let is_named = self.event.as_ref().is_none_or(|name| {
            pattern::matches(name, schema.event_name())
                || pattern::matches(name, &event.metadata().name)
        });
        if !is_named {
            let name = schema.event_name();
            if self.others.len() <= SHOWN && !self.others.contains(name) {
                self.others.insert(name.to_owned());
            }
            return;
        }
        self.alike += 1;
        if !self.has_fields(event) {
            return;
        }
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }

    fn has_fields(&mut self, event: &Event<'_>) -> bool {
        let holds = self.conditions.hold(event, &TypeNames::default());
        if let (false, Some(absent)) = (self.has_warned, self.conditions.absent()) {
            self.has_warned = true;
            note(format_args!("eventpipe: the stopping event: {absent}"));
        }
        holds
    }
}

impl std::fmt::Debug for StopWhen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StopWhen")
            .field("provider", &self.provider)
            .field("event", &self.event)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// With its end tag.
    Complete,
    /// Without: the connection closed.
    Cut,
    /// The counting reader could not follow; everything was recorded all the same.
    NotUnderstood(Error),
}

/// Events between two updates of the shared figures.
pub(crate) const UPDATE_EVERY: u64 = 256;

/// Records a stream until it ends.
pub(crate) fn record<R: Read, W: Write>(
    stream: R,
    file: W,
    progress: &Progress,
    stop_when: Option<&mut StopWhen>,
) -> Outcome {
    let mut tee = Tee {
        stream,
        file,
        progress,
        bytes: 0,
        written: 0,
        write_error: None,
    };
    let mut outcome = count(&mut tee, progress, stop_when);
    // Whatever stands behind the end tag, or was not understood, is recorded too.
    let mut buffer = vec![0; 256 * 1024];
    while !matches!(tee.read(&mut buffer), Ok(0) | Err(_)) {}
    if tee.write_error.is_none() {
        tee.write_error = tee.file.flush().err();
    }
    outcome.bytes = tee.bytes;
    if tee.written < tee.bytes {
        // What the file holds is less than what was counted.
        outcome.complete_bytes = None;
    }
    outcome.write_error = tee.write_error;
    outcome
}

/// An outcome without anything yet.
pub(crate) fn empty() -> Outcome {
    Outcome {
        bytes: 0,
        complete_bytes: None,
        format: None,
        events: 0,
        lost: 0,
        lost_at_least: false,
        end: StreamEnd::Cut,
        write_error: None,
        providers: BTreeSet::new(),
        pieces: None,
        missed: None,
    }
}

fn count<R: Read, W: Write>(
    tee: &mut Tee<'_, R, W>,
    progress: &Progress,
    mut stop_when: Option<&mut StopWhen>,
) -> Outcome {
    let mut outcome = empty();
    let mut reader = match Reader::new(tee) {
        Ok(reader) => reader,
        Err(error) => {
            outcome.end = end_of(error);
            return outcome;
        }
    };
    // Whole blocks seen, and the events in them.
    let (mut complete_bytes, mut complete_events) = (reader.complete_length(), 0);
    outcome.end = loop {
        match reader.next_event() {
            Ok(Some(event)) => {
                if let Some(stop_when) = &mut stop_when {
                    stop_when.see(&event);
                }
                if reader.complete_length() != complete_bytes {
                    (complete_bytes, complete_events) = (reader.complete_length(), outcome.events);
                }
                outcome.events += 1;
                if outcome.events.is_multiple_of(UPDATE_EVERY) {
                    publish(progress, outcome.events, reader.losses().total());
                }
            }
            Ok(None) => break StreamEnd::Complete,
            Err(error) => break end_of(error),
        }
    };
    let losses = reader.losses();
    outcome.lost = losses.total();
    outcome.lost_at_least = losses.is_lower_bound;
    outcome.format = Some(reader.info().format);
    outcome.providers = providers(&reader);
    if outcome.end == StreamEnd::Cut {
        outcome.complete_bytes = Some(reader.complete_length());
        // The events of an unfinished block are not kept.
        outcome.events = if reader.complete_length() == complete_bytes {
            complete_events
        } else {
            outcome.events
        };
    }
    publish(progress, outcome.events, outcome.lost);
    outcome
}

/// Whose events are described so far; a description comes with the first event of its kind. The version of the format
/// that can forget descriptions is in no stream that a process sends.
pub(crate) fn providers<R: Read>(reader: &Reader<R>) -> BTreeSet<String> {
    let described = reader.all_metadata().iter();
    described
        .map(|metadata| metadata.provider.clone())
        .collect()
}

pub(crate) fn publish(progress: &Progress, events: u64, lost: u64) {
    progress.events.store(events, Ordering::Relaxed);
    progress.lost.store(lost, Ordering::Relaxed);
}

pub(crate) fn end_of(error: Error) -> StreamEnd {
    match error.kind {
        ErrorKind::Source(_)
        | ErrorKind::HeaderTruncated
        | ErrorKind::Truncated
        | ErrorKind::TruncatedBlock => StreamEnd::Cut,
        _ => StreamEnd::NotUnderstood(error),
    }
}

/// Brings a cut-off recording to its last complete block and ends it properly. Only for regular
/// files; the length comes from [`nettrace::Reader::complete_length`].
///
/// # Errors
/// If the file cannot be changed; it stays readable up to its last complete block then.
pub(crate) fn close_cut(file: &mut File, format: FormatVersion, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length))?;
    // The end: a null tag, or in V6 a block of size 0 and kind 0 (nettrace.md sections 2 and 6).
    let end: &[u8] = if format == FormatVersion::V6 {
        &[0; 4]
    } else {
        &[1]
    };
    file.write_all(end)
}

/// Passes a stream on and writes it to a file.
struct Tee<'a, R, W> {
    stream: R,
    file: W,
    progress: &'a Progress,
    bytes: u64,
    written: u64,
    write_error: Option<io::Error>,
}

impl<R: Read, W: Write> Read for Tee<'_, R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        let received = buffer.get(..length).unwrap_or_default();
        self.bytes += length as u64;
        if self.write_error.is_none() {
            match self.file.write_all(received) {
                Ok(()) => self.written += length as u64,
                Err(error) => {
                    self.write_error = Some(error);
                    self.progress.write_failed.store(true, Ordering::Release);
                }
            }
        }
        self.progress.bytes.store(self.bytes, Ordering::Relaxed);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nettrace::{
        EventRecord, Guid, Metadata, TraceInfo, TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
    };

    /// Three blocks of two events each, and where the first begins.
    fn stream(format: WriteFormat) -> (Vec<u8>, usize) {
        let info = TraceInfo {
            format: FormatVersion::V4,
            start: nettrace::SystemTime::default(),
            sync_ticks: 0,
            ticks_per_second: 1_000_000_000,
            pointer_size: 8,
            process_id: Some(7),
            processor_count: Some(1),
            sampling_period_ns: None,
            pairs: Vec::new(),
        };
        let mut writer = TraceWriter::new(format, &info);
        let header = writer.output().len();
        let metadata = Metadata {
            id: 1,
            provider: "P".into(),
            event_id: 1,
            name: "E".into(),
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
        for number in 1..=6 {
            let record = EventRecord {
                metadata_id: 1,
                sequence_number: number,
                thread_id: 5,
                capture_thread_id: 5,
                processor_number: UNKNOWN_PROCESSOR,
                stack_id: 0,
                timestamp: u64::from(number),
                activity_id: Guid::default(),
                related_activity_id: Guid::default(),
                is_sorted: false,
                label_list: 0,
                payload: &[],
            };
            writer.event(&record).unwrap();
            if number % 2 == 0 {
                writer.flush();
            }
        }
        writer.finish();
        (std::mem::take(writer.output()), header)
    }

    fn recorded(stream: &[u8], file: impl Write) -> Outcome {
        record(stream, file, &Progress::default(), None)
    }

    #[test]
    fn a_stream_that_breaks_off_anywhere_becomes_a_complete_trace_of_its_whole_blocks() {
        let path = std::env::temp_dir().join(format!("eventpipe-cut-{}", std::process::id()));
        for format in [WriteFormat::V4, WriteFormat::V6] {
            let (bytes, header) = stream(format);
            let mut numbers = BTreeSet::new();
            for cut in 0..bytes.len() {
                let mut file = File::create(&path).unwrap();
                let outcome = recorded(&bytes[..cut], &mut file);
                assert_eq!(outcome.end, StreamEnd::Cut, "at {cut}");
                assert_eq!((outcome.bytes, outcome.lost), (cut as u64, 0));
                let Some(length) = outcome.complete_bytes else {
                    assert!(cut < header, "at {cut}: nothing is whole");
                    continue;
                };
                close_cut(&mut file, outcome.format.unwrap(), length).unwrap();
                let kept = std::fs::read(&path).unwrap();
                let again = recorded(&kept[..], io::sink());
                assert_eq!(again.end, StreamEnd::Complete, "at {cut}");
                assert_eq!(again.bytes, kept.len() as u64);
                assert_eq!(again.events, outcome.events, "at {cut}");
                numbers.insert(again.events);
            }
            assert_eq!(numbers, BTreeSet::from([0, 2, 4, 6]), "{format:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_trace_did_not_break_off() {
        let outcome = recorded(b"HTTP/1.1 400 Bad Request, and more of it", io::sink());
        assert!(matches!(outcome.end, StreamEnd::NotUnderstood(_)));
    }

    #[test]
    fn a_file_that_took_no_more_is_not_said_to_hold_what_was_counted() {
        /// Takes so many bytes.
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match self.0.min(bytes.len()) {
                    0 => Err(io::ErrorKind::StorageFull.into()),
                    taken => {
                        self.0 -= taken;
                        Ok(taken)
                    }
                }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (bytes, _) = stream(WriteFormat::V4);
        let cut = &bytes[..bytes.len() - 1];
        let outcome = recorded(cut, Full(cut.len() - 1));
        assert!(outcome.write_error.is_some() && outcome.complete_bytes.is_none());
        assert_eq!(outcome.bytes, cut.len() as u64);
        let outcome = recorded(cut, Full(cut.len()));
        assert!(outcome.write_error.is_none() && outcome.complete_bytes.is_some());
    }
}
