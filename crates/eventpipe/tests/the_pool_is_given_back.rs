//! Promise: some seconds after the last session the memory between writers and drain is the program's again, also if a thread is in the
//! middle of an event just then: it is looked at again later.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use eventpipe::{Definition, EventOptions, Payload, Provider, ProviderRequest, SessionRequest};

/// A payload that is being copied until somebody says so.
struct Slow(Mutex<Receiver<()>>);

impl Payload for Slow {
    fn len(&self) -> usize {
        4
    }
    fn copy_to(&self, out: &mut [u8]) {
        out.fill(1);
        let _ = self.0.lock().expect("no panic").recv();
    }
}

/// Bytes of the pool's mapping that are in memory, by its size: 64 MB.
fn pool_present() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("a number of pages");
    pages * 4096
}

#[test]
fn even_if_a_writer_was_inside_at_the_first_attempt() {
    let provider = Provider::builder("Pool").register();
    let event = provider.define(Definition::new("E").id(1));
    let before = pool_present();
    let session = SessionRequest::new()
        .provider(ProviderRequest::new("Pool"))
        .start_callback(|_| {})
        .expect("starts");
    assert!(pool_present() > before + (40 << 20), "the pool is present");
    let (go_on, wait) = channel();
    let writer = std::thread::spawn(move || {
        event.write_encoded(&Slow(Mutex::new(wait)), &EventOptions::default());
    });
    // Until the thread is inside its event: nothing tells.
    std::thread::sleep(Duration::from_millis(100));
    session.stop();
    // The first attempt is five seconds after that.
    std::thread::sleep(Duration::from_secs(7));
    assert!(
        pool_present() > before + (40 << 20),
        "the writer has a block of it"
    );
    drop(go_on);
    writer.join().expect("no panic");
    while pool_present() > before + (40 << 20) {
        std::thread::sleep(Duration::from_millis(100));
    }
}
