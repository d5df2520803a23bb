//! Activities: what begins with a start event and ends with a stop event, such as requests and spans, with how long it took.
//!
//! ```no_run
//! use nettrace_analysis::activities::Activities;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reader = nettrace::Reader::new(std::fs::File::open("trace.nettrace")?)?;
//! let (info, mut events) = (reader.info().clone(), reader.dispatch_order());
//! let mut activities = Activities::new();
//! while let Some(event) = events.next_event()? {
//!     activities.add(&info, &event);
//! }
//! for row in activities.finish().activities {
//!     println!("{:>8} {:>10.3} ms {}/{}", row.count, row.median_ms, row.provider, row.activity);
//! }
//! # Ok(()) }
//! ```
//!
//! Events belong together whose names differ in `/Start` and `/Stop` only, by the activity id that both carry. Without an id they belong together by thread:
//! a stop ends what was started last there. Memory grows with the number of activities: eight bytes each, and more while one is not over.

use nettrace::payload::Value;
use nettrace::{Event, Guid, TraceInfo};
use serde::Serialize;
use std::collections::HashMap;

/// One name for all its activities: what they are is a field.
const DIAGNOSTIC_SOURCE: &str = "Microsoft-Diagnostics-DiagnosticSource";

/// The activities of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ActivityReport {
    /// Activities with a start and a stop.
    pub count: u64,
    /// Activities without a stop.
    pub open: u64,
    /// By provider and name, the one with most time first.
    pub activities: Vec<Activity>,
}

/// All activities of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// The provider.
    pub provider: String,
    /// The name that start and stop share; of Microsoft-Diagnostics-DiagnosticSource the field ActivityName.
    pub activity: String,
    /// How many have a start and a stop.
    pub count: u64,
    /// How many have no stop: they were not over at the end of the trace, or the stop is lost.
    pub open: u64,
    /// How long those with a stop took together.
    pub total_ms: f64,
    /// Half of them took no longer.
    pub median_ms: f64,
    /// Nineteen of twenty took no longer.
    pub p95_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// What tells activities apart that are under way.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    process_id: u64,
    /// 0 where there is an id.
    thread_id: u64,
    id: Guid,
    row: usize,
}

#[derive(Debug)]
struct Row {
    provider: String,
    activity: String,
    /// How long each took that is over.
    took_ms: Vec<f64>,
    open: u64,
}

/// Gathers activities.
#[derive(Debug, Default)]
pub struct Activities {
    rows: Vec<Row>,
    places: HashMap<(String, String), usize>,
    /// When those under way began, the last one last.
    open: HashMap<Key, Vec<f64>>,
}

impl Activities {
    /// Nothing gathered yet.
    pub fn new() -> Activities {
        Activities::default()
    }

    /// Takes an event.
    pub fn add(&mut self, info: &TraceInfo, event: &Event<'_>) {
        let name = event.schema().event_name();
        let (name, is_start) = match (name.strip_suffix("/Start"), name.strip_suffix("/Stop")) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => return,
        };
        let provider = &event.metadata().provider;
        let named = (provider == DIAGNOSTIC_SOURCE)
            .then(|| field(event, "ActivityName"))
            .flatten();
        let row = self.row(provider, named.as_deref().unwrap_or(name));
        let id = event.activity_id();
        let thread_id = match id {
            Guid::ZERO => event.thread_id(),
            _ => 0,
        };
        let key = Key {
            process_id: event.process_id(),
            thread_id,
            id,
            row,
        };
        let now = info.nanoseconds(event.timestamp()) as f64 / 1e6;
        if is_start {
            self.rows[row].open += 1;
            self.open.entry(key).or_default().push(now);
            return;
        }
        // What began before the trace has no start.
        let Some(starts) = self.open.get_mut(&key) else {
            return;
        };
        let start = starts.pop();
        if starts.is_empty() {
            self.open.remove(&key);
        }
        if let Some(start) = start {
            let row = &mut self.rows[row];
            row.open -= 1;
            row.took_ms.push(now - start);
        }
    }

    fn row(&mut self, provider: &str, activity: &str) -> usize {
        let key = (provider.to_owned(), activity.to_owned());
        *self.places.entry(key).or_insert_with(|| {
            self.rows.push(Row {
                provider: provider.to_owned(),
                activity: activity.to_owned(),
                took_ms: Vec::new(),
                open: 0,
            });
            self.rows.len() - 1
        })
    }

    /// The report.
    pub fn finish(self) -> ActivityReport {
        let rows = self.rows.into_iter();
        let mut activities: Vec<Activity> = rows
            .map(|mut row| {
                row.took_ms.sort_by(f64::total_cmp);
                // The smallest value that so many are not above.
                let part = |of: f64| {
                    let place = (row.took_ms.len() as f64 * of).ceil() as usize;
                    let value = row.took_ms.get(place.saturating_sub(1));
                    value.copied().unwrap_or(0.0)
                };
                Activity {
                    count: row.took_ms.len() as u64,
                    open: row.open,
                    total_ms: row.took_ms.iter().sum(),
                    median_ms: part(0.5),
                    p95_ms: part(0.95),
                    max_ms: part(1.0),
                    provider: row.provider,
                    activity: row.activity,
                }
            })
            .collect();
        activities.sort_by(|a, b| {
            let by_name = (&a.provider, &a.activity).cmp(&(&b.provider, &b.activity));
            b.total_ms.total_cmp(&a.total_ms).then(by_name)
        });
        ActivityReport {
            count: activities.iter().map(|row| row.count).sum(),
            open: activities.iter().map(|row| row.open).sum(),
            activities,
        }
    }
}

/// A text of the payload.
fn field(event: &Event<'_>, wanted: &str) -> Option<String> {
    let mut fields = event.schema().fields(event.payload());
    fields.find_map(|(name, value)| match value {
        Value::String(text) if name == wanted => Some(text.to_string()),
        _ => None,
    })
}
