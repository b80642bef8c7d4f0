//! A file's bytes as one piece of memory, whatever its segments.

use std::sync::Arc;

use super::map::Known;
use super::{File, FileSegment, map, now, pages, segments, with_record};
use crate::batch;
use crate::realm::core::Core;
use crate::realm::gate::{Inside, LookUp};
use crate::realm::look::Payload;
use crate::realm::{Realm, space};
use crate::view::{Claim, FileClaim, View};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::Oid;
use engram_records::extent::{Extent, PAGE};
use engram_records::object::Stored;
use engram_records::segmented::Segmented;

/// What is asked of a view of a file.
#[derive(Clone, Copy)]
pub(in crate::realm) struct ViewedPart {
    /// The page that it begins with.
    from: u64,
    /// How many bytes it has at most.
    most: u64,
    write: bool,
}

impl ViewedPart {
    /// All of the file.
    pub fn all(write: bool) -> Self {
        ViewedPart { from: 0, most: u64::MAX, write }
    }
}

/// A view of a part of a file that a look-up shows: one segment's memory, or the memory of several
/// mapped side by side, with zeros for holes. It ends where the file does now, if not before.
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
    asked: ViewedPart,
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
    let end = size.min(asked.from.saturating_add(asked.most));
    if end <= asked.from {
        return Ok(Some(Payload::Inline(Vec::new())));
    }
    let shown = shown(&segments, asked.from, pages(0, end).1);
    let extent = |&(offset, len): &(Option<u64>, u64)| offset.map(|offset| Extent { offset, len });
    let kept = look.keep_shown(oid, shown.iter().filter_map(extent).collect());
    let memory = match shown[..] {
        [(Some(offset), len)] => inside.arena().memory(Extent { offset, len }),
        _ => inside.arena().stitched(&shown).inspect_err(|_| {
            if let Some(lease) = &inside.state().lease {
                lease.leave_shown(oid, &kept);
            }
        })?,
    };
    let whole = shown.iter().all(|(offset, _)| offset.is_some());
    let claim = Claim::of_file(core, FileClaim { oid, kept, whole }, memory);
    let view = View::new(Arc::new(claim), end - asked.from, asked.write);
    Ok(Some(Payload::Extent(view)))
}

impl File {
    /// The bytes as one piece of memory, of a file that has segments; `None` of any other. It may
    /// have no name any more.
    pub fn view(&self, write: bool) -> Result<Option<Payload>> {
        self.view_asked(ViewedPart::all(write))
    }

    /// The same of a part: at most so many bytes from a page on. It keeps no more of the file.
    pub fn view_part(&self, from: u64, most: u64, write: bool) -> Result<Option<Payload>> {
        if !from.is_multiple_of(PAGE) {
            fail!(Argument, "a view begins with a page, and {from} is within one");
        }
        self.view_asked(ViewedPart { from, most, write })
    }

    fn view_asked(&self, asked: ViewedPart) -> Result<Option<Payload>> {
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
            let seen = view_in(core, &inside, &look, oid, segmented, asked, looks)?;
            if let Some(payload) = seen {
                return Ok(Some(payload));
            }
        }
        unreachable!("it looks until what it finds is of one moment")
    }
}

/// Whole pages of a file side by side: where each piece lies in the arena, and its length; a hole
/// lies nowhere.
fn shown(segments: &[FileSegment], from: u64, end: u64) -> Vec<(Option<u64>, u64)> {
    let mut pieces = Vec::with_capacity(segments.len() + 1);
    let mut at = from;
    for segment in segments.iter().filter(|segment| segment.end() > from && segment.at < end) {
        if segment.at > at {
            pieces.push((None, segment.at - at));
            at = segment.at;
        }
        let to = segment.end().min(end);
        pieces.push((Some(segment.extent.offset + (at - segment.at)), to - at));
        at = to;
    }
    if at < end {
        pieces.push((None, end - at));
    }
    pieces
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
