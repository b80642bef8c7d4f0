//! Staging: chunks encoded, in reserved space, flushed (P1), and not yet committed.
//!
//! Encoding comes first, on a few threads: only then is it known how much space a chunk takes. A
//! chunk that is not encoded, and that the box has wholly, is put together in the pool's memory at
//! once. Space for all is reserved in one commit; copying into it, and checksums, are the work of
//! several threads again.

use crate::realm::checked;
use crate::realm::space;
use std::sync::{Arc, Mutex};

use super::{Chunk, ChunksByCell, Own, Shown, of_chunk};
use crate::realm::core::Core;
use crate::realm::space::Attempt;
use crate::view::Claim;
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::mutex::lock;
use engram_base::slab::Slab;
use engram_base::threads::each;
use engram_ops::chunk_rows::{ChunkValue, ExpectedChunk, Staged};
use engram_ops::rows_mut::Reserved;
use engram_records::chunked::grid::{Grid, GridCell, Part};
use engram_records::extent::{Extent, extent_len};
use engram_records::object::INLINE_BYTES_MAX;

/// Extents this near to each other are flushed as one piece.
const FLUSH_GAP: u64 = 64 << 10;

/// What chunks are made of.
pub(super) enum Data<'a> {
    /// A box, in C order; the rest of a chunk is what is there. With a mask, as long, so is what
    /// that has zeros for.
    Box(&'a Slab, &'a [u8], Option<&'a [u8]>),
    /// What is there, as far as it lies within the array.
    Kept,
}

/// Chunks that are staged; their reservations go back if they are not committed.
pub(super) struct Stages {
    core: Arc<Core>,
    pub all: Vec<Staged>,
}

impl Stages {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Stages { core: Arc::clone(core), all: Vec::new() }
    }

    pub(super) fn append(&mut self, mut other: Stages) {
        self.all.append(&mut other.all);
    }

    /// Takes it that the chunks are committed, but for those of `late`. Returns the places of the
    /// latter.
    pub(super) fn done(mut self, late: &[usize]) -> Vec<GridCell> {
        let mut left = Vec::with_capacity(late.len());
        for (at, staged) in std::mem::take(&mut self.all).into_iter().enumerate() {
            if late.contains(&at) {
                left.push(staged.cell.clone());
                self.all.push(staged); // given back
            }
        }
        left
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        for staged in &self.all {
            if let ChunkValue::Reserved { reserved, .. } = &staged.value {
                space::give_back(&self.core, *reserved);
            }
        }
    }
}

/// Buffers that have served, for chunks to come: fresh memory costs more than encoding into it.
#[derive(Default)]
pub(super) struct Spares(Mutex<Vec<Vec<u8>>>);

impl Spares {
    /// The bytes, in a buffer of their own.
    fn keep(&self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = lock(&self.0).pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }
}

/// A chunk on its way.
enum PreparedChunk {
    /// It was not there, and would be zeros.
    Nothing,
    /// Its bytes as they are to be stored.
    Bytes(Vec<u8>),
    /// It is put together where it is to lie.
    InPlace,
}

impl PreparedChunk {
    /// The bytes that it takes of an extent, if it goes to one; `whole` is a chunk as it is in use.
    fn in_extent(&self, whole: usize) -> Option<usize> {
        match self {
            PreparedChunk::Nothing => None,
            PreparedChunk::Bytes(bytes) => {
                Some(bytes.len()).filter(|len| *len as u64 > INLINE_BYTES_MAX)
            }
            PreparedChunk::InPlace => Some(whole),
        }
    }
}

/// Encodes these chunks into reserved space. On error nothing is reserved.
pub(super) fn stage(
    core: &Arc<Core>,
    shown: &Shown,
    chunks: ChunksByCell,
    data: &Data<'_>,
    spares: &Spares,
) -> Result<Stages> {
    let whole = shown.grid.chunk_bytes();
    let bytes = chunks.len() * whole;
    let ready = each(
        chunks.len(),
        bytes,
        || Own::new(shown),
        |own, at| {
            let (cell, before) = &chunks[at];
            let ready = make(shown, cell, before.as_ref(), data, own, spares);
            ready.map_err(|error| of_chunk(error, &shown.name, cell))
        },
    )?;
    step!("chunks.encoded");
    let lens = ready.iter().filter_map(|ready| ready.in_extent(whole)).map(|len| len as u64);
    let lens: Vec<u64> = lens.collect();
    let mut places = reserve_all(core, &lens)?.into_iter();
    let mut stages = Stages::new(core);
    let mut claims = Vec::new();
    for ((cell, before), ready) in chunks.into_iter().zip(ready) {
        let expected = match data {
            Data::Box(slab, _, None) if shown.grid.part(&cell, slab).whole => {
                ExpectedChunk::Anything
            }
            _ => ExpectedChunk::As(before.map(|chunk| chunk.generation)),
        };
        let value = match (ready.in_extent(whole), ready) {
            (_, PreparedChunk::Nothing) => continue,
            (None, PreparedChunk::Bytes(bytes)) => ChunkValue::Inline(bytes),
            (None, PreparedChunk::InPlace) => unreachable!("it goes to an extent"),
            (Some(len), ready) => {
                let (reserved, claim) = places.next().expect("as many as were asked for");
                claims.push((stages.all.len(), claim, ready));
                ChunkValue::Reserved { reserved, nbytes: len as u64, checksum: 0 }
            }
        };
        stages.all.push(Staged { cell, value, expected });
    }
    let sums = each(
        claims.len(),
        bytes,
        || (),
        |(), at| {
            let (staged, claim, ready) = &claims[at];
            Ok(copy(core, claim, ready, &shown.grid, &stages.all[*staged], data))
        },
    )?;
    step!("chunks.copied");
    for ((staged, ..), sum) in claims.iter().zip(sums) {
        if let ChunkValue::Reserved { checksum, .. } = &mut stages.all[*staged].value {
            *checksum = sum;
        }
    }
    flush_together(core, claims.iter().map(|(_, claim, _)| claim.extent()).collect())?;
    step!("chunks.flushed");
    let used = claims.into_iter().filter_map(|(_, _, ready)| match ready {
        PreparedChunk::Bytes(bytes) => Some(bytes),
        _ => None,
    });
    lock(&spares.0).extend(used);
    Ok(stages)
}

/// Whether all that a box has of a chunk is zeros.
fn is_zero(part: &Part, data: &[u8]) -> bool {
    part.pieces().all(|piece| data[piece.at..][..piece.len].iter().all(|byte| *byte == 0))
}

/// Makes a chunk, encoded.
fn make(
    shown: &Shown,
    cell: &[u32],
    before: Option<&Chunk>,
    data: &Data<'_>,
    own: &mut Own,
    spares: &Spares,
) -> Result<PreparedChunk> {
    let whole = shown.grid.chunk_bytes();
    let (slab, given) = match data {
        Data::Box(slab, given, mask) => (*slab, Some((*given, *mask))),
        Data::Kept => (&Slab::all(&shown.grid.shape), None),
    };
    let part = shown.grid.part(cell, slab);
    if let Some((given, mask)) = given {
        if before.is_none() && is_zero(&part, given) {
            return Ok(PreparedChunk::Nothing);
        }
        if part.whole && mask.is_none() {
            if shown.codec.is_none() && whole as u64 > INLINE_BYTES_MAX {
                return Ok(PreparedChunk::InPlace);
            }
            // One that lies in one piece there needs no copy.
            let first = part.pieces().next().filter(|piece| piece.len == whole);
            if let Some(piece) = first {
                return encode(own, ChunkSource::Given(&given[piece.at..][..whole]), spares);
            }
        }
    }
    let keep = !part.whole || given.is_none_or(|(_, mask)| mask.is_some());
    own.chunk.clear();
    own.chunk.resize(whole, 0);
    match before {
        Some(before) if keep => {
            let mut there = std::mem::take(&mut own.chunk);
            own.decoder.decode(&before.value, &mut there)?;
            own.chunk = there;
        }
        _ => {}
    }
    match given {
        Some((given, mask)) => {
            for piece in part.pieces() {
                let to = &mut own.chunk[piece.chunk..][..piece.len];
                let from = &given[piece.at..][..piece.len];
                match mask {
                    None => to.copy_from_slice(from),
                    Some(mask) => masked(to, from, &mask[piece.at..][..piece.len]),
                }
            }
        }
        None => clear_beyond(&mut own.chunk, &part),
    }
    encode(own, ChunkSource::Own, spares)
}

/// Copies the bytes for which the mask has no zero.
fn masked(to: &mut [u8], from: &[u8], mask: &[u8]) {
    for ((to, from), mask) in to.iter_mut().zip(from).zip(mask) {
        if *mask != 0 {
            *to = *from;
        }
    }
}

/// Zeroes what none of a part's pieces has.
fn clear_beyond(chunk: &mut [u8], part: &Part) {
    let mut at = 0;
    for piece in part.pieces() {
        chunk[at..piece.chunk].fill(0);
        at = piece.chunk + piece.len;
    }
    chunk[at..].fill(0);
}

/// Where a chunk lies that is to be encoded.
#[derive(Clone, Copy)]
enum ChunkSource<'d> {
    Given(&'d [u8]),
    Own,
}

fn encode(own: &mut Own, source: ChunkSource<'_>, spares: &Spares) -> Result<PreparedChunk> {
    let chunk = match source {
        ChunkSource::Given(bytes) => bytes,
        ChunkSource::Own => &own.chunk,
    };
    let encoded = own.decoder.worker.encode(chunk)?;
    Ok(PreparedChunk::Bytes(spares.keep(encoded.unwrap_or(chunk))))
}

/// Copies a chunk into its space; its checksum.
fn copy(
    core: &Core,
    claim: &Claim,
    ready: &PreparedChunk,
    grid: &Grid,
    staged: &Staged,
    data: &Data<'_>,
) -> u64 {
    let memory = claim.memory();
    let nbytes = match (ready, data) {
        (PreparedChunk::Bytes(bytes), _) => {
            memory.write(bytes);
            bytes.len()
        }
        (_, Data::Box(slab, given, _)) => {
            let whole = grid.chunk_bytes();
            if !grid.is_inner(&staged.cell) {
                memory.zero(whole as u64);
            }
            for piece in grid.part(&staged.cell, slab).pieces() {
                memory.write_at(piece.chunk as u64, &given[piece.at..][..piece.len]);
            }
            whole
        }
        (_, Data::Kept) => unreachable!("what is kept is encoded"),
    };
    checked::checksum_of(core, memory, nbytes as u64)
}

/// Reserves space for values of these lengths, in as few commits as can be. On error nothing
/// is reserved.
pub fn reserve_all(core: &Arc<Core>, nbytes: &[u64]) -> Result<Vec<(Reserved, Claim)>> {
    let lens: Vec<u64> = nbytes.iter().map(|nbytes| extent_len(*nbytes)).collect();
    let mut all = Vec::with_capacity(lens.len());
    let reserved = reserve_each(core, &lens, &mut all);
    match reserved {
        Ok(()) => Ok(all),
        Err(error) => {
            for (reserved, _) in all {
                space::give_back(core, reserved);
            }
            Err(error)
        }
    }
}

fn reserve_each(core: &Arc<Core>, lens: &[u64], all: &mut Vec<(Reserved, Claim)>) -> Result<()> {
    while all.len() < lens.len() {
        let rest = &lens[all.len()..];
        let inside = core.enter()?;
        let Attempt::Reserved(extents, age) = space::try_reserve(core, &inside, rest, None)? else {
            // The long way: it waits, asks the dead, and grows the arena.
            drop(inside);
            all.push(space::reserve(core, rest[0], None)?);
            continue;
        };
        step!("chunks.reserved");
        let lease = inside.lease().id();
        for (at, extent) in extents.iter().enumerate() {
            match space::hold(core, &inside, *extent, age) {
                Ok(claim) => all.push((Reserved { extent: *extent, lease }, claim)),
                Err(error) => {
                    drop(inside);
                    for extent in &extents[at..] {
                        space::give_back(core, Reserved { extent: *extent, lease });
                    }
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Makes extents durable, where the realm promises that; what lies together in one go.
fn flush_together(core: &Core, mut extents: Vec<Extent>) -> Result<()> {
    if !core.setup.durable {
        return Ok(());
    }
    extents.sort_unstable();
    let mut extents = extents.into_iter().peekable();
    while let Some(first) = extents.next() {
        let mut end = first.end();
        while let Some(next) = extents.next_if(|next| next.offset <= end + FLUSH_GAP) {
            end = next.end();
        }
        let len = end - first.offset;
        space::flush_extent(core, Extent { offset: first.offset, len }, len)?;
    }
    Ok(())
}
