//! The facade between this crate and the machine: atomics, barriers, ticks, waiting. A loom model
//! swaps all of it.
//!
//! `negative!(name)` is how the models prove that they can fail: with the environment variable
//! `NEGATIVE_CONTROL=name`, one place in the protocol is weakened, and the model of that place must
//! then find the fault. Outside models it is a constant, `false` unless compiled with `--cfg
//! negative_control="name"` (for the sanitizers).

#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(loom)]
pub(crate) use model::*;

/// Whether the named negative control is on.
#[cfg(not(loom))]
macro_rules! negative {
    ($name:literal) => {
        cfg!(negative_control = $name)
    };
}
#[cfg(loom)]
macro_rules! negative {
    ($name:literal) => {
        $crate::sync::negative_control($name)
    };
}
pub(crate) use negative;

/// `const fn` on the machine, `fn` in a model (loom's atomics cannot be made at compile time).
macro_rules! const_unless_loom {
    ($($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:tt)*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])* #[cfg(not(loom))] $visibility const fn $name($($argument)*) $(-> $result)? $body
        $(#[$meta])* #[cfg(loom)] $visibility fn $name($($argument)*) $(-> $result)? $body
    )*};
}
pub(crate) use const_unless_loom;

#[cfg(not(loom))]
mod real {
    pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
    pub(crate) use eventpipe_os::barrier::{heavy, light};
    pub(crate) use eventpipe_os::clock::ticks as now;

    /// A fence that orders everything before it against everything behind it.
    pub(crate) fn full_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Where threads sleep on a word.
    #[derive(Debug)]
    pub(crate) struct Sleepers;

    impl Sleepers {
        pub(crate) const fn new() -> Self {
            Self
        }
        pub(crate) fn sleep_while(&self, word: &AtomicU32, value: u32) {
            eventpipe_os::sync::sleep_while(word, value);
        }
        pub(crate) fn wake(&self, word: &AtomicU32) {
            eventpipe_os::sync::wake_all(word);
        }
    }

    /// How far a tick of one processor may be from another's, and a tick from the store that
    /// announced it.
    pub(crate) fn margin_ticks() -> u64 {
        eventpipe_os::clock::ticks_per_us()
    }

    /// Waits a little, longer the more often it was asked.
    pub(crate) fn relax(attempt: u32) {
        match attempt {
            0..100 => core::hint::spin_loop(),
            100..200 => eventpipe_os::thread::yield_now(),
            _ => eventpipe_os::thread::sleep_ns(50_000),
        }
    }

    /// How far behind what is being read or written memory is asked for. With less it is not there when it
    /// is needed; more would be a large part of a block.
    pub(crate) const AHEAD: u32 = 2048;

    /// A line of the cache.
    #[cfg(target_arch = "x86_64")]
    const LINE: usize = 64;

    /// Asks for memory that is soon read. The processor does that unasked, but it begins anew with each
    /// page, and what other processors have had comes from far.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn fetch(place: *const u8, length: usize) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let mut at = 0;
        loop {
            // SAFETY: a hint, which may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(at).cast()) };
            at += LINE;
            if at >= length {
                break;
            }
        }
    }

    /// The same for memory that is soon written. It is asked for as this processor's own: the drain has read
    /// the block not long ago, and with a line that both have the writer would wait a second time.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn fetch_to_write(place: *const u8, length: usize) {
        let mut at = 0;
        loop {
            let line = place.wrapping_add(at);
            // SAFETY: a hint, which may name any address; to processors without it, no instruction.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
            at += LINE;
            if at >= length {
                break;
            }
        }
    }

    /// Where nobody has measured what it brings.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn fetch(_: *const u8, _: usize) {}

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn fetch_to_write(_: *const u8, _: usize) {}

    /// A word with one user at a time. Relaxed, so that it costs nothing and no misuse is
    /// undefined; the models check that there is one user.
    #[derive(Debug, Default)]
    pub(crate) struct Private32(AtomicU32);

    impl Private32 {
        pub(crate) const fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }
        #[inline(always)]
        pub(crate) fn get(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
        #[inline(always)]
        pub(crate) fn set(&self, value: u32) {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// See [`Private32`].
    #[derive(Debug, Default)]
    pub(crate) struct Private64(AtomicU64);

    impl Private64 {
        pub(crate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }
        #[inline(always)]
        pub(crate) fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        #[inline(always)]
        pub(crate) fn set(&self, value: u64) {
            self.0.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(loom)]
mod model {
    use core::cell::Cell;
    pub(crate) use machine::cell;
    pub(crate) use machine::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// What a model runs on: loom (every interleaving and every value a weak memory may give, for
    /// small models), or, with `--cfg shuttle` besides, shuttle (random schedules, for large ones).
    mod machine {
        #[cfg(not(shuttle))]
        pub(crate) use loom::{cell, sync, thread};
        #[cfg(shuttle)]
        pub(crate) use shuttle::{sync, thread};

        /// Cells that watch nothing: shuttle's threads take turns.
        #[cfg(shuttle)]
        pub(crate) mod cell {
            pub(crate) use core::cell::Cell;

            #[derive(Debug)]
            pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

            impl<T> UnsafeCell<T> {
                pub(crate) fn new(value: T) -> Self {
                    Self(core::cell::UnsafeCell::new(value))
                }
                pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
                    look(self.0.get())
                }
                pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
                    change(self.0.get())
                }
            }
        }
    }

    pub(crate) fn negative_control(name: &str) -> bool {
        static CONTROL: std::sync::OnceLock<Option<std::string::String>> =
            std::sync::OnceLock::new();
        CONTROL
            .get_or_init(|| std::env::var("NEGATIVE_CONTROL").ok())
            .as_deref()
            == Some(name)
    }

    std::thread_local! {
        // All threads of a model run on one thread of the machine: this clock is global to the
        // model and costs it no state.
        static NOW: Cell<u64> = const { Cell::new(1) };
    }

    pub(crate) fn now() -> u64 {
        NOW.with(|now| {
            now.set(now.get() + 1);
            now.get()
        })
    }

    pub(crate) fn margin_ticks() -> u64 {
        0
    }

    pub(crate) fn light() {
        if !negative_control("no_light_barrier") {
            machine::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn heavy() {
        machine::sync::atomic::fence(Ordering::SeqCst);
    }

    pub(crate) fn full_fence() {
        machine::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Where threads sleep on a word: the kernel looks at it and puts the thread to sleep in one
    /// step, as the lock has it here.
    #[derive(Debug)]
    pub(crate) struct Sleepers {
        lock: machine::sync::Mutex<()>,
        changed: machine::sync::Condvar,
    }

    impl Sleepers {
        pub(crate) fn new() -> Self {
            Self {
                lock: machine::sync::Mutex::new(()),
                changed: machine::sync::Condvar::new(),
            }
        }
        pub(crate) fn sleep_while(&self, word: &AtomicU32, value: u32) {
            let guard = self.lock.lock().unwrap();
            if word.load(Ordering::Relaxed) == value {
                drop(self.changed.wait(guard).unwrap());
            }
        }
        pub(crate) fn wake(&self, _: &AtomicU32) {
            let _guard = self.lock.lock().unwrap();
            self.changed.notify_all();
        }
    }

    pub(crate) fn relax(_: u32) {
        machine::thread::yield_now();
    }

    pub(crate) const AHEAD: u32 = 2048;

    pub(crate) fn fetch(_: *const u8, _: usize) {}

    /// A word with one user at a time: loom fails the model when there are two.
    #[derive(Debug, Default)]
    pub(crate) struct Private32(cell::Cell<u32>);

    impl Private32 {
        pub(crate) fn new(value: u32) -> Self {
            Self(cell::Cell::new(value))
        }
        pub(crate) fn get(&self) -> u32 {
            self.0.get()
        }
        pub(crate) fn set(&self, value: u32) {
            self.0.set(value);
        }
    }

    /// See [`Private32`].
    #[derive(Debug, Default)]
    pub(crate) struct Private64(cell::Cell<u64>);

    impl Private64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(cell::Cell::new(value))
        }
        pub(crate) fn get(&self) -> u64 {
            self.0.get()
        }
        pub(crate) fn set(&self, value: u64) {
            self.0.set(value);
        }
    }

    // SAFETY: a model hands these from thread to thread on purpose; loom itself reports two users
    // without an order between them.
    unsafe impl Sync for Private32 {}
    // SAFETY: as above.
    unsafe impl Sync for Private64 {}
}
