//! A server of the diagnostics protocol that answers as a test says, and a process that seems to have it.

use dotnet_diagnostics::codec::{
    Advertise, Guid, ProcessInfo, ProcessInfoVersion, Progress, Request, RequestReader, SessionId,
    Strictness, encode_result, encode_session,
};
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

/// What a server says to a request; `None` is nothing, on a connection that stays open.
type Answer = dyn Fn(&Request) -> Option<Vec<u8>> + Send + Sync;

/// A server at a path; it goes on until the test's process ends.
#[derive(Debug)]
pub(crate) struct Fake {
    path: PathBuf,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    pub(crate) fn at(
        path: &Path,
        answer: impl Fn(&Request) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Fake {
        let listener = UnixListener::bind(path).unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (seen, answer): (_, Arc<Answer>) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &seen, &*answer));
            }
        });
        Fake {
            path: path.to_owned(),
            requests,
        }
    }

    /// The argument of `--dport`.
    pub(crate) fn port(&self) -> String {
        format!("{},connect", self.path.display())
    }

    /// Everything that was asked so far, from now on forgotten.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

/// A runtime that dials in at a port, and anew after each request, until nobody listens there.
pub(crate) fn dial_in(
    port: &Path,
    answer: impl Fn(&Request) -> Option<Vec<u8>> + Send + Sync + 'static,
) {
    let port = port.to_owned();
    std::thread::spawn(move || {
        let advertise = Advertise {
            runtime_cookie: Guid([7; 16]),
            process_id: u64::from(std::process::id()),
        };
        while let Ok(mut stream) = UnixStream::connect(&port) {
            if stream.write_all(&advertise.encode()).is_ok() {
                serve(stream, &Mutex::default(), &answer);
            }
        }
    });
}

fn serve(mut stream: UnixStream, seen: &Mutex<Vec<Request>>, answer: &Answer) {
    let mut reader = RequestReader::new(Strictness::Exact);
    loop {
        let mut buffer = vec![0; reader.needed()];
        let Ok(count @ 1..) = stream.read(&mut buffer) else {
            return;
        };
        match reader.feed(&buffer[..count]).1 {
            Progress::Need(_) => {}
            Progress::Request(request) => {
                seen.lock().unwrap().push(request.clone());
                match answer(&request) {
                    Some(bytes) => drop(stream.write_all(&bytes)),
                    None => drop(stream.read(&mut buffer)),
                }
                return;
            }
            Progress::Error(code) => panic!("{code}"),
        }
    }
}

/// The answer of a .NET 10 that does everything at once; a session's stream is `stream`.
pub(crate) fn dotnet10(request: &Request, stream: &[u8]) -> Vec<u8> {
    match request {
        Request::ProcessInfo(version) => info(*version),
        Request::CollectTracing(_) => {
            let mut bytes = encode_session(SessionId(0x77)).to_vec();
            bytes.extend(stream);
            bytes
        }
        _ => encode_result().to_vec(),
    }
}

fn info(version: ProcessInfoVersion) -> Vec<u8> {
    let info = ProcessInfo {
        version,
        process_id: u64::from(std::process::id()),
        runtime_cookie: Guid([7; 16]),
        command_line: "dotnet fake.dll".into(),
        operating_system: "Linux".into(),
        architecture: "x64".into(),
        entry_assembly: "fake".into(),
        product_version: "10.0.0".into(),
        runtime_identifier: "linux-x64".into(),
    };
    info.encode_reply(version).unwrap()
}

/// A process that does nothing; what `socket` names is where its runtime would listen, with `TMPDIR` as the folder.
#[derive(Debug)]
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Sleeper {
        Sleeper(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn socket(&self, folder: &Path) -> PathBuf {
        self.socket_of(folder, self.start_ticks())
    }

    /// The socket of a process of this id that was started at another time.
    pub(crate) fn stale_socket(&self, folder: &Path) -> PathBuf {
        self.socket_of(folder, self.start_ticks() - 1)
    }

    fn socket_of(&self, folder: &Path, key: u64) -> PathBuf {
        folder.join(format!("dotnet-diagnostic-{}-{key}-socket", self.pid()))
    }

    /// Returns when a signal to stop has had its effect.
    pub(crate) fn wait_until_stopped(&self) {
        while !self.stat().starts_with(" T") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn start_ticks(&self) -> u64 {
        let fields = self.stat();
        fields.split_whitespace().nth(19).unwrap().parse().unwrap()
    }

    /// What the system says of it, behind its name.
    fn stat(&self) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit_once(')').unwrap().1.to_owned()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
