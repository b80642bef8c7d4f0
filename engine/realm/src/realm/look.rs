//! Look-ups: names, records, attributes, values and views.
//!
//! Inside a batch the thread's list is seen first. A value in the catalog is copied out within the
//! read transaction. A value in an extent is pinned within a look-up (P2) and then read, or handed
//! out as a view, without any transaction: lease → read → record → pin → slice.

use crate::realm::checked;
use crate::realm::files;
use crate::realm::keys;
use crate::realm::space;
use crate::realm::write;
use std::sync::Arc;

use crate::batch;
use crate::realm::Realm;
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::precondition::Precondition;
use crate::realm::snapshot::SnapshotHandle;
use crate::view::{Claim, View};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, Oid, id_key};
use engram_base::name::{Name, Path};
use engram_base::scope::Scope;
use engram_catalog::rows::Rows;
use engram_catalog::{ReadTxn, Table};
use engram_media::memory::Memory;
use engram_ops::group;
use engram_ops::group::{GroupInfo, Target};
use engram_ops::links;
use engram_ops::protect;
use engram_records::attrs;
use engram_records::attrs::Value;
use engram_records::layout::{Layout, chunked_has_no};
use engram_records::object::{ObjectInfo, Record, Stored};

/// A value, as an access finds it.
pub enum Payload {
    /// A copy of what lies in the catalog.
    Inline(Vec<u8>),
    /// Memory of the pool.
    Extent(View),
}

/// A member, as one look finds it: its name's row and its record are of the same commit.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most members are objects")]
pub enum Found {
    /// A group.
    Group(Gid),
    /// An object, with what is known of it.
    Object(ObjectInfo),
}

impl Found {
    /// What is known of an object; `None` of a group.
    pub fn info(&mut self) -> Option<&mut ObjectInfo> {
        match self {
            Found::Group(_) => None,
            Found::Object(info) => Some(info),
        }
    }

    /// What `member` is in these rows, in which its name was found.
    pub fn of(rows: &mut dyn Rows, member: Member, scope: Scope) -> Result<Found> {
        match member {
            Member::Group(gid) => Ok(Found::Group(gid)),
            Member::Object(oid) => {
                group::with_record(rows, member, |record| ObjectInfo::of(oid, record, scope))
                    .map(Found::Object)
            }
        }
    }
}

/// Runs the same look-up on the newest snapshot, on this thread's list above it, or on a snapshot
/// that is held, which no batch changes.
macro_rules! look {
    ($at:expr, $core:expr, $inside:expr, |$rows:ident| $body:expr) => {{
        match $at.is_none() && batch::runs($core) {
            false => {
                let txn = $inside.read_at($at)?;
                let $rows = &mut txn.rows();
                $body
            }
            true => batch::with($core, |overlay| {
                let $rows = &mut overlay.look($inside.catalog());
                $body
            })?
            .map_or_else(|| fail!(Busy, "the batch ended in another thread"), Ok),
        }
    }};
}

/// See [`Realm::lookup`].
pub(super) fn lookup(realm: &Realm, parent: Gid, path: &str) -> Result<Option<Member>> {
    let core = realm.readable()?;
    let parsed = Path::new(path)?;
    let target = Target { from: parent, root: realm.root(), path: &parsed };
    let inside = core.enter()?;
    look!(realm.at(), core, inside, |rows| group::resolve(rows, &target))
}

/// See [`Realm::find`].
pub(super) fn find(realm: &Realm, parent: Gid, path: &str) -> Result<Option<Found>> {
    let core = realm.readable()?;
    let parsed = Path::new(path)?;
    let target = Target { from: parent, root: realm.root(), path: &parsed };
    let inside = core.enter()?;
    let mut found = look!(realm.at(), core, inside, |rows| match group::resolve(rows, &target)? {
        Some(member) => Found::of(rows, member, realm.scope()).map(Some),
        None => Ok(None),
    })?;
    files::see_heads(core, &inside, realm.at(), found.iter_mut().filter_map(Found::info))?;
    Ok(found)
}

/// See [`Realm::find_counted`].
pub(super) fn find_counted(realm: &Realm, parent: Gid, name: &str) -> Result<Option<(Found, u64)>> {
    Name::new(name)?;
    let core = realm.readable()?;
    let inside = core.enter()?;
    let linked = realm.at().is_some() || !inside.catalog().knows_empty(Table::Links)?;
    let mut found =
        look!(realm.at(), core, inside, |rows| match group::child(rows, parent, name)? {
            Some(member) => counted(rows, member, realm.scope(), linked).map(Some),
            None => Ok(None),
        })?;
    let infos = found.iter_mut().filter_map(|(found, _)| found.info());
    files::see_heads(core, &inside, realm.at(), infos)?;
    Ok(found)
}

/// What a member is, and how many names it has: one, unless any may have more.
fn counted(
    rows: &mut dyn Rows,
    member: Member,
    scope: Scope,
    linked: bool,
) -> Result<(Found, u64)> {
    let names = match member {
        Member::Object(oid) if linked => links::count(rows, oid)?,
        _ => 1,
    };
    Ok((Found::of(rows, member, scope)?, names))
}

/// See [`Realm::group`].
pub(super) fn group(realm: &Realm, gid: Gid) -> Result<GroupInfo> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    look!(realm.at(), core, inside, |rows| group::with_record(rows, Member::Group(gid), |record| {
        Ok(GroupInfo { scope: realm.scope(), ..group::info(gid, record) })
    }))
}

/// See [`Realm::object`].
pub(super) fn object(realm: &Realm, oid: Oid) -> Result<ObjectInfo> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    let mut info = look!(realm.at(), core, inside, |rows| group::with_record(
        rows,
        Member::Object(oid),
        |record| { ObjectInfo::of(oid, record, realm.scope()) }
    ))?;
    files::see_heads(core, &inside, realm.at(), std::iter::once(&mut info))?;
    Ok(info)
}

/// See [`Realm::list`].
pub(super) fn list(
    realm: &Realm,
    gid: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Member)>> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    look!(realm.at(), core, inside, |rows| listed(rows, gid, after, limit))
}

/// See [`Realm::list_found`].
pub(super) fn list_found(
    realm: &Realm,
    gid: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Found)>> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    let mut all: Vec<(String, Found)> = look!(realm.at(), core, inside, |rows| {
        let there = listed(rows, gid, after, limit)?;
        let mut found = |member| Found::of(rows, member, realm.scope());
        let found = there.into_iter().map(|(name, member)| Ok((name, found(member)?)));
        found.collect::<Result<Vec<_>>>()
    })?;
    let infos = all.iter_mut().filter_map(|(_, found)| found.info());
    files::see_heads(core, &inside, realm.at(), infos)?;
    Ok(all)
}

/// See [`Realm::count`].
pub(super) fn count(realm: &Realm, gid: Gid) -> Result<u64> {
    const PART: usize = 4096;
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let part = realm.list(gid, after.as_deref(), PART)?;
        count += part.len() as u64;
        match part.into_iter().nth(PART - 1) {
            Some((name, _)) => after = Some(name),
            None => return Ok(count),
        }
    }
}

/// See [`Realm::path_of`].
pub(super) fn path_of(realm: &Realm, member: Member) -> Result<String> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    look!(realm.at(), core, inside, |rows| group::path_of(rows, member))
}

/// See [`Realm::attrs`].
pub(super) fn attrs(realm: &Realm, member: Member) -> Result<Vec<(String, Value)>> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    let entries =
        look!(realm.at(), core, inside, |rows| group::with_record(rows, member, |record| {
            attrs::entries(record.attrs)
                .map(|entry| entry.and_then(|e| Ok((e.key, e.decode()?))))
                .collect::<Result<Vec<_>>>()
        }))?;
    let mut named = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        named.push((keys::key_name(core, &inside, key)?.to_string(), value));
    }
    named.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(named)
}

/// See [`Realm::attr`].
pub(super) fn attr(realm: &Realm, member: Member, key: &str) -> Result<Option<Value>> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    let Some(id) = keys::known_key(core, &inside, key)? else {
        // Nobody has ever used the key; but a member that is gone is still an error.
        return look!(realm.at(), core, inside, |rows| group::with_record(rows, member, |_| Ok(
            None
        )));
    };
    look!(realm.at(), core, inside, |rows| group::with_record(rows, member, |record| {
        for entry in attrs::entries(record.attrs) {
            let entry = entry?;
            if entry.key == id {
                return entry.decode().map(Some);
            }
        }
        Ok(None)
    }))
}

/// See [`Realm::view`].
pub(super) fn view(realm: &Realm, oid: Oid, write: bool) -> Result<Payload> {
    if !write {
        return Ok(payload_at(realm.readable()?, realm.at(), oid, false)?.0);
    }
    let core = realm.writable()?;
    write::check_batch_writes(core, oid)?;
    refuse_read_only(core, oid)?;
    loop {
        match payload(core, oid, true)? {
            (Payload::Inline(bytes), generation) if !bytes.is_empty() => {
                write::promote(core, oid, generation, &bytes, realm.precondition())?;
                step!("inplace.promoted");
            }
            (Payload::Extent(view), _) if view.of_file() == Some(true) => {
                files::touch(realm, oid)?;
                return Ok(Payload::Extent(view));
            }
            (Payload::Extent(view), _) if view.of_file() == Some(false) => {
                files::fill_holes(realm, oid)?;
            }
            (Payload::Extent(view), _) => {
                if checked::take_checksum(core, oid, &view)? {
                    return Ok(Payload::Extent(view));
                }
            }
            (payload, _) => return Ok(payload),
        }
    }
}

/// See [`Realm::is_read_only`].
pub(super) fn is_read_only(realm: &Realm, member: Member) -> Result<bool> {
    let core = realm.readable()?;
    let inside = core.enter()?;
    look!(realm.at(), core, inside, |rows| protect::holds(rows, member))
}

/// See [`Realm::check_deletable`].
pub(super) fn check_deletable(realm: &Realm, parent: Gid, names: &[String]) -> Result<()> {
    let core = realm.writable()?;
    let inside = core.enter()?;
    let root = realm.root();
    look!(realm.at(), core, inside, |rows| protect::refuse_deletions(rows, parent, root, names))
}

/// See [`Realm::check_held`].
pub(super) fn check_held(realm: &Realm, oid: Oid) -> Result<()> {
    let core = realm.writable()?;
    // An object that a batch makes is nobody else's yet.
    if batch::runs(core) {
        return Ok(());
    }
    let inside = core.enter()?;
    let txn = inside.read()?;
    Precondition::check(realm.precondition(), &mut txn.rows())?;
    refuse_moving(&txn, oid)
}

/// See [`Realm::flush`].
pub(super) fn flush(realm: &Realm, oid: Oid) -> Result<()> {
    let core = realm.writable()?;
    {
        let inside = core.enter()?;
        refuse_moving(&inside.read()?, oid)?;
    }
    // Each write of chunks is a commit, as durable as any.
    if matches!(realm.object(oid).map_err(gone_is_busy)?.layout, Layout::Chunked { .. }) {
        return Ok(());
    }
    match payload(core, oid, false) {
        Ok((Payload::Extent(view), _)) => {
            flush_view(core, &view)?;
            match view.of_file() {
                Some(_) => {
                    files::touch(realm, oid)?;
                    realm.open_file(oid, false)?.sync()
                }
                None => checked::set_checksum(core, oid, &view),
            }
        }
        Ok((Payload::Inline(_), _)) => Ok(()),
        Err(error) => Err(gone_is_busy(error)),
    }
}

/// Refuses to write in place what is on its way to another realm.
fn refuse_moving(txn: &ReadTxn<'_>, oid: Oid) -> Result<()> {
    match txn.entries(Table::Transfers)? {
        0 => Ok(()),
        _ => engram_ops::marks::refuse_leaving(&mut txn.rows(), oid),
    }
}

/// For writers, an object that is gone is in somebody else's hands.
pub fn gone_is_busy(error: engram_base::error::Error) -> engram_base::error::Error {
    match error.kind() {
        engram_base::error::Kind::NotFound => {
            engram_base::error::Error::new(engram_base::error::Kind::Busy, error.message())
        }
        _ => error,
    }
}

/// Refuses to write in place to what is read-only.
fn refuse_read_only(core: &Arc<Core>, oid: Oid) -> Result<()> {
    let inside = core.enter()?;
    look!(None::<&SnapshotHandle>, core, inside, |rows| protect::refuse(rows, Member::Object(oid)))
}

/// The value and its generation: inline ones copied, others pinned.
pub(crate) fn payload(core: &Arc<Core>, oid: Oid, write: bool) -> Result<(Payload, u32)> {
    payload_at(core, None, oid, write)
}

/// The same at a snapshot, if there is one.
pub(crate) fn payload_at(
    core: &Arc<Core>,
    at: Option<&SnapshotHandle>,
    oid: Oid,
    write: bool,
) -> Result<(Payload, u32)> {
    let inside = core.enter()?;
    // Between the two snapshots a value may move into its row, and out of it again.
    for looks in 0.. {
        let inline = look!(at, core, inside, |rows| group::with_record(
            rows,
            Member::Object(oid),
            |record| {
                Ok(match record.stored {
                    Stored::Inline(bytes) => {
                        Some((Payload::Inline(bytes.to_vec()), record.generation))
                    }
                    Stored::Contiguous { .. } | Stored::Segmented(_) => None,
                    Stored::Chunked(_) => {
                        return Err(chunked_has_no(record.name, "memory to view"));
                    }
                })
            }
        ))?;
        if let Some(inline) = inline {
            return Ok(inline);
        }
        step!("view.sought");
        if let Some(pinned) = pin_extent(core, &inside, at, oid, write, looks)? {
            return Ok(pinned);
        }
    }
    unreachable!("it looks until what it finds is of one moment")
}

/// lease → read → record → pin → slice. `None` if the value is in its row by now, or, of a file,
/// has other segments.
fn pin_extent(
    core: &Arc<Core>,
    inside: &Inside<'_>,
    at: Option<&SnapshotHandle>,
    oid: Oid,
    write: bool,
    looks: u32,
) -> Result<Option<(Payload, u32)>> {
    let look = inside.look_at(at)?;
    if write {
        refuse_moving(look.txn(), oid)?;
    }
    let parts = |record: &Record<'_>| {
        let segmented = match record.stored {
            Stored::Segmented(segmented) => Some(segmented),
            _ => None,
        };
        Ok((record.stored_extent(), record.generation, segmented))
    };
    let found = if at.is_none() && batch::runs(core) {
        batch::with(core, |overlay| {
            group::with_record(&mut overlay.look_at(look.txn()), Member::Object(oid), parts)
        })?
        .expect("a batch runs in this thread")
    } else {
        group::with_record(&mut look.txn().rows(), Member::Object(oid), parts)?
    };
    let (stored, generation, segmented) = found;
    if let Some(segmented) = segmented {
        let looks = at.is_none().then_some(looks);
        let part = files::ViewedPart::all(write);
        let payload = files::view_in(core, inside, &look, oid, segmented, part, looks)?;
        return Ok(payload.map(|payload| (payload, generation)));
    }
    let Some((extent, nbytes)) = stored else {
        return Ok(None);
    };
    space::reach_in(core, inside, extent.end(), look.txn())?;
    let hold = look.pin(extent);
    step!("view.pinned");
    drop(look);
    step!("view.looked");
    let mut claim = Claim::new(core, extent, hold, inside.arena().memory(extent));
    if write && core.setup.checksums {
        inside.lease().begin_writing(extent);
        claim = claim.writing();
    }
    Ok(Some((Payload::Extent(View::new(Arc::new(claim), nbytes, write)), generation)))
}

/// Makes pieces of a value durable that were written in place; where the realm promises nothing
/// of the kind, there is nothing to do.
pub(crate) fn flush_pieces(
    core: &Core,
    memory: &Memory,
    pieces: impl Iterator<Item = (u64, u64)>,
) -> Result<()> {
    if !core.setup.durable {
        return Ok(());
    }
    let inside = core.enter()?;
    let flushed = memory.flush(pieces);
    step!("slab.flushed");
    flushed.inspect_err(|_| inside.catalog().poison())
}

fn flush_view(core: &Core, view: &View) -> Result<()> {
    let inside = core.enter()?;
    let flushed = view.flush_memory();
    step!("inplace.flushed");
    flushed.inspect_err(|_| {
        if core.setup.durable {
            inside.catalog().poison();
        }
    })
}

/// The members of a group that is there still, after a name that can be one.
fn listed(
    rows: &mut dyn Rows,
    gid: Gid,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Member)>> {
    if after.is_some_and(|name| name.len() > engram_base::name::NAME_BYTES_MAX) {
        fail!(InvalidName, "a listing cannot go on after a name of over 255 bytes");
    }
    if rows.has(Table::Groups, &id_key(gid))? {
        group::members(rows, gid, after, limit)
    } else {
        fail!(NotFound, "the group {gid:#x} was deleted: open it again by its path")
    }
}
