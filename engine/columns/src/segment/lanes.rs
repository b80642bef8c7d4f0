//! Packed items compared as they lie: a word of eight or four items at a time.
//!
//! Items of up to 15 bits are spread over the lanes of a word, of 8 or 16 bits, so that the topmost
//! bit of each lane is free. Adding what is missing to that bit tells in all lanes at once which
//! items are at or above a bound; a multiplication brings these bits side by side.

use super::bits::Packed;

/// Items to a word of the result.
const BLOCK: usize = 64;

/// This in each lane of so many bits.
const fn each(lane: u32, value: u64) -> u64 {
    u64::MAX / ((1 << lane) - 1) * value
}

/// How items are spread, two parts of the word at a time: which bits stay, and how far the bits
/// above those go.
struct Spread {
    steps: [(u64, u32, u64); 3],
    shift: usize,
}

impl Spread {
    /// Items of this width over lanes of 8 or 16 bits.
    const fn new(width: u32, lane: u32) -> Self {
        // A step that leaves everything where it is stands in for the third of wide lanes.
        let mut steps = [(u64::MAX, 0, 0); 3];
        let (mut part, mut at) = (32, 0);
        while part >= lane {
            let items = part / lane;
            let low = (1 << (width * items)) - 1;
            let stays = if part == 32 { low } else { each(2 * part, low) };
            steps[at] = (stays, part - width * items, stays << part);
            part /= 2;
            at += 1;
        }
        Spread { steps, shift: (64 / lane * width) as usize }
    }

    #[allow(clippy::inline_always)] // its numbers are constants where it stands
    #[inline(always)]
    fn spread(&self, word: u64) -> u64 {
        self.steps.iter().fold(word, |word, (stays, by, goes)| word & stays | word << by & goes)
    }
}

/// Which items are in `low..=high`, as the words of a bitmap; `None` if they are too wide for it.
pub(super) fn between(items: &Packed<'_>, low: u64, high: u64) -> Option<Vec<u64>> {
    let width = items.width();
    let words = items.len().div_ceil(BLOCK);
    let greatest = (1_u64.checked_shl(width)?) - 1;
    if low > high.min(greatest) {
        return Some(vec![0; words]);
    }
    if low == 0 && high >= greatest {
        return Some(vec![u64::MAX; words]);
    }
    let high = high.min(greatest);
    // A width for each, so that the compiler knows all masks and shifts.
    macro_rules! compare {
        ($($lane:literal: $($width:literal)*;)*) => {
            match width {
                $($($width => Some(compare::<$lane, $width>(items, low, high)),)*)*
                _ => None,
            }
        };
    }
    compare!(8: 1 2 3 4 5 6 7; 16: 8 9 10 11 12 13 14 15;)
}

/// The factor that brings the lowest bits of all lanes side by side, as the topmost bits.
const fn gather(lane: u32) -> u64 {
    if lane == 8 { 0x0102_0408_1020_4080 } else { 1 << 60 | 1 << 45 | 1 << 30 | 1 << 15 }
}

fn compare<const LANE: u32, const WIDTH: u32>(items: &Packed<'_>, low: u64, high: u64) -> Vec<u64> {
    let top = 1_u64 << (LANE - 1);
    let (low, beyond) = (each(LANE, top - low), each(LANE, top - 1 - high));
    let mut words = Vec::with_capacity(items.len().div_ceil(BLOCK));
    items.blocks(|bytes| words.push(compare_block::<LANE, WIDTH>(bytes, low, beyond)));
    words
}

/// Which items of a block are at or above the one bound, and below the other.
#[allow(clippy::inline_always)] // the code of a width is worth its bytes
#[inline(always)]
fn compare_block<const LANE: u32, const WIDTH: u32>(bytes: &[u8], low: u64, beyond: u64) -> u64 {
    let bytes = &bytes[..8 * WIDTH as usize + 8];
    let mut word = 0;
    // Part by part in the code, for the same reason.
    macro_rules! parts {
        ($($part:literal)*) => {
            $(if $part < LANE as usize {
                word |= compare_part::<LANE, WIDTH, $part>(bytes, low, beyond);
            })*
        };
    }
    parts!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    word
}

#[allow(clippy::inline_always)] // see above
#[inline(always)]
fn compare_part<const LANE: u32, const WIDTH: u32, const PART: usize>(
    bytes: &[u8],
    low: u64,
    beyond: u64,
) -> u64 {
    const { assert!(LANE == 8 || LANE == 16, "lanes of 8 or 16 bits") };
    let spread = const { Spread::new(WIDTH, LANE) };
    let lanes = 64 / LANE as usize;
    let bit = PART * spread.shift;
    let whole = bytes[bit / 8..].first_chunk::<8>().expect("a word follows");
    let lane = spread.spread(u64::from_le_bytes(*whole) >> (bit % 8));
    let tops = const { each(LANE, 1 << (LANE - 1)) };
    let passed = lane.wrapping_add(low) & !lane.wrapping_add(beyond) & tops;
    let gathered = (passed >> (LANE - 1)).wrapping_mul(const { gather(LANE) });
    gathered >> (64 - lanes) << (PART * lanes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bits::{Packed, pack};
    use super::between;

    proptest! {
        #[test]
        fn lanes_compare_as_numbers_do(
            items in prop::collection::vec(any::<u64>(), 0..300),
            width in 0_u32..=15,
            ends in any::<(u64, u64)>(),
            wide in any::<bool>(),
        ) {
            let items: Vec<u64> = items.iter().map(|item| item & ((1 << width) - 1)).collect();
            let mut bytes = Vec::new();
            pack(&mut bytes, width, items.iter().copied());
            let packed = Packed::take(&mut &bytes[..], width, items.len()).unwrap();
            let cut = |end: u64| if wide { end >> (63 - width) } else { end & ((1 << width) - 1) };
            let (low, high) = (cut(ends.0.min(ends.1)), cut(ends.0.max(ends.1)));
            let words = between(&packed, low, high).unwrap();
            prop_assert_eq!(words.len(), items.len().div_ceil(64));
            for (at, item) in items.iter().enumerate() {
                let passed = words[at / 64] >> (at % 64) & 1 != 0;
                let within = (low..=high).contains(item);
                prop_assert_eq!(passed, within, "{} {}..={}", item, low, high);
            }
        }
    }
}
