//! Checksums of values that are written in place: taken away first, set anew by a flush.
//!
//! The essay above `checksum` says in which order, and why no sound value ever looks damaged.

use crate::realm::look;
use std::sync::Arc;

use crate::batch;
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::look::Payload;
use crate::view::View;
use engram_base::checksum;
use engram_base::checksum::NONE;
use engram_base::error::Result;
use engram_base::id::{Member, Oid, id_key};
use engram_base::mutex::lock;
use engram_catalog::{Headroom, Table};
use engram_media::memory::Memory;
use engram_ops::group;
use engram_ops::rows_mut::RowsMut;
use engram_records::extent::Extent;
use engram_records::object::{Record, Stored};

/// What became of a record's checksum word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swapped {
    /// It is as asked now.
    Done,
    /// It is not what was expected.
    Other,
    /// The record's value lies elsewhere by now.
    Moved,
}

/// The checksum word of a value that has been filled and that nobody else knows of yet.
pub(crate) fn checksum_of(core: &Core, memory: &Memory, nbytes: u64) -> u64 {
    if core.setup.checksums { memory.checksum(nbytes) } else { NONE }
}

/// Takes the checksum of an object away, before it is written to through `view`, which is
/// known as a writer already. False: its value lies elsewhere by now.
pub(crate) fn take_checksum(core: &Arc<Core>, oid: Oid, view: &View) -> Result<bool> {
    if !core.setup.checksums {
        return Ok(true);
    }
    let inside = &core.enter()?;
    lock(&core.holdings.owed).remove(&view.extent().offset);
    let take = Swap { oid, extent: view.extent(), expected: None, word: NONE };
    Ok(swap(core, inside, &take, false)? != Swapped::Moved)
}

/// Sets the checksum of an object anew, now that its bytes are flushed; or leaves that to the
/// last of this process's writable views, or to the flush of another process that may be writing.
pub(crate) fn set_checksum(core: &Arc<Core>, oid: Oid, view: &View) -> Result<()> {
    if !core.setup.checksums {
        return Ok(());
    }
    let mark = checksum::new_mark()?;
    let extent = view.extent();
    let begin = Swap { oid, extent, expected: None, word: mark };
    if swap(core, &core.enter()?, &begin, true)? != Swapped::Done {
        return Ok(());
    }
    let word = view.checksum();
    let end = Swap { oid, extent, expected: Some(mark), word };
    swap(core, &core.enter()?, &end, true).map(|_| ())
}

/// This process's last writable view of an extent goes: the work that a flush could not do is done
/// now.
pub(crate) fn end_writing(core: &Arc<Core>, extent: Extent) {
    let owed = {
        let Ok(inside) = core.enter() else { return };
        if !inside.lease().end_writing(extent) {
            return;
        }
        lock(&core.holdings.owed).remove(&extent.offset)
    };
    // On an error the value stays without a checksum.
    if let Some(oid) = owed
        && let Ok((Payload::Extent(view), _)) = look::payload(core, oid, false)
        && view.extent() == extent
    {
        let _ = set_checksum(core, oid, &view);
    }
}

/// One change of a checksum word, in a commit; or in this thread's batch, if that has made the
/// object. With `alone`, not while anybody may be writing to the value.
fn swap(core: &Arc<Core>, inside: &Inside<'_>, swap: &Swap, alone: bool) -> Result<Swapped> {
    let offset = swap.extent.offset;
    if alone && inside.own_leases().any(|lease| lease.writes(swap.extent)) {
        lock(&core.holdings.owed).insert(offset, swap.oid);
        return Ok(Swapped::Other);
    }
    if batch::runs(core) {
        let swapped = batch::with(core, |overlay| {
            if !overlay.makes(Table::Objects, &id_key(swap.oid)) {
                return Ok(None);
            }
            swap.on(&mut overlay.on(inside.catalog())).map(Some)
        })?;
        if let Some(swapped) = swapped.flatten() {
            return Ok(swapped);
        }
    }
    core.commit(inside, Headroom::Relief, |rows| {
        if alone && others_write(core, inside, offset)? {
            return Ok(Swapped::Other);
        }
        swap.on(rows)
    })
}

/// Whether another process may be writing to the extent at `offset`. Under the writer lock.
fn others_write(core: &Core, inside: &Inside<'_>, offset: u64) -> Result<bool> {
    let epoch = || inside.catalog().growth().lease_epoch();
    lock(&core.space.peers).others_write(&core.setup.leases(), epoch, inside.lease().id(), offset)
}

/// A change of a record's checksum word.
struct Swap {
    oid: Oid,
    extent: Extent,
    /// What the word must be; `None` for anything.
    expected: Option<u64>,
    word: u64,
}

impl Swap {
    fn on(&self, rows: &mut dyn RowsMut) -> Result<Swapped> {
        let changed = group::with_record(rows, Member::Object(self.oid), |record| {
            let Stored::Contiguous { extent, nbytes, checksum } = record.stored else {
                return Ok(Err(Swapped::Moved));
            };
            if extent != self.extent {
                return Ok(Err(Swapped::Moved));
            }
            if self.expected.is_some_and(|expected| expected != checksum) {
                return Ok(Err(Swapped::Other));
            }
            if checksum == self.word {
                return Ok(Err(Swapped::Done));
            }
            let stored = Stored::Contiguous { extent, nbytes, checksum: self.word };
            Ok(Ok(Record { stored, ..*record }.encode()))
        })?;
        match changed {
            Ok(row) => rows.put(Table::Objects, &id_key(self.oid), &row).map(|()| Swapped::Done),
            Err(swapped) => Ok(swapped),
        }
    }
}
