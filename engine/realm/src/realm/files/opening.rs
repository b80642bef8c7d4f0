//! Files opened: by number, by name, or as they are made.
//!
//! *Protocol*: the lease lists an object as open before the look that has found it ends, and of one
//! that is made, before the commit that makes it. A transaction that removes objects says so, and
//! looks then who lists them. So either it sees that the object is open, or whoever opens it sees
//! that some are removed, and looks again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, RwLock, Weak};

use super::{ANY_DEVICE, File, OpenFile, ranges, refuse_batch, with_record};
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::{Realm, write};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Gid, Member, Oid};
use engram_base::mutex::lock;
use engram_base::name::Name;
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, Table};
use engram_ops::group::Permit;
use engram_ops::{group, marks, protect};
use engram_records::object::{Class, NewObject, Placement, Record, Stored};
use engram_space::lease::{Hold, ObjectUse};

/// What opening a file by its name has found.
pub enum NamedFile {
    /// The file.
    File(File),
    /// Nothing has the name.
    Absent,
    /// What has it is no such file, or may not be opened; or it takes more than one look.
    Unsure,
}

/// See [`Realm::open_file`].
pub(super) fn open_file(realm: &Realm, oid: Oid, write: bool) -> Result<File> {
    match open_by(realm, write, |_| Ok(Ok(oid)))? {
        NamedFile::File(file) => Ok(file),
        NamedFile::Absent | NamedFile::Unsure => unreachable!("the object is given"),
    }
}

/// See [`Realm::open_named`].
pub(super) fn open_named(
    realm: &Realm,
    parent: Gid,
    name: &str,
    write: bool,
    may_open: &Permit<'_>,
) -> Result<NamedFile> {
    Name::new(name)?;
    open_by(realm, write, |rows| {
        let oid = match group::child(rows, parent, name)? {
            Some(Member::Object(oid)) => oid,
            Some(Member::Group(_)) => return Ok(Err(NamedFile::Unsure)),
            None => return Ok(Err(NamedFile::Absent)),
        };
        let judge = |record: &Record<'_>| {
            Ok(check_form(record).is_ok() && group::permitted(may_open, oid, record))
        };
        let is_sure = group::with_record(rows, Member::Object(oid), judge)?;
        Ok(if is_sure { Ok(oid) } else { Err(NamedFile::Unsure) })
    })
}

/// Opens the object that `find` finds, or gives what it finds instead.
fn open_by(
    realm: &Realm,
    write: bool,
    find: impl FnOnce(&mut dyn Rows) -> Result<std::result::Result<Oid, NamedFile>>,
) -> Result<NamedFile> {
    let core = if write { realm.writable()? } else { realm.readable()? };
    refuse_batch()?;
    if realm.at().is_some() {
        fail!(Argument, "a file is read as it is now: open it from the pool, not from a snapshot");
    }
    let file = |open| File { open, session: Arc::clone(&realm.session), writable: write };
    // It may be the last of its file by then, which takes itself off the list: it goes when the
    // list is free again.
    let there;
    let inside = core.enter()?;
    let mut known = lock(&core.files.known);
    let look = inside.look()?;
    let as_of = look.txn().id();
    let oid = match find(&mut look.txn().rows())? {
        Ok(oid) => oid,
        Err(instead) => return Ok(instead),
    };
    there = known.get(&oid).and_then(Weak::upgrade);
    let class = with_record(&mut look.txn().rows(), oid, |record, _| {
        check_form(record)?;
        Ok(record.class)
    })?;
    if write {
        protect::refuse(&mut look.txn().rows(), Member::Object(oid))?;
    }
    if let Some(open) = there {
        return Ok(NamedFile::File(file(open)));
    }
    let hold = look.open_object(oid);
    drop(look);
    step!("file.pinned");
    // Whoever moves it marks it first and looks then who has it open.
    fence(Ordering::SeqCst);
    let held = refuse_leaving(&inside, oid).and_then(|()| look_again(core, &inside, oid, as_of));
    if let Err(error) = held {
        drop(inside);
        core.gate.close_object(oid, hold);
        return Err(error);
    }
    let open = OpenFile::new(core, oid, hold, class != Class::Blob);
    known.insert(oid, Arc::downgrade(&open));
    Ok(NamedFile::File(file(open)))
}

/// See [`Realm::create_file`]. The lease lists the file before it is there: so whoever removes it
/// in the very next commit sees that it is open.
pub(super) fn create_file(
    realm: &Realm,
    parent: Gid,
    path: &str,
    new: &NewObject,
    placement: Placement,
    write: bool,
) -> Result<File> {
    let core = realm.writable()?;
    refuse_batch()?;
    let link = write::link_of(core, parent, path, new, placement, realm.precondition())?;
    let mut listed = None;
    let before = |inside: &Inside<'_>, oid| {
        // Where the list is full, an age keeps it: any that is not above the commit's does.
        let hold = inside.lease().use_object(oid, ObjectUse::Open, inside.catalog().last_id()?);
        let open = OpenFile::new(core, oid, hold, false);
        lock(&core.files.known).insert(oid, Arc::downgrade(&open));
        listed = Some(open);
        step!("file.listed");
        fence(Ordering::SeqCst);
        Ok(())
    };
    write::link_object(core, &link, Stored::Inline(&[]), None, before)?;
    let Some(open) = listed else { unreachable!("it was listed before it was there") };
    step!("file.made");
    Ok(File { open, session: Arc::clone(&realm.session), writable: write })
}

impl OpenFile {
    /// The device that new space is to come from.
    pub(super) fn device(&self) -> Option<u32> {
        Some(self.device.load(Ordering::Relaxed)).filter(|device| *device != ANY_DEVICE)
    }

    /// An object that the lease lists as open.
    fn new(core: &Arc<Core>, oid: Oid, hold: Hold, fixed: bool) -> Arc<OpenFile> {
        core.add_user();
        Arc::new(OpenFile {
            core: Arc::clone(core),
            oid,
            hold,
            fixed,
            known: RwLock::default(),
            wrote: AtomicBool::new(false),
            device: AtomicU32::new(ANY_DEVICE),
            stand_in: ranges::OwnStandIn::default(),
        })
    }
}

/// Looks whether an object is there still, now that the lease lists it. A transaction that removes
/// objects says so, and looks then who has them open. Where one has said so since the look-up, it
/// may have looked before the object was listed; it is over once the writer lock can be had.
fn look_again(core: &Core, inside: &Inside<'_>, oid: Oid, as_of: u64) -> Result<()> {
    if core.setup.immutable || inside.catalog().growth().removing() <= as_of {
        return Ok(());
    }
    core.prepare(inside, Headroom::Relief, |rows| {
        with_record(&mut rows.txn().rows(), oid, |_, _| Ok(()))
    })
}

/// Refuses what is on its way to another realm.
fn refuse_leaving(inside: &Inside<'_>, oid: Oid) -> Result<()> {
    if inside.catalog().knows_empty(Table::Transfers)? {
        return Ok(());
    }
    marks::refuse_leaving(&mut inside.read()?.rows(), oid)
}

/// A file is bytes in one piece, or in segments.
fn check_form(record: &Record<'_>) -> Result<()> {
    match (record.class, record.stored) {
        (Class::Blob, _) | (Class::Array, Stored::Inline(_) | Stored::Contiguous { .. }) => Ok(()),
        (Class::Array, _) => fail!(
            Unsupported,
            "{:?} is chunked, so its bytes are in no order of a file: read boxes of it",
            record.name
        ),
        _ => fail!(
            Unsupported,
            "{:?} has strings of any length: read them as an array of strings",
            record.name
        ),
    }
}
