//! Providers are told of each change, one call at a time, in order, with no lock of ours held.
//!
//! Changes are queued while the control lock is held, so their order is the order of the changes. After the lock is
//! released, [`Callback::dispatch`] delivers: one thread at a time, so that a provider never sees two changes at once. A
//! thread that finds another one delivering leaves its change to it, also when that other one is itself further up its
//! stack (a callback that starts a session). Foreign code can therefore never wait for us here.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt;

use eventpipe_os::sync::{Mutex, Signal};
use eventpipe_os::thread;

use crate::definition::Level;
use crate::foreign;
use crate::session::SessionId;

/// What changed for a provider.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProviderChange<'a> {
    /// The session that started or stopped.
    pub session: SessionId,
    /// What happened to it.
    pub cause: Cause,
    /// Whether any session still asks for the provider.
    pub is_enabled: bool,
    /// What all sessions together ask for.
    pub keywords: u64,
    /// The highest level that a session asks for.
    pub level: Level,
    /// The arguments of this session for this provider, by convention `key=value;key=value`. None at its stop.
    pub arguments: Option<&'a str>,
}

/// Why a provider's callback is called. Each start is followed by one stop, unless the process ends before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A session that asks for the provider started, or runs while the provider registers.
    SessionStarted,
    /// A session that asked for the provider stopped.
    SessionStopped,
}

/// An owned [`ProviderChange`], as it waits in the queue.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) session: SessionId,
    pub(crate) cause: Cause,
    pub(crate) union: Option<(u64, u32)>,
    pub(crate) arguments: Option<String>,
}

type Function = dyn Fn(&ProviderChange<'_>) + Send + Sync;

pub(crate) struct Callback {
    function: Box<Function>,
    queue: Mutex<Queue>,
    /// Set when a delivery ends.
    idle: Signal,
}

#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<Change>,
    /// The thread that delivers.
    deliverer: Option<u64>,
    closed: bool,
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

impl Callback {
    pub(crate) fn new(function: Box<Function>) -> Self {
        Callback {
            function,
            queue: Mutex::new(Queue::default()),
            idle: Signal::new(),
        }
    }

    /// Appends a change; called under the control lock.
    pub(crate) fn push(&self, change: Change) {
        let mut queue = self.queue.lock();
        if !queue.closed {
            queue.changes.push_back(change);
        }
    }

    /// Delivers what waits, unless another thread is at it.
    pub(crate) fn dispatch(&self) {
        let me = thread::os_thread_id();
        if !self.claim(me) {
            return;
        }
        // The claim is given back also when the function unwinds, so that later changes are still delivered.
        let _claim = Claim(self);
        while let Some(change) = self.next() {
            let (keywords, level) = change.union.unwrap_or((0, 0));
            foreign::call(|| {
                (self.function)(&ProviderChange {
                    session: change.session,
                    cause: change.cause,
                    is_enabled: change.union.is_some(),
                    keywords,
                    level: Level::from_number(level),
                    arguments: change.arguments.as_deref(),
                });
            });
        }
    }

    fn claim(&self, me: u64) -> bool {
        let mut queue = self.queue.lock();
        if queue.deliverer.is_some() || queue.changes.is_empty() {
            return false;
        }
        queue.deliverer = Some(me);
        true
    }

    /// The next change; the claim ends under the same lock under which the queue is seen empty, so that no change is left
    /// behind by two threads that each rely on the other.
    fn next(&self) -> Option<Change> {
        let mut queue = self.queue.lock();
        let change = queue.changes.pop_front();
        if change.is_none() {
            queue.deliverer = None;
        }
        change
    }

    /// Drops what waits and waits until nothing is being delivered, unless this very thread delivers.
    pub(crate) fn close(&self) {
        let me = thread::os_thread_id();
        let dropped = {
            let mut queue = self.queue.lock();
            queue.closed = true;
            core::mem::take(&mut queue.changes)
        };
        drop(dropped);
        loop {
            let deliverer = self.queue.lock().deliverer;
            if deliverer.is_none_or(|deliverer| deliverer == me) {
                return;
            }
            // Several threads may wait for the one signal, so none relies on it alone.
            self.idle.wait(Some(10_000_000));
        }
    }
}

struct Claim<'a>(&'a Callback);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let me = thread::os_thread_id();
        {
            let mut queue = self.0.queue.lock();
            if queue.deliverer == Some(me) {
                queue.deliverer = None;
            }
        }
        self.0.idle.set();
    }
}
