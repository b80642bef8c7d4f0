//! Id prefixes: the upper 24 bits of ids, of which no two realms of a pool have the same.
//!
//! A realm's own `realm.toml` says its id prefix (`birth`), but a user cannot read those of others.
//! So each is reserved by an empty file in `ns/<name>/births`, a folder in which everybody who may
//! enter the namespace makes files and nobody removes those of others. A prefix that was drawn for
//! a realm that was never finished stays taken, which costs nothing.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::namespace::names;
use engram_base::error::{Error, Result};
use engram_base::id::COUNTER_BITS;
use engram_base::random;
use engram_files::paths::{folder, place};

/// The folder's name.
pub(super) const ID_PREFIXES: &str = "births";

/// Draws 24 random bits that no realm of the pool has, as far as can be seen, and reserves them in
/// `prefixes`: among the realms of the namespace that holds there is no doubt.
pub(super) fn draw(pool: &Path, prefixes: &Path) -> Result<u64> {
    let mut elsewhere = Vec::new();
    if folder(pool).is_dir() {
        for name in names(pool)? {
            elsewhere.push(place(pool, &name).join(ID_PREFIXES));
        }
    }
    loop {
        let id_prefix = random::id()? & ((1 << (64 - COUNTER_BITS)) - 1);
        let name = name_of(id_prefix);
        if id_prefix == 0 || elsewhere.iter().any(|prefixes| prefixes.join(&name).exists()) {
            continue;
        }
        let path = prefixes.join(&name);
        match reserve(&path) {
            Ok(_) => return Ok(id_prefix),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::os(format!("reserving {}", path.display()), &e)),
        }
    }
}

/// Makes the empty file that keeps an id prefix; nobody has anything to write into it.
pub(super) fn reserve(path: &Path) -> std::io::Result<fs::File> {
    fs::File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// The name of the file that reserves an id prefix.
pub(super) fn name_of(id_prefix: u64) -> String {
    format!("{id_prefix:06x}")
}

#[cfg(test)]
mod tests {
    use super::{COUNTER_BITS, draw, name_of, reserve};
    use std::collections::HashSet;
    use std::io::ErrorKind;

    #[test]
    fn each_id_prefix_that_is_drawn_is_another_and_stays_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let prefixes = dir.path().join("births");
        std::fs::create_dir(&prefixes).unwrap();
        let drawn: HashSet<u64> = (0..200).map(|_| draw(dir.path(), &prefixes).unwrap()).collect();
        assert_eq!(drawn.len(), 200);
        for id_prefix in drawn {
            assert!(id_prefix > 0 && id_prefix < 1 << (64 - COUNTER_BITS), "{id_prefix:x}");
            let taken = reserve(&prefixes.join(name_of(id_prefix))).unwrap_err();
            assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        }
    }
}
