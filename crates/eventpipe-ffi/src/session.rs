//! Sessions that the program starts itself.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Mutex, OnceLock, PoisonError};

use eventpipe::{Session, SessionError, SessionRequest, parse_provider_string};

use crate::{Status, guarded, text};

fn sessions() -> &'static Mutex<HashMap<u64, Session>> {
    static SESSIONS: OnceLock<Mutex<HashMap<u64, Session>>> = OnceLock::new();
    SESSIONS.get_or_init(Mutex::default)
}

/// See eventpipe.h.
///
/// # Safety
/// The texts are null or closed by zeros; `session` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventpipe_session_start_file(
    path: *const c_char,
    providers: *const c_char,
    buffer_mb: u32,
    session: *mut u64,
) -> Status {
    // SAFETY: the caller's promise.
    let path = unsafe { text(path) };
    // SAFETY: the caller's promise.
    let providers = unsafe { text(providers) };
    let (Some(path), Some(providers), false) = (path, providers, session.is_null()) else {
        return Status::InvalidArgument;
    };
    let started = guarded(Err(Status::Internal), || start(path, providers, buffer_mb));
    match started {
        Ok(id) => {
            // SAFETY: the caller's promise.
            unsafe { session.write(id) };
            Status::Ok
        }
        Err(status) => status,
    }
}

fn start(path: &str, providers: &str, buffer_mb: u32) -> Result<u64, Status> {
    let providers = parse_provider_string(providers).map_err(|_| Status::InvalidArgument)?;
    let request = SessionRequest::new().buffer_mb(buffer_mb);
    let request = providers
        .into_iter()
        .fold(request, SessionRequest::provider);
    let session = request.start_file(path).map_err(|error| match error {
        SessionError::TooManySessions => Status::TooManySessions,
        SessionError::NoProviders => Status::InvalidArgument,
        SessionError::ShuttingDown => Status::ShuttingDown,
        SessionError::System(_) | SessionError::File(_) => Status::System,
        _ => Status::Internal,
    })?;
    let id = session.id().0;
    sessions()
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(id, session);
    Ok(id)
}

/// See eventpipe.h.
#[unsafe(no_mangle)]
pub extern "C" fn eventpipe_session_stop(session: u64) -> Status {
    let known = sessions()
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&session);
    match known {
        None => Status::InvalidArgument,
        Some(session) => guarded(Status::Internal, || {
            if session.stop() {
                Status::Ok
            } else {
                Status::System
            }
        }),
    }
}
