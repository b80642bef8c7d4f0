//! What unit tests of this crate share.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;
use crate::pool_file::{FORMAT, PoolFile};

/// Makes a FIFO, at which an ordinary open would wait for ever.
pub(crate) fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo is part of coreutils");
    assert!(made.success(), "a FIFO at {}", path.display());
}

/// The uuid of [`pool_file`].
pub(crate) const UUID: &str = "0123456789abcdef0123456789abcdef";

/// The description of a pool in this folder, on no other device.
pub(crate) fn pool_file(path: &Path) -> PoolFile {
    PoolFile {
        format: FORMAT,
        uuid: UUID.to_owned(),
        durability: "process".to_owned(),
        size: 1 << 20,
        checksums: true,
        emulated: false,
        devices: vec![path.to_owned()],
        incompatible: Vec::new(),
        read_only: Vec::new(),
    }
}

/// A whole pool in this folder, with the folder of its first namespace.
pub(crate) fn pool(path: &Path) -> PathBuf {
    pool_file(path).begin(path).expect("a new pool");
    let namespace = paths::place(path, paths::DEFAULT);
    std::fs::create_dir(&namespace).expect("a namespace's folder");
    PoolFile::finish(path).expect("a whole pool");
    namespace
}
