//! One module per command.

pub(crate) mod completions;
pub(crate) mod info;
pub(crate) mod report;
pub(crate) mod rewrite;
