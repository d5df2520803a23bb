//! Tables that fit the terminal.
//!
//! On a terminal one column, the one that can best spare it, is cut so that no line wraps; when the
//! output goes to a file or a pipe nothing is cut.

use crate::human;
use std::fmt::Write as _;
use std::io::{self, Write};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Says below a table how many of its rows are not shown.
pub(crate) fn tell_of_more(out: &mut impl Write, count: usize, thing: &str) -> io::Result<()> {
    if count > 0 {
        let rows = human::number_of(count as u64, thing);
        writeln!(out, "… and {rows} more (-n N shows N)")?;
    }
    Ok(())
}

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// What a text that is too long loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Its beginning.
    Start,
    /// What stands between its halves.
    Middle,
    /// Its end.
    End,
}

/// A table under construction; cells are text.
#[derive(Debug)]
pub(crate) struct Table {
    headers: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    /// The columns that may be cut, the first to be cut first, and where.
    shrink: Vec<(usize, Cut)>,
    /// The columns that may be left out where cutting does not suffice, the first to go first.
    spare: Vec<usize>,
    /// What stays of each column where it is cut, as long as another can be left out.
    least: Vec<usize>,
}

/// What stays of a cut column if nothing else is asked, and of its heading all; and less of both where no other can be left out.
const CUT: usize = 8;
const CUT_SHORT: usize = 4;

impl Table {
    /// A table with these columns.
    pub(crate) fn new(headers: &[(&'static str, Align)]) -> Table {
        Table {
            headers: headers.to_vec(),
            rows: Vec::new(),
            shrink: Vec::new(),
            spare: Vec::new(),
            least: headers
                .iter()
                .map(|(name, _)| name.width().max(CUT))
                .collect(),
        }
    }

    /// Lets a column lose its end where the terminal is too narrow. Call in the order of cutting.
    pub(crate) fn may_cut_end(mut self, column: usize) -> Table {
        self.shrink.push((column, Cut::End));
        self
    }

    /// Lets a column lose its beginning (paths and provider names say most at their end).
    pub(crate) fn may_cut_start(mut self, column: usize) -> Table {
        self.shrink.push((column, Cut::Start));
        self
    }

    /// Lets a column lose what is in between (of names that begin alike the ends tell them apart).
    pub(crate) fn may_cut_middle(mut self, column: usize) -> Table {
        self.shrink.push((column, Cut::Middle));
        self
    }

    /// Lets columns go where the terminal is too narrow for the others, in this order.
    pub(crate) fn may_leave_out(mut self, columns: &[usize]) -> Table {
        self.spare.extend(columns);
        self
    }

    /// Asks for more of a column that may be cut: rather than less of it, others are left out.
    pub(crate) fn keeps(mut self, column: usize, least: usize) -> Table {
        self.least[column] = self.least[column].max(least);
        self
    }

    /// Adds a row; control characters in cells are replaced, since cells come from traces.
    pub(crate) fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| printable(&cell)).collect();
        cells.resize(self.headers.len(), String::new());
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text of the table for a width in columns; `None` cuts nothing.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let mut widths: Vec<usize> = self.headers.iter().map(|(name, _)| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let full = widths.clone();
        let mut shown: Vec<usize> = (0..widths.len()).collect();
        if let Some(limit) = width {
            let mut spare = self.spare.iter();
            loop {
                // What was left out makes room for the others.
                widths.clone_from(&full);
                self.cut_columns(&mut widths, &shown, limit, |column| self.least[column]);
                if total(&widths, &shown) <= limit {
                    break;
                }
                match spare.next() {
                    Some(column) => shown.retain(|other| other != column),
                    None => break,
                }
            }
            self.cut_columns(&mut widths, &shown, limit, |_| CUT_SHORT);
        }
        let mut out = String::new();
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, _)| (*name).into())
            .collect();
        for row in std::iter::once(&headers).chain(&self.rows) {
            let mut line = String::new();
            for &column in &shown {
                let shrink = self.shrink.iter().find(|(other, _)| *other == column);
                let place = shrink.map_or(Cut::End, |(_, place)| *place);
                let cell = cut(&row[column], widths[column], place);
                let padding = widths[column].saturating_sub(cell.width());
                let gap = if line.is_empty() { "" } else { "  " };
                let _ = match self.headers[column].1 {
                    Align::Left => write!(line, "{gap}{cell}{:padding$}", ""),
                    Align::Right => write!(line, "{gap}{:padding$}{cell}", ""),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// Cuts columns as far as it takes, but to no less than `least`.
    fn cut_columns(
        &self,
        widths: &mut [usize],
        shown: &[usize],
        limit: usize,
        least: impl Fn(usize) -> usize,
    ) {
        for &(column, _) in &self.shrink {
            let excess = total(widths, shown).saturating_sub(limit);
            let smallest = least(column).min(widths[column]);
            widths[column] = widths[column].saturating_sub(excess).max(smallest);
        }
    }
}

/// The width of a line with these columns.
fn total(widths: &[usize], shown: &[usize]) -> usize {
    let cells: usize = shown.iter().map(|&column| widths[column]).sum();
    cells + 2 * shown.len().saturating_sub(1)
}

/// No table is made narrower than this.
const NARROWEST: usize = 40;

/// Below this many columns text goes below other text rather than beside it.
const NARROW: usize = 72;

/// The width of tables on standard output; `None` when it is not a terminal.
pub(crate) fn stdout_width() -> Option<usize> {
    columns(std::io::stdout()).map(|width| width.max(NARROWEST))
}

/// The width of tables on standard error; `None` when it is not a terminal.
pub(crate) fn stderr_width() -> Option<usize> {
    stderr_columns().map(|width| width.max(NARROWEST))
}

/// The columns of the terminal on standard error; `None` when it is not a terminal.
pub(crate) fn stderr_columns() -> Option<usize> {
    columns(std::io::stderr())
}

/// Whether standard output is a terminal on which text in columns has no room.
pub(crate) fn stdout_is_narrow() -> bool {
    columns(std::io::stdout()).is_some_and(|width| width < NARROW)
}

fn columns(output: impl std::io::IsTerminal + std::os::fd::AsFd) -> Option<usize> {
    if !output.is_terminal() {
        return None;
    }
    terminal_size::terminal_size_of(output).map(|(width, _)| usize::from(width.0))
}

/// Replaces control characters, so that no text from a trace or a process moves the cursor or turns what stands
/// beside it round.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_control(c) { '\u{b7}' } else { c })
        .collect()
}

/// Whether a character changes how others are shown: the controls, and those of the direction of writing.
pub(crate) fn is_control(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_direction
}

/// A text for a terminal of a width: lines that are longer go on in the next, behind so many blanks. Words stay whole, also
/// such as are longer than a line: a path can be copied then. But those that hold JSON are broken behind its commas.
pub(crate) fn wrapped(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width.filter(|width| *width > indent) else {
        return text.to_owned();
    };
    let lines = text.split('\n').map(|line| {
        if line.width() <= width {
            return line.to_owned();
        }
        let mut out = String::new();
        let (mut used, mut gap) = (0, 0);
        for (at, word) in line.split(' ').enumerate() {
            gap += usize::from(at > 0);
            let is_json = word.width() > width - indent && word.contains(",\"");
            let end = if is_json { ',' } else { ' ' };
            for part in word.split_inclusive(end) {
                if used > 0 && used + gap + part.width() > width {
                    out.push('\n');
                    (used, gap) = (0, indent);
                }
                let _ = write!(out, "{:gap$}{part}", "");
                used += gap + part.width();
                gap = 0;
            }
        }
        out
    });
    lines.collect::<Vec<String>>().join("\n")
}

/// A text cut to a width, with `…` where something is missing.
pub(crate) fn cut(text: &str, width: usize, place: Cut) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(1);
    let behind = match place {
        Cut::Start => keep,
        Cut::Middle => keep / 2,
        Cut::End => 0,
    };
    let head = fitting(text.chars(), keep - behind);
    let tail = fitting(text.chars().rev(), behind);
    let head = head.into_iter().chain(std::iter::once('…'));
    head.chain(tail.into_iter().rev()).collect()
}

/// As many of the characters as have room.
fn fitting(characters: impl Iterator<Item = char>, room: usize) -> Vec<char> {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    characters.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("PID", Align::Right), ("NAME", Align::Left)]).may_cut_end(1);
        table.row(["7".into(), "short".into()]);
        table.row(["1234".into(), "a-name-that-is-rather-long".into()]);
        table
    }

    #[test]
    fn nothing_is_cut_without_a_terminal() {
        let text = table().render(None);
        assert_eq!(
            text,
            " PID  NAME\n   7  short\n1234  a-name-that-is-rather-long\n"
        );
    }

    #[test]
    fn the_chosen_column_is_cut_to_the_width() {
        let text = table().render(Some(20));
        assert_eq!(text, " PID  NAME\n   7  short\n1234  a-name-that-i…\n");
        assert!(text.lines().all(|line| line.width() <= 20));
        assert_eq!(cut("/usr/lib/dotnet", 7, Cut::Start), "…dotnet");
        assert_eq!(cut("漢字漢字", 5, Cut::End), "漢字…");
        for (width, expected) in [(9, "Exce…Stop"), (8, "Exce…top"), (2, "E…"), (1, "…")] {
            assert_eq!(cut("Exception/Stop", width, Cut::Middle), expected);
        }
        assert_eq!(cut("Exception/Stop", 14, Cut::Middle), "Exception/Stop");
        assert_eq!(cut("漢字漢字漢字", 8, Cut::Middle), "漢字…字");
    }

    #[test]
    fn what_can_be_spared_goes_where_cutting_does_not_suffice() {
        let headers = ["NAME", "LONG HEADING", "BYTES", "LAST"];
        let mut table = Table::new(&headers.map(|name| (name, Align::Left)))
            .may_cut_end(0)
            .may_cut_end(1)
            .may_leave_out(&[3, 2]);
        table.row(["a-long-name", "a-long-heading", "123456", "7"].map(str::to_owned));
        for (width, expected) in [
            (
                41,
                "NAME         LONG HEADING    BYTES   LAST\na-long-name  a-long-heading  123456  7\n",
            ),
            (
                38,
                "NAME      LONG HEADING    BYTES   LAST\na-long-…  a-long-heading  123456  7\n",
            ),
            (
                36,
                "NAME      LONG HEADING  BYTES   LAST\na-long-…  a-long-head…  123456  7\n",
            ),
            (
                35,
                "NAME         LONG HEADING    BYTES\na-long-name  a-long-heading  123456\n",
            ),
            (25, "NAME       LONG HEADING\na-long-n…  a-long-heading\n"),
            (16, "NAME  LONG HEAD…\na-l…  a-long-he…\n"),
        ] {
            assert_eq!(table.render(Some(width)), expected, "{width}");
        }
    }

    #[test]
    fn a_column_that_is_to_keep_more_does_so_while_others_can_go() {
        let headers = ["N", "PROVIDER", "EVENT"].map(|name| (name, Align::Left));
        let table = |least| {
            let mut table = Table::new(&headers)
                .may_cut_start(1)
                .may_cut_middle(2)
                .keeps(1, least)
                .may_leave_out(&[0]);
            table.row(["1", "Microsoft-Runtime", "ThreadAdjustment/Stop"].map(str::to_owned));
            table.render(Some(36))
        };
        assert_eq!(
            table(0),
            "N  PROVIDER    EVENT\n1  …t-Runtime  ThreadAdjustment/Stop\n"
        );
        assert_eq!(
            table(17),
            "N  PROVIDER           EVENT\n1  Microsoft-Runtime  ThreadA…t/Stop\n"
        );
        let wide = |width| {
            let mut table = Table::new(&headers[..2]).may_cut_start(1).keeps(1, 15);
            table = table.may_leave_out(&[0]);
            table.row(["123456", "Microsoft-Runtime"].map(str::to_owned));
            table.render(Some(width))
        };
        assert_eq!(wide(23), "N       PROVIDER\n123456  …rosoft-Runtime\n");
        assert_eq!(wide(22), "PROVIDER\nMicrosoft-Runtime\n");
        assert_eq!(wide(10), "PROVIDER\n…t-Runtime\n");
    }

    #[test]
    fn long_lines_go_on_behind_blanks_and_words_stay_whole() {
        let text = "one  two three\n  four /a/rather/long/path, five\nsix";
        assert_eq!(
            wrapped(text, Some(12), 2),
            "one  two\n  three\n  four\n  /a/rather/long/path,\n  five\nsix"
        );
        assert_eq!(
            wrapped(r#"x {"a":1,"b":[2,3],"c":4}"#, Some(14), 4),
            "x {\"a\":1,\n    \"b\":[2,3],\n    \"c\":4}"
        );
        assert_eq!(wrapped("漢字 漢字 a", Some(7), 1), "漢字\n 漢字 a");
        for width in [None, Some(0), Some(2), Some(33)] {
            assert_eq!(wrapped(text, width, 2), text, "{width:?}");
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[31mb\nc"), "a·[31mb·c");
        assert_eq!(printable("a\u{9b}2Jb\u{202e}c"), "a·2Jb·c");
    }
}
