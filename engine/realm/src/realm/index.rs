//! The index, as a realm's handle has it: settings, maintenance, the queue, figures.
//!
//! Maintenance runs after commits that leave work, in transactions of its own, and never while
//! this thread runs a batch. It is nobody's errand: work that goes wrong is left for the next time,
//! and no put fails for it. After a commit a thread takes one step, and more only where the commit
//! brought many objects. The rest is done where nobody waits for it: by the caretaker, once nobody
//! has committed for a second ([`settle`]), and by who asks ([`maintain`]). These seal what is left
//! in the tail, too, and so does the last process that closes the realm ([`at_close`]).

use std::sync::Arc;

use crate::batch;
use crate::realm::Realm;
use crate::realm::core::Core;
use crate::realm::dead;
use crate::realm::failure::{self, MaintenanceTask};
use crate::realm::gate::Inside;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, Oid, id_key, id_of_key, split_name_key};
use engram_base::telemetry::operation;
use engram_catalog::{Headroom, Table};
use engram_index::maintain::{self, Step};
use engram_index::{IndexSettings, queue, settings};
use engram_ops::index_modes;
use engram_ops::rows_mut::RowsMut;
use engram_records::index_mode::{IndexMode, Touch};
use engram_records::object::Record;

/// Steps that the caretaker takes in one look.
const STEPS_IN_A_LOOK: usize = 64;
/// Objects that one transaction of `reindex` takes.
const REINDEX_PART: usize = 1024;

/// See [`Realm::set_index_settings`].
pub(super) fn set_index_settings(
    realm: &Realm,
    group: Gid,
    settings: &IndexSettings,
) -> Result<()> {
    let core = realm.writable()?;
    settings.check()?;
    let inside = core.enter()?;
    let (row, mut was) = (settings.encode(), None);
    core.write(&inside, Headroom::Normal, None, |rows| {
        if !rows.has(Table::Groups, &id_key(group))? {
            fail!(NotFound, "the group {group:#x} was deleted: open it again by its path");
        }
        index_modes::changed(rows)?;
        was = settings::own(rows, group)?;
        if !row.is_empty() {
            rows.put(Table::IndexSettings, &id_key(group), &row)
        } else if rows.has(Table::IndexSettings, &id_key(group))? {
            rows.remove(Table::IndexSettings, &id_key(group))
        } else {
            Ok(())
        }
    })?;
    if group == realm.root() {
        let limits = settings.clone().effective();
        core.index.state.set_limits(limits.tail_rows, limits.queue_max);
    }
    // What is there already is split by maintenance, which looks for it now.
    core.index.state.looked(false, true);
    drop(inside);
    let says_anew = settings.split_on.is_some() && was.as_ref() != Some(settings);
    if says_anew && group != realm.root() && !batch::runs(core) {
        // It may be among the objects of another tag: from now on it is of this one.
        reindex(realm, group, None)?;
    }
    Ok(())
}

/// See [`Realm::index_settings`].
pub(super) fn index_settings(realm: &Realm, group: Gid) -> Result<IndexSettings> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    if realm.at().is_none() {
        let own =
            batch::with(core, |overlay| settings::own(&mut overlay.look(inside.catalog()), group))?;
        if let Some(own) = own {
            return Ok(own.unwrap_or_default());
        }
    }
    let txn = inside.read_at(realm.at())?;
    Ok(settings::own(&mut txn.rows(), group)?.unwrap_or_default())
}

/// See [`Realm::maintain`].
pub(super) fn maintain(realm: &Realm) -> Result<u64> {
    let core = realm.writable()?;
    if batch::runs(core) {
        fail!(Busy, "a batch runs in this thread: end it before maintaining the index");
    }
    let inside = &core.enter()?;
    let mut steps = 0;
    let done = loop {
        match maintain_once(core, inside, Upkeep::All) {
            Ok(Some(_)) => steps += 1,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    failure::note(core, inside, MaintenanceTask::Arrange, done.as_ref());
    done?;
    core.index.state.looked(false, false);
    Ok(steps)
}

/// See [`Realm::reindex`].
pub(super) fn reindex(realm: &Realm, group: Gid, mode: Option<IndexMode>) -> Result<u64> {
    let core = realm.writable()?;
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
            after_commit(core, inside);
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    Ok(count)
}

/// Objects and groups of a group from a key of `names` on, and the key to go on from.
type ListedPart = (Vec<Oid>, Vec<Gid>, Option<Vec<u8>>);

fn members_from(inside: &Inside<'_>, group: Gid, from: &[u8]) -> Result<ListedPart> {
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

fn reindex_one(rows: &mut dyn RowsMut, oid: Oid, mode: Option<IndexMode>) -> Result<()> {
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

/// Runs work that is nobody's errand: a fault in it must not unwind into the caller that happens to
/// do it. Its transaction was given up then, and has changed nothing.
pub(crate) fn quietly<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(_) => fail!(Corrupt, "maintenance of the index met a fault of its own"),
    }
}

/// After a commit: does a part of what is due, if this thread may.
pub(super) fn after_commit(core: &Core, inside: &Inside<'_>) {
    if core.index.state.queued() > 0 {
        if core.index.state.is_queue_full() {
            let _ = drain_quietly(core, inside);
        }
        ring(core);
    }
    if !core.index.state.is_due() {
        return;
    }
    let Some(_at_work) = core.index.state.begin() else { return };
    let _operation = operation!(DEBUG, "index.maintain");
    let done = quietly(|| maintain_some(core, inside));
    failure::note(core, inside, MaintenanceTask::Arrange, done.as_ref());
    match done {
        Ok(None) => {}
        Ok(Some(left)) => core.index.state.looked(false, left),
        Err(_) => core.index.state.looked(true, false),
    }
}

/// Indexes a part of the queue, as work that is nobody's errand.
pub(crate) fn drain_quietly(core: &Core, inside: &Inside<'_>) -> Result<u64> {
    let drained = quietly(|| drain(core, inside, queue::PART));
    failure::note(core, inside, MaintenanceTask::Drain, drained.as_ref());
    drained
}

/// Wakes the thread that indexes what is queued.
pub(crate) fn ring(core: &Core) {
    if let Some(me) = core.me.get() {
        core.index.drainer.ring(me);
    }
}

/// Wakes it if anything is queued: for a process that opens the realm to work with it.
pub(crate) fn ring_if_queued(core: &Core) -> Result<()> {
    let inside = core.enter()?;
    if inside.read()?.entries(Table::Queue)? > 0 {
        ring(core);
    }
    Ok(())
}

/// The object that is first in the queue, if any is queued.
pub(crate) fn first_queued(inside: &Inside<'_>) -> Result<Option<Oid>> {
    let txn = inside.read()?;
    let mut queue = txn.seek(Table::Queue, &[])?;
    queue.next()?.map(|(key, _)| id_of_key(key)).transpose()
}

/// Takes some steps; whether more may be due, if it looked at the segments.
fn maintain_some(core: &Core, inside: &Inside<'_>) -> Result<Option<bool>> {
    let state = &core.index.state;
    let mut looked = false;
    for _ in 0..state.steps() {
        match maintain_once(core, inside, Upkeep::Due)? {
            Some(Step::Sealed(objects)) => {
                state.note_sealed(objects);
                if !state.is_due() {
                    return Ok(None);
                }
            }
            Some(_) => looked = true,
            None => return Ok(Some(false)),
        }
    }
    Ok(looked.then_some(true))
}

/// Indexes what is queued, and does all maintenance that is due.
pub fn maintain_all(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let _operation = operation!(DEBUG, "index.maintain-all");
    drain(core, inside, u64::MAX)?;
    while maintain_once(core, inside, Upkeep::All)?.is_some() {}
    Ok(())
}

/// How far the caretaker has come with the index of a realm in which nobody commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// The newest commit.
    pub commit: u64,
    /// Whether nothing is left to do as of that.
    pub whole: bool,
}

/// Seals the tail and does what else is due, a part at a time, in a realm in which nobody has
/// committed since `commit`, until somebody does. An error leaves the rest until then.
pub(crate) fn settle(core: &Core, commit: u64) -> Settled {
    let mut settled = Settled { commit, whole: false };
    for _ in 0..STEPS_IN_A_LOOK {
        match settle_some(core, settled.commit) {
            Ok(Some(now)) => settled = now,
            Ok(None) => break,
            Err(_) => settled.whole = true,
        }
        if settled.whole {
            break;
        }
    }
    settled
}

/// Takes one step, if the newest commit is still this one; how far that is. `None` where others
/// commit, or maintain the index.
fn settle_some(core: &Core, commit: u64) -> Result<Option<Settled>> {
    let inside = core.enter()?;
    let state = &core.index.state;
    if inside.catalog().last_id()? != commit {
        return Ok(None);
    }
    if !state.is_due() && !has_tail(&inside)? {
        return Ok(Some(Settled { commit, whole: true }));
    }
    let Some(_at_work) = state.begin() else { return Ok(None) };
    let done = quietly(|| maintain_once(core, &inside, Upkeep::All));
    failure::note(core, &inside, MaintenanceTask::Arrange, done.as_ref());
    step!("index.settled");
    let left = done.as_ref().is_ok_and(Option::is_some);
    state.looked(done.is_err(), left);
    done?;
    Ok(Some(Settled { commit: inside.catalog().last_id()?, whole: !left }))
}

fn has_tail(inside: &Inside<'_>) -> Result<bool> {
    let txn = inside.read()?;
    Ok(txn.entries(Table::IndexTail)? + txn.entries(Table::IndexTailRanges)? > 0)
}

/// Before the last session of this process ends: seals what this process has left in the tail, if
/// no other has the realm open. That is one step, and a close does not fail for it.
pub(crate) fn at_close(core: &Arc<Core>) {
    if core.setup.immutable || !core.index.state.has_tail() || batch::runs(core) {
        return;
    }
    let Ok(inside) = core.enter() else { return };
    let alone = || dead::others_of(core, &inside).is_ok_and(|others| others.is_empty());
    if inside.catalog().poisoned() || !has_tail(&inside).unwrap_or(false) || !alone() {
        return;
    }
    let Some(_at_work) = core.index.state.begin() else { return };
    let root = core.setup.root();
    let _ = quietly(|| {
        core.commit(&inside, Headroom::Normal, |rows| {
            rows.touch();
            maintain::seal_tail(rows.txn(), root, true)
        })
    });
    step!("close.sealed");
}

/// What is done of the index's upkeep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upkeep {
    /// All that can be: somebody asks for it, or nothing else happens.
    All,
    /// What is due: the tail is as long as it may be, most of a family's objects have gone.
    Due,
}

/// Takes one step, in a transaction of its own.
fn maintain_once(core: &Core, inside: &Inside<'_>, work: Upkeep) -> Result<Option<Step>> {
    let root = core.setup.root();
    let hints = core.index.state.hints();
    let all = work == Upkeep::All;
    let step = core.commit(inside, Headroom::Normal, |rows| {
        let (settings, _) = settings::at(rows, root)?;
        let limits = settings.effective();
        core.index.state.set_limits(limits.tail_rows, limits.queue_max);
        rows.touch();
        match maintain::seal_tail(rows.txn(), root, all)? {
            Some(step) => Ok(Some(step)),
            None => maintain::step(rows.txn(), root, &hints, all),
        }
    })?;
    step!("index.stepped");
    if step.is_none() {
        core.index.state.mark_done(&hints);
    }
    Ok(step)
}

/// Indexes up to `most` objects of the queue, some in each transaction.
pub(crate) fn drain(core: &Core, inside: &Inside<'_>, most: u64) -> Result<u64> {
    let root = core.setup.root();
    let mut done = 0;
    while done < most {
        let part = queue::PART.min(most - done);
        let drained = core.commit(inside, Headroom::Normal, |rows| {
            rows.touch();
            queue::drain(rows.txn(), root, part)
        })?;
        step!("queue.drained");
        done += drained;
        if drained < part {
            break;
        }
    }
    Ok(done)
}
