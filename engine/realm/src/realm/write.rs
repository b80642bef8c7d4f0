//! Writing: put, allocate, replace, delete, move, annotate.
//!
//! A small value takes one commit. A large one takes two short ones with the copy in between:
//! reserve (a row keeps the space under this process's lease) → copy and flush, unlocked →
//! link (the record points to the space, the reservation's row goes). A crash in between leaves a
//! reservation of a dead lease, which anyone takes back. Operations are the functions of `group`;
//! here they are run against one transaction, or against the thread's batch.

use std::sync::Arc;

use crate::realm::{after_commit, ahead, checked, chunks, files, ids, keys, space};
use engram_ops::group::GroupInfo;
use engram_ops::mirror;
use engram_ops::mirror::Original;

use crate::batch;
use crate::realm::Realm;
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::link::Link;
use crate::realm::names::NamesSeen;
use crate::realm::precondition::Precondition;
use crate::view::RealmAllocation;
use engram_base::checksum;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, Oid, id_key};
use engram_base::name::Path;
use engram_catalog::{Headroom, Table};
use engram_ops::group;
use engram_ops::group::{Clash, NewRecord, Target};
use engram_ops::overlay::Overlay;
use engram_ops::protect;
use engram_ops::rows_mut::Reserved;
use engram_records::attrs;
use engram_records::attrs::Value;
use engram_records::index_mode::Touch;
use engram_records::layout::{Layout, chunked_has_no};
use engram_records::object;
use engram_records::object::{
    Class, INLINE_BYTES_MAX, NDIM_MAX, NewObject, Placement, Record, Stored,
};
use engram_records::stamp::Stamp;

/// See [`Realm::create_group`].
pub(super) fn create_group(
    realm: &Realm,
    parent: Gid,
    path: &str,
    attrs: &[(String, Value)],
    origin: &[u8],
    exist_ok: bool,
) -> Result<Gid> {
    let core = realm.writable()?;
    let parsed = Path::new(path)?;
    let target = Target { from: parent, root: realm.root(), path: &parsed };
    let inside = &core.enter()?;
    let attrs = encode_attrs(core, inside, attrs)?;
    let ids = ids::take_ids(core, inside, parsed.parents.len() as u64 + 1)?;
    let stamp = stamp(core)?;
    core.write(inside, Headroom::Normal, realm.precondition(), |rows| {
        let mut ids = ids;
        let mut new_id = || ids.take();
        group::create(rows, &target, stamp, &attrs, origin, exist_ok, &mut new_id)
    })
}

impl Realm {
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
            return chunks::put_chunked(self, parent, path, new, Some(data), placement);
        }
        if data.len() as u64 <= INLINE_BYTES_MAX {
            let link = link_of(core, parent, path, new, placement, self.precondition())?;
            return link_object(core, &link, Stored::Inline(data), None, |_, _| Ok(()));
        }
        let allocation = self.allocate(parent, path, new, data.len() as u64, placement)?;
        allocation.write(data);
        step!("put.copied");
        allocation.publish()
    }
}

/// See [`Realm::create_zeroed`].
pub(super) fn create_zeroed(
    realm: &Realm,
    parent: Gid,
    path: &str,
    new: &NewObject,
    placement: Placement,
) -> Result<Oid> {
    let core = realm.writable()?;
    let nbytes = object::value_bytes(&new.dtype, &new.shape)?;
    check_data(new, nbytes)?;
    if new.layout != Layout::Contiguous {
        return chunks::put_chunked(realm, parent, path, new, None, placement);
    }
    if nbytes <= INLINE_BYTES_MAX {
        let link = link_of(core, parent, path, new, placement, realm.precondition())?;
        let zeros = vec![0; nbytes as usize];
        return link_object(core, &link, Stored::Inline(&zeros), None, |_, _| Ok(()));
    }
    let allocation = realm.allocate(parent, path, new, nbytes, placement)?;
    allocation.zero();
    step!("put.zeroed");
    allocation.publish()
}

/// See [`Realm::allocate`].
pub(super) fn allocate(
    realm: &Realm,
    parent: Gid,
    path: &str,
    new: &NewObject,
    nbytes: u64,
    placement: Placement,
) -> Result<RealmAllocation> {
    let core = realm.writable()?;
    check_data(new, nbytes)?;
    if new.layout != Layout::Contiguous {
        return Err(chunked_has_no(path, "memory to be filled in place"));
    }
    let link = link_of(core, parent, path, new, placement, realm.precondition())?;
    check_free(core, &link)?;
    let (reserved, claim) = ahead::reserve(core, nbytes, placement.device)?;
    Ok(RealmAllocation::new(Arc::clone(core), claim, reserved, link.into_owned(), nbytes))
}

/// See [`Realm::rename`].
pub(super) fn rename(
    realm: &Realm,
    parent: Gid,
    old: &str,
    new_parent: Gid,
    new: &str,
    clash: Clash,
    was: Option<NamesSeen>,
) -> Result<()> {
    let core = realm.writable()?;
    let (old_path, new_path) = (Path::new(old)?, Path::new(new)?);
    let from = Target { from: parent, root: realm.root(), path: &old_path };
    let to = Target { from: new_parent, root: realm.root(), path: &new_path };
    let inside = &core.enter()?;
    let ids = ids::take_ids(core, inside, new_path.parents.len() as u64)?;
    let stamp = stamp(core)?;
    core.write(inside, Headroom::Normal, realm.precondition(), |rows| {
        let mut ids = ids;
        let mut new_id = || ids.take();
        if let Some(was) = was {
            group::refuse_other(rows, parent, old, Some(was.member))?;
            group::refuse_other(rows, new_parent, new, was.there)?;
        }
        group::rename(rows, &from, old, &to, clash, stamp, &mut new_id)
    })
}

/// See [`Realm::set_attrs_if`].
pub(super) fn set_attrs_if(
    realm: &Realm,
    member: Member,
    was: &[(String, Value)],
    attrs: &[(String, Value)],
) -> Result<()> {
    let core = realm.writable()?;
    let inside = &core.enter()?;
    let known = keys::intern(core, inside, was.iter().map(|(key, _)| key.as_str()))?;
    let was: Vec<_> = known.into_iter().zip(was.iter().map(|(_, value)| value)).collect();
    let keys = keys::intern(core, inside, attrs.iter().map(|(key, _)| key.as_str()))?;
    let changes: Vec<_> =
        keys.into_iter().zip(attrs).map(|(key, (_, value))| (key, Some(value))).collect();
    let stamp = stamp(core)?;
    core.write(inside, Headroom::Normal, realm.precondition(), |rows| {
        group::refuse_changed(rows, member, &was)?;
        group::annotate(rows, member, &changes, stamp)
    })
}

/// See [`Realm::delete_attr`].
pub(super) fn delete_attr(realm: &Realm, member: Member, key: &str) -> Result<()> {
    let core = realm.writable()?;
    if realm.attr(member, key)?.is_none() {
        fail!(NotFound, "there is no attribute {key:?}: list them with keys()");
    }
    let inside = &core.enter()?;
    let Some(id) = keys::known_key(core, inside, key)? else { return Ok(()) };
    let stamp = stamp(core)?;
    core.write(inside, Headroom::Relief, realm.precondition(), |rows| {
        group::annotate(rows, member, &[(id, None)], stamp)
    })
}

/// An array keeps its dtype and shape: another value has as many bytes.
fn check_fits(record: &Record<'_>, stored: &Stored<'_>) -> Result<()> {
    if let Stored::Chunked(_) = record.stored {
        return Err(chunked_has_no(record.name, "value to replace"));
    }
    if let Stored::Segmented(_) = record.stored {
        fail!(
            Unsupported,
            "the file {:?} lies in segments: write to it with open_file, or replace it as a whole \
             with a new blob",
            record.name
        );
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

/// Who changes a record now, and when.
pub fn stamp(core: &Core) -> Result<Stamp> {
    Stamp::now(core.user, core.setup.checksums)
}

pub(super) fn link_of<'a>(
    core: &Core,
    from: Gid,
    path: &'a str,
    new: &'a NewObject,
    placement: Placement,
    precondition: Option<&Precondition>,
) -> Result<Link<'a>> {
    let attrs = if new.attrs.is_empty() {
        Vec::new()
    } else {
        encode_attrs(core, &core.enter()?, &new.attrs)?
    };
    Link::new(from, path, new, attrs, placement, precondition)
}

pub(super) fn encode_attrs(
    core: &Core,
    inside: &Inside<'_>,
    attrs: &[(String, Value)],
) -> Result<Vec<u8>> {
    let keys = keys::intern(core, inside, attrs.iter().map(|(key, _)| key.as_str()))?;
    attrs::section(&keys, attrs)
}

pub(super) fn check_free(core: &Arc<Core>, link: &Link<'_>) -> Result<()> {
    let parsed = Path::new(&link.path)?;
    let target = Target { from: link.from, root: core.setup.root(), path: &parsed };
    let inside = &core.enter()?;
    let precondition = link.precondition.as_ref();
    let checked = batch::with(core, |overlay: &mut Overlay| {
        let rows = &mut overlay.look(inside.catalog());
        Precondition::check(precondition, rows)?;
        group::check_free(rows, &target, link.overwrite)
    })?;
    if checked.is_none() {
        let txn = inside.read()?;
        Precondition::check(precondition, &mut txn.rows())?;
        group::check_free(&mut txn.rows(), &target, link.overwrite)?;
    }
    Ok(())
}

/// Links an object. A value in reserved space is written and flushed by then (P1). `before` is told
/// the object's number before it is there.
pub(crate) fn link_object(
    core: &Arc<Core>,
    link: &Link<'_>,
    stored: Stored<'_>,
    reserved: Option<Reserved>,
    before: impl FnOnce(&Inside<'_>, Oid) -> Result<()>,
) -> Result<Oid> {
    let parsed = Path::new(&link.path)?;
    let target = Target { from: link.from, root: core.setup.root(), path: &parsed };
    let inside = &core.enter()?;
    if reserved.is_some_and(|reserved| reserved.lease != inside.lease().id()) {
        fail!(
            Busy,
            "this space was reserved by the process that forked: only it can publish {:?}",
            link.path
        );
    }
    let ids = ids::take_ids(core, inside, parsed.parents.len() as u64 + 1)?;
    before(inside, ids.first())?;
    let record = link.record(stored, stamp(core)?);
    core.write(inside, Headroom::Normal, link.precondition.as_ref(), |rows| {
        let mut ids = ids;
        let oid = ids.take();
        let mut new_id = || ids.take();
        let new =
            NewRecord { oid, record, index: link.index, modes: &core.index.state.modes, reserved };
        group::link(rows, &target, &new, link.overwrite, &mut new_id).map(|()| oid)
    })
}

/// Moves an inline value into an extent, unless its payload has changed since.
pub(crate) fn promote(
    core: &Arc<Core>,
    oid: Oid,
    generation: u32,
    data: &[u8],
    precondition: Option<&Precondition>,
) -> Result<()> {
    replace_payload(core, oid, generation, data, true, precondition).map(|_| ())
}

pub(super) fn replace_payload(
    core: &Arc<Core>,
    oid: Oid,
    generation: u32,
    data: &[u8],
    promote: bool,
    precondition: Option<&Precondition>,
) -> Result<bool> {
    if data.len() as u64 <= INLINE_BYTES_MAX && !promote {
        return swap_payload(core, oid, generation, Stored::Inline(data), None, precondition);
    }
    let nbytes = data.len() as u64;
    let (reserved, claim) = space::reserve(core, nbytes, None)?;
    let durable = core.setup.durable && claim.memory().write_through(data);
    if !core.setup.durable {
        claim.memory().write(data);
    }
    step!("replace.copied");
    // One that is promoted is about to be written to.
    let checksum =
        if promote { checksum::NONE } else { checked::checksum_of(core, claim.memory(), nbytes) };
    let stored = Stored::Contiguous { extent: reserved.extent, nbytes, checksum };
    let flushed = if durable { Ok(()) } else { space::flush_extent(core, reserved.extent, nbytes) };
    let swapped = flushed
        .inspect(|()| {
            step!("replace.flushed");
        })
        .and_then(|()| swap_payload(core, oid, generation, stored, Some(reserved), precondition));
    if !matches!(swapped, Ok(true)) {
        space::give_back(core, reserved);
    }
    swapped
}

fn swap_payload(
    core: &Arc<Core>,
    oid: Oid,
    generation: u32,
    stored: Stored<'_>,
    reserved: Option<Reserved>,
    precondition: Option<&Precondition>,
) -> Result<bool> {
    let inside = &core.enter()?;
    let stamp = stamp(core)?;
    core.write(inside, Headroom::Normal, precondition, |rows| {
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
            rows.release(before, oid)?;
        }
        Ok(true)
    })
}

/// In a batch, in-place writes go only to objects that the batch itself makes.
pub(crate) fn check_batch_writes(core: &Arc<Core>, oid: Oid) -> Result<()> {
    let made = batch::with(core, |overlay| Ok(overlay.makes(Table::Objects, &id_key(oid))))?;
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
pub(crate) fn apply(core: &Core, overlay: &Overlay) -> Result<()> {
    let inside = &core.enter()?;
    let bytes = overlay.bytes_put();
    inside.catalog().expect(bytes, overlay.rows_put())?;
    // One that only deletes makes room.
    let headroom = if bytes == 0 { Headroom::Relief } else { Headroom::Normal };
    step!("batch.closed");
    core.commit(inside, headroom, |rows| rows.apply(overlay))?;
    step!("batch.committed");
    after_commit(core, inside);
    if !overlay.orphans.is_empty() {
        // What fails is left for the next that closes a file.
        let _ = files::sweep_orphans(core, inside);
    }
    Ok(())
}

/// See [`Realm::reflect`].
pub(super) fn reflect(realm: &Realm, chain: &[(GroupInfo, Vec<(String, Value)>)]) -> Result<()> {
    let core = realm.writable()?;
    let inside = &core.enter()?;
    let mut originals = Vec::with_capacity(chain.len());
    for (info, attrs) in chain {
        originals.push(Original {
            gid: info.gid,
            parent: info.parent,
            name: info.name.clone(),
            owner: info.owner,
            created: info.created,
            modified: info.modified,
            attrs: encode_attrs(core, inside, attrs)?,
            checked: core.setup.checksums,
        });
    }
    core.write(inside, Headroom::Normal, realm.precondition(), |rows| {
        mirror::reflect(rows, &originals)
    })
}
