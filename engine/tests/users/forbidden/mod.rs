//! Forbidden acts, by really different users: each is a row of a table, is tried, and is refused.
//!
//! The kernel keeps users apart, not our code. So every act is tried by a process that has become
//! the user for good, through the engine and by opening the files. `docs/faults.md` has the table.

mod acts;
mod escapes;
mod files;
mod modes;
mod planted;
mod traces;
mod world;

/// Says how many acts were tried; [`crate::common::alone_with`] passes such lines on.
fn refused(acts: u64, users: u64, what: &str) {
    assert!(acts > 0, "nothing was tried");
    println!("forbidden: {acts} acts by {users} users, all refused ({what})");
}
