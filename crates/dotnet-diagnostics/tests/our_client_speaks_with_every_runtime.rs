//! The client against running .NET 3.1, 8, 10 and 11: what each can do is done, what it cannot is named.

mod live;

use std::io::Read;
use std::time::Duration;

use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Endpoint, Fallback, Fallbacks, Session, StopOutcome};
use dotnet_diagnostics::codec::*;
use dotnet_diagnostics::port::Listener;
use live::{Target, command, provider, scratch};
use peers::{Peers, Runtime};

const LONG: Duration = Duration::from_secs(60);
const PROCESS_COMMANDS: [Runtime; 3] = [Runtime::Net8, Runtime::Net10, Runtime::Net11];

fn request(runtime: Runtime) -> CollectTracing {
    let (name, keywords, _) = provider(runtime);
    let mut request = CollectTracing::new([ProviderConfig::new(name, keywords, 5)]);
    (request.rundown_keyword, request.buffer_mb) = (0, 64);
    request
}

fn events(trace: &[u8], peers: &Peers, name: &str) -> Vec<serde_json::Value> {
    let file = scratch(name);
    std::fs::write(&file, trace).unwrap();
    let mut events = peers.oracle_events(&file);
    std::fs::remove_file(&file).unwrap();
    events.retain(|event| {
        event["provider"]
            .as_str()
            .is_some_and(|name| name.contains("Stress"))
    });
    events
}

#[test]
fn process_information_and_environment() {
    let Some(peers) = Peers::for_test("process_information_and_environment") else {
        return;
    };
    for runtime in PROCESS_COMMANDS {
        let mut command = command(&peers, runtime);
        command.env("DD_MARK", "a=b \u{E9}\u{1F600}");
        let mut target = Target::spawn(command, runtime);
        target.wait_for("ready");
        let client = target.client();
        let info = client.process_info().unwrap();
        assert_eq!(info.version, ProcessInfoVersion::V3);
        assert_eq!(info.process_id, u64::from(target.pid()));
        assert_eq!(info.entry_assembly, "workload");
        assert_eq!(info.operating_system, "Linux");
        assert!(
            info.command_line.contains("workload.dll stress"),
            "{info:?}"
        );
        assert!(info.runtime_identifier.starts_with("linux"), "{info:?}");
        let number = runtime.name().trim_start_matches("net");
        assert!(info.product_version.starts_with(number), "{info:?}");
        for version in ProcessInfoVersion::NEWEST_FIRST {
            let older = client.process_info_exactly(version).unwrap();
            assert_eq!(older.runtime_cookie, info.runtime_cookie);
        }
        let environment = client.environment().unwrap();
        assert!(environment.contains(&"DD_MARK=a=b \u{E9}\u{1F600}".into()));
        client.resume_runtime().unwrap();
    }
    let target = Target::start(&peers, Runtime::Net3);
    for result in [
        target.client().process_info().map(drop),
        target.client().resume_runtime(),
    ] {
        assert!(
            matches!(result, Err(Error::Unsupported { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn a_session_is_recorded_and_stopped() {
    let Some(peers) = Peers::for_test("a_session_is_recorded_and_stopped") else {
        return;
    };
    for runtime in Runtime::ALL {
        let mut target = Target::start(&peers, runtime);
        let client = target.client();
        let mut session = client.collect(&request(runtime), Fallbacks::NONE).unwrap();
        assert_eq!(session.version(), CollectVersion::V2);
        let stopper = session.stopper();
        let mut trace = Vec::new();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| session.read_to_end(&mut trace));
            target.go();
            if runtime == Runtime::Net3 {
                // It ends by itself, and its session with it.
                target.wait_for_work();
            } else {
                target.wait_for_work();
                assert_eq!(stopper.stop().unwrap(), StopOutcome::Stopped);
            }
            reading.join().unwrap().unwrap();
        });
        assert_eq!(stopper.stop().unwrap(), StopOutcome::AlreadyEnded);
        let label = format!("recorded-{}", runtime.name());
        assert_eq!(
            events(&trace, &peers, &label).len(),
            provider(runtime).2,
            "{label}"
        );
    }
}

#[test]
fn sixty_four_sessions_and_all_are_free_again_when_dropped() {
    let Some(peers) = Peers::for_test("sixty_four_sessions") else {
        return;
    };
    let check = &|runtime: Runtime| {
        let target = Target::start(&peers, runtime);
        let client = target.client();
        let session = || client.collect(&request(runtime), Fallbacks::NONE);
        for _ in 0..2 {
            let sessions: Vec<Session> = (0..64).map(|_| session().unwrap()).collect();
            match session() {
                Err(Error::Refused {
                    code: ErrorCode::FAIL,
                    ..
                }) => {}
                other => panic!("{}: {other:?}", runtime.name()),
            }
            drop(sessions);
        }
        session().unwrap().stop_into(&mut Vec::new()).unwrap();
    };
    // Each stop takes a tenth of a second of waiting.
    std::thread::scope(|scope| {
        let checks = Runtime::ALL.map(|runtime| scope.spawn(move || check(runtime)));
        for check in checks {
            check.join().unwrap();
        }
    });
}

#[test]
fn what_a_version_cannot_do_is_given_up_by_name() {
    let Some(peers) = Peers::for_test("what_a_version_cannot_do") else {
        return;
    };
    let mut all = request(Runtime::Net8);
    all.providers[0].event_filter = Some(EventFilter::Only(vec![3, 3, 1]));
    all.rundown_keyword = 1;
    all.stack_walk = false;
    all.buffering_mode = BufferingMode::Block;
    for (runtime, version, given_up) in [
        (
            Runtime::Net3,
            CollectVersion::V2,
            &[
                Fallback::Blocking,
                Fallback::EventFilter,
                Fallback::RundownKeyword,
                Fallback::StackWalk,
            ][..],
        ),
        (
            Runtime::Net8,
            CollectVersion::V2,
            &[
                Fallback::Blocking,
                Fallback::EventFilter,
                Fallback::RundownKeyword,
                Fallback::StackWalk,
            ],
        ),
        (Runtime::Net10, CollectVersion::V5, &[Fallback::Blocking]),
        (Runtime::Net11, CollectVersion::V6, &[]),
    ] {
        let target = Target::start(&peers, runtime);
        let client = target.client();
        let mut session = client.collect(&all, Fallbacks::ALL).unwrap();
        assert_eq!(session.version(), version, "{}", runtime.name());
        assert_eq!(session.fallbacks(), given_up, "{}", runtime.name());
        let mut trace = Vec::new();
        session.stop_into(&mut trace).unwrap();
        assert!(trace.starts_with(b"Nettrace"));
        let exact = client.collect(&all, Fallbacks::NONE);
        assert_eq!(exact.is_err(), runtime != Runtime::Net11);
    }
}

#[test]
fn only_the_events_of_a_filter_come_also_with_duplicates() {
    let Some(peers) = Peers::for_test("only_the_events_of_a_filter_come") else {
        return;
    };
    for runtime in [Runtime::Net10, Runtime::Net11] {
        let mut ids = std::collections::BTreeMap::new();
        for filter in [None, Some(())] {
            let mut target = Target::start(&peers, runtime);
            let mut wish = request(runtime);
            if filter.is_some() {
                let known: Vec<u32> = ids.keys().copied().collect();
                wish.providers[0].event_filter =
                    Some(EventFilter::Only([&known[..], &known].concat()));
            }
            let mut session = target.client().collect(&wish, Fallbacks::NONE).unwrap();
            target.go();
            target.wait_for_work();
            let mut trace = Vec::new();
            session.stop_into(&mut trace).unwrap();
            let events = events(&trace, &peers, &format!("filter-{}", runtime.name()));
            assert_eq!(events.len(), 1000, "{} {filter:?}", runtime.name());
            for event in events {
                *ids.entry(event["id"].as_u64().unwrap() as u32).or_insert(0) += 1;
            }
        }
    }
}

#[test]
fn a_suspended_start_is_resumed_in_whatever_order_both_sides_come() {
    let Some(peers) = Peers::for_test("a_suspended_start_is_resumed") else {
        return;
    };
    for runtime in PROCESS_COMMANDS {
        let path = scratch(&format!("port-{}", runtime.name()));
        let start = || {
            let mut command = command(&peers, runtime);
            command.env("DOTNET_DiagnosticPorts", &path);
            Target::spawn(command, runtime)
        };
        // One process is there first, a second comes after the listener.
        let early = start();
        std::thread::sleep(Duration::from_millis(300));
        let listener = Listener::bind(&path).unwrap();
        let late = start();
        let mut targets = [early, late];
        for _ in 0..2 {
            let found = listener
                .next_runtime(LONG)
                .unwrap()
                .expect("a process dials in");
            let client = Client::new(Endpoint::Runtime(found.clone()));
            let info = client.process_info().unwrap();
            assert_eq!(info.runtime_cookie, found.cookie());
            assert_eq!(info.process_id, found.process_id());
            let mut session = client.collect(&request(runtime), Fallbacks::NONE).unwrap();
            client
                .set_environment_variable("DD_SET", Some("1"))
                .unwrap();
            assert!(client.environment().unwrap().contains(&"DD_SET=1".into()));
            client.resume_runtime().unwrap();
            let target = targets
                .iter_mut()
                .find(|target| u64::from(target.pid()) == found.process_id())
                .expect("one of ours");
            target.wait_for("ready");
            target.go();
            target.wait_for_work();
            let mut trace = Vec::new();
            session.stop_into(&mut trace).unwrap();
            let label = format!("suspended-{}", runtime.name());
            assert_eq!(events(&trace, &peers, &label).len(), 1000, "{label}");
        }
        // The listener restarts, the processes find the new one.
        drop(listener);
        let listener = Listener::bind(&path).unwrap();
        let mut seen: Vec<u64> = (0..2)
            .map(|_| {
                listener
                    .next_runtime(LONG)
                    .unwrap()
                    .expect("again")
                    .process_id()
            })
            .collect();
        seen.sort_unstable();
        let mut expected: Vec<u64> = targets
            .iter()
            .map(|target| u64::from(target.pid()))
            .collect();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }
}

#[test]
fn variables_perf_maps_hooks_profilers_and_dumps() {
    let Some(peers) = Peers::for_test("variables_perf_maps_hooks_profilers_and_dumps") else {
        return;
    };
    for runtime in PROCESS_COMMANDS {
        let target = Target::start(&peers, runtime);
        let client = target.client();
        let label = runtime.name();
        client
            .set_environment_variable("DD_SET", Some("x"))
            .unwrap();
        client.set_environment_variable("DD_SET", None).unwrap();
        match client.set_environment_variable("DD_SET", None) {
            Err(Error::Refused { code, .. }) => {
                assert_eq!(code, ErrorCode::ENVVAR_NOT_FOUND, "{label}")
            }
            // .NET 8 says OK.
            Ok(()) => assert_eq!(runtime, Runtime::Net8),
            other => panic!("{label}: {other:?}"),
        }
        client.enable_perf_map(PerfMapType::PERF_MAP).unwrap();
        client.disable_perf_map().unwrap();
        let map = format!("/tmp/perf-{}.map", target.pid());
        assert!(std::fs::metadata(&map).unwrap().len() > 0, "{label}");
        std::fs::remove_file(map).unwrap();
        let profiler = client.attach_profiler(AttachProfiler {
            timeout: 1,
            class_id: Guid([1; 16]),
            path: "/no/such.so".into(),
            client_data: vec![1],
        });
        assert!(
            matches!(
                profiler,
                Err(Error::Refused {
                    code: ErrorCode::MODULE_NOT_FOUND,
                    ..
                })
            ),
            "{label}: {profiler:?}"
        );
        let dump =
            client.generate_core_dump("/no/such/folder/core", DumpType::NORMAL, DumpFlags(0));
        match dump {
            Err(Error::Refused {
                code: ErrorCode::FAIL,
                message,
                ..
            }) => {
                assert!(!message.is_empty(), "{label}");
            }
            other => panic!("{label}: {other:?}"),
        }
    }
    let target = Target::start(&peers, Runtime::Net3);
    let client = target.client();
    for result in [
        client.set_environment_variable("A", None),
        client.enable_perf_map(PerfMapType::ALL),
        client.disable_perf_map(),
        client.apply_startup_hook("/hook.dll"),
    ] {
        assert!(
            matches!(result, Err(Error::Unsupported { .. })),
            "{result:?}"
        );
    }
}

#[test]
fn the_kernels_tracepoints_get_the_documented_refusal_where_there_are_none() {
    use std::os::fd::AsFd;
    let Some(peers) = Peers::for_test("the_kernels_tracepoints") else {
        return;
    };
    let no_tracepoints = std::fs::File::open("/dev/null").unwrap();
    let mut wish = request(Runtime::Net10);
    wish.session = SessionKind::UserEvents;
    (wish.buffer_mb, wish.stack_walk) = (0, false);
    wish.providers[0].tracepoints = Some(Tracepoints {
        default_tracepoint: "dd_test".into(),
        sets: vec![],
    });
    let old = Target::start(&peers, Runtime::Net8);
    let result = old
        .client()
        .collect_user_events(&wish, no_tracepoints.as_fd());
    assert!(
        matches!(result, Err(Error::Unsupported { .. })),
        "{result:?}"
    );
    for runtime in [Runtime::Net10, Runtime::Net11] {
        let target = Target::start(&peers, runtime);
        let client = target.client();
        let result = client.collect_user_events(&wish, no_tracepoints.as_fd());
        assert!(
            matches!(
                result,
                Err(Error::Refused {
                    code: ErrorCode::FAIL,
                    ..
                })
            ),
            "{}: {result:?}",
            runtime.name()
        );
        client.process_info().unwrap();
    }
}
