use super::view;
use crate::Guid;
use crate::payload::Utf16;
use crate::runtime_events::{RUNDOWN, RUNTIME};

view! {
    /// A module was loaded or unloaded, or was there at the start or end of a rundown.
    ModuleLoad = [RUNTIME, 149 | 150 | 152 | 153] [RUNDOWN, 153 | 154] {
        /// Key of the module.
        module_id: u64 = "ModuleID",
        /// Key of its assembly.
        assembly_id: u64 = "AssemblyID",
        /// 1 domain neutral, 2 native image, 4 dynamic, 8 manifest, 0x10 conditionally visible, 0x20 ready to run.
        flags: u32 = "ModuleFlags",
        /// File with the intermediate language.
        il_path: Utf16<'a> = "ModuleILPath",
        /// Native image; empty if none.
        native_path: Utf16<'a> = "ModuleNativePath",
        /// Key of the portable PDB: guid and age.
        managed_pdb_signature: Option<Guid> = "ManagedPdbSignature",
        /// See the signature.
        managed_pdb_age: Option<u32> = "ManagedPdbAge",
        /// Where the PDB lay when it was built.
        managed_pdb_path: Option<Utf16<'a>> = "ManagedPdbBuildPath",
        /// Key of the native image's PDB.
        native_pdb_signature: Option<Guid> = "NativePdbSignature",
        /// See the signature.
        native_pdb_age: Option<u32> = "NativePdbAge",
        /// Where it lay.
        native_pdb_path: Option<Utf16<'a>> = "NativePdbBuildPath",
    }
}

view! {
    /// The same per application domain.
    DomainModuleLoad = [RUNTIME, 151] [RUNDOWN, 151 | 152] {
        /// Key of the module.
        module_id: u64 = "ModuleID",
        /// Key of its assembly.
        assembly_id: u64 = "AssemblyID",
        /// Key of the application domain.
        app_domain_id: u64 = "AppDomainID",
        /// As in [`ModuleLoad`].
        flags: u32 = "ModuleFlags",
        /// File with the intermediate language.
        il_path: Utf16<'a> = "ModuleILPath",
        /// Native image; empty if none.
        native_path: Utf16<'a> = "ModuleNativePath",
    }
}

view! {
    /// An assembly was loaded or unloaded, or was there.
    AssemblyLoad = [RUNTIME, 154 | 155] [RUNDOWN, 155 | 156] {
        /// Key of the assembly.
        assembly_id: u64 = "AssemblyID",
        /// Key of the application domain.
        app_domain_id: u64 = "AppDomainID",
        /// 1 domain neutral, 2 dynamic, 4 native, 8 collectible, 0x10 ready to run.
        flags: u32 = "AssemblyFlags",
        /// Name with version, culture and key.
        full_name: Utf16<'a> = "FullyQualifiedAssemblyName",
        /// Key of the binding context.
        binding_id: Option<u64> = "BindingID",
    }
}

view! {
    /// An application domain was loaded or unloaded, or was there.
    AppDomainLoad = [RUNTIME, 156 | 157] [RUNDOWN, 157 | 158] {
        /// Key of the domain.
        app_domain_id: u64 = "AppDomainID",
        /// Flags.
        flags: u32 = "AppDomainFlags",
        /// Name.
        name: Utf16<'a> = "AppDomainName",
        /// Index.
        index: Option<u32> = "AppDomainIndex",
    }
}
