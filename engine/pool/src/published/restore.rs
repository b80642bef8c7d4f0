//! The published realm of a copy of a pool: one version, made of rows and values that a backup
//! puts into a working realm, as a publisher does.
//!
//! The pool is one that is being made, so nobody looks at it yet: no lock and no clearing.

use std::fs;
use std::path::{Path, PathBuf};

use super::making::{close_file, mode_of, sync_folder};
use crate::published::{FILE_MODE, VersionFile};
use engram_base::error::{Error, Result};
use engram_base::id::Gid;
use engram_base::scope::Scope;
use engram_catalog::Catalog;
use engram_files::folder::make_folder;
use engram_files::paths::REALM_FILE;
use engram_files::pool_file::FORMAT;
use engram_files::toml_file::write_toml;
use engram_files::versions::{MAKING, version_name};
use engram_realm::{Setup, boot_id};

/// The number of the copy's version.
const FIRST: u64 = 1;

/// The working realm's place among the versions.
fn place(published: &Path) -> PathBuf {
    published.join(format!("{MAKING}backup"))
}

/// Makes a working realm without rows beside the copy's `shared` one; what is needed to open its
/// catalog.
pub fn begin_like(shared: &Setup, root: Gid) -> Result<Setup> {
    let published = shared.dir.with_file_name(Scope::Published.as_str());
    let place = place(&published);
    make_folder(&place, 0o700)?;
    let dir = place.join("work");
    make_folder(&dir, 0o700)?;
    make_folder(&dir.join("catalog"), 0o700)?;
    let setup = Setup {
        dir,
        file_mode: 0o600,
        durable: false,
        id_prefix: 0,
        root,
        scope: Scope::Published,
        ..shared.clone()
    };
    Catalog::create(&setup.catalog(), &setup.catalog_options())?;
    Ok(setup)
}

/// Takes away what was begun of a version, and the version.
pub fn undo_like(published: &Path) -> Result<()> {
    for folder in [place(published), published.join(version_name(FIRST))] {
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::os(format!("removing {}", folder.display()), &e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes the copy's version of what the working realm holds; its values lie in `spans`.
pub fn finish_like(work: &Setup, spans: &[PathBuf]) -> Result<()> {
    let place = work.dir.parent().expect("`work` lies in a folder of its own");
    let published = place.parent().expect("beside the versions");
    let version = place.join("version");
    let mode = mode_of(published)?;
    make_folder(&version, mode)?;
    make_folder(&version.join("catalog"), mode)?;
    {
        let catalog = Catalog::open(&work.catalog(), &work.catalog_options())?;
        catalog.growth().set_boot_id(boot_id());
        catalog.copy_compact(&version.join("catalog"))?;
    }
    spans.iter().try_for_each(|span| close_file(span))?;
    close_file(&version.join("catalog/data.mdb"))?;
    let toml =
        VersionFile { format: FORMAT, version: FIRST, root: work.root, incompatible: Vec::new() };
    write_toml(&version.join(REALM_FILE), &toml, FILE_MODE)?;
    sync_folder(&version)?;
    let named = published.join(version_name(FIRST));
    fs::rename(&version, &named)
        .map_err(|e| Error::os(format!("naming {}", named.display()), &e))?;
    fs::remove_dir_all(place).map_err(|e| Error::os(format!("removing {}", place.display()), &e))
}
