//! The commit: the one place where a realm changes.
//!
//! *The commit point is LMDB's: an object exists if and only if its row is committed; bytes that
//! no row points to are free.* `Core::transact` reads as the protocol does. Two steps come before
//! it and are named here because the order matters: bulk data is written into reserved space and
//! flushed first, outside the writer lock (P1, `space::reserve` and
//! `RealmAllocation::publish`); and what follows it, ending a reservation's claim, needs no lock.
//!
//! `change` may run more than once: when the catalog has too few allocated pages left for the rows
//! so far (P5), the transaction is dropped, the catalog is extended, and it runs again. It touches
//! nothing but the rows, so that is invisible. On error nothing has changed.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::realm::{index, snapshot, vacant};

use crate::batch;
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::holders::who_keeps_pages;
use crate::realm::precondition::Precondition;
use crate::realm::recent::CommitFacts;
use engram_base::clock;
use engram_base::error::{Error, Kind, Result};
use engram_base::faults::step;
use engram_base::id::{Gid, Oid, id_key, id_of_key};
use engram_base::mutex::lock;
use engram_base::telemetry::{event, operation};
use engram_catalog::meta::meta_u64;
use engram_catalog::rows::{Row, Rows};
use engram_catalog::{Headroom, Table, WriteTxn};
use engram_index::Waiting;
use engram_index::directory::Finder;
use engram_index::tail::{self, NewInTail};
use engram_ops::overlay::Overlay;
use engram_ops::overlay::layer::Change;
use engram_ops::rows_mut::{Reserved, RowsMut};
use engram_ops::{group_times, links, marks};
use engram_records::extent::Extent;
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::object::Record;
use engram_space::extent::{FreedOf, end_reservation, freed_row};
use engram_space::lease::Lease;

/// After so many new objects, one commit each, a process looks how long the tail has become.
const SPANS_COUNTED_EACH: u64 = 32;

/// The rows of a write transaction, and what follows from them for the space accounts.
pub struct Changes<'env> {
    core: &'env Core,
    inside: &'env Inside<'env>,
    txn: WriteTxn<'env>,
    /// By how much the bytes in use change.
    used: i64,
    /// By how much the objects that are not indexed become more.
    unindexed: i64,
    /// How many sealed positions have died.
    died: u64,
    /// Whether tail or queue were touched.
    touched: bool,
    /// How many objects came, changed or went.
    objects: u64,
    /// Whether the whole tail is to be counted.
    count_tail: bool,
    /// Where what goes is sealed.
    finder: Finder,
    /// Where what comes is in the tail.
    new: NewInTail,
    /// The group that was last found to be there.
    group: Option<Gid>,
    /// Whether members are on their way to another realm, so that each change is asked for.
    moving: bool,
    /// The bytes that it frees.
    freed: u64,
}

/// What a commit is for, which says what follows from one that is uncertain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitPurpose {
    /// It is the caller's change.
    Change,
    /// It prepares a change, which a commit of its own follows.
    Preparation,
    /// Nobody asked for it: it ends no snapshot of anybody's for its rows.
    Aside,
}

impl Core {
    /// Runs an operation on this thread's batch, if it runs one here, or else in one commit, if
    /// what the operation relies on holds there. It may run more than once.
    ///
    /// On error nothing is visible; in a batch, what the operation refuses before its first change
    /// leaves the list as it was.
    pub(crate) fn write<T>(
        self: &Arc<Self>,
        inside: &Inside<'_>,
        headroom: Headroom,
        precondition: Option<&Precondition>,
        mut operation: impl FnMut(&mut dyn RowsMut) -> Result<T>,
    ) -> Result<T> {
        if let Some(done) = batch::change(self, inside.catalog(), precondition, &mut operation)? {
            return Ok(done);
        }
        let change = |rows: &mut Changes<'_>| operation(rows);
        let done = self.transact(inside, headroom, precondition, CommitPurpose::Change, change)?;
        step!("write.committed");
        after_commit(self, inside);
        Ok(done)
    }

    /// Runs `change` in one write transaction, and commits it.
    ///
    /// On error nothing is visible to a process that has the realm open, and nothing has changed;
    /// but after [`Kind::CommitUncertain`] the change may be there once the realm is opened again.
    pub fn commit<T>(
        &self,
        inside: &Inside<'_>,
        headroom: Headroom,
        change: impl FnMut(&mut Changes<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact(inside, headroom, None, CommitPurpose::Change, change)
    }

    /// The same for a change that relies on something: where that does not hold any more, the
    /// change is not made, and the error says that it has moved.
    pub fn commit_if<T>(
        &self,
        inside: &Inside<'_>,
        headroom: Headroom,
        precondition: Option<&Precondition>,
        change: impl FnMut(&mut Changes<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact(inside, headroom, precondition, CommitPurpose::Change, change)
    }

    /// The same for a commit that prepares what the caller asked for, by space, ids or keys, and
    /// which the caller's own commit follows. On any error nothing of that is there.
    pub(crate) fn prepare<T>(
        &self,
        inside: &Inside<'_>,
        headroom: Headroom,
        change: impl FnMut(&mut Changes<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact(inside, headroom, None, CommitPurpose::Preparation, change)
    }

    /// The same for a commit that nobody asked for, and that is left where the catalog has no room.
    pub(crate) fn aside<T>(
        &self,
        inside: &Inside<'_>,
        change: impl FnMut(&mut Changes<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact(inside, Headroom::Relief, None, CommitPurpose::Aside, change)
    }

    /// The commit itself.
    fn transact<T>(
        &self,
        inside: &Inside<'_>,
        headroom: Headroom,
        precondition: Option<&Precondition>,
        purpose: CommitPurpose,
        mut change: impl FnMut(&mut Changes<'_>) -> Result<T>,
    ) -> Result<T> {
        let _operation = operation!(TRACE, "commit");
        let catalog = inside.catalog();
        let mut called_in = false;
        loop {
            // poisoned? and begin: `write` waits for the writer lock, then looks at the mark.
            let mut rows = Changes::new(self, inside, catalog.write(headroom)?);
            step!("commit.begun");
            // presence: what is committed to files without names is nobody's.
            self.presence.check(self, inside)?;
            // precondition: what a look has seen is so still, now that nobody else can change it.
            Precondition::check(precondition, &mut rows)?;
            // moves: from here on, what is on its way to another realm is refused to this change.
            rows.watch_moves()?;
            // rows, and what follows from them.
            let changed = change(&mut rows).and_then(|value| rows.write_accounts().map(|()| value));
            match (changed, rows.txn.short_of()) {
                (_, Some(pages)) => {
                    drop(rows);
                    step!("commit.short");
                    let how = (headroom, purpose);
                    make_room(self, inside, how, pages, &mut called_in)?;
                }
                (Err(error), None) => return Err(error),
                (Ok(value), None) => {
                    // commit: durable here where the realm is; visible to everyone from here on.
                    let changed = rows.txn.is_changed();
                    let (waiting, facts) = (rows.waiting()?, rows.facts());
                    let (died, freed) = (rows.died, rows.freed);
                    step!("commit.changed");
                    let id = rows.txn.commit().map_err(|error| after_failure(error, purpose))?;
                    step!("commit.committed");
                    self.index.state.note(waiting, died);
                    if freed > 0 {
                        self.space.freed.store(true, Ordering::Relaxed);
                    }
                    // A transaction without changes has no id: the next one gets it.
                    if changed {
                        self.recent.after(id, facts);
                        batch::helped(self, id);
                    }
                    return Ok(value);
                }
            }
        }
    }
}

/// What follows a commit of a user's, and is nobody's errand: what it has freed goes back to a
/// filesystem that is full, and the index is kept.
pub fn after_commit(core: &Core, inside: &Inside<'_>) {
    vacant::after_freeing(core, inside);
    index::after_commit(core, inside);
}

/// Has the catalog grow by so many pages; once, what snapshots keep is asked back instead.
#[cold]
fn make_room(
    core: &Core,
    inside: &Inside<'_>,
    how: (Headroom, CommitPurpose),
    pages: u64,
    called_in: &mut bool,
) -> Result<()> {
    event!(DEBUG, "the catalog has to grow", pages);
    snapshot::ask_holders(core, inside)?;
    let Err(error) = inside.catalog().extend(pages) else { return Ok(()) };
    // What gives space back may not need this itself: it is a commit of the other kind.
    if error.kind() == Kind::PoolFull
        && how.0 == Headroom::Normal
        && vacant::vacate_all(core, inside).is_ok_and(|bytes| bytes > 0)
    {
        return Ok(());
    }
    // A change that gives space back goes before a snapshot that somebody only looks at.
    let relief = error.kind() == Kind::PoolFull
        && how.0 == Headroom::Relief
        && how.1 != CommitPurpose::Aside;
    if relief && !std::mem::replace(called_in, true) {
        return snapshot::call_in_snapshots(core, inside);
    }
    Err(no_rows(core, inside, &error))
}

/// The error of a commit that failed: of an uncertain one, with what follows for its purpose.
#[cold]
fn after_failure(error: Error, purpose: CommitPurpose) -> Error {
    let (kind, advice) = match purpose {
        _ if error.kind() != Kind::CommitUncertain => return error,
        CommitPurpose::Change => (
            Kind::CommitUncertain,
            "the change may be durable or not: close the pool, run `engram verify`, look whether \
             the change is there, and repeat it if it is not",
        ),
        CommitPurpose::Preparation | CommitPurpose::Aside => (
            Kind::Os,
            "it was to prepare the change, which is not there: close the pool, run `engram \
             verify`, and repeat the change",
        ),
    };
    Error::new(kind, format!("{}; {advice}", error.message()))
}

/// The error of a catalog that cannot grow.
fn no_rows(core: &Core, inside: &Inside<'_>, error: &Error) -> Error {
    let place = core.setup.pool.display();
    let keeps = who_keeps_pages(inside).unwrap_or_default();
    let advice = match keeps {
        Some(who) => format!("{who}; end that, delete some objects, or free space there"),
        None => {
            "delete some objects (small ones give the catalog room), or free space there".to_owned()
        }
    };
    Error::new(
        error.kind(),
        format!(
            "the catalog of {:?} in {place} cannot grow: {error}; {advice}",
            core.setup.namespace
        ),
    )
}

impl<'env> Changes<'env> {
    fn new(core: &'env Core, inside: &'env Inside<'env>, txn: WriteTxn<'env>) -> Self {
        let facts = core.recent.before(txn.id());
        Changes {
            core,
            inside,
            txn,
            used: 0,
            unindexed: 0,
            died: 0,
            touched: false,
            objects: 0,
            count_tail: false,
            finder: Finder::default(),
            new: NewInTail::knowing(facts.range),
            group: facts.group,
            moving: false,
            freed: 0,
        }
    }

    /// Sees whether anything is on its way to another realm. The first commit since an opening
    /// asks for the tables, too, that look-ups of files ask for.
    fn watch_moves(&mut self) -> Result<()> {
        if !self.txn.knows_empty(Table::Transfers) {
            self.txn.is_empty(Table::Links)?;
            self.txn.is_empty(Table::Orphans)?;
        }
        self.moving = !self.txn.is_empty(Table::Transfers)?;
        Ok(())
    }

    /// Lets this transaction change members that are on their way: it is the move itself.
    pub fn moves(&mut self) {
        self.moving = false;
    }

    /// Refuses to change a member that is on its way to another realm, and a name in such a group.
    fn refuse_leaving(&mut self, table: Table, key: &[u8]) -> Result<()> {
        use Table::{Chunks, Groups, Names, Objects};
        if !self.moving || !matches!(table, Objects | Groups | Names | Chunks) {
            return Ok(());
        }
        let id = key.first_chunk().copied().map(u64::from_be_bytes);
        match id {
            Some(id) => marks::refuse_leaving(self, id),
            _ => Ok(()),
        }
    }

    /// What tail and queue have, if that changed. What others have added to the tail is counted now
    /// and then, by commits that add to it themselves.
    fn waiting(&self) -> Result<Option<Waiting>> {
        if !self.touched {
            return Ok(None);
        }
        let rows = |table| if self.txn.is_empty(table)? { Ok(0) } else { self.txn.entries(table) };
        let (tail, queued) = (rows(Table::IndexTail)?, rows(Table::Queue)?);
        let span = self.new.span();
        let count = match self.new.count() {
            0 => self.count_tail,
            1 => self.count_tail || span.is_multiple_of(SPANS_COUNTED_EACH),
            _ => true,
        };
        let spans = count.then(|| tail::spans(&self.txn)).transpose()?;
        let own_span = (self.new.count() > 0 || spans.is_some()).then_some(span);
        let touched = self.objects;
        Ok(Some(Waiting { tail, own_span, spans, queued, touched }))
    }

    /// What will be so after the commit.
    fn facts(&self) -> CommitFacts {
        // A range that was looked up may have gone since, with what has been sealed.
        let range = self.new.range().filter(|_| self.new.count() > 0);
        let changed_groups = self.txn.has_changed(Table::Groups);
        let group = self.group.filter(|_| !changed_groups);
        CommitFacts { range, group, changed_groups }
    }

    /// Notes that the tail or the queue changes as a whole.
    pub(crate) fn touch(&mut self) {
        (self.touched, self.count_tail) = (true, true);
    }

    /// The transaction itself, for the space accounts.
    pub fn txn(&mut self) -> &mut WriteTxn<'env> {
        &mut self.txn
    }

    /// Applies a batch's list: guards, rows, space. Runs again when the catalog has to grow.
    pub(crate) fn apply(&mut self, list: &Overlay) -> Result<()> {
        if list.holds_at.is_some_and(|last| self.txn.id() != last + 1) {
            list.check_guards(self)?;
        }
        // Before the rows: what is new has the greatest ids of its block then.
        list.touched.iter().try_for_each(|(oid, touch)| self.index(*oid, *touch))?;
        step!("batch.indexed");
        for table in Table::ALL {
            for row in list.layers[table as usize].in_order() {
                match row.change {
                    Some(Change::Put(value)) => self.put(table, row.key, value)?,
                    Some(Change::Remove) => self.remove(table, row.key)?,
                    None => {}
                }
            }
        }
        let has_chunks = !self.txn.is_empty(Table::Chunks)?;
        list.check_emptied(self, has_chunks)?;
        step!("batch.rows");
        list.adopted.iter().try_for_each(|reserved| self.adopt(*reserved))?;
        step!("batch.adopted");
        list.orphans.iter().try_for_each(|(oid, row)| self.orphan(*oid, &Record::parse(row)?))?;
        let mut open = HashSet::new();
        for (oid, row) in &list.gone {
            let record = Record::parse(row)?;
            if self.is_open(*oid, &record)? {
                self.orphan(*oid, &record)?;
                open.insert(*oid);
            }
        }
        let released = list.released.iter().filter(|(_, of)| !open.contains(of));
        released.into_iter().try_for_each(|(extent, of)| self.release(*extent, *of))?;
        list.names_changed
            .iter()
            .try_for_each(|(gid, groups)| self.names_changed(*gid, *groups))?;
        for reserved in &list.orphaned {
            end_reservation(&mut self.txn, reserved.lease, reserved.extent)?;
            freed_row(&mut self.txn, reserved.extent, FreedOf::Nothing)?;
        }
        Ok(())
    }

    /// Writes the accounts that changed.
    fn write_accounts(&mut self) -> Result<()> {
        let used = std::mem::take(&mut self.used);
        self.account(super::space::USED, used)?;
        let unindexed = std::mem::take(&mut self.unindexed);
        self.account(engram_index::UNINDEXED, unindexed)
    }

    fn account(&mut self, key: &[u8], change: i64) -> Result<()> {
        if change == 0 {
            return Ok(());
        }
        let before = meta_u64(self.txn.get(Table::Meta, key)?)?;
        let now = before.saturating_add_signed(change);
        self.txn.put(Table::Meta, key, &now.to_le_bytes())
    }
}

impl Rows for Changes<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.txn.get(table, key)?.map(Cow::Borrowed))
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        if table != Table::Groups {
            return self.txn.rows().has(table, key);
        }
        let gid = id_of_key(key)?;
        if self.group == Some(gid) && !self.txn.has_changed(Table::Groups) {
            debug_assert!(self.txn.rows().has(table, key)?, "group {gid:#x} is not there");
            return Ok(true);
        }
        let there = self.txn.rows().has(table, key)?;
        self.group = there.then_some(gid);
        Ok(there)
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        self.txn.rows().first_from(table, from)
    }

    fn has_rows(&mut self, table: Table) -> Result<bool> {
        Ok(!self.txn.is_empty(table)?)
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        self.has_rows(Table::IndexSettings)
    }

    fn has_read_only(&mut self) -> Result<bool> {
        self.has_rows(Table::ReadOnly)
    }
}

impl RowsMut for Changes<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.refuse_leaving(table, key)?;
        self.txn.put(table, key, value)
    }

    fn put_new(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.refuse_leaving(table, key)?;
        self.txn.put_new(table, key, value)
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<()> {
        if table != Table::Names {
            self.refuse_leaving(table, key)?;
        }
        self.txn.delete(table, key).map(|_| ())
    }

    fn release(&mut self, extent: Extent, of: Oid) -> Result<()> {
        self.used -= extent.len as i64;
        self.freed += extent.len;
        freed_row(&mut self.txn, extent, FreedOf::Gone(of))
    }

    fn cut(&mut self, extent: Extent, of: Oid) -> Result<()> {
        self.used -= extent.len as i64;
        self.freed += extent.len;
        freed_row(&mut self.txn, extent, FreedOf::Cut(of))
    }

    fn names_changed(&mut self, gid: Gid, groups: i32) -> Result<()> {
        if self.txn.is_empty(Table::GroupTimes)? {
            return Ok(());
        }
        let Some(times) = group_times::of(self, gid)? else { return Ok(()) };
        let now = clock::kept(SystemTime::now())?;
        self.txn.put(Table::GroupTimes, &id_key(gid), &times.after(now, groups).to_row())
    }

    fn is_open(&mut self, oid: Oid, record: &Record<'_>) -> Result<bool> {
        // A process that lists it from now on sees this, and looks once more (`files::open_file`).
        self.inside.catalog().growth().set_removing(self.txn.id());
        let looks = links::is_file(record);
        if record.has_parts() && !looks {
            return Ok(false);
        }
        let inside = self.inside;
        let mut peers = lock(&self.core.space.peers);
        let epoch = || inside.catalog().growth().lease_epoch();
        let own = inside.own_leases().map(Lease::file);
        peers.may_open(&self.core.setup.leases(), epoch, inside.lease().id(), &own, oid, looks)
    }

    fn orphan(&mut self, oid: Oid, record: &Record<'_>) -> Result<()> {
        let row = links::orphan_row(self.txn.id(), record);
        self.txn.put(Table::Orphans, &id_key(oid), &row)
    }

    fn adopt(&mut self, reserved: Reserved) -> Result<()> {
        self.used += reserved.extent.len as i64;
        end_reservation(&mut self.txn, reserved.lease, reserved.extent)
    }

    fn index(&mut self, oid: Oid, touch: Touch) -> Result<()> {
        match touch {
            Touch::New(IndexMode::None) => self.unindexed += 1,
            Touch::Gone(IndexMode::None) => self.unindexed -= 1,
            _ => {}
        }
        (self.touched, self.objects) = (true, self.objects + 1);
        self.died += u64::from(engram_index::touched(
            &mut self.txn,
            &mut self.finder,
            &mut self.new,
            oid,
            touch,
        )?);
        Ok(())
    }
}
