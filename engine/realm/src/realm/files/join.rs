//! Fragments joined: segments side by side in a file, apart in the arena, become one.
//!
//! A file that grew while others did, or was punched and filled again, lies in many segments. A
//! compaction copies each run of segments that touch into one extent, where there is space for it.
//! Holes stay holes. Each run is one commit: the new segment's row for the rows of the old ones. A
//! death before it leaves a reservation of the dead, a death after it a whole file.
//!
//! Bytes are copied without a lock of the file. So nobody may have it open or viewed, or come to:
//! other processes are kept out by the compaction lock, which the caller has; other threads of this
//! one by the registry of cores (`process::alone`).

use std::sync::Arc;

use super::segments::{self, FileSegment, NewSegment};
use super::{GROWTH, PIECE, map};
use crate::realm::core::Core;
use crate::realm::{space, write};
use engram_base::error::{Kind, Result};
use engram_base::faults::step;
use engram_base::id::{Oid, id_key, id_of_key};
use engram_catalog::{Headroom, Table};
use engram_ops::rows_mut::RowsMut;
use engram_records::extent::Extent;
use engram_records::object::{Record, Stored};

/// Segments of a file that touch.
struct Touching {
    oid: Oid,
    head: Extent,
    segments: Vec<FileSegment>,
}

impl Touching {
    fn at(&self) -> u64 {
        self.segments[0].at
    }

    fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.extent.len).sum()
    }

    /// Whether it lies in more pieces than a file that grew undisturbed, by more than one.
    fn is_fragmented(&self) -> bool {
        let (mut reached, mut pieces) = (0, 0);
        while reached < self.len() {
            reached += u64::clamp(reached, GROWTH.0, GROWTH.1);
            pieces += 1;
        }
        self.segments.len() > pieces + 1
    }
}

/// Joins the fragments of every file, as far as there is space; how many files have changed.
pub(super) fn join_fragments(core: &Arc<Core>) -> Result<u64> {
    let runs = fragmented(core)?;
    let mut joined: Vec<Oid> = Vec::new();
    for run in &runs {
        if join(core, run)? {
            joined.push(run.oid);
        }
    }
    joined.dedup();
    Ok(joined.len() as u64)
}

/// The runs that are to be joined, file by file.
fn fragmented(core: &Core) -> Result<Vec<Touching>> {
    let inside = core.enter()?;
    let txn = inside.read()?;
    let mut runs = Vec::new();
    let mut from = Some(0);
    while let Some(least) = from {
        let mut cursor = txn.seek(Table::Chunks, &id_key(least))?;
        let Some((key, _)) = cursor.next()? else { break };
        let oid = id_of_key(&key[..size_of::<Oid>()])?;
        drop(cursor);
        from = oid.checked_add(1);
        // A file without a name has been removed by now; a chunked array has chunks.
        let Some(row) = txn.get(Table::Objects, &id_key(oid))? else { continue };
        let Stored::Segmented(segmented) = Record::parse(row)?.stored else { continue };
        let mut run = Touching { oid, head: segmented.head, segments: Vec::new() };
        for segment in segments::all(&txn, oid)? {
            if run.segments.last().is_some_and(|last| last.end() != segment.at) {
                let segments = std::mem::take(&mut run.segments);
                runs.push(Touching { segments, ..run });
            }
            run.segments.push(segment);
        }
        runs.push(run);
    }
    runs.retain(Touching::is_fragmented);
    Ok(runs)
}

/// Joins a run; `false` if there is no space for it in one piece.
fn join(core: &Arc<Core>, run: &Touching) -> Result<bool> {
    let (at, len) = (run.at(), run.len());
    let new = match NewSegment::reserve(core, at, [len, len], None) {
        Ok(new) => new,
        Err(error) if error.kind() == Kind::PoolFull => return Ok(false),
        Err(error) => return Err(error),
    };
    let joined = fill(core, run, &new).and_then(|()| commit(core, run, &new));
    match joined {
        Ok(()) => Ok(true),
        Err(error) => {
            space::give_back(core, new.reserved);
            if error.kind() == Kind::PoolFull { Ok(false) } else { Err(error) }
        }
    }
}

/// Copies the bytes of a run into the extent that is to have them.
fn fill(core: &Core, run: &Touching, new: &NewSegment) -> Result<()> {
    {
        let inside = core.enter()?;
        let end = run.segments.iter().map(|segment| segment.extent.end()).max().unwrap_or(0);
        space::reach_in(core, &inside, end, &inside.read()?)?;
        let into = new.claim.memory();
        let mut piece = vec![0; PIECE];
        for segment in &run.segments {
            let from = inside.arena().memory(segment.extent);
            for begin in (0..segment.extent.len).step_by(PIECE) {
                let piece = &mut piece[..PIECE.min((segment.extent.len - begin) as usize)];
                from.copy_out(begin, piece);
                into.write_at(segment.at - run.at() + begin, piece);
            }
        }
    }
    step!("join.copied");
    space::flush_extent(core, new.reserved.extent, new.reserved.extent.len)
}

/// Puts the new segment's row in the place of the old ones'.
fn commit(core: &Core, run: &Touching, new: &NewSegment) -> Result<()> {
    let inside = core.enter()?;
    let head = map::head_at(core, &inside, run.head, &inside.read()?)?;
    let stamp = write::stamp(core)?;
    let (from, to) = (run.at(), run.at() + run.len());
    core.commit(&inside, Headroom::Normal, |rows| {
        segments::cut_rows(rows, run.oid, from, to, stamp)?;
        segments::put(rows, run.oid, new.segment(), stamp)?;
        rows.adopt(new.reserved)?;
        segments::announce(rows, &head);
        Ok(())
    })?;
    step!("join.committed");
    Ok(())
}
