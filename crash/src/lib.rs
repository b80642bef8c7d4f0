//! The crash campaign: processes that work on one pool are killed, at any instant and at every step
//! of the engine's protocols, and what they leave is looked at.
//!
//! | file | what it owns |
//! |---|---|
//! | `machine` | processes, signals, shared memory |
//! | `board` | what workers do, written down where no death can take it |
//! | `operation` | what workers do, and how it is chosen |
//! | `model` | what a worker's part of the pool must hold |
//! | `common` | what everybody writes, and what must hold of it |
//! | `travel` | what goes from scope to scope, and what must hold of it |
//! | `grids` | chunked arrays that are appended to, cut, and written by all at once |
//! | `roam` | a group that everybody moves, and in which everybody writes |
//! | `files` | files of a worker's own: names, handles, bytes, by a file system's calls |
//! | `filed`, `bytes` | what those must be |
//! | `crowd` | files that everybody writes, links, renames and takes away |
//! | `program` | a worker that reaches the pool through the preload library alone |
//! | `called`, `calls` | what it does with files, by the C library's calls; those calls |
//! | `file_locks` | locks of files, which programs take |
//! | `snapshot` | snapshots that are held |
//! | `locks` | locks of objects |
//! | `worker`, `reader` | who writes, and who reads |
//! | `check` | what a death has left, looked at in a process of its own |
//! | `crew` | who lives, and what they have acknowledged |
//! | `campaign`, `table` | who is killed, when and where; what came of it |

#![allow(clippy::missing_panics_doc, reason = "a panic is a campaign's verdict")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

pub mod board;
pub mod bytes;
mod called;
mod calls;
pub mod campaign;
pub mod check;
pub mod common;
pub mod crew;
pub mod crowd;
pub mod data;
mod file_locks;
pub mod filed;
pub mod files;
pub mod grids;
pub mod locks;
pub mod machine;
pub mod model;
pub mod operation;
pub mod pool;
pub mod program;
pub mod reader;
pub mod roam;
pub mod snapshot;
pub mod table;
pub mod travel;
pub mod worker;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where pools are made: memory, if there is a tmpfs.
fn ground() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory } else { Path::new(".") }
}

/// Runs a campaign in a folder of its own, and prints the table; whether nothing was lost.
///
/// # Panics
///
/// If no folder can be made.
pub fn run(plan: campaign::Plan) -> bool {
    println!("SEED={}", plan.seed);
    let library = program::library().expect("the library to preload");
    let dir = tempfile::Builder::new().prefix("engram-crash-").tempdir_in(ground());
    let dir = dir.expect("a folder for pools");
    // A stranger is to come as far as the pool.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("a mode");
    match campaign::run(plan, dir.path(), library) {
        Ok(outcome) => {
            println!("{}", table::table(&plan, &outcome));
            true
        }
        Err(fault) => {
            let kept = dir.keep();
            eprintln!("{fault}\nthe pool is kept in {}; SEED={}", kept.display(), plan.seed);
            false
        }
    }
}

/// The seed that `SEED` asks for, or another one each time.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish() >> 16;
    std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(random)
}
