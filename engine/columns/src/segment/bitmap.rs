//! Bitmaps over a segment's positions: what predicates become.

use engram_base::error::Result;
use engram_base::fail;

/// A set of positions below a fixed length. Operations take bitmaps of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// 64 positions each, least first; bits at and beyond `len` are zero.
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// Makes a bitmap of `len` positions, with none of them in it.
    pub fn new(len: usize) -> Self {
        Bitmap { words: vec![0; len.div_ceil(64)], len }
    }

    /// Every position of `len`.
    pub fn full(len: usize) -> Self {
        Bitmap::from_words(vec![u64::MAX; len.div_ceil(64)], len)
    }

    /// Makes a bitmap of words, one for each 64 positions begun. Bits beyond `len` are dropped.
    pub fn from_words(mut words: Vec<u64>, len: usize) -> Self {
        debug_assert_eq!(words.len(), len.div_ceil(64));
        if let (Some(last), used @ 1..) = (words.last_mut(), len % 64) {
            *last &= (1 << used) - 1;
        }
        Bitmap { words, len }
    }

    /// As bytes: a row's value. Zero bytes at the end are left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes
    }

    /// Reads what [`Bitmap::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8], len: usize) -> Result<Self> {
        if bytes.len() > len.div_ceil(8) {
            fail!(Corrupt, "a bitmap of {} bytes is over {len} rows", bytes.len());
        }
        let mut words = vec![0; len.div_ceil(64)];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let given: u32 = words.iter().map(|word: &u64| word.count_ones()).sum();
        let bitmap = Bitmap::from_words(words, len);
        if bitmap.count() != given as usize {
            fail!(Corrupt, "a bitmap has bits beyond its {len} rows");
        }
        Ok(bitmap)
    }

    /// How many positions it is over.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The words, 64 positions each.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether the position is in.
    pub fn contains(&self, position: usize) -> bool {
        position < self.len && self.words[position / 64] >> (position % 64) & 1 != 0
    }

    /// Takes a position in.
    ///
    /// # Panics
    ///
    /// If the bitmap has no such position.
    pub fn insert(&mut self, position: usize) {
        assert!(position < self.len, "position {position} of {}", self.len);
        self.words[position / 64] |= 1 << (position % 64);
    }

    /// Takes a position in, if the bitmap has it; whether it has.
    #[inline]
    pub fn take_in(&mut self, position: usize) -> bool {
        let has = position < self.len;
        if has {
            self.words[position / 64] |= 1 << (position % 64);
        }
        has
    }

    /// Takes the positions `from..to` in.
    pub(crate) fn insert_range(&mut self, from: usize, to: usize) {
        assert!(to <= self.len, "position {to} of {}", self.len);
        if from >= to {
            return;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        let (low, high) = (u64::MAX << (from % 64), u64::MAX >> (63 - (to - 1) % 64));
        if first == last {
            self.words[first] |= low & high;
            return;
        }
        self.words[first] |= low;
        self.words[first + 1..last].fill(u64::MAX);
        self.words[last] |= high;
    }

    /// Leaves what is in the other too.
    pub fn and(&mut self, other: &Bitmap) {
        self.combine(other, |a, b| a & b);
    }

    /// Adds what is in the other.
    pub fn or(&mut self, other: &Bitmap) {
        self.combine(other, |a, b| a | b);
    }

    /// Leaves what is not in the other.
    pub fn and_not(&mut self, other: &Bitmap) {
        self.combine(other, |a, b| a & !b);
    }

    /// Turns what is in into what is not.
    pub fn negate(&mut self) {
        let mut words = std::mem::take(&mut self.words);
        for word in &mut words {
            *word = !*word;
        }
        *self = Bitmap::from_words(words, self.len);
    }

    fn combine(&mut self, other: &Bitmap, op: impl Fn(u64, u64) -> u64) {
        debug_assert_eq!(self.len, other.len);
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word = op(*word, *other);
        }
    }

    /// How many positions are in.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no more than so many positions are in; a look at the first ones tells mostly.
    pub fn has_at_most(&self, most: usize) -> bool {
        let mut left = Some(most);
        for word in self.words.iter().filter(|word| **word != 0) {
            left = left.and_then(|left| left.checked_sub(word.count_ones() as usize));
            if left.is_none() {
                return false;
            }
        }
        true
    }

    /// Whether no position is in.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Whether every position is in.
    pub fn is_full(&self) -> bool {
        self.count() == self.len
    }

    /// How many positions below this are in.
    pub(crate) fn rank(&self, position: usize) -> usize {
        let words = &self.words[..(position / 64).min(self.words.len())];
        let whole: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        let part =
            self.words.get(position / 64).map_or(0, |word| word & ((1 << (position % 64)) - 1));
        whole + part.count_ones() as usize
    }

    /// Returns those of the positions in this bitmap whose rank among them is in `ranks`.
    pub(crate) fn spread(&self, ranks: &Bitmap) -> Bitmap {
        let mut spread = Bitmap::new(self.len);
        for (rank, position) in self.iter().enumerate() {
            spread.words[position / 64] |= u64::from(ranks.contains(rank)) << (position % 64);
        }
        spread
    }

    /// The positions that are in, ascending, as a list.
    pub fn positions(&self) -> Vec<usize> {
        let mut positions = Vec::with_capacity(self.count());
        for (first, &word) in (0..).step_by(64).zip(&self.words) {
            // Mostly all are in, or none.
            if word == u64::MAX {
                positions.extend(first..first + 64);
                continue;
            }
            let mut rest = word;
            while rest != 0 {
                positions.push(first + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
        positions
    }

    /// The positions that are in, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(place, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(place * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Bitmap;

    fn of(set: &[bool]) -> Bitmap {
        let mut bitmap = Bitmap::new(set.len());
        set.iter().enumerate().filter(|(_, is_in)| **is_in).for_each(|(at, _)| bitmap.insert(at));
        bitmap
    }

    proptest! {
        #[test]
        fn a_bitmap_is_a_set_of_positions(
            both in prop::collection::vec(any::<(bool, bool)>(), 0..200),
            ends in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let (a, b): (Vec<bool>, Vec<bool>) = both.iter().copied().unzip();
            let check = |op: fn(&mut Bitmap, &Bitmap), expected: fn(bool, bool) -> bool| {
                let mut result = of(&a);
                op(&mut result, &of(&b));
                let set: Vec<bool> = both.iter().map(|(a, b)| expected(*a, *b)).collect();
                assert_eq!(result, of(&set));
            };
            check(Bitmap::and, |a, b| a && b);
            check(Bitmap::or, |a, b| a || b);
            check(Bitmap::and_not, |a, b| a && !b);
            check(|a, _| a.negate(), |a, _| !a);

            let bitmap = of(&a);
            let positions: Vec<usize> = (0..a.len()).filter(|at| a[*at]).collect();
            prop_assert_eq!(bitmap.iter().collect::<Vec<_>>(), positions.clone());
            prop_assert_eq!(bitmap.positions(), positions.clone());
            let (mut most, mut some) = (Bitmap::full(200), Bitmap::new(200));
            positions.iter().filter(|at| **at % 3 == 0).for_each(|at| some.insert(*at));
            most.and_not(&some);
            prop_assert_eq!(most.iter().collect::<Vec<_>>(), most.positions());
            prop_assert_eq!(bitmap.count(), positions.len());
            prop_assert_eq!(bitmap.is_full(), a.iter().all(|is_in| *is_in));
            let most = ends.0.index(a.len() + 1);
            prop_assert_eq!(bitmap.has_at_most(most), positions.len() <= most);
            let read = Bitmap::from_bytes(&bitmap.to_bytes(), a.len()).unwrap();
            prop_assert_eq!(&read, &bitmap);

            let spread = bitmap.spread(&of(&b));
            for (rank, position) in positions.into_iter().enumerate() {
                prop_assert_eq!(bitmap.rank(position), rank);
                prop_assert_eq!(spread.contains(position), b[rank]);
            }

            let (from, to) = (ends.0.index(a.len() + 1), ends.1.index(a.len() + 1));
            let mut ranged = of(&a);
            ranged.insert_range(from, to);
            let set: Vec<bool> =
                (0..a.len()).map(|at| a[at] || (from..to).contains(&at)).collect();
            prop_assert_eq!(ranged, of(&set));
        }
    }

    #[test]
    fn bits_beyond_the_rows_are_refused() {
        assert!(Bitmap::from_bytes(&[0b111], 3).is_ok());
        assert!(Bitmap::from_bytes(&[0b1000], 3).is_err());
        assert!(Bitmap::from_bytes(&[1, 0], 3).is_err());
    }
}
