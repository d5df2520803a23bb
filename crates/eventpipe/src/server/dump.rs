//! A core dump for a client (ipc.md 2.2).

use alloc::string::String;
use alloc::vec::Vec;

use dotnet_diagnostics::codec::{
    DumpType, DumpVersion, ErrorCode, GenerateCoreDump, encode_error, encode_error_with_message,
    encode_result,
};
use eventpipe_os::Error;
use eventpipe_os::dump::{Content, write_core};

use super::commands::Answer;
use super::job::Job;
use crate::message;

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
    let job = Job::start(move || match write_core(request.path.as_bytes(), content) {
        Ok(()) => encode_result().into(),
        Err(error) => failure(version, &text(error, &request.path)),
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
