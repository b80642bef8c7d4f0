//! A box of many chunks, filled by several threads.

use std::marker::PhantomData;

use super::grid::{Cell, Grid, Part, Pieces};
use crate::error::Result;
use crate::slab::Slab;
use crate::threads::each;

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
/// in `grid.cells` and its places in the box.
pub(crate) fn fill<W>(
    out: &mut [u8],
    (grid, slab, cells): (&Grid, &Slab, &[Cell]),
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize, &mut Places<'_>) -> Result<()> + Sync,
) -> Result<()> {
    assert!(cells.is_sorted_by(|one, next| one < next), "each chunk once");
    let (bytes, start) = (out.len(), out.as_mut_ptr());
    let shared = &Shared { start, len: bytes, buffer: PhantomData };
    each((cells.len(), bytes), begin, |own, at| {
        let part = grid.part(&cells[at], slab);
        work(own, at, &mut Places { shared, pieces: part.pieces(), part: &part })
    })
    .map(drop)
}

/// The places that one chunk has in the box.
pub(crate) struct Places<'p> {
    shared: &'p Shared<'p>,
    pieces: Pieces<'p>,
    part: &'p Part,
}

impl Places<'_> {
    /// The next one: where it begins in the chunk, and the bytes to fill.
    pub(crate) fn next(&mut self) -> Option<(usize, &mut [u8])> {
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
    pub(crate) fn whole(&mut self, chunk_bytes: usize) -> Option<&mut [u8]> {
        match self.part.pieces().next() {
            Some(first) if first.chunk == 0 && first.len == chunk_bytes => {
                self.next().map(|(_, bytes)| bytes)
            }
            _ => None,
        }
    }
}
