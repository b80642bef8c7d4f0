//! A box of many chunks, filled by several threads.

use std::marker::PhantomData;

use super::grid::{Grid, GridCell, Part, Pieces};
use engram_base::error::Result;
use engram_base::slab::Slab;
use engram_base::threads::each;

/// A buffer of the caller's that several threads fill.
struct Shared<'b> {
    start: *mut u8,
    len: usize,
    buffer: PhantomData<&'b mut [u8]>,
}

// SAFETY: the buffer is borrowed mutably for as long as this lives, so nobody else has it; threads
// are given pieces of it that do not overlap (see `fill`).
unsafe impl Sync for Shared<'_> {}

/// Fills a box of an array, each chunk that it touches by `work`, which is given the chunk's number
/// in `grid.cells` and its places in the box. The first error of any chunk ends the work; what is
/// in `out` then is of no use.
///
/// # Panics
///
/// If `cells` do not ascend, or `out` is shorter than the box.
pub fn fill<W>(
    out: &mut [u8],
    grid: &Grid,
    slab: &Slab,
    cells: &[GridCell],
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize, &mut ChunkPlaces<'_>) -> Result<()> + Sync,
) -> Result<()> {
    assert!(cells.is_sorted_by(|one, next| one < next), "each chunk once");
    let (bytes, start) = (out.len(), out.as_mut_ptr());
    let shared = &Shared { start, len: bytes, buffer: PhantomData };
    each(cells.len(), bytes, begin, |own, at| {
        let part = grid.part(&cells[at], slab);
        work(own, at, &mut ChunkPlaces { shared, pieces: part.pieces(), part: &part })
    })
    .map(drop)
}

/// The places that one chunk has in the box.
pub struct ChunkPlaces<'p> {
    shared: &'p Shared<'p>,
    pieces: Pieces<'p>,
    part: &'p Part,
}

impl ChunkPlaces<'_> {
    /// The next one: where it begins in the chunk, and the bytes to fill.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than the box.
    pub fn take_next(&mut self) -> Option<(usize, &mut [u8])> {
        let piece = self.pieces.next()?;
        let end = piece.at.checked_add(piece.len);
        assert!(end.is_some_and(|end| end <= self.shared.len), "{piece:?} of {}", self.shared.len);
        // SAFETY: within the buffer, as just seen. No other slice of these bytes is alive: pieces
        // of one chunk do not overlap, nor do those of two (each item of a box is in one chunk of
        // the grid: `grid` tests it); each chunk is there once, and given to one thread (`each`
        // counts up); and of one chunk, this borrow ends before the next piece is asked for.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.shared.start.add(piece.at), piece.len) };
        Some((piece.chunk, bytes))
    }

    /// The one place that takes all of a chunk of so many bytes, if there is such a one.
    pub fn whole(&mut self, chunk_bytes: usize) -> Option<&mut [u8]> {
        match self.part.pieces().next() {
            Some(first) if first.chunk == 0 && first.len == chunk_bytes => {
                self.take_next().map(|(_, bytes)| bytes)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fill;
    use crate::chunked::grid::Grid;
    use engram_base::error::{Error, Kind};
    use engram_base::slab::Slab;

    /// The byte of an item of the array.
    fn item(at: [u64; 2]) -> u8 {
        (at[0] * 31 + at[1] * 7) as u8
    }

    /// A box of an array of 1000 times 3000 bytes, in chunks of 64 times 256.
    fn filled(offsets: [u64; 2], counts: [u64; 2]) -> Vec<u8> {
        let shape = [1000, 3000];
        let grid = Grid { shape: shape.to_vec(), chunks: vec![64, 256], item: 1 };
        let slab = Slab::new(&shape, &offsets, &counts).unwrap();
        let cells = grid.cells(&slab);
        let mut out = vec![0xff; (counts[0] * counts[1]) as usize];
        let filling = fill(
            &mut out,
            &grid,
            &slab,
            &cells,
            || (),
            |(), number, places| {
                let cell = &cells[number];
                while let Some((from, bytes)) = places.take_next() {
                    for (byte, at) in bytes.iter_mut().zip(from as u64..) {
                        let [row, column] = [at / 256, at % 256];
                        *byte = item([
                            u64::from(cell[0]) * 64 + row,
                            u64::from(cell[1]) * 256 + column,
                        ]);
                    }
                }
                Ok(())
            },
        );
        filling.unwrap();
        out
    }

    #[test]
    fn several_threads_fill_a_box_as_one_would() {
        // Miri takes a thousand times as long for each byte, and begins threads for fewer.
        let large = if cfg!(miri) { [100, 300] } else { [1000, 3000] };
        let across = if cfg!(miri) { [130, 260] } else { [130, 600] };
        for (offsets, counts) in [([0, 0], large), ([63, 255], across), ([5, 5], [1, 1])] {
            let out = filled(offsets, counts);
            for (place, byte) in (0..).zip(out) {
                let at = [offsets[0] + place / counts[1], offsets[1] + place % counts[1]];
                assert_eq!(byte, item(at), "{at:?}");
            }
        }
        assert!(filled([9, 9], [0, 5]).is_empty());
    }

    #[test]
    fn a_place_that_takes_all_of_a_chunk_is_one_piece_and_an_error_ends_the_work() {
        let shape = [128, 256];
        let grid = Grid { shape: shape.to_vec(), chunks: vec![64, 256], item: 1 };
        let slab = Slab::all(&shape);
        let cells = grid.cells(&slab);
        let mut out = vec![0; 128 * 256];
        let done = fill(
            &mut out,
            &grid,
            &slab,
            &cells,
            || (),
            |(), number, places| {
                assert!(places.whole(64 * 256 - 1).is_none());
                let whole = places.whole(64 * 256).expect("chunks as wide as the array");
                whole.fill(number as u8 + 1);
                assert!(places.take_next().is_none());
                Ok(())
            },
        );
        done.unwrap();
        assert!(out[..64 * 256].iter().all(|byte| *byte == 1));
        assert!(out[64 * 256..].iter().all(|byte| *byte == 2));
        let refused = fill(
            &mut out,
            &grid,
            &slab,
            &cells,
            || (),
            |(), _, _| Err(Error::new(Kind::Corrupt, "a damaged chunk")),
        );
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
    }
}
