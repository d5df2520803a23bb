//! Servers that are silent, slow, gone or talk nonsense: the client names what happened, and comes back.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Endpoint, Fallbacks, StopOutcome, Timeouts};
use dotnet_diagnostics::codec::*;

const SHORT: Duration = Duration::from_millis(200);

fn limits() -> Timeouts {
    Timeouts {
        connect: SHORT,
        reply: SHORT,
        stop: SHORT,
        dump: SHORT,
    }
}

fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dd-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// A server that does `behave` with each connection on a thread of its own, until the test ends.
fn server(name: &str, behave: impl Fn(UnixStream) + Send + Sync + 'static) -> Server {
    let path = path(name);
    let listener = UnixListener::bind(&path).unwrap();
    let behave = std::sync::Arc::new(behave);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let behave = behave.clone();
            std::thread::spawn(move || behave(stream.unwrap()));
        }
    });
    let client = Client::new(Endpoint::Socket(path.clone())).with_timeouts(limits());
    Server { client, path }
}

/// A client of the server; the socket's file goes with it.
struct Server {
    client: Client,
    path: PathBuf,
}

impl std::ops::Deref for Server {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn request(stream: &mut UnixStream) -> Option<Request> {
    let mut reader = RequestReader::new(Strictness::Exact);
    loop {
        let mut buffer = vec![0; reader.needed()];
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        match reader.feed(&buffer[..count]).1 {
            Progress::Need(_) => {}
            Progress::Request(request) => return Some(request),
            Progress::Error(code) => panic!("{code}"),
        }
    }
}

fn not_answering<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(
        matches!(result, Err(Error::NotAnswering { .. })),
        "{result:?}"
    );
}

fn some_session() -> CollectTracing {
    CollectTracing::new([ProviderConfig::new("P", 1, 4)])
}

#[test]
fn a_silent_server() {
    let client = server("silent", |stream| {
        std::thread::sleep(Duration::from_secs(3600));
        drop(stream);
    });
    not_answering(client.process_info());
    not_answering(client.environment());
    not_answering(client.collect(&some_session(), Fallbacks::ALL));
    not_answering(client.resume_runtime());
    not_answering(client.generate_core_dump("/x", DumpType::FULL, DumpFlags(0)));
    not_answering(client.stop_tracing(SessionId(1)));
}

#[test]
fn a_server_that_sends_a_byte_now_and_then() {
    let client = server("slow", |mut stream| {
        for byte in encode_result() {
            let _ = stream.write_all(&[byte]);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    not_answering(client.resume_runtime());
}

#[test]
fn a_server_that_does_not_accept() {
    let path = path("full");
    let listener = UnixListener::bind(&path).unwrap();
    let client = Client::new(Endpoint::Socket(path.clone())).with_timeouts(limits());
    // The queue takes a bounded number; after that connecting itself has to wait.
    let waiting: Vec<UnixStream> = std::iter::from_fn(|| {
        let stream = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
        rustix::net::connect(&stream, &address).ok()?;
        Some(UnixStream::from(stream))
    })
    .take(100_000)
    .collect();
    assert!(waiting.len() < 100_000, "the queue has an end");
    match client.process_info() {
        Err(Error::NotAnswering { doing, .. }) => assert_eq!(doing, "connecting"),
        other => panic!("{other:?}"),
    }
    drop(listener);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_server_that_closes_or_talks_nonsense() {
    let client = server("closes", |mut stream| drop(request(&mut stream)));
    assert!(matches!(
        client.process_info(),
        Err(Error::ConnectionClosed {
            command: Command::PROCESS_INFO3
        })
    ));
    let client = server("nonsense", |mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(matches!(
        client.process_info(),
        Err(Error::BadReply {
            error: DecodeError::UnknownMagic,
            ..
        })
    ));
    let client = server("short", |mut stream| {
        drop(request(&mut stream));
        let _ = stream.write_all(&encode_result()[..21]);
    });
    assert!(matches!(
        client.resume_runtime(),
        Err(Error::BadReply {
            error: DecodeError::Truncated,
            ..
        })
    ));
    let client = server("boast", |mut stream| {
        drop(request(&mut stream));
        let mut reply = encode_environment(["A=1"]).unwrap();
        reply[20..24].fill(0xFF);
        let _ = stream.write_all(&reply);
    });
    assert!(matches!(
        client.environment(),
        Err(Error::BadReply {
            error: DecodeError::OutOfRange,
            ..
        })
    ));
}

#[test]
fn nobody_there() {
    let stale = path("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let to = |path: &PathBuf| Client::new(Endpoint::Socket(path.clone())).process_info();
    assert!(matches!(to(&stale), Err(Error::StaleSocket { path }) if path == stale));
    assert!(stale.exists(), "other people's files are not deleted");
    std::fs::remove_file(&stale).unwrap();
    assert!(matches!(to(&stale), Err(Error::SocketNotFound { .. })));
}

/// The socket file is there from the moment at which a server binds; it listens a moment later.
#[test]
fn a_server_that_is_about_to_listen_is_waited_for() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let path = path("about-to-listen");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let server = std::thread::spawn(move || {
        std::thread::sleep(SHORT / 4);
        rustix::net::listen(&socket, 1).unwrap();
        UnixListener::from(socket).accept().map(drop).unwrap();
    });
    let client = Client::new(Endpoint::Socket(path.clone()));
    // It does not answer, but it was reached.
    let error = client.process_info().unwrap_err();
    assert!(!matches!(error, Error::StaleSocket { .. }), "{error}");
    server.join().unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_reached_through_its_folder() {
    let folder = path(&"long-".repeat(24));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("s");
    assert!(socket.as_os_str().len() > 108);
    // Made under a short name, and moved.
    let short = path("short-name");
    let listener = UnixListener::bind(&short).unwrap();
    std::fs::rename(&short, &socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(request(&mut stream));
        stream.write_all(&encode_result()).unwrap();
    });
    let client = Client::new(Endpoint::Socket(socket));
    client.resume_runtime().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A server with one session: a stop is answered once the stream has been taken, as existing runtimes do it.
fn session_server(name: &str, tail: usize) -> (Server, mpsc::Receiver<Request>) {
    let (seen, requests) = mpsc::channel();
    let (stop, stopped) = mpsc::channel::<UnixStream>();
    let (seen, stop) = (std::sync::Mutex::new(seen), std::sync::Mutex::new(stop));
    let stopped = std::sync::Mutex::new(stopped);
    let client = server(name, move |mut stream| {
        let Some(request) = request(&mut stream) else {
            return;
        };
        seen.lock().unwrap().send(request.clone()).unwrap();
        match request {
            Request::CollectTracing(_) => {
                stream.write_all(&encode_session(SessionId(7))).unwrap();
                stream.write_all(b"Nettrace").unwrap();
                let stopped = stopped.lock().unwrap().recv().unwrap();
                // Far more than a socket buffers.
                if stream.write_all(&vec![1; tail]).is_ok() {
                    drop(stream);
                    let _ = (&stopped).write_all(&encode_session(SessionId(7)));
                }
            }
            Request::StopTracing(SessionId(7)) => stop.lock().unwrap().send(stream).unwrap(),
            other => panic!("{other:?}"),
        }
    });
    (client, requests)
}

#[test]
fn a_stop_waits_for_the_stream_however_long_it_flows() {
    let (client, requests) = session_server("flows", 4 << 20);
    let limited = client.client.clone().with_timeouts(Timeouts {
        stop: Duration::from_secs(1),
        ..limits()
    });
    let mut session = limited.collect(&some_session(), Fallbacks::NONE).unwrap();
    let stopper = session.stopper();
    let stopping = std::thread::spawn(move || stopper.stop());
    let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        // Slower in all than the limit, but never without progress for as long.
        std::thread::sleep(Duration::from_millis(20));
        match session.read(&mut buffer).unwrap() {
            0 => break,
            count => total += count,
        }
    }
    assert_eq!(total, 8 + (4 << 20));
    assert_eq!(stopping.join().unwrap().unwrap(), StopOutcome::Stopped);
    // The end was seen: the id may be another session's by now, so nothing is sent.
    assert_eq!(session.stopper().stop().unwrap(), StopOutcome::AlreadyEnded);
    drop(session);
    assert_eq!(requests.try_iter().count(), 2);
}

#[test]
fn a_stop_without_a_reader_ends_with_an_error_and_can_be_repeated() {
    let (client, _requests) = session_server("unread", 4 << 20);
    let mut session = client.collect(&some_session(), Fallbacks::NONE).unwrap();
    not_answering(session.stopper().stop());
    let mut rest = Vec::new();
    session.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 8 + (4 << 20));
    assert_eq!(session.stopper().stop().unwrap(), StopOutcome::AlreadyEnded);
}

#[test]
fn stop_into_takes_everything_and_survives_a_full_disk() {
    let (client, _requests) = session_server("into", 1 << 20);
    let mut session = client.collect(&some_session(), Fallbacks::NONE).unwrap();
    let mut file = Vec::new();
    assert_eq!(session.stop_into(&mut file).unwrap(), 8 + (1 << 20));
    assert!(file.starts_with(b"Nettrace"));

    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (client, _requests) = session_server("into-full", 1 << 20);
    let mut session = client.collect(&some_session(), Fallbacks::NONE).unwrap();
    let error = session.stop_into(&mut Full).unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
}

#[test]
fn a_dropped_session_is_stopped() {
    let (client, requests) = session_server("dropped", 0);
    let session = client.collect(&some_session(), Fallbacks::NONE).unwrap();
    assert!(matches!(requests.recv(), Ok(Request::CollectTracing(_))));
    drop(session);
    assert_eq!(requests.recv(), Ok(Request::StopTracing(SessionId(7))));
}

#[test]
fn duplicate_ids_are_removed_and_what_was_given_up_is_named() {
    let (seen, requests) = mpsc::channel();
    let seen = std::sync::Mutex::new(seen);
    let client = server("old", move |mut stream| {
        let Some(request) = request(&mut stream) else {
            return;
        };
        let newer =
            !matches!(&request, Request::CollectTracing(r) if r.version == CollectVersion::V2);
        seen.lock().unwrap().send(request).unwrap();
        let _ = match newer {
            true => stream.write_all(&encode_error(ErrorCode::UNKNOWN_COMMAND)),
            false => stream.write_all(&encode_session(SessionId(9))),
        };
    });
    let mut wish = some_session();
    wish.providers[0].event_filter = Some(EventFilter::Only(vec![5, 1, 5]));
    wish.rundown_keyword = 0x10;
    let mut session = client.collect(&wish, Fallbacks::LOSSLESS).unwrap();
    use dotnet_diagnostics::client::Fallback;
    assert_eq!(
        session.fallbacks(),
        [Fallback::EventFilter, Fallback::RundownKeyword]
    );
    assert_eq!(session.version(), CollectVersion::V2);
    session.read_to_end(&mut Vec::new()).unwrap();
    let Ok(Request::CollectTracing(first)) = requests.recv() else {
        panic!("no session");
    };
    assert_eq!(
        first.providers[0].event_filter,
        Some(EventFilter::Only(vec![1, 5]))
    );
    let error = client.collect(&wish, Fallbacks::NONE).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unsupported {
                command: Command::COLLECT_TRACING5,
                ..
            }
        ),
        "{error}"
    );
}
