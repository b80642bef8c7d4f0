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
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::column::{self, ABSENT, SURE, UNSURE};
use super::head::{self, ALL_PRESENT, CONSTANT, GroupEntry, HAS_UNSURE, IN_RUNS, NewColumn};
use super::layout::{BUILTIN_GROUP, COLUMNS_MAX, GroupKind, OTHER_GROUP, ROWS_MAX, SegmentLayout};
use super::values;
use crate::cell::{Cell, total_order};
use crate::column_key::{ColumnKey, IndexRow, OID, is_builtin};
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

/// Builds a segment. The rows (1 to [`ROWS_MAX`]) ascend by OID, and have [`COLUMNS_MAX`] columns
/// at most; other numbers of either are `ArgumentError`.
#[expect(clippy::missing_panics_doc, reason = "there is a block before one is asked for")]
pub fn build<'r>(rows: &'r [IndexRow<'r>], layout: &SegmentLayout) -> Result<Built<'r>> {
    debug_assert!(rows.is_sorted_by(|a, b| a.oid < b.oid));
    if rows.is_empty() || rows.len() > ROWS_MAX {
        fail!(Argument, "a segment has 1 to {ROWS_MAX} rows, not {}", rows.len());
    }
    let mut columns = gather(rows, layout);
    if columns.len() > COLUMNS_MAX {
        fail!(Argument, "a segment has {COLUMNS_MAX} columns at most, not {}", columns.len());
    }
    // Behind each other as the layout says, within a group by key.
    columns.sort_unstable_by_key(|column| (column.order, column.key));

    let mut blocks = vec![Vec::new()];
    let (mut entries, mut groups) = (Vec::new(), Vec::<GroupEntry>::new());
    let mut built = Vec::with_capacity(columns.len());
    for column in columns {
        let full = blocks.last().is_some_and(|block| block.len() >= PART_BYTES);
        if groups.last().is_none_or(|group| group.id != column.group) {
            if full {
                blocks.push(Vec::new());
            }
            groups.push(GroupEntry { id: column.group, part: blocks.len() as u16, bytes: 0 });
        }
        let block = blocks.last_mut().expect("there is one");
        let offset = block.len();
        let finished = column.finish(rows.len(), block);
        entries.push(NewColumn {
            key: finished.key,
            offset: offset as u32,
            sf: finished.sf,
            group: groups.len() as u16 - 1,
            flags: finished.flags,
        });
        groups.last_mut().expect("there is one").bytes += (block.len() - offset) as u32;
        built.push(finished);
    }
    entries.sort_unstable_by_key(|entry| entry.key);
    built.sort_unstable_by_key(|column| column.key);

    let oids: Vec<u64> = rows.iter().map(|row| row.oid).collect();
    let directory =
        Zone::directory(layout.family, rows.len() as u32, oids[0], oids[oids.len() - 1]);
    let head = head::encode(layout.family, &oids, &entries, &groups);
    let distinct = built.iter().map(|column| (column.key, column.distinct)).collect();
    let mut zones = Vec::with_capacity(built.len() + 1);
    let mut runs = Vec::new();
    for column in built {
        zones.push((column.key, column.zones));
        runs.extend(column.run.map(|run| (column.key, run)));
    }
    zones.push((OID, vec![directory]));
    Ok(Built { head, blocks, zones, runs, distinct })
}

/// One column while the rows go by.
struct Gathering<'r> {
    key: ColumnKey,
    group: u32,
    /// Place of the group in the layout.
    order: usize,
    kind: GroupKind,
    /// For each row the number of its cell, or one of the two below.
    codes: Vec<u32>,
    /// The distinct cells, in the order in which they came; of runs every one.
    cells: Vec<&'r Cell<'r>>,
    numbers: HashTable<u32>,
    /// The number of the last sure row's cell.
    last: u32,
    sure: u32,
    unsure: u32,
}

const NO_CELL: u32 = u32::MAX;
const UNSURE_CELL: u32 = u32::MAX - 1;

fn gather<'r>(rows: &'r [IndexRow<'r>], layout: &SegmentLayout) -> Vec<Gathering<'r>> {
    let hasher = DefaultHashBuilder::default();
    let mut columns: Vec<Gathering<'r>> = Vec::new();
    for (position, row) in rows.iter().enumerate() {
        // Rows of a family have the same keys mostly, so the next column is the next cell's.
        let mut place = 0;
        for (key, cell) in row.cells {
            if columns.get(place).is_none_or(|column| column.key != *key) {
                place = match columns.binary_search_by_key(key, |column| column.key) {
                    Ok(found) => found,
                    Err(at) => {
                        columns.insert(at, Gathering::new(*key, layout, rows.len()));
                        at
                    }
                };
            }
            columns[place].add(position, cell.as_ref(), &hasher);
            place += 1;
        }
    }
    columns
}

fn same(a: &Cell<'_>, b: &Cell<'_>) -> bool {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a == b,
        _ => values::tag(a) == values::tag(b) && values::word(a) == values::word(b),
    }
}

impl<'r> Gathering<'r> {
    fn new(key: ColumnKey, layout: &SegmentLayout, rows: usize) -> Self {
        let named =
            || layout.groups.iter().enumerate().find(|(_, group)| group.columns.contains(&key));
        let (group, order, kind) = if is_builtin(key) {
            (BUILTIN_GROUP, 0, GroupKind::Columns)
        } else if let Some((at, group)) = named() {
            (group.id, at + 1, group.kind)
        } else {
            (OTHER_GROUP, usize::MAX, GroupKind::Columns)
        };
        Gathering {
            key,
            group,
            order,
            kind,
            codes: vec![NO_CELL; rows],
            cells: Vec::new(),
            numbers: HashTable::new(),
            last: NO_CELL,
            sure: 0,
            unsure: 0,
        }
    }

    fn add(&mut self, position: usize, cell: Option<&'r Cell<'r>>, hasher: &DefaultHashBuilder) {
        let Some(cell) = cell else {
            self.unsure += 1;
            self.codes[position] = UNSURE_CELL;
            return;
        };
        self.sure += 1;
        if self.kind == GroupKind::Runs {
            self.codes[position] = self.cells.len() as u32;
            self.cells.push(cell);
            return;
        }
        let repeated = self.cells.get(self.last as usize).is_some_and(|last| same(last, cell));
        if !repeated {
            self.last = self.intern(cell, hasher);
        }
        self.codes[position] = self.last;
    }

    fn intern(&mut self, cell: &'r Cell<'r>, hasher: &DefaultHashBuilder) -> u32 {
        let Gathering { cells, numbers, .. } = self;
        let hash_of = |cell: &Cell<'_>| match cell {
            Cell::Text(text) => hasher.hash_one(text.as_bytes()),
            _ => hasher.hash_one(values::word(cell) ^ u64::from(values::tag(cell))),
        };
        let known = |number: &u32| same(cells[*number as usize], cell);
        let rehash = |number: &u32| hash_of(cells[*number as usize]);
        match numbers.entry(hash_of(cell), known, rehash) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(free) => {
                let number = cells.len() as u32;
                free.insert(number);
                cells.push(cell);
                number
            }
        }
    }

    /// Appends the column to its block.
    fn finish(self, rows: usize, block: &mut Vec<u8>) -> Finished<'r> {
        let sf = self.sure + self.unsure;
        let states = (self.sure as usize != rows).then(|| {
            let state = |code: &u32| match *code {
                NO_CELL => ABSENT,
                UNSURE_CELL => UNSURE,
                _ => SURE,
            };
            self.codes.iter().map(state).collect::<Vec<u64>>()
        });
        let codes: Cow<'_, [u32]> = match states {
            None => self.codes.as_slice().into(),
            Some(_) => self.codes.iter().copied().filter(|code| *code < UNSURE_CELL).collect(),
        };
        let mut counts = vec![0; self.cells.len()];
        match counts.as_mut_slice() {
            [only] => *only = self.sure,
            counts => codes.iter().for_each(|code| counts[*code as usize] += 1),
        }
        let mut zone = ZoneBuilder::default();
        self.cells.iter().zip(&counts).for_each(|(cell, count)| zone.add(cell, *count));

        let in_runs = self.kind == GroupKind::Runs;
        let (mut run, mut distinct) = (None, self.cells.len() as u32);
        if in_runs {
            column::push_elsewhere(block, states.as_deref());
            let sorted = sorted(&self.cells, &self.codes);
            distinct = sorted.chunk_by(|a, b| same(a.0, b.0)).count() as u32;
            run = Some(sorted);
        } else {
            push_shortest(block, states.as_deref(), &self.cells, &codes);
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(sf as usize == rows, ALL_PRESENT)
            | flag(self.unsure > 0, HAS_UNSURE)
            | flag(distinct == 1 && self.unsure == 0, CONSTANT)
            | flag(in_runs, IN_RUNS);
        let zones = zone.finish(rows as u32, sf, self.unsure > 0, in_runs);
        Finished { key: self.key, sf, flags, zones, run, distinct }
    }
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
fn push_shortest(block: &mut Vec<u8>, states: Option<&[u64]>, cells: &[&Cell<'_>], codes: &[u32]) {
    let by_row = || {
        let cells: Vec<&Cell<'_>> = codes.iter().map(|code| cells[*code as usize]).collect();
        let mut bytes = Vec::new();
        column::push_rows(&mut bytes, states, &cells);
        bytes
    };
    if cells.len() > codes.len() / 2 && cells.len() > 1 {
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

fn push_dictionary(
    block: &mut Vec<u8>,
    states: Option<&[u64]>,
    cells: &[&Cell<'_>],
    codes: &[u32],
) {
    if cells.len() == 1 {
        return column::push_dictionary(block, states, cells, &vec![0; codes.len()]);
    }
    let mut order: Vec<u32> = (0..cells.len() as u32).collect();
    order.sort_unstable_by(|a, b| {
        let (a, b) = (cells[*a as usize], cells[*b as usize]);
        total_order(a, b).then_with(|| values::tag(a).cmp(&values::tag(b)))
    });
    let mut place = vec![0; cells.len()];
    for (at, number) in order.iter().enumerate() {
        place[*number as usize] = at as u64;
    }
    let distinct: Vec<&Cell<'_>> = order.iter().map(|number| cells[*number as usize]).collect();
    let codes: Vec<u64> = codes.iter().map(|code| place[*code as usize]).collect();
    column::push_dictionary(block, states, &distinct, &codes);
}

/// The cells of a run in order, with their positions.
fn sorted<'r>(cells: &[&'r Cell<'r>], codes: &[u32]) -> Vec<(&'r Cell<'r>, u16)> {
    let positions = codes.iter().enumerate().filter(|(_, code)| **code < UNSURE_CELL);
    let mut run: Vec<_> = positions.map(|(at, code)| (cells[*code as usize], at as u16)).collect();
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
