//! Chunked arrays in a realm: boxes read and written, arrays grown and shrunk.
//!
//! The essay is above `chunked`. Here a look shows what a box touches, `stage` has chunks encoded
//! into reserved space, and `change` commits them.

mod change;
mod stage;

use crate::realm::space;
use crate::realm::write;
use std::sync::Arc;

use self::change::Done;
pub use self::stage::reserve_all;
use self::stage::{Data, Spares, Stages, stage};
use crate::batch;
use crate::realm::Realm;
use crate::realm::core::Core;
use crate::realm::look::{Payload, gone_is_busy};
use crate::realm::snapshot::SnapshotHandle;
use crate::view::{Claim, View};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::id_key;
use engram_base::id::{Gid, Member, Oid};
use engram_base::slab::Slab;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_ops::chunk_rows::{self, key_of, parse, split_key};
use engram_ops::group;
use engram_records::chunked::codec::{CHECK, Worker, checked};
use engram_records::chunked::grid::{Grid, GridCell};
use engram_records::chunked::work::{ChunkPlaces, fill};
use engram_records::extent::Extent;
use engram_records::layout::{Codec, Layout, check_chunks};
use engram_records::object;
use engram_records::object::{NewObject, Placement, Record, Stored};

/// So many bytes of chunks, before they are encoded, go into one commit.
const COMMIT_BYTES: usize = 16 << 20;
/// And no more chunks than this: each is pinned while it is written.
const COMMIT_CHUNKS: usize = 1024;

/// What a look shows of a chunked array.
struct Shown {
    name: String,
    grid: Grid,
    codec: Codec,
    generation: u32,
}

/// A chunk as it is kept.
pub enum StoredChunk {
    /// Nothing has been written there: all of it is zero.
    Absent,
    /// Its items, in C order; beyond the array's edge there is something.
    Plain(Payload),
    /// What the array's codec made of them; its check has been looked at, and is not with it.
    Encoded(Vec<u8>),
}

/// A chunk that is there.
struct Chunk {
    generation: u32,
    value: Bytes,
}

/// An encoded chunk.
enum Bytes {
    Inline(Vec<u8>),
    Extent(Claim, usize),
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Bytes::Inline(bytes) => bytes.len(),
            Bytes::Extent(_, nbytes) => *nbytes,
        }
    }

    /// Copies the bytes from `at` on.
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        match self {
            Bytes::Inline(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Bytes::Extent(claim, _) => claim.memory().copy_out(at as u64, into),
        }
    }
}

/// A codec's worker, and memory for what it decodes.
struct Decoder {
    worker: Worker,
    coded: bool,
    encoded: Vec<u8>,
}

impl Decoder {
    fn new(shown: &Shown) -> Self {
        let worker = Worker::new(shown.codec, shown.grid.item);
        Decoder { worker, coded: !shown.codec.is_none(), encoded: Vec::new() }
    }

    /// Decodes a chunk into `chunk`, which has its length.
    fn decode(&mut self, bytes: &Bytes, chunk: &mut [u8]) -> Result<()> {
        match bytes {
            Bytes::Inline(bytes) => self.worker.decode(bytes, chunk),
            Bytes::Extent(_, nbytes) if !self.coded && *nbytes == chunk.len() => {
                bytes.copy_to(0, chunk);
                Ok(())
            }
            Bytes::Extent(_, nbytes) if *nbytes <= chunk.len() + CHECK => {
                self.encoded.resize(*nbytes, 0);
                bytes.copy_to(0, &mut self.encoded);
                self.worker.decode(&self.encoded, chunk)
            }
            Bytes::Extent(_, nbytes) => {
                fail!(Corrupt, "{nbytes} bytes are stored for a chunk of {}", chunk.len())
            }
        }
    }
}

/// What one thread needs: a decoder, and memory for one chunk.
struct Own {
    decoder: Decoder,
    chunk: Vec<u8>,
}

impl Own {
    fn new(shown: &Shown) -> Self {
        Own { decoder: Decoder::new(shown), chunk: Vec::new() }
    }
}

/// Adds to an error of a damaged chunk which one it is.
fn of_chunk(error: Error, name: &str, cell: &[u32]) -> Error {
    match error.kind() {
        Kind::Corrupt => error.context(format!("chunk {cell:?} of {name:?}")),
        _ => error,
    }
}

/// See [`Realm::load_box`].
pub(super) fn load_box(
    realm: &Realm,
    oid: Oid,
    offsets: &[u64],
    counts: &[u64],
    out: &mut [u8],
) -> Result<()> {
    let core = realm.readable()?;
    let (shown, slab, chunks) = show(core, realm.at(), oid, &mut |shown, _| {
        let slab = shown.slab(offsets, counts, out.len())?;
        let cells = shown.grid.cells(&slab);
        Ok((slab, cells))
    })?;
    let (cells, chunks): (Vec<GridCell>, Vec<Option<Chunk>>) = chunks.into_iter().unzip();
    let begin = || Own::new(&shown);
    fill(out, &shown.grid, &slab, &cells, begin, |own, at, places| {
        let read = read_chunk(&shown, chunks[at].as_ref(), own, places);
        read.map_err(|error| of_chunk(error, &shown.name, &cells[at]))
    })
}

/// See [`Realm::stored_chunk`].
pub(super) fn stored_chunk(realm: &Realm, oid: Oid, cell: &[u32]) -> Result<StoredChunk> {
    let core = realm.readable()?;
    let (shown, (), mut chunks) = show(core, realm.at(), oid, &mut |shown, _| {
        if !shown.grid.reaches(cell) {
            let (name, grid) = (&shown.name, &shown.grid);
            fail!(
                Argument,
                "{name:?} has no chunk {cell:?}: its shape is {:?}, in chunks of {:?}",
                grid.shape,
                grid.chunks
            );
        }
        Ok(((), vec![cell.to_vec()]))
    })?;
    let whole = shown.grid.chunk_bytes();
    let Some((_, Some(chunk))) = chunks.pop() else { return Ok(StoredChunk::Absent) };
    let damaged = |error| of_chunk(error, &shown.name, cell);
    if shown.codec.is_none() {
        return plain(chunk.value, whole).map(StoredChunk::Plain).map_err(damaged);
    }
    let mut bytes = vec![0; chunk.value.len()];
    chunk.value.copy_to(0, &mut bytes);
    let len = checked(&bytes).map_err(damaged)?.len();
    bytes.truncate(len);
    Ok(if len == whole {
        StoredChunk::Plain(Payload::Inline(bytes))
    } else {
        StoredChunk::Encoded(bytes)
    })
}

/// A chunk that nothing encoded, which has its length.
fn plain(value: Bytes, whole: usize) -> Result<Payload> {
    if value.len() != whole {
        fail!(Corrupt, "{} bytes are stored for a chunk of {whole}", value.len());
    }
    Ok(match value {
        Bytes::Inline(bytes) => Payload::Inline(bytes),
        Bytes::Extent(claim, nbytes) => {
            Payload::Extent(View::new(Arc::new(claim), nbytes as u64, false))
        }
    })
}

pub(super) fn store(
    realm: &Realm,
    oid: Oid,
    offsets: &[u64],
    counts: &[u64],
    data: &[u8],
    mask: Option<&[u8]>,
) -> Result<()> {
    let core = realm.writable()?;
    write::check_batch_writes(core, oid)?;
    let spares = Spares::default();
    // Again, if the array gets another shape meanwhile.
    'shape: loop {
        let nothing = &mut |_: &Shown, _: &mut dyn Rows| Ok(((), Vec::new()));
        let (shown, ..) = show(core, None, oid, nothing).map_err(gone_is_busy)?;
        let slab = shown.slab(offsets, counts, data.len())?;
        let cells = shown.grid.cells(&slab);
        for group in cells.chunks(group_len(&shown.grid)) {
            let mut todo = group.to_vec();
            while !todo.is_empty() {
                let (now, (), chunks) =
                    show(core, None, oid, &mut |_, _| Ok(((), std::mem::take(&mut todo))))
                        .map_err(gone_is_busy)?;
                if now.generation != shown.generation {
                    continue 'shape;
                }
                let staged = stage(core, &shown, chunks, &Data::Box(&slab, data, mask), &spares)?;
                match change::swap_chunks(
                    core,
                    oid,
                    shown.generation,
                    staged,
                    realm.precondition(),
                )? {
                    Done::All => {}
                    Done::Late(late) => todo = late,
                    Done::Reshaped => continue 'shape,
                }
            }
        }
        return Ok(());
    }
}

/// See [`Realm::reshape`].
pub(super) fn reshape(realm: &Realm, oid: Oid, shape: &[u64]) -> Result<()> {
    let core = realm.writable()?;
    write::check_batch_writes(core, oid)?;
    loop {
        let (shown, after, chunks) = show(core, None, oid, &mut |shown, mut rows| {
            let grid = shown.reshaped(shape)?;
            let cells = cut_through(&mut rows, oid, &shown.grid, &grid)?;
            Ok((grid, cells))
        })
        .map_err(gone_is_busy)?;
        let shown = Shown { grid: after, ..shown };
        let staged = stage_all(core, &shown, chunks, &Data::Kept)?;
        match change::reshape_to(core, oid, &shown, staged, realm.precondition())? {
            Done::All => return Ok(()),
            Done::Late(_) | Done::Reshaped => {}
        }
    }
}

/// See [`Realm::append`].
pub(super) fn append(
    realm: &Realm,
    oid: Oid,
    axis: usize,
    counts: &[u64],
    data: &[u8],
) -> Result<Vec<u64>> {
    let core = realm.writable()?;
    write::check_batch_writes(core, oid)?;
    loop {
        let (shown, (grid, slab), chunks) = show(core, None, oid, &mut |shown, _| {
            let (grid, slab) = shown.appended(axis, counts)?;
            shown.check_bytes(&slab, data.len())?;
            let cells = grid.cells(&slab);
            Ok(((grid, slab), cells))
        })
        .map_err(gone_is_busy)?;
        let shown = Shown { grid, ..shown };
        let staged = stage_all(core, &shown, chunks, &Data::Box(&slab, data, None))?;
        match change::reshape_to(core, oid, &shown, staged, realm.precondition())? {
            Done::All => return Ok(shown.grid.shape),
            Done::Late(_) | Done::Reshaped => {}
        }
    }
}

/// See [`Realm::put_chunked`].
pub(super) fn put_chunked(
    realm: &Realm,
    parent: Gid,
    path: &str,
    new: &NewObject,
    data: Option<&[u8]>,
    placement: Placement,
) -> Result<Oid> {
    let core = realm.writable()?;
    let Layout::Chunked { chunks, codec } = &new.layout else {
        unreachable!("whoever calls has looked")
    };
    let (shape, item) = (&new.shape, new.dtype.itemsize());
    if new.class != object::Class::Array || placement.device.is_some() {
        fail!(
            Argument,
            "{path:?} cannot be chunked: only arrays of fixed-size items are, and their chunks \
             go where there is room (no device=)"
        );
    }
    check_chunks(shape, chunks, item)?;
    let grid = Grid { shape: shape.clone(), chunks: chunks.clone(), item };
    let shown = Shown { name: path.to_owned(), grid, codec: *codec, generation: 0 };
    let link = write::link_of(core, parent, path, new, placement, realm.precondition())?;
    write::check_free(core, &link)?;
    let staged = match data {
        Some(data) => {
            let slab = Slab::all(shape);
            let cells = shown.grid.cells(&slab).into_iter().map(|cell| (cell, None)).collect();
            stage_all(core, &shown, cells, &Data::Box(&slab, data, None))?
        }
        None => Stages::new(core),
    };
    change::link_chunked(core, &link, &shown, staged)
}

/// Stages many chunks, some at a time, for one commit.
fn stage_all(
    core: &Arc<Core>,
    shown: &Shown,
    chunks: ChunksByCell,
    data: &Data<'_>,
) -> Result<Stages> {
    let (spares, mut staged) = (Spares::default(), Stages::new(core));
    let mut left = chunks.into_iter();
    loop {
        let group: ChunksByCell = left.by_ref().take(group_len(&shown.grid)).collect();
        if group.is_empty() {
            return Ok(staged);
        }
        staged.append(stage(core, shown, group, data, &spares)?);
    }
}

/// How many chunks go into one commit.
fn group_len(grid: &Grid) -> usize {
    (COMMIT_BYTES / grid.chunk_bytes()).clamp(1, COMMIT_CHUNKS)
}

/// Puts what the box has of a chunk at its places.
fn read_chunk(
    shown: &Shown,
    chunk: Option<&Chunk>,
    own: &mut Own,
    places: &mut ChunkPlaces<'_>,
) -> Result<()> {
    let whole = shown.grid.chunk_bytes();
    let Some(chunk) = chunk else {
        while let Some((_, bytes)) = places.take_next() {
            bytes.fill(0);
        }
        return Ok(());
    };
    if shown.codec.is_none() && chunk.value.len() == whole {
        while let Some((at, bytes)) = places.take_next() {
            chunk.value.copy_to(at, bytes);
        }
        return Ok(());
    }
    if let Some(bytes) = places.whole(whole) {
        return own.decoder.decode(&chunk.value, bytes);
    }
    own.chunk.resize(whole, 0);
    own.decoder.decode(&chunk.value, &mut own.chunk)?;
    while let Some((at, bytes)) = places.take_next() {
        bytes.copy_from_slice(&own.chunk[at..at + bytes.len()]);
    }
    Ok(())
}

/// The chunks that stay when an array shrinks, and of which something is cut off.
fn cut_through(
    rows: &mut dyn Rows,
    oid: Oid,
    before: &Grid,
    after: &Grid,
) -> Result<Vec<GridCell>> {
    let shrinks = |dim: usize| after.shape[dim] < before.shape[dim];
    if !(0..after.shape.len()).any(shrinks) {
        return Ok(Vec::new());
    }
    let mut cells = Vec::new();
    let mut from = id_key(oid).to_vec();
    while let Some((key, _)) = chunk_rows::next(rows, oid, &mut from)? {
        let cell = split_key(&key)?.1;
        let cut = |dim: usize| {
            shrinks(dim) && (u64::from(cell[dim]) + 1) * after.chunks[dim] > after.shape[dim]
        };
        if after.reaches(&cell) && (0..cell.len()).any(cut) {
            cells.push(cell);
        }
    }
    Ok(cells)
}

impl Shown {
    fn of(rows: &mut dyn Rows, oid: Oid) -> Result<Shown> {
        group::with_record(rows, Member::Object(oid), |record| {
            let Stored::Chunked(chunking) = record.stored else {
                fail!(
                    Argument,
                    "{:?} is contiguous, and keeps its shape: to resize or append, store it with \
                     chunks= (chunks=True chooses)",
                    record.name
                )
            };
            let grid = Grid::of(record, &chunking)?;
            let (name, codec) = (record.name.to_owned(), chunking.codec);
            Ok(Shown { name, grid, codec, generation: record.generation })
        })
    }

    /// A box of the array, whose bytes are these many.
    fn slab(&self, offsets: &[u64], counts: &[u64], given: usize) -> Result<Slab> {
        let slab = Slab::new(&self.grid.shape, offsets, counts)
            .map_err(|error| error.context(format!("{:?}", self.name)))?;
        self.check_bytes(&slab, given)?;
        Ok(slab)
    }

    fn check_bytes(&self, slab: &Slab, given: usize) -> Result<()> {
        let wanted = slab.elements() * self.grid.item;
        if wanted != given as u64 {
            fail!(
                Argument,
                "{:?}: counts {:?} of {}-byte items take {wanted} bytes, {given} were given",
                self.name,
                slab.counts(),
                self.grid.item
            );
        }
        Ok(())
    }

    /// The grid with another shape.
    fn reshaped(&self, shape: &[u64]) -> Result<Grid> {
        if shape.len() != self.grid.shape.len() {
            fail!(
                Argument,
                "{:?} has shape {:?}, and {shape:?} was asked for: an array keeps its number of \
                 dimensions",
                self.name,
                self.grid.shape
            );
        }
        check_chunks(shape, &self.grid.chunks, self.grid.item)?;
        Ok(Grid { shape: shape.to_vec(), ..self.grid.clone() })
    }

    /// The grid with so much more along a dimension, and the box that is new.
    fn appended(&self, axis: usize, counts: &[u64]) -> Result<(Grid, Slab)> {
        let shape = &self.grid.shape;
        let fits = |dim: usize| dim == axis || counts[dim] == shape[dim];
        if axis >= shape.len() || counts.len() != shape.len() || !(0..shape.len()).all(fits) {
            fail!(
                Argument,
                "shape {counts:?} cannot be appended to {:?}, of shape {shape:?}, along dimension \
                 {axis}: all other dimensions must be as long",
                self.name
            );
        }
        let mut longer = shape.clone();
        longer[axis] = shape[axis].saturating_add(counts[axis]);
        let grid = self.reshaped(&longer)?;
        let mut offsets = vec![0; shape.len()];
        offsets[axis] = shape[axis];
        let slab = Slab::new(&longer, &offsets, counts)?;
        Ok((grid, slab))
    }
}

/// The bytes that an object's value takes.
fn stored(rows: &mut dyn Rows, oid: Oid) -> Result<u64> {
    let takes = |record: &Record<'_>| match record.stored {
        Stored::Inline(bytes) => Some(bytes.len() as u64),
        Stored::Contiguous { extent, .. } => Some(extent.len),
        Stored::Chunked(_) | Stored::Segmented(_) => None,
    };
    if let Some(bytes) = group::with_record(rows, Member::Object(oid), |record| Ok(takes(record)))?
    {
        return Ok(bytes);
    }
    let mut sum = 0;
    let mut from = id_key(oid).to_vec();
    while let Some((_, row)) = chunk_rows::next(rows, oid, &mut from)? {
        sum += takes(&parse(&row)?).unwrap_or(0);
    }
    Ok(sum)
}

/// Which chunks are looked at, and what they are.
type ChunksByCell = Vec<(GridCell, Option<Chunk>)>;

/// A chunk as its row has it: its generation, and its value.
type ChunkRow = (u32, std::result::Result<Vec<u8>, (Extent, u64)>);

/// Which chunks are looked at, as their rows have them.
type Rowed = Vec<(GridCell, Option<ChunkRow>)>;

/// Says which chunks are to be shown, and what else follows from the array.
type Which<'w, T> = &'w mut dyn FnMut(&Shown, &mut dyn Rows) -> Result<(T, Vec<GridCell>)>;

fn find<T>(mut rows: &mut dyn Rows, oid: Oid, which: Which<'_, T>) -> Result<(Shown, T, Rowed)> {
    let shown = Shown::of(&mut rows, oid)?;
    let (follows, cells) = which(&shown, rows)?;
    let mut found = Vec::with_capacity(cells.len());
    for cell in cells {
        let row = rows.get(Table::Chunks, &key_of(oid, &cell))?;
        let chunk = row.map(|row| {
            let record = parse(&row)?;
            let value = match record.stored_extent() {
                Some((extent, nbytes)) => Err((extent, nbytes)),
                None => match record.stored {
                    Stored::Inline(bytes) => Ok(bytes.to_vec()),
                    _ => fail!(Corrupt, "it is itself in chunks"),
                },
            };
            Ok((record.generation, value))
        });
        let chunk = chunk.transpose().map_err(|error| of_chunk(error, &shown.name, &cell))?;
        found.push((cell, chunk));
    }
    Ok((shown, follows, found))
}

/// What the newest snapshot, or the one that is held, has of an array and of those of its
/// chunks that `which` names, pinned.
fn show<T>(
    core: &Arc<Core>,
    at: Option<&SnapshotHandle>,
    oid: Oid,
    which: Which<'_, T>,
) -> Result<(Shown, T, ChunksByCell)> {
    let inside = core.enter()?;
    let look = inside.look_at(at)?;
    let (shown, follows, found) = if at.is_none() && batch::runs(core) {
        let found =
            batch::with(core, |overlay| find(&mut overlay.look_at(look.txn()), oid, which))?;
        found.expect("a batch runs in this thread")
    } else {
        find(&mut look.txn().rows(), oid, which)?
    };
    let extents = found.iter().filter_map(|(_, chunk)| chunk.as_ref()?.1.as_ref().err());
    let end = extents.map(|(extent, _)| extent.end()).max();
    if let Some(end) = end {
        space::reach_in(core, &inside, end, look.txn())?;
    }
    let pin = |(cell, chunk): (GridCell, Option<ChunkRow>)| {
        let chunk = chunk.map(|(generation, value)| {
            let value = match value {
                Ok(bytes) => Bytes::Inline(bytes),
                Err((extent, nbytes)) => {
                    let memory = inside.arena().memory(extent);
                    let claim = Claim::new(core, extent, look.pin(extent), memory);
                    Bytes::Extent(claim, nbytes as usize)
                }
            };
            Chunk { generation, value }
        });
        (cell, chunk)
    };
    let chunks = found.into_iter().map(pin).collect();
    step!("chunks.pinned");
    Ok((shown, follows, chunks))
}

pub(super) fn stored_nbytes(
    core: &Arc<Core>,
    at: Option<&SnapshotHandle>,
    oid: Oid,
) -> Result<u64> {
    let inside = core.enter()?;
    let txn = inside.read_at(at)?;
    if at.is_none() && batch::runs(core) {
        let summed = batch::with(core, |overlay| stored(&mut overlay.look_at(&txn), oid))?;
        return Ok(summed.expect("a batch runs in this thread"));
    }
    stored(&mut txn.rows(), oid)
}
