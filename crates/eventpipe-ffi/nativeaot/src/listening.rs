//! Sessions of the program itself: EventListener pulls the runtime's own events through these.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::slice;

use eventpipe::{
    Event, Guid, HeardEvent, Listener, Provider, ProviderRequest, Session, SessionRequest,
};
use eventpipe_os::sync::Mutex;

use crate::text;

/// What a session asks of a provider.
#[repr(C)]
struct ProviderConfiguration {
    name: *const u16,
    keywords: u64,
    level: u32,
    filter: *const u16,
}

/// 1970 on the clock that counts 100 ns since 1601.
const FILE_TIME_OF_1970: i64 = 116_444_736_000_000_000;

/// Start of a session, by the wall clock (100 ns since 1601) and by the clock of time stamps.
#[repr(C)]
struct SessionInfo {
    start_file_time: i64,
    start_ticks: i64,
    ticks_per_second: u64,
}

/// An event for the class library.
#[repr(C)]
struct EventInstance {
    provider: *const Provider,
    event_id: u32,
    thread_id: u32,
    timestamp: i64,
    activity_id: Guid,
    related_activity_id: Guid,
    payload: *const u8,
    payload_length: u32,
}

enum Open {
    File(Session),
    Listener {
        listener: Arc<Listener>,
        /// The event that was given last: its payload stays where it is until the next one is asked for.
        current: Option<HeardEvent>,
    },
}

static OPEN: Mutex<Vec<(u64, Open)>> = Mutex::new(Vec::new());

fn listener(id: u64) -> Option<Arc<Listener>> {
    OPEN.lock().iter().find_map(|(known, open)| match open {
        Open::Listener { listener, .. } if *known == id => Some(listener.clone()),
        _ => None,
    })
}

/// Starts a session: into a file, or for `EventPipeInternal_GetNextEvent` when `file` is null. Returns its id, 0 when it did not start.
///
/// # Safety
/// `file` is null or zero-terminated; `providers` points to `count` configurations.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_Enable(
    file: *const u16,
    _format: u32,
    buffer_mb: u32,
    providers: *const ProviderConfiguration,
    count: u32,
) -> u64 {
    if providers.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let configurations = unsafe { slice::from_raw_parts(providers, count as usize) };
    let mut request = SessionRequest::new().buffer_mb(buffer_mb).stacks(false);
    for configuration in configurations {
        // SAFETY: the caller's promise.
        let name = unsafe { text::string(configuration.name) };
        // SAFETY: the caller's promise.
        let filter = unsafe { text::string(configuration.filter) };
        let mut provider = ProviderRequest::new(name).keywords(configuration.keywords);
        provider.level = configuration.level;
        if !filter.is_empty() {
            provider = provider.arguments(filter);
        }
        request = request.provider(provider);
    }
    let (id, open) = if file.is_null() {
        let Ok(listener) = request.listen() else {
            return 0;
        };
        let id = listener.session().id().0;
        let listener = Arc::new(listener);
        (
            id,
            Open::Listener {
                listener,
                current: None,
            },
        )
    } else {
        // SAFETY: the caller's promise.
        let path = unsafe { text::string(file) };
        let Ok(session) = request.start_file(&path) else {
            return 0;
        };
        (session.id().0, Open::File(session))
    };
    OPEN.lock().push((id, open));
    id
}

/// Stops a session.
#[unsafe(no_mangle)]
extern "C" fn EventPipeInternal_Disable(id: u64) {
    let closed = {
        let mut open = OPEN.lock();
        let position = open.iter().position(|(known, _)| *known == id);
        position.map(|position| open.swap_remove(position).1)
    };
    match closed {
        Some(Open::File(session)) => _ = session.stop(),
        Some(Open::Listener { listener, .. }) => {
            listener.stop();
            listener.signal();
        }
        None => {}
    }
}

/// 1 when the session is known.
///
/// # Safety
/// `info` is null or a place for the answer.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_GetSessionInfo(id: u64, info: *mut SessionInfo) -> i32 {
    let Some(listener) = listener(id).filter(|_| !info.is_null()) else {
        return 0;
    };
    let start = listener.start();
    let answer = SessionInfo {
        start_file_time: start.start.unix_ns() as i64 / 100 + FILE_TIME_OF_1970,
        start_ticks: start.sync_ticks,
        ticks_per_second: start.ticks_per_second.unsigned_abs(),
    };
    // SAFETY: the caller's promise.
    unsafe { info.write(answer) };
    1
}

/// The next event in the order of time; 0 when there is none. The payload stays until the next call.
///
/// # Safety
/// `instance` is null or a place for the answer.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_GetNextEvent(id: u64, instance: *mut EventInstance) -> i32 {
    if instance.is_null() {
        return 0;
    }
    let mut open = OPEN.lock();
    let found = open.iter_mut().find(|(known, _)| *known == id);
    let Some((_, Open::Listener { listener, current })) = found else {
        return 0;
    };
    *current = listener.next();
    let Some(heard) = current else { return 0 };
    let event: &'static Event = heard.event;
    let answer = EventInstance {
        provider: event.provider(),
        event_id: event.definition().event_id(),
        thread_id: heard.thread_id as u32,
        timestamp: heard.timestamp_ns as i64,
        activity_id: heard.activity_id,
        related_activity_id: heard.related_activity_id,
        payload: heard.payload.as_ptr(),
        payload_length: heard.payload.len() as u32,
    };
    // SAFETY: the caller's promise.
    unsafe { instance.write(answer) };
    1
}

/// Wakes whoever waits for the session.
#[unsafe(no_mangle)]
extern "C" fn EventPipeInternal_SignalSession(id: u64) -> i32 {
    match listener(id) {
        Some(listener) => {
            listener.signal();
            1
        }
        None => 0,
    }
}

/// Waits for events or a signal: 1; 0 when the time is over or the session is not known. A negative time is for ever.
#[unsafe(no_mangle)]
extern "C" fn EventPipeInternal_WaitForSessionSignal(id: u64, timeout_ms: i32) -> i32 {
    let timeout_ns = u64::try_from(timeout_ms)
        .ok()
        .map(|milliseconds| milliseconds * 1_000_000);
    listener(id).is_some_and(|listener| listener.wait(timeout_ns)) as i32
}
