//! Values as JSON.

use std::io::Write;

use nettrace::payload::{Utf16, Value};

use super::number::{append_f32, append_f64};

/// Appends a value as JSON. Objects keep the order of their fields, and names that occur twice.
///
/// A description can make a payload a thousand times larger, by names that it repeats for every element of an array. A
/// value of more than 64 MiB of text is cut: arrays and objects end early.
pub fn append_json(value: Value<'_>, out: &mut Vec<u8>) {
    append_within(value, out.len().saturating_add(MOST_TEXT), out);
}

const MOST_TEXT: usize = 64 << 20;

/// `most`: the length of `out` at which arrays and objects end.
fn append_within(value: Value<'_>, most: usize, out: &mut Vec<u8>) {
    match value {
        Value::Empty => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::SByte(value) => append_integer(value, out),
        Value::Byte(value) => append_integer(value, out),
        Value::Int16(value) => append_integer(value, out),
        Value::UInt16(value) => append_integer(value, out),
        Value::Int32(value) => append_integer(value, out),
        Value::UInt32(value) => append_integer(value, out),
        Value::Int64(value) => quoted(out, |out| append_integer(value, out)),
        Value::UInt64(value) | Value::Address(value) => {
            quoted(out, |out| append_integer(value, out))
        }
        Value::Single(value) => append_f32(value, out),
        Value::Double(value) => append_f64(value, out),
        Value::Char(unit) => append_utf16(Utf16::new(&unit.to_le_bytes()), out),
        Value::String(text) => append_utf16(text, out),
        Value::Utf8(text) => append_str(&String::from_utf8_lossy(text), out),
        Value::Bytes(bytes) => quoted(out, |out| append_hex(bytes, out)),
        Value::Guid(guid) => append_display(format_args!("\"{guid}\""), out),
        Value::DateTime(time) => append_display(format_args!("\"{time}\""), out),
        Value::Decimal(bytes) => quoted(out, |out| append_decimal(bytes, out)),
        Value::Object(object) => {
            out.push(b'{');
            for (index, (name, value)) in object.fields().enumerate() {
                if out.len() > most {
                    break;
                }
                separate(index, out);
                append_str(name, out);
                out.push(b':');
                append_within(value, most, out);
            }
            out.push(b'}');
        }
        Value::Array(elements) => {
            out.push(b'[');
            for (index, value) in elements.enumerate() {
                if out.len() > most {
                    break;
                }
                separate(index, out);
                append_within(value, most, out);
            }
            out.push(b']');
        }
    }
}

fn separate(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

pub(crate) fn append_integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writing to memory does not fail.
pub(crate) fn append_display(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    let _ = out.write_fmt(text);
}

pub(crate) fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

pub(crate) fn append_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.extend_from_slice(&[
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
}

fn append_utf16(text: Utf16<'_>, out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    text.append_to(out);
    // Escape in place only when there is something to escape, which is rare.
    if out[start..].iter().any(|byte| must_escape(*byte)) {
        let plain = out.split_off(start);
        append_escaped(&plain, out);
    }
    out.push(b'"');
}

pub(crate) fn append_str(text: &str, out: &mut Vec<u8>) {
    quoted(out, |out| append_escaped(text.as_bytes(), out));
}

fn must_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn append_escaped(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| must_escape(*byte)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            byte => append_display(format_args!("\\u{byte:04x}"), out),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// A .NET decimal: flags (sign, and the power of ten to divide by), high, low and middle part of a 96-bit number.
fn append_decimal(bytes: [u8; 16], out: &mut Vec<u8>) {
    let part = |at: usize| {
        u128::from(u32::from_le_bytes([
            bytes[at],
            bytes[at + 1],
            bytes[at + 2],
            bytes[at + 3],
        ]))
    };
    let number = part(4) << 64 | part(12) << 32 | part(8);
    if bytes[3] & 0x80 != 0 {
        out.push(b'-');
    }
    let scale = usize::from(bytes[2]);
    let digits = format!("{number:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    out.extend_from_slice(whole.as_bytes());
    if !fraction.is_empty() {
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: Value<'_>) -> String {
        let mut out = Vec::new();
        append_json(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_escaped_and_numbers_keep_their_width() {
        let units: Vec<u8> = "a\"\\\u{1}\n\u{1d11e}"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(
            json(Value::String(Utf16::new(&units))),
            r#""a\"\\\u0001\n𝄞""#
        );
        assert_eq!(json(Value::Utf8(b"\xffx")), "\"\u{fffd}x\"");
        assert_eq!(json(Value::Char(0xd834)), "\"\u{fffd}\"");
        assert_eq!(json(Value::Int64(-5)), "\"-5\"");
        assert_eq!(json(Value::UInt32(5)), "5");
        assert_eq!(json(Value::Bytes(&[0, 0xab])), "\"00ab\"");
    }

    #[test]
    fn decimals_are_written_with_their_scale() {
        let decimal = |sign: u8, scale: u8, low: u32| {
            let mut bytes = [0; 16];
            bytes[2] = scale;
            bytes[3] = sign;
            bytes[8..12].copy_from_slice(&low.to_le_bytes());
            json(Value::Decimal(bytes))
        };
        assert_eq!(decimal(0, 0, 7), "\"7\"");
        assert_eq!(decimal(0x80, 2, 1_234), "\"-12.34\"");
        assert_eq!(decimal(0, 4, 5), "\"0.0005\"");
        assert_eq!(decimal(0, 255, 0).len(), 2 + 1 + 1 + 255);
        // Flags, then the high, low and middle 32 bits.
        let mut largest = [0xff; 16];
        largest[..4].fill(0);
        assert_eq!(
            json(Value::Decimal(largest)),
            "\"79228162514264337593543950335\""
        );
        let part = |at: usize| {
            let mut bytes = [0; 16];
            bytes[at] = 1;
            json(Value::Decimal(bytes))
        };
        assert_eq!(part(4), "\"18446744073709551616\"");
        assert_eq!(part(8), "\"1\"");
        assert_eq!(part(12), "\"4294967296\"");
    }

    /// Bytes that a description calls by a long name each, as elements of an array and as fields of one object.
    #[test]
    fn a_value_that_grows_out_of_all_proportion_is_cut_and_stays_json() {
        use nettrace::{Field, FieldType, Metadata, Schema};
        let field = |name: String, field_type| Field { name, field_type };
        let named = |number: usize| field(format!("{number:01000}"), FieldType::Byte);
        let element = FieldType::Object(vec![named(0)]);
        let array = FieldType::Array(Box::new(element));
        let object = FieldType::Object((0..100).map(named).collect());
        let mut counted = vec![7; 2 + 100];
        counted[..2].copy_from_slice(&100_u16.to_le_bytes());
        for (field_type, payload) in [(array, counted), (object, vec![7; 100])] {
            let metadata = Metadata {
                fields: vec![field("a".into(), field_type)],
                ..Metadata::default()
            };
            let schema = Schema::new(&metadata, 8);
            let (_, value) = schema.fields(&payload).next().unwrap();
            for (most, parts) in [(usize::MAX, 100), (10_000, 10), (0, 0)] {
                let mut out = Vec::new();
                append_within(value, most, &mut out);
                let whole: serde_json::Value = serde_json::from_slice(&out).unwrap();
                let found = whole.as_array().map(Vec::len);
                let found = found.or(whole.as_object().map(serde_json::Map::len));
                assert_eq!(found, Some(parts), "{most}");
            }
        }
    }
}
