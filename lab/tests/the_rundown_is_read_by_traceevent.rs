//! Promise: TraceEvent reads the events at the end of a session, field by field: the program's module, its threads by name, its events.

mod common;

use std::io::Read;

use common::{Folder, Program};
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use lab::emit::PROVIDER;
use peers::Peers;
use serde_json::Value;

#[test]
fn every_field_has_its_value() {
    let Some(peers) = Peers::for_test("every_field_has_its_value") else {
        return;
    };
    let folder = Folder::new("rundown");
    let file = folder.file("trace.nettrace");
    let mut program = Program::start(&["emit", "--wait", "--hold", "--count", "10"]);
    let request = CollectTracing::new([ProviderConfig::new(PROVIDER, u64::MAX, 5)]);
    let mut session = program
        .client()
        .collect(&request, Fallbacks::NONE)
        .expect("the session opens");
    let stopper = session.stopper();
    program.go();
    program.line();
    assert_eq!(program.line(), "done");
    let stopping = std::thread::spawn(move || stopper.stop());
    let mut trace = Vec::new();
    session.read_to_end(&mut trace).expect("readable");
    stopping.join().expect("no panic").expect("answered");
    program.go();
    assert!(program.end().success());
    std::fs::write(&file, trace).expect("written");
    let events = peers.oracle_events(&file);
    let of = |name: &'static str| {
        events.iter().filter(move |event| {
            event["provider"] == "EventPipe-Rundown"
                && event["event"]
                    .as_str()
                    .is_some_and(|found| found.starts_with(name))
        })
    };
    let text = |event: &Value, field: &str| {
        let value = &event["payload"][field];
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let own = env!("CARGO_BIN_EXE_lab");
    let module = of("Module").find(|event| text(event, "Path") == own);
    let module = module.expect("the program's own module");
    assert_eq!(text(module, "BuildId").len(), 40, "{module}");
    assert!(of("Thread").any(|event| text(event, "Name") == "eventpipe-drain"));
    assert!(of("Event").any(|event| text(event, "ProviderName") == PROVIDER));
    let complete: Vec<_> = of("Complete").collect();
    assert_eq!(complete.len(), 1);
    assert_eq!(
        text(complete[0], "Threads"),
        of("Thread").count().to_string()
    );
    assert_eq!(peers.oracle_summary(&file)["events_lost"], 0);
}
