//! A reader with a thread that reads ahead, and one that looks at bytes where they lie, give what one without gives: items,
//! errors and their places, whatever the source does. No test here waits for a time; what would hang hangs.

mod support;

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};

use bytes::Bytes;
use nettrace::{Error, ErrorKind, ReadAhead, Reader, ReaderOptions, WriteFormat};
use proptest::collection::vec;
use proptest::prelude::*;
use support::generate::{Transcript, info, show, show_event, steps, write};
use support::legacy::{Legacy, legacy};

/// A source that does as it is told: at its offsets it fails, once each, and gives a few bytes at a time.
#[derive(Clone, Debug)]
struct Scripted {
    bytes: Vec<u8>,
    at: usize,
    /// The size of each read, again and again.
    sizes: Vec<usize>,
    turn: usize,
    /// What happens before the byte at this place, the first last.
    failures: Vec<(usize, io::ErrorKind)>,
    /// How much is shown at a time, again and again; nothing any more from the first 0 on.
    windows: Vec<usize>,
}

impl Scripted {
    fn new(bytes: Vec<u8>, sizes: Vec<usize>, mut failures: Vec<(usize, io::ErrorKind)>) -> Self {
        failures.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        Scripted {
            bytes,
            at: 0,
            sizes,
            turn: 0,
            failures,
            windows: vec![usize::MAX],
        }
    }

    /// The same, which shows its bytes and never fails.
    fn shown(&self, windows: &[usize]) -> Scripted {
        Scripted {
            failures: Vec::new(),
            windows: windows.to_vec(),
            ..self.clone()
        }
    }

    fn window(&mut self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        self.turn += 1;
        let most = self.windows[self.turn % self.windows.len()];
        let rest = &self.bytes[offset as usize..];
        if most == 0 || length > rest.len() {
            self.at = offset as usize;
            return Ok(None);
        }
        let shown = &rest[..most.max(length).min(rest.len())];
        Ok(Some(Bytes::copy_from_slice(shown)))
    }
}

/// Looks at what it is to fetch: it lies in the buffer.
fn prefetch(bytes: &[u8]) {
    std::hint::black_box(bytes.iter().fold(0, |sum, byte| sum ^ byte));
}

impl Read for Scripted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut end = self.bytes.len();
        if let Some(&(place, kind)) = self.failures.last() {
            if place <= self.at {
                self.failures.pop();
                return Err(kind.into());
            }
            end = end.min(place);
        }
        self.turn += 1;
        let size = self.sizes[self.turn % self.sizes.len()].max(1);
        let count = (end - self.at).min(size).min(out.len());
        out[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Everything that comes: errors too, after those of the source reading goes on.
fn drain(
    reader: Result<Reader<Scripted>, Error>,
    mut next: impl FnMut(&mut Reader<Scripted>) -> Result<Option<String>, Error>,
) -> Transcript {
    let mut found = Transcript::new();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return vec![format!("{error:?}")],
    };
    loop {
        match next(&mut reader) {
            Ok(Some(item)) => found.push(item),
            Ok(None) => break,
            Err(error) => found.push(format!("{error:?} {}", reader.offset())),
        }
    }
    found.push(summary(&reader));
    found
}

fn summary(reader: &Reader<Scripted>) -> String {
    let mut statistics = reader.statistics().clone();
    // How much lies behind the end is known as far as it was read.
    statistics.trailing_bytes = 0;
    let places = (
        reader.offset(),
        reader.complete_length(),
        reader.is_complete(),
    );
    let losses = reader.losses();
    format!(
        "{statistics:?} {:?} {places:?} {} {}",
        reader.skipped(),
        losses.gaps,
        losses.at_start
    )
}

fn by_time(reader: Result<Reader<Scripted>, Error>) -> Transcript {
    let mut found = Transcript::new();
    let mut order = match reader {
        Ok(reader) => reader.dispatch_order(),
        Err(error) => return vec![format!("{error:?}")],
    };
    loop {
        match order.next_event() {
            Ok(Some(event)) => found.push(format!("{} {}", event.offset(), show_event(&event))),
            Ok(None) => break,
            Err(error) => found.push(format!("{error:?}")),
        }
    }
    found.push(summary(order.reader()));
    found
}

fn check(source: &Scripted, ahead: ReadAhead, windows: &[usize]) {
    for recover in [false, true] {
        let options = ReaderOptions {
            recover,
            ..ReaderOptions::default()
        };
        let plain = || Reader::with_options(source.clone(), options);
        let thread = || Reader::with_read_ahead(source.clone(), options, ahead);
        let item = |reader: &mut Reader<Scripted>| Ok(reader.next_item()?.map(|item| show(&item)));
        let event = |reader: &mut Reader<Scripted>| {
            Ok(reader
                .next_event()?
                .map(|event| format!("{} {}", event.offset(), show_event(&event))))
        };
        assert_eq!(drain(thread(), item), drain(plain(), item), "{ahead:?}");
        assert_eq!(drain(thread(), event), drain(plain(), event), "{ahead:?}");
        assert_eq!(by_time(thread()), by_time(plain()), "{ahead:?}");

        let source = source.shown(windows);
        let options = ReaderOptions {
            prefetch: Some(prefetch),
            ..options
        };
        let plain = || Reader::with_options(source.clone(), options);
        let shown = || Reader::in_place(source.clone(), Scripted::window, options, ahead);
        assert_eq!(drain(shown(), item), drain(plain(), item), "{windows:?}");
        assert_eq!(drain(shown(), event), drain(plain(), event), "{windows:?}");
        assert_eq!(by_time(shown()), by_time(plain()), "{windows:?}");
    }
}

fn ahead() -> impl Strategy<Value = ReadAhead> {
    let size = prop_oneof![0usize..8, 8usize..300, 300usize..5000];
    (0u64..400, size, 0usize..4).prop_map(|(after, buffer_size, buffers)| ReadAhead {
        after,
        buffer_size,
        buffers,
    })
}

fn failure() -> impl Strategy<Value = io::ErrorKind> {
    prop_oneof![
        3 => Just(io::ErrorKind::Interrupted),
        1 => Just(io::ErrorKind::WouldBlock),
        1 => Just(io::ErrorKind::ConnectionReset),
    ]
}

fn trace() -> impl Strategy<Value = Vec<u8>> {
    let written = prop_oneof![Just(WriteFormat::V4), Just(WriteFormat::V6)]
        .prop_flat_map(|format| (Just(format), steps(format), 1usize..2000))
        .prop_map(|(format, steps, block)| write(format, &info(8), block, &steps).0);
    let older = prop_oneof![Just(Legacy::V1), Just(Legacy::V2), Just(Legacy::V3)]
        .prop_flat_map(|version| (Just(version), 0usize..60))
        .prop_map(|(version, count)| {
            let events: Vec<_> = (0..count)
                .map(|n| {
                    (
                        n as i64 * 7,
                        n as u32 % 3,
                        &[7, 0, 0, 0][..],
                        &[1, 2, 3][..],
                    )
                })
                .collect();
            legacy(version, &events)
        });
    prop_oneof![5 => written, 1 => older]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_source_does(
        bytes in trace(),
        cut in prop_oneof![2 => Just(1.0), 3 => 0.0..1.0f64],
        damage in proptest::option::weighted(0.2, (0.0..1.0f64, any::<u8>())),
        sizes in vec(prop_oneof![1usize..5, 5usize..200, Just(usize::MAX)], 1..5),
        failures in vec((0.0..1.1f64, failure()), 0..5),
        ahead in ahead(),
        windows in vec(prop_oneof![1 => Just(0usize), 4 => 1usize..500, 3 => Just(usize::MAX)], 1..6),
    ) {
        let mut bytes = bytes;
        let place = |part: f64| (bytes.len() as f64 * part) as usize;
        let failures = failures.iter().map(|&(part, kind)| (place(part), kind)).collect();
        let cut = place(cut);
        if let Some((part, value)) = damage
            && let Some(byte) = { let place = place(part); bytes.get_mut(place) }
        {
            *byte = value;
        }
        bytes.truncate(cut);
        check(&Scripted::new(bytes, sizes, failures), ahead, &windows);
    }
}

#[test]
fn recorded_traces() {
    let Some(samples) = support::samples("recorded_traces") else {
        return;
    };
    // Each folder's first, and with it each version and runtime.
    let mut folders = Vec::new();
    let mut read = 0;
    for sample in samples {
        let folder = sample
            .name
            .rsplit_once('/')
            .map(|(folder, _)| folder.to_owned());
        if folders.contains(&folder) {
            continue;
        }
        let bytes = sample.bytes();
        if bytes.len() > 4 << 20 {
            continue;
        }
        folders.push(folder);
        for (buffer_size, sizes) in [
            (bytes.len() / 7 + 1, vec![usize::MAX]),
            (70_000, vec![65_536, 1, 4096]),
        ] {
            let ahead = ReadAhead {
                after: 0,
                buffer_size,
                buffers: 2,
            };
            let source = Scripted::new(bytes.clone(), sizes, Vec::new());
            let events = |reader: Result<Reader<Scripted>, Error>| {
                let mut order = reader.unwrap();
                let mut sum = Vec::new();
                while let Some(event) = order.next_event().unwrap() {
                    sum.push((event.offset(), event.timestamp(), event.payload().to_vec()));
                }
                (sum, summary(&order))
            };
            let options = ReaderOptions {
                recover: true,
                ..ReaderOptions::default()
            };
            let plain = || Reader::with_options(source.clone(), options);
            let thread = || Reader::with_read_ahead(source.clone(), options, ahead);
            let shown = source.shown(&[70_000, 1, buffer_size]);
            let shown = || Reader::in_place(shown.clone(), Scripted::window, options, ahead);
            assert!(events(thread()) == events(plain()), "{}", sample.name);
            assert!(by_time(thread()) == by_time(plain()), "{}", sample.name);
            assert!(events(shown()) == events(plain()), "{}", sample.name);
            assert!(by_time(shown()) == by_time(plain()), "{}", sample.name);
        }
        read += 1;
    }
    assert!(read > 5, "{read} traces");
}

/// The corpus of the fuzz target, as it is, cut and changed.
#[test]
fn the_fuzz_corpus() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/nettrace_reader"
    );
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for step in 0..20 {
            let mut bytes = bytes.clone();
            let place = bytes.len() * step / 20;
            if step % 2 == 0 {
                bytes[place] ^= 0x81;
            } else {
                bytes.truncate(place);
            }
            let ahead = ReadAhead {
                after: step as u64,
                buffer_size: 50 << (step % 5),
                buffers: step % 3,
            };
            check(
                &Scripted::new(bytes, vec![usize::MAX, 30], Vec::new()),
                ahead,
                &[[100, 1000, 10], [usize::MAX, 0, 50]][step % 2],
            );
        }
        files += 1;
    }
    assert!(files >= 9, "{files} files");
}

/// A trace of blocks of this size, with events of 1,000 bytes.
fn large(format: WriteFormat, block: usize, count: u32) -> Vec<u8> {
    let mut writer = nettrace::TraceWriter::new(format, &info(8));
    writer.set_block_size(block);
    let metadata = nettrace::Metadata {
        id: 1,
        ..nettrace::Metadata::default()
    };
    writer.define_event(&metadata).unwrap();
    writer
        .define_thread(1, &nettrace::ThreadRow::default())
        .unwrap();
    for number in 0..count {
        let payload = [number as u8; 1000];
        let record = nettrace::EventRecord {
            metadata_id: 1,
            sequence_number: number + 1,
            thread_id: 1,
            capture_thread_id: 1,
            processor_number: 0,
            stack_id: 0,
            timestamp: u64::from(number),
            activity_id: nettrace::Guid::ZERO,
            related_activity_id: nettrace::Guid::ZERO,
            is_sorted: number % 700 == 0,
            label_list: 0,
            payload: &payload,
        };
        writer.event(&record).unwrap();
    }
    writer.finish();
    std::mem::take(writer.output())
}

#[test]
fn blocks_smaller_and_larger_than_a_buffer_as_configured_by_default() {
    for (format, block) in [
        (WriteFormat::V4, 100_000),
        (WriteFormat::V6, 600_000),
        (WriteFormat::V4, 3 << 20),
    ] {
        let bytes = large(format, block, 9_000);
        for sizes in [vec![usize::MAX], vec![65_536], vec![1_000_000, 3, 100_000]] {
            let source = Scripted::new(bytes.clone(), sizes, Vec::new()).shown(&[200_000, 2 << 20]);
            let options = ReaderOptions {
                prefetch: Some(prefetch),
                ..ReaderOptions::default()
            };
            for (by_time, in_place) in [(false, false), (true, false), (false, true), (true, true)]
            {
                let (source, ahead) = (source.clone(), ReadAhead::default());
                let reader = if in_place {
                    Reader::in_place(source, Scripted::window, options, ahead).unwrap()
                } else {
                    Reader::with_read_ahead(source, options, ahead).unwrap()
                };
                let mut count = 0u32;
                let mut look = |event: &nettrace::Event<'_>| {
                    assert_eq!(event.timestamp(), i64::from(count));
                    assert!(event.payload() == [count as u8; 1000]);
                    count += 1;
                };
                let (offset, losses) = if by_time {
                    let mut order = reader.dispatch_order();
                    while let Some(event) = order.next_event().unwrap() {
                        look(&event);
                    }
                    (order.reader().offset(), order.reader().losses().total())
                } else {
                    let mut reader = reader;
                    while let Some(event) = reader.next_event().unwrap() {
                        look(&event);
                    }
                    (reader.offset(), reader.losses().total())
                };
                assert_eq!((count, offset, losses), (9_000, bytes.len() as u64, 0));
            }
        }
    }
}

/// However few bytes come at a time: of a last object that is both wrong and cut off, the wrong byte is told.
#[test]
fn a_wrong_byte_is_told_before_a_missing_one() {
    let whole = large(WriteFormat::V4, 10_000, 1);
    let name = b"MetadataBlock";
    let first = (0..whole.len())
        .find(|&at| whole[at..].starts_with(name))
        .unwrap();
    // Two tags that begin objects, and not the third.
    let object = first - 15;
    let mut bytes = whole[..object + 2].to_vec();
    bytes.extend([0x25, 0x25, 0xef]);
    for size in [1, 2, 3, usize::MAX] {
        let source = Scripted::new(bytes.clone(), vec![size], Vec::new());
        let mut reader = Reader::new(source).unwrap();
        let error = reader.next_event().map(|event| event.is_some());
        assert_eq!(
            error,
            Err(Error {
                offset: object as u64 + 2,
                kind: ErrorKind::UnexpectedTag {
                    expected: 1,
                    found: 0x25
                }
            }),
            "{size}"
        );
    }
}

/// With and without the thread: what follows a damaged block is found although the buffer's bytes are moved meanwhile.
#[test]
fn recovery_goes_on_behind_the_end_of_a_buffer() {
    let bytes = large(WriteFormat::V4, 10_000, 1_500);
    let name = b"EventBlock";
    let blocks: Vec<_> = (0..bytes.len())
        .filter(|&at| bytes[at..].starts_with(name))
        .collect();
    assert!(blocks.len() > 100, "{} blocks", blocks.len());
    let options = ReaderOptions {
        recover: true,
        ..ReaderOptions::default()
    };
    for &block in &blocks[30..70] {
        let mut damaged = bytes.clone();
        damaged[block..block + name.len()].fill(0);
        let source = io::Cursor::new(damaged);
        for mut reader in [
            Reader::with_options(source.clone(), options).unwrap(),
            Reader::with_read_ahead(source.clone(), options, AT_ONCE).unwrap(),
        ] {
            while reader.next_event().unwrap().is_some() {}
            let events = reader.statistics().events + reader.losses().total();
            assert!(reader.is_complete(), "{block}");
            assert_eq!(events, 1_500, "{block}");
        }
    }
}

/// What a failing source says comes up, and the same is asked for again.
#[test]
fn a_window_that_fails_is_asked_for_again() {
    struct Fails(io::Cursor<Bytes>, u32);
    impl Read for Fails {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.read(out)
        }
    }
    fn window(source: &mut Fails, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        source.1 += 1;
        if source.1.is_multiple_of(2) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        source.0.set_position(offset);
        let rest = source.0.get_ref().slice(offset as usize..);
        let end = rest.len().min(length.max(50_000));
        Ok((length <= rest.len()).then(|| rest.slice(..end)))
    }
    let bytes = Bytes::from(large(WriteFormat::V4, 10_000, 500));
    let source = Fails(io::Cursor::new(bytes.clone()), 0);
    let mut reader = Reader::in_place(source, window, ReaderOptions::default(), AT_ONCE).unwrap();
    let (mut events, mut failures) = (0, 0);
    loop {
        match reader.next_event() {
            Ok(Some(_)) => events += 1,
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Source(io::ErrorKind::TimedOut));
                failures += 1;
            }
        }
    }
    assert_eq!((events, reader.offset()), (500, bytes.len() as u64));
    assert!(failures > 9, "{failures}");
}

/// Tells each read when it begins, and its end by being dropped.
struct Watched<R>(R, Sender<()>);

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let _ = self.1.send(());
        self.0.read(out)
    }
}

const AT_ONCE: ReadAhead = ReadAhead {
    after: 0,
    buffer_size: 64 << 10,
    buffers: 2,
};

#[test]
fn a_pipe_is_not_delayed_and_may_be_left_while_it_is_silent() {
    let bytes = large(WriteFormat::V4, 3_000, 50);
    let (source, mut pipe) = io::pipe().unwrap();
    let (dropped, seen) = mpsc::channel();
    let (head, tail) = bytes.split_at(bytes.len() - 1);
    pipe.write_all(head).unwrap();
    let source = Watched(source, dropped);
    let mut reader = Reader::with_read_ahead(source, ReaderOptions::default(), AT_ONCE).unwrap();
    // All events are there while the pipe is open and silent.
    for _ in 0..50 {
        assert!(reader.next_event().unwrap().is_some());
    }
    // One read gave all that; the thread is in another, which nothing ends. Leaving does not wait for it.
    for _ in 0..2 {
        seen.recv().unwrap();
    }
    drop(reader);
    assert_eq!(seen.try_recv(), Err(mpsc::TryRecvError::Empty));
    // It ends with that read.
    pipe.write_all(tail).unwrap();
    assert!(seen.recv().is_err(), "no other read: the source is dropped");
    assert_eq!(
        pipe.write_all(tail).unwrap_err().kind(),
        io::ErrorKind::BrokenPipe
    );
}

#[test]
fn a_reader_that_is_dropped_early_leaves_no_thread() {
    let bytes = large(WriteFormat::V6, 3_000, 500);
    for events in [0, 1, 20, 400, 500] {
        let (dropped, seen) = mpsc::channel();
        let source = Watched(io::Cursor::new(bytes.clone()), dropped);
        let mut reader =
            Reader::with_read_ahead(source, ReaderOptions::default(), AT_ONCE).unwrap();
        for _ in 0..events {
            reader.next_event().unwrap().unwrap();
        }
        drop(reader);
        // The source is dropped, else this would not end.
        assert!(seen.iter().count() > 0);
    }
}

/// Panics after so many bytes.
struct Panics(io::Cursor<Vec<u8>>, u64);

impl Read for Panics {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        assert!(self.0.position() < self.1, "the source had enough");
        self.0.read(out)
    }
}

#[test]
fn a_panic_of_the_source_is_the_readers() {
    let bytes = large(WriteFormat::V4, 3_000, 500);
    let source = Panics(io::Cursor::new(bytes), 200_000);
    let mut reader = Reader::with_read_ahead(source, ReaderOptions::default(), AT_ONCE).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        while reader.next_event().unwrap().is_some() {}
    }));
    let message = panicked.unwrap_err();
    assert_eq!(message.downcast_ref(), Some(&"the source had enough"));
    assert!(reader.statistics().events > 100);
    // There is no source any more, and that is not the end of the trace.
    let error = reader.next_event().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Source(io::ErrorKind::BrokenPipe));
}

#[test]
fn a_reader_goes_to_other_threads_as_its_source_does() {
    fn both<T: Send + Sync>() {}
    both::<Reader<std::fs::File>>();
}
