//! What holds for any bytes: shared by the fuzz target `diagnostics_codec` and the test that replays its corpus.

use dotnet_diagnostics::codec::*;
use dotnet_diagnostics::port_config::{PortConfig, ToolPort};

/// The codec on bytes from anywhere: no panic, and the same answer however the bytes come.
pub(crate) fn holds(data: &[u8]) {
    request(data);
    reply(data);
    if let Ok(environment) = decode_environment(data) {
        let again = encode_environment(environment.iter().map(String::as_str));
        // Lossy texts may hold zeros, which are not sent.
        if let Ok(again) = again {
            assert_eq!(
                decode_environment(&again[HEADER_SIZE + 6..]),
                Ok(environment)
            );
        }
    }
    if let Some(packet) = data.first_chunk::<{ Advertise::SIZE }>()
        && let Ok(advertise) = Advertise::decode(packet)
    {
        assert_eq!(advertise.encode()[..32], packet[..32]);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(
            PortConfig::parse_list(text)
                .iter()
                .all(|port| !port.address.is_empty())
        );
        assert!(!ToolPort::parse(text).is_ok_and(|port| port.path.is_empty()));
        let _ = text.parse::<Guid>();
    }
}

fn request(data: &[u8]) {
    let mut reader = RequestReader::new(Strictness::Exact);
    let (taken, whole) = reader.feed(data);
    let mut reader = RequestReader::new(Strictness::Exact);
    let mut taken_in_pieces = 0;
    let mut in_pieces = Progress::Need(HEADER_SIZE);
    for piece in data.chunks(7) {
        let (count, progress) = reader.feed(piece);
        taken_in_pieces += count;
        in_pieces = progress;
        if !matches!(in_pieces, Progress::Need(_)) {
            break;
        }
    }
    if !data.is_empty() {
        assert_eq!((taken, &whole), (taken_in_pieces, &in_pieces));
    }
    let Progress::Request(request) = whole else {
        return;
    };
    match request.encode() {
        Ok(message) => {
            let again = RequestReader::new(Strictness::Exact).feed(&message).1;
            assert_eq!(again, Progress::Request(request.clone()));
        }
        // An empty string may have come as a count of 0 and goes as a lone terminator.
        Err(error) => assert_eq!(error, EncodeError::TooLong),
    }
    let lenient = RequestReader::new(Strictness::Lenient).feed(data).1;
    assert_eq!(lenient, Progress::Request(request));
}

fn reply(data: &[u8]) {
    let Some((header, payload)) = data.split_first_chunk::<HEADER_SIZE>() else {
        return;
    };
    if let Ok(header) = Header::decode(header) {
        assert_eq!(header.encode()[..18], data[..18]);
        let _ = Reply::decode(&header, payload);
    }
    let _ = decode_session(payload);
    let _ = decode_environment_reply(payload);
    for version in ProcessInfoVersion::NEWEST_FIRST {
        if let Ok(info) = ProcessInfo::decode(version, payload)
            && let Ok(message) = info.encode_reply(version)
        {
            let again = ProcessInfo::decode(version, &message[HEADER_SIZE..]);
            let again = again.expect("our own answer");
            assert!(info.command_line.starts_with(&again.command_line));
            assert_eq!(again.runtime_cookie, info.runtime_cookie);
        }
    }
}
