//! Promise: a client gets a core file of the running process, with all its threads, which gdb opens; the process goes on.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{alone, client};
use dotnet_diagnostics::Error;
use dotnet_diagnostics::codec::{DumpFlags, DumpType, DumpVersion, ErrorCode};

static RUN: AtomicBool = AtomicBool::new(true);

/// What gdb is to find.
#[unsafe(no_mangle)]
static EVENTPIPE_TEST_VALUE: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn eventpipe_test_spins_here() -> u64 {
    let mut rounds = 0_u64;
    while RUN.load(Ordering::Relaxed) {
        rounds = std::hint::black_box(rounds + 1);
    }
    rounds
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("eventpipe-test-{}-{name}", std::process::id()))
}

fn gdb(core: &Path, commands: &[&str]) -> Option<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    gdb.arg(std::env::current_exe().expect("a path")).arg(core);
    let output = match gdb.output() {
        Ok(output) => output,
        Err(error) if std::env::var_os("CI").is_some() => panic!("gdb: {error}"),
        Err(_) => {
            eprintln!("skipped: a_core_dump_opens_in_gdb: no gdb");
            return None;
        }
    };
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}

#[test]
fn every_type_shows_all_threads_and_variables() {
    let _alone = alone();
    RUN.store(true, Ordering::Relaxed);
    EVENTPIPE_TEST_VALUE.store(0x1234_5678_9ABC, Ordering::Relaxed);
    let spinning: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(|| eventpipe_test_spins_here()))
        .collect();
    let heap: Box<[u64]> = vec![0xFEED_F00D_u64; 100_000].into();
    let mut sizes = Vec::new();
    for kind in [DumpType::NORMAL, DumpType::WITH_HEAP, DumpType::FULL] {
        let core = path(&format!("core-{}", kind.0));
        let version = client()
            .generate_core_dump(core.to_str().expect("text"), kind, DumpFlags::default())
            .expect("written");
        assert_eq!(version, DumpVersion::V3);
        let file = std::fs::metadata(&core).expect("the core");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        sizes.push(file.len());
        let element = format!("x/gx {:p}", &raw const heap[77_777]);
        let commands = [
            "thread apply all backtrace 8",
            "info sharedlibrary",
            "p/x *(unsigned long*)&EVENTPIPE_TEST_VALUE",
            &element,
        ];
        if let Some(text) = gdb(&core, &commands) {
            let spins = text.matches("eventpipe_test_spins_here").count();
            assert!(spins >= 3, "{spins} threads of {kind:?}:\n{text}");
            assert!(text.contains("0x123456789abc"), "{kind:?}:\n{text}");
            if cfg!(not(target_feature = "crt-static")) {
                assert!(text.contains("libc.so"), "{kind:?}:\n{text}");
            }
            let has_heap = kind != DumpType::NORMAL;
            assert_eq!(text.contains("0x00000000feedf00d"), has_heap, "{text}");
        }
        std::fs::remove_file(&core).expect("ours");
    }
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
    RUN.store(false, Ordering::Relaxed);
    for thread in spinning {
        assert!(thread.join().expect("it ran on") > 0);
    }
}

#[test]
fn what_cannot_be_written_is_told_and_leaves_nothing() {
    let _alone = alone();
    let refused = |path: &str, kind: DumpType| match client().generate_core_dump(
        path,
        kind,
        DumpFlags::default(),
    ) {
        Err(Error::Refused { code, message, .. }) => (code, message),
        other => panic!("{other:?}"),
    };
    let (code, message) = refused("/nowhere/at/all/core", DumpType::FULL);
    assert_eq!(code, ErrorCode::FAIL);
    assert!(
        message.contains("open") && message.contains("/nowhere/at/all/core"),
        "{message}"
    );
    let file = path("no-such-type");
    assert_eq!(
        refused(file.to_str().expect("text"), DumpType(9)).0,
        ErrorCode::FAIL
    );
    assert!(!file.exists());
    // A folder has the name.
    let folder = path("folder");
    std::fs::create_dir(&folder).expect("made");
    let (_, message) = refused(folder.to_str().expect("text"), DumpType::NORMAL);
    assert!(message.contains("rename"), "{message}");
    assert!(!path("folder.unfinished").exists());
    std::fs::remove_dir(&folder).expect("ours, and empty");
}

/// The name is a template, as for the dump program of .NET.
#[test]
fn the_name_of_the_file_is_made_of_its_template() {
    let _alone = alone();
    let template = path("%p-%d-%e-%h-%t-%%-%");
    let template = template.to_str().expect("text");
    client()
        .generate_core_dump(template, DumpType::NORMAL, DumpFlags::default())
        .expect("a dump");
    let pid = std::process::id().to_string();
    let folder = std::env::temp_dir();
    let start = format!("eventpipe-test-{pid}-{pid}-{pid}-");
    let mut found = std::fs::read_dir(&folder)
        .expect("the folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&start));
    let name = found.next().expect("a file of that name");
    let program = std::env::current_exe().expect("a path");
    let program = program.file_name().expect("a name").to_string_lossy();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host");
    let rest = format!("{program}-{}-", host.trim());
    let time = name[start.len()..]
        .strip_prefix(&*rest)
        .expect("program and host");
    let seconds: u64 = time
        .strip_suffix("-%-")
        .expect("a percent sign")
        .parse()
        .expect("a time");
    assert!(seconds > 1_700_000_000, "{name}");
    std::fs::remove_file(folder.join(&name)).expect("ours");

    let unknown = path("%q");
    let unknown = unknown.to_str().expect("text");
    match client().generate_core_dump(unknown, DumpType::NORMAL, DumpFlags::default()) {
        Err(Error::Refused { message, .. }) => assert!(message.contains('q'), "{message}"),
        other => panic!("{other:?}"),
    }
}

/// Threads come and go while the process is dumped again and again.
#[test]
fn a_busy_process_is_dumped_and_goes_on() {
    let _alone = alone();
    RUN.store(true, Ordering::Relaxed);
    let starter = std::thread::spawn(|| {
        let mut count = 0_u64;
        while RUN.load(Ordering::Relaxed) {
            count += std::thread::spawn(|| 1).join().expect("ends");
        }
        count
    });
    let core = path("busy");
    for _ in 0..10 {
        client()
            .generate_core_dump(
                core.to_str().expect("text"),
                DumpType::TRIAGE,
                DumpFlags::default(),
            )
            .expect("written");
    }
    RUN.store(false, Ordering::Relaxed);
    assert!(starter.join().expect("it ran on") > 0);
    std::fs::remove_file(&core).expect("the last one");
}
