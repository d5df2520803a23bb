//! Providers with few events: the stress log, the sample profiler, and Universal.System, whose strings are not as
//! its metadata says (nettrace.md 11.8).

use super::row::Type::{I32, ShortUtf8, U8, Utf8, VarU};
use super::row::{CLR1, RuntimeEvent, row, w};
use super::runtime::{STACK_WALK, STACK_WALK_SHOWN};

pub(super) static STRESS: &[RuntimeEvent] = &[
    row(
        0,
        "StressLogTraceData",
        "StressLog",
        1,
        "Start",
        &[
            w("Facility", I32),
            w("LogLevel", U8),
            w("Message", Utf8),
            CLR1,
        ],
        "",
    ),
    row(
        1,
        "ClrStackWalkTraceData",
        "ClrStack",
        82,
        "Walk",
        STACK_WALK,
        STACK_WALK_SHOWN,
    ),
];

pub(super) static SAMPLE_PROFILER: &[RuntimeEvent] = &[row(
    0,
    "ClrThreadSampleTraceData",
    "Thread",
    1,
    "Sample",
    &[w("Type", I32)],
    "",
)];

const PROCESS: &[super::row::Wire] = &[
    w("NamespaceId", VarU),
    w("Name", ShortUtf8),
    w("NamespaceName", ShortUtf8),
];

pub(super) static UNIVERSAL_SYSTEM: &[RuntimeEvent] = &[
    row(
        0,
        "ProcessCreateTraceData",
        "ExistingProcess",
        0,
        "",
        PROCESS,
        "",
    ),
    row(
        1,
        "ProcessCreateTraceData",
        "ProcessCreate",
        0,
        "",
        PROCESS,
        "",
    ),
    row(2, "EmptyTraceData", "ProcessExit", 0, "", &[], ""),
    row(
        3,
        "ProcessMappingTraceData",
        "ProcessMapping",
        0,
        "",
        &[
            w("Id", VarU),
            w("StartAddress", VarU),
            w("EndAddress", VarU),
            w("FileOffset", VarU),
            w("FileName", ShortUtf8),
            w("MetadataId", VarU),
        ],
        "",
    ),
    row(
        4,
        "ProcessSymbolTraceData",
        "ProcessSymbol",
        0,
        "",
        &[
            w("Id", VarU),
            w("MappingId", VarU),
            w("StartAddress", VarU),
            w("EndAddress", VarU),
            w("Name", ShortUtf8),
        ],
        "",
    ),
    row(
        5,
        "ProcessMappingMetadataTraceData",
        "ProcessMappingMetadata",
        0,
        "",
        &[
            w("Id", VarU),
            w("SymbolMetadata", ShortUtf8),
            w("VersionMetadata", ShortUtf8),
        ],
        "",
    ),
];
