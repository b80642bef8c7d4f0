//! Deleting and renaming through the view.

use std::thread;
use std::time::{Duration, Instant};

use super::write;
use crate::namespace::retry::Retry;

use super::Namespace;
use super::tree::{MemberLocation, Reach, Tree};
use super::write::rest_of;
use crate::transfer::{DeletedPart, delete_in_both};
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_ops::group::Taker;
use engram_ops::protect;
use engram_realm::Realm;

/// How long a deletion that has begun waits for a mover of what is left, and between two tries.
const WAIT_MOST: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_millis(5);

/// The realms that a deletion changes; refused where one of them refuses it, before another has
/// changed.
fn deletable(tree: &mut Tree<'_, '_>, place: MemberLocation) -> Result<Vec<usize>> {
    tree.refuse_moving(place.member, true)?;
    tree.refuse_read_only(place.member)?;
    let Member::Group(gid) = place.member else {
        protect::refuse_deletion(tree.at(place.at), place.member)?;
        return Ok(vec![place.at]);
    };
    let reaching = tree.reaching(gid)?;
    for (at, by) in &reaching {
        by.iter()
            .try_for_each(|group| protect::refuse_deletion(tree.at(*at), Member::Group(*group)))?;
    }
    Ok(reaching.into_iter().map(|(at, _)| at).collect())
}

/// Refuses to delete what is published, or has published members.
fn refuse_published(
    realms: &[Realm],
    path: &str,
    place: MemberLocation,
    having: &[usize],
) -> Result<()> {
    let Some(at) = having.iter().find(|at| realms[**at].scope() == Scope::Published) else {
        return Ok(());
    };
    let what = if *at == place.at { "is published" } else { "has published members" };
    fail!(ReadOnly, "{path:?} {what}, which nobody changes: unpublish it first")
}

/// See [`Namespace::delete`].
pub(super) fn delete(namespace: &Namespace, parent: Gid, path: &str) -> Result<()> {
    let mut begun = None;
    let since = Instant::now();
    while begun.is_none() || since.elapsed() < WAIT_MOST {
        match namespace.retry(Retry::IfMoved, || delete_now(namespace, parent, path, &mut begun)) {
            // The rest of a group went by itself: the last mirror, when it was empty.
            Err(error) if begun.is_some() && error.kind() == Kind::NotFound => return Ok(()),
            Err(error) if begun.is_some() && error.kind() == Kind::Busy => thread::sleep(WAIT),
            done => return done,
        }
    }
    fail!(
        Busy,
        "{path:?} is deleted as far as it was in one scope, and the rest of it is on its way \
         by another process that does not go on: delete it again when that has ended"
    )
}

/// Deletes what the path names. `begun` is the group that is gone from one realm, and not yet from
/// all.
fn delete_now(
    namespace: &Namespace,
    parent: Gid,
    path: &str,
    begun: &mut Option<Gid>,
) -> Result<()> {
    if let Some(realm) = namespace.alone()? {
        return realm.delete(parent, path);
    }
    let parsed = Path::new(path)?;
    let ((place, having), realms) = namespace.look_to_change(&namespace.all_seen()?, |tree| {
        let Some(place) = tree.resolve(parent, &parsed)? else {
            fail!(
                NotFound,
                "there is no {path:?} in this group: list its members with keys() or tree()"
            )
        };
        if begun.is_some_and(|gid| place.member != Member::Group(gid)) {
            fail!(NotFound, "{path:?} is another's by now");
        }
        Ok((place, deletable(tree, place)?))
    })?;
    refuse_published(&realms, path, place, &having)?;
    if having.len() > 1 && realms.iter().any(Realm::runs_batch) {
        fail!(
            Busy,
            "{path:?} has members of several scopes, and a batch covers one: delete it outside \
             of the batch"
        );
    }
    match place.member {
        Member::Object(_) => {
            Namespace::route_batch(&realms[place.at], &realms)?;
            realms[place.at].delete(place.parent, parsed.last.as_str())
        }
        Member::Group(gid) => delete_group_now(namespace, gid, &having, &realms, begun),
    }
}

fn delete_group_now(
    namespace: &Namespace,
    gid: Gid,
    reaching: &[usize],
    realms: &[Realm],
    begun: &mut Option<Gid>,
) -> Result<()> {
    for at in reaching {
        Namespace::route_batch(&realms[*at], realms)?;
        renew_mirrors(namespace, *at, realms)?;
    }
    let parts = namespace.look(realms, |tree| {
        let mut parts = Vec::new();
        for at in tree.having(gid)? {
            parts.push((at, tree.unnamed_below(at, gid)?));
        }
        Ok(parts)
    })?;
    if let [(one, below), (other, below_other)] = &parts[..] {
        let all = |below: &[Gid]| [&[gid], below].concat();
        let first = DeletedPart { realm: &realms[*one], groups: &all(below) };
        let second = DeletedPart { realm: &realms[*other], groups: &all(below_other) };
        // Where there is no room for that, there is for one after the other.
        if delete_in_both(&first, &second)? {
            return Ok(());
        }
    }
    for (at, below) in parts {
        realms[at].delete_group(gid, &below)?;
        *begun = Some(gid);
    }
    Ok(())
}

/// Has the mirrors of a realm say where the true groups are, as far as these realms tell: what
/// goes through a group and all that is below it goes by what they say.
fn renew_mirrors(namespace: &Namespace, at: usize, realms: &[Realm]) -> Result<()> {
    for chain in namespace.look(realms, |tree| tree.all_behind(at))? {
        realms[at].reflect(&write::originals(chain, &realms[at], realms)?)?;
    }
    Ok(())
}

/// Refuses to publish what its user would see no more, nor withdraw: another member of that
/// name is shared, which hides what is published.
pub(crate) fn refuse_hidden(
    namespace: &Namespace,
    members: &[Member],
    seen: &[Realm],
) -> Result<()> {
    let Some(at) = seen.iter().position(|realm| realm.scope() == Scope::Shared) else {
        return Ok(());
    };
    namespace.look(seen, |tree| {
        for member in members {
            if let Some(there) = tree.same_name(at, *member)?
                && tree.counts(at, there)?
            {
                let path = tree.path_of(*member)?;
                fail!(
                    Exists,
                    "{path:?} is the name of something shared, too, which would hide what is \
                     published: rename or delete one of the two first"
                );
            }
        }
        Ok(())
    })
}

pub(super) fn check_deletable_now(
    namespace: &Namespace,
    parent: Gid,
    names: &[String],
) -> Result<bool> {
    if let Some(realm) = namespace.alone()? {
        return realm.check_deletable(parent, names).map(|()| true);
    }
    let realms = namespace.all_seen()?;
    let found = namespace.look(&realms, |tree| {
        let mut found = Vec::new();
        for name in names {
            if let Some(place) = tree.resolve(parent, &Path::new(name)?)? {
                found.push((name, place, deletable(tree, place)?));
            }
        }
        Ok(found)
    })?;
    for (name, place, having) in &found {
        refuse_published(&realms, name, *place, having)?;
    }
    let mut all: Vec<usize> = found.into_iter().flat_map(|(_, _, having)| having).collect();
    all.sort_unstable();
    all.dedup();
    if all.len() > 1 && realms.iter().any(Realm::runs_batch) {
        fail!(
            Busy,
            "the members are of several scopes, and a batch covers one: delete them outside of \
             the batch"
        );
    }
    Ok(all.len() <= 1)
}

/// The groups of a realm that lie below these members and have no name in it, since a member
/// has theirs. Everything else below is found by the realm's own names: it is made to say where the
/// groups of others are. (Of a group with published members nobody changes the name.)
pub(crate) fn strays_below(
    namespace: &Namespace,
    members: &[Member],
    realm: &Realm,
    seen: &[Realm],
) -> Result<Vec<Member>> {
    let Some(at) = seen.iter().position(|known| known.is(realm)) else { return Ok(Vec::new()) };
    if realm.scope() != Scope::Published {
        renew_mirrors(namespace, at, seen)?;
    }
    namespace.look(seen, |tree| {
        let mut strays = Vec::new();
        for member in members {
            if let Member::Group(gid) = member {
                strays.extend(tree.unnamed_below(at, *gid)?.into_iter().map(Member::Group));
            }
        }
        Ok(strays)
    })
}

/// Refuses to move members to another scope that lie in a read-only group: they would come out
/// of it, or into it.
pub(crate) fn refuse_in_read_only(namespace: &Namespace, members: &[Member]) -> Result<()> {
    namespace.look(&namespace.all_seen()?, |tree| {
        for member in members {
            if let Some(gid) = tree.read_only_above(*member)? {
                let (path, above) = (tree.path_of(*member)?, Member::Group(gid));
                let above = format!("/{}", tree.path_of(above)?);
                fail!(
                    ReadOnly,
                    "{path:?} lies in {above:?}, which is read-only: take that back first \
                     (read_only = False), or move the whole group"
                );
            }
        }
        Ok(())
    })
}

pub(super) fn rename_now(
    namespace: &Namespace,
    parent: Gid,
    old: &str,
    new_parent: Gid,
    new: &str,
) -> Result<()> {
    if let Some(realm) = namespace.alone()? {
        return realm.rename(parent, old, new_parent, new);
    }
    let (old_path, new_path) = (Path::new(old)?, Path::new(new)?);
    let realms = namespace.all_seen()?;
    let scopes: Vec<Scope> = realms.iter().map(Realm::scope).collect();
    let ((place, reach), realms) = namespace.look_to_change(&realms, |tree| {
        let Some(place) = tree.resolve(parent, &old_path)? else {
            fail!(
                NotFound,
                "there is no {old:?} in this group: list its members with keys() or tree()"
            )
        };
        tree.refuse_moving(place.member, false)?;
        let reach = tree.reach(new_parent, &new_path)?;
        if reach.taken.is_none() {
            tree.refuse_read_only(place.member)?;
            tree.refuse_new(reach.group, new)?;
        }
        if let Member::Group(gid) = place.member {
            if tree.chain(reach.group)?.iter().any(|(_, above)| above.gid == gid) {
                fail!(Argument, "{old:?} cannot be moved into itself");
            }
            // A user who sees that alone would go on seeing it under the old name.
            if tree.having(gid)?.iter().any(|at| scopes[*at] == Scope::Published) {
                fail!(
                    ReadOnly,
                    "{old:?} has published members, which nobody changes, nor what they are \
                     called: unpublish it first"
                );
            }
        }
        Ok((place, reach))
    })?;
    match reach.taken {
        Some(there) if there.member == place.member => return Ok(()),
        Some(there) => {
            return engram_ops::group::taken(new_path.last.as_str(), there.member, Taker::Moved);
        }
        None => {}
    }
    let realm = &realms[place.at];
    // Within its group it stays where it is, whatever has become of the group.
    let stays = place.parent == reach.group && reach.missing == 0;
    let reach = if stays { Reach { home: Some(place.at), ..reach } } else { reach };
    Namespace::route_batch(realm, &realms)?;
    write::prepare(namespace, realm, &realms, &reach, &new_path)?;
    let rest = rest_of(new, &new_path, reach.missing);
    realm.rename(place.parent, old_path.last.as_str(), reach.group, rest)
}
