//! The index: every indexed object is at one place, and what stands there is what its record says.
//!
//! Checked: each object of mode `sync` is in the tail or at one live position, and not in both; one
//! of mode `async` too, or it is in the queue; one of mode `none` is nowhere. Nothing in the index
//! stands for an object that is not there. Every segment decodes; the cells of its live positions
//! are those that its records give (but for objects in the queue, which wait for that); its zones
//! are those that its cells give; its dead positions are positions. Values that lie in runs are
//! compared after that (see `runs`).

use std::collections::{HashMap, HashSet};

use super::Walk;
use super::runs::Expected;
use engram_base::error::Result;
use engram_base::id::{Oid, id_key, id_of_key};
use engram_catalog::meta::meta_u64;
use engram_catalog::{ReadTxn, Table};
use engram_columns::cell::{Cell, total_order};
use engram_columns::column_key::{ColumnKey, IndexRow, NAME, is_builtin};
use engram_columns::segment::bitmap::Bitmap;
use engram_columns::segment::{Column, Segment};
use engram_columns::value_kind::ValueKind;
use engram_columns::zone::{ZoneVerdict, judge_cells};
use engram_columns::zones::ColumnZones;
use engram_index::UNINDEXED;
use engram_index::directory::{self, SegmentEntry, part_key};
use engram_index::extract;
use engram_index::family::Family;
use engram_index::settings::IndexSettings;
use engram_index::{queue, tail};
use engram_records::attrs::{self, KeyId};
use engram_records::index_mode::IndexMode;
use engram_records::object::Record;

/// Which objects the tail and the queue have, and how often each object is sealed and alive.
struct IndexedObjects {
    tail: HashSet<Oid>,
    queue: HashSet<Oid>,
    sealed: HashMap<Oid, u32>,
    runs: Expected,
}

impl Walk<'_> {
    /// The index agrees with the records.
    pub(super) fn index(&mut self, txn: &ReadTxn<'_>, keys: &HashSet<KeyId>) -> Result<()> {
        let mut places = IndexedObjects {
            tail: self.tail(txn),
            queue: queue::all(txn)?.into_iter().collect(),
            sealed: HashMap::new(),
            runs: Expected::default(),
        };
        let families = self.families(txn, keys)?;
        let segments = directory::all(txn)?;
        for entry in &segments {
            if !families.contains(&entry.family) {
                let SegmentEntry { segment, family, .. } = entry;
                self.problem(format!(
                    "segment {segment} is of family {family}, which is not there"
                ));
            }
            if let Err(error) = self.segment(txn, entry, &mut places) {
                self.problem(format!("segment {}: {error}", entry.segment));
            }
        }
        self.runs(txn, std::mem::take(&mut places.runs))?;
        self.strays(txn, &segments)?;
        self.index_settings(txn)?;
        self.placed(txn, &places)
    }

    /// What is in the tail, each object once.
    fn tail(&mut self, txn: &ReadTxn<'_>) -> HashSet<Oid> {
        let all = match tail::all(txn) {
            Ok(all) => all,
            Err(error) => {
                self.problem(error);
                return HashSet::new();
            }
        };
        for twice in all.windows(2).filter(|pair| pair[0] == pair[1]) {
            self.problem(format!("object {:#x} is in the tail twice", twice[0]));
        }
        all.into_iter().collect()
    }

    /// The families, which name no attribute key without a name.
    fn families(&mut self, txn: &ReadTxn<'_>, keys: &HashSet<KeyId>) -> Result<HashSet<u32>> {
        let mut ids = HashSet::new();
        let mut cursor = txn.seek(Table::IndexFamilies, &[])?;
        while let Some((key, row)) = cursor.next()? {
            match Family::parse(key, row) {
                Ok(family) => {
                    ids.insert(family.id);
                    if let Some(key) = family.named().find(|key| !is_known(keys, *key)) {
                        let id = family.id;
                        self.problem(format!("family {id} has the unknown attribute key {key}"));
                    }
                }
                Err(error) => self.problem(error),
            }
        }
        Ok(ids)
    }

    /// Rows of segments that the directory does not have.
    fn strays(&mut self, txn: &ReadTxn<'_>, segments: &[SegmentEntry]) -> Result<()> {
        for table in [Table::IndexSegments, Table::IndexDead] {
            let mut cursor = txn.seek(table, &[])?;
            while let Some((key, _)) = cursor.next()? {
                let segment = key.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
                let known = segment
                    .is_some_and(|s| segments.binary_search_by_key(&s, |e| e.segment).is_ok());
                if !known {
                    let name = table.name();
                    self.problem(format!("row {key:02x?} of `{name}` is of no segment"));
                }
            }
        }
        Ok(())
    }

    fn index_settings(&mut self, txn: &ReadTxn<'_>) -> Result<()> {
        let mut cursor = txn.seek(Table::IndexSettings, &[])?;
        while let Some((key, row)) = cursor.next()? {
            if txn.get(Table::Groups, key)?.is_none() {
                self.problem(format!("settings of the index are those of {key:02x?}, no group"));
            }
            if let Err(error) = IndexSettings::parse(row) {
                self.problem(error);
            }
        }
        Ok(())
    }

    /// Each object is where its mode says, and nothing else is.
    fn placed(&mut self, txn: &ReadTxn<'_>, places: &IndexedObjects) -> Result<()> {
        let mut unindexed = 0;
        let mut known = HashSet::new();
        let mut cursor = txn.seek(Table::Objects, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let Ok(record) = Record::parse(row) else { continue }; // said already
            let oid = id_of_key(key)?;
            known.insert(oid);
            let sealed = places.sealed.get(&oid).copied().unwrap_or(0);
            let (tail, queued) = (places.tail.contains(&oid), places.queue.contains(&oid));
            let count = sealed + u32::from(tail);
            let right = match record.index {
                IndexMode::Sync => count == 1 && !queued,
                IndexMode::Async => count == 1 || count == 0 && queued,
                IndexMode::None => count == 0 && !queued,
            };
            unindexed += u64::from(record.index == IndexMode::None);
            if !right {
                let mode = record.index;
                self.problem(format!(
                    "object {oid:#x} of index mode {mode:?} is sealed {sealed} times; in the tail: \
                     {tail}; queued: {queued}"
                ));
            }
        }
        drop(cursor);
        let all = places.tail.iter().chain(&places.queue).chain(places.sealed.keys());
        for oid in all.filter(|oid| !known.contains(oid)).collect::<HashSet<_>>() {
            self.problem(format!("the index has object {oid:#x}, which is not there"));
        }
        let account = meta_u64(txn.get(Table::Meta, UNINDEXED)?)?;
        if account != unindexed {
            self.problem(format!(
                "{unindexed} objects are not indexed, the account says {account}"
            ));
        }
        Ok(())
    }

    fn segment(
        &mut self,
        txn: &ReadTxn<'_>,
        entry: &SegmentEntry,
        places: &mut IndexedObjects,
    ) -> Result<()> {
        let segment = entry.segment;
        let head = directory::head(txn, segment)?;
        let oids = head.oids();
        let ends = (oids.first().copied(), oids.last().copied());
        if ends != (Some(entry.min), Some(entry.max))
            || head.len() != entry.rows as usize
            || head.family() != entry.family
        {
            self.problem(format!("segment {segment} is not what the directory says: {entry:?}"));
        }
        let dead = directory::dead(txn, segment, head.len())?;
        let mut expected = Vec::new();
        for (position, oid) in oids.iter().enumerate().filter(|(at, _)| !dead.contains(*at)) {
            *places.sealed.entry(*oid).or_default() += 1;
            let Some(row) = txn.get(Table::Objects, &id_key(*oid))? else { continue };
            if !places.queue.contains(oid) {
                expected.push((position, *oid, Record::parse(row)?));
            }
        }
        let mut cells = Vec::with_capacity(expected.len());
        for (position, oid, record) in &expected {
            cells.push((*position, *oid, extract::cells(record)?));
            self.kinds(&head, segment, *oid, record)?;
        }
        let rows: Vec<_> = cells
            .iter()
            .map(|(position, oid, cells)| (*position, IndexRow { oid: *oid, cells }))
            .collect();
        let mut compared = Bitmap::new(head.len());
        for (position, _) in &rows {
            compared.insert(*position);
        }
        places.runs.segment(segment, compared);
        self.columns(txn, entry, &head, &rows, &mut places.runs)
    }

    /// A column that says of which kind its values were says so of this object's, too.
    fn kinds(
        &mut self,
        head: &Segment<'_>,
        segment: u32,
        oid: Oid,
        record: &Record<'_>,
    ) -> Result<()> {
        for entry in attrs::entries(record.attrs) {
            let entry = entry?;
            let kind = head.column(entry.key)?.and_then(|column| column.kind());
            let other = kind.is_some() && ValueKind::of_entry(&entry) != kind;
            if other && extract::kept(&entry)?.is_some() {
                self.wrong_cell(oid, segment, entry.key);
            }
        }
        Ok(())
    }

    /// The cells of live positions are those of their records.
    fn columns<'r>(
        &mut self,
        txn: &ReadTxn<'_>,
        entry: &SegmentEntry,
        head: &Segment<'_>,
        rows: &'r [(usize, IndexRow<'r>)],
        runs: &mut Expected,
    ) -> Result<()> {
        let mut kept = HashSet::new();
        for column in head.columns() {
            let column = column?;
            kept.insert(column.key);
            let Some(block) =
                txn.get(Table::IndexSegments, &part_key(entry.segment, column.part))?
            else {
                self.problem(format!("segment {} has no part {}", entry.segment, column.part));
                continue;
            };
            let read = Column::parse(&column, block)?;
            let present = read.presence();
            if read.in_runs() {
                let cell = |(at, row): &'r (usize, IndexRow<'r>)| {
                    Some((*at, cell_of(row, column.key)?.as_ref()?))
                };
                runs.column(column.key, entry.segment, rows.iter().filter_map(cell));
            }
            let zones = ColumnZones::read(txn, column.key)?.of(entry.segment)?;
            for (position, row) in rows {
                let cell = cell_of(row, column.key);
                let same = if read.in_runs() {
                    present.contains(*position) == cell.is_some()
                } else {
                    let there = read.cell(*position)?;
                    there.is_some() == cell.is_some()
                        && same_cell(there.flatten().as_ref(), cell.and_then(Option::as_ref))
                };
                if !same {
                    self.wrong_cell(row.oid, entry.segment, column.key);
                }
                if let Some(Some(cell)) = cell
                    && !column.has_unsure()
                    && judge_cells(&zones, &|known| same_cell(Some(known), Some(cell)))
                        == ZoneVerdict::None
                {
                    let key = column.key;
                    self.problem(format!(
                        "segment {}: a cell of {key} is in no zone",
                        entry.segment
                    ));
                }
            }
        }
        for (_, row) in rows {
            for (key, _) in row.cells.iter().filter(|(key, _)| !kept.contains(key)) {
                self.wrong_cell(row.oid, entry.segment, *key);
            }
        }
        Ok(())
    }

    fn wrong_cell(&mut self, oid: Oid, segment: u32, key: ColumnKey) {
        let what = match key {
            NAME => "name".to_owned(),
            key if is_builtin(key) => format!("built-in field {:#x}", key & 0xff),
            key => format!("attribute {key}"),
        };
        self.problem(format!("segment {segment} has another {what} of object {oid:#x}"));
    }
}

fn cell_of<'r>(row: &'r IndexRow<'_>, key: ColumnKey) -> Option<&'r Option<Cell<'r>>> {
    let place = row.cells.binary_search_by_key(&key, |(key, _)| *key).ok()?;
    Some(&row.cells[place].1)
}

fn same_cell(a: Option<&Cell<'_>>, b: Option<&Cell<'_>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => total_order(a, b).is_eq(),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Whether a column is built in, or of an attribute key that has a name.
fn is_known(keys: &HashSet<KeyId>, column: ColumnKey) -> bool {
    is_builtin(column) || keys.contains(&column)
}
