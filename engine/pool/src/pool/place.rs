//! Where a pool, and what it has on a device, may be made.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::belongs::PLACE;
use super::destroy::remove_half_made;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::user;
use engram_files::folder::set_mode;
use engram_files::pool_file::{
    CREATING, DESTROYING, POOL_FILE, PoolFile, is_unbegun, remove_unfinished, what_is_there,
};
use engram_media::devdax;

/// Refuses a path in the folder of another pool, however deep and by whatever links.
pub(super) fn refuse_within(path: &Path) -> Result<()> {
    let Some(above) = path.parent().and_then(|above| fs::canonicalize(above).ok()) else {
        return Ok(()); // what is missing is reported where the folder is made
    };
    match pool_around(&above) {
        None => Ok(()),
        Some(pool) => fail!(
            Argument,
            "{} lies in the folder of the pool {}: choose a path outside of it",
            path.display(),
            pool.display()
        ),
    }
}

/// Refuses a device, by its real path, that is a pool's folder, or lies in one: what is made there
/// would stand among that pool's own things.
pub(super) fn refuse_in_pool(device: &Path) -> Result<()> {
    match pool_around(device) {
        None => Ok(()),
        Some(pool) => fail!(
            Argument,
            "device {} lies in {}, which is a pool's: choose a folder outside of it",
            device.display(),
            pool.display()
        ),
    }
}

/// The pool's folder, or what a pool has on a device, that this is or lies in.
fn pool_around(folder: &Path) -> Option<&Path> {
    let markers = [POOL_FILE, CREATING, DESTROYING, PLACE];
    let is_pool = |folder: &&Path| markers.iter().any(|marker| folder.join(marker).exists());
    folder.ancestors().find(is_pool)
}

/// Refuses a device that is there and has nothing of the pool: most likely what should be mounted
/// there is not, and what is put there now would be out of sight once it is.
pub(super) fn refuse_bare(path: &Path, file: &PoolFile, device: &Path) -> Result<()> {
    let spans = device.join(&file.uuid);
    match fs::symlink_metadata(&spans) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => fail!(
            NotFound,
            "device {} has nothing of {} (no folder {}): mount what belongs there, and open again",
            device.display(),
            path.display(),
            file.uuid
        ),
        _ => Ok(()),
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
                user::shown(user::current()),
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
/// from anybody, so it is made open: a process that dies just then leaves a folder that the next to
/// come takes over.
fn make_open_folder(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .mode(0o755)
        .create(path)
        .map_err(|e| Error::os(format!("making {}", path.display()), &e))?;
    set_mode(path, 0o755).inspect_err(|_| drop(fs::remove_dir(path)))
}

/// Whether a pool can be made in the folder; a pool that somebody died making there is taken away.
/// The caller has the pool lock.
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

#[cfg(test)]
mod tests {
    use super::{POOL_FILE, check_empty, ensure_folder, refuse_in_pool, refuse_within};
    use engram_base::error::Kind;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn no_pool_is_made_within_another_by_whatever_links() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let deep = top.join("pool/a/b");
        fs::create_dir_all(&deep).unwrap();
        refuse_within(&deep.join("new")).unwrap();
        refuse_in_pool(&deep).unwrap();
        fs::write(top.join("pool").join(POOL_FILE), "").unwrap();
        symlink(&deep, top.join("link")).unwrap();
        for inside in [deep.join("new"), top.join("link/new"), top.join("pool/new")] {
            assert_eq!(refuse_within(&inside).unwrap_err().kind(), Kind::Argument, "{inside:?}");
        }
        assert_eq!(refuse_in_pool(&deep).unwrap_err().kind(), Kind::Argument);
        refuse_within(&top.join("pool")).unwrap();
        refuse_within(&top.join("beside")).unwrap();
    }

    #[test]
    fn a_pool_is_made_in_a_folder_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        assert_eq!(ensure_folder(&path.join("deeper")).unwrap_err().kind(), Kind::NotFound);
        assert!(ensure_folder(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(!ensure_folder(&path).unwrap());
        check_empty(&path).unwrap();
        fs::write(path.join("somebody's"), "").unwrap();
        let refused = check_empty(&path).unwrap_err();
        assert_eq!(refused.kind(), Kind::Exists);
        assert!(refused.message().contains("other files"), "{refused}");
        fs::write(path.join(POOL_FILE), "").unwrap();
        let refused = check_empty(&path).unwrap_err();
        assert!(refused.message().contains("a pool exists"), "{refused}");
        assert!(path.join("somebody's").exists(), "what is refused is left as it is");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(ensure_folder(&file).unwrap_err().kind(), Kind::Exists);
    }
}
