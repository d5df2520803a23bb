//! Ids of descriptions in the target.

use std::vec::Vec;

use hashbrown::HashMap;

use crate::{Metadata, TraceWriter, Unrepresentable, WriteError, unrepresentable};

/// Opcode, keywords, level and version of an event that differ from its description's.
pub(super) type Overrides = (u8, u64, u32, u32);

/// Which id of the target stands for which description of which source. A description of V6 that single events
/// override becomes several in V4.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    plain: HashMap<(u32, u32), u32>,
    overridden: HashMap<(u32, u32, Overrides), u32>,
    last: Option<((u32, u32), u32)>,
    count: u32,
}

impl Descriptions {
    /// The id of a description, which is written if it is new; with it what of it the format cannot hold.
    #[inline]
    pub(super) fn define(
        &mut self,
        source: u32,
        metadata: &Metadata,
        overrides: Option<Overrides>,
        writer: &mut TraceWriter,
    ) -> Result<(u32, Vec<Unrepresentable>), WriteError> {
        let key = (source, metadata.id);
        match (overrides, self.last) {
            (None, Some((last, id))) if last == key => return Ok((id, Vec::new())),
            _ => {}
        }
        let known = match overrides {
            None => self.plain.get(&key),
            Some(overrides) => self.overridden.get(&(source, metadata.id, overrides)),
        };
        if let Some(&id) = known {
            if overrides.is_none() {
                self.last = Some((key, id));
            }
            return Ok((id, Vec::new()));
        }
        self.count = self.count.wrapping_add(1);
        let id = self.count;
        let mut target = Metadata {
            id,
            ..metadata.clone()
        };
        if let Some(overrides) = overrides {
            (target.opcode, target.keywords, target.level, target.version) = overrides;
        }
        let lost = unrepresentable(&target, writer.format());
        writer.define_event(&target)?;
        match overrides {
            None => drop(self.plain.insert(key, id)),
            Some(overrides) => drop(self.overridden.insert((source, metadata.id, overrides), id)),
        }
        Ok((id, lost))
    }

    /// The source defines an id anew.
    pub(super) fn forget(&mut self, source: u32, id: u32) {
        if self.plain.remove(&(source, id)).is_some() {
            self.overridden
                .retain(|&(from, metadata, _), _| (from, metadata) != (source, id));
        }
        self.last = None;
    }

    /// The source may use all ids again.
    pub(super) fn forget_all(&mut self) {
        self.plain.clear();
        self.overridden.clear();
        self.last = None;
    }
}
