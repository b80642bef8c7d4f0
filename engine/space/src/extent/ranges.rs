//! Ranges of an arena, added one by one, and what lies outside of them.

use std::cell::OnceCell;

use engram_records::extent::Extent;

/// A set of bytes.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// As they were added.
    added: Vec<Extent>,
    /// In order, where no two touch; made when it is first asked for.
    joined: OnceCell<Vec<Extent>>,
}

impl Ranges {
    /// Adds a range, which may overlap others.
    pub fn add(&mut self, extent: Extent) {
        self.joined.take();
        self.added.push(extent);
    }

    /// The ranges, in order; no two touch.
    pub fn joined(&self) -> &[Extent] {
        self.joined.get_or_init(|| joined(self.added.clone()))
    }

    /// The parts of an extent that none of these has, in order.
    pub fn outside(&self, extent: Extent) -> Vec<Extent> {
        let part = |from: u64, to: u64| Extent { offset: from, len: to - from };
        let (mut parts, mut at) = (Vec::new(), extent.offset);
        let ranges = self.joined();
        let first = ranges.partition_point(|range| range.end() <= extent.offset);
        for range in ranges[first..].iter().take_while(|range| range.offset < extent.end()) {
            if range.offset > at {
                parts.push(part(at, range.offset));
            }
            at = range.end();
        }
        if at < extent.end() {
            parts.push(part(at, extent.end()));
        }
        parts
    }
}

impl FromIterator<Extent> for Ranges {
    fn from_iter<T: IntoIterator<Item = Extent>>(extents: T) -> Self {
        Ranges { added: extents.into_iter().collect(), joined: OnceCell::new() }
    }
}

/// The same bytes in order, where those that touch or overlap are one.
pub(crate) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match joined.last_mut() {
            Some(last) if last.end() >= extent.offset => {
                last.len = last.end().max(extent.end()) - last.offset;
            }
            _ => joined.push(extent),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Extent, Ranges};

    fn extent() -> impl Strategy<Value = Extent> {
        (0..40u64, 1..10u64).prop_map(|(offset, len)| Extent { offset, len })
    }

    proptest! {
        #[test]
        fn each_byte_is_inside_or_outside(
            added in prop::collection::vec(extent(), 0..12),
            asked in extent(),
        ) {
            let has = |extent: &Extent, byte| (extent.offset..extent.end()).contains(&byte);
            let ranges: Ranges = added.iter().copied().collect();
            let outside = ranges.outside(asked);
            for byte in 0..50 {
                let expected = has(&asked, byte) && !added.iter().any(|one| has(one, byte));
                let found = outside.iter().filter(|part| has(part, byte)).count();
                prop_assert_eq!(found, usize::from(expected), "byte {}", byte);
            }
            prop_assert!(outside.windows(2).all(|two| two[0].end() < two[1].offset));
            prop_assert!(outside.iter().all(|part| part.len > 0));
        }
    }
}
