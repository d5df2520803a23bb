//! Which function an address is in.

use super::Frame;
use nettrace::Event;
use nettrace::views::{DomainModuleLoad, MethodLoad, ModuleLoad, View};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// What the frame is called that nothing is known of.
const UNKNOWN: &str = "?!?";

/// The module of methods whose module the trace does not name; TraceEvent's word.
const NO_MODULE: &str = "ManagedModule";

/// The provider of this project's rundown (docs/rundown.md).
const OWN_RUNDOWN: &str = "EventPipe-Rundown";

/// Names of code, gathered from the events of a trace.
///
/// Of methods the last one that was told of an address counts: where the runtime unloads a method and puts another into its place, samples
/// of the former one get the latter's name.
#[derive(Debug, Default)]
pub struct CodeNames {
    processes: HashMap<u64, Process>,
}

/// One process's address space.
#[derive(Debug, Default)]
struct Process {
    /// By their first address.
    methods: BTreeMap<u64, Method>,
    /// Names of managed modules by their keys.
    managed: HashMap<u64, String>,
    /// By their first address.
    modules: BTreeMap<u64, Module>,
}

#[derive(Debug)]
struct Method {
    end: u64,
    module: u64,
    name: String,
}

/// An executable range of a native module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Where in the file it begins.
    pub file_offset: u64,
    /// The GNU build id in hexadecimal digits, empty if there is none.
    pub build_id: String,
    /// The file, as the traced process saw it.
    pub path: String,
    /// Names of functions by the offset in the file of a call in them, where they were looked up.
    pub functions: HashMap<u64, String>,
}

impl CodeNames {
    /// Nothing known yet.
    pub fn new() -> CodeNames {
        CodeNames::default()
    }

    /// Takes what an event tells of code; every event of a trace is to be shown, in any order.
    pub fn add(&mut self, event: &Event<'_>) {
        let (metadata, payload) = (event.metadata(), event.payload());
        if MethodLoad::matches(metadata) {
            let Some(load) = MethodLoad::of(metadata, event.schema(), payload) else {
                return;
            };
            // Without a name it is one of the short events, which are of no use here.
            let Some(name) = load.name else { return };
            let signature = load.signature.map(|text| text.to_string());
            let arguments = signature.as_deref().and_then(|text| text.split_once('('));
            let mut full = load
                .namespace
                .map_or_else(String::new, |text| text.to_string());
            full.push('.');
            full.push_str(&name.to_string());
            if let Some((_, arguments)) = arguments {
                full.push('(');
                full.push_str(arguments);
            }
            let method = Method {
                end: load.start_address.saturating_add(u64::from(load.size)),
                module: load.module_id,
                name: full,
            };
            self.process(event)
                .methods
                .insert(load.start_address, method);
        } else if ModuleLoad::matches(metadata) {
            if let Some(load) = ModuleLoad::of(metadata, event.schema(), payload) {
                self.managed_module(event, load.module_id, &load.il_path.to_string());
            }
        } else if DomainModuleLoad::matches(metadata) {
            if let Some(load) = DomainModuleLoad::of(metadata, event.schema(), payload) {
                self.managed_module(event, load.module_id, &load.il_path.to_string());
            }
        } else if metadata.provider == OWN_RUNDOWN && metadata.event_id == 1 {
            self.own_module(event);
        }
    }

    fn process(&mut self, event: &Event<'_>) -> &mut Process {
        self.processes.entry(event.process_id()).or_default()
    }

    fn managed_module(&mut self, event: &Event<'_>, id: u64, path: &str) {
        let name = stem(path);
        if !name.is_empty() {
            self.process(event).managed.insert(id, name.to_owned());
        }
    }

    fn own_module(&mut self, event: &Event<'_>) {
        let (mut numbers, mut texts) = ([None; 3], [None, None]);
        for (name, value) in event.schema().fields(event.payload()) {
            match name {
                "Start" => numbers[0] = value.as_u64(),
                "End" => numbers[1] = value.as_u64(),
                "FileOffset" => numbers[2] = value.as_u64(),
                "BuildId" | "Path" => {
                    if let nettrace::payload::Value::String(text) = value {
                        texts[usize::from(name == "Path")] = Some(text.to_string());
                    }
                }
                _ => {}
            }
        }
        let ([Some(start), Some(end), Some(file_offset)], [Some(build_id), Some(path)]) =
            (numbers, texts)
        else {
            return;
        };
        let module = Module {
            start,
            end,
            file_offset,
            build_id,
            path,
            functions: HashMap::new(),
        };
        self.process(event).modules.insert(start, module);
    }

    /// The native module that a frame is in, and the offset in its file of the call: where to look for the function's name, which is then put
    /// into [`Module::functions`].
    pub fn native(&mut self, frame: Frame) -> Option<(&mut Module, u64)> {
        let process = self.processes.get_mut(&frame.process_id)?;
        if process.method(frame.address).is_some() {
            return None;
        }
        let (_, module) = process.modules.range_mut(..=frame.address).next_back()?;
        let offset = module.call_at(frame.address)?;
        Some((module, offset))
    }

    /// Whether the trace told anything.
    pub fn is_empty(&self) -> bool {
        self.processes
            .values()
            .all(|process| process.methods.is_empty() && process.modules.is_empty())
    }

    /// The name of a frame: `module!Namespace.Type.Method(arguments)` of a method, `module!function` of a native function,
    /// `module!+0x1234` (offset in the file) where only the module is known, `?!?` where nothing is.
    pub fn name(&self, frame: Frame) -> Cow<'_, str> {
        self.find(frame).unwrap_or(Cow::Borrowed(UNKNOWN))
    }

    /// The same; `None` where nothing is known.
    pub fn find(&self, frame: Frame) -> Option<Cow<'_, str>> {
        let process = self.processes.get(&frame.process_id)?;
        if let Some(method) = process.method(frame.address) {
            let module = process.managed.get(&method.module);
            let module = module.map_or(NO_MODULE, String::as_str);
            return Some(Cow::Owned(format!("{module}!{}", method.name)));
        }
        let (_, module) = process.modules.range(..=frame.address).next_back()?;
        let call = module.call_at(frame.address)?;
        let file = file_name(&module.path);
        Some(Cow::Owned(match module.functions.get(&call) {
            Some(name) => format!("{file}!{name}"),
            None => format!("{file}!+{:#x}", call.saturating_add(1)),
        }))
    }
}

impl Process {
    fn method(&self, address: u64) -> Option<&Method> {
        let (_, method) = self.methods.range(..=address).next_back()?;
        (address < method.end).then_some(method)
    }
}

impl Module {
    /// The offset in the file of the call that returns to an address. It is the byte before, as what is called last in a function may return
    /// behind its end.
    fn call_at(&self, address: u64) -> Option<u64> {
        let inside = address
            .checked_sub(self.start)
            .filter(|_| address < self.end)?;
        inside.saturating_sub(1).checked_add(self.file_offset)
    }
}

/// A file's name without its folders, of whatever system.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The same without its extension.
fn stem(path: &str) -> &str {
    let name = file_name(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_frame_is_where_it_was_called() {
        let mut names = CodeNames::new();
        let module = Module {
            start: 0x1000,
            end: 0x2000,
            file_offset: 0x400,
            build_id: String::new(),
            path: "/opt/app".to_owned(),
            functions: HashMap::new(),
        };
        let process = names.processes.entry(7).or_default();
        process.modules.insert(module.start, module);
        let at = |address| Frame {
            process_id: 7,
            address,
        };
        assert_eq!(names.name(at(0x1010)), "app!+0x410");
        let (module, offset) = names.native(at(0x1010)).unwrap();
        assert_eq!(offset, 0x40f, "the call's last byte");
        module.functions.insert(offset, "first".to_owned());
        assert_eq!(names.name(at(0x1010)), "app!first");
        assert_eq!(names.name(at(0x1011)), "app!+0x411");
        assert_eq!(names.name(at(0x2000)), "?!?");
        assert_eq!(names.name(at(0xfff)), "?!?");
        assert!(names.native(at(0x2000)).is_none());
        let elsewhere = Frame {
            process_id: 8,
            address: 0x1010,
        };
        assert_eq!(names.find(elsewhere), None);
    }

    #[test]
    fn modules_are_called_by_their_files() {
        assert_eq!(
            stem("/opt/app/System.Private.CoreLib.dll"),
            "System.Private.CoreLib"
        );
        assert_eq!(stem(r"C:\app\web.dll"), "web");
        assert_eq!(stem("plain"), "plain");
        assert_eq!(file_name("/opt/lib/libc.so.6"), "libc.so.6");
    }
}
