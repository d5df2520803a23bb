//! The CollectTracing family: six commands that ask for a session, each able to say more (ipc.md 2.1).
//!
//! One type for all six; [`CollectTracing::version`] says which command. Fields that a version cannot say hold what
//! that version implies: rundown with the default keyword and stacks for 1, stacks for 2.

use alloc::string::String;
use alloc::vec::Vec;

use super::header::Command;
use super::request::Strictness;
use super::wire::{
    Bytes, DecodeError, EncodeError, put_count, put_string, put_u32, put_u32_array, put_u64,
};

/// The rundown keyword that stands for "rundown on" where a command has only a switch.
pub const DEFAULT_RUNDOWN_KEYWORD: u64 = 0x8002_0139;
/// More providers than this are refused.
pub const MAX_PROVIDERS: usize = 1000;
/// Verbose, the highest level.
pub const MAX_LEVEL: u8 = 5;

/// Which command of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CollectVersion {
    /// CollectTracing, .NET Core 3.0.
    V1,
    /// CollectTracing2, .NET Core 3.1: rundown can be switched off.
    V2,
    /// CollectTracing3, .NET 9: stacks can be switched off.
    V3,
    /// CollectTracing4, .NET 9: the rundown's keyword.
    V4,
    /// CollectTracing5, .NET 10: event filters, user_events.
    V5,
    /// CollectTracing6, .NET 11: the buffering mode.
    V6,
}

impl CollectVersion {
    /// Oldest first.
    pub const ALL: [CollectVersion; 6] = [
        CollectVersion::V1,
        CollectVersion::V2,
        CollectVersion::V3,
        CollectVersion::V4,
        CollectVersion::V5,
        CollectVersion::V6,
    ];

    /// The command's set and id.
    pub const fn command(self) -> Command {
        match self {
            CollectVersion::V1 => Command::COLLECT_TRACING,
            CollectVersion::V2 => Command::COLLECT_TRACING2,
            CollectVersion::V3 => Command::COLLECT_TRACING3,
            CollectVersion::V4 => Command::COLLECT_TRACING4,
            CollectVersion::V5 => Command::COLLECT_TRACING5,
            CollectVersion::V6 => Command::COLLECT_TRACING6,
        }
    }
}

/// Framing of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 0: version 3, `.netperf`.
    NetPerf,
    /// 1: version 4, `.nettrace`.
    NetTrace,
}

/// What happens when a session's buffer is full (CollectTracing6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferingMode {
    /// 0: events are dropped and counted.
    Drop,
    /// 1: the threads that write events wait.
    Block,
}

/// Where a session's events go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionKind {
    /// 0: back over the connection of the request.
    Stream,
    /// 1: into the kernel's user_events file, whose descriptor follows in a second message (CollectTracing5).
    UserEvents,
}

/// Which event ids of a provider are wanted; applied after keyword and level. Duplicates in a list make existing
/// runtimes send nothing of the provider: see [`EventFilter::deduplicated`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventFilter {
    /// These events and no others; an empty list is none at all.
    Only(Vec<u32>),
    /// All but these; never empty (that is no filter).
    AllBut(Vec<u32>),
}

impl EventFilter {
    /// Whether events with this id pass.
    pub fn passes(&self, event_id: u32) -> bool {
        match self {
            EventFilter::Only(ids) => ids.contains(&event_id),
            EventFilter::AllBut(ids) => !ids.contains(&event_id),
        }
    }

    /// The same filter with each id once, in rising order.
    #[must_use]
    pub fn deduplicated(&self) -> EventFilter {
        let once = |ids: &Vec<u32>| {
            let mut once = Vec::new();
            ids.iter().for_each(|id| _ = insert(&mut once, *id));
            once
        };
        match self {
            EventFilter::Only(ids) => EventFilter::Only(once(ids)),
            EventFilter::AllBut(ids) => EventFilter::AllBut(once(ids)),
        }
    }
}

/// A tracepoint that takes some events of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TracepointSet {
    /// The tracepoint's name.
    pub tracepoint: String,
    /// The events that go there; at least one, and each in one set only.
    pub event_ids: Vec<u32>,
}

/// Where the events of one provider of a user_events session go. A default or at least one set is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tracepoints {
    /// The tracepoint of events that no set names; empty: those events are dropped.
    pub default_tracepoint: String,
    /// Tracepoints of single events.
    pub sets: Vec<TracepointSet>,
}

/// What a session wants of one provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderConfig {
    /// The provider's name; `*` is every provider.
    pub name: String,
    /// Events that have one of these bits, or no keyword at all.
    pub keywords: u64,
    /// Events up to this level: 0 LogAlways, 1 Critical, 2 Error, 3 Warning, 4 Informational, 5 Verbose.
    pub level: u8,
    /// `key=value;key=value`, given to the provider.
    pub arguments: Option<String>,
    /// CollectTracing5 and later: which event ids; `None` is all.
    pub event_filter: Option<EventFilter>,
    /// Sessions of the kind [`SessionKind::UserEvents`] only.
    pub tracepoints: Option<Tracepoints>,
}

impl ProviderConfig {
    /// A provider without arguments and filter.
    pub fn new(name: impl Into<String>, keywords: u64, level: u8) -> ProviderConfig {
        ProviderConfig {
            name: name.into(),
            keywords,
            level,
            arguments: None,
            event_filter: None,
            tracepoints: None,
        }
    }
}

/// The request for a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectTracing {
    /// Which command says it.
    pub version: CollectVersion,
    /// Where the events go.
    pub session: SessionKind,
    /// The session's buffer in the target, in MB; at least 1. 0 for user_events, which has none.
    pub buffer_mb: u32,
    /// Framing of the stream.
    pub format: Format,
    /// What the rundown at the end describes; 0 is no rundown, [`DEFAULT_RUNDOWN_KEYWORD`] the usual one.
    pub rundown_keyword: u64,
    /// Whether events carry stacks; false for user_events.
    pub stack_walk: bool,
    /// What happens when the buffer is full.
    pub buffering_mode: BufferingMode,
    /// What is wanted of which provider; 1 to 1,000.
    pub providers: Vec<ProviderConfig>,
}

impl CollectTracing {
    /// A streaming session as the usual tools ask for it: 256 MB, nettrace, usual rundown, stacks, drop when full.
    pub fn new(providers: impl IntoIterator<Item = ProviderConfig>) -> CollectTracing {
        CollectTracing {
            version: CollectVersion::V2,
            session: SessionKind::Stream,
            buffer_mb: 256,
            format: Format::NetTrace,
            rundown_keyword: DEFAULT_RUNDOWN_KEYWORD,
            stack_walk: true,
            buffering_mode: BufferingMode::Drop,
            providers: providers.into_iter().collect(),
        }
    }

    /// The lowest command that can say all this, so that the oldest possible runtime understands it (ipc.md 6).
    /// Version 1 is never chosen: every runtime that still runs has version 2.
    pub fn lowest_version(&self) -> CollectVersion {
        if self.buffering_mode == BufferingMode::Block {
            return CollectVersion::V6;
        }
        let filtered = |provider: &ProviderConfig| provider.event_filter.is_some();
        if self.session == SessionKind::UserEvents || self.providers.iter().any(filtered) {
            return CollectVersion::V5;
        }
        if !matches!(self.rundown_keyword, 0 | DEFAULT_RUNDOWN_KEYWORD) {
            return CollectVersion::V4;
        }
        if self.stack_walk {
            CollectVersion::V2
        } else {
            CollectVersion::V3
        }
    }

    pub(super) fn decode(
        version: CollectVersion,
        bytes: &mut Bytes<'_>,
        strictness: Strictness,
    ) -> Result<CollectTracing, DecodeError> {
        let session = match version {
            CollectVersion::V5 | CollectVersion::V6 => match bytes.u32()? {
                0 => SessionKind::Stream,
                1 => SessionKind::UserEvents,
                _ => return Err(DecodeError::OutOfRange),
            },
            _ => SessionKind::Stream,
        };
        let mut request = CollectTracing {
            version,
            session,
            buffer_mb: 0,
            format: Format::NetTrace,
            rundown_keyword: DEFAULT_RUNDOWN_KEYWORD,
            stack_walk: session == SessionKind::Stream,
            buffering_mode: BufferingMode::Drop,
            providers: Vec::new(),
        };
        if session == SessionKind::Stream {
            request.buffer_mb = bytes.u32()?;
            request.format = match bytes.u32()? {
                0 => Format::NetPerf,
                1 => Format::NetTrace,
                _ => return Err(DecodeError::OutOfRange),
            };
        }
        match version {
            CollectVersion::V1 => {}
            CollectVersion::V2 | CollectVersion::V3 => {
                if !bytes.bool()? {
                    request.rundown_keyword = 0;
                }
            }
            _ => request.rundown_keyword = bytes.u64()?,
        }
        if version >= CollectVersion::V3 && session == SessionKind::Stream {
            request.stack_walk = bytes.bool()?;
        }
        // A provider is at least keywords, level and two counts.
        let count = bytes.count(20)?;
        if count > MAX_PROVIDERS {
            return Err(DecodeError::OutOfRange);
        }
        request.providers.reserve_exact(count);
        for _ in 0..count {
            let provider = decode_provider(version, session, bytes)?;
            request.providers.push(provider);
        }
        if version == CollectVersion::V6 && session == SessionKind::Stream {
            request.buffering_mode = match bytes.u32()? {
                0 => BufferingMode::Drop,
                1 => BufferingMode::Block,
                _ => return Err(DecodeError::OutOfRange),
            };
        }
        strictness.finish(bytes)?;
        request.validate().map_err(|_| DecodeError::OutOfRange)?;
        Ok(request)
    }

    /// The rules of ipc.md 2.1, for both directions.
    fn validate(&self) -> Result<(), EncodeError> {
        if self.session == SessionKind::Stream && self.buffer_mb == 0 {
            return Err(EncodeError::ZeroBuffer);
        }
        if self.providers.is_empty() {
            return Err(EncodeError::NoProviders);
        }
        if self.providers.len() > MAX_PROVIDERS {
            return Err(EncodeError::TooManyProviders);
        }
        for provider in &self.providers {
            if provider.name.is_empty() {
                return Err(EncodeError::EmptyProviderName);
            }
            if provider.level > MAX_LEVEL {
                return Err(EncodeError::LevelOutOfRange);
            }
            match (self.session, &provider.tracepoints) {
                (SessionKind::Stream, None) => {}
                (SessionKind::UserEvents, Some(tracepoints)) => validate_tracepoints(tracepoints)?,
                _ => return Err(EncodeError::BadTracepoints),
            }
        }
        Ok(())
    }

    /// Refuses what the version's layout has no room for, rather than leaving it out silently.
    fn check_expressible(&self) -> Result<(), EncodeError> {
        let version = self.version;
        let refuse = |what| Err(EncodeError::NotExpressible(what));
        let (v3, v4, v5) = (
            version >= CollectVersion::V3,
            version >= CollectVersion::V4,
            version >= CollectVersion::V5,
        );
        if !v5 && self.session == SessionKind::UserEvents {
            return refuse("a user_events session");
        }
        if !v5
            && self
                .providers
                .iter()
                .any(|provider| provider.event_filter.is_some())
        {
            return refuse("an event filter");
        }
        if self.session == SessionKind::UserEvents {
            if self.stack_walk || self.buffer_mb != 0 || self.format != Format::NetTrace {
                return refuse("stacks, buffer or format of a user_events session");
            }
        } else if !v3 && !self.stack_walk {
            return refuse("a session without stacks");
        }
        if version == CollectVersion::V1 && self.rundown_keyword != DEFAULT_RUNDOWN_KEYWORD {
            return refuse("a session without the usual rundown");
        }
        if !v4 && !matches!(self.rundown_keyword, 0 | DEFAULT_RUNDOWN_KEYWORD) {
            return refuse("a rundown keyword");
        }
        if self.buffering_mode == BufferingMode::Block
            && (version != CollectVersion::V6 || self.session == SessionKind::UserEvents)
        {
            return refuse("blocking when the buffer is full");
        }
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.validate()?;
        self.check_expressible()?;
        let streaming = self.session == SessionKind::Stream;
        if self.version >= CollectVersion::V5 {
            put_u32(out, u32::from(!streaming));
        }
        if streaming {
            put_u32(out, self.buffer_mb);
            put_u32(out, u32::from(self.format == Format::NetTrace));
        }
        match self.version {
            CollectVersion::V1 => {}
            CollectVersion::V2 | CollectVersion::V3 => {
                out.push(u8::from(self.rundown_keyword != 0))
            }
            _ => put_u64(out, self.rundown_keyword),
        }
        if self.version >= CollectVersion::V3 && streaming {
            out.push(u8::from(self.stack_walk));
        }
        put_count(out, self.providers.len())?;
        for provider in &self.providers {
            encode_provider(self.version, provider, out)?;
        }
        if self.version == CollectVersion::V6 && streaming {
            put_u32(out, u32::from(self.buffering_mode == BufferingMode::Block));
        }
        Ok(())
    }
}

fn decode_provider(
    version: CollectVersion,
    session: SessionKind,
    bytes: &mut Bytes<'_>,
) -> Result<ProviderConfig, DecodeError> {
    let mut provider = ProviderConfig {
        keywords: bytes.u64()?,
        level: u8::try_from(bytes.u32()?).map_err(|_| DecodeError::OutOfRange)?,
        name: bytes.string()?.unwrap_or_default(),
        arguments: bytes.string()?,
        event_filter: None,
        tracepoints: None,
    };
    if version >= CollectVersion::V5 {
        let only = bytes.bool()?;
        let ids = bytes.u32_array()?;
        provider.event_filter = match (only, ids.is_empty()) {
            (true, _) => Some(EventFilter::Only(ids)),
            (false, false) => Some(EventFilter::AllBut(ids)),
            (false, true) => None,
        };
    }
    if session == SessionKind::UserEvents {
        let default_tracepoint = bytes.string()?.unwrap_or_default();
        let count = bytes.count(8)?;
        let mut sets = Vec::with_capacity(count);
        for _ in 0..count {
            sets.push(TracepointSet {
                tracepoint: bytes.string()?.unwrap_or_default(),
                event_ids: bytes.u32_array()?,
            });
        }
        provider.tracepoints = Some(Tracepoints {
            default_tracepoint,
            sets,
        });
    }
    Ok(provider)
}

fn encode_provider(
    version: CollectVersion,
    provider: &ProviderConfig,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    put_u64(out, provider.keywords);
    put_u32(out, u32::from(provider.level));
    put_string(out, Some(&provider.name))?;
    put_string(out, provider.arguments.as_deref())?;
    if version >= CollectVersion::V5 {
        let (only, ids): (bool, &[u32]) = match &provider.event_filter {
            None => (false, &[]),
            Some(EventFilter::Only(ids)) => (true, ids),
            Some(EventFilter::AllBut(ids)) => (false, ids),
        };
        out.push(u8::from(only));
        put_u32_array(out, ids)?;
    }
    if let Some(tracepoints) = &provider.tracepoints {
        let default = &tracepoints.default_tracepoint;
        put_string(out, (!default.is_empty()).then_some(default.as_str()))?;
        put_count(out, tracepoints.sets.len())?;
        for set in &tracepoints.sets {
            put_string(out, Some(&set.tracepoint))?;
            put_u32_array(out, &set.event_ids)?;
        }
    }
    Ok(())
}

fn validate_tracepoints(tracepoints: &Tracepoints) -> Result<(), EncodeError> {
    let usable = |set: &TracepointSet| !set.tracepoint.is_empty() && !set.event_ids.is_empty();
    if !tracepoints.sets.iter().all(usable)
        || (tracepoints.sets.is_empty() && tracepoints.default_tracepoint.is_empty())
    {
        return Err(EncodeError::BadTracepoints);
    }
    let mut once = Vec::new();
    let mut ids = tracepoints.sets.iter().flat_map(|set| &set.event_ids);
    if ids.all(|id| insert(&mut once, *id)) {
        Ok(())
    } else {
        Err(EncodeError::BadTracepoints)
    }
}

/// Puts an id into its place in a rising list; false when it is there already. A message has room for 16,000 ids, so this is quick
/// enough, and a hundredth of the code of a sort.
fn insert(ids: &mut Vec<u32>, id: u32) -> bool {
    match ids.binary_search(&id) {
        Ok(_) => false,
        Err(place) => {
            ids.insert(place, id);
            true
        }
    }
}
