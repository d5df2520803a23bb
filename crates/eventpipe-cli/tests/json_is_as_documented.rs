//! docs/json.md names every key that `--json` prints, with its type, and no other.

mod support;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use support::{Scratch, Target, collecting, finish, run, tool};

const DOCUMENT: &str = include_str!("../../../docs/json.md");

/// The keys of a command: their types, and whether they are there only with an option.
#[derive(Debug, Default)]
struct Shape {
    keys: BTreeMap<String, (BTreeSet<String>, bool)>,
    /// Those that were printed.
    seen: BTreeSet<String>,
}

/// The section of the document for each command.
fn shapes() -> BTreeMap<String, Shape> {
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    let mut command = String::new();
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("## `eventpipe ") {
            command = heading.trim_end_matches(" --json`").to_owned();
            shapes.insert(command.clone(), Shape::default());
        } else if let Some(row) = line.strip_prefix("| `") {
            let (key, rest) = row.split_once("` | ").unwrap();
            let types = rest.split(" |").next().unwrap();
            let (types, is_optional) = match types.strip_suffix(", optional") {
                Some(types) => (types, true),
                None => (types, false),
            };
            let types = types.split(" or ").map(str::to_owned).collect();
            let shape = shapes.get_mut(&command).unwrap();
            let before = shape.keys.insert(key.to_owned(), (types, is_optional));
            assert!(before.is_none(), "{command}: {key} stands there twice");
        }
    }
    shapes
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Shape {
    /// Whether everything in `value`, whose place is `path`, is as documented.
    fn fits(&mut self, path: &str, value: &Value, with_optional: bool) {
        // The whole, and objects in arrays, have no row of their own.
        if !(path.is_empty() || path.ends_with("[]") && value.is_object()) {
            let (types, is_optional) = self
                .keys
                .get(path)
                .unwrap_or_else(|| panic!("docs/json.md does not name {path}: {value}"));
            let is = type_of(value);
            let fits = types.contains(is) || is == "integer" && types.contains("number");
            assert!(fits, "{path} is {types:?} in docs/json.md: {value}");
            assert!(with_optional || !is_optional, "{path} is not optional");
            self.seen.insert(path.to_owned());
        }
        match value {
            Value::Object(fields) => {
                let prefix = if path.is_empty() {
                    String::new()
                } else {
                    format!("{path}.")
                };
                if self.keys.contains_key(&format!("{prefix}*")) {
                    self.seen.insert(format!("{prefix}*"));
                    return;
                }
                for (name, value) in fields {
                    self.fits(&format!("{prefix}{name}"), value, with_optional);
                }
                self.has_all(&prefix, fields, with_optional);
            }
            Value::Array(elements) => {
                for element in elements {
                    self.fits(&format!("{path}[]"), element, with_optional);
                }
            }
            _ => {}
        }
    }

    /// Whether an object has each of the keys that are documented directly below `prefix`.
    fn has_all(&self, prefix: &str, fields: &serde_json::Map<String, Value>, with_optional: bool) {
        for (key, (_, is_optional)) in &self.keys {
            let Some(name) = key.strip_prefix(prefix) else {
                continue;
            };
            if !name.contains(['.', '[', '*']) && (with_optional || !is_optional) {
                assert!(
                    fields.contains_key(name),
                    "docs/json.md names {key}, which is not in {fields:?}"
                );
            }
        }
    }
}

#[test]
fn for_each_command() {
    let scratch = Scratch::new("json");
    let trace = scratch.file("a.nettrace");
    let target = Target::at_work();
    let pid = target.pid().to_string();
    let (code, _, error) = finish(collecting(target.pid(), &trace, &["--duration", "300ms"]));
    assert_eq!(code, 0, "{error}");
    // Version 6 has pairs that describe the trace.
    let in_v6 = scratch.file("v6.nettrace");
    let in_v6 = in_v6.to_str().unwrap();
    let trace = trace.to_str().unwrap();
    let (code, _, error) = run(&["rewrite", trace, "--to", "v6", "-o", in_v6]);
    assert_eq!(code, 0, "{error}");
    let joined = scratch.file("joined.nettrace");
    let joined = joined.to_str().unwrap();

    let mut shapes = shapes();
    let documented: Vec<String> = shapes.keys().cloned().collect();
    assert_eq!(
        documented,
        [
            "counters",
            "env",
            "events",
            "info",
            "join",
            "ps",
            "report activities",
            "report alloc",
            "report contention",
            "report counters",
            "report exceptions",
            "report gc",
            "report stat",
            "report topn",
            "stack"
        ],
        "each command that has --json, by `each_command_with_json_has_a_section`"
    );
    // What only the .NET runtime's events have.
    let samples = peers::shared_for_test("for_each_command");
    let sample = |name: &str| {
        let file = samples
            .as_ref()?
            .join(format!("samples/net10.0/{name}.nettrace"));
        Some(file.to_str().unwrap().to_owned())
    };
    let of_runtime = [
        ("report alloc", sample("gc-verbose")),
        ("report contention", sample("contention")),
        ("report counters", sample("metrics")),
        ("report exceptions", sample("exceptions")),
        ("report gc", sample("gc-verbose")),
    ];
    let unseen: Vec<&str> = of_runtime
        .iter()
        .filter_map(|(command, file)| file.is_none().then_some(*command))
        .collect();
    let of_runtime = of_runtime
        .iter()
        .filter_map(|(command, file)| Some((*command, vec![file.as_deref()?], false)));
    for (command, words, with_optional) in [
        ("ps", vec![], false),
        ("env", vec!["-p", &pid], false),
        ("events", vec![trace], false),
        ("events", vec![trace, "--raw", "--stacks"], true),
        ("info", vec![trace], false),
        ("info", vec![in_v6], false),
        ("report stat", vec![trace], false),
        ("report topn", vec![trace], false),
        ("report activities", vec![trace], false),
        ("join", vec![trace, in_v6, "-o", joined], false),
    ]
    .into_iter()
    .chain(of_runtime)
    {
        let output = tool()
            .args(command.split(' '))
            .args(words)
            .arg("--json")
            .output()
            .unwrap();
        let (code, out, error) = support::answer(&output);
        assert_eq!(code, 0, "{command}: {error}");
        let shape = shapes.get_mut(command).unwrap();
        if command == "events" {
            for line in out.lines() {
                shape.fits("", &serde_json::from_str(line).unwrap(), with_optional);
            }
        } else {
            shape.fits("", &serde_json::from_str(&out).unwrap(), with_optional);
        }
    }
    for (command, shape) in &shapes {
        for key in shape.keys.keys() {
            // Only version 6 of some traces has them.
            let is_seen = shape.seen.contains(key)
                || key.starts_with("pairs[]")
                || unseen.contains(&command.as_str())
                // These take a process on .NET, and have tests of their own.
                || ["stack", "counters"].contains(&command.as_str());
            assert!(is_seen, "{command}: {key} was never printed");
        }
    }
}

#[test]
fn each_command_with_json_has_a_section() {
    let shapes = shapes();
    let mut open = vec![String::new()];
    let mut found = BTreeSet::new();
    while let Some(command) = open.pop() {
        let words = command.split_whitespace();
        let output = tool().args(words).arg("--help").output().unwrap();
        let (code, help, error) = support::answer(&output);
        assert_eq!(code, 0, "{command}: {error}");
        if help
            .lines()
            .any(|line| line.trim_start().starts_with("--json"))
        {
            found.insert(command.clone());
            assert!(help.contains("docs/json.md"), "{command}: {help}");
        }
        let commands = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
        for line in commands.lines().take_while(|line| !line.is_empty()) {
            let name = line.split_whitespace().next().unwrap();
            // Lines that go on begin further in.
            if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
                open.push(format!("{command} {name}").trim().to_owned());
            }
        }
    }
    assert_eq!(found, shapes.into_keys().collect());
}
