//! Moves between the realms of a namespace: share, unshare, publish, unpublish.
//!
//! An object, a group with all that is below it, or the hits of a query go from their realms to
//! another one, all or nothing. They keep what they are: OID, GIDs, attributes, dimensions, origin,
//! times, owner, index mode, name. No transaction covers two realms, so a move is a few commits, in
//! an order in which it is never lost, never twice, and never on the wrong side: wherever its
//! process dies, what has happened says how it ends.
//!
//! **T0**, in the source, one commit: a row in `transfers` with the process's lease, and a row in
//! `leaving` for each member. From here on nobody changes these members (`BusyError`; `Changes`
//! asks for each row of a member that it changes, if there are moves at all); all may read them.
//! A group that goes takes no new names either: they would be left behind, in sight of others
//! where it is unshared; and from T2 on a name could be given twice, once in each realm.
//! Then, with the marks there for lock takers to see, the kernel is asked whether anybody has one
//! of them locked: a locked member does not move (see `realm::locks`), so the marks go again.
//! **T1**: space reserved in the target, values copied, with no lock held, and flushed (P1).
//! **T2**, in the target, one commit: the records, their names, the groups above them as mirrors,
//! what the index notes of them, and a *receipt* (`received`). From here on the others see them.
//! The same OID in two realms is one object to a process that sees both. **T3**, in the source, one
//! commit: records and names gone, extents freed, marks away, and the move's row says so. A group
//! that has something of others in it stays as a mirror. **T4**, in the target: the receipt goes.
//! **T5**, in the source: the move's row goes.
//!
//! **The receipt decides.** A move whose process is gone (its lease is) is ended by the next
//! process to open the source for writing: if the target has the receipt, from T3 on; if not, the
//! marks are taken away, and the reservations in the target go with the dead lease, as always. Not
//! the presence of the OIDs: they may have been deleted in the target since. Two that end the same
//! move do no harm: each step looks at the move's row in its own commit, and the receipt goes only
//! after T3.
//!
//! **Publishing** has a published version as its target (see `published`): T1 and T2 make a new
//! version beside the newest, and T2's commit point is one rename. Nobody can take a receipt out of
//! a published catalog; the next publisher leaves those behind of which no row is left in the realm
//! that they name, if it may look there.
//!
//! **Unpublishing** has one as its source, in which no mark can stand. So the target has them: T2
//! puts the members there together with a move's row at stage `Arrived` and marks on the members,
//! so that nobody changes them yet; T3 is a new version without them, and with a receipt; and the
//! marks go. A process that finds such a row of a dead lease goes on at T3, if its members are
//! published still. If they are not, the receipt says whether it was this move that took them; or
//! another has, and then they go again from where they had come in vain.
//!
//! No byte of one realm is ever another's: each has span files of its own, values are copied into
//! them, and extents are freed where they lie (P9).

mod copied;
mod copy_in;
mod deletion;
mod plan;
pub(crate) mod recover;

use engram_realm::files;
use engram_realm::keys;
use engram_realm::locks;
use engram_realm::space;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

pub use self::copied::{leaves_out, take_out};
pub(crate) use self::copy_in::remove_members;
use self::copy_in::{CopiedValues, KeyNumbers, check_free, check_guards, check_places, copy_in};
pub(crate) use self::deletion::{DeletedPart, delete_in_both};
use self::plan::{MovePlan, gather};
use crate::published::Making;
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Member, id_key};
use engram_base::mutex::lock;
use engram_base::random;
use engram_base::scope::Scope;
use engram_base::telemetry::operation;
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, Table};
use engram_ops::marks::{Going, Receipt, Stage, Transfer, members_of, pass, unmark};
use engram_ops::rows_mut::{Reserved, RowsMut};
use engram_realm::{Core, after_commit};

/// What a move has taken along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many objects.
    pub objects: u64,
    /// How many groups.
    pub groups: u64,
    /// How many bytes their values have.
    pub bytes: u64,
}

/// A realm that members leave, and which.
pub(crate) struct MoveSource {
    pub core: Arc<Core>,
    pub roots: Vec<Member>,
}

impl MoveSource {
    /// What goes.
    fn gather(&self, rows: &mut dyn Rows) -> Result<Vec<Going>> {
        gather(rows, self.core.setup.root(), &self.roots).map_err(Error::gone_is_moved)
    }

    /// Whether anything of it is here, and not only groups of others.
    pub(crate) fn has_own(&self) -> Result<bool> {
        let inside = self.core.enter()?;
        let going = self.gather(&mut inside.read()?.rows())?;
        Ok(going.iter().any(|going| !going.mirror))
    }
}

/// Moves that threads of this process are at: others of its lease were given up half-way.
static RUNNING: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// A move that this thread is at.
struct RunningMove(u64);

impl RunningMove {
    fn begin() -> Result<Self> {
        let number = random::id()?;
        lock(&RUNNING).get_or_insert_default().insert(number);
        Ok(RunningMove(number))
    }

    fn has(number: u64) -> bool {
        lock(&RUNNING).as_ref().is_some_and(|running| running.contains(&number))
    }
}

impl Drop for RunningMove {
    fn drop(&mut self) {
        lock(&RUNNING).get_or_insert_default().remove(&self.0);
    }
}

/// One source of a move that is under way.
pub(crate) struct Leg {
    core: Arc<Core>,
    running: RunningMove,
    going: Vec<Going>,
    plan: MovePlan,
}

/// Moves members to a realm that may be written to. On error all is as it was.
pub(crate) fn to_realm(source: &MoveSource, target: &Arc<Core>) -> Result<Moved> {
    let _operation = operation!(DEBUG, "move");
    let (to, uid) = (target.setup.scope, owner_of(target)?);
    let leg = leave(source, to, uid)?;
    let arrived = carry(&leg, target, &mut |core, plan| reserve(core, plan))
        .and_then(|(keys, places)| {
            let inside = target.enter()?;
            let receipt = receipt_for(&leg.core)?;
            let copied_in = target.commit(&inside, Headroom::Normal, |rows| {
                check_places(rows, &leg.plan)?;
                receipt.put(rows, leg.running.0)?;
                copy_in(rows, to, &leg.plan, &keys, &places)
            });
            copied_in.inspect_err(|_| give_back(target, &places))?;
            after_commit(target, &inside);
            Ok(())
        })
        .inspect_err(|_| stay(&leg));
    arrived?;
    conclude(&leg.core, target, leg.running.0)?;
    moved([&leg.plan].into_iter())
}

/// T0 of members that go to another namespace: they are marked. The move's own realm stands for the
/// other one, where no receipt ever comes: without this process, they stay.
pub(crate) fn leave_namespace(source: &MoveSource) -> Result<Leg> {
    let core = &source.core;
    let scope = core.setup.scope;
    leave(source, scope, if scope == Scope::Private { owner_of(core)? } else { 0 })
}

impl Leg {
    /// What goes, without mirrors of other realms' groups.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.going.iter().filter(|going| !going.mirror).map(|going| going.member)
    }

    /// The path of a member that goes.
    pub(crate) fn path_of(&self, member: Member) -> Result<String> {
        let inside = self.core.enter()?;
        engram_ops::group::path_of(&mut inside.read()?.rows(), member)
    }

    /// The members stay where they are.
    pub(crate) fn stay(&self) {
        stay(self);
    }

    /// T3 and T5 of members that are in another namespace by now: they go from here.
    pub(crate) fn go(&self) -> Result<()> {
        step!("move-out.copied");
        finish(&self.core, self.running.0)?;
        step!("move-out.gone");
        forget(&self.core, self.running.0)?;
        step!("move-out.forgotten");
        Ok(())
    }
}

/// T3 to T5: the target has the receipt.
fn conclude(source: &Core, target: &Core, number: u64) -> Result<()> {
    step!("transfer.arrived");
    finish(source, number)?;
    step!("transfer.gone");
    clear_receipt(target, number)?;
    step!("transfer.receipt-cleared");
    forget(source, number)?;
    step!("transfer.forgotten");
    Ok(())
}

/// Moves members of several realms into a new published version, all in one. On error all is as
/// it was.
pub(crate) fn publish(sources: &[MoveSource], mut making: Making) -> Result<Moved> {
    let _operation = operation!(DEBUG, "publish");
    let mut legs = Vec::with_capacity(sources.len());
    let published = (|| {
        for source in sources {
            legs.push(leave(source, Scope::Published, 0)?);
        }
        let core = Arc::clone(making.core());
        for leg in &legs {
            let (keys, places) = carry(leg, &core, &mut |_, plan| making.place(&values(plan)?))?;
            let receipt = receipt_for(&leg.core)?;
            let inside = core.enter()?;
            core.commit(&inside, Headroom::Normal, |rows| {
                receipt.put(rows, leg.running.0)?;
                copy_in(rows, Scope::Published, &leg.plan, &keys, &places)
            })?;
        }
        step!("publish.copied-in");
        making.finish()
    })();
    // If the version is there, and perhaps not on the medium, the next process goes on from here.
    published.inspect_err(|_| legs.iter().for_each(stay))??;
    step!("publish.arrived");
    for leg in &legs {
        finish(&leg.core, leg.running.0)?;
        step!("publish.gone");
        forget(&leg.core, leg.running.0)?;
    }
    step!("publish.forgotten");
    moved(legs.iter().map(|leg| &leg.plan))
}

/// Moves members of the newest published version, which `making` is to replace, to a realm that
/// may be written to. On error all is as it was.
pub(crate) fn unpublish(source: &MoveSource, target: &Arc<Core>, making: Making) -> Result<Moved> {
    let _operation = operation!(DEBUG, "unpublish");
    let running = RunningMove::begin()?;
    let (going, plan) = {
        let inside = source.core.enter()?;
        let txn = inside.read()?;
        let going = source.gather(&mut txn.rows())?;
        let plan = MovePlan::read(&source.core, &txn, &going)?;
        (going, plan)
    };
    let leg = Leg { core: Arc::clone(&source.core), running, going, plan };
    let (keys, places) = carry(&leg, target, &mut |core, plan| reserve(core, plan))?;
    let inside = target.enter()?;
    let lease = inside.lease().id();
    let transfer = Transfer {
        number: leg.running.0,
        stage: Stage::Arrived,
        other: Scope::Published,
        uid: 0,
        pid: std::process::id(),
        lease,
    };
    let copied_in = target.commit(&inside, Headroom::Normal, |rows| {
        rows.moves();
        pass(rows)?;
        copy_in(rows, target.setup.scope, &leg.plan, &keys, &places)?;
        transfer.put(rows)?;
        leg.going.iter().try_for_each(|going| going.mark(rows, leg.running.0))
    });
    copied_in.inspect_err(|_| give_back(target, &places))?;
    after_commit(target, &inside);
    drop(inside);
    step!("unpublish.arrived");
    let withdrawn = withdraw(making, target, leg.running.0, &leg.going);
    withdrawn.inspect_err(|_| drop(retreat(target, leg.running.0)))??;
    step!("unpublish.withdrawn");
    end_arrived(target, leg.running.0)?;
    step!("unpublish.settled");
    moved([&leg.plan].into_iter())
}

/// Makes the version without these members, those of them that are there still, which have come to
/// `target`.
fn withdraw(making: Making, target: &Core, number: u64, going: &[Going]) -> Result<Result<()>> {
    let core = Arc::clone(making.core());
    {
        let receipt = receipt_for(target)?;
        let inside = core.enter()?;
        core.commit(&inside, Headroom::Normal, |rows| {
            receipt.put(rows, number)?;
            remove_members(rows, going, core.setup.root())
        })?;
    }
    step!("unpublish.removed");
    making.finish()
}

/// Removes members that have come in vain: they are published still, or another has taken them.
fn retreat(target: &Core, number: u64) -> Result<()> {
    let inside = target.enter()?;
    target.commit(&inside, Headroom::Relief, |rows| {
        rows.moves();
        let found = Transfer::find(rows, number)?;
        if found.is_none_or(|found| found.stage != Stage::Arrived) {
            return Ok(());
        }
        let members = members_of(rows, number)?;
        remove_members(rows, &members, target.setup.root())?;
        unmark(rows, &members)?;
        rows.remove(Table::Transfers, &id_key(number))
    })
}

/// T0: marks what goes, sees that nobody has it locked, then reads it.
fn leave(source: &MoveSource, to: Scope, uid: u32) -> Result<Leg> {
    let core = &source.core;
    let running = RunningMove::begin()?;
    refuse_locked(core, &{
        let inside = core.enter()?;
        source.gather(&mut inside.read()?.rows())?
    })?;
    let inside = core.enter()?;
    let transfer = Transfer {
        number: running.0,
        stage: Stage::Leaving,
        other: to,
        uid,
        pid: std::process::id(),
        lease: inside.lease().id(),
    };
    let going = core.commit(&inside, Headroom::Normal, |rows| {
        let going = source.gather(rows)?;
        transfer.put(rows)?;
        going.iter().try_for_each(|going| going.mark(rows, running.0))?;
        Ok(going)
    })?;
    step!("transfer.marked");
    drop(inside);
    let plan = refuse_locked(core, &going).and_then(|()| {
        let inside = core.enter()?;
        let txn = inside.read()?;
        MovePlan::read(core, &txn, &going)
    });
    match plan {
        Ok(plan) => Ok(Leg { core: Arc::clone(core), running, going, plan }),
        Err(error) => {
            let _ = undo(core, running.0);
            Err(error)
        }
    }
}

/// Refuses to move what somebody has locked or open. Asked before anything is marked, so that the
/// holder of a lock does not meet the marks of a move that will not be; and again after, see the
/// essay.
fn refuse_locked(core: &Core, going: &[Going]) -> Result<()> {
    let of_here = going.iter().filter(|going| !going.mirror);
    let members: Vec<Member> = of_here.map(|going| going.member).collect();
    files::refuse_to_move(core, &members)?;
    locks::refuse_locked(core, &members)
}

/// The members stay where they are. If even that fails, the next process to open the realm sees to
/// it.
fn stay(leg: &Leg) {
    let _ = undo(&leg.core, leg.running.0);
}

/// What finds room for a plan's values in the target.
type Room<'r> = dyn FnMut(&Arc<Core>, &MovePlan) -> Result<Vec<Reserved>> + 'r;

/// T1: reserves what the values need, and copies them.
fn carry(leg: &Leg, target: &Arc<Core>, room: &mut Room<'_>) -> Result<(KeyNumbers, CopiedValues)> {
    {
        let inside = target.enter()?;
        let txn = inside.read()?;
        let rows = &mut txn.rows();
        check_free(rows, &leg.plan)?;
        if target.setup.scope != Scope::Published {
            check_guards(rows, &leg.plan)?;
        }
    }
    let keys = keys::translate(target, &leg.plan.keys)?;
    let reserved = room(target, &leg.plan)?;
    step!("transfer.reserved");
    let mut places = CopiedValues::with_capacity(reserved.len());
    let copied = leg.plan.values().and_then(|values| {
        values.into_iter().zip(&reserved).try_for_each(|((key, extent, nbytes), place)| {
            places.insert(key.into_owned(), *place);
            space::copy_in(target, &leg.core, extent, *place, nbytes)
        })
    });
    if let Err(error) = copied {
        give_all_back(target, &reserved);
        return Err(error);
    }
    step!("transfer.copied");
    Ok((keys, places))
}

/// The lengths of a plan's values that lie in extents.
fn values(plan: &MovePlan) -> Result<Vec<u64>> {
    Ok(plan.values()?.into_iter().map(|(_, _, nbytes)| nbytes).collect())
}

/// Reserves space for the values; on error none is.
fn reserve(target: &Arc<Core>, plan: &MovePlan) -> Result<Vec<Reserved>> {
    let mut reserved: Vec<Reserved> = Vec::new();
    for nbytes in values(plan)? {
        match space::reserve(target, nbytes, None) {
            Ok((place, _claim)) => reserved.push(place),
            Err(error) => {
                give_all_back(target, &reserved);
                return Err(error);
            }
        }
    }
    Ok(reserved)
}

fn give_all_back(target: &Arc<Core>, reserved: &[Reserved]) {
    for place in reserved {
        space::give_back(target, *place);
    }
}

fn give_back(target: &Arc<Core>, places: &CopiedValues) {
    for place in places.values() {
        space::give_back(target, *place);
    }
}

/// Does T3: removes the members from here. Another process may have done so meanwhile; then nothing
/// is left to do.
fn finish(core: &Core, number: u64) -> Result<()> {
    let inside = core.enter()?;
    core.commit(&inside, Headroom::Relief, |rows| {
        rows.moves();
        let transfer = Transfer::find(rows, number)?;
        let Some(transfer) = transfer.filter(|found| found.stage.is_going()) else {
            return Ok(());
        };
        let members = members_of(rows, number)?;
        remove_members(rows, &members, core.setup.root())?;
        unmark(rows, &members)?;
        Transfer { stage: Stage::Gone, ..transfer }.put(rows)
    })?;
    after_commit(core, &inside);
    Ok(())
}

/// Takes the receipts out of a version that is being made whose moves are over: the row of each was
/// in one of these realms, and is not any more. Others' private realms are not asked; their users
/// publish, too.
pub(crate) fn forget_receipts(making: &Making, realms: &[Arc<Core>]) -> Result<()> {
    let inside = making.core().enter()?;
    let receipts = Receipt::all(&inside.read()?)?;
    let mut over = Vec::new();
    for realm in realms {
        let here = receipt_for(realm)?;
        let inside = realm.enter()?;
        let txn = inside.read()?;
        for (number, _) in receipts.iter().filter(|(_, receipt)| *receipt == here) {
            if Transfer::find(&mut txn.rows(), *number)?.is_none() {
                over.push(*number);
            }
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    making.core().commit(&inside, Headroom::Relief, |rows| {
        over.iter().try_for_each(|number| Receipt::remove(rows, *number))
    })
}

/// Does T4: removes the receipt, which has served.
fn clear_receipt(target: &Core, number: u64) -> Result<()> {
    let inside = target.enter()?;
    target.commit(&inside, Headroom::Relief, |rows| Receipt::remove(rows, number))
}

/// Does T5: removes the row and the marks of a move that is over.
fn forget(core: &Core, number: u64) -> Result<()> {
    end(core, number, |stage| stage == Stage::Gone)
}

/// Ends an unpublish: from here on, the members that came from a published version are like any
/// others.
fn end_arrived(core: &Core, number: u64) -> Result<()> {
    end(core, number, |stage| stage == Stage::Arrived)
}

/// Undoes a move: the members stay, and its marks and its row go.
fn undo(core: &Core, number: u64) -> Result<()> {
    end(core, number, Stage::is_going)
}

/// Takes a move's row and its marks away, if it is at such a stage still.
fn end(core: &Core, number: u64, at: impl Fn(Stage) -> bool) -> Result<()> {
    let inside = core.enter()?;
    core.commit(&inside, Headroom::Relief, |rows| {
        if Transfer::find(rows, number)?.is_some_and(|found| at(found.stage)) {
            let members = members_of(rows, number)?;
            unmark(rows, &members)?;
            rows.remove(Table::Transfers, &id_key(number))?;
        }
        Ok(())
    })
}

fn moved<'p>(plans: impl Iterator<Item = &'p MovePlan>) -> Result<Moved> {
    let mut all = Moved::default();
    for plan in plans {
        let (objects, groups, bytes) = plan.counts()?;
        all.objects += objects;
        all.groups += groups;
        all.bytes += bytes;
    }
    Ok(all)
}

/// The receipt of a move whose row is in this realm.
fn receipt_for(core: &Core) -> Result<Receipt> {
    let scope = core.setup.scope;
    Ok(Receipt { scope, uid: if scope == Scope::Private { owner_of(core)? } else { 0 } })
}

/// Returns the user whose a realm is.
fn owner_of(core: &Core) -> Result<u32> {
    use std::os::unix::fs::MetadataExt;
    let dir = &core.setup.dir;
    match std::fs::metadata(dir) {
        Ok(meta) => Ok(meta.uid()),
        Err(e) => fail!(Access, "cannot look at {}: {e}", dir.display()),
    }
}

#[cfg(test)]
mod tests;
