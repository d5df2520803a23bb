//! An answer that takes long: made by a thread of its own, while the server serves others.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use dotnet_diagnostics::codec::{ErrorCode, encode_error};
use eventpipe_os::sync::Mutex;
use eventpipe_os::thread;

use crate::engine::ENGINE;

/// One at a time: clients must not be able to fill the process with threads or the disk with files.
static BUSY: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Default)]
pub(super) struct Job {
    answer: Mutex<Option<Vec<u8>>>,
}

impl Job {
    /// Starts the work. None: another one is going on, or there is no thread for it.
    pub(super) fn start(work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Option<Arc<Job>> {
        if BUSY.swap(true, Ordering::Acquire) {
            return None;
        }
        let job = Arc::new(Job::default());
        let doing = job.clone();
        let entry = Box::new(move || {
            let finish = Finish(doing);
            ENGINE.ring.never_wait();
            let answer = work();
            *finish.0.answer.lock() = Some(answer);
        });
        match thread::spawn(c"eventpipe-job", entry) {
            Ok(()) => Some(job),
            Err(_) => {
                BUSY.store(false, Ordering::Release);
                None
            }
        }
    }

    /// The answer, once.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.answer.lock().take()
    }
}

/// Runs also when the work panics, so that the client is answered and the next one may ask.
struct Finish(Arc<Job>);

impl Drop for Finish {
    fn drop(&mut self) {
        let mut answer = self.0.answer.lock();
        if answer.is_none() {
            *answer = Some(encode_error(ErrorCode::FAIL).into());
        }
        drop(answer);
        BUSY.store(false, Ordering::Release);
        super::notify();
    }
}
