//! Modules: where the program's code lies and which build it is, so that tools can name native addresses.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{c_char, c_void};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use eventpipe::{Guid, Rundown};
use eventpipe_os::text::lossy;

use crate::native::{bytes_of, enabled, native_event, write_pieces};
use crate::native_events::Native;
use crate::text;

unsafe extern "C" {
    /// Length and text of a module's path.
    #[link_name = "_Z20PalGetModuleFileNamePPKcPv"]
    fn module_file_name(name: *mut *const c_char, module: *mut c_void) -> i32;

    /// What identifies a module's symbols; the build id on systems that have one.
    #[link_name = "_Z13PalGetPDBInfoPvP14minipal_guid__PjPDsiS2_PS_"]
    fn symbol_info(
        module: *mut c_void,
        signature: *mut Guid,
        age: *mut u32,
        path: *mut u16,
        path_length: i32,
        build_id_length: *mut u32,
        build_id: *mut *const u8,
    );
}

/// Longest path in UTF-16 units, closing zero included.
const PATH_UNITS: usize = 1024;

/// As many bytes of a build id go into the event.
const BUILD_ID_BYTES: usize = 32;

/// The program's own module: the only one there is.
static PROGRAM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// A module was loaded: once for each, while the program starts.
#[unsafe(export_name = "_ZN3ETW9LoaderLog10ModuleLoadEPv")]
extern "C" fn module_load(module: *mut c_void) {
    PROGRAM.store(module, Ordering::Release);
    if let Some(event) = enabled(Native::ModuleLoadV3 as usize) {
        describe(module, &mut |pieces| write_pieces(event, pieces));
    }
}

/// The rundown at the end of a session: the module of the program.
pub(crate) fn run_down(rundown: &mut Rundown<'_>) {
    let clr = 0_u16.to_le_bytes();
    if let Some(event) = native_event(Native::DCEndInitV1 as usize) {
        rundown.write(event, &[&clr]);
    }
    if let Some(event) = native_event(Native::ModuleDCEndV3 as usize) {
        let module = PROGRAM.load(Ordering::Acquire);
        describe(module, &mut |pieces| rundown.write(event, pieces));
    }
    if let Some(event) = native_event(Native::DCEndCompleteV1 as usize) {
        rundown.write(event, &[&clr]);
    }
}

/// The payload of the events that describe a module.
fn describe(module: *mut c_void, write: &mut dyn FnMut(&[&[u8]])) {
    let path = utf16(&file_name(module));
    let mut signature = Guid::ZERO;
    let mut age = 0;
    let mut symbols = [0_u16; PATH_UNITS];
    let mut build_id_length = 0;
    let mut build_id = core::ptr::null();
    // SAFETY: a module of the runtime, and places for the answers as long as stated.
    unsafe {
        symbol_info(
            module,
            &mut signature,
            &mut age,
            symbols.as_mut_ptr(),
            PATH_UNITS as i32,
            &mut build_id_length,
            &mut build_id,
        );
    }
    if let Some(last) = symbols.last_mut() {
        *last = 0;
    }
    let build_id = if build_id.is_null() {
        &[]
    } else {
        // SAFETY: the answer's length belongs to its address, which lies in the loaded module.
        unsafe { slice::from_raw_parts(build_id, build_id_length as usize) }
    };
    let build_id = utf16(&hexadecimal(build_id));
    #[repr(C, packed)]
    struct Before(u64, u64, u32, u32, u16);
    #[repr(C, packed)]
    struct Between(u16, [u8; 16], u32);
    #[repr(C, packed)]
    struct After([u8; 16], u32);
    const NATIVE: u32 = 2;
    // The last unit is the empty path of the IL image.
    let before = Before(module as u64, 0, NATIVE, 0, 0);
    // No managed symbols: no signature, no age, and a path that is not there.
    let between = Between(0, [0; 16], 0);
    let after = After(signature.0, age);
    // SAFETY: a null pointer may be given.
    let managed_symbols = unsafe { text::payload(core::ptr::null()) };
    // SAFETY: a buffer whose last unit is zero.
    let symbols = unsafe { text::payload(symbols.as_ptr()) };
    write(&[
        bytes_of(&before),
        &path,
        bytes_of(&between),
        managed_symbols,
        bytes_of(&after),
        symbols,
        &build_id,
    ]);
}

fn file_name(module: *mut c_void) -> String {
    let mut name = core::ptr::null();
    // SAFETY: a module of the runtime and a place for the answer.
    let length = unsafe { module_file_name(&mut name, module) };
    let length = usize::try_from(length).unwrap_or(0);
    if name.is_null() {
        return String::new();
    }
    // SAFETY: the answer's length belongs to its address, a text that the runtime keeps.
    let bytes = unsafe { slice::from_raw_parts(name.cast::<u8>(), length) };
    lossy(bytes)
}

/// The text in UTF-16 with its closing zero, cut to what readers expect of a path.
fn utf16(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in text.encode_utf16().take(PATH_UNITS - 1) {
        bytes.extend_from_slice(&unit.to_le_bytes());
    }
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::new();
    for byte in bytes.iter().take(BUILD_ID_BYTES) {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text
}
