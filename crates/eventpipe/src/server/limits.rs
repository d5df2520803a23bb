//! What the embedding program lets clients do.

use core::ops::BitOr;
use core::sync::atomic::{AtomicU8, Ordering};

use dotnet_diagnostics::codec::Request;

/// What clients of the diagnostics server may do, joined by `|`. Information about the process, resuming it and ending
/// sessions are always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCommands(u8);

impl ServerCommands {
    /// Nothing but what is always allowed.
    pub const NONE: ServerCommands = ServerCommands(0);
    /// Sessions.
    pub const TRACING: ServerCommands = ServerCommands(1);
    /// Reading the environment, which may hold secrets.
    pub const READ_ENVIRONMENT: ServerCommands = ServerCommands(2);
    /// Changing the environment. In a program whose C code calls `getenv` at any time this is a risk, as `setenv` is.
    pub const SET_ENVIRONMENT: ServerCommands = ServerCommands(4);
    /// A file with the addresses of all functions.
    pub const PERF_MAP: ServerCommands = ServerCommands(8);
    /// Files with the memory of the process, wherever the process may write.
    pub const DUMP: ServerCommands = ServerCommands(16);
    /// Everything; how the server starts.
    pub const ALL: ServerCommands = ServerCommands(31);
}

impl BitOr for ServerCommands {
    type Output = ServerCommands;

    fn bitor(self, other: ServerCommands) -> ServerCommands {
        ServerCommands(self.0 | other.0)
    }
}

static ALLOWED: AtomicU8 = AtomicU8::new(ServerCommands::ALL.0);

/// Limits what clients may do from now on; other commands are answered with NOTSUPPORTED. May be called before the server
/// starts, and again. Sessions that run go on.
pub fn limit_server(allowed: ServerCommands) {
    ALLOWED.store(allowed.0, Ordering::Relaxed);
}

pub(super) fn allows(request: &Request) -> bool {
    let needed = match request {
        Request::CollectTracing(_) => ServerCommands::TRACING,
        Request::ProcessEnvironment => ServerCommands::READ_ENVIRONMENT,
        Request::SetEnvironmentVariable { .. } => ServerCommands::SET_ENVIRONMENT,
        Request::EnablePerfMap(_) | Request::DisablePerfMap => ServerCommands::PERF_MAP,
        Request::GenerateCoreDump(_) => ServerCommands::DUMP,
        _ => ServerCommands::NONE,
    };
    ALLOWED.load(Ordering::Relaxed) & needed.0 == needed.0
}
