//! A file looked at where it lies in the system's memory, window by window, instead of copied out of it.
//!
//! Nobody may write to what others look at, so a [`MappedFile`] shows something only while it holds a *lease*
//! (`fcntl(2)`, `F_SETLEASE`): the system grants one only if nobody has the file open for writing, and whoever opens it for
//! that, or cuts it, is stopped there until the lease is given back, or for as long as `/proc/sys/fs/lease-break-time` says
//! (45 s). Whether somebody waits is looked at before every window. A window is made present before it is shown, so that
//! a disk's error is one of [`window`](MappedFile::window), not a signal.
//!
//! Invariants:
//! * F1: a `Mapping` is one mapping of the file's first `bytes` bytes, readable, whole pages at the end, which lives
//!   until it is dropped. The lease was there when it was made, and is given back only after the mapping is gone.
//! * F2: only the advice of `Mapping::advise` changes it, which never changes what it shows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::memory::PAGE;

/// A shorter file is not worth a mapping.
const LEAST: u64 = 1 << 20;
/// How much is shown at a time, unless more is asked for.
const WINDOW: u64 = 2 << 20;
/// How far pages are made present in front of the window.
const AHEAD: u64 = 4 << 20;
/// Pages are made present so many bytes at a time.
const STEP: u64 = 512 << 10;
/// What lies so far behind is given back, so much at a time: a call stops the other threads for a moment.
const BEHIND: u64 = 4 << 20;

/// Not in the `libc` crate; the same on every processor.
const F_SETSIG: libc::c_int = 10;

/// A file that is read, or shown where it lies.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    /// Until something cannot be shown.
    mapping: Option<Shown>,
}

/// What is shown of a file.
#[derive(Debug)]
struct Shown {
    mapping: Arc<Mapping>,
    /// All of it.
    bytes: Bytes,
    /// Everything before was given back.
    given_back: u64,
    ahead: Option<Ahead>,
}

/// The thread that makes pages present.
#[derive(Debug)]
struct Ahead {
    progress: Arc<Progress>,
    thread: JoinHandle<()>,
}

/// How far both are. Only hints: a page that is not there yet is made present when it is needed.
#[derive(Debug, Default)]
struct Progress {
    /// Where the window begins; [`u64::MAX`]: the thread is to end.
    wanted: AtomicU64,
    /// Between the window and here everything is present.
    present: AtomicU64,
}

/// The file's bytes in memory (F1).
#[derive(Debug)]
struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
    /// Has the lease.
    file: File,
}

// SAFETY: a mapping belongs to the process, not to a thread, and nobody writes to it (F1).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl MappedFile {
    /// Takes a file that is open for reading, at its beginning. What cannot be shown is read: pipes, short files, and those
    /// that are being written or belong to somebody else.
    pub fn new(file: File) -> MappedFile {
        let mapping = Mapping::new(&file).map(|mapping| {
            let mapping = Arc::new(mapping);
            Shown {
                bytes: Bytes::from_owner(Whole(Arc::clone(&mapping))),
                mapping,
                given_back: 0,
                ahead: None,
            }
        });
        MappedFile { file, mapping }
    }

    /// Whether anything will be shown, as far as is known now.
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// The bytes from `offset` on, `length` at least; `None` if that cannot be, now or any more: then they are the next
    /// ones to be read.
    ///
    /// # Errors
    /// The file cannot be read from there.
    pub fn window(&mut self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        let Some(shown) = &mut self.mapping else {
            return Ok(None);
        };
        let bytes = shown.window(offset, length);
        if bytes.is_none() {
            // A pipe could not do that; but it was never shown.
            self.file.seek(SeekFrom::Start(offset))?;
            self.mapping = None;
        }
        Ok(bytes)
    }
}

impl Read for MappedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.file.read(out)
    }
}

impl Shown {
    fn window(&mut self, offset: u64, length: usize) -> Option<Bytes> {
        let whole = self.bytes.len() as u64;
        let least = offset.checked_add(length as u64)?;
        if least > whole || !has_lease(&self.mapping.file) {
            return None;
        }
        let end = offset.saturating_add(WINDOW).min(whole).max(least);
        if self.ahead.is_none() && end < whole {
            self.ahead = Ahead::start(&self.mapping);
        }
        let present = match &self.ahead {
            Some(ahead) => ahead.advance_to(offset),
            None => offset,
        };
        if present < end {
            self.mapping
                .advise(Advice::LinuxPopulateRead, present.max(offset), end)?;
        }
        if offset.saturating_sub(self.given_back) >= 2 * BEHIND {
            let until = (offset - BEHIND) / PAGE as u64 * PAGE as u64;
            self.mapping
                .advise(Advice::LinuxDontNeed, self.given_back, until)?;
            self.given_back = until;
        }
        Some(self.bytes.slice(offset as usize..end as usize))
    }
}

impl Ahead {
    fn start(mapping: &Arc<Mapping>) -> Option<Ahead> {
        let (mapping, progress) = (Arc::clone(mapping), Arc::new(Progress::default()));
        let its = Arc::clone(&progress);
        let thread = thread::Builder::new()
            .name("mapped-file".into())
            .stack_size(64 << 10)
            .spawn(move || make_present(&mapping, &its))
            .ok()?;
        Some(Ahead { progress, thread })
    }

    /// Where the window is now; up to where everything from there on is present.
    fn advance_to(&self, offset: u64) -> u64 {
        self.progress.wanted.store(offset, Ordering::Release);
        self.thread.thread().unpark();
        self.progress.present.load(Ordering::Acquire)
    }
}

/// What the thread does.
fn make_present(mapping: &Mapping, progress: &Progress) {
    let whole = mapping.bytes as u64;
    let mut present = 0;
    while present < whole {
        let wanted = progress.wanted.load(Ordering::Acquire);
        if wanted == u64::MAX {
            return;
        }
        // What lies before the window was made present without this thread, if it is late.
        present = present.max(wanted);
        if present >= wanted.saturating_add(AHEAD) {
            thread::park();
            continue;
        }
        let end = present.saturating_add(STEP).min(whole);
        if mapping
            .advise(Advice::LinuxPopulateRead, present, end)
            .is_none()
        {
            // The same happens where it is needed, and is told there.
            return;
        }
        present = end;
        progress.present.store(present, Ordering::Release);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // It ends after the step at hand, which may wait for a disk: nobody waits for that.
        self.progress.wanted.store(u64::MAX, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// What the bytes are lent from.
struct Whole(Arc<Mapping>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes are mapped there, readable, as long as the mapping is there (F1), which `self` keeps. Nobody
        // writes to them: whoever wants to waits for the lease, which is given back after that. If one waits longer than
        // the system lets him (while a window of this is looked at all the time), values that were read may differ from
        // those read before: users check every one against the length of the slice, not against others.
        unsafe { std::slice::from_raw_parts(self.0.address.as_ptr(), self.0.bytes) }
    }
}

impl Mapping {
    /// `None`: the file is small, not a regular one, being written, or the system has no lease or address space for us.
    fn new(file: &File) -> Option<Mapping> {
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        if metadata.len() < LEAST {
            return None;
        }
        let file = file.try_clone().ok()?;
        if !take_lease(&file) {
            return None;
        }
        // From here on nobody changes the length.
        let bytes = file
            .metadata()
            .ok()
            .and_then(|metadata| usize::try_from(metadata.len()).ok())
            .filter(|bytes| *bytes as u64 >= LEAST && *bytes <= isize::MAX as usize);
        let address = bytes.and_then(|bytes| {
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory of anybody.
            let address = unsafe {
                mmap(
                    ptr::null_mut(),
                    bytes,
                    ProtFlags::READ,
                    MapFlags::SHARED,
                    &file,
                    0,
                )
            };
            Some((NonNull::new(address.ok()?.cast::<u8>())?, bytes))
        });
        let Some((address, bytes)) = address else {
            give_lease_back(&file);
            return None;
        };
        Some(Mapping {
            address,
            bytes,
            file,
        })
    }

    /// Gives advice about the pages of a part. `None` if it is not taken.
    fn advise(&self, advice: Advice, start: u64, end: u64) -> Option<()> {
        let start = usize::try_from(start).ok()? / PAGE * PAGE;
        let end = usize::try_from(end).ok()?.min(self.bytes);
        let bytes = end.checked_sub(start)?;
        // SAFETY: inside the mapping (F1), as `start <= end <= self.bytes`.
        let place = unsafe { self.address.as_ptr().add(start) };
        // SAFETY: a part of our own mapping (F1). Both advices leave what is read from a shared mapping of a file as it is.
        unsafe { madvise(place.cast(), bytes, advice) }.ok()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours (F1) and, as we are being dropped, nobody uses it any more.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.bytes) };
        give_lease_back(&self.file);
    }
}

fn take_lease(file: &File) -> bool {
    // Whoever wants to write makes the system send a signal: one that is ignored unless somebody handles it, instead of
    // one that ends the process.
    // SAFETY: sets which signal an open file sends.
    let is_set = unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) } == 0;
    // SAFETY: takes or refuses a lease.
    is_set && unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } == 0
}

/// Whether nobody waits for the file.
fn has_lease(file: &File) -> bool {
    // SAFETY: asks for the kind of lease.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}

fn give_lease_back(file: &File) {
    // SAFETY: gives back a lease, if there is one.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::PathBuf;
    use std::string::String;
    use std::vec::Vec;
    use std::{format, println};

    const MIB: usize = 1 << 20;

    /// A file of so many bytes, which is removed.
    struct Sample(PathBuf, Vec<u8>);

    impl Sample {
        fn new(name: &str, length: usize) -> Sample {
            let name = format!("eventpipe-mapped-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let bytes: Vec<u8> = (0..length as u64).map(|n| ((n * n) >> 7) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            Sample(path, bytes)
        }

        fn open(&self) -> MappedFile {
            MappedFile::new(File::open(&self.0).unwrap())
        }

        fn open_mapped(&self) -> MappedFile {
            let file = self.open();
            assert!(
                file.is_mapped(),
                "the file system of the folder for temporary files must know leases"
            );
            file
        }
    }

    impl Drop for Sample {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn rest_of(file: &mut MappedFile) -> Vec<u8> {
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        rest
    }

    #[test]
    fn windows_show_the_file_and_the_rest_is_read() {
        let sample = Sample::new("windows", 30 * MIB + 17);
        let mut file = sample.open_mapped();
        let (mut at, mut step) = (0, 1);
        loop {
            step = (step * 7 + 1) % (3 * MIB);
            let Some(shown) = file.window(at as u64, step).unwrap() else {
                break;
            };
            assert!(shown.len() >= step);
            assert!(shown[..] == sample.1[at..at + shown.len()]);
            at += step;
        }
        assert!(at + step > sample.1.len(), "all was shown that is there");
        assert!(rest_of(&mut file) == sample.1[at..]);
        assert_eq!(file.window(0, 1).unwrap(), None, "it is read now");
    }

    #[test]
    fn a_window_may_be_as_large_as_the_file() {
        let sample = Sample::new("whole", 9 * MIB);
        let mut file = sample.open_mapped();
        let whole = file.window(0, 9 * MIB).unwrap().unwrap();
        drop(file);
        assert!(whole[..] == sample.1[..], "it lives as long as it is used");
    }

    #[test]
    fn what_lies_behind_is_given_back() {
        let sample = Sample::new("memory", 128 * MIB);
        let mut file = sample.open_mapped();
        let before = resident_file_kib();
        let (mut at, mut most, mut sum) = (0, 0, 0u64);
        while let Some(shown) = file.window(at, 1).unwrap() {
            sum += shown.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            at += shown.len() as u64;
            most = most.max(resident_file_kib().saturating_sub(before));
        }
        let expected: u64 = sample.1.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, expected);
        println!("{most} KiB of the file were in memory at once");
        // Two windows behind and ahead; other tests of this process map files too.
        assert!((1024..64 << 10).contains(&most), "{most} KiB");
    }

    fn resident_file_kib() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssFile:"));
        let digits = line.unwrap().trim().trim_end_matches(" kB");
        digits.parse().unwrap()
    }

    #[test]
    fn who_wants_to_write_waits_until_nothing_is_shown_any_more() {
        let sample = Sample::new("writer", 8 * MIB);
        let mut file = sample.open_mapped();
        let first = file.window(0, 100).unwrap().unwrap();
        let path = sample.0.clone();
        let writer = thread::spawn(move || {
            let mut file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all(b"changed").unwrap();
        });
        // Until it waits, which the kernel says to whoever asks for the lease.
        let mut at = 0;
        while let Some(shown) = file.window(at, 100).unwrap() {
            assert!(shown[..100] == sample.1[at as usize..][..100]);
            at = (at + 1) % 1000;
        }
        assert!(!writer.is_finished(), "the first window is still looked at");
        assert!(first[..] == sample.1[..first.len()]);
        drop(first);
        writer.join().unwrap();
        let rest = rest_of(&mut file);
        let expected = &sample.1[at as usize..];
        assert!(
            rest[7..] == expected[7..],
            "what was not changed is read on"
        );
        assert_eq!(&sample_start(&sample.0), b"changed");
    }

    fn sample_start(path: &PathBuf) -> [u8; 7] {
        let mut start = [0; 7];
        File::open(path).unwrap().read_exact(&mut start).unwrap();
        start
    }

    #[test]
    fn what_cannot_be_shown_is_read() {
        let short = Sample::new("short", 1000);
        let mut file = short.open();
        assert_eq!(file.window(0, 1).unwrap(), None);
        assert!(rest_of(&mut file) == short.1);

        let written = Sample::new("written", 2 * MIB);
        let writer = OpenOptions::new().append(true).open(&written.0).unwrap();
        let mut file = written.open();
        assert_eq!(file.window(0, 1).unwrap(), None, "somebody may write to it");
        drop(writer);
        assert!(rest_of(&mut file) == written.1);

        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut file = MappedFile::new(File::from(std::os::fd::OwnedFd::from(reader)));
        writer.write_all(b"from a pipe").unwrap();
        drop(writer);
        assert_eq!(file.window(0, 1).unwrap(), None);
        assert_eq!(
            String::from_utf8(rest_of(&mut file)).unwrap(),
            "from a pipe"
        );
    }
}
