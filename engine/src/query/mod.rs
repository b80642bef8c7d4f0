//! Queries: which objects, by their attributes, names and built-in fields.

pub mod answer;
pub mod ast;
pub(crate) mod compile;
pub(crate) mod groups;
mod like;
pub(crate) mod literal;
mod order;
pub(crate) mod predicate;
pub(crate) mod record;
pub(crate) mod run;
