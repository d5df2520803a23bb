//! What `/proc` says of a process, as far as discovery needs it.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::string::{String, ToString};
use std::vec::Vec;

use crate::socket::{lossy, read_bounded};

/// A process that runs a program.
#[derive(Debug)]
pub(super) struct Proc {
    pub(super) pid: u32,
    pub(super) inner_pid: u32,
    pub(super) uid: u32,
    pub(super) name: String,
    pub(super) start_ticks: u64,
    pub(super) folder: PathBuf,
}

/// What a pid stands for.
#[derive(Debug)]
pub(super) enum Kind {
    Process(Proc),
    KernelThread,
    Zombie,
}

/// Every number in `/proc`.
pub(super) fn pids() -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// Whether the process exists, also where `/proc` hides it.
pub(super) fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return false;
    };
    !matches!(
        rustix::process::test_kill_process(pid),
        Err(rustix::io::Errno::SRCH)
    )
}

/// What a process's link `ns/NAME` says; `None` where it may not be read.
pub(super) fn namespace(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_link(folder.join("ns").join(name)).ok()
}

pub(super) fn read(pid: u32) -> io::Result<Kind> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = read_bounded(&folder.join("stat"), 8 << 10)?;
    let stat = parse_stat(&stat).ok_or(io::ErrorKind::InvalidData)?;
    if stat.is_kernel_thread {
        return Ok(Kind::KernelThread);
    }
    if matches!(stat.state, b'Z' | b'X' | b'x') {
        return Ok(Kind::Zombie);
    }
    let status = read_bounded(&folder.join("status"), 64 << 10)?;
    let inner_pid = status_numbers(&status, b"NSpid:").last();
    // The second number is the effective user, who the socket belongs to.
    let uid = status_numbers(&status, b"Uid:").nth(1);
    Ok(Kind::Process(Proc {
        pid,
        inner_pid: inner_pid.unwrap_or(pid),
        uid: uid.ok_or(io::ErrorKind::InvalidData)?,
        name: stat.name,
        start_ticks: stat.start_ticks,
        folder,
    }))
}

struct Stat {
    name: String,
    state: u8,
    is_kernel_thread: bool,
    start_ticks: u64,
}

/// The fields of `/proc/PID/stat`. The name stands in parentheses and may hold any byte but zero, parentheses too.
fn parse_stat(stat: &[u8]) -> Option<Stat> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let name = stat.get(open.checked_add(1)?..close)?;
    let rest = std::str::from_utf8(stat.get(close.checked_add(1)?..)?).ok()?;
    // The first of these is field 3.
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let start_ticks = fields.nth(12)?.parse().ok()?;
    Some(Stat {
        name: lossy(name),
        state,
        is_kernel_thread: flags & KERNEL_THREAD != 0,
        start_ticks,
    })
}

/// The numbers of a line of `/proc/PID/status`.
fn status_numbers<'a>(status: &'a [u8], label: &'a [u8]) -> impl Iterator<Item = u32> + 'a {
    status
        .split(|byte| *byte == b'\n')
        .find_map(move |line| line.strip_prefix(label))
        .and_then(|numbers| std::str::from_utf8(numbers).ok())
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|number| u32::from_str(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_is_read_to_its_last_one() {
        let stat = b"12 (a) R (b c)) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 7 0 987654 1 2\n";
        let stat = parse_stat(stat).unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) R (b c)", b'S'));
        assert_eq!(stat.start_ticks, 987_654);
        assert!(!stat.is_kernel_thread);
        for cut in [&b""[..], b"12", b"12 (a", b"12 (a) S 1 2 3"] {
            assert!(parse_stat(cut).is_none());
        }
    }

    #[test]
    fn the_innermost_pid_is_the_last_of_its_line() {
        let status = b"Name:\tx\nUid:\t1\t2\t3\t4\nNSpid:\t4711\t12\t1\n";
        assert_eq!(status_numbers(status, b"NSpid:").last(), Some(1));
        assert_eq!(status_numbers(status, b"Uid:").nth(1), Some(2));
        assert_eq!(status_numbers(status, b"Gid:").next(), None);
    }
}
