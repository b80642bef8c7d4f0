//! Where names and parts go: joins and losses move only what they must (I5).

use engram_protocol::placement::{Placement, in_order};
use proptest::prelude::*;

fn uuids(count: usize, from: u64) -> Vec<String> {
    (0..count as u64)
        .map(|number| format!("{:032x}", (from + number).wrapping_mul(0x9e37_79b9)))
        .collect()
}

fn among(nodes: &[String], weight: impl Fn(usize) -> f64) -> Placement {
    let weighted = nodes.iter().enumerate().map(|(place, node)| (node.as_str(), weight(place)));
    Placement::new(weighted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_node_that_goes_takes_only_its_own_names(
        count in prop_oneof![2..40_usize, Just(1024), Just(4096)],
        from in any::<u32>(),
        gone in any::<prop::sample::Index>(),
        are_equal in any::<bool>(),
    ) {
        let nodes = uuids(count, u64::from(from));
        let weight = |place: usize| if are_equal { 1.0 } else { [1.0, 2.0, 3.5][place % 3] };
        let (gone, all) = (gone.index(count), among(&nodes, weight));
        let mut left = nodes.clone();
        left.remove(gone);
        let rest = among(&left, |place| weight(place + usize::from(place >= gone)));
        for name in (0..100).map(|number| format!("run/{number}")) {
            let (home, ranked) = (all.home(&name).unwrap(), all.ranked(&name));
            prop_assert_eq!(ranked[0], home);
            let now = &left[rest.home(&name).unwrap()];
            // Each of its names goes to the node that was second.
            let expected = if home == gone { ranked[1] } else { home };
            prop_assert_eq!(now, &nodes[expected]);
        }
    }

    #[test]
    fn parts_in_order_are_neighbours_and_spread_evenly(
        parts in 0..3000_usize,
        nodes in 1..600_usize,
    ) {
        let places: Vec<usize> = in_order(parts, nodes).collect();
        prop_assert_eq!(places.len(), parts);
        prop_assert!(places.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(places.iter().all(|place| *place < nodes));
        let mut counts = vec![0; nodes];
        for place in &places {
            counts[*place] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{} and {}", least, most);
    }
}

#[test]
fn names_are_spread_in_proportion_to_weights() {
    let nodes = uuids(16, 7);
    let placement = among(&nodes, |place| if place < 8 { 1.0 } else { 3.0 });
    let mut counts = [0_u32; 16];
    for number in 0..64_000 {
        counts[placement.home(&format!("n{number}")).unwrap()] += 1;
    }
    // A unit of weight is 64,000 / 32 = 2,000 names; the spread of such a count is about 45.
    for (place, count) in counts.iter().enumerate() {
        let expected = if place < 8 { 2000 } else { 6000 };
        assert!(count.abs_diff(expected) < 400, "node {place} has {count}, not about {expected}");
    }
    assert_eq!(Placement::new(std::iter::empty()).home("x"), None);
}
