use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::metadata::{Field, FieldType, Metadata};

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.to_string(),
        field_type,
    }
}

fn metadata(fields: Vec<Field>) -> Metadata {
    Metadata {
        keywords: 0xF000_0000_0000,
        fields,
        ..Metadata::default()
    }
}

fn decode(fields: Vec<Field>, payload: &[u8]) -> OwnedFields {
    Layout::new(&metadata(fields)).fields(payload).into()
}

fn one(field_type: FieldType, payload: &[u8]) -> OwnedValue {
    let mut decoded = decode(vec![field("v", field_type)], payload);
    assert!(decoded.complete, "{decoded:?}");
    decoded.fields.remove(0).1
}

#[test]
fn every_scalar_is_read() {
    let bytes = [
        0x81u8, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    assert_eq!(one(FieldType::Boolean, &bytes), OwnedValue::Boolean(true));
    assert_eq!(one(FieldType::Boolean8, &[0]), OwnedValue::Boolean(false));
    assert_eq!(one(FieldType::Char, &bytes), OwnedValue::Char(0x8281));
    assert_eq!(one(FieldType::SByte, &bytes), OwnedValue::SByte(-127));
    assert_eq!(one(FieldType::Byte, &bytes), OwnedValue::Byte(0x81));
    assert_eq!(
        one(FieldType::Int16, &bytes),
        OwnedValue::Int16(0x8281u16 as i16)
    );
    assert_eq!(one(FieldType::UInt16, &bytes), OwnedValue::UInt16(0x8281));
    assert_eq!(
        one(FieldType::Int32, &bytes),
        OwnedValue::Int32(0x8483_8281u32 as i32)
    );
    assert_eq!(
        one(FieldType::UInt32, &bytes),
        OwnedValue::UInt32(0x8483_8281)
    );
    assert_eq!(
        one(FieldType::UInt64, &bytes),
        OwnedValue::UInt64(0x8887_8685_8483_8281)
    );
    assert_eq!(
        one(FieldType::Single, &3.25f32.to_le_bytes()),
        OwnedValue::Single(3.25)
    );
    assert_eq!(
        one(FieldType::Double, &(-0.5f64).to_le_bytes()),
        OwnedValue::Double(-0.5)
    );
    assert_eq!(one(FieldType::Decimal, &bytes), OwnedValue::Decimal(bytes));
    assert_eq!(
        one(FieldType::Guid, &bytes),
        OwnedValue::Guid(crate::Guid(bytes))
    );
    assert_eq!(
        one(FieldType::DateTime, &[0; 8]),
        OwnedValue::DateTime(FileTime(0))
    );
    assert_eq!(one(FieldType::Utf8CodeUnit, b"A"), OwnedValue::Char(65));
    assert_eq!(one(FieldType::Empty, &[]), OwnedValue::Empty);
    assert_eq!(one(FieldType::VarUInt, &[0x80, 1]), OwnedValue::UInt64(128));
    assert_eq!(one(FieldType::VarInt, &[3]), OwnedValue::Int64(-2));
    let longest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(
        one(FieldType::VarInt, &longest),
        OwnedValue::Int64(i64::MIN)
    );
}

#[test]
fn arrays_are_elements_bytes_or_text() {
    let array = |element| FieldType::Array(Box::new(element));
    assert_eq!(
        one(array(FieldType::Int16), &[2, 0, 1, 0, 0xff, 0xff]),
        OwnedValue::Array(vec![OwnedValue::Int16(1), OwnedValue::Int16(-1)])
    );
    assert_eq!(
        one(array(FieldType::Byte), &[1, 0, 7]),
        OwnedValue::Bytes(vec![7])
    );
    let text = OwnedValue::String("hi".to_string());
    assert_eq!(one(array(FieldType::Char), &[2, 0, b'h', 0, b'i', 0]), text);
    assert_eq!(
        one(
            FieldType::FixedLengthArray(Box::new(FieldType::Utf8CodeUnit), 2),
            b"hi"
        ),
        text
    );
    assert_eq!(
        one(array(FieldType::String), &[2, 0, 0, 0, b'x', 0, 0, 0]),
        OwnedValue::Array(vec![
            OwnedValue::String(String::new()),
            OwnedValue::String("x".into())
        ])
    );
    let nested = FieldType::FixedLengthArray(Box::new(array(FieldType::Byte)), 2);
    assert_eq!(
        one(nested, &[0, 0, 1, 0, 9]),
        OwnedValue::Array(vec![OwnedValue::Bytes(vec![]), OwnedValue::Bytes(vec![9])])
    );
}

#[test]
fn located_data_lies_where_its_descriptor_says() {
    // DataLoc: 2 bytes at offset 9; RelLoc: 2 units, 1 byte behind the descriptor; Byte.
    let payload = [9, 0, 2, 0, 1, 0, 4, 0, 77, 8, 7, 6, 0];
    let fields = vec![
        field("data", FieldType::DataLoc(Box::new(FieldType::Byte))),
        field("relative", FieldType::RelLoc(Box::new(FieldType::UInt16))),
        field("last", FieldType::Byte),
    ];
    let decoded = decode(fields, &payload);
    let units = vec![OwnedValue::UInt16(0x0708), OwnedValue::UInt16(6)];
    assert_eq!(decoded.fields[0].1, OwnedValue::Bytes(vec![8, 7]));
    assert_eq!(decoded.fields[1].1, OwnedValue::Array(units));
    assert_eq!(decoded.fields[2].1, OwnedValue::Byte(77));
    let outside = decode(
        vec![field("data", FieldType::DataLoc(Box::new(FieldType::Byte)))],
        &[9, 0, 2, 0, 1, 2],
    );
    assert!(!outside.complete && outside.fields.is_empty() && outside.rest.len() == 6);
}

#[test]
fn a_short_payload_gives_the_fields_before_its_end() {
    let fields = || {
        vec![
            field("a", FieldType::Int32),
            field("b", FieldType::String),
            field("c", FieldType::Int32),
        ]
    };
    let payload = [1, 0, 0, 0, b'x', 0, 0, 0, 5, 0, 0, 0, 99];
    let whole = decode(fields(), &payload);
    assert!(whole.complete && whole.rest == [99] && whole.fields.len() == 3);
    for length in 0..payload.len() - 1 {
        let cut = decode(fields(), &payload[..length]);
        assert!(!cut.complete);
        assert_eq!(cut.fields, whole.fields[..cut.fields.len()]);
        let taken = [0, 4, 8][cut.fields.len()];
        assert_eq!(cut.rest, payload[taken..length]);
    }
}

#[test]
fn self_describing_events_have_narrow_booleans_and_decimals() {
    let inner = |fields| {
        let outer = field("", FieldType::Object(fields));
        Layout::new(&Metadata {
            fields: vec![outer],
            ..Metadata::default()
        })
    };
    let layout = inner(vec![
        field("b", FieldType::Boolean),
        field("n", FieldType::Int32),
    ]);
    let value = |layout: &Layout, payload: &[u8]| -> OwnedValue {
        OwnedFields::new(layout.fields(payload)).fields.remove(0).1
    };
    let expected = |flag| {
        OwnedValue::Object(vec![
            ("b".into(), OwnedValue::Boolean(flag)),
            ("n".into(), OwnedValue::Int32(7)),
        ])
    };
    assert_eq!(value(&layout, &[1, 7, 0, 0, 0]), expected(true));
    assert_eq!(value(&layout, &[0, 0, 0, 0, 7, 0, 0, 0]), expected(false));
    let layout = inner(vec![field("d", FieldType::Decimal)]);
    let narrow = OwnedValue::Object(vec![("d".into(), OwnedValue::Double(1.5))]);
    assert_eq!(value(&layout, &1.5f64.to_le_bytes()), narrow);
    // The same without an outer field: classes in the self-describing format have keyword bits like others.
    let manifest = Layout::new(&metadata(vec![field("b", FieldType::Boolean)]));
    assert_eq!(
        manifest.fields(&[1]).next(),
        Some(("b", Value::Boolean(true)))
    );
    assert_eq!(
        manifest.fields(&[1, 0, 0, 0]).next(),
        Some(("b", Value::Boolean(true)))
    );
    assert!(manifest.fields(&[1, 0]).next().is_none());
}

#[test]
fn shapes_that_would_multiply_work_count_as_undescribed() {
    let mut deep = FieldType::Int32;
    for _ in 0..100 {
        deep = FieldType::Array(Box::new(deep));
    }
    assert!(decode(vec![field("v", deep)], &[1, 0]).fields.is_empty());
    let nothing = FieldType::FixedLengthArray(Box::new(FieldType::Object(vec![])), 65_535);
    assert!(decode(vec![field("v", nothing)], &[]).fields.is_empty());
    let located = || field("v", FieldType::RelLoc(Box::new(FieldType::Byte)));
    let array = FieldType::Array(Box::new(FieldType::Object(vec![located()])));
    assert!(decode(vec![field("v", array)], &[0, 0]).fields.is_empty());
    let many: Vec<Field> = (0..65).map(|_| located()).collect();
    assert!(decode(many, &[0; 400]).fields.is_empty());
    // A count that the payload cannot hold ends the reading at once.
    let huge = FieldType::Array(Box::new(FieldType::String));
    assert!(!decode(vec![field("v", huge)], &[0xff, 0xff, 0, 0]).complete);
}

/// An event of a class in the self-describing format, as .NET 10 wrote it; TraceEvent misreads it from `u8` on.
#[test]
fn an_event_in_the_self_describing_format_gives_what_its_program_wrote() {
    let bytes = "0101fe6300fdff0400fbffffff06000000f9ffffffffffffff08000000000000000000184100000000000025c0\
                 610000003322110055447766\
                 8899aabbccddeeff507ce6b30b6bda013412ff7f0000000001000000";
    let digits: Vec<u8> = bytes.bytes().filter(u8::is_ascii_hexdigit).collect();
    let payload: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let types = [
        FieldType::Boolean,
        FieldType::Byte,
        FieldType::SByte,
        FieldType::Char,
        FieldType::Int16,
        FieldType::UInt16,
        FieldType::Int32,
        FieldType::UInt32,
        FieldType::Int64,
        FieldType::UInt64,
        FieldType::Single,
        FieldType::Double,
        FieldType::String,
        FieldType::Guid,
        FieldType::DateTime,
        FieldType::Int64,
        FieldType::Int32,
    ];
    let fields = types
        .into_iter()
        .map(|field_type| field("v", field_type))
        .collect();
    let decoded = decode(fields, &payload);
    assert!(decoded.complete && decoded.rest.is_empty());
    let values: Vec<OwnedValue> = decoded.fields.into_iter().map(|(_, value)| value).collect();
    assert_eq!(
        values[..14],
        [
            OwnedValue::Boolean(true),
            OwnedValue::Byte(1),
            OwnedValue::SByte(-2),
            OwnedValue::Char(u16::from(b'c')),
            OwnedValue::Int16(-3),
            OwnedValue::UInt16(4),
            OwnedValue::Int32(-5),
            OwnedValue::UInt32(6),
            OwnedValue::Int64(-7),
            OwnedValue::UInt64(8),
            OwnedValue::Single(9.5),
            OwnedValue::Double(-10.5),
            OwnedValue::String("a".into()),
            OwnedValue::Guid(crate::Guid([
                0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
                0xee, 0xff
            ])),
        ]
    );
    assert_eq!(
        values[15..],
        [OwnedValue::Int64(0x7fff_1234), OwnedValue::Int32(1)]
    );
    let OwnedValue::DateTime(time) = values[14] else {
        panic!("{:?}", values[14])
    };
    assert_eq!(time.to_string(), "2024-02-29T12:34:56.7890000Z");
}
