//! Queries: which objects, by their attributes, names and built-in fields.

pub mod ast;
