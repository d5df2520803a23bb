//! What the copy of the process does: system calls and memory of its own only, see the module
//! above.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ftruncate, openat};
use rustix::io::{Errno, pread, pwrite};

use super::buffer::Buffer;
use super::maps::{self, Mapping, PAGE};
use super::threads::{self, Thread};
use super::{Content, core_file, error};
use crate::Error;
use crate::process::TextBuffer;

/// What an [`Error`] of the copy may name, so that it can be sent as a number.
const CALLS: [&str; 5] = ["ptrace", "open", "read", "write", "mmap"];

pub(super) const MESSAGE: usize = 5;

pub(super) fn message(result: Result<(), Error>) -> [u8; MESSAGE] {
    let (call, number) = match result {
        Ok(()) => (u8::MAX, 0),
        Err(error) => {
            let call = CALLS.iter().position(|call| *call == error.call);
            (call.unwrap_or(0) as u8, error.number)
        }
    };
    let [a, b, c, d] = number.to_ne_bytes();
    [call, a, b, c, d]
}

pub(super) fn result([call, number @ ..]: [u8; MESSAGE]) -> Result<(), Error> {
    match CALLS.get(usize::from(call)) {
        None => Ok(()),
        Some(call) => Err(Error::new(call, i32::from_ne_bytes(number))),
    }
}

fn open(target: u32, name: &[u8]) -> Result<OwnedFd, Error> {
    let mut path = TextBuffer::<64>::new();
    path.push(b"/proc/");
    path.push_decimal(u64::from(target));
    path.push(name);
    let path = path
        .as_c_str()
        .ok_or(Error::new("open", libc::ENAMETOOLONG))?;
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(error("open"))
}

fn read_whole(target: u32, name: &[u8]) -> Result<Buffer<u8>, Error> {
    let file = open(target, name)?;
    let mut whole = Buffer::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => return Ok(whole),
            Ok(count) => whole.extend(chunk.get(..count).unwrap_or_default())?,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(error("read")(errno)),
        }
    }
}

pub(super) fn run(target: u32, file: &OwnedFd, content: Content) -> Result<(), Error> {
    // The thread that waits for us has gone: so has the process.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut all = Buffer::new();
    let result = threads::stop_all(target, &mut all)
        .and_then(|()| write(target, file, content, all.as_slice()));
    threads::resume_all(&all);
    result
}

fn write(target: u32, file: &OwnedFd, content: Content, all: &[Thread]) -> Result<(), Error> {
    let memory = open(target, b"/mem")?;
    let text = read_whole(target, b"/maps")?;
    let text = text.as_slice();
    let mut mappings = Buffer::new();
    maps::parse(text, &mut mappings)?;

    let name = read_whole(target, b"/comm")?;
    let name = name.as_slice().trim_ascii_end();
    let command_line = read_whole(target, b"/cmdline")?;
    let auxiliary = read_whole(target, b"/auxv")?;
    let mut notes = Buffer::new();
    let mut stacks = Buffer::new();
    let mut stopped = all.iter().filter(|thread| thread.is_stopped);
    let first = stopped.next().ok_or(Error::new("ptrace", libc::ESRCH))?;
    let process = |notes: &mut Buffer<u8>| {
        let command_line = command_line.as_slice();
        let (auxiliary, mappings) = (auxiliary.as_slice(), mappings.as_slice());
        core_file::process(notes, target, name, command_line, auxiliary, mappings, text)
    };
    if let Some(stack) = core_file::thread(&mut notes, *first, process)? {
        stacks.push(stack)?;
    }
    for thread in stopped {
        if let Some(stack) = core_file::thread(&mut notes, *thread, |_| Ok(()))? {
            stacks.push(stack)?;
        }
    }
    let page_map = open(target, b"/pagemap").ok();
    maps::choose(
        &mut mappings,
        text,
        stacks.as_slice(),
        page_map.as_ref(),
        content,
    );

    let notes = notes.as_slice();
    let mut headers = Buffer::new();
    let (mut at, end) = core_file::headers(&mut headers, notes.len(), mappings.as_slice())?;
    write_at(file, headers.as_slice(), 0)?;
    write_at(file, notes, headers.as_slice().len() as u64)?;
    for mapping in mappings.as_slice() {
        copy(&memory, file, mapping, at)?;
        at += mapping.kept;
    }
    ftruncate(file, end).map_err(error("write"))
}

/// Copies what is kept of a mapping. What cannot be read is zero, as a hole; so is what is zero.
fn copy(memory: &OwnedFd, file: &OwnedFd, mapping: &Mapping, at: u64) -> Result<(), Error> {
    let mut chunk = [0; 1 << 16];
    let mut done = 0;
    while done < mapping.kept {
        let wanted = (mapping.kept - done).min(chunk.len() as u64);
        let place = chunk.get_mut(..wanted as usize).unwrap_or_default();
        let count = match pread(memory, &mut *place, mapping.start + done) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(_) => {
                done += PAGE;
                continue;
            }
        };
        let mut offset = at + done;
        for page in chunk.get(..count).unwrap_or_default().chunks(PAGE as usize) {
            if page.iter().any(|byte| *byte != 0) {
                write_at(file, page, offset)?;
            }
            offset += page.len() as u64;
        }
        done += count as u64;
    }
    Ok(())
}

fn write_at(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Error> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, at) {
            Ok(0) => return Err(Error::new("write", libc::ENOSPC)),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(error("write")(errno)),
        }
    }
    Ok(())
}
