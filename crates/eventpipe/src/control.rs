//! The registry of providers and sessions, and the only two functions that change what is enabled.
//!
//! Invariants:
//! * An event's mask is computed from the sessions that run, under the control lock, and nowhere else. So the masks of all
//!   events change in one step for whoever holds the lock, and a bit is free for another session only after the drain has
//!   given it back.
//! * No callback is called and nothing of a user is dropped while the lock is held. The allocator may be called: an
//!   allocator that writes events finds the lock taken by its own thread and leaves the event unregistered for now.
//! * A session's encoder reaches the drain's inbox before its bit is set in any mask, so the drain never sees a record of
//!   a session that it does not know.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};

use eventpipe_os::sync::{Mutex, MutexGuard};
use eventpipe_os::{clock, thread};

use crate::callback::{Callback, Cause, Change};
use crate::consumer::Consumer;
use crate::definition::Definition;
use crate::engine::{ENGINE, EVENTS, RING};
use crate::event::Event;
use crate::filter::Filter;
use crate::fork;
use crate::provider::Provider;
use crate::session::{Buffering, SessionError, SessionId, SessionState};

/// As many sessions as a mask has bits.
pub(crate) const MAX_SESSIONS: usize = 64;

/// [`Control`] behind a lock that knows its holder.
#[derive(Debug)]
pub(crate) struct ControlLock {
    control: Mutex<Control>,
    /// Thread id of the holder, 0 = none.
    holder: AtomicU64,
}

pub(crate) struct ControlGuard<'a> {
    guard: MutexGuard<'a, Control>,
    holder: &'a AtomicU64,
}

impl ControlLock {
    pub(crate) const fn new() -> Self {
        ControlLock {
            control: Mutex::new(Control::new()),
            holder: AtomicU64::new(0),
        }
    }

    /// The lock. None when this very thread holds it (we were called from inside, by an allocator), and in the child of a
    /// fork, where its holder may not exist.
    pub(crate) fn lock(&self) -> Option<ControlGuard<'_>> {
        if fork::is_child() {
            return None;
        }
        let me = thread::os_thread_id();
        if self.holder.load(Ordering::Relaxed) == me {
            return None;
        }
        let guard = self.control.lock();
        self.holder.store(me, Ordering::Relaxed);
        // Whoever releases writers that wait for room needs this lock, so an event that is written under it (by an
        // allocator) does not wait.
        RING.exempt(me);
        Some(ControlGuard {
            guard,
            holder: &self.holder,
        })
    }
}

impl Drop for ControlGuard<'_> {
    fn drop(&mut self) {
        RING.exempt(0);
        self.holder.store(0, Ordering::Relaxed);
    }
}

impl Deref for ControlGuard<'_> {
    type Target = Control;
    fn deref(&self) -> &Control {
        &self.guard
    }
}

impl DerefMut for ControlGuard<'_> {
    fn deref_mut(&mut self) -> &mut Control {
        &mut self.guard
    }
}

/// What the drain is asked to do.
#[derive(Debug)]
pub(crate) enum DrainCommand {
    /// Encode a session's records from now on.
    Attach(Consumer),
    /// No writer puts this bit into a record newer than `cut` any more: deliver up to there, then finish the stream.
    Finish { bit: u32, cut: u64 },
}

#[derive(Debug)]
pub(crate) struct Control {
    closed: bool,
    providers: Vec<Registered>,
    /// One for each bit; empty before the first session.
    slots: Vec<Option<Slot>>,
    inbox: Vec<DrainCommand>,
    /// Sessions whose output has not ended; those that stop included.
    unfinished: Vec<Arc<SessionState>>,
    last_id: u64,
}

#[derive(Debug)]
struct Registered {
    provider: &'static Provider,
    events: Vec<&'static Event>,
    callback: Option<Arc<Callback>>,
}

#[derive(Debug)]
struct Slot {
    id: SessionId,
    filter: Filter,
    stacks: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Being built; in no mask yet.
    Reserved,
    Running,
    /// In no mask any more; the drain has not finished with the bit.
    Stopping,
}

impl Control {
    const fn new() -> Self {
        Control {
            closed: false,
            providers: Vec::new(),
            slots: Vec::new(),
            inbox: Vec::new(),
            unfinished: Vec::new(),
            last_id: 0,
        }
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots.iter().enumerate().filter_map(|(bit, slot)| {
            slot.as_ref()
                .filter(|slot| slot.phase == Phase::Running)
                .map(|slot| (bit, slot))
        })
    }

    /// Which sessions want the event, and which of them with a stack.
    fn masks(&self, provider: &str, event: &Definition) -> (u64, u64) {
        let mut masks = (0, 0);
        for (bit, slot) in self.running() {
            if slot.filter.wants(provider, event) {
                masks.0 |= 1 << bit;
                masks.1 |= u64::from(slot.stacks && event.stack) << bit;
            }
        }
        masks
    }

    /// What all running sessions together ask of a provider.
    fn union(&self, provider: &str) -> Option<(u64, u32)> {
        self.running()
            .filter_map(|(_, slot)| slot.filter.wanted(provider))
            .fold(None, |union, wanted| {
                let (keywords, level) = union.unwrap_or((0, 0));
                Some((keywords | wanted.keywords, level.max(wanted.level)))
            })
    }

    fn set_masks(&self, event: &Event) {
        let (mask, stack_mask) = self.masks(event.provider().name(), event.definition());
        event.key().stack_mask.store(stack_mask, Ordering::Relaxed);
        event.key().mask.store(mask, Ordering::Release);
    }

    /// Recomputes everything of a provider after a session came or went, and queues the provider's change.
    fn update(&self, registered: &Registered, change: Change, callbacks: &mut Vec<Arc<Callback>>) {
        for event in &registered.events {
            self.set_masks(event);
        }
        registered.provider.set_union(change.union);
        if let Some(callback) = &registered.callback {
            callback.push(change);
            callbacks.push(callback.clone());
        }
    }

    fn add_event(&self, event: &'static Event) {
        // An event keeps its index for life, also when its provider is taken away and comes back.
        let index = event.key().index.load(Ordering::Relaxed);
        if !EVENTS
            .get(index)
            .is_some_and(|known| core::ptr::eq(known, event))
        {
            match EVENTS.push(event) {
                Some(index) => event.key().index.store(index, Ordering::Relaxed),
                None => return event.key().mask.store(0, Ordering::Relaxed),
            }
        }
        self.set_masks(event);
    }

    pub(crate) fn take_inbox(&mut self) -> Vec<DrainCommand> {
        core::mem::take(&mut self.inbox)
    }

    /// The bit of a finished session may be used again.
    pub(crate) fn release(&mut self, bit: u32) {
        if let Some(slot) = self.slots.get_mut(bit as usize) {
            *slot = None;
        }
        RING.set_blocking(bit, false);
    }

    /// The session's output has ended: nothing is left to wait for.
    pub(crate) fn forget(&mut self, id: SessionId) -> Option<Arc<SessionState>> {
        let position = self
            .unfinished
            .iter()
            .position(|session| session.id() == id)?;
        Some(self.unfinished.swap_remove(position))
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<Arc<SessionState>> {
        self.unfinished
            .iter()
            .find(|session| session.id() == id)
            .cloned()
    }

    pub(crate) fn unfinished(&self) -> Vec<Arc<SessionState>> {
        self.unfinished.clone()
    }

    /// No session starts from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether every bit is free.
    pub(crate) fn has_no_sessions(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }
}

/// Makes a provider known, or gives a known one a callback.
pub(crate) fn register(provider: &'static Provider, callback: Option<Arc<Callback>>) {
    let replaced;
    {
        let Some(mut control) = ENGINE.control.lock() else {
            return;
        };
        let control = &mut *control;
        let position = control
            .providers
            .iter()
            .position(|known| core::ptr::eq(known.provider, provider));
        if position.is_none() {
            control.providers.push(Registered {
                provider,
                events: provider.events().to_vec(),
                callback: None,
            });
            for event in provider.events() {
                control.add_event(event);
            }
            provider.set_union(control.union(provider.name()));
            // After the masks, because who sees the provider registered believes them.
            provider.set_registered(true);
        }
        if let Some(callback) = &callback {
            let union = control.union(provider.name());
            for (_, slot) in control.running() {
                if let Some(wanted) = slot.filter.wanted(provider.name()) {
                    callback.push(Change {
                        session: slot.id,
                        cause: Cause::SessionStarted,
                        union,
                        arguments: wanted.arguments.map(String::from),
                    });
                }
            }
            let known = control
                .providers
                .iter_mut()
                .find(|known| core::ptr::eq(known.provider, provider));
            replaced = known.and_then(|known| known.callback.replace(callback.clone()));
        } else {
            replaced = None;
        }
    }
    if let Some(replaced) = replaced {
        replaced.close();
    }
    if let Some(callback) = callback {
        callback.dispatch();
    }
}

/// The first registered provider of a name.
pub(crate) fn find(name: &str) -> Option<&'static Provider> {
    let control = ENGINE.control.lock()?;
    control
        .providers
        .iter()
        .map(|known| known.provider)
        .find(|provider| provider.name() == name)
}

/// Takes a provider away.
pub(crate) fn unregister(provider: &'static Provider) {
    let removed = {
        let Some(mut control) = ENGINE.control.lock() else {
            return;
        };
        let position = control
            .providers
            .iter()
            .position(|known| core::ptr::eq(known.provider, provider));
        let removed = position.map(|position| control.providers.remove(position));
        if let Some(removed) = &removed {
            for event in &removed.events {
                event.key().mask.store(0, Ordering::Release);
                event.key().stack_mask.store(0, Ordering::Relaxed);
            }
            provider.set_union(None);
            provider.set_registered(false);
        }
        removed
    };
    RING.tell_waiting();
    if let Some(callback) = removed.and_then(|removed| removed.callback) {
        callback.close();
    }
}

/// Adds an event to a provider, which is registered if it was not.
pub(crate) fn define(provider: &'static Provider, event: &'static Event) {
    provider.register();
    let Some(mut control) = ENGINE.control.lock() else {
        return;
    };
    let control = &mut *control;
    control.add_event(event);
    let known = control
        .providers
        .iter_mut()
        .find(|known| core::ptr::eq(known.provider, provider));
    match known {
        Some(known) => known.events.push(event),
        None => event.key().mask.store(0, Ordering::Release),
    }
}

/// Takes a bit for a session, and gives the session its id.
pub(crate) fn reserve(
    filter: Filter,
    stacks: bool,
    buffering: Buffering,
) -> Result<(u32, SessionId), SessionError> {
    let mut control = ENGINE.control.lock().ok_or(SessionError::InsideEngine)?;
    let control = &mut *control;
    if control.closed {
        return Err(SessionError::ShuttingDown);
    }
    control.slots.resize_with(MAX_SESSIONS, || None);
    let (bit, slot) = control
        .slots
        .iter_mut()
        .enumerate()
        .find(|(_, slot)| slot.is_none())
        .ok_or(SessionError::TooManySessions)?;
    control.last_id += 1;
    let id = SessionId(control.last_id);
    *slot = Some(Slot {
        id,
        filter,
        stacks,
        phase: Phase::Reserved,
    });
    // In no mask yet.
    RING.set_blocking(bit as u32, buffering == Buffering::Block);
    Ok((bit as u32, id))
}

/// Gives a bit back that never reached a mask.
pub(crate) fn cancel(bit: u32) {
    if let Some(mut control) = ENGINE.control.lock() {
        control.release(bit);
    }
    // It gives the pool back if there is no other session.
    ENGINE.drain.set();
}

/// Turns a session on: when this returns, every event that it wants is on, and every callback has been called or waits in order
/// for another thread that is calling it.
pub(crate) fn enable(
    bit: u32,
    session: Arc<SessionState>,
    consumer: Consumer,
) -> Result<(), SessionError> {
    let mut callbacks = Vec::new();
    {
        let mut control = ENGINE.control.lock().ok_or(SessionError::InsideEngine)?;
        let control = &mut *control;
        if control.closed {
            control.release(bit);
            return Err(SessionError::ShuttingDown);
        }
        control.inbox.push(DrainCommand::Attach(consumer));
        control.unfinished.push(session);
        if let Some(slot) = control.slots.get_mut(bit as usize).and_then(Option::as_mut) {
            slot.phase = Phase::Running;
        }
        let control = &*control;
        change(control, bit, Cause::SessionStarted, &mut callbacks);
    }
    ENGINE.drain.set();
    deliver(&callbacks);
    Ok(())
}

/// Turns a session off: when this returns, no event is written for it any more, and the drain has been asked to deliver what was
/// written and to end the stream. Returns the session as long as its output has not ended, also when it was off before.
pub(crate) fn disable(id: SessionId, with_callbacks: bool) -> Option<Arc<SessionState>> {
    let mut callbacks = Vec::new();
    let (session, bit) = {
        let mut control = ENGINE.control.lock()?;
        let control = &mut *control;
        let session = control.session(id)?;
        let slot = control
            .slots
            .iter_mut()
            .enumerate()
            .find_map(|(bit, slot)| {
                slot.as_mut()
                    .filter(|slot| slot.id == id && slot.phase == Phase::Running)
                    .map(|slot| (bit as u32, slot))
            });
        let Some((bit, slot)) = slot else {
            return Some(session);
        };
        slot.phase = Phase::Stopping;
        // Before the first mask is cleared: whoever finds a mask cleared writes later than this.
        session
            .stopped_ticks
            .store(clock::ticks(), Ordering::SeqCst);
        let control = &*control;
        change(control, bit, Cause::SessionStopped, &mut callbacks);
        (session, bit)
    };
    // Writers that wait for room look at the masks again.
    RING.tell_waiting();
    // A writer that is inside the write path may have read a mask from before; it is waited for with no lock held.
    ENGINE.ring.quiesce();
    if let Some(mut control) = ENGINE.control.lock() {
        control.inbox.push(DrainCommand::Finish {
            bit,
            cut: clock::ticks(),
        });
    }
    ENGINE.drain.set();
    if with_callbacks {
        deliver(&callbacks);
    }
    Some(session)
}

/// Recomputes and tells all providers that a session asks for.
fn change(control: &Control, bit: u32, cause: Cause, callbacks: &mut Vec<Arc<Callback>>) {
    let Some(slot) = control.slots.get(bit as usize).and_then(Option::as_ref) else {
        return;
    };
    for registered in &control.providers {
        let Some(wanted) = slot.filter.wanted(registered.provider.name()) else {
            continue;
        };
        let arguments = match cause {
            Cause::SessionStarted => wanted.arguments.map(String::from),
            Cause::SessionStopped => None,
        };
        let union = control.union(registered.provider.name());
        control.update(
            registered,
            Change {
                session: slot.id,
                cause,
                union,
                arguments,
            },
            callbacks,
        );
    }
}

fn deliver(callbacks: &[Arc<Callback>]) {
    for callback in callbacks {
        callback.dispatch();
    }
}
