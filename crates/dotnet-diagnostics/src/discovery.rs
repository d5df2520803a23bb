//! Finds the processes that can be asked: who has a diagnostics socket, across containers and temporary folders.
//!
//! The files' names alone decide nothing: a killed process leaves its file, and a pid may be reused or be one of another
//! namespace. So the processes are the starting point, not the files. For each process its own view is asked for (pid in
//! its namespace, its root, its `TMPDIR`), and a file counts only with the process's start time in its name (ipc.md 3).
//! Nothing is connected to and nothing deleted; thousands of stale files cost one listing of their folder.

mod procfs;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

use crate::Error;
use crate::client::Endpoint;
use crate::socket;
use procfs::{Kind, Proc};

/// A process with a diagnostics socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process's id here.
    pub pid: u32,
    /// The process's id in its own namespace; the same outside of containers.
    pub container_pid: u32,
    /// Whose process it is.
    pub uid: u32,
    /// The kernel's name for it: at most 15 bytes of the executable's name, or what the process set itself.
    pub name: String,
    /// Clock ticks from the machine's boot to its start (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// The socket, by a path that works here.
    pub socket: PathBuf,
    /// Whether the socket belongs to a router (dsrouter) that forwards to another machine or a phone.
    pub is_router: bool,
    proc_folder: PathBuf,
}

impl Process {
    /// For [`Client::new`](crate::client::Client::new).
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Socket(self.socket.clone())
    }

    /// The arguments with which the process was started; empty where they may not be read.
    pub fn command_line(&self) -> Vec<OsString> {
        let bytes = socket::read_bounded(&self.proc_folder.join("cmdline"), 1 << 20);
        let mut words: Vec<OsString> = bytes
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect();
        // Each argument ends with a zero, so the last piece is an empty rest.
        if words.last().is_some_and(|word| word.is_empty()) {
            words.pop();
        }
        words
    }

    /// The program's file, as the process sees it; `None` where it may not be read.
    pub fn executable(&self) -> Option<PathBuf> {
        std::fs::read_link(self.proc_folder.join("exe")).ok()
    }
}

/// All processes with a diagnostics socket, by rising pid.
///
/// # Errors
/// [`Error::Io`] where `/proc` cannot be read.
pub fn processes() -> Result<Vec<Process>, Error> {
    Discovery::new().processes()
}

/// The process with this id, as it is seen here.
///
/// # Errors
/// Why there is none to ask: [`Error::NoSuchProcess`], [`Error::Zombie`], [`Error::KernelThread`],
/// [`Error::NoSocket`], [`Error::OtherUser`], [`Error::StaleSocket`].
pub fn find(pid: u32) -> Result<Process, Error> {
    Discovery::new().find(pid)
}

/// Where to look. [`processes`] and [`find`] are this with its defaults.
#[derive(Clone, Debug)]
pub struct Discovery {
    temp_folders: Vec<PathBuf>,
}

impl Default for Discovery {
    fn default() -> Discovery {
        Discovery::new()
    }
}

impl Discovery {
    /// Looks in `$TMPDIR`, `/tmp`, and each process's own `TMPDIR` and root.
    pub fn new() -> Discovery {
        let own = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty());
        let mut temp_folders: Vec<PathBuf> = own.into_iter().map(PathBuf::from).collect();
        let usual = PathBuf::from("/tmp");
        if !temp_folders.contains(&usual) {
            temp_folders.push(usual);
        }
        Discovery { temp_folders }
    }

    /// Looks in these folders instead of `$TMPDIR` and `/tmp`; the processes' own are looked through still.
    #[must_use]
    pub fn with_temp_folders(self, temp_folders: Vec<PathBuf>) -> Discovery {
        Discovery { temp_folders }
    }

    /// As the function [`processes`].
    ///
    /// # Errors
    /// As there.
    pub fn processes(&self) -> Result<Vec<Process>, Error> {
        let mut search = Search::new(self);
        let mut found = Vec::new();
        for pid in procfs::pids().map_err(Error::io("reading /proc"))? {
            // Processes come and go while we look: one that cannot be read is not there.
            let Ok(Kind::Process(process)) = procfs::read(pid) else {
                continue;
            };
            if let Finding::Socket(entry) = search.look_for(&process) {
                found.push(finished(&process, entry));
            }
        }
        found.sort_by_key(|process| process.pid);
        Ok(found)
    }

    /// As the function [`find`].
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, pid: u32) -> Result<Process, Error> {
        let process = match procfs::read(pid) {
            Ok(Kind::Process(process)) => process,
            Ok(Kind::KernelThread) => return Err(Error::KernelThread { pid }),
            Ok(Kind::Zombie) => return Err(Error::Zombie { pid }),
            Err(_) => return Err(self.unseen(pid)),
        };
        let mut search = Search::new(self);
        let other_user = || Error::OtherUser {
            what: std::format!("process {pid}"),
            uid: Some(process.uid),
        };
        let allowed = rustix::process::geteuid().is_root()
            || rustix::process::geteuid().as_raw() == process.uid;
        match search.look_for(&process) {
            Finding::Socket(_) | Finding::Nothing if !allowed => Err(other_user()),
            Finding::Socket(entry) => Ok(finished(&process, entry)),
            Finding::Stale(path) => Err(Error::StaleSocket { path }),
            Finding::Nothing => Err(Error::NoSocket {
                pid,
                searched: search.folders_of(&process),
            }),
        }
    }

    /// There is nothing in `/proc`: no process, or one that is hidden from us (`hidepid`).
    fn unseen(&self, pid: u32) -> Error {
        if !procfs::exists(pid) {
            return Error::NoSuchProcess { pid };
        }
        let mut search = Search::new(self);
        let owner = self.temp_folders.iter().find_map(|folder| {
            let listing = search.listing(folder)?;
            let entry = listing.get(&pid)?.first()?;
            socket::owner(&folder.join(&entry.file_name))
        });
        Error::OtherUser {
            what: std::format!("process {pid}"),
            uid: owner,
        }
    }
}

fn finished(process: &Proc, entry: (PathBuf, bool)) -> Process {
    let (socket, is_router) = entry;
    Process {
        pid: process.pid,
        container_pid: process.inner_pid,
        uid: process.uid,
        name: process.name.clone(),
        start_ticks: process.start_ticks,
        socket,
        is_router,
        proc_folder: process.folder.clone(),
    }
}

/// A socket's file name taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    file_name: OsString,
    key: u64,
    is_router: bool,
}

/// `dotnet-diagnostic-{pid}-{key}-socket`, and the same with `dsrouter-` in front of the pid.
fn parse_file_name(name: &OsStr) -> Option<(u32, Entry)> {
    let text = name.to_str()?;
    let inner = text
        .strip_prefix("dotnet-diagnostic-")?
        .strip_suffix("-socket")?;
    let (inner, is_router) = match inner.strip_prefix("dsrouter-") {
        Some(inner) => (inner, true),
        None => (inner, false),
    };
    let (pid, key) = inner.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(pid) {
        return None;
    }
    let key = match digits(key) {
        true => key.parse().ok()?,
        false if is_router => 0,
        false => return None,
    };
    let entry = Entry {
        file_name: name.to_os_string(),
        key,
        is_router,
    };
    Some((pid.parse().ok()?, entry))
}

/// The sockets of a folder by the pid in their names.
type Listing = HashMap<u32, Vec<Entry>>;

enum Finding {
    Socket((PathBuf, bool)),
    /// Files with the pid, but of another process.
    Stale(PathBuf),
    Nothing,
}

/// One look at the machine. Folders are listed once, whatever the path through which they are reached.
struct Search<'a> {
    discovery: &'a Discovery,
    listings: HashMap<(u64, u64), Rc<Listing>>,
    own_mounts: Option<PathBuf>,
    own_time: Option<PathBuf>,
}

impl<'a> Search<'a> {
    fn new(discovery: &'a Discovery) -> Search<'a> {
        let own = Path::new("/proc/self");
        Search {
            discovery,
            listings: HashMap::new(),
            own_mounts: procfs::namespace(own, "mnt"),
            own_time: procfs::namespace(own, "time"),
        }
    }

    /// Folders in which the process may have made its socket, most likely first, by paths that work here.
    fn folders_of(&self, process: &Proc) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut add = |folder: PathBuf| {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        };
        let temp_folder = process.temp_folder();
        let same_files = procfs::namespace(&process.folder, "mnt") == self.own_mounts
            && std::fs::read_link(process.folder.join("root"))
                .is_ok_and(|root| root == Path::new("/"));
        let root = process.folder.join("root");
        let inside = |folder: &Path| match folder.strip_prefix("/") {
            Ok(relative) if !same_files => root.join(relative),
            _ => folder.to_path_buf(),
        };
        if let Some(folder) = temp_folder.as_deref().filter(|folder| folder.is_absolute()) {
            add(inside(folder));
        }
        if !same_files {
            add(inside(Path::new("/tmp")));
        }
        for folder in &self.discovery.temp_folders {
            add(folder.clone());
        }
        folders
    }

    fn look_for(&mut self, process: &Proc) -> Finding {
        let mut stale: Option<PathBuf> = None;
        for folder in self.folders_of(process) {
            let Some(listing) = self.listing(&folder) else {
                continue;
            };
            let Some(entries) = listing.get(&process.inner_pid) else {
                continue;
            };
            match self.choose(process, &folder, entries) {
                Some(entry) => {
                    return Finding::Socket((folder.join(&entry.file_name), entry.is_router));
                }
                None => {
                    let newest = entries.iter().max_by_key(|entry| entry.key);
                    stale = stale.or(newest.map(|entry| folder.join(&entry.file_name)));
                }
            }
        }
        stale.map_or(Finding::Nothing, Finding::Stale)
    }

    /// The file that is the process's: the one with its start time, else, where times cannot be compared, the newest.
    fn choose<'e>(&self, process: &Proc, folder: &Path, entries: &'e [Entry]) -> Option<&'e Entry> {
        let own = |entry: &&Entry| !entry.is_router;
        let exact = entries
            .iter()
            .filter(own)
            .find(|entry| entry.key == process.start_ticks);
        let newest = || {
            // Only where both are known to differ: a process that may not be looked into, or has just ended, is no reason.
            let clock = procfs::namespace(&process.folder, "time");
            let other_clock = clock.is_some() && self.own_time.is_some() && clock != self.own_time;
            entries
                .iter()
                .filter(own)
                .filter(|entry| other_clock || entry.key == 0)
                .max_by_key(|entry| entry.key)
        };
        let direct = exact.or_else(newest);
        let age = |entry: &Entry| {
            std::fs::symlink_metadata(folder.join(&entry.file_name))
                .and_then(|file| file.modified())
                .ok()
        };
        let router = entries
            .iter()
            .filter(|entry| entry.is_router)
            .max_by_key(|entry| age(entry));
        match (direct, router) {
            (Some(direct), Some(router)) if age(router) < age(direct) => Some(direct),
            (direct, router) => router.or(direct),
        }
    }

    fn listing(&mut self, folder: &Path) -> Option<Rc<Listing>> {
        let metadata = std::fs::metadata(folder).ok()?;
        let identity = (metadata.dev(), metadata.ino());
        if let Some(listing) = self.listings.get(&identity) {
            return Some(listing.clone());
        }
        let mut listing = Listing::new();
        // A folder that may be entered but not listed holds nothing for us; so do entries that cannot be read.
        for file in std::fs::read_dir(folder).ok()?.flatten() {
            if let Some((pid, entry)) = parse_file_name(&file.file_name()) {
                listing.entry(pid).or_default().push(entry);
            }
        }
        let listing = Rc::new(listing);
        self.listings.insert(identity, listing.clone());
        Some(listing)
    }
}

impl Proc {
    /// `TMPDIR` of the process, where it may be read.
    fn temp_folder(&self) -> Option<PathBuf> {
        let environment = socket::read_bounded(&self.folder.join("environ"), 4 << 20).ok()?;
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(b"TMPDIR="))?;
        (!value.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_sockets_are_taken() {
        let parsed = |name: &str| {
            parse_file_name(OsStr::new(name)).map(|(pid, entry)| (pid, entry.key, entry.is_router))
        };
        assert_eq!(
            parsed("dotnet-diagnostic-12-345-socket"),
            Some((12, 345, false))
        );
        assert_eq!(
            parsed("dotnet-diagnostic-dsrouter-12-345-socket"),
            Some((12, 345, true))
        );
        assert_eq!(
            parsed("dotnet-diagnostic-dsrouter-12-x1-socket"),
            Some((12, 0, true))
        );
        for wrong in [
            "dotnet-diagnostic-12-345",
            "dotnet-diagnostic-12-345-socket2",
            "dotnet-diagnostic--345-socket",
            "dotnet-diagnostic-12-x-socket",
            "dotnet-diagnostic-+12-1-socket",
            "dotnet-diagnostic-99999999999-1-socket",
            "clr-debug-pipe-12-345-in",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_way_not_to_be_traceable_has_its_own_name() {
        let me = std::process::id();
        let nowhere = std::env::temp_dir().join(std::format!("no-such-folder-{me}"));
        let discovery = Discovery::new().with_temp_folders(std::vec![nowhere]);
        // This test program has no socket of its own.
        assert!(matches!(discovery.find(me), Err(Error::NoSocket { .. })));
        assert!(matches!(
            discovery.find(u32::MAX),
            Err(Error::NoSuchProcess { pid: u32::MAX })
        ));
        assert!(matches!(
            discovery.find(0),
            Err(Error::NoSuchProcess { pid: 0 })
        ));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let zombie = loop {
            match discovery.find(child.id()) {
                Err(Error::Zombie { pid }) => break pid,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(zombie, child.id());
        child.wait().unwrap();
    }
}
