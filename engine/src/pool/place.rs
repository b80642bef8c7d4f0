//! Where a pool may be made.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::destroy::remove_half_made;
use super::file::{CREATING, DESTROYING, POOL_FILE, is_unbegun, remove_unfinished, what_is_there};
use crate::error::{Error, Kind, Result};
use crate::fail;
use crate::folder::set_mode;
use crate::lease;
use crate::media::devdax;

/// Refuses a path in the folder of another pool, however deep and by whatever links.
pub(super) fn refuse_within(path: &Path) -> Result<()> {
    let Some(above) = path.parent().and_then(|above| fs::canonicalize(above).ok()) else {
        return Ok(()); // what is missing is told by who makes the folder
    };
    let markers = [POOL_FILE, CREATING, DESTROYING];
    let is_pool = |folder: &&Path| markers.iter().any(|marker| folder.join(marker).exists());
    match above.ancestors().find(is_pool) {
        None => Ok(()),
        Some(pool) => fail!(
            Argument,
            "{} lies in the folder of the pool {}: choose a path outside of it",
            path.display(),
            pool.display()
        ),
    }
}

/// Makes the pool's folder if it is not there; returns whether it did.
pub(super) fn ensure_folder(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Ok(false),
        Ok(_) if devdax::is_node(path) => fail!(
            Exists,
            "{} is a devdax node, which keeps no files: make the pool in a folder, and give it the \
             node as a further device (--device)",
            path.display()
        ),
        Ok(_) => fail!(Exists, "{} is a file: choose a path that does not exist", path.display()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::os(format!("looking at {}", path.display()), &e)),
    }
    match make_open_folder(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == Kind::Access => Err(Error::new(
            Kind::Access,
            format!(
                "no pool can be made at {}: {} may not make anything in the folder above it; \
                 choose another place, or ask whose it is ({})",
                path.display(),
                lease::shown_user(lease::user()),
                error.message()
            ),
        )),
        Err(error) if error.kind() == Kind::Exists && path.is_dir() => Ok(false),
        Err(error) if error.kind() == Kind::NotFound => {
            if path.parent().is_some_and(Path::is_dir) {
                fail!(
                    Unsupported,
                    "the filesystem of {} lets nobody make a folder there: choose another place",
                    path.display()
                )
            }
            fail!(NotFound, "the folder above {} does not exist: make it first", path.display())
        }
        Err(error) => Err(error),
    }
}

/// Makes a folder that all may enter, whatever the umask. There is nothing in it that must be kept
/// from anybody, so it is made open: who dies just then leaves what the next to come takes over.
fn make_open_folder(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .mode(0o755)
        .create(path)
        .map_err(|e| Error::os(format!("making {}", path.display()), &e))?;
    set_mode(path, 0o755).inspect_err(|_| drop(fs::remove_dir(path)))
}

/// Whether a pool can be made in the folder; what somebody died making there is taken away. The
/// caller has the turn.
pub(super) fn check_empty(path: &Path) -> Result<()> {
    if is_unbegun(path) {
        remove_unfinished(path);
        return Ok(());
    }
    let has = |marker: &str| path.join(marker).exists();
    if has(CREATING) && !has(POOL_FILE) && !has(DESTROYING) {
        remove_half_made(path)?;
        if is_unbegun(path) {
            remove_unfinished(path);
            return Ok(());
        }
    }
    if path.join(POOL_FILE).exists() {
        fail!(Exists, "a pool exists at {}: open it, or destroy it first", path.display());
    }
    if path.join(CREATING).exists() || path.join(DESTROYING).exists() {
        return Err(what_is_there(path));
    }
    fail!(
        Exists,
        "{} is a folder with other files in it: choose a path that does not exist",
        path.display()
    )
}
