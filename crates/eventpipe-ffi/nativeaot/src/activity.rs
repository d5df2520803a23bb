//! Activity ids of threads, as the class library asks for them.

use eventpipe::{Guid, activity};

const DONE: i32 = 0;
const INVALID: i32 = 1;

/// `EventPipeInternal_EventActivityIdControl`: reads or changes the current activity of the calling thread.
///
/// # Safety
/// `id` is null or 16 bytes that can be read and written.
#[unsafe(no_mangle)]
unsafe extern "C" fn EventPipeInternal_EventActivityIdControl(code: u32, id: *mut Guid) -> i32 {
    if id.is_null() {
        return INVALID;
    }
    let answer = match code {
        1 => activity::current().unwrap_or(Guid::ZERO),
        2 => {
            // SAFETY: the caller's promise; a Guid is bytes.
            activity::set_current(unsafe { id.read() });
            return DONE;
        }
        3 => activity::create(),
        4 => {
            // SAFETY: the caller's promise.
            let new = unsafe { id.read() };
            activity::set_current(new)
        }
        5 => activity::set_current(activity::create()),
        _ => return INVALID,
    };
    // SAFETY: the caller's promise.
    unsafe { id.write(answer) };
    DONE
}
