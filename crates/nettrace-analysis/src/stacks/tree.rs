//! Each stack once.

use nettrace::Event;
use std::collections::HashMap;

/// A place in a process's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The process, as in [`Event::process_id`].
    pub process_id: u64,
    /// The address: where the call of the next inner frame returns to, of the innermost one where it is.
    pub address: u64,
}

/// A stack in a [`CallTree`]: its innermost frame, with the rest as its parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(u32);

impl Node {
    /// The empty stack.
    pub const ROOT: Node = Node(0);

    fn place(self) -> usize {
        self.0 as usize
    }
}

/// All stacks of a trace, as a tree from the outermost frames on.
#[derive(Debug)]
pub struct CallTree {
    /// Parent and frame of each node; the first is the root's.
    nodes: Vec<(Node, Frame)>,
    places: HashMap<(Node, Frame), Node>,
    /// Place of the frames in a stack being put in, outermost last.
    scratch: Vec<u64>,
}

impl Default for CallTree {
    fn default() -> CallTree {
        let nothing = Frame {
            process_id: 0,
            address: 0,
        };
        CallTree {
            nodes: vec![(Node::ROOT, nothing)],
            places: HashMap::new(),
            scratch: Vec::new(),
        }
    }
}

impl CallTree {
    /// The node of an event's stack; the root's if it has none.
    pub fn add(&mut self, event: &Event<'_>) -> Node {
        let mut frames = core::mem::take(&mut self.scratch);
        frames.clear();
        frames.extend(event.stack().frames());
        let node = self.add_frames(event.process_id(), frames.iter().rev().copied());
        self.scratch = frames;
        node
    }

    /// The node of the stack with these addresses, from the outermost on. Beyond 2^32 − 1 different nodes stacks are cut there.
    fn add_frames(&mut self, process_id: u64, frames: impl Iterator<Item = u64>) -> Node {
        let mut node = Node::ROOT;
        for address in frames {
            let frame = Frame {
                process_id,
                address,
            };
            let next = match self.places.get(&(node, frame)) {
                Some(next) => *next,
                None => {
                    let Ok(number) = u32::try_from(self.nodes.len()) else {
                        return node;
                    };
                    self.nodes.push((node, frame));
                    self.places.insert((node, frame), Node(number));
                    Node(number)
                }
            };
            node = next;
        }
        node
    }

    /// The frames of a stack, from the innermost on.
    pub fn frames(&self, node: Node) -> impl Iterator<Item = Frame> {
        let mut next = node;
        std::iter::from_fn(move || {
            if next == Node::ROOT {
                return None;
            }
            let (parent, frame) = *self.nodes.get(next.place())?;
            next = parent;
            Some(frame)
        })
    }

    /// All frames that occur, each once, in no order.
    pub fn all_frames(&self) -> impl Iterator<Item = Frame> {
        let mut frames: Vec<Frame> = self.nodes.iter().skip(1).map(|(_, frame)| *frame).collect();
        frames.sort_unstable();
        frames.dedup();
        frames.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut tree = CallTree::default();
        let a = tree.add_frames(1, [10, 20, 30].into_iter());
        let b = tree.add_frames(1, [10, 20, 40].into_iter());
        assert_eq!(tree.add_frames(1, [10, 20, 30].into_iter()), a);
        assert_ne!(tree.add_frames(2, [10, 20, 30].into_iter()), a);
        assert_eq!(tree.add_frames(1, std::iter::empty()), Node::ROOT);
        let addresses = |node| tree.frames(node).map(|frame| frame.address);
        assert_eq!(addresses(a).collect::<Vec<_>>(), [30, 20, 10]);
        assert_eq!(addresses(b).collect::<Vec<_>>(), [40, 20, 10]);
        assert_eq!(addresses(Node::ROOT).count(), 0);
        // Root, four of the first process, three of the second.
        assert_eq!(tree.nodes.len(), 8);
        assert_eq!(tree.all_frames().count(), 7);
    }
}
