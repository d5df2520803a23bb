//! A core dump for a client (ipc.md 2.2).

use alloc::string::String;
use alloc::vec::Vec;

use dotnet_diagnostics::codec::{
    DumpType, DumpVersion, ErrorCode, GenerateCoreDump, encode_error, encode_error_with_message,
    encode_result,
};
use eventpipe_os::dump::{Content, write_core};
use eventpipe_os::{Error, clock, process};

use super::commands::Answer;
use super::job::Job;
use crate::{message, process_info};

/// The switches for the dump program's log and crash report have no effect: there is no such program.
pub(super) fn generate(request: GenerateCoreDump) -> Answer {
    let content = match request.dump_type {
        // A triage dump has no fewer personal data here than a normal one: both have the stacks.
        DumpType::NORMAL | DumpType::TRIAGE => Content::Stacks,
        DumpType::WITH_HEAP => Content::Heap,
        DumpType::FULL => Content::Full,
        _ => return refuse(request.version, "the type of dump is none of the four"),
    };
    let version = request.version;
    let path = match file_name(&request.path) {
        Ok(path) => path,
        Err(letter) => return refuse(version, &unknown_letter(letter)),
    };
    let job = Job::start(move || match write_core(path.as_bytes(), content) {
        Ok(()) => encode_result().into(),
        Err(error) => failure(version, &text(error, &path)),
    });
    match job {
        Some(job) => Answer::Later(job),
        None => refuse(version, "a dump or a perf map is being made already"),
    }
}

fn refuse(version: DumpVersion, text: &str) -> Answer {
    Answer::Message(failure(version, text))
}

/// Only version 3 has a text in its error.
fn failure(version: DumpVersion, text: &str) -> Vec<u8> {
    match version {
        DumpVersion::V3 => encode_error_with_message(ErrorCode::FAIL, text),
        _ => encode_error(ErrorCode::FAIL).into(),
    }
}

/// The name of the file, made of its template as the dump program of .NET does it: `%p` and `%d` are the process's id, `%e` the executable,
/// `%h` the host, `%t` the seconds since 1970, `%%` is one. A `%` at the end is dropped; another letter is an error.
fn file_name(template: &str) -> Result<String, char> {
    let mut name = String::new();
    let mut rest = template.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            name.push(character);
            continue;
        }
        match rest.next() {
            Some('%') => name.push('%'),
            Some('p' | 'd') => name.push_str(&message::decimal(u64::from(process::pid()))),
            Some('e') => name.push_str(&process_info::text(&process::executable_name())),
            Some('h') => {
                let host = rustix::system::uname();
                name.push_str(&process_info::text(host.nodename().to_bytes()));
            }
            Some('t') => {
                let seconds = clock::utc_now().unix_ns / 1_000_000_000;
                name.push_str(&message::decimal(seconds));
            }
            Some(letter) => return Err(letter),
            None => {}
        }
    }
    Ok(name)
}

fn unknown_letter(letter: char) -> String {
    let mut text = String::from("the name has a % before the letter ");
    text.push(letter);
    text
}

fn text(error: Error, path: &str) -> String {
    let mut text = String::from(error.call);
    text.push_str(" failed with error ");
    text.push_str(&message::decimal(u64::from(error.number.unsigned_abs())));
    text.push_str(" (");
    // The answer is one message: a path of any length does not fit.
    text.extend(path.chars().take(400));
    text.push(')');
    text
}
