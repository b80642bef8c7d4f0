//! Records of objects and groups, byte by byte.
//!
//! This crate owns what a row of `objects`, `groups` and `chunks` holds: attributes, dims, shape,
//! where the value lies, how a chunked array is cut and coded. It does not know where records are
//! stored, and commits nothing.
//!
//! *Invariant*: an encoded record is decoded to the same one, and bytes that no encoder has written
//! are an error, never a panic (P10).
//!
//! | module | what it offers |
//! |---|---|
//! | [`object`] | [`object::Record`], and what a caller says and hears of an object |
//! | [`attrs`] | attributes, encoded with the numbers of their keys |
//! | [`layout`], [`chunked`] | how a value lies: whole, or in chunks with a codec |
//! | [`segmented`] | how a file lies: a head, and segments |
//! | [`properties`] | what a file system keeps beside a member |
//! | [`extent`] | [`extent::Extent`]: a run of bytes in an arena |
//! | [`index_mode`] | when an object is indexed, and what a commit tells the index |
//! | [`stamp`] | the maker of a record, and the time |

#![deny(missing_docs)]

pub mod attrs;
pub mod chunked;
pub mod extent;
pub mod index_mode;
pub mod layout;
pub mod object;
pub mod properties;
pub mod segmented;
pub mod stamp;
