//! Names of a segment's rows: put in order, and read again.

use std::cmp::Ordering;

use super::ordered::shared;

/// Each distinct name once, in order, and for each row the number of its own.
pub(super) fn order<'a>(names: &[&'a str]) -> (Vec<&'a str>, Vec<u64>) {
    if names.is_sorted_by(|a, b| a < b) {
        // Names are numbered mostly.
        return (names.to_vec(), (0..names.len() as u64).collect());
    }
    // What all begin with tells nothing, and what the next bytes are tells nearly all.
    let first = names.first().map_or(&[][..], |name| name.as_bytes());
    let same = names.iter().fold(first.len(), |same, name| {
        let same = &first[..same];
        if name.as_bytes().starts_with(same) { same.len() } else { shared(same, name.as_bytes()) }
    });
    let key = |name: &str| {
        let mut bytes = [0; 8];
        let rest = &name.as_bytes()[same..];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    };
    let mut order: Vec<(u64, u32)> =
        names.iter().zip(0..).map(|(name, row)| (key(name), row)).collect();
    order.sort_unstable_by(|(a, row), (b, other)| match a.cmp(b) {
        Ordering::Equal => names[*row as usize].cmp(names[*other as usize]),
        unlike => unlike,
    });
    let mut distinct: Vec<&str> = Vec::with_capacity(names.len());
    let mut codes = vec![0; names.len()];
    for (_, row) in order {
        let name = names[row as usize];
        if distinct.last() != Some(&name) {
            distinct.push(name);
        }
        codes[row as usize] = distinct.len() as u64 - 1;
    }
    (distinct, codes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::order;

    /// How many names there are, at most. Miri takes a thousand times as long for each.
    const NAMES: usize = if cfg!(miri) { 9 } else { 60 };

    proptest! {
        #[test]
        fn names_are_put_in_order_once_each(
            names in prop::collection::vec("(common prefix )?[abß\0]{0,12}", 0..NAMES),
            prefix in "[aß]{0,9}",
        ) {
            let names: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (distinct, codes) = order(&names);
            let expected: BTreeSet<&str> = names.iter().copied().collect();
            prop_assert!(distinct.iter().eq(&expected));
            prop_assert_eq!(codes.len(), names.len());
            for (name, code) in names.iter().zip(codes) {
                prop_assert_eq!(distinct[code as usize], *name);
            }
        }
    }
}
