//! Extents: contiguous runs of bytes in an arena, and who may have them.
//!
//! Every byte of an arena is in exactly one of four states, and the catalog's rows say which:
//!
//! * **free**: a row in `extents_by_offset` and its twin in `extents_by_size`;
//! * **reserved**: a row in `extents_pending` under the lease that asked for it;
//! * **in use**: a record in `objects` points to it;
//! * **freed**: a row in `extents_pending` under the transaction that took the last record away,
//!   until nobody can look at it any more (`reclaim`, protocol P2).
//!
//! Free extents are maximal: two that touch are one. `verify` proves all of this.

mod allocator;
mod arena;
mod reclaim;
mod view;

pub(crate) use allocator::{Wanted, allocate, covers, insert_free, parse_free, parse_size_key};
pub(crate) use arena::{Arena, Growing, Span};
pub(crate) use reclaim::{
    Floor, Holder, end_reservation, freed_row, has_reserved, pending_rows, reclaim, reserve_row,
    reserving, take_back,
};
pub(crate) use view::{Aiming, Claim};
pub use view::{Allocation, View};

/// A page, and the alignment of extents of 64 KiB and more.
pub(crate) const PAGE: u64 = 4096;
/// A huge page: the granularity of spans, and the alignment of extents of 2 MiB and more.
pub(crate) const HUGE: u64 = 2 << 20;
/// A cache line: the alignment of every extent.
pub(crate) const LINE: u64 = 64;

/// The most bytes that an arena may be asked for: beyond what processors address, and far from
/// where sums of a few of these would overflow.
pub(crate) const SIZE_MAX: u64 = 1 << 52;

/// A contiguous run of bytes in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Where it begins, from the arena's start.
    pub offset: u64,
    /// Its length in bytes, a multiple of 64.
    pub len: u64,
}

impl Extent {
    /// Where it ends.
    pub(crate) fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// Rounds up to a power of two.
pub(crate) fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}

/// How many bytes an extent takes for a value of `nbytes`.
pub(crate) fn extent_len(nbytes: u64) -> u64 {
    round_up(nbytes.max(1), if nbytes < 16 * PAGE { LINE } else { PAGE })
}

/// The alignment that an extent of `len` bytes should have.
pub(crate) fn best_align(len: u64) -> u64 {
    match len {
        HUGE.. => HUGE,
        0x1_0000.. => PAGE,
        _ => LINE,
    }
}
