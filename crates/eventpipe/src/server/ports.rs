//! Ports that the environment names (`DiagnosticPorts`, ipc.md 4): the process dials a monitor, introduces itself and waits for a
//! request on that connection, again and again. And the suspended start that such a port, or the default one, may ask for.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use dotnet_diagnostics::codec::Advertise;
use dotnet_diagnostics::port_config::{PortConfig, PortMode};
use eventpipe_os::process;
use eventpipe_os::sync::Signal;
use eventpipe_os::text::c_string;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::net::{SendFlags, SocketAddrUnix};

use super::connection::Connection;
use super::socket::stream_socket;
use crate::{environment, fork, message, process_info};

/// A port by its number; the default one, on which the process listens, has the last.
pub(super) type PortNumber = u32;
pub(super) const DEFAULT_PORT: PortNumber = 63;

/// How long a monitor that is not there is left alone: at first, and at most. Each time a quarter longer.
const FIRST_PAUSE_NS: u64 = 10_000_000;
const LAST_PAUSE_NS: u64 = 500_000_000;

/// After so long the user is told what the process is waiting for.
const PATIENCE_NS: u64 = 5_000_000_000;

/// One bit for each port that has not been told to resume the start.
static HOLDING: AtomicU64 = AtomicU64::new(0);
static RESUMED: Signal = Signal::new();

/// A port that the process dials.
#[derive(Debug)]
pub(super) struct Port {
    number: PortNumber,
    address: SocketAddrUnix,
    /// Connected and introduced.
    socket: Option<OwnedFd>,
    pause_ns: u64,
    retry_at_ns: u64,
}

/// The ports of the environment; those that suspend the start hold it from now on.
pub(super) fn from_environment() -> Vec<Port> {
    let mut ports = Vec::new();
    if environment::default_port_suspends() {
        HOLDING.fetch_or(1 << DEFAULT_PORT, Ordering::AcqRel);
    }
    let list = environment::setting("DiagnosticPorts").unwrap_or_default();
    for config in PortConfig::parse_list(&list) {
        let number = ports.len() as PortNumber;
        let refuse = |why| message::warn(&["no diagnostics port ", &config.address, why]);
        if config.mode == PortMode::Listen {
            refuse(": only the default port listens");
            continue;
        }
        if number == DEFAULT_PORT {
            refuse(": there are 63 already");
            continue;
        }
        let path = c_string(config.address.as_bytes());
        let Some(Ok(address)) = path.as_deref().map(SocketAddrUnix::new) else {
            refuse(": not a path of a socket");
            continue;
        };
        if config.suspend {
            HOLDING.fetch_or(1 << number, Ordering::AcqRel);
        }
        ports.push(Port {
            number,
            address,
            socket: None,
            pause_ns: FIRST_PAUSE_NS,
            retry_at_ns: 0,
        });
    }
    ports
}

/// A client on this port lets the start go on.
pub(super) fn resume(port: PortNumber) {
    HOLDING.fetch_and(!(1 << port), Ordering::AcqRel);
    RESUMED.set();
}

/// No port will ever resume the start: the server does not run.
pub(super) fn resume_all() {
    HOLDING.store(0, Ordering::Release);
    RESUMED.set();
}

/// Waits as long as a port holds the start. Says after five seconds what for.
pub(crate) fn wait_for_resume() {
    let mut patience = Some(PATIENCE_NS);
    while HOLDING.load(Ordering::Acquire) != 0 && !fork::is_child() {
        if !RESUMED.wait(patience) && patience.take().is_some() {
            let ports = environment::setting("DiagnosticPorts").unwrap_or_default();
            message::warn(&[
                "the start waits for a diagnostics client to resume it (DiagnosticPorts=",
                &ports,
                ")",
            ]);
        }
    }
}

impl Port {
    /// Dials if it is time to.
    pub(super) fn dial(&mut self, now_ns: u64) {
        if self.socket.is_some() || now_ns < self.retry_at_ns {
            return;
        }
        match self.connect() {
            Ok(socket) => {
                self.socket = Some(socket);
                self.pause_ns = FIRST_PAUSE_NS;
            }
            Err(()) => self.pause(now_ns),
        }
    }

    fn connect(&self) -> Result<OwnedFd, ()> {
        let socket = stream_socket().map_err(|_| ())?;
        rustix::net::connect(&socket, &self.address).map_err(|_| ())?;
        let packet = Advertise {
            runtime_cookie: process_info::cookie(),
            process_id: u64::from(process::pid()),
        }
        .encode();
        // A fresh socket takes 34 bytes at once.
        let sent = rustix::net::send(&socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        if sent == Ok(packet.len()) {
            Ok(socket)
        } else {
            Err(())
        }
    }

    /// A monitor that is not there, or hangs up, is not dialled as fast as that goes.
    pub(super) fn pause(&mut self, now_ns: u64) {
        self.retry_at_ns = now_ns.saturating_add(self.pause_ns);
        self.pause_ns = (self.pause_ns + self.pause_ns / 4).min(LAST_PAUSE_NS);
    }

    /// When [`dial`](Self::dial) has something to do; never while connected.
    pub(super) fn dial_at_ns(&self) -> u64 {
        match self.socket {
            Some(_) => u64::MAX,
            None => self.retry_at_ns,
        }
    }

    /// What to poll; `instead` while there is no connection.
    pub(super) fn poll_fd<'a>(&'a self, instead: &'a OwnedFd) -> PollFd<'a> {
        match &self.socket {
            Some(socket) => PollFd::new(socket, PollFlags::IN),
            None => PollFd::new(instead, PollFlags::empty()),
        }
    }

    /// A request has begun, or the monitor has hung up: the connection. The port dials again at once.
    pub(super) fn take(&mut self, ready: PollFlags, now_ns: u64) -> Option<Connection> {
        if ready.is_empty() {
            return None;
        }
        let socket = self.socket.take()?;
        self.retry_at_ns = now_ns;
        Some(Connection::new(socket, self.number, now_ns))
    }
}
