//! The namespace's handle: every operation of the view, in one place.
//!
//! A method of a few lines is written here. A longer one names the topic that does it.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::allocation::Allocation;
use super::inplace::InPlace;
use super::moves::Departure;
use super::query::Hidden;
use super::setup::private_setup;
use super::slab::Flush;
use super::tree::Tree;
use super::view::{RealmsBeside, VisibleRealms};
use super::watch::Watcher;
use super::write::Aim;
use super::{change, look, mode, moves, query, retry, slab, snapshot, view, write};
use crate::namespace::retry::{Doing, Retry};
use crate::namespace::scopes;
use crate::pool::Pool;
use crate::transfer::Moved;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::name::Path;
use engram_base::scope::Scope;
use engram_files::paths::place;
use engram_index::{IndexSettings, IndexStats};
use engram_media::shared_counter::SharedCounter;
use engram_ops::group::{GroupInfo, Taker};
use engram_query::answer::{Answer, Explanation, Keyed, QueryOptions, TotalsAnswer};
use engram_query::ast::Query;
use engram_query::projection::{Projection, WantedField};
use engram_realm::batch::Batch;
use engram_realm::process::between_forks;
use engram_realm::view::View;
use engram_realm::{
    Found, Holders, Lock, Mode, Payload, Precondition, Realm, Space, StoredChunk, look_to_change,
    look_together,
};
use engram_records::attrs::Value;
use engram_records::index_mode::IndexMode;
use engram_records::object::{NewObject, ObjectInfo, Placement};
use engram_space::lease::LockMode;

/// What a user sees of a namespace: one tree out of every realm that the user may open. Cheap to
/// clone; every method may be called from any thread.
#[derive(Clone)]
pub struct Namespace {
    pub(super) inner: Arc<Inner>,
}

/// From where members are published.
const UNPUBLISHED: [Scope; 2] = [Scope::Private, Scope::Shared];

pub(super) struct Inner {
    pub(super) pool: Pool,
    pub(super) name: String,
    pub(super) root: Gid,
    /// `None` where this user may not open it.
    pub(super) shared: Option<Realm>,
    /// What is raised when a realm comes; `None` where this user may not write it.
    pub(super) counter: Option<Arc<SharedCounter>>,
    /// The shared counter, as it was when the realms below were looked for. Written with them.
    pub(super) looked_at: AtomicU64,
    /// Whether only the shared realm was found. Written before that count.
    pub(super) alone: AtomicBool,
    /// How many looks for realms have begun.
    pub(super) looks: AtomicU64,
    pub(super) beside: Mutex<RealmsBeside>,
    /// What names hide, as queries last needed it.
    pub(super) hidden: Mutex<Option<Arc<Hidden>>>,
    /// Whether the realms are snapshots, which stay the ones they are.
    pub(super) is_snapshot: bool,
    /// Whether what its user keeps in private is left out, also what comes later.
    pub(super) leaves_private_out: bool,
}

// The handle itself.
impl Namespace {
    /// The namespace, with the realms that there are. A user who may see nothing of it is refused.
    pub(crate) fn open(pool: &Pool, name: &str) -> Result<Namespace> {
        view::open(pool, name)
    }

    /// The same without what its user keeps in private, now or later: to be shown to others.
    pub fn without_private(&self) -> Result<Namespace> {
        view::open_any(&self.inner.pool, &self.inner.name, true)
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
        self.inner.pool.is_open() && view::snapshots(self).iter().all(Realm::is_open)
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
        view::realm_of(self, scope, make)
    }
}

// Look-ups.
impl Namespace {
    /// The member at a path from `parent`; a leading `/` starts at the root.
    pub fn lookup(&self, parent: Gid, path: &str) -> Result<Option<Member>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.lookup(parent, path),
            VisibleRealms::Many(realms) => {
                let path = Path::new(path)?;
                let found = self.look(&realms, |tree| tree.resolve(parent, &path))?;
                Ok(found.map(|place| place.member))
            }
        })
    }

    /// The member at a path from `parent`, with what is known of it.
    pub fn find(&self, parent: Gid, path: &str) -> Result<Option<Found>> {
        look::find(self, parent, path)
    }

    /// The member of this name in a group, with what is known of it, and how many names it has.
    pub fn find_counted(&self, parent: Gid, name: &str) -> Result<Option<(Found, u64)>> {
        look::find_counted(self, parent, name)
    }

    /// What is known of a group.
    pub fn group(&self, gid: Gid) -> Result<GroupInfo> {
        if look::is_bare_root(self, Member::Group(gid))? {
            return view::bare_root(self);
        }
        self.in_owning_realm(Member::Group(gid), |realm| realm.group(gid))
    }

    /// What is known of an object.
    pub fn object(&self, oid: Oid) -> Result<ObjectInfo> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.object(oid))
    }

    /// Up to `limit` members of a group after a name, in byte order of their names.
    pub fn list(
        &self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Member)>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.list(gid, after, limit),
            VisibleRealms::Many(realms) => {
                let all = self.look(&realms, |tree| tree.list(gid, after, limit))?;
                Ok(all.into_iter().map(|(name, place)| (name, place.member)).collect())
            }
        })
    }

    /// As `list`, with what is known of each: all of it as of one commit of each realm.
    pub fn list_found(
        &self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Found)>> {
        look::list_found(self, gid, after, limit)
    }

    /// How many members a group has.
    pub fn count(&self, gid: Gid) -> Result<u64> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.count(gid),
            VisibleRealms::Many(realms) => {
                let all = self.look(&realms, |tree| tree.list(gid, None, usize::MAX))?;
                Ok(all.len() as u64)
            }
        })
    }

    /// The path of a member, without a leading slash; empty for the root.
    pub fn path_of(&self, member: Member) -> Result<String> {
        look::path_of(self, member)
    }

    /// Every attribute of a member, in byte order of the keys.
    pub fn attrs(&self, member: Member) -> Result<Vec<(String, Value)>> {
        if look::is_bare_root(self, member)? {
            return Ok(Vec::new());
        }
        self.in_owning_realm(member, |realm| realm.attrs(member))
    }

    /// One attribute of a member.
    pub fn attr(&self, member: Member, key: &str) -> Result<Option<Value>> {
        if look::is_bare_root(self, member)? {
            return Ok(None);
        }
        self.in_owning_realm(member, |realm| realm.attr(member, key))
    }

    /// The names of objects, as of one commit of each realm; `None` for those that are gone.
    pub fn names_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.names_of(oids),
            VisibleRealms::Many(realms) => look::each(self, &realms, oids, |tree, at, oid| {
                let read = |record: &engram_records::object::Record<'_>| Ok(record.name.to_owned());
                engram_ops::group::with_record(tree.at(at), Member::Object(oid), read)
            }),
        })
    }

    /// The paths of objects, as of one commit of each realm; `None` for those that are gone.
    pub fn paths_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        self.retry(Retry::IfViewChanged, || match self.seen()? {
            VisibleRealms::One(realm) => realm.paths_of(oids),
            VisibleRealms::Many(realms) => {
                look::each(self, &realms, oids, |tree, _, oid| tree.path_of(Member::Object(oid)))
            }
        })
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

    /// An object's value for reading, and the generation of its payload.
    pub fn payload(&self, oid: Oid) -> Result<(Payload, u32)> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.payload(oid))
    }

    /// An object's value as memory of the pool where it lies in an extent. For writing it is put
    /// there first; an empty value stays inline.
    pub fn view(&self, oid: Oid, write: bool) -> Result<Payload> {
        let doing = if write { Doing::Changing } else { Doing::Looking };
        self.with_owning_realm(Member::Object(oid), doing, |realm, _| realm.view(oid, write))
    }

    /// Makes what was written in place durable, as far as the medium can.
    ///
    /// An object that was replaced or deleted meanwhile is `BusyError` (P8).
    pub fn flush(&self, oid: Oid) -> Result<()> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.flush(oid))
    }

    /// Who sees a member: the scope of the realm that has it.
    pub fn scope_of(&self, member: Member) -> Result<Scope> {
        look::scope_of(self, member)
    }
}

// Queries.
impl Namespace {
    /// The objects that a query finds.
    pub fn query(&self, query: &Query, options: &QueryOptions) -> Result<Answer> {
        query::query(self, query, options)
    }

    /// How many objects a query finds.
    pub fn query_count(&self, query: &Query, options: &QueryOptions) -> Result<u64> {
        query::query_count(self, query, options)
    }

    /// How many attributes the objects have, in all, that a query finds.
    pub fn query_count_attributes(&self, query: &Query, options: &QueryOptions) -> Result<u64> {
        query::query_count_attributes(self, query, options)
    }

    /// The keys of the attributes that the objects have which a query finds, in byte order, each
    /// with how many of the objects have it.
    pub fn query_attribute_keys(
        &self,
        query: &Query,
        options: &QueryOptions,
    ) -> Result<Vec<(String, u64)>> {
        query::query_attribute_keys(self, query, options)
    }

    /// The names of the objects that a query finds, in the order of [`Namespace::query`].
    pub fn query_names(&self, query: &Query, options: &QueryOptions) -> Result<Vec<String>> {
        query::query_names(self, query, options)
    }

    /// The paths of the objects that a query finds, in the order of [`Namespace::query`].
    pub fn query_paths(&self, query: &Query, options: &QueryOptions) -> Result<Vec<String>> {
        query::query_paths(self, query, options)
    }

    /// The objects that a query finds, in the order of [`Namespace::query`], each with its path and
    /// with what merging it among the hits of other pools takes.
    pub fn query_keyed(&self, query: &Query, options: &QueryOptions) -> Result<Vec<Keyed>> {
        query::query_keyed(self, query, options)
    }

    /// The figures that a query gives, instead of objects.
    pub fn query_totals(&self, query: &Query, options: &QueryOptions) -> Result<TotalsAnswer> {
        query::query_totals(self, query, options)
    }

    /// What objects, given ascending by their ids, have of some fields, as of one commit.
    pub fn columns_of(&self, oids: &[Oid], wanted: &[WantedField]) -> Result<Projection> {
        query::columns_of(self, oids, wanted)
    }

    /// Begins to watch: a [`Watcher`] gives objects of which the query is true from now on and was
    /// not before, and first those of which it is true already, if `existing` are asked for.
    pub fn watch(&self, query: &Query, options: &QueryOptions, existing: bool) -> Result<Watcher> {
        Watcher::begin(self, query, options, existing)
    }

    /// How a query is answered. It is run to find out: in each realm, hidden objects included.
    pub fn explain(&self, query: &Query, options: &QueryOptions) -> Result<Explanation> {
        query::explain(self, query, options)
    }
}

// Changes.
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
        write::create_group(self, parent, path, attrs, origin, exist_ok, scope)
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
        let put = || {
            let aim = self.aim(parent, path, placement)?;
            aim.realm.put(aim.group, aim.path, new, data, placement)
        };
        put().or_else(|error| retry::after_failure(self, error, put))
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

    /// Replaces an object's value if its payload still has this generation; `false` if not.
    ///
    /// An object that is gone is `BusyError` (P8).
    pub fn replace_payload(&self, oid: Oid, generation: u32, data: &[u8]) -> Result<bool> {
        let write = |realm: &Realm| realm.replace_payload(oid, generation, data);
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, write)
    }

    /// Replaces what is kept beside a member: for export, or of what it is a part.
    pub fn set_origin(&self, member: Member, origin: &[u8]) -> Result<()> {
        self.write_in_owning_realm(member, Doing::Changing, |realm| {
            realm.set_origin(member, origin)
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

    /// Deletes a member, a group with all that is in it that this user may delete. The members that
    /// others keep to themselves below a group stay theirs.
    ///
    /// A group that has members in two realms goes from both, or from none. Only where a full mount
    /// has no room for the marks that this takes, it goes from one after the other. Where somebody
    /// comes between then and moves what is left, that is waited for: to say that it cannot be
    /// changed would say that nothing has changed.
    pub fn delete(&self, parent: Gid, path: &str) -> Result<()> {
        change::delete(self, parent, path)
    }

    /// Refuses where one of these members of a group cannot be deleted, before any is; those that
    /// are gone meanwhile are no matter. Whether all of the others are of one scope, so that one
    /// batch can delete them.
    pub fn check_deletable(&self, parent: Gid, names: &[String]) -> Result<bool> {
        self.retry(Retry::IfMoved, || change::check_deletable_now(self, parent, names))
    }

    /// Gives a member another name or group; missing parents are made.
    pub fn rename(&self, parent: Gid, old: &str, new_parent: Gid, new: &str) -> Result<()> {
        self.retry(Retry::IfMoved, || change::rename_now(self, parent, old, new_parent, new))
    }
}

// Values in place and in parts.
impl Namespace {
    /// Copies a box of an array's value into `out`, in C order; of a blob, a range of its bytes. Of
    /// a chunked array it is of one moment.
    pub fn load_slab(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        slab::load_slab(self, oid, offsets, counts, out)
    }

    /// One chunk of a chunked array as it is kept, by its place in the grid: of a pool without a
    /// codec its own memory, which is not copied. A place beyond the array's edge is
    /// `ArgumentError`.
    pub fn stored_chunk(&self, oid: Oid, cell: &[u32]) -> Result<StoredChunk> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.stored_chunk(oid, cell))
    }

    /// Copies `data`, in C order, into a box of an array's value, in place; of a blob, into a range
    /// of its bytes. Where the pool's durability is "system", it is durable on return. Of a chunked
    /// array each chunk is written at once, or not at all, and how it is flushed is no matter.
    ///
    /// On error some of it may have been written.
    pub fn store_slab(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        data: &[u8],
        flush: Flush,
    ) -> Result<()> {
        slab::store_slab(self, oid, offsets, counts, data, flush)
    }

    /// As `store_slab`, of a chunked array; of those bytes of the box alone where `mask`, which has
    /// as many, is not zero.
    pub fn store_masked(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        data: &[u8],
        mask: &[u8],
    ) -> Result<()> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.store_masked(oid, offsets, counts, data, mask)
        })
    }

    /// Gives a chunked array another shape of as many dimensions, in one commit. The part that is
    /// added is zeros; the part that is cut off is gone.
    ///
    /// On error all is as it was.
    pub fn reshape(&self, oid: Oid, shape: &[u64]) -> Result<()> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.reshape(oid, shape)
        })
    }

    /// Appends `data`, of this shape and in C order, to a chunked array along one dimension, in one
    /// commit; the shape of the array after it.
    ///
    /// An append at the same time comes before or after. On error all is as it was.
    pub fn append(&self, oid: Oid, axis: usize, counts: &[u64], data: &[u8]) -> Result<Vec<u64>> {
        self.write_in_owning_realm(Member::Object(oid), Doing::Changing, |realm| {
            realm.append(oid, axis, counts, data)
        })
    }

    /// The bytes that an object's value takes, of the arena and of the catalog.
    pub fn stored_nbytes(&self, oid: Oid) -> Result<u64> {
        self.in_owning_realm(Member::Object(oid), |realm| realm.stored_nbytes(oid))
    }

    /// An object's value to be written in place at once, and where that is; an empty value stays
    /// inline.
    pub fn view_in_place(&self, oid: Oid) -> Result<(Payload, InPlace)> {
        self.with_owning_realm(Member::Object(oid), Doing::Changing, |realm, _| {
            let payload = realm.view(oid, true)?;
            Ok((payload, InPlace::new(self, realm, oid)))
        })
    }
}

// Moves between scopes.
impl Namespace {
    /// Moves a member, a group with all that is below it, from the realms of some scopes to that
    /// of another, all or nothing. Several may be given for publishing; one otherwise.
    ///
    /// An object that is there already is left as it is, and so is a group that is there or of
    /// which nothing is elsewhere. `"/"` is all that the namespace has. On error all is as it was.
    pub fn transfer(&self, parent: Gid, path: &str, from: &[Scope], to: Scope) -> Result<Moved> {
        moves::check_move(self, from, to)?;
        self.retry(Retry::IfMoved, || moves::transfer_now(self, parent, path, from, to))
    }

    /// The same of objects, the hits of a query: those that are in these realms.
    pub fn transfer_all(&self, oids: &[Oid], from: &[Scope], to: Scope) -> Result<Moved> {
        moves::check_move(self, from, to)?;
        let members: Vec<Member> = oids.iter().copied().map(Member::Object).collect();
        self.retry(Retry::IfMoved, || moves::transfer_members(self, &members, from, to))
    }

    /// Marks a member, a group with all that is below it, as on its way to another namespace. It is
    /// copied there by a [`CopyPlan`], and then goes from here. What is read-only, published, open
    /// or locked is refused, and so is what nobody may delete.
    ///
    /// [`CopyPlan`]: super::CopyPlan
    pub fn begin_departure(&self, parent: Gid, path: &str) -> Result<Departure> {
        moves::refuse_reader(self, "move")?;
        moves::recover(self)?;
        self.retry(Retry::IfMoved, || moves::begin_departure(self, parent, path))
    }

    /// Publishes a member, a group with all that is below it: all read it whom the namespace's mode
    /// admits. Where that is nobody but the owner it is [`Kind::ClosedNamespace`], unless `closed`
    /// is asked for.
    pub fn publish(&self, parent: Gid, path: &str, closed: bool) -> Result<Moved> {
        self.refuse_closed(closed)?;
        self.transfer(parent, path, &UNPUBLISHED, Scope::Published)
    }

    /// The same of objects, the hits of a query.
    pub fn publish_all(&self, oids: &[Oid], closed: bool) -> Result<Moved> {
        self.refuse_closed(closed)?;
        self.transfer_all(oids, &UNPUBLISHED, Scope::Published)
    }

    /// The POSIX mode: who may enter, and whether the group writes.
    pub fn posix_mode(&self) -> Result<u32> {
        self.inner.pool.check_open()?;
        Ok(crate::namespace::info(self.inner.pool.path(), &self.inner.name)?.mode)
    }

    /// Sets the mode, as [`Pool::set_mode`]; whether the group writes changes only while nobody has
    /// the namespace open, this handle neither.
    pub fn set_posix_mode(&self, mode: u32) -> Result<()> {
        self.inner.pool.writable()?;
        Pool::set_mode(self.inner.pool.path(), &self.inner.name, mode)
    }

    fn refuse_closed(&self, closed: bool) -> Result<()> {
        moves::check_move(self, &UNPUBLISHED, Scope::Published)?;
        if closed { Ok(()) } else { mode::refuse_closed(self.inner.pool.path(), &self.inner.name) }
    }

    /// The receipts in what is published; for tests.
    #[cfg(feature = "faults")]
    pub fn receipts(&self) -> Result<u64> {
        moves::receipts(self)
    }

    /// The objects that are on their way to another realm, or from one; for tests.
    #[cfg(feature = "faults")]
    pub fn leaving(&self) -> Result<u64> {
        moves::leaving(self)
    }
}

// Batches, snapshots and locks.
impl Namespace {
    /// Begins a batch in this thread, or joins the one that runs. It covers one realm: that of its
    /// first write. It is undone if the guard goes without an end.
    pub fn batch(&self) -> Result<Batch> {
        if let VisibleRealms::Many(realms) = self.seen()?
            && let Some(realm) = realms.iter().find(|realm| realm.runs_batch())
        {
            return realm.batch();
        }
        write::own_realm(self)?.batch()
    }

    /// The namespace as the newest commits have left it, until the last handle of what is returned
    /// goes, or it is ended: all that is looked up through it is of those. It is given up when more
    /// bytes of a catalog than `max_growth` wait for it (if not given: 256 MiB, or four times the
    /// catalog).
    pub fn snapshot(&self, max_growth: Option<u64>) -> Result<Namespace> {
        snapshot::snapshot(self, max_growth)
    }

    /// Ends the snapshot that this is of; without one, nothing.
    pub fn end_snapshot(&self) {
        for realm in view::snapshots(self) {
            realm.end_snapshot();
        }
    }

    /// The id of the commit that a look sees which begins now, where all that is seen is of one
    /// realm; `None` of several.
    pub fn last_commit(&self) -> Result<Option<u64>> {
        match self.seen()? {
            VisibleRealms::One(realm) => realm.last_commit().map(Some),
            VisibleRealms::Many(_) => Ok(None),
        }
    }

    /// The commits as of which every group is as it is by now, as far as this process knows, where
    /// all that is seen is of one realm; `None` of several. See [`Realm::same_groups`].
    ///
    /// [`Realm::same_groups`]: engram_realm::Realm::same_groups
    pub fn same_groups(&self) -> Result<Option<RangeInclusive<u64>>> {
        match self.seen()? {
            VisibleRealms::One(realm) => realm.same_groups().map(Some),
            VisibleRealms::Many(_) => Ok(None),
        }
    }

    /// Whether this is of a snapshot.
    pub fn is_snapshot(&self) -> bool {
        Arc::as_ref(&self.inner).is_snapshot
    }

    /// Locks a member in the realm that has it: see [`Realm::lock`]. While it is on its way to
    /// another scope nobody has it; a waiting caller gets it where it comes to.
    ///
    /// [`Realm::lock`]: engram_realm::Realm::lock
    pub fn lock(
        &self,
        member: Member,
        mode: LockMode,
        within: Option<Duration>,
        pause: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<Lock> {
        snapshot::lock(self, member, mode, within, pause)
    }
}

// The index.
impl Namespace {
    /// Sets how objects that will be stored below a group are indexed, in each realm that has it.
    pub fn set_index_settings(&self, group: Gid, settings: &IndexSettings) -> Result<()> {
        write::set_index_settings(self, group, settings)
    }

    /// The settings that a group has itself.
    pub fn index_settings(&self, group: Gid) -> Result<IndexSettings> {
        self.in_owning_realm(Member::Group(group), |realm| realm.index_settings(group))
    }

    /// What the indexes of all realms seen are made of.
    pub fn index_stats(&self) -> Result<IndexStats> {
        write::index_stats(self)
    }

    /// Does all maintenance that is due; how many steps that took.
    pub fn maintain(&self) -> Result<u64> {
        write::sum(self, Realm::maintain)
    }

    /// Indexes up to `most` objects that are queued in each realm; how many it were.
    pub fn drain_queue(&self, most: u64) -> Result<u64> {
        write::sum(self, |realm| realm.drain_queue(most))
    }

    /// Indexes the objects below a group anew; with a mode, they have it from then on. How many
    /// objects it were.
    pub fn reindex(&self, group: Gid, mode: Option<IndexMode>) -> Result<u64> {
        write::sum(self, |realm| realm.reindex(group, mode))
    }
}

// Space, and what processes hold.
impl Namespace {
    /// Where the space of the shared realm is; for a user who may not open that, of the realms that
    /// there are.
    pub fn space(&self) -> Result<Space> {
        write::main_realm(self)?.map_or_else(|| Ok(Space::default()), |realm| realm.space())
    }

    /// Sets the bound of the shared realm's arena, rounded up to 2 MiB; with it that of this user's
    /// private one, but not below what that has. New private realms have it, too: those of users
    /// who may not use the shared realm, if the namespace's owner says so.
    pub fn resize(&self, size: u64) -> Result<()> {
        write::resize(self, size)
    }

    /// Unnamed memory of the pool, gone with its last reference or its process.
    pub fn scratch(&self, nbytes: u64, device: Option<u32>) -> Result<View> {
        write::own_realm(self)?.scratch(nbytes, device)
    }

    /// Who holds what in the shared realm; for a user who may not open that, in the realms that
    /// there are.
    pub fn holders(&self) -> Result<Holders> {
        // A reader of what is published holds nothing that anybody could list.
        let realm = write::main_realm(self)?.filter(|realm| realm.scope() != Scope::Published);
        realm.map_or_else(|| Ok(Holders::default()), |realm| realm.holders())
    }

    /// What the program should be told, though nothing has failed: see [`Realm::take_notices`].
    ///
    /// [`Realm::take_notices`]: engram_realm::Realm::take_notices
    pub fn take_notices(&self) -> Vec<String> {
        match self.seen() {
            Ok(VisibleRealms::One(realm)) => realm.take_notices(),
            Ok(VisibleRealms::Many(realms)) => {
                realms.iter().flat_map(Realm::take_notices).collect()
            }
            Err(_) => Vec::new(),
        }
    }
}

// What topics ask first.
impl Namespace {
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
            && counter.get() == inner.looked_at.load(Ordering::Acquire)
            && inner.alone.load(Ordering::Relaxed)
        {
            return Ok(VisibleRealms::One(shared));
        }
        view::seen_beside(self)
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

    /// The private realm of another user, for root, who may end the moves that this user has left
    /// half done.
    pub(crate) fn private_of(&self, user: u32) -> Result<Option<Realm>> {
        let (path, file, mount) = self.inner.pool.parts();
        let setup = private_setup(path, file, mount.clone(), &self.inner.name, user)?;
        setup.map(|setup| self.inner.pool.open_realm(setup)).transpose()
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
        // Who watches sleeps on the shared realm's bell.
        self.inner.shared.iter().for_each(Realm::ring);
    }

    /// The realms seen, as a list.
    pub(crate) fn all_seen(&self) -> Result<Vec<Realm>> {
        Ok(match self.seen()? {
            VisibleRealms::One(realm) => vec![realm.clone()],
            VisibleRealms::Many(realms) => realms,
        })
    }

    /// Gives the batch that this thread runs to the realm that it writes to first.
    pub(super) fn route_batch(realm: &Realm, realms: &[Realm]) -> Result<()> {
        match realms.iter().find(|other| other.runs_batch() && !other.is(realm)) {
            Some(other) => other.hand_batch_to(realm),
            None => Ok(()),
        }
    }

    /// Where an object is to be made, with all that the realm needs for it.
    pub(super) fn aim<'p>(
        &self,
        parent: Gid,
        path: &'p str,
        placement: Placement,
    ) -> Result<Aim<'p>> {
        let Placement { scope, overwrite, .. } = placement;
        match write::only(self, scope)? {
            Some(realm) => Ok(Aim { realm, group: parent, path }),
            None => write::aim_among_realms(self, parent, path, scope, Taker::Object { overwrite }),
        }
    }

    /// Runs a change of a member in the realm that has it.
    pub(super) fn write_in_owning_realm<T>(
        &self,
        member: Member,
        doing: Doing,
        operation: impl Fn(&Realm) -> Result<T>,
    ) -> Result<T> {
        if member == Member::Group(self.root()) {
            return operation(&write::own_realm(self)?);
        }
        self.with_owning_realm(member, doing, |realm, realms| {
            Self::route_batch(realm, realms)?;
            operation(realm)
        })
    }

    /// Runs `look` on the one tree of these realms, as of one commit of each.
    pub(super) fn look<T>(
        &self,
        realms: &[Realm],
        look: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let scopes: Vec<Scope> = realms.iter().map(Realm::scope).collect();
        let root = self.root();
        look_together(realms, |rows| look(&mut Tree::new(rows, &scopes, root)))
    }

    /// The same for a caller that is about to change something: with the realms as they were seen.
    pub(super) fn look_to_change<T>(
        &self,
        realms: &[Realm],
        look: impl FnOnce(&mut Tree<'_, '_>) -> Result<T>,
    ) -> Result<(T, Vec<Realm>)> {
        let scopes: Vec<Scope> = realms.iter().map(Realm::scope).collect();
        let root = self.root();
        look_to_change(realms, |rows| look(&mut Tree::new(rows, &scopes, root)))
    }

    /// Runs an operation, again and again as the policy says. It returns the result of the last
    /// try.
    #[inline]
    pub(crate) fn retry<T>(
        &self,
        policy: Retry,
        operation: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        retry::retry(self, policy, operation)
    }

    /// Runs a look-up in the realm that has a member.
    pub(super) fn in_owning_realm<T>(
        &self,
        member: Member,
        operation: impl Fn(&Realm) -> Result<T>,
    ) -> Result<T> {
        self.with_owning_realm(member, Doing::Looking, |realm, _| operation(realm))
    }

    /// The same for an operation that may change the member. It is given all realms, too, and the
    /// realm's changes rely on the member being there.
    pub(super) fn with_owning_realm<T>(
        &self,
        member: Member,
        doing: Doing,
        operation: impl Fn(&Realm, &[Realm]) -> Result<T>,
    ) -> Result<T> {
        retry::with_owning_realm(self, member, doing, operation)
    }

    /// Makes groups this user's own that were others', whose true ones are gone or not to be seen,
    /// before what is private goes elsewhere: they are groups like others to this user, with
    /// attributes that would not go along with a mirror.
    pub(crate) fn own_orphans(&self, seen: &[Realm]) -> Result<()> {
        let Some(at) = seen.iter().position(|realm| realm.scope() == Scope::Private) else {
            return Ok(());
        };
        let (orphans, realms) = self.look_to_change(seen, |tree| tree.orphans(at))?;
        if orphans.is_empty() { Ok(()) } else { realms[at].own_groups(&orphans) }
    }
}
