//! Writing runs: sorted entries become a head and blocks.

use std::cmp::Ordering;

use super::ascending;
use super::block::{self, BLOCK_BYTES, LEN_MAX};
use super::head::{Fences, NewHead};
use super::packing::Packing;
use super::{Number, block_key, head_key};
use crate::cell::{Cell, total_order};
use crate::column_key::ColumnKey;
use crate::segment::bits::{bytes_of, pack, width_of};
use engram_base::error::Result;
use engram_catalog::{Table, WriteTxn};

/// Where an entry's row is: which of some segments in the upper 16 bits, and the position.
pub(super) type Reference = u32;

/// Entries of a run, in any order.
pub(super) enum Entries<'a> {
    /// Keys of one packing.
    Keys(Packing, Vec<(u64, Reference)>),
    /// Cells.
    Cells(Vec<(Cell<'a>, Reference)>),
}

impl Entries<'_> {
    /// The same in the tightest packing that takes them all.
    pub(super) fn packed(self) -> Self {
        let Entries::Cells(cells) = self else { return self };
        let packing = Packing::pick(&cells.iter().map(|(cell, _)| cell));
        let keys = cells.iter().map(|(cell, at)| Some((packing.key(cell)?, *at))).collect();
        match keys {
            Some(keys) if packing != Packing::CELLS => Entries::Keys(packing, keys),
            _ => Entries::Cells(cells),
        }
    }

    /// How many there are.
    fn len(&self) -> usize {
        match self {
            Entries::Keys(_, keys) => keys.len(),
            Entries::Cells(cells) => cells.len(),
        }
    }

    fn references(&self) -> Box<dyn Iterator<Item = Reference> + '_> {
        match self {
            Entries::Keys(_, keys) => Box::new(keys.iter().map(|(_, at)| *at)),
            Entries::Cells(cells) => Box::new(cells.iter().map(|(_, at)| *at)),
        }
    }

    fn sort(&mut self) {
        // The input is sorted, or some sorted parts: such input the stable sort only merges.
        match self {
            Entries::Keys(_, keys) => keys.sort_by(Ord::cmp),
            Entries::Cells(cells) => {
                cells.sort_by(|a, b| total_order(&a.0, &b.0).then(a.1.cmp(&b.1)));
            }
        }
    }
}

/// Writes a run. Without entries there is none.
pub(super) fn write(
    txn: &mut WriteTxn<'_>,
    column: ColumnKey,
    run: Number,
    level: u8,
    segments: &[u32],
    entries: Entries<'_>,
) -> Result<()> {
    let mut entries = entries.packed();
    entries.sort();
    let Some((references, table)) = References::new(&entries, segments) else { return Ok(()) };
    let (fences, blocks, packing) = match &entries {
        Entries::Keys(packing, keys) => {
            let (fences, blocks) = key_blocks(keys, &references);
            (fences, blocks, *packing)
        }
        Entries::Cells(cells) => {
            let (fences, blocks) = cell_blocks(cells, &references);
            (fences, blocks, Packing::CELLS)
        }
    };
    let head = NewHead {
        packing,
        level,
        position_width: references.position_width,
        segments: &table,
        entries: entries.len() as u32,
        fences,
    };
    txn.put(Table::IndexRuns, &head_key(column, run), &head.encode())?;
    for (number, block) in (0..).zip(&blocks) {
        txn.put(Table::IndexRuns, &block_key(column, run, number), block)?;
    }
    Ok(())
}

/// How references are packed.
pub(super) struct References {
    /// Which of the run's segments each of the given ones is.
    index: Vec<u64>,
    position_width: u32,
    width: u32,
}

impl References {
    /// Makes the references of a run, and the table of its segments, which are those that have
    /// entries. `None` says that none has.
    fn new(entries: &Entries<'_>, segments: &[u32]) -> Option<(Self, Vec<(u32, u16)>)> {
        let (mut counts, mut greatest) = (vec![0_u16; segments.len()], 0);
        for at in entries.references() {
            let count = &mut counts[(at >> 16) as usize];
            *count = count.saturating_add(1);
            greatest = greatest.max(at & 0xFFFF);
        }
        let mut order: Vec<usize> = (0..segments.len()).filter(|at| counts[*at] > 0).collect();
        order.sort_unstable_by_key(|at| segments[*at]);
        let mut index = vec![0; segments.len()];
        for (place, at) in (0..).zip(&order) {
            index[*at] = place;
        }
        let table: Vec<(u32, u16)> = order.iter().map(|at| (segments[*at], counts[*at])).collect();
        let position_width = width_of(u64::from(greatest));
        let width = position_width + width_of(table.len().checked_sub(1)? as u64);
        Some((References { index, position_width, width }, table))
    }

    /// The references of a run with so many segments, which are those given.
    pub(super) fn of_table(segments: usize, position_width: u32) -> Self {
        let width = position_width + width_of(segments.saturating_sub(1) as u64);
        References { index: (0..segments as u64).collect(), position_width, width }
    }

    fn pack(&self, out: &mut Vec<u8>, references: impl Iterator<Item = Reference>) {
        let item = |at: Reference| {
            self.index[(at >> 16) as usize] << self.position_width | u64::from(at & 0xFFFF)
        };
        pack(out, self.width, references.map(item));
    }
}

pub(super) fn key_blocks(
    keys: &[(u64, Reference)],
    references: &References,
) -> (Fences, Vec<Vec<u8>>) {
    let (mut fences, mut blocks) = (Vec::new(), Vec::new());
    let (mut start, mut guess) = (0, 256);
    while start < keys.len() {
        let rest = &keys[start..];
        let fits = |len: usize| {
            let range = rest[len - 1].0 - rest[0].0;
            bytes_of(references.width, len) + ascending::size(range, len) <= BLOCK_BYTES
        };
        let len = most(guess, rest.len().min(LEN_MAX), fits);
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        references.pack(&mut block, rest[..len].iter().map(|(_, at)| *at));
        ascending::push(&mut block, rest[..len].iter().map(|(key, _)| *key));
        fences.push((rest[0].0, start as u32));
        blocks.push(block);
        (start, guess) = (start + len, len);
    }
    let last = keys.last().map_or(0, |(key, _)| *key);
    (Fences::Keys(fences, last), blocks)
}

/// Finds about the greatest number up to `max` that `fits`, as 1 does. The search begins near
/// `guess`.
fn most(guess: usize, max: usize, fits: impl Fn(usize) -> bool) -> usize {
    let guess = guess.clamp(1, max);
    let (mut low, mut high, mut step) = (1, max + 1, 1);
    if fits(guess) {
        low = guess;
        while low + step < high {
            if !fits(low + step) {
                high = low + step;
                break;
            }
            low += step;
            step *= 2;
        }
    } else {
        high = guess;
        while high > low + step {
            if fits(high - step) {
                low = high - step;
                break;
            }
            high -= step;
            step *= 2;
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if fits(middle) { &mut low } else { &mut high }) = middle;
    }
    low
}

pub(super) fn cell_blocks(
    cells: &[(Cell<'_>, Reference)],
    references: &References,
) -> (Fences, Vec<Vec<u8>>) {
    let (mut fences, mut blocks) = (Vec::new(), Vec::new());
    let mut start = 0;
    while start < cells.len() {
        let (mut values, mut text) = (Vec::new(), Vec::new());
        let mut len = 0;
        for (cell, _) in &cells[start..] {
            let filled = values.len();
            block::push(&mut values, &mut text, cell);
            if len > 0 && values.len() + bytes_of(references.width, len + 1) > BLOCK_BYTES {
                values.truncate(filled);
                break;
            }
            len += 1;
        }
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        references.pack(&mut block, cells[start..start + len].iter().map(|(_, at)| *at));
        block.extend(values);
        let before = start.checked_sub(1).map(|last| &cells[last].0);
        fences.push((fence(before, &cells[start].0), start as u32));
        blocks.push(block);
        start += len;
    }
    (Fences::Cells(fences), blocks)
}

/// The shortest cell that is not greater than `first`, but greater than the one `before`.
fn fence(before: Option<&Cell<'_>>, first: &Cell<'_>) -> Cell<'static> {
    let (Some(Cell::Text(before)), Cell::Text(text)) = (before, first) else {
        return first.clone().into_owned();
    };
    if before.cmp(text) != Ordering::Less {
        return first.clone().into_owned();
    }
    let shared = before.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
    let end = (shared + 1..text.len()).find(|end| text.is_char_boundary(*end));
    Cell::Text(text[..end.unwrap_or(text.len())].to_owned().into())
}
