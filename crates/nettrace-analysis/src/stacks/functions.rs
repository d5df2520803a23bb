//! Functions by the time or events on and below them.

use super::{CodeNames, Frame, Node, Samples};
use serde::Serialize;
use std::collections::HashMap;

/// What stands for a stack without frames.
const NO_STACK: &str = "(no stack)";

/// A table of functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Functions {
    /// The sum over all stacks: nanoseconds or events.
    pub total: u64,
    /// Of it, what has no name: frames of which the trace tells nothing.
    pub unnamed: u64,
    /// The functions, the one with the largest exclusive part first.
    #[serde(rename = "functions")]
    pub rows: Vec<Function>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// As [`CodeNames::name`] gives it.
    pub name: String,
    /// In the function itself: nanoseconds or events.
    pub exclusive: u64,
    /// In it and what it called. A function that calls itself counts once.
    pub inclusive: u64,
    /// Of the sum, in percent.
    pub exclusive_percent: f64,
    /// Of the sum, in percent.
    pub inclusive_percent: f64,
}

/// The functions of a trace.
pub fn functions(samples: &Samples, names: &CodeNames) -> Functions {
    let mut by_node: HashMap<Node, u64> = HashMap::new();
    for ((node, _), weight) in samples.threads().flat_map(|thread| &thread.sums) {
        add(by_node.entry(*node).or_default(), *weight);
    }
    let mut table = Table::new(names);
    let tree = samples.tree();
    let (mut total, mut unnamed) = (0_u64, 0_u64);
    let mut on_stack = Vec::new();
    for (node, weight) in by_node {
        add(&mut total, weight);
        on_stack.clear();
        on_stack.extend(tree.frames(node).map(|frame| table.function(frame)));
        match on_stack.first() {
            Some(&(function, is_named)) => {
                add(&mut table.rows[function].exclusive, weight);
                if !is_named {
                    add(&mut unnamed, weight);
                }
            }
            None => {
                let function = table.by_name(NO_STACK.to_owned());
                add(&mut table.rows[function].exclusive, weight);
                on_stack.push((function, true));
            }
        }
        on_stack.sort_unstable();
        on_stack.dedup();
        for (function, _) in &on_stack {
            add(&mut table.rows[*function].inclusive, weight);
        }
    }
    let mut rows = table.rows;
    let percent = |part: u64| 100.0 * part as f64 / (total.max(1)) as f64;
    for row in &mut rows {
        row.exclusive_percent = percent(row.exclusive);
        row.inclusive_percent = percent(row.inclusive);
    }
    rows.sort_by(|a, b| {
        (b.exclusive, b.inclusive)
            .cmp(&(a.exclusive, a.inclusive))
            .then_with(|| a.name.cmp(&b.name))
    });
    Functions {
        total,
        unnamed,
        rows,
    }
}

/// Times of a trace may be anything.
fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

/// Functions by name.
struct Table<'a> {
    names: &'a CodeNames,
    by_frame: HashMap<Frame, (usize, bool)>,
    places: HashMap<String, usize>,
    rows: Vec<Function>,
}

impl<'a> Table<'a> {
    fn new(names: &'a CodeNames) -> Table<'a> {
        Table {
            names,
            by_frame: HashMap::new(),
            places: HashMap::new(),
            rows: Vec::new(),
        }
    }

    /// The frame's function, and whether it has a name.
    fn function(&mut self, frame: Frame) -> (usize, bool) {
        if let Some(found) = self.by_frame.get(&frame) {
            return *found;
        }
        let is_named = self.names.find(frame).is_some();
        let found = (self.by_name(self.names.name(frame).into_owned()), is_named);
        self.by_frame.insert(frame, found);
        found
    }

    fn by_name(&mut self, name: String) -> usize {
        let place = *self.places.entry(name.clone()).or_insert(self.rows.len());
        if place == self.rows.len() {
            self.rows.push(Function {
                name,
                exclusive: 0,
                inclusive: 0,
                exclusive_percent: 0.0,
                inclusive_percent: 0.0,
            });
        }
        place
    }
}
