//! The loop that drives a recording: signals, time, the end of the stream, and the answer to the
//! request to stop are messages to it.
//!
//! ```text
//! Recording ──Enter, Ctrl+C, SIGTERM, duration, full disk──► Stopping ──second Ctrl+C──► Aborting
//!     └────────────────── end of the stream ────────────────────┴──────────────────────────┴──► done
//! ```
//!
//! *Stopping* asks the target to end the session, on a second connection, while the recorder goes on
//! reading: the target answers only then. It has no time limit, because the rundown of a big process
//! takes as long as it takes. *Aborting* closes the connection; within a second the tool has ended.

use crate::child::Launched;
use crate::enter;
use crate::human;
use crate::live::{INTERVAL, LiveLine};
use crate::recording::{Outcome, Progress};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// What can happen during a recording.
#[derive(Debug)]
pub(crate) enum Message {
    /// One of the ending signals arrived.
    Signal,
    /// Enter was pressed.
    Enter,
    /// The event came that was to end the recording.
    StoppingEvent,
    /// The recorder came to the end of the stream.
    Recorded(Outcome),
    /// The target answered the request to stop, or could not be asked.
    StopAnswered(Result<(), String>),
}

/// What the loop can do to the session.
pub(crate) trait SessionControl {
    /// Asks the target to end the session; answers by a [`Message::StopAnswered`].
    fn stop(&mut self, answer: Sender<Message>);
    /// Closes the connection of the stream.
    fn abort(&mut self);
}

/// How a recording is to be driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// When to stop on its own.
    pub(crate) duration: Option<Duration>,
    /// How long the target may go on sending after it was asked to stop.
    pub(crate) rundown_timeout: Option<Duration>,
    /// Whether Enter ends the recording, where standard input is a terminal.
    pub(crate) ends_on_enter: bool,
    /// Whether lost events make the recording a failure.
    pub(crate) fail_on_drop: bool,
    /// The command gets the first Ctrl+C to itself.
    pub(crate) first_signal_is_the_childs: bool,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The stream ended without our asking.
    Target,
    /// We asked for it: duration, signal, or full disk.
    Asked,
    /// The user had no patience.
    Aborted,
    /// The time for the rundown was over.
    RundownTimeout,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Driven {
    /// What was recorded; `None` if even the recorder did not end in time.
    pub(crate) outcome: Option<Outcome>,
    /// Why it ended.
    pub(crate) reason: Reason,
    /// What went wrong with the request to stop.
    pub(crate) stop_error: Option<String>,
}

/// Time for the recorder to end after the connection is closed.
const ABORT_LIMIT: Duration = Duration::from_millis(700);
/// Time for the stream to end after the target answered the request to stop, or could not be asked.
const TAIL_LIMIT: Duration = Duration::from_secs(10);

enum Phase {
    Recording,
    Stopping,
    Aborting(Instant),
}

/// Drives a recording to its end.
pub(crate) fn drive(
    control: &mut dyn SessionControl,
    messages: &Receiver<Message>,
    sender: &Sender<Message>,
    progress: &Arc<Progress>,
    line: &mut LiveLine,
    mut child: Option<&mut Launched>,
    options: &Options,
) -> Driven {
    let mut phase = Phase::Recording;
    let mut reason = Reason::Target;
    let mut stop_error = None;
    let mut tail_deadline: Option<Instant> = None;
    let mut rundown_deadline: Option<Instant> = None;
    let mut events_at_stop = 0;
    let mut spare_signals = u32::from(options.first_signal_is_the_childs);
    loop {
        // Reaps the command; whether it has ended is asked for later.
        if let Some(child) = child.as_deref_mut() {
            child.status();
        }
        line.draw(progress, &hints(&phase, progress, events_at_stop));
        let mut stop = false;
        let mut abort = false;
        match messages.recv_timeout(INTERVAL) {
            Ok(Message::Recorded(outcome)) => {
                return Driven {
                    outcome: Some(outcome),
                    reason,
                    stop_error,
                };
            }
            Ok(Message::Signal) if spare_signals > 0 => spare_signals -= 1,
            Ok(Message::Signal) => match phase {
                Phase::Recording => stop = true,
                _ => abort = true,
            },
            Ok(Message::Enter | Message::StoppingEvent) => stop = true,
            Ok(Message::StopAnswered(answer)) => {
                stop_error = answer.err();
                tail_deadline = Some(Instant::now() + TAIL_LIMIT);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if matches!(phase, Phase::Recording) {
            stop |= options
                .duration
                .is_some_and(|duration| line.elapsed() >= duration);
            stop |= progress.write_failed.load(Ordering::Acquire);
        }
        abort |= tail_deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let rundown_is_over = rundown_deadline.is_some_and(|deadline| Instant::now() >= deadline);
        abort |= rundown_is_over;
        match phase {
            Phase::Recording if stop => {
                rundown_deadline = options.rundown_timeout.map(|limit| Instant::now() + limit);
                events_at_stop = progress.events.load(Ordering::Relaxed);
                phase = Phase::Stopping;
                if options.ends_on_enter {
                    enter::ignore();
                }
                reason = Reason::Asked;
                control.stop(sender.clone());
            }
            Phase::Stopping if abort => {
                phase = Phase::Aborting(Instant::now() + ABORT_LIMIT);
                reason = if rundown_is_over {
                    Reason::RundownTimeout
                } else {
                    Reason::Aborted
                };
                control.abort();
            }
            Phase::Aborting(deadline) if Instant::now() >= deadline => {
                return Driven {
                    outcome: None,
                    reason,
                    stop_error,
                };
            }
            _ => {}
        }
    }
}

/// What the user can do, or waits for; the shorter one for narrow terminals.
fn hints(phase: &Phase, progress: &Progress, events_at_stop: u64) -> [String; 2] {
    match phase {
        Phase::Recording => [enter::keys(), "Ctrl+C"].map(|keys| format!("{keys} stops")),
        // Most of what comes now is the rundown: the methods and modules of the process.
        Phase::Stopping => {
            let events = progress.events.load(Ordering::Relaxed);
            let rundown = human::number_of(events.saturating_sub(events_at_stop), "event");
            let long = format!("stopping: {rundown} of the rundown (Ctrl+C: now)");
            [long, "stopping (Ctrl+C: now)".to_owned()]
        }
        Phase::Aborting(_) => ["ending", "ending"].map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::StreamEnd;
    use std::sync::mpsc::channel;

    #[derive(Default)]
    struct Control {
        stops: u32,
        aborts: u32,
        /// Sent when stopped or aborted, as the recorder would.
        on_stop: Option<Outcome>,
        on_abort: Option<(Sender<Message>, Outcome)>,
    }

    impl SessionControl for Control {
        fn stop(&mut self, answer: Sender<Message>) {
            self.stops += 1;
            if let Some(outcome) = self.on_stop.take() {
                answer.send(Message::StopAnswered(Ok(()))).unwrap();
                answer.send(Message::Recorded(outcome)).unwrap();
            }
        }

        fn abort(&mut self) {
            self.aborts += 1;
            if let Some((sender, outcome)) = self.on_abort.take() {
                sender.send(Message::Recorded(outcome)).unwrap();
            }
        }
    }

    fn outcome() -> Outcome {
        Outcome {
            end: StreamEnd::Complete,
            ..crate::recording::empty()
        }
    }

    fn run(control: &mut Control, signals: u32, options: &Options, failed: bool) -> Driven {
        let (sender, receiver) = channel();
        for _ in 0..signals {
            sender.send(Message::Signal).unwrap();
        }
        if let Some((channel, _)) = &mut control.on_abort {
            *channel = sender.clone();
        }
        let progress = Arc::new(Progress::default());
        progress.write_failed.store(failed, Ordering::Release);
        let mut line = LiveLine::new(false, None);
        drive(
            control, &receiver, &sender, &progress, &mut line, None, options,
        )
    }

    const NOTHING: Options = Options {
        duration: None,
        rundown_timeout: None,
        ends_on_enter: false,
        fail_on_drop: false,
        first_signal_is_the_childs: false,
    };

    #[test]
    fn one_signal_stops_in_order() {
        let mut control = Control {
            on_stop: Some(outcome()),
            ..Control::default()
        };
        let driven = run(&mut control, 1, &NOTHING, false);
        assert_eq!((control.stops, control.aborts), (1, 0));
        assert_eq!(driven.reason, Reason::Asked);
    }

    #[test]
    fn a_second_signal_ends_a_stop_that_is_not_answered() {
        let (sender, _) = channel();
        let mut control = Control {
            on_abort: Some((sender, outcome())),
            ..Control::default()
        };
        let driven = run(&mut control, 2, &NOTHING, false);
        assert_eq!((control.stops, control.aborts), (1, 1));
        assert_eq!(driven.reason, Reason::Aborted);
        assert!(driven.outcome.is_some());
    }

    #[test]
    fn a_second_signal_ends_the_tool_even_if_the_recorder_hangs() {
        let mut control = Control::default();
        let driven = run(&mut control, 2, &NOTHING, false);
        assert!(driven.outcome.is_none());
    }

    #[test]
    fn a_full_disk_and_the_duration_stop_the_session() {
        let mut control = Control {
            on_stop: Some(outcome()),
            ..Control::default()
        };
        assert_eq!(run(&mut control, 0, &NOTHING, true).reason, Reason::Asked);
        let options = Options {
            duration: Some(Duration::from_millis(1)),
            ..NOTHING
        };
        let mut control = Control {
            on_stop: Some(outcome()),
            ..Control::default()
        };
        assert_eq!(run(&mut control, 0, &options, false).reason, Reason::Asked);
    }

    #[test]
    fn a_rundown_that_takes_too_long_is_cut() {
        let (sender, _) = channel();
        let mut control = Control {
            on_abort: Some((sender, outcome())),
            ..Control::default()
        };
        let options = Options {
            rundown_timeout: Some(Duration::from_millis(1)),
            ..NOTHING
        };
        let driven = run(&mut control, 1, &options, false);
        assert_eq!((control.stops, control.aborts), (1, 1));
        assert_eq!(driven.reason, Reason::RundownTimeout);
    }

    #[test]
    fn the_first_signal_can_belong_to_the_command() {
        let options = Options {
            first_signal_is_the_childs: true,
            ..NOTHING
        };
        let mut control = Control {
            on_stop: Some(outcome()),
            ..Control::default()
        };
        run(&mut control, 2, &options, false);
        assert_eq!((control.stops, control.aborts), (1, 0));
    }
}
