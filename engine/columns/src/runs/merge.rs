//! Merging runs: some become one, in one transaction or, where they are large, in several.

use engram_catalog::Txn;
use std::collections::HashMap;

use super::ascending::NumberPosition;
use super::block::{BlockValues, each_cell};
use super::head::RunHead;
use super::packing::Packing;
use super::read::SortedRun;
use super::unfinished::{self, MergeSize};
use super::write::{self, Entries, Reference};
use super::{Number, block_key, head_key, heads, next_column, next_number};
use crate::column_key::{ColumnKey, OID};
use crate::zone::ZONE_BYTES;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_catalog::{Table, WriteTxn};

/// How many runs of a level become one of the next.
pub(super) const FAN_OUT: usize = 4;
/// The most entries that one merge makes a run of.
const ENTRIES_MAX: u64 = 1 << 20;
/// The most blocks that one merge makes a run of: 64 MiB.
const BLOCKS_MAX: usize = 1 << 14;

/// When runs are merged, and how much of a merge one transaction does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub fan_out: usize,
    pub entries: u64,
    pub part: MergeSize,
}

/// Goes on with a merge that is unfinished, or merges runs of one column, or cleans one that is
/// more than half gone; whether any was due. One of more than so many entries is done in parts.
pub fn merge_some(txn: &mut WriteTxn<'_>, part_entries: usize) -> Result<bool> {
    let part = MergeSize { entries: part_entries.max(1), ..MergeSize::USUAL };
    merge_within(txn, Limits { fan_out: FAN_OUT, entries: ENTRIES_MAX, part })
}

pub(super) fn merge_within(txn: &mut WriteTxn<'_>, limits: Limits) -> Result<bool> {
    let living = living(txn)?;
    if unfinished::go_on(txn, &living, limits.part)? {
        return Ok(true);
    }
    let mut from = Some(0);
    while let Some(least) = from
        && let Some(column) = next_column(txn, least)?
    {
        let heads = heads(txn, column)?;
        let due = due(&heads, &living, limits);
        if !due.is_empty() {
            let number = next_number(txn, column, &heads)?;
            let level = due[0].1.level.saturating_add(u8::from(due.len() > 1));
            let lives =
                |(_, head): &(Number, RunHead<'_>)| gone(head, &living) < u64::from(head.entries);
            if is_large(&due, limits.part) && !due.iter().any(lives) {
                let old = due.iter().map(|(run, head)| (*run, head.blocks() as u32)).collect();
                unfinished::remove(txn, column, old, limits.part)?;
                return Ok(true);
            }
            if is_large(&due, limits.part) {
                let row = unfinished::begin(txn, column, (number, level), &due, &living)?;
                unfinished::go_on_with(txn, &row, &living, limits.part)?;
                return Ok(true);
            }
            let (segments, entries) = Collected::of(&*txn, column, &due, &living)?;
            let old: Vec<_> = due.iter().map(|(run, head)| (*run, head.blocks() as u32)).collect();
            for (run, blocks) in old {
                txn.delete(Table::IndexRuns, &head_key(column, run))?;
                for block in 0..blocks {
                    txn.delete(Table::IndexRuns, &block_key(column, run, block))?;
                }
            }
            step!("index.runs-taken");
            write::write(txn, column, number, level, &segments, entries)?;
            step!("index.runs-merged");
            return Ok(true);
        }
        from = column.checked_add(1);
    }
    Ok(false)
}

/// Whether these runs are more than one transaction merges.
fn is_large(due: &[(Number, RunHead<'_>)], part: MergeSize) -> bool {
    let entries: usize = due.iter().map(|(_, head)| head.entries as usize).sum();
    let blocks: usize = due.iter().map(|(_, head)| head.blocks()).sum();
    entries > part.entries || blocks > part.blocks
}

/// The segments that there are, ascending.
fn living(txn: &Txn<'_>) -> Result<Vec<u32>> {
    let mut segments = Vec::new();
    let mut cursor = txn.seek(Table::IndexZones, &OID.to_be_bytes())?;
    while let Some((key, value)) = cursor.next()?
        && key.starts_with(&OID.to_be_bytes())
    {
        let (zones, _) = value.as_chunks::<ZONE_BYTES>();
        segments.extend(zones.iter().map(|z| u32::from_le_bytes([z[0], z[1], z[2], z[3]])));
    }
    segments.dedup();
    Ok(segments)
}

/// Which of a column's runs are to become one.
fn due<'t>(
    heads: &[(Number, RunHead<'t>)],
    living: &[u32],
    limits: Limits,
) -> Vec<(Number, RunHead<'t>)> {
    let mut levels: Vec<Vec<(Number, RunHead<'t>)>> = Vec::new();
    for &(run, head) in heads {
        if gone(&head, living) * 2 > u64::from(head.entries) {
            return vec![(run, head)];
        }
        let level = usize::from(head.level);
        if levels.len() <= level {
            levels.resize_with(level + 1, Vec::new);
        }
        levels[level].push((run, head));
    }
    let fits = |level: &Vec<(Number, RunHead<'t>)>| {
        let entries: u64 = level.iter().map(|(_, head)| u64::from(head.entries)).sum();
        let blocks: usize = level.iter().map(|(_, head)| head.blocks()).sum();
        level.len() == limits.fan_out && entries <= limits.entries && blocks <= BLOCKS_MAX
    };
    for level in &mut levels {
        level.truncate(limits.fan_out);
    }
    levels.into_iter().find(fits).unwrap_or_default()
}

/// How many entries are of segments that are gone. Both lists ascend.
fn gone(head: &RunHead<'_>, living: &[u32]) -> u64 {
    let mut rest = living;
    let mut gone = 0;
    for (segment, count) in head.segments() {
        let skip = rest.iter().take_while(|alive| **alive < segment).count();
        rest = &rest[skip..];
        if rest.first() != Some(&segment) {
            gone += u64::from(count);
        }
    }
    gone
}

/// The entries of runs that are merged.
struct Collected<'t> {
    /// The living segments of all, with the dead positions of each.
    segments: Vec<(u32, &'t [u8])>,
    places: HashMap<u32, u32>,
    entries: Entries<'static>,
}

impl<'t> Collected<'t> {
    /// The segments and entries of these runs.
    fn of(
        txn: &'t Txn<'t>,
        column: ColumnKey,
        due: &[(Number, RunHead<'t>)],
        living: &[u32],
    ) -> Result<(Vec<u32>, Entries<'static>)> {
        let packing = due[0].1.packing;
        let alike = packing != Packing::CELLS && due.iter().all(|(_, h)| h.packing == packing);
        let entries =
            if alike { Entries::Keys(packing, Vec::new()) } else { Entries::Cells(Vec::new()) };
        let mut all = Collected { segments: Vec::new(), places: HashMap::new(), entries };
        for (run, head) in due {
            all.take(txn, column, *run, head, living)?;
        }
        if all.segments.len() > 1 << 16 {
            fail!(Corrupt, "runs of column {column} have {} segments", all.segments.len());
        }
        Ok((all.segments.iter().map(|(segment, _)| *segment).collect(), all.entries))
    }

    fn take(
        &mut self,
        txn: &'t Txn<'t>,
        column: ColumnKey,
        number: Number,
        head: &RunHead<'t>,
        living: &[u32],
    ) -> Result<()> {
        // Where each of this run's segments is among all; `None` if it is gone.
        let mut places = Vec::with_capacity(head.segments().len());
        for (segment, _) in head.segments() {
            let alive = living.binary_search(&segment).is_ok();
            places.push(if alive { Some(self.place(txn, segment)?) } else { None });
        }
        let run = SortedRun::new(txn, column, number, *head);
        let Collected { segments, entries, .. } = self;
        let live = |reference: u64| -> Result<Option<Reference>> {
            let (index, position) = head.resolve(reference);
            let Some(place) = places.get(index) else {
                fail!(Corrupt, "an entry of a run is of segment {index} of those it has");
            };
            Ok(place.and_then(|place| {
                let byte = segments[place as usize].1.get(usize::from(position / 8));
                let dead = byte.is_some_and(|byte| byte >> (position % 8) & 1 != 0);
                (!dead).then_some(place << 16 | u32::from(position))
            }))
        };
        for number in 0..head.blocks() {
            let block = run.block(number)?;
            let whole = match block.values {
                BlockValues::Keys(keys) => {
                    keys.each(NumberPosition::default(), None, |index, key| {
                        if let Some(at) = live(block.references.get(index))? {
                            match entries {
                                Entries::Keys(_, keys) => keys.push((key, at)),
                                Entries::Cells(cells) => cells.push((head.packing.cell(key), at)),
                            }
                        }
                        Ok(())
                    })?
                }
                BlockValues::Cells(cells) => Some(each_cell(cells, block.len, |index, cell| {
                    if let (Entries::Cells(cells), Some(at)) =
                        (&mut *entries, live(block.references.get(index))?)
                    {
                        cells.push((cell.clone().into_owned(), at));
                    }
                    Ok(true)
                })?)
                .map(|_| ()),
            };
            if whole.is_none() {
                fail!(Corrupt, "block {number} of a run of column {column} has too few keys");
            }
        }
        Ok(())
    }

    /// Which of all segments this one is.
    fn place(&mut self, txn: &'t Txn<'t>, segment: u32) -> Result<u32> {
        if let Some(place) = self.places.get(&segment) {
            return Ok(*place);
        }
        let dead = txn.get(Table::IndexDead, &segment.to_be_bytes())?.unwrap_or_default();
        let place = self.segments.len() as u32;
        self.segments.push((segment, dead));
        self.places.insert(segment, place);
        Ok(place)
    }
}
