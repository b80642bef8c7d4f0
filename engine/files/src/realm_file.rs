//! What a realm is, in a file: `realm.toml`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::paths::REALM_FILE;
use crate::pool_file::{FORMAT, PoolFile};
use crate::toml_file::read_toml;
use engram_base::error::{Kind, Result};
use engram_base::fail;
use engram_base::id::Gid;
use engram_base::scope::Scope;

/// `realm.toml`.
#[derive(Serialize, Deserialize)]
pub struct RealmFile {
    /// The version of everything on media: that of its pool.
    pub format: u32,
    /// The bytes of the catalog's map, the same for every process.
    pub map_size: u64,
    /// The random upper bits of ids born here, which tell the realm from any other.
    #[serde(rename = "birth")]
    pub id_prefix: u64,
    /// The GID of its root.
    pub root: Gid,
    /// Features that an engine must know to open the realm.
    #[serde(default)]
    pub incompatible: Vec<String>,
}

/// What a realm says of itself, in a pool of this format.
pub fn realm_file(dir: &Path, format: u32) -> Result<RealmFile> {
    let toml: RealmFile = read_toml(&dir.join(REALM_FILE))?;
    if toml.format != format || !toml.incompatible.is_empty() {
        fail!(
            Format,
            "{} has format {} with features {:?}; its pool has format {format}: upgrade engram",
            dir.display(),
            toml.format,
            toml.incompatible
        );
    }
    Ok(toml)
}

/// What tells a realm from another in the same folder.
pub struct Identity<'a> {
    /// The realm's folder.
    pub dir: &'a Path,
    /// The pool's folder.
    pub pool: &'a Path,
    /// The pool's uuid.
    pub uuid: &'a str,
    /// The id prefix of the realm: the random upper bits of ids made in it.
    pub id_prefix: u64,
    /// Who sees what is in it.
    pub scope: Scope,
}

/// Refuses where the folder of a realm is another's by now: of a pool, or a namespace, that was
/// removed and made anew since this was read.
pub fn check_same(realm: &Identity<'_>) -> Result<()> {
    let same = match realm_file(realm.dir, FORMAT) {
        Ok(now) => now.id_prefix == realm.id_prefix,
        // One that its maker is about to publish, under a name that nobody else has.
        Err(_) if realm.scope == Scope::Published => true,
        Err(error) if error.kind() == Kind::NotFound => false,
        Err(error) => return Err(error),
    };
    if same && PoolFile::is_of(realm.pool, realm.uuid)? {
        return Ok(());
    }
    fail!(
        Busy,
        "{} was removed while it was being opened, and perhaps made anew: open it again",
        realm.dir.display()
    )
}

#[cfg(test)]
mod tests;
