//! Every command, with every truncation of its payload, with bytes too many, and with counts that promise gigabytes.

mod common;

use common::{one_of_each, read};
use dotnet_diagnostics::codec::*;

fn resized(message: &[u8], length: usize) -> Vec<u8> {
    let mut message = message.to_vec();
    message.resize(length, 0);
    message[14..16].copy_from_slice(&(length as u16).to_le_bytes());
    message
}

#[test]
fn every_truncation_of_every_command_is_bad_encoding() {
    let mut commands = std::collections::BTreeSet::new();
    for request in one_of_each() {
        commands.insert(request.command());
        let message = request.encode().unwrap();
        for length in HEADER_SIZE..message.len() {
            let cut = resized(&message, length);
            assert_eq!(
                read(&cut, Strictness::Exact),
                Progress::Error(ErrorCode::BAD_ENCODING),
                "{request:?} cut to {length}"
            );
            // Not said to be shorter, but ending early: never complete.
            let short = read(&message[..length], Strictness::Exact);
            if length < message.len() {
                assert_eq!(short, Progress::Need(message.len() - length));
            }
        }
    }
    assert!(commands.iter().eq(Command::ALL), "every command is here");
}

#[test]
fn bytes_too_many_are_refused_or_ignored_as_told() {
    for request in one_of_each() {
        let message = request.encode().unwrap();
        let longer = resized(&message, message.len() + 1);
        assert_eq!(
            read(&longer, Strictness::Exact),
            Progress::Error(ErrorCode::BAD_ENCODING),
            "{request:?}"
        );
        assert_eq!(
            read(&longer, Strictness::Lenient),
            Progress::Request(request)
        );
    }
}

#[test]
fn a_header_is_judged_before_its_payload_is_waited_for() {
    let good = Request::ResumeRuntime.encode().unwrap();
    for (at, byte, code) in [
        (0, b'X', ErrorCode::UNKNOWN_MAGIC),
        (12, b'2', ErrorCode::UNKNOWN_MAGIC),
        (13, 1, ErrorCode::UNKNOWN_MAGIC),
        (14, 19, ErrorCode::BAD_ENCODING),
        (14, 0, ErrorCode::BAD_ENCODING),
        (16, 0, ErrorCode::UNKNOWN_COMMAND),
        (16, 5, ErrorCode::UNKNOWN_COMMAND),
        (16, 0xFF, ErrorCode::UNKNOWN_COMMAND),
        (17, 9, ErrorCode::UNKNOWN_COMMAND),
    ] {
        let mut message = good.clone();
        message[at] = byte;
        assert_eq!(
            read(&message, Strictness::Exact),
            Progress::Error(code),
            "byte {at} = {byte}"
        );
    }
}

/// A payload whose count says `count`, at a place where an array is expected.
#[test]
fn a_count_without_its_elements_is_refused_before_anything_is_allocated() {
    let request = one_of_each()
        .into_iter()
        .find(|request| request.command() == Command::COLLECT_TRACING5)
        .unwrap();
    let message = request.encode().unwrap();
    let payload = &message[HEADER_SIZE..];
    for count in [1_u32 << 20, 0x4000_0000, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
        for at in 0..=payload.len() - 4 {
            let mut payload = payload.to_vec();
            payload[at..at + 4].copy_from_slice(&count.to_le_bytes());
            // Most places hold a count, a level or a kind; where it is a keyword or an id the request stays sound.
            match Request::decode(Command::COLLECT_TRACING5, &payload, Strictness::Exact) {
                Ok(_) | Err(ErrorCode::BAD_ENCODING) => {}
                Err(other) => panic!("{other} at {at}"),
            }
        }
    }
}

#[test]
fn the_rules_that_kill_existing_runtimes_are_checked_on_both_sides() {
    let sound = CollectTracing::new([ProviderConfig::new("P", 1, 4)]);
    let refused = |change: &dyn Fn(&mut CollectTracing), error: EncodeError| {
        let mut request = sound.clone();
        change(&mut request);
        assert_eq!(Request::CollectTracing(request).encode(), Err(error));
    };
    refused(&|r| r.buffer_mb = 0, EncodeError::ZeroBuffer);
    refused(&|r| r.providers.clear(), EncodeError::NoProviders);
    refused(
        &|r| r.providers = vec![r.providers[0].clone(); 1001],
        EncodeError::TooManyProviders,
    );
    refused(
        &|r| r.providers[0].name.clear(),
        EncodeError::EmptyProviderName,
    );
    refused(&|r| r.providers[0].level = 6, EncodeError::LevelOutOfRange);
    refused(
        &|r| r.providers[0].name = "a\0b".into(),
        EncodeError::EmbeddedZero,
    );
    refused(
        &|r| r.providers[0].arguments = Some("x".repeat(40_000)),
        EncodeError::TooLong,
    );
    refused(
        &|r| r.stack_walk = false,
        EncodeError::NotExpressible("a session without stacks"),
    );
    refused(
        &|r| r.providers[0].tracepoints = Some(Tracepoints::default()),
        EncodeError::BadTracepoints,
    );

    // And as bytes from somebody who does not check.
    let message = Request::CollectTracing(sound.clone()).encode().unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut message = message.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        read(&message, Strictness::Exact)
    };
    let bad = Progress::Error(ErrorCode::BAD_ENCODING);
    assert_eq!(with(20, &[0, 0, 0, 0]), bad, "0 MB");
    assert_eq!(with(24, &[2]), bad, "format 2");
    assert_eq!(with(29, &[0]), bad, "no providers");
    assert_eq!(with(41, &[6]), bad, "level 6");
    assert_eq!(with(41, &[5, 1]), bad, "level 261");
    assert_eq!(with(49, &[0x00, 0xD8]), bad, "half a surrogate pair");
    assert_eq!(with(51, &[1]), bad, "no terminator");
    assert_eq!(with(49, &[0, 0]), bad, "a zero inside");
    assert_eq!(
        with(28, &[0x7F]),
        Progress::Request(Request::CollectTracing(sound))
    );
}

#[test]
fn an_id_belongs_to_one_tracepoint_only() {
    for request in one_of_each() {
        let Request::CollectTracing(mut request) = request else {
            continue;
        };
        if request.session != SessionKind::UserEvents {
            continue;
        }
        let tracepoints = request.providers[0].tracepoints.as_mut().unwrap();
        tracepoints.sets.push(TracepointSet {
            tracepoint: "other".into(),
            event_ids: vec![2],
        });
        assert_eq!(
            Request::CollectTracing(request).encode(),
            Err(EncodeError::BadTracepoints)
        );
    }
}
