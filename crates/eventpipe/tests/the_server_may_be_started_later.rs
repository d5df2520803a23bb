//! Promise: a program that is to be traced before it is to be asked starts the engine first and the server when it likes; what it allows
//! clients from the first request on, it says before.

mod common;

use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::ErrorCode;
use eventpipe::{ProviderRequest, ServerCommands, SessionRequest, limit_server};

eventpipe::provider! {
    mod later = "Later";

    #[event(id = 1)]
    fn first(number: u32);
}

#[test]
fn the_server_may_be_started_later() {
    eventpipe::start_engine();
    let listener = SessionRequest::new()
        .provider(ProviderRequest::new("Later"))
        .listen()
        .expect("the engine works without its server");
    later::first(7);
    while listener.next().is_none() {
        listener.wait(None);
    }
    listener.stop();
    assert!(
        common::socket_of(std::process::id()).is_none(),
        "nobody can ask"
    );

    // Before there is anybody to ask it.
    limit_server(ServerCommands::READ_ENVIRONMENT | ServerCommands::DUMP);
    eventpipe::start_server();
    common::client().process_info().expect("it answers");
    let request = common::everything_of("Later");
    match common::client().collect(&request, Fallbacks::NONE) {
        Err(Error::Refused { code, .. }) => assert_eq!(code, ErrorCode::NOTSUPPORTED),
        other => panic!("{other:?}"),
    }
    limit_server(ServerCommands::ALL);

    // Again does nothing.
    eventpipe::start_server();
    eventpipe::start();
    let recording = common::Recording::start(&request);
    later::first(8);
    let trace = recording.stop();
    let payloads: Vec<_> = trace.of("Later").map(|event| &event.payload[..]).collect();
    assert_eq!(payloads, [[8, 0, 0, 0]]);
}
