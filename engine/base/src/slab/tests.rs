//! Runs against the naive walk over every item.

use proptest::prelude::*;

use super::Slab;
use crate::error::Kind;

/// A shape and a box within it.
fn boxes() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let dim = (0..5u64).prop_flat_map(|len| {
        (0..=len).prop_flat_map(move |offset| {
            // Whole dimensions are rare by chance alone.
            let count = prop_oneof![Just(len - offset), 0..=len - offset];
            count.prop_map(move |count| (len, offset, count))
        })
    });
    prop::collection::vec(dim, 0..5)
}

/// Where each item of the box lies in the array, item by item.
fn naive(dims: &[(u64, u64, u64)]) -> Vec<u64> {
    let mut all = vec![0];
    for &(len, offset, count) in dims {
        all = all
            .iter()
            .flat_map(|at| (offset..offset + count).map(move |index| at * len + index))
            .collect();
    }
    all
}

proptest! {
    #[test]
    fn runs_are_the_items_of_the_box_in_order(dims in boxes(), item in 1..9u64, part in 1..99u64) {
        let [shape, offsets, counts] = [0, 1, 2].map(|part| {
            dims.iter().map(|dim| [dim.0, dim.1, dim.2][part]).collect::<Vec<_>>()
        });
        let slab = Slab::new(&shape, &offsets, &counts).unwrap();
        let bytes_at = |at: u64| (0..item).map(move |byte| at * item + byte);
        let wanted: Vec<u64> = naive(&dims).into_iter().flat_map(bytes_at).collect();
        let (mut bytes, mut runs) = (Vec::new(), 0);
        for run in slab.runs(item) {
            prop_assert_eq!(run.buffer, bytes.len() as u64);
            prop_assert!(run.len > 0);
            bytes.extend(run.array..run.array + run.len);
            runs += 1;
        }
        prop_assert_eq!(&bytes, &wanted);
        // The same in parts of the buffer.
        let mut bytes = Vec::new();
        for start in (0..wanted.len() as u64).step_by(part as usize) {
            let mut at = 0;
            for run in slab.runs_in(item, start..(start + part).min(wanted.len() as u64)) {
                prop_assert_eq!(run.buffer, at);
                prop_assert!(run.len > 0);
                bytes.extend(run.array..run.array + run.len);
                at += run.len;
            }
        }
        prop_assert_eq!(bytes, wanted);
        prop_assert_eq!(slab.runs(item).len(), runs);
        prop_assert_eq!(slab.elements() as usize, naive(&dims).len());
    }
}

#[test]
fn whole_planes_are_one_run() {
    let slab = Slab::new(&[10, 20, 30], &[2, 0, 0], &[3, 20, 30]).unwrap();
    assert_eq!(slab.runs(8).count(), 1);
    assert_eq!(Slab::all(&[10, 20, 30]).runs(8).count(), 1);
    let rows = Slab::new(&[10, 20, 30], &[0, 4, 0], &[10, 5, 30]).unwrap();
    assert_eq!(rows.runs(8).count(), 10);
}

#[test]
fn a_box_beyond_the_array_is_refused_with_what_was_asked() {
    for (offsets, counts) in [(&[0, 5][..], &[4, 2][..]), (&[u64::MAX, 0], &[1, 1]), (&[0], &[1])] {
        let error = Slab::new(&[4, 6], offsets, counts).unwrap_err();
        assert_eq!(error.kind(), Kind::Argument);
        assert!(error.message().contains("[4, 6]"), "{error}");
    }
}

#[test]
fn a_span_goes_from_the_first_run_to_the_end_of_the_last() {
    for (shape, offsets, counts) in [
        (vec![4, 5, 6], vec![1, 2, 3], vec![2, 3, 1]),
        (vec![4, 5, 6], vec![3, 0, 0], vec![1, 5, 6]),
        (vec![7], vec![2], vec![4]),
        (vec![], vec![], vec![]),
    ] {
        let slab = Slab::new(&shape, &offsets, &counts).unwrap();
        let (first, last) = (slab.runs(8).next().unwrap(), slab.runs(8).last().unwrap());
        assert_eq!(slab.span(8), first.array..last.array + last.len, "{shape:?}");
    }
    assert_eq!(Slab::new(&[4, 5], &[1, 2], &[2, 0]).unwrap().span(8), 0..0);
}
