//! Queries: which objects, by their attributes, names and built-in fields.
//!
//! | file | what it owns |
//! |---|---|
//! | `parse`, `lex`, `number`, `words`, `fault` | from the language to `ast`, and what to say of errors |
//! | `ast`, `display` | what a query says; the language again |
//! | `predicate`, `literal`, `like` | what a comparison means |
//! | `compile` | keys as numbers, paths as groups and names |
//! | `record`, `groups`, `table` | the truth: an object judged by its record and its groups |
//! | `run`, `goal`, `order` | one search, what is asked of it, and in which order |
//! | `segments`, `zones`, `names` | which segments need not be opened |
//! | `sealed`, `eval`, `workers` | the others: columns become bitmaps, in several threads |
//! | `answer` | options, and how a query was answered |

pub mod answer;
pub mod ast;
pub(crate) mod compile;
mod display;
mod eval;
mod fault;
pub(crate) mod goal;
pub(crate) mod groups;
mod lex;
mod like;
pub(crate) mod literal;
mod names;
mod number;
pub(crate) mod order;
mod parse;
pub(crate) mod predicate;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod sealed;
mod segments;
pub(crate) mod table;
mod words;
mod workers;
mod zones;

#[cfg(test)]
mod tests;

pub use parse::{DEPTH_MAX, QUERY_BYTES_MAX, parse};
