//! The tail in columns: what a process keeps of objects that no segment has yet.
//!
//! Judging an object by its record costs about half a microsecond, and a tail has some hundred
//! objects. So the first query that tests a field takes the cell of each object's record, and later
//! ones judge these cells. They are of one snapshot. A later snapshot takes them over where the
//! realm's news say which objects were put or removed in between ([`Growth::changed`]): those are
//! forgotten, and come back with the cells of their new records if the tail still has them. So a
//! query after a put reads one record. Where that is not known, or a part of the tail was sealed,
//! it begins anew.
//!
//! *Invariant*: what is kept of an object is what its record says as of the snapshot, or that the
//! record alone tells. Nothing is kept of more than [`ROWS_MAX`] objects, nor more than
//! [`BYTES_MAX`] in all: then records decide, as they would without this.
//!
//! [`Growth::changed`]: engram_catalog::Growth::changed

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::compile::{About, Condition, GroupField, Leaf, leaves_of};
use super::goal::Goal;
use super::record::{Judge, attr, builtin_cell};
use super::run::Search;
use crate::ast::Builtin;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Oid, id_key};
use engram_catalog::{Growth, ReadTxn, Table};
use engram_columns::cell::{Cell, Cells, TEXT_BYTES_MAX};
use engram_columns::column_key::unsigned;
use engram_index::tail::TailRows;
use engram_records::attrs::KeyId;
use engram_records::object::Record;

/// The most objects of which cells are kept.
const ROWS_MAX: usize = 1 << 16;
/// The most bytes of cells.
const BYTES_MAX: usize = 8 << 20;
/// Objects that have left, beside half of all, from which on it begins anew.
const GONE_MAX: usize = 64;

/// What a cell is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailField {
    Attr(KeyId),
    Builtin(Builtin),
    Name,
    /// The number of the group that holds the object.
    Parent,
}

/// What is kept of a field of an object.
#[derive(Clone, Debug)]
enum TailCell {
    Absent,
    Cell(Cell<'static>),
    /// The record alone tells.
    Unsure,
}

impl TailCell {
    fn of(cells: Option<Cells<'_>>) -> Self {
        match cells {
            None => TailCell::Absent,
            Some(Cells::One(Cell::Text(text))) if text.len() > TEXT_BYTES_MAX => TailCell::Unsure,
            Some(Cells::One(cell)) => TailCell::Cell(cell.into_owned()),
            Some(Cells::Item(_) | Cells::Many(_)) => TailCell::Unsure,
        }
    }

    fn bytes(&self) -> usize {
        let text = match self {
            TailCell::Cell(Cell::Text(text)) => text.len(),
            _ => 0,
        };
        size_of::<TailCell>() + text
    }
}

impl TailField {
    /// What a record says of the field.
    fn of(self, record: &Record<'_>) -> Result<TailCell> {
        let text = |text: &str| Some(Cells::One(Cell::Text(text.to_owned().into())));
        Ok(TailCell::of(match self {
            TailField::Attr(key) => attr(record, key)?,
            TailField::Builtin(builtin) => Some(Cells::One(builtin_cell(record, builtin)?)),
            TailField::Name => text(record.name),
            TailField::Parent => Some(Cells::One(unsigned(record.parent))),
        }))
    }
}

/// The cells of one field: those of the objects at the first places.
#[derive(Debug)]
struct TailColumn {
    field: TailField,
    cells: Vec<TailCell>,
    bytes: usize,
}

/// One snapshot's tail.
#[derive(Debug, Default)]
struct TailColumns {
    snapshot: u64,
    rows: TailRows,
    /// The objects, in the order in which they came; `None` where one has left.
    oids: Vec<Option<Oid>>,
    places: HashMap<Oid, usize>,
    columns: Vec<TailColumn>,
}

impl TailColumns {
    fn read(txn: &ReadTxn<'_>) -> Result<Self> {
        let rows = TailRows::read(txn)?;
        let oids = rows.objects(txn)?;
        let places = oids.iter().copied().zip(0..).collect();
        let oids = oids.into_iter().map(Some).collect();
        Ok(TailColumns { snapshot: txn.id(), rows, oids, places, columns: Vec::new() })
    }

    /// Becomes the tail of a later snapshot, before which these objects were put or removed, some
    /// more than once. Whether it can.
    fn advance(&mut self, txn: &ReadTxn<'_>, mut changed: Vec<Oid>) -> Result<bool> {
        let rows = TailRows::read(txn)?;
        if !rows.keeps_ranges_of(&self.rows) {
            return Ok(false);
        }
        let before = std::mem::take(&mut self.rows);
        let missing = |oid: &&Oid, rows: &TailRows| rows.listed().binary_search(oid).is_err();
        let left = before.listed().iter().filter(|oid| missing(oid, &rows));
        left.chain(&changed).for_each(|oid| self.forget(*oid));
        changed.extend(rows.listed().iter().filter(|oid| missing(oid, &before)));
        changed.sort_unstable();
        changed.dedup();
        for oid in changed {
            if rows.has(txn, oid)? {
                self.places.insert(oid, self.oids.len());
                self.oids.push(Some(oid));
            }
        }
        (self.rows, self.snapshot) = (rows, txn.id());
        Ok(self.oids.len() <= 2 * self.places.len() + GONE_MAX)
    }

    fn forget(&mut self, oid: Oid) {
        if let Some(place) = self.places.remove(&oid) {
            self.oids[place] = None;
        }
    }

    fn column(&self, field: TailField) -> Option<usize> {
        self.columns.iter().position(|column| column.field == field)
    }

    fn is_complete(&self, fields: &[TailField]) -> bool {
        let whole = |at: usize| self.columns[at].cells.len() == self.oids.len();
        fields.iter().all(|field| self.column(*field).is_some_and(whole))
    }

    /// Takes the cells of these fields from records, where they are not there yet; how many records
    /// were read. What other queries asked for makes room; without enough all cells go.
    fn complete(&mut self, txn: &ReadTxn<'_>, fields: &[TailField]) -> Result<u64> {
        for field in fields {
            if self.column(*field).is_none() {
                self.columns.push(TailColumn { field: *field, cells: Vec::new(), bytes: 0 });
            }
        }
        let asked = |column: &TailColumn| fields.contains(&column.field);
        let first = self.columns.iter().filter(|c| asked(c)).map(|c| c.cells.len()).min();
        let (mut read, mut bytes) = (0, self.columns.iter().map(|c| c.bytes).sum::<usize>());
        for place in first.unwrap_or(self.oids.len())..self.oids.len() {
            let record = self.oids[place].map(|oid| row_of(txn, oid)).transpose()?;
            let record = record.map(Record::parse).transpose()?;
            read += u64::from(record.is_some());
            for column in self.columns.iter_mut().filter(|column| asked(column)) {
                if column.cells.len() == place {
                    let of = |record| column.field.of(record);
                    let kept = record.as_ref().map_or(Ok(TailCell::Absent), of)?;
                    column.bytes += kept.bytes();
                    bytes += kept.bytes();
                    column.cells.push(kept);
                }
            }
            if bytes > BYTES_MAX {
                self.columns.retain(asked);
                bytes = self.columns.iter().map(|column| column.bytes).sum();
            }
            if bytes > BYTES_MAX {
                self.columns.clear();
                break;
            }
        }
        Ok(read)
    }
}

fn row_of<'t>(txn: &'t ReadTxn<'_>, oid: Oid) -> Result<&'t [u8]> {
    match txn.get(Table::Objects, &id_key(oid))? {
        Some(row) => Ok(row),
        None => fail!(Corrupt, "object {oid:#x} of the tail has no record: run verify"),
    }
}

/// Where a process keeps the columns of the last tail that it asked for.
#[derive(Debug, Default)]
pub(crate) struct TailCache(RwLock<TailColumns>);

/// The columns of a snapshot's tail, for as long as somebody reads them.
enum HeldTail<'c> {
    Shared(RwLockReadGuard<'c, TailColumns>),
    Alone(RwLockWriteGuard<'c, TailColumns>),
}

impl Deref for HeldTail<'_> {
    type Target = TailColumns;

    fn deref(&self) -> &TailColumns {
        match self {
            HeldTail::Shared(columns) => columns,
            HeldTail::Alone(columns) => columns,
        }
    }
}

impl TailCache {
    /// The columns of these fields of a snapshot's tail, and how many records were read for them.
    /// `None` where cells are kept of a later snapshot, or not of so many objects.
    fn of(
        &self,
        txn: &ReadTxn<'_>,
        growth: Option<&Growth>,
        fields: &[TailField],
    ) -> Result<Option<(HeldTail<'_>, u64)>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.snapshot == txn.id() && known.is_complete(fields) {
            return Ok(Some((HeldTail::Shared(known), 0)));
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.snapshot > txn.id() {
            return Ok(None);
        }
        if known.snapshot < txn.id() {
            // What fails in between leaves nothing that could be believed.
            let mut columns = std::mem::take(&mut *known);
            let changed = growth.and_then(|growth| growth.changed(columns.snapshot, txn.id()));
            let advanced = match changed {
                Some(changed) if columns.snapshot > 0 => columns.advance(txn, changed)?,
                _ => false,
            };
            *known = if advanced { columns } else { TailColumns::read(txn)? };
        }
        if known.oids.len() > ROWS_MAX {
            *known = TailColumns::default();
            return Ok(None);
        }
        let read = match known.complete(txn, fields) {
            Ok(read) => read,
            Err(error) => {
                *known = TailColumns::default();
                return Err(error);
            }
        };
        Ok(Some((HeldTail::Alone(known), read)))
    }
}

/// How a leaf is judged by cells.
#[derive(Clone, Debug)]
enum TailTest {
    Cell(TailField),
    Owner,
    Path,
    Group(GroupField),
    Record,
}

impl TailTest {
    fn of(leaf: &Leaf) -> Self {
        match &leaf.about {
            About::Attr(key) => TailTest::Cell(TailField::Attr(*key)),
            About::Name => TailTest::Cell(TailField::Name),
            About::Builtin(Builtin::Owner) => TailTest::Owner,
            About::Builtin(builtin) => TailTest::Cell(TailField::Builtin(*builtin)),
            About::Path(_) => TailTest::Path,
            About::Group(field) => TailTest::Group(field.clone()),
            About::Part(..) => TailTest::Record,
        }
    }

    fn fields(&self) -> Vec<TailField> {
        match self {
            TailTest::Cell(field) => vec![*field],
            TailTest::Owner => vec![TailField::Builtin(Builtin::Owner)],
            TailTest::Path => vec![TailField::Parent, TailField::Name],
            TailTest::Group(_) => vec![TailField::Parent],
            TailTest::Record => Vec::new(),
        }
    }
}

/// The leaves of one query, by number: how each is judged, and the places of the columns for it.
struct TailJudge<'q> {
    columns: &'q TailColumns,
    leaves: Vec<(TailTest, [usize; 2])>,
}

impl<'q> TailJudge<'q> {
    fn new(columns: &'q TailColumns, ways: &[TailTest]) -> Self {
        let leaf = |how: &TailTest| {
            let mut places = [0; 2];
            for (place, field) in places.iter_mut().zip(how.fields()) {
                match columns.column(field) {
                    Some(column) => *place = column,
                    None => return (TailTest::Record, places),
                }
            }
            (how.clone(), places)
        };
        TailJudge { columns, leaves: ways.iter().map(leaf).collect() }
    }

    /// Whether a condition is true of the object at a place; `None` where only its record tells.
    fn is_true(
        &self,
        judge: &mut Judge<'_>,
        node: &Condition,
        place: usize,
    ) -> Result<Option<bool>> {
        let (parts, decides) = match node {
            Condition::Const(value) => return Ok(Some(*value)),
            Condition::Not(inner) => return Ok(self.is_true(judge, inner, place)?.map(|is| !is)),
            Condition::Leaf(leaf) => return self.leaf(judge, leaf, place),
            Condition::All(parts) => (parts, false),
            Condition::Any(parts) => (parts, true),
        };
        let mut all = Some(!decides);
        for part in parts {
            match self.is_true(judge, part, place)? {
                Some(is) if is == decides => return Ok(Some(is)),
                Some(_) => {}
                None => all = None,
            }
        }
        Ok(all)
    }

    fn leaf(&self, judge: &mut Judge<'_>, leaf: &Leaf, place: usize) -> Result<Option<bool>> {
        let (how, [first, second]) = &self.leaves[leaf.number];
        let kept = |column: usize| &self.columns.columns[column].cells[place];
        let predicate = &leaf.predicate;
        if let TailTest::Record = how {
            return Ok(None);
        }
        let cell = match kept(*first) {
            TailCell::Absent => return Ok(Some(false)),
            TailCell::Unsure => return Ok(None),
            TailCell::Cell(cell) => cell,
        };
        Ok(match (how, cell) {
            (TailTest::Cell(_), cell) => Some(predicate.cell(cell)),
            (TailTest::Owner, Cell::Int(uid)) => Some(judge.is_owner(predicate, *uid as u32)),
            (TailTest::Group(field), cell) => match gid_of(cell) {
                Some(gid) => Some(judge.groups.judge(leaf, field, gid)?),
                None => None,
            },
            (TailTest::Path, cell) => match (gid_of(cell), kept(*second)) {
                (Some(gid), TailCell::Cell(Cell::Text(name))) => {
                    let path = judge.groups.path_of(gid, name)?;
                    Some(predicate.cell(&Cell::Text(path.into())))
                }
                _ => None,
            },
            _ => None,
        })
    }
}

fn gid_of(cell: &Cell<'_>) -> Option<u64> {
    match cell {
        Cell::Int(gid) => Some(*gid as u64),
        Cell::Big(gid) => Some(*gid),
        _ => None,
    }
}

impl Search<'_> {
    /// Judges the objects of the tail but for those that were looked at, which ascend.
    pub(super) fn judge_tail(&mut self, goal: &mut Goal, seen: &[Oid]) -> Result<()> {
        let (txn, plan, directories) = (self.peek.txn(), self.plan, self.directories);
        if txn.entries(Table::IndexTail)? + txn.entries(Table::IndexTailRanges)? == 0 {
            return Ok(());
        }
        let mut leaves = Vec::new();
        leaves_of(&plan.node, &mut leaves);
        let mut ways = vec![TailTest::Record; plan.leaves];
        let mut fields: Vec<TailField> = Vec::new();
        for leaf in leaves {
            let how = TailTest::of(leaf);
            let new = how.fields().into_iter().filter(|field| !fields.contains(field));
            fields.extend(new.collect::<Vec<_>>());
            ways[leaf.number] = how;
        }
        let is_seen = |oid: Oid| seen.binary_search(&oid).is_ok();
        let Some((columns, read)) = directories.tail.of(txn, self.growth, &fields)? else {
            for oid in TailRows::read(txn)?.objects(txn)?.into_iter().filter(|oid| !is_seen(*oid)) {
                self.counts.tail += 1;
                self.counts.tail_read += 1;
                self.judge(goal, oid)?;
            }
            return Ok(());
        };
        self.counts.tail_read += read;
        let judge = TailJudge::new(&columns, &ways);
        for (place, oid) in columns.oids.iter().enumerate() {
            let Some(oid) = oid.filter(|oid| !is_seen(*oid)) else { continue };
            self.counts.tail += 1;
            match (judge.is_true(&mut self.judge, &plan.node, place)?, &mut *goal) {
                (Some(false), _) => {}
                (Some(true), Goal::Oids(oids)) => oids.push(oid),
                (Some(true), Goal::Count(count)) => *count += 1,
                // What a record says of a hit, and whether it is one.
                (Some(true) | None, goal) => {
                    self.counts.tail_read += 1;
                    self.judge(goal, oid)?;
                }
            }
        }
        Ok(())
    }
}
