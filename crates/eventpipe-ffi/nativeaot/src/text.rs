//! Zero-terminated UTF-16 of the runtime.

use alloc::string::String;
use core::slice;

/// The text's units without the closing zero; none when the pointer is null.
///
/// # Safety
/// `text` is null or points to units of which one is zero, and they stay unchanged while the result is used.
pub(crate) unsafe fn units<'a>(text: *const u16) -> Option<&'a [u16]> {
    if text.is_null() {
        return None;
    }
    let mut end = text;
    // SAFETY: no zero has been met yet, so this unit belongs to the text.
    while unsafe { end.read() } != 0 {
        // SAFETY: this unit is not the last one, so there is a next one.
        end = unsafe { end.add(1) };
    }
    // SAFETY: both lie in one text, `end` behind.
    let length = unsafe { end.offset_from_unsigned(text) };
    // SAFETY: so many units were just read.
    Some(unsafe { slice::from_raw_parts(text, length) })
}

/// The text, unpaired surrogates replaced; empty when the pointer is null.
///
/// # Safety
/// As for [`units`].
pub(crate) unsafe fn string(text: *const u16) -> String {
    // SAFETY: the caller's promise.
    String::from_utf16_lossy(unsafe { units(text) }.unwrap_or_default())
}

/// The text with its closing zero as bytes of a payload. A null pointer is the text `NULL`, as the runtime's own engine writes it.
///
/// # Safety
/// As for [`units`].
pub(crate) unsafe fn payload<'a>(text: *const u16) -> &'a [u8] {
    // SAFETY: the caller's promise.
    match unsafe { units(text) } {
        None => b"N\0U\0L\0L\0\0\0",
        // SAFETY: the zero that follows the units was seen; bytes need no alignment.
        Some(units) => unsafe { slice::from_raw_parts(text.cast(), (units.len() + 1) * 2) },
    }
}
