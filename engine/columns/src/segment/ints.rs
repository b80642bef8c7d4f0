//! Sequences of whole numbers: OIDs, codes, values, lengths. Three forms; the shortest is taken.
//!
//! * **Packed**: each number less the least of all.
//! * **Steps**: stretches with one difference throughout. What repeats for a while, and what counts
//!   up, takes a few bytes for each stretch.
//! * **Deltas**: in blocks of 64, each difference to the number before, less the least difference
//!   of the block. Times go up by about the same.
//!
//! Numbers are unsigned words. Who has an order to keep maps its values so that theirs is the order
//! of the words. Any bytes of the right length are some sequence: no number is out of bounds.

use super::bitmap::Bitmap;
use super::bits::{Packed, bytes_of, pack, width_of};
use super::lanes;

mod pick;

const PACKED: u8 = 0;
const STEPS: u8 = 1;
const DELTAS: u8 = 2;

/// Turns the order of signed numbers into that of words, and back.
pub(crate) const SIGN: u64 = 1 << 63;

/// Numbers to a block.
const BLOCK: usize = 64;

/// Sequences shorter than this are not tried as deltas, which have a head for each block.
const DELTAS_FROM: usize = 2 * BLOCK;

/// The length of numbers less their least: width, least number, items.
fn packed_bytes(items: &[u64]) -> usize {
    let (least, width) = frame(items.iter().copied());
    2 + word_bytes(least) + bytes_of(width, items.len())
}

fn frame(items: impl Iterator<Item = u64>) -> (u64, u32) {
    let (least, greatest) =
        items.fold((u64::MAX, 0), |(least, most), item| (least.min(item), most.max(item)));
    if least > greatest { (0, 0) } else { (least, width_of(greatest - least)) }
}

/// A difference as a small word, whether it goes up or down.
fn zigzag(step: u64) -> u64 {
    step << 1 ^ ((step as i64) >> 63) as u64
}

fn unzigzag(word: u64) -> u64 {
    word >> 1 ^ (word & 1).wrapping_neg()
}

fn varint_bytes(value: usize) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn word_bytes(word: u64) -> usize {
    8 - word.leading_zeros() as usize / 8
}

fn push_packed(out: &mut Vec<u8>, items: &[u64]) {
    let (least, width) = frame(items.iter().copied());
    let len = word_bytes(least);
    out.push(width as u8);
    out.push(len as u8);
    out.extend_from_slice(&least.to_le_bytes()[..len]);
    pack(out, width, items.iter().map(|item| item - least));
}

/// Numbers less their least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framed<'a> {
    least: u64,
    items: Packed<'a>,
}

impl<'a> Framed<'a> {
    fn take(bytes: &mut &'a [u8], len: usize) -> Option<Self> {
        let (&[width, least_len], rest) = bytes.split_first_chunk::<2>()?;
        let (least_bytes, rest) = rest.split_at_checked(usize::from(least_len))?;
        let mut least = [0; 8];
        least.get_mut(..least_bytes.len())?.copy_from_slice(least_bytes);
        *bytes = rest;
        let items = Packed::take(bytes, u32::from(width), len)?;
        Some(Framed { least: u64::from_le_bytes(least), items })
    }

    fn get(&self, at: usize) -> u64 {
        self.least.wrapping_add(self.items.get(at))
    }
}

/// Stretches with one difference throughout.
#[derive(Default)]
struct Stretches {
    ends: Vec<u64>,
    firsts: Vec<u64>,
    steps: Vec<u64>,
}

impl Stretches {
    /// Of these numbers, unless there are more than `most`.
    fn of(items: &[u64], most: usize) -> Option<Self> {
        let mut found = Stretches::default();
        let mut start = 0;
        while start < items.len() {
            if found.ends.len() >= most {
                return None;
            }
            let step = items.get(start + 1).map_or(0, |next| next.wrapping_sub(items[start]));
            let more = items[start..].windows(2);
            let end =
                start + 1 + more.take_while(|two| two[1].wrapping_sub(two[0]) == step).count();
            found.ends.push(end as u64);
            found.firsts.push(items[start]);
            found.steps.push(zigzag(step));
            start = end;
        }
        Some(found)
    }

    fn bytes(&self) -> usize {
        let parts = [&self.ends, &self.firsts, &self.steps];
        varint_bytes(self.ends.len()) + parts.iter().map(|part| packed_bytes(part)).sum::<usize>()
    }

    fn push(&self, out: &mut Vec<u8>) {
        engram_base::varint::push(out, self.ends.len() as u64);
        for part in [&self.ends, &self.firsts, &self.steps] {
            push_packed(out, part);
        }
    }
}

/// Blocks of differences.
#[derive(Default)]
struct Differences {
    firsts: Vec<u64>,
    leasts: Vec<u64>,
    widths: Vec<u8>,
}

impl Differences {
    fn of(items: &[u64]) -> Self {
        let mut found = Differences::default();
        for block in items.chunks(BLOCK) {
            let steps = block.windows(2).map(|two| two[1].wrapping_sub(two[0]) ^ SIGN);
            let (least, width) = frame(steps);
            found.firsts.push(block[0]);
            found.leasts.push(zigzag(least ^ SIGN));
            found.widths.push(width as u8);
        }
        found
    }

    fn bytes(&self) -> usize {
        let items: usize = self.widths.iter().map(|width| 8 * usize::from(*width)).sum();
        packed_bytes(&self.firsts) + packed_bytes(&self.leasts) + self.widths.len() + items
    }

    fn push(&self, out: &mut Vec<u8>, items: &[u64]) {
        push_packed(out, &self.firsts);
        push_packed(out, &self.leasts);
        out.extend_from_slice(&self.widths);
        for ((block, least), width) in items.chunks(BLOCK).zip(&self.leasts).zip(&self.widths) {
            let steps = block
                .windows(2)
                .map(|two| two[1].wrapping_sub(two[0]).wrapping_sub(unzigzag(*least)));
            let fill = std::iter::repeat_n(0, BLOCK + 1 - block.len());
            pack(out, u32::from(*width), steps.chain(fill));
        }
    }
}

/// Appends the numbers in their shortest form. How many they are is kept elsewhere.
pub(crate) fn push(out: &mut Vec<u8>, items: &[u64]) {
    choose(items).push(out, items);
}

/// Bytes that [`push`] takes for them.
#[cfg(test)]
fn bytes(items: &[u64]) -> usize {
    choose(items).bytes
}

struct Choice {
    bytes: usize,
    steps: Option<Stretches>,
    deltas: Option<Differences>,
}

fn choose(items: &[u64]) -> Choice {
    let packed = packed_bytes(items);
    let mut choice = Choice { bytes: 1 + packed, steps: None, deltas: None };
    // A stretch takes about a byte at least.
    if let Some(steps) = Stretches::of(items, packed)
        && steps.bytes() < choice.bytes
    {
        choice = Choice { bytes: 1 + steps.bytes(), steps: Some(steps), deltas: None };
    }
    // Differences of a width of at least four bits, as a rule; not worth trying for codes.
    if items.len() >= DELTAS_FROM && choice.bytes > items.len() {
        let deltas = Differences::of(items);
        if deltas.bytes() < choice.bytes {
            choice = Choice { bytes: 1 + deltas.bytes(), steps: None, deltas: Some(deltas) };
        }
    }
    choice
}

impl Choice {
    fn push(&self, out: &mut Vec<u8>, items: &[u64]) {
        if let Some(steps) = &self.steps {
            out.push(STEPS);
            steps.push(out);
        } else if let Some(deltas) = &self.deltas {
            out.push(DELTAS);
            deltas.push(out, items);
        } else {
            out.push(PACKED);
            push_packed(out, items);
        }
    }
}

/// A sequence on media.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ints<'a> {
    len: usize,
    form: Form<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Form<'a> {
    Packed(Framed<'a>),
    Steps { count: usize, ends: Framed<'a>, firsts: Framed<'a>, steps: Framed<'a> },
    Deltas { firsts: Framed<'a>, leasts: Framed<'a>, widths: &'a [u8], items: &'a [u8] },
}

impl<'a> Ints<'a> {
    /// Takes a sequence of `len` numbers from the front; `None` if the bytes are none.
    pub(crate) fn take(bytes: &mut &'a [u8], len: usize) -> Option<Self> {
        let (&form, rest) = bytes.split_first()?;
        *bytes = rest;
        let form = match form {
            PACKED => Form::Packed(Framed::take(bytes, len)?),
            STEPS => {
                let count = usize::try_from(engram_base::varint::take(bytes)?).ok()?;
                if count > len {
                    return None;
                }
                let mut part = || Framed::take(bytes, count);
                Form::Steps { count, ends: part()?, firsts: part()?, steps: part()? }
            }
            DELTAS => {
                let blocks = len.div_ceil(BLOCK);
                let (firsts, leasts) = (Framed::take(bytes, blocks)?, Framed::take(bytes, blocks)?);
                let (widths, rest) = bytes.split_at_checked(blocks)?;
                if widths.iter().any(|width| *width > 56 && *width != 64) {
                    return None;
                }
                let total: usize = widths.iter().map(|width| 8 * usize::from(*width)).sum();
                let (items, rest) = rest.split_at_checked(total)?;
                *bytes = rest;
                Form::Deltas { firsts, leasts, widths, items }
            }
            _ => return None,
        };
        Some(Ints { len, form })
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A number; some number beyond the last.
    pub(crate) fn get(&self, at: usize) -> u64 {
        match &self.form {
            Form::Packed(framed) => framed.get(at),
            Form::Steps { count, ends, firsts, steps } => {
                let place = partition(*count, |place| ends.get(place) <= at as u64);
                let start = if place == 0 { 0 } else { ends.get(place - 1) };
                let along = (at as u64).wrapping_sub(start);
                firsts.get(place).wrapping_add(unzigzag(steps.get(place)).wrapping_mul(along))
            }
            Form::Deltas { .. } => {
                let mut out = [0; BLOCK];
                let count = self.block(at / BLOCK, &mut out);
                if at % BLOCK < count { out[at % BLOCK] } else { 0 }
            }
        }
    }

    /// The numbers `64 * block..`, up to 64 of them; returns how many. What lies behind them in
    /// `out` is not told.
    fn block(&self, block: usize, out: &mut [u64; BLOCK]) -> usize {
        let count = self.len.saturating_sub(block * BLOCK).min(BLOCK);
        match &self.form {
            Form::Packed(framed) => {
                framed.items.unpack(block, out);
                for item in out {
                    *item = item.wrapping_add(framed.least);
                }
            }
            Form::Steps { count: stretches, ends, firsts, steps } => {
                let from = (block * BLOCK) as u64;
                let mut place = partition(*stretches, |place| ends.get(place) <= from);
                let mut at = 0;
                while at < count {
                    let start = if place == 0 { 0 } else { ends.get(place - 1) };
                    let end = if place < *stretches { ends.get(place) } else { u64::MAX };
                    let (first, step) = (firsts.get(place), unzigzag(steps.get(place)));
                    let stop = end.saturating_sub(from).clamp(at as u64 + 1, count as u64) as usize;
                    for (along, item) in out[at..stop].iter_mut().enumerate() {
                        let along = (from + (at + along) as u64).wrapping_sub(start);
                        *item = first.wrapping_add(step.wrapping_mul(along));
                    }
                    at = stop;
                    place += 1;
                }
            }
            Form::Deltas { firsts, leasts, widths, items } => {
                let Some(&width) = widths.get(block) else { return 0 };
                let before: usize = widths[..block].iter().map(|width| usize::from(*width)).sum();
                let mut bytes = &items[8 * before..];
                let steps = Packed::take(&mut bytes, u32::from(width), BLOCK);
                steps.expect("checked when taken").unpack(0, out);
                let least = unzigzag(leasts.get(block));
                let mut next = firsts.get(block);
                for item in out {
                    let step = *item;
                    *item = next;
                    next = next.wrapping_add(least).wrapping_add(step);
                }
            }
        }
        count
    }

    /// Calls for each block, in order.
    fn blocks(&self, mut visit: impl FnMut(&[u64])) {
        let mut out = [0; BLOCK];
        for block in 0..self.len.div_ceil(BLOCK) {
            let count = self.block(block, &mut out);
            visit(&out[..count]);
        }
    }

    /// Calls for each number, in order.
    pub(crate) fn each(&self, mut visit: impl FnMut(u64)) {
        self.blocks(|items| items.iter().for_each(|item| visit(*item)));
    }

    /// All of them.
    pub(crate) fn to_vec(self) -> Vec<u64> {
        let mut all = Vec::new();
        self.extend(&mut all);
        all
    }

    /// Which numbers are in `low..=high`.
    pub(crate) fn between(&self, low: u64, high: u64) -> Bitmap {
        if low > high {
            return Bitmap::new(self.len);
        }
        if let Form::Packed(framed) = &self.form {
            // What is packed is compared as it is.
            let Some(high) = high.checked_sub(framed.least) else {
                return Bitmap::new(self.len);
            };
            let low = low.saturating_sub(framed.least);
            if let Some(words) = lanes::between(&framed.items, low, high) {
                return Bitmap::from_words(words, self.len);
            }
            return self.select(
                |block, out| framed.items.unpack(block, out),
                |item| item.wrapping_sub(low) <= high - low,
            );
        }
        self.between_along(low, high)
            .unwrap_or_else(|| self.matching(|item| item.wrapping_sub(low) <= high - low))
    }

    /// Which numbers pass.
    pub(crate) fn matching(&self, mut passes: impl FnMut(u64) -> bool) -> Bitmap {
        if let Form::Steps { count, ends, firsts, steps } = &self.form
            && (0..*count).all(|place| steps.get(place) == 0)
        {
            let mut bitmap = Bitmap::new(self.len);
            let mut start = 0;
            for place in 0..*count {
                let end = (ends.get(place) as usize).min(self.len);
                if passes(firsts.get(place)) {
                    bitmap.insert_range(start, end);
                }
                start = end;
            }
            return bitmap;
        }
        self.select(|block, out| self.block(block, out), passes)
    }

    fn select(
        &self,
        unpack: impl Fn(usize, &mut [u64; BLOCK]) -> usize,
        mut passes: impl FnMut(u64) -> bool,
    ) -> Bitmap {
        let mut words = Vec::with_capacity(self.len.div_ceil(BLOCK));
        let mut out = [0; BLOCK];
        for block in 0..self.len.div_ceil(BLOCK) {
            let count = unpack(block, &mut out);
            let mut word = 0;
            for (at, item) in out[..count].iter().enumerate() {
                word |= u64::from(passes(*item)) << at;
            }
            words.push(word);
        }
        Bitmap::from_words(words, self.len)
    }
}

/// The first place up to `len` that is not before, of places in order.
fn partition(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Where an ascending sequence has this number.
pub(crate) fn position(ascending: &Ints<'_>, number: u64) -> Option<usize> {
    let at = partition(ascending.len, |at| ascending.get(at) < number);
    (at < ascending.len && ascending.get(at) == number).then_some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bitmap::Bitmap;
    use super::{Ints, bytes, position, push};

    /// Sequences that each of the forms is good at, and those that none is.
    fn any_items() -> impl Strategy<Value = Vec<u64>> {
        let wild = prop::collection::vec(any::<u64>(), 0..200);
        let narrow = (any::<u64>(), prop::collection::vec(0_u64..20, 0..200))
            .prop_map(|(base, v)| v.iter().map(|item| base.wrapping_add(*item)).collect());
        let stretches = prop::collection::vec((any::<u64>(), 0_u64..6, 1_usize..80), 0..8)
            .prop_map(|v| {
                let one = |(first, step, len): (u64, u64, usize)| {
                    let step = step.wrapping_sub(2);
                    (0..len as u64).map(move |along| first.wrapping_add(step.wrapping_mul(along)))
                };
                v.into_iter().flat_map(one).collect()
            });
        let times = prop::collection::vec(0_u64..100_000, 0..400).prop_map(|steps| {
            let mut now = 1 << 60;
            steps
                .iter()
                .map(|step| {
                    now += 1_000_000 + step;
                    now
                })
                .collect()
        });
        prop_oneof![wild, narrow, stretches, times]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn what_goes_in_comes_out_and_is_found(
            items in any_items(),
            ends in any::<(prop::sample::Index, prop::sample::Index)>(),
            picked in any::<(u64, u64)>().prop_map(|(a, b)| a & b),
        ) {
            let mut media = Vec::new();
            push(&mut media, &items);
            prop_assert_eq!(media.len(), bytes(&items));
            let mut rest = media.as_slice();
            let ints = Ints::take(&mut rest, items.len()).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(ints.len(), items.len());
            prop_assert_eq!(ints.to_vec(), items.clone());
            prop_assert!((0..items.len()).all(|at| ints.get(at) == items[at]));
            if !items.is_empty() {
                let (low, high) = (*ends.0.get(&items), *ends.1.get(&items));
                let found = ints.between(low, high);
                prop_assert!((0..items.len())
                    .all(|at| found.contains(at) == (low <= items[at] && items[at] <= high)));
                let found = ints.matching(|item| item % 3 == 0);
                prop_assert!((0..items.len())
                    .all(|at| found.contains(at) == items[at].is_multiple_of(3)));
            }
            let every: Vec<usize> = (0..items.len()).collect();
            for (at, wanted) in
                [&every[..], &[], &every[ends.0.index(every.len() + 1)..]].into_iter().enumerate()
            {
                let mut positions = Bitmap::new(items.len());
                // Whole words, none, and some of the rest.
                let taken = |position: &usize| at < 2 || picked >> (position % 64) & 1 != 0;
                let wanted: Vec<usize> = wanted.iter().copied().filter(taken).collect();
                for position in &wanted {
                    positions.insert(*position);
                }
                let mut found = vec![7];
                ints.extend_at(&positions, &mut found);
                let expected: Vec<u64> = wanted.iter().map(|position| items[*position]).collect();
                prop_assert_eq!(found.split_off(1), expected);
            }
            let mut sorted = items.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let mut media = Vec::new();
            push(&mut media, &sorted);
            let ints = Ints::take(&mut &media[..], sorted.len()).unwrap();
            for (at, item) in sorted.iter().enumerate() {
                prop_assert_eq!(position(&ints, *item), Some(at));
                let next = item.wrapping_add(1);
                prop_assert_eq!(position(&ints, next).is_some(), sorted.contains(&next));
            }
        }

        #[test]
        fn any_bytes_are_a_sequence_or_none(
            items in any_items(),
            hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            len in 0_usize..500,
        ) {
            let mut media = Vec::new();
            push(&mut media, &items);
            for (at, byte) in hits {
                let at = at.index(media.len());
                media[at] = byte;
            }
            for len in [len, items.len()] {
                if let Some(ints) = Ints::take(&mut &media[..], len) {
                    prop_assert_eq!(ints.to_vec().len(), len);
                    prop_assert_eq!(ints.between(3, u64::MAX - 3).len(), len);
                    let mut picked = Vec::new();
                    ints.extend_at(&ints.between(3, u64::MAX - 3), &mut picked);
                    prop_assert_eq!(picked.len(), ints.between(3, u64::MAX - 3).count());
                    let _ = (ints.get(0), ints.get(len), position(&ints, 7));
                }
            }
        }
    }

    #[test]
    fn what_repeats_or_counts_up_takes_a_few_bytes() {
        let counted: Vec<u64> = (0..4096).map(|at| 1 << 40 | at).collect();
        assert!(bytes(&counted) < 24, "{}", bytes(&counted));
        let granules: Vec<u64> = (0..4096).map(|at| at / 2167).collect();
        assert!(bytes(&granules) < 24, "{}", bytes(&granules));
        let names: Vec<u64> = (0..4096).map(|at| at % 2167).collect();
        assert!(bytes(&names) < 24, "{}", bytes(&names));
    }
}
