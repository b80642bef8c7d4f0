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
use crate::namespace::make_folder;

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

/// Makes the folder of a realm's spans on a device, with the realm's own owner, group and mode.
/// It is made with the namespace, by its owner: a group that may write in the realm need not be
/// allowed to make folders on the device.
pub(crate) fn make_for_spans(realm: &Path, folder: &Path) -> Result<()> {
    let outer = folder.parent().expect("<device>/<uuid>/<namespace>/shared");
    let uuid = outer.parent().expect("as above");
    if !folder.is_dir() {
        for above in [uuid, outer] {
            match make_folder(above, 0o755) {
                Err(error) if error.kind() == Kind::Exists => {}
                made => made.and_then(|()| like(above, above.parent().expect("as above"), 0o755))?,
            }
        }
        make_like(realm, folder)?;
    }
    // Whoever has made them may have died before this.
    [folder, outer, uuid].into_iter().try_for_each(sync_names_above)
}

/// Makes a folder with the owner, group and mode of another one, unless it is there.
fn make_like(realm: &Path, folder: &Path) -> Result<()> {
    let meta = fs::metadata(realm)
        .map_err(|e| Error::os(format!("looking at {}", realm.display()), &e))?;
    match make_folder(folder, 0o700) {
        Err(error) if error.kind() == Kind::Exists => return Ok(()),
        made => made?,
    }
    chown(folder, None, Some(meta.gid()))
        .map_err(|e| Error::os(format!("giving {} to its group", folder.display()), &e))?;
    like(folder, realm, meta.mode() & 0o7777)
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

/// Gives a folder that root has made the owner of another one, and the mode.
fn like(folder: &Path, other: &Path, mode: u32) -> Result<()> {
    let refused = |e| Error::os(format!("setting owner and mode of {}", folder.display()), &e);
    let other = fs::metadata(other).map_err(refused)?;
    if fs::metadata(folder).map_err(refused)?.uid() == ROOT && other.uid() != ROOT {
        chown(folder, Some(other.uid()), Some(other.gid())).map_err(refused)?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).map_err(refused)
}
