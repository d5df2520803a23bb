//! Promise: a program that does what the documentation says is traced by a client of the diagnostics port, from another process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dotnet_diagnostics::client::{Client, Fallbacks};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use nettrace::{Guid, Reader};

const CUSTOMERS: u64 = 1_000;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Cargo builds examples with the tests, beside their folder.
fn example() -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let folder = own.ancestors().nth(2).expect("target/PROFILE");
    folder.join("examples/traced")
}

#[test]
fn by_another_process() {
    let child = Command::new(example())
        .arg(CUSTOMERS.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example starts");
    let mut child = Running(child);
    let mut input = child.0.stdin.take().expect("standard input");
    let mut lines = BufReader::new(child.0.stdout.take().expect("standard output")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let pid = child.0.id();
    assert_eq!(line(), format!("ready {pid}"));
    let process = dotnet_diagnostics::discovery::find(pid).expect("it has a socket");
    let providers = ["traced", "shop"].map(|name| ProviderConfig::new(name, 0, 5));
    let mut request = CollectTracing::new(providers);
    request.rundown_keyword = 0;
    let mut session = Client::new(process.endpoint())
        .collect(&request, Fallbacks::NONE)
        .expect("the session opens");
    let stopper = session.stopper();
    let reader = std::thread::spawn(move || {
        let mut trace = Vec::new();
        session.read_to_end(&mut trace).expect("the stream is read");
        trace
    });
    input.write_all(b"go\n").expect("it listens");
    let mut printed = 0;
    while line() != "done" {
        printed += 1;
    }
    stopper.stop().expect("the stop is answered");
    let trace = reader.join().expect("no panic");
    input.write_all(b"end\n").expect("it listens");
    assert!(child.0.wait().expect("our child").success());

    // An error and a warning for each customer whose price cannot be read, on its terminal as without us.
    let sent_away = CUSTOMERS / 10;
    assert_eq!(printed, 2 * sent_away);
    let mut reader = Reader::new(Cursor::new(trace)).expect("a trace");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    // The open spans, and which is inside of which.
    let mut open: BTreeMap<[u8; 16], String> = BTreeMap::new();
    while let Some(event) = reader.next_event().expect("undamaged") {
        let metadata = event.metadata();
        if !["traced", "shop"].contains(&&*metadata.provider) {
            continue;
        }
        let fields = event.schema().fields(event.payload());
        let number = fields.get("customer").and_then(|value| value.as_u64());
        let name = match metadata.name.split_once(':') {
            // Events have the number of their line.
            Some((_, rest)) if !rest.starts_with(':') => metadata.level.to_string(),
            _ => metadata.name.clone(),
        };
        let inside = open.get(&event.activity_id().0).cloned();
        match metadata.opcode {
            1 => {
                assert!(number.is_some_and(|number| number < CUSTOMERS));
                let parent = open.get(&event.related_activity_id().0).cloned();
                open.insert(event.activity_id().0, name.clone());
                let parent = parent.unwrap_or_else(|| "nothing".to_owned());
                *counts.entry(format!("{name} in {parent}")).or_default() += 1;
            }
            2 => {
                assert_eq!(open.remove(&event.activity_id().0), Some(name));
                assert_eq!(event.related_activity_id(), Guid::ZERO);
            }
            opcode => {
                let inside = inside.expect("all others are inside of a span");
                *counts
                    .entry(format!("{opcode} {name} in {inside}"))
                    .or_default() += 1;
            }
        }
    }
    assert!(
        reader
            .losses()
            .threads()
            .iter()
            .all(|losses| losses.gaps + losses.at_start == 0)
    );
    assert!(open.is_empty(), "{open:?}");
    let paid = CUSTOMERS - sent_away;
    let expected = [
        ("checkout::checkout in serve", CUSTOMERS),
        ("serve in nothing", CUSTOMERS),
        ("5 checkout::checkout in checkout::checkout", CUSTOMERS),
        // ERROR, DEBUG; WARN, INFO.
        ("0 2 in checkout::checkout", sent_away),
        ("0 5 in checkout::checkout", 3 * CUSTOMERS),
        ("0 3 in serve", sent_away),
        ("0 4 in serve", paid),
    ];
    let expected: BTreeMap<_, _> = expected
        .map(|(name, count)| (name.to_owned(), count))
        .into_iter()
        .collect();
    assert_eq!(counts, expected);
}
