//! Shared by the tests: hexadecimal, and requests of every kind for properties.
#![allow(dead_code, reason = "each test uses a part of it")]

use dotnet_diagnostics::codec::*;
use proptest::prelude::*;

/// Bytes from hexadecimal digits; blanks are skipped.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16).expect("hexadecimal") as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// What a server makes of a message that it got whole.
pub(crate) fn read(message: &[u8], strictness: Strictness) -> Progress {
    let mut reader = RequestReader::new(strictness);
    reader.feed(message).1
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[^\\x00]{1,12}",
        "[A-Z][a-z]{0,5}-\u{1F600}?\u{E9}?"
    ]
}

fn ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 0..20)
}

fn filter() -> impl Strategy<Value = Option<EventFilter>> {
    prop_oneof![
        Just(None),
        ids().prop_map(|ids| Some(EventFilter::Only(ids))),
        (ids(), any::<u32>()).prop_map(|(mut ids, one)| {
            ids.push(one);
            Some(EventFilter::AllBut(ids))
        }),
    ]
}

fn tracepoints() -> impl Strategy<Value = Tracepoints> {
    let sets = prop::collection::vec(("[a-z]{1,8}", 1_usize..5), 0..4);
    ("[a-z]{1,8}", sets).prop_map(|(default_tracepoint, sets)| {
        let mut next = 0..;
        Tracepoints {
            default_tracepoint,
            sets: sets
                .into_iter()
                .map(|(tracepoint, count)| TracepointSet {
                    tracepoint,
                    event_ids: next.by_ref().take(count).collect(),
                })
                .collect(),
        }
    })
}

fn provider() -> impl Strategy<Value = (ProviderConfig, Tracepoints)> {
    (
        "[^\\x00]{1,12}",
        any::<u64>(),
        0_u8..6,
        prop::option::of(text()),
        filter(),
        tracepoints(),
    )
        .prop_map(
            |(name, keywords, level, arguments, event_filter, tracepoints)| {
                let provider = ProviderConfig {
                    name,
                    keywords,
                    level,
                    arguments,
                    event_filter,
                    tracepoints: None,
                };
                (provider, tracepoints)
            },
        )
}

/// Every session that can be asked for, by every version that can say it.
pub(crate) fn collect() -> impl Strategy<Value = CollectTracing> {
    (
        0_usize..6,
        any::<bool>(),
        1_u32..,
        any::<bool>(),
        prop_oneof![Just(0), Just(DEFAULT_RUNDOWN_KEYWORD), any::<u64>()],
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(provider(), 1..5),
    )
        .prop_map(
            |(version, user_events, buffer_mb, netperf, rundown, stacks, block, providers)| {
                let version = CollectVersion::ALL[version];
                let user_events = user_events && version >= CollectVersion::V5;
                let block = block && version == CollectVersion::V6 && !user_events;
                CollectTracing {
                    version,
                    session: if user_events {
                        SessionKind::UserEvents
                    } else {
                        SessionKind::Stream
                    },
                    buffer_mb: if user_events { 0 } else { buffer_mb },
                    format: if netperf && !user_events {
                        Format::NetPerf
                    } else {
                        Format::NetTrace
                    },
                    rundown_keyword: match version {
                        CollectVersion::V1 => DEFAULT_RUNDOWN_KEYWORD,
                        CollectVersion::V2 | CollectVersion::V3 if rundown != 0 => {
                            DEFAULT_RUNDOWN_KEYWORD
                        }
                        _ => rundown,
                    },
                    stack_walk: !user_events && (stacks || version < CollectVersion::V3),
                    buffering_mode: if block {
                        BufferingMode::Block
                    } else {
                        BufferingMode::Drop
                    },
                    providers: providers
                        .into_iter()
                        .map(|(mut provider, tracepoints)| {
                            if version < CollectVersion::V5 {
                                provider.event_filter = None;
                            }
                            provider.tracepoints = user_events.then_some(tracepoints);
                            provider
                        })
                        .collect(),
                }
            },
        )
}

fn guid() -> impl Strategy<Value = Guid> {
    any::<[u8; 16]>().prop_map(Guid)
}

/// Every request.
pub(crate) fn request() -> impl Strategy<Value = Request> {
    let dump = (0_usize..3, text(), any::<u32>(), any::<u32>()).prop_map(
        |(version, path, dump_type, flags)| {
            Request::GenerateCoreDump(GenerateCoreDump {
                version: DumpVersion::NEWEST_FIRST[version],
                path,
                dump_type: DumpType(dump_type),
                flags: DumpFlags(flags),
            })
        },
    );
    let attach = (
        any::<u32>(),
        guid(),
        text(),
        prop::collection::vec(any::<u8>(), 0..50),
    )
        .prop_map(|(timeout, class_id, path, client_data)| {
            Request::AttachProfiler(AttachProfiler {
                timeout,
                class_id,
                path,
                client_data,
            })
        });
    let startup = (guid(), text())
        .prop_map(|(class_id, path)| Request::StartupProfiler(StartupProfiler { class_id, path }));
    let set = (prop::option::of(text()), prop::option::of(text()))
        .prop_map(|(name, value)| Request::SetEnvironmentVariable { name, value });
    prop_oneof![
        dump,
        attach,
        startup,
        set,
        any::<u64>().prop_map(|id| Request::StopTracing(SessionId(id))),
        collect().prop_map(Request::CollectTracing),
        (0_usize..3).prop_map(|at| Request::ProcessInfo(ProcessInfoVersion::NEWEST_FIRST[at])),
        Just(Request::ResumeRuntime),
        Just(Request::ProcessEnvironment),
        any::<u32>().prop_map(|kind| Request::EnablePerfMap(PerfMapType(kind))),
        Just(Request::DisablePerfMap),
        prop::option::of(text()).prop_map(|path| Request::ApplyStartupHook { path }),
    ]
}

/// One request of every command, with something in every field.
pub(crate) fn one_of_each() -> Vec<Request> {
    let mut provider = ProviderConfig::new("Demo", 0x1_0000_0001, 5);
    provider.arguments = Some("a=b;c=\"d=e\"".into());
    let mut all: Vec<Request> = DumpVersion::NEWEST_FIRST
        .map(|version| {
            Request::GenerateCoreDump(GenerateCoreDump {
                version,
                path: "/tmp/core".into(),
                dump_type: DumpType::FULL,
                flags: DumpFlags(u32::from(version > DumpVersion::V1) * 4),
            })
        })
        .into();
    all.push(Request::StopTracing(SessionId(0x7F00_1234_5678)));
    for version in CollectVersion::ALL {
        let mut request = CollectTracing::new([provider.clone(), provider.clone()]);
        request.version = version;
        if version >= CollectVersion::V5 {
            request.providers[0].event_filter = Some(EventFilter::Only(vec![1, 7]));
        }
        all.push(Request::CollectTracing(request.clone()));
        if version >= CollectVersion::V5 {
            request.session = SessionKind::UserEvents;
            (request.buffer_mb, request.stack_walk) = (0, false);
            for provider in &mut request.providers {
                provider.tracepoints = Some(Tracepoints {
                    default_tracepoint: "rest".into(),
                    sets: vec![TracepointSet {
                        tracepoint: "some".into(),
                        event_ids: vec![1, 2],
                    }],
                });
            }
            all.push(Request::CollectTracing(request));
        }
    }
    all.push(Request::AttachProfiler(AttachProfiler {
        timeout: 5,
        class_id: Guid([7; 16]),
        path: "/p.so".into(),
        client_data: vec![1, 2, 3],
    }));
    all.push(Request::StartupProfiler(StartupProfiler {
        class_id: Guid([7; 16]),
        path: "/p.so".into(),
    }));
    all.extend(ProcessInfoVersion::NEWEST_FIRST.map(Request::ProcessInfo));
    all.extend([
        Request::ResumeRuntime,
        Request::ProcessEnvironment,
        Request::SetEnvironmentVariable {
            name: Some("NAME".into()),
            value: Some("value".into()),
        },
        Request::EnablePerfMap(PerfMapType::PERF_MAP),
        Request::DisablePerfMap,
        Request::ApplyStartupHook {
            path: Some("/hook.dll".into()),
        },
    ]);
    all
}
