//! The worked examples of ipc.md 12, so that the layouts are tested without any file from outside.

mod common;

use common::{bytes, read};
use dotnet_diagnostics::codec::*;

const MAGIC: &str = "444f544e45545f4950435f563100";

fn message(rest: &str) -> Vec<u8> {
    bytes(&format!("{MAGIC}{rest}"))
}

#[track_caller]
fn both_ways(rest: &str, request: Request) {
    let message = message(rest);
    assert_eq!(request.encode().as_ref(), Ok(&message));
    assert_eq!(
        read(&message, Strictness::Exact),
        Progress::Request(request)
    );
}

#[test]
fn collect_tracing2_with_two_providers() {
    let mut counters = ProviderConfig::new("System.Runtime", 0, 4);
    counters.arguments = Some("EventCounterIntervalSec=1".into());
    both_ways(
        "db00 0203 0000 00010000 01000000 01 02000000
         1d80030010000000 04000000 20000000
         4d006900630072006f0073006f00660074002d00570069006e0064006f00770073002d0044006f0074004e
         0045005400520075006e00740069006d0065000000 00000000
         0000000000000000 04000000 0f000000
         530079007300740065006d002e00520075006e00740069006d0065000000 1a000000
         4500760065006e00740043006f0075006e0074006500720049006e00740065007200760061006c00530065
         0063003d0031000000",
        Request::CollectTracing(CollectTracing::new([
            ProviderConfig::new("Microsoft-Windows-DotNETRuntime", 0x10_0003_801D, 4),
            counters,
        ])),
    );
}

fn p() -> ProviderConfig {
    ProviderConfig::new("P", 1, 4)
}

#[test]
fn collect_tracing4_with_a_rundown_keyword() {
    let mut request = CollectTracing::new([p()]);
    (request.version, request.rundown_keyword) = (CollectVersion::V4, 1);
    assert_eq!(request.lowest_version(), CollectVersion::V4);
    both_ways(
        "4100 0205 0000 00010000 01000000 0100000000000000 01 01000000
         0100000000000000 04000000 02000000 50000000 00000000",
        Request::CollectTracing(request),
    );
}

#[test]
fn collect_tracing6_and_5_with_a_filter() {
    let mut provider = p();
    provider.event_filter = Some(EventFilter::Only(vec![7, 9]));
    let mut request = CollectTracing::new([provider]);
    (request.rundown_keyword, request.stack_walk) = (0, false);
    (request.version, request.buffering_mode) = (CollectVersion::V6, BufferingMode::Block);
    assert_eq!(request.lowest_version(), CollectVersion::V6);
    let body = "0000 00000000 00010000 01000000 0000000000000000 00 01000000
         0100000000000000 04000000 02000000 50000000 00000000
         01 02000000 07000000 09000000";
    both_ways(
        &format!("5600 0207 {body} 01000000"),
        Request::CollectTracing(request.clone()),
    );
    (request.version, request.buffering_mode) = (CollectVersion::V5, BufferingMode::Drop);
    assert_eq!(request.lowest_version(), CollectVersion::V5);
    both_ways(
        &format!("5200 0206 {body}"),
        Request::CollectTracing(request),
    );
}

#[test]
fn collect_tracing5_for_user_events() {
    let mut provider = p();
    provider.tracepoints = Some(Tracepoints {
        default_tracepoint: "tp".into(),
        sets: vec![],
    });
    both_ways(
        "4f00 0206 0000 01000000 0000000000000000 01000000
         0100000000000000 04000000 02000000 50000000 00000000
         00 00000000 03000000 740070000000 00000000",
        Request::CollectTracing(CollectTracing {
            version: CollectVersion::V5,
            session: SessionKind::UserEvents,
            buffer_mb: 0,
            format: Format::NetTrace,
            rundown_keyword: 0,
            stack_walk: false,
            buffering_mode: BufferingMode::Drop,
            providers: vec![provider],
        }),
    );
}

#[test]
fn short_requests() {
    both_ways(
        "1400 0404 0000",
        Request::ProcessInfo(ProcessInfoVersion::V2),
    );
    both_ways(
        "1c00 0201 0000 b01200244b7f0000",
        Request::StopTracing(SessionId(0x7F4B_2400_12B0)),
    );
    both_ways(
        "2e00 0103 0000 07000000 2f0074006d0070002f0064000000 04000000 01000000",
        Request::GenerateCoreDump(GenerateCoreDump {
            version: DumpVersion::V3,
            path: "/tmp/d".into(),
            dump_type: DumpType::FULL,
            flags: DumpFlags::LOGGING,
        }),
    );
}

#[test]
fn answers() {
    assert_eq!(
        encode_session(SessionId(0x7F4B_2400_12B0)).to_vec(),
        message("1c00 ff00 0000 b01200244b7f0000")
    );
    assert_eq!(encode_result().to_vec(), message("1800 ff00 0000 00000000"));
    assert_eq!(
        encode_error(ErrorCode::UNKNOWN_COMMAND).to_vec(),
        message("1800 ffff 0000 85131380")
    );
    assert_eq!(
        encode_environment(["A=1", "B="]).unwrap(),
        message(
            "1a00 ff00 0000 1a000000 0000
             02000000 04000000 41003d0031000000 03000000 42003d000000"
        )
    );
    let cookie: Guid = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
    let info = ProcessInfo {
        version: ProcessInfoVersion::V2,
        process_id: 0x1092,
        runtime_cookie: cookie,
        command_line: "/usr/bin/dotnet app.dll".into(),
        operating_system: "Linux".into(),
        architecture: "x64".into(),
        entry_assembly: "app".into(),
        product_version: "8.0.4".into(),
        runtime_identifier: String::new(),
    };
    let reply = message(
        "9800 ff00 0000 9210000000000000 67453e129be8d312a456426614174000
         18000000 2f007500730072002f00620069006e002f0064006f0074006e006500740020006100700070002e
         0064006c006c000000 06000000 4c0069006e00750078000000 04000000 7800360034000000
         04000000 6100700070000000 06000000 38002e0030002e0034000000",
    );
    assert_eq!(info.encode_reply(ProcessInfoVersion::V2).unwrap(), reply);
    assert_eq!(
        ProcessInfo::decode(ProcessInfoVersion::V2, &reply[HEADER_SIZE..]),
        Ok(info)
    );
    let packet = bytes("414456525f563100 67453e129be8d312a456426614174000 9210000000000000 0000");
    let advertise = Advertise {
        runtime_cookie: cookie,
        process_id: 0x1092,
    };
    assert_eq!(advertise.encode().to_vec(), packet);
}
