//! Sealed segments: columns over up to some thousands of objects, never changed once written.

pub(crate) mod bitmap;
mod layout;

pub(crate) use layout::{AttributeGroup, BUILTIN_GROUP, GroupKind, Layout, OTHER_GROUP, ROWS_MAX};
