//! Time: raw ticks for writers, nanoseconds for everybody else.
//!
//! A tick is the processor's time stamp counter where the kernel itself uses that counter as its
//! clock (then it is invariant and equal on all processors), else the nanosecond of
//! `CLOCK_MONOTONIC`. Reading costs 12 or 33 ns.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use rustix::time::{ClockId, clock_gettime};

/// Where ticks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor's counter.
    Counter,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    Os,
}

const UNKNOWN: u8 = 0;
const COUNTER: u8 = 1;
const OS: u8 = 2;

static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The first pair of ticks and nanoseconds, from which the rate is measured. Ticks are written
/// last; zero: none yet.
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);
static FIRST_NS: AtomicU64 = AtomicU64::new(0);

/// The current tick; never 0, never less than an earlier one of the same thread by more than the
/// skew of the processors' counters (the ring clamps that away). Async-signal-safe.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if SOURCE.load(Ordering::Relaxed) == COUNTER {
        return counter();
    }
    ticks_slow()
}

#[cold]
#[inline(never)]
fn ticks_slow() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if source() == Source::Counter {
        return counter();
    }
    monotonic_ns()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; `source` chose it, so user mode may
    // execute it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Where this process's ticks come from; decided at the first use, for good.
pub fn source() -> Source {
    match SOURCE.load(Ordering::Relaxed) {
        COUNTER => Source::Counter,
        OS => Source::Os,
        _ => decide(if kernel_trusts_counter() { COUNTER } else { OS }),
    }
}

/// Makes [`Source::Os`] the source. Has an effect only before the first tick of the process;
/// returns the source in use.
pub fn use_os_clock() -> Source {
    decide(OS)
}

fn decide(wanted: u8) -> Source {
    let chosen =
        match SOURCE.compare_exchange(UNKNOWN, wanted, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => wanted,
            Err(earlier) => earlier,
        };
    if chosen == COUNTER {
        Source::Counter
    } else {
        Source::Os
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel_trusts_counter() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn kernel_trusts_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    let invariant =
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
    if !invariant {
        return false;
    }
    let mut text = [0u8; 16];
    let length = crate::process::read_file(
        c"/sys/devices/system/clocksource/clocksource0/current_clocksource",
        &mut text,
    );
    matches!(length, Ok(n) if text.get(..n).is_some_and(|t| t.starts_with(b"tsc\n")))
}

/// Nanoseconds of `CLOCK_MONOTONIC`; never 0. Async-signal-safe.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
        .max(1)
}

/// A moment on the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime {
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub unix_ns: u64,
}

/// The wall clock.
pub fn utc_now() -> UtcTime {
    let now = clock_gettime(ClockId::Realtime);
    UtcTime {
        unix_ns: (now.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec as u64),
    }
}

/// A tick and the nanosecond that belongs to it, as close together as three attempts give.
fn pair() -> (u64, u64) {
    let mut best = (0, 0, u64::MAX);
    for _ in 0..5 {
        let before = ticks();
        let ns = monotonic_ns();
        let after = ticks();
        let width = after.saturating_sub(before);
        if width < best.2 {
            best = (before + width / 2, ns, width);
        }
    }
    (best.0, best.1)
}

/// Notes the first pair of the process, from which the rate of the ticks is measured later on.
/// Worth calling when the engine starts: the first [`Clock`] then needs no pause to measure.
/// Idempotent.
pub fn note_start() {
    first_pair();
}

fn first_pair() -> (u64, u64) {
    loop {
        match FIRST_TICKS.load(Ordering::Acquire) {
            0 => {
                let (ticks, ns) = pair();
                // The nanoseconds go first; who loses the race stores a pair of its own, hence the
                // claim by value 1.
                if FIRST_TICKS
                    .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
                {
                    FIRST_NS.store(ns, Ordering::Relaxed);
                    FIRST_TICKS.store(ticks.max(2), Ordering::Release);
                }
            }
            1 => core::hint::spin_loop(),
            ticks => return (ticks, FIRST_NS.load(Ordering::Relaxed)),
        }
    }
}

/// Turns ticks into nanoseconds of `CLOCK_MONOTONIC`. One owner (the drain); a larger tick never
/// gives a smaller nanosecond.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The line begins here, and rises by `bent` nanoseconds per tick (32 binary places) ...
    base_ticks: u64,
    base_ns: u64,
    bent: u64,
    /// ... for so many ticks, in which it comes back to the measured time. From there on it rises as measured, however long it takes
    /// until it is bent again: bent further, it would leave the measured time on the other side, and farther each time.
    bent_ticks: u64,
    bent_ns: u64,
    rate: u64,
    /// From here the rate is measured.
    last_pair: (u64, u64),
    /// When to bend the line next. Short at first, when the rate is that of a few milliseconds.
    interval_ns: u64,
}

const ONE: u64 = 1 << 32;
/// How far apart two pairs must be to give a usable rate (25 ppm with pairs good to 50 ns).
const MEASURE_NS: u64 = 2_000_000;
/// How often the line is bent to the measured time, in the end.
const REANCHOR_NS: u64 = 1_000_000_000;

impl Clock {
    /// A clock that is right from now on. Pauses up to 2 ms when the process's first tick is
    /// younger than that.
    pub fn new() -> Self {
        if source() == Source::Os {
            return Self::line((1, 1), ONE, (1, 1));
        }
        let first = first_pair();
        let mut now = pair();
        while now.1.saturating_sub(first.1) < MEASURE_NS {
            crate::thread::sleep_ns(MEASURE_NS);
            now = pair();
        }
        Self::line(now, rate(first, now).unwrap_or(ONE), first)
    }

    fn line(base: (u64, u64), rate: u64, last_pair: (u64, u64)) -> Self {
        Self {
            base_ticks: base.0,
            base_ns: base.1,
            bent: rate,
            bent_ticks: 0,
            bent_ns: 0,
            rate,
            last_pair,
            interval_ns: 2 * MEASURE_NS,
        }
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` at a tick (also before the clock was made); exact to a few
    /// microseconds.
    #[inline(always)]
    pub fn to_ns(&self, ticks: u64) -> u64 {
        let Some(ticks) = ticks.checked_sub(self.base_ticks) else {
            return self.before(self.base_ticks - ticks);
        };
        let after = match ticks.checked_sub(self.bent_ticks) {
            Some(rest) => self.bent_ns.wrapping_add(scale(rest, self.rate)),
            None => scale(ticks, self.bent),
        };
        self.base_ns.wrapping_add(after)
    }

    /// What was so many ticks before the clock was made.
    #[cold]
    fn before(&self, ticks: u64) -> u64 {
        self.base_ns.saturating_sub(scale(ticks, self.bent))
    }

    /// How many ticks make `ns` nanoseconds.
    pub fn ticks_in_ns(&self, ns: u64) -> u64 {
        quotient(ns, self.rate.max(1))
    }

    /// Bends the line so that it meets the measured time again, within a second; cheap, does nothing most of the time.
    ///
    /// `boundary` is a tick such that every tick still to be converted is above it and none that
    /// was converted is: the line stays as it is up to there, so nothing is ever converted to an
    /// earlier time than its predecessor.
    pub fn reanchor(&mut self, boundary: u64) {
        if source() == Source::Os
            || boundary <= self.base_ticks
            || scale(boundary - self.base_ticks, self.rate) < self.interval_ns
        {
            return;
        }
        let now = pair();
        let Some(measured) = rate(self.last_pair, now) else {
            return;
        };
        let base_ns = self.to_ns(boundary);
        // True time at the boundary by the measured rate, and the error to make up.
        let truth = if now.0 >= boundary {
            now.1.saturating_sub(scale(now.0 - boundary, measured))
        } else {
            now.1.saturating_add(scale(boundary - now.0, measured))
        };
        let error = truth.wrapping_sub(base_ns) as i64;
        self.interval_ns = (2 * self.interval_ns).min(REANCHOR_NS);
        // At most a thousandth of the rate, so that the line always rises.
        let most = (self.interval_ns / 1000) as i64;
        let error = error.clamp(-most, most);
        let bend = error.saturating_mul(measured as i64) / self.interval_ns as i64;
        self.base_ticks = boundary;
        self.base_ns = base_ns;
        self.rate = measured;
        self.bent = measured.wrapping_add_signed(bend).max(1);
        self.bent_ticks = self.ticks_in_ns(self.interval_ns);
        self.bent_ns = scale(self.bent_ticks, self.bent);
        // Over a second or more, the rate is exact, and younger than the adjustments of the system's clock.
        if now.1.saturating_sub(self.last_pair.1) >= REANCHOR_NS {
            self.last_pair = now;
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn scale(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

/// `dividend / divisor` with 32 binary places; the most there is where that is too much. Bit by bit: a division of 128 bits
/// would be half a kilobyte of code.
fn quotient(dividend: u64, divisor: u64) -> u64 {
    let (mut quotient, mut rest) = (dividend / divisor, dividend % divisor);
    if quotient >= ONE {
        return u64::MAX;
    }
    for _ in 0..32 {
        // The rest is below the divisor, so doubling it loses at most a bit, and then it is the larger one.
        let is_over = rest >> 63 != 0;
        rest <<= 1;
        quotient <<= 1;
        if is_over || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

fn rate(from: (u64, u64), to: (u64, u64)) -> Option<u64> {
    let ticks = to.0.checked_sub(from.0)?;
    let ns = to.1.checked_sub(from.1)?;
    if ticks == 0 || ns == 0 {
        return None;
    }
    Some(quotient(ns, ticks)).filter(|rate| *rate != 0)
}

/// How many ticks make a microsecond, roughly (at least 1): for waiting a little, not for time
/// stamps. Before the process is 2 ms old, an estimate of 3,000 for the counter.
pub fn ticks_per_us() -> u64 {
    if source() == Source::Os {
        return 1000;
    }
    let (first_ticks, first_ns) = first_pair();
    let ns = monotonic_ns().saturating_sub(first_ns);
    if ns < MEASURE_NS {
        return 3000;
    }
    let rate = quotient(ticks().saturating_sub(first_ticks), ns);
    scale(1000, rate).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_monotonic_nanoseconds_within_microseconds() {
        let mut clock = Clock::new();
        for _ in 0..200 {
            let before = monotonic_ns();
            let ticks = ticks();
            let after = monotonic_ns();
            let ns = clock.to_ns(ticks);
            assert!(
                ns + 50_000 >= before && ns <= after + 50_000,
                "{before} {ns} {after}"
            );
            clock.reanchor(ticks);
        }
    }

    #[test]
    fn quotients_are_those_of_long_division() {
        let numbers = [
            1,
            2,
            3,
            1000,
            2_999_999_999,
            ONE - 1,
            ONE,
            1 << 62,
            u64::MAX - 1,
            u64::MAX,
        ];
        for dividend in numbers {
            for divisor in numbers {
                let expected = (u128::from(dividend) << 32) / u128::from(divisor);
                let expected = u64::try_from(expected).unwrap_or(u64::MAX);
                assert_eq!(
                    quotient(dividend, divisor),
                    expected,
                    "{dividend} / {divisor}"
                );
            }
        }
        assert_eq!(quotient(0, 7), 0);
    }

    #[test]
    fn a_line_that_is_seldom_bent_comes_back_to_the_measured_time_and_stays_there() {
        if source() == Source::Os {
            return;
        }
        let mut clock = Clock::new();
        clock.base_ns -= 300_000;
        clock.interval_ns = REANCHOR_NS;
        let now = pair();
        let boundary = |seconds| now.0 + clock.ticks_in_ns(seconds * REANCHOR_NS);
        let (before, after) = (boundary(4), [5, 6, 8, 12].map(boundary));
        clock.reanchor(before);
        // By the rate that was measured then.
        let error = |ticks: u64| {
            let truth = now.1 + scale(ticks - now.0, clock.rate);
            clock.to_ns(ticks).abs_diff(truth)
        };
        assert!(error(before) > 200_000, "until then as far away as it was");
        for ticks in after {
            assert!(error(ticks) < 50_000, "{} ns beside it", error(ticks));
        }
    }

    #[test]
    fn bending_the_line_never_goes_back() {
        let mut clock = Clock::line((1000, 5_000_000_000), ONE * 2, (1000, 5_000_000_000));
        // A wrong rate and a wrong base: the line must still rise at every boundary.
        let now = ticks();
        let before = clock.to_ns(now);
        clock.reanchor(now);
        assert_eq!(clock.to_ns(now), before);
        assert!(clock.to_ns(now + 1_000_000) > before);
    }
}
