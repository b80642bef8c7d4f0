//! The index: Group Split and Merge over sealed column segments.

pub(crate) mod cell;
pub(crate) mod column_key;
pub(crate) mod range;
pub(crate) mod segment;
pub(crate) mod zone;
pub(crate) mod zones;
