//! Merges of many entries, a part in each transaction.
//!
//! A merge of a million entries takes hundreds of milliseconds, and others wait for the writer lock
//! meanwhile. So one of more than [`MergeSize::entries`] entries is made in steps. Each writes some
//! blocks of the new run, and a row of `meta` that says how far it has come: the head of the run as
//! far as it is made, and for each run that is merged how many of its entries are done. Readers
//! find runs by their heads, so they see the old runs until the last step, which writes the new
//! head and removes theirs. Then the blocks of the old runs go, some in each step.
//!
//! *Invariant*: at most one merge of a realm is unfinished. Its number, and those of runs whose
//! blocks are still to go, are given to no other run of the column (`number_after`). Dying between
//! two steps leaves the row, and who comes next goes on from there. Runs never change, so a step
//! finds the rest of each as the one before has left it; a segment that has gone meanwhile, or
//! positions that have died, are left out from then on.

use std::cmp::Ordering;

use super::ascending::NumberPosition;
use super::block::{Block, BlockValues, each_cell};
use super::head::{Fences, NewHead, RunHead};
use super::packing::{Packing, PackingKind};
use super::read::SortedRun;
use super::write::{Reference, References, cell_blocks, key_blocks};
use super::{Number, block_key, head_key};
use crate::cell::{Cell, total_order};
use crate::column_key::ColumnKey;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_catalog::{Table, Txn, WriteTxn};

/// The row of `meta` with the merge that is unfinished.
pub const UNFINISHED: &[u8] = b"unfinished_run";
/// The version of that row.
const VERSION: u8 = 1;
/// What a row is about: a merge, or blocks that are to go.
const MERGING: u8 = 0;
const CLEARING: u8 = 1;
/// Bytes of a run that is merged or cleared: its number, and how far that is.
const INPUT_BYTES: usize = 8;

/// How much one step does.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeSize {
    /// Entries that it reads; about 100 ns each.
    pub entries: usize,
    /// Blocks that it reads, of a page each.
    pub blocks: usize,
    /// Blocks that it removes, at about 1 us each.
    pub removed: u32,
}

impl MergeSize {
    /// What a thread does in some milliseconds.
    pub(super) const USUAL: MergeSize =
        MergeSize { entries: 1 << 15, blocks: 512, removed: 1 << 11 };
}

/// What the row of `meta` says.
struct UnfinishedMerge<'a> {
    what: u8,
    column: ColumnKey,
    /// The number of the new run.
    number: Number,
    /// The runs that are merged, with how many entries of each are done; or those whose blocks
    /// are to go, with how many are left.
    inputs: Vec<(Number, u32)>,
    /// The head, as far as it is made.
    head: &'a [u8],
}

impl<'a> UnfinishedMerge<'a> {
    fn read(txn: &'a Txn<'_>) -> Result<Option<Self>> {
        let Some(row) = txn.get(Table::Meta, UNFINISHED)? else { return Ok(None) };
        match Self::parse(row) {
            Some(unfinished) => Ok(Some(unfinished)),
            None => fail!(Corrupt, "the unfinished merge in `meta` cannot be read"),
        }
    }

    fn parse(row: &'a [u8]) -> Option<Self> {
        let (&[version, what, inputs, _], rest) = row.split_first_chunk()?;
        let (column, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (inputs, head) = rest.split_at_checked(usize::from(inputs) * INPUT_BYTES)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        let (inputs, _) = inputs.as_chunks::<INPUT_BYTES>();
        let inputs = inputs.iter().map(|input| (word(&input[..4]), word(&input[4..]))).collect();
        let (column, number) = (u32::from_le_bytes(*column), u32::from_le_bytes(*number));
        let known = version == VERSION && matches!(what, MERGING | CLEARING);
        known.then_some(UnfinishedMerge { what, column, number, inputs, head })
    }

    fn encode(&self) -> Vec<u8> {
        let mut row = vec![VERSION, self.what, self.inputs.len() as u8, 0];
        row.extend(self.column.to_le_bytes());
        row.extend(self.number.to_le_bytes());
        for (number, at) in &self.inputs {
            row.extend(number.to_le_bytes());
            row.extend(at.to_le_bytes());
        }
        row.extend_from_slice(self.head);
        row
    }
}

/// The greatest number that is not to be given to a new run of a column, or 0.
pub(super) fn number_in_use(txn: &Txn<'_>, column: ColumnKey) -> Result<Number> {
    let Some(unfinished) = UnfinishedMerge::read(txn)?.filter(|u| u.column == column) else {
        return Ok(0);
    };
    let inputs = unfinished.inputs.iter().map(|(number, _)| *number);
    Ok(inputs.max().unwrap_or(0).max(unfinished.number))
}

/// What the row of `meta` says before the first step, which is to merge runs into one of this
/// number and level.
pub(super) fn begin(
    txn: &Txn<'_>,
    column: ColumnKey,
    new: (Number, u8),
    due: &[(Number, RunHead<'_>)],
    living: &[u32],
) -> Result<Vec<u8>> {
    let (number, level) = new;
    let mut segments: Vec<(u32, u16)> = Vec::new();
    for (_, head) in due {
        let alive = head.segments().filter(|(segment, _)| living.binary_search(segment).is_ok());
        segments.extend(alive.map(|(segment, _)| (segment, 0)));
    }
    segments.sort_unstable();
    segments.dedup();
    if segments.is_empty() || segments.len() > 1 << 16 {
        fail!(Corrupt, "runs of column {column} have {} segments", segments.len());
    }
    let packing = common(txn, column, due)?;
    let fences = match packing.kind {
        PackingKind::Cells => Fences::Cells(Vec::new()),
        _ => Fences::Keys(Vec::new(), 0),
    };
    let position_width = due.iter().map(|(_, head)| head.position_width()).max().unwrap_or(0);
    let head = NewHead { packing, level, position_width, segments: &segments, entries: 0, fences };
    let inputs = due.iter().map(|(number, _)| (*number, 0)).collect();
    let head = head.encode();
    Ok(UnfinishedMerge { what: MERGING, column, number, inputs, head: &head }.encode())
}

/// A packing for the entries of all these runs.
fn common(txn: &Txn<'_>, column: ColumnKey, due: &[(Number, RunHead<'_>)]) -> Result<Packing> {
    use PackingKind::{Decimal, Float, Int, Single, Time};
    let packings = || due.iter().map(|(_, head)| head.packing);
    let first = due[0].1.packing;
    if packings().all(|packing| packing == first) {
        return Ok(first);
    }
    let exponents = || packings().map(|packing| packing.exponent);
    let same_kind = packings().all(|packing| packing.kind == first.kind);
    Ok(match first.kind {
        Int | Time if same_kind => {
            Packing { kind: first.kind, exponent: exponents().min().unwrap_or(0) }
        }
        Decimal | Single | Float
            if packings().all(|packing| matches!(packing.kind, Decimal | Single | Float)) =>
        {
            let digits = Packing { kind: Decimal, exponent: exponents().max().unwrap_or(0) };
            let all = same_kind && takes_all(txn, column, due, digits)?;
            if all { digits } else { Packing { kind: Float, exponent: 0 } }
        }
        _ => Packing::CELLS,
    })
}

/// Whether a packing takes the entries of all these runs.
fn takes_all(
    txn: &Txn<'_>,
    column: ColumnKey,
    due: &[(Number, RunHead<'_>)],
    packing: Packing,
) -> Result<bool> {
    let mut all = true;
    for (number, head) in due.iter().filter(|(_, head)| head.packing != packing) {
        let run = SortedRun::new(txn, column, *number, *head);
        for block in 0..head.blocks() {
            each_cell_of(head, &run.block(block)?, |_, cell| {
                all &= packing.key(cell).is_some();
                Ok(())
            })?;
            if !all {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Calls `each` with the cells of a block.
fn each_cell_of(
    head: &RunHead<'_>,
    block: &Block<'_>,
    mut each: impl FnMut(usize, &Cell<'_>) -> Result<()>,
) -> Result<()> {
    let whole = match block.values {
        BlockValues::Keys(keys) => keys
            .each(NumberPosition::default(), None, |index, key| {
                each(index, &head.packing.cell(key))
            })?
            .is_some(),
        BlockValues::Cells(cells) => {
            each_cell(cells, block.len, |index, cell| each(index, cell).map(|()| true))?
        }
    };
    if !whole {
        fail!(Corrupt, "a block of `index_runs` has too few keys");
    }
    Ok(())
}

/// Does a part of what is unfinished; whether there was anything.
pub(super) fn go_on(txn: &mut WriteTxn<'_>, living: &[u32], part: MergeSize) -> Result<bool> {
    let Some(row) = txn.get(Table::Meta, UNFINISHED)?.map(<[u8]>::to_vec) else {
        return Ok(false);
    };
    go_on_with(txn, &row, living, part)?;
    Ok(true)
}

/// Does the next part of what a row says.
pub(super) fn go_on_with(
    txn: &mut WriteTxn<'_>,
    row: &[u8],
    living: &[u32],
    part: MergeSize,
) -> Result<()> {
    let Some(mut unfinished) = UnfinishedMerge::parse(row) else {
        fail!(Corrupt, "the unfinished merge in `meta` cannot be read");
    };
    if unfinished.what == CLEARING {
        return clear(txn, unfinished, part);
    }
    let head = RunHead::parse_part(unfinished.head)?;
    if !is_as_it_was(txn, &unfinished)? {
        return give_up(txn, &unfinished, head.blocks() as u32);
    }
    let made = match head.packing.kind {
        PackingKind::Cells => merge_part::<Cell<'static>>(txn, &mut unfinished, living, part)?,
        _ => merge_part::<u64>(txn, &mut unfinished, living, part)?,
    };
    if !made.whole {
        let row = UnfinishedMerge { head: &made.head, ..unfinished }.encode();
        txn.put(Table::Meta, UNFINISHED, &row)?;
        step!("index.runs-part");
        return Ok(());
    }
    let mut cleared = Vec::new();
    for (number, _) in &unfinished.inputs {
        let key = head_key(unfinished.column, *number);
        let Some(head) = txn.get(Table::IndexRuns, &key)? else { continue };
        cleared.push((*number, RunHead::parse(head)?.blocks() as u32));
        txn.delete(Table::IndexRuns, &key)?;
    }
    step!("index.runs-headless");
    if RunHead::parse_part(&made.head)?.blocks() > 0 {
        let key = head_key(unfinished.column, unfinished.number);
        txn.put(Table::IndexRuns, &key, &made.head)?;
    }
    let left = UnfinishedMerge { what: CLEARING, inputs: cleared, head: &[], ..unfinished };
    txn.put(Table::Meta, UNFINISHED, &left.encode())?;
    step!("index.runs-joined");
    Ok(())
}

/// Whether the runs that are merged are there, and the new one is not.
fn is_as_it_was(txn: &Txn<'_>, unfinished: &UnfinishedMerge<'_>) -> Result<bool> {
    let is =
        |number| Ok(txn.get(Table::IndexRuns, &head_key(unfinished.column, number))?.is_some());
    for (number, _) in &unfinished.inputs {
        if !is(*number)? {
            return Ok(false);
        }
    }
    Ok(!is(unfinished.number)?)
}

/// Gives up a merge, of which so many blocks are written: an engine that knows nothing of it has
/// merged the same runs, and perhaps given the number away. Blocks that are no other run's go.
fn give_up(txn: &mut WriteTxn<'_>, unfinished: &UnfinishedMerge<'_>, blocks: u32) -> Result<()> {
    let UnfinishedMerge { column, number, .. } = *unfinished;
    let taken = match txn.get(Table::IndexRuns, &head_key(column, number))? {
        Some(head) => RunHead::parse(head)?.blocks() as u32,
        None => 0,
    };
    for block in taken..blocks {
        txn.delete(Table::IndexRuns, &block_key(column, number, block))?;
    }
    txn.delete(Table::Meta, UNFINISHED)?;
    step!("index.runs-given-up");
    Ok(())
}

/// Removes runs of which nothing lives, with so many blocks each: their heads now, and the blocks
/// in steps.
pub(super) fn remove(
    txn: &mut WriteTxn<'_>,
    column: ColumnKey,
    runs: Vec<(Number, u32)>,
    part: MergeSize,
) -> Result<()> {
    for (number, _) in &runs {
        txn.delete(Table::IndexRuns, &head_key(column, *number))?;
    }
    step!("index.runs-gone");
    let number = runs.iter().map(|(number, _)| *number).max().unwrap_or(0);
    clear(txn, UnfinishedMerge { what: CLEARING, column, number, inputs: runs, head: &[] }, part)
}

/// Removes some of the blocks that are to go.
fn clear(
    txn: &mut WriteTxn<'_>,
    mut unfinished: UnfinishedMerge<'_>,
    part: MergeSize,
) -> Result<()> {
    let mut left = part.removed;
    while left > 0
        && let Some((number, blocks)) = unfinished.inputs.last_mut()
    {
        let some = left.min(*blocks);
        // A run with a head is there again: whoever made the runs anew has given out its number.
        if txn.get(Table::IndexRuns, &head_key(unfinished.column, *number))?.is_some() {
            unfinished.inputs.pop();
            continue;
        }
        for block in *blocks - some..*blocks {
            txn.delete(Table::IndexRuns, &block_key(unfinished.column, *number, block))?;
        }
        (*blocks, left) = (*blocks - some, left - some);
        if *blocks == 0 {
            unfinished.inputs.pop();
        }
    }
    if unfinished.inputs.is_empty() {
        txn.delete(Table::Meta, UNFINISHED)?;
    } else {
        txn.put(Table::Meta, UNFINISHED, &unfinished.encode())?;
    }
    step!("index.runs-cleared");
    Ok(())
}

/// What entries of a run are kept as.
trait MergeKey: Clone {
    fn of(packing: Packing, head: &RunHead<'_>, cell: &Cell<'_>, key: Option<u64>) -> Option<Self>;
    fn order(&self, other: &Self) -> Ordering;
    fn blocks(entries: &[(Self, Reference)], references: &References) -> (Fences, Vec<Vec<u8>>);
    /// Says that this is the last entry.
    fn end(fences: &mut Fences, last: &Self);
}

impl MergeKey for u64 {
    fn of(packing: Packing, head: &RunHead<'_>, cell: &Cell<'_>, key: Option<u64>) -> Option<u64> {
        if head.packing == packing { key } else { packing.key(cell) }
    }

    fn order(&self, other: &u64) -> Ordering {
        self.cmp(other)
    }

    fn blocks(entries: &[(u64, Reference)], references: &References) -> (Fences, Vec<Vec<u8>>) {
        key_blocks(entries, references)
    }

    fn end(fences: &mut Fences, last: &u64) {
        if let Fences::Keys(_, end) = fences {
            *end = *last;
        }
    }
}

impl MergeKey for Cell<'static> {
    fn of(_: Packing, _: &RunHead<'_>, cell: &Cell<'_>, _: Option<u64>) -> Option<Self> {
        Some(cell.clone().into_owned())
    }

    fn order(&self, other: &Self) -> Ordering {
        total_order(self, other)
    }

    fn blocks(entries: &[(Self, Reference)], references: &References) -> (Fences, Vec<Vec<u8>>) {
        cell_blocks(entries, references)
    }

    fn end(_: &mut Fences, _: &Self) {}
}

/// A run that is merged, from some entry on.
struct MergedRun<'t, K> {
    run: SortedRun<'t>,
    head: RunHead<'t>,
    /// Where each of its segments is in the new run's table, with the dead positions; `None` if it
    /// is gone.
    places: Vec<Option<(u32, &'t [u8])>>,
    block: usize,
    /// Entries of the last block that was read, from the last on, each with its rank in the run.
    read: Vec<(K, Reference, u32)>,
    /// The rank of the first entry that is not done.
    next: u32,
}

impl<'t, K: MergeKey> MergedRun<'t, K> {
    fn new(
        txn: &'t Txn<'t>,
        column: ColumnKey,
        input: (Number, u32),
        segments: &[(u32, u16)],
        living: &[u32],
    ) -> Result<Self> {
        let (number, next) = input;
        let Some(head) = txn.get(Table::IndexRuns, &head_key(column, number))? else {
            fail!(Corrupt, "run {number} of column {column} is gone: run verify, then reindex");
        };
        let head = RunHead::parse(head)?;
        let mut places = Vec::with_capacity(head.segments().len());
        for (segment, _) in head.segments() {
            let place = segments.binary_search_by_key(&segment, |(known, _)| *known);
            places.push(match (place, living.binary_search(&segment)) {
                (Ok(place), Ok(_)) => {
                    let dead = txn.get(Table::IndexDead, &segment.to_be_bytes())?;
                    Some((place as u32, dead.unwrap_or_default()))
                }
                _ => None,
            });
        }
        let mut block = 0;
        while block < head.blocks() && head.before(block + 1) <= next {
            block += 1;
        }
        let run = SortedRun::new(txn, column, number, head);
        Ok(MergedRun { run, head, places, block, read: Vec::new(), next })
    }

    /// Whether all of it was read, and passed.
    fn is_done(&self) -> bool {
        self.read.is_empty() && self.block == self.head.blocks()
    }

    /// Reads blocks, so many at most, until there is an entry that lives; how many.
    fn fill(&mut self, packing: Packing, most: usize) -> Result<usize> {
        let mut blocks = 0;
        while self.read.is_empty() && self.block < self.head.blocks() && blocks < most {
            let block = self.run.block(self.block)?;
            let (first, next) = (self.head.before(self.block), self.next);
            let MergedRun { head, places, read, .. } = self;
            let mut take = |index: usize, cell: &Cell<'_>, key: Option<u64>| -> Result<()> {
                let rank = first + index as u32;
                let (segment, position) = head.resolve(block.references.get(index));
                let Some(place) = places.get(segment) else {
                    fail!(Corrupt, "an entry of a run is of segment {segment} of those it has");
                };
                let Some((place, dead)) = place.filter(|_| rank >= next) else { return Ok(()) };
                let byte = dead.get(usize::from(position / 8));
                if byte.is_some_and(|byte| byte >> (position % 8) & 1 != 0) {
                    return Ok(());
                }
                let Some(kept) = K::of(packing, head, cell, key) else {
                    fail!(Corrupt, "an entry of a run is not as its head says");
                };
                read.push((kept, place << 16 | u32::from(position), rank));
                Ok(())
            };
            match block.values {
                BlockValues::Keys(keys) => {
                    let is_same = head.packing == packing;
                    let cell = |key| if is_same { Cell::Other } else { head.packing.cell(key) };
                    let each = |index, key| take(index, &cell(key), Some(key));
                    if keys.each(NumberPosition::default(), None, each)?.is_none() {
                        fail!(Corrupt, "a block of a run has too few keys");
                    }
                }
                BlockValues::Cells(_) => {
                    each_cell_of(head, &block, |index, cell| take(index, cell, None))?;
                }
            }
            read.reverse();
            (self.block, blocks) = (self.block + 1, blocks + 1);
            if self.read.is_empty() {
                self.next = self.head.before(self.block);
            }
        }
        Ok(blocks)
    }

    /// Passes the first entry.
    fn pass(&mut self) -> Option<(K, Reference, u32)> {
        let entry = self.read.pop()?;
        self.next = match self.read.last() {
            Some((.., rank)) => *rank,
            None => self.head.before(self.block),
        };
        Some(entry)
    }
}

/// A part that was made.
struct MergedPart {
    /// The head of the new run so far.
    head: Vec<u8>,
    /// Whether that is all of it.
    whole: bool,
}

/// Writes the next blocks of the new run, and says in `unfinished` how far its inputs are done.
fn merge_part<K: MergeKey>(
    txn: &mut WriteTxn<'_>,
    unfinished: &mut UnfinishedMerge<'_>,
    living: &[u32],
    part: MergeSize,
) -> Result<MergedPart> {
    let column = unfinished.column;
    let head = RunHead::parse_part(unfinished.head)?;
    let mut segments: Vec<(u32, u16)> = head.segments().collect();
    let (mut entries, whole) = {
        let inputs = unfinished.inputs.iter();
        let inputs = inputs.map(|input| MergedRun::new(txn, column, *input, &segments, living));
        let mut inputs: Vec<MergedRun<'_, K>> = inputs.collect::<Result<_>>()?;
        let merged = merge(&mut inputs, head.packing, part)?;
        for ((_, next), input) in unfinished.inputs.iter_mut().zip(&inputs) {
            *next = input.next;
        }
        merged
    };
    let references = References::of_table(segments.len(), head.position_width());
    let pairs: Vec<(K, Reference)> = entries.iter().map(|(k, at, ..)| (k.clone(), *at)).collect();
    let (mut fences, mut blocks) = K::blocks(&pairs, &references);
    if !whole && blocks.len() > 1 {
        // The last block has room: its entries begin the next part.
        blocks.pop();
        let start = fences.pop() as usize;
        for (_, _, input, rank) in entries.drain(start..) {
            let next = &mut unfinished.inputs[input].1;
            *next = rank.min(*next);
        }
        K::end(&mut fences, &pairs[start - 1].0);
    }
    for (_, at, ..) in &entries {
        let count = &mut segments[(at >> 16) as usize].1;
        *count = count.saturating_add(1);
    }
    for (number, block) in (head.blocks() as u32..).zip(&blocks) {
        txn.put(Table::IndexRuns, &block_key(column, unfinished.number, number), block)?;
    }
    let fences = head.fences()?.followed_by(fences, head.entries);
    let made = NewHead {
        packing: head.packing,
        level: head.level,
        position_width: head.position_width(),
        segments: &segments,
        entries: head.entries + entries.len() as u32,
        fences,
    };
    Ok(MergedPart { head: made.encode(), whole })
}

/// An entry, with the input that it is of and its rank there.
type MergedEntry<K> = (K, Reference, usize, u32);

/// The next entries of all inputs in order, and whether there are no more.
fn merge<K: MergeKey>(
    inputs: &mut [MergedRun<'_, K>],
    packing: Packing,
    part: MergeSize,
) -> Result<(Vec<MergedEntry<K>>, bool)> {
    let (mut merged, mut blocks) = (Vec::new(), 0);
    while merged.len() < part.entries && blocks < part.blocks {
        let mut least: Option<usize> = None;
        for at in 0..inputs.len() {
            blocks += inputs[at].fill(packing, part.blocks)?;
            if inputs[at].read.is_empty() && !inputs[at].is_done() {
                // So many blocks have nothing that lives: the next part goes on behind them.
                return Ok((merged, false));
            }
            let front = |at: usize| inputs[at].read.last().map(|(key, ..)| key);
            let less = match (front(at), least.and_then(front)) {
                (Some(key), Some(other)) => key.order(other).is_lt(),
                (Some(_), None) => true,
                (None, _) => false,
            };
            if less {
                least = Some(at);
            }
        }
        let Some(at) = least else { return Ok((merged, true)) };
        if let Some((key, reference, rank)) = inputs[at].pass() {
            merged.push((key, reference, at, rank));
        }
    }
    Ok((merged, false))
}
