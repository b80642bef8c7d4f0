//! Many numbers of a sequence at once: all, those at the positions of a bitmap, or the positions of
//! those in a range. What counts up is counted up; the rest is unpacked a block at a time, where a
//! block is wanted at all.

use super::super::bitmap::Bitmap;
use super::{BLOCK, Form, Ints, unzigzag};

/// So few of a block are looked up one by one.
const FEW: u32 = 6;

/// A stretch of positions whose numbers have one difference throughout.
struct Stretch {
    start: usize,
    end: usize,
    place: usize,
}

impl Ints<'_> {
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
        out.reserve(positions.count());
        match self.stretches() {
            Some(stretches) => {
                stretches.for_each(|stretch| self.count_up_at(&stretch, positions, out));
            }
            None => self.pick(positions, out),
        }
    }

    /// Which numbers are in `low..=high`, if they are kept as stretches: where they go up, two
    /// divisions tell.
    pub(super) fn between_along(&self, low: u64, high: u64) -> Option<Bitmap> {
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
