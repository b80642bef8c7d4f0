//! Moves, as the view of a namespace has them.

use std::collections::HashSet;
use std::sync::Arc;

use super::copies::CopyPlan;
use super::{change, view};

use crate::namespace::Namespace;
use crate::published::Making;
use crate::transfer::recover;
use crate::transfer::recover::{Other, Others};
use crate::transfer::{
    Leg, MoveSource, Moved, forget_receipts, leave_namespace, publish, to_realm, unpublish,
};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::{Gid, Member};
use engram_base::scope::Scope;
use engram_base::user;
use engram_catalog::Table;
use engram_ops::marks::{Stage, Transfer};
use engram_realm::batch;
use engram_realm::{Core, HasCore, Mode, Realm};

pub(super) fn transfer_now(
    namespace: &Namespace,
    parent: Gid,
    path: &str,
    from: &[Scope],
    to: Scope,
) -> Result<Moved> {
    if path == "/" {
        return transfer_members(namespace, &members_of_root(namespace)?, from, to);
    }
    let Some(member) = namespace.lookup(parent, path)? else {
        fail!(
            NotFound,
            "there is no {path:?} in this group: list its members with keys() or tree()"
        )
    };
    let stays = || {
        let scope = namespace.scope_of(member).map_err(Error::gone_is_moved)?;
        if scope != to && !from.contains(&scope) {
            fail!(Argument, "{path:?} is {}, and stays so: {}", scope.as_str(), way_out(scope));
        }
        Ok(())
    };
    if let Member::Object(_) = member {
        stays()?;
    }
    let moved = transfer_members(namespace, &[member], from, to)?;
    // A group may be in one realm and have members in another; that nothing of it has moved
    // is no success if it is not where it was to go.
    if moved == Moved::default() {
        stays()?;
    }
    Ok(moved)
}

/// All that is in the root, which itself is in every realm.
fn members_of_root(namespace: &Namespace) -> Result<Vec<Member>> {
    let members = namespace.list(namespace.root(), None, usize::MAX)?;
    Ok(members.into_iter().map(|(_, member)| member).collect())
}

/// Refuses a namespace that is not written to.
pub(super) fn refuse_reader(namespace: &Namespace, what: &str) -> Result<()> {
    if namespace.is_snapshot() {
        fail!(
            ReadOnly,
            "this is of a snapshot of {:?}, which shows what was: {what} it through the pool \
             itself",
            namespace.namespace()
        );
    }
    if namespace.mode() == Mode::Read {
        fail!(
            ReadOnly,
            "the pool {} is open read-only: open it with mode \"r+\" to write",
            namespace.pool_path().display()
        );
    }
    Ok(())
}

pub(super) fn check_move(namespace: &Namespace, from: &[Scope], to: Scope) -> Result<()> {
    refuse_reader(namespace, &format!("move to what is {} in", to.as_str()))?;
    if from.contains(&to) || from.is_empty() || (from.len() > 1 && to != Scope::Published) {
        fail!(Argument, "nothing moves from {from:?} to {to:?}: name one scope and another");
    }
    recover(namespace)
}

pub(super) fn transfer_members(
    namespace: &Namespace,
    members: &[Member],
    from: &[Scope],
    to: Scope,
) -> Result<Moved> {
    let mut sources = Vec::new();
    let mut taken = HashSet::new();
    let seen = namespace.all_seen()?;
    if to == Scope::Published {
        change::refuse_hidden(namespace, members, &seen)?;
    }
    for scope in from {
        let Some(realm) = namespace.realm_of(*scope, false)? else { continue };
        let core = realm.core();
        if batch::runs(core) {
            fail!(Busy, "a batch runs in this thread: end it before moving what is in it");
        }
        if *scope == Scope::Private {
            namespace.own_orphans(&seen)?;
        }
        let mut roots = change::strays_below(namespace, members, &realm, &seen)?;
        roots.extend(there_of(core, members, &mut taken)?);
        let source = MoveSource { core: Arc::clone(realm.core()), roots };
        // Groups of others alone are nothing to move: they would come in sight of more.
        if !source.roots.is_empty() && source.has_own()? {
            sources.push(source);
        }
    }
    if sources.is_empty() {
        return Ok(Moved::default());
    }
    if to == Scope::Published {
        return publish(&sources, begin_publishing(namespace)?);
    }
    change::refuse_in_read_only(namespace, members).map_err(Error::gone_is_moved)?;
    let target = namespace.realm_of(to, true)?;
    let Some(target) = target else {
        fail!(NotFound, "namespace {:?} has no {} realm", namespace.namespace(), to.as_str())
    };
    if batch::runs(target.core()) {
        fail!(Busy, "a batch runs in this thread: end it before moving what is to come there");
    }
    let source = sources.swap_remove(0);
    if !source.core.setup.immutable {
        return to_realm(&source, target.core());
    }
    let mut making = begin_publishing(namespace)?;
    if has_arrivals(namespace)? {
        // The process that had the publish lock before may have died of it.
        drop(making);
        recover(namespace)?;
        making = begin_publishing(namespace)?;
    }
    // Under the publish lock: what it begins with is the newest version.
    match newest(namespace)? {
        Some(newest) => {
            let source = MoveSource { core: Arc::clone(newest.core()), roots: source.roots };
            unpublish(&source, target.core(), making)
        }
        None => fail!(Busy, "what was published is withdrawn already: list again"),
    }
}

/// Members that are on their way to another namespace: nobody changes them, and all may read them.
/// They stay, if this goes without an end; a child that was forked meanwhile decides nothing.
pub struct Departure {
    legs: Vec<Leg>,
    is_over: bool,
    pid: u32,
}

impl Departure {
    /// Takes the members away from here. All of them are in the plan, and what was made by it is
    /// where they are from now on.
    ///
    /// On error they are here still, or those of one scope of two.
    pub fn go(mut self, copied: &CopyPlan) -> Result<()> {
        if self.pid != std::process::id() {
            fail!(Busy, "the process that forked this one moves it");
        }
        let known: HashSet<Member> = copied.members().collect();
        for leg in &self.legs {
            if let Some(left) = leg.members().find(|member| !known.contains(member)) {
                fail!(
                    Exists,
                    "{:?} is hidden by your own member of that name, and would be lost: rename or \
                     delete one of the two first",
                    leg.path_of(left)?
                );
            }
        }
        self.is_over = true;
        for (nth, leg) in self.legs.iter().enumerate() {
            if let Err(error) = leg.go() {
                self.legs[nth..].iter().for_each(Leg::stay);
                return Err(error.context("copied, and not taken away here: it is in both places"));
            }
        }
        Ok(())
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if !self.is_over && self.pid == std::process::id() {
            self.legs.iter().for_each(Leg::stay);
        }
    }
}

/// See [`Namespace::begin_departure`].
pub(super) fn begin_departure(namespace: &Namespace, parent: Gid, path: &str) -> Result<Departure> {
    namespace.check_deletable(parent, &[path.to_owned()])?;
    let Some(member) = namespace.lookup(parent, path)? else {
        fail!(
            NotFound,
            "there is no {path:?} in this group: list its members with keys() or tree()"
        )
    };
    let seen = namespace.all_seen()?;
    let mut departure = Departure { legs: Vec::new(), is_over: false, pid: std::process::id() };
    let mut taken = HashSet::new();
    for scope in [Scope::Private, Scope::Shared] {
        let Some(realm) = seen.iter().find(|realm| realm.scope() == scope) else { continue };
        let core = realm.core();
        if batch::runs(core) {
            fail!(Busy, "a batch runs in this thread: end it before moving what is in it");
        }
        if scope == Scope::Private {
            namespace.own_orphans(&seen)?;
        }
        let mut roots = change::strays_below(namespace, &[member], realm, &seen)?;
        roots.extend(there_of(core, &[member], &mut taken)?);
        let source = MoveSource { core: Arc::clone(core), roots };
        if !source.roots.is_empty() && source.has_own()? {
            departure.legs.push(leave_namespace(&source)?);
        }
    }
    // It has gone since it was looked for: another may have its name.
    if departure.legs.is_empty() { Err(Error::moved()) } else { Ok(departure) }
}

/// Whether members have come from a published version that may have them still.
fn has_arrivals(namespace: &Namespace) -> Result<bool> {
    for scope in [Scope::Private, Scope::Shared] {
        if let Some(realm) = namespace.realm_of(scope, false)? {
            let inside = realm.core().enter()?;
            let moves = Transfer::all(&inside.read()?)?;
            if moves.iter().any(|transfer| transfer.stage == Stage::Arrived) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn begin_publishing(namespace: &Namespace) -> Result<Making> {
    let Some(shared) = namespace.realm_of(Scope::Shared, false)? else {
        fail!(NotFound, "namespace {:?} has no shared realm", namespace.namespace())
    };
    let told = namespace.clone();
    let making = Making::begin(shared.core(), move || told.has_come())?;
    let mut realms = vec![Arc::clone(shared.core())];
    realms.extend(namespace.realm_of(Scope::Private, false)?.map(|own| Arc::clone(own.core())));
    forget_receipts(&making, &realms)?;
    Ok(making)
}

/// The newest published version.
pub(super) fn newest(namespace: &Namespace) -> Result<Option<Realm>> {
    view::look_for_realms(namespace)?;
    namespace.realm_of(Scope::Published, false)
}

/// Ends the moves that processes have left half-way which are gone now.
pub(crate) fn recover(namespace: &Namespace) -> Result<()> {
    for scope in [Scope::Private, Scope::Shared] {
        let realm = match namespace.realm_of(scope, false) {
            Err(error) if error.kind() == Kind::Access => None,
            found => found?,
        };
        if let Some(realm) = realm {
            recover::recover(realm.core(), namespace)?;
        }
    }
    Ok(())
}

/// Ends moves of processes that are gone; whether there were any.
pub(crate) fn end_dead_moves(namespace: &Namespace) -> Result<bool> {
    let known = || -> Result<u64> {
        let mut moves = 0;
        for scope in [Scope::Private, Scope::Shared] {
            match namespace.realm_of(scope, false) {
                Err(error) if error.kind() == Kind::Access => {}
                found => {
                    if let Some(realm) = found? {
                        let inside = realm.core().enter()?;
                        moves += inside.read()?.entries(Table::Transfers)?;
                    }
                }
            }
        }
        Ok(moves)
    };
    if namespace.mode() == Mode::Read {
        return Ok(false);
    }
    let before = known()?;
    if before == 0 {
        return Ok(false);
    }
    recover(namespace)?;
    Ok(known()? < before)
}

/// See [`Namespace::receipts`].
#[cfg(feature = "faults")]
pub(super) fn receipts(namespace: &Namespace) -> Result<u64> {
    let Some(realm) = newest(namespace)? else { return Ok(0) };
    let inside = realm.core().enter()?;
    inside.read()?.entries(Table::Received)
}

/// See [`Namespace::leaving`].
#[cfg(feature = "faults")]
pub(super) fn leaving(namespace: &Namespace) -> Result<u64> {
    let mut count = 0;
    for scope in [Scope::Private, Scope::Shared] {
        if let Some(realm) = namespace.realm_of(scope, false)? {
            let inside = realm.core().enter()?;
            let txn = inside.read()?;
            for table in [Table::Leaving, Table::Transfers, Table::Received] {
                count += txn.entries(table)?;
            }
        }
    }
    Ok(count)
}

/// Returns those of these members that a realm has. An object is in one realm; a group has members
/// in several. `taken` are those that an earlier realm has.
fn there_of(core: &Core, members: &[Member], taken: &mut HashSet<u64>) -> Result<Vec<Member>> {
    let inside = core.enter()?;
    let txn = inside.read()?;
    let mut found = Vec::new();
    for member in members {
        let (table, key) = engram_ops::group::table_of(*member);
        let there = txn.get(table, &key)?.is_some();
        let first = taken.insert(member.id()) || matches!(member, Member::Group(_));
        if there && first {
            found.push(*member);
        } else if !there && table == Table::Objects {
            taken.remove(&member.id());
        }
    }
    Ok(found)
}

fn way_out(scope: Scope) -> &'static str {
    match scope {
        Scope::Private => "share it first",
        Scope::Shared => "publish, or unshare it",
        Scope::Published => "unpublish it first",
    }
}

impl Others for Namespace {
    fn realm(&self, scope: Scope, uid: u32) -> Result<Other> {
        let found = match scope {
            Scope::Private if uid != user::current() => match user::current() {
                0 => self.private_of(uid),
                _ => return Ok(Other::Closed),
            },
            Scope::Published => newest(self),
            scope => self.realm_of(scope, false),
        };
        match found {
            Ok(Some(realm)) => Ok(Other::Open(Arc::clone(realm.core()))),
            Ok(None) => Ok(Other::Missing),
            Err(error) if error.kind() == Kind::Access => Ok(Other::Closed),
            Err(error) => Err(error),
        }
    }

    fn making(&self) -> Result<Option<Making>> {
        match begin_publishing(self) {
            Ok(making) => Ok(Some(making)),
            // A process that may not publish, or cannot now, since the holder of the publish lock
            // stands still, leaves it to the next: until then the members stay where they are.
            Err(error) if matches!(error.kind(), Kind::Access | Kind::Busy) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn told(&self) {
        self.has_come();
    }
}
