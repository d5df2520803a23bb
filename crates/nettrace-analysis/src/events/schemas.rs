use std::collections::HashMap;

use nettrace::{Metadata, Schema};

/// The schemas of a trace's types of events, made when first needed.
///
/// A V6 stream may forget its metadata and give the ids to others; a schema is then made anew, so it is compared
/// with what it was made from.
#[derive(Debug, Default)]
pub struct Schemas {
    pointer_size: u32,
    by_id: HashMap<u32, (Metadata, Schema)>,
}

/// More types of events than this in one trace are forgotten again, to bound memory.
const MOST_SCHEMAS: usize = 1 << 16;

impl Schemas {
    /// For a trace with pointers of this size.
    pub fn new(pointer_size: u32) -> Schemas {
        Schemas {
            pointer_size,
            by_id: HashMap::new(),
        }
    }

    /// The schema of events with this metadata.
    pub fn get(&mut self, metadata: &Metadata) -> &Schema {
        let current = self
            .by_id
            .get(&metadata.id)
            .is_some_and(|(made_from, _)| made_from == metadata);
        if !current {
            if self.by_id.len() >= MOST_SCHEMAS {
                self.by_id.clear();
            }
            let schema = Schema::new(metadata, self.pointer_size);
            self.by_id.insert(metadata.id, (metadata.clone(), schema));
        }
        &self.by_id[&metadata.id].1
    }
}
