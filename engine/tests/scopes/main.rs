//! Scopes: who sees what of a namespace, what is read-only, what several realms have.

#[path = "../common/mod.rs"]
mod common;

mod mixed_groups;
mod orphans;
mod read_only;
mod scopes;
mod scopes_any;
