//! The calling thread's slot: found through the per-thread cell, given back by the exit hook.
//!
//! The cell is null before a thread's first event, then its slot, and [`ENDED`] once the exit hook
//! has run: events after that (from destructors that run later, from the exit handlers of the
//! process) take a slot each.

use crate::ring::Ring;
use crate::slot::Slot;
use crate::sync::Ordering;
use core::ptr;
use eventpipe_os::thread;

const ENDED: *mut () = ptr::without_provenance_mut(1);

impl Ring {
    /// The calling thread's slot in this ring, if it has one. (A thread has one slot; with several
    /// rings, as in tests, it moves.)
    #[inline(always)]
    pub(crate) fn own_slot(&self) -> Option<&'static Slot> {
        let slot = slot_in(thread::cell())?;
        ptr::eq(slot.ring.load(Ordering::Relaxed), self).then_some(slot)
    }

    pub(crate) fn is_own(&self, slot: &Slot) -> bool {
        slot_in(thread::cell()).is_some_and(|own| ptr::eq(own, slot))
    }

    pub(crate) fn prepare_threads(&self) {
        // Without a key, threads take a slot for each event: slower, and right.
        let _ = thread::set_exit_hook(leave);
        let _ = thread::cache_ids();
    }

    /// A slot for the rest of the thread's life; `None` when it has ended its life with us, or
    /// cannot be told when it ends.
    #[cold]
    pub(crate) fn attach_thread(&'static self) -> Option<&'static Slot> {
        let mut before = thread::cell();
        if before == ENDED {
            return None;
        }
        if let Some(elsewhere) = slot_in(before) {
            if elsewhere.level.get() != 0 || thread::exchange_cell(before, ptr::null_mut()).is_err()
            {
                return None;
            }
            leave_slot(elsewhere);
            before = ptr::null_mut();
        }
        if !thread::arm_exit_hook() {
            // A ring that has not been started yet.
            let _ = thread::set_exit_hook(leave);
            if !thread::arm_exit_hook() {
                return None;
            }
        }
        let slot = self.attach()?;
        match thread::exchange_cell(before, ptr::from_ref(slot).cast_mut().cast()) {
            Ok(()) => Some(slot),
            Err(now) => {
                // A signal handler came in between and attached the thread.
                self.detach(slot);
                slot_in(now)
            }
        }
    }
}

#[inline(always)]
fn slot_in(cell: *mut ()) -> Option<&'static Slot> {
    if cell.addr() <= ENDED.addr() {
        return None;
    }
    // SAFETY: the cell holds null, `ENDED` or a slot that `attach_thread` put there, and slots live
    // for ever (S1).
    Some(unsafe { &*cell.cast::<Slot>() })
}

fn leave_slot(slot: &'static Slot) {
    let ring = slot.ring.load(Ordering::Relaxed);
    if !ring.is_null() {
        // SAFETY: only `attach` stores here, and slots that get into a cell come from a ring that
        // lives for ever.
        unsafe { &*ring }.detach(slot);
    }
}

/// The exit hook.
fn leave() {
    let before = thread::cell();
    // First, so that a signal handler from here on does not use the slot that is being given back.
    if thread::exchange_cell(before, ENDED).is_ok()
        && let Some(slot) = slot_in(before)
    {
        leave_slot(slot);
    }
}
