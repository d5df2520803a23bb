//! Small traces of V1, V2 and V3, which the writer does not write: built here from the description of the format.

/// A version before V4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Legacy {
    V1,
    V2,
    V3,
}

/// Events of a made trace: time, thread, payload, stack.
pub(crate) type LegacyEvent<'a> = (i64, u32, &'a [u8], &'a [u64]);

/// A trace with one description ("Legacy", event 7 "Seven", one Int32 field) and these events.
pub(crate) fn legacy(version: Legacy, events: &[LegacyEvent<'_>]) -> Vec<u8> {
    let mut out = b"\x14\0\0\0!FastSerialization.1\x04\x04\x01".to_vec();
    let (number, name) = match version {
        Legacy::V1 => (1, "Microsoft.DotNet.Runtime.EventPipeFile"),
        Legacy::V2 => (2, "Microsoft.DotNet.Runtime.EventPipeFile"),
        Legacy::V3 => (3, "Trace"),
    };
    put(&mut out, &[number, 0, name.len() as u32]);
    out.extend(name.bytes());
    out.push(6);
    if version != Legacy::V3 {
        put(&mut out, &[0]);
    }
    for part in [2017u16, 9, 1, 18, 23, 4, 52, 582] {
        out.extend(part.to_le_bytes());
    }
    out.extend(1000i64.to_le_bytes());
    out.extend(1_000_000_000i64.to_le_bytes());
    let mut block = Vec::new();
    let start = match version {
        Legacy::V3 => {
            put(&mut out, &[8, 4711, 2, 1_000_000]);
            out.push(6);
            out.extend(b"\x04\x04\x01\x01\0\0\0\0\0\0\0\x0a\0\0\0EventBlock\x06");
            (out.len() + 4).next_multiple_of(4)
        }
        _ => out.len(),
    };
    let id = if version == Legacy::V3 {
        1
    } else {
        start as u32
    };
    record(
        &mut block,
        version,
        0,
        (1000, 1, &description(version), &[]),
    );
    for event in events {
        record(&mut block, version, id, *event);
    }
    if version == Legacy::V3 {
        put(&mut out, &[block.len() as u32]);
        out.resize(start, 0);
        out.extend(block);
        out.extend([6, 1]);
        return out;
    }
    out.extend(block);
    let end = out.len() as u32;
    out.push(6);
    put(&mut out, &[1, end, end + 1, end + 9]);
    out
}

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers
        .iter()
        .for_each(|number| out.extend(number.to_le_bytes()));
}

fn text(out: &mut Vec<u8>, text: &str) {
    text.encode_utf16()
        .chain([0])
        .for_each(|unit| out.extend(unit.to_le_bytes()));
}

fn description(version: Legacy) -> Vec<u8> {
    let mut managed = Vec::new();
    put(&mut managed, &[7]);
    text(&mut managed, "Seven");
    managed.extend(0xf000_0000_0000u64.to_le_bytes());
    put(&mut managed, &[3, 4, 1, 9]);
    text(&mut managed, "number");
    let mut out = Vec::new();
    match version {
        Legacy::V1 => out.extend([0x5a; 16]),
        Legacy::V2 => text(&mut out, "Legacy"),
        Legacy::V3 => {
            put(&mut out, &[1]);
            text(&mut out, "Legacy");
        }
    }
    if version != Legacy::V3 {
        put(&mut out, &[7, 3, managed.len() as u32]);
    }
    out.extend(managed);
    out
}

fn record(
    out: &mut Vec<u8>,
    version: Legacy,
    id: u32,
    (timestamp, thread, payload, stack): LegacyEvent<'_>,
) {
    let start = out.len();
    put(out, &[0, id, thread]);
    out.extend(timestamp.to_le_bytes());
    out.extend([0xac; 16]);
    out.extend([0; 16]);
    put(out, &[payload.len() as u32]);
    out.extend(payload);
    put(out, &[stack.len() as u32 * 8]);
    stack
        .iter()
        .for_each(|frame| out.extend(frame.to_le_bytes()));
    if version == Legacy::V3 {
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let size = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&size.to_le_bytes());
}
