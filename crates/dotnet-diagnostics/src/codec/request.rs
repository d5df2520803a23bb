//! Requests: every command that a client can send (ipc.md 2).

use alloc::string::String;
use alloc::vec::Vec;

use super::collect::{CollectTracing, CollectVersion};
use super::error_code::ErrorCode;
use super::guid::Guid;
use super::header::Command;
use super::process_info::ProcessInfoVersion;
use super::wire::{
    Bytes, DecodeError, EncodeError, begin_message, finish_message, put_count, put_string, put_u32,
    put_u64,
};

/// A session of the target. An address in existing runtimes, and reused as soon as the session has ended (ipc.md 10):
/// never stop a session that has ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// What to do with bytes behind the last known field of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// BAD_ENCODING. No known client sends any, and a server that ignores them has answered with stale memory.
    #[default]
    Exact,
    /// Ignored, as existing runtimes mostly do (ipc.md 1).
    Lenient,
}

impl Strictness {
    pub(super) fn finish(self, bytes: &Bytes<'_>) -> Result<(), DecodeError> {
        match self {
            Strictness::Exact if !bytes.is_empty() => Err(DecodeError::TrailingBytes),
            _ => Ok(()),
        }
    }
}

/// Which of the three dump commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DumpVersion {
    /// GenerateCoreDump: the flags are a switch for logging.
    V1,
    /// GenerateCoreDump2, .NET 6.
    V2,
    /// GenerateCoreDump3, .NET 7 or 8: an error carries a text.
    V3,
}

impl DumpVersion {
    /// Newest first: the order in which a client asks, going on only on UNKNOWN_COMMAND.
    pub const NEWEST_FIRST: [DumpVersion; 3] = [DumpVersion::V3, DumpVersion::V2, DumpVersion::V1];

    /// The command's set and id.
    pub const fn command(self) -> Command {
        match self {
            DumpVersion::V1 => Command::GENERATE_CORE_DUMP,
            DumpVersion::V2 => Command::GENERATE_CORE_DUMP2,
            DumpVersion::V3 => Command::GENERATE_CORE_DUMP3,
        }
    }
}

/// How much of the process a dump holds; a server answers FAIL to others than the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DumpType(pub u32);

impl DumpType {
    /// Threads, stacks, modules.
    pub const NORMAL: DumpType = DumpType(1);
    /// And the heap.
    pub const WITH_HEAP: DumpType = DumpType(2);
    /// As small as possible, without personal data.
    pub const TRIAGE: DumpType = DumpType(3);
    /// All memory.
    pub const FULL: DumpType = DumpType(4);
}

/// Switches of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DumpFlags(pub u32);

impl DumpFlags {
    /// The dump program writes a log to the target's standard output.
    pub const LOGGING: DumpFlags = DumpFlags(1);
    /// A longer one.
    pub const VERBOSE_LOGGING: DumpFlags = DumpFlags(2);
    /// A crash report in JSON beside the dump.
    pub const CRASH_REPORT: DumpFlags = DumpFlags(4);
}

/// Write a core dump of the process to a file of its own file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GenerateCoreDump {
    /// Which command says it.
    pub version: DumpVersion,
    /// The file, as the target sees it.
    pub path: String,
    /// How much.
    pub dump_type: DumpType,
    /// Switches; version 1 knows only whether the word is 0.
    pub flags: DumpFlags,
}

/// Load a profiler into a running process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachProfiler {
    /// Milliseconds by the document, seconds as the C# client sends it (ipc.md 2.3).
    pub timeout: u32,
    /// The profiler's class id.
    pub class_id: Guid,
    /// The profiler's file, as the target sees it.
    pub path: String,
    /// Handed to the profiler.
    pub client_data: Vec<u8>,
}

/// Load a profiler when a suspended process starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StartupProfiler {
    /// The profiler's class id.
    pub class_id: Guid,
    /// The profiler's file, as the target sees it.
    pub path: String,
}

/// Which files EnablePerfMap makes; a server answers INVALIDARG to others than the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PerfMapType(pub u32);

impl PerfMapType {
    /// Both.
    pub const ALL: PerfMapType = PerfMapType(1);
    /// `jit-PID.dump`.
    pub const JIT_DUMP: PerfMapType = PerfMapType(2);
    /// `perf-PID.map`.
    pub const PERF_MAP: PerfMapType = PerfMapType(3);
}

/// A request. Strings are `Option` where existing runtimes tell a count of 0 (`None`) from an empty string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Dump 1 to 3.
    GenerateCoreDump(GenerateCoreDump),
    /// End a session, with rundown and end of stream. OK also for an id that does not exist.
    StopTracing(SessionId),
    /// EventPipe 2 to 7: begin a session.
    CollectTracing(CollectTracing),
    /// Profiler 1.
    AttachProfiler(AttachProfiler),
    /// Profiler 2.
    StartupProfiler(StartupProfiler),
    /// Process 0, 4 and 8.
    ProcessInfo(ProcessInfoVersion),
    /// Let a process go on that is suspended at its start. OK in any state.
    ResumeRuntime,
    /// The environment block, behind the answer.
    ProcessEnvironment,
    /// Set or remove a variable.
    SetEnvironmentVariable {
        /// `None` is INVALIDARG in existing runtimes.
        name: Option<String>,
        /// `None` removes the variable.
        value: Option<String>,
    },
    /// Write files that make perf understand the process.
    EnablePerfMap(PerfMapType),
    /// No longer.
    DisablePerfMap,
    /// Run a managed assembly's start-up hook.
    ApplyStartupHook {
        /// The assembly; `None` is INVALIDARG in existing runtimes.
        path: Option<String>,
    },
}

impl Request {
    /// The command that carries this request.
    pub fn command(&self) -> Command {
        match self {
            Request::GenerateCoreDump(dump) => dump.version.command(),
            Request::StopTracing(_) => Command::STOP_TRACING,
            Request::CollectTracing(request) => request.version.command(),
            Request::AttachProfiler(_) => Command::ATTACH_PROFILER,
            Request::StartupProfiler(_) => Command::STARTUP_PROFILER,
            Request::ProcessInfo(version) => version.command(),
            Request::ResumeRuntime => Command::RESUME_RUNTIME,
            Request::ProcessEnvironment => Command::PROCESS_ENVIRONMENT,
            Request::SetEnvironmentVariable { .. } => Command::SET_ENVIRONMENT_VARIABLE,
            Request::EnablePerfMap(_) => Command::ENABLE_PERF_MAP,
            Request::DisablePerfMap => Command::DISABLE_PERF_MAP,
            Request::ApplyStartupHook { .. } => Command::APPLY_STARTUP_HOOK,
        }
    }

    /// A request from its command and payload, validated by all rules that do not need the process.
    ///
    /// # Errors
    /// The code to answer with: [`ErrorCode::UNKNOWN_COMMAND`], never anything else, for a set or id that is not known
    /// (clients fall back on it); [`ErrorCode::BAD_ENCODING`] for a payload that does not parse.
    pub fn decode(
        command: Command,
        payload: &[u8],
        strictness: Strictness,
    ) -> Result<Request, ErrorCode> {
        let bytes = &mut Bytes::new(payload);
        let request = match command {
            Command::GENERATE_CORE_DUMP => decode_dump(DumpVersion::V1, bytes)?,
            Command::GENERATE_CORE_DUMP2 => decode_dump(DumpVersion::V2, bytes)?,
            Command::GENERATE_CORE_DUMP3 => decode_dump(DumpVersion::V3, bytes)?,
            Command::STOP_TRACING => Request::StopTracing(SessionId(bytes.u64()?)),
            Command::COLLECT_TRACING => decode_collect(CollectVersion::V1, bytes, strictness)?,
            Command::COLLECT_TRACING2 => decode_collect(CollectVersion::V2, bytes, strictness)?,
            Command::COLLECT_TRACING3 => decode_collect(CollectVersion::V3, bytes, strictness)?,
            Command::COLLECT_TRACING4 => decode_collect(CollectVersion::V4, bytes, strictness)?,
            Command::COLLECT_TRACING5 => decode_collect(CollectVersion::V5, bytes, strictness)?,
            Command::COLLECT_TRACING6 => decode_collect(CollectVersion::V6, bytes, strictness)?,
            Command::ATTACH_PROFILER => Request::AttachProfiler(AttachProfiler {
                timeout: bytes.u32()?,
                class_id: bytes.guid()?,
                path: bytes.string()?.unwrap_or_default(),
                client_data: {
                    let size = bytes.count(1)?;
                    bytes.take(size)?.to_vec()
                },
            }),
            Command::STARTUP_PROFILER => Request::StartupProfiler(StartupProfiler {
                class_id: bytes.guid()?,
                path: bytes.string()?.unwrap_or_default(),
            }),
            Command::PROCESS_INFO => Request::ProcessInfo(ProcessInfoVersion::V1),
            Command::PROCESS_INFO2 => Request::ProcessInfo(ProcessInfoVersion::V2),
            Command::PROCESS_INFO3 => Request::ProcessInfo(ProcessInfoVersion::V3),
            Command::RESUME_RUNTIME => Request::ResumeRuntime,
            Command::PROCESS_ENVIRONMENT => Request::ProcessEnvironment,
            Command::SET_ENVIRONMENT_VARIABLE => Request::SetEnvironmentVariable {
                name: bytes.string()?,
                value: bytes.string()?,
            },
            Command::ENABLE_PERF_MAP => Request::EnablePerfMap(PerfMapType(bytes.u32()?)),
            Command::DISABLE_PERF_MAP => Request::DisablePerfMap,
            Command::APPLY_STARTUP_HOOK => Request::ApplyStartupHook {
                path: bytes.string()?,
            },
            _ => return Err(ErrorCode::UNKNOWN_COMMAND),
        };
        strictness.finish(bytes)?;
        Ok(request)
    }

    /// The whole message. What [`Request::decode`] would refuse is refused here, before it can hurt anybody.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = begin_message(self.command());
        match self {
            Request::GenerateCoreDump(dump) => {
                put_string(&mut out, Some(&dump.path))?;
                put_u32(&mut out, dump.dump_type.0);
                put_u32(&mut out, dump.flags.0);
            }
            Request::StopTracing(session) => put_u64(&mut out, session.0),
            Request::CollectTracing(request) => request.encode(&mut out)?,
            Request::AttachProfiler(profiler) => {
                put_u32(&mut out, profiler.timeout);
                out.extend_from_slice(&profiler.class_id.0);
                put_string(&mut out, Some(&profiler.path))?;
                put_count(&mut out, profiler.client_data.len())?;
                out.extend_from_slice(&profiler.client_data);
            }
            Request::StartupProfiler(profiler) => {
                out.extend_from_slice(&profiler.class_id.0);
                put_string(&mut out, Some(&profiler.path))?;
            }
            Request::SetEnvironmentVariable { name, value } => {
                put_string(&mut out, name.as_deref())?;
                put_string(&mut out, value.as_deref())?;
            }
            Request::EnablePerfMap(kind) => put_u32(&mut out, kind.0),
            Request::ApplyStartupHook { path } => put_string(&mut out, path.as_deref())?,
            Request::ProcessInfo(_)
            | Request::ResumeRuntime
            | Request::ProcessEnvironment
            | Request::DisablePerfMap => {}
        }
        finish_message(out)
    }
}

fn decode_dump(version: DumpVersion, bytes: &mut Bytes<'_>) -> Result<Request, DecodeError> {
    Ok(Request::GenerateCoreDump(GenerateCoreDump {
        version,
        path: bytes.string()?.unwrap_or_default(),
        dump_type: DumpType(bytes.u32()?),
        flags: DumpFlags(bytes.u32()?),
    }))
}

fn decode_collect(
    version: CollectVersion,
    bytes: &mut Bytes<'_>,
    strictness: Strictness,
) -> Result<Request, DecodeError> {
    CollectTracing::decode(version, bytes, strictness).map(Request::CollectTracing)
}
