//! Queries: which objects, by their attributes, names and built-in fields.

pub mod ast;
mod display;
mod fault;
mod lex;
mod like;
pub(crate) mod literal;
mod number;
mod parse;
pub(crate) mod predicate;
mod words;

pub use parse::{DEPTH_MAX, QUERY_BYTES_MAX, parse};
