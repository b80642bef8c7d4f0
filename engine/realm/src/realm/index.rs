//! The index, as a realm's handle has it: settings, maintenance, the queue, figures.
//!
//! Maintenance runs after commits that leave work, in transactions of its own, and never while
//! this thread runs a batch. It is nobody's errand: work that goes wrong is left for the next time,
//! and no put fails for it.

use crate::batch;
use crate::realm::Realm;
use crate::realm::core::Core;
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

/// Steps that are taken after one commit, besides sealing.
const STEPS_AFTER_COMMIT: usize = 2;
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
    let inside = &core.enter()?;
    let row = settings.encode();
    core.write(inside, Headroom::Normal, None, |rows| {
        if !rows.has(Table::Groups, &id_key(group))? {
            fail!(NotFound, "the group {group:#x} was deleted: open it again by its path");
        }
        index_modes::changed(rows)?;
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
        match maintain_once(core, inside) {
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
    let mut left = STEPS_AFTER_COMMIT;
    let state = &core.index.state;
    while left > 0 {
        match maintain_once(core, inside)? {
            Some(Step::Sealed(objects)) => {
                state.note_sealed(objects);
                // After a large batch there is more of the tail.
                if !state.is_due() {
                    return Ok(None);
                }
            }
            Some(_) => left -= 1,
            None => return Ok(Some(false)),
        }
    }
    Ok(Some(true))
}

/// Indexes what is queued, and does all maintenance that is due.
pub fn maintain_all(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let _operation = operation!(DEBUG, "index.maintain-all");
    drain(core, inside, u64::MAX)?;
    while maintain_once(core, inside)?.is_some() {}
    Ok(())
}

/// Takes one step, in a transaction of its own.
fn maintain_once(core: &Core, inside: &Inside<'_>) -> Result<Option<Step>> {
    let root = core.setup.root();
    let hints = core.index.state.hints();
    let step = core.commit(inside, Headroom::Normal, |rows| {
        let (settings, _) = settings::at(rows, root)?;
        let limits = settings.effective();
        core.index.state.set_limits(limits.tail_rows, limits.queue_max);
        rows.touch();
        match maintain::seal_tail(rows.txn(), root, false)? {
            Some(step) => Ok(Some(step)),
            None => maintain::step(rows.txn(), root, &hints),
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
