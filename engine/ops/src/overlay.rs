//! The overlay: a list of row changes under construction, on top of the catalog.
//!
//! An operation that runs against the overlay reads from the list first and from a snapshot of the
//! catalog below; its writes go into the list. What it has read from below is a *guard*: the list
//! is applied only where every guard still holds (`guards`).

pub(crate) mod below;
pub mod guards;
pub mod layer;
pub mod peek;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use self::below::{Below, Gaps};
use self::layer::{Change, Guard, Layer, RowState};
use crate::links;
use crate::rows_mut::{Reserved, RowsMut, put_if_absent};
use engram_base::error::Result;
use engram_base::id::{Gid, Oid};
use engram_catalog::rows::{Row, Rows};
use engram_catalog::{Catalog, ReadTxn, Table, Txn};
use engram_records::extent::Extent;
use engram_records::index_mode::Touch;
use engram_records::object::{Record, Stored};

/// The list.
#[derive(Default)]
pub struct Overlay {
    /// What is relied on and changed of each table, by the table's number.
    pub layers: [Layer; Table::COUNT],
    pub(crate) gaps: Gaps,
    /// What becomes of objects in the index.
    pub touched: BTreeMap<Oid, Touch>,
    /// Whether there were settings of the index at the first look.
    pub(crate) settings: Option<bool>,
    /// Whether anything was read-only then.
    pub(crate) read_only: Option<bool>,
    /// Files that go with segments: orphans until it is seen that nobody has them open.
    pub orphans: Vec<(Oid, Vec<u8>)>,
    /// Other objects that go: what is open of them by then is an orphan.
    pub gone: Vec<(Oid, Vec<u8>)>,
    /// Extents of rows from below that the list removes.
    pub released: Vec<(Extent, Oid)>,
    /// By how many groups more, of each group in which names change.
    pub names_changed: BTreeMap<Gid, i32>,
    /// Reservations that rows of the list point to.
    pub adopted: Vec<Reserved>,
    /// Reservations whose rows the list has removed again.
    pub orphaned: Vec<Reserved>,
    /// The last transaction of which the guards are known to hold: that of the first look, then
    /// those of this batch's own helpers (new ids, new keys, reserved space) that followed it.
    pub holds_at: Option<u64>,
    /// Whether an operation has ended half-way in the list: nothing of it may be kept.
    pub torn: bool,
}

impl Overlay {
    /// The list on top of the catalog, for an operation: what it reads becomes a guard.
    pub fn on<'a>(&'a mut self, catalog: &'a Catalog) -> Layered<'a> {
        Layered { below: Below::Catalog(catalog), over: self, guarding: true }
    }

    /// The same for a look-up, which relies on nothing.
    pub fn look<'a>(&'a mut self, catalog: &'a Catalog) -> Layered<'a> {
        Layered { below: Below::Catalog(catalog), over: self, guarding: false }
    }

    /// The same for a look-up that has a snapshot.
    pub fn look_at<'a>(&'a mut self, txn: &'a ReadTxn<'a>) -> Layered<'a> {
        Layered { below: Below::Given(txn), over: self, guarding: false }
    }

    /// Whether the list would change anything.
    pub fn changes_something(&self) -> bool {
        let changes = |layer: &Layer| layer.in_order().any(|row| row.change.is_some());
        self.layers.iter().any(changes) || !self.adopted.is_empty() || !self.orphaned.is_empty()
    }

    /// Whether the list itself makes this row.
    pub fn makes(&self, table: Table, key: &[u8]) -> bool {
        matches!(self.layers[table as usize].change(key), Some(Change::Put(_)))
    }

    /// The bytes that the list will put into the catalog, about.
    pub fn bytes_put(&self) -> u64 {
        self.layers.iter().map(Layer::bytes_put).sum()
    }

    /// How many rows the list will put into each table.
    pub fn rows_put(&self) -> impl Iterator<Item = (Table, u64)> {
        Table::ALL.into_iter().map(|table| (table, self.layers[table as usize].rows_put()))
    }

    /// A commit of this thread that no guard can notice.
    pub fn helped(&mut self, id: u64) {
        if self.holds_at.is_some_and(|last| last + 1 == id) {
            self.holds_at = Some(id);
        }
    }

    /// The reservations of the list, which go back where it is not applied.
    pub fn reservations(&self) -> impl Iterator<Item = Reserved> {
        self.adopted.iter().chain(&self.orphaned).copied()
    }
}

/// A list on top of the catalog.
pub struct Layered<'a> {
    below: Below<'a>,
    over: &'a mut Overlay,
    guarding: bool,
}

impl Layered<'_> {
    fn layer(&mut self, table: Table) -> &mut Layer {
        &mut self.over.layers[table as usize]
    }

    fn below(&mut self) -> Result<&Txn<'_>> {
        snapshot(&mut self.below, &mut self.over.holds_at, self.guarding).map(|txn| txn.rows())
    }

    fn guard(&mut self, table: Table, key: &[u8], guard: Guard<&[u8]>) {
        if self.guarding {
            self.layer(table).guard(key, guard);
        }
    }

    /// Whether a name is known to be free without a look.
    fn is_free(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        if !matches!(table, Table::Names) {
            return Ok(false);
        }
        let shown = self.over.gaps.show_free(key, &self.below)?;
        if let (Some(id), true) = (shown, self.guarding) {
            self.over.holds_at.get_or_insert(id);
        }
        Ok(shown.is_some())
    }
}

/// The snapshot, to read what the list does not know; the first that an operation uses is the one
/// that the guards hold at.
fn snapshot<'b, 'a>(
    below: &'b mut Below<'a>,
    holds_at: &mut Option<u64>,
    guarding: bool,
) -> Result<&'b ReadTxn<'a>> {
    let txn = below.txn()?;
    if guarding {
        holds_at.get_or_insert(txn.id());
    }
    Ok(txn)
}

impl Rows for Layered<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        if let RowState::Below | RowState::Something = self.layer(table).seen(key) {
            if self.is_free(table, key)? {
                self.guard(table, key, Guard::Absent);
                return Ok(None);
            }
            let txn = snapshot(&mut self.below, &mut self.over.holds_at, self.guarding)?;
            let row = txn.get(table, key)?;
            if row.is_none() && matches!(table, Table::Names) {
                self.over.gaps.note(key, txn)?;
            }
            if !self.guarding {
                return Ok(row.map(|row| Cow::Owned(row.to_vec())));
            }
            let guard = row.map_or(Guard::Absent, Guard::Equals);
            self.over.layers[table as usize].guard(key, guard);
        }
        match self.layer(table).seen(key) {
            RowState::Row(row) => Ok(Some(Cow::Borrowed(row))),
            _ => Ok(None),
        }
    }

    fn glance(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match self.layer(table).seen(key) {
            RowState::Below | RowState::Something => {
                Ok(self.below()?.get(table, key)?.map(|row| Cow::Owned(row.to_vec())))
            }
            RowState::Row(_) | RowState::Nothing => self.get(table, key),
        }
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        match self.layer(table).seen(key) {
            RowState::Row(_) | RowState::Something => Ok(true),
            RowState::Nothing => Ok(false),
            RowState::Below => {
                let there = self.below()?.get(table, key)?;
                let guard = guards::presence(table, there)?;
                self.guard(table, key, guard);
                Ok(guard != Guard::Absent)
            }
        }
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        let mut below_from = from.to_vec();
        let below = loop {
            let below = self.below()?.first_from(table, &below_from)?;
            let changed = |key: &[u8]| self.over.layers[table as usize].change(key).is_some();
            match &below {
                Some((key, _)) if changed(key) => {
                    below_from.clone_from(key);
                    below_from.push(0);
                }
                _ => break below,
            }
        };
        // Only what comes before the catalog's row matters: removed rows beyond are not walked.
        let end = below.as_ref().map(|(key, _)| key.as_slice());
        let above = self.layer(table).first_put(from, end);
        Ok(above.or(below))
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        if let Some(known) = self.over.settings.filter(|_| self.guarding) {
            return Ok(known);
        }
        let there = self.below()?.has_index_settings()?;
        let there = there || self.layer(Table::IndexSettings).first_put(&[], None).is_some();
        if self.guarding {
            self.over.settings = Some(there);
        }
        Ok(there)
    }

    fn has_read_only(&mut self) -> Result<bool> {
        let known = match self.over.read_only.filter(|_| self.guarding) {
            Some(known) => known,
            None => self.below()?.has_read_only()?,
        };
        if self.guarding {
            self.over.read_only = Some(known);
        }
        Ok(known || !self.layer(Table::ReadOnly).is_empty())
    }

    fn is_list(&self) -> bool {
        true
    }
}

impl RowsMut for Layered<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.layer(table).put(key, |bytes| bytes.extend(value));
        Ok(())
    }

    fn put_new(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        // As `put_if_absent`, whose `get`, guard and `put` each look for the key in the list.
        let unseen = self.guarding && self.layer(table).seen(key) == RowState::Below;
        if unseen && self.is_free(table, key)? {
            self.layer(table).put_unseen(key, value);
            return Ok(None);
        }
        put_if_absent(self, table, key, value)
    }

    fn put_record(&mut self, table: Table, key: &[u8], record: &Record<'_>) -> Result<()> {
        self.layer(table).put(key, |bytes| record.encode_to(bytes));
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.layer(table).remove(key);
        Ok(())
    }

    fn release(&mut self, extent: Extent, of: Oid) -> Result<()> {
        match self.over.adopted.iter().position(|reserved| reserved.extent == extent) {
            Some(place) => {
                let reserved = self.over.adopted.swap_remove(place);
                self.over.orphaned.push(reserved);
            }
            None => self.over.released.push((extent, of)),
        }
        Ok(())
    }

    fn is_open(&mut self, oid: Oid, record: &Record<'_>) -> Result<bool> {
        if matches!(record.stored, Stored::Segmented(_)) {
            return Ok(true);
        }
        let of_list = |extent| self.over.adopted.iter().any(|reserved| reserved.extent == extent);
        if !record.has_parts() && !record.extent().is_some_and(of_list) {
            self.over.gone.push((oid, links::nameless(record).encode()));
        }
        Ok(false)
    }

    fn orphan(&mut self, oid: Oid, record: &Record<'_>) -> Result<()> {
        self.over.orphans.push((oid, record.encode()));
        Ok(())
    }

    fn adopt(&mut self, reserved: Reserved) -> Result<()> {
        self.over.adopted.push(reserved);
        Ok(())
    }

    fn names_changed(&mut self, gid: Gid, groups: i32) -> Result<()> {
        *self.over.names_changed.entry(gid).or_default() += groups;
        Ok(())
    }

    fn index(&mut self, oid: Oid, touch: Touch) -> Result<()> {
        match self.over.touched.entry(oid) {
            Entry::Vacant(entry) => {
                entry.insert(touch);
            }
            Entry::Occupied(mut entry) => match entry.get().then(touch) {
                Some(both) => {
                    entry.insert(both);
                }
                None => {
                    entry.remove();
                }
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
