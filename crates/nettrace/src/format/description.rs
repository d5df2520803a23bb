//! The description of a trace: the Trace object up to V5, the trace block of V6 (nettrace.md sections 2 and 6.1).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::wire::{Cursor, put_i16, put_i64, put_u32, put_utf8};
use crate::{Error, ErrorKind, FormatVersion, SystemTime, TraceInfo};

const PROCESS_ID: &str = "ProcessId";
const PROCESSORS: &str = "HardwareThreadCount";
const SAMPLING: &str = "ExpectedCPUSamplingRate";

/// Bytes of the Trace object's body: V1 and V2 end after the frequency.
pub(crate) fn body_length(format: FormatVersion) -> usize {
    if format < FormatVersion::V3 { 32 } else { 48 }
}

/// Reads the body of a Trace object, or a whole V6 trace block.
pub(crate) fn decode(cursor: &mut Cursor<'_>, format: FormatVersion) -> Result<TraceInfo, Error> {
    let start = SystemTime {
        year: cursor.i16()?,
        month: cursor.i16()?,
        day_of_week: cursor.i16()?,
        day: cursor.i16()?,
        hour: cursor.i16()?,
        minute: cursor.i16()?,
        second: cursor.i16()?,
        millisecond: cursor.i16()?,
    };
    let sync_ticks = cursor.i64()?;
    let frequency_offset = cursor.offset();
    let ticks_per_second = cursor.i64()?;
    if ticks_per_second <= 0 {
        return Err(Error {
            offset: frequency_offset,
            kind: ErrorKind::InvalidFrequency(ticks_per_second),
        });
    }
    let mut info = TraceInfo {
        format,
        start,
        sync_ticks,
        ticks_per_second,
        pointer_size: 8,
        process_id: None,
        processor_count: None,
        sampling_period_ns: None,
        pairs: Vec::new(),
    };
    if format >= FormatVersion::V3 {
        let offset = cursor.offset();
        info.pointer_size = cursor.u32()?;
        if info.pointer_size != 4 && info.pointer_size != 8 {
            return Err(Error {
                offset,
                kind: ErrorKind::InvalidPointerSize(info.pointer_size),
            });
        }
    }
    if format == FormatVersion::V6 {
        let count = cursor.u32()?;
        for _ in 0..cursor.bounded(u64::from(count), 2)? {
            let key = cursor.utf8()?;
            let value = cursor.utf8()?;
            pair(&mut info, &key, &value);
        }
    } else if format >= FormatVersion::V3 {
        info.process_id = Some(u64::from(cursor.u32()?));
        info.processor_count = Some(cursor.u32()?);
        info.sampling_period_ns = Some(u64::from(cursor.u32()?));
    }
    Ok(info)
}

/// A known pair goes to its field, if it is a number; everything else is kept as it is.
fn pair(info: &mut TraceInfo, key: &str, value: &str) {
    match key {
        PROCESS_ID if info.process_id.is_none() => info.process_id = value.parse().ok(),
        PROCESSORS if info.processor_count.is_none() => info.processor_count = value.parse().ok(),
        SAMPLING if info.sampling_period_ns.is_none() => {
            info.sampling_period_ns = value.parse().ok()
        }
        _ => return info.pairs.push((String::from(key), String::from(value))),
    }
    let understood = match key {
        PROCESS_ID => info.process_id.is_some(),
        PROCESSORS => info.processor_count.is_some(),
        _ => info.sampling_period_ns.is_some(),
    };
    if !understood {
        info.pairs.push((String::from(key), String::from(value)));
    }
}

/// Writes the body of a V4 Trace object, or a V6 trace block.
pub(crate) fn encode(out: &mut Vec<u8>, info: &TraceInfo, format: FormatVersion) {
    let t = info.start;
    for part in [
        t.year,
        t.month,
        t.day_of_week,
        t.day,
        t.hour,
        t.minute,
        t.second,
        t.millisecond,
    ] {
        put_i16(out, part);
    }
    put_i64(out, info.sync_ticks);
    put_i64(out, info.ticks_per_second);
    put_u32(out, info.pointer_size);
    if format == FormatVersion::V6 {
        let known = [
            (PROCESS_ID, info.process_id),
            (PROCESSORS, info.processor_count.map(u64::from)),
            (SAMPLING, info.sampling_period_ns),
        ];
        let count = known
            .iter()
            .filter(|(_, value)| value.is_some())
            .count()
            .saturating_add(info.pairs.len());
        put_u32(out, count as u32);
        for (key, value) in known {
            if let Some(value) = value {
                put_utf8(out, key);
                put_utf8(out, &value.to_string());
            }
        }
        for (key, value) in &info.pairs {
            put_utf8(out, key);
            put_utf8(out, value);
        }
    } else {
        put_u32(out, info.process_id.unwrap_or(0) as u32);
        put_u32(out, info.processor_count.unwrap_or(0));
        put_u32(out, info.sampling_period_ns.unwrap_or(0) as u32);
    }
}
