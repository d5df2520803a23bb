//! What a reader needs to make sense of a session, told at its end (docs/rundown.md): the modules of the process, its threads, the
//! events that are known.
//!
//! It runs on the drain's thread while the other sessions wait for it, so its time is limited; it takes no lock that a thread of the
//! program may hold (not the loader's either), and what it reads of the modules it reads from their memory through the kernel, so
//! one that is unloaded meanwhile is an error and no fault.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use eventpipe_os::{clock, thread};
use eventpipe_ring::Payload;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};

use crate::argument::{Arguments, Encoded, FieldKind};
use crate::definition::{Definition, FieldDescription, Level, Opcode};
use crate::encoder::Rundown;
use crate::engine::EVENTS;
use crate::event::Event;
use crate::maps::{self, Mapping};
use crate::process_info::text;
use crate::provider::Provider;

/// The other sessions are kept waiting so long at most.
const LIMIT_NS: u64 = 250_000_000;

static PROVIDER: Provider = Provider::new(
    "EventPipe-Rundown",
    &[&MODULE, &THREAD, &KNOWN_EVENT, &COMPLETE],
);

const fn field(name: &'static str, kind: FieldKind) -> FieldDescription {
    FieldDescription { name, kind }
}

const fn event(id: u32, name: &'static str, fields: &'static [FieldDescription]) -> Event {
    let definition = Definition::new(name)
        .id(id)
        .level(Level::Informational)
        .opcode(Opcode::DATA_COLLECTION_STOP)
        .stack(false)
        .fields(fields);
    Event::new(&PROVIDER, definition)
}

/// An executable range of a module.
static MODULE: Event = event(
    1,
    "Module",
    &[
        field("Start", FieldKind::UInt64),
        field("End", FieldKind::UInt64),
        field("FileOffset", FieldKind::UInt64),
        field("BuildId", FieldKind::String),
        field("Path", FieldKind::String),
    ],
);

static THREAD: Event = event(
    2,
    "Thread",
    &[
        field("ThreadId", FieldKind::UInt64),
        field("Name", FieldKind::String),
    ],
);

static KNOWN_EVENT: Event = event(
    3,
    "Event",
    &[
        field("ProviderName", FieldKind::String),
        field("EventId", FieldKind::UInt32),
        field("EventName", FieldKind::String),
        field("Version", FieldKind::UInt32),
        field("Level", FieldKind::UInt32),
        field("Keywords", FieldKind::UInt64),
    ],
);

/// The last one: how many of each there were, and whether there was time for all.
static COMPLETE: Event = event(
    4,
    "Complete",
    &[
        field("Modules", FieldKind::UInt32),
        field("Threads", FieldKind::UInt32),
        field("Events", FieldKind::UInt32),
        field("IsComplete", FieldKind::Boolean),
    ],
);

/// Writes all of it.
pub(crate) fn write(rundown: &mut Rundown<'_>) {
    PROVIDER.register();
    let mut report = Report {
        rundown,
        end_ns: clock::monotonic_ns().saturating_add(LIMIT_NS),
        is_complete: true,
    };
    let modules = report.modules();
    let threads = report.threads();
    let events = report.events();
    let is_complete = report.is_complete;
    report.put(&COMPLETE, (modules, threads, events, is_complete));
}

struct Report<'r, 'e> {
    rundown: &'r mut Rundown<'e>,
    end_ns: u64,
    is_complete: bool,
}

impl Report<'_, '_> {
    fn put<A: Arguments>(&mut self, event: &'static Event, arguments: A) {
        let encoded = Encoded(arguments);
        let mut payload = vec![0; encoded.len()];
        encoded.copy_to(&mut payload);
        self.rundown.write(event, &[&payload]);
    }

    fn has_time(&mut self) -> bool {
        let has_time = clock::monotonic_ns() < self.end_ns;
        self.is_complete &= has_time;
        has_time
    }

    fn modules(&mut self) -> u32 {
        let mut count = 0;
        let Ok(maps) = maps::read() else {
            self.is_complete = false;
            return 0;
        };
        let memory = open("/proc/self/mem", OFlags::RDONLY);
        // Ranges of a module follow each other, the one with its header first.
        let mut header: Option<Mapping<'_>> = None;
        let mut id = None;
        for mapping in maps::mappings(&maps) {
            let is_module = mapping.path.starts_with(b"/") || mapping.path == b"[vdso]";
            if !is_module || !self.has_time() {
                continue;
            }
            let is_other =
                |header: &Mapping<'_>| (header.path, header.inode) != (mapping.path, mapping.inode);
            if mapping.offset == 0 && header.as_ref().is_none_or(is_other) {
                (header, id) = (Some(mapping), None);
            }
            if mapping.executable {
                // Looked at only now: what has no code may be a device's registers.
                let id = match (&header, &memory) {
                    (Some(header), Some(memory)) if !is_other(header) => {
                        let id = id.get_or_insert_with(|| build_id(memory, header));
                        id.as_deref()
                    }
                    _ => None,
                };
                let path = text(mapping.path);
                let (start, end) = (mapping.start, mapping.end);
                self.put(
                    &MODULE,
                    (
                        start,
                        end,
                        mapping.offset,
                        id.unwrap_or_default(),
                        path.as_str(),
                    ),
                );
                count += 1;
            }
        }
        count
    }

    fn threads(&mut self) -> u32 {
        let mut count = 0;
        let tasks = open("/proc/self/task", OFlags::RDONLY | OFlags::DIRECTORY);
        let Some(mut tasks) = tasks.and_then(|tasks| Dir::read_from(tasks).ok()) else {
            self.is_complete = false;
            return 0;
        };
        while let Some(Ok(entry)) = tasks.read() {
            let name = entry.file_name().to_bytes();
            let Some(id) = core::str::from_utf8(name)
                .ok()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if !self.has_time() {
                break;
            }
            // One that has just ended has no name any more.
            if let Some(name) = thread::name_of(id) {
                self.put(&THREAD, (id, text(&name).as_str()));
                count += 1;
            }
        }
        count
    }

    fn events(&mut self) -> u32 {
        let mut count = 0;
        for event in EVENTS.iter() {
            if core::ptr::eq(event.provider(), &PROVIDER) {
                continue;
            }
            if !self.has_time() {
                break;
            }
            let definition = event.definition();
            self.put(
                &KNOWN_EVENT,
                (
                    event.provider().name(),
                    definition.event_id(),
                    definition.name,
                    definition.version,
                    u32::from(definition.level as u8),
                    definition.keywords,
                ),
            );
            count += 1;
        }
        count
    }
}

fn open(path: &str, flags: OFlags) -> Option<OwnedFd> {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The note with the build id of the module that begins here, in hexadecimal digits.
fn build_id(memory: &OwnedFd, module: &Mapping<'_>) -> Option<String> {
    const LONGEST_TABLE: usize = 64 * 64;
    const NOTE: u64 = 4;
    let header = bytes(memory, module.start, 64)?;
    if header.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (table, size) = (number(&header, 32, 8)?, number(&header, 54, 2)? as usize);
    let length = size.checked_mul(number(&header, 56, 2)? as usize)?;
    let table = bytes(
        memory,
        module.start.checked_add(table)?,
        length.min(LONGEST_TABLE),
    )?;
    table.chunks_exact(size.max(1)).find_map(|entry| {
        if number(entry, 0, 4)? != NOTE {
            return None;
        }
        // In the file as in memory: notes are in the part that the header is in.
        let (offset, length) = (number(entry, 8, 8)?, number(entry, 32, 8)?);
        if offset.checked_add(length)? > module.end - module.start {
            return None;
        }
        let notes = bytes(memory, module.start + offset, length.min(4096) as usize)?;
        id_in_notes(&notes)
    })
}

/// Notes: lengths of name and content, type, name, content, both filled up to four bytes.
fn id_in_notes(mut notes: &[u8]) -> Option<String> {
    const BUILD_ID: u64 = 3;
    loop {
        let name_length = number(notes, 0, 4)? as usize;
        let length = number(notes, 4, 4)? as usize;
        let kind = number(notes, 8, 4)?;
        let rest = notes.get(12..)?;
        let name = rest.get(..name_length)?;
        let rest = rest.get(name_length.next_multiple_of(4)..)?;
        if kind == BUILD_ID && name == b"GNU\0" {
            return Some(hexadecimal(rest.get(..length)?));
        }
        notes = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn bytes(memory: &OwnedFd, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = rustix::io::pread(memory, &mut bytes, at).ok()?;
    (read == length).then_some(bytes)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    )
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_among_notes_and_nonsense_is_survived() {
        let mut notes = Vec::new();
        for (kind, name, content) in [
            (1_u32, &b"GNU\0"[..], &[1_u8; 5][..]),
            (3, b"GNU\0", &[0xAB, 0xC0, 7]),
        ] {
            notes.extend((name.len() as u32).to_le_bytes());
            notes.extend((content.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            for part in [name, content] {
                notes.extend(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        }
        assert_eq!(id_in_notes(&notes).as_deref(), Some("abc007"));
        for length in 0..notes.len() - 1 {
            assert_eq!(id_in_notes(&notes[..length]), None);
        }
        assert_eq!(id_in_notes(&[0xFF; 64]), None);
    }
}
