//! Rows on their way into a segment, column by column.
//!
//! Each column is a register: what a row has there, the rows after it have too, until one has
//! something else. So what is the same from row to row costs nothing, and what nobody looks at
//! costs nothing either. Names and instants of making, which are hardly ever the same, are given
//! row by row.
//!
//! *Invariant*: a row has in each column what was set there last, by it or by a row before it.

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::column::{NO_CELL, UNSURE_CELL};
use super::layout::{BUILTIN_GROUP, GroupKind, OTHER_GROUP, SegmentLayout};
use super::values;
use crate::cell::Cell;
use crate::column_key::{ColumnKey, is_builtin};
use crate::value_kind::{KindsSeen, ValueKind};

/// Rows of a segment to be, ascending by OID.
#[derive(Debug)]
pub struct GatheredRows<'a> {
    pub(super) layout: SegmentLayout,
    pub(super) oids: Vec<u64>,
    pub(super) names: Vec<&'a str>,
    /// In ns since 1970.
    pub(super) created: Vec<i64>,
    pub(super) columns: Vec<Gathering<'a>>,
    places: HashMap<ColumnKey, usize, DefaultHashBuilder>,
    hasher: DefaultHashBuilder,
}

impl<'a> GatheredRows<'a> {
    /// No rows yet; there will be so many, in a segment laid out so.
    pub fn new(layout: SegmentLayout, rows: usize) -> Self {
        GatheredRows {
            layout,
            oids: Vec::with_capacity(rows),
            names: Vec::with_capacity(rows),
            created: Vec::with_capacity(rows),
            columns: Vec::new(),
            places: HashMap::default(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Lays the segment out in another way.
    pub fn lay_out(&mut self, layout: SegmentLayout) {
        for column in &mut self.columns {
            column.home = Home::of(column.key, &layout);
        }
        self.layout = layout;
    }

    /// Begins the next row, of an object that has this name and was made at this instant, in ns
    /// since 1970.
    pub fn row(&mut self, oid: u64, name: &'a str, created: i64) {
        self.oids.push(oid);
        self.names.push(name);
        self.created.push(created);
    }

    /// Begins a row of attributes alone; then all are so.
    #[cfg(test)]
    pub(crate) fn bare_row(&mut self, oid: u64) {
        self.oids.push(oid);
    }

    /// How many rows there are.
    #[expect(clippy::len_without_is_empty, reason = "a segment has rows")]
    pub fn len(&self) -> usize {
        self.oids.len()
    }

    /// The place of a column among all, for as long as these rows are gathered.
    pub fn place(&mut self, key: ColumnKey) -> usize {
        let GatheredRows { places, columns, layout, .. } = self;
        *places.entry(key).or_insert_with(|| {
            columns.push(Gathering::new(key, Home::of(key, layout)));
            columns.len() - 1
        })
    }

    /// Says what the last row has in a column, and those after it: a cell, or `None` if the record
    /// alone tells. The number stands for that cell.
    pub fn set(&mut self, place: usize, cell: Option<Cell<'a>>) -> u32 {
        let row = self.oids.len() - 1;
        let column = &mut self.columns[place];
        let code = match cell {
            Some(cell) => column.number(cell, &self.hasher),
            None => UNSURE_CELL,
        };
        column.stand(row, code);
        code
    }

    /// Says of which kind the values are of which cells of a column came, or come: one that has a
    /// number, or another.
    pub fn note_kind(&mut self, place: usize, kind: Option<ValueKind>) {
        self.columns[place].kinds.note(kind);
    }

    /// Says that the last row, and those after it, have the cell that this number stands for.
    pub fn set_again(&mut self, place: usize, code: u32) {
        self.columns[place].stand(self.oids.len() - 1, code);
    }

    /// Says that the last row, and those after it, have no such column.
    pub fn clear(&mut self, place: usize) {
        self.columns[place].stand(self.oids.len() - 1, NO_CELL);
    }

    /// Says what the rows from `from` on have in a column: numbers of these cells, or [`NO_CELL`]
    /// or [`UNSURE_CELL`].
    pub(super) fn extend(
        &mut self,
        place: usize,
        from: usize,
        mut cells: Vec<Cell<'a>>,
        codes: impl Iterator<Item = u32>,
    ) {
        let column = &mut self.columns[place];
        // Those that no row has any more are left behind.
        let mut known = vec![None; cells.len()];
        for (row, code) in codes.enumerate() {
            let code = match cells.get_mut(code as usize) {
                None => code,
                Some(cell) => *known[code as usize].get_or_insert_with(|| {
                    column.number(std::mem::replace(cell, Cell::Other), &self.hasher)
                }),
            };
            column.stand(from + row, code);
        }
    }

    /// Says that the rows from `from` on have none of the columns but these.
    pub(super) fn clear_others(&mut self, from: usize, mut places: Vec<usize>) {
        places.sort_unstable();
        for (place, column) in self.columns.iter_mut().enumerate() {
            if places.binary_search(&place).is_err() {
                column.stand(from, NO_CELL);
            }
        }
    }

    /// Which attributes occur together, and in how many rows.
    pub fn signatures(&mut self) -> Vec<(Vec<ColumnKey>, u64)> {
        let rows = self.len();
        self.columns.iter_mut().for_each(|column| column.fill(rows));
        let attributes = self.columns.iter().filter(|column| !is_builtin(column.key));
        let (some, all): (Vec<_>, Vec<_>) = attributes.partition(|column| column.absent > 0);
        // Rows with the same attributes have the same sum; others surely not.
        let mut sums = vec![0_u64; rows];
        for column in &some {
            let own = self.hasher.hash_one(column.key);
            for (sum, code) in sums.iter_mut().zip(&column.codes) {
                *sum = sum.wrapping_add(if *code == NO_CELL { 0 } else { own });
            }
        }
        let mut found: HashMap<u64, (usize, u64), DefaultHashBuilder> = HashMap::default();
        for (row, sum) in sums.into_iter().enumerate() {
            found.entry(sum).or_insert((row, 0)).1 += 1;
        }
        let signature = |(row, count): (usize, u64)| {
            let there = some.iter().filter(|column| column.codes[row] != NO_CELL);
            let mut keys: Vec<_> = there.chain(&all).map(|column| column.key).collect();
            keys.sort_unstable();
            (keys, count)
        };
        found.into_values().map(signature).collect()
    }
}

/// Where a column lies, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub group: u32,
    /// Place of the group in the layout.
    pub order: usize,
    pub kind: GroupKind,
}

impl Home {
    /// Where built-in columns lie.
    pub(super) const BUILTIN: Home =
        Home { group: BUILTIN_GROUP, order: 0, kind: GroupKind::Columns };

    fn of(key: ColumnKey, layout: &SegmentLayout) -> Self {
        let named =
            || layout.groups.iter().enumerate().find(|(_, group)| group.columns.contains(&key));
        if is_builtin(key) {
            Home::BUILTIN
        } else if let Some((at, group)) = named() {
            Home { group: group.id, order: at + 1, kind: group.kind }
        } else {
            Home { group: OTHER_GROUP, order: usize::MAX, kind: GroupKind::Columns }
        }
    }
}

/// One column while the rows go by.
#[derive(Debug)]
pub(super) struct Gathering<'a> {
    pub key: ColumnKey,
    pub home: Home,
    /// For each row the number of its cell, or one of the two that stand for none; up to the row
    /// from which on all have the current one.
    pub codes: Vec<u32>,
    current: u32,
    /// The cells by their numbers: each once, in columns row by row and in runs perhaps more often.
    pub cells: Vec<Cell<'a>>,
    /// How many rows have each.
    pub counts: Vec<u32>,
    pub absent: u32,
    pub unsure: u32,
    /// What the values of the cells were.
    pub kinds: KindsSeen,
    numbers: HashTable<u32>,
}

pub(super) fn same(a: &Cell<'_>, b: &Cell<'_>) -> bool {
    match (a, b) {
        (Cell::Text(a), Cell::Text(b)) => a == b,
        _ => values::tag(a) == values::tag(b) && values::word(a) == values::word(b),
    }
}

impl<'a> Gathering<'a> {
    fn new(key: ColumnKey, home: Home) -> Self {
        Gathering {
            key,
            home,
            codes: Vec::new(),
            current: NO_CELL,
            cells: Vec::new(),
            counts: Vec::new(),
            absent: 0,
            unsure: 0,
            kinds: KindsSeen::default(),
            numbers: HashTable::new(),
        }
    }

    /// From this row on all have this.
    fn stand(&mut self, row: usize, code: u32) {
        if code != self.current {
            self.fill(row);
            self.current = code;
        }
    }

    /// Writes down what the rows before this one have.
    pub(super) fn fill(&mut self, row: usize) {
        let rows = row.saturating_sub(self.codes.len());
        if rows > 0 {
            self.codes.resize(row, self.current);
            self.count(self.current, rows as u32);
        }
    }

    fn count(&mut self, code: u32, rows: u32) {
        match code {
            NO_CELL => self.absent += rows,
            UNSURE_CELL => self.unsure += rows,
            code => self.counts[code as usize] += rows,
        }
    }

    /// The number of a cell.
    fn number(&mut self, cell: Cell<'a>, hasher: &DefaultHashBuilder) -> u32 {
        if self.cells.get(self.current as usize).is_some_and(|current| same(current, &cell)) {
            return self.current;
        }
        if self.home.kind != GroupKind::Columns {
            return self.add(cell);
        }
        let hash_of = |cell: &Cell<'_>| match cell {
            Cell::Text(text) => hasher.hash_one(text.as_bytes()),
            _ => hasher.hash_one(values::word(cell) ^ u64::from(values::tag(cell))),
        };
        let Gathering { cells, numbers, .. } = self;
        let known = |number: &u32| same(&cells[*number as usize], &cell);
        let rehash = |number: &u32| hash_of(&cells[*number as usize]);
        match numbers.entry(hash_of(&cell), known, rehash) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(free) => {
                free.insert(cells.len() as u32);
                self.add(cell)
            }
        }
    }

    fn add(&mut self, cell: Cell<'a>) -> u32 {
        self.cells.push(cell);
        self.counts.push(0);
        self.cells.len() as u32 - 1
    }
}
