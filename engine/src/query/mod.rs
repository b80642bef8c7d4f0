//! Queries: which objects, by their attributes, names and built-in fields.

pub mod ast;
mod like;
pub(crate) mod literal;
pub(crate) mod predicate;
