//! EventSource: providers, events and payloads that come from managed code.
//!
//! The callbacks run arbitrary managed code: they define events, may be stopped by a collection, and wait for it. The engine
//! calls them with no lock held ([`eventpipe::ProviderChange`]). Level and keywords are those of all sessions together.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::slice;

use eventpipe::{
    Cause, Definition, Event, EventOptions, Guid, Level, Payload, Provider, ProviderChange,
};

use crate::text;

/// The callback of an EventSource: id of the session (null when one stops), 1 = on or 0 = off, level, any of these keywords, all of these
/// keywords, filter, context.
type EnableCallback = unsafe extern "C" fn(
    source_id: *const u64,
    control_code: i32,
    level: u8,
    match_any: u64,
    match_all: u64,
    filter: *const FilterDescriptor,
    context: *mut c_void,
);

#[repr(C)]
struct FilterDescriptor {
    address: u64,
    size: u32,
    kind: u32,
}

/// A piece of a payload.
#[repr(C)]
pub(crate) struct EventData {
    address: *const u8,
    size: u32,
    reserved: u32,
}

/// The context of a callback; the runtime makes it usable from any thread.
struct Context(*mut c_void);
// SAFETY: a handle that only the callback looks into, and the callback may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above; it is only copied.
unsafe impl Sync for Context {}

/// Makes a provider; if a session wants it already, the callback is called before this returns. Several may have one name. The
/// handle is never 0.
///
/// # Safety
/// `name` is zero-terminated; `callback` stays callable with `context` until the provider is deleted.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_CreateProvider(
    name: *const u16,
    callback: Option<EnableCallback>,
    context: *mut c_void,
) -> *const Provider {
    // SAFETY: the caller's promise.
    let builder = Provider::builder(unsafe { text::string(name) });
    let context = Context(context);
    match callback {
        None => builder,
        Some(callback) => builder.on_change(move |change| {
            let context = &context;
            tell(callback, context.0, change);
        }),
    }
    .register()
}

fn tell(callback: EnableCallback, context: *mut c_void, change: &ProviderChange<'_>) {
    let session = change.session.0;
    let source_id: *const u64 = match change.cause {
        Cause::SessionStarted => &session,
        Cause::SessionStopped => core::ptr::null(),
    };
    let blob = change.arguments.map(filter_blob);
    let descriptor = blob.as_ref().map(|blob| FilterDescriptor {
        address: blob.as_ptr() as u64,
        size: blob.len() as u32,
        kind: 0,
    });
    let filter = descriptor
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the provider exists, so its callback may be called; session id and filter are read during the call only.
    unsafe {
        callback(
            source_id,
            i32::from(change.is_enabled),
            change.level as u8,
            change.keywords,
            0,
            filter,
            context,
        );
    }
}

/// Arguments as EventSource takes them: keys and values, each closed by a zero. `=` and `;` outside of quotes are the separators,
/// and the quotes go.
fn filter_blob(arguments: &str) -> Vec<u8> {
    let mut blob = Vec::with_capacity(arguments.len() + 1);
    let mut is_quoted = false;
    for byte in arguments.bytes() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'=' | b';' if !is_quoted => blob.push(0),
            _ => blob.push(byte),
        }
    }
    blob.push(0);
    blob
}

/// Takes a provider away. Its name and the descriptions of its events stay, because events may still lie in buffers. The callback has
/// returned and is not called again, unless it is itself what deletes the provider.
///
/// # Safety
/// `provider` is a handle of this library or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_DeleteProvider(provider: *const Provider) {
    // SAFETY: handles live for ever (N3).
    if let Some(provider) = unsafe { provider.as_ref() } {
        provider.unregister();
    }
}

/// The provider of a name, or null.
///
/// # Safety
/// `name` is zero-terminated.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_GetProvider(name: *const u16) -> *const Provider {
    // SAFETY: the caller's promise.
    let name = unsafe { text::string(name) };
    Provider::find(&name).map_or(core::ptr::null(), core::ptr::from_ref)
}

/// Adds an event. `metadata` is its description as it goes into a trace.
///
/// # Safety
/// `provider` is a handle of this library or null; `metadata` points to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_DefineEvent(
    provider: *const Provider,
    id: u32,
    keywords: i64,
    version: u32,
    level: u32,
    metadata: *const u8,
    length: u32,
) -> *const Event {
    // SAFETY: handles live for ever (N3).
    let Some(provider) = (unsafe { provider.as_ref() }) else {
        return core::ptr::null();
    };
    let mut definition = Definition::new("")
        .id(id)
        .keywords(keywords as u64)
        .version(version)
        .level(Level::from_number(level))
        .stack(false);
    if !metadata.is_null() && length > 0 {
        // SAFETY: the caller's promise.
        let description = unsafe { slice::from_raw_parts(metadata, length as usize) };
        definition = definition.encoded(Box::leak(Box::from(description)));
    }
    provider.define(definition)
}

impl EventData {
    /// Bytes of our own.
    pub(crate) const fn of(bytes: &[u8]) -> Self {
        Self::at(bytes.as_ptr(), bytes.len())
    }

    /// So many bytes at an address.
    pub(crate) const fn at(address: *const u8, size: usize) -> Self {
        EventData {
            address,
            size: size as u32,
            reserved: 0,
        }
    }
}

/// The pieces of a payload in the memory of their writer.
pub(crate) struct Pieces<'a>(pub(crate) &'a [EventData]);

impl Payload for Pieces<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        let mut length = 0;
        for piece in self.0 {
            length += piece.size as usize;
        }
        length
    }

    #[inline(always)]
    fn copy_to(&self, mut out: &mut [u8]) {
        for piece in self.0 {
            let size = piece.size as usize;
            let Some((place, rest)) = core::mem::take(&mut out).split_at_mut_checked(size) else {
                return;
            };
            let place = place.as_mut_ptr();
            // Most arguments are numbers, for which a call would be the larger part of the work.
            match size {
                0 => {}
                // SAFETY: the writer of the event promises so many bytes, and `place` is as long and our own.
                4 => unsafe { piece.address.copy_to_nonoverlapping(place, 4) },
                // SAFETY: as above.
                8 => unsafe { piece.address.copy_to_nonoverlapping(place, 8) },
                // SAFETY: as above.
                _ => unsafe { piece.address.copy_to_nonoverlapping(place, size) },
            }
            out = rest;
        }
    }
}

/// Writes an event of the runtime's own. By the function for managed events, because the write path is there once, inlined.
#[inline(never)]
pub(crate) fn write(event: &'static Event, pieces: &[EventData]) {
    let (data, count) = (pieces.as_ptr(), pieces.len() as u32);
    // SAFETY: a live event, pieces whose bytes can be read, no ids.
    unsafe {
        EventPipeInternal_WriteEventData(event, data, count, core::ptr::null(), core::ptr::null());
    }
}

/// Writes an event: the hot path.
///
/// # Safety
/// `event` is a handle of this library or null; `data` points to `count` pieces whose bytes can be read; the ids are null or 16 bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_WriteEventData(
    event: *const Event,
    data: *const EventData,
    count: u32,
    activity_id: *const Guid,
    related_activity_id: *const Guid,
) {
    // SAFETY: handles live for ever (N3).
    let Some(event): Option<&'static Event> = (unsafe { event.as_ref() }) else {
        return;
    };
    let pieces = if data.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(data, count as usize) }
    };
    let options = EventOptions {
        // SAFETY: the caller's promise; a Guid is bytes and needs no alignment.
        activity_id: unsafe { activity_id.as_ref() },
        // SAFETY: as above.
        related_activity_id: unsafe { related_activity_id.as_ref() },
        ..EventOptions::default()
    };
    event.write_encoded(&Pieces(pieces), &options);
}
