//! The notes and headers of an ELF core file (elf(5), the kernel's `fs/binfmt_elf.c` for the order
//! of the notes).

use super::buffer::Buffer;
use super::maps::{Mapping, PAGE};
use super::threads::{self, Thread};
use crate::Error;

pub(super) const HEADER: usize = 64;
pub(super) const PROGRAM_HEADER: usize = 56;

const STATUS: u32 = 1;
const FLOATING_POINT: u32 = 2;
const PROCESS: u32 = 3;
const AUXILIARY: u32 = 6;
const FILES: u32 = 0x4649_4C45;

const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};
/// Where the stack pointer is among the general registers.
const STACK_POINTER: usize = if cfg!(target_arch = "aarch64") {
    31 * 8
} else {
    19 * 8
};
/// Further sets of registers: the processor's extended state; the thread pointer.
const MORE_REGISTERS: u32 = if cfg!(target_arch = "aarch64") {
    0x401
} else {
    0x202
};

fn note(out: &mut Buffer<u8>, name: &[u8], kind: u32, content: &[&[u8]]) -> Result<(), Error> {
    let length: usize = content.iter().map(|piece| piece.len()).sum();
    out.extend(&(name.len() as u32).to_ne_bytes())?;
    out.extend(&(length as u32).to_ne_bytes())?;
    out.extend(&kind.to_ne_bytes())?;
    out.extend(name)?;
    pad(out)?;
    for piece in content {
        out.extend(piece)?;
    }
    pad(out)
}

fn pad(out: &mut Buffer<u8>) -> Result<(), Error> {
    while !out.as_slice().len().is_multiple_of(4) {
        out.push(0)?;
    }
    Ok(())
}

/// The notes of one thread; its stack pointer. The `struct elf_prstatus`: signals (32 bytes, none),
/// four ids, four times, the general registers, whether there are those of floating point.
pub(super) fn thread(
    out: &mut Buffer<u8>,
    thread: Thread,
    between: impl FnOnce(&mut Buffer<u8>) -> Result<(), Error>,
) -> Result<Option<u64>, Error> {
    let mut space = [0; 16 << 10];
    let mut head = [0; 112];
    if let Some(place) = head.get_mut(32..36) {
        place.copy_from_slice(&thread.id.to_ne_bytes());
    }
    let Some(general) = threads::registers(thread, STATUS, &mut space) else {
        between(out)?;
        return Ok(None);
    };
    let stack = general.get(STACK_POINTER..STACK_POINTER + 8);
    let stack = stack
        .and_then(|bytes| bytes.try_into().ok())
        .map(u64::from_ne_bytes);
    let has_floating_point = [1, 0, 0, 0, 0, 0, 0, 0];
    note(
        out,
        b"CORE\0",
        STATUS,
        &[&head, general, &has_floating_point],
    )?;
    between(out)?;
    if let Some(set) = threads::registers(thread, FLOATING_POINT, &mut space) {
        note(out, b"CORE\0", FLOATING_POINT, &[set])?;
    }
    if let Some(set) = threads::registers(thread, MORE_REGISTERS, &mut space) {
        note(out, b"LINUX\0", MORE_REGISTERS, &[set])?;
    }
    Ok(stack)
}

/// The notes of the process: a `struct elf_prpsinfo`, the auxiliary vector, the files in memory.
pub(super) fn process(
    out: &mut Buffer<u8>,
    target: u32,
    name: &[u8],
    command_line: &[u8],
    auxiliary: &[u8],
    mappings: &[Mapping],
    text: &[u8],
) -> Result<(), Error> {
    let mut info = [0_u8; 136];
    let mut put = |at: usize, bytes: &[u8], room: usize| {
        for (place, byte) in info.iter_mut().skip(at).take(room).zip(bytes) {
            *place = *byte;
        }
    };
    put(1, b"R", 1);
    put(24, &target.to_ne_bytes(), 4);
    put(40, name, 15);
    put(56, command_line, 79);
    for byte in info.iter_mut().skip(56).take(command_line.len().min(79)) {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    note(out, b"CORE\0", PROCESS, &[&info])?;
    note(out, b"CORE\0", AUXILIARY, &[auxiliary])?;
    let (mut table, mut names) = (Buffer::new(), Buffer::new());
    let mut count = 0_u64;
    for mapping in mappings.iter().filter(|mapping| mapping.is_of_file(text)) {
        for number in [mapping.start, mapping.end, mapping.file_offset / PAGE] {
            table.extend(&number.to_ne_bytes())?;
        }
        names.extend(mapping.name(text))?;
        names.push(0)?;
        count += 1;
    }
    let counts = [count.to_ne_bytes(), PAGE.to_ne_bytes()];
    note(
        out,
        b"CORE\0",
        FILES,
        &[counts.as_flattened(), table.as_slice(), names.as_slice()],
    )
}

/// The header and the program headers: the notes first, then each mapping. Where the memory begins
/// in the file, and its end.
pub(super) fn headers(
    out: &mut Buffer<u8>,
    notes: usize,
    mappings: &[Mapping],
) -> Result<(u64, u64), Error> {
    let count = mappings.len() + 1;
    // The largest count that the header's field means as it says.
    let Some(count_field) = u16::try_from(count).ok().filter(|count| *count < u16::MAX) else {
        return Err(Error::new("write", libc::EOVERFLOW));
    };
    out.extend(b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0")?;
    out.extend(&4_u16.to_ne_bytes())?;
    out.extend(&MACHINE.to_ne_bytes())?;
    out.extend(&1_u32.to_ne_bytes())?;
    out.extend(&0_u64.to_ne_bytes())?;
    out.extend(&(HEADER as u64).to_ne_bytes())?;
    out.extend(&0_u64.to_ne_bytes())?;
    out.extend(&0_u32.to_ne_bytes())?;
    for field in [HEADER as u16, PROGRAM_HEADER as u16, count_field, 0, 0, 0] {
        out.extend(&field.to_ne_bytes())?;
    }
    let notes_at = (HEADER + count * PROGRAM_HEADER) as u64;
    program_header(out, [4, 4], [notes_at, 0, 0, notes as u64, 0, 4])?;
    let begin = (notes_at + notes as u64).next_multiple_of(PAGE);
    let mut at = begin;
    for mapping in mappings {
        let flags = u32::from(mapping.is_readable) << 2
            | u32::from(mapping.is_writable) << 1
            | u32::from(mapping.is_executable);
        let size = mapping.end - mapping.start;
        program_header(
            out,
            [1, flags],
            [at, mapping.start, 0, mapping.kept, size, PAGE],
        )?;
        at += mapping.kept;
    }
    Ok((begin, at))
}

fn program_header(out: &mut Buffer<u8>, words: [u32; 2], fields: [u64; 6]) -> Result<(), Error> {
    for word in words {
        out.extend(&word.to_ne_bytes())?;
    }
    for field in fields {
        out.extend(&field.to_ne_bytes())?;
    }
    Ok(())
}
