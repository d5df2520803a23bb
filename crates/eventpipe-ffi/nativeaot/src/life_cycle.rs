//! Start and end, in the order in which the runtime calls: EventPipe, diagnostics server, pause, (heap), finish; at the exit
//! EventPipe, diagnostics server.

use alloc::string::String;

use eventpipe::Host;
use eventpipe_os::text;

use crate::{modules, native, runtime, sampler};

/// What the runtime records into a file where nothing else is asked for.
const DEFAULT_PROVIDERS: &str = "Microsoft-Windows-DotNETRuntime:4c14fccbd:5,Microsoft-Windows-DotNETRuntimePrivate:4002000b:5,Microsoft-DotNETCore-SampleProfiler:0:5";

/// Comes first of all, before there are managed code, a heap and runtime threads: providers of the runtime, the session that the
/// environment asks for.
#[unsafe(export_name = "_Z20EventPipe_Initializev")]
extern "C" fn initialize() {
    let version = runtime::version();
    Host {
        entry_assembly: entry_assembly(),
        product_version: version.clone(),
        default_providers: Some(DEFAULT_PROVIDERS),
        rundown: Some(modules::run_down),
    }
    .announce();
    native::register();
    sampler::register(&version);
    eventpipe::start_engine();
}

/// The program's name without its extension, as runtimes give it.
fn entry_assembly() -> String {
    let name = eventpipe_os::process::executable_name();
    let stem = match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => name.get(..dot).unwrap_or_default(),
        None => &name,
    };
    text::lossy(stem)
}

/// Opens the diagnostics socket and dials the ports of `DOTNET_DiagnosticPorts`.
#[unsafe(export_name = "_Z27DiagnosticServer_Initializev")]
extern "C" fn initialize_server() -> bool {
    eventpipe::start_server();
    true
}

/// Waits while a port asks for a suspended start, until a client resumes the process.
#[unsafe(export_name = "_Z43DiagnosticServer_PauseForDiagnosticsMonitorv")]
extern "C" fn pause() {
    eventpipe::wait_for_resume();
}

/// Nothing is left to do here.
#[unsafe(export_name = "_Z23EventTracing_Initializev")]
extern "C" fn initialize_tracing() {}

/// The heap is ready. Only the sampler had to wait for it: the engine's own threads need nothing of the runtime.
#[unsafe(export_name = "_Z26EventPipe_FinishInitializev")]
extern "C" fn finish_initialization() {
    sampler::allow();
}

/// A thread that the runtime knew ends. The ring has its own hook for the end of every thread, which runs later than this, so
/// that events written in between are kept too.
#[unsafe(export_name = "_Z24EventPipe_ThreadShutdownv")]
extern "C" fn thread_shutdown() {}

/// From an `atexit` handler, while other threads go on writing: all sessions are stopped and delivered, in bounded time.
#[unsafe(export_name = "_Z18EventPipe_Shutdownv")]
extern "C" fn shutdown() {
    eventpipe::shutdown();
}

/// The socket is gone already.
#[unsafe(export_name = "_Z25DiagnosticServer_Shutdownv")]
extern "C" fn shut_server_down() -> bool {
    true
}
