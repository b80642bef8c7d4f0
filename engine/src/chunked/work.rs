//! Threads: many chunks are encoded, decoded and copied at once.
//!
//! The caller's thread works, too; the others live as long as the call. What they do touches no
//! catalog, takes no lock of the realm and knows no batch: that stays with the caller's thread.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::grid::{Cell, Grid, Part, Pieces};
use crate::error::Result;
use crate::realm::lock;
use crate::slab::Slab;

/// A thread more for each so many bytes: less is done before it has begun.
const BYTES_EACH: usize = 512 << 10;

/// How many processors there are for us; the kernel is asked once.
fn processors() -> usize {
    static KNOWN: OnceLock<usize> = OnceLock::new();
    *KNOWN.get_or_init(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// Does `work` for each number below `count`, of `bytes` in all, with what `begin` makes once for
/// each thread. What they give, in order; after an error nothing more is begun.
pub(crate) fn each<W, T: Send>(
    (count, bytes): (usize, usize),
    begin: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = processors().min(count).min(1 + bytes / BYTES_EACH);
    if threads <= 1 {
        let mut own = begin();
        return (0..count).map(|at| work(&mut own, at)).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let failed = Mutex::new(None);
    let run = || {
        let mut own = begin();
        let mut given = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            match work(&mut own, at) {
                Ok(one) => given.push((at, one)),
                Err(error) => {
                    next.store(count, Ordering::Relaxed);
                    lock(&failed).get_or_insert(error);
                    break;
                }
            }
        }
        lock(&done).append(&mut given);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had, the caller's does it all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, one)| one).collect())
}

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

#[cfg(test)]
mod tests {
    use super::each;
    use crate::error::{Error, Kind};

    #[test]
    fn what_threads_do_comes_back_in_order_and_the_first_error_ends_it() {
        let squares = each((1000, 1 << 30), || (), |(), at| Ok(at * at)).unwrap();
        assert_eq!(squares, (0..1000).map(|at| at * at).collect::<Vec<_>>());
        let refused = each(
            (1000, 1 << 30),
            || (),
            |(), at| match at {
                500 => Err(Error::new(Kind::Corrupt, "five hundred")),
                _ => Ok(()),
            },
        );
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(each((0, 0), || (), |(), at| Ok(at)).unwrap(), Vec::<usize>::new());
    }
}
