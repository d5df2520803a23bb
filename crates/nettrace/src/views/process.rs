use super::view;
use crate::Guid;
use crate::payload::Utf16;
use crate::runtime_events::{EVENT_PIPE, RUNDOWN, RUNTIME};

view! {
    /// Which process was traced. Sent when any session of the process stops: a stream can hold several.
    ProcessInfo = [EVENT_PIPE, 1] {
        /// Command line; of a hosted runtime only the host's path.
        command_line: Utf16<'a> = "CommandLine",
        /// "Linux", "Windows", "macOS", … (.NET 5).
        os: Option<Utf16<'a>> = "OSInformation",
        /// "x64", "arm64", … (.NET 5).
        arch: Option<Utf16<'a>> = "ArchInformation",
    }
}

view! {
    /// Which runtime it is.
    RuntimeInformation = [RUNTIME, 187] [RUNDOWN, 187] {
        /// 1 desktop, 2 Core, 4 Mono.
        sku: u16 = "Sku",
        /// Version of the runtime.
        major: u16 = "VMMajorVersion",
        /// The same.
        minor: u16 = "VMMinorVersion",
        /// The same.
        build: u16 = "VMBuildNumber",
        /// The same.
        revision: u16 = "VMQfeNumber",
        /// Flags it was started with.
        startup_flags: u32 = "StartupFlags",
        /// Command line.
        command_line: Utf16<'a> = "CommandLine",
        /// Of a hosted component.
        com_object: Guid = "ComObjectGuid",
        /// The runtime's library.
        dll_path: Utf16<'a> = "RuntimeDllPath",
    }
}

view! {
    /// A rundown begins or is complete: 145 and 147 at the start of a session, 146 and 148 at its end.
    RundownMark = [RUNDOWN, 145..=148] {
        /// The runtime of the process.
        clr_instance: Option<u16> = "ClrInstanceID",
    }
}

view! {
    /// When the runtime was initialized, suspended at its start or resumed.
    ExecutionCheckpoint = [RUNTIME, 300] [RUNDOWN, 300] {
        /// "RuntimeInit", "RuntimeSuspend", "RuntimeResumed".
        name: Utf16<'a> = "Name",
        /// Clock at that moment, in the trace's ticks: not the event's time.
        timestamp: i64 = "Timestamp",
    }
}
