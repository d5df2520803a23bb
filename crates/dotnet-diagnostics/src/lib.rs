//! The .NET diagnostics IPC protocol, both ends: what `dotnet-trace` says to a process and what the process answers.
//!
//! * [`codec`] describes every message once, for the server in a traced process and for the client of a tool.
//!   It does no input or output, and builds without `std`.
//! * [`port_config`] is the grammar of `DOTNET_DiagnosticPorts`; it builds without `std` too.
//! * `client` is a blocking client with a time limit on everything (feature `std`).
//! * `discovery` finds the processes that can be asked, across containers (feature `std`).
//! * `port` is the listening end for processes that dial in (feature `std`).
//!
//! It is not a server: it opens no default port and runs no session. The crate `eventpipe` does, on this codec.
//! It does not read the trace stream either; the crate `nettrace` does.
//!
//! ```no_run
//! # #[cfg(feature = "std")] {
//! use dotnet_diagnostics::client::{Client, Fallbacks};
//! use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
//! use std::io::Read;
//!
//! let process = dotnet_diagnostics::discovery::find(1234)?;
//! let client = Client::new(process.endpoint());
//! println!("{}", client.process_info()?.command_line);
//!
//! let request = CollectTracing::new([ProviderConfig::new("Microsoft-Windows-DotNETRuntime", 0x1, 4)]);
//! let mut session = client.collect(&request, Fallbacks::ALL)?;
//! let stopper = session.stopper();
//! let stopping = std::thread::spawn(move || stopper.stop());
//! let mut trace = Vec::new();
//! session.read_to_end(&mut trace)?; // the stop is answered only while the stream is drained
//! stopping.join().unwrap()?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Microsoft's description of the protocol is public:
//! [`ipc-protocol.md`](https://github.com/dotnet/diagnostics/blob/main/documentation/design-docs/ipc-protocol.md). Sections that the documentation of
//! items names are those of this project's own descriptions.
//!
//! Start with [`codec::Request`], [`codec::RequestReader`] (servers) and `client::Client` (tools).
//!
//! | feature | what it adds |
//! |---|---|
//! | `std` (default) | client, discovery, listening port, `std::error::Error` for the errors |

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::todo,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

/// The example of the README compiles.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod codec;
pub mod port_config;

#[cfg(feature = "std")]
pub mod client;
#[cfg(feature = "std")]
pub mod discovery;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
pub mod port;
#[cfg(feature = "std")]
mod socket;

#[cfg(feature = "std")]
pub use error::Error;
