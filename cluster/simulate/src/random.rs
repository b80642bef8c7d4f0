//! Numbers that only a seed decides.

/// Spreads the bits of a number over all of it.
pub(crate) fn mixed(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number of several numbers in this order.
pub(crate) fn hashed(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |all, number| mixed(all ^ mixed(*number)))
}

/// A row of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(numbers: &[u64]) -> Dice {
        Dice(hashed(numbers))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mixed(self.0)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.number() % most.max(1)
    }

    /// A number from the first on, below the second.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// Whether something happens that happens so often in a thousand.
    pub(crate) fn happens(&mut self, in_thousand: u64) -> bool {
        self.below(1000) < in_thousand
    }
}
