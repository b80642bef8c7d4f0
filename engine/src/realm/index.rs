//! The index, as a realm's handle has it: settings, maintenance, the queue, figures.
//!
//! Maintenance runs after commits that leave work, in transactions of its own, and never while
//! this thread runs a batch. It is nobody's errand: what goes wrong in it is left for the next
//! time, and no put fails for it.

use crate::batch;
use crate::catalog::{Headroom, Table};
use crate::error::Result;
use crate::fail;
use crate::faults::step;
use crate::id::{Gid, Member, Oid, id_key, split_name_key};
use crate::index::maintain::{self, Step};
use crate::index::mode_cache;
use crate::index::{IndexMode, IndexSettings, IndexStats, Touch, queue, settings, stats};
use crate::object::Record;
use crate::realm::Realm;
use crate::realm::core::{Core, Inside};
use crate::rows::{Rows, RowsMut, Snapshot};

/// Steps that are taken after one commit, besides sealing.
const STEPS_AFTER_COMMIT: usize = 2;
/// Objects that one transaction of `reindex` takes.
const REINDEX_PART: usize = 1024;

/// Runs the same change against one transaction, or against this thread's list.
macro_rules! change {
    ($core:expr, $inside:expr, |$rows:ident| $body:expr) => {{
        match batch::change($core, $inside.catalog(), None, |$rows| $body)? {
            Some(done) => Ok(done),
            None => $core.commit($inside, Headroom::Normal, |$rows| $body),
        }
    }};
}

impl Realm {
    /// Sets how objects that will be stored below a group are indexed; what is left out is up to
    /// the group above. The root's settings are the realm's.
    pub fn set_index_settings(&self, group: Gid, settings: &IndexSettings) -> Result<()> {
        let core = self.writable()?;
        settings.check()?;
        let inside = &core.enter()?;
        let row = settings.encode();
        change!(core, inside, |rows| {
            if !rows.has(Table::Groups, &id_key(group))? {
                fail!(NotFound, "the group {group:#x} was deleted: open it again by its path");
            }
            mode_cache::changed(rows)?;
            if !row.is_empty() {
                rows.put(Table::IndexSettings, &id_key(group), &row)
            } else if rows.has(Table::IndexSettings, &id_key(group))? {
                rows.remove(Table::IndexSettings, &id_key(group))
            } else {
                Ok(())
            }
        })?;
        if group == self.root() {
            let limits = settings.clone().effective();
            core.index.set_limits(limits.tail_rows, limits.queue_max);
        }
        Ok(())
    }

    /// The settings that a group has itself.
    pub fn index_settings(&self, group: Gid) -> Result<IndexSettings> {
        let core = self.readable()?;
        let inside = core.enter()?;
        if self.at().is_none() {
            let own = batch::with(core, |overlay| {
                settings::own(&mut overlay.look(inside.catalog()), group)
            })?;
            if let Some(own) = own {
                return Ok(own.unwrap_or_default());
            }
        }
        let txn = inside.read_at(self.at())?;
        Ok(settings::own(&mut Snapshot(&txn), group)?.unwrap_or_default())
    }

    /// What the index is made of.
    pub fn index_stats(&self) -> Result<IndexStats> {
        let core = self.readable()?;
        let inside = core.enter()?;
        let catalog = inside.catalog().stats()?;
        let read = inside.read_at(self.at())?;
        stats::of(&read, self.root(), &catalog, &|key| core.key_name(&inside, key))
    }

    /// Does all maintenance that is due; how many steps that took. Usually there is no need to:
    /// commits see to it.
    pub fn tend(&self) -> Result<u64> {
        let core = self.writable()?;
        if batch::runs(core) {
            fail!(Busy, "a batch runs in this thread: end it before maintaining the index");
        }
        let inside = &core.enter()?;
        let mut steps = 0;
        while core.tend_once(inside)?.is_some() {
            steps += 1;
        }
        core.index.looked(false, false);
        Ok(steps)
    }

    /// Indexes up to `most` objects that are queued; how many it were.
    pub fn drain_queue(&self, most: u64) -> Result<u64> {
        let core = self.writable()?;
        if batch::runs(core) {
            fail!(Busy, "a batch runs in this thread: end it before draining the queue");
        }
        let inside = &core.enter()?;
        core.drain(inside, most)
    }

    /// Indexes the objects below a group anew, all in all; with a mode, they have it from then on.
    /// How many objects it were.
    pub fn reindex(&self, group: Gid, mode: Option<IndexMode>) -> Result<u64> {
        let core = self.writable()?;
        if batch::runs(core) {
            fail!(Busy, "a batch runs in this thread: end it before indexing anew");
        }
        let inside = &core.enter()?;
        let (mut groups, mut count) = (vec![group], 0);
        while let Some(group) = groups.pop() {
            let mut from = group.to_be_bytes().to_vec();
            loop {
                let (objects, inner, next) = members_from(inside, group, &from)?;
                groups.extend(inner);
                core.commit(inside, Headroom::Normal, |rows| {
                    objects.iter().try_for_each(|oid| reindex_one(rows, *oid, mode))
                })?;
                count += objects.len() as u64;
                core.after_commit(inside);
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        Ok(count)
    }
}

/// Objects and groups of a group from a key of `names` on, and the key to go on from.
type Part = (Vec<Oid>, Vec<Gid>, Option<Vec<u8>>);

fn members_from(inside: &Inside<'_>, group: Gid, from: &[u8]) -> Result<Part> {
    let txn = inside.read()?;
    let mut cursor = txn.seek(Table::Names, from)?;
    let (mut objects, mut groups) = (Vec::new(), Vec::new());
    while let Some((key, row)) = cursor.next()? {
        if split_name_key(key)?.0 != group {
            break;
        }
        if objects.len() == REINDEX_PART {
            return Ok((objects, groups, Some(key.to_vec())));
        }
        match Member::from_row(row)? {
            Member::Object(oid) => objects.push(oid),
            Member::Group(gid) => groups.push(gid),
        }
    }
    Ok((objects, groups, None))
}

fn reindex_one(rows: &mut impl RowsMut, oid: Oid, mode: Option<IndexMode>) -> Result<()> {
    let Some(row) = rows.get(Table::Objects, &id_key(oid))?.map(std::borrow::Cow::into_owned)
    else {
        return Ok(()); // deleted meanwhile
    };
    let record = Record::parse(&row)?;
    let (before, after) = (record.index, mode.unwrap_or(record.index));
    if before == after {
        return rows.index(oid, Touch::Changed(after));
    }
    rows.put_record(Table::Objects, &id_key(oid), &Record { index: after, ..record })?;
    rows.index(oid, Touch::Gone(before))?;
    rows.index(oid, Touch::New(after))
}

/// Runs work that is nobody's errand: a fault in it must not unwind into who happens to do it. Its
/// transaction was given up then, and has changed nothing.
pub(crate) fn quietly<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(_) => fail!(Corrupt, "maintenance of the index met a fault of its own"),
    }
}

impl Core {
    /// After a commit of a user's: does a part of what is due, if this thread may.
    pub(crate) fn after_commit(&self, inside: &Inside<'_>) {
        if self.index.queued() > 0 {
            if self.index.is_queue_full() {
                let _ = quietly(|| self.drain(inside, queue::PART));
            }
            self.ring();
        }
        if !self.index.is_due() {
            return;
        }
        let Some(_at_work) = self.index.begin() else { return };
        let done = quietly(|| self.tend_some(inside));
        self.index.looked(done.is_err(), matches!(done, Ok(true)));
    }

    /// Wakes who indexes what is queued.
    pub(crate) fn ring(&self) {
        if let Some(me) = self.me.get() {
            self.drainer.ring(me);
        }
    }

    /// Wakes it if anything is queued: for who opens the realm to work with it.
    pub(crate) fn ring_if_queued(&self) -> Result<()> {
        let inside = self.enter()?;
        if inside.read()?.entries(Table::Queue)? > 0 {
            self.ring();
        }
        Ok(())
    }

    /// Takes some steps; whether more may be due.
    fn tend_some(&self, inside: &Inside<'_>) -> Result<bool> {
        let mut left = STEPS_AFTER_COMMIT;
        while left > 0 {
            match self.tend_once(inside)? {
                Some(Step::Sealed(_)) => {}
                Some(_) => left -= 1,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Indexes what is queued, and does all maintenance that is due.
    pub(crate) fn tend_all(&self, inside: &Inside<'_>) -> Result<()> {
        self.drain(inside, u64::MAX)?;
        while self.tend_once(inside)?.is_some() {}
        Ok(())
    }

    /// Takes one step, in a transaction of its own.
    fn tend_once(&self, inside: &Inside<'_>) -> Result<Option<Step>> {
        let root = self.setup.root();
        let hints = self.index.hints();
        let step = self.commit(inside, Headroom::Normal, |rows| {
            let (settings, _) = settings::at(rows, root)?;
            let limits = settings.effective();
            self.index.set_limits(limits.tail_rows, limits.queue_max);
            match maintain::seal_tail(rows, root, false)? {
                Some(step) => Ok(Some(step)),
                None => maintain::step(rows, root, &hints),
            }
        })?;
        step!("index.stepped");
        if step.is_none() {
            self.index.settle(&hints);
        }
        Ok(step)
    }

    /// Indexes up to `most` objects of the queue, some in each transaction.
    pub(crate) fn drain(&self, inside: &Inside<'_>, most: u64) -> Result<u64> {
        let root = self.setup.root();
        let mut done = 0;
        while done < most {
            let part = queue::PART.min(most - done);
            let drained =
                self.commit(inside, Headroom::Normal, |rows| queue::drain(rows, root, part))?;
            step!("queue.drained");
            done += drained;
            if drained < part {
                break;
            }
        }
        Ok(done)
    }
}
