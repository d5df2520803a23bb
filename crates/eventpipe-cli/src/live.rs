//! The live line of a recording: elapsed time, bytes, rate, events, losses.
//!
//! Drawn on standard error and only on a terminal, and not by a job in the background. The line is kept shorter than the terminal is wide, and not filled up
//! with blanks: the `^C` that a terminal echoes must find room in it, or it would begin a new line and leave this one.

use crate::human;
use crate::recording::Progress;
use crate::table;
use crate::terminal;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr as _;

/// How often the line is drawn anew.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// The rate shown is that of the last so many drawings.
const RATE_WINDOW: usize = 20;

/// Columns left free at the end of the line.
const ROOM: usize = 4;

/// A line that is drawn over and over.
#[derive(Debug)]
pub(crate) struct LiveLine {
    shown: bool,
    started: Instant,
    duration: Option<Duration>,
    recent: VecDeque<(Instant, u64)>,
}

impl LiveLine {
    /// A line for a recording that starts now. `shown` false draws nothing.
    pub(crate) fn new(shown: bool, duration: Option<Duration>) -> LiveLine {
        LiveLine {
            shown: shown && terminal::can_draw(),
            started: Instant::now(),
            duration,
            recent: VecDeque::new(),
        }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Draws the line; `hints` are what the user can do, or waits for, the longer one first.
    pub(crate) fn draw(&mut self, progress: &Progress, hints: &[String; 2]) {
        if !self.shown {
            return;
        }
        let bytes = progress.bytes.load(Ordering::Relaxed);
        let now = Instant::now();
        self.recent.push_back((now, bytes));
        if self.recent.len() > RATE_WINDOW {
            self.recent.pop_front();
        }
        let rate = self.recent.front().map_or(0, |&(then, before)| {
            let seconds = now.duration_since(then).as_secs_f64().max(0.001);
            ((bytes - before) as f64 / seconds) as u64
        });
        let mut elapsed = human::clock(self.started.elapsed());
        if let Some(duration) = self.duration {
            elapsed = format!("{elapsed}/{}", human::clock(duration));
        }
        let bytes = human::bytes(bytes);
        let figures = format!(
            "{}  {} lost",
            human::number_of(progress.events.load(Ordering::Relaxed), "event"),
            human::count(progress.lost.load(Ordering::Relaxed)),
        );
        let long = format!("{elapsed}  {bytes}  {}/s  {figures}", human::bytes(rate));
        let width = table::stderr_columns()
            .unwrap_or(usize::MAX)
            .saturating_sub(ROOM);
        if !terminal::is_in_foreground() {
            return terminal::leave_line();
        }
        terminal::line(&fitting(
            &[long, format!("{elapsed}  {figures}")],
            hints,
            width,
        ));
    }

    /// Takes the line away, so that other text can be printed.
    pub(crate) fn clear(&self) {
        if self.shown && terminal::is_in_foreground() {
            terminal::line("");
        }
    }
}

/// The longest line for which there is room: the figures matter more than the hint, the longer of both than the rate.
fn fitting([text, brief]: &[String; 2], [long, short]: &[String; 2], width: usize) -> String {
    let lines = [
        format!("{text}  {long}"),
        format!("{text}  {short}"),
        format!("{brief}  {short}"),
        brief.clone(),
    ];
    let fits = lines.into_iter().find(|line| line.width() <= width);
    fits.unwrap_or_else(|| table::cut(brief, width, table::Cut::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_as_long_as_there_is_room() {
        let texts = ["00:00:01  7 MB  2 events", "00:00:01  2 events"].map(str::to_owned);
        let hints = ["Enter or Ctrl+C stops", "Ctrl+C stops"].map(str::to_owned);
        for (width, line) in [
            (47, "00:00:01  7 MB  2 events  Enter or Ctrl+C stops"),
            (46, "00:00:01  7 MB  2 events  Ctrl+C stops"),
            (37, "00:00:01  2 events  Ctrl+C stops"),
            (31, "00:00:01  2 events"),
            (12, "00:00:01  2…"),
        ] {
            assert_eq!(fitting(&texts, &hints, width), line);
        }
    }
}
