//! Values of fields, as a visitor of `tracing` sees them, laid out as a payload. What type a field has is known only when it is visited.

use std::cell::Cell;
use std::error::Error;
use std::fmt::{self, Debug, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use eventpipe::FieldKind;
use tracing_core::field::{Field, Visit};

/// The engine drops larger payloads.
const LARGEST_PAYLOAD: usize = 64 << 10;

/// So much of the payload is kept free for each field: for a number, or for the end of a text that is cut.
const RESERVE: usize = 16;

/// What a thread keeps for its next event.
const KEPT: usize = 4 << 10;

/// Which fields there are, by their place in the callsite's list, and their types.
pub(crate) type Signature = [(usize, FieldKind)];

/// The values of one event.
#[derive(Default)]
pub(crate) struct Values {
    signature: Vec<(usize, FieldKind)>,
    bytes: Vec<u8>,
    /// Texts end here.
    limit: usize,
}

thread_local! {
    static SPARE: Cell<Option<Values>> = const { Cell::new(None) };
}

impl Values {
    /// For a callsite with so many fields. An event that is written while the values of another one are visited gets a place of its own.
    pub(crate) fn begin(fields: usize) -> Values {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let mut values = spare.unwrap_or_default();
        values.signature.clear();
        values.bytes.clear();
        values.limit = LARGEST_PAYLOAD.saturating_sub(fields.saturating_mul(RESERVE));
        values
    }

    /// Gives the place back.
    pub(crate) fn end(self) {
        if self.bytes.capacity() <= KEPT {
            // An error: the thread ends.
            let _ = SPARE.try_with(|spare| spare.set(Some(self)));
        }
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn put<const N: usize>(&mut self, field: &Field, kind: FieldKind, bytes: [u8; N]) {
        self.signature.push((field.index(), kind));
        self.bytes.extend_from_slice(&bytes);
    }

    fn put_text(&mut self, field: &Field, write: impl FnOnce(&mut Utf16<'_>) -> fmt::Result) {
        self.signature.push((field.index(), FieldKind::String));
        put_text(&mut self.bytes, self.limit, write);
    }
}

impl Visit for Values {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, FieldKind::Double, value.to_le_bytes());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, FieldKind::Int64, value.to_le_bytes());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, FieldKind::UInt64, value.to_le_bytes());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, FieldKind::Boolean, u32::from(value).to_le_bytes());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, |text| text.write_str(value));
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        let room = self.limit.saturating_sub(self.bytes.len());
        let value = value.get(..room).unwrap_or(value);
        // The limit is below what 16 bits count.
        let count = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.put(field, FieldKind::Bytes, count.to_le_bytes());
        self.bytes.extend_from_slice(value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put_text(field, |text| write_error(text, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Integers of 128 bits come here too: the format has no type for them.
        self.put_text(field, |text| write!(text, "{value:?}"));
    }
}

/// All values of an event as texts, in the order of the callsite's list, for a callsite whose types never come to an end.
#[derive(Debug)]
pub(crate) struct Texts {
    texts: Vec<Vec<u8>>,
    limit: usize,
}

impl Texts {
    pub(crate) fn new(fields: usize) -> Texts {
        let reserved = fields.saturating_mul(RESERVE);
        Texts {
            texts: vec![Vec::new(); fields],
            limit: LARGEST_PAYLOAD.saturating_sub(reserved),
        }
    }

    /// The payload. A field without a value is an empty text.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for text in self.texts {
            match text.is_empty() {
                true => bytes.extend_from_slice(&[0, 0]),
                false => bytes.extend_from_slice(&text),
            }
        }
        bytes
    }
}

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, |text| text.write_str(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, |text| write_error(text, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, |text| write!(text, "{value:?}"));
    }
}

impl Texts {
    fn put(&mut self, field: &Field, write: impl FnOnce(&mut Utf16<'_>) -> fmt::Result) {
        let used: usize = self.texts.iter().map(Vec::len).sum();
        if let Some(text) = self.texts.get_mut(field.index()) {
            text.clear();
            put_text(text, self.limit.saturating_sub(used), write);
        }
    }
}

/// An error and what caused it.
fn write_error(text: &mut Utf16<'_>, error: &(dyn Error + 'static)) -> fmt::Result {
    write!(text, "{error}")?;
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, ": {error}")?;
        source = error.source();
    }
    Ok(())
}

/// Appends a text with its zero. `write` calls `Debug` or `Display` of the program: a panic there would end a program that ran well as long
/// as nobody traced it, so it ends here.
fn put_text(bytes: &mut Vec<u8>, limit: usize, write: impl FnOnce(&mut Utf16<'_>) -> fmt::Result) {
    let start = bytes.len();
    let mut text = Utf16 {
        bytes,
        limit,
        is_cut: false,
    };
    let written = catch_unwind(AssertUnwindSafe(|| write(&mut text)));
    let is_cut = text.is_cut;
    let trouble = match written {
        Ok(Ok(())) => "",
        Ok(Err(_)) if is_cut => "",
        Ok(Err(_)) => "<formatting failed>",
        Err(_) => "<formatting panicked>",
    };
    if !trouble.is_empty() {
        bytes.truncate(start);
        let mut text = Utf16 {
            bytes,
            limit,
            is_cut: false,
        };
        // An error: there is no room for so much, and the text is cut.
        let _ = text.write_str(trouble);
    }
    bytes.extend_from_slice(&[0, 0]);
}

/// Text as it lies in a payload: UTF-16, in which a NUL would be the end and becomes U+FFFD.
pub(crate) struct Utf16<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
    is_cut: bool,
}

impl Write for Utf16<'_> {
    /// An error ends the formatting of a value of which there is more than fits.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Err(fmt::Error);
        }
        let room = self.limit.saturating_sub(self.bytes.len()) / 2;
        if text.len() <= room {
            // A text has at most as many units as bytes.
            self.bytes.reserve(text.len() * 2);
            for unit in text.encode_utf16() {
                self.bytes.extend_from_slice(&without_nul(unit));
            }
            return Ok(());
        }
        for character in text.chars() {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units);
            if self.bytes.len() + units.len() * 2 > self.limit {
                self.is_cut = true;
                self.bytes
                    .extend_from_slice(&(u32::from('…') as u16).to_le_bytes());
                return Err(fmt::Error);
            }
            for unit in units {
                self.bytes.extend_from_slice(&without_nul(*unit));
            }
        }
        Ok(())
    }
}

fn without_nul(unit: u16) -> [u8; 2] {
    (if unit == 0 { 0xFFFD } else { unit }).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(limit: usize, write: impl FnOnce(&mut Utf16<'_>) -> fmt::Result) -> String {
        let mut bytes = vec![1];
        put_text(&mut bytes, limit, write);
        let units: Vec<u16> = bytes[1..]
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
            .collect();
        let (end, units) = units.split_last().expect("a zero");
        assert_eq!(*end, 0);
        String::from_utf16(units).expect("no half of a character")
    }

    #[test]
    fn texts_are_cut_between_characters_and_what_cannot_be_formatted_is_said() {
        let of = |value: &'static str, limit| text(limit, move |out| out.write_str(value));
        assert_eq!(of("Grüße 🦀", 100), "Grüße 🦀");
        assert_eq!(of("a\0b", 100), "a\u{FFFD}b");
        assert_eq!(of("abcdef", 1 + 8), "abcd…");
        assert_eq!(of("abc🦀", 1 + 8), "abc…");
        assert_eq!(of("abcd", 1 + 8), "abcd");
        assert_eq!(of("äöüß", 1 + 8), "äöüß");
        assert_eq!(of("abc", 0), "…");
        let pieces = |limit| {
            text(limit, |out| {
                let all = (0..1_000_000).try_for_each(|number| write!(out, "{number} "));
                assert!(all.is_err(), "the value goes on formatting");
                all
            })
        };
        assert_eq!(pieces(1 + 10), "0 1 2…");
        assert_eq!(text(100, |_| Err(fmt::Error)), "<formatting failed>");
        let panics = |out: &mut Utf16<'_>| {
            out.write_str("half")?;
            // As a panic, without its noise.
            std::panic::resume_unwind(Box::new("a value of the test's"))
        };
        assert_eq!(text(100, panics), "<formatting panicked>");
        assert_eq!(text(1 + 8, panics), "<for…");
    }
}
