//! Writing through the view: each operation falls into one realm.
//!
//! A new member has the scope that was asked for; else that of the member that it replaces, else
//! that of its group. A member is changed or deleted where it is. Before anything is made in a
//! realm that has not its group, mirrors of that group and of those above it are made there.
//!
//! **What may lie where.** A group is seen by all who see what is in it: private members may lie
//! in any group, shared ones in shared and published groups, never in private ones.
//!
//! **What is on its way** to another realm by a process that is gone is met by a change of it, or
//! of its name: the move is ended first, and the change begins again (`retry`).
//!
//! **What has moved** between the look at all realms and the commit in one is not changed where it
//! was: the commit relies on what was seen (`realm::precondition`), and the operation looks again.
//!
//! **Batches** cover one realm: the one that the first write falls into.

use super::retry::{Doing, Retry};
use super::setup::set_size;
use super::tree::{MemberLocation, Reach};
use super::view::VisibleRealms;
use super::{Namespace, moves};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_index::{IndexSettings, IndexStats};
use engram_ops::group::{GroupInfo, Taker};
use engram_realm::Realm;
use engram_records::attrs::Value;

/// Where something is to be made.
pub(super) struct Aim<'p> {
    pub realm: Realm,
    /// The last group on the way that is there, in the realm as in the view.
    pub group: Gid,
    /// The rest of the path.
    pub path: &'p str,
}

/// What a group says of itself: what is known of it, and its attributes.
type GroupContent = (GroupInfo, Vec<(String, Value)>);

/// See [`Namespace::create_group`].
pub(super) fn create_group(
    namespace: &Namespace,
    parent: Gid,
    path: &str,
    attrs: &[(String, Value)],
    origin: &[u8],
    exist_ok: bool,
    scope: Option<Scope>,
) -> Result<Gid> {
    namespace.retry(Retry::IfMoved, || {
        if let Some(realm) = only(namespace, scope)? {
            return realm.create_group(parent, path, attrs, origin, exist_ok);
        }
        if exist_ok && let Some(Member::Group(gid)) = namespace.lookup(parent, path)? {
            return Ok(gid);
        }
        let aim = aim_among_realms(namespace, parent, path, scope, Taker::Group)?;
        aim.realm.create_group(aim.group, aim.path, attrs, origin, exist_ok)
    })
}

/// See [`Namespace::set_index_settings`].
pub(super) fn set_index_settings(
    namespace: &Namespace,
    group: Gid,
    settings: &IndexSettings,
) -> Result<()> {
    let realms = match namespace.seen()? {
        VisibleRealms::One(realm) => return realm.set_index_settings(group, settings),
        VisibleRealms::Many(realms) => realms,
    };
    // The one that says what holds comes first: where that is refused, nothing changes.
    let set = |realm: &Realm| realm.set_index_settings(group, settings);
    namespace.write_in_owning_realm(Member::Group(group), Doing::Setting, set)?;
    let having = namespace.look(&realms, |tree| tree.having(group))?;
    for realm in having.into_iter().map(|at| &realms[at]) {
        if realm.scope() != Scope::Published && !batch_elsewhere(realm, &realms) {
            realm.set_index_settings(group, settings)?;
        }
    }
    Ok(())
}

/// See [`Namespace::index_stats`].
pub(super) fn index_stats(namespace: &Namespace) -> Result<IndexStats> {
    let realms = match namespace.seen()? {
        VisibleRealms::One(realm) => return realm.index_stats(),
        VisibleRealms::Many(realms) => realms,
    };
    let mut all = IndexStats::default();
    for realm in &realms {
        all.unite(realm.index_stats()?);
    }
    Ok(all)
}

pub(super) fn sum(namespace: &Namespace, work: impl Fn(&Realm) -> Result<u64>) -> Result<u64> {
    let realms = match namespace.seen()? {
        VisibleRealms::One(realm) => return work(realm),
        VisibleRealms::Many(realms) => realms,
    };
    let mut sum = 0;
    for realm in realms.iter().filter(|realm| realm.scope() != Scope::Published) {
        sum += work(realm)?;
    }
    Ok(sum)
}

/// See [`Namespace::resize`].
pub(super) fn resize(namespace: &Namespace, size: u64) -> Result<()> {
    // The bound is for those who share the namespace to say, not for the user whom it binds in
    // private.
    let Some(shared) = namespace.realm_of(Scope::Shared, false)? else {
        return own_realm(namespace)?.resize(size);
    };
    let private = namespace.realm_of(Scope::Private, false)?;
    let before = private.as_ref().map(Realm::space).transpose()?;
    if let Some(private) = &private {
        private.resize_as_can_be(size)?;
    }
    if let Err(error) = shared.resize(size) {
        if let (Some(private), Some(before)) = (private, before) {
            let _ = private.resize_as_can_be(before.size);
        }
        return Err(error);
    }
    // The bound that the owner alone may write is for realms that are not there yet: nothing is
    // lost without it.
    let _ = set_size(namespace.pool_path(), namespace.namespace(), shared.space()?.size);
    Ok(())
}

/// The one realm that there is, if what has this scope is made in it.
pub(super) fn only(namespace: &Namespace, scope: Option<Scope>) -> Result<Option<Realm>> {
    let fits = |realm: &Realm| scope.is_none_or(|scope| scope == realm.scope());
    Ok(namespace.alone()?.filter(fits))
}

/// The realm of a member that says nothing of its scope: the shared one, or the private one of a
/// user who may not use that.
pub(super) fn own_realm(namespace: &Namespace) -> Result<Realm> {
    let scope = if namespace.sees_shared() { Scope::Shared } else { Scope::Private };
    match namespace.realm_of(scope, true)? {
        Some(realm) => Ok(realm),
        None => {
            fail!(NotFound, "namespace {:?} has no {} realm", namespace.namespace(), scope.as_str())
        }
    }
}

/// The shared realm, if this user sees it; else the first that there is.
pub(super) fn main_realm(namespace: &Namespace) -> Result<Option<Realm>> {
    let realms = namespace.all_seen()?;
    Ok(realms.into_iter().min_by_key(|realm| realm.scope() != Scope::Shared))
}

/// The same where there are several realms, of an object or of a group. The caller looks again
/// where something has moved (`Retry::IfMoved`).
pub(super) fn aim_among_realms<'p>(
    namespace: &Namespace,
    parent: Gid,
    path: &'p str,
    scope: Option<Scope>,
    taker: Taker,
) -> Result<Aim<'p>> {
    let replace = matches!(taker, Taker::Object { overwrite: true });
    let parsed = Path::new(path)?;
    let realms = namespace.all_seen()?;
    let ((reach, moving, allowed), relying) = namespace.look_to_change(&realms, |tree| {
        let reach = tree.reach(parent, &parsed)?;
        if let Some(place) = reach.taken.filter(|_| replace) {
            tree.refuse_moving(place.member, false)?;
        }
        let allowed = match reach.taken.filter(|_| replace) {
            Some(place) => tree.refuse_read_only(place.member),
            None => tree.refuse_new(reach.group, path),
        };
        Ok((reach.clone(), tree.is_moving(reach.group)?, allowed))
    })?;
    // The mover of the group may be gone: another look sees what its move has come to.
    if moving && moves::end_dead_moves(namespace)? {
        return Err(Error::moved());
    }
    let realms = relying;
    let home = reach.home.map(|at| realms[at].scope());
    let target = match (scope, reach.taken) {
        (Some(scope), _) => scope,
        (None, Some(MemberLocation { at, member: Member::Object(_), .. })) if replace => {
            realms[at].scope()
        }
        (None, _) => match home {
            Some(scope) => scope,
            None if namespace.sees_shared() => Scope::Shared,
            None => Scope::Private,
        },
    };
    if target == Scope::Published {
        fail!(
            ReadOnly,
            "nothing is made in what is published, and {path:?} would be: make it with \
             scope=\"shared\" or \"private\", and publish it then"
        );
    }
    check_name(path, &parsed, target, scope.is_some(), taker, &reach, &realms)?;
    let taken = reach.taken.is_some_and(|place| realms[place.at].scope() == target);
    if replace || !taken {
        allowed?;
    }
    let Some(realm) = namespace.realm_of(target, true)? else {
        fail!(NotFound, "namespace {:?} has no {} realm", namespace.namespace(), target.as_str())
    };
    let realm = match realms.iter().find(|known| known.is(&realm)) {
        Some(known) => known.clone(),
        // It has just been made, and the look knew nothing of it.
        None if namespace.all_seen()?.iter().any(|known| known.is(&realm)) => {
            return Err(Error::moved());
        }
        // The shared one, which this user has only now been let into.
        None => realm,
    };
    Namespace::route_batch(&realm, &realms)?;
    prepare(namespace, &realm, &realms, &reach, &parsed)?;
    let rest = rest_of(path, &parsed, reach.missing);
    Ok(Aim { realm, group: reach.group, path: rest })
}

/// Refuses a name that would not lead to what is made under it.
fn check_name(
    path: &str,
    parsed: &Path<'_>,
    target: Scope,
    asked: bool,
    taker: Taker,
    reach: &Reach,
    realms: &[Realm],
) -> Result<()> {
    let Some(place) = reach.taken else { return Ok(()) };
    let there = realms[place.at].scope();
    if there < target && asked {
        fail!(
            Exists,
            "{path:?} exists as your own {} member, and would hide the {} one from you: delete \
             or rename that first",
            there.as_str(),
            target.as_str()
        );
    }
    if there != target && !asked {
        return engram_ops::group::taken(parsed.last.as_str(), place.member, taker);
    }
    Ok(())
}

/// Has a realm know the group in which something is to be made, and gets mirrors of groups that
/// are elsewhere by now out of the way.
pub(super) fn prepare(
    namespace: &Namespace,
    realm: &Realm,
    realms: &[Realm],
    reach: &Reach,
    path: &Path<'_>,
) -> Result<()> {
    // The name of a member that is there already is seen by others, whatever has become of its
    // group.
    let there = reach.taken.is_some_and(|place| realms[place.at].is(realm));
    if let Some(home) = reach.home.filter(|_| !there)
        && realm.scope() > realms[home].scope()
    {
        fail!(
            Argument,
            "a {} member cannot lie in a {} group: others would see what that is called; share \
             the group first",
            realm.scope().as_str(),
            realms[home].scope().as_str()
        );
    }
    let Some(at) = realms.iter().position(|known| known.is(realm)) else { return Ok(()) };
    // The component that is the first to be made.
    let name = path.parents.get(path.parents.len() - reach.missing);
    let name = name.unwrap_or(&path.last).as_str();
    let (chain, squatter) = namespace.look(realms, |tree| {
        let chain = tree.chain(reach.group)?;
        let behind = tree.is_behind(at, &chain)?;
        if let Some(gid) = tree.usurped(at, &chain)? {
            let hidden = tree.path_of(Member::Group(gid))?;
            fail!(
                Exists,
                "there are {} members already in another group {hidden:?}, which this one \
                 hides: rename or delete one of the two groups, or use another name",
                realm.scope().as_str()
            );
        }
        let squatter = match tree.squatter(at, reach.group, name)? {
            Some(gid) => tree.chain(gid)?,
            None => Vec::new(),
        };
        Ok((if behind { chain } else { Vec::new() }, squatter))
    })?;
    for chain in [chain, squatter] {
        if !chain.is_empty() {
            realm.reflect(&originals(chain, realm, realms)?)?;
        }
    }
    Ok(())
}

/// What the groups of a chain say of themselves to a realm, outermost first: only their names,
/// where others look.
pub(super) fn originals(
    chain: Vec<(usize, GroupInfo)>,
    to: &Realm,
    realms: &[Realm],
) -> Result<Vec<GroupContent>> {
    let mut all = Vec::with_capacity(chain.len());
    for (home, info) in chain.into_iter().rev() {
        let attrs = match to.scope() {
            Scope::Private => realms[home].attrs(Member::Group(info.gid)),
            _ => Ok(Vec::new()),
        };
        all.push((info, attrs.map_err(Error::gone_is_moved)?));
    }
    Ok(all)
}

/// Whether this thread runs a batch on another realm than this one.
fn batch_elsewhere(realm: &Realm, realms: &[Realm]) -> bool {
    realms.iter().any(|other| other.runs_batch() && !other.is(realm))
}

/// The end of a path: its last component, and the missing ones before it.
pub(super) fn rest_of<'p>(path: &'p str, parsed: &Path<'_>, missing: usize) -> &'p str {
    let components = missing + 1;
    debug_assert!(components <= parsed.parents.len() + 1);
    match path.rmatch_indices('/').nth(components - 1) {
        Some((slash, _)) => &path[slash + 1..],
        None => path.strip_prefix('/').unwrap_or(path),
    }
}
