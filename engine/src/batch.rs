//! Batches: many operations, one commit.
//!
//! A batch is a list of row changes under construction. Each operation runs against the overlay:
//! what it reads comes from the list first and from a snapshot of the catalog below, what it
//! writes goes into the list. What it read from below is a *guard*. On exit one transaction checks
//! the guards and applies the list: if any row that an operation relied on has changed meanwhile,
//! nothing is applied, and that is `BusyError`. If nobody has committed since the batch's first
//! look, the guards hold without looking.
//!
//! Bulk data goes into reserved space as the batch runs; the list adopts it. A batch belongs to
//! its thread and to one realm; inner batches join it. A forked child does not inherit it.
//! What guards hold against moves between realms: see `guards`.

mod below;
mod guards;
mod layer;
mod peek;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use self::below::{Below, Gaps};
pub(crate) use self::guards::{change, rely_on_all_moves};
use self::layer::{Change, Guard, Layer, Seen};
pub(crate) use self::peek::Peek;
use crate::catalog::{Catalog, ReadTxn, Table, forks};
use crate::error::{Kind, Result};
use crate::extent::{Extent, end_reservation, freed_row};
use crate::fail;
use crate::faults::step;
use crate::id::Oid;
use crate::index::Touch;
use crate::object::Record;
use crate::realm::{Changes, Core};
use crate::rows::{Reserved, Row, Rows, RowsMut, Snapshot};

/// The list.
#[derive(Default)]
pub(crate) struct Overlay {
    layers: [Layer; Table::COUNT],
    gaps: Gaps,
    /// What becomes of objects in the index.
    touched: BTreeMap<Oid, Touch>,
    /// Whether there were settings of the index at the first look.
    settings: Option<bool>,
    /// Whether anything was read-only then.
    read_only: Option<bool>,
    /// Extents of rows from below that the list removes.
    released: Vec<Extent>,
    /// Reservations that rows of the list point to.
    adopted: Vec<Reserved>,
    /// Reservations whose rows the list has removed again.
    orphaned: Vec<Reserved>,
    /// The last transaction of which the guards are known to hold: that of the first look, then
    /// those of this batch's own helpers (new ids, new keys, reserved space) that followed it.
    holds_at: Option<u64>,
    /// Whether an operation has ended half-way in the list: nothing of it may be kept.
    torn: bool,
}

/// A batch that is running in a thread.
struct Running {
    core: Arc<Core>,
    /// How many forks lay behind the process it began in: a child has no part in it.
    forks: u64,
    /// Who began it and who joined it, innermost last; `None` for those without a guard.
    holders: Vec<Option<Weak<()>>>,
    failed: bool,
    overlay: Overlay,
    hooks: Hooks,
}

/// What is to be done when the batch has ended, the last first. A forked child does none of it, as
/// the batch is its parent's, nor does a thread that ends within its batch.
struct Hooks {
    forks: u64,
    committed: bool,
    all: Vec<Box<dyn FnOnce(bool)>>,
}

impl Drop for Hooks {
    fn drop(&mut self) {
        let mut hooks = std::mem::take(&mut self.all);
        if self.forks == forks() && RUNNING.try_with(|_| ()).is_ok() {
            while let Some(hook) = hooks.pop() {
                hook(self.committed);
            }
        } else {
            // What they hold may run code when it is dropped, too.
            std::mem::forget(hooks);
        }
    }
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// A batch, as its maker holds it. It belongs to the thread that began it; one that is dropped
/// without an end, wherever that happens, is undone when its thread next looks.
pub struct Batch {
    core: Arc<Core>,
    holder: Arc<()>,
}

impl Batch {
    pub(crate) fn begin(core: &Arc<Core>) -> Result<Self> {
        let holder = Arc::new(());
        begin(core, Some(Arc::downgrade(&holder)))?;
        Ok(Batch { core: Arc::clone(core), holder })
    }

    /// Ends it; the outermost commits.
    ///
    /// On error nothing of the whole batch is visible, and its space has gone back.
    pub fn commit(self) -> Result<()> {
        end(&self.core, Some(&self.holder), true)
    }

    /// Ends it with an error: nothing of the whole batch will be kept.
    pub fn abort(self) -> Result<()> {
        end(&self.core, Some(&self.holder), false)
    }
}

impl Running {
    /// Where this holder stands; without one it is whoever came last.
    fn place_of(&self, holder: Option<&Arc<()>>) -> Option<usize> {
        match holder {
            None => self.holders.len().checked_sub(1),
            Some(holder) => {
                let holder = Arc::downgrade(holder);
                let is_it = |known: &Weak<()>| known.ptr_eq(&holder);
                self.holders.iter().position(|known| known.as_ref().is_some_and(is_it))
            }
        }
    }

    /// Whether somebody has let go of the batch without ending it.
    fn is_abandoned(&self) -> bool {
        self.holders.iter().flatten().any(|holder| holder.strong_count() == 0)
    }
}

/// Undoes a batch that nobody can end any more. Called before an operation enters: giving back
/// what the batch has reserved enters, too.
pub(crate) fn bury() {
    let dead = RUNNING.with_borrow_mut(|slot| {
        let dead =
            slot.as_ref().is_some_and(|running| running.forks != forks() || running.is_abandoned());
        if dead { slot.take() } else { None }
    });
    drop(dead);
}

/// Begins a batch in this thread, or joins the one that runs.
pub(crate) fn begin(core: &Arc<Core>, holder: Option<Weak<()>>) -> Result<()> {
    RUNNING.with_borrow_mut(|slot| {
        discard_inherited(slot);
        match slot {
            Some(running) if Arc::ptr_eq(&running.core, core) => running.holders.push(holder),
            Some(running) => return other_realm(running),
            None => {
                *slot = Some(Running {
                    core: Arc::clone(core),
                    forks: forks(),
                    holders: vec![holder],
                    failed: false,
                    overlay: Overlay::default(),
                    hooks: Hooks { forks: forks(), committed: false, all: Vec::new() },
                });
            }
        }
        Ok(())
    })
}

fn other_realm<T>(running: &Running) -> Result<T> {
    fail!(
        Busy,
        "this thread runs a batch on the {} part of namespace {:?} of {}: a batch covers one scope \
         of one namespace; finish it before touching another",
        running.core.setup.scope.as_str(),
        running.core.setup.namespace,
        running.core.setup.pool.display()
    )
}

fn discard_inherited(slot: &mut Option<Running>) {
    if slot.as_ref().is_some_and(|running| running.forks != forks()) {
        *slot = None;
    }
}

/// Ends the innermost batch. Only the outermost one applies the list, or drops it.
///
/// On error nothing of the batch is visible, and its space has gone back.
pub(crate) fn end(core: &Arc<Core>, holder: Option<&Arc<()>>, keep: bool) -> Result<()> {
    let ended = RUNNING.with_borrow_mut(|slot| {
        discard_inherited(slot);
        // A batch may have gone to another realm of its namespace; its holders know it still.
        let is_it = |running: &Running| {
            Arc::ptr_eq(&running.core, core)
                || (holder.is_some() && running.place_of(holder).is_some())
        };
        let Some(running) = slot.as_mut().filter(|running| is_it(running)) else {
            fail!(
                Busy,
                "no batch on this namespace runs in this thread (or it was begun before a fork)"
            )
        };
        let Some(place) = running.place_of(holder) else {
            fail!(Busy, "this batch was begun in another thread: only that one can end it")
        };
        // One that ends before what joined it cannot know what it would keep.
        running.failed |= !keep || place + 1 < running.holders.len();
        running.holders.remove(place);
        if !running.holders.is_empty() {
            return Ok(None);
        }
        Ok(slot.take())
    })?;
    let Some(mut running) = ended else { return Ok(()) };
    let (core, failed) = (Arc::clone(&running.core), running.failed);
    let overlay = std::mem::take(&mut running.overlay);
    let applied = match (failed, keep) {
        (false, _) => core.apply(&overlay),
        (true, false) => Ok(()),
        (true, true) => inner_failed(),
    };
    if failed || applied.is_err() {
        overlay.give_back(&core);
    } else {
        running.hooks.committed = true;
    }
    applied
}

/// Whether this thread runs a batch, of whatever realm.
pub fn in_batch() -> bool {
    bury();
    RUNNING.with_borrow(Option::is_some)
}

/// Has `hook` called when the batch that this thread runs has ended, if it runs one: with whether
/// it is committed; if not, nothing of it is left by then.
pub fn when_ended(hook: impl FnOnce(bool) + 'static) {
    bury();
    RUNNING.with_borrow_mut(|slot| {
        if let Some(running) = slot {
            running.hooks.all.push(Box::new(hook));
        }
    });
}

/// A thread that ends without ending its batch undoes it.
impl Drop for Running {
    fn drop(&mut self) {
        if self.forks == forks() {
            self.overlay.give_back(&self.core);
        }
    }
}

fn inner_failed() -> Result<()> {
    fail!(
        Busy,
        "an inner batch ended with an error, and a batch is all or nothing: nothing of it was kept"
    )
}

/// Runs `with` on this thread's list, if it runs a batch; `Err` if that is another realm's.
pub(crate) fn with<T>(
    core: &Arc<Core>,
    with: impl FnOnce(&mut Overlay) -> Result<T>,
) -> Result<Option<T>> {
    RUNNING.with_borrow_mut(|slot| {
        if slot.is_none() {
            return Ok(None);
        }
        discard_inherited(slot);
        match slot {
            Some(running) if Arc::ptr_eq(&running.core, core) => {
                let done = with(&mut running.overlay);
                // Damage on media may have stopped an operation half-way in the list.
                running.failed |= done.as_ref().is_err_and(|e| e.kind() == Kind::Corrupt);
                running.failed |= running.overlay.torn;
                done.map(Some)
            }
            Some(running) => other_realm(running),
            None => Ok(None),
        }
    })
}

/// Gives a batch of this thread that has changed nothing yet to another realm; one that has is
/// refused.
pub(crate) fn hand_over(from: &Arc<Core>, to: &Arc<Core>) -> Result<()> {
    RUNNING.with_borrow_mut(|slot| match slot {
        Some(running) if Arc::ptr_eq(&running.core, from) => {
            if running.overlay.changes_something() {
                return other_realm(running);
            }
            running.core = Arc::clone(to);
            running.overlay = Overlay::default();
            Ok(())
        }
        _ => Ok(()),
    })
}

/// Notes a commit that this thread made beside its batch, for nothing that a guard relies on.
pub(crate) fn helped(core: &Core, id: u64) {
    // Where the thread ends without having ended its batch, there is none any more.
    let _ = RUNNING.try_with(|slot| {
        // Borrowed while an operation runs: whatever it commits then is the batch itself.
        if let Ok(mut slot) = slot.try_borrow_mut()
            && let Some(running) = slot.as_mut().filter(|r| std::ptr::eq(&raw const *r.core, core))
        {
            running.overlay.helped(id);
        }
    });
}

/// Whether this thread runs a batch on this realm.
pub(crate) fn runs(core: &Arc<Core>) -> bool {
    RUNNING.with_borrow(|slot| {
        slot.as_ref().is_some_and(|r| Arc::ptr_eq(&r.core, core) && r.forks == forks())
    })
}

impl Overlay {
    /// The list on top of the catalog, for an operation: what it reads becomes a guard.
    pub(crate) fn on<'a>(&'a mut self, catalog: &'a Catalog) -> Layered<'a> {
        Layered { below: Below::Catalog(catalog), over: self, guarding: true }
    }

    /// The same for a look-up, which relies on nothing.
    pub(crate) fn look<'a>(&'a mut self, catalog: &'a Catalog) -> Layered<'a> {
        Layered { below: Below::Catalog(catalog), over: self, guarding: false }
    }

    /// The same for a look-up that has a snapshot.
    pub(crate) fn look_at<'a>(&'a mut self, txn: &'a ReadTxn<'a>) -> Layered<'a> {
        Layered { below: Below::Given(txn), over: self, guarding: false }
    }

    /// Gives back the space that the list has reserved, where the list is not applied.
    fn give_back(&self, core: &Core) {
        for reserved in self.adopted.iter().chain(&self.orphaned) {
            core.give_back(*reserved);
        }
    }

    /// Whether the list would change anything.
    fn changes_something(&self) -> bool {
        let changes = |layer: &Layer| layer.in_order().any(|row| row.change.is_some());
        self.layers.iter().any(changes) || !self.adopted.is_empty() || !self.orphaned.is_empty()
    }

    /// Whether the list itself makes this row.
    pub(crate) fn makes(&self, table: Table, key: &[u8]) -> bool {
        matches!(self.layers[table as usize].change(key), Some(Change::Put(_)))
    }

    /// The bytes that the list will put into the catalog, about.
    pub(crate) fn bytes_put(&self) -> u64 {
        self.layers.iter().map(Layer::bytes_put).sum()
    }

    /// A commit of this thread that no guard can notice.
    fn helped(&mut self, id: u64) {
        if self.holds_at.is_some_and(|last| last + 1 == id) {
            self.holds_at = Some(id);
        }
    }

    /// Applies the list: guards, rows, space. Runs again when the catalog has to grow.
    pub(crate) fn apply(&self, rows: &mut Changes<'_>) -> Result<()> {
        if self.holds_at.is_some_and(|last| rows.txn().id() != last + 1) {
            self.check_guards(rows)?;
        }
        for table in Table::ALL {
            for row in self.layers[table as usize].in_order() {
                match row.change {
                    Some(Change::Put(value)) => rows.put(table, row.key, value)?,
                    Some(Change::Remove) => rows.remove(table, row.key)?,
                    None => {}
                }
            }
        }
        self.check_emptied(rows)?;
        step!("batch.rows");
        self.touched.iter().try_for_each(|(oid, touch)| rows.index(*oid, *touch))?;
        step!("batch.indexed");
        self.adopted.iter().try_for_each(|reserved| rows.adopt(*reserved))?;
        step!("batch.adopted");
        self.released.iter().try_for_each(|extent| rows.release(*extent))?;
        for reserved in &self.orphaned {
            end_reservation(rows.txn(), reserved.lease, reserved.extent)?;
            freed_row(rows.txn(), reserved.extent)?;
        }
        Ok(())
    }
}

/// A list on top of the catalog.
pub(crate) struct Layered<'a> {
    below: Below<'a>,
    over: &'a mut Overlay,
    guarding: bool,
}

impl Layered<'_> {
    fn layer(&mut self, table: Table) -> &mut Layer {
        &mut self.over.layers[table as usize]
    }

    fn below(&mut self) -> Result<Snapshot<'_, '_>> {
        snapshot(&mut self.below, &mut self.over.holds_at, self.guarding).map(Snapshot)
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
        if let Seen::Below | Seen::Something = self.layer(table).seen(key) {
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
            Seen::Row(row) => Ok(Some(Cow::Borrowed(row))),
            _ => Ok(None),
        }
    }

    fn glance(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match self.layer(table).seen(key) {
            Seen::Below | Seen::Something => {
                Ok(self.below()?.0.get(table, key)?.map(|row| Cow::Owned(row.to_vec())))
            }
            Seen::Row(_) | Seen::Nothing => self.get(table, key),
        }
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        match self.layer(table).seen(key) {
            Seen::Row(_) | Seen::Something => Ok(true),
            Seen::Nothing => Ok(false),
            Seen::Below => {
                let there = self.below()?.0.get(table, key)?;
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

    fn put_record(&mut self, table: Table, key: &[u8], record: &Record<'_>) -> Result<()> {
        self.layer(table).put(key, |bytes| record.encode_to(bytes));
        Ok(())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.layer(table).remove(key);
        Ok(())
    }

    fn release(&mut self, extent: Extent) -> Result<()> {
        match self.over.adopted.iter().position(|reserved| reserved.extent == extent) {
            Some(place) => {
                let reserved = self.over.adopted.swap_remove(place);
                self.over.orphaned.push(reserved);
            }
            None => self.over.released.push(extent),
        }
        Ok(())
    }

    fn adopt(&mut self, reserved: Reserved) -> Result<()> {
        self.over.adopted.push(reserved);
        Ok(())
    }
    fn index(&mut self, oid: Oid, touch: Touch) -> Result<()> {
        match self.over.touched.remove(&oid) {
            None => self.over.touched.insert(oid, touch),
            Some(before) => before.then(touch).and_then(|both| self.over.touched.insert(oid, both)),
        };
        Ok(())
    }
}
