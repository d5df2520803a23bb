//! A recording from its session to its last word: the recorder on a thread of its own, the loop that
//! drives it, the file brought to a good end, and the summary.

use crate::child::Launched;
use crate::commands::report::{lost_text, why_unknown};
use crate::drive::{self, Driven, Message, Options, Reason, SessionControl};
use crate::enter;
use crate::exit_code::ExitCode;
use crate::human;
use crate::live::LiveLine;
use crate::output::{self, RecordingFile};
use crate::providers::{self, Provider};
use crate::recording::{self, Outcome, Progress, StopWhen, StreamEnd};
use crate::roll::{self, Rolling};
use crate::terminal::note;
use anyhow::Context as _;
use dotnet_diagnostics::client::{Session, Stopper};
use nettrace_analysis::statistics::version_number;
use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The messages of one recording. Made first, so that a signal during the preparations is kept.
#[derive(Debug)]
pub(crate) struct Channel {
    sender: Sender<Message>,
    receiver: Receiver<Message>,
}

impl Channel {
    /// A channel on which the ending signals arrive from now on.
    pub(crate) fn with_signals() -> anyhow::Result<Channel> {
        let (sender, receiver) = channel();
        let signals = sender.clone();
        crate::signals::forward(move |_| {
            let _ = signals.send(Message::Signal);
        })
        .context("preparing for signals")?;
        Ok(Channel { sender, receiver })
    }

    /// A channel for work that an ending signal may simply end.
    pub(crate) fn without_signals() -> Channel {
        let (sender, receiver) = channel();
        Channel { sender, receiver }
    }

    /// Something to call to end the recording as Ctrl+C does.
    pub(crate) fn stopper(&self) -> impl FnOnce() + Send + 'static {
        let sender = self.sender.clone();
        move || {
            let _ = sender.send(Message::Signal);
        }
    }

    /// Whether a signal has arrived since it was asked for last.
    pub(crate) fn was_signalled(&self) -> bool {
        let mut messages = self.receiver.try_iter();
        messages.any(|message| matches!(message, Message::Signal))
    }
}

/// The ending signals, for any number of recordings: one arrives on all channels.
#[derive(Clone, Debug)]
pub(crate) struct Signals(Arc<Mutex<Arrived>>);

#[derive(Debug, Default)]
struct Arrived {
    count: u32,
    senders: Vec<Sender<Message>>,
}

impl Arrived {
    /// One more has come.
    fn arrive(&mut self) {
        self.count = self.count.saturating_add(1);
        // Recordings that are over do not listen any more.
        self.senders
            .retain(|sender| sender.send(Message::Signal).is_ok());
    }
}

impl Signals {
    /// Takes the signals from now on; so does Enter count as the first of them, where it is not the started command's.
    pub(crate) fn listen(with_enter: bool) -> anyhow::Result<Signals> {
        let signals = Signals(Arc::default());
        let arriving = signals.clone();
        crate::signals::forward(move |_| {
            enter::ignore();
            arriving.lock().arrive();
        })
        .context("preparing for signals")?;
        if with_enter {
            let arriving = signals.clone();
            enter::watch(move || {
                let mut arrived = arriving.lock();
                if arrived.count == 0 {
                    arrived.arrive();
                }
            });
        }
        Ok(signals)
    }

    /// How many have come.
    pub(crate) fn count(&self) -> u32 {
        self.lock().count
    }

    /// A channel on which they arrive, those of before too.
    pub(crate) fn channel(&self) -> Channel {
        let channel = Channel::without_signals();
        let mut arrived = self.lock();
        for _ in 0..arrived.count {
            let _ = channel.sender.send(Message::Signal);
        }
        arrived.senders.push(channel.sender.clone());
        channel
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A recording that is about to begin.
#[derive(Debug)]
pub(crate) struct Recording {
    control: Control,
    progress: Arc<Progress>,
    file: RecordingFile,
    channel: Channel,
}

/// What a recording came to.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code it asks for.
    pub(crate) code: ExitCode,
    /// Why it ended.
    pub(crate) reason: Reason,
    /// Where signals still arrive.
    pub(crate) channel: Channel,
}

impl Recording {
    /// Starts recording a session into a file, or into the files of `rolling`, which `file` then only names.
    pub(crate) fn start(
        session: Session,
        file: RecordingFile,
        rolling: Option<Rolling>,
        mut stop_when: Option<StopWhen>,
        channel: Channel,
    ) -> anyhow::Result<Recording> {
        let control = Control::new(&session)?;
        let progress = Arc::new(Progress::default());
        let writer = file.writer().context("duplicating a descriptor")?;
        let (sender, shared) = (channel.sender.clone(), Arc::clone(&progress));
        if let Some(stop_when) = &mut stop_when {
            let sender = channel.sender.clone();
            stop_when.stop = Some(Box::new(move || {
                let _ = sender.send(Message::StoppingEvent);
            }));
        }
        let recorder = move || {
            let seeing = stop_when.as_mut();
            let mut outcome = match rolling {
                Some(rolling) => roll::record(session, rolling, &shared, seeing),
                None => recording::record(session, writer, &shared, seeing),
            };
            outcome.missed = stop_when.as_ref().and_then(StopWhen::missed);
            let _ = sender.send(Message::Recorded(outcome));
        };
        thread::Builder::new()
            .name("recorder".into())
            .spawn(recorder)
            .context("starting a thread")?;
        Ok(Recording {
            control,
            progress,
            file,
            channel,
        })
    }

    /// Goes on until the recording ends, brings the file to a good end, and sums up; says of which of the providers that
    /// were asked for nothing came.
    pub(crate) fn run(
        mut self,
        options: &Options,
        asked: &[Provider],
        show_line: bool,
        child: Option<&mut Launched>,
    ) -> Finished {
        if options.ends_on_enter {
            let sender = self.channel.sender.clone();
            enter::watch(move || {
                let _ = sender.send(Message::Enter);
            });
        }
        let mut line = LiveLine::new(show_line, options.duration);
        let driven = drive::drive(
            &mut self.control,
            &self.channel.receiver,
            &self.channel.sender,
            &self.progress,
            &mut line,
            child,
            options,
        );
        line.clear();
        let elapsed = human::span(line.elapsed().as_nanos());
        let code = conclude(&driven, &mut self.file, &elapsed, options.fail_on_drop);
        if let Some(outcome) = driven.outcome.as_ref().filter(|outcome| outcome.bytes > 0) {
            let name = self.file.name();
            if let Some(missed) = &outcome.missed {
                note(format_args!(
                    "{name}: the stopping event never came: {missed}"
                ));
            }
            tell_of_silent(&name, asked, &outcome.providers);
        }
        Finished {
            code,
            reason: driven.reason,
            channel: self.channel,
        }
    }
}

/// The two ways to end a session from outside its recorder.
#[derive(Debug)]
struct Control {
    stopper: Stopper,
    /// A second handle of the stream's connection.
    stream: UnixStream,
}

impl Control {
    fn new(session: &Session) -> anyhow::Result<Control> {
        let stream = session
            .as_fd()
            .try_clone_to_owned()
            .context("duplicating a descriptor")?;
        Ok(Control {
            stopper: session.stopper(),
            stream: stream.into(),
        })
    }
}

impl SessionControl for Control {
    fn stop(&mut self, answer: Sender<Message>) {
        let stopper = self.stopper.clone();
        let answered = answer.clone();
        let asked = thread::Builder::new()
            .name("stopper".into())
            .spawn(move || {
                let result = stopper.stop().map(drop).map_err(|error| error.to_string());
                let _ = answered.send(Message::StopAnswered(result));
            });
        if let Err(error) = asked {
            let _ = answer.send(Message::StopAnswered(Err(error.to_string())));
        }
    }

    fn abort(&mut self) {
        // Reading ends; the target notices at its next write.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Brings the file to a good end, says what came of the recording, and gives the exit code.
fn conclude(
    driven: &Driven,
    file: &mut RecordingFile,
    elapsed: &str,
    fail_on_drop: bool,
) -> ExitCode {
    let name = file.name();
    if let Some(error) = &driven.stop_error {
        note(format_args!(
            "eventpipe: the session could not be ended properly: {error}"
        ));
    }
    let Some(outcome) = &driven.outcome else {
        note(format_args!(
            "{name}: cut short; it is readable up to its last complete block"
        ));
        return ExitCode::Tracing;
    };
    // Streams of processes have version 4 where nobody asked for another one.
    let format = outcome.format.map_or(4, version_number);
    note(format_args!(
        "{name}: {}, {}, {} lost{}, {elapsed}",
        human::bytes(outcome.bytes),
        human::number_of(outcome.events, "event"),
        lost_text(outcome.lost, outcome.lost_at_least),
        why_unknown(outcome.lost, outcome.lost_at_least, format),
    ));
    if outcome.bytes == 0 && outcome.write_error.is_none() {
        file.remove_empty();
        note(
            "eventpipe: the process sent nothing: it has just ended, or it is suspended (see `eventpipe resume`)",
        );
        return ExitCode::Tracing;
    }
    if let Some(files) = &outcome.pieces {
        note(format_args!(
            "{name}: {} file{} made, {} kept, each complete in itself",
            human::count(files.made),
            if files.made == 1 { " was" } else { "s were" },
            human::count(files.kept)
        ));
    }
    if let Some(error) = &outcome.write_error {
        let rolled = outcome.pieces.as_ref();
        let (name, state) = match rolled.and_then(|files| files.failed.as_ref()) {
            None => (name, after_failed_write(file)),
            Some((path, left)) => (
                path.display().to_string(),
                after_failed_roll(left.as_deref()),
            ),
        };
        note(format_args!(
            "eventpipe: cannot write {name}: {}; {state}",
            output::cause(error)
        ));
        return ExitCode::Output;
    }
    match &outcome.end {
        StreamEnd::Complete if fail_on_drop && outcome.lost > 0 => {
            note(format_args!(
                "eventpipe: {} lost, which --fail-on-drop makes a failure",
                human::number_of(outcome.lost, "event")
            ));
            ExitCode::EventsLost
        }
        StreamEnd::Complete => ExitCode::Ok,
        StreamEnd::Cut => {
            let closed = outcome.pieces.is_some() || close_cut(file, outcome);
            let cause = match driven.reason {
                Reason::Aborted => "the recording was cut short",
                Reason::RundownTimeout => "the rundown took too long (--rundown-timeout)",
                Reason::Target | Reason::Asked => "the stream broke off (was the process killed?)",
            };
            note(format_args!(
                "eventpipe: {cause}; {}",
                readable_text(closed)
            ));
            ExitCode::Tracing
        }
        StreamEnd::NotUnderstood(error) => {
            note(format_args!(
                "eventpipe: everything was recorded, but could not be counted to the end: {error}"
            ));
            ExitCode::Damaged
        }
    }
}

/// A name that is wrong, or keywords that no event has, look like a program that is silent.
fn tell_of_silent(file: &str, asked: &[Provider], came: &BTreeSet<String>) {
    if let Some(text) = silent(asked, came) {
        note(format_args!("{file}: nothing came from {text}"));
    }
}

/// Who is silent, and why that may be.
fn silent(asked: &[Provider], came: &BTreeSet<String>) -> Option<String> {
    let silent: Vec<&Provider> = asked
        .iter()
        .filter(|provider| provider.is_named() && provider.name != providers::ALL)
        .filter(|provider| !came.contains(&provider.name))
        .collect();
    let names: Vec<&str> = silent
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    let is_without_interval = |one: &&Provider| one.name == COUNTERS && one.arguments.is_empty();
    let hint = if silent.iter().any(is_without_interval) {
        format!("; counters want an interval: {COUNTERS}:0:4:EventCounterIntervalSec=1")
    } else {
        String::new()
    };
    (!names.is_empty()).then(|| {
        format!(
            "{}: it wrote no event with these keywords at this level, or its name is another (upper and lower case count){hint}",
            names.join(", ")
        )
    })
}

/// A provider of .NET that has counters and hardly anything else.
const COUNTERS: &str = "System.Runtime";

fn readable_text(closed: bool) -> &'static str {
    if closed {
        "the file holds every complete block"
    } else {
        "what was written is readable up to its last complete block"
    }
}

/// Ends a cut-off file properly. Whether it could be done.
fn close_cut(file: &mut RecordingFile, outcome: &Outcome) -> bool {
    match (file.regular(), outcome.format, outcome.complete_bytes) {
        (Some(file), Some(format), Some(length)) => {
            recording::close_cut(file, format, length).is_ok()
        }
        _ => false,
    }
}

/// The same where the file holds less than what was received: it is read again to see how far it
/// goes. Gives the words for what is kept.
fn after_failed_write(file: &mut RecordingFile) -> String {
    let close = |file: &mut RecordingFile| {
        file.regular()?;
        let again = std::fs::File::open(file.path()).ok()?;
        let reread = recording::record(again, std::io::sink(), &Progress::default(), None);
        close_cut(file, &reread).then_some(reread.events)
    };
    match close(file) {
        Some(1) => "the file holds the first event".to_owned(),
        Some(events) => format!("the file holds the first {} events", human::count(events)),
        None => readable_text(false).to_owned(),
    }
}

/// The words for what is kept of several files, where one could perhaps not be completed.
fn after_failed_roll(left: Option<&Path>) -> String {
    match left {
        None => "the files hold every complete block".to_owned(),
        Some(left) => format!(
            "{} is readable up to its last complete block",
            left.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_named_and_counters_want_an_interval() {
        let asked = |list| providers::parse_list(list, "--providers").unwrap();
        let came = BTreeSet::from(["A".to_owned()]);
        assert_eq!(silent(&asked("A:1,*"), &came), None);
        let said = silent(&asked("A,B,System.Runtime"), &came).unwrap();
        assert!(said.starts_with("B, System.Runtime: "), "{said}");
        assert!(said.ends_with(":EventCounterIntervalSec=1"), "{said}");
        let said = silent(
            &asked("System.Runtime:0:4:EventCounterIntervalSec=1"),
            &came,
        );
        assert!(!said.unwrap().contains("want an interval"));
    }
}
