//! The tail: objects of mode `sync` that are in no segment yet.
//!
//! A new object has the greatest id of its block, as a rule ([`ID_BLOCK`] ids, of which one process
//! has most). So a new object seldom needs a row: one row of `index_tail_ranges` for each block
//! says *from* which id on all objects of mode `sync` in the block are in the tail. Any others that
//! are in it have a row of their own in `index_tail`: those that have changed after they were
//! sealed, and those whose ids came late.
//!
//! *Invariant*: an object of mode `sync` whose id a range covers is not sealed, and has no row of
//! its own. A range begins at an object that is being made, and only while there is no greater id
//! in the block; so whatever it covers has come since. Sealing takes whole ranges, or moves where
//! one begins.
//!
//! Nothing of this is remembered between transactions. So it holds for any order in which threads,
//! processes and moves between realms bring objects in; another order only makes more rows.

use crate::seal::COLUMNS_BUILTIN;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{ID_BLOCK, Oid, id_key, id_of_key};
use engram_catalog::{Table, Txn, WriteTxn};
use engram_columns::segment::COLUMNS_MAX;
use engram_records::attrs;
use engram_records::index_mode::IndexMode;
use engram_records::object::Record;

/// A block whose objects are in the tail from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailRange {
    block: Oid,
    from: Oid,
}

impl TailRange {
    fn parse(key: &[u8], row: &[u8]) -> Result<Self> {
        let (block, Ok(from)) = (id_of_key(key)?, row.try_into().map(u64::from_le_bytes)) else {
            fail!(Corrupt, "a row of `index_tail_ranges` has {} bytes instead of 8", row.len());
        };
        if block_of(block) != block || block_of(from) != block {
            fail!(Corrupt, "a row of `index_tail_ranges` has {from:#x} in the block of {block:#x}");
        }
        Ok(TailRange { block, from })
    }

    fn last(self) -> Oid {
        self.block + (ID_BLOCK - 1)
    }

    fn covers(self, oid: Oid) -> bool {
        (self.from..=self.last()).contains(&oid)
    }
}

/// The first id of the block that an id is of.
fn block_of(oid: Oid) -> Oid {
    oid - oid % ID_BLOCK
}

/// The range of an id's block, if there is one.
fn range_of(txn: &Txn<'_>, oid: Oid) -> Result<Option<TailRange>> {
    let key = id_key(block_of(oid));
    txn.get(Table::IndexTailRanges, &key)?.map(|row| TailRange::parse(&key, row)).transpose()
}

/// Whether an object of mode `sync` is in the tail.
pub(crate) fn has(txn: &Txn<'_>, oid: Oid) -> Result<bool> {
    let covered = range_of(txn, oid)?.is_some_and(|range| range.covers(oid));
    Ok(covered || txn.get(Table::IndexTail, &id_key(oid))?.is_some())
}

/// What one transaction knows of the range that its new objects fall into.
#[derive(Debug, Default)]
pub struct NewInTail {
    range: Option<TailRange>,
    newest: Oid,
    count: u64,
}

impl NewInTail {
    /// Begins with a range that is known to be as it is now.
    pub fn knowing(range: Option<TailRange>) -> Self {
        NewInTail { range, ..NewInTail::default() }
    }

    /// The range, as the transaction leaves it.
    pub fn range(&self) -> Option<TailRange> {
        self.range
    }

    /// Takes down a new object of mode `sync`.
    pub(crate) fn add(&mut self, txn: &mut WriteTxn<'_>, oid: Oid) -> Result<()> {
        self.count += 1;
        if self.range.is_none_or(|range| range.block != block_of(oid)) {
            self.range = range_of(txn, oid)?;
            self.newest = 0;
        }
        debug_assert!(range_of(txn, oid)? == self.range, "the range is not what was remembered");
        if self.range.is_some_and(|range| range.covers(oid)) {
            self.newest = self.newest.max(oid);
            return Ok(());
        }
        let block = block_of(oid);
        if self.range.is_some() || any_after(txn, oid)? {
            return add(txn, oid);
        }
        txn.put(Table::IndexTailRanges, &id_key(block), &oid.to_le_bytes())?;
        (self.range, self.newest) = (Some(TailRange { block, from: oid }), oid);
        Ok(())
    }

    /// How many objects were taken down.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many ids its range has up to the newest object; 0 where there is no range.
    pub fn span(&self) -> u64 {
        self.range.map_or(0, |range| (self.newest + 1).saturating_sub(range.from))
    }
}

/// Whether the block of an object has one with a greater id.
fn any_after(txn: &Txn<'_>, oid: Oid) -> Result<bool> {
    let after = txn.seek(Table::Objects, &id_key(oid + 1))?.next()?;
    match after {
        Some((key, _)) => Ok(block_of(id_of_key(key)?) == block_of(oid)),
        None => Ok(false),
    }
}

/// Puts an object into the tail by a row of its own; no range covers it, or it is not of mode
/// `sync`.
pub(crate) fn add(txn: &mut WriteTxn<'_>, oid: Oid) -> Result<()> {
    txn.put(Table::IndexTail, &id_key(oid), &[])
}

/// Takes an object of a mode out of the tail, or finds that it goes with its record; whether it was
/// there.
pub(crate) fn remove(txn: &mut WriteTxn<'_>, oid: Oid, mode: IndexMode) -> Result<bool> {
    let of_ranges = mode == IndexMode::Sync && !txn.is_empty(Table::IndexTailRanges)?;
    if of_ranges && range_of(txn, oid)?.is_some_and(|range| range.covers(oid)) {
        return Ok(true);
    }
    if txn.is_empty(Table::IndexTail)? {
        return Ok(false);
    }
    txn.delete(Table::IndexTail, &id_key(oid))
}

fn ranges(txn: &Txn<'_>) -> Result<Vec<TailRange>> {
    let mut ranges = Vec::new();
    let mut cursor = txn.seek(Table::IndexTailRanges, &[])?;
    while let Some((key, row)) = cursor.next()? {
        ranges.push(TailRange::parse(key, row)?);
    }
    Ok(ranges)
}

/// How much one step may take: objects, and about so many bytes of their records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRoom {
    rows: usize,
    bytes: usize,
}

impl StepRoom {
    /// Room for all.
    pub(crate) const ENDLESS: StepRoom = StepRoom { rows: usize::MAX, bytes: usize::MAX };

    /// Room for so much.
    pub(crate) fn new(rows: usize, bytes: usize) -> Self {
        StepRoom { rows, bytes }
    }

    /// Whether there is none left.
    pub(crate) fn is_full(self) -> bool {
        self.rows == 0 || self.bytes == 0
    }

    /// Takes room for an object with a record of so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The objects that a range covers, while there is room; whether these are all.
fn covered(
    txn: &Txn<'_>,
    range: TailRange,
    room: &mut StepRoom,
    to: &mut Vec<Oid>,
) -> Result<bool> {
    let mut cursor = txn.seek(Table::Objects, &id_key(range.from))?;
    while let Some((key, row)) = cursor.next()? {
        let oid = id_of_key(key)?;
        if oid > range.last() {
            break;
        }
        if Record::index_of(row)? == IndexMode::Sync {
            if room.is_full() {
                return Ok(false);
            }
            room.take(row.len());
            to.push(oid);
        }
    }
    Ok(true)
}

/// Reads a row of ranges.
#[cfg(feature = "faults")]
pub fn decode(key: &[u8], row: &[u8]) -> Result<()> {
    TailRange::parse(key, row).map(drop)
}

/// Every object in the tail, ascending.
pub fn all(txn: &Txn<'_>) -> Result<Vec<Oid>> {
    TailRows::read(txn)?.objects(txn)
}

/// The rows of one snapshot's tail. Those of two snapshots, and which objects were put or removed
/// between them, tell how their tails differ, without a look at the objects.
#[derive(Clone, Debug, Default)]
pub struct TailRows {
    ranges: Vec<TailRange>,
    listed: Vec<Oid>,
}

impl TailRows {
    /// Reads the rows of a snapshot.
    pub fn read(txn: &Txn<'_>) -> Result<Self> {
        let mut listed = Vec::new();
        let mut cursor = txn.seek(Table::IndexTail, &[])?;
        while let Some((key, _)) = cursor.next()? {
            listed.push(id_of_key(key)?);
        }
        Ok(TailRows { ranges: ranges(txn)?, listed })
    }

    /// The objects with rows of their own, ascending.
    pub fn listed(&self) -> &[Oid] {
        &self.listed
    }

    /// Whether a snapshot's tail has an object.
    pub fn has(&self, txn: &Txn<'_>, oid: Oid) -> Result<bool> {
        if self.listed.binary_search(&oid).is_ok() {
            return Ok(true);
        }
        if !self.ranges.iter().any(|range| range.covers(oid)) {
            return Ok(false);
        }
        let row = txn.get(Table::Objects, &id_key(oid))?;
        row.map_or(Ok(false), |row| Ok(Record::index_of(row)? == IndexMode::Sync))
    }

    /// Whether all ranges of an earlier snapshot's tail are as they were: nothing of them was
    /// sealed since.
    pub fn keeps_ranges_of(&self, earlier: &TailRows) -> bool {
        earlier.ranges.iter().all(|range| self.ranges.contains(range))
    }

    /// Every object in the tail, ascending.
    pub fn objects(&self, txn: &Txn<'_>) -> Result<Vec<Oid>> {
        let (mut oids, mut room) = (self.listed.clone(), StepRoom::ENDLESS);
        for range in &self.ranges {
            covered(txn, *range, &mut room, &mut oids)?;
        }
        oids.sort_unstable();
        Ok(oids)
    }
}

/// How many ids the ranges have up to the last object of each: no fewer than objects are in them.
pub fn spans(txn: &Txn<'_>) -> Result<u64> {
    let mut spans = 0;
    for range in ranges(txn)? {
        if let Some((key, _)) = txn.before(Table::Objects, &id_key(range.last() + 1))? {
            spans += (id_of_key(key)? + 1).saturating_sub(range.from);
        }
    }
    Ok(spans)
}

/// Whether an object has more attributes than a segment has columns: it stays in the tail for good,
/// with a row of its own, and is judged on its record.
pub(crate) fn has_too_many_columns(row: &[u8]) -> Result<bool> {
    if row.len() < COLUMNS_MAX {
        return Ok(false);
    }
    let mut columns = COLUMNS_BUILTIN;
    for entry in attrs::entries(Record::parse(row)?.attrs) {
        entry?;
        columns += 1;
    }
    Ok(columns > COLUMNS_MAX)
}

/// Takes up to so many objects out of the tail, with about so many bytes of records; which,
/// ascending. It takes one at least, if there is any.
pub fn take(txn: &mut WriteTxn<'_>, most: usize, bytes: usize) -> Result<Vec<Oid>> {
    let (mut oids, mut room) = (Vec::new(), StepRoom::new(most, bytes));
    let mut cursor = txn.seek(Table::IndexTail, &[])?;
    while !room.is_full()
        && let Some((key, _)) = cursor.next()?
    {
        let row = txn.get(Table::Objects, key)?.unwrap_or_default();
        if has_too_many_columns(row)? {
            continue;
        }
        oids.push(id_of_key(key)?);
        room.take(row.len());
    }
    drop(cursor);
    for oid in &oids {
        txn.delete(Table::IndexTail, &id_key(*oid))?;
    }
    for range in ranges(txn)? {
        if room.is_full() {
            break;
        }
        let key = id_key(range.block);
        if covered(txn, range, &mut room, &mut oids)? {
            txn.delete(Table::IndexTailRanges, &key)?;
        } else {
            let next = oids.last().map_or(range.from, |last| last + 1);
            txn.put(Table::IndexTailRanges, &key, &next.to_le_bytes())?;
        }
    }
    oids.sort_unstable();
    Ok(oids)
}

#[cfg(test)]
mod tests;
