//! Sealed segments: columns over up to some thousands of objects, never changed once written.
//!
//! [`GatheredRows`] make a segment, and [`SealedRows`] bring them those of other segments;
//! [`Segment`] reads a head and [`Column`] a column of one of its parts, in place. Nothing here
//! knows the catalog. Part `n` of a segment is the row (segment, n) of `index_segments`: part 0 is
//! the head, and a [`ColumnEntry`] says in which part its column lies. A row of a segment is a
//! *position*: the OIDs ascend, so positions do too.
//!
//! Nothing on media is believed: bytes that a segment cannot have are an error, or they are some
//! other segment, but never more than a segment's worth of work.

pub mod bitmap;
pub(crate) mod bits;
mod build;
mod column;
mod gather;
mod head;
mod ints;
mod lanes;
mod layout;
mod names;
mod ordered;
mod unite;
mod values;

#[cfg(test)]
mod tests;

pub use bitmap::Bitmap;
pub use build::Built;
pub use column::{Column, Marks, NO_CELL, Numbers, Slot, SoughtTexts, UNSURE_CELL};
pub use gather::GatheredRows;
pub use head::{ColumnEntry, Segment};
pub use layout::{AttributeGroup, BUILTIN_GROUP, COLUMNS_MAX, GroupKind, SegmentLayout};
pub use unite::SealedRows;
