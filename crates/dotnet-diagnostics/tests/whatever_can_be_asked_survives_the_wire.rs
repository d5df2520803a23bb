//! Properties of the codec: every request comes back as it went, in whatever pieces; every answer too.

mod common;

use common::{collect, read, request};
use dotnet_diagnostics::codec::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_request_comes_back_as_it_went(request in request()) {
        let message = request.encode().expect("valid requests can be sent");
        prop_assert_eq!(read(&message, Strictness::Exact), Progress::Request(request));
    }

    #[test]
    fn a_request_in_any_pieces_is_the_same_request(
        request in request(),
        pieces in prop::collection::vec(1_usize..40, 1..400),
    ) {
        let message = request.encode().unwrap();
        let mut reader = RequestReader::new(Strictness::Exact);
        let mut at = 0_usize;
        for size in pieces.into_iter().chain([usize::MAX]) {
            let needed = reader.needed();
            let piece = &message[at..at.saturating_add(size).min(message.len())];
            let (taken, progress) = reader.feed(piece);
            prop_assert_eq!(taken, piece.len());
            at += taken;
            if at == message.len() {
                prop_assert_eq!(progress, Progress::Request(request));
                break;
            }
            prop_assert!(matches!(progress, Progress::Need(_)));
            prop_assert!(reader.needed() > 0 && (reader.needed() < needed || taken >= needed));
        }
        prop_assert_eq!(at, message.len());
    }

    #[test]
    fn what_follows_a_request_is_left_alone(request in request(), tail in any::<[u8; 3]>()) {
        let mut message = request.encode().unwrap();
        let length = message.len();
        message.extend(tail);
        let mut reader = RequestReader::new(Strictness::Exact);
        prop_assert_eq!(reader.feed(&message), (length, Progress::Request(request)));
    }

    #[test]
    fn the_lowest_version_says_everything(request in collect()) {
        let mut lowest = request.clone();
        lowest.version = request.lowest_version();
        // Version 1 is the only one that can say less than version 2 at the same cost.
        prop_assert!(lowest.version <= request.version.max(CollectVersion::V2));
        let message = Request::CollectTracing(lowest.clone()).encode().expect("it can say it");
        prop_assert_eq!(
            read(&message, Strictness::Exact),
            Progress::Request(Request::CollectTracing(lowest))
        );
    }

    #[test]
    fn bytes_of_any_kind_are_an_error_at_worst(
        set in 0_u8..6,
        id in 0_u8..10,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let command = Command { set, id };
        let result = Request::decode(command, &payload, Strictness::Lenient);
        match result {
            Ok(request) => prop_assert_eq!(request.command(), command),
            Err(code) if command.name().is_some() => prop_assert_eq!(code, ErrorCode::BAD_ENCODING),
            Err(code) => prop_assert_eq!(code, ErrorCode::UNKNOWN_COMMAND),
        }
    }

    #[test]
    fn an_environment_comes_back_as_it_went(entries in prop::collection::vec("[^\\x00]{0,20}", 0..20)) {
        let message = encode_environment(entries.iter().map(String::as_str)).unwrap();
        let (head, continuation) = message.split_at(HEADER_SIZE + 6);
        prop_assert_eq!(
            decode_environment_reply(&head[HEADER_SIZE..]),
            Ok(continuation.len() as u32)
        );
        prop_assert_eq!(decode_environment(continuation), Ok(entries));
    }
}
