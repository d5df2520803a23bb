//! What to do instead, for a command line that is not understood: most of what is tried is a word of another tool.

use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;

/// An error of the command line `words`, with what to do instead where it names a command of another tool.
pub(crate) fn with_tip<'a>(error: &'a mut clap::Error, words: &[OsString]) -> &'a clap::Error {
    // What stands behind the dashes is a command to be started, so nothing is helped by writing an option there.
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().contains("as a value, use"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(said)) => said.clone(),
        Some(ContextValue::StyledStr(said)) => said.to_string(),
        _ => String::new(),
    };
    let stray = said(ContextKind::InvalidArg);
    if !stray.is_empty()
        && !stray.starts_with('-')
        && said(ContextKind::Usage).contains("[-- <COMMAND>...]")
    {
        // A list with a blank behind its comma is two words.
        let before = words.windows(2).find(|two| *two[1] == *stray);
        let before = before.map(|two| two[0].to_string_lossy());
        let tip = match before.filter(|word| word.ends_with(',')) {
            Some(list) => format!("a list is one word, without blanks: {list}{stray}"),
            None => format!("a command to be started stands behind two dashes: -- {stray}"),
        };
        return with_tips(error, &tip);
    }
    let name = said(ContextKind::InvalidSubcommand);
    let tip = match name.as_str() {
        "gc" | "alloc" | "exceptions" | "contention" => "`eventpipe report gc FILE` and so on",
        "topN" | "topn" | "top" => "`eventpipe report topn FILE`",
        "flamegraph" | "speedscope" | "folded" => "`eventpipe convert FILE --format …`",
        "gcdump" => "`dotnet-gcdump collect` writes the objects of a process's managed heap",
        "stop" => "Ctrl+C or SIGTERM ends a recording, `eventpipe session stop` a session",
        "list" => "`eventpipe ps`",
        "stat" | "stats" => "`eventpipe report stat FILE`",
        _ if words.iter().any(|word| word.eq_ignore_ascii_case("topN")) => {
            "the trace stands behind: `eventpipe report topn FILE`"
        }
        file if std::path::Path::new(file).is_file() => {
            "`eventpipe info FILE` says what a trace is, `eventpipe report stat FILE` what is in it"
        }
        _ => return error,
    };
    with_tips(error, tip)
}

fn with_tips<'a>(error: &'a mut clap::Error, tip: &str) -> &'a clap::Error {
    let tips = vec![clap::builder::StyledStr::from(tip.to_owned())];
    // In place of a command that only looks like it.
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    error
}
