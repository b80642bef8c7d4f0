//! Writing: put, allocate, replace, delete, move, annotate.
//!
//! A small value takes one commit. A large one takes two short ones with the copy in between:
//! reserve (a row keeps the space under this process's lease) → copy and flush, unlocked →
//! link (the record points to the space, the reservation's row goes). A crash in between leaves a
//! reservation of a dead lease, which anyone takes back. Operations are the functions of `group`;
//! here they are run against one transaction, or against the thread's batch.

use std::sync::Arc;

use crate::attrs::{self, Value};
use crate::batch::{self, Batch, Overlay};
use crate::catalog::{Headroom, Table};
use crate::checksum;
use crate::error::Result;
use crate::extent::{Allocation, View};
use crate::fail;
use crate::faults::step;
use crate::group::{self, NewRecord, Stamp, Target};
use crate::id::{Gid, ID_BLOCK, Member, Oid, id_key};
use crate::index::Touch;
use crate::layout::{Layout, chunked_has_no};
use crate::name::Path;
use crate::object::{
    self, Class, INLINE_BYTES_MAX, NDIM_MAX, NewObject, Placement, Record, Stored,
};
use crate::protect;
use crate::realm::Realm;
use crate::realm::core::{Core, Inside, lock};
use crate::realm::expects::Expects;
use crate::realm::link::Link;
use crate::realm::look::gone_is_busy;
use crate::realm::space::{NEXT_ID, meta_u64};
use crate::rows::{Reserved, RowsMut, Snapshot};

/// Ids taken for one operation, which may run again with the same.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    next: u64,
    left: u64,
}

impl Ids {
    /// The next one; there is one for each component of the path.
    pub(super) fn take(&mut self) -> u64 {
        assert!(self.left > 0, "an operation takes no more ids than its path has components");
        self.left -= 1;
        self.next += 1;
        self.next - 1
    }
}

/// Runs the same operation against one transaction, or against this thread's list, if what it
/// relies on holds there.
macro_rules! change {
    ($core:expr, $inside:expr, $headroom:expr, $expects:expr, |$rows:ident| $body:expr) => {{
        match batch::change($core, $inside.catalog(), $expects, |$rows| $body)? {
            Some(done) => Ok(done),
            None => {
                let done = $core.commit($inside, $headroom, |$rows| {
                    Expects::check($expects, $rows)?;
                    $body
                })?;
                step!("write.committed");
                $core.after_commit($inside);
                Ok(done)
            }
        }
    }};
}

pub(super) use change;

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
        let core = self.writable()?;
        let parsed = Path::new(path)?;
        let target = Target { from: parent, root: self.root(), path: &parsed };
        let inside = &core.enter()?;
        let attrs = core.encode_attrs(inside, attrs)?;
        let ids = core.take_ids(inside, parsed.parents.len() as u64 + 1)?;
        let stamp = core.stamp();
        change!(core, inside, Headroom::Normal, self.expects(), |rows| {
            let mut ids = ids;
            let mut new_id = || ids.take();
            group::create(rows, &target, stamp, (&attrs, origin), exist_ok, &mut new_id)
        })
    }

    /// Stores a value under a name; visible to everyone, whole, when this returns.
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
        let core = self.writable()?;
        check_data(new, data.len() as u64)?;
        if new.layout != Layout::Contiguous {
            return self.put_chunked((parent, path), new, Some(data), placement);
        }
        if data.len() as u64 <= INLINE_BYTES_MAX {
            let link = core.link_of(parent, path, new, placement, self.expects())?;
            return core.link_inline(&link, data);
        }
        let allocation = self.allocate(parent, path, new, data.len() as u64, placement)?;
        allocation.write(data);
        step!("put.copied");
        allocation.publish()
    }

    /// Stores zeros: space now, contents later, in place.
    pub fn create_zeroed(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        placement: Placement,
    ) -> Result<Oid> {
        let core = self.writable()?;
        let nbytes = object::value_bytes(&new.dtype, &new.shape)?;
        check_data(new, nbytes)?;
        if new.layout != Layout::Contiguous {
            return self.put_chunked((parent, path), new, None, placement);
        }
        if nbytes <= INLINE_BYTES_MAX {
            let link = core.link_of(parent, path, new, placement, self.expects())?;
            return core.link_inline(&link, &vec![0; nbytes as usize]);
        }
        let allocation = self.allocate(parent, path, new, nbytes, placement)?;
        allocation.zero();
        step!("put.zeroed");
        allocation.publish()
    }

    /// Reserves space for an object that becomes visible on `Allocation::publish`. It holds
    /// whatever this realm held there before.
    pub fn allocate(
        &self,
        parent: Gid,
        path: &str,
        new: &NewObject,
        nbytes: u64,
        placement: Placement,
    ) -> Result<Allocation> {
        let core = self.writable()?;
        check_data(new, nbytes)?;
        if new.layout != Layout::Contiguous {
            return Err(chunked_has_no(path, "memory to be filled in place"));
        }
        let link = core.link_of(parent, path, new, placement, self.expects())?;
        core.check_free(&link)?;
        let (reserved, claim) = core.reserve(nbytes, placement.device)?;
        Ok(Allocation::new(Arc::clone(core), claim, reserved, link.into_owned(), nbytes))
    }

    /// Unnamed memory of the pool, gone with its last reference or its process.
    pub fn scratch(&self, nbytes: u64, device: Option<u32>) -> Result<View> {
        let core = self.writable()?;
        let (reserved, claim) = core.reserve(nbytes, device)?;
        Ok(View::scratch(claim, reserved, nbytes))
    }

    /// Replaces an object's value if its payload still has this generation; `false` if not.
    ///
    /// An object that is gone is `BusyError` (P8).
    pub fn replace_payload(&self, oid: Oid, generation: u32, data: &[u8]) -> Result<bool> {
        let core = self.writable()?;
        core.check_batch_writes(oid)?;
        core.replace_payload((oid, generation), data, false, self.expects()).map_err(gone_is_busy)
    }

    /// Deletes a member, a group with all that is in it.
    pub fn delete(&self, parent: Gid, path: &str) -> Result<()> {
        let core = self.writable()?;
        let parsed = Path::new(path)?;
        let target = Target { from: parent, root: self.root(), path: &parsed };
        self.whole_or_in_parts(
            || self.lookup(parent, path),
            || {
                let inside = &core.enter()?;
                change!(core, inside, Headroom::Relief, self.expects(), |rows| group::delete(
                    rows, &target, path
                ))
            },
        )
    }

    /// Gives a member another name or group; missing parents are made.
    pub fn rename(&self, parent: Gid, old: &str, new_parent: Gid, new: &str) -> Result<()> {
        let core = self.writable()?;
        let (old_path, new_path) = (Path::new(old)?, Path::new(new)?);
        let from = Target { from: parent, root: self.root(), path: &old_path };
        let to = Target { from: new_parent, root: self.root(), path: &new_path };
        let inside = &core.enter()?;
        let ids = core.take_ids(inside, new_path.parents.len() as u64)?;
        let stamp = core.stamp();
        change!(core, inside, Headroom::Normal, self.expects(), |rows| {
            let mut ids = ids;
            let mut new_id = || ids.take();
            group::rename(rows, (&from, old), &to, stamp, &mut new_id)
        })
    }

    /// Replaces what is kept beside a group for export (an import into an existing group).
    pub fn set_origin(&self, group: Gid, origin: &[u8]) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        change!(core, inside, Headroom::Normal, self.expects(), |rows| group::keep_origin(
            rows, group, origin
        ))
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
        let core = self.writable()?;
        let inside = &core.enter()?;
        let known = core.intern(inside, was.iter().map(|(key, _)| key.as_str()))?;
        let was: Vec<_> = known.into_iter().zip(was.iter().map(|(_, value)| value)).collect();
        let keys = core.intern(inside, attrs.iter().map(|(key, _)| key.as_str()))?;
        let changes: Vec<_> =
            keys.into_iter().zip(attrs).map(|(key, (_, value))| (key, Some(value))).collect();
        let stamp = core.stamp();
        change!(core, inside, Headroom::Normal, self.expects(), |rows| {
            group::refuse_changed(rows, member, &was)?;
            group::annotate(rows, member, &changes, stamp)
        })
    }

    /// Removes an attribute of a member.
    pub fn delete_attr(&self, member: Member, key: &str) -> Result<()> {
        let core = self.writable()?;
        if self.attr(member, key)?.is_none() {
            fail!(NotFound, "there is no attribute {key:?}: list them with keys()");
        }
        let inside = &core.enter()?;
        let Some(id) = core.known_key(inside, key)? else { return Ok(()) };
        let stamp = core.stamp();
        change!(core, inside, Headroom::Relief, self.expects(), |rows| {
            group::annotate(rows, member, &[(id, None)], stamp)
        })
    }

    /// Makes a member read-only, with all that is below it, or takes that back (see `protect`).
    pub fn set_read_only(&self, member: Member, on: bool) -> Result<()> {
        let core = self.writable()?;
        let inside = &core.enter()?;
        let stamp = core.stamp();
        change!(core, inside, Headroom::Relief, self.expects(), |rows| protect::set(
            rows, member, on, stamp
        ))
    }

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
}

impl Stamp {
    /// This user, now: in ns, of whole microseconds, so that what a handle gives is what is there.
    pub(crate) fn now(owner: u32, checksums: bool) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = since.map_or(0, |d| d.as_micros() as i64 * 1000);
        Stamp { owner, now, checksums }
    }
}

/// An array keeps its dtype and shape: another value has as many bytes.
fn check_fits(record: &Record<'_>, stored: &Stored<'_>) -> Result<()> {
    if let Stored::Chunked(_) = record.stored {
        return Err(chunked_has_no(record.name, "value to replace"));
    }
    if record.class == Class::Array && record.stored.nbytes() != stored.nbytes() {
        fail!(
            Argument,
            "{:?} takes {} bytes of data, {} were given",
            record.name,
            record.stored.nbytes(),
            stored.nbytes()
        );
    }
    Ok(())
}

fn check_data(new: &NewObject, nbytes: u64) -> Result<()> {
    if new.shape.len() > NDIM_MAX {
        fail!(Argument, "{} dimensions were given; at most {NDIM_MAX} fit", new.shape.len());
    }
    if new.class == Class::Array {
        let expected = object::value_bytes(&new.dtype, &new.shape)?;
        if expected != nbytes {
            fail!(
                Argument,
                "shape {:?} asks for {expected} bytes of data, {nbytes} were given",
                new.shape
            );
        }
    }
    Ok(())
}

impl Core {
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::now(self.user, self.setup.checksums)
    }

    pub(super) fn link_of<'a>(
        &self,
        from: Gid,
        path: &'a str,
        new: &'a NewObject,
        placement: Placement,
        expects: Option<&Expects>,
    ) -> Result<Link<'a>> {
        let attrs = if new.attrs.is_empty() {
            Vec::new()
        } else {
            self.encode_attrs(&self.enter()?, &new.attrs)?
        };
        Link::new((from, path), new, attrs, placement, expects)
    }

    pub(super) fn encode_attrs(
        &self,
        inside: &Inside<'_>,
        attrs: &[(String, Value)],
    ) -> Result<Vec<u8>> {
        let keys = self.intern(inside, attrs.iter().map(|(key, _)| key.as_str()))?;
        attrs::section(&keys, attrs)
    }

    pub(super) fn check_free(self: &Arc<Self>, link: &Link<'_>) -> Result<()> {
        let parsed = Path::new(&link.path)?;
        let target = Target { from: link.from, root: self.setup.root(), path: &parsed };
        let inside = &self.enter()?;
        let expects = link.expects.as_ref();
        let checked = batch::with(self, |overlay: &mut Overlay| {
            let rows = &mut overlay.look(inside.catalog());
            Expects::check(expects, rows)?;
            group::check_free(rows, &target, link.overwrite)
        })?;
        if checked.is_none() {
            let txn = inside.read()?;
            Expects::check(expects, &mut Snapshot(&txn))?;
            group::check_free(&mut Snapshot(&txn), &target, link.overwrite)?;
        }
        Ok(())
    }

    fn link_inline(self: &Arc<Self>, link: &Link<'_>, data: &[u8]) -> Result<Oid> {
        self.link(link, Stored::Inline(data), None)
    }

    /// Links an object whose value lies in reserved space, written and flushed (P1).
    pub(crate) fn link_reserved(
        self: &Arc<Self>,
        link: &Link<'_>,
        reserved: Reserved,
        (nbytes, checksum): (u64, u64),
    ) -> Result<Oid> {
        let stored = Stored::Contiguous { extent: reserved.extent, nbytes, checksum };
        self.link(link, stored, Some(reserved))
    }

    fn link(
        self: &Arc<Self>,
        link: &Link<'_>,
        stored: Stored<'_>,
        reserved: Option<Reserved>,
    ) -> Result<Oid> {
        let parsed = Path::new(&link.path)?;
        let target = Target { from: link.from, root: self.setup.root(), path: &parsed };
        let inside = &self.enter()?;
        if reserved.is_some_and(|reserved| reserved.lease != inside.lease().id()) {
            fail!(
                Busy,
                "this space was reserved by the process that forked: only it can publish {:?}",
                link.path
            );
        }
        let ids = self.take_ids(inside, parsed.parents.len() as u64 + 1)?;
        let record = link.record(stored, self.stamp());
        change!(self, inside, Headroom::Normal, link.expects.as_ref(), |rows| {
            let mut ids = ids;
            let oid = ids.take();
            let mut new_id = || ids.take();
            let new =
                NewRecord { oid, record, index: link.index, modes: &self.index.modes, reserved };
            group::link(rows, &target, &new, link.overwrite, &mut new_id).map(|()| oid)
        })
    }

    /// Moves an inline value into an extent, unless its payload has changed since.
    pub(crate) fn promote(
        self: &Arc<Self>,
        of: (Oid, u32),
        data: &[u8],
        expects: Option<&Expects>,
    ) -> Result<()> {
        self.replace_payload(of, data, true, expects).map(|_| ())
    }

    fn replace_payload(
        self: &Arc<Self>,
        of: (Oid, u32),
        data: &[u8],
        promote: bool,
        expects: Option<&Expects>,
    ) -> Result<bool> {
        if data.len() as u64 <= INLINE_BYTES_MAX && !promote {
            return self.swap_payload(of, Stored::Inline(data), None, expects);
        }
        let nbytes = data.len() as u64;
        let (reserved, claim) = self.reserve(nbytes, None)?;
        let durable = self.setup.durable && claim.memory().write_through(data);
        if !self.setup.durable {
            claim.memory().write(data);
        }
        step!("replace.copied");
        // One that is promoted is about to be written to.
        let checksum =
            if promote { checksum::NONE } else { self.checksum_of(claim.memory(), nbytes) };
        let stored = Stored::Contiguous { extent: reserved.extent, nbytes, checksum };
        let flushed = if durable { Ok(()) } else { self.flush_extent(reserved.extent, nbytes) };
        let swapped = flushed
            .inspect(|()| {
                step!("replace.flushed");
            })
            .and_then(|()| self.swap_payload(of, stored, Some(reserved), expects));
        if !matches!(swapped, Ok(true)) {
            self.give_back(reserved);
        }
        swapped
    }

    fn swap_payload(
        self: &Arc<Self>,
        (oid, generation): (Oid, u32),
        stored: Stored<'_>,
        reserved: Option<Reserved>,
        expects: Option<&Expects>,
    ) -> Result<bool> {
        let inside = &self.enter()?;
        let stamp = self.stamp();
        change!(self, inside, Headroom::Normal, expects, |rows| {
            protect::refuse(rows, Member::Object(oid))?;
            let swapped = group::with_record(rows, Member::Object(oid), |record| {
                if record.generation != generation {
                    return Ok(None);
                }
                check_fits(record, &stored)?;
                let generation = generation.wrapping_add(1);
                let row = Record { stored, generation, modified: stamp.now, ..*record }.encode();
                let sized = record.stored.nbytes() != stored.nbytes();
                Ok(Some((row, record.extent(), sized.then_some(record.index))))
            })?;
            let Some((row, before, resized)) = swapped else { return Ok(false) };
            rows.put(Table::Objects, &id_key(oid), &row)?;
            step!("replace.recorded");
            if let Some(index) = resized {
                rows.index(oid, Touch::Changed(index))?;
            }
            if let Some(reserved) = reserved {
                rows.adopt(reserved)?;
            }
            if let Some(before) = before {
                rows.release(before)?;
            }
            Ok(true)
        })
    }

    /// In a batch, in-place writes go only to objects that the batch itself makes.
    pub(crate) fn check_batch_writes(self: &Arc<Self>, oid: Oid) -> Result<()> {
        let made = batch::with(self, |overlay| Ok(overlay.makes(Table::Objects, &id_key(oid))))?;
        if made == Some(false) {
            fail!(
                Busy,
                "object {oid:#x} was made before this batch: a batch cannot undo writes in place; \
                 write it outside, or replace it"
            );
        }
        Ok(())
    }

    /// Applies a batch's list in one commit.
    pub(crate) fn apply(&self, overlay: &Overlay) -> Result<()> {
        let inside = &self.enter()?;
        let bytes = overlay.bytes_put();
        inside.catalog().expect(bytes)?;
        // One that only deletes makes room.
        let headroom = if bytes == 0 { Headroom::Relief } else { Headroom::Normal };
        step!("batch.closed");
        self.commit(inside, headroom, |rows| overlay.apply(rows))?;
        step!("batch.committed");
        self.after_commit(inside);
        Ok(())
    }

    /// Takes ids from this process's block; a new block takes a commit of its own.
    pub(super) fn take_ids(&self, inside: &Inside<'_>, count: u64) -> Result<Ids> {
        let mut block = lock(&self.ids);
        if block.end - block.next < count {
            let want = ID_BLOCK.max(count);
            let next = self.commit(inside, Headroom::Normal, |rows| {
                let next = meta_u64(rows.txn().get(Table::Meta, NEXT_ID)?)?;
                rows.txn().put(Table::Meta, NEXT_ID, &(next + want).to_le_bytes())?;
                Ok(next)
            })?;
            if (next + want) >> crate::id::COUNTER_BITS != 0 {
                fail!(
                    PoolFull,
                    "this realm has given out all of its 2^40 ids: make a new namespace"
                );
            }
            step!("ids.committed");
            block.next = next;
            block.end = next + want;
        }
        let first = block.next;
        block.next += count;
        let birth = self.setup.birth << crate::id::COUNTER_BITS;
        Ok(Ids { next: birth | first, left: count })
    }
}
