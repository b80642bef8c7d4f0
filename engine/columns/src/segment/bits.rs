//! Bits: numbers below 2^width side by side, least bits first, without regard to bytes.

use std::ops::Range;

/// How many bits it takes to tell the numbers up to this apart. Widths from 57 to 63 are none: an
/// item must lie in eight bytes from the one it begins in.
pub(crate) fn width_of(greatest: u64) -> u32 {
    let bits = 64 - greatest.leading_zeros();
    if bits > 56 { 64 } else { bits }
}

/// Bytes that `len` items take.
pub(crate) fn bytes_of(width: u32, len: usize) -> usize {
    (len * width as usize).div_ceil(8)
}

/// Appends items of this width.
pub(crate) fn pack(out: &mut Vec<u8>, width: u32, items: impl Iterator<Item = u64>) {
    let (mut pending, mut bits) = (0_u128, 0);
    for item in items {
        pending |= u128::from(item) << bits;
        bits += width;
        if bits >= 64 {
            out.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            bits -= 64;
        }
    }
    out.extend_from_slice(&pending.to_le_bytes()[..bits.div_ceil(8) as usize]);
}

/// 64 of the widest items, and a word.
const COPY: usize = 64 * 8 + 8;

/// Packed items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
    len: usize,
}

impl<'a> Packed<'a> {
    /// Takes items from the front; `None` if there are too few bytes, or the width is none.
    pub(crate) fn take(bytes: &mut &'a [u8], width: u32, len: usize) -> Option<Self> {
        if width > 56 && width != 64 {
            return None;
        }
        let (taken, rest) = bytes.split_at_checked(bytes_of(width, len))?;
        *bytes = rest;
        Some(Packed { bytes: taken, width, len })
    }

    fn mask(&self) -> u64 {
        if self.width == 64 { u64::MAX } else { (1 << self.width) - 1 }
    }

    /// An item; 0 beyond the last.
    pub(crate) fn get(&self, at: usize) -> u64 {
        let bit = at * self.width as usize;
        let from = self.bytes.get(bit / 8..).unwrap_or_default();
        // The last few bytes are fewer than a word's, and seldom worth a call to copy them.
        let whole = match from.first_chunk() {
            Some(whole) => u64::from_le_bytes(*whole),
            None => from.iter().rev().fold(0, |whole, byte| whole << 8 | u64::from(*byte)),
        };
        whole >> (bit % 8) & self.mask()
    }

    /// Calls for some of the items.
    #[inline]
    pub(crate) fn each<E>(
        &self,
        part: Range<usize>,
        mut visit: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut items = [0; 64];
        let mut at = part.start;
        while at < part.end.min(self.len) {
            self.unpack(at / 64, &mut items);
            let end = (at / 64 * 64 + 64).min(part.end).min(self.len);
            items[at % 64..at % 64 + (end - at)].iter().try_for_each(|item| visit(*item))?;
            at = end;
        }
        Ok(())
    }

    /// Bits of an item.
    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Calls for the bytes of each 64 items, in order, with a word behind them: 64 items are whole
    /// words, and each is loaded with the eight bytes from its first on.
    #[allow(clippy::inline_always)] // `visit` is code of a width
    #[inline(always)]
    pub(crate) fn blocks(&self, mut visit: impl FnMut(&[u8])) {
        let bytes = 8 * self.width as usize;
        let mut copy = [0; COPY];
        for block in 0..self.len.div_ceil(64) {
            visit(self.block(block, bytes, &mut copy));
        }
    }

    /// The bytes of a block and a word behind them; of the last blocks a copy, which have none.
    fn block<'b>(&'b self, block: usize, bytes: usize, copy: &'b mut [u8; COPY]) -> &'b [u8] {
        let from = &self.bytes[(block * bytes).min(self.bytes.len())..];
        if let Some(whole) = from.get(..bytes + 8) {
            return whole;
        }
        let len = from.len().min(bytes);
        copy[..len].copy_from_slice(&from[..len]);
        copy[len..bytes + 8].fill(0);
        &copy[..bytes + 8]
    }

    /// Takes those bits out of the words of a bitmap over the items whose item does not pass.
    pub(crate) fn retain(&self, words: &mut [u64], passes: impl Fn(u64) -> bool) {
        let (width, mask) = (self.width as usize, self.mask());
        let mut copy = [0; COPY];
        for (block, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let bytes = self.block(block, 8 * width, &mut copy);
            let (mut rest, mut kept) = (*word, 0);
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize * width;
                let whole = bytes[bit / 8..].first_chunk::<8>().expect("a word follows");
                // Nobody can guess which pass, so nothing branches on it.
                let passed = passes(u64::from_le_bytes(*whole) >> (bit % 8) & mask);
                kept |= (rest & rest.wrapping_neg()) * u64::from(passed);
                rest &= rest - 1;
            }
            *word = kept;
        }
    }

    /// The items `64 * block..`, up to 64 of them; returns how many. The contents of `out` behind
    /// them are unspecified.
    pub(crate) fn unpack(&self, block: usize, out: &mut [u64; 64]) -> usize {
        let count = self.len.saturating_sub(block * 64).min(64);
        let bytes = 8 * self.width as usize;
        let from = &self.bytes[(block * bytes).min(self.bytes.len())..];
        // Room for a copy is cleared for the last blocks alone.
        match from.get(..bytes + 8) {
            Some(whole) => self.unpack_whole(whole, out),
            None => self.unpack_whole(self.block(block, bytes, &mut [0; COPY]), out),
        }
        count
    }

    /// Unpacks the items of a block from its bytes, and a word behind them.
    #[inline(never)]
    fn unpack_whole(&self, bytes: &[u8], out: &mut [u64; 64]) {
        let (width, mask) = (self.width as usize, self.mask());
        // The widths of codes, and of references and keys of runs, with shifts that the compiler
        // knows.
        macro_rules! unpack {
            ($($width:literal)*) => {
                match width {
                    $($width => unpack_block(bytes, $width, (1 << $width) - 1, out),)*
                    _ => unpack_block(bytes, width, mask, out),
                }
            };
        }
        unpack!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24);
    }
}

#[allow(clippy::inline_always)] // the code of a width is worth its bytes
#[inline(always)]
fn unpack_block(bytes: &[u8], width: usize, mask: u64, out: &mut [u64; 64]) {
    // Eight items are whole bytes, so that where each of them lies is known, too.
    for (eight, items) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bytes = &bytes[eight * width..][..width + 8];
        for (at, item) in items.iter_mut().enumerate() {
            let bit = at * width;
            let whole = bytes[bit / 8..].first_chunk::<8>().expect("a word follows");
            *item = u64::from_le_bytes(*whole) >> (bit % 8) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Packed, bytes_of, pack, width_of};

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            items in prop::collection::vec(any::<u64>(), 0..200),
            shift in 0_u32..64,
        ) {
            let items: Vec<u64> = items.iter().map(|item| item >> shift).collect();
            let width = width_of(items.iter().copied().max().unwrap_or(0));
            let mut bytes = Vec::new();
            pack(&mut bytes, width, items.iter().copied());
            prop_assert_eq!(bytes.len(), bytes_of(width, items.len()));
            let mut rest = bytes.as_slice();
            let packed = Packed::take(&mut rest, width, items.len()).unwrap();
            prop_assert!(rest.is_empty());
            for part in [0..items.len() + 1, items.len() / 3..items.len() / 2, 64..70] {
                let mut unpacked = Vec::new();
                let push = |item| {
                    unpacked.push(item);
                    Ok::<(), ()>(())
                };
                prop_assert_eq!(packed.each(part.clone(), push), Ok(()));
                let part = part.start.min(items.len())..part.end.min(items.len());
                prop_assert_eq!(&unpacked, &items[part]);
            }
            prop_assert!((0..items.len()).all(|at| packed.get(at) == items[at]));
            if width > 0 && !items.is_empty() {
                let cut = &bytes[..bytes.len() - 1];
                prop_assert!(Packed::take(&mut &*cut, width, items.len()).is_none());
            }
        }
    }
}
