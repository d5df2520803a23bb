//! A lock, an event and a once-cell on futexes: for the control paths of an engine without `std`.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;

fn futex_wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>) {
    let timeout = timeout_ns.map(|ns| futex::Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    // Every way to return (woken, changed, interrupted, timed out) means: look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, timeout.as_ref());
}

/// The largest number that the kernel takes for one: more is negative there, and wakes one.
const ALL: u32 = i32::MAX as u32;

fn futex_wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, count);
}

/// Sleeps as long as `word` is `value` and nobody calls [`wake_all`] for it; may return at any
/// time. Async-signal-safe.
pub fn sleep_while(word: &AtomicU32, value: u32) {
    futex_wait(word, value, None);
}

/// Ends every [`sleep_while`] on `word`; change the word first. Async-signal-safe.
pub fn wake_all(word: &AtomicU32) {
    futex_wake(word, ALL);
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A lock that cannot be poisoned. Not fair, not re-entrant, not for signal handlers.
pub struct Mutex<T: ?Sized> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time, so it may move between threads if `T`
// may.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above; `&Mutex<T>` gives `&mut T` to one thread at a time only.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is ours.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.state);
        MutexGuard { mutex: self }
    }

    /// The lock if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| MutexGuard { mutex: self })
    }

    /// Opens the lock whoever holds it: for the child of a fork, where the holder does not exist.
    ///
    /// # Safety
    /// No thread of this process holds the lock, and the value is sound as the vanished holder left
    /// it.
    pub unsafe fn force_unlock(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

fn lock(state: &AtomicU32) {
    if state
        .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        lock_contended(state);
    }
}

#[cold]
fn lock_contended(state: &AtomicU32) {
    for _ in 0..100 {
        if state.load(Ordering::Relaxed) == FREE
            && state
                .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
        core::hint::spin_loop();
    }
    while state.swap(CONTENDED, Ordering::Acquire) != FREE {
        futex_wait(state, CONTENDED, None);
    }
}

fn unlock(state: &AtomicU32) {
    if state.swap(FREE, Ordering::Release) == CONTENDED {
        futex_wake(state, 1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Mutex").field(&&*guard).finish(),
            None => f.write_str("Mutex(locked)"),
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// The right to use what a [`Mutex`] protects.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

// SAFETY: sharing the guard shares `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this thread holds the lock, and `&mut self` makes the
        // reference the only one.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        unlock(&self.mutex.state);
    }
}

const CLEAR: u32 = 0;
const SET: u32 = 1;
const WAITED_FOR: u32 = 2;

/// An event that one waiter consumes: `set` before `wait` is not lost, several `set`s before a
/// `wait` are one.
#[derive(Debug)]
pub struct Signal {
    state: AtomicU32,
}

impl Signal {
    /// A signal that is not set.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(CLEAR),
        }
    }

    /// Sets it and wakes the waiter; a system call only when somebody waits. Async-signal-safe.
    pub fn set(&self) {
        if self.state.swap(SET, Ordering::AcqRel) == WAITED_FOR {
            futex_wake(&self.state, ALL);
        }
    }

    /// Waits until it is set, at most `timeout_ns`, and clears it. `false`: the time is over and it
    /// is not set.
    pub fn wait(&self, timeout_ns: Option<u64>) -> bool {
        let deadline = timeout_ns.map(|ns| crate::clock::monotonic_ns().saturating_add(ns));
        loop {
            if self
                .state
                .compare_exchange(SET, CLEAR, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return true;
            }
            let left = match deadline {
                None => None,
                Some(deadline) => match deadline.checked_sub(crate::clock::monotonic_ns()) {
                    None | Some(0) => {
                        // Nobody waits any more; a `set` that came in between still counts.
                        let _ = self.state.compare_exchange(
                            WAITED_FOR,
                            CLEAR,
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        );
                        return self
                            .state
                            .compare_exchange(SET, CLEAR, Ordering::AcqRel, Ordering::Acquire)
                            .is_ok();
                    }
                    left => left,
                },
            };
            match self.state.compare_exchange(
                CLEAR,
                WAITED_FOR,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) | Err(WAITED_FOR) => futex_wait(&self.state, WAITED_FOR, left),
                Err(_) => {}
            }
        }
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

/// A value that is made once, by whoever comes first; the others wait for it.
pub struct Once<T> {
    /// `CLEAR` (empty), `HELD` (being made), `CONTENDED` (being made, others wait), `DONE`.
    state: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

const DONE: u32 = 3;

// SAFETY: the value is written by one thread before `DONE` and only shared afterwards.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for Once<T> {}

impl<T> Once<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            value: UnsafeCell::new(None),
        }
    }

    /// The value, if it has been made.
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) == DONE {
            // SAFETY: `DONE` is stored after the last write to the value (acquire here, release
            // there).
            unsafe { (*self.value.get()).as_ref() }
        } else {
            None
        }
    }

    /// The value, made by `make` if nobody made it before. `make` must not come back to the same
    /// cell, and must not unwind (the cell would be taken for unfinished for ever).
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            if begin(&self.state) {
                let value = make.take().map(|make| make());
                // SAFETY: state `HELD` by our own exchange: nobody else reads or writes the
                // value.
                unsafe { *self.value.get() = value };
                finish(&self.state);
            }
        }
    }
}

/// Takes the making of a value upon itself (`true`), or waits until whoever has is done.
fn begin(state: &AtomicU32) -> bool {
    loop {
        match state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return true,
            Err(HELD) => {
                let _ =
                    state.compare_exchange(HELD, CONTENDED, Ordering::Acquire, Ordering::Acquire);
            }
            Err(CONTENDED) => futex_wait(state, CONTENDED, None),
            Err(_) => return false,
        }
    }
}

fn finish(state: &AtomicU32) {
    if state.swap(DONE, Ordering::Release) == CONTENDED {
        futex_wake(state, ALL);
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    #[test]
    fn a_mutex_excludes() {
        let total = Arc::new(Mutex::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let total = total.clone();
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        *total.lock() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*total.lock(), 40_000);
    }

    #[test]
    fn a_signal_is_not_lost_and_is_consumed_once() {
        let signal = Arc::new(Signal::new());
        assert!(!signal.wait(Some(1_000)));
        signal.set();
        signal.set();
        assert!(signal.wait(Some(0)));
        assert!(!signal.wait(Some(0)));
        let other = signal.clone();
        let waiter = std::thread::spawn(move || other.wait(None));
        signal.set();
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn all_sleepers_are_woken() {
        let word = Arc::new(AtomicU32::new(0));
        let woken = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (word, woken) = (word.clone(), woken.clone());
                std::thread::spawn(move || {
                    while word.load(Ordering::Relaxed) == 0 {
                        sleep_while(&word, 0);
                    }
                    woken.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        // They sleep, most likely; if not, they see the word.
        std::thread::sleep(std::time::Duration::from_millis(50));
        word.store(1, Ordering::Relaxed);
        wake_all(&word);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(woken.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_once_cell_is_made_once() {
        let cell = Arc::new(Once::new());
        let made = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (cell, made) = (cell.clone(), made.clone());
                std::thread::spawn(move || {
                    *cell.get_or_init(|| made.fetch_add(1, Ordering::Relaxed) + 7)
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 7);
        }
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}
