//! Taking a pool away: all of it, or with a marker that says what is left to do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::absolute;
use super::belongs;
use crate::namespace;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::node_files;
use engram_base::pool_lock::PoolLock;
use engram_base::user;
use engram_files::folder::sync_names;
use engram_files::paths;
use engram_files::pool_file::FORMAT;
use engram_files::pool_file::{
    CREATING, DESTROYING, POOL_FILE, PoolFile, UPGRADING, is_unbegun, remove_unfinished,
    what_is_there,
};
use engram_media::{devdax, emulated};
use engram_realm::process;

/// See [`Pool::destroy_with`].
pub(super) fn destroy_with(path: &Path, force: bool) -> Result<()> {
    let path = &absolute(path)?;
    let there = |error| if path.is_dir() { error } else { what_is_there(path) };
    let _pool_lock = PoolLock::take(path).map_err(there)?;
    let (file, marker) = match PoolFile::read_to_destroy(path) {
        Ok(file) => (file, POOL_FILE),
        Err(error) => {
            let left = [DESTROYING, CREATING].into_iter().find(|m| path.join(m).exists());
            match left {
                Some(marker) => (PoolFile::load(path, marker)?, marker),
                None if is_unbegun(path) => return remove_unbegun(path),
                None => return Err(error),
            }
        }
    };
    let owner = path.join(marker);
    let whole = marker == POOL_FILE && file.format == FORMAT;
    let removed = refuse_in_use(path, &file, marker)
        .and_then(|()| belongs::to_clear(path, &file, whole, force))
        .and_then(|devices| Ok((rename_away(path, marker)?, devices)))
        .and_then(|(away, devices)| remove_all(path, &file, &devices, &away));
    removed.map_err(|error| owner_alone(&owner, path, "destroy it", error))?;
    clear(path, true);
    Ok(())
}

/// Refuses to take away what others have kept there, or have open.
fn refuse_in_use(path: &Path, file: &PoolFile, marker: &str) -> Result<()> {
    for name in namespace::names(path).unwrap_or_default() {
        namespace::refuse_others(path, file, &name)?;
    }
    refuse_foreign(path, file, marker)?;
    refuse_users(path)
}

/// Marks a pool as one that is being destroyed; the marker's path.
fn rename_away(path: &Path, marker: &str) -> Result<PathBuf> {
    let away = path.join(DESTROYING);
    fs::rename(path.join(marker), &away)
        .map_err(|e| Error::os(format!("destroying {}", path.display()), &e))?;
    // A process that opens it from here on fails; one that opened it before has a lease by now.
    if let Err(error) = refuse_users(path) {
        fs::rename(&away, path.join(marker))
            .map_err(|e| Error::os(format!("putting back {}", path.display()), &e))?;
        return Err(error);
    }
    // Nobody may find, after a loss of power, a pool of which parts are gone.
    sync_names(path).inspect_err(|_| drop(fs::rename(&away, path.join(marker))))?;
    Ok(away)
}

/// Removes all that a pool has on these devices, and at last the marker that says what is there.
fn remove_all(path: &Path, file: &PoolFile, devices: &[PathBuf], marker: &Path) -> Result<()> {
    for name in namespace::names(path).unwrap_or_default() {
        let realms = namespace::realm_folders(&paths::place(path, &name));
        realms.unwrap_or_default().iter().for_each(|realm| process::detach(realm));
    }
    for device in devices {
        if devdax::is_node(device) {
            devdax::disclaim(device, &file.label())?;
            continue;
        }
        let spans = device.join(&file.uuid);
        if spans.exists() {
            fs::remove_dir_all(&spans)
                .map_err(|e| Error::os(format!("removing {}", spans.display()), &e))?;
        }
    }
    // The marker goes last: a file that cannot be removed now is left to the next process that
    // destroys the pool.
    let namespaces = paths::folder(path);
    if namespaces.exists() {
        fs::remove_dir_all(&namespaces)
            .map_err(|e| Error::os(format!("removing {}", namespaces.display()), &e))?;
    }
    for name in [emulated::CLOCK_FILE].iter().chain(&node_files::ALL) {
        let _ = fs::remove_file(path.join(name));
    }
    sync_names(path)?;
    fs::remove_file(marker).map_err(|e| Error::os(format!("removing {}", marker.display()), &e))
}

/// Takes away what somebody died making, and leaves the folder. Nobody has such a pool open, and
/// nothing in it was ever acknowledged. The caller has the pool lock, so its maker is gone.
pub(super) fn remove_half_made(path: &Path) -> Result<()> {
    let marker = path.join(CREATING);
    let meta = fs::symlink_metadata(&marker)
        .map_err(|e| Error::os(format!("looking at {}", marker.display()), &e))?;
    if ![meta.uid(), 0].contains(&user::current()) {
        return Err(owner_alone(
            &marker,
            path,
            "make it anew or take it away",
            Error::new(Kind::Access, what_is_there(path).message()),
        ));
    }
    let file = PoolFile::load(path, CREATING)?;
    refuse_in_use(path, &file, CREATING)?;
    let devices = belongs::to_clear(path, &file, false, false)?;
    remove_all(path, &file, &devices, &marker)
}

/// Removes a folder in which somebody died before there was anything of a pool.
fn remove_unbegun(path: &Path) -> Result<()> {
    remove_unfinished(path);
    fs::remove_dir(path).map_err(|e| {
        Error::os(format!("removing the folder {}, in which no pool is", path.display()), &e)
    })
}

/// The user who may do what the kernel has refused to a stranger: the owner of the file.
pub(super) fn owner_alone(file: &Path, pool: &Path, what: &str, error: Error) -> Error {
    let (Ok(meta), user) = (fs::symlink_metadata(file), user::current()) else { return error };
    if error.kind() != Kind::Access || user == 0 || user == meta.uid() {
        return error;
    }
    Error::new(
        Kind::Access,
        format!(
            "the pool {} is that of {}, who alone, beside root, may {what}: ask them; you are {}",
            pool.display(),
            user::shown(meta.uid()),
            user::shown(user)
        ),
    )
}

/// Refuses to take a pool away that somebody has open.
fn refuse_users(path: &Path) -> Result<()> {
    let names = match namespace::names(path) {
        Err(error) if error.kind() == Kind::NotFound => Vec::new(),
        names => names?,
    };
    for name in names {
        for realm in namespace::realm_folders(&paths::place(path, &name))? {
            let users = namespace::users(&realm)?;
            if !users.is_empty() {
                fail!(
                    Busy,
                    "{} is open in process {users:?}: close it there first",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// Refuses to remove, on the word of the pool's description, what another than its writer has on a
/// device: anybody can write a description that names others' folders.
fn refuse_foreign(path: &Path, file: &PoolFile, marker: &str) -> Result<()> {
    let owner = |path: &Path| {
        let meta = fs::symlink_metadata(path)?;
        Ok::<_, std::io::Error>(meta.uid())
    };
    let looked = |e| Error::os(format!("looking at {}", path.display()), &e);
    let writer = owner(&path.join(marker)).map_err(looked)?;
    for device in file.folders().iter().filter(|device| *device != path) {
        let spans = device.join(&file.uuid);
        match owner(&spans) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(looked(e)),
            Ok(user) if writer == 0 || user == writer => {}
            Ok(user) => fail!(
                Access,
                "{} says that {} is this pool's; but user {writer} has written that, and the \
                 folder is user {user}'s: nothing was removed; have user {user} take it away first",
                path.join(marker).display(),
                spans.display()
            ),
        }
    }
    Ok(())
}

/// Removes what is ours in the pool's folder, and the folder itself if nothing else is in it.
/// Descriptions that others have put there say nothing of what is to go.
pub(super) fn clear(path: &Path, folder_too: bool) {
    for marker in [CREATING, POOL_FILE] {
        let ours = fs::symlink_metadata(path.join(marker));
        if !ours.is_ok_and(|meta| meta.uid() == user::current()) {
            continue;
        }
        let Ok(file) = PoolFile::load(path, marker) else { continue };
        for node in file.nodes() {
            let _ = devdax::disclaim(node, &file.label());
        }
        for device in file.folders() {
            let _ = fs::remove_dir_all(device.join(&file.uuid));
        }
    }
    let namespaces = fs::remove_dir_all(paths::folder(path));
    if namespaces.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
        return; // with its marker, which says what this is
    }
    for name in [emulated::CLOCK_FILE, UPGRADING, POOL_FILE, CREATING, DESTROYING] {
        let _ = fs::remove_file(path.join(name));
    }
    remove_unfinished(path);
    if folder_too {
        let _ = fs::remove_dir(path);
    }
}
