//! Pools and namespaces: made, copied, backed up, removed, and found half made.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/syscalls.rs"]
mod syscalls;

mod backup;
mod copies;
mod halfway;
mod namespaces;
mod open_killed;
mod pools;
mod presence;
mod upgrade;
