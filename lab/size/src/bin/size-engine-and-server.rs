//! The same program with engine and diagnostics server: one event, traceable from outside.
#![forbid(unsafe_code)]

eventpipe::provider! {
    /// The one provider.
    pub mod example = "EventPipeLabSize";

    /// The one event.
    #[event(id = 1)]
    fn counted(count: u64, text: &str);
}

fn main() {
    eventpipe::start();
    example::counted(std::env::args().count() as u64, "text");
    println!("{}", std::env::args().count());
}
