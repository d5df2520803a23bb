//! Exceptions that were thrown.

use super::milliseconds;
use nettrace::views::{ExceptionThrown, View};
use nettrace::{Event, TraceInfo};
use serde::Serialize;
use std::collections::HashMap;

/// Exceptions of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExceptionReport {
    /// How many were thrown; one that is thrown again counts again.
    pub thrown: u64,
    /// By type and message, the most frequent first.
    pub exceptions: Vec<Thrown>,
}

/// Exceptions of one type with one message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thrown {
    /// The type's name.
    #[serde(rename = "type")]
    pub exception_type: String,
    /// The message.
    pub message: String,
    /// How many.
    pub count: u64,
    /// When the first one was thrown.
    pub first_ms: f64,
    /// The last one.
    pub last_ms: f64,
}

/// Gathers exceptions. It needs the keyword Exception (0x8000) at level Error.
#[derive(Debug, Default)]
pub struct Exceptions {
    found: HashMap<(String, String), (u64, f64, f64)>,
}

impl Exceptions {
    /// Nothing gathered yet.
    pub fn new() -> Exceptions {
        Exceptions::default()
    }

    /// Takes an event.
    pub fn add(&mut self, info: &TraceInfo, event: &Event<'_>) {
        let Some(thrown) = ExceptionThrown::of(event.metadata(), event.schema(), event.payload())
        else {
            return;
        };
        let now = milliseconds(info, event);
        let key = (
            thrown.exception_type.to_string(),
            thrown.message.to_string(),
        );
        let row = self.found.entry(key).or_insert((0, now, now));
        row.0 += 1;
        row.1 = row.1.min(now);
        row.2 = row.2.max(now);
    }

    /// The report.
    pub fn finish(self) -> ExceptionReport {
        let rows = self.found.into_iter();
        let mut exceptions: Vec<Thrown> = rows
            .map(
                |((exception_type, message), (count, first_ms, last_ms))| Thrown {
                    exception_type,
                    message,
                    count,
                    first_ms,
                    last_ms,
                },
            )
            .collect();
        exceptions.sort_by(|a, b| {
            let by_name = (&a.exception_type, &a.message).cmp(&(&b.exception_type, &b.message));
            b.count.cmp(&a.count).then(by_name)
        });
        ExceptionReport {
            thrown: exceptions.iter().map(|row| row.count).sum(),
            exceptions,
        }
    }
}
