//! Chunked arrays: a grid of boxes of one shape, each kept for itself.
//!
//! **A chunk is a row of its array**: `chunks` has, under the array's OID and the chunk's place in
//! the grid, a record of class `Chunk`, whose value is the encoded chunk, in the row or in an
//! extent, with a generation and checksums as any other. So space, look-ups (P2), compare-and-swap,
//! backup, compaction, moves, `verify` and salvage do with it what they do with objects, and
//! nothing that lists, counts or indexes objects ever meets one. The array's own record has the
//! shape of a chunk and the codec (`layout`). A chunk that has no row is all zeros.
//!
//! **Every chunk is whole**: where the grid goes beyond the shape, the elements beyond are zeros.
//! So an array grows by its record alone. One that shrinks loses the rows beyond, and the part cut
//! off of others is zeroed in the same commit, so that it is zeros when the array grows again.
//!
//! **Reading** takes the array's record and the rows of the chunks that a box touches from one
//! snapshot, and pins their extents: the values read were there at one moment, though others may
//! write.
//!
//! **Writing** encodes the chunks that a box touches, on a few threads, puts them into reserved
//! space, flushes (P1), and commits their rows, many in one commit. A chunk that the box covers is
//! replaced. Of a chunk that it covers in part the rest is read before, so the row is swapped only
//! if its generation is still that one; if it is not, the chunk is read again. So writers to
//! disjoint parts of one chunk at the same time lose nothing. A box as a whole is not one commit,
//! as with a write in place; but each chunk is as it was or as it is to be, also after a death.
//!
//! **Resizing** raises the generation of the array's record, and every commit of chunks expects the
//! one that it began with: a chunk is never put where the array does not reach any more. (A chunk's
//! row goes only so, or with its array; so an equal generation means that nothing has happened in
//! between.) *Appending* is growing and writing in one commit.
//!
//! | file | what it owns |
//! |---|---|
//! | `grid` | which chunks a box touches, and which bytes of them |
//! | `codec` | a chunk's bytes, encoded and decoded |
//! | `work` | threads |
//!
//! Reading and writing, with space and commits, is `realm/chunks`.

pub mod codec;
pub mod grid;
pub mod work;
