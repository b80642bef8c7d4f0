//! Whose the folders and files of a realm are: its owner's and its group's, whoever makes them.
//!
//! Everybody of a realm must be able to open what anybody of it has made: a lease that cannot be
//! read may pin anything, so nothing could be allocated beside it. Files get the realm's mode
//! whatever the umask, and its group by the folder's setgid bit. Root, who may work in any realm,
//! gives what it makes there to the folder's owner.
//!
//! A name is on the medium only when its folder has been synced: syncing a file does not name it.
//! So whoever makes a file or folder that something durable will lead to syncs the folder that
//! names it first ([`sync_names`]), whatever the pool promises: it happens once for each.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::fail;
use crate::namespace::{STICKY, make_folder};
use crate::scope::Scope;

const ROOT: u32 = 0;

/// Gives a new file to the owner and the group of its folder, if root has made it for another.
pub(crate) fn hand_over(file: &File, path: &Path) -> Result<()> {
    let refused = |e| Error::os(format!("giving {} to its folder's owner", path.display()), &e);
    let made_by = file.metadata().map_err(refused)?.uid();
    let folder = fs::metadata(path.parent().unwrap_or(Path::new("/"))).map_err(refused)?;
    if made_by == ROOT && folder.uid() != ROOT {
        fchown(file, Some(folder.uid()), Some(folder.gid())).map_err(refused)?;
    }
    Ok(())
}

/// Makes what a namespace has on a device: its folder, which admits whom the namespace's own
/// admits, and in it the one for private realms. They are made with the namespace, by its owner: a
/// group that may write in the realm need not be allowed to make folders on the device.
pub(crate) fn make_for_namespace(namespace: &Path, outer: &Path) -> Result<()> {
    let private = outer.join(Scope::Private.as_str());
    let above = outer.parent().expect("<device>/<uuid>/<namespace>");
    let meta = fs::metadata(namespace)
        .map_err(|e| Error::os(format!("looking at {}", namespace.display()), &e))?;
    let made = |folder: &Path| match make_folder(folder, 0o700) {
        Err(error) if error.kind() == Kind::Exists => Ok(false),
        made => made.map(|()| true),
    };
    if made(above)? {
        like(above, above.parent().expect("as above"), 0o755)?;
    }
    if made(outer)? {
        give_to_group(outer, meta.gid())?;
        like(outer, namespace, meta.mode() & 0o7777)?;
    }
    let published = outer.join(Scope::Published.as_str());
    if made(&published)? {
        let versions = namespace.join(Scope::Published.as_str());
        let meta = fs::metadata(&versions)
            .map_err(|e| Error::os(format!("looking at {}", versions.display()), &e))?;
        give_to_group(&published, meta.gid())?;
        like(&published, namespace, meta.mode() & 0o7777)?;
    }
    if made(&private)? {
        like(&private, namespace, STICKY)?;
    }
    // Whoever has made them may have died before this.
    [above, outer, &private].into_iter().try_for_each(sync_names_above)
}

/// Sees to it that the names in a folder, as they are now, survive power loss.
pub(crate) fn sync_names(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::os(format!("syncing the folder {}", folder.display()), &e))
}

/// As [`sync_names`], of the folder that names this file or folder. Where this user may enter it
/// and not read it, it is another's, who has made the name.
pub(crate) fn sync_names_above(path: &Path) -> Result<()> {
    match sync_names(path.parent().unwrap_or(Path::new("/"))) {
        Err(error) if error.kind() == Kind::Access => Ok(()),
        synced => synced,
    }
}

/// Makes the folder of a realm's spans on a device, with the realm's own owner, group and mode.
pub(crate) fn make_for_spans(realm: &Path, folder: &Path) -> Result<()> {
    let meta = fs::metadata(realm)
        .map_err(|e| Error::os(format!("looking at {}", realm.display()), &e))?;
    match make_folder(folder, 0o700) {
        Err(error) if error.kind() == Kind::Exists => return sync_names_above(folder),
        made => made?,
    }
    give_to_group(folder, meta.gid())?;
    like(folder, realm, meta.mode() & 0o7777)?;
    sync_names_above(folder)
}

fn give_to_group(folder: &Path, group: u32) -> Result<()> {
    chown(folder, None, Some(group))
        .map_err(|e| Error::os(format!("giving {} to its group", folder.display()), &e))
}

/// Whether this is a real folder, and the user's.
pub(crate) fn belongs_to(folder: &Path, user: u32) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == user)
}

/// Whether a user's own folder is there, in a place where anybody may have put something: a real
/// folder, the user's, and closed to others. Anything else is refused.
pub(crate) fn check_own(folder: &Path, user: u32) -> Result<bool> {
    let shown = folder.display();
    let meta = match fs::symlink_metadata(folder) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::os(format!("looking at {shown}"), &e)),
    };
    if !meta.is_dir() || meta.uid() != user {
        let what = if meta.is_symlink() {
            "a symbolic link"
        } else if meta.is_dir() {
            "a folder"
        } else {
            "a file"
        };
        fail!(
            Access,
            "{shown} should be the private folder of user {user}, and is {what} that user {} has \
             put there: have that user, or the namespace's owner, take it away",
            meta.uid()
        );
    }
    if meta.mode() & 0o077 != 0 {
        fail!(
            Access,
            "{shown} is open to others (mode {:#o}), and must be private: close it (chmod 700), \
             and think of who may have looked or written there",
            meta.mode() & 0o7777
        );
    }
    Ok(true)
}

/// Gives a folder that root has made the owner of another one, and the mode.
fn like(folder: &Path, other: &Path, mode: u32) -> Result<()> {
    let refused = |e| Error::os(format!("setting owner and mode of {}", folder.display()), &e);
    let other = fs::metadata(other).map_err(refused)?;
    if fs::metadata(folder).map_err(refused)?.uid() == ROOT && other.uid() != ROOT {
        chown(folder, Some(other.uid()), Some(other.gid())).map_err(refused)?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).map_err(refused)
}
