//! Activities of spans: an id for each span, and the current activity of the thread that is inside of it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use eventpipe::{Guid, activity};
use tracing_core::span::Id;

use crate::site::Operation;

/// A span that a thread is in.
struct Entered {
    span: u64,
    operation: Operation,
    /// What was current before.
    before: Guid,
}

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// An id of its own for a span. It has the form of those that .NET's EventSource gives its activities, a path of numbers with a check
/// sum: TraceEvent pairs no others. The path of span 17 is `//17/`; which span is inside of which, the related ids tell.
pub(crate) fn create() -> Guid {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    path(COUNT.fetch_add(1, Ordering::Relaxed), std::process::id())
}

/// Twelve bytes of numbers, zeros behind the last, and their sum, in which the process is mixed.
fn path(number: u64, process: u32) -> Guid {
    /// A number of four bytes follows.
    const FOUR_BYTES: u8 = 0xF0;
    const SUM_OF_NOTHING: u32 = 0x599D_99AD;
    let numbers = [(number >> 32) as u32, number as u32];
    let skipped = usize::from(numbers[0] == 0);
    let mut bytes = numbers.iter().skip(skipped).flat_map(|number| {
        let bytes = number.to_le_bytes();
        std::iter::once(FOUR_BYTES).chain(bytes)
    });
    let words: [u32; 3] = std::array::from_fn(|_| {
        u32::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0)))
    });
    let sum = words
        .iter()
        .fold(SUM_OF_NOTHING, |sum, word| sum.wrapping_add(*word));
    let [a, b, c] = words.map(u32::to_le_bytes);
    let mut id = Guid::ZERO;
    let all = [a, b, c, (sum ^ process).to_le_bytes()];
    for (place, byte) in id.0.iter_mut().zip(all.as_flattened()) {
        *place = *byte;
    }
    id
}

/// The thread goes into a span.
pub(crate) fn enter(span: &Id, operation: Operation) {
    let before = activity::set_current(operation.id);
    let span = span.into_u64();
    let kept = ENTERED.try_with(|entered| {
        entered.borrow_mut().push(Entered {
            span,
            operation,
            before,
        });
    });
    if kept.is_err() {
        // The thread ends: nothing would take the activity away again.
        activity::set_current(before);
    }
}

/// The thread leaves a span, not necessarily the one that it entered last. None where it did not enter it.
pub(crate) fn exit(span: &Id) -> Option<Operation> {
    // An error: the thread ends, and `enter` did nothing either.
    let left = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let place = entered
            .iter()
            .rposition(|known| known.span == span.into_u64())?;
        let left = entered.remove(place);
        match entered.get_mut(place) {
            // The span that was entered after this one goes on, and what it gives back is what was before this one.
            Some(above) => above.before = left.before,
            None => {
                activity::set_current(left.before);
            }
        }
        Some(left.operation)
    });
    left.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_has_an_id_of_its_own() {
        let mut ids: Vec<[u8; 16]> = (0..70_000).map(|_| create().0).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 70_000);
    }

    #[test]
    fn an_id_is_a_path_with_a_check_sum() {
        let sum = 0x0000_11F0_u32
            .wrapping_add(0x599D_99AD)
            .wrapping_add(0x0000_0000);
        let bytes = [
            &[0xF0, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &sum.to_le_bytes(),
        ]
        .concat();
        assert_eq!(path(17, 0).0, *bytes);
        assert_eq!(path(17, 0x0102).0[12], bytes[12] ^ 0x02);
        let far = path(0x0000_0005_0000_0001, 0);
        assert_eq!(far.0[..12], [0xF0, 5, 0, 0, 0, 0xF0, 1, 0, 0, 0, 0, 0]);
    }
}
