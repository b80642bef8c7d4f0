//! Salvage of chunked arrays: each chunk for itself.

use super::Witness;
use super::gather::{Gathered, Saved};
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::{Member, Oid};
use engram_base::slab::Slab;
use engram_ops::chunk_rows::parse;
use engram_realm::Realm;
use engram_records::chunked::codec::Worker;
use engram_records::chunked::grid::Grid;
use engram_records::layout::Chunking;
use engram_records::object::{NewObject, Placement, Record, Stored};

/// A chunked array to be copied.
pub(super) struct Chunked<'a> {
    pub gathered: &'a Gathered,
    pub oid: Oid,
    pub saved: &'a Saved,
    pub record: &'a Record<'a>,
    pub chunking: &'a Chunking<'a>,
}

impl Chunked<'_> {
    /// Makes an array of zeros, and puts every chunk into it that is sound.
    pub(super) fn copy(
        &self,
        path: &str,
        new: &NewObject,
        placement: Placement,
        to: &Realm,
        witness: &mut dyn Witness,
        lose: &mut dyn FnMut(String),
    ) -> Result<()> {
        let grid = Grid::of(self.record, self.chunking)?;
        let open = Placement { read_only: false, ..placement };
        let made = to.create_zeroed(to.root(), path, new, open)?;
        let (chunks, damaged) = self.gathered.chunks_of(self.saved, self.oid);
        let mut worker = Worker::new(self.chunking.codec, grid.item);
        let mut chunk = vec![0; grid.chunk_bytes()];
        for (cell, saved) in chunks.into_iter().flatten() {
            witness.pulse();
            if !grid.reaches(cell) {
                continue; // of a larger shape that the array once had
            }
            if let Err(error) = self.read(saved, &mut worker, &mut chunk) {
                lose(format!("chunk {cell:?}, where it is zeros: {}", error.message()));
                continue;
            }
            let place = ChunkBounds::of(&grid, cell)?;
            match to.store_box(made, &place.offsets, &place.counts, &place.cut(&grid, &chunk)) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), Kind::PoolFull | Kind::Access) => {
                    return Err(error);
                }
                Err(error) => lose(format!("chunk {cell:?}: {}", error.message())),
            }
        }
        if damaged {
            lose(
                "perhaps some of its chunks, with what is damaged of the catalog: where one is \
                 missing, it is zeros"
                    .to_owned(),
            );
        }
        if placement.read_only {
            to.set_read_only(Member::Object(made), true)?;
        }
        Ok(())
    }

    /// Reads a chunk, checks it, and decodes it.
    fn read(&self, saved: &Saved, worker: &mut Worker, chunk: &mut [u8]) -> Result<()> {
        match parse(&saved.row)?.stored {
            Stored::Inline(bytes) => worker.decode(bytes, chunk),
            Stored::Contiguous { extent, nbytes, checksum } if nbytes <= chunk.len() as u64 => {
                let spans = self.gathered.spans(saved.realm);
                let mut encoded = Vec::with_capacity(nbytes as usize);
                spans.read_checked(extent, nbytes, checksum, |piece| {
                    encoded.extend_from_slice(piece);
                })?;
                worker.decode(&encoded, chunk)
            }
            stored => fail!(
                Corrupt,
                "{} bytes are stored for a chunk of {}",
                stored.nbytes(),
                chunk.len()
            ),
        }
    }
}

/// Where a chunk lies in its array, as far as that reaches.
struct ChunkBounds {
    slab: Slab,
    offsets: Vec<u64>,
    counts: Vec<u64>,
    cell: Vec<u32>,
}

impl ChunkBounds {
    fn of(grid: &Grid, cell: &[u32]) -> Result<ChunkBounds> {
        let offsets: Vec<u64> =
            cell.iter().zip(&grid.chunks).map(|(at, chunk)| u64::from(*at) * chunk).collect();
        let lengths = offsets.iter().zip(&grid.chunks).zip(&grid.shape);
        let counts: Vec<u64> =
            lengths.map(|((at, chunk), length)| (length - at).min(*chunk)).collect();
        let slab = Slab::new(&grid.shape, &offsets, &counts)?;
        Ok(ChunkBounds { slab, offsets, counts, cell: cell.to_vec() })
    }

    /// What of a chunk lies within the array.
    fn cut(&self, grid: &Grid, chunk: &[u8]) -> Vec<u8> {
        let mut cut = vec![0; (self.slab.elements() * grid.item) as usize];
        for piece in grid.part(&self.cell, &self.slab).pieces() {
            cut[piece.at..][..piece.len].copy_from_slice(&chunk[piece.chunk..][..piece.len]);
        }
        cut
    }
}
