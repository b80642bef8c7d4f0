//! Sequences of whole numbers: OIDs, codes, values, lengths. Three forms; the shortest is taken.
//!
//! * **Packed**: each number less the least of all.
//! * **Steps**: stretches with one difference throughout. Numbers that repeat for a while, or count
//!   up, take a few bytes for each stretch.
//! * **Deltas**: in blocks of 64, each difference to the number before, less the least difference
//!   of the block. Times go up by about the same.
//!
//! Numbers are unsigned words. A caller that has an order to keep maps its values so that theirs is
//! the order of the words. Any bytes of the right length are some sequence: no number is out of
//! bounds.

use super::bitmap::Bitmap;
use super::bits::Packed;
use super::lanes;
pub(crate) use encode::{push, push_zeros};

mod encode;

const PACKED: u8 = 0;
const STEPS: u8 = 1;
const DELTAS: u8 = 2;

/// Turns the order of signed numbers into that of words, and back.
pub(crate) const SIGN: u64 = 1 << 63;

/// Numbers to a block.
const BLOCK: usize = 64;

/// So few of a block are looked up one by one.
const FEW: u32 = 6;

/// A number is found among many stretches in the time that so many of them are gone through.
const STRETCHES_PER_LOOK: usize = 8;

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

/// The step that a small word stands for (`encode::zigzag`).
fn unzigzag(word: u64) -> u64 {
    word >> 1 ^ (word & 1).wrapping_neg()
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

/// A stretch of positions whose numbers have one difference throughout.
struct Stretch {
    start: usize,
    end: usize,
    place: usize,
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

    /// The numbers `64 * block..`, up to 64 of them; returns how many. The contents of `out` behind
    /// them are unspecified.
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

    /// The same, of the numbers at some positions alone, if any are given and it saves a look at
    /// the others.
    pub(crate) fn between_among(&self, low: u64, high: u64, among: Option<&Bitmap>) -> Bitmap {
        let (Some(among), Form::Packed(framed)) = (among, &self.form) else {
            return self.between(low, high);
        };
        let Some(high) = high.checked_sub(framed.least).filter(|_| low <= high) else {
            return Bitmap::new(self.len);
        };
        let (low, mut words) = (low.saturating_sub(framed.least), among.words().to_vec());
        framed.items.retain(&mut words, |item| (low..=high).contains(&item));
        Bitmap::from_words(words, self.len)
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

    /// Appends all numbers.
    pub(crate) fn extend(&self, out: &mut Vec<u64>) {
        out.reserve(self.len);
        if let Some(stretches) = self.stretches() {
            for stretch in stretches {
                self.count_up(&stretch, stretch.start, stretch.end, out);
            }
            return;
        }
        self.blocks(|items| out.extend_from_slice(items));
    }

    /// Appends the numbers at these positions, ascending.
    pub(crate) fn extend_at(&self, positions: &Bitmap, out: &mut Vec<u64>) {
        let wanted = positions.count();
        out.reserve(wanted);
        if let Form::Steps { count, .. } = &self.form
            && wanted * STRETCHES_PER_LOOK < *count
        {
            out.extend(positions.iter().map(|at| self.get(at)));
            return;
        }
        match self.stretches() {
            Some(stretches) => {
                stretches.for_each(|stretch| self.count_up_at(&stretch, positions, out));
            }
            None => self.pick(positions, out),
        }
    }

    /// Which numbers are in `low..=high`, if they are kept as stretches: where they go up, two
    /// divisions tell.
    fn between_along(&self, low: u64, high: u64) -> Option<Bitmap> {
        let mut found = Bitmap::new(self.len);
        for stretch in self.stretches()? {
            let (first, step) = self.line(&stretch);
            let (start, most) = (stretch.start, stretch.end - stretch.start - 1);
            let last = step.checked_mul(most as u64).and_then(|by| first.checked_add(by));
            let Some(last) = last else {
                for along in 0..=most {
                    let number = first.wrapping_add(step.wrapping_mul(along as u64));
                    if (low..=high).contains(&number) {
                        found.insert(start + along);
                    }
                }
                continue;
            };
            if first > high || last < low {
                continue;
            }
            let from = if low <= first { 0 } else { (low - first).div_ceil(step) as usize };
            let to = if last <= high { most } else { ((high - first) / step) as usize };
            found.insert_range(start + from, start + to + 1);
        }
        Some(found)
    }

    /// All positions, if the numbers are kept as stretches. Ends that do not ascend are cut off.
    fn stretches(&self) -> Option<impl Iterator<Item = Stretch> + '_> {
        let Form::Steps { count, ends, .. } = &self.form else { return None };
        let ends = (0..*count).map(|place| ends.get(place) as usize).chain([self.len]);
        let mut start = 0;
        Some(ends.enumerate().filter_map(move |(place, end)| {
            let stretch = Stretch { start, end: end.clamp(start, self.len), place };
            start = stretch.end;
            (stretch.start < stretch.end).then_some(stretch)
        }))
    }

    /// The number at the start of a stretch, and the difference.
    fn line(&self, stretch: &Stretch) -> (u64, u64) {
        match &self.form {
            Form::Steps { firsts, steps, .. } => {
                (firsts.get(stretch.place), unzigzag(steps.get(stretch.place)))
            }
            Form::Packed(_) | Form::Deltas { .. } => (0, 0),
        }
    }

    fn count_up(&self, stretch: &Stretch, from: usize, to: usize, out: &mut Vec<u64>) {
        let (first, step) = self.line(stretch);
        let along = (from - stretch.start) as u64..(to - stretch.start) as u64;
        out.extend(along.map(|along| first.wrapping_add(step.wrapping_mul(along))));
    }

    fn count_up_at(&self, stretch: &Stretch, positions: &Bitmap, out: &mut Vec<u64>) {
        let mut line = None;
        for place in stretch.start / BLOCK..=(stretch.end - 1) / BLOCK {
            let start = place * BLOCK;
            let word = positions.words().get(place).copied().unwrap_or(0);
            let mut rest = word
                & u64::MAX << stretch.start.saturating_sub(start)
                & u64::MAX >> (BLOCK - (stretch.end - start).min(BLOCK));
            if rest == 0 {
                continue;
            }
            let (first, step) = *line.get_or_insert_with(|| self.line(stretch));
            let before = (start as u64).wrapping_sub(stretch.start as u64);
            let number = |bit: u64| first.wrapping_add(step.wrapping_mul(before.wrapping_add(bit)));
            if rest == u64::MAX {
                out.extend((0..BLOCK as u64).map(number));
                continue;
            }
            while rest != 0 {
                out.push(number(u64::from(rest.trailing_zeros())));
                rest &= rest - 1;
            }
        }
    }

    fn pick(&self, positions: &Bitmap, out: &mut Vec<u64>) {
        let mut items = [0; BLOCK];
        let by_item = matches!(self.form, Form::Packed(_));
        for (block, word) in positions.words().iter().enumerate() {
            let mut rest = *word;
            if by_item && rest.count_ones() <= FEW {
                while rest != 0 {
                    out.push(self.get(block * BLOCK + rest.trailing_zeros() as usize));
                    rest &= rest - 1;
                }
                continue;
            }
            self.block(block, &mut items);
            if rest == u64::MAX {
                out.extend_from_slice(&items);
                continue;
            }
            let (mut picked, mut count) = ([0; BLOCK], 0);
            while rest != 0 {
                picked[count % BLOCK] = items[rest.trailing_zeros() as usize];
                count += 1;
                rest &= rest - 1;
            }
            out.extend_from_slice(&picked[..count]);
        }
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
    use super::encode::bytes;
    use super::{Ints, position, push};

    /// How long sequences are. Miri takes a thousand times as long for each item.
    const LEN: usize = if cfg!(miri) { 20 } else { 200 };

    /// Sequences that each of the forms is good at, and those that none is.
    fn any_items() -> impl Strategy<Value = Vec<u64>> {
        let wild = prop::collection::vec(any::<u64>(), 0..LEN);
        let narrow = (any::<u64>(), prop::collection::vec(0_u64..20, 0..LEN))
            .prop_map(|(base, v)| v.iter().map(|item| base.wrapping_add(*item)).collect());
        let stretches = prop::collection::vec((any::<u64>(), 0_u64..6, 1..LEN / 5 * 2), 0..8)
            .prop_map(|v| {
                let one = |(first, step, len): (u64, u64, usize)| {
                    let step = step.wrapping_sub(2);
                    (0..len as u64).map(move |along| first.wrapping_add(step.wrapping_mul(along)))
                };
                v.into_iter().flat_map(one).collect()
            });
        let times = prop::collection::vec(0_u64..100_000, 0..2 * LEN).prop_map(|steps| {
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
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 500 },
            ..ProptestConfig::default()
        })]

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
