//! What the tests of several processes share: pools, processes, and arrays that prove themselves.
#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod data;
pub mod grids;
pub mod moves;
mod peer;
mod pool;
mod users;

pub use data::{Random, check, filled, seed, words_of};
pub use peer::{Line, Peer, alone, alone_with, deadline, die_at_step, fork, spawn, wait_for};
pub use pool::{
    Fixture, KEEP, OVER, attach, blob, bytes_of, catalog_of, catalog_of_path, churn, contents,
    fill_up, floats, lookup, map_of, put, put_new, read, report_of, small_tmpfs, sound, span_files,
    view,
};
pub use users::{ALICE, BOB, CAROL, DAVE, ERIN, TEAM, become_user, folder_of};

/// Whether the tests may mount, enter namespaces and become others; says so if not.
pub fn is_root(test: &str) -> bool {
    // SAFETY: asks for a number.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("{test} is skipped: it takes root");
    }
    root
}
