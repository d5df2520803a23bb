//! One module per command.

pub(crate) mod collect;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod counters;
pub(crate) mod demo;
pub(crate) mod dialled;
pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod info;
pub(crate) mod join;
pub(crate) mod list_profiles;
pub(crate) mod process;
pub(crate) mod ps;
pub(crate) mod report;
pub(crate) mod rewrite;
pub(crate) mod rows;
pub(crate) mod several;
pub(crate) mod stack;
pub(crate) mod topn;
