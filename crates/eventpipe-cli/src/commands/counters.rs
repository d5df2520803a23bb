//! `eventpipe counters`: the counters of a process as they change.

use crate::attach::Channel;
use crate::cli::Monitor;
use crate::commands::rows;
use crate::exit_code::{ExitCode, Failure};
use crate::human;
use crate::reach::reach;
use crate::table::{self, printable};
use crate::target::attach_failure;
use crate::terminal;
use anyhow::Context as _;
use dotnet_diagnostics::client::{Fallbacks, Session};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use nettrace::Reader;
use nettrace::views::METRICS;
use nettrace_analysis::runtime::{CounterReport, Counters};
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What is asked for unless something is named.
const USUAL: &str = "System.Runtime";

/// The level at which counters are published, and the keyword of instruments' values.
const INFORMATIONAL: u8 = 4;
const INSTRUMENT_VALUES: u64 = 2;

/// How often is looked for something new, and how long nothing comes between the values of one interval and those of the next.
const LOOK: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_millis(150);

/// What has come so far.
#[derive(Debug)]
struct Seen {
    counters: Counters,
    /// When the last value came.
    changed: Option<Instant>,
    /// The stream is over, and why if that was too early.
    over: Option<Result<(), nettrace::Error>>,
}

/// Shows counters until a signal comes, the time is over or the process ends; gives the exit code.
pub(crate) fn counters(arguments: &Monitor) -> anyhow::Result<u8> {
    let wanted = wanted(&arguments.counters)?;
    let channel = Channel::with_signals()?;
    let reached = reach(&arguments.target, &channel)?;
    let session = reached
        .client
        .collect(&request(&wanted, arguments.interval), Fallbacks::LOSSLESS)
        .map_err(attach_failure)?;
    let stopper = session.stopper();
    let seen = Arc::new(Mutex::new(Seen {
        counters: Counters::of_interval(arguments.interval),
        changed: None,
        over: None,
    }));
    let reading = {
        let seen = seen.clone();
        thread::spawn(move || read(session, &seen))
    };
    let name = format!("{} (process {})", printable(&reached.name), reached.pid);
    let mut screen = Screen::new(arguments.json, &name);
    let (started, mut shown) = (Instant::now(), None);
    let mut stopping = None;
    loop {
        thread::sleep(LOOK);
        let (report, changed, is_over) = {
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = seen.changed != shown;
            let is_quiet = seen.changed.is_some_and(|at| at.elapsed() >= QUIET);
            let is_over = seen.over.is_some();
            let report = (is_new && (is_quiet || is_over)).then(|| seen.counters.report());
            (report, seen.changed, is_over)
        };
        if let Some(mut report) = report {
            shown = changed;
            keep(&mut report, &wanted);
            screen.show(&report)?;
        }
        if is_over {
            break;
        }
        let is_late = arguments
            .duration
            .is_some_and(|limit| started.elapsed() >= limit);
        if stopping.is_none() && (is_late || channel.was_signalled()) {
            let stopper = stopper.clone();
            // It takes as long as the stream is read.
            stopping = Some(thread::spawn(move || stopper.stop()));
        }
    }
    drop(reading.join());
    screen.end()?;
    let was_stopped = stopping.is_some();
    if let Some(stopping) = stopping
        && let Ok(stopped) = stopping.join()
    {
        stopped.map_err(attach_failure)?;
    }
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.changed.is_none() {
        terminal::note(format_args!("{name}: no value has come{}", why(&wanted)));
    }
    if !was_stopped {
        let text = format!("{name} has ended");
        terminal::note(text);
        return Ok(ExitCode::Tracing as u8);
    }
    Ok(ExitCode::Ok as u8)
}

/// What may be wrong where nothing comes.
fn why(wanted: &[(String, Vec<String>)]) -> String {
    let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    format!(
        ": {} may not exist there, or the interval is not over",
        names.join(", ")
    )
}

/// Names of providers and meters, each with the counters that are to be shown; none: all.
fn wanted(list: &[String]) -> Result<Vec<(String, Vec<String>)>, Failure> {
    if list.is_empty() {
        return Ok(vec![(USUAL.to_owned(), Vec::new())]);
    }
    let wrong = |text: &str| {
        let text = format!("--counters '{text}': write NAME or NAME[counter,counter]");
        Failure::new(ExitCode::Arguments, text)
    };
    let mut wanted = Vec::new();
    let mut rest = list.join(",");
    while !rest.is_empty() {
        let end = rest.find([',', '[']).unwrap_or(rest.len());
        let name = rest[..end].trim().to_owned();
        if name.is_empty() {
            return Err(wrong(&rest));
        }
        let mut only = Vec::new();
        let mut behind = rest[end..].to_owned();
        if let Some(inner) = behind.strip_prefix('[') {
            let Some((names, after)) = inner.split_once(']') else {
                return Err(wrong(&rest));
            };
            only.extend(names.split(',').map(|name| name.trim().to_owned()));
            if only.iter().any(String::is_empty) {
                return Err(wrong(&rest));
            }
            behind = after.to_owned();
        }
        match behind.strip_prefix(',') {
            Some(after) if !after.is_empty() => rest = after.to_owned(),
            None if behind.is_empty() => rest = String::new(),
            _ => return Err(wrong(&rest)),
        }
        wanted.push((name, only));
    }
    Ok(wanted)
}

/// A name may be that of a provider with EventCounters, or of a meter: both are asked for.
fn request(wanted: &[(String, Vec<String>)], interval: Duration) -> CollectTracing {
    let seconds = interval.as_secs_f64();
    let mut providers: Vec<ProviderConfig> = wanted
        .iter()
        .map(|(name, _)| {
            let mut provider = ProviderConfig::new(name.as_str(), 0, INFORMATIONAL);
            provider.arguments = Some(format!("EventCounterIntervalSec={seconds}"));
            provider
        })
        .collect();
    // The runtime's own meter has what its EventCounters have.
    let meters: Vec<&str> = wanted
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| *name != USUAL)
        .collect();
    if !meters.is_empty() {
        let mut metrics = ProviderConfig::new(METRICS, INSTRUMENT_VALUES, INFORMATIONAL);
        let id = format!("eventpipe-{}", std::process::id());
        metrics.arguments = Some(format!(
            "SessionId={id};ClientId={id};Metrics={};RefreshInterval={seconds};MaxTimeSeries=1000;MaxHistograms=20",
            meters.join(",")
        ));
        providers.push(metrics);
    }
    let mut collect = CollectTracing::new(providers);
    collect.buffer_mb = 64;
    collect.rundown_keyword = 0;
    collect
}

fn read(session: Session, seen: &Mutex<Seen>) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let over = match Reader::new(session) {
        Err(error) => Err(error),
        Ok(mut reader) => {
            let info = reader.info().clone();
            loop {
                match reader.next_event() {
                    Ok(Some(event)) => {
                        let mut seen = lock();
                        if seen.counters.add(&info, &event) {
                            seen.changed = Some(Instant::now());
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            }
        }
    };
    lock().over = Some(over);
}

/// Leaves the counters that were asked for.
fn keep(report: &mut CounterReport, wanted: &[(String, Vec<String>)]) {
    report.counters.retain(|row| {
        let mut wanted = wanted.iter().filter(|(name, _)| *name == row.provider);
        // A histogram has its quantile behind its name.
        wanted.any(|(_, only)| {
            only.is_empty()
                || only.iter().any(|name| {
                    *name == row.name
                        || row
                            .name
                            .strip_prefix(name.as_str())
                            .is_some_and(|rest| rest.starts_with(" p"))
                })
        })
    });
    report.values = report.counters.iter().map(|row| row.count).sum();
}

/// Where counters are shown: a table that is drawn anew on a terminal, a line of JSON each time, or one table at the end.
struct Screen {
    json: bool,
    is_terminal: bool,
    title: String,
    /// Lines of the table that is shown.
    lines: usize,
    last: Option<String>,
}

impl Screen {
    fn new(json: bool, title: &str) -> Screen {
        Screen {
            json,
            is_terminal: !json && io::stdout().is_terminal() && terminal::can_draw(),
            title: title.to_owned(),
            lines: 0,
            last: None,
        }
    }

    fn show(&mut self, report: &CounterReport) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, report).map_err(io::Error::from)?;
            writeln!(out)?;
            out.flush()?;
            return Ok(());
        }
        let width = table::stdout_width();
        let text = format!(
            "{}: {}\n\n{}",
            self.title,
            human::number_of(report.counters.len() as u64, "counter"),
            rows::of_counters(report).render(width)
        );
        if self.is_terminal {
            let rows = terminal_size::terminal_size().map_or(24, |(_, rows)| usize::from(rows.0));
            let shown: Vec<&str> = text.lines().take(rows.saturating_sub(2)).collect();
            // Up to where the last one began, and away with it.
            let back = match self.lines {
                0 => String::new(),
                lines => format!("\x1b[{lines}F\x1b[J"),
            };
            writeln!(out, "{back}{}", shown.join("\n"))?;
            out.flush()?;
            self.lines = shown.len();
        }
        self.last = Some(text);
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        if self.is_terminal && self.lines > 0 {
            // Behind the `^C` that the terminal has echoed.
            writeln!(io::stdout().lock())?;
        }
        if let Some(text) = self.last.take().filter(|_| !self.is_terminal) {
            let mut out = terminal::out();
            out.write_all(text.as_bytes()).context("writing")?;
            out.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_as_for_dotnet_counters() {
        let parse = |text: &str| wanted(&[text.to_owned()]);
        let owned = |name: &str, only: &[&str]| {
            let only = only.iter().map(|name| (*name).to_owned());
            (name.to_owned(), only.collect::<Vec<_>>())
        };
        assert_eq!(wanted(&[]).unwrap(), [owned("System.Runtime", &[])]);
        assert_eq!(parse("A,B").unwrap(), [owned("A", &[]), owned("B", &[])]);
        assert_eq!(
            parse("A[x, y],B,C[z]").unwrap(),
            [owned("A", &["x", "y"]), owned("B", &[]), owned("C", &["z"])]
        );
        for wrong in ["A[x", "A[]", ",A", "A,", "A[x]B", "[x]", "A,,B"] {
            let failure = parse(wrong).unwrap_err();
            assert_eq!(failure.code(), ExitCode::Arguments, "{wrong}");
        }
    }
}
