//! Writing through the view: each operation falls into one realm.
//!
//! What is made has the scope that was asked for; else that of what it replaces, else that of its
//! group. What is changed or deleted is changed where it is. Before anything is made in a realm
//! that has not its group, mirrors of that group and of those above it are made there.
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

use super::allocation::Allocation;
use super::retry::{Doing, Retry};
use super::setup::set_size;
use super::tree::{MemberLocation, Reach};
use super::view::{Namespace, VisibleRealms};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_index::{IndexSettings, IndexStats};
use engram_ops::group::{GroupInfo, Taker};
use engram_realm::batch::Batch;
use engram_realm::view::View;
use engram_realm::{Holders, Realm, Space};
use engram_records::attrs::Value;
use engram_records::index_mode::IndexMode;
use engram_records::object::{NewObject, Placement};

/// Where something is to be made.
pub(super) struct Aim<'p> {
    pub realm: Realm,
    /// The last group on the way that is there, in the realm as in the view.
    pub group: Gid,
    /// The rest of the path.
    pub path: &'p str,
}

/// What a group says of itself: what is known of it, and its attributes.
type Original = (GroupInfo, Vec<(String, Value)>);

impl Namespace {
    /// Makes a group; missing parents are made. With `exist_ok` an existing one is returned. The
    /// scope is that of the group it is made in, unless one is given.
    pub fn create_group(
        &self,
        parent: Gid,
        path: &str,
        attrs: &[(String, Value)],
        origin: &[u8],
        exist_ok: bool,
        scope: Option<Scope>,
    ) -> Result<Gid> {
        self.retry(Retry::IfMoved, || {
            if let Some(realm) = self.only(scope)? {
                return realm.create_group(parent, path, attrs, origin, exist_ok);
            }
            if exist_ok && let Some(Member::Group(gid)) = self.lookup(parent, path)? {
                return Ok(gid);
            }
            let aim = self.aim_among_realms(parent, path, scope, Taker::Group)?;
            aim.realm.create_group(aim.group, aim.path, attrs, origin, exist_ok)
        })
    }

    /// Stores a value under a name; visible to everyone of the scope, whole, when this returns.
    ///
    /// On error nothing is visible and the space goes back.
    pub fn put(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        data: &[u8],
        placement: Placement,
    ) -> Result<Oid> {
        self.retry(Retry::IfMoved, || {
            let aim = self.aim(parent, path, placement)?;
            aim.realm.put(aim.group, aim.path, new, data, placement)
        })
    }

    /// Stores zeros: space now, contents later, in place.
    pub fn create_zeroed(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        placement: Placement,
    ) -> Result<Oid> {
        self.retry(Retry::IfMoved, || {
            let aim = self.aim(parent, path, placement)?;
            aim.realm.create_zeroed(aim.group, aim.path, new, placement)
        })
    }

    /// Reserves space for an object that becomes visible on [`Allocation::publish`]. It holds
    /// whatever its realm held there before.
    pub fn allocate(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        nbytes: u64,
        placement: Placement,
    ) -> Result<Allocation> {
        let space = self.retry(Retry::IfMoved, || {
            let aim = self.aim(parent, path, placement)?;
            aim.realm.allocate(aim.group, aim.path, new, nbytes, placement)
        })?;
        let (namespace, path, new) = (self.clone(), path.to_owned(), new.clone());
        Ok(Allocation { space, namespace, parent, path, new, nbytes, placement })
    }

    /// Unnamed memory of the pool, gone with its last reference or its process.
    pub fn scratch(&self, nbytes: u64, device: Option<u32>) -> Result<View> {
        self.own_realm()?.scratch(nbytes, device)
    }

    /// Replaces an object's value if its payload still has this generation; `false` if not.
    ///
    /// An object that is gone is `BusyError` (P8).
    pub fn replace_payload(&self, oid: Oid, generation: u32, data: &[u8]) -> Result<bool> {
        let write = |realm: &Realm| realm.replace_payload(oid, generation, data);
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, write)
    }

    /// Replaces what is kept beside a group for export (an import into an existing group).
    pub fn set_origin(&self, group: Gid, origin: &[u8]) -> Result<()> {
        self.write_in_owning_realm(Member::Group(group), Doing::Changing, |realm| {
            realm.set_origin(group, origin)
        })
    }

    /// Sets attributes of a member, all in one commit.
    pub fn set_attrs(&self, member: Member, attrs: &[(String, Value)]) -> Result<()> {
        self.set_attrs_if(member, &[], attrs)
    }

    /// The same if attributes are still what they were; else it is `BusyError`.
    pub fn set_attrs_if(
        &self,
        member: Member,
        was: &[(String, Value)],
        attrs: &[(String, Value)],
    ) -> Result<()> {
        self.write_in_owning_realm(member, Doing::Changing, |realm| {
            realm.set_attrs_if(member, was, attrs)
        })
    }

    /// Removes an attribute of a member.
    pub fn delete_attr(&self, member: Member, key: &str) -> Result<()> {
        self.write_in_owning_realm(member, Doing::Changing, |realm| realm.delete_attr(member, key))
    }

    /// Says of a member that it is not to be changed, or takes that back.
    pub fn set_read_only(&self, member: Member, on: bool) -> Result<()> {
        self.write_in_owning_realm(member, Doing::Changing, |realm| realm.set_read_only(member, on))
    }

    /// Whether a member is not to be changed, since it or a group above it is read-only.
    pub fn is_read_only(&self, member: Member) -> Result<bool> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.is_read_only(member),
            VisibleRealms::Many(realms) if realms.is_empty() => {
                fail!(NotFound, "there is nothing in namespace {:?}", self.namespace())
            }
            VisibleRealms::Many(realms) => self.look(&realms, |tree| tree.is_read_only(member)),
        })
    }

    /// Who holds what in the shared realm; of who may not open that, in what there is.
    pub fn holders(&self) -> Result<Holders> {
        // Who reads what is published holds nothing that anybody could list.
        let realm = self.main_realm()?.filter(|realm| realm.scope() != Scope::Published);
        realm.map_or_else(|| Ok(Holders::default()), |realm| realm.holders())
    }

    /// Begins a batch in this thread, or joins the one that runs. It covers one realm: that of its
    /// first write. It is undone if the guard goes without an end.
    pub fn batch(&self) -> Result<Batch> {
        if let VisibleRealms::Many(realms) = self.seen()?
            && let Some(realm) = realms.iter().find(|realm| realm.runs_batch())
        {
            return realm.batch();
        }
        self.own_realm()?.batch()
    }

    /// Sets how objects that will be stored below a group are indexed, in each realm that has it.
    pub fn set_index_settings(&self, group: Gid, settings: &IndexSettings) -> Result<()> {
        let realms = match self.seen()? {
            VisibleRealms::One(realm) => return realm.set_index_settings(group, settings),
            VisibleRealms::Many(realms) => realms,
        };
        // The one that says what holds comes first: where that is refused, nothing changes.
        let set = |realm: &Realm| realm.set_index_settings(group, settings);
        self.write_in_owning_realm(Member::Group(group), Doing::Setting, set)?;
        let having = self.look(&realms, |tree| tree.having(group))?;
        for realm in having.into_iter().map(|at| &realms[at]) {
            if realm.scope() != Scope::Published && !Self::batch_elsewhere(realm, &realms) {
                realm.set_index_settings(group, settings)?;
            }
        }
        Ok(())
    }

    /// The settings that a group has itself.
    pub fn index_settings(&self, group: Gid) -> Result<IndexSettings> {
        self.in_owning_realm(Member::Group(group), |realm| realm.index_settings(group))
    }

    /// What the indexes of all realms seen are made of.
    pub fn index_stats(&self) -> Result<IndexStats> {
        let realms = match self.seen()? {
            VisibleRealms::One(realm) => return realm.index_stats(),
            VisibleRealms::Many(realms) => realms,
        };
        let mut all = IndexStats::default();
        for realm in &realms {
            all.unite(realm.index_stats()?);
        }
        Ok(all)
    }

    /// Does all maintenance that is due; how many steps that took.
    pub fn maintain(&self) -> Result<u64> {
        self.sum(Realm::maintain)
    }

    /// Indexes up to `most` objects that are queued in each realm; how many it were.
    pub fn drain_queue(&self, most: u64) -> Result<u64> {
        self.sum(|realm| realm.drain_queue(most))
    }

    /// Indexes the objects below a group anew; with a mode, they have it from then on. How many
    /// objects it were.
    pub fn reindex(&self, group: Gid, mode: Option<IndexMode>) -> Result<u64> {
        self.sum(|realm| realm.reindex(group, mode))
    }

    fn sum(&self, work: impl Fn(&Realm) -> Result<u64>) -> Result<u64> {
        let realms = match self.seen()? {
            VisibleRealms::One(realm) => return work(realm),
            VisibleRealms::Many(realms) => realms,
        };
        let mut sum = 0;
        for realm in realms.iter().filter(|realm| realm.scope() != Scope::Published) {
            sum += work(realm)?;
        }
        Ok(sum)
    }

    /// Where the space of the shared realm is; of who may not open that, of what there is.
    pub fn space(&self) -> Result<Space> {
        self.main_realm()?.map_or_else(|| Ok(Space::default()), |realm| realm.space())
    }

    /// Sets the bound of the shared realm's arena, rounded up to 2 MiB; with it that of this user's
    /// private one, but not below what that has. New private realms have it, too: those of who may
    /// not use the shared realm, if the namespace's owner says so.
    pub fn resize(&self, size: u64) -> Result<()> {
        // The bound is for those to say who share the namespace, not for whom it binds in private.
        let Some(shared) = self.realm_of(Scope::Shared, false)? else {
            return self.own_realm()?.resize(size);
        };
        let private = self.realm_of(Scope::Private, false)?;
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
        // What the owner alone may write binds what is not there yet: nothing is lost without it.
        let _ = set_size(self.pool_path(), self.namespace(), shared.space()?.size);
        Ok(())
    }

    /// The one realm that there is, if what has this scope is made in it.
    fn only(&self, scope: Option<Scope>) -> Result<Option<Realm>> {
        let fits = |realm: &Realm| scope.is_none_or(|scope| scope == realm.scope());
        Ok(self.alone()?.filter(fits))
    }

    /// The realm of what says nothing of its scope: the shared one, or the private one of who may
    /// not use that.
    fn own_realm(&self) -> Result<Realm> {
        let scope = if self.sees_shared() { Scope::Shared } else { Scope::Private };
        match self.realm_of(scope, true)? {
            Some(realm) => Ok(realm),
            None => {
                fail!(NotFound, "namespace {:?} has no {} realm", self.namespace(), scope.as_str())
            }
        }
    }

    /// The shared realm, if this user sees it; else the first that there is.
    fn main_realm(&self) -> Result<Option<Realm>> {
        let realms = self.all_seen()?;
        Ok(realms.into_iter().min_by_key(|realm| realm.scope() != Scope::Shared))
    }

    /// The realms seen, as a list.
    pub(crate) fn all_seen(&self) -> Result<Vec<Realm>> {
        Ok(match self.seen()? {
            VisibleRealms::One(realm) => vec![realm.clone()],
            VisibleRealms::Many(realms) => realms,
        })
    }

    /// Where an object is to be made, with all that the realm needs for it.
    pub(super) fn aim<'p>(
        &self,
        parent: Gid,
        path: &'p str,
        placement: Placement,
    ) -> Result<Aim<'p>> {
        let Placement { scope, overwrite, .. } = placement;
        match self.only(scope)? {
            Some(realm) => Ok(Aim { realm, group: parent, path }),
            None => self.aim_among_realms(parent, path, scope, Taker::Object { overwrite }),
        }
    }

    /// The same where there are several realms, of an object or of a group.
    fn aim_among_realms<'p>(
        &self,
        parent: Gid,
        path: &'p str,
        scope: Option<Scope>,
        taker: Taker,
    ) -> Result<Aim<'p>> {
        let replace = matches!(taker, Taker::Object { overwrite: true });
        let parsed = Path::new(path)?;
        let realms = self.all_seen()?;
        let ((reach, moving, allowed), relying) = self.look_to_change(&realms, |tree| {
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
        // Who moves the group may be gone.
        if moving && self.end_dead_moves()? {
            return self.aim_among_realms(parent, path, scope, taker);
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
                None if self.sees_shared() => Scope::Shared,
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
        Self::check_name(path, &parsed, (target, scope.is_some(), taker), &reach, &realms)?;
        let taken = reach.taken.is_some_and(|place| realms[place.at].scope() == target);
        if replace || !taken {
            allowed?;
        }
        let Some(realm) = self.realm_of(target, true)? else {
            fail!(NotFound, "namespace {:?} has no {} realm", self.namespace(), target.as_str())
        };
        let realm = match realms.iter().find(|known| known.is(&realm)) {
            Some(known) => known.clone(),
            // It has just been made, and the look knew nothing of it.
            None if self.all_seen()?.iter().any(|known| known.is(&realm)) => {
                return Err(Error::moved());
            }
            // The shared one, which this user has only now been let into.
            None => realm,
        };
        Self::settle(&realm, &realms)?;
        self.prepare(&realm, &realms, &reach, &parsed)?;
        let rest = rest_of(path, &parsed, reach.missing);
        Ok(Aim { realm, group: reach.group, path: rest })
    }

    /// Refuses a name that would not lead to what is made under it.
    fn check_name(
        path: &str,
        parsed: &Path<'_>,
        (target, asked, taker): (Scope, bool, Taker),
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
        &self,
        realm: &Realm,
        realms: &[Realm],
        reach: &Reach,
        path: &Path<'_>,
    ) -> Result<()> {
        // What is there already has others see its name, whatever has become of its group.
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
        let (chain, squatter) = self.look(realms, |tree| {
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
                realm.reflect(&Self::originals(chain, realm, realms)?)?;
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
    ) -> Result<Vec<Original>> {
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

    /// Runs a change of a member in the realm that has it.
    pub(super) fn write_in_owning_realm<T>(
        &self,
        member: Member,
        doing: Doing,
        operation: impl Fn(&Realm) -> Result<T>,
    ) -> Result<T> {
        if member == Member::Group(self.root()) {
            return operation(&self.own_realm()?);
        }
        self.with_owning_realm(member, doing, |realm, realms| {
            Self::settle(realm, realms)?;
            operation(realm)
        })
    }

    /// Gives the batch that this thread runs to the realm that it writes to first.
    pub(super) fn settle(realm: &Realm, realms: &[Realm]) -> Result<()> {
        match realms.iter().find(|other| other.runs_batch() && !other.is(realm)) {
            Some(other) => other.hand_batch_to(realm),
            None => Ok(()),
        }
    }

    /// Whether this thread runs a batch on another realm than this one.
    fn batch_elsewhere(realm: &Realm, realms: &[Realm]) -> bool {
        realms.iter().any(|other| other.runs_batch() && !other.is(realm))
    }
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
