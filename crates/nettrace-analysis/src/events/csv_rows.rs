use nettrace::{Event, TraceInfo};

use super::JsonLines;
use super::json_lines::Options;

/// Writes events as CSV: the same columns as the keys of [`JsonLines`], with `payload` and `stack` as JSON.
#[derive(Debug)]
pub struct CsvRows {
    lines: JsonLines,
    options: Options,
    line: Vec<u8>,
}

impl CsvRows {
    /// For the events of a trace.
    pub fn new(info: &TraceInfo, options: Options) -> CsvRows {
        CsvRows {
            lines: JsonLines::new(info, options),
            options,
            line: Vec::new(),
        }
    }

    /// The writer of JSON that makes the values.
    pub fn lines(&mut self) -> &mut JsonLines {
        &mut self.lines
    }

    /// The names of the columns, in order.
    pub fn columns(&self) -> Vec<&'static str> {
        let mut columns = vec![
            "i",
            "provider",
            "event",
            "id",
            "version",
            "opcode",
            "level",
            "keywords",
            "ts_rel_ms",
            "ts_qpc",
            "pid",
            "tid",
            "proc",
            "activity",
            "related",
            "payload",
        ];
        if self.options.raw {
            columns.extend(["raw", "raw_len"]);
        }
        columns.push("template");
        if self.options.stacks {
            columns.push("stack");
        }
        columns
    }

    /// Appends the heading.
    ///
    /// # Errors
    /// None that a caller can cause: `out` takes everything.
    pub fn append_heading(&self, out: &mut Vec<u8>) -> Result<(), csv::Error> {
        write_record(self.columns().iter().map(|name| name.as_bytes()), out)
    }

    /// Appends the event's row.
    ///
    /// # Errors
    /// None that a caller can cause: `out` takes everything.
    pub fn append(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), csv::Error> {
        self.line.clear();
        self.lines.append(event, &mut self.line);
        let values: Columns<'_> =
            serde_json::from_slice(&self.line).map_err(std::io::Error::from)?;
        write_record(values.0.iter().map(|value| value.as_bytes()), out)
    }
}

fn write_record<'a>(
    fields: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(fields)?;
    writer.flush()?;
    Ok(())
}

/// The values of one line: strings without their quotes, everything else as it stands.
struct Columns<'a>(Vec<std::borrow::Cow<'a, str>>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Columns<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Columns<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an event as a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Columns<'de>, A::Error> {
                let mut columns = Vec::new();
                while map.next_key::<serde::de::IgnoredAny>()?.is_some() {
                    let raw: &'de serde_json::value::RawValue = map.next_value()?;
                    let text = raw.get();
                    columns.push(match text.starts_with('"') {
                        true => serde_json::from_str::<String>(text)
                            .map_err(serde::de::Error::custom)?
                            .into(),
                        false => text.into(),
                    });
                }
                Ok(Columns(columns))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
