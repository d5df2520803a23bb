//! Sorting in a few hundred bytes of code. `core`'s sorts are faster on long lists and take 4–10 KB
//! for each type of element, which is a twentieth of an engine that is linked into other people's
//! programs.

/// Sorts by `is_less` (heapsort: never worse than n log n, no memory; equal elements in any order).
pub fn heap_sort<T>(items: &mut [T], mut is_less: impl FnMut(&T, &T) -> bool) {
    // One copy of the work for all types of elements, for which it is as good as one place or two.
    sort(items.len(), &mut |step| match step {
        Step::Swap(a, b) => {
            items.swap(a, b);
            false
        }
        Step::IsLess(a, b) => match (items.get(a), items.get(b)) {
            (Some(a), Some(b)) => is_less(a, b),
            _ => false,
        },
    });
}

/// What the sort asks of the elements at two places.
enum Step {
    Swap(usize, usize),
    IsLess(usize, usize),
}

fn sort(length: usize, elements: &mut dyn FnMut(Step) -> bool) {
    // First the larger half of the positions sinks until the slice is a heap with the largest
    // element in front; then the largest goes to the end again and again.
    for step in (0..length + length / 2).rev() {
        let (mut parent, end) = match step.checked_sub(length) {
            Some(parent) => (parent, length),
            None => {
                elements(Step::Swap(0, step));
                (0, step)
            }
        };
        loop {
            let mut child = 2 * parent + 1;
            if child >= end {
                break;
            }
            if child + 1 < end && elements(Step::IsLess(child, child + 1)) {
                child += 1;
            }
            if !elements(Step::IsLess(parent, child)) {
                break;
            }
            elements(Step::Swap(parent, child));
            parent = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::heap_sort;
    use std::vec::Vec;

    #[test]
    fn every_order_of_up_to_seven_elements_is_sorted() {
        for length in 0..=7_u32 {
            for mut seed in 0..7_u32.pow(length.min(6)) {
                let mut items: Vec<u32> = (0..length)
                    .map(|_| {
                        let digit = seed % 7;
                        seed /= 7;
                        digit
                    })
                    .collect();
                let mut expected = items.clone();
                expected.sort_unstable();
                heap_sort(&mut items, |a, b| a < b);
                assert_eq!(items, expected);
            }
        }
    }

    #[test]
    fn long_lists_are_sorted() {
        let mut state = 1_u64;
        let mut items: Vec<u64> = (0..10_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state >> 40
            })
            .collect();
        let mut expected = items.clone();
        expected.sort_unstable();
        heap_sort(&mut items, |a, b| a < b);
        assert_eq!(items, expected);
    }
}
