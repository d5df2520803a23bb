//! Names of types, learned from BulkType events. FinalizeObject says only the type's id.

use alloc::string::String;

use hashbrown::HashMap;

use crate::payload::{Fields, Value};

/// Type ids to names, per process. Types that come beyond the first million are not remembered.
#[derive(Clone, Debug, Default)]
pub struct TypeNames {
    names: HashMap<(u64, u64), String>,
}

const MOST_TYPES: usize = 1 << 20;
#[cfg(feature = "std")]
const BULK_TYPE: u32 = 15;

impl TypeNames {
    /// Remembers the types of a BulkType event (runtime, id 15).
    pub fn learn(&mut self, process_id: u64, fields: Fields<'_>) {
        let Some(Value::Array(types)) = fields.get("Values") else {
            return;
        };
        for one in types {
            let Value::Object(fields) = one else { continue };
            let id = fields.get("TypeID").and_then(|value| value.as_u64());
            let (Some(id), Some(Value::String(name))) = (id, fields.get("TypeName")) else {
                continue;
            };
            if self.names.len() < MOST_TYPES || self.names.contains_key(&(process_id, id)) {
                self.names.insert((process_id, id), name.chars().collect());
            }
        }
    }

    /// Remembers the types of an event, if it is one that names some.
    #[cfg(feature = "std")]
    pub fn see(&mut self, event: &crate::Event<'_>) {
        let metadata = event.metadata();
        if metadata.event_id == BULK_TYPE && metadata.provider == super::RUNTIME {
            self.learn(event.process_id(), event.schema().fields(event.payload()));
        }
    }

    /// The name of a type, if an event told it already.
    pub fn name(&self, process_id: u64, type_id: u64) -> Option<&str> {
        self.names.get(&(process_id, type_id)).map(String::as_str)
    }
}
