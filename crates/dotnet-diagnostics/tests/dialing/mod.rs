//! Processes that dial in, as a listening port sees them.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use dotnet_diagnostics::codec::{Advertise, Guid};

/// A place for a port that nobody else uses.
pub(crate) fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dd-port-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Dials in as the process 40 + `cookie`.
pub(crate) fn dial(path: &Path, cookie: u8) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    let advertise = Advertise {
        runtime_cookie: Guid([cookie; 16]),
        process_id: 40 + u64::from(cookie),
    };
    stream.write_all(&advertise.encode()).unwrap();
    stream
}
