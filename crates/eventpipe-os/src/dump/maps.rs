//! What is where in the memory of a process, and which of it goes into the core file.

use rustix::fd::OwnedFd;

use super::Content;
use super::buffer::Buffer;
use crate::Error;

pub(super) const PAGE: u64 = 4096;
/// Anonymous memory in larger pieces is the heap's.
const SMALL: u64 = 256 << 10;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Copy)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) file_offset: u64,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    pub(super) is_executable: bool,
    is_private: bool,
    /// Where its name is in the text.
    name: (usize, usize),
    /// How many of its bytes are in the core file, from its start.
    pub(super) kept: u64,
}

impl Mapping {
    pub(super) fn name<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        text.get(self.name.0..self.name.1).unwrap_or_default()
    }

    pub(super) fn is_of_file(&self, text: &[u8]) -> bool {
        self.name(text).starts_with(b"/")
    }
}

fn hexadecimal(text: &[u8], at: &mut usize) -> u64 {
    let mut number = 0;
    while let Some(digit) = text
        .get(*at)
        .and_then(|byte| char::from(*byte).to_digit(16))
    {
        number = number << 4 | u64::from(digit);
        *at += 1;
    }
    *at += 1;
    number
}

pub(super) fn parse(text: &[u8], mappings: &mut Buffer<Mapping>) -> Result<(), Error> {
    let mut line_start = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let mut at = 0;
        let start = hexadecimal(line, &mut at);
        let end = hexadecimal(line, &mut at);
        let permission = |index: usize| line.get(at + index).copied();
        let permissions = [permission(0), permission(1), permission(2), permission(3)];
        at += 5;
        let file_offset = hexadecimal(line, &mut at);
        // The device, the inode, and blanks up to the name.
        let rest = line.get(at..).unwrap_or_default();
        let mut blanks = rest.iter().enumerate().filter(|(_, byte)| **byte == b' ');
        let behind_inode = blanks.nth(1).map_or(rest.len(), |(index, _)| index);
        let name = rest
            .get(behind_inode..)
            .unwrap_or_default()
            .trim_ascii_start();
        let name_end = line_start + line.len();
        if end > start {
            mappings.push(Mapping {
                start,
                end,
                file_offset,
                is_readable: permissions[0] == Some(b'r'),
                is_writable: permissions[1] == Some(b'w'),
                is_executable: permissions[2] == Some(b'x'),
                is_private: permissions[3] == Some(b'p'),
                name: (name_end - name.len(), name_end),
                kept: 0,
            })?;
        }
        line_start = name_end + 1;
    }
    Ok(())
}

/// Decides how much of each mapping is kept.
pub(super) fn choose(
    mappings: &mut Buffer<Mapping>,
    text: &[u8],
    stacks: &[u64],
    page_map: Option<&OwnedFd>,
    content: Content,
) {
    for mapping in mappings.as_mut_slice() {
        let name = mapping.name(text);
        let is_device = name.starts_with(b"/dev/")
            && !name.starts_with(b"/dev/shm/")
            && !name.starts_with(b"/dev/zero");
        // The kernel's clock pages cannot be read from outside.
        if !mapping.is_readable || is_device || name.starts_with(b"[vvar") || name == b"[vsyscall]"
        {
            continue;
        }
        let size = mapping.end - mapping.start;
        let is_of_file = mapping.is_of_file(text);
        let holds_stack = stacks
            .iter()
            .any(|stack| (mapping.start..mapping.end).contains(stack));
        let is_changed = mapping.is_private
            && if is_of_file {
                mapping.is_writable || page_map.is_none_or(|pages| is_changed(mapping, pages))
            } else {
                content != Content::Stacks || size <= SMALL
            };
        mapping.kept = if content == Content::Full || holds_stack || is_changed {
            size
        } else if is_of_file && mapping.file_offset == 0 {
            // The headers of a module, with its build id.
            size.min(PAGE)
        } else {
            0
        };
    }
}

/// Whether a private mapping of a file has pages that are no longer the file's
/// (`/proc/PID/pagemap`).
fn is_changed(mapping: &Mapping, page_map: &OwnedFd) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const OF_FILE: u64 = 1 << 61;
    let mut page = mapping.start / PAGE;
    let end = mapping.end / PAGE;
    let mut entries = [0; 4096];
    while page < end {
        let count = (end - page).min(512);
        let wanted = entries.get_mut(..count as usize * 8).unwrap_or_default();
        let Ok(read) = rustix::io::pread(page_map, &mut *wanted, page * 8) else {
            return true;
        };
        if read < 8 {
            return true;
        }
        for entry in wanted.get(..read).unwrap_or_default().chunks_exact(8) {
            let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
            if entry & PRESENT_OR_SWAPPED != 0 && entry & OF_FILE == 0 {
                return true;
            }
        }
        page += read as u64 / 8;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let text = b"00400000-00401000 r-xp 00002000 fd:01 77                 /a b\n\
7f00-8f00 rw-p 00000000 00:00 0 \n7ffe-7fff r--s 00000000 00:00 0      [vvar]\n";
        let mut mappings = Buffer::new();
        parse(text, &mut mappings).expect("memory");
        let [file, anonymous, special] = mappings.as_slice() else {
            panic!("three lines");
        };
        assert_eq!(
            (file.start, file.end, file.file_offset),
            (0x40_0000, 0x40_1000, 0x2000)
        );
        assert_eq!(file.name(text), b"/a b");
        assert!(file.is_readable && file.is_executable && file.is_private && !file.is_writable);
        assert_eq!(anonymous.name(text), b"");
        assert!(anonymous.is_writable);
        assert_eq!(special.name(text), b"[vvar]");
        assert!(!special.is_private);
    }
}
