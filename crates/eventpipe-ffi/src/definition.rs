//! Definitions of events, from C structures.

use std::ffi::c_char;
use std::slice;

use eventpipe::{Definition, Event, Level, Opcode, Provider};
use nettrace::{Field, FieldType};

use crate::{Status, guarded, text};

/// `eventpipe_field`.
#[derive(Debug)]
#[repr(C)]
pub struct FieldOfC {
    name: *const c_char,
    kind: u32,
}

/// `eventpipe_definition`.
#[derive(Debug)]
#[repr(C)]
pub struct DefinitionOfC {
    id: u32,
    name: *const c_char,
    keywords: u64,
    level: u32,
    opcode: u8,
    version: u32,
    stack: bool,
    fields: *const FieldOfC,
    field_count: usize,
}

/// See eventpipe.h.
///
/// # Safety
/// `provider` is a handle or null; `definition` is null or points to a definition whose texts are closed by zeros and whose `fields`
/// points to `field_count` fields; `event` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_event_define(
    provider: *const Provider,
    definition: *const DefinitionOfC,
    event: *mut *const Event,
) -> Status {
    // SAFETY: handles live for ever (F1).
    let provider: Option<&'static Provider> = unsafe { provider.as_ref() };
    // SAFETY: the caller's promise.
    let definition = unsafe { definition.as_ref() };
    let (Some(provider), Some(definition), false) = (provider, definition, event.is_null()) else {
        return Status::InvalidArgument;
    };
    // SAFETY: the caller's promise.
    let Some(converted) = (unsafe { convert(definition) }) else {
        return Status::InvalidArgument;
    };
    let Some(defined) = guarded(None, || Some(provider.define(converted))) else {
        return Status::Internal;
    };
    // SAFETY: the caller's promise.
    unsafe { event.write(defined) };
    Status::Ok
}

/// # Safety
/// As for [`eventpipe_event_define`].
unsafe fn convert(definition: &DefinitionOfC) -> Option<Definition> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(definition.name) }?;
    let fields = if definition.field_count == 0 {
        &[]
    } else if definition.fields.is_null() {
        return None;
    } else {
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts(definition.fields, definition.field_count) }
    };
    let mut described = Vec::new();
    for field in fields {
        described.push(Field {
            // SAFETY: the caller's promise.
            name: unsafe { text(field.name) }?.to_owned(),
            field_type: field_type(field.kind)?,
        });
    }
    if definition.level > 5 || definition.id == 0 {
        return None;
    }
    // Definitions live as long as the process, like the events that they are for.
    let name: &'static str = Box::leak(Box::from(name));
    let described: &'static [Field] = Box::leak(described.into_boxed_slice());
    Some(
        Definition::new(name)
            .id(definition.id)
            .keywords(definition.keywords)
            .level(Level::from_number(definition.level))
            .opcode(Opcode(definition.opcode))
            .version(definition.version)
            .stack(definition.stack)
            .described(described),
    )
}

/// The types that a C program can describe: numbers, GUID and text.
fn field_type(number: u32) -> Option<FieldType> {
    match number {
        3..=14 | 17 | 18 => FieldType::of_code(number),
        _ => None,
    }
}
