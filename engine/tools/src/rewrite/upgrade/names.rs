//! What stands beside what: the new pool's folder, the change of names, and what a death leaves.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_files::folder::sync_names_above;
use engram_files::pool_file::{
    CREATING, DESTROYING, POOL_FILE, PoolFile, beside, is_part, is_unbegun,
};
use engram_files::upgrading::Upgrading;
use engram_media::devdax;
use engram_media::exchange::exchange;
use engram_pool::Pool;
use engram_realm::Mode;

/// The names of a pool's description.
const MARKERS: [&str; 3] = [CREATING, POOL_FILE, DESTROYING];

fn has_marker(pool: &Path) -> bool {
    MARKERS.iter().any(|marker| pool.join(marker).exists())
}

/// Refuses a pool beside which nothing of its filesystem can be made.
pub(super) fn check_place(path: &Path) -> Result<()> {
    let look = |path: &Path| {
        fs::metadata(path).map_err(|e| Error::os(format!("looking at {}", path.display()), &e))
    };
    let Some(above) = path.parent() else {
        fail!(Argument, "{} is no pool's folder", path.display())
    };
    if look(path)?.dev() != look(above)?.dev() {
        fail!(
            Unsupported,
            "{} is a mount of its own, so no other folder can take its name: upgrade it to another \
             place (`engram upgrade {} --to NEWPOOL`)",
            path.display(),
            path.display()
        );
    }
    Ok(())
}

/// Takes away what an upgrade that died has left beside the pool; refuses anything else.
pub(super) fn clear(path: &Path, place: &Path, file: &PoolFile) -> Result<()> {
    if !place.exists() || is_unbegun(place) {
        return Ok(());
    }
    let ours = MARKERS.iter().any(|marker| {
        PoolFile::load(place, marker)
            .is_ok_and(|found| found.uuid == file.uuid && found.format > file.format)
    });
    if !ours {
        fail!(
            Exists,
            "{} is in the way, and was not left by an upgrade of {}: give it another name",
            place.display(),
            path.display()
        );
    }
    Pool::destroy(place)
}

/// Where the earlier pool is between two renames, and after them.
fn away(path: &Path) -> PathBuf {
    beside(&beside(path))
}

/// Lets the new pool and the earlier one change names. On error both have their own.
pub(super) fn change(path: &Path, new: &Path) -> Result<()> {
    sync_names_above(path)?;
    match exchange(path, new) {
        Err(error) if error.kind() == Kind::Unsupported => rename_both(path, new),
        changed => changed,
    }
}

/// The same, where a filesystem cannot do it in one step. On error both have their names.
fn rename_both(path: &Path, new: &Path) -> Result<()> {
    let away = away(path);
    let rename = |from: &Path, to: &Path| {
        fs::rename(from, to).map_err(|e| Error::os(format!("renaming {}", from.display()), &e))
    };
    if away.exists() {
        fail!(Exists, "{} is in the way: give it another name", away.display());
    }
    rename(path, &away)?;
    step!("upgrade.renamed");
    rename(new, path).inspect_err(|_| drop(fs::rename(&away, path)))
}

/// Does the second of two renames, if a process died after the first.
pub(super) fn end_renaming(path: &Path) -> Result<()> {
    let Ok(path) = std::path::absolute(path) else { return Ok(()) };
    let new = beside(&path);
    if path.file_name().is_none() || fs::symlink_metadata(&path).is_ok() {
        return Ok(());
    }
    match Upgrading::read(&new) {
        Ok(Some(left)) if left.is(&away(&path)) => fs::rename(&new, &path)
            .map_err(|e| Error::os(format!("renaming {}", new.display()), &e)),
        _ => Ok(()),
    }
}

/// Removes the earlier pool of one that has taken its name, and gives its devices to that; what
/// could not be had again.
pub(super) fn clear_away(path: &Path, left: &Upgrading) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    // Nothing of the earlier pool goes before the change of names is on the medium.
    sync_names_above(path)?;
    for earlier in [beside(path), away(path)] {
        if !left.is(&earlier) {
            continue;
        }
        bring_along(&earlier, path, &mut skipped)?;
        step!("upgrade.brought");
        if !has_marker(&earlier) && !is_unbegun(&earlier) {
            continue; // what could not be brought along is all that is left
        }
        match Pool::destroy(&earlier) {
            // Another process has done the same.
            Err(error) if error.kind() == Kind::NotFound && !earlier.exists() => {}
            destroyed => destroyed?,
        }
    }
    step!("upgrade.removed");
    for device in &left.devices {
        if PoolFile::read(path)?.devices.contains(device) {
            continue;
        }
        let added = Pool::open(path, Mode::ReadWrite, true).and_then(|pool| {
            // A node may have been given to another pool meanwhile.
            let added = pool.add_device(device, !devdax::is_node(device));
            pool.close();
            added
        });
        match added {
            Err(error) if error.kind() == Kind::Exists => {}
            Err(error) => skipped.push(format!("device {}: {error}", device.display())),
            Ok(()) => {}
        }
        step!("upgrade.added");
    }
    Upgrading::remove(path)?;
    step!("upgrade.ended");
    Ok(skipped)
}

/// Moves what users have put into the earlier pool's folder to the new one's.
fn bring_along(earlier: &Path, path: &Path, skipped: &mut Vec<String>) -> Result<()> {
    let uuid = PoolFile::read(path)?.uuid;
    let entries = fs::read_dir(earlier)
        .map_err(|e| Error::os(format!("listing {}", earlier.display()), &e))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        if is_part(&name, &uuid) {
            continue;
        }
        let to = path.join(&name);
        let moved = if fs::symlink_metadata(&to).is_ok() {
            Err(std::io::ErrorKind::AlreadyExists.into())
        } else {
            fs::rename(entry.path(), &to)
        };
        if let Err(e) = moved {
            skipped.push(format!("{} is no part of the pool: {e}", entry.path().display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Upgrading, away, beside, end_renaming, rename_both};
    use engram_base::error::Kind;
    use std::fs;
    use std::path::Path;

    /// A folder that says what it is.
    fn folder(path: &Path, what: &str) {
        fs::create_dir(path).unwrap();
        fs::write(path.join("what"), what).unwrap();
    }

    fn what(path: &Path) -> String {
        fs::read_to_string(path.join("what")).unwrap()
    }

    #[test]
    fn two_renames_do_what_an_exchange_does_and_the_second_is_done_after_a_death() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        folder(&path, "earlier");
        folder(&beside(&path), "new");
        folder(&away(&path), "in the way");
        assert_eq!(rename_both(&path, &beside(&path)).unwrap_err().kind(), Kind::Exists);
        assert_eq!((what(&path), what(&beside(&path))), ("earlier".into(), "new".into()));
        fs::remove_dir_all(away(&path)).unwrap();
        let left = Upgrading::of(&path, 5, &[]).unwrap();
        left.write(&beside(&path)).unwrap();
        rename_both(&path, &beside(&path)).unwrap();
        assert_eq!((what(&path), what(&away(&path))), ("new".into(), "earlier".into()));

        // A death between the two.
        fs::rename(&path, beside(&path)).unwrap();
        end_renaming(&path).unwrap();
        assert_eq!((what(&path), what(&away(&path))), ("new".into(), "earlier".into()));
        assert!(left.is(&away(&path)));
        end_renaming(&path).unwrap();

        // Somebody has moved the pool away, and its upgrade is not that far: nothing is renamed.
        fs::rename(&path, beside(&path)).unwrap();
        fs::rename(away(&path), dir.path().join("elsewhere")).unwrap();
        end_renaming(&path).unwrap();
        assert!(!path.exists());
    }
}
