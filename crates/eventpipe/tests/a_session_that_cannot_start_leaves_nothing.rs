//! Promise: a session that the system refuses leaves no memory behind.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use eventpipe::{ProviderRequest, SessionError, SessionRequest};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|number| number.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

/// The largest part of the pool (64 MB).
const MOST_OF_THE_POOL: u64 = 48 << 20;

#[test]
fn the_pool_is_given_back() {
    eventpipe::start();
    let before = resident();
    let limit = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").expect("opens").as_raw_fd();
    let none_left = Rlimit {
        current: u64::try_from(next).ok(),
        ..limit
    };
    setrlimit(Resource::Nofile, none_left).expect("a lower limit");
    let refused = SessionRequest::new()
        .provider(ProviderRequest::new("Nothing"))
        .start_callback(|_| {});
    setrlimit(Resource::Nofile, limit).expect("the limit of before");
    assert_eq!(
        refused.err(),
        Some(SessionError::System(Errno::MFILE.raw_os_error()))
    );
    assert!(
        resident() > before + MOST_OF_THE_POOL,
        "the pool was there: nothing is shown if it was not"
    );
    while resident() > before + MOST_OF_THE_POOL {
        std::thread::sleep(Duration::from_millis(100));
    }
}
