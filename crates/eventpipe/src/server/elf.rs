//! The function symbols of an ELF file (64 bits, little-endian), read from a file that may be anything.

use alloc::vec;
use alloc::vec::Vec;

use rustix::fd::OwnedFd;
use rustix::io::{Errno, pread};

const SYMBOL_TABLE: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const LOADED: u32 = 1;
const EXECUTABLE: u64 = 1;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;
const SYMBOL_SIZE: usize = 24;

/// Tables larger than this are not read: the memory is the traced program's.
const LARGEST_NAMES: u64 = 256 << 20;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(N)?)?;
    let mut number = 0;
    for byte in bytes.iter().rev() {
        number = number << 8 | u64::from(*byte);
    }
    Some(number)
}

/// Exactly so many bytes of the file.
fn read(file: &OwnedFd, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match pread(
            file,
            bytes.get_mut(filled..)?,
            at.checked_add(filled as u64)?,
        ) {
            Ok(0) => return None,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(bytes)
}

/// A function: its address as linked, its size, its name as linked.
pub(super) struct Symbol<'a> {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) name: &'a [u8],
}

/// What is needed of the headers.
pub(super) struct Elf<'f> {
    file: &'f OwnedFd,
    header: Vec<u8>,
    file_size: u64,
}

impl<'f> Elf<'f> {
    pub(super) fn open(file: &'f OwnedFd, file_size: u64) -> Option<Self> {
        let header = read(file, 0, 64)?;
        let is_ours = header.starts_with(b"\x7FELF\x02\x01");
        is_ours.then_some(Elf {
            file,
            header,
            file_size,
        })
    }

    fn table(&self, offset: usize, size: usize, count: usize, least: u64) -> Option<Vec<Vec<u8>>> {
        let at = number::<8>(&self.header, offset)?;
        let size = number::<2>(&self.header, size)?;
        let count = number::<2>(&self.header, count)?;
        if size < least {
            return None;
        }
        // Both have 16 bits: at most 4 GB by the header, and never more than the file has.
        let length = size * count;
        if length == 0 || length > self.file_size {
            return None;
        }
        let bytes = read(self.file, at, usize::try_from(length).ok()?)?;
        let size = usize::try_from(size).ok()?;
        Some(bytes.chunks_exact(size).map(<[u8]>::to_vec).collect())
    }

    /// What must be added to addresses as linked where the file's code from `offset` is mapped at `start`.
    pub(super) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        for segment in self.table(32, 54, 56, 56)? {
            let file_offset = number::<8>(&segment, 8)?;
            let address = number::<8>(&segment, 16)?;
            let file_size = number::<8>(&segment, 32)?;
            let alignment = number::<8>(&segment, 48)?.clamp(1, 1 << 24);
            let begin = file_offset - file_offset % alignment.min(4096);
            let end = file_offset.saturating_add(file_size);
            let is_code = number::<4>(&segment, 0)? == u64::from(LOADED)
                && number::<4>(&segment, 4)? & EXECUTABLE != 0;
            // Segments share pages of the file, so that the offset alone does not tell which one is mapped.
            if is_code && (begin..end).contains(&offset) {
                return Some(
                    start
                        .wrapping_add(file_offset)
                        .wrapping_sub(offset)
                        .wrapping_sub(address),
                );
            }
        }
        None
    }

    /// Calls `found` for every function, of the full table if the file has one, else of what it exports.
    pub(super) fn functions(&self, mut found: impl FnMut(Symbol<'_>)) -> Option<()> {
        let sections = self.table(40, 58, 60, 64)?;
        let of = |wanted: u32| {
            let is_it = |section: &&Vec<u8>| number::<4>(section, 4) == Some(u64::from(wanted));
            sections.iter().find(is_it)
        };
        let symbols = of(SYMBOL_TABLE).or_else(|| of(DYNAMIC_SYMBOLS))?;
        let names = sections.get(usize::try_from(number::<4>(symbols, 40)?).ok()?)?;
        let names_size = number::<8>(names, 32)?;
        if names_size > self.file_size.min(LARGEST_NAMES) {
            return None;
        }
        let names = read(
            self.file,
            number::<8>(names, 24)?,
            usize::try_from(names_size).ok()?,
        )?;
        let mut at = number::<8>(symbols, 24)?;
        let mut left = usize::try_from(number::<8>(symbols, 32)?.min(self.file_size)).ok()?;
        while left >= SYMBOL_SIZE {
            let length = left.min(SYMBOL_SIZE * 1024) / SYMBOL_SIZE * SYMBOL_SIZE;
            let chunk = read(self.file, at, length)?;
            for symbol in chunk.chunks_exact(SYMBOL_SIZE) {
                let kind = symbol.get(4)? & 0xF;
                let is_defined = number::<2>(symbol, 6)? != 0;
                let size = number::<8>(symbol, 16)?;
                if !is_defined || size == 0 || !(kind == FUNCTION || kind == INDIRECT_FUNCTION) {
                    continue;
                }
                let name = usize::try_from(number::<4>(symbol, 0)?).ok()?;
                let name = names.get(name..).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                if !name.is_empty() {
                    found(Symbol {
                        address: number::<8>(symbol, 8)?,
                        size,
                        name,
                    });
                }
            }
            at = at.checked_add(length as u64)?;
            left -= length;
        }
        Some(())
    }
}
