//! `/tmp/perf-PID.map`: the functions of the process's modules, for `perf` and its like (ipc.md 2.6).
//!
//! A line is `address size name`, both numbers hexadecimal, the name as the linker knows it. The file shows the modules that
//! are loaded when the command comes; asking again makes it anew. It stays when the map is disabled, as with other runtimes.

use alloc::string::String;
use alloc::vec::Vec;

use eventpipe_os::process;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat, rename, unlink};
use rustix::io::Errno;

use super::elf::Elf;
use crate::maps::{self, Mapping};
use crate::message;

/// Where the tools look, whatever `TMPDIR` says.
const DIRECTORY: &str = "/tmp/perf-";
const BUFFER: usize = 1 << 16;

struct Map {
    file: OwnedFd,
    buffer: Vec<u8>,
    error: Option<Errno>,
}

impl Map {
    fn line(&mut self, address: u64, size: u64, name: &[u8]) {
        self.hexadecimal(address);
        self.buffer.push(b' ');
        self.hexadecimal(size);
        self.buffer.push(b' ');
        // A line is a line, whatever the file says.
        self.buffer.extend(
            name.iter()
                .map(|byte| if *byte == b'\n' { b'?' } else { *byte }),
        );
        self.buffer.push(b'\n');
        if self.buffer.len() > BUFFER {
            self.flush();
        }
    }

    fn hexadecimal(&mut self, number: u64) {
        let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let value = (number >> (digit * 4)) as u8 & 0xF;
            self.buffer.push(match value {
                0..=9 => b'0' + value,
                _ => b'a' + value - 10,
            });
        }
    }

    fn flush(&mut self) {
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() && self.error.is_none() {
            match rustix::io::write(&self.file, rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => self.error = Some(errno),
            }
        }
        self.buffer.clear();
    }

    /// A module that cannot be read, or that is no ELF file of this machine, has no lines.
    fn module(&mut self, mapping: &Mapping<'_>) -> Option<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(CWD, mapping.path, flags, Mode::empty()).ok()?;
        let status = fstat(&file).ok()?;
        // Another file by now: its symbols would lie.
        if status.st_ino != mapping.inode {
            return None;
        }
        let elf = Elf::open(&file, u64::try_from(status.st_size).ok()?)?;
        let bias = elf.bias(mapping.start, mapping.offset)?;
        elf.functions(|symbol| {
            let address = symbol.address.wrapping_add(bias);
            if (mapping.start..mapping.end).contains(&address) {
                self.line(address, symbol.size, symbol.name);
            }
        })
    }
}

fn path() -> String {
    let mut path = String::from(DIRECTORY);
    path.push_str(&message::decimal(u64::from(process::pid())));
    path.push_str(".map");
    path
}

/// Writes the file anew. It has its name when it is complete; a file of somebody else's is left alone.
pub(super) fn write() -> Result<(), Errno> {
    let path = path();
    let mut unfinished = path.clone();
    unfinished.push_str(".new");
    let _ = unlink(unfinished.as_str());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(CWD, unfinished.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let mut map = Map {
        file,
        buffer: Vec::new(),
        error: None,
    };
    let result = fill(&mut map).and_then(|()| rename(unfinished.as_str(), path.as_str()));
    if result.is_err() {
        let _ = unlink(unfinished.as_str());
    }
    result
}

fn fill(map: &mut Map) -> Result<(), Errno> {
    for mapping in maps::mappings(&maps::read()?) {
        // What is executable and comes from a file.
        if mapping.executable && mapping.path.starts_with(b"/") {
            let _ = map.module(&mapping);
        }
    }
    map.flush();
    map.error.map_or(Ok(()), Err)
}
