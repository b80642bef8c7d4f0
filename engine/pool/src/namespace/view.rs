//! The view: what one user sees of a namespace's realms, as one tree.
//!
//! Up to three realms stand behind it: the user's private one, the shared one, the published one.
//! Each is whole in itself, and knows nothing of the others; they have only the GIDs of groups in
//! common. The members of a group are its members in each realm seen. So no path is translated
//! anywhere: a group is its GID in all of them.
//!
//! Most namespaces have the shared realm alone. Then every operation is that realm's, and the view
//! costs one load of the shared counter (`scopes`) and a branch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::handle::Inner;
use super::{Namespace, moves};

use super::setup::namespace_file;
use crate::namespace::{private, realm_setup, scopes};
use crate::pool::Pool;
use crate::published::with_newest;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::mutex::lock;
use engram_base::scope::Scope;
use engram_base::user;
use engram_files::folder::belongs_to;
use engram_files::paths::{place, within};
use engram_files::pool_file::FORMAT;
use engram_ops::group::GroupInfo;
use engram_realm::process::between_forks;
use engram_realm::{HasCore, Mode, Realm};

/// How many published versions of before stay open.
const OUTDATED_MAX: usize = 4;

/// The realms beside the shared one.
#[derive(Clone, Default)]
pub(super) struct RealmsBeside {
    private: Option<Realm>,
    published: Option<Realm>,
    /// Which look found them.
    look: u64,
    /// Published versions of before, newest first: look-ups that run may still be at them.
    outdated: Vec<Realm>,
}

impl RealmsBeside {
    /// Keeps a version open that is not the newest, since look-ups may be at it. Returns those that
    /// are too many.
    fn keep_for_a_while(&mut self, version: Option<Realm>) -> Vec<Realm> {
        let mut outdated = std::mem::take(&mut self.outdated);
        if let Some(version) = version.filter(|found| !outdated.iter().any(|known| known.is(found)))
        {
            outdated.insert(0, version);
        }
        outdated.retain(|known| self.published.as_ref().is_none_or(|newest| !newest.is(known)));
        let gone = outdated.split_off(outdated.len().min(OUTDATED_MAX));
        self.outdated = outdated;
        gone
    }

    /// Whether this is the private realm.
    fn has_private(&self, realm: &Realm) -> bool {
        self.private.as_ref().is_some_and(|known| known.is(realm))
    }
}

/// The realms that a user sees now, those whose names win first.
pub(super) enum VisibleRealms<'a> {
    /// The shared one alone.
    One(&'a Realm),
    /// Any others.
    Many(Vec<Realm>),
}

/// See [`Namespace::open`].
pub(super) fn open(pool: &Pool, name: &str) -> Result<Namespace> {
    let namespace = open_any(pool, name, false)?;
    if namespace.mode() == Mode::ReadWrite {
        moves::recover(&namespace)?;
    }
    Ok(namespace)
}

/// The namespace with all that its user may see, or without what he keeps in private.
pub(super) fn open_any(pool: &Pool, name: &str, leaves_private_out: bool) -> Result<Namespace> {
    let shared = match pool.realm(name) {
        Ok(realm) => Some(realm),
        Err(error) if error.kind() == Kind::Access => {
            // A user who may enter sees what is published, and may keep things in private.
            if namespace_file(pool.path(), FORMAT, name).is_err() {
                return Err(error);
            }
            None
        }
        Err(error) => return Err(error),
    };
    let root = match &shared {
        Some(realm) => realm.root(),
        None => namespace_file(pool.path(), FORMAT, name)?.root,
    };
    let counter = match &shared {
        Some(_) => Some(Arc::new(scopes::open(&place(pool.path(), name))?)),
        None => None,
    };
    if let Some(counter) = &counter {
        pool.keep_counter(counter);
    }
    let inner = Inner {
        pool: pool.clone(),
        name: name.to_owned(),
        root,
        shared,
        looked_at: AtomicU64::new(counter.as_ref().map_or(0, |counter| counter.get())),
        counter,
        alone: AtomicBool::new(false),
        looks: AtomicU64::new(0),
        beside: Mutex::default(),
        hidden: Mutex::default(),
        is_snapshot: false,
        leaves_private_out,
    };
    let namespace = Namespace { inner: Arc::new(inner) };
    look_for_realms(&namespace)?;
    Ok(namespace)
}

/// See [`Namespace::realm_of`].
pub(super) fn realm_of(namespace: &Namespace, scope: Scope, make: bool) -> Result<Option<Realm>> {
    let inner = &*namespace.inner;
    check_open(namespace)?;
    match scope {
        // Asked again where it was refused, for the message; and a member may have been added.
        Scope::Shared => match &inner.shared {
            Some(realm) => Ok(Some(realm.clone())),
            None => inner.pool.realm(&inner.name).map(Some),
        },
        Scope::Private => match others(namespace)?.private {
            None if make => make_private(namespace).map(Some),
            found => Ok(found),
        },
        Scope::Published => Ok(others(namespace)?.published),
    }
}

pub(super) fn seen_beside(namespace: &Namespace) -> Result<VisibleRealms<'_>> {
    check_open(namespace)?;
    let others = others(namespace)?;
    let shared = namespace.inner.shared.clone();
    if let (Some(shared), RealmsBeside { private: None, published: None, .. }) =
        (&namespace.inner.shared, &others)
    {
        return Ok(VisibleRealms::One(shared));
    }
    let all = [others.private, shared, others.published];
    Ok(VisibleRealms::Many(all.into_iter().flatten().collect()))
}

/// The realms beside the shared one, looked for again if any may have come.
fn others(namespace: &Namespace) -> Result<RealmsBeside> {
    let inner = &*namespace.inner;
    match &inner.counter {
        _ if inner.is_snapshot => {}
        Some(counter) if counter.get() == inner.looked_at.load(Ordering::Acquire) => {}
        _ => look_for_realms(namespace)?,
    }
    Ok(between_forks(|| lock(&inner.beside).clone()))
}

/// Looks for the realms beside the shared one.
///
/// A private realm has its name before its maker can tell of it, and the maker may die in between.
/// So every process that finds one and may write tells the others, before it puts anything there.
pub(crate) fn look_for_realms(namespace: &Namespace) -> Result<()> {
    let inner = &*namespace.inner;
    // Before the folders: what comes after that is told again.
    let look = inner.looks.fetch_add(1, Ordering::AcqRel) + 1;
    let at = namespace.counter();
    let known = between_forks(|| lock(&inner.beside).clone());
    let private = match known.private {
        Some(realm) if !realm.core().is_shut() => Some(realm),
        _ if inner.leaves_private_out => None,
        // There was none, or the user has removed it.
        _ => realm_beside(&inner.pool, &inner.name, Scope::Private)?,
    };
    let published = realm_beside(&inner.pool, &inner.name, Scope::Published)?;
    let is_new = |realm: &Realm| between_forks(|| !lock(&inner.beside).has_private(realm));
    if namespace.mode() == Mode::ReadWrite && private.as_ref().is_some_and(is_new) {
        step!("private.found");
        namespace.has_come();
    }
    let alone = private.is_none() && published.is_none();
    let gone = between_forks(|| {
        let mut others = lock(&inner.beside);
        let before = if look < others.look {
            // A look that began later has ended: it has seen all that this one has.
            published
        } else {
            (others.look, others.private) = (look, private);
            inner.alone.store(alone, Ordering::Relaxed);
            // Whoever sees the count sees what was found at it: see `Namespace::seen`.
            inner.looked_at.store(at, Ordering::Release);
            std::mem::replace(&mut others.published, published)
        };
        others.keep_for_a_while(before)
    });
    for realm in &gone {
        inner.pool.let_go(realm);
    }
    Ok(())
}

fn make_private(namespace: &Namespace) -> Result<Realm> {
    let inner = &*namespace.inner;
    if inner.is_snapshot {
        fail!(ReadOnly, "a snapshot shows what was: write through the pool itself");
    }
    if namespace.mode() == Mode::Read {
        fail!(
            ReadOnly,
            "the pool {} is open read-only: open it with mode \"r+\" to write",
            inner.pool.path().display()
        );
    }
    if inner.leaves_private_out {
        fail!(Access, "what is private is left out here: use the pool itself for it");
    }
    let (path, file, mount) = inner.pool.parts();
    let size = inner.shared.as_ref().map(Realm::space).transpose()?;
    let size = size.map(|space| space.size);
    private::ensure(path, file, mount.clone(), &inner.name, size)?;
    look_for_realms(namespace)?;
    match between_forks(|| lock(&inner.beside).private.clone()) {
        Some(realm) => Ok(realm),
        None => Err(Error::new(
            Kind::NotFound,
            format!("the private realm of {:?} was removed as soon as it was made", inner.name),
        )),
    }
}

/// The root where no realm is seen that has it.
pub(super) fn bare_root(namespace: &Namespace) -> Result<GroupInfo> {
    let info = super::info(namespace.pool_path(), namespace.namespace())?;
    Ok(GroupInfo {
        gid: namespace.root(),
        parent: 0,
        name: String::new(),
        owner: info.owner,
        created: 0,
        modified: 0,
        origin: Vec::new(),
        properties: Vec::new(),
        scope: Scope::Shared,
    })
}

/// A view of these realms, which are snapshots of those seen here, and of no others.
pub(super) fn of_snapshots(namespace: &Namespace, held: &[Realm]) -> Namespace {
    let of = |scope| held.iter().find(|realm| realm.scope() == scope).cloned();
    let others = RealmsBeside {
        private: of(Scope::Private),
        published: of(Scope::Published),
        ..RealmsBeside::default()
    };
    let inner = Inner {
        pool: namespace.inner.pool.clone(),
        name: namespace.inner.name.clone(),
        root: namespace.inner.root,
        shared: of(Scope::Shared),
        counter: None,
        looked_at: AtomicU64::new(0),
        alone: AtomicBool::new(false),
        looks: AtomicU64::new(0),
        beside: Mutex::new(others),
        hidden: Mutex::default(),
        is_snapshot: true,
        leaves_private_out: false,
    };
    Namespace { inner: Arc::new(inner) }
}

/// The realms of a snapshot; none, if this is not of one.
pub(super) fn snapshots(namespace: &Namespace) -> Vec<Realm> {
    let inner = &*namespace.inner;
    if !inner.is_snapshot {
        return Vec::new();
    }
    let others = between_forks(|| lock(&inner.beside).clone());
    [others.private, inner.shared.clone(), others.published].into_iter().flatten().collect()
}

fn check_open(namespace: &Namespace) -> Result<()> {
    if !namespace.inner.pool.is_open() {
        fail!(
            Argument,
            "the pool {} is closed: open it again (views of it stay valid)",
            namespace.inner.pool.path().display()
        );
    }
    Ok(())
}

/// The realm of a scope beside the shared one, if there is one that this user may open.
fn realm_beside(pool: &Pool, name: &str, scope: Scope) -> Result<Option<Realm>> {
    let (path, file, mount) = pool.parts();
    let dir = place(path, name).join(within(scope, user::current()));
    if scope == Scope::Private && !belongs_to(&dir, user::current()) {
        // Anything that others put in its place has nothing of the user's in it: it is refused
        // where the user wants to make the realm, and keeps nobody from the others.
        return Ok(None);
    }
    let find = || realm_setup(path, file, mount.clone(), name, scope);
    if scope == Scope::Published {
        return with_newest(find, |setup| pool.open_realm(setup));
    }
    find()?.map(|setup| pool.open_realm(setup)).transpose()
}
