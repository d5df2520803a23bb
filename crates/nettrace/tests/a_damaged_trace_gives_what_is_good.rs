//! Damage: a file that was cut off anywhere gives every whole event and then one error; no bytes whatever make the
//! reader panic, run on or take memory that the file does not have; and a reader that recovers says what it skipped.

mod support;

use std::process::Command;

use nettrace::rewrite::{RewriteOptions, rewrite};
use nettrace::{Error, ErrorKind, Reader, ReaderOptions, WriteFormat};
use support::sample;

/// Events read, and the error if there was one.
fn count(bytes: &[u8]) -> (u64, Option<Error>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let error = loop {
        match reader.next_event() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(
        matches!(reader.next_event(), Ok(None)),
        "an error is the end"
    );
    (reader.statistics().events, error)
}

/// The same by way of the other order, which must not lose any.
fn count_dispatched(bytes: &[u8]) -> u64 {
    let Ok(reader) = Reader::new(bytes) else {
        return 0;
    };
    let mut order = reader.dispatch_order();
    let mut events = 0;
    while let Ok(Some(_)) = order.next_event() {
        events += 1;
    }
    events
}

/// Small traces of each format.
fn small(test: &str) -> Option<Vec<(&'static str, Vec<u8>)>> {
    let v3 = sample(
        test,
        "public/eventpipe-dotnetcore2.1-linux-x64-tracelogging",
    )?
    .bytes();
    let v4 = sample(test, "net10.0/two-sessions")?.bytes();
    let mut v6 = Vec::new();
    rewrite(
        &mut Reader::new(&v4[..]).unwrap(),
        &RewriteOptions::new(WriteFormat::V6),
        &mut v6,
    )
    .unwrap();
    Some(vec![("V3", v3), ("V4", v4), ("V6", v6)])
}

#[test]
fn a_file_that_was_cut_off_anywhere_gives_what_it_has() {
    let Some(traces) = small("a_file_that_was_cut_off_anywhere_gives_what_it_has") else {
        return;
    };
    for (name, bytes) in &traces {
        let (whole, error) = count(bytes);
        assert_eq!(error, None, "{name}");
        assert!(whole > 10, "{name}");
        let mut before = 0;
        for length in 0..bytes.len() {
            let (events, error) = count(&bytes[..length]);
            let error = error.unwrap_or_else(|| panic!("{name}: {length} bytes are not whole"));
            assert_eq!(error.offset, length as u64, "{name}: {error}");
            assert!(
                events >= before,
                "{name}: {events} events of {length} bytes, {before} of one less"
            );
            assert_eq!(
                count_dispatched(&bytes[..length]),
                events,
                "{name}: {length}"
            );
            before = events;
        }
        assert_eq!(before, whole, "{name}: only the end tag was missing");
    }
}

#[test]
fn a_large_file_cut_off_at_random_gives_what_it_has() {
    let test = "a_large_file_cut_off_at_random_gives_what_it_has";
    let Some(sample) = sample(test, "net8.0.34/jit") else {
        return;
    };
    let bytes = sample.bytes();
    let mut random = Random(1);
    let mut cuts: Vec<usize> = (0..2000).map(|_| random.below(bytes.len())).collect();
    cuts.sort_unstable();
    let mut before = 0;
    for length in cuts {
        let (events, error) = count(&bytes[..length]);
        assert_eq!(error.map(|error| error.offset), Some(length as u64));
        assert!(
            events >= before,
            "{events} events of {length} bytes, {before} of fewer"
        );
        before = events;
    }
    assert_eq!(count(&bytes), (before.max(count(&bytes).0), None));
}

#[test]
fn bytes_that_were_changed_never_break_the_reader() {
    let Some(traces) = small("bytes_that_were_changed_never_break_the_reader") else {
        return;
    };
    let mut random = Random(2);
    for (name, bytes) in &traces {
        let (whole, _) = count(bytes);
        for _ in 0..3000 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(4) {
                let place = random.below(damaged.len());
                damaged[place] = match random.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => damaged[place] ^ 1 << random.below(8),
                    _ => random.next() as u8,
                };
            }
            let _ = count(&damaged);
            let _ = count_dispatched(&damaged);
            let options = ReaderOptions {
                recover: true,
                ..ReaderOptions::default()
            };
            let Ok(mut reader) = Reader::with_options(&damaged[..], options) else {
                continue;
            };
            while let Some(event) = reader
                .next_event()
                .unwrap_or_else(|error| panic!("{name}: {error}"))
            {
                // Everything that can be asked of an event.
                let _ = (
                    event.activity_id(),
                    event.opcode(),
                    event.stack().frames().count(),
                    event.labels().count(),
                );
            }
            assert!(
                reader.is_complete() || !reader.skipped().is_empty(),
                "{name}"
            );
            assert!(reader.statistics().events < 2 * whole + 1000, "{name}");
        }
    }
}

#[test]
fn a_reader_that_recovers_skips_the_damaged_block_only_and_says_so() {
    let test = "a_reader_that_recovers_skips_the_damaged_block_only_and_says_so";
    let Some(sample) = sample(test, "net10.0/stress-small") else {
        return;
    };
    let original = sample.bytes();
    for format in [WriteFormat::V4, WriteFormat::V6] {
        let mut bytes = Vec::new();
        rewrite(
            &mut Reader::new(&original[..]).unwrap(),
            &RewriteOptions::new(format),
            &mut bytes,
        )
        .unwrap();
        let mut offsets = Vec::new();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            offsets.push(event.offset() as usize);
        }
        // A record in the middle: a metadata id that is longer than any number.
        let place = offsets[offsets.len() / 2];
        let mut damaged = bytes.clone();
        damaged[place] = 0x01;
        damaged[place + 1..place + 12].fill(0xff);
        assert!(count(&damaged).1.is_some());
        let options = ReaderOptions {
            recover: true,
            ..ReaderOptions::default()
        };
        let mut reader = Reader::with_options(&damaged[..], options).unwrap();
        let mut events = 0;
        while reader.next_event().unwrap().is_some() {
            events += 1;
        }
        assert!(reader.is_complete(), "{format:?}");
        assert_eq!(reader.skipped().len(), 1, "{format:?}");
        assert_eq!(reader.skipped()[0].offset, place as u64, "{format:?}");
        assert!(
            events >= offsets.len() / 2,
            "{format:?}: {events} of {}",
            offsets.len()
        );
        // What is missing is seen to be missing.
        assert_eq!(
            events as u64 + reader.losses().total(),
            offsets.len() as u64,
            "{format:?}"
        );

        // The beginning of a block: the next one is found.
        let block = bytes.windows(4).position(|window| match format {
            WriteFormat::V4 => window == [20, 0, 1, 0],
            WriteFormat::V6 => window == [2, 20, 0, 1],
        });
        let block = block.unwrap();
        let mut damaged = bytes.clone();
        damaged[block - 12..block].fill(0xee);
        let mut reader = Reader::with_options(&damaged[..], options).unwrap();
        while reader.next_event().unwrap().is_some() {}
        assert!(!reader.skipped().is_empty(), "{format:?}");
        assert!(
            reader.is_complete() || format == WriteFormat::V6,
            "{format:?} {:?}",
            reader.skipped()
        );
    }
}

#[test]
fn a_megabyte_of_anything_needs_no_more_than_64_mebibytes() {
    let name = "a_megabyte_of_anything_needs_no_more_than_64_mebibytes";
    let Some(folder) = std::env::var_os("NETTRACE_HOSTILE") else {
        let folder = std::env::temp_dir().join(format!("nettrace-hostile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (what, bytes) in hostile() {
            assert!(bytes.len() <= 1 << 20, "{what}");
            std::fs::write(folder.join(what), bytes).unwrap();
        }
        // Once more, with an address space of 64 MiB.
        let status = Command::new("sh")
            .args(["-c", "ulimit -v 65536 && exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads", "1", "--nocapture"])
            .env("NETTRACE_HOSTILE", &folder)
            .status();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(status.unwrap().success(), "with 64 MiB");
        return;
    };
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        println!("{}: {:?}", path.display(), count(&bytes));
        let _ = count_dispatched(&bytes);
        let options = ReaderOptions {
            recover: true,
            ..ReaderOptions::default()
        };
        let mut reader = Reader::with_options(&bytes[..], options).unwrap();
        while reader.next_event().unwrap().is_some() {}
    }
}

/// Megabytes that claim much.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let v6 = |blocks: &[(u8, Vec<u8>)]| {
        let mut out = b"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
        let mut trace = vec![0; 16];
        trace.extend(1u64.to_le_bytes());
        trace.extend(1_000_000_000u64.to_le_bytes());
        trace.extend([8, 0, 0, 0, 0, 0, 0, 0]);
        for (kind, body) in std::iter::once(&(1, trace)).chain(blocks) {
            out.extend((body.len() as u32 | u32::from(*kind) << 24).to_le_bytes());
            out.extend(body);
        }
        out
    };
    let room = (1 << 20) - 200;
    let repeat = |piece: &[u8], head: &[u8]| {
        let mut body = head.to_vec();
        while body.len() + piece.len() <= room {
            body.extend(piece);
        }
        body
    };
    let counted = |piece: &[u8], head: usize| {
        let count = ((room - head) / piece.len()) as u32;
        let mut body = vec![1, 0, 0, 0];
        body.extend(count.to_le_bytes());
        repeat(piece, &body)
    };
    let numbered = |make: &dyn Fn(u32) -> Vec<u8>, head: &[u8]| {
        let mut body = head.to_vec();
        for number in 1.. {
            let piece = make(number);
            if body.len() + piece.len() > room {
                return body;
            }
            body.extend(piece);
        }
        body
    };
    let varint = |mut number: u32| {
        let mut out = Vec::new();
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
        out
    };
    let row = |body: Vec<u8>| [(body.len() as u16).to_le_bytes().to_vec(), body].concat();
    let event_head = [&[20, 0, 1, 0][..], &[0; 16]].concat();
    let nested = |depth: usize| {
        let mut field = vec![0u8];
        field.extend(std::iter::repeat_n(19, depth));
        field.push(3);
        row(field)
    };
    let deep_row = |depth: usize| {
        let mut body = vec![1, 0, 1, 0];
        let field = nested(depth);
        let count = 60_000 / field.len();
        body.extend((count as u16).to_le_bytes());
        body.extend(std::iter::repeat_n(field, count).flatten());
        body.extend([0, 0]);
        row(body)
    };
    vec![
        ("empty stacks", v6(&[(5, counted(&[0; 4], 8))])),
        ("tiny label lists", v6(&[(8, counted(&[0x87, 0], 8))])),
        (
            "tiny descriptions",
            v6(&[(
                3,
                numbered(
                    &|id| row([varint(id), vec![0, 0, 0, 0, 0, 0, 0]].concat()),
                    &[0, 0],
                ),
            )]),
        ),
        (
            "descriptions of many fields",
            v6(&[(3, repeat(&deep_row(0), &[0, 0]))]),
        ),
        (
            "descriptions of deep fields",
            v6(&[(3, repeat(&deep_row(30), &[0, 0]))]),
        ),
        (
            "fields deeper than allowed",
            v6(&[(3, repeat(&deep_row(60), &[0, 0]))]),
        ),
        (
            "tiny threads",
            v6(&[(6, numbered(&|id| row(varint(id)), &[]))]),
        ),
        (
            "a thread for each event",
            v6(&[(
                2,
                numbered(
                    &|id| [vec![0x43, 1, 0], varint(id), vec![0, 0]].concat(),
                    &event_head,
                ),
            )]),
        ),
        (
            "events that wait",
            v6(&[(
                2,
                numbered(
                    &|id| [vec![0x03, 1, 0], varint(id % 1000), vec![0, 0]].concat(),
                    &event_head,
                ),
            )]),
        ),
        (
            "events of nothing",
            v6(&[(2, repeat(&[0, 0], &event_head))]),
        ),
        (
            "a thread for each removal",
            v6(&[(7, numbered(&|id| [varint(id), vec![1]].concat(), &[]))]),
        ),
        (
            "a long sequence point",
            v6(&[(4, {
                let count = (room - 20) as u32 / 4;
                let head = [&[0; 12][..], &count.to_le_bytes()].concat();
                numbered(&|id| [varint(id | 1 << 14), vec![1]].concat(), &head)
            })]),
        ),
        (
            "counts without contents",
            v6(&[(5, [1, 0, 0, 0, 255, 255, 255, 255].repeat(room / 8))]),
        ),
        (
            "a block that is not there",
            v6(&[])
                .into_iter()
                .chain([255, 255, 255, 2])
                .chain(vec![0; room])
                .collect(),
        ),
        ("an object that is not there", {
            let mut out = b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x04\0\0\0\x04\0\0\0\x05\0\0\0Trace\x06".to_vec();
            out.extend([0; 16]);
            out.extend(1u64.to_le_bytes());
            out.extend(1u64.to_le_bytes());
            out.extend([8, 0, 0, 0]);
            out.extend([0; 12]);
            out.push(6);
            out.extend(b"\x05\x05\x01\x02\0\0\0\x02\0\0\0\x0a\0\0\0StackBlock\x06");
            out.extend((200u32 << 20).to_le_bytes());
            out.resize(room, 0);
            out
        }),
    ]
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let header = |kind: ErrorKind, offset: u64, bytes: &[u8]| {
        let error = Reader::new(bytes).err().unwrap();
        assert_eq!(error, Error { offset, kind });
        assert!(!error.to_string().is_empty());
    };
    header(ErrorKind::HeaderTruncated, 0, b"");
    header(ErrorKind::NotATrace, 0, b"PK\x03\x04 and so on");
    header(ErrorKind::HeaderTruncated, 8, b"Nettrace");
    header(ErrorKind::HeaderTruncated, 10, b"\x14\0\0\0!FastS");
    header(
        ErrorKind::InvalidVersion { major: 5 },
        12,
        b"Nettrace\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\x01",
    );
    header(
        ErrorKind::UnsupportedVersion { needed: 7 },
        12,
        b"Nettrace\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\x01",
    );
    header(
        ErrorKind::NoTraceObject,
        20,
        b"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0\0\0\0\x02",
    );
    let newer = b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x09\0\0\0\x09\0\0\0\x05\0\0\0Trace\x06";
    header(ErrorKind::UnsupportedVersion { needed: 9 }, 39, newer);
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
