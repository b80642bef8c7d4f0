//! Ascending numbers in few bits (Elias and Fano), of which one is found without unpacking all.
//!
//! Each number less the base is cut in two. The low halves lie side by side, `width` bits each. The
//! high halves never fall, so they are counted up in unary: for each number its step from the one
//! before in zeros, then a one. With the right width that is two bits for each number; together
//! about two more than the logarithm of the mean gap. The numbers whose high half is `h` begin
//! behind the `h`-th zero, which a count of bits by words finds.

use std::ops::Range;

use crate::segment::bits::{Packed, bytes_of, pack};

/// Low halves have at most as many bits as [`Packed`] takes.
const WIDTH_MAX: u32 = 56;

/// The width of the low halves of `len` numbers that differ by up to `range`.
fn width_for(range: u64, len: usize) -> u32 {
    (range / len.max(1) as u64).checked_ilog2().unwrap_or(0).min(WIDTH_MAX)
}

fn words_for(range: u64, len: usize) -> usize {
    (len + (range >> width_for(range, len)) as usize).div_ceil(64)
}

/// Bytes of `len` numbers that differ by up to `range`.
pub(super) fn size(range: u64, len: usize) -> usize {
    1 + bytes_of(width_for(range, len), len) + 8 * words_for(range, len)
}

/// Appends ascending numbers, of which the first is the base.
pub(super) fn push(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64> + Clone) {
    let len = numbers.len();
    let Some(base) = numbers.clone().next() else { return };
    let range = numbers.clone().last().unwrap_or(base) - base;
    let width = width_for(range, len);
    out.push(width as u8);
    let low = (1 << width) - 1;
    pack(out, width, numbers.clone().map(|number| (number - base) & low));
    let mut words = vec![0_u64; words_for(range, len)];
    for (at, number) in numbers.enumerate() {
        let bit = at + ((number - base) >> width) as usize;
        words[bit / 64] |= 1 << (bit % 64);
    }
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Such numbers, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ascending<'a> {
    base: u64,
    width: u32,
    lows: Packed<'a>,
    words: &'a [[u8; 8]],
    len: usize,
}

/// Where one of the numbers lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberPosition {
    /// Which one it is; as many as there are behind the last.
    pub index: usize,
    /// The bit at which its high half, or that of one before, can be read on.
    bit: usize,
}

impl<'a> Ascending<'a> {
    /// `len` numbers from `base` on; `None` if the bytes are none.
    pub(super) fn parse(bytes: &'a [u8], base: u64, len: usize) -> Option<Self> {
        let (&width, mut rest) = bytes.split_first()?;
        if u32::from(width) > WIDTH_MAX {
            return None;
        }
        let lows = Packed::take(&mut rest, u32::from(width), len)?;
        let (words, rest) = rest.as_chunks::<8>();
        rest.is_empty().then_some(Ascending { base, width: u32::from(width), lows, words, len })
    }

    fn word(&self, at: usize) -> Option<u64> {
        self.words.get(at).map(|word| u64::from_le_bytes(*word))
    }

    /// The first that is at least `number`.
    pub(super) fn first_from(&self, number: u64) -> NumberPosition {
        let Some(above) = number.checked_sub(self.base).filter(|above| *above > 0) else {
            return NumberPosition::default();
        };
        let width = self.width;
        let (high, low) = (above >> width, above & ((1 << width) - 1));
        let behind = NumberPosition { index: self.len, bit: self.words.len() * 64 };
        let Some(bit) = self.behind_zeros(high) else { return behind };
        let mut place = NumberPosition { index: bit - high as usize, bit };
        // The few with the same high half.
        while place.index < self.len
            && self.word(place.bit / 64).is_some_and(|word| word >> (place.bit % 64) & 1 != 0)
            && self.lows.get(place.index) < low
        {
            place = NumberPosition { index: place.index + 1, bit: place.bit + 1 };
        }
        if place.index < self.len { place } else { behind }
    }

    /// The bit behind so many zeros.
    fn behind_zeros(&self, count: u64) -> Option<usize> {
        if count == 0 {
            return Some(0);
        }
        let mut left = u32::try_from(count).ok()?;
        for at in 0..self.words.len() {
            let mut zeros = !self.word(at)?;
            let here = zeros.count_ones();
            if left <= here {
                for _ in 1..left {
                    zeros &= zeros - 1;
                }
                return Some(at * 64 + zeros.trailing_zeros() as usize + 1);
            }
            left -= here;
        }
        None
    }

    /// Calls `each` with the numbers from `place` on, and which one each is, until one is at least
    /// `until`. `None` if there are fewer than there should be.
    #[inline]
    pub(super) fn each<E>(
        &self,
        place: NumberPosition,
        until: Option<u64>,
        each: impl FnMut(usize, u64) -> Result<(), E>,
    ) -> Result<Option<()>, E> {
        self.each_before(place, self.len, until, each)
    }

    /// Calls `each` with some of the numbers, and which one each is. `None` if there are fewer than
    /// there should be.
    pub(super) fn part<E>(
        &self,
        part: Range<usize>,
        each: impl FnMut(usize, u64) -> Result<(), E>,
    ) -> Result<Option<()>, E> {
        match self.nth(part.start) {
            Some(place) => self.each_before(place, part.end.min(self.len), None, each),
            None => Ok(None),
        }
    }

    /// Where a number lies.
    fn nth(&self, index: usize) -> Option<NumberPosition> {
        let mut left = index as u32;
        for at in 0..self.words.len() {
            let mut ones = self.word(at)?;
            let here = ones.count_ones();
            if left < here {
                for _ in 0..left {
                    ones &= ones - 1;
                }
                return Some(NumberPosition {
                    index,
                    bit: at * 64 + ones.trailing_zeros() as usize,
                });
            }
            left -= here;
        }
        None
    }

    #[inline]
    fn each_before<E>(
        &self,
        place: NumberPosition,
        end: usize,
        until: Option<u64>,
        mut each: impl FnMut(usize, u64) -> Result<(), E>,
    ) -> Result<Option<()>, E> {
        let width = self.width;
        let mut index = place.index;
        let mut at = place.bit / 64;
        let mut ones = self.word(at).unwrap_or(0) & u64::MAX << (place.bit % 64);
        while index < end {
            while ones == 0 {
                at += 1;
                let Some(word) = self.word(at) else { return Ok(None) };
                ones = word;
            }
            let bit = at * 64 + ones.trailing_zeros() as usize;
            ones &= ones - 1;
            // Damaged bytes may say anything; it is bounded, as are the numbers of a block.
            let high = (bit.wrapping_sub(index) as u64) << width;
            let number = self.base.wrapping_add(high | self.lows.get(index));
            if until.is_some_and(|until| number >= until) {
                break;
            }
            each(index, number)?;
            index += 1;
        }
        Ok(Some(()))
    }

    /// All numbers, in the place of what `out` had. `None` if there are fewer than there should be.
    pub(super) fn unpack(&self, out: &mut Vec<u64>) -> Option<()> {
        out.resize(self.len.next_multiple_of(64), 0);
        for (block, lows) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            self.lows.unpack(block, lows);
        }
        out.truncate(self.len);
        let (base, width) = (self.base, self.width);
        let mut index = 0;
        for (at, word) in self.words.iter().enumerate() {
            let mut ones = u64::from_le_bytes(*word);
            // What the numbers of a word have in common, but for the ones before each.
            let zeros = (at * 64).wrapping_sub(index);
            let count = (ones.count_ones() as usize).min(out.len() - index);
            for (before, number) in out[index..index + count].iter_mut().enumerate() {
                let bit = ones.trailing_zeros() as usize;
                ones &= ones - 1;
                let high = (zeros.wrapping_add(bit - before) as u64) << width;
                *number = base.wrapping_add(high | *number);
            }
            index += count;
        }
        (index == out.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Ascending, NumberPosition, push, size};

    fn all(
        numbers: &Ascending<'_>,
        place: NumberPosition,
        until: Option<u64>,
    ) -> Option<Vec<(usize, u64)>> {
        let mut found = Vec::new();
        let each = |index, number| {
            found.push((index, number));
            Ok::<(), ()>(())
        };
        numbers.each(place, until, each).unwrap()?;
        Some(found)
    }

    proptest! {
        #[test]
        fn every_number_is_found_where_it_was_put(
            mut numbers in prop::collection::vec(any::<u64>(), 1..300),
            shift in 0_u32..64,
            asked in prop::collection::vec((any::<u64>(), any::<u64>()), 10),
        ) {
            for number in &mut numbers {
                *number >>= shift;
            }
            numbers.sort_unstable();
            let mut bytes = Vec::new();
            push(&mut bytes, numbers.iter().copied());
            let range = numbers[numbers.len() - 1] - numbers[0];
            prop_assert_eq!(bytes.len(), size(range, numbers.len()));
            let read = Ascending::parse(&bytes, numbers[0], numbers.len()).unwrap();
            let whole = all(&read, NumberPosition::default(), None).unwrap();
            prop_assert!(whole.iter().map(|(_, number)| number).eq(&numbers));
            let mut unpacked = vec![7; 3];
            prop_assert!(read.unpack(&mut unpacked).is_some());
            prop_assert_eq!(&unpacked, &numbers);
            let near = numbers.iter().map(|n| (*n, n.saturating_add(3)));
            let asked = asked.iter().map(|(a, b)| (a >> shift, b >> shift));
            for (low, high) in asked.chain(near) {
                let place = read.first_from(low);
                let first = numbers.partition_point(|number| *number < low);
                prop_assert_eq!(place.index, first);
                let found = all(&read, place, Some(high)).unwrap();
                let wanted = (first..).zip(&numbers[first..]).take_while(|(_, n)| **n < high);
                prop_assert!(found.into_iter().eq(wanted.map(|(at, n)| (at, *n))));
            }
            for start in [0, numbers.len() / 2, numbers.len() - 1] {
                let end = (start + 70).min(numbers.len());
                let mut part = Vec::new();
                let each = |index, number| {
                    part.push((index, number));
                    Ok::<(), ()>(())
                };
                prop_assert_eq!(read.part(start..end, each), Ok(Some(())));
                prop_assert!(part.into_iter().eq((start..end).map(|at| (at, numbers[at]))));
            }
        }

        #[test]
        fn damaged_bytes_are_none_or_bounded(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            base in any::<u64>(),
            len in 0_usize..300,
            asked in any::<u64>(),
        ) {
            if let Some(read) = Ascending::parse(&bytes, base, len) {
                let place = read.first_from(asked);
                prop_assert!(place.index <= len);
                let found = all(&read, place, None);
                prop_assert!(found.as_ref().is_none_or(|found| found.len() <= len));
                let mut unpacked = Vec::new();
                let whole = all(&read, NumberPosition::default(), None);
                prop_assert_eq!(read.unpack(&mut unpacked).is_some(), whole.is_some());
                if let Some(whole) = whole {
                    prop_assert!(whole.iter().map(|(_, number)| number).eq(&unpacked));
                }
                let mut count = 0;
                let each = |_, _| {
                    count += 1;
                    Ok::<(), ()>(())
                };
                let _ = read.part(asked as usize % 400..400, each);
                prop_assert!(count <= len);
            }
        }
    }
}
