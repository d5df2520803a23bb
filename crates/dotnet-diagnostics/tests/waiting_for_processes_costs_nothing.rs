//! A listening port with processes connected sleeps. In a file of its own: it looks at the program's threads.

mod dialing;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use dialing::{dial, path};
use dotnet_diagnostics::port::Listener;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn waiting_costs_nothing() {
    let path = path("idle");
    let listener = Listener::bind(&path).unwrap();
    let kept: Vec<UnixStream> = (1..20).map(|cookie| dial(&path, cookie)).collect();
    for _ in &kept {
        assert!(listener.next_runtime(LONG).unwrap().is_some());
    }
    // Past the time limit of the advertise packets, so that only sleeping is left.
    std::thread::sleep(Duration::from_millis(1200));
    let ticks = || {
        let task = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .find_map(|task| {
                let task = task.unwrap().path();
                let name = std::fs::read_to_string(task.join("comm")).ok()?;
                name.starts_with("diagnostic-port").then_some(task)
            });
        let stat = std::fs::read_to_string(task.expect("its thread").join("status")).unwrap();
        let line = stat
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.unwrap()
            .split_whitespace()
            .last()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = ticks();
    assert!(
        listener
            .next_runtime(Duration::from_secs(1))
            .unwrap()
            .is_none()
    );
    assert_eq!(ticks() - before, 0, "the thread did not wake up once");
}
