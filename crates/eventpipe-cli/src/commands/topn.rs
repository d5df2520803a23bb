//! `eventpipe report topn`: the functions on which a program's time goes, or on whose stacks events are.

use crate::cli::Topn;
use crate::human;
use crate::input;
use crate::profile::{self, Profile, Wanted};
use crate::table::{self, Align, Table};
use crate::terminal;
use nettrace_analysis::stacks::{Functions, Measure, Samples, functions};
use serde::Serialize;
use std::io::Write;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    /// `thread_time` or `events`.
    measure: &'static str,
    /// `ns` or `events`.
    unit: &'static str,
    samples: u64,
    #[serde(flatten)]
    functions: &'a Functions,
}

/// Prints the report and gives the exit code.
pub(crate) fn topn(arguments: &Topn) -> anyhow::Result<u8> {
    let wanted = Wanted {
        selection: &arguments.selection,
        only_managed: arguments.managed,
        in_order: false,
    };
    let Profile {
        samples,
        names,
        damage,
    } = profile::gather(&arguments.file, &wanted)?;
    let is_time = samples.measure() == Measure::ThreadTime;
    let mut table = functions(&samples, &names);
    if arguments.inclusive {
        // What is alike stays in the order of the exclusive part.
        table
            .rows
            .sort_by_key(|row| std::cmp::Reverse(row.inclusive));
    }
    let mut out = terminal::out();
    let number = arguments.number.unwrap_or(match arguments.json {
        true => usize::MAX,
        false => USUAL,
    });
    let rows = table.rows.len();
    table.rows.truncate(number);
    if arguments.json {
        let document = Document {
            measure: if is_time { "thread_time" } else { "events" },
            unit: if is_time { "ns" } else { "events" },
            samples: samples.samples(),
            functions: &table,
        };
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
    } else {
        let name = input::name_of(&arguments.file);
        print(&mut out, &name, &samples, &table, rows)?;
    }
    out.flush()?;
    Ok(input::conclude(&arguments.file, damage))
}

/// So many functions are shown unless the number is given.
const USUAL: usize = 20;

fn print(
    out: &mut impl Write,
    name: &str,
    samples: &Samples,
    functions: &Functions,
    rows: usize,
) -> anyhow::Result<()> {
    let width = table::stdout_width();
    let head = format!("{name}: {}", headline(samples, functions));
    writeln!(out, "{}", table::wrapped(&head, width, 2))?;
    if functions.rows.is_empty() {
        return Ok(());
    }
    let is_time = samples.measure() == Measure::ThreadTime;
    let amount = |value: u64| match is_time {
        true => human::span(value.into()),
        false => human::count(value),
    };
    let mut shown = Table::new(&[
        ("EXCL %", Align::Right),
        ("INCL %", Align::Right),
        (if is_time { "EXCL" } else { "EVENTS" }, Align::Right),
        ("FUNCTION", Align::Left),
    ])
    .may_cut_end(3)
    .may_leave_out(&[2]);
    for row in &functions.rows {
        shown.row([
            format!("{:.2}", row.exclusive_percent),
            format!("{:.2}", row.inclusive_percent),
            amount(row.exclusive),
            row.name.clone(),
        ]);
    }
    write!(out, "\n{}", shown.render(width))?;
    table::tell_of_more(out, rows - functions.rows.len(), "function")?;
    Ok(())
}

/// What the percentages are of.
fn headline(samples: &Samples, functions: &Functions) -> String {
    if samples.is_empty() {
        return "no samples of threads and no event with a stack. In a recording of .NET, `--profile dotnet-sampled-thread-time` takes samples".to_owned();
    }
    let unnamed = match functions.unnamed {
        0 => String::new(),
        part => format!(
            ", {:.1} % in code without a name",
            100.0 * part as f64 / functions.total.max(1) as f64
        ),
    };
    if samples.measure() == Measure::Events {
        return format!(
            "{} by the functions on their stacks{unnamed}",
            human::number_of(functions.total, "event")
        );
    }
    let time = |ns: u64| human::span(ns.into());
    let external = samples.external();
    let left_out = samples.left_out();
    let what = match (left_out, external) {
        (1.., _) => format!(
            "{} of thread time in managed code (of {})",
            time(functions.total),
            time(samples.total() + left_out)
        ),
        (0, 0) => format!("{} of thread time", time(functions.total)),
        (0, _) => format!(
            "{} of thread time, {} of it outside of managed code: waiting or in native code (--managed leaves it out)",
            time(functions.total),
            time(external)
        ),
    };
    format!(
        "{what}, {}{unnamed}",
        human::number_of(samples.samples(), "sample")
    )
}
