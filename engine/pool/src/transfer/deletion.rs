//! Deleting a group of which two realms have something, all or nothing.
//!
//! It goes as a move does that arrives nowhere. **T0**, in the one realm: a row in `transfers`, at
//! the stage `Ending`, and marks on all that is below the group there, so that nobody changes it or
//! makes anything in it. **T2**, in the other realm, which decides: all that it has below the group
//! is deleted, and the receipt is put, in one commit. **T3** to **T5** as ever: the marked members
//! go from the first, the receipt, and the row. A process that dies before T2 has deleted nothing;
//! the deletion that it began then ends as other moves do (`recover`), and copies of that moment
//! have none of it.
//!
//! **Where groups lie.** Each of the two has mirrors of groups of the other, and goes by what these
//! say. Before T0 they are made to say where the groups are. A group may be renamed after that, in
//! the realm in which it is true. If it is marked, it is not. If it is true in the realm that
//! decides, T2 itself finds it elsewhere than the marks have it. If it is true in the first, and
//! was moved out before T0, it has no mark, and T2 finds its mirror below the group. Then nothing
//! is deleted, and the caller looks again.
//!
//! **Between T2 and T3** one realm has all of its part still. A reader that looks at both then
//! would see half of it, so looks and snapshots wait a moment for T3 (`half_deleted`).
//!
//! Where there is no room for marks, which is on a full mount, the realms go one after the other.

use std::collections::HashMap;

use super::plan::gather;
use super::{RunningMove, conclude, undo};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, id_key};
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, Table};
use engram_ops::group::{DEPTH_MAX, parent_of_group};
use engram_ops::marks::{Going, Receipt, Stage, Transfer};
use engram_ops::mirror;
use engram_ops::protect;
use engram_realm::{HasCore, Realm, after_commit};

/// What a realm has of a group that is deleted: the group, and mirrors below it without a name.
pub(crate) struct DeletedPart<'r> {
    pub realm: &'r Realm,
    pub groups: &'r [Gid],
}

/// Which group each of those lies in that are marked.
type Parents = HashMap<Gid, Gid>;

/// Deletes a group from two realms that say where it lies, the second of which decides; `false` if
/// there is no room for that, and all is as it was. So it is on error, but for one of T3 on: then
/// it is deleted, and the next process ends it. `moved` if one of them no longer says so.
pub(crate) fn delete_in_both(first: &DeletedPart<'_>, second: &DeletedPart<'_>) -> Result<bool> {
    let running = RunningMove::begin()?;
    let number = running.0;
    let (source, target) = (first.realm.core(), second.realm.core());
    let decided = decide(first, second, number).inspect_err(|_| drop(undo(source, number)));
    match decided {
        Err(error) if error.kind() == Kind::PoolFull => Ok(false),
        decided => {
            decided?;
            conclude(source, target, number).map(|()| true)
        }
    }
}

/// Does T0 and T2: marks the groups in the first realm, then deletes them in the second.
fn decide(first: &DeletedPart<'_>, second: &DeletedPart<'_>, number: u64) -> Result<()> {
    let target = second.realm.core();
    let marked = mark(first, second, number)?;
    let receipt = super::receipt_for(first.realm.core())?;
    let strays = strays(first, second, &marked)?;
    let inside = target.enter()?;
    target.commit(&inside, Headroom::Relief, |rows| {
        second.realm.check_precondition(rows)?;
        check_places(rows, second.groups, &marked, &strays)?;
        receipt.put(rows, number)?;
        for gid in second.groups {
            protect::refuse_deletion(rows, Member::Group(*gid))?;
            mirror::delete(rows, *gid, target.setup.root())?;
        }
        Ok(())
    })?;
    after_commit(target, &inside);
    Ok(())
}

/// Does T0: marks the groups in the first realm, and writes the move's row.
fn mark(first: &DeletedPart<'_>, second: &DeletedPart<'_>, number: u64) -> Result<Parents> {
    let (source, target) = (first.realm.core(), second.realm.core());
    let roots: Vec<Member> = first.groups.iter().copied().map(Member::Group).collect();
    let Receipt { scope: other, uid } = super::receipt_for(target)?;
    let inside = source.enter()?;
    let transfer = Transfer {
        number,
        stage: Stage::Ending,
        other,
        uid,
        pid: std::process::id(),
        lease: inside.lease().id(),
    };
    source.commit(&inside, Headroom::Normal, |rows| {
        first.realm.check_precondition(rows)?;
        let going = gather(rows, source.setup.root(), &roots).map_err(Error::gone_is_moved)?;
        roots.iter().try_for_each(|root| protect::refuse_deletion(rows, *root))?;
        transfer.put(rows)?;
        let mut parents = Parents::new();
        for Going { member, .. } in &going {
            if let Member::Group(gid) = member {
                parents.insert(*gid, parent_of_group(rows, *gid)?);
            }
        }
        going.iter().try_for_each(|going| going.mark(rows, number))?;
        Ok(parents)
    })
}

/// The mirrors in the second of groups that are in the first, and do not go there. (One at a time:
/// a thread that enters two cores does so in the order in which a fork does.)
fn strays(first: &DeletedPart<'_>, second: &DeletedPart<'_>, marked: &Parents) -> Result<Vec<Gid>> {
    let mirrors = {
        let inside = second.realm.core().enter()?;
        mirror::all(&mut inside.read()?.rows())?
    };
    let inside = first.realm.core().enter()?;
    let txn = inside.read()?;
    let mut strays = Vec::new();
    for mirror in mirrors.iter().filter(|mirror| !marked.contains_key(&mirror.gid)) {
        if txn.rows().has(Table::Groups, &id_key(mirror.gid))? {
            strays.push(mirror.gid);
        }
    }
    Ok(strays)
}

/// Sees that the groups of both realms lie where both say, as far as they are deleted.
fn check_places(
    rows: &mut dyn Rows,
    groups: &[Gid],
    marked: &Parents,
    strays: &[Gid],
) -> Result<()> {
    for (gid, parent) in marked {
        if rows.has(Table::Groups, &id_key(*gid))? && parent_of_group(rows, *gid)? != *parent {
            return Err(Error::moved());
        }
    }
    for stray in strays {
        if is_below(rows, *stray, groups)? {
            return Err(Error::moved());
        }
    }
    Ok(())
}

/// Whether a group of this realm is one of these, or lies in one.
fn is_below(rows: &mut dyn Rows, mut gid: Gid, groups: &[Gid]) -> Result<bool> {
    for _ in 0..DEPTH_MAX {
        if gid == 0 || groups.contains(&gid) {
            return Ok(gid != 0);
        }
        if !rows.has(Table::Groups, &id_key(gid))? {
            return Ok(false);
        }
        gid = parent_of_group(rows, gid)?;
    }
    fail!(Corrupt, "the groups above {gid:#x} form a loop: run verify")
}
