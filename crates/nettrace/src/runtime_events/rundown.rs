//! Microsoft-Windows-DotNETRuntimeRundown: what was there before, or is there at the end. The ids are not those of
//! the runtime's provider (nettrace.md 11.2).

use super::row::Type::{I32, I64};
use super::row::{CLR, CLR1, RuntimeEvent, row, w};
use super::runtime::{
    APP_DOMAIN, ASSEMBLY, ASSEMBLY_SHOWN, CHECKPOINT, CODE_SYMBOLS, CODE_SYMBOLS_SHOWN,
    DOMAIN_MODULE, DOMAIN_MODULE_SHOWN, IL_MAP, IL_MAP_SHOWN, METHOD, METHOD_SHOWN, METHOD_VERBOSE,
    METHOD_VERBOSE_SHOWN, MODULE, MODULE_SHOWN, RUNTIME_INFORMATION, STACK_WALK, STACK_WALK_SHOWN,
    THREAD_CREATED, TIERED_SETTINGS,
};

/// In ascending order of ids.
#[rustfmt::skip]
pub(super) static EVENTS: &[RuntimeEvent] = &[
    row(0, "ClrStackWalkTraceData", "ClrStack", 82, "Walk", STACK_WALK, STACK_WALK_SHOWN),
    row(10, "GCSettingsRundownTraceData", "GC", 10, "SettingsRundown",
        &[w("HardLimit", I64), w("LOHThreshold", I64), w("PhysicalMemoryConfig", I64), w("Gen0MinBudgetConfig", I64),
          w("Gen0MaxBudgetConfig", I64), w("HighMemPercentConfig", I32), w("BitSettings", I32), CLR], ""),
    row(141, "MethodLoadUnloadTraceData", "Method", 35, "DCStart", METHOD, METHOD_SHOWN),
    row(142, "MethodLoadUnloadTraceData", "Method", 36, "DCStop", METHOD, METHOD_SHOWN),
    row(143, "MethodLoadUnloadVerboseTraceData", "Method", 39, "DCStartVerbose", METHOD_VERBOSE, METHOD_VERBOSE_SHOWN),
    row(144, "MethodLoadUnloadVerboseTraceData", "Method", 40, "DCStopVerbose", METHOD_VERBOSE, METHOD_VERBOSE_SHOWN),
    row(145, "DCStartEndTraceData", "Method", 14, "DCStartComplete", &[CLR1], ""),
    row(146, "DCStartEndTraceData", "Method", 15, "DCStopComplete", &[CLR1], ""),
    row(147, "DCStartEndTraceData", "Method", 16, "DCStartInit", &[CLR1], ""),
    row(148, "DCStartEndTraceData", "Method", 17, "DCStopInit", &[CLR1], ""),
    row(149, "MethodILToNativeMapTraceData", "Method", 41, "ILToNativeMapDCStart", IL_MAP, IL_MAP_SHOWN),
    row(150, "MethodILToNativeMapTraceData", "Method", 42, "ILToNativeMapDCStop", IL_MAP, IL_MAP_SHOWN),
    row(151, "DomainModuleLoadUnloadTraceData", "Loader", 46, "DomainModuleDCStart", DOMAIN_MODULE,
        DOMAIN_MODULE_SHOWN),
    row(152, "DomainModuleLoadUnloadTraceData", "Loader", 47, "DomainModuleDCStop", DOMAIN_MODULE,
        DOMAIN_MODULE_SHOWN),
    row(153, "ModuleLoadUnloadTraceData", "Loader", 35, "ModuleDCStart", MODULE, MODULE_SHOWN),
    row(154, "ModuleLoadUnloadTraceData", "Loader", 36, "ModuleDCStop", MODULE, MODULE_SHOWN),
    row(155, "AssemblyLoadUnloadTraceData", "Loader", 39, "AssemblyDCStart", ASSEMBLY, ASSEMBLY_SHOWN),
    row(156, "AssemblyLoadUnloadTraceData", "Loader", 40, "AssemblyDCStop", ASSEMBLY, ASSEMBLY_SHOWN),
    row(157, "AppDomainLoadUnloadTraceData", "Loader", 43, "AppDomainDCStart", APP_DOMAIN, ""),
    row(158, "AppDomainLoadUnloadTraceData", "Loader", 44, "AppDomainDCStop", APP_DOMAIN, ""),
    row(159, "ThreadCreatedTraceData", "Loader", 48, "ThreadDCStop", THREAD_CREATED, ""),
    row(187, "RuntimeInformationTraceData", "Runtime", 1, "Start", RUNTIME_INFORMATION, ""),
    row(188, "CodeSymbolsTraceData", "CodeSymbolsRundown", 1, "Start", CODE_SYMBOLS, CODE_SYMBOLS_SHOWN),
    row(280, "TieredCompilationSettingsTraceData", "TieredCompilationRundown", 11, "SettingsDCStart",
        TIERED_SETTINGS, ""),
    row(300, "ExecutionCheckpointTraceData", "ExecutionCheckpointRundown", 11, "ExecutionCheckpointDCEnd",
        CHECKPOINT, ""),
];
