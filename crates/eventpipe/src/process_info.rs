//! What the engine says of its process: in the header of a trace, in the event `ProcessInfo` at its end, and to clients.

use alloc::string::String;
use alloc::vec::Vec;

#[cfg(feature = "server")]
use dotnet_diagnostics::codec::{Guid as Cookie, ProcessInfo, ProcessInfoVersion};
use eventpipe_os::sync::Once;
use eventpipe_os::{clock, process};
use nettrace::{FormatVersion, SystemTime, TraceInfo, TraceWriter, WriteError};

use crate::argument::{put_utf16, utf16_units};
use crate::definition::{Definition, Level};
use crate::encoder::Rundown;

/// The metadata id of the event `ProcessInfo` in every stream; all others follow.
pub(crate) const PROCESS_INFO_METADATA: u32 = 1;

/// Longer command lines are cut, so that event and answer fit where they must (UTF-16 units).
const LONGEST_COMMAND_LINE: usize = 20_000;

/// The header of a trace that starts now. Time stamps are nanoseconds of the monotonic clock.
pub(crate) fn trace_info() -> TraceInfo {
    let before = clock::monotonic_ns();
    let utc = clock::utc_now();
    TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(i64::try_from(utc.unix_ns).unwrap_or(i64::MAX)),
        sync_ticks: i64::try_from(before).unwrap_or(i64::MAX),
        ticks_per_second: 1_000_000_000,
        pointer_size: size_of::<usize>() as u32,
        process_id: Some(u64::from(process::pid())),
        processor_count: Some(process::processor_count()),
        // Nothing samples; the field says how often it would.
        sampling_period_ns: Some(1_000_000),
        pairs: Vec::new(),
    }
}

/// Describes the event `ProcessInfo` (engine.md 8; its version is 1 in the metadata of every runtime).
pub(crate) fn define(writer: &mut TraceWriter) -> Result<(), WriteError> {
    writer.define_encoded(PROCESS_INFO_METADATA, PROCESS_INFO_PROVIDER, &description())
}

pub(crate) const PROCESS_INFO_PROVIDER: &str = "Microsoft-DotNETCore-EventPipe";

pub(crate) fn description() -> Vec<u8> {
    Definition::new("ProcessInfo")
        .id(1)
        .version(1)
        .level(Level::LogAlways)
        .description(&["CommandLine", "OSInformation", "ArchInformation"])
}

/// The payload of the event `ProcessInfo`.
pub(crate) fn payload() -> Vec<u8> {
    let command_line = command_line();
    let texts = [
        command_line.as_str(),
        process::os_name(),
        process::arch_name(),
    ];
    let mut payload = Vec::new();
    for text in texts {
        let start = payload.len();
        payload.resize(start + utf16_units(text) * 2 + 2, 0);
        put_utf16(text, payload.get_mut(start..).unwrap_or_default());
    }
    payload
}

/// What a client is told.
#[cfg(feature = "server")]
pub(crate) fn process_info(version: ProcessInfoVersion) -> ProcessInfo {
    let mut runtime_identifier = String::from("linux-");
    runtime_identifier.push_str(process::arch_name());
    ProcessInfo {
        version,
        process_id: u64::from(process::pid()),
        runtime_cookie: cookie(),
        command_line: command_line(),
        operating_system: String::from(process::os_name()),
        architecture: String::from(process::arch_name()),
        entry_assembly: match HOST.get() {
            Some(host) => host.entry_assembly.clone(),
            None => text(&process::executable_name()),
        },
        product_version: String::from(match HOST.get() {
            Some(host) => &host.product_version,
            None => env!("CARGO_PKG_VERSION"),
        }),
        runtime_identifier,
    }
}

static HOST: Once<Host> = Once::new();

/// A runtime that this engine serves, as clients that ask for process information are told of it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Name of the program's main module.
    pub entry_assembly: String,
    /// Version of the runtime.
    pub product_version: String,
    /// The providers of the session that the environment asks for without naming any, as `EventPipeConfig` spells them.
    pub default_providers: Option<&'static str>,
    /// Called on the drain's thread at the end of each session that asks for a rundown. It must not wait for anything that
    /// waits for a session.
    pub rundown: Option<fn(&mut Rundown<'_>)>,
}

impl Host {
    /// Makes clients see this host instead of the executable's name and this crate's version. The first one counts.
    pub fn announce(self) {
        HOST.get_or_init(|| self);
    }
}

pub(crate) fn default_providers() -> Option<String> {
    Some(String::from(HOST.get()?.default_providers?))
}

pub(crate) fn run_down(rundown: &mut Rundown<'_>) {
    #[cfg(feature = "rundown")]
    crate::rundown::write(rundown);
    if let Some(host) = HOST.get().and_then(|host| host.rundown) {
        host(rundown);
    }
}

/// A random GUID: version 4, variant 1, in Windows byte order.
pub(crate) fn random_guid() -> [u8; 16] {
    let mut bytes = [0; 16];
    if !process::fill_random(&mut bytes) {
        let (pid, start) = (u64::from(process::pid()), process::start_ticks());
        let mixed = (u128::from(pid) << 64 | u128::from(start)) ^ u128::from(clock::ticks());
        bytes = mixed.to_le_bytes();
    }
    bytes[7] = bytes[7] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

fn command_line() -> String {
    let mut line = text(&process::command_line());
    let mut units = 0;
    let cut = line.char_indices().find_map(|(at, character)| {
        units += character.len_utf16();
        (units > LONGEST_COMMAND_LINE).then_some(at)
    });
    if let Some(at) = cut {
        line.truncate(at);
    }
    line
}

pub(crate) use eventpipe_os::text::lossy as text;

/// Identifies the process among all that a monitor sees: random, the same for the life of the process.
#[cfg(feature = "server")]
pub(crate) fn cookie() -> Cookie {
    static COOKIE: Once<[u8; 16]> = Once::new();
    Cookie(*COOKIE.get_or_init(random_guid))
}
