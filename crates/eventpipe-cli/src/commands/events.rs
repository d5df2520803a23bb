//! `eventpipe events`: the events of a trace as lines of text, JSON or CSV.

use crate::cli::{Events, Order};
use crate::exit_code::{ExitCode, Failure};
use crate::filter::Filter;
use crate::human;
use crate::input;
use crate::meanwhile::Meanwhile;
use crate::table::{self, printable};
use crate::terminal::{self, Out};
use nettrace::payload::Value;
use nettrace::runtime_events::TypeNames;
use nettrace::{Event, Reader, ReaderOptions, TraceInfo};
use nettrace_analysis::events::{CsvRows, JsonLines, Options, append_json_value};
use std::io::{self, IsTerminal as _, Read, Write as _};

/// Prints the events and gives the exit code.
pub(crate) fn events(arguments: &Events) -> anyhow::Result<u8> {
    if human::is_backwards(arguments.selection.from, arguments.selection.to) {
        let text = "--from is later than --to";
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let mut reader = input::open(&arguments.file, ReaderOptions::default())?;
    let info = reader.info().clone();
    let mut printer = Printer::new(arguments, &info)?;
    let name = input::name_of(&arguments.file);
    // On a terminal the events themselves are what is to be seen.
    let meanwhile = if io::stdout().is_terminal() {
        Meanwhile::silent()
    } else {
        Meanwhile::reading()
    };
    let damage = match arguments.order {
        Order::File => {
            let damage = loop {
                match reader.next_event() {
                    Ok(Some(event)) => printer.event(&event)?,
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            drop(meanwhile);
            printer.finish(&name, &reader)?;
            input::tell_of_more(&arguments.file, &reader);
            damage
        }
        Order::Dispatch => {
            let mut ordered = reader.dispatch_order();
            let damage = loop {
                match ordered.next_event() {
                    Ok(Some(event)) => printer.event(&event)?,
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            drop(meanwhile);
            printer.finish(&name, ordered.reader())?;
            input::tell_of_more(&arguments.file, ordered.reader());
            damage
        }
    };
    Ok(input::conclude(&arguments.file, damage))
}

/// The form of the output.
#[derive(Debug)]
enum Form {
    Json(JsonLines),
    Csv(CsvRows),
    Text(Text),
}

#[derive(Debug)]
struct Printer<'a> {
    filter: Filter<'a>,
    form: Form,
    out: Out,
    /// A terminal sees each line at once: the trace may come from a pipe that is still being filled.
    at_once: bool,
    line: Vec<u8>,
    /// Events of the trace, and those that passed.
    seen: u64,
    printed: u64,
}

impl<'a> Printer<'a> {
    fn new(arguments: &'a Events, info: &TraceInfo) -> anyhow::Result<Printer<'a>> {
        let options = Options {
            raw: arguments.raw,
            stacks: arguments.stacks,
            ..Options::default()
        };
        let mut line = Vec::new();
        let form = if arguments.json {
            Form::Json(JsonLines::new(info, options))
        } else if arguments.csv {
            let rows = CsvRows::new(info, options);
            rows.append_heading(&mut line)?;
            Form::Csv(rows)
        } else {
            Form::Text(Text::new(info, options))
        };
        let mut out = terminal::out();
        out.write_all(&line)?;
        let at_once = io::stdout().is_terminal();
        Ok(Printer {
            filter: Filter::new(&arguments.selection, info),
            form,
            out,
            at_once,
            line,
            seen: 0,
            printed: 0,
        })
    }

    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.seen += 1;
        if !self.filter.passes(event) {
            // Later events may refer to it.
            match &mut self.form {
                Form::Json(lines) => lines.pass(event),
                Form::Csv(rows) => rows.lines().pass(event),
                Form::Text(text) => text.pass(event),
            }
            return Ok(());
        }
        self.printed += 1;
        self.line.clear();
        match &mut self.form {
            Form::Json(lines) => lines.append(event, &mut self.line),
            Form::Csv(rows) => rows.append(event, &mut self.line)?,
            Form::Text(text) => text.append(event, &mut self.line)?,
        }
        self.out.write_all(&self.line)?;
        if self.at_once {
            self.out.flush()?;
        }
        Ok(())
    }

    /// Writes out what is left, and says what was asked for and is not there.
    fn finish<R: Read>(&mut self, name: &str, reader: &Reader<R>) -> io::Result<()> {
        self.out.flush()?;
        if let (0, seen @ 1..) = (self.printed, self.seen) {
            let seen = human::number_of(seen, "event");
            terminal::note(format_args!("{name}: none of {seen} is as asked"));
        }
        self.filter.tell_of_absent(name, reader.all_metadata());
        Ok(())
    }
}

/// Where the provider begins in a line.
const COLUMN: usize = 26;

/// Lines for people: milliseconds, thread, provider/event, fields.
#[derive(Debug)]
struct Text {
    info: TraceInfo,
    options: Options,
    types: TypeNames,
    /// Of the terminal, and where the lines go on that are longer.
    width: Option<usize>,
    indent: usize,
}

impl Text {
    fn new(info: &TraceInfo, options: Options) -> Text {
        Text {
            info: info.clone(),
            options,
            types: TypeNames::default(),
            width: table::stdout_width(),
            indent: if table::stdout_is_narrow() { 6 } else { COLUMN },
        }
    }

    fn pass(&mut self, event: &Event<'_>) {
        self.types.see(event);
    }

    /// Appends to nothing: the line begins with the event.
    fn append(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        self.pass(event);
        let metadata = event.metadata();
        let payload = event.payload();
        let ms = self.info.nanoseconds(event.timestamp()) as f64 / 1e6;
        let types = &self.types;
        let schema = event.schema();
        write!(
            out,
            "{ms:>14.6}  {:>8}  {}/{}",
            event.thread_id(),
            printable(&metadata.provider),
            printable(schema.event_name()),
        )?;
        let mut separator: &[u8] = b"  ";
        schema.show(payload, event.process_id(), types, &mut |name, value| {
            out.extend_from_slice(separator);
            separator = b" ";
            if !name.is_empty() {
                out.extend_from_slice(printable(name).as_bytes());
                out.push(b'=');
            }
            match value {
                // Quotes are for strings; programs that cannot hold 64 bits read the JSON.
                Some(Value::Int64(number)) => append(out, format_args!("{number}")),
                Some(Value::UInt64(number)) => append(out, format_args!("{number}")),
                Some(Value::Address(address)) => append(out, format_args!("{address:#x}")),
                Some(value) => append_json_value(value, out),
                None => out.extend_from_slice(b"null"),
            }
        });
        if self.options.raw {
            write!(out, "  raw=")?;
            payload
                .iter()
                .try_for_each(|byte| write!(out, "{byte:02x}"))?;
        }
        if self.width.is_some() {
            let line = table::wrapped(&String::from_utf8_lossy(out), self.width, self.indent);
            out.clear();
            out.extend_from_slice(line.as_bytes());
        }
        out.push(b'\n');
        if self.options.stacks {
            let indent = self.indent;
            for frame in event.stack().frames() {
                writeln!(out, "{:indent$}{frame:#x}", "")?;
            }
        }
        Ok(())
    }
}

/// Writing to memory does not fail.
fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
