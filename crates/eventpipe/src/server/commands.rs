//! What each command does in a native process (ipc.md 2).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[cfg(feature = "perf-map")]
use dotnet_diagnostics::codec::PerfMapType;
use dotnet_diagnostics::codec::{
    self, BufferingMode, CollectTracing, ErrorCode, EventFilter, ProcessInfoVersion,
    ProviderConfig, Request, SessionKind, encode_error, encode_result, encode_session,
};
use eventpipe_os::process;
use rustix::fd::OwnedFd;

#[cfg(feature = "dump")]
use super::dump;
#[cfg(any(feature = "perf-map", feature = "dump"))]
use super::job::Job;
use super::limits;
#[cfg(feature = "perf-map")]
use super::perf_map;
use super::ports::{self, PortNumber};
use crate::control;
use crate::environment;
use crate::filter::{EventIds, ProviderRequest};
use crate::output::Output;
use crate::process_info::{process_info, text};
use crate::session::{self, Buffering, Format, SessionId, SessionRequest, SessionState};

#[derive(Debug)]
pub(super) enum Answer {
    Message(Vec<u8>),
    /// The answer is due when the session has ended.
    AfterEnd {
        session: Arc<SessionState>,
        answer: Vec<u8>,
    },
    /// The session sends the answer and then its stream, on the same socket.
    Stream,
    /// An error that the client reads only after it has sent a descriptor.
    AfterDescriptor(ErrorCode),
    /// A thread is at it.
    #[cfg(any(feature = "perf-map", feature = "dump"))]
    Later(Arc<Job>),
}

impl Answer {
    fn error(code: ErrorCode) -> Answer {
        Answer::Message(encode_error(code).into())
    }
}

pub(super) fn execute(request: Request, socket: &Arc<OwnedFd>, port: PortNumber) -> Answer {
    if !limits::allows(&request) {
        return Answer::error(ErrorCode::NOTSUPPORTED);
    }
    match request {
        Request::CollectTracing(request) => collect(request, socket),
        Request::StopTracing(id) => stop(id),
        Request::ProcessInfo(version) => answer_process_info(version),
        Request::ProcessEnvironment => answer_environment(),
        // An answer of OK is expected also where nothing is suspended.
        Request::ResumeRuntime => {
            ports::resume(port);
            Answer::Message(encode_result().into())
        }
        Request::SetEnvironmentVariable { name, value } => {
            set_environment(&name.unwrap_or_default(), value.as_deref())
        }
        #[cfg(feature = "perf-map")]
        Request::EnablePerfMap(kind) => enable_perf_map(kind),
        // The file is complete already; it stays.
        #[cfg(feature = "perf-map")]
        Request::DisablePerfMap => Answer::Message(encode_result().into()),
        #[cfg(not(feature = "perf-map"))]
        Request::EnablePerfMap(_) | Request::DisablePerfMap => {
            Answer::error(ErrorCode::NOTSUPPORTED)
        }
        #[cfg(feature = "dump")]
        Request::GenerateCoreDump(request) => dump::generate(request),
        #[cfg(not(feature = "dump"))]
        Request::GenerateCoreDump(_) => Answer::error(ErrorCode::NOTSUPPORTED),
        // There is no managed code to profile or to hook into.
        Request::AttachProfiler(_)
        | Request::StartupProfiler(_)
        | Request::ApplyStartupHook { .. } => Answer::error(ErrorCode::NOTSUPPORTED),
    }
}

fn collect(request: CollectTracing, socket: &Arc<OwnedFd>) -> Answer {
    let format = match request.format {
        codec::Format::NetTrace => Format::V4,
        #[cfg(feature = "netperf")]
        codec::Format::NetPerf => Format::V3,
        #[cfg(not(feature = "netperf"))]
        codec::Format::NetPerf => return Answer::error(ErrorCode::FAIL),
    };
    if request.session == SessionKind::UserEvents {
        // As runtimes answer where the kernel has no user_events, or the descriptor is another one: the engine writes no tracepoints.
        return Answer::AfterDescriptor(ErrorCode::FAIL);
    }
    if asks_for_samples_only(&request) && control::find(SAMPLE_PROFILER).is_none() {
        return Answer::error(ErrorCode::NOTSUPPORTED);
    }
    let request = SessionRequest {
        providers: request.providers.into_iter().map(provider).collect(),
        buffer_mb: request.buffer_mb,
        buffering: match request.buffering_mode {
            BufferingMode::Drop => Buffering::Drop,
            BufferingMode::Block => Buffering::Block,
        },
        format,
        stacks: request.stack_walk && environment::stacks_enabled(),
        rundown_keywords: request.rundown_keyword,
        hold_until_stop: false,
    };
    // It goes out when the session is on: the stream does not begin before.
    let answer = |id: SessionId| encode_session(codec::SessionId(id.0)).into();
    match session::start(request, Output::Socket(socket.clone()), answer) {
        Ok(session) => {
            session.begin();
            Answer::Stream
        }
        Err(_) => Answer::error(ErrorCode::FAIL),
    }
}

/// Of .NET's runtimes: what each managed thread is doing, at an interval.
const SAMPLE_PROFILER: &str = "Microsoft-DotNETCore-SampleProfiler";

/// dotnet-gcdump and dotnet-stack begin so. Where nobody takes samples the stream would stay empty: the one would wait for its
/// first event for ever, the other print nothing and call it success. Refused, both say why and end.
fn asks_for_samples_only(request: &CollectTracing) -> bool {
    request
        .providers
        .iter()
        .all(|provider| provider.name == SAMPLE_PROFILER)
}

fn provider(config: ProviderConfig) -> ProviderRequest {
    let event_ids = config.event_filter.as_ref().map(|filter| match filter {
        EventFilter::Only(ids) => EventIds::only(ids),
        EventFilter::AllBut(ids) => EventIds::all_but(ids),
    });
    ProviderRequest {
        name: config.name,
        keywords: config.keywords,
        level: u32::from(config.level),
        arguments: config.arguments.filter(|arguments| !arguments.is_empty()),
        event_ids,
    }
}

fn stop(id: codec::SessionId) -> Answer {
    let answer = encode_session(id).into();
    // An id that is not known, or not any more, is answered in the same way.
    match control::disable(SessionId(id.0), true) {
        Some(session) if !session.has_ended() => Answer::AfterEnd { session, answer },
        _ => Answer::Message(answer),
    }
}

fn answer_process_info(version: ProcessInfoVersion) -> Answer {
    match process_info(version).encode_reply(version) {
        Ok(answer) => Answer::Message(answer),
        Err(_) => Answer::error(ErrorCode::FAIL),
    }
}

fn answer_environment() -> Answer {
    let entries: Vec<String> = process::environment()
        .iter()
        .map(|entry| text(entry))
        .collect();
    match codec::encode_environment(entries.iter().map(String::as_str)) {
        Ok(answer) => Answer::Message(answer),
        Err(_) => Answer::error(ErrorCode::FAIL),
    }
}

/// As `setenv` and `unsetenv` do it. A name that no variable can have is an invalid argument, also the empty one.
fn set_environment(name: &str, value: Option<&str>) -> Answer {
    let result = match value {
        Some(value) => process::set_env(name, value.as_bytes()),
        None => {
            let exists = process::env(name).is_some();
            let result = process::unset_env(name);
            if result.is_ok() && !exists {
                return Answer::error(ErrorCode::ENVVAR_NOT_FOUND);
            }
            result
        }
    };
    match result {
        Ok(()) => Answer::Message(encode_result().into()),
        Err(_) => Answer::error(ErrorCode::INVALIDARG),
    }
}

#[cfg(feature = "perf-map")]
fn enable_perf_map(kind: PerfMapType) -> Answer {
    match kind {
        PerfMapType::ALL | PerfMapType::PERF_MAP => {}
        // No code is made at run time here.
        PerfMapType::JIT_DUMP => return Answer::error(ErrorCode::NOTSUPPORTED),
        _ => return Answer::error(ErrorCode::INVALIDARG),
    }
    let job = Job::start(|| match perf_map::write() {
        Ok(()) => encode_result().into(),
        Err(_) => encode_error(ErrorCode::FAIL).into(),
    });
    job.map_or_else(|| Answer::error(ErrorCode::FAIL), Answer::Later)
}
