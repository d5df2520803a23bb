//! An in-process tracing runtime: anybody may attach to a running program, without root, restart or daemon, choose
//! providers, keywords and levels, and stream events with call stacks into a `.nettrace` file. `dotnet-trace`, `dotnet-counters`,
//! PerfView and `eventpipe` (the tool of this project) attach to it as to a .NET process.
//!
//! ```
//! eventpipe::provider! {
//!     /// Requests of a server.
//!     pub mod requests = "Demo-Requests";
//!
//!     /// A request came in.
//!     #[event(id = 1, level = Informational, keywords = 0x1, opcode = Start)]
//!     fn request_start(id: u64, path: &str);
//!
//!     /// It was answered.
//!     #[event(id = 2, level = Informational, keywords = 0x1, opcode = Stop)]
//!     fn request_stop(id: u64, status: u16);
//! }
//!
//! fn main() {
//!     eventpipe::start();
//!     requests::request_start(7, "/"); // one relaxed load while nobody listens
//!     if requests::request_stop::is_enabled() {
//!         requests::request_stop(7, 200);
//!     }
//! }
//! ```
//!
//! Start with [`start`], [`provider!`] and, for sessions without a tool, [`SessionRequest`]. The environment variables that
//! start a session with the process are listed at [`start`].
//!
//! What this crate is not: it has no symbol names, reads no traces (the crate `nettrace` does), and is no logging facade. Programs that have
//! one already, `tracing` or `log`, are traced through the layer in the crate `eventpipe-tracing`; counters are the crate `eventpipe-metrics`.
//!
//! The way of an event: [`Event::is_enabled`] (one load) → ring (copied once, tagged with the set of sessions) → drain thread
//! → encoder of each session → bounded queue → socket, file or function. The way of a command: socket → codec → registry
//! of sessions → masks of the events → callbacks of the providers, outside every lock.
//!
//! Items name sections of two documents: engine.md, the behaviour of .NET's EventPipe as this project describes it to itself, and nettrace.md, the
//! description of the format that the crate `nettrace` goes by.
//!
//! | feature | |
//! |---|---|
//! | `std` (default) | thread-local variables (faster; a current activity per thread); a callback of a provider that panics does not end the process. Without it the crate uses `core` and `alloc` only |
//! | `server` (default) | the diagnostics server. Without it sessions are started by the environment and by the program itself only; to start it later or to limit it see [`start_server`] and [`limit_server`] |
//! | `stacks` (part of `std`) | events with the stack of their thread; without it only stacks that the writer brings along |
//! | `v6` (part of `std`) | sessions in version 6 of the trace format; without it they have version 4 whatever they ask for |
//! | `netperf` (part of `std`) | sessions in version 3 of the trace format, for clients that ask for format 0; without it they are refused |
//! | `rundown` (default) | sessions that ask for a rundown are told of modules, threads and events at their end |
//! | `perf-map` (default) | the server writes `/tmp/perf-PID.map` for clients that ask for it |
//! | `dump` (default) | the server writes a core file for clients that ask for it |

#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

// The API.
mod argument;
mod definition;
mod event;
mod macros;
mod provider;

// Who wants what.
mod callback;
mod control;
mod engine;
mod event_table;
mod filter;
mod provider_string;
mod session;

// The way out.
mod consumer;
mod drain;
mod encoder;
mod id_map;
mod listener;
#[cfg(any(feature = "perf-map", feature = "rundown"))]
mod maps;
#[doc(hidden)]
pub mod measure;
#[cfg(feature = "netperf")]
mod netperf;
mod output;
mod process_info;
mod queue;
#[cfg(feature = "rundown")]
mod rundown;
mod stall;

// The process around.
pub mod activity;
mod environment;
mod exit;
mod foreign;
mod fork;
mod message;
#[cfg(feature = "server")]
mod server;
#[cfg(not(feature = "server"))]
#[path = "no_server.rs"]
mod server;

pub use argument::{Argument, Arguments, FieldKind};
pub use callback::{Cause, ProviderChange};
pub use definition::{Definition, FieldDescription, Level, Opcode};
pub use encoder::Rundown;
pub use event::{Event, EventOptions};
pub use eventpipe_ring::Payload;
pub use exit::shutdown;
pub use filter::{EventIds, ProviderRequest};
pub use listener::{HeardEvent, Listener};
#[doc(hidden)]
pub use macros::support;
pub use nettrace::Guid;
pub use process_info::Host;
pub use provider::{Provider, ProviderBuilder};
pub use provider_string::{ProviderStringError, parse_provider_string};
#[cfg(feature = "server")]
pub use server::{ServerCommands, limit_server};
pub use session::{
    Buffering, Format, Session, SessionError, SessionId, SessionRequest, SessionStatistics,
};

/// Makes the process traceable: opens the diagnostics socket, starts the session that the environment asks for, and sees to it
/// that sessions are completed when the process exits. Call it at the start of `main`; calling it again does nothing.
///
/// Nothing here can fail the program: what does not work is said in one line on standard error.
///
/// Settings are read under the prefixes `EVENTPIPE_` and `DOTNET_`, the first winning; numbers are hexadecimal:
///
/// | setting | meaning |
/// |---|---|
/// | `EnableEventPipe` | not 0: a session into a file, from the start to the end of the process |
/// | `EventPipeConfig` | its providers, `name[:keywords[:level[:arguments]]],…` ([`parse_provider_string`]); those of the [`Host`], else everything, if missing |
/// | `EventPipeOutputPath` | its file, `{pid}` being replaced; `trace.nettrace` if missing |
/// | `EventPipeCircularMB` | megabytes that may wait for a slow disk, less than 4096 ([`SessionRequest::buffer_mb`]); 256 if missing |
/// | `EventPipeBufferingMode` | 1: writers wait for a slow disk and lose nothing; 0, the default: events are lost; anything else, or 1 without streaming: no session |
/// | `EventPipeOutputStreaming` | 0: the file is written at the end only |
/// | `EventPipeEnableStackwalk` | 0: events carry no stacks, in no session |
/// | `EventPipeNetTraceFormat` | 6: the file has version 6 of the format, else 4 |
/// | `EventPipePoolMB` | megabytes of memory between writers and the drain, taken while sessions run; 64 if missing; no session starts if it is more than 64 GB or half of the machine's memory |
/// | `EnableDiagnostics`, `EnableDiagnostics_IPC` | 0: no diagnostics socket, and no ports |
/// | `DiagnosticPorts` | monitors to dial: `path[,suspend or nosuspend]`, separated by `;`; without a word the start waits until the monitor resumes it |
/// | `DefaultDiagnosticPortSuspend` | not 0: the start waits for a client to resume it |
/// | `TMPDIR` (as it is) | directory of the diagnostics socket, else `/tmp` |
pub fn start() {
    start_engine();
    start_server();
    wait_for_resume();
}

/// The first half of [`start`], for runtimes that start in steps: the session that the environment asks for.
pub fn start_engine() {
    if fork::is_child() {
        return;
    }
    static STARTED: eventpipe_os::sync::Once<()> = eventpipe_os::sync::Once::new();
    STARTED.get_or_init(|| match drain::start() {
        Ok(()) => environment::start_session(),
        Err(error) => message::warn(&["not traceable: ", error.text()]),
    });
}

/// The second half of [`start`]: the diagnostics server. May be called at any time after [`start_engine`], for programs that want
/// to be asked later than they want to be traced. Does nothing when the server runs already.
pub fn start_server() {
    if !fork::is_child() && environment::diagnostics_enabled() {
        server::start();
    }
}

/// The last part of [`start`]: waits as long as a port that asks for a suspended start has not been told to resume it.
pub fn wait_for_resume() {
    server::wait_for_resume();
}
