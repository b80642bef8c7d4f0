//! The grid: which chunks a box of an array touches, and which bytes of them.

use crate::layout::{Chunking, check_chunks, chunk_bytes};
use crate::object::{Record, Stored, decode_shape};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::slab::Slab;

/// Where a chunk is in the grid, in each dimension.
pub type GridCell = Vec<u32>;

/// An array's shape, and that of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The array's length in each dimension, in items.
    pub shape: Vec<u64>,
    /// A chunk's length in each dimension, in items; none is 0.
    pub chunks: Vec<u64>,
    /// The bytes of an item.
    pub item: u64,
}

impl Grid {
    /// The grid of a chunked array's record.
    pub fn of(record: &Record<'_>, chunking: &Chunking<'_>) -> Result<Grid> {
        let shape = record.decode_shape();
        let chunks = decode_shape(chunking.chunks);
        let item = record.decode_dtype()?.itemsize();
        check_chunks(&shape, &chunks, item)
            .map_err(|error| Error::new(Kind::Corrupt, error.message()))?;
        Ok(Grid { shape, chunks, item })
    }

    /// The same, if the record is one of a chunked array.
    pub fn find(record: &Record<'_>) -> Result<Option<Grid>> {
        match &record.stored {
            Stored::Chunked(chunking) => Grid::of(record, chunking).map(Some),
            _ => Ok(None),
        }
    }

    /// The bytes of a chunk before it is encoded.
    ///
    /// # Panics
    ///
    /// If chunks of this shape cannot be, which [`Grid::of`] refuses.
    pub fn chunk_bytes(&self) -> usize {
        chunk_bytes(self.item, &self.chunks).expect("checked when the grid was made") as usize
    }

    /// The bytes of the whole array, were it in one piece.
    pub fn nbytes(&self) -> Result<u64> {
        let bytes =
            self.shape.iter().try_fold(self.item, |bytes, length| bytes.checked_mul(*length));
        match bytes.filter(|bytes| i64::try_from(*bytes).is_ok()) {
            Some(bytes) => Ok(bytes),
            None => fail!(Argument, "shape {:?} of {}-byte items overflows", self.shape, self.item),
        }
    }

    /// Whether a chunk has any item of the array.
    pub fn reaches(&self, cell: &[u32]) -> bool {
        cell.len() == self.shape.len()
            && cell.iter().zip(&self.chunks).zip(&self.shape).all(|((at, chunk), length)| {
                u64::from(*at).checked_mul(*chunk).is_some_and(|start| start < *length)
            })
    }

    /// Whether all of a chunk lies within the array.
    pub fn is_inner(&self, cell: &[u32]) -> bool {
        let mut dims = cell.iter().zip(&self.chunks).zip(&self.shape);
        dims.all(|((at, chunk), length)| (u64::from(*at) + 1) * chunk <= *length)
    }

    /// The chunks that a box of the array touches, in C order.
    pub fn cells(&self, slab: &Slab) -> Vec<GridCell> {
        if slab.counts().contains(&0) {
            return Vec::new();
        }
        let first = slab.offsets().iter().zip(&self.chunks).map(|(at, chunk)| (at / chunk) as u32);
        let first: GridCell = first.collect();
        let ends = slab.offsets().iter().zip(slab.counts()).zip(&self.chunks);
        let last: GridCell =
            ends.map(|((at, count), chunk)| ((at + count - 1) / chunk) as u32).collect();
        let (mut cells, mut at) = (Vec::new(), first.clone());
        loop {
            cells.push(at.clone());
            let Some(dim) = (0..at.len()).rev().find(|dim| at[*dim] < last[*dim]) else {
                return cells;
            };
            at[dim] += 1;
            at[dim + 1..].copy_from_slice(&first[dim + 1..]);
        }
    }

    /// What a box has of a chunk that it touches.
    ///
    /// # Panics
    ///
    /// If the box does not touch the chunk.
    pub fn part(&self, cell: &[u32], slab: &Slab) -> Part {
        let ndim = cell.len();
        let (mut counts, mut whole) = (vec![0; ndim], true);
        let (mut chunk_at, mut box_at) = (0, 0);
        let (mut chunk_strides, mut box_strides) = (vec![self.item; ndim], vec![self.item; ndim]);
        for dim in (1..ndim).rev() {
            chunk_strides[dim - 1] = chunk_strides[dim] * self.chunks[dim];
            box_strides[dim - 1] = box_strides[dim] * slab.counts()[dim];
        }
        for dim in 0..ndim {
            let origin = u64::from(cell[dim]) * self.chunks[dim];
            let end = (origin + self.chunks[dim]).min(self.shape[dim]);
            let (from, to) = (slab.offsets()[dim], slab.offsets()[dim] + slab.counts()[dim]);
            let (start, stop) = (origin.max(from), end.min(to));
            counts[dim] = stop.checked_sub(start).expect("a chunk that the box touches");
            whole &= start == origin && stop == end;
            chunk_at += (start - origin) * chunk_strides[dim];
            box_at += (start - from) * box_strides[dim];
        }
        // Dimensions at the end that both have wholly, and the one before them, make one run.
        let tail = (0..ndim).rev().take_while(|dim| {
            counts[*dim] == self.chunks[*dim] && counts[*dim] == slab.counts()[*dim]
        });
        let outer = ndim.saturating_sub(tail.count() + 1);
        let run = counts[outer..].iter().product::<u64>() * self.item;
        counts.truncate(outer);
        Part { counts, chunk_strides, box_strides, chunk_at, box_at, run, whole }
    }
}

/// What a box has of a chunk: as many runs as `counts` says, each contiguous in both.
pub struct Part {
    counts: Vec<u64>,
    chunk_strides: Vec<u64>,
    box_strides: Vec<u64>,
    chunk_at: u64,
    box_at: u64,
    run: u64,
    /// Whether the box has all of the chunk that lies within the array.
    pub whole: bool,
}

/// A piece that is contiguous in a chunk and in a box; in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins in the chunk.
    pub chunk: usize,
    /// Where it begins in the box.
    pub at: usize,
    /// How long it is.
    pub len: usize,
}

impl Part {
    /// Its pieces, in the order in which they lie.
    pub fn pieces(&self) -> Pieces<'_> {
        let left = if self.run == 0 { 0 } else { self.counts.iter().product() };
        Pieces {
            part: self,
            at: vec![0; self.counts.len()],
            next: (self.chunk_at, self.box_at),
            left,
        }
    }
}

/// The pieces of a part.
pub struct Pieces<'p> {
    part: &'p Part,
    at: Vec<u64>,
    next: (u64, u64),
    left: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        self.left = self.left.checked_sub(1)?;
        let (chunk, at) = self.next;
        let part = self.part;
        for dim in (0..self.at.len()).rev() {
            self.at[dim] += 1;
            self.next.0 += part.chunk_strides[dim];
            self.next.1 += part.box_strides[dim];
            if self.at[dim] < part.counts[dim] {
                break;
            }
            self.next.0 -= part.chunk_strides[dim] * self.at[dim];
            self.next.1 -= part.box_strides[dim] * self.at[dim];
            self.at[dim] = 0;
        }
        Some(Piece { chunk: chunk as usize, at: at as usize, len: part.run as usize })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Grid;
    use engram_base::slab::Slab;

    /// A shape, chunks, and a box.
    type Case = (Vec<u64>, Vec<u64>, Vec<u64>, Vec<u64>);

    fn case() -> impl Strategy<Value = Case> {
        let dim = (0u64..12, 1u64..7).prop_flat_map(|(length, chunk)| {
            (Just(length), Just(chunk), 0..=length)
                .prop_flat_map(|(length, chunk, at)| (Just((length, chunk, at)), 0..=length - at))
        });
        prop::collection::vec(dim, 1..4).prop_map(|dims| {
            let lengths = dims.iter().map(|d| d.0.0).collect();
            let chunks = dims.iter().map(|d| d.0.1).collect();
            (
                lengths,
                chunks,
                dims.iter().map(|d| d.0.2).collect(),
                dims.iter().map(|d| d.1).collect(),
            )
        })
    }

    proptest! {
        #[test]
        fn each_byte_of_a_box_is_in_one_piece_at_its_place_in_the_chunk(
            (shape, chunks, offsets, counts) in case(), item in 1u64..9,
        ) {
            let grid = Grid { shape: shape.clone(), chunks: chunks.clone(), item };
            let slab = Slab::new(&shape, &offsets, &counts).unwrap();
            let mut seen = vec![0u32; (slab.elements() * item) as usize];
            for cell in grid.cells(&slab) {
                prop_assert!(grid.reaches(&cell));
                let part = grid.part(&cell, &slab);
                let mut bytes = 0;
                for piece in part.pieces() {
                    prop_assert!(piece.chunk + piece.len <= grid.chunk_bytes());
                    bytes += piece.len as u64;
                    for at in 0..piece.len {
                        seen[piece.at + at] += 1;
                        // Its place in the array, by way of the box and by way of the chunk.
                        let (mut of_box, mut of_chunk) =
                            ((piece.at + at) as u64 / item, (piece.chunk + at) as u64 / item);
                        for dim in (0..shape.len()).rev() {
                            let by_box = offsets[dim] + of_box % counts[dim];
                            let origin = u64::from(cell[dim]) * chunks[dim];
                            prop_assert_eq!(by_box, origin + of_chunk % chunks[dim]);
                            of_box /= counts[dim];
                            of_chunk /= chunks[dim];
                        }
                    }
                }
                let within: u64 = (0..shape.len())
                    .map(|dim| {
                        let origin = u64::from(cell[dim]) * chunks[dim];
                        (shape[dim] - origin).min(chunks[dim])
                    })
                    .product();
                prop_assert_eq!(part.whole, bytes == within * item);
                prop_assert_eq!(grid.is_inner(&cell), within * item == grid.chunk_bytes() as u64);
            }
            prop_assert!(seen.iter().all(|times| *times == 1));
        }
    }
}
