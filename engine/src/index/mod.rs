//! The index: Group Split and Merge over sealed column segments.

pub(crate) mod cell;
