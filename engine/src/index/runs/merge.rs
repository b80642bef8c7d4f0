//! Merging runs: some become one, in one transaction.

use std::collections::HashMap;

use super::ascending::Place;
use super::block::{Values, each_cell};
use super::head::Head;
use super::packing::Packing;
use super::read::Run;
use super::write::{self, Entries, Reference};
use super::{Number, next_head, part_key};
use crate::catalog::{Table, WriteTxn};
use crate::error::Result;
use crate::fail;
use crate::index::column_key::{ColumnKey, OID};
use crate::index::look::Look;
use crate::index::zone::ZONE_BYTES;

/// How many runs of a level become one of the next.
pub(super) const FAN_OUT: usize = 4;
/// The most entries that one transaction merges.
const ENTRIES_MAX: u64 = 1 << 20;
/// The most blocks that one transaction merges: 64 MiB.
const BLOCKS_MAX: usize = 1 << 14;

/// When runs are merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub fan_out: usize,
    pub entries: u64,
}

/// A run, as a merge sees it.
struct Due {
    run: Number,
    level: u8,
    entries: u64,
    blocks: usize,
}

/// Merges runs of one column, or cleans one that is more than half gone; whether any was due.
pub(crate) fn merge_some(txn: &mut WriteTxn<'_>) -> Result<bool> {
    merge_within(txn, Limits { fan_out: FAN_OUT, entries: ENTRIES_MAX })
}

pub(super) fn merge_within(txn: &mut WriteTxn<'_>, limits: Limits) -> Result<bool> {
    let living = living(txn)?;
    let mut from = Some(0);
    while let Some(least) = from {
        let Some((column, _, _)) = next_head(txn, least, 0)? else { break };
        let (due, greatest) = due(txn, column, &living, limits)?;
        if !due.is_empty() {
            merge(txn, column, &due, greatest, &living)?;
            return Ok(true);
        }
        from = column.checked_add(1);
    }
    Ok(false)
}

/// The segments that there are, ascending.
fn living(look: &impl Look) -> Result<Vec<u32>> {
    let mut segments = Vec::new();
    let mut cursor = look.rows(Table::IndexZones, &OID.to_be_bytes())?;
    while let Some((key, value)) = cursor.next()?
        && key.starts_with(&OID.to_be_bytes())
    {
        let (zones, _) = value.as_chunks::<ZONE_BYTES>();
        segments.extend(zones.iter().map(|z| u32::from_le_bytes([z[0], z[1], z[2], z[3]])));
    }
    segments.dedup();
    Ok(segments)
}

/// Which runs of a column are to become one, and the greatest number of all.
fn due(
    look: &impl Look,
    column: ColumnKey,
    living: &[u32],
    limits: Limits,
) -> Result<(Vec<Due>, Number)> {
    let (mut levels, mut greatest): (Vec<Vec<Due>>, _) = (Vec::new(), 0);
    let mut from = Some(0);
    while let Some(least) = from
        && let Some((of, run, head)) = next_head(look, column, least)?
        && of == column
    {
        let head = Head::parse(head)?;
        greatest = run;
        from = run.checked_add(1);
        let entries = u64::from(head.entries);
        let due = Due { run, level: head.level, entries, blocks: head.blocks() };
        if gone(&head, living) * 2 > entries {
            levels = vec![vec![due]];
            // Its number is not taken again, whether or not it is the last.
            return Ok((levels.swap_remove(0), last_number(look, column, greatest)?));
        }
        let level = usize::from(head.level);
        if levels.len() <= level {
            levels.resize_with(level + 1, Vec::new);
        }
        levels[level].push(due);
    }
    for mut level in levels {
        level.truncate(limits.fan_out);
        let entries: u64 = level.iter().map(|due| due.entries).sum();
        let blocks: usize = level.iter().map(|due| due.blocks).sum();
        if level.len() == limits.fan_out && entries <= limits.entries && blocks <= BLOCKS_MAX {
            return Ok((level, greatest));
        }
    }
    Ok((Vec::new(), greatest))
}

fn last_number(look: &impl Look, column: ColumnKey, from: Number) -> Result<Number> {
    let mut greatest = from;
    while let Some(next) = greatest.checked_add(1)
        && let Some((of, run, _)) = next_head(look, column, next)?
        && of == column
    {
        greatest = run;
    }
    Ok(greatest)
}

/// How many entries are of segments that are gone. Both lists ascend.
fn gone(head: &Head<'_>, living: &[u32]) -> u64 {
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

/// Makes these runs one.
fn merge(
    txn: &mut WriteTxn<'_>,
    column: ColumnKey,
    due: &[Due],
    greatest: Number,
    living: &[u32],
) -> Result<()> {
    let Some(number) = greatest.checked_add(1) else {
        fail!(Corrupt, "column {column} of `index_runs` has no number left");
    };
    let (segments, entries) = Collected::new(&*txn, column, due, living)?;
    for due in due {
        for part in 0..=due.blocks as u32 {
            txn.delete(Table::IndexRuns, &part_key(column, due.run, part))?;
        }
    }
    let level = due[0].level + u8::from(due.len() > 1);
    write::write(txn, column, number, level, &segments, entries)
}

/// The entries of runs that are merged.
struct Collected<'t> {
    /// The living segments of all, with the dead positions of each.
    segments: Vec<(u32, &'t [u8])>,
    places: HashMap<u32, u32>,
    entries: Entries<'static>,
}

impl<'t> Collected<'t> {
    fn new<L: Look>(
        look: &'t L,
        column: ColumnKey,
        due: &[Due],
        living: &[u32],
    ) -> Result<(Vec<u32>, Entries<'static>)> {
        let mut runs = Vec::new();
        for due in due {
            match look.row(Table::IndexRuns, &part_key(column, due.run, 0))? {
                Some(head) => runs.push((due.run, Head::parse(head)?)),
                None => fail!(Corrupt, "run {} of column {column} has no head", due.run),
            }
        }
        let packing = runs[0].1.packing;
        let alike = packing != Packing::CELLS && runs.iter().all(|(_, h)| h.packing == packing);
        let entries =
            if alike { Entries::Keys(packing, Vec::new()) } else { Entries::Cells(Vec::new()) };
        let mut all = Collected { segments: Vec::new(), places: HashMap::new(), entries };
        for (run, head) in runs {
            all.take(look, column, run, &head, living)?;
        }
        if all.segments.len() > 1 << 16 {
            fail!(Corrupt, "runs of column {column} have {} segments", all.segments.len());
        }
        Ok((all.segments.iter().map(|(segment, _)| *segment).collect(), all.entries))
    }

    fn take<L: Look>(
        &mut self,
        look: &'t L,
        column: ColumnKey,
        number: Number,
        head: &Head<'t>,
        living: &[u32],
    ) -> Result<()> {
        // Where each of this run's segments is among all; `None` if it is gone.
        let mut places = Vec::with_capacity(head.segments().len());
        for (segment, _) in head.segments() {
            let alive = living.binary_search(&segment).is_ok();
            places.push(if alive { Some(self.place(look, segment)?) } else { None });
        }
        let run = Run::new(look, column, number, *head);
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
                Values::Keys(keys) => keys.each(Place::default(), None, |index, key| {
                    if let Some(at) = live(block.references.get(index))? {
                        match entries {
                            Entries::Keys(_, keys) => keys.push((key, at)),
                            Entries::Cells(cells) => cells.push((head.packing.cell(key), at)),
                        }
                    }
                    Ok(())
                })?,
                Values::Cells(cells) => Some(each_cell(cells, block.len, |index, cell| {
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
    fn place<L: Look>(&mut self, look: &'t L, segment: u32) -> Result<u32> {
        if let Some(place) = self.places.get(&segment) {
            return Ok(*place);
        }
        let dead = look.row(Table::IndexDead, &segment.to_be_bytes())?.unwrap_or_default();
        let place = self.segments.len() as u32;
        self.segments.push((segment, dead));
        self.places.insert(segment, place);
        Ok(place)
    }
}
