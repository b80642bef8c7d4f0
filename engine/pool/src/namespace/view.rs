//! The view: what one user sees of a namespace's realms, as one tree.
//!
//! Up to three realms stand behind it: the user's private one, the shared one, the published one.
//! Each is whole in itself, and knows nothing of the others; what they have in common is the GIDs
//! of groups. The members of a group are its members in each realm seen. So no path is translated
//! anywhere: a group is its GID in all of them.
//!
//! Most namespaces have the shared realm alone. Then every operation is that realm's, and the view
//! costs one load of the shared counter (`scopes`) and a branch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::query::Hidden;
use super::setup::{namespace_file, private_setup};
use crate::namespace::{private, realm_setup, scopes};
use crate::pool::Pool;
use crate::published::with_newest;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::id::Gid;
use engram_base::mutex::lock;
use engram_base::scope::Scope;
use engram_base::user;
use engram_files::folder::belongs_to;
use engram_files::paths::{place, within};
use engram_media::shared_counter::SharedCounter;
use engram_ops::group::GroupInfo;
use engram_realm::process::between_forks;
use engram_realm::{Mode, Precondition, Realm};

/// How many published versions of before stay open.
const OUTDATED_MAX: usize = 4;

/// What a user sees of a namespace: one tree out of every realm that the user may open. Cheap to
/// clone; every method may be called from any thread.
#[derive(Clone)]
pub struct Namespace {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pool: Pool,
    name: String,
    root: Gid,
    /// `None` where this user may not open it.
    shared: Option<Realm>,
    /// What is raised when a realm comes; `None` where this user may not write it.
    counter: Option<Arc<SharedCounter>>,
    /// The shared counter, as it was when the realms below were looked for.
    looked_at: AtomicU64,
    /// Whether only the shared realm was found.
    alone: AtomicBool,
    others: Mutex<Others>,
    /// What names hide, as queries last needed it.
    hidden: Mutex<Option<Arc<Hidden>>>,
    /// Whether the realms are snapshots, which stay the ones they are.
    pub(super) is_snapshot: bool,
}

/// The realms beside the shared one.
#[derive(Clone, Default)]
struct Others {
    private: Option<Realm>,
    published: Option<Realm>,
    /// Published versions of before, newest first: look-ups that run may still be at them.
    outdated: Vec<Realm>,
}

impl Others {
    /// Whether this is the newest published version.
    fn has(&self, realm: &Realm) -> bool {
        self.published.as_ref().is_some_and(|newest| Arc::ptr_eq(newest.core(), realm.core()))
    }
}

/// The realms that a user sees now, those whose names win first.
pub(super) enum VisibleRealms<'a> {
    /// The shared one alone.
    One(&'a Realm),
    /// Any others.
    Many(Vec<Realm>),
}

impl Namespace {
    /// The namespace, with the realms that there are. Who may see nothing of it is refused.
    pub(crate) fn open(pool: &Pool, name: &str) -> Result<Namespace> {
        let shared = match pool.realm(name) {
            Ok(realm) => Some(realm),
            Err(error) if error.kind() == Kind::Access => {
                // Who may enter sees what is published, and may keep things in private.
                if namespace_file(pool.path(), name).is_err() {
                    return Err(error);
                }
                None
            }
            Err(error) => return Err(error),
        };
        let root = match &shared {
            Some(realm) => realm.root(),
            None => namespace_file(pool.path(), name)?.root,
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
            others: Mutex::default(),
            hidden: Mutex::default(),
            is_snapshot: false,
        };
        let namespace = Namespace { inner: Arc::new(inner) };
        namespace.look_for_realms()?;
        if namespace.mode() == Mode::ReadWrite {
            namespace.recover()?;
        }
        Ok(namespace)
    }

    /// The root group: the same in each realm.
    pub fn root(&self) -> Gid {
        self.inner.root
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.inner.name
    }

    /// The pool's uuid.
    pub fn uuid(&self) -> &str {
        self.inner.pool.uuid()
    }

    /// The pool's path.
    pub fn pool_path(&self) -> &std::path::Path {
        self.inner.pool.path()
    }

    /// What the handle may do.
    pub fn mode(&self) -> Mode {
        if self.inner.is_snapshot { Mode::Read } else { self.inner.pool.mode() }
    }

    /// Whether its pool is open.
    pub fn is_open(&self) -> bool {
        self.inner.pool.is_open() && self.snapshots().iter().all(Realm::is_open)
    }

    /// The scopes of which this user has a realm now, the one whose names win first.
    pub fn scopes(&self) -> Result<Vec<Scope>> {
        Ok(match self.seen()? {
            VisibleRealms::One(realm) => vec![realm.scope()],
            VisibleRealms::Many(realms) => realms.iter().map(Realm::scope).collect(),
        })
    }

    /// The realm of a scope; with `make`, a private one that is missing is made. `None` where there
    /// is none. The shared one of a namespace that is closed to this user is `AccessError`.
    pub fn realm_of(&self, scope: Scope, make: bool) -> Result<Option<Realm>> {
        let inner = &*self.inner;
        self.check_open()?;
        match scope {
            // Asked again where it was refused, for the message; and a member may have been added.
            Scope::Shared => match &inner.shared {
                Some(realm) => Ok(Some(realm.clone())),
                None => inner.pool.realm(&inner.name).map(Some),
            },
            Scope::Private => match self.others()?.private {
                None if make => self.make_private().map(Some),
                found => Ok(found),
            },
            Scope::Published => Ok(self.others()?.published),
        }
    }

    /// Whether this user may use the shared realm.
    pub(super) fn sees_shared(&self) -> bool {
        self.inner.shared.is_some()
    }

    /// What names hid when a query last asked.
    pub(super) fn hidden_before(&self) -> &Mutex<Option<Arc<Hidden>>> {
        &self.inner.hidden
    }

    /// The realms seen now.
    #[inline]
    pub(super) fn seen(&self) -> Result<VisibleRealms<'_>> {
        let inner = &*self.inner;
        if let (Some(counter), Some(shared)) = (&inner.counter, &inner.shared)
            && inner.alone.load(Ordering::Acquire)
            && counter.get() == inner.looked_at.load(Ordering::Relaxed)
        {
            return Ok(VisibleRealms::One(shared));
        }
        self.seen_beside()
    }

    /// The shared counter that tells whether a realm or a published version has come.
    #[inline]
    pub(super) fn counter(&self) -> u64 {
        self.inner.counter.as_ref().map_or(0, |counter| counter.get())
    }

    /// The one realm that there is, if there is one alone, for changes that rely on that.
    pub(super) fn alone(&self) -> Result<Option<Realm>> {
        let counter = self.counter();
        match self.seen()? {
            VisibleRealms::One(realm) => Ok(Some(self.while_alone(realm, counter))),
            VisibleRealms::Many(_) => Ok(None),
        }
    }

    /// A realm, for changes that rely on its having been the only one at this count.
    pub(super) fn while_alone(&self, realm: &Realm, counter: u64) -> Realm {
        match &self.inner.counter {
            Some(all) => realm.with_precondition(Precondition::Alone(Arc::clone(all), counter)),
            None => realm.clone(),
        }
    }

    fn seen_beside(&self) -> Result<VisibleRealms<'_>> {
        self.check_open()?;
        let others = self.others()?;
        let shared = self.inner.shared.clone();
        if let (Some(shared), Others { private: None, published: None, .. }) =
            (&self.inner.shared, &others)
        {
            return Ok(VisibleRealms::One(shared));
        }
        let all = [others.private, shared, others.published];
        Ok(VisibleRealms::Many(all.into_iter().flatten().collect()))
    }

    /// The realms beside the shared one, looked for again if any may have come.
    fn others(&self) -> Result<Others> {
        let inner = &*self.inner;
        match &inner.counter {
            _ if inner.is_snapshot => {}
            Some(counter) if counter.get() == inner.looked_at.load(Ordering::Acquire) => {}
            _ => self.look_for_realms()?,
        }
        Ok(between_forks(|| lock(&inner.others).clone()))
    }

    /// Looks for the realms beside the shared one.
    pub(crate) fn look_for_realms(&self) -> Result<()> {
        let inner = &*self.inner;
        // Before the folders: what comes after that is told again.
        let at = self.counter();
        let known = between_forks(|| lock(&inner.others).clone());
        let private = match known.private {
            Some(realm) if !realm.core().is_shut() => Some(realm),
            // There was none, or the user has removed it.
            _ => inner.pool.realm_beside(&inner.name, Scope::Private)?,
        };
        let published = inner.pool.realm_beside(&inner.name, Scope::Published)?;
        let alone = private.is_none() && published.is_none();
        let gone = between_forks(|| {
            let mut others = lock(&inner.others);
            let before = std::mem::replace(&mut others.published, published);
            others.private = private;
            match before.filter(|before| !others.has(before)) {
                Some(before) => others.outdated.insert(0, before),
                None => return Vec::new(),
            }
            let kept = others.outdated.len().min(OUTDATED_MAX);
            others.outdated.split_off(kept)
        });
        for realm in &gone {
            inner.pool.let_go(realm);
        }
        inner.alone.store(alone, Ordering::Release);
        inner.looked_at.store(at, Ordering::Release);
        Ok(())
    }

    /// The private realm of another user, for root, who may end what that one has left half moved.
    pub(crate) fn private_of(&self, user: u32) -> Result<Option<Realm>> {
        let (path, file, mount) = self.inner.pool.parts();
        let setup = private_setup(path, file, mount.clone(), &self.inner.name, user)?;
        setup.map(|setup| self.inner.pool.open_realm(setup)).transpose()
    }

    fn make_private(&self) -> Result<Realm> {
        let inner = &*self.inner;
        if inner.is_snapshot {
            fail!(ReadOnly, "a snapshot shows what was: write through the pool itself");
        }
        if self.mode() == Mode::Read {
            fail!(
                ReadOnly,
                "the pool {} is open read-only: open it with mode \"r+\" to write",
                inner.pool.path().display()
            );
        }
        let (path, file, mount) = inner.pool.parts();
        let size = inner.shared.as_ref().map(Realm::space).transpose()?;
        let size = size.map(|space| space.size);
        private::ensure((path, file), mount.clone(), &inner.name, size)?;
        self.has_come();
        self.look_for_realms()?;
        match between_forks(|| lock(&inner.others).private.clone()) {
            Some(realm) => Ok(realm),
            None => Err(Error::new(
                Kind::NotFound,
                format!("the private realm of {:?} was removed as soon as it was made", inner.name),
            )),
        }
    }

    /// Tells every process that has the namespace open that a realm has come, or a new version of
    /// the published one.
    pub(crate) fn has_come(&self) {
        let Some(counter) = &self.inner.counter else { return };
        // The pool may be closed while this thread is at it; the others must be told all the same.
        if !between_forks(|| counter.raise()) {
            let again = scopes::open(&place(self.pool_path(), self.namespace()));
            let _ = again.map(|counter| counter.raise());
        }
    }

    /// The root where no realm is seen that has it.
    pub(super) fn bare_root(&self) -> Result<GroupInfo> {
        let info = super::info(self.pool_path(), self.namespace())?;
        Ok(GroupInfo {
            gid: self.root(),
            parent: 0,
            name: String::new(),
            owner: info.owner,
            created: 0,
            modified: 0,
            origin: Vec::new(),
            scope: Scope::Shared,
        })
    }

    /// A view of these realms, which are snapshots of those seen here, and of no others.
    pub(super) fn of_snapshots(&self, held: &[Realm]) -> Namespace {
        let of = |scope| held.iter().find(|realm| realm.scope() == scope).cloned();
        let others = Others {
            private: of(Scope::Private),
            published: of(Scope::Published),
            outdated: Vec::new(),
        };
        let inner = Inner {
            pool: self.inner.pool.clone(),
            name: self.inner.name.clone(),
            root: self.inner.root,
            shared: of(Scope::Shared),
            counter: None,
            looked_at: AtomicU64::new(0),
            alone: AtomicBool::new(false),
            others: Mutex::new(others),
            hidden: Mutex::default(),
            is_snapshot: true,
        };
        Namespace { inner: Arc::new(inner) }
    }

    /// The realms of a snapshot; none, if this is not of one.
    pub(super) fn snapshots(&self) -> Vec<Realm> {
        let inner = &*self.inner;
        if !inner.is_snapshot {
            return Vec::new();
        }
        let others = between_forks(|| lock(&inner.others).clone());
        [others.private, inner.shared.clone(), others.published].into_iter().flatten().collect()
    }

    fn check_open(&self) -> Result<()> {
        if !self.inner.pool.is_open() {
            fail!(
                Argument,
                "the pool {} is closed: open it again (views of it stay valid)",
                self.inner.pool.path().display()
            );
        }
        Ok(())
    }
}

impl Pool {
    /// What this user sees of a namespace.
    pub fn namespace(&self, name: &str) -> Result<Namespace> {
        Namespace::open(self, name)
    }

    /// The realm of a scope beside the shared one, if there is one that this user may open.
    fn realm_beside(&self, name: &str, scope: Scope) -> Result<Option<Realm>> {
        let (path, file, mount) = self.parts();
        let dir = place(path, name).join(within(scope, user::current()));
        if scope == Scope::Private && !belongs_to(&dir, user::current()) {
            // What others put in its place has nothing of the user's in it: it is refused where the
            // user wants to make the realm, and keeps nobody from the others.
            return Ok(None);
        }
        let find = || realm_setup(path, file, mount.clone(), name, scope);
        if scope == Scope::Published {
            return with_newest(find, |setup| self.open_realm(setup));
        }
        find()?.map(|setup| self.open_realm(setup)).transpose()
    }
}
