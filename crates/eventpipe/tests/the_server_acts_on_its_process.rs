//! Promise: clients set variables and get a map of the functions of the process, as far as the program lets them.

mod common;

use common::{alone, client};
use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::{DumpFlags, DumpType, ErrorCode, PerfMapType};
use eventpipe::{ServerCommands, limit_server};

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<ErrorCode> {
    match result.expect_err("refused") {
        Error::Refused { code, .. } => Some(code),
        _ => None,
    }
}

#[test]
fn variables_are_set_and_removed() {
    let _alone = alone();
    let client = client();
    for value in ["one two", "", "ü€😀=="] {
        client
            .set_environment_variable("EVENTPIPE_TEST", Some(value))
            .expect("set");
        assert_eq!(std::env::var("EVENTPIPE_TEST").as_deref(), Ok(value));
    }
    client
        .set_environment_variable("EVENTPIPE_TEST", None)
        .expect("removed");
    assert!(std::env::var_os("EVENTPIPE_TEST").is_none());
    assert_eq!(
        code(client.set_environment_variable("EVENTPIPE_TEST", None)),
        Some(ErrorCode::ENVVAR_NOT_FOUND)
    );
    for name in ["A=B", "="] {
        for value in [None, Some("x")] {
            assert_eq!(
                code(client.set_environment_variable(name, value)),
                Some(ErrorCode::INVALIDARG)
            );
        }
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn eventpipe_test_function_to_be_found() -> u32 {
    std::hint::black_box(7)
}

#[test]
fn the_perf_map_has_the_functions_of_the_program_and_its_libraries() {
    let _alone = alone();
    let path = format!("/tmp/perf-{}.map", std::process::id());
    for kind in [PerfMapType::ALL, PerfMapType::PERF_MAP] {
        client().enable_perf_map(kind).expect("made");
        let map = std::fs::read(&path).expect("the map");
        std::fs::remove_file(&path).expect("ours");
        let map = String::from_utf8_lossy(&map);
        let address_of = |name: &str| {
            let line = map
                .lines()
                .find(|line| line.split(' ').nth(2) == Some(name))
                .unwrap_or_else(|| panic!("no {name} in {} lines", map.lines().count()));
            usize::from_str_radix(line.split(' ').next().expect("a field"), 16).expect("a number")
        };
        assert_eq!(eventpipe_test_function_to_be_found(), 7);
        assert_eq!(
            address_of("eventpipe_test_function_to_be_found"),
            eventpipe_test_function_to_be_found as *const () as usize
        );
        // One of a library, which has no full table where it is stripped.
        if cfg!(all(target_env = "gnu", not(target_feature = "crt-static"))) {
            assert_eq!(address_of("getpid"), libc::getpid as *const () as usize);
        }
    }
    client().disable_perf_map().expect("answered");
    assert_eq!(
        code(client().enable_perf_map(PerfMapType(0))),
        Some(ErrorCode::INVALIDARG)
    );
}

#[test]
fn the_program_limits_what_clients_may_do() {
    let _alone = alone();
    limit_server(ServerCommands::TRACING | ServerCommands::PERF_MAP);
    assert_eq!(code(client().environment()), Some(ErrorCode::NOTSUPPORTED));
    assert_eq!(
        code(client().set_environment_variable("EVENTPIPE_LIMITED", Some("x"))),
        Some(ErrorCode::NOTSUPPORTED)
    );
    assert!(std::env::var_os("EVENTPIPE_LIMITED").is_none());
    client().process_info().expect("always");
    client().resume_runtime().expect("always");
    client().disable_perf_map().expect("allowed");
    limit_server(ServerCommands::ALL);
    client().environment().expect("allowed again");
}

/// What one permission opens no other does: a client that may only record gets neither memory nor addresses.
#[test]
fn each_command_needs_its_own_permission() {
    let _alone = alone();
    let needs = [
        ServerCommands::TRACING,
        ServerCommands::READ_ENVIRONMENT,
        ServerCommands::SET_ENVIRONMENT,
        ServerCommands::PERF_MAP,
        ServerCommands::DUMP,
    ];
    // A dump into no folder, a map of no kind: what is allowed leaves nothing behind.
    let nowhere = "/nowhere/of/eventpipe-test";
    let ask = |which: ServerCommands| {
        let client = client();
        match which {
            ServerCommands::TRACING => client
                .collect(&common::everything_of("Nobody"), Fallbacks::NONE)
                .map(drop),
            ServerCommands::READ_ENVIRONMENT => client.environment().map(drop),
            ServerCommands::SET_ENVIRONMENT => {
                client.set_environment_variable("EVENTPIPE_PERMITTED", Some("x"))
            }
            ServerCommands::PERF_MAP => client.enable_perf_map(PerfMapType(0)),
            _ => client
                .generate_core_dump(nowhere, DumpType::NORMAL, DumpFlags::default())
                .map(drop),
        }
    };
    let is_refused = |which| {
        let refusal = ask(which).err();
        matches!(refusal, Some(Error::Refused { code, .. }) if code == ErrorCode::NOTSUPPORTED)
    };
    for allowed in needs {
        for needed in needs {
            limit_server(allowed);
            assert_eq!(
                is_refused(needed),
                needed != allowed,
                "{needed:?} where {allowed:?}"
            );
        }
    }
    limit_server(ServerCommands::PERF_MAP | ServerCommands::TRACING);
    assert!(is_refused(ServerCommands::DUMP) && is_refused(ServerCommands::READ_ENVIRONMENT));
    limit_server(ServerCommands::NONE);
    assert_eq!(
        code(client().disable_perf_map()),
        Some(ErrorCode::NOTSUPPORTED)
    );
    assert!(needs.into_iter().all(is_refused));
    limit_server(ServerCommands::ALL);
}
