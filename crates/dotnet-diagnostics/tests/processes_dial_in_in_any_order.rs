//! The listening port against processes that behave, that do not, that come back, and that were here before.

mod dialing;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use dialing::{dial, path};
use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Endpoint};
use dotnet_diagnostics::codec::*;
use dotnet_diagnostics::port::Listener;

const LONG: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(150);

/// Answers one command as a runtime does, then dials in again.
fn answer(mut stream: UnixStream, path: &Path, cookie: u8) -> UnixStream {
    let mut header = [0; HEADER_SIZE];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(
        Header::decode(&header).unwrap().command,
        Command::RESUME_RUNTIME
    );
    let next = dial(path, cookie);
    stream.write_all(&encode_result()).unwrap();
    next
}

#[test]
fn several_processes_are_told_apart_by_their_cookies() {
    let path = path("several");
    let listener = Listener::bind(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let serve = |cookie: u8| {
        let path = path.clone();
        std::thread::spawn(move || {
            let mut stream = dial(&path, cookie);
            for _ in 0..20 {
                stream = answer(stream, &path, cookie);
            }
            stream
        })
    };
    let serving = [serve(1), serve(2)];
    let runtimes = [(); 2].map(|()| listener.next_runtime(LONG).unwrap().expect("a runtime"));
    for runtime in &runtimes {
        assert_eq!(runtime.process_id(), 40 + u64::from(runtime.cookie().0[0]));
        let client = Client::new(Endpoint::Runtime(runtime.clone()));
        for _ in 0..20 {
            client.resume_runtime().unwrap();
        }
    }
    assert!(
        listener.next_runtime(MOMENT).unwrap().is_none(),
        "each comes once"
    );
    let streams: Vec<UnixStream> = serving.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(runtimes.iter().all(|runtime| runtime.is_connected()));

    // One ends, and is started again: a new cookie, a new runtime. The other one is still here.
    let mut streams = streams.into_iter();
    drop(streams.next());
    while runtimes.iter().all(|runtime| runtime.is_connected()) {
        std::thread::yield_now();
    }
    let _third = dial(&path, 3);
    let third = listener.next_runtime(LONG).unwrap().expect("the new one");
    assert_eq!(third.cookie(), Guid([3; 16]));
    let gone = runtimes.iter().find(|one| one.cookie() == Guid([1; 16]));
    assert!(matches!(
        gone.unwrap().connect(MOMENT),
        Err(Error::NotAnswering { .. })
    ));
    drop(listener);
    assert!(!path.exists());
    assert!(matches!(
        third.connect(LONG),
        Ok(_) | Err(Error::PortClosed)
    ));
}

#[test]
fn who_does_not_introduce_himself_is_dropped_and_holds_up_nobody() {
    let path = path("rude");
    let listener = Listener::bind(&path).unwrap();
    let mut silent = UnixStream::connect(&path).unwrap();
    let mut nonsense = UnixStream::connect(&path).unwrap();
    nonsense.write_all(&[b'x'; 34]).unwrap();
    let mut half = UnixStream::connect(&path).unwrap();
    half.write_all(b"ADVR_V1").unwrap();
    // In pieces is fine.
    let mut slow = UnixStream::connect(&path).unwrap();
    let advertise = Advertise {
        runtime_cookie: Guid([9; 16]),
        process_id: 9,
    };
    for byte in advertise.encode() {
        slow.write_all(&[byte]).unwrap();
    }
    let runtime = listener.next_runtime(LONG).unwrap().expect("the slow one");
    assert_eq!(runtime.cookie(), Guid([9; 16]));
    for dropped in [&mut silent, &mut nonsense, &mut half] {
        dropped.set_read_timeout(Some(LONG)).unwrap();
        // Closed with bytes unread is a reset, otherwise an end.
        assert!(!matches!(dropped.read(&mut [0]), Ok(1..)));
    }
    assert!(runtime.is_connected());
}

#[test]
fn an_ended_connection_is_not_given_out() {
    let path = path("ended");
    let listener = Listener::bind(&path).unwrap();
    let first = dial(&path, 1);
    let runtime = listener.next_runtime(LONG).unwrap().expect("a runtime");
    drop(first);
    let again = dial(&path, 1);
    let client = Client::new(Endpoint::Runtime(runtime));
    let serving = std::thread::spawn({
        let path = path.clone();
        move || answer(again, &path, 1)
    });
    client.resume_runtime().unwrap();
    serving.join().unwrap();
}

#[test]
fn a_path_in_use_is_refused_and_a_stale_one_of_ours_replaced() {
    let path = path("in-use");
    let first = Listener::bind(&path).unwrap();
    assert!(matches!(
        Listener::bind(&path),
        Err(Error::AddressInUse { .. })
    ));
    drop(first);
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "stale");
    let second = Listener::bind(&path).unwrap();
    let _stream = dial(&path, 1);
    assert!(second.next_runtime(LONG).unwrap().is_some());
    // A file that has been put in its place is not ours to remove.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "other").unwrap();
    assert!(matches!(
        Listener::bind(&path),
        Err(Error::NotASocket { .. })
    ));
    drop(second);
    assert_eq!(std::fs::read(&path).unwrap(), b"other");
    std::fs::remove_file(&path).unwrap();
    let long = std::env::temp_dir().join("x".repeat(120));
    assert!(matches!(
        Listener::bind(long),
        Err(Error::PathTooLong { .. })
    ));
}
