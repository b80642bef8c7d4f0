//! Queries, and the index that answers them.

#[path = "../common/mod.rs"]
mod common;

mod index_any;
mod index_churn;
mod index_full;
mod index_hints;
mod index_keys;
mod index_peers;
mod index_queue;
mod index_settings;
mod index_tail;
mod index_verify;
mod naive;
mod query_answers;
mod query_any;
mod query_groups;
mod query_merged;
mod query_names;
mod query_points;
mod query_runs;
mod query_sealed;
