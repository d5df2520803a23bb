//! Callsites and the events that they have become. A callsite lives as long as the program, and so does what is kept of it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use eventpipe::{
    Definition, Event, EventOptions, FieldDescription, FieldKind, Guid, Level, Opcode, Provider,
};
use tracing_core::callsite::Identifier;
use tracing_core::field::Visit;
use tracing_core::{Metadata, metadata};

use crate::interest;
use crate::values::{Signature, Texts, Values};
use crate::{EVENTS, SPANS, SWITCHES, TRACE};

/// So many lists of types a callsite may have before all its values become text.
const SIGNATURES: usize = 8;

/// Lists of callsites. Programs have hundreds of callsites, large ones some thousands.
const BUCKETS: usize = 1024;

static TABLE: [OnceLock<&'static Site>; BUCKETS] = [const { OnceLock::new() }; BUCKETS];

/// One thread at a time defines.
static PROVIDERS: Mutex<BTreeMap<&'static str, &'static Group>> = Mutex::new(BTreeMap::new());

/// A callsite of `tracing`.
pub(crate) struct Site {
    callsite: Identifier,
    next: OnceLock<&'static Site>,
    /// `tracing` asks us each time, and need not.
    pub(crate) unsettled: AtomicBool,
    events: Events,
}

enum Events {
    Event(Box<Versions>),
    Span(Box<SpanEvents>),
}

/// A span that is open.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) events: &'static SpanEvents,
    pub(crate) id: Guid,
}

/// What is told of a span.
pub(crate) struct SpanEvents {
    start: Versions,
    stop: &'static Event,
    resume: &'static Event,
    suspend: &'static Event,
    record: Versions,
    follows: &'static Event,
}

/// The provider of a crate.
struct Group {
    provider: &'static Provider,
    last_id: AtomicU32,
}

/// One event, in the versions that differ by the fields that have values and by their types. Each has an id of its own: TraceEvent
/// reads all events of one id alike, whatever their version.
struct Versions {
    definition: Definition,
    group: &'static Group,
    fields: &'static [&'static str],
    /// Without fields.
    bare: &'static Event,
    typed: [OnceLock<Version>; SIGNATURES],
    /// All fields, as texts.
    text: OnceLock<&'static Event>,
}

struct Version {
    signature: Box<Signature>,
    event: &'static Event,
}

/// Spans and events are told apart by keywords.
static KEYWORDS: AtomicBool = AtomicBool::new(false);

pub(crate) fn use_keywords() {
    KEYWORDS.store(true, Ordering::Relaxed);
}

fn defining() -> MutexGuard<'static, BTreeMap<&'static str, &'static Group>> {
    PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the callsites of that hash begin.
fn bucket(callsite: &Identifier) -> &'static OnceLock<&'static Site> {
    #[derive(Default)]
    struct Mixed(u64);
    impl Hasher for Mixed {
        fn write(&mut self, bytes: &[u8]) {
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            self.0 ^= hasher.finish();
        }
        // An address, whose lowest bits are always the same.
        fn write_usize(&mut self, address: usize) {
            self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        fn finish(&self) -> u64 {
            self.0
        }
    }
    let hash = BuildHasherDefault::<Mixed>::default().hash_one(callsite);
    // The highest bits are the best mixed.
    TABLE.get((hash >> 54) as usize).unwrap_or(&TABLE[0])
}

/// What is known of the callsite, if it has been asked or used.
pub(crate) fn find(callsite: &Identifier) -> Option<&'static Site> {
    last(bucket(callsite), callsite).ok()
}

/// The callsite, or the place where it belongs.
fn last(
    mut place: &'static OnceLock<&'static Site>,
    callsite: &Identifier,
) -> Result<&'static Site, &'static OnceLock<&'static Site>> {
    while let Some(site) = place.get() {
        if site.callsite == *callsite {
            return Ok(site);
        }
        place = &site.next;
    }
    Err(place)
}

/// The callsite of this metadata; its events are defined the first time.
pub(crate) fn of(metadata: &'static Metadata<'static>) -> &'static Site {
    let callsite = metadata.callsite();
    let place = match last(bucket(&callsite), &callsite) {
        Ok(site) => return site,
        Err(place) => place,
    };
    let mut providers = defining();
    // Another thread may have been here meanwhile.
    let place = match last(place, &callsite) {
        Ok(site) => return site,
        Err(place) => place,
    };
    let site: &'static Site = Box::leak(Box::new(Site::new(metadata, &mut providers)));
    place.get_or_init(|| site)
}

impl Site {
    fn new(
        metadata: &'static Metadata<'static>,
        providers: &mut BTreeMap<&'static str, &'static Group>,
    ) -> Site {
        let group = Group::of(metadata.target(), providers);
        let fields = metadata.fields().iter().map(|field| field.name());
        let fields: &'static [&'static str] = fields.collect::<Vec<_>>().leak();
        let name: &'static str = name(metadata).leak();
        let level = level(*metadata.level());
        let keywords = match (*metadata.level(), KEYWORDS.load(Ordering::Relaxed)) {
            (metadata::Level::TRACE, _) => TRACE,
            (_, false) => 0,
            (_, true) if metadata.is_span() => SPANS,
            (_, true) => EVENTS,
        };
        let definition = |opcode| {
            Definition::new(name)
                .level(level)
                .keywords(keywords)
                .opcode(opcode)
        };
        let versions = |opcode| Versions::new(definition(opcode), group, fields);
        let event = |opcode| group.define(definition(opcode));
        let switch = |opcode| {
            let definition = definition(opcode).keywords(SWITCHES).stack(false);
            group.define(definition)
        };
        Site {
            callsite: metadata.callsite(),
            next: OnceLock::new(),
            unsettled: AtomicBool::new(false),
            events: if metadata.is_span() {
                Events::Span(Box::new(SpanEvents {
                    start: versions(Opcode::START),
                    stop: event(Opcode::STOP),
                    resume: switch(Opcode::RESUME),
                    suspend: switch(Opcode::SUSPEND),
                    record: versions(Opcode::EXTENSION),
                    follows: event(Opcode::RECEIVE),
                }))
            } else {
                Events::Event(Box::new(versions(Opcode::INFO)))
            },
        }
    }

    /// Whether a session wants something of the callsite.
    pub(crate) fn is_enabled(&self) -> bool {
        match &self.events {
            Events::Event(event) => event.bare.is_enabled(),
            Events::Span(span) => {
                span.start.bare.is_enabled()
                    || span.stop.is_enabled()
                    || span.resume.is_enabled()
                    || span.suspend.is_enabled()
                    || span.record.bare.is_enabled()
                    || span.follows.is_enabled()
            }
        }
    }

    /// Writes the event of a callsite that is one.
    pub(crate) fn write(&'static self, record: impl Fn(&mut dyn Visit), parent: Option<&Guid>) {
        if let Events::Event(event) = &self.events {
            event.write(record, parent, None);
        }
    }

    /// The events of a callsite that is a span.
    pub(crate) fn span(&'static self) -> Option<&'static SpanEvents> {
        match &self.events {
            Events::Event(_) => None,
            Events::Span(span) => Some(span),
        }
    }
}

impl SpanEvents {
    pub(crate) fn start(
        &'static self,
        record: impl Fn(&mut dyn Visit),
        id: &Guid,
        parent: Option<&Guid>,
    ) {
        self.start.write(record, Some(id), parent);
    }

    pub(crate) fn stop(&self, id: &Guid) {
        self.stop.write_payload(&[], &of_activity(id, None));
    }

    pub(crate) fn resume(&self, id: &Guid) {
        self.resume.write_payload(&[], &of_activity(id, None));
    }

    pub(crate) fn suspend(&self, id: &Guid) {
        self.suspend.write_payload(&[], &of_activity(id, None));
    }

    pub(crate) fn record(&'static self, record: impl Fn(&mut dyn Visit), id: &Guid) {
        self.record.write(record, Some(id), None);
    }

    pub(crate) fn follows(&self, id: &Guid, followed: &Guid) {
        self.follows
            .write_payload(&[], &of_activity(id, Some(followed)));
    }
}

fn of_activity<'a>(id: &'a Guid, related: Option<&'a Guid>) -> EventOptions<'a> {
    EventOptions {
        activity_id: Some(id),
        related_activity_id: related,
        ..EventOptions::default()
    }
}

impl Group {
    /// The provider for a target.
    fn of(
        target: &'static str,
        known: &mut BTreeMap<&'static str, &'static Group>,
    ) -> &'static Group {
        let name = target.split_once("::").map_or(target, |(first, _)| first);
        known.entry(name).or_insert_with(|| {
            let builder = Provider::builder(name).on_change(interest::changed);
            Box::leak(Box::new(Group {
                provider: interest::registering(|| builder.register()),
                last_id: AtomicU32::new(0),
            }))
        })
    }

    /// Defines an event with an id that no other event of the provider has.
    fn define(&self, definition: Definition) -> &'static Event {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.provider.define(definition.id(id))
    }
}

impl Versions {
    fn new(
        definition: Definition,
        group: &'static Group,
        fields: &'static [&'static str],
    ) -> Versions {
        Versions {
            definition,
            group,
            fields,
            bare: group.define(definition),
            typed: [const { OnceLock::new() }; SIGNATURES],
            text: OnceLock::new(),
        }
    }

    fn write(
        &'static self,
        record: impl Fn(&mut dyn Visit),
        activity: Option<&Guid>,
        related: Option<&Guid>,
    ) {
        if !self.bare.is_enabled() {
            return;
        }
        let options = EventOptions {
            activity_id: activity,
            related_activity_id: related,
            ..EventOptions::default()
        };
        let mut values = Values::begin(self.fields.len());
        record(&mut values);
        match self.version(values.signature()) {
            Some(event) => event.write_payload(&[values.bytes()], &options),
            None => {
                let mut texts = Texts::new(self.fields.len());
                record(&mut texts);
                let event = self.text.get_or_init(|| self.define_text());
                event.write_payload(&[&texts.bytes()], &options);
            }
        }
        values.end();
    }

    /// The version of these fields; none if there are too many already.
    fn version(&self, signature: &Signature) -> Option<&'static Event> {
        if signature.is_empty() {
            return Some(self.bare);
        }
        if let Some(event) = self.known(signature) {
            return Some(event);
        }
        let _one_at_a_time = defining();
        if let Some(event) = self.known(signature) {
            return Some(event);
        }
        let free = self.typed.iter().find(|place| place.get().is_none())?;
        let fields = signature.iter().map(|(index, kind)| FieldDescription {
            name: self.fields.get(*index).copied().unwrap_or_default(),
            kind: *kind,
        });
        let event = self.define(fields.collect());
        free.get_or_init(|| Version {
            signature: signature.into(),
            event,
        });
        Some(event)
    }

    fn known(&self, signature: &Signature) -> Option<&'static Event> {
        self.typed
            .iter()
            .map_while(OnceLock::get)
            .find(|version| *version.signature == *signature)
            .map(|version| version.event)
    }

    fn define_text(&self) -> &'static Event {
        let fields = self.fields.iter().map(|name| FieldDescription {
            name,
            kind: FieldKind::String,
        });
        self.define(fields.collect())
    }

    fn define(&self, fields: Vec<FieldDescription>) -> &'static Event {
        self.group.define(self.definition.fields(fields.leak()))
    }
}

fn level(level: metadata::Level) -> Level {
    match level {
        metadata::Level::ERROR => Level::Error,
        metadata::Level::WARN => Level::Warning,
        metadata::Level::INFO => Level::Informational,
        _ => Level::Verbose,
    }
}

/// What the provider's name leaves out of the target, and the name of the span or event. Where an event has no name but that which
/// `tracing` makes of its place, its line stands for it.
fn name(metadata: &Metadata<'_>) -> String {
    let path = metadata.target().split_once("::").map(|(_, rest)| rest);
    let has_no_name = metadata.is_event() && metadata.name().starts_with("event ");
    match (path, metadata.line()) {
        (Some(path), Some(line)) if has_no_name => format!("{path}:{line}"),
        (None, Some(line)) if has_no_name => format!("{}:{line}", file(metadata)),
        (Some(path), _) => format!("{path}::{}", metadata.name()),
        (None, _) => metadata.name().to_owned(),
    }
}

/// `main` of `src/main.rs`.
fn file<'a>(metadata: &Metadata<'a>) -> &'a str {
    let path = metadata.file().unwrap_or_default();
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    file.strip_suffix(".rs").unwrap_or(file)
}
