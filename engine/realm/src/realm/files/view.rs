//! A file's bytes as one piece of memory, whatever its segments.

use std::sync::Arc;

use super::map::Known;
use super::{File, FileSegment, map, now, pages, part, segments, with_record};
use crate::batch;
use crate::realm::core::Core;
use crate::realm::gate::{Inside, LookUp};
use crate::realm::look::Payload;
use crate::realm::{Realm, space};
use crate::view::{Claim, View};
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::id::Oid;
use engram_media::memory::Memory;
use engram_records::object::Stored;
use engram_records::segmented::Segmented;
use engram_space::lease::ObjectUse;

/// A view of a file that a look-up shows: one segment's memory, or the memory of all of them mapped
/// side by side, with zeros for holes. It is as long as the file is now.
///
/// `None`: segments have changed since the look-up, and the size may be of the others. Behind the
/// end that these had may be anything, so another look-up has to find them; `looks` says how many
/// have tried. At a snapshot there is none, and nothing else to find.
pub(in crate::realm) fn view_in(
    core: &Arc<Core>,
    inside: &Inside<'_>,
    look: &LookUp<'_>,
    oid: Oid,
    segmented: Segmented,
    write: bool,
    looks: Option<u32>,
) -> Result<Option<Payload>> {
    let txn = look.txn();
    let head = map::head_at(core, inside, segmented.head, txn)?;
    let segments = segments::all(txn, oid)?;
    let end = segments.iter().map(|segment| segment.extent.end()).max().unwrap_or(0);
    space::reach_in(core, inside, end, txn)?;
    step!("view.mapped");
    let most = segments.last().map_or(0, FileSegment::end).max(segmented.nbytes);
    let changed = !core.setup.immutable && head.map() > txn.id();
    let size = match looks {
        // Of a snapshot the head says no more what was: the file may have been cut and filled anew.
        None if changed => segmented.nbytes.min(most),
        // A process that is not to write any more cannot find out whether that commit will be.
        Some(looks) if changed && !inside.catalog().poisoned() => {
            map::wait(core, inside, &head, looks)?;
            return Ok(None);
        }
        _ => head.size().min(most),
    };
    if size == 0 {
        return Ok(Some(Payload::Inline(Vec::new())));
    }
    let hold = look.use_object(oid, ObjectUse::View);
    let memory = match segments.first() {
        Some(first) if first.at == 0 && first.end() >= size => {
            inside.arena().memory(part(first.extent, 0, pages(0, size).1))
        }
        _ => {
            let stitched = stitch(core, &segments, size);
            stitched.inspect_err(|_| {
                if let Some(lease) = &inside.state().lease {
                    lease.leave_object(oid, ObjectUse::View, hold);
                }
            })?
        }
    };
    let whole = covers(&segments, size);
    let claim = Claim::of_file(core, oid, hold, memory, whole);
    Ok(Some(Payload::Extent(View::new(Arc::new(claim), size, write))))
}

impl File {
    /// The bytes as one piece of memory, of a file that has segments; `None` of any other. It may
    /// have no name any more.
    pub fn view(&self, write: bool) -> Result<Option<Payload>> {
        let core = &self.open.core;
        let inside = core.enter()?;
        for looks in 0.. {
            let look = inside.look()?;
            let segmented = with_record(&mut look.txn().rows(), self.open.oid, |record, _| {
                Ok(match record.stored {
                    Stored::Segmented(segmented) => Some(segmented),
                    _ => None,
                })
            })?;
            let Some(segmented) = segmented else { return Ok(None) };
            let (oid, looks) = (self.open.oid, Some(looks));
            let seen = view_in(core, &inside, &look, oid, segmented, write, looks)?;
            if let Some(payload) = seen {
                return Ok(Some(payload));
            }
        }
        unreachable!("it looks until what it finds is of one moment")
    }
}

/// Whether segments have no hole before an offset.
fn covers(segments: &[FileSegment], size: u64) -> bool {
    let mut at = 0;
    for segment in segments {
        if segment.at > at {
            break;
        }
        at = segment.end();
    }
    at >= size
}

/// The memory of segments, mapped side by side.
fn stitch(core: &Core, segments: &[FileSegment], size: u64) -> Result<Memory> {
    let mut pieces = Vec::with_capacity(segments.len() + 1);
    let (mut at, end) = (0, pages(0, size).1);
    for segment in segments.iter().filter(|segment| segment.at < end) {
        if segment.at > at {
            pieces.push((None, segment.at - at));
        }
        let len = segment.end().min(end) - segment.at;
        pieces.push((Some(segment.extent.offset), len));
        at = segment.at + len;
    }
    if at < end {
        pieces.push((None, end - at));
    }
    core.space.arena.stitched(&pieces)
}

/// Gives the holes of a file space, so that it can be written to through memory.
pub(in crate::realm) fn fill_holes(realm: &Realm, oid: Oid) -> Result<()> {
    let file: File = realm.open_file(oid, true)?;
    let size = file.size()?;
    if size > 0 { file.allocate(0, size, true) } else { Ok(()) }
}

/// Says that a file was written: through its memory, which leaves no trace by itself. Who keeps
/// copies of its bytes, as a mount's kernel does, asks for that.
pub(in crate::realm) fn touch(realm: &Realm, oid: Oid) -> Result<()> {
    if batch::in_batch() {
        return Ok(());
    }
    if let Known::Map(map) = realm.open_file(oid, true)?.open.known()? {
        map.head.touch(now()?);
    }
    Ok(())
}
