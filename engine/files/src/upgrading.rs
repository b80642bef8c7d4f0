//! What an upgraded pool has to do yet, in a file: `upgrading.toml`.
//!
//! It stands in the new pool's folder from before the two pools change names until the earlier one
//! is gone. So a process that comes after a death knows which folder is the earlier pool's,
//! whatever somebody has put beside it meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::folder::sync_names;
use crate::pool_file::UPGRADING;
use crate::toml_file::{read_toml, write_toml};
use engram_base::error::{Error, Kind, Result};

/// `upgrading.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgrading {
    /// The format of the earlier pool.
    pub from: u32,
    /// The inode of its folder, hexadecimal: TOML's numbers have a sign.
    pub inode: String,
    /// Its further devices, which the new pool is given when the earlier one is gone.
    pub devices: Vec<PathBuf>,
}

impl Upgrading {
    /// What is to be said of the earlier pool in this folder.
    pub fn of(earlier: &Path, from: u32, devices: &[PathBuf]) -> Result<Self> {
        let inode = inode_of(earlier)
            .map_err(|e| Error::os(format!("looking at {}", earlier.display()), &e))?;
        Ok(Upgrading { from, inode, devices: devices.to_vec() })
    }

    /// What the pool in this folder has to do yet; `None`: it is a pool like any other.
    pub fn read(pool: &Path) -> Result<Option<Self>> {
        match read_toml(&pool.join(UPGRADING)) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Says so in the pool's folder, durably.
    pub fn write(&self, pool: &Path) -> Result<()> {
        write_toml(&pool.join(UPGRADING), self, 0o644)
    }

    /// Takes it away: all is done.
    pub fn remove(pool: &Path) -> Result<()> {
        let path = pool.join(UPGRADING);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::os(format!("removing {}", path.display()), &e))
            }
            _ => sync_names(pool),
        }
    }

    /// Whether this folder is the earlier pool's.
    pub fn is(&self, folder: &Path) -> bool {
        inode_of(folder).is_ok_and(|inode| inode == self.inode)
    }
}

fn inode_of(folder: &Path) -> std::io::Result<String> {
    fs::symlink_metadata(folder).map(|meta| format!("{:x}", meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::Upgrading;
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn the_earlier_folder_is_known_by_whatever_name() {
        let dir = tempfile::tempdir().unwrap();
        let [earlier, new, other] = ["earlier", "new", "other"].map(|name| dir.path().join(name));
        for path in [&earlier, &new, &other] {
            fs::create_dir(path).unwrap();
        }
        assert_eq!(Upgrading::read(&new), Ok(None));
        let said = Upgrading::of(&earlier, 5, &[PathBuf::from("/mnt/disk")]).unwrap();
        said.write(&new).unwrap();
        assert_eq!(Upgrading::read(&new), Ok(Some(said.clone())));
        fs::rename(&earlier, dir.path().join("moved")).unwrap();
        fs::rename(&other, &earlier).unwrap();
        assert!(said.is(&dir.path().join("moved")) && !said.is(&earlier) && !said.is(&other));
        Upgrading::remove(&new).unwrap();
        Upgrading::remove(&new).unwrap();
        assert_eq!(Upgrading::read(&new), Ok(None));
    }
}
