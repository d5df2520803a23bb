//! What the blocks of a trace define and its events name by number.

use std::sync::OnceLock;
use std::vec::Vec;

use hashbrown::HashMap;

use crate::{FormatVersion, Guid, Metadata, Schema, ThreadRow, TraceInfo};

/// Everything that an event can refer to.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) info: TraceInfo,
    pub(crate) metadata: MetadataTable,
    pub(crate) stacks: ByteTable,
    pub(crate) labels: ByteTable,
    /// V6: by index.
    pub(crate) threads: HashMap<u64, ThreadRow>,
}

impl Tables {
    pub(crate) fn new(info: TraceInfo) -> Tables {
        Tables {
            info,
            metadata: MetadataTable::default(),
            stacks: ByteTable::default(),
            labels: ByteTable::default(),
            threads: HashMap::new(),
        }
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.info.format == FormatVersion::V6
    }
}

/// Descriptions by id. A place in [`MetadataTable::rows`] stays valid until [`MetadataTable::forget`].
#[derive(Debug, Default)]
pub(crate) struct MetadataTable {
    rows: Vec<Metadata>,
    /// For each row how to name and decode its events, made when first asked for.
    schemas: Vec<OnceLock<Schema>>,
    missing_schema: OnceLock<Schema>,
    /// Place + 1 by id, for the small ids that all but V1 and V2 use; 0 is none.
    places: Vec<u32>,
    /// Place by id for the others.
    sparse: HashMap<u32, u32>,
    /// Stands for descriptions that are missing; its id is set for the event at hand.
    pub(crate) missing: Metadata,
}

/// The place of a description that is missing.
pub(crate) const MISSING: u32 = u32::MAX;

impl MetadataTable {
    /// Adds a description; `false` if its id was taken: the new one is in force then.
    pub(crate) fn insert(&mut self, metadata: Metadata) -> (u32, bool) {
        let place = self.rows.len() as u32;
        let id = metadata.id as usize;
        let is_new = self.place(metadata.id) == MISSING;
        if id < self.rows.len().saturating_mul(4).saturating_add(1024) {
            if self.places.len() <= id {
                self.places.resize(id.saturating_add(1), 0);
            }
            if let Some(known) = self.places.get_mut(id) {
                *known = place.wrapping_add(1);
            }
        } else {
            self.sparse.insert(metadata.id, place);
        }
        self.rows.push(metadata);
        self.schemas.push(OnceLock::new());
        (place, is_new)
    }

    /// Where the description of an id is.
    #[inline(always)]
    pub(crate) fn place(&self, id: u32) -> u32 {
        match self.places.get(id as usize) {
            Some(&place) if place != 0 => place.wrapping_sub(1),
            _ if self.sparse.is_empty() => MISSING,
            _ => self.sparse.get(&id).copied().unwrap_or(MISSING),
        }
    }

    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> &Metadata {
        self.rows.get(place as usize).unwrap_or(&self.missing)
    }

    #[inline]
    pub(crate) fn schema(&self, place: u32, pointer_size: u32) -> &Schema {
        let schema = self
            .schemas
            .get(place as usize)
            .unwrap_or(&self.missing_schema);
        schema.get_or_init(|| Schema::new(self.at(place), pointer_size))
    }

    pub(crate) fn rows(&self) -> &[Metadata] {
        &self.rows
    }

    pub(crate) fn forget(&mut self) {
        self.rows.clear();
        self.schemas.clear();
        self.places.clear();
        self.sparse.clear();
    }
}

/// Byte strings by number: stacks and label lists. Their blocks number them in a row.
#[derive(Debug, Default)]
pub(crate) struct ByteTable {
    bytes: Vec<u8>,
    first: u32,
    /// Start and end of the strings `first`, `first` + 1, ….
    spans: Vec<(usize, usize)>,
    sparse: HashMap<u32, (usize, usize)>,
}

impl ByteTable {
    pub(crate) fn insert(&mut self, number: u32, string: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(string);
        let span = (start, self.bytes.len());
        if self.spans.is_empty() {
            self.first = number;
        }
        let index = number.wrapping_sub(self.first) as usize;
        if index == self.spans.len() {
            self.spans.push(span);
        } else if let Some(known) = self.spans.get_mut(index) {
            *known = span;
        } else {
            self.sparse.insert(number, span);
        }
    }

    /// `None` if the number is not known.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&[u8]> {
        let index = number.wrapping_sub(self.first) as usize;
        let &(start, end) = match self.spans.get(index) {
            Some(span) => span,
            None if self.sparse.is_empty() => return None,
            None => self.sparse.get(&number)?,
        };
        self.bytes.get(start..end)
    }

    pub(crate) fn forget(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.sparse.clear();
    }
}

/// The ids and overrides in a list of labels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) activity_id: Guid,
    pub(crate) related_activity_id: Guid,
    pub(crate) opcode: Option<u8>,
    pub(crate) keywords: Option<u64>,
    pub(crate) level: Option<u8>,
    pub(crate) version: Option<u8>,
}
