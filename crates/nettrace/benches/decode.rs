//! How fast payloads are decoded: all values of 213-byte text events, of numbers, of a runtime event. Bytes per
//! second are the payloads' (the target of B5 is ≥ 3 GB/s for the text events, on one core).
#![allow(missing_docs, reason = "the macros of the harness make public items")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use nettrace::payload::{Fields, Value};
use nettrace::{Field, FieldType, Metadata, Schema};

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.into(),
        field_type,
    }
}

/// Reads every value, nested ones too; a checksum keeps the compiler honest.
fn visit(fields: Fields<'_>) -> u64 {
    fields.fold(0, |sum, (_, value)| sum.wrapping_add(touch(value)))
}

fn touch(value: Value<'_>) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Bytes(bytes) | Value::Utf8(bytes) => bytes.len() as u64,
        Value::Object(object) => visit(object.fields()),
        Value::Array(elements) => elements.map(touch).fold(0, u64::wrapping_add),
        Value::Double(value) => value.to_bits(),
        value => value.as_u64().unwrap_or(1),
    }
}

/// The same, with texts turned into UTF-8.
fn visit_utf8(fields: Fields<'_>, scratch: &mut Vec<u8>) -> u64 {
    let mut sum = 0u64;
    for (_, value) in fields {
        sum = sum.wrapping_add(match value {
            Value::String(text) => {
                scratch.clear();
                text.append_to(scratch);
                scratch.len() as u64
            }
            value => touch(value),
        });
    }
    sum
}

fn cases() -> Vec<(&'static str, Schema, Vec<u8>)> {
    let manifest = |fields| Metadata {
        keywords: 0xF000_0000_0000,
        fields,
        ..Metadata::default()
    };
    let text: Vec<u8> = "x"
        .repeat(100)
        .encode_utf16()
        .chain([0])
        .flat_map(u16::to_le_bytes)
        .collect();
    // 4 + 7 × 1 + 202 = 213 bytes.
    let mut sequenced = vec![1, 0, 0, 0];
    sequenced.extend_from_slice(&[7; 7]);
    sequenced.extend_from_slice(&text);
    let mut fields = vec![field("thread", FieldType::Int32)];
    fields.extend((0..7).map(|index| field(&format!("b{index}"), FieldType::Byte)));
    fields.push(field("text", FieldType::String));
    let mixed = Schema::new(&manifest(fields), 8);

    let mut one_text = vec![1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    let text_event = Schema::new(
        &manifest(vec![
            field("number", FieldType::Int64),
            field("a", FieldType::UInt16),
            field("b", FieldType::Byte),
            field("text", FieldType::String),
        ]),
        8,
    );
    one_text.extend_from_slice(&text);

    let numbers = Schema::new(
        &manifest(
            (0..16)
                .map(|index| field(&format!("n{index}"), FieldType::Int64))
                .collect(),
        ),
        8,
    );
    let runtime = Metadata {
        provider: nettrace::runtime_events::RUNTIME.into(),
        event_id: 143,
        version: 2,
        ..Metadata::default()
    };
    let mut method = vec![0u8; 36];
    for name in [
        "System.Collections.Generic.Dictionary`2",
        "TryGetValue",
        "instance bool  (!0,!1&)",
    ] {
        method.extend(name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    }
    method.extend_from_slice(&[0; 10]);
    vec![
        ("text_213_bytes", text_event, one_text),
        ("text_and_bytes_213_bytes", mixed, sequenced),
        ("sixteen_int64", numbers, vec![3; 128]),
        ("method_load_verbose", Schema::new(&runtime, 8), method),
    ]
}

fn decode(criterion: &mut Criterion) {
    for (name, schema, payload) in cases() {
        // As many payloads in a row as a block of the runtime holds, about 100 KB.
        let block: Vec<u8> = payload
            .iter()
            .copied()
            .cycle()
            .take(payload.len() * 480)
            .collect();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(block.len() as u64));
        group.bench_function("values", |bencher| {
            bencher.iter(|| {
                let payloads = black_box(&block).chunks_exact(payload.len());
                payloads.fold(0, |sum, payload| {
                    visit(schema.fields(payload)).wrapping_add(sum)
                })
            });
        });
        group.bench_function("values_as_utf8", |bencher| {
            bencher.iter_batched_ref(
                || Vec::with_capacity(256),
                |scratch| {
                    let payloads = black_box(&block).chunks_exact(payload.len());
                    payloads.fold(0u64, |sum, payload| {
                        visit_utf8(schema.fields(payload), scratch).wrapping_add(sum)
                    })
                },
                BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
