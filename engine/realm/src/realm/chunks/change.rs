//! Commits of chunks: new ones in place of old ones, and arrays of another shape.

use crate::realm::ids;
use crate::realm::write;
use std::sync::Arc;

use super::Shown;
use super::stage::Stages;
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::link::Link;
use crate::realm::precondition::Precondition;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Member, Oid, id_key};
use engram_base::name::Path;
use engram_catalog::rows::Rows;
use engram_catalog::{Headroom, Table};
use engram_ops::chunk_rows::{ChunkValue, cut};
use engram_ops::group;
use engram_ops::group::{NewRecord, Target};
use engram_ops::protect;
use engram_records::chunked::grid::GridCell;
use engram_records::index_mode::Touch;
use engram_records::layout::Chunking;
use engram_records::object::{Record, Stored, encode_shape};

/// What became of staged chunks.
pub(super) enum Done {
    /// They are there.
    All,
    /// All but these, which others have changed meanwhile.
    Late(Vec<GridCell>),
    /// None: the array has another shape by now.
    Reshaped,
}

/// What a commit finds.
enum ChunkCheck {
    Fits,
    Late(Vec<usize>),
    Reshaped,
}

/// Puts chunks in place of what they expect, those that find it.
pub(super) fn swap_chunks(
    core: &Arc<Core>,
    oid: Oid,
    generation: u32,
    staged: Stages,
    precondition: Option<&Precondition>,
) -> Result<Done> {
    let inside = &core.enter()?;
    check_lease(inside, &staged)?;
    let stamp = write::stamp(core)?;
    let found = core.write(inside, Headroom::Normal, precondition, |rows| {
        let found = find(rows, oid, generation, &staged)?;
        let late = match &found {
            ChunkCheck::Fits => &[],
            ChunkCheck::Late(late) => late.as_slice(),
            ChunkCheck::Reshaped => return Ok(ChunkCheck::Reshaped),
        };
        for (at, one) in staged.all.iter().enumerate() {
            if !late.contains(&at) {
                one.put(rows, oid, stamp)?;
            }
        }
        step!("chunks.recorded");
        Ok(found)
    })?;
    Ok(match found {
        ChunkCheck::Reshaped => Done::Reshaped,
        ChunkCheck::Fits => {
            staged.done(&[]);
            Done::All
        }
        ChunkCheck::Late(late) => Done::Late(staged.done(&late)),
    })
}

/// Gives an array another shape, with these chunks; all or nothing.
pub(super) fn reshape_to(
    core: &Arc<Core>,
    oid: Oid,
    shown: &Shown,
    staged: Stages,
    precondition: Option<&Precondition>,
) -> Result<Done> {
    let inside = &core.enter()?;
    check_lease(inside, &staged)?;
    let stamp = write::stamp(core)?;
    let grid = &shown.grid;
    let mut section = Vec::new();
    encode_shape(&grid.shape, &mut section);
    let found = core.write(inside, Headroom::Normal, precondition, |rows| {
        let found = find(rows, oid, shown.generation, &staged)?;
        let ChunkCheck::Fits = found else { return Ok(found) };
        // Beyond an array that only grows lies nothing: its chunks are not walked in the lock.
        let before = group::with_record(rows, Member::Object(oid), |r| Ok(r.decode_shape()))?;
        if grid.shape.iter().zip(&before).any(|(now, before)| now < before) {
            cut(rows, oid, grid)?;
        }
        step!("chunks.cut");
        for one in &staged.all {
            one.put(rows, oid, stamp)?;
        }
        let (row, index) = group::with_record(rows, Member::Object(oid), |record| {
            let Stored::Chunked(chunking) = record.stored else {
                fail!(Corrupt, "{:?} is not chunked any more", record.name)
            };
            let nbytes = grid.nbytes()?;
            let record = Record {
                shape: &section,
                stored: Stored::Chunked(Chunking { nbytes, ..chunking }),
                generation: record.generation.wrapping_add(1),
                modified: stamp.now,
                ..*record
            };
            Ok((record.encode(), record.index))
        })?;
        rows.put(Table::Objects, &id_key(oid), &row)?;
        rows.index(oid, Touch::Changed(index))?;
        step!("chunks.reshaped");
        Ok(found)
    })?;
    Ok(match found {
        ChunkCheck::Fits => {
            staged.done(&[]);
            Done::All
        }
        ChunkCheck::Late(_) | ChunkCheck::Reshaped => Done::Reshaped,
    })
}

/// Links a new array with its chunks.
pub(super) fn link_chunked(
    core: &Arc<Core>,
    link: &Link<'_>,
    shown: &Shown,
    staged: Stages,
) -> Result<Oid> {
    let parsed = Path::new(&link.path)?;
    let target = Target { from: link.from, root: core.setup.root(), path: &parsed };
    let inside = &core.enter()?;
    check_lease(inside, &staged)?;
    let ids = ids::take_ids(core, inside, parsed.parents.len() as u64 + 1)?;
    let stamp = write::stamp(core)?;
    let mut chunks = Vec::new();
    encode_shape(&shown.grid.chunks, &mut chunks);
    let nbytes = shown.grid.nbytes()?;
    let chunking = Chunking { nbytes, codec: shown.codec, chunks: &chunks };
    let record = link.record(Stored::Chunked(chunking), stamp);
    let oid = core.write(inside, Headroom::Normal, link.precondition.as_ref(), |rows| {
        let mut ids = ids;
        let oid = ids.take();
        let mut new_id = || ids.take();
        let modes = &core.index.state.modes;
        let new = NewRecord { oid, record, index: link.index, modes, reserved: None };
        group::link(rows, &target, &new, link.overwrite, &mut new_id)?;
        for one in &staged.all {
            one.put(rows, oid, stamp)?;
        }
        Ok(oid)
    })?;
    staged.done(&[]);
    Ok(oid)
}

/// Whether the array and its chunks are as they are expected to be.
fn find(rows: &mut dyn Rows, oid: Oid, generation: u32, staged: &Stages) -> Result<ChunkCheck> {
    protect::refuse(rows, Member::Object(oid))?;
    let now = group::with_record(rows, Member::Object(oid), |record| Ok(record.generation))
        .map_err(crate::realm::look::gone_is_busy)?;
    if now != generation {
        return Ok(ChunkCheck::Reshaped);
    }
    let mut late = Vec::new();
    for (at, one) in staged.all.iter().enumerate() {
        if !one.fits(rows, oid)? {
            late.push(at);
        }
    }
    Ok(if late.is_empty() { ChunkCheck::Fits } else { ChunkCheck::Late(late) })
}

/// Refuses what was reserved before a fork.
fn check_lease(inside: &Inside<'_>, staged: &Stages) -> Result<()> {
    let own = inside.lease().id();
    let foreign = staged.all.iter().any(|one| match &one.value {
        ChunkValue::Reserved { reserved, .. } => reserved.lease != own,
        ChunkValue::Inline(_) => false,
    });
    if foreign {
        fail!(Busy, "this process has forked while chunks were encoded: write them again");
    }
    Ok(())
}
