//! Rewriting: every recorded trace goes from its format to V4, to V6 and back to V4, and is the same trace; parts of
//! a trace are the same parts; and a trace that was cut in pieces is whole again when they are joined.

mod support;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use nettrace::rewrite::{Filter, Pieces, RewriteOptions, RewriteReport, join, rewrite};
use nettrace::{
    Event, EventRecord, FormatVersion, Item, Metadata, Reader, ThreadRow, TraceWriter, WriteFormat,
};
use support::{Sample, samples};

/// What makes a trace, without the names that a format gives to threads and descriptions.
#[derive(Debug, PartialEq)]
struct Essence {
    events: Vec<(i64, String)>,
    /// Delivered and lost, by thread number of the system.
    losses: BTreeMap<(u64, u64), (u64, u64)>,
    points: Vec<i64>,
    descriptions: Vec<String>,
    error: Option<nettrace::ErrorKind>,
}

impl Essence {
    /// The times of all events, ascending.
    fn times(&self) -> Vec<i64> {
        let mut times: Vec<i64> = self
            .events
            .iter()
            .map(|(timestamp, _)| *timestamp)
            .collect();
        times.sort_unstable();
        times
    }
}

fn essence(bytes: &[u8]) -> (Essence, Reader<&[u8]>) {
    let mut reader = Reader::new(bytes).unwrap();
    let mut found = Essence {
        events: vec![],
        losses: BTreeMap::new(),
        points: vec![],
        descriptions: vec![],
        error: None,
    };
    loop {
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => found.events.push((event.timestamp(), show(&event))),
            Ok(Some(Item::SequencePoint(point))) => found.points.push(point.timestamp),
            Ok(Some(Item::Metadata(metadata))) => {
                let mut metadata = metadata.clone();
                metadata.id = 0;
                metadata.provider_guid = None;
                found.descriptions.push(format!("{metadata:?}"));
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                found.error = Some(error.kind);
                break;
            }
        }
    }
    for thread in reader.losses().threads() {
        let entry = found
            .losses
            .entry((thread.process_id, thread.thread_id))
            .or_default();
        entry.0 += thread.delivered;
        entry.1 += thread.gaps + thread.at_start;
    }
    (found, reader)
}

fn show(event: &Event<'_>) -> String {
    let mut bytes = DefaultHasher::new();
    (
        event.stack().bytes(),
        event.payload(),
        &format!("{:?}", event.metadata().fields),
    )
        .hash(&mut bytes);
    let metadata = event.metadata();
    format!(
        "{} {} {} {} {} {} {:x} {} {} {:?} {} {} {:?} {} {} {:x}",
        metadata.provider,
        metadata.event_id,
        metadata.name,
        event.version(),
        event.level(),
        event.opcode(),
        event.keywords(),
        event.process_id(),
        event.thread_id(),
        event.processor_number(),
        event.activity_id(),
        event.related_activity_id(),
        event.is_sorted(),
        event.stack().len(),
        event.payload().len(),
        bytes.finish(),
    )
}

fn rewritten(bytes: &[u8], options: &RewriteOptions) -> (Vec<u8>, RewriteReport) {
    let mut out = Vec::new();
    let mut reader = Reader::new(bytes).unwrap();
    let (report, _) = rewrite(&mut reader, options, &mut out).unwrap();
    assert_eq!(report.bytes, out.len() as u64);
    (out, report)
}

/// A report that only counts what is there.
fn only_counts(report: &RewriteReport) -> bool {
    let mut expected = RewriteReport::default();
    expected.events = report.events;
    expected.bytes = report.bytes;
    expected == *report
}

#[test]
fn every_trace_survives_v4_v6_and_v4_again() {
    let Some(samples) = samples("every_trace_survives_v4_v6_and_v4_again") else {
        return;
    };
    for sample in samples {
        let bytes = sample.bytes();
        let (mut original, reader) = essence(&bytes);
        // It is whole afterwards.
        original.error = None;
        let format = reader.info().format;
        if format <= FormatVersion::V3 {
            legacy_becomes_v4(&sample, &mut original, format);
        }
        let mut options = RewriteOptions::new(WriteFormat::V4);
        let (v4, report) = rewritten(&bytes, &options);
        let is_v1 = format == FormatVersion::V1;
        assert!(
            only_counts(&report) || is_v1 && report.descriptions_reduced > 0,
            "{}: {report:?}",
            sample.name
        );
        compare(&sample, "v4", &original, &v4);
        options.format = WriteFormat::V6;
        let (v6, report) = rewritten(&v4, &options);
        assert!(only_counts(&report), "{}: {report:?}", sample.name);
        compare(&sample, "v6", &original, &v6);
        options.format = WriteFormat::V4;
        let (again, report) = rewritten(&v6, &options);
        assert!(only_counts(&report), "{}: {report:?}", sample.name);
        compare(&sample, "v4 again", &original, &again);
    }
}

/// Events of V1–V3 are sorted, marked as such, and counted; V1 and V2 do not say which process they are of.
fn legacy_becomes_v4(sample: &Sample, original: &mut Essence, format: FormatVersion) {
    let shown = original.events.iter_mut();
    shown.for_each(|(_, text)| *text = text.replacen(" false ", " true ", 1));
    original.events.sort_by_key(|(timestamp, _)| *timestamp);
    let newest = original
        .events
        .iter()
        .map(|(timestamp, _)| *timestamp)
        .max();
    original.points.extend(newest);
    assert!(
        format == FormatVersion::V3 || sample.name.contains("objver"),
        "{}",
        sample.name
    );
}

fn compare(sample: &Sample, step: &str, original: &Essence, bytes: &[u8]) {
    let (found, reader) = essence(bytes);
    assert!(reader.is_complete(), "{} {step}", sample.name);
    assert_eq!(
        found.events.len(),
        original.events.len(),
        "{} {step}",
        sample.name
    );
    for (found, original) in found.events.iter().zip(&original.events) {
        assert_eq!(found, original, "{} {step}", sample.name);
    }
    assert_eq!(found, *original, "{} {step}", sample.name);
}

#[test]
fn a_part_is_the_same_part_and_what_was_left_out_is_not_lost() {
    let Some(samples) = samples("a_part_is_the_same_part_and_what_was_left_out_is_not_lost") else {
        return;
    };
    for name in [
        "net10.0/stress-lost",
        "net11.0/all-providers",
        "net10.0/stress-format0",
        "net9.0/cpu",
    ] {
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let bytes = sample.bytes();
        let (original, reader) = essence(&bytes);
        let times = original.times();
        let (from, to) = (times[times.len() / 4], times[times.len() * 3 / 4]);
        let provider = original.descriptions.len() / 2;
        let provider = reader.all_metadata()[provider].provider.clone();
        let thread = reader.losses().threads()[0].thread_id;
        let everything = Filter::default();
        let filters = [
            Filter {
                from: Some(from),
                ..everything.clone()
            },
            Filter {
                to: Some(to),
                ..everything.clone()
            },
            Filter {
                from: Some(from),
                to: Some(to),
                ..everything.clone()
            },
            Filter {
                providers: vec![provider.clone()],
                ..everything.clone()
            },
            Filter {
                threads: vec![thread],
                ..everything.clone()
            },
        ];
        for (filter, format) in filters
            .iter()
            .flat_map(|filter| [(filter, WriteFormat::V4), (filter, WriteFormat::V6)])
        {
            let options = RewriteOptions {
                filter: filter.clone(),
                ..RewriteOptions::new(format)
            };
            let (part, report) = rewritten(&bytes, &options);
            let (found, _) = essence(&part);
            let kept = kept(&bytes, filter);
            assert_eq!(found.events.len(), kept.len(), "{name} {filter:?}");
            let mut found_events: Vec<String> = found
                .events
                .iter()
                .map(|(_, text)| text.replacen(" true ", " false ", 1))
                .collect();
            let mut kept_events = kept;
            found_events.sort();
            kept_events.sort();
            assert!(found_events == kept_events, "{name} {filter:?}");
            assert_eq!(
                report.events + report.events_filtered,
                original.events.len() as u64,
                "{name}"
            );
            let lost: u64 = found.losses.values().map(|(_, lost)| lost).sum();
            let lost_before: u64 = original.losses.values().map(|(_, lost)| lost).sum();
            if filter.from.is_none() && filter.to.is_none() {
                assert_eq!(lost, lost_before, "{name} {filter:?}");
            } else {
                assert!(
                    lost <= lost_before,
                    "{name} {filter:?}: {lost} of {lost_before}"
                );
            }
        }
    }
}

/// The events that a filter keeps, in our own words.
fn kept(bytes: &[u8], filter: &Filter) -> Vec<String> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        let timely = filter.from.is_none_or(|from| from <= event.timestamp())
            && filter.to.is_none_or(|to| event.timestamp() <= to);
        let wanted = (filter.providers.is_empty()
            || filter.providers[0] == event.metadata().provider)
            && (filter.threads.is_empty() || filter.threads[0] == event.thread_id());
        if timely && wanted {
            found.push(show(&event).replacen(" true ", " false ", 1));
        }
    }
    found
}

#[test]
fn pieces_joined_are_the_whole_by_time() {
    let Some(samples) = samples("pieces_joined_are_the_whole_by_time") else {
        return;
    };
    for name in [
        "net10.0/stress-lost",
        "net11.0/all-providers",
        "net8.0.34/jit",
    ] {
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let bytes = sample.bytes();
        let (original, _) = essence(&bytes);
        let times = original.times();
        let middle = times[times.len() / 2];
        for format in [WriteFormat::V4, WriteFormat::V6] {
            let mut options = RewriteOptions::new(format);
            options.filter.to = Some(middle);
            let (first, _) = rewritten(&bytes, &options);
            options.filter = Filter {
                from: Some(middle + 1),
                ..Filter::default()
            };
            let (second, _) = rewritten(&bytes, &options);
            let mut out = Vec::new();
            let readers = vec![
                Reader::new(&first[..]).unwrap(),
                Reader::new(&second[..]).unwrap(),
            ];
            let (report, damage) = join(readers, &RewriteOptions::new(format), &mut out).unwrap();
            assert_eq!(damage, [None, None]);
            assert_eq!(report.events, times.len() as u64, "{name}");
            let (joined, reader) = essence(&out);
            assert!(reader.is_complete());
            let stamps: Vec<i64> = joined
                .events
                .iter()
                .map(|(timestamp, _)| *timestamp)
                .collect();
            assert!(stamps.is_sorted(), "{name}");
            assert_eq!(stamps, times, "{name}");
            let delivered: u64 = joined.losses.values().map(|(delivered, _)| delivered).sum();
            assert_eq!(delivered, report.events, "{name}");
        }
    }
}

/// The trace cut after every so many events and after every sequence point, each piece as a file of its own.
fn in_pieces(bytes: &[u8], every: usize) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(bytes).unwrap();
    let format = match reader.info().format {
        FormatVersion::V6 => WriteFormat::V6,
        _ => WriteFormat::V4,
    };
    let mut pieces = Pieces::new(reader.info(), format);
    let (mut files, mut file, mut events) = (vec![], vec![], 0);
    while let Ok(Some(item)) = reader.next_item() {
        pieces.item(&item).unwrap();
        file.append(pieces.output());
        events += usize::from(matches!(item, Item::Event(_)));
        if events == every || events > 0 && matches!(item, Item::SequencePoint(_)) {
            events = 0;
            let (rest, _) = pieces.cut(|index| reader.thread(index).cloned());
            file.extend(rest);
            files.push(std::mem::take(&mut file));
        }
    }
    file.append(pieces.output());
    file.extend(pieces.finish().0);
    files.push(file);
    files
}

/// Sequence points do not go back, and what is between two of them has times between theirs.
fn keeps_its_points(name: &str, bytes: &[u8]) {
    let mut reader = Reader::new(bytes).unwrap();
    let (mut before, mut newest) = (i64::MIN, i64::MIN);
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Event(event) => {
                let timestamp = event.timestamp();
                assert!(timestamp >= before, "{name}: {timestamp} after {before}");
                newest = newest.max(timestamp);
            }
            Item::SequencePoint(point) => {
                let timestamp = point.timestamp;
                assert!(timestamp >= before, "{name}: {timestamp} after {before}");
                assert!(newest <= timestamp, "{name}: {newest} before {timestamp}");
                before = timestamp;
            }
            _ => {}
        }
    }
}

/// A point is later than the events before it: a piece that ends there must not be closed with the time of the newest.
#[test]
fn a_piece_cut_at_a_sequence_point_has_no_point_that_goes_back() {
    for format in [WriteFormat::V4, WriteFormat::V6] {
        let mut info = support::generate::info(8);
        info.process_id = Some(4711);
        let mut writer = TraceWriter::new(format, &info);
        let provider = "P".to_owned();
        let metadata = Metadata {
            id: 1,
            provider,
            event_id: 1,
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
        let row = ThreadRow {
            thread_id: Some(7),
            ..ThreadRow::default()
        };
        writer.define_thread(7, &row).unwrap();
        for (number, timestamp) in [(1, 2000), (2, 4000)] {
            let event = EventRecord {
                metadata_id: 1,
                sequence_number: number,
                thread_id: 7,
                capture_thread_id: 7,
                timestamp,
                is_sorted: true,
                ..EventRecord::default()
            };
            writer.event(&event).unwrap();
            writer.sequence_point(timestamp + 1000, 0, [(7, number)]);
        }
        writer.finish();
        let whole = std::mem::take(writer.output());
        let files = in_pieces(&whole, usize::MAX);
        assert_eq!(files.len(), 3, "{format:?}");
        for (number, file) in files.iter().enumerate() {
            keeps_its_points(&format!("{format:?} {number}"), file);
        }
        let (first, _) = essence(&files[0]);
        assert_eq!(first.points, [3000, 3000], "{format:?}");
    }
}

/// The pieces joined in V4 are the trace again, by time: its events, threads and losses.
fn joined_again(name: &str, files: &[Vec<u8>], original: &Essence) {
    let readers = files.iter().map(|file| Reader::new(&file[..]).unwrap());
    let mut out = Vec::new();
    let options = RewriteOptions::new(WriteFormat::V4);
    let (report, damage) = join(readers.collect(), &options, &mut out).unwrap();
    assert!(damage.iter().all(Option::is_none), "{name}");
    assert_eq!(report.events, original.events.len() as u64, "{name}");
    let (joined, reader) = essence(&out);
    assert!(reader.is_complete(), "{name}");
    if reader.info().process_id != Some(0) && report.foreign_processes == 0 {
        assert_eq!(report.threads_renamed, 0, "{name}");
        let sum = |losses: &BTreeMap<(u64, u64), (u64, u64)>| {
            let mut sums = BTreeMap::<u64, (u64, u64)>::new();
            for ((_, thread), (delivered, lost)) in losses {
                let entry = sums.entry(*thread).or_default();
                *entry = (entry.0 + delivered, entry.1 + lost);
            }
            sums.retain(|_, counts| *counts != (0, 0));
            sums
        };
        assert_eq!(sum(&joined.losses), sum(&original.losses), "{name}");
    }
    let mut times: Vec<i64> = original.events.iter().map(|(time, _)| *time).collect();
    times.sort_unstable();
    let joined: Vec<i64> = joined.events.iter().map(|(time, _)| *time).collect();
    assert!(joined == times, "{name}");
}

#[test]
fn every_trace_is_the_same_in_pieces_that_are_complete_in_themselves() {
    const TEST: &str = "every_trace_is_the_same_in_pieces_that_are_complete_in_themselves";
    let Some(samples) = samples(TEST) else {
        return;
    };
    let mut cut = 0;
    for sample in samples {
        let bytes = sample.bytes();
        let (original, reader) = essence(&bytes);
        if reader.info().format <= FormatVersion::V3 {
            continue;
        }
        let every = (original.events.len() / 5).max(1);
        let files = in_pieces(&bytes, every);
        let (mut events, mut losses) = (vec![], BTreeMap::<(u64, u64), (u64, u64)>::new());
        for file in &files {
            let (piece, reader) = essence(file);
            assert_eq!(piece.error, None, "{}", sample.name);
            assert!(reader.is_complete(), "{}", sample.name);
            keeps_its_points(&sample.name, file);
            assert_eq!(
                reader.info().sync_ticks,
                Reader::new(&bytes[..]).unwrap().info().sync_ticks
            );
            events.extend(piece.events);
            for (thread, (delivered, lost)) in piece.losses {
                let entry = losses.entry(thread).or_default();
                entry.0 += delivered;
                entry.1 += lost;
            }
        }
        cut += files.len() - 1;
        joined_again(&sample.name, &files, &original);
        assert!(events == original.events, "{}", sample.name);
        let without_empty = |losses: &BTreeMap<(u64, u64), (u64, u64)>| {
            let mut losses = losses.clone();
            losses.retain(|_, counts| *counts != (0, 0));
            losses
        };
        assert_eq!(
            without_empty(&losses),
            without_empty(&original.losses),
            "{}",
            sample.name
        );
    }
    assert!(cut > 0);
}
