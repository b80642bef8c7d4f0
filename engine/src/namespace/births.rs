//! Births: the upper 24 bits of ids, of which no two realms of a pool have the same.
//!
//! A realm's own `realm.toml` says its birth, but a user cannot read those of others. So each is
//! reserved by an empty file in `ns/<name>/births`, a folder in which everybody who may enter the
//! namespace makes files and nobody removes those of others. What was drawn for a realm that was
//! never finished stays taken, which costs nothing.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{folder, names, place};
use crate::error::{Error, Kind, Result};
use crate::id::COUNTER_BITS;

/// The folder's name.
pub(super) const BIRTHS: &str = "births";

/// Draws 24 random bits that no realm of the pool has, as far as can be seen, and reserves them in
/// `births`: among the realms of the namespace that holds there is no doubt.
pub(super) fn draw(pool: &Path, births: &Path) -> Result<u64> {
    let mut elsewhere = Vec::new();
    if folder(pool).is_dir() {
        for name in names(pool)? {
            elsewhere.push(place(pool, &name).join(BIRTHS));
        }
    }
    loop {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes)
            .map_err(|e| Error::new(Kind::Os, format!("no random bytes: {e}")))?;
        let birth = u64::from(u32::from_le_bytes(bytes)) & ((1 << (64 - COUNTER_BITS)) - 1);
        let name = name_of(birth);
        if birth == 0 || elsewhere.iter().any(|births| births.join(&name).exists()) {
            continue;
        }
        let path = births.join(&name);
        match reserve(&path) {
            Ok(_) => return Ok(birth),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::os(format!("reserving {}", path.display()), &e)),
        }
    }
}

/// Makes the empty file that keeps a birth; nobody has anything to write into it.
pub(super) fn reserve(path: &Path) -> std::io::Result<fs::File> {
    fs::File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// The name of the file that reserves a birth.
pub(super) fn name_of(birth: u64) -> String {
    format!("{birth:06x}")
}
