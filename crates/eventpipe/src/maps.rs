//! What is mapped into the process: `/proc/self/maps`.

use alloc::vec::Vec;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// A mapping that has a name: of a file, or one like `[vdso]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mapping<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) executable: bool,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    pub(crate) path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// From a line: `start-end perms offset device inode path`.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            let (field, after) = rest.split_at(end);
            rest = after.trim_ascii_start();
            core::str::from_utf8(field).ok()
        };
        let (start, end) = field()?.split_once('-')?;
        let permissions = field()?;
        let offset = field()?;
        let _device = field()?;
        let inode = field()?;
        if rest.is_empty() {
            return None;
        }
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: permissions.as_bytes().get(2) == Some(&b'x'),
            offset: u64::from_str_radix(offset, 16).ok()?,
            inode: inode.parse().ok()?,
            path: rest,
        })
    }
}

/// The text of the file.
pub(crate) fn read() -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, "/proc/self/maps", flags, Mode::empty())?;
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The mappings in such a text.
pub(crate) fn mappings(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(Mapping::parse)
}

#[cfg(test)]
mod tests {
    use super::Mapping;

    #[test]
    fn mappings_with_names_are_told_from_others() {
        let line =
            b"7f00-7fff r-xp 00028000 fd:01 1234                       /usr/lib/with space.so";
        let mapping = Mapping::parse(line).expect("executable");
        assert_eq!((mapping.start, mapping.end), (0x7F00, 0x7FFF));
        assert_eq!((mapping.offset, mapping.inode), (0x28000, 1234));
        assert_eq!(mapping.path, b"/usr/lib/with space.so");
        assert!(mapping.executable);
        let line = b"7f00-7fff r--p 00000000 fd:01 1234  /usr/lib/libc.so";
        assert!(!Mapping::parse(line).expect("has a name").executable);
        for other in [
            &b"7f00-7fff rwxp 00000000 00:00 0 "[..],
            b"7f00",
            b"",
            b"zz-yy r-xp 0 0:0 1 /x",
        ] {
            assert_eq!(Mapping::parse(other), None);
        }
    }
}
