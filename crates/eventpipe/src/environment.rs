//! What the environment asks for (engine.md 9). Each setting is read under the prefixes `EVENTPIPE_` and `DOTNET_`; the
//! first one wins. Numbers are hexadecimal, as in .NET: `EventPipeCircularMB=100` is 256 MB.
//!
//! | setting | meaning |
//! |---|---|
//! | `EnableEventPipe` | not 0: a session into a file from the start to the end of the process |
//! | `EventPipeConfig` | its providers ([`parse_provider_string`]); those of the host, else everything, if missing |
//! | `EventPipeOutputPath` | its file, `{pid}` being replaced; `trace.nettrace` if missing |
//! | `EventPipeCircularMB` | its buffer; 256 MB if missing, 1 MB if 0 |
//! | `EventPipeBufferingMode` | 0 drop, 1 block; anything else, or 1 without streaming: no session |
//! | `EventPipeOutputStreaming` | 0: written at the end only |
//! | `EventPipeEnableStackwalk` | 0: no session gets stacks |
//! | `EventPipeNetTraceFormat` | its format: 6 for V6, else V4 |
//! | `EventPipePoolMB` | memory between writers and the drain; 64 MB if missing |
//! | `EnableDiagnostics`, `EnableDiagnostics_IPC` | 0: no diagnostics socket, and no ports |
//! | `DiagnosticPorts` | monitors to dial: `path[,suspend or nosuspend]`, separated by `;` |
//! | `DefaultDiagnosticPortSuspend` | not 0: the start waits for a client to resume it |

use alloc::string::String;
use alloc::vec::Vec;

use dotnet_diagnostics::codec::DEFAULT_RUNDOWN_KEYWORD;
use eventpipe_os::process;

use crate::filter::ProviderRequest;
use crate::message;
use crate::process_info::{self, text};
use crate::provider_string::{hexadecimal, parse_provider_string};
use crate::session::{Buffering, Format, SessionRequest};

const DEFAULT_POOL_MB: u64 = 64;
const DEFAULT_BUFFER_MB: u64 = 256;

/// The value of a setting.
pub(crate) fn setting(name: &str) -> Option<String> {
    ["EVENTPIPE_", "DOTNET_"].iter().find_map(|prefix| {
        let mut full = String::from(*prefix);
        full.push_str(name);
        process::env(&full).map(|value| text(&value))
    })
}

fn number(name: &str) -> Option<u64> {
    let value = setting(name)?;
    let digits = value.trim_ascii();
    let digits = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
        .unwrap_or(digits);
    if digits.is_empty() {
        return None;
    }
    let number = hexadecimal(digits);
    if number.is_none() {
        message::warn(&[
            "the setting ",
            name,
            " is not a hexadecimal number: ",
            &value,
        ]);
    }
    number
}

fn is_off(name: &str) -> bool {
    number(name) == Some(0)
}

/// Whether clients may connect.
pub(crate) fn diagnostics_enabled() -> bool {
    !is_off("EnableDiagnostics") && !is_off("EnableDiagnostics_IPC")
}

/// Whether the default port holds the start until a client resumes it.
#[cfg(feature = "server")]
pub(crate) fn default_port_suspends() -> bool {
    number("DefaultDiagnosticPortSuspend").is_some_and(|number| number != 0)
}

/// Whether sessions may have stacks.
pub(crate) fn stacks_enabled() -> bool {
    !is_off("EventPipeEnableStackwalk")
}

/// Size of the ring's pool.
pub(crate) fn pool_bytes() -> usize {
    let megabytes = number("EventPipePoolMB")
        .unwrap_or(DEFAULT_POOL_MB)
        .clamp(1, 1 << 24);
    usize::try_from(megabytes << 20).unwrap_or(usize::MAX)
}

/// Starts the session that the environment asks for. It ends with the process. What is wrong is said on standard error, and the
/// program runs on.
pub(crate) fn start_session() {
    if number("EnableEventPipe").unwrap_or(0) == 0 {
        return;
    }
    let config = setting("EventPipeConfig")
        .filter(|text| !text.is_empty())
        .or_else(process_info::default_providers);
    let providers = match config {
        None => Vec::from([ProviderRequest::new("*")]),
        Some(text) => match parse_provider_string(&text) {
            Ok(providers) => providers,
            Err(error) => {
                let at = message::decimal(error.at() as u64);
                message::warn(&[
                    "no session: EventPipeConfig has ",
                    error.text(),
                    " at byte ",
                    &at,
                ]);
                return;
            }
        },
    };
    let buffering =
        match setting("EventPipeBufferingMode").map(|_| number("EventPipeBufferingMode")) {
            None | Some(Some(0)) => Buffering::Drop,
            Some(Some(1)) => Buffering::Block,
            Some(_) => {
                message::warn(&["no session: EventPipeBufferingMode is neither 0 nor 1"]);
                return;
            }
        };
    let megabytes = number("EventPipeCircularMB")
        .unwrap_or(DEFAULT_BUFFER_MB)
        .max(1);
    let request = SessionRequest {
        providers,
        buffer_mb: u32::try_from(megabytes).unwrap_or(u32::MAX),
        buffering,
        format: if number("EventPipeNetTraceFormat") == Some(6) {
            Format::V6
        } else {
            Format::V4
        },
        stacks: stacks_enabled(),
        rundown_keywords: DEFAULT_RUNDOWN_KEYWORD,
        hold_until_stop: is_off("EventPipeOutputStreaming"),
    };
    let path = setting("EventPipeOutputPath").filter(|path| !path.is_empty());
    let path = path.unwrap_or_else(|| String::from("trace.nettrace"));
    let path = with_pid(&path);
    if let Err(error) = request.start_file(&path) {
        let number = message::decimal(u64::from(error.number().unsigned_abs()));
        message::warn(&[
            "no session into ",
            &path,
            ": ",
            error.text(),
            " (error ",
            &number,
            ")",
        ]);
    }
}

/// The path with `{pid}` replaced. Not by the searching functions for strings, which are the only use of half a kilobyte.
fn with_pid(path: &str) -> String {
    const PLACE: &[u8] = b"{pid}";
    let mut replaced = String::new();
    let mut rest = path;
    while let Some(at) = rest
        .as_bytes()
        .windows(PLACE.len())
        .position(|window| window == PLACE)
    {
        let Some((before, place)) = rest.split_at_checked(at) else {
            break;
        };
        replaced.push_str(before);
        replaced.push_str(&message::decimal(u64::from(process::pid())));
        rest = place.get(PLACE.len()..).unwrap_or_default();
    }
    replaced.push_str(rest);
    replaced
}
