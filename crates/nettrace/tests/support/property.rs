//! What must hold for any bytes whatever: the fuzz targets and the tests that replay their corpora call this.

use std::io::Read;

use nettrace::rewrite::{RewriteOptions, rewrite};
use nettrace::{Error, Item, Reader, ReaderOptions, WriteFormat};

/// Bytes as a trace.
pub(crate) fn reader_holds(data: &[u8]) {
    let strict = read(data, ReaderOptions::default());
    // Two bytes at a time, the same.
    assert_eq!(read(Pieces(data), ReaderOptions::default()), strict);
    let Some((events, _)) = strict else { return };
    let mut order = Reader::new(data).unwrap().dispatch_order();
    let mut dispatched = 0;
    while let Ok(Some(event)) = order.next_event() {
        let _ = (
            event.payload(),
            event.stack().frames().count(),
            event.metadata(),
        );
        dispatched += 1;
    }
    assert_eq!(dispatched, events, "by time");
    let recover = ReaderOptions {
        recover: true,
        ..ReaderOptions::default()
    };
    let (recovered, error) = read(data, recover).unwrap();
    assert_eq!(error, None);
    assert!(
        recovered >= events,
        "{recovered} events recovered, {events} without"
    );
    for format in [WriteFormat::V4, WriteFormat::V6] {
        let mut out = Vec::new();
        let mut reader = Reader::new(data).unwrap();
        // A description that fits no row is the one thing that cannot be written.
        let Ok((report, _)) = rewrite(&mut reader, &RewriteOptions::new(format), &mut out) else {
            continue;
        };
        let (written, error) = read(&out[..], ReaderOptions::default()).unwrap();
        assert_eq!(
            (written, error),
            (events - report.events_left_out, None),
            "{format:?}"
        );
    }
}

/// Bytes as descriptions: the payload of a metadata record of V4, and rows of V6.
pub(crate) fn metadata_holds(data: &[u8]) {
    let mut v4 = b"Nettrace\x14\0\0\0!FastSerialization.1\x05\x05\x01\x04\0\0\0\x04\0\0\0\x05\0\0\0Trace\x06".to_vec();
    v4.extend(TRACE);
    v4.extend([8, 0, 0, 0]);
    v4.extend([0; 12]);
    v4.push(6);
    v4.extend(b"\x05\x05\x01\x02\0\0\0\x02\0\0\0\x0d\0\0\0MetadataBlock\x06");
    let block = [
        &[20, 0, 1, 0][..],
        &[0; 16],
        &[0xc0, 0],
        &varint(data.len()),
        data,
    ]
    .concat();
    v4.extend((block.len() as u32).to_le_bytes());
    v4.resize(v4.len().next_multiple_of(4), 0);
    v4.extend(block);
    v4.extend([6, 1]);
    reader_holds(&v4);

    let mut v6 = b"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
    let trace = [&TRACE[..], &[8, 0, 0, 0, 0, 0, 0, 0]].concat();
    for (kind, block) in [
        (1u32, trace),
        (3, [&[0, 0], data].concat()),
        (0, Vec::new()),
    ] {
        v6.extend((block.len() as u32 & 0xff_ffff | kind << 24).to_le_bytes());
        v6.extend(block);
    }
    reader_holds(&v6);
}

const TRACE: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 202, 154, 59, 0, 0,
    0, 0,
];

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Events and the error, if any; `None` if it is no trace at all.
fn read(source: impl Read, options: ReaderOptions) -> Option<(u64, Option<Error>)> {
    let mut reader = Reader::with_options(source, options).ok()?;
    let error = loop {
        match reader.next_item() {
            Ok(Some(Item::Event(event))) => {
                let ids = (event.activity_id(), event.related_activity_id());
                let numbers = (
                    event.opcode(),
                    event.keywords(),
                    event.level(),
                    event.version(),
                );
                let _ = (
                    ids,
                    numbers,
                    event.stack().frames().count(),
                    event.labels().count(),
                );
                assert!(event.payload().len() as u64 <= reader_limit());
            }
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(reader.next_item(), Ok(None)), "the end is the end");
    assert!(reader.is_complete() || error.is_some() || !reader.skipped().is_empty());
    Some((reader.statistics().events, error))
}

fn reader_limit() -> u64 {
    u64::from(ReaderOptions::default().max_block_size)
}

struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = out.len().min(2).min(self.0.len());
        out[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}
