//! One module for each part of the format, reading and writing side by side, so that a part is described once.

pub(crate) mod container;
pub(crate) mod description;
pub(crate) mod event;
mod fields;
pub(crate) mod labels;
pub(crate) mod metadata;
pub(crate) mod sequence_point;
pub(crate) mod stacks;
pub(crate) mod threads;
