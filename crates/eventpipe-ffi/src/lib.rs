//! The C interface of the engine. `include/eventpipe.h` describes it for its users; here is how it is kept.
//!
//! One function per verb, handles that are never freed, a status code where something can fail and the result by pointer. A panic ends at
//! the border (the function `guarded`).
//!
//! Invariant F1: handles are `&'static Provider` and `&'static Event`, or null.

#![allow(
    unsafe_code,
    reason = "this crate is the border to C code: every argument comes from there"
)]

mod definition;
mod session;

pub use definition::{DefinitionOfC, FieldOfC, eventpipe_event_define};
pub use session::{eventpipe_session_start_file, eventpipe_session_stop};

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use eventpipe::{Event, EventOptions, Guid, Level, Provider};

/// `eventpipe_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// A null where none is allowed, a text that is not UTF-8, an unknown type or level.
    InvalidArgument = 1,
    /// 64 sessions run.
    TooManySessions = 2,
    /// The process ends, or is the child of a fork.
    ShuttingDown = 3,
    /// The operating system refused something.
    System = 4,
    /// A mistake in this library.
    Internal = 5,
}

/// `eventpipe_piece`.
#[derive(Debug)]
#[repr(C)]
pub struct Piece {
    address: *const c_void,
    size: usize,
}

/// Calls `function`; `otherwise` when it panics.
fn guarded<T>(otherwise: T, function: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(function)).unwrap_or(otherwise)
}

/// A text of the caller.
///
/// # Safety
/// `text` is null or closed by a zero, and stays as it is while the result is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// See eventpipe.h.
#[unsafe(no_mangle)]
pub extern "C" fn eventpipe_start() {
    guarded((), eventpipe::start);
}

/// See eventpipe.h.
#[unsafe(no_mangle)]
pub extern "C" fn eventpipe_shutdown() {
    guarded((), eventpipe::shutdown);
}

/// See eventpipe.h.
///
/// # Safety
/// `name` is null or closed by a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_provider_create(name: *const c_char) -> *const Provider {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { text(name) }) else {
        return std::ptr::null();
    };
    guarded(std::ptr::null(), || Provider::builder(name).register())
}

/// See eventpipe.h.
///
/// # Safety
/// `provider` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_provider_enabled(
    provider: *const Provider,
    level: u32,
    keywords: u64,
) -> bool {
    // SAFETY: F1.
    unsafe { provider.as_ref() }
        .is_some_and(|provider| provider.is_enabled(Level::from_number(level), keywords))
}

/// See eventpipe.h.
///
/// # Safety
/// `event` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_event_enabled(event: *const Event) -> bool {
    // SAFETY: F1.
    let event: Option<&'static Event> = unsafe { event.as_ref() };
    event.is_some_and(Event::is_enabled)
}

/// See eventpipe.h.
///
/// # Safety
/// `event` is a handle or null; `pieces` points to `count` pieces whose bytes can be read; the ids are null or 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_event_write(
    event: *const Event,
    pieces: *const Piece,
    count: usize,
    activity_id: *const Guid,
    related_activity_id: *const Guid,
) {
    // SAFETY: F1.
    let event: Option<&'static Event> = unsafe { event.as_ref() };
    let Some(event) = event.filter(|event| event.is_enabled()) else {
        return;
    };
    let pieces = if pieces.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(pieces, count) }
    };
    let options = EventOptions {
        // SAFETY: the caller's promise; a Guid is bytes and needs no alignment.
        activity_id: unsafe { activity_id.as_ref() },
        // SAFETY: as above.
        related_activity_id: unsafe { related_activity_id.as_ref() },
        ..EventOptions::default()
    };
    guarded((), || event.write_encoded(&Pieces(pieces), &options));
}

/// The pieces of a payload in the memory of their writer.
struct Pieces<'a>(&'a [Piece]);

impl eventpipe::Payload for Pieces<'_> {
    fn len(&self) -> usize {
        self.0
            .iter()
            .fold(0, |sum, piece| sum.saturating_add(piece.size))
    }

    fn copy_to(&self, mut out: &mut [u8]) {
        for piece in self.0 {
            let Some((place, rest)) = std::mem::take(&mut out).split_at_mut_checked(piece.size)
            else {
                return;
            };
            if piece.address.is_null() {
                // Not what an earlier event has left there.
                place.fill(0);
            } else {
                let from = piece.address.cast::<u8>();
                // SAFETY: the writer of the event promises so many bytes, and `place` is as long and our own.
                unsafe { from.copy_to_nonoverlapping(place.as_mut_ptr(), piece.size) };
            }
            out = rest;
        }
    }
}

/// See eventpipe.h.
///
/// # Safety
/// `text` is null or closed by a zero; `out` is null or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_utf16(text: *const c_char, out: *mut u8, size: usize) -> usize {
    let bytes = if text.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(text) }.to_bytes()
    };
    guarded(0, || {
        let text = String::from_utf8_lossy(bytes);
        let encoded: Vec<u8> = text
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect();
        if !out.is_null() && encoded.len() <= size {
            // SAFETY: so many bytes fit, by the caller's promise.
            unsafe { out.copy_from_nonoverlapping(encoded.as_ptr(), encoded.len()) };
        }
        encoded.len()
    })
}
