//! Putting found objects in the order of their OIDs.

use engram_base::id::Oid;

/// Fewer objects are compared with each other.
const COUNTED_MIN: usize = 1 << 12;
/// In a span of so many OIDs for each object they are marked one by one and read off.
const SPAN_PER_OID: u64 = 64;

/// Sorts OIDs that come segment by segment, each ascending.
pub(crate) fn sort(oids: &mut [Oid]) {
    if oids.is_sorted() {
        return;
    }
    if !sort_by_marks(oids) {
        // Some ascending parts, which this sort merges.
        #[expect(clippy::stable_sort_primitive)]
        oids.sort();
    }
}

/// Sorts OIDs that lie close together by a bit for each; `false`, and nothing is changed, where
/// they do not, or one is there twice.
fn sort_by_marks(oids: &mut [Oid]) -> bool {
    let (Some(least), Some(greatest)) = (oids.iter().min(), oids.iter().max()) else { return true };
    let (least, span) = (*least, greatest - least);
    if oids.len() < COUNTED_MIN || span / oids.len() as u64 >= SPAN_PER_OID {
        return false;
    }
    let mut words = vec![0_u64; span as usize / 64 + 1];
    for oid in oids.iter() {
        let at = (oid - least) as usize;
        words[at / 64] |= 1 << (at % 64);
    }
    let marked: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    if marked != oids.len() {
        return false;
    }
    let mut sorted = oids.iter_mut();
    for (at, word) in words.into_iter().enumerate() {
        let first = least + 64 * at as u64;
        let mut rest = word;
        // There are as many marks as OIDs.
        while rest != 0 {
            let Some(oid) = sorted.next() else { break };
            *oid = first + u64::from(rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{COUNTED_MIN, sort};

    proptest! {
        #[test]
        fn oids_close_together_or_far_apart_are_sorted(
            step in 1_u64..150,
            first in any::<u64>(),
            parts in 1_usize..9,
            extra in 0_usize..3,
            twice in any::<bool>(),
        ) {
            let len = COUNTED_MIN + extra - 1;
            let last = step * len as u64;
            let first = first.min(u64::MAX - last);
            // Ascending parts, one after another: every nth from the first, the second, ...
            let all: Vec<u64> = (0..len as u64).map(|at| first + step * at).collect();
            let mut oids: Vec<u64> = (0..parts)
                .flat_map(|part| all.iter().skip(part).step_by(parts).copied())
                .collect();
            if twice {
                oids.push(all[len / 2]);
            }
            let mut expected = oids.clone();
            expected.sort_unstable();
            sort(&mut oids);
            prop_assert_eq!(oids, expected);
        }
    }
}
