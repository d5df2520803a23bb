//! `tracing` keeps for each callsite whether anybody wants it, so that one which nobody wants costs a load and a branch. What sessions want
//! changes while the program runs, and then the callsites are asked anew.
//!
//! Invariants:
//! * "Never" is answered only here, on the one thread that asks all callsites, and each change of a session is followed by such a round that
//!   begins later. So no answer from before a change can take the place of one from after it: others who ask (the first use
//!   of a callsite, another subscriber that comes) are told "sometimes", which loses nothing whenever it is stored.
//! * That thread holds no lock of ours meanwhile, and is inside of no other call of `tracing`, whose locks and marks are per thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use eventpipe::{Cause, ProviderChange};
use tracing_core::dispatcher::{self, Dispatch, WeakDispatch};
use tracing_core::subscriber::Interest;

use crate::site::Site;

/// After so many vain questions the callsites are asked anew: that costs about as much as these did.
const VAIN: u64 = 1000;

/// Whoever starts a session waits for its events to be on, but not for ever: where it was called from inside of a subscriber, that one's
/// locks may be what the round waits for.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Rounds {
    asked_for: u64,
    done: u64,
    /// The thread is there, and will look at `asked_for` before it ends.
    runs: bool,
}

static ROUNDS: Mutex<Rounds> = Mutex::new(Rounds {
    asked_for: 0,
    done: 0,
    runs: false,
});
static DONE: Condvar = Condvar::new();

/// The subscribers that have the layer.
static SUBSCRIBERS: Mutex<Vec<WeakDispatch>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread asks all callsites.
    static ASKS: Cell<bool> = const { Cell::new(false) };
    /// This thread is inside of `tracing` and registers a provider.
    static REGISTERS: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A subscriber with the layer has come.
pub(crate) fn add_subscriber(subscriber: &Dispatch) {
    let mut known = lock(&SUBSCRIBERS);
    known.push(subscriber.downgrade());
    // Those that have ended are dropped behind the lock: it may be their last reference.
    let (alive, there): (Vec<_>, Vec<_>) = known
        .drain(..)
        .filter_map(|weak| weak.upgrade().map(|strong| (strong, weak)))
        .unzip();
    *known = there;
    drop(known);
    drop(alive);
}

/// What is to be kept for a callsite.
pub(crate) fn of(site: &'static Site) -> Interest {
    if site.is_enabled() {
        return Interest::always();
    }
    let settled = ASKS.get();
    site.unsettled.store(!settled, Ordering::Relaxed);
    if settled {
        Interest::never()
    } else {
        Interest::sometimes()
    }
}

/// Whether an event or span of the callsite is wanted now, where `tracing` asks each time.
pub(crate) fn is_enabled(site: &'static Site) -> bool {
    static IN_VAIN: AtomicU64 = AtomicU64::new(0);
    let wanted = site.is_enabled();
    if !wanted
        && site.unsettled.load(Ordering::Relaxed)
        && IN_VAIN.fetch_add(1, Ordering::Relaxed) % VAIN == VAIN - 1
    {
        ask_anew(false);
    }
    wanted
}

/// Calls `register`, in which callbacks of the engine may run, while locks of `tracing` may be held.
pub(crate) fn registering<T>(register: impl FnOnce() -> T) -> T {
    let before = REGISTERS.replace(true);
    let result = register();
    REGISTERS.set(before);
    result
}

/// A session that asks for one of the providers came or went.
pub(crate) fn changed(change: &ProviderChange<'_>) {
    ask_anew(change.cause == Cause::SessionStarted && !REGISTERS.get());
}

fn ask_anew(wait: bool) {
    let mut rounds = lock(&ROUNDS);
    rounds.asked_for += 1;
    let own = rounds.asked_for;
    if !rounds.runs {
        let started = thread::Builder::new()
            .name("eventpipe-asks".into())
            .spawn(run);
        // Without a thread the callsites stay as they are until the next change; those that were never asked work all the same.
        rounds.runs = started.is_ok();
        if !rounds.runs {
            return;
        }
    }
    if wait {
        let waited = DONE.wait_timeout_while(rounds, PATIENCE, |rounds| rounds.done < own);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

fn run() {
    ASKS.set(true);
    loop {
        let own = {
            let mut rounds = lock(&ROUNDS);
            if rounds.done == rounds.asked_for {
                rounds.runs = false;
                return;
            }
            rounds.asked_for
        };
        // Other layers are asked as well. A panic there is not ours, and what waits for this round goes on.
        drop(catch_unwind(AssertUnwindSafe(ask_all)));
        lock(&ROUNDS).done = own;
        DONE.notify_all();
    }
}

fn ask_all() {
    let known = lock(&SUBSCRIBERS).clone();
    let Some(subscriber) = known.iter().find_map(WeakDispatch::upgrade) else {
        return;
    };
    // As long as there is one subscriber in the program, `tracing` asks that of the asking thread: none, if another thread has set it for
    // itself alone, and every callsite would be off.
    dispatcher::with_default(&subscriber, tracing_core::callsite::rebuild_interest_cache);
}
