//! Building a segment from rows.
//!
//! # What it takes in the catalog
//!
//! LMDB keeps a row of up to about 2,030 bytes beside others in a page of 4,096; a longer one takes
//! whole pages of its own, with a head of 16 bytes, so half a page is lost on average. A segment of
//! 46 columns that kept each group of four in a row of its own would lose nearly as much as its
//! columns take. So groups lie one behind the other in as few parts as [`PART_BYTES`] allows,
//! usually one: a part is only a row of the catalog, and says nothing about what is read, since
//! nothing of a mapped row is touched but the columns that are asked for.

use std::borrow::Cow;

use super::column::{self, ABSENT, NO_CELL, SURE, UNSURE, UNSURE_CELL};
use super::gather::{GatheredRows, Gathering, Home, same};
use super::head::{
    self, ALL_PRESENT, CONSTANT, GroupEntry, HAS_UNSURE, IN_RUNS, KIND_SHIFT, NewColumn,
};
use super::layout::{COLUMNS_MAX, GroupKind, ROWS_MAX};
use super::{names, values};
use crate::cell::{Cell, total_order};
use crate::column_key::{CREATED, ColumnKey, NAME, OID};
use crate::zone::{Zone, ZoneBuilder, prefix};
use engram_base::error::Result;
use engram_base::fail;

/// A part that is longer ends with the group that made it so: a row of a megabyte would ask for as
/// many free pages side by side.
const PART_BYTES: usize = 256 << 10;

/// Up to one distinct cell in so many rows, a dictionary is shortest without trying.
const SURELY_REPEATED: usize = 16;

/// A segment as it is to be kept.
#[derive(Debug)]
pub struct Built<'r> {
    /// Part 0.
    pub head: Vec<u8>,
    /// Parts 1 and up: one or more attribute groups each.
    pub blocks: Vec<Vec<u8>>,
    /// The zones of each column, and of [`OID`] the directory's. The segment's number is not in
    /// them: [`crate::zones::add`] sets it.
    pub zones: Vec<(ColumnKey, Vec<Zone>)>,
    /// The cells of the columns that are kept as runs, in `total_order`, with their positions.
    pub runs: Vec<(ColumnKey, Vec<(&'r Cell<'r>, u16)>)>,
    /// How many distinct cells each column has.
    pub distinct: Vec<(ColumnKey, u32)>,
}

impl GatheredRows<'_> {
    /// Builds the segment. There are 1 to [`ROWS_MAX`] rows, which ascend by OID, and
    /// [`COLUMNS_MAX`] columns at most; other numbers of either are `ArgumentError`.
    pub fn build(&mut self) -> Result<Built<'_>> {
        debug_assert!(self.oids.is_sorted_by(|a, b| a < b));
        let rows = self.len();
        if rows == 0 || rows > ROWS_MAX {
            fail!(Argument, "a segment has 1 to {ROWS_MAX} rows, not {rows}");
        }
        for column in &mut self.columns {
            column.fill(rows);
        }
        let there = self.columns.iter().filter(|column| column.absent as usize != rows);
        // Behind each other as the layout says, within a group by key.
        let mut columns: Vec<_> =
            there.map(|column| (column.home, column.key, Some(column))).collect();
        if !self.names.is_empty() {
            columns.extend([NAME, CREATED].map(|key| (Home::BUILTIN, key, None)));
        }
        if columns.len() > COLUMNS_MAX {
            fail!(Argument, "a segment has {COLUMNS_MAX} columns at most, not {}", columns.len());
        }
        columns.sort_unstable_by_key(|(home, key, _)| (home.order, *key));
        let mut written = Written { blocks: vec![Vec::new()], ..Written::default() };
        for (home, key, column) in columns {
            written.push(home.group, |block| match column {
                Some(column) => finish(column, rows, block),
                None if key == NAME => finish_names(&self.names, block),
                None => finish_created(&self.created, block),
            });
        }
        let Written { blocks, mut entries, groups, mut finished } = written;
        entries.sort_unstable_by_key(|entry| entry.key);
        finished.sort_unstable_by_key(|column| column.key);

        let (family, oids) = (self.layout.family, &self.oids);
        let directory = Zone::directory(family, rows as u32, oids[0], oids[rows - 1]);
        let head = head::encode(family, oids, &entries, &groups);
        let distinct = finished.iter().map(|column| (column.key, column.distinct)).collect();
        let mut zones = Vec::with_capacity(finished.len() + 1);
        let mut runs = Vec::new();
        for column in finished {
            zones.push((column.key, column.zones));
            runs.extend(column.run.map(|run| (column.key, run)));
        }
        zones.push((OID, vec![directory]));
        Ok(Built { head, blocks, zones, runs, distinct })
    }
}

/// Columns that have been written, one behind the other.
#[derive(Default)]
struct Written<'r> {
    blocks: Vec<Vec<u8>>,
    entries: Vec<NewColumn>,
    groups: Vec<GroupEntry>,
    finished: Vec<Finished<'r>>,
}

impl<'r> Written<'r> {
    /// Adds a column of a group, the same as that of the column before or a new one.
    fn push(&mut self, group: u32, write: impl FnOnce(&mut Vec<u8>) -> Finished<'r>) {
        if self.groups.last().is_none_or(|last| last.id != group) {
            if self.blocks.last().is_some_and(|block| block.len() >= PART_BYTES) {
                self.blocks.push(Vec::new());
            }
            self.groups.push(GroupEntry { id: group, part: self.blocks.len() as u16, bytes: 0 });
        }
        let (Some(block), Some(last)) = (self.blocks.last_mut(), self.groups.last_mut()) else {
            return;
        };
        let offset = block.len();
        let finished = write(block);
        last.bytes += (block.len() - offset) as u32;
        self.entries.push(NewColumn {
            key: finished.key,
            offset: offset as u32,
            sf: finished.sf,
            group: self.groups.len() as u16 - 1,
            flags: finished.flags,
        });
        self.finished.push(finished);
    }
}

/// Appends a column to its block.
fn finish<'r>(column: &'r Gathering<'_>, rows: usize, block: &mut Vec<u8>) -> Finished<'r> {
    let Gathering { cells, codes, counts, unsure, absent, .. } = column;
    let (sf, sure) = (rows as u32 - absent, rows as u32 - absent - unsure);
    let states = (sure as usize != rows).then(|| {
        let state = |code: &u32| match *code {
            NO_CELL => ABSENT,
            UNSURE_CELL => UNSURE,
            _ => SURE,
        };
        codes.iter().map(state).collect::<Vec<u64>>()
    });
    let mut zone = ZoneBuilder::default();
    // A cell that no row has any more is in no zone, and is not the one cell of a column.
    let mut distinct = 0;
    for (cell, count) in cells.iter().zip(counts).filter(|(_, count)| **count > 0) {
        zone.add(cell, *count);
        distinct += 1;
    }

    let in_runs = column.home.kind == GroupKind::Runs;
    let mut run = None;
    if in_runs {
        column::push_elsewhere(block, states.as_deref());
        let sorted = sorted(cells, codes);
        distinct = sorted.chunk_by(|a, b| same(a.0, b.0)).count() as u32;
        run = Some(sorted);
    } else if let [only] = cells.as_slice()
        && sure > 0
    {
        column::push_constant(block, states.as_deref(), only);
    } else {
        let codes: Cow<'_, [u32]> = match states {
            None => codes.as_slice().into(),
            Some(_) => codes.iter().copied().filter(|code| *code < UNSURE_CELL).collect(),
        };
        let by_row = column.home.kind == GroupKind::Rows;
        push_shortest(block, states.as_deref(), cells, &codes, by_row);
    }
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(sf as usize == rows, ALL_PRESENT)
        | flag(*unsure > 0, HAS_UNSURE)
        | flag(distinct == 1 && *unsure == 0, CONSTANT)
        | flag(in_runs, IN_RUNS)
        | column.kinds.number() << KIND_SHIFT;
    let zones = zone.finish(rows as u32, sf, *unsure > 0, in_runs);
    Finished { key: column.key, sf, flags, zones, run, distinct }
}

/// Appends the column of names to its block.
fn finish_names<'r>(rows: &[&str], block: &mut Vec<u8>) -> Finished<'r> {
    let (distinct, codes) = names::order(rows);
    column::push_texts(block, &distinct, &codes);
    let sf = rows.len() as u32;
    let zones = vec![Zone::texts(&distinct, sf)];
    let flags = ALL_PRESENT | if distinct.len() == 1 { CONSTANT } else { 0 };
    Finished { key: NAME, sf, flags, zones, run: None, distinct: distinct.len() as u32 }
}

/// Appends the column of instants of making to its block.
fn finish_created<'r>(rows: &[i64], block: &mut Vec<u8>) -> Finished<'r> {
    let sf = rows.len() as u32;
    let ends = [rows.iter().min(), rows.iter().max()].map(|end| end.copied().unwrap_or(0));
    let constant = ends[0] == ends[1];
    if constant {
        column::push_constant(block, None, &Cell::Time(ends[0]));
    } else {
        column::push_times(block, rows);
    }
    let mut zone = ZoneBuilder::default();
    zone.add(&Cell::Time(ends[0]), sf);
    zone.add(&Cell::Time(ends[1]), 0);
    let flags = ALL_PRESENT | if constant { CONSTANT } else { 0 };
    let zones = zone.finish(sf, sf, false, false);
    let distinct = if constant { 1 } else { sf };
    Finished { key: CREATED, sf, flags, zones, run: None, distinct }
}

/// A column that has been written.
struct Finished<'r> {
    key: ColumnKey,
    sf: u32,
    flags: u8,
    zones: Vec<Zone>,
    run: Option<Vec<(&'r Cell<'r>, u16)>>,
    distinct: u32,
}

/// Appends the column as rows where more than half of the cells are distinct, else in whichever
/// form is shorter.
fn push_shortest(
    block: &mut Vec<u8>,
    states: Option<&[u64]>,
    cells: &[Cell<'_>],
    codes: &[u32],
    surely_rows: bool,
) {
    let by_row = || {
        let cells: Vec<&Cell<'_>> = codes.iter().map(|code| &cells[*code as usize]).collect();
        let mut bytes = Vec::new();
        column::push_rows(&mut bytes, states, &cells);
        bytes
    };
    if surely_rows || cells.len() > codes.len() / 2 {
        block.extend(by_row());
        return;
    }
    let start = block.len();
    push_dictionary(block, states, cells, codes);
    if cells.len() > codes.len() / SURELY_REPEATED {
        let rows = by_row();
        if rows.len() < block.len() - start {
            block.truncate(start);
            block.extend(rows);
        }
    }
}

fn push_dictionary(block: &mut Vec<u8>, states: Option<&[u64]>, cells: &[Cell<'_>], codes: &[u32]) {
    let mut order: Vec<u32> = (0..cells.len() as u32).collect();
    order.sort_unstable_by(|a, b| {
        let (a, b) = (&cells[*a as usize], &cells[*b as usize]);
        total_order(a, b).then_with(|| values::tag(a).cmp(&values::tag(b)))
    });
    let mut place = vec![0; cells.len()];
    for (at, number) in order.iter().enumerate() {
        place[*number as usize] = at as u64;
    }
    let distinct: Vec<&Cell<'_>> = order.iter().map(|number| &cells[*number as usize]).collect();
    let codes: Vec<u64> = codes.iter().map(|code| place[*code as usize]).collect();
    column::push_dictionary(block, states, &distinct, &codes);
}

/// The cells of a run in order, with their positions.
fn sorted<'r>(cells: &'r [Cell<'r>], codes: &[u32]) -> Vec<(&'r Cell<'r>, u16)> {
    let positions = codes.iter().enumerate().filter(|(_, code)| **code < UNSURE_CELL);
    let mut run: Vec<_> = positions.map(|(at, code)| (&cells[*code as usize], at as u16)).collect();
    // Almost always all are of one kind, and their prefixes are their order.
    let exact = |(cell, _): &(&Cell<'_>, u16)| {
        values::tag(cell) == values::tag(run[0].0) && prefix(cell).is_some_and(|found| found.1)
    };
    if run.iter().all(exact) {
        run.sort_by_cached_key(|(cell, at)| (prefix(cell).map_or(0, |found| found.0), *at));
    } else {
        run.sort_unstable_by(|a, b| total_order(a.0, b.0).then(a.1.cmp(&b.1)));
    }
    run
}
