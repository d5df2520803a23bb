//! Promise: a process dials the monitors that its environment names, introduces itself on every connection, and where a monitor
//! asks for it waits until it is told to go on. What the monitor asked for before is in the trace from the first event on.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use dotnet_diagnostics::codec::{Advertise, CollectTracing, ProviderConfig, Request};

eventpipe::provider! {
    mod held = "Held";

    #[event(id = 1, level = Informational)]
    fn first(number: u32);
}

/// What the traced process does when this file's program is started as one.
fn be_traced() {
    eventpipe::start();
    held::first(7);
    std::process::exit(0);
}

#[test]
fn a_start_is_held_until_the_monitor_resumes_it() {
    if std::env::var_os("HELD_PROGRAM").is_some() {
        be_traced();
    }
    let directory = std::env::temp_dir().join(format!("held-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("monitor");
    let listener = UnixListener::bind(&path).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_start_is_held_until_the_monitor_resumes_it"])
        .env("HELD_PROGRAM", "1")
        // A monitor that is not there disturbs nobody.
        .env(
            "EVENTPIPE_DiagnosticPorts",
            format!(
                "{};{},nosuspend",
                path.display(),
                directory.join("none").display()
            ),
        )
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let accept = |expected: Option<Advertise>| -> (UnixStream, Advertise) {
        let (mut connection, _) = listener.accept().unwrap();
        let mut packet = [0; Advertise::SIZE];
        connection.read_exact(&mut packet).unwrap();
        let advertise = Advertise::decode(&packet).unwrap();
        assert_eq!(advertise.process_id, u64::from(program.id()));
        if let Some(expected) = expected {
            assert_eq!(advertise, expected);
        }
        (connection, advertise)
    };
    let (mut session, advertise) = accept(None);
    let request = Request::CollectTracing(CollectTracing::new([ProviderConfig::new(
        "Held",
        u64::MAX,
        5,
    )]));
    session.write_all(&request.encode().unwrap()).unwrap();
    let mut answer = [0; 28];
    session.read_exact(&mut answer).unwrap();
    let (mut resume, _) = accept(Some(advertise));
    assert!(program.try_wait().unwrap().is_none(), "the start is held");
    resume
        .write_all(&Request::ResumeRuntime.encode().unwrap())
        .unwrap();
    let mut answer = Vec::new();
    resume.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.get(16..18), Some(&[0xFF, 0][..]), "OK");
    let mut stream = Vec::new();
    session.read_to_end(&mut stream).unwrap();
    assert!(program.wait().unwrap().success());
    let mut reader = nettrace::Reader::new(&stream[..]).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        events.push((event.metadata().provider.clone(), event.payload().to_vec()));
    }
    assert_eq!(events[0], (String::from("Held"), vec![7, 0, 0, 0]));
    std::fs::remove_dir_all(&directory).unwrap();
}
