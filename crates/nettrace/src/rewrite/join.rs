//! Several traces made into one, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Write};
use std::vec::Vec;

use super::{CHUNK, Change, POINT_EVERY, RewriteError, RewriteOptions, RewriteReport, Rewriter};
use crate::{DispatchOrder, Error, Reader, TraceInfo};

/// Writes the events of several traces as one, by time, each trace in its order of dispatch.
///
/// The earliest trace describes the result, the first of several that began together. Clocks that agree are taken as they are: pieces of one recording fit to the
/// tick. Others, of another machine or another start of it, are laid side by side by UTC, which traces know to the
/// millisecond. Threads of several processes stay apart in V6; V4 keeps only their numbers. In V4 a thread is one in
/// all traces of its process, so the pieces of a recording become what they were cut from.
///
/// The error of each source, if it had one, is the second part of the answer.
///
/// # Errors
/// If the output cannot be written, the pointer sizes differ, or a description does not fit into the target.
pub fn join<R: Read, W: Write>(
    readers: Vec<Reader<R>>,
    options: &RewriteOptions,
    out: &mut W,
) -> Result<(RewriteReport, Vec<Option<Error>>), RewriteError> {
    let infos = readers.iter().map(Reader::info);
    let first = infos.min_by_key(|info| info.start.unix_ns());
    let first = first.ok_or(RewriteError::NoTrace)?.clone();
    let mut info = first.clone();
    for reader in &readers {
        let other = reader.info();
        if other.pointer_size != first.pointer_size {
            return Err(RewriteError::PointerSizes(
                first.pointer_size,
                other.pointer_size,
            ));
        }
        if other.process_id != first.process_id {
            info.process_id = None;
        }
    }
    let mut rewriter = Rewriter::new(&info, options);
    let mut damages = Vec::new();
    let mut sources: Vec<Source<R>> = Vec::new();
    for reader in readers {
        let clock = Clock::between(&first, reader.info());
        sources.push(Source {
            events: reader.dispatch_order(),
            clock,
        });
        damages.push(None);
    }
    let mut heads = BinaryHeap::new();
    for place in 0..sources.len() {
        advance(&mut sources, place, &mut heads, &mut damages);
    }
    while let Some(Reverse((timestamp, place))) = heads.pop() {
        if let Some(source) = sources.get_mut(place) {
            let change = Change {
                source: place as u32,
                timestamp,
                is_sorted: true,
            };
            rewriter.event(&source.events.current(), &change)?;
        }
        rewriter.pass_on(out, CHUNK)?;
        if rewriter.since_point > POINT_EVERY {
            rewriter.point_at_end();
        }
        advance(&mut sources, place, &mut heads, &mut damages);
    }
    for (place, source) in sources.iter().enumerate() {
        // What was lost after the last event of a thread.
        for thread in source.events.reader().losses().threads() {
            let names = (thread.thread_id, Some(thread.process_id));
            rewriter.threads.tried_in_all(
                (place as u32, thread.key()),
                names,
                thread.last(),
                options.filter.to.is_none(),
                &mut rewriter.writer,
            )?;
        }
    }
    rewriter.point_at_end();
    Ok((rewriter.finish(out)?, damages))
}

struct Source<R> {
    events: DispatchOrder<R>,
    clock: Clock,
}

type Heads = BinaryHeap<Reverse<(i64, usize)>>;

fn advance<R: Read>(
    sources: &mut [Source<R>],
    place: usize,
    heads: &mut Heads,
    damages: &mut [Option<Error>],
) {
    let Some(source) = sources.get_mut(place) else {
        return;
    };
    match source.events.next_event() {
        Ok(Some(event)) => heads.push(Reverse((source.clock.convert(event.timestamp()), place))),
        Ok(None) => {}
        Err(error) => {
            if let Some(damage) = damages.get_mut(place) {
                *damage = Some(error);
            }
        }
    }
}

/// From the time stamps of one trace to those of another.
#[derive(Clone, Copy, Debug)]
struct Clock {
    from_sync: i64,
    from_frequency: i64,
    to_sync: i64,
    to_frequency: i64,
}

/// Clocks that differ by less are the same one: the start is known to the millisecond, and read in two steps.
const SAME_NS: i128 = 1_000_000_000;

impl Clock {
    fn between(to: &TraceInfo, from: &TraceInfo) -> Clock {
        let utc_difference = from.start.unix_ns().wrapping_sub(to.start.unix_ns());
        let clock_difference = i128::from(to.nanoseconds(from.sync_ticks));
        let is_same = from.ticks_per_second == to.ticks_per_second
            && utc_difference.wrapping_sub(clock_difference).unsigned_abs()
                < SAME_NS.unsigned_abs();
        if is_same {
            return Clock {
                from_sync: 0,
                from_frequency: 1,
                to_sync: 0,
                to_frequency: 1,
            };
        }
        let shift = utc_difference
            .wrapping_mul(i128::from(to.ticks_per_second))
            .div_euclid(1_000_000_000);
        Clock {
            from_sync: from.sync_ticks,
            from_frequency: from.ticks_per_second,
            to_sync: to.sync_ticks.wrapping_add(shift as i64),
            to_frequency: to.ticks_per_second,
        }
    }

    fn convert(&self, timestamp: i64) -> i64 {
        let ticks = i128::from(timestamp).wrapping_sub(i128::from(self.from_sync));
        let scaled = ticks
            .wrapping_mul(i128::from(self.to_frequency))
            .checked_div(i128::from(self.from_frequency))
            .unwrap_or(0);
        self.to_sync.wrapping_add(scaled as i64)
    }
}
