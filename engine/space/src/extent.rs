//! Extents: contiguous runs of bytes in an arena, and who may have them.
//!
//! Every byte of an arena is in exactly one of five states, and the catalog's rows say which:
//!
//! * **free**: a row in `extents_by_offset` and its twin in `extents_by_size`;
//! * **reserved**: a row in `extents_pending` under the lease that asked for it;
//! * **in use**: a record in `objects` points to it;
//! * **freed**: a row in `extents_pending` under the transaction that took the last record away,
//!   until nobody can look at it any more (`reclaim`, protocol P2);
//! * **vacant**: a row there of its own kind; its blocks were given back to the filesystem, and it
//!   gets some again before it is free (`vacant`).
//!
//! Free extents are maximal: two that touch are one. `verify` proves all of this.

use engram_base::error::Result;
use engram_base::fail;
use engram_records::extent::SIZE_MAX;

mod allocator;
mod arena;
mod ranges;
pub mod reclaim;
mod vacant;

pub use allocator::{Wanted, allocate, covers, free_rows, insert_free, parse_free, parse_size_key};
pub use arena::{Arena, Growing, Span};
pub use ranges::Ranges;
pub(crate) use ranges::joined;
pub use reclaim::{
    ExtentHolder, Floor, FreedOf, Pending, end_reservation, freed_row, has_reserved, pending_rows,
    reclaim, reserve_row, reserving, take_back,
};
pub use vacant::{VacantPart, occupy, vacant_parts, vacant_row, vacant_rows, vacate};

/// Whether a realm can be of this size.
pub fn check_size(size: u64) -> Result<()> {
    if size == 0 {
        fail!(Argument, "size 0 leaves no room for data: give for example \"4 GiB\"");
    }
    if size > SIZE_MAX {
        fail!(Argument, "size {size} is more than can be addressed: at most {SIZE_MAX} bytes can");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
