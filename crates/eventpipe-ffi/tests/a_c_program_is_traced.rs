//! Promise: the example in C compiles without warnings, as C and as C++, and what it writes is in its trace; what is wrong with arguments
//! is a status, not a crash.

use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use eventpipe_ffi::Status;

// The library's own functions, as Rust sees them: this keeps the library linked.
use eventpipe_ffi as _;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library with this ending that cargo made beside this test.
fn library(ending: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program's file");
    let folder = test.parent().expect("deps");
    let candidates = [folder, folder.parent().expect("profile")];
    candidates
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libeventpipe_ffi") && name.ends_with(ending)
        })
        .max_by_key(|path| path.metadata().and_then(|file| file.modified()).ok())
        .expect("the library")
}

/// Makes `program` of what the command names, with the header at hand.
fn compile(command: &mut Command, program: &Path) {
    let include = crate_folder().join("include");
    command.arg("-I").arg(include).args(["-lpthread", "-ldl"]);
    compile_installed(command, program);
}

/// The same with nothing but what the command names.
fn compile_installed(command: &mut Command, program: &Path) {
    let compiled = command
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(program)
        .output()
        .expect("a C compiler");
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
}

#[test]
fn the_example_in_c() {
    let folder = std::env::temp_dir().join(format!("eventpipe-ffi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("requests");
    compile(
        Command::new("cc")
            .args(["-std=c99", "-Wpedantic", "-O1"])
            .arg(crate_folder().join("examples/requests.c"))
            .arg(library(".a"))
            .arg("-lm"),
        &program,
    );
    let trace = folder.join("requests.nettrace");
    let status = Command::new(&program).arg(&trace).arg("1000").status();
    assert!(status.expect("starts").success());
    let bytes = std::fs::read(&trace).expect("a trace");
    let mut reader = nettrace::Reader::new(bytes.as_slice()).expect("a trace");
    let mut seen = 0_u64;
    while let Some(event) = reader.next_event().expect("readable") {
        if event.metadata().provider != "Demo-Requests-C" {
            continue;
        }
        assert_eq!(event.metadata().name, "RequestStart");
        assert_eq!(event.metadata().fields.len(), 2);
        let mut expected = seen.to_le_bytes().to_vec();
        expected.extend("/café\0".encode_utf16().flat_map(u16::to_le_bytes));
        assert_eq!(event.payload(), expected);
        seen += 1;
    }
    assert_eq!(seen, 1000);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// `install PREFIX` makes what docs/c.md says, and the flags of its eventpipe.pc are enough for a program.
#[test]
fn the_installed_library_is_enough() {
    let folder = std::env::temp_dir().join(format!("eventpipe-install-{}", std::process::id()));
    let (built, prefix) = (folder.join("built"), folder.join("prefix"));
    std::fs::create_dir_all(&built).expect("a folder");
    for ending in [".so", ".a"] {
        let name = format!("libeventpipe_ffi{ending}");
        std::os::unix::fs::symlink(library(ending), built.join(name)).expect("a link");
    }
    let installed = Command::new(crate_folder().join("install"))
        .arg(&prefix)
        .env("EVENTPIPE_LIBRARIES", &built)
        .status();
    assert!(installed.expect("starts").success());
    let description =
        std::fs::read_to_string(prefix.join("lib/pkgconfig/eventpipe.pc")).expect("it is there");
    let of = |key: &str| -> Vec<String> {
        let line = description.lines().find_map(|line| line.strip_prefix(key));
        let prefix = prefix.to_str().expect("a name in UTF-8");
        line.expect(key)
            .replace("${includedir}", &format!("{prefix}/include"))
            .replace("${libdir}", &format!("{prefix}/lib"))
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let program = folder.join("requests");
    compile_installed(
        Command::new("cc")
            .args(["-std=c99", "-Wpedantic"])
            .arg(crate_folder().join("examples/requests.c"))
            .args(of("Cflags: "))
            .args(of("Libs: ")),
        &program,
    );
    let ran = Command::new(&program)
        .arg(folder.join("requests.nettrace"))
        .arg("3")
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .status();
    assert!(ran.expect("starts").success());
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// A plug-in that traces and is unloaded: the engine's threads and hooks run on.
#[test]
fn the_shared_library_stays_loaded() {
    const PROGRAM: &str = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include "eventpipe.h"
        static void *library;
        static eventpipe_event *event;
        static pthread_barrier_t unloaded;
        #define FUNCTION(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(library, #name)
        static void *writer(void *unused) {
            FUNCTION(eventpipe_event_write);
            eventpipe_event_write_(event, NULL, 0, NULL, NULL);
            pthread_barrier_wait(&unloaded);
            pthread_barrier_wait(&unloaded);
            return unused; /* the engine is told of the end of a thread that wrote */
        }
        int main(int count, char **arguments) {
            library = dlopen(arguments[count - 2], RTLD_NOW);
            FUNCTION(eventpipe_start);
            FUNCTION(eventpipe_provider_create);
            FUNCTION(eventpipe_event_define);
            FUNCTION(eventpipe_session_start_file);
            eventpipe_start_();
            eventpipe_definition definition = {.id = 1, .name = "E", .level = EVENTPIPE_INFORMATIONAL};
            uint64_t session;
            if (eventpipe_event_define_(eventpipe_provider_create_("Unloaded"), &definition, &event) != EVENTPIPE_OK) return 2;
            if (eventpipe_session_start_file_(arguments[count - 1], "Unloaded::5", 1, &session) != EVENTPIPE_OK) return 3;
            pthread_t thread;
            pthread_barrier_init(&unloaded, NULL, 2);
            pthread_create(&thread, NULL, writer, NULL);
            pthread_barrier_wait(&unloaded);
            if (dlclose(library) != 0) return 4;
            pthread_barrier_wait(&unloaded);
            return pthread_join(thread, NULL);
        }"#;
    let folder = std::env::temp_dir().join(format!("eventpipe-unload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("unload.c"), folder.join("unload"));
    std::fs::write(&source, PROGRAM).expect("writable");
    compile(Command::new("cc").arg("-std=gnu11").arg(&source), &program);
    let trace = folder.join("trace.nettrace");
    let ran = Command::new(&program)
        .arg(library(".so"))
        .arg(&trace)
        .env("TMPDIR", &folder)
        .status()
        .expect("starts");
    assert!(ran.success(), "{ran}");
    let bytes = std::fs::read(&trace).expect("a trace");
    let mut reader = nettrace::Reader::new(bytes.as_slice()).expect("a trace");
    let mut seen = Vec::new();
    while let Some(event) = reader.next_event().expect("readable") {
        seen.push(event.metadata().name.clone());
    }
    assert_eq!(seen, ["E", "ProcessInfo"], "complete, by the exit");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let status = Command::new("cc")
        .args(["-x", "c++", "-std=c++11", "-fsyntax-only"])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg(crate_folder().join("include/eventpipe.h"))
        .output()
        .expect("a compiler");
    let message = String::from_utf8_lossy(&status.stderr);
    // The README asks for a C compiler, not for one of C++.
    if message.contains("cc1plus") {
        return eprintln!("skipped: the_header_is_c_plus_plus_too: {message}");
    }
    assert!(status.status.success(), "{message}");
}

/// A piece without an address is zeros, whatever has been at its place in the buffer.
#[test]
fn a_piece_without_address_holds_nothing_of_other_events() {
    let folder = std::env::temp_dir().join(format!("eventpipe-zeros-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("trace.nettrace");
    // SAFETY: the text is closed by a zero.
    let provider = unsafe { eventpipe_ffi::eventpipe_provider_create(c"Zeros".as_ptr()) };
    // SAFETY: a handle of the library.
    let provider = unsafe { provider.as_ref() }.expect("a provider");
    let event = provider.define(eventpipe::Definition::new("Piece").id(1));
    let event = std::ptr::from_ref(event).cast();
    let session = eventpipe::SessionRequest::new()
        .provider(eventpipe::ProviderRequest::new("Zeros"))
        .start_file(file.to_str().expect("a name in UTF-8"))
        .expect("starts");
    /// `eventpipe_piece`.
    #[repr(C)]
    struct Piece(*const u8, usize);
    unsafe extern "C" {
        fn eventpipe_event_write(
            event: *const c_void,
            pieces: *const Piece,
            count: usize,
            activity_id: *const u8,
            related_activity_id: *const u8,
        );
    }
    let secret = [0xAA_u8; 1000];
    let null = std::ptr::null();
    // More than the pool takes (64 MB), so that its blocks have been used before.
    for _ in 0..80 {
        for (marker, address) in [(0xAA_u8, secret.as_ptr()), (0, null)] {
            let pieces = [Piece(&raw const marker, 1), Piece(address, secret.len())];
            for _ in 0..500 {
                // SAFETY: a handle, and pieces that can be read or have no address.
                unsafe { eventpipe_event_write(event, pieces.as_ptr(), 2, null, null) };
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(session.stop());
    let bytes = std::fs::read(&file).expect("a trace");
    let mut reader = nettrace::Reader::new(bytes.as_slice()).expect("a trace");
    let mut zeros = 0;
    while let Some(event) = reader.next_event().expect("readable") {
        if event.metadata().name == "Piece" {
            let marker = event.payload()[0];
            assert!(event.payload().iter().all(|byte| *byte == marker));
            zeros += usize::from(marker == 0);
        }
    }
    assert!(zeros > 0);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn wrong_arguments_are_answered() {
    unsafe extern "C" {
        fn eventpipe_session_start_file(
            path: *const c_char,
            providers: *const c_char,
            buffer_mb: u32,
            session: *mut u64,
        ) -> Status;
        safe fn eventpipe_session_stop(session: u64) -> Status;
    }
    let mut id = 0;
    let mut start = |path: *const c_char, providers: *const c_char| {
        // SAFETY: null or literals closed by zeros, and a place for the answer.
        unsafe { eventpipe_session_start_file(path, providers, 1, &mut id) }
    };
    let null = std::ptr::null();
    assert_eq!(start(null, c"A".as_ptr()), Status::InvalidArgument);
    assert_eq!(start(c"/tmp".as_ptr(), null), Status::InvalidArgument);
    assert_eq!(
        start(c"/tmp".as_ptr(), c"A:x".as_ptr()),
        Status::InvalidArgument
    );
    assert_eq!(
        start(c"/nowhere/at/all".as_ptr(), c"A".as_ptr()),
        Status::System
    );
    assert_eq!(eventpipe_session_stop(77), Status::InvalidArgument);
}

#[test]
fn wrong_definitions_are_answered() {
    /// `eventpipe_field`.
    #[repr(C)]
    struct Field(*const c_char, u32);
    /// `eventpipe_definition`.
    #[repr(C)]
    struct Definition {
        id: u32,
        name: *const c_char,
        keywords: u64,
        level: u32,
        opcode: u8,
        version: u32,
        stack: bool,
        fields: *const Field,
        field_count: usize,
    }
    // SAFETY: the text is closed by a zero.
    let provider = unsafe { eventpipe_ffi::eventpipe_provider_create(c"Wrong".as_ptr()) };
    let text = c"Event".as_ptr();
    let define = |id, name, level, fields: *const Field, field_count| {
        let definition = Definition {
            id,
            name,
            keywords: 0,
            level,
            opcode: 0,
            version: 0,
            stack: false,
            fields,
            field_count,
        };
        let mut event = std::ptr::null();
        let definition = (&raw const definition).cast();
        // SAFETY: a handle; a definition whose texts are closed by zeros and whose fields are counted or null; a place for the answer.
        unsafe { eventpipe_ffi::eventpipe_event_define(provider, definition, &mut event) }
    };
    let none = std::ptr::null();
    let fields = [Field(text, 12), Field(text, 99)];
    assert_eq!(define(1, text, 4, none, 0), Status::Ok);
    assert_eq!(define(2, text, 4, fields.as_ptr(), 1), Status::Ok);
    let wrong = [
        define(0, text, 4, none, 0),
        define(3, std::ptr::null(), 4, none, 0),
        define(3, text, 6, none, 0),
        define(3, text, 4, none, 1),
        define(3, text, 4, fields.as_ptr(), 2),
    ];
    assert_eq!(wrong, [Status::InvalidArgument; 5]);
}

/// A program in C that does things that are allowed and rough: what each may need, and a provider `Rough` with an event.
const ROUGH: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <ucontext.h>
    #include <unistd.h>
    #include "eventpipe.h"
    static eventpipe_event *event;
    static uint32_t number;
    static void put(void) {
        eventpipe_piece piece = {&number, sizeof number};
        eventpipe_event_write(event, &piece, 1, NULL, NULL);
        number++;
    }
    static uint64_t start(const char *path) {
        uint64_t session;
        if (eventpipe_session_start_file(path, "Rough::5", 1, &session) != EVENTPIPE_OK) exit(2);
        return session;
    }
    static void begin(bool stack) {
        eventpipe_start();
        eventpipe_field field = {"Number", EVENTPIPE_UINT32};
        eventpipe_definition definition = {.id = 1, .name = "E", .level = EVENTPIPE_INFORMATIONAL, .stack = stack,
                                           .fields = &field, .field_count = 1};
        if (eventpipe_event_define(eventpipe_provider_create("Rough"), &definition, &event) != EVENTPIPE_OK) exit(3);
    }
"#;

/// Runs such a program in a folder of its own; the folder.
fn run_rough(name: &str, program: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("eventpipe-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, binary) = (folder.join("rough.c"), folder.join("rough"));
    std::fs::write(&source, format!("{ROUGH}{program}")).expect("writable");
    compile(
        Command::new("cc")
            .args(["-std=gnu11", "-O1"])
            .arg(&source)
            .arg(library(".a"))
            .arg("-lm"),
        &binary,
    );
    let ran = Command::new(&binary)
        .current_dir(&folder)
        .env("TMPDIR", &folder)
        .output()
        .expect("starts");
    assert!(ran.status.success(), "{ran:?}");
    folder
}

/// The numbers of the events in a trace that is complete.
fn numbers(trace: &Path) -> Vec<u32> {
    let bytes = std::fs::read(trace).expect("a trace");
    let mut reader = nettrace::Reader::new(bytes.as_slice()).expect("a trace");
    let (mut numbers, mut complete) = (Vec::new(), false);
    while let Some(event) = reader.next_event().expect("readable") {
        if event.metadata().provider == "Rough" {
            let number = event.payload().first_chunk().expect("four bytes");
            numbers.push(u32::from_le_bytes(*number));
        }
        complete |= event.metadata().name == "ProcessInfo";
    }
    assert!(complete, "{} ends in order", trace.display());
    assert_eq!(reader.losses().total(), 0);
    numbers
}

/// A thread that is taken out of an event, by `siglongjmp` out of a signal handler, never comes out of it: nobody waits for that
/// for ever, neither who ends a session nor the process's end. What the thread writes afterwards is delivered.
#[test]
fn an_event_may_be_left_by_a_jump() {
    let folder = run_rough(
        "jump",
        r#"
        static sigjmp_buf back;
        static pthread_barrier_t turn;
        static void jump(int signal) { (void)signal; siglongjmp(back, 1); }
        static void *writer(void *unused) {
            put();
            if (sigsetjmp(back, 1) == 0) {
                /* The engine reads what nobody may read, in the middle of the event. */
                void *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                eventpipe_piece piece = {closed, 4};
                eventpipe_event_write(event, &piece, 1, NULL, NULL);
                exit(4);
            }
            for (int round = 0; round < 3; round++) {
                for (int count = 0; count < 100; count++) put();
                pthread_barrier_wait(&turn);
                pthread_barrier_wait(&turn);
            }
            return unused;
        }
        int main(void) {
            alarm(100); /* instead of waiting for ever */
            signal(SIGSEGV, jump);
            pthread_barrier_init(&turn, NULL, 2);
            begin(false);
            uint64_t first = start("first.nettrace");
            pthread_t thread;
            pthread_create(&thread, NULL, writer, NULL);
            pthread_barrier_wait(&turn);
            if (eventpipe_session_stop(first) != EVENTPIPE_OK) return 5;
            uint64_t second = start("second.nettrace");
            pthread_barrier_wait(&turn);
            pthread_barrier_wait(&turn);
            if (eventpipe_session_stop(second) != EVENTPIPE_OK) return 6;
            start("third.nettrace");
            pthread_barrier_wait(&turn);
            pthread_barrier_wait(&turn);
            pthread_barrier_wait(&turn);
            pthread_join(thread, NULL);
            return 0;
        }"#,
    );
    let expected = [0..101, 101..201, 201..301];
    for (name, expected) in ["first", "second", "third"].into_iter().zip(expected) {
        let found = numbers(&folder.join(format!("{name}.nettrace")));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
    }
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// The walk of a stack that is not the thread's own (a fibre's, a signal handler's) does not read what is not there, whatever the register
/// holds in which code with frame pointers has its frame.
#[test]
#[cfg(target_arch = "x86_64")]
fn stacks_of_fibres_may_go_at_any_time() {
    let folder = run_rough(
        "fibre",
        r#"
        enum { STACK = 128 << 10 };
        static uintptr_t wild;
        static ucontext_t home, fibre;
        static void with_a_wild_frame(void) {
            __asm__ volatile("push %%rbp\n\t mov %%rsp, %%r12\n\t and $-16, %%rsp\n\t mov %0, %%rbp\n\t call *%1\n\t"
                             "mov %%r12, %%rsp\n\t pop %%rbp"
                             :: "r"(wild), "r"(put) : "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
                                "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
        }
        static void on(char *stack, size_t size, void (*function)(void)) {
            getcontext(&fibre);
            fibre.uc_stack.ss_sp = stack;
            fibre.uc_stack.ss_size = size;
            fibre.uc_link = &home;
            makecontext(&fibre, function, 0);
            swapcontext(&home, &fibre);
        }
        static void handler(int signal) { (void)signal; put(); }
        static void *fibres(void *unused) {
            char *place = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            on(place, 2 * STACK, put);
            munmap(place + STACK, STACK);
            wild = (uintptr_t)place + STACK + STACK / 2;
            on(place, STACK, with_a_wild_frame);
            stack_t alternate = {.ss_sp = place, .ss_size = STACK};
            sigaltstack(&alternate, NULL);
            raise(SIGUSR1);
            alternate.ss_flags = SS_DISABLE;
            sigaltstack(&alternate, NULL);
            munmap(place, STACK);
            put();
            return unused;
        }
        int main(void) {
            begin(true);
            uint64_t session = start("trace.nettrace");
            struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
            sigaction(SIGUSR1, &action, NULL);
            fibres(NULL);
            pthread_t thread;
            pthread_create(&thread, NULL, fibres, NULL);
            pthread_join(thread, NULL);
            return eventpipe_session_stop(session);
        }"#,
    );
    assert_eq!(
        numbers(&folder.join("trace.nettrace")),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// A program that closes whatever is open, as daemons do, closes the engine's files too. Nothing of the session is written into the files
/// that the program opens next.
#[test]
fn all_descriptors_may_be_closed() {
    let folder = run_rough(
        "closing",
        r#"
        int main(void) {
            begin(false);
            start("trace.nettrace");
            put();
            for (int file = 3; file < 1024; file++) close(file);
            for (int count = 0; count < 32; count++) {
                char name[16];
                snprintf(name, sizeof name, "own-%d", count);
                if (open(name, O_CREAT | O_RDWR, 0600) < 0) return 4;
            }
            for (int count = 0; count < 200; count++) {
                for (int event = 0; event < 1000; event++) put();
                usleep(1000);
            }
            _exit(0);
        }"#,
    );
    for count in 0..32 {
        let file = folder.join(format!("own-{count}"));
        assert_eq!(std::fs::read(file).expect("there"), b"", "of file {count}");
    }
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}
