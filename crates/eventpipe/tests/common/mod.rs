//! What several tests need: a client of this process's own diagnostics socket, sessions that are read while they run.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;

use dotnet_diagnostics::client::{Client, Endpoint, Fallbacks, Session, Stopper};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use nettrace::{Guid, Reader};

/// Tests of one file share the process's one engine; those that count on being alone take this.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The socket of this process, which starts the engine if need be.
pub(crate) fn socket() -> PathBuf {
    eventpipe::start();
    socket_of(std::process::id()).expect("this process has a diagnostics socket")
}

pub(crate) fn socket_of(pid: u32) -> Option<PathBuf> {
    match dotnet_diagnostics::discovery::find(pid).ok()?.endpoint() {
        Endpoint::Socket(path) => Some(path),
        Endpoint::Runtime(_) => None,
    }
}

pub(crate) fn client() -> Client {
    Client::new(Endpoint::Socket(socket()))
}

/// A request for everything of one provider.
pub(crate) fn everything_of(provider: &str) -> CollectTracing {
    CollectTracing::new([ProviderConfig::new(provider, u64::MAX, 5)])
}

/// A session whose stream is read by a thread, as fast as it comes.
pub(crate) struct Recording {
    stopper: Stopper,
    reader: JoinHandle<Vec<u8>>,
}

impl Recording {
    pub(crate) fn start(request: &CollectTracing) -> Recording {
        Recording::of(
            client()
                .collect(request, Fallbacks::NONE)
                .expect("a session starts"),
        )
    }

    pub(crate) fn of(mut session: Session) -> Recording {
        let stopper = session.stopper();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            session
                .read_to_end(&mut bytes)
                .expect("the stream is read to its end");
            bytes
        });
        Recording { stopper, reader }
    }

    pub(crate) fn stop(self) -> Trace {
        self.stopper.stop().expect("the stop is answered");
        Trace::read(&self.reader.join().expect("the reading thread ends"))
    }

    /// Stops a session of whose stream a part has been read elsewhere.
    pub(crate) fn stop_without_reading(self) {
        self.stopper.stop().expect("the stop is answered");
        self.reader.join().expect("the reading thread ends");
    }
}

/// An event of a trace, owned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) thread: u64,
    /// Its number among the events of its thread, those that were lost included.
    pub(crate) sequence: u32,
    pub(crate) time: i64,
    pub(crate) about_thread: u64,
    pub(crate) activity: Guid,
    pub(crate) related: Guid,
    /// Innermost first.
    pub(crate) frames: Vec<u64>,
    pub(crate) payload: Vec<u8>,
}

/// A complete trace.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) events: Vec<Seen>,
    /// Lost events per thread.
    pub(crate) lost: BTreeMap<u64, u64>,
}

impl Trace {
    /// Reads a trace and checks what holds for every one: it is complete, and the times of a thread do not go back.
    pub(crate) fn read(bytes: &[u8]) -> Trace {
        let trace = Trace::read_prefix(bytes).expect("the trace is readable to its end");
        let names: Vec<_> = trace
            .events
            .iter()
            .map(|event| event.name.as_str())
            .collect();
        assert!(
            names.contains(&"ProcessInfo"),
            "the trace ends with ProcessInfo: {names:?}"
        );
        trace
    }

    /// Reads what there is of a trace.
    pub(crate) fn read_prefix(bytes: &[u8]) -> Result<Trace, nettrace::Error> {
        let mut reader = Reader::new(bytes)?;
        let mut events = Vec::new();
        let mut last_time = BTreeMap::new();
        while let Some(event) = reader.next_event()? {
            let metadata = event.metadata();
            let thread = event.capture_thread_id();
            let last = last_time.insert(thread, event.timestamp());
            assert!(
                last <= Some(event.timestamp()),
                "the time of thread {thread} goes back"
            );
            events.push(Seen {
                provider: metadata.provider.clone(),
                name: metadata.name.clone(),
                id: metadata.event_id,
                thread,
                sequence: event.sequence_number(),
                time: event.timestamp(),
                about_thread: event.thread_id(),
                activity: event.activity_id(),
                related: event.related_activity_id(),
                frames: event.stack().frames().collect(),
                payload: event.payload().to_vec(),
            });
        }
        let losses = reader.losses();
        let lost = losses
            .threads()
            .iter()
            .map(|t| (t.thread_id, t.gaps + t.at_start));
        Ok(Trace {
            lost: lost.filter(|(_, lost)| *lost > 0).collect(),
            events,
        })
    }

    /// The events of one provider.
    pub(crate) fn of<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a Seen> {
        self.events
            .iter()
            .filter(move |event| event.provider == provider)
    }

    pub(crate) fn total_lost(&self) -> u64 {
        self.lost.values().sum()
    }
}
