//! Queries: which objects, by their attributes, names and built-in fields.
//!
//! This crate owns the query language, what a query means, and one search of one realm. It reads
//! rows through a snapshot, or through a batch's list on top of one. It writes nothing, takes no
//! lock of a realm, and does not know how the index is kept.
//!
//! *Invariant*: the index changes the time that an answer takes, and never the answer. Zones and
//! columns decide only what the record of each object would decide, and leave the rest to it. Only
//! a query that asks for `Consistency::Eventual` takes the queued objects as the index has them.
//!
//! | module | what it offers |
//! |---|---|
//! | `parse`, `lex`, `params`, `number`, `words`, `fault`, `naming` | from the language to `ast`, and what to say of errors |
//! | `ast`, `display` | what a query says; the language again |
//! | `predicate`, `like` | what a comparison means |
//! | `compile` | keys as numbers, paths as groups and names |
//! | `record`, `groups`, `tree` | the truth: an object judged by its record and its groups |
//! | `run`, `goal`, `order`, `ascending` | one search, what is asked of it, and in which order |
//! | `tail` | what no segment has yet, in columns that a process keeps |
//! | `segments`, `zones`, `sieves` | which segments need not be opened |
//! | `run_hits` | the rows that runs have found |
//! | `sealed`, `eval`, `workers` | the others: columns become bitmaps, in several threads |
//! | `fields`, `many`, `top` | columns instead of records; the first of an order |
//! | `projection` | named fields of many objects, as values |
//! | `totals`, `figures`, `exact` | figures of all objects found, or of groups of them |
//! | `answer` | options, and how a query was answered |

#![deny(missing_docs)]

pub mod answer;
mod ascending;
pub mod ast;
pub mod compile;
mod display;
mod eval;
pub(crate) mod exact;
mod fault;
pub(crate) mod fields;
pub(crate) mod figures;
pub mod goal;
pub mod groups;
mod lex;
mod like;
pub(crate) mod many;
mod naming;
mod number;
pub mod order;
pub mod params;
mod parse;
pub(crate) mod predicate;
pub mod projection;
pub(crate) mod record;
pub mod run;
mod run_hits;
pub mod sealed;
mod segments;
mod sieves;
mod tail;
mod top;
pub mod totals;
pub mod tree;
mod words;
mod workers;
mod zones;

pub use naming::error_at;
pub use parse::{NESTING_MAX, QUERY_BYTES_MAX, parse, parse_with};
