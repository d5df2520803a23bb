//! The same program with the engine: one event, one session into a file, no diagnostics server.
#![forbid(unsafe_code)]

use eventpipe::{ProviderRequest, SessionRequest};

eventpipe::provider! {
    /// The one provider.
    pub mod example = "EventPipeLabSize";

    /// The one event.
    #[event(id = 1)]
    fn counted(count: u64, text: &str);
}

fn main() {
    let session = SessionRequest::new()
        .provider(ProviderRequest::new("EventPipeLabSize"))
        .start_file("size.nettrace");
    example::counted(std::env::args().count() as u64, "text");
    if let Ok(session) = session {
        session.stop();
    }
    println!("{}", std::env::args().count());
}
