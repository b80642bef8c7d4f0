//! Queries: which objects, by their attributes, names and built-in fields.

pub mod answer;
pub mod ast;
pub(crate) mod compile;
mod display;
mod fault;
pub(crate) mod groups;
mod lex;
mod like;
pub(crate) mod literal;
mod names;
mod number;
mod order;
mod parse;
pub(crate) mod predicate;
pub(crate) mod record;
pub(crate) mod run;
mod words;

pub use parse::{DEPTH_MAX, QUERY_BYTES_MAX, parse};
mod eval;
mod goal;
pub(crate) mod sealed;
mod segments;
pub(crate) mod table;
mod workers;
mod zones;
