//! Writing a sequence: each form's length is worked out, and the shortest is written.

use super::super::bits::{bytes_of, pack, width_of};
use super::{BLOCK, DELTAS, PACKED, SIGN, STEPS, unzigzag};

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

/// Stretches with one difference throughout.
#[derive(Default)]
struct Stretches {
    ends: Vec<u64>,
    firsts: Vec<u64>,
    steps: Vec<u64>,
}

impl Stretches {
    /// Finds the stretches of these numbers. `None` says that there are more than `most`.
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

/// Appends zeros, however many.
pub(crate) fn push_zeros(out: &mut Vec<u8>) {
    out.push(PACKED);
    push_packed(out, &[]);
}

/// Bytes that [`push`] takes for them.
#[cfg(test)]
pub(super) fn bytes(items: &[u64]) -> usize {
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
