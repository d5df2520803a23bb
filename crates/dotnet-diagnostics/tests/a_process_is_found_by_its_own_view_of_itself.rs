//! Discovery without any .NET: sockets made by hand for processes that are there, in the folders where those would make
//! them.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use dotnet_diagnostics::Error;
use dotnet_diagnostics::discovery::Discovery;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dd-find-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// A socket as a runtime makes it; nobody listens any more.
    fn socket(&self, pid: u32, key: u64) -> PathBuf {
        let path = self.0.join(format!("dotnet-diagnostic-{pid}-{key}-socket"));
        drop(UnixListener::bind(&path).unwrap());
        path
    }

    fn discovery(&self) -> Discovery {
        Discovery::new().with_temp_folders(vec![self.0.clone()])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process of ours that does nothing.
struct Sleeper(Child);

impl Sleeper {
    fn new(temp_folder: Option<&Path>) -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg("1000").env_remove("TMPDIR");
        if let Some(folder) = temp_folder {
            command.env("TMPDIR", folder);
        }
        let process = Sleeper(command.spawn().unwrap());
        // `spawn` returns in the middle of exec, before the new program has its arguments and environment.
        let command_line = format!("/proc/{}/cmdline", process.pid());
        let environment = format!("/proc/{}/environ", process.pid());
        while std::fs::read(&command_line).unwrap() != b"sleep\x001000\0"
            || std::fs::read(&environment).unwrap().is_empty()
        {
            std::thread::yield_now();
        }
        process
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn start_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(19).unwrap().parse().unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_file_with_the_processs_start_time_is_its_socket() {
    let folder = Folder::new("start-time");
    let process = Sleeper::new(None);
    let other = Sleeper::new(None);
    let own = folder.socket(process.pid(), process.start_ticks());
    // Of a former process with this pid, made later.
    folder.socket(process.pid(), process.start_ticks() - 5);
    folder.socket(process.pid(), process.start_ticks() + 5);
    let stale = folder.socket(other.pid(), other.start_ticks() + 1);
    let found = folder.discovery().find(process.pid()).unwrap();
    assert_eq!(found.socket, own);
    assert_eq!(
        (found.pid, found.container_pid),
        (process.pid(), process.pid())
    );
    assert_eq!(found.start_ticks, process.start_ticks());
    assert_eq!(found.command_line(), ["sleep", "1000"]);
    assert!(found.executable().is_some());
    match folder.discovery().find(other.pid()) {
        Err(Error::StaleSocket { path }) => assert_eq!(path, stale),
        result => panic!("{result:?}"),
    }
    let ours = |pid| pid == process.pid() || pid == other.pid();
    let mut all = folder.discovery().processes().unwrap();
    all.retain(|process| ours(process.pid));
    assert_eq!(all, [found]);
    assert!(stale.exists(), "nothing is deleted");
}

#[test]
fn the_processs_own_temporary_folder_is_looked_through() {
    let (elsewhere, empty) = (Folder::new("elsewhere"), Folder::new("empty"));
    let process = Sleeper::new(Some(&elsewhere.0));
    let socket = elsewhere.socket(process.pid(), process.start_ticks());
    let found = empty.discovery().find(process.pid()).unwrap();
    assert_eq!(found.socket, socket);
    let nothing = Sleeper::new(None);
    let error = empty.discovery().find(nothing.pid()).unwrap_err();
    assert!(
        error.to_string().contains("has no diagnostics socket"),
        "{error}"
    );
    assert!(
        error.to_string().contains(&*empty.0.to_string_lossy()),
        "{error}"
    );
}

/// Nanoseconds that this thread ran.
fn processor_time() -> u64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn thousands_of_stale_sockets_are_neither_connected_to_nor_deleted() {
    let folder = Folder::new("many");
    let process = Sleeper::new(None);
    let mut listeners = Vec::new();
    for number in 0..5000_u32 {
        // Of processes that are there and of others, with start times in the far future.
        let (pid, key) = (1 + number * 7, 1_u64 << 50);
        let path = folder
            .0
            .join(format!("dotnet-diagnostic-{pid}-{key}-socket"));
        let listener = UnixListener::bind(&path).unwrap();
        if number % 100 == 0 {
            listener.set_nonblocking(true).unwrap();
            listeners.push(listener);
        }
    }
    let own = folder.socket(process.pid(), process.start_ticks());
    let before = processor_time();
    let all = folder.discovery().processes().unwrap();
    println!(
        "{} us of processor time",
        (processor_time() - before) / 1000
    );
    let in_folder: Vec<_> = all
        .iter()
        .filter(|process| process.socket.starts_with(&folder.0))
        .collect();
    assert_eq!(in_folder.len(), 1);
    assert_eq!(in_folder[0].socket, own);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 5001);
    for listener in listeners {
        assert!(listener.accept().is_err(), "nobody has knocked");
    }
}

#[test]
fn a_routers_socket_wins_if_it_is_not_older() {
    let folder = Folder::new("router");
    let process = Sleeper::new(None);
    let own = folder.socket(process.pid(), process.start_ticks());
    let file = |path: &Path| std::fs::File::open(path);
    assert!(file(&own).is_err(), "a socket is no file to open");
    let router = folder.0.join(format!(
        "dotnet-diagnostic-dsrouter-{}-0-socket",
        process.pid()
    ));
    drop(UnixListener::bind(&router).unwrap());
    let found = folder.discovery().find(process.pid()).unwrap();
    assert_eq!((found.socket, found.is_router), (router, true));
}

#[test]
fn a_kernel_thread_is_called_one() {
    let stat = std::fs::read_to_string("/proc/2/stat").unwrap_or_default();
    let result = Discovery::new().find(2);
    if stat.contains("(kthreadd)") {
        assert!(
            matches!(result, Err(Error::KernelThread { pid: 2 })),
            "{result:?}"
        );
    } else {
        // In a container pid 2 is a process like others, or none.
        assert!(
            !matches!(result, Err(Error::KernelThread { .. })),
            "{result:?}"
        );
    }
}
