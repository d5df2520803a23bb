//! The process: who it is, how it was started, its environment, what runs when it ends or forks.

use crate::thread::StackBounds;
use crate::{Error, text};
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use rustix::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};

/// The process id.
pub fn pid() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// When the process started, in clock ticks since boot (field 22 of `/proc/self/stat`); 0 when that
/// cannot be read. This is the key in the name of the diagnostics socket.
pub fn start_ticks() -> u64 {
    let mut text = [0u8; 1024];
    let Ok(length) = read_file(c"/proc/self/stat", &mut text) else {
        return 0;
    };
    let text = text.get(..length).unwrap_or_default();
    // The second field is the name in parentheses and may hold spaces and parentheses itself.
    let Some(end) = text.iter().rposition(|byte| *byte == b')') else {
        return 0;
    };
    let rest = text.get(end + 1..).unwrap_or_default();
    // After the name come fields 3, 4, …
    let field = rest
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty())
        .nth(22 - 3);
    field
        .and_then(|digits| text::number(digits, 10))
        .unwrap_or(0)
}

/// Fills the bytes with random ones; `false` when the system has none.
pub fn fill_random(bytes: &mut [u8]) -> bool {
    // SAFETY: a valid place of that length.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    usize::try_from(filled) == Ok(bytes.len())
}

/// The command line: the arguments as given, joined by single spaces.
pub fn command_line() -> Vec<u8> {
    let mut text = read_whole(c"/proc/self/cmdline").unwrap_or_default();
    while text.last() == Some(&0) {
        text.pop();
    }
    for byte in &mut text {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    text
}

/// The file name of the executable, without its directory.
pub fn executable_name() -> Vec<u8> {
    let mut buffer = [core::mem::MaybeUninit::<u8>::uninit(); 4096];
    let path: &[u8] = match rustix::fs::readlinkat_raw(CWD, c"/proc/self/exe", &mut buffer) {
        Ok((path, _)) => path,
        Err(_) => return Vec::new(),
    };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// `"Linux"`, as the diagnostics protocol spells it.
pub const fn os_name() -> &'static str {
    "Linux"
}

/// The processor architecture as the diagnostics protocol spells it: `x64`, `arm64`, `x86`, `arm`,
/// …
pub const fn arch_name() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "x64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else if cfg!(target_arch = "x86") {
        "x86"
    } else if cfg!(target_arch = "arm") {
        "arm32"
    } else if cfg!(target_arch = "riscv64") {
        "riscv64"
    } else if cfg!(target_arch = "loongarch64") {
        "loongarch64"
    } else {
        "Unknown"
    }
}

/// How many processors the calling thread may run on; at least 1.
pub fn processor_count() -> u32 {
    rustix::thread::sched_getaffinity(None)
        .map_or(1, |set| set.count())
        .max(1)
}

// ---- environment

#[cfg(not(feature = "std"))]
unsafe extern "C" {
    static environ: *const *const core::ffi::c_char;
}

/// The environment as it is now, one `NAME=value` each.
///
/// Without the feature `std` this reads what the C library has, which a thread that changes it at
/// the same time may tear (as every `getenv` does).
pub fn environment() -> Vec<Vec<u8>> {
    #[cfg(feature = "std")]
    {
        use std::os::unix::ffi::OsStringExt;
        std::env::vars_os()
            .map(|(name, value)| {
                let mut entry = name.into_vec();
                entry.push(b'=');
                entry.extend(value.into_vec());
                entry
            })
            .collect()
    }
    #[cfg(not(feature = "std"))]
    entries().map(<[u8]>::to_vec).collect()
}

/// The entries of the C library's environment.
#[cfg(not(feature = "std"))]
fn entries() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: the C library's variable; reading it is what every `getenv` does.
    let mut entry = unsafe { environ };
    core::iter::from_fn(move || {
        if entry.is_null() {
            return None;
        }
        // SAFETY: the array ends with a null pointer, which we have not passed.
        let text = unsafe { *entry };
        if text.is_null() {
            return None;
        }
        // SAFETY: not yet at the null pointer, so there is a next element.
        entry = unsafe { entry.add(1) };
        // SAFETY: each entry is a C string, which stays valid unless somebody changes that variable meanwhile.
        Some(unsafe { CStr::from_ptr(text) }.to_bytes())
    })
}

/// Whether a variable can be called so.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte != b'=' && byte != 0)
}

/// The value of one variable.
pub fn env(name: &str) -> Option<Vec<u8>> {
    #[cfg(feature = "std")]
    {
        use std::os::unix::ffi::OsStringExt;
        if !is_name(name) {
            return None;
        }
        std::env::var_os(name).map(OsStringExt::into_vec)
    }
    #[cfg(not(feature = "std"))]
    {
        // What `getenv` does, without making a C string first.
        entries().find_map(|entry| {
            let rest = entry.strip_prefix(name.as_bytes())?;
            Some(rest.strip_prefix(b"=")?.to_vec())
        })
    }
}

/// Sets a variable for this process and its later children.
///
/// C code that reads the environment at the same moment is not protected (the diagnostics protocol
/// asks for this command all the same).
///
/// # Errors
/// The name is empty or has `=` or a zero byte, the value has a zero byte, or memory is short.
pub fn set_env(name: &str, value: &[u8]) -> Result<(), Error> {
    let invalid = Error::new("setenv", libc::EINVAL);
    if !is_name(name) || text::has_zero(value) {
        return Err(invalid);
    }
    #[cfg(feature = "std")]
    {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: Rust readers are kept away by std's lock; the documentation tells about C
        // readers.
        unsafe { std::env::set_var(name, std::ffi::OsStr::from_bytes(value)) };
        Ok(())
    }
    #[cfg(not(feature = "std"))]
    {
        let name = text::c_string(name.as_bytes()).ok_or(invalid)?;
        let value = text::c_string(value).ok_or(invalid)?;
        // SAFETY: two C strings; see the documentation about concurrent readers.
        match unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) } {
            0 => Ok(()),
            _ => Err(Error::new("setenv", libc::ENOMEM)),
        }
    }
}

/// Removes a variable; see [`set_env`].
///
/// # Errors
/// The name is empty or has `=` or a zero byte.
pub fn unset_env(name: &str) -> Result<(), Error> {
    let invalid = Error::new("unsetenv", libc::EINVAL);
    if !is_name(name) {
        return Err(invalid);
    }
    #[cfg(feature = "std")]
    {
        // SAFETY: as in `set_env`.
        unsafe { std::env::remove_var(name) };
        Ok(())
    }
    #[cfg(not(feature = "std"))]
    {
        let name = text::c_string(name.as_bytes()).ok_or(invalid)?;
        // SAFETY: a C string.
        unsafe { libc::unsetenv(name.as_ptr()) };
        Ok(())
    }
}

// ---- hooks

const HOOKS: usize = 8;
/// `fn()`s; null: free. Never removed.
struct Hooks([AtomicPtr<()>; HOOKS]);

impl Hooks {
    const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; HOOKS])
    }

    /// `Some(true)`: the first one.
    fn add(&self, hook: fn()) -> Option<bool> {
        let hook = hook as *mut ();
        for (position, place) in self.0.iter().enumerate() {
            match place.compare_exchange(ptr::null_mut(), hook, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(position == 0),
                Err(same) if same == hook => return Some(false),
                Err(_) => {}
            }
        }
        None
    }

    fn run(&self) {
        for place in &self.0 {
            let hook = place.load(Ordering::Acquire);
            if !hook.is_null() {
                // SAFETY: only `add` stores here, and it stores a `fn()`.
                let hook = unsafe { core::mem::transmute::<*mut (), fn()>(hook) };
                hook();
            }
        }
    }
}

static AT_EXIT: Hooks = Hooks::new();
static AT_FORK: Hooks = Hooks::new();

extern "C" fn run_at_exit() {
    AT_EXIT.run();
}

extern "C" fn run_at_fork() {
    AT_FORK.run();
}

/// Runs `hook` when the process ends by `exit` or by returning from `main` (not by `_exit`, a
/// signal or `abort`): after hooks that were registered later. Adding the same function again
/// changes nothing; at most 8.
///
/// # Errors
/// No room for another hook.
pub fn at_exit(hook: fn()) -> Result<(), Error> {
    match AT_EXIT.add(hook) {
        Some(false) => Ok(()),
        // SAFETY: a function without arguments that does not unwind into C.
        Some(true) if unsafe { libc::atexit(run_at_exit) } == 0 => Ok(()),
        _ => Err(Error::new("atexit", libc::ENOMEM)),
    }
}

/// Runs `hook` in the child after each `fork`, on its only thread, before `fork` returns there. It
/// may use atomics, system calls and memory; locks may be held by threads that do not exist. Adding
/// the same function again changes nothing; at most 8.
///
/// # Errors
/// No room for another hook.
pub fn at_fork_child(hook: fn()) -> Result<(), Error> {
    match AT_FORK.add(hook) {
        Some(false) => Ok(()),
        // SAFETY: no handlers before the fork, and one in the child that does not unwind into C.
        Some(true) if unsafe { libc::pthread_atfork(None, None, Some(run_at_fork)) } == 0 => Ok(()),
        _ => Err(Error::new("pthread_atfork", libc::ENOMEM)),
    }
}

/// Keeps the shared library that this code is in, if it is in one, from being unloaded: for who starts threads or adds hooks, which run
/// the library's code as long as the process lives.
#[cfg(feature = "std")]
pub fn stay_loaded() {
    if cfg!(target_feature = "crt-static") {
        // No library, and no loader.
        return;
    }
    let mut place = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = stay_loaded as *const () as *const core::ffi::c_void;
    // SAFETY: asks only; a valid place for the answer.
    let found = unsafe { libc::dladdr(here, place.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value.
    let file = unsafe { place.assume_init() }.dli_fname;
    if found != 0 && !file.is_null() {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the loader's own name of what is loaded already, so nothing is loaded and no code of it runs. In the program itself
        // this does nothing.
        unsafe { libc::dlopen(file, flags) };
    }
}

/// The user at the other end of a Unix socket. Not by rustix, whose answer has no room for the process id 0, which is
/// what the kernel says of a process that is not in our pid namespace. None if it is no such socket.
pub fn peer_user(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to `peer`, any of which make a valid value.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    (result == 0).then_some(peer.uid)
}

/// Writes to the standard error stream, as much as goes; what fails is ignored, since there is
/// nowhere to say so.
pub fn write_standard_error(mut text: &[u8]) {
    while !text.is_empty() {
        // SAFETY: the pointer and the length are those of a slice; the descriptor is only written
        // to, whatever it is.
        let written = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        match usize::try_from(written) {
            Ok(0) | Err(_) => return,
            Ok(count) => text = text.get(count..).unwrap_or_default(),
        }
    }
}

// ---- reading small files without allocating

fn open(path: &CStr) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Reads the beginning of a file; how much there was. Async-signal-safe.
pub(crate) fn read_file(path: &CStr, out: &mut [u8]) -> Result<usize, Error> {
    let file = open(path).map_err(|e| Error::new("open", e.raw_os_error()))?;
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&file, rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::new("read", e.raw_os_error())),
        }
    }
    Ok(filled)
}

fn read_whole(path: &CStr) -> Result<Vec<u8>, Error> {
    let file = open(path).map_err(|e| Error::new("open", e.raw_os_error()))?;
    let mut whole = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => return Ok(whole),
            Ok(count) => whole.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::new("read", e.raw_os_error())),
        }
    }
}

/// Text on the stack, for paths.
pub(crate) struct TextBuffer<const N: usize> {
    text: [u8; N],
    length: usize,
}

impl<const N: usize> TextBuffer<N> {
    pub(crate) const fn new() -> Self {
        Self {
            text: [0; N],
            length: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.text.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    pub(crate) fn push_decimal(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut count = 0;
        for place in digits.iter_mut().rev() {
            *place = b'0' + (value % 10) as u8;
            value /= 10;
            count += 1;
            if value == 0 {
                break;
            }
        }
        self.push(digits.get(20 - count..).unwrap_or_default());
    }

    /// `None` when it did not fit.
    pub(crate) fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.text).ok()
    }
}

// ---- mappings

/// The kernel's `struct procmap_query` (Linux 6.11).
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: libc::Ioctl = 0xC068_6611_u32 as libc::Ioctl;
const VMA_READABLE: u64 = 1;

/// The readable mapping around an address. Async-signal-safe, allocates nothing.
pub(crate) fn mapping_of(address: usize) -> Option<StackBounds> {
    use rustix::fd::AsRawFd;
    let maps = open(c"/proc/self/maps").ok()?;
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_addr: address as u64,
        ..Default::default()
    };
    // SAFETY: the structure is as the kernel expects it, with its size; name and build id are not
    // asked for.
    let answer = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if answer == 0 {
        let readable = query.vma_flags & VMA_READABLE != 0;
        return readable.then_some(StackBounds {
            low: query.vma_start as usize,
            high: query.vma_end as usize,
        });
    }
    mapping_by_text(&maps, address)
}

/// The same from the text of `/proc/self/maps`, for kernels without the query.
fn mapping_by_text(maps: &OwnedFd, address: usize) -> Option<StackBounds> {
    // Only the beginning of each line matters: `low-high perms …`.
    let mut chunk = [0u8; 1024];
    let (mut low, mut high) = (0usize, 0usize);
    let mut state = 0u8; // 0: low, 1: high, 2: the permission, 3: the rest of the line
    loop {
        let count = match rustix::io::read(maps, &mut chunk) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        };
        for byte in chunk.get(..count).unwrap_or_default() {
            let digit = (*byte as char).to_digit(16).map(|digit| digit as usize);
            match (state, digit) {
                (_, _) if *byte == b'\n' => (state, low, high) = (0, 0, 0),
                (0, Some(digit)) => low = low << 4 | digit,
                (1, Some(digit)) => high = high << 4 | digit,
                (0, None) => state = 1,
                (1, None) => state = 2,
                (2, _) => {
                    if low <= address && address < high {
                        return (*byte == b'r').then_some(StackBounds { low, high });
                    }
                    state = 3;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_knows_itself() {
        assert_eq!(pid(), std::process::id());
        assert!(start_ticks() > 0);
        assert!(!executable_name().is_empty());
        let name = executable_name();
        assert!(command_line().windows(name.len()).any(|part| part == name));
        assert!(processor_count() >= 1);
    }

    #[test]
    fn variables_can_be_set_read_and_removed() {
        assert!(set_env("", b"x").is_err());
        assert!(set_env("A=B", b"x").is_err());
        set_env("EVENTPIPE_OS_TEST", b"one two").unwrap();
        assert_eq!(env("EVENTPIPE_OS_TEST"), Some(b"one two".to_vec()));
        assert!(environment().contains(&b"EVENTPIPE_OS_TEST=one two".to_vec()));
        unset_env("EVENTPIPE_OS_TEST").unwrap();
        assert_eq!(env("EVENTPIPE_OS_TEST"), None);
    }

    #[test]
    fn both_ways_to_find_a_mapping_agree() {
        let local = 0u8;
        let address = (&raw const local).addr();
        let maps = open(c"/proc/self/maps").unwrap();
        let by_text = mapping_by_text(&maps, address).unwrap();
        assert_eq!(mapping_of(address), Some(by_text));
        let code = both_ways_to_find_a_mapping_agree as *const () as usize;
        assert!(mapping_of(code).is_some());
        assert_eq!(mapping_of(0x10), None);
    }

    #[test]
    fn hooks_run_in_order_and_once_each() {
        static HOOKS: Hooks = Hooks::new();
        static TRACE: std::sync::Mutex<Vec<u8>> = std::sync::Mutex::new(Vec::new());
        fn one() {
            TRACE.lock().unwrap().push(1);
        }
        fn two() {
            TRACE.lock().unwrap().push(2);
        }
        assert_eq!(HOOKS.add(one), Some(true));
        assert_eq!(HOOKS.add(one), Some(false));
        assert_eq!(HOOKS.add(two), Some(false));
        HOOKS.run();
        assert_eq!(*TRACE.lock().unwrap(), [1, 2]);
    }
}
