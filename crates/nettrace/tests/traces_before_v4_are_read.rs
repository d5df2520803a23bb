//! V1, V2 and V3 without any recorded trace: built from the description of the format, read, and written anew.

mod support;

use nettrace::rewrite::{RewriteOptions, rewrite};
use nettrace::{ErrorKind, FormatVersion, Reader, WriteFormat};
use support::legacy::{Legacy, legacy};

#[test]
fn events_stacks_and_descriptions_come_out() {
    let stack = [0x1000, 0x2000];
    let events = [
        (3000, 1, &[7, 0, 0, 0][..], &stack[..]),
        (2000, 2, &[8, 0, 0, 0, 1], &stack[..1]),
        (4000, 1, &[], &[]),
    ];
    for (version, format) in [
        (Legacy::V1, FormatVersion::V1),
        (Legacy::V2, FormatVersion::V2),
        (Legacy::V3, FormatVersion::V3),
    ] {
        let bytes = legacy(version, &events);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        assert_eq!(reader.info().format, format);
        assert_eq!(
            reader.info().process_id,
            (version == Legacy::V3).then_some(4711)
        );
        for (timestamp, thread, payload, stack) in events {
            let event = reader.next_event().unwrap().unwrap();
            assert_eq!(
                (event.timestamp(), event.thread_id()),
                (timestamp, u64::from(thread))
            );
            assert_eq!(event.payload(), payload);
            assert_eq!(event.stack().frames().collect::<Vec<_>>(), stack);
            assert_eq!(event.activity_id().0, [0xac; 16]);
            let metadata = event.metadata();
            assert_eq!(
                (metadata.event_id, metadata.name.as_str(), metadata.version),
                (7, "Seven", 3)
            );
            assert_eq!((metadata.level, metadata.fields.len()), (4, 1));
        }
        assert!(reader.next_event().unwrap().is_none());
        assert!(reader.is_complete() && reader.losses().is_lower_bound);

        for target in [WriteFormat::V4, WriteFormat::V6] {
            let mut out = Vec::new();
            let mut reader = Reader::new(&bytes[..]).unwrap();
            let (report, damage) =
                rewrite(&mut reader, &RewriteOptions::new(target), &mut out).unwrap();
            assert_eq!((report.events, damage), (3, None));
            let mut written = Reader::new(&out[..]).unwrap();
            let mut found = Vec::new();
            while let Some(event) = written.next_event().unwrap() {
                found.push((
                    event.timestamp(),
                    event.sequence_number(),
                    event.stack().len(),
                ));
            }
            assert_eq!(
                found,
                [(2000, 1, 1), (3000, 1, 2), (4000, 2, 0)],
                "by time, numbered by thread"
            );
            assert_eq!(written.losses().total(), 0);
        }
    }
}

#[test]
fn every_beginning_gives_its_events_and_one_error() {
    let events = [
        (3000, 1, &[7, 0, 0, 0][..], &[0x1000][..]),
        (2000, 2, &[8, 0, 0, 0], &[]),
    ];
    for version in [Legacy::V1, Legacy::V2, Legacy::V3] {
        let bytes = legacy(version, &events);
        let mut before = 0;
        for length in 0..bytes.len() {
            let (mut events, mut error) = (0, None);
            match Reader::new(&bytes[..length]) {
                Ok(mut reader) => {
                    while error.is_none() {
                        match reader.next_event() {
                            Ok(Some(_)) => events += 1,
                            Ok(None) => panic!("{version:?}: {length} bytes are not whole"),
                            Err(found) => error = Some(found),
                        }
                    }
                }
                Err(found) => error = Some(found),
            }
            let error = error.unwrap();
            assert_eq!(error.offset, length as u64, "{version:?}: {error}");
            assert!(matches!(
                error.kind,
                ErrorKind::HeaderTruncated | ErrorKind::Truncated | ErrorKind::TruncatedBlock
            ));
            assert!(events >= before, "{version:?}: {length}");
            before = events;
        }
        assert_eq!(before, 2, "{version:?}");
    }
}
