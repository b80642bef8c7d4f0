//! The realm's handle: every operation on a realm, in one place.
//!
//! A method of a few lines is written here. A longer one names the topic that does it. `put` alone
//! is in `write`, where its whole way can be read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::snapshot::SnapshotHandle;
use super::{
    Core, Found, Holders, Lock, Mode, Payload, Precondition, Space, StoredChunk, Wait, chunks,
    dead, delete, gone_is_busy, holders, index, keys, locks, look, query, snapshot, space, spans,
    write,
};
use crate::batch;
use crate::batch::Batch;
use crate::session::Session;
use crate::view::{RealmAllocation, View};

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Member, Oid};
use engram_base::scope::Scope;
use engram_catalog::Headroom;
use engram_catalog::rows::Rows;
use engram_index::{IndexSettings, IndexStats, stats};
use engram_ops::group::{Clash, GroupInfo};
use engram_ops::overlay::peek::Peek;
use engram_ops::{group, mirror, protect};
use engram_query::answer::{Answer, Explanation, QueryOptions, TotalsAnswer};
use engram_query::ast::Query;
use engram_query::compile::Plan;
use engram_query::projection::{Projection, WantedField};
use engram_records::attrs::Value;
use engram_records::index_mode::IndexMode;
use engram_records::object::{NewObject, ObjectInfo, Placement};
use engram_space::lease::LockMode;

/// A handle on a realm. Cheap to clone; every method may be called from any thread.
#[derive(Clone)]
pub struct Realm {
    pub(super) core: Arc<Core>,
    pub(super) session: Arc<Session>,
    /// The snapshot that all looks are at; none: each at the newest.
    pub(super) at: Option<Arc<SnapshotHandle>>,
    /// What its changes rely on; none: nothing but what they find themselves.
    pub(super) precondition: Option<Precondition>,
}

/// The core behind a handle. The facade does not name this trait, so that its users cannot reach
/// behind a handle; the crates of the engine do.
#[doc(hidden)]
pub trait HasCore {
    /// The core.
    fn core(&self) -> &Arc<Core>;
}

impl HasCore for Realm {
    fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

// The handle itself.
impl Realm {
    /// A handle that ends with its session.
    pub fn new(core: Arc<Core>, session: Arc<Session>) -> Self {
        Realm { core, session, at: None, precondition: None }
    }

    /// The root group.
    pub fn root(&self) -> Gid {
        self.core.setup.root()
    }

    /// Whether the other handle is of the same realm.
    pub fn is(&self, other: &Realm) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// What tells this realm from the others of its pool: the upper bits of the ids that it makes.
    /// Of what is published each version has another one, and none has that of an earlier one.
    pub fn id_prefix(&self) -> u64 {
        self.core.setup.id_prefix
    }

    /// The scope of the realm, which says which users see its members.
    pub fn scope(&self) -> Scope {
        self.core.setup.scope
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.core.setup.namespace
    }

    /// The pool's uuid.
    pub fn uuid(&self) -> &str {
        &self.core.setup.uuid
    }

    /// The pool's path.
    pub fn pool_path(&self) -> &std::path::Path {
        &self.core.setup.pool
    }

    /// What the handle may do.
    pub fn mode(&self) -> Mode {
        if self.at.is_some() { Mode::Read } else { self.session.mode() }
    }

    /// Whether its pool is open, and its snapshot, if it is of one.
    pub fn is_open(&self) -> bool {
        self.session.is_open() && self.at().is_none_or(|at| at.check().is_ok())
    }
}

// Look-ups.
impl Realm {
    /// The member at a path from `parent`; a leading `/` starts at the root.
    pub fn lookup(&self, parent: Gid, path: &str) -> Result<Option<Member>> {
        look::lookup(self, parent, path)
    }

    /// The member at a path from `parent`, with what is known of it. If it is replaced meanwhile,
    /// it is found all the same: as it was, or as it is.
    pub fn find(&self, parent: Gid, path: &str) -> Result<Option<Found>> {
        look::find(self, parent, path)
    }

    /// The member of this name in a group, with what is known of it, and how many names it has.
    pub fn find_counted(&self, parent: Gid, name: &str) -> Result<Option<(Found, u64)>> {
        look::find_counted(self, parent, name)
    }

    /// What is known of a group.
    pub fn group(&self, gid: Gid) -> Result<GroupInfo> {
        look::group(self, gid)
    }

    /// What is known of an object.
    pub fn object(&self, oid: Oid) -> Result<ObjectInfo> {
        look::object(self, oid)
    }

    /// Up to `limit` members of a group after a name, in byte order of their names.
    pub fn list(
        &self,
        gid: Gid,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Member)>> {
        look::list(self, gid, after, limit)
    }

    /// As `list`, with what is known of each: all of it as of one commit.
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
        look::count(self, gid)
    }

    /// The path of a member, without a leading slash; empty for the root.
    pub fn path_of(&self, member: Member) -> Result<String> {
        look::path_of(self, member)
    }

    /// Every attribute of a member, in byte order of the keys.
    pub fn attrs(&self, member: Member) -> Result<Vec<(String, Value)>> {
        look::attrs(self, member)
    }

    /// One attribute of a member.
    pub fn attr(&self, member: Member, key: &str) -> Result<Option<Value>> {
        look::attr(self, member, key)
    }

    /// An object's value for reading, and the generation of its payload.
    pub fn payload(&self, oid: Oid) -> Result<(Payload, u32)> {
        let core = self.readable()?;
        look::payload_at(core, self.at(), oid, false)
    }

    /// An object's value as memory of the pool where it lies in an extent. For writing it is put
    /// there first; an empty value stays inline.
    pub fn view(&self, oid: Oid, write: bool) -> Result<Payload> {
        look::view(self, oid, write)
    }

    /// Whether changes of a member are refused, since it or a group above it is read-only.
    pub fn is_read_only(&self, member: Member) -> Result<bool> {
        look::is_read_only(self, member)
    }

    /// Refuses where one of these members of a group cannot be deleted, before any is; those that
    /// are gone meanwhile are no matter.
    pub fn check_deletable(&self, parent: Gid, names: &[String]) -> Result<()> {
        look::check_deletable(self, parent, names)
    }

    /// Whether an object has been here since the look that this handle relies on, and is not on
    /// its way.
    pub fn check_held(&self, oid: Oid) -> Result<()> {
        look::check_held(self, oid)
    }

    /// Makes what was written in place durable, as far as the medium can.
    ///
    /// An object that was replaced or deleted meanwhile is `BusyError` (P8).
    pub fn flush(&self, oid: Oid) -> Result<()> {
        look::flush(self, oid)
    }
}

// Queries.
impl Realm {
    /// The objects that a query finds.
    pub fn query(&self, query: &Query, options: &QueryOptions) -> Result<Answer> {
        query::search(self, query, options, |search, peek| {
            Ok(Answer { oids: search.oids()?, snapshot: peek.txn().id() })
        })
    }

    /// How many objects a query finds.
    pub fn query_count(&self, query: &Query, options: &QueryOptions) -> Result<u64> {
        query::search(self, query, options, |search, _| search.count())
    }

    /// How many attributes the objects have, in all, that a query finds.
    pub fn query_count_attributes(&self, query: &Query, options: &QueryOptions) -> Result<u64> {
        query::search(self, query, options, |search, _| search.count_attributes())
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

    /// The names of the objects that a query finds, in the order of [`Realm::query`].
    pub fn query_names(&self, query: &Query, options: &QueryOptions) -> Result<Vec<String>> {
        query::search(self, query, options, |search, _| search.names())
    }

    /// The paths of the objects that a query finds, in the order of [`Realm::query`].
    pub fn query_paths(&self, query: &Query, options: &QueryOptions) -> Result<Vec<String>> {
        query::search(self, query, options, |search, _| search.paths())
    }

    /// The figures that a query gives, instead of objects.
    pub fn query_totals(&self, query: &Query, options: &QueryOptions) -> Result<TotalsAnswer> {
        query::query_totals(self, query, options)
    }

    /// How a query is answered. It is run to find out.
    pub fn explain(&self, query: &Query, options: &QueryOptions) -> Result<Explanation> {
        query::explain(self, query, options)
    }

    /// The names of objects, as of one commit; `None` for those that are gone.
    pub fn names_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        query::each_record(self, oids, |_, record| Ok(record.name.to_owned()))
    }

    /// The paths of objects, as of one commit; `None` for those that are gone.
    pub fn paths_of(&self, oids: &[Oid]) -> Result<Vec<Option<String>>> {
        query::each_record(self, oids, |groups, record| groups.path_of(record.parent, record.name))
    }

    /// What objects, given ascending by their ids, have of some fields, as of one commit.
    pub fn columns_of(&self, oids: &[Oid], wanted: &[WantedField]) -> Result<Projection> {
        query::columns_of(self, oids, wanted)
    }

    /// Notes what a query asks of the index beside its answer.
    pub fn asked(&self, plan: &Plan, options: &QueryOptions, peek: Peek<'_>) -> Result<()> {
        if !peek.in_batch() {
            let mut key_id = |key: &str| keys::key_at(&self.core, peek.txn(), key);
            self.core.index.state.told(plan.keys(), query::hints(plan, options, &mut key_id)?);
        }
        Ok(())
    }
}

// Changes.
impl Realm {
    /// Makes a group; missing parents are made. With `exist_ok` an existing one is returned.
    pub fn create_group(
        &self,
        parent: Gid,
        path: &str,
        attrs: &[(String, Value)],
        origin: &[u8],
        exist_ok: bool,
    ) -> Result<Gid> {
        write::create_group(self, parent, path, attrs, origin, exist_ok)
    }

    /// Stores zeros: space now, contents later, in place.
    pub fn create_zeroed(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        placement: Placement,
    ) -> Result<Oid> {
        write::create_zeroed(self, parent, path, new, placement)
    }

    /// Reserves space for an object that becomes visible on `RealmAllocation::publish`. It holds
    /// whatever this realm held there before.
    pub fn allocate(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        nbytes: u64,
        placement: Placement,
    ) -> Result<RealmAllocation> {
        write::allocate(self, parent, path, new, nbytes, placement)
    }

    /// Unnamed memory of the pool, gone with its last reference or its process.
    pub fn scratch(&self, nbytes: u64, device: Option<u32>) -> Result<View> {
        let core = self.writable()?;
        let (reserved, claim) = space::reserve(core, nbytes, device)?;
        Ok(View::scratch(claim, reserved, nbytes))
    }

    /// Replaces an object's value if its payload still has this generation; `false` if not.
    ///
    /// An object that is gone is `BusyError` (P8).
    pub fn replace_payload(&self, oid: Oid, generation: u32, data: &[u8]) -> Result<bool> {
        let core = self.writable()?;
        write::check_batch_writes(core, oid)?;
        write::replace_payload(core, oid, generation, data, false, self.precondition())
            .map_err(gone_is_busy)
    }

    /// Deletes a member, a group with all that is in it.
    pub fn delete(&self, parent: Gid, path: &str) -> Result<()> {
        delete::delete(self, parent, path)
    }

    /// Gives a member another name or group; missing parents are made.
    pub fn rename(&self, parent: Gid, old: &str, new_parent: Gid, new: &str) -> Result<()> {
        write::rename(self, parent, old, new_parent, new, Clash::Refuse, None)
    }

    /// Replaces what is kept beside a member: for export, or of what it is a part.
    pub fn set_origin(&self, member: Member, origin: &[u8]) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        core.write(inside, Headroom::Normal, self.precondition(), |rows| {
            group::keep_origin(rows, member, origin)
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
        write::set_attrs_if(self, member, was, attrs)
    }

    /// Removes an attribute of a member.
    pub fn delete_attr(&self, member: Member, key: &str) -> Result<()> {
        write::delete_attr(self, member, key)
    }

    /// Makes a member read-only, with all that is below it, or takes that back (see `protect`).
    pub fn set_read_only(&self, member: Member, on: bool) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = write::stamp(core)?;
        core.write(inside, Headroom::Relief, self.precondition(), |rows| {
            protect::set(rows, member, on, stamp)
        })
    }
}

// Chunked arrays.
impl Realm {
    /// Copies a box of a chunked array's value into `out`, in C order; all of it as of one moment.
    pub fn load_box(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        chunks::load_box(self, oid, offsets, counts, out)
    }

    /// One chunk of a chunked array as it is kept, by its place in the grid. A place beyond the
    /// array's edge is `ArgumentError`.
    pub fn stored_chunk(&self, oid: Oid, cell: &[u32]) -> Result<StoredChunk> {
        chunks::stored_chunk(self, oid, cell)
    }

    /// Copies `data`, in C order, into a box of a chunked array. Durable on return, where the realm
    /// promises that.
    ///
    /// On error some chunks may have been written, each of them whole.
    pub fn store_box(&self, oid: Oid, offsets: &[u64], counts: &[u64], data: &[u8]) -> Result<()> {
        chunks::store(self, oid, offsets, counts, data, None)
    }

    /// The same, of those bytes of the box alone where `mask`, which has as many, is not zero.
    pub fn store_masked(
        &self,
        oid: Oid,
        offsets: &[u64],
        counts: &[u64],
        data: &[u8],
        mask: &[u8],
    ) -> Result<()> {
        if mask.len() != data.len() {
            fail!(Argument, "a mask of {} bytes is none for {}", mask.len(), data.len());
        }
        chunks::store(self, oid, offsets, counts, data, Some(mask))
    }

    /// Gives a chunked array another shape of as many dimensions. The part that is added is zeros;
    /// the part that is cut off is gone.
    ///
    /// On error all is as it was.
    pub fn reshape(&self, oid: Oid, shape: &[u64]) -> Result<()> {
        chunks::reshape(self, oid, shape)
    }

    /// Appends `data`, of this shape and in C order, along one dimension, in one commit; the shape
    /// of the array after it.
    ///
    /// An append at the same time comes before or after. On error all is as it was.
    pub fn append(&self, oid: Oid, axis: usize, counts: &[u64], data: &[u8]) -> Result<Vec<u64>> {
        chunks::append(self, oid, axis, counts, data)
    }

    /// The bytes that an object's value takes, of the arena and of the catalog.
    pub fn stored_nbytes(&self, oid: Oid) -> Result<u64> {
        chunks::stored_nbytes(self.readable()?, self.at(), oid)
    }
}

// Batches.
impl Realm {
    /// Begins a batch in this thread, or joins the one that runs. It is undone if the guard goes
    /// without an end.
    pub fn batch(&self) -> Result<Batch> {
        Batch::begin(self.writable()?)
    }

    /// Begins a batch in this thread, or joins the one that runs; the caller sees to its end.
    pub fn begin_batch(&self) -> Result<()> {
        batch::begin(self.writable()?, None)
    }

    /// Ends the innermost batch; the outermost commits.
    pub fn commit_batch(&self) -> Result<()> {
        batch::end(&self.core, None, true)
    }

    /// Ends the innermost batch with an error: nothing of the whole batch will be kept.
    pub fn abort_batch(&self) -> Result<()> {
        batch::end(&self.core, None, false)
    }

    /// Whether this thread runs a batch on it.
    pub fn runs_batch(&self) -> bool {
        batch::undo_abandoned();
        batch::runs(&self.core)
    }

    /// Gives the batch that this thread runs here to another realm; `BusyError` if it has done
    /// something here already.
    pub fn hand_batch_to(&self, other: &Realm) -> Result<()> {
        batch::hand_over(&self.core, &other.core)
    }
}

// Snapshots.
impl Realm {
    /// The realm as the newest commit has left it, until the last handle of what is returned goes:
    /// all that is looked up through it is of that commit. It is given up when more bytes of the
    /// catalog than `max_growth` wait for it (if not given: 256 MiB, or four times the catalog).
    pub fn snapshot(&self, max_growth: Option<u64>) -> Result<Realm> {
        snapshot::snapshot(self, max_growth)
    }

    /// Ends the snapshot that this handle is of; without one, nothing.
    pub fn end_snapshot(&self) {
        if let Some(at) = self.at() {
            at.close();
        }
    }

    /// The id of the commit that all looks here are at, if this handle is of a snapshot.
    pub fn snapshot_id(&self) -> Option<u64> {
        self.at().map(SnapshotHandle::id)
    }

    /// Whether this handle is of a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.at.is_some()
    }

    /// Whether nobody has committed since this snapshot.
    pub fn is_newest(&self) -> Result<bool> {
        let core = self.readable()?;
        let newest = core.enter()?.catalog().last_id()?;
        Ok(self.snapshot_id().is_none_or(|id| id == newest))
    }
}

// Locks.
impl Realm {
    /// Locks a member against others who ask for it: for reading, together with others who read;
    /// for writing, alone. Waits until the deadline (for ever, if there is none); in between it
    /// calls `pause`, which is to wait about so long, and ends the waiting by an error.
    pub fn lock(
        &self,
        member: Member,
        mode: LockMode,
        within: Option<Duration>,
        pause: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<Lock> {
        let mut wait = Wait::new(within);
        loop {
            if let Some(lock) = self.lock_here(member, mode, &mut wait, pause)? {
                return Ok(lock);
            }
        }
    }

    /// The same, unless the member is on its way to another realm, or from one: then `None`, after
    /// a step of waiting, and it is for the caller to look where it is.
    pub fn lock_here(
        &self,
        member: Member,
        mode: LockMode,
        wait: &mut Wait,
        pause: &mut dyn FnMut(Duration) -> Result<()>,
    ) -> Result<Option<Lock>> {
        locks::lock_here(self, member, mode, wait, pause)
    }
}

// The index.
impl Realm {
    /// Sets how objects that will be stored below a group are indexed; a setting that is left out
    /// is up to the group above. The root's settings are the realm's.
    pub fn set_index_settings(&self, group: Gid, settings: &IndexSettings) -> Result<()> {
        index::set_index_settings(self, group, settings)
    }

    /// The settings that a group has itself.
    pub fn index_settings(&self, group: Gid) -> Result<IndexSettings> {
        index::index_settings(self, group)
    }

    /// What the index is made of.
    pub fn index_stats(&self) -> Result<IndexStats> {
        let core = self.readable()?;
        let inside = core.enter()?;
        let catalog = inside.catalog().stats()?;
        let read = inside.read_at(self.at())?;
        stats::of(&read, self.root(), &catalog, &|key| keys::key_name(core, &inside, key))
    }

    /// Does all maintenance that is due; how many steps that took. Usually there is no need to:
    /// commits see to it.
    pub fn maintain(&self) -> Result<u64> {
        index::maintain(self)
    }

    /// Indexes up to `most` objects that are queued; how many it were.
    pub fn drain_queue(&self, most: u64) -> Result<u64> {
        let core = self.writable()?;
        if batch::runs(core) {
            fail!(Busy, "a batch runs in this thread: end it before draining the queue");
        }
        let inside = &core.enter()?;
        index::drain(core, inside, most)
    }

    /// Indexes the objects below a group anew, all in all; with a mode, they have it from then on.
    /// How many objects it were.
    pub fn reindex(&self, group: Gid, mode: Option<IndexMode>) -> Result<u64> {
        index::reindex(self, group, mode)
    }
}

// Space, and what processes hold.
impl Realm {
    /// Where the space is. A handle that may write takes back first what dead processes had
    /// reserved; to a reader that counts as pending.
    pub fn space(&self) -> Result<Space> {
        let core = self.readable()?;
        if self.mode() == Mode::ReadWrite {
            dead::take_back_dead(core, &core.enter()?)?;
        }
        space::space(core)
    }

    /// The bytes of a devdax node that no span has.
    pub fn free_on_node(&self, device: u32, path: &Path) -> Result<u64> {
        spans::free_on_node(self.readable()?, device, path)
    }

    /// Sets the bound of the arena, rounded up to 2 MiB.
    pub fn resize(&self, size: u64) -> Result<()> {
        space::resize(self.writable()?, size, false)
    }

    /// The same, but not below what the arena has.
    pub fn resize_as_can_be(&self, size: u64) -> Result<()> {
        space::resize(self.writable()?, size, true)
    }

    /// Makes the spans now that the realm may have, and maps every page.
    pub fn prefault(&self) -> Result<()> {
        spans::prefault(self.writable()?)
    }

    /// Who holds what: leases, views, reservations, readers.
    pub fn holders(&self) -> Result<Holders> {
        let core = self.readable()?;
        holders::holders(core, &core.enter()?)
    }

    /// What the program should be told, though nothing has failed: that a snapshot of its own, or
    /// of another process, keeps much of the catalog from reuse. Each is told once.
    pub fn take_notices(&self) -> Vec<String> {
        self.core.holdings.notices.take()
    }
}

// A realm beside others of its namespace.
impl Realm {
    /// Refuses a change, the rows of which are these, if what this handle relies on has changed.
    pub fn check_precondition(&self, rows: &mut dyn Rows) -> Result<()> {
        Precondition::check(self.precondition(), rows)
    }

    /// A handle of which every change relies on this.
    #[must_use]
    pub fn with_precondition(&self, precondition: Precondition) -> Realm {
        Realm { precondition: Some(precondition), ..self.clone() }
    }

    /// Makes mirrors of which nobody here sees a true one this realm's own groups.
    pub fn own_groups(&self, gids: &[Gid]) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        core.commit_if(inside, Headroom::Normal, self.precondition(), |rows| {
            gids.iter().try_for_each(|gid| mirror::own(rows, Member::Group(*gid)))
        })
    }

    /// Makes mirrors of a chain of groups of other realms, outermost first, or makes those that are
    /// here say what the true ones say.
    pub fn reflect(&self, chain: &[(GroupInfo, Vec<(String, Value)>)]) -> Result<()> {
        write::reflect(self, chain)
    }

    /// Deletes a group with all that this realm has below it, wherever it lies by now, and mirrors
    /// below it that no name leads to.
    pub fn delete_group(&self, gid: Gid, unnamed: &[Gid]) -> Result<()> {
        delete::delete_group(self, gid, unnamed)
    }
}

// What topics ask first.
impl Realm {
    /// The core, for reading.
    pub(super) fn readable(&self) -> Result<&Arc<Core>> {
        batch::undo_abandoned();
        if !self.session.is_open() {
            fail!(
                Argument,
                "the pool {} is closed: open it again (views of it stay valid)",
                self.core.setup.pool.display()
            );
        }
        self.at().map_or(Ok(()), SnapshotHandle::check)?;
        Ok(&self.core)
    }

    /// The core, for writing.
    pub(super) fn writable(&self) -> Result<&Arc<Core>> {
        let core = self.readable()?;
        if self.at.is_some() {
            fail!(
                ReadOnly,
                "this is of a snapshot of {:?}, which shows what was: write through the pool \
                 itself",
                core.setup.namespace
            );
        }
        if self.mode() == Mode::Read {
            fail!(
                ReadOnly,
                "the pool {} is open read-only: open it with mode \"r+\" to write",
                core.setup.pool.display()
            );
        }
        if core.setup.immutable {
            fail!(
                ReadOnly,
                "this part of namespace {:?} is published: nothing of it can be changed; unpublish \
                 it first",
                core.setup.namespace
            );
        }
        Ok(core)
    }

    /// The snapshot that all looks are at.
    pub(super) fn at(&self) -> Option<&SnapshotHandle> {
        self.at.as_deref()
    }

    /// What its changes rely on.
    pub(super) fn precondition(&self) -> Option<&Precondition> {
        self.precondition.as_ref()
    }
}
