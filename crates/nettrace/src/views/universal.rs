use super::view;
use crate::runtime_events::UNIVERSAL_SYSTEM;

view! {
    /// A process existed or was created (whole-machine traces, nettrace.md 11.8). Which: the event's thread.
    ProcessStart = [UNIVERSAL_SYSTEM, 0 | 1] {
        /// Its number inside its namespace.
        namespace_id: u64 = "NamespaceId",
        /// Its name, UTF-8.
        name: &'a [u8] = "Name",
        /// Its namespace, UTF-8.
        namespace_name: &'a [u8] = "NamespaceName",
    }
}

view! {
    /// A file was mapped into the process.
    ProcessMapping = [UNIVERSAL_SYSTEM, 3] {
        /// Key of the mapping.
        id: u64 = "Id",
        /// First address.
        start_address: u64 = "StartAddress",
        /// Last address.
        end_address: u64 = "EndAddress",
        /// Where in the file it begins.
        file_offset: u64 = "FileOffset",
        /// The file, UTF-8.
        file_name: &'a [u8] = "FileName",
        /// Key of its metadata, 0 for none.
        metadata_id: u64 = "MetadataId",
    }
}

view! {
    /// A name for a range of addresses.
    ProcessSymbol = [UNIVERSAL_SYSTEM, 4] {
        /// Key of the symbol.
        id: u64 = "Id",
        /// Key of its mapping.
        mapping_id: u64 = "MappingId",
        /// First address.
        start_address: u64 = "StartAddress",
        /// Last address.
        end_address: u64 = "EndAddress",
        /// Name, UTF-8.
        name: &'a [u8] = "Name",
    }
}

view! {
    /// What is known about a mapped file, as JSON texts.
    ProcessMappingMetadata = [UNIVERSAL_SYSTEM, 5] {
        /// Key.
        id: u64 = "Id",
        /// Build id and the like.
        symbol_metadata: &'a [u8] = "SymbolMetadata",
        /// Versions.
        version_metadata: &'a [u8] = "VersionMetadata",
    }
}
