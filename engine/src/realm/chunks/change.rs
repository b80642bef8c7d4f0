//! Commits of chunks: new ones in place of old ones, and arrays of another shape.

use std::sync::Arc;

use super::Shown;
use super::stage::Stages;
use crate::batch;
use crate::catalog::{Headroom, Table};
use crate::chunked::grid::Cell;
use crate::chunked::rows::{Value, cut};
use crate::error::Result;
use crate::fail;
use crate::faults::step;
use crate::group::{self, NewRecord, Target};
use crate::id::{Member, Oid, id_key};
use crate::index::Touch;
use crate::layout::Chunking;
use crate::name::Path;
use crate::object::{Record, Stored, encode_shape};
use crate::protect;
use crate::realm::core::{Core, Inside};
use crate::realm::expects::Expects;
use crate::realm::link::Link;
use crate::realm::write::change;
use crate::rows::{Rows, RowsMut};

/// What became of staged chunks.
pub(super) enum Done {
    /// They are there.
    All,
    /// All but these, which others have changed meanwhile.
    Late(Vec<Cell>),
    /// None: the array has another shape by now.
    Reshaped,
}

/// What a commit finds.
enum Found {
    Fits,
    Late(Vec<usize>),
    Reshaped,
}

impl Core {
    /// Puts chunks in place of what they expect, those that find it.
    pub(super) fn swap_chunks(
        self: &Arc<Self>,
        oid: Oid,
        generation: u32,
        staged: Stages,
        expects: Option<&Expects>,
    ) -> Result<Done> {
        let inside = &self.enter()?;
        check_lease(inside, &staged)?;
        let stamp = self.stamp();
        let found = change!(self, inside, Headroom::Normal, expects, |rows| {
            let found = find(rows, oid, generation, &staged)?;
            let late = match &found {
                Found::Fits => &[],
                Found::Late(late) => late.as_slice(),
                Found::Reshaped => return Ok(Found::Reshaped),
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
            Found::Reshaped => Done::Reshaped,
            Found::Fits => {
                staged.done(&[]);
                Done::All
            }
            Found::Late(late) => Done::Late(staged.done(&late)),
        })
    }

    /// Gives an array another shape, with these chunks; all or nothing.
    pub(super) fn reshape_to(
        self: &Arc<Self>,
        oid: Oid,
        shown: &Shown,
        staged: Stages,
        expects: Option<&Expects>,
    ) -> Result<Done> {
        let inside = &self.enter()?;
        check_lease(inside, &staged)?;
        let stamp = self.stamp();
        let grid = &shown.grid;
        let mut section = Vec::new();
        encode_shape(&grid.shape, &mut section);
        let found = change!(self, inside, Headroom::Normal, expects, |rows| {
            let found = find(rows, oid, shown.generation, &staged)?;
            let Found::Fits = found else { return Ok(found) };
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
            Found::Fits => {
                staged.done(&[]);
                Done::All
            }
            Found::Late(_) | Found::Reshaped => Done::Reshaped,
        })
    }

    /// Links a new array with its chunks.
    pub(super) fn link_chunked(
        self: &Arc<Self>,
        link: &Link<'_>,
        shown: &Shown,
        staged: Stages,
    ) -> Result<Oid> {
        let parsed = Path::new(&link.path)?;
        let target = Target { from: link.from, root: self.setup.root(), path: &parsed };
        let inside = &self.enter()?;
        check_lease(inside, &staged)?;
        let ids = self.take_ids(inside, parsed.parents.len() as u64 + 1)?;
        let stamp = self.stamp();
        let mut chunks = Vec::new();
        encode_shape(&shown.grid.chunks, &mut chunks);
        let nbytes = shown.grid.nbytes()?;
        let chunking = Chunking { nbytes, codec: shown.codec, chunks: &chunks };
        let record = link.record(Stored::Chunked(chunking), stamp);
        let oid = change!(self, inside, Headroom::Normal, link.expects.as_ref(), |rows| {
            let mut ids = ids;
            let oid = ids.take();
            let mut new_id = || ids.take();
            let modes = &self.index.modes;
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
}

/// Whether the array and its chunks are as they are expected to be.
fn find(rows: &mut impl Rows, oid: Oid, generation: u32, staged: &Stages) -> Result<Found> {
    protect::refuse(rows, Member::Object(oid))?;
    let now = group::with_record(rows, Member::Object(oid), |record| Ok(record.generation))
        .map_err(crate::realm::look::gone_is_busy)?;
    if now != generation {
        return Ok(Found::Reshaped);
    }
    let mut late = Vec::new();
    for (at, one) in staged.all.iter().enumerate() {
        if !one.fits(rows, oid)? {
            late.push(at);
        }
    }
    Ok(if late.is_empty() { Found::Fits } else { Found::Late(late) })
}

/// Refuses what was reserved before a fork.
fn check_lease(inside: &Inside<'_>, staged: &Stages) -> Result<()> {
    let own = inside.lease().id();
    let foreign = staged.all.iter().any(|one| match &one.value {
        Value::Reserved { reserved, .. } => reserved.lease != own,
        Value::Inline(_) => false,
    });
    if foreign {
        fail!(Busy, "this process has forked while chunks were encoded: write them again");
    }
    Ok(())
}
