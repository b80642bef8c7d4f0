//! What takes a whole pool to test, and sees into the index, the query and moves from inside.

mod maintenance;
mod moves;
mod sealed;

use crate::pool::{CreateOptions, Pool};
use engram_base::scope::Scope;
use engram_records::object::Placement;
use tempfile::TempDir;

/// A small pool, and the folder that it lies in.
pub(crate) fn small_pool() -> (TempDir, Pool) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = CreateOptions { size: 8 << 20, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
    (dir, pool)
}

pub(crate) fn of(scope: Scope) -> Placement {
    Placement { scope: Some(scope), ..Placement::default() }
}
