//! Promise: after a fork the parent's sessions and socket are the parent's alone. The child writes events into nothing, starts
//! nothing, removes nothing, and ends like any program. (`fork` needs unsafe code, which the crate `eventpipe` has not.)

#[path = "../../eventpipe/tests/common/mod.rs"]
mod common;

use common::{Recording, alone, client, everything_of, socket};
use eventpipe::{ProviderRequest, Session, SessionError, SessionRequest};

eventpipe::provider! {
    mod forking = "Forking";

    #[event(id = 1, level = Informational)]
    fn step(number: u64);

    #[event(id = 2, level = Informational)]
    fn unused(number: u64);
}

eventpipe::provider! {
    mod untouched = "Untouched";

    #[event(id = 1, level = Informational)]
    fn first(number: u64);
}

fn child(parents: &Session) -> i32 {
    for number in 1000..2000 {
        forking::step(number);
        untouched::first(number);
    }
    if forking::step::is_enabled() || untouched::first::is_enabled() {
        return 10;
    }
    eventpipe::start();
    let refused = SessionRequest::new()
        .provider(ProviderRequest::new("Forking"))
        .start_callback(|_| {});
    if refused.err() != Some(SessionError::ShuttingDown) {
        return 11;
    }
    if parents.stop() {
        return 12;
    }
    0
}

fn main() {
    let _alone = alone();
    let path = socket();
    let recording = Recording::start(&everything_of("Forking"));
    let own = SessionRequest::new()
        .provider(ProviderRequest::new("Forking"))
        .start_callback(|_| {})
        .expect("starts");
    let rounds = 50;
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| (0..20_000).for_each(forking::unused));
        for number in 0..rounds {
            forking::step(number);
            // SAFETY: the child calls this crate and `exit`, which are made for it, and nothing that needs other threads.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                let code = child(&own);
                // SAFETY: ends the process as a return from `main` would: with the exit handlers.
                unsafe { libc::exit(code) };
            }
            let mut status = 0;
            // SAFETY: `status` is a valid place for the answer.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "status {status:#x}"
            );
            assert!(
                path.exists(),
                "the child does not remove its parent's socket"
            );
        }
        busy.join().expect("no panic");
    });
    // A child that lives on holds copies of the parent's sockets, and must not keep streams open by that.
    // SAFETY: as above.
    let survivor = unsafe { libc::fork() };
    assert!(survivor >= 0);
    if survivor == 0 {
        loop {
            // SAFETY: waits for the signal that ends this process.
            unsafe { libc::pause() };
        }
    }
    client()
        .process_info()
        .expect("the parent's server goes on");
    assert!(own.stop(), "none of the children has stopped it");
    let trace = recording.stop();
    // SAFETY: the pid of our own child, which is still there.
    unsafe { libc::kill(survivor, libc::SIGKILL) };
    let steps: Vec<u64> = trace
        .of("Forking")
        .filter(|event| event.id == 1)
        .map(|event| u64::from_le_bytes(event.payload[..8].try_into().expect("eight bytes")))
        .collect();
    assert_eq!(
        steps,
        (0..rounds).collect::<Vec<_>>(),
        "the parent's events and no others"
    );
    assert_eq!(trace.total_lost(), 0);
    println!("{rounds} forks while traced: nothing of the child in the parent's trace");
}
