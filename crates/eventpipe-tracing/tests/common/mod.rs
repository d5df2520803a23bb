//! What the tests share: a session of the program's own, and its events as lines.
#![allow(dead_code, reason = "each test file uses its part")]

use eventpipe::{Guid, HeardEvent, Level, Listener, ProviderRequest, SessionRequest};
use nettrace::Schema;
use nettrace::payload::Value;

/// An event that was heard.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// `name/opcode field=value …`, texts in quotes, the opcode left out where it is 0.
    pub(crate) line: String,
    pub(crate) event_id: u32,
    pub(crate) level: u32,
    pub(crate) keywords: u64,
    pub(crate) thread: u64,
    pub(crate) id: Guid,
    pub(crate) related: Guid,
    pub(crate) payload: usize,
}

impl Heard {
    fn of(heard: &HeardEvent) -> Heard {
        let metadata = heard.event.metadata();
        let schema = Schema::new(&metadata, 8);
        let mut line = metadata.name.clone();
        match metadata.opcode {
            0 => {}
            1 => line += "/Start",
            2 => line += "/Stop",
            5 => line += "/Extension",
            7 => line += "/Resume",
            8 => line += "/Suspend",
            240 => line += "/Receive",
            other => line += &format!("/{other}"),
        }
        for (name, value) in schema.fields(&heard.payload) {
            let value = match value {
                Value::String(text) => format!("{:?}", text.to_string()),
                Value::Boolean(value) => value.to_string(),
                Value::Int64(value) => format!("{value}i"),
                Value::UInt64(value) => format!("{value}u"),
                Value::Double(value) => format!("{value:?}"),
                Value::Bytes(value) => format!("{value:02x?}"),
                other => panic!("{name}: a value that the layer never writes: {other:?}"),
            };
            line += &format!(" {name}={value}");
        }
        Heard {
            line,
            event_id: metadata.event_id,
            level: metadata.level,
            keywords: metadata.keywords,
            thread: heard.thread_id,
            id: heard.activity_id,
            related: heard.related_activity_id,
            payload: heard.payload.len(),
        }
    }
}

/// Starts a session for what this provider has.
pub(crate) fn listen(provider: &str, keywords: u64, level: Level) -> Listener {
    let request = ProviderRequest::new(provider)
        .keywords(keywords)
        .level(level);
    SessionRequest::new()
        .provider(request)
        .listen()
        .expect("the session starts")
}

/// Ends the session; all that was heard, of which nothing was lost.
pub(crate) fn end(listener: &Listener) -> Vec<Heard> {
    listener.session().stop();
    assert_eq!(listener.session().statistics().lost, 0);
    std::iter::from_fn(|| listener.next())
        .map(|heard| Heard::of(&heard))
        .collect()
}

/// What is heard while `work` runs, all levels and keywords.
pub(crate) fn hear(provider: &str, work: impl FnOnce()) -> Vec<Heard> {
    let listener = listen(provider, u64::MAX, Level::Verbose);
    work();
    end(&listener)
}

pub(crate) fn lines(heard: &[Heard]) -> Vec<&str> {
    heard.iter().map(|heard| &*heard.line).collect()
}
