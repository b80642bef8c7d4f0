//! Whose the folders and files of a realm are: its owner's and its group's, whoever makes them.
//!
//! Everybody of a realm must be able to open what anybody of it has made: a lease that cannot be
//! read may pin anything, so nothing could be allocated beside it. Files get the realm's mode
//! whatever the umask, and its group by the folder's setgid bit. Root, who may work in any realm,
//! gives what it makes there to the folder's owner.

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
    if folder.is_dir() {
        return Ok(());
    }
    let outer = folder.parent().expect("<device>/<uuid>/<namespace>/shared");
    for above in [outer.parent().expect("as above"), outer] {
        match make_folder(above, 0o755) {
            Err(error) if error.kind() == Kind::Exists => {}
            made => made.and_then(|()| like(above, above.parent().expect("as above"), 0o755))?,
        }
    }
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

/// Gives a folder that root has made the owner of another one, and the mode.
fn like(folder: &Path, other: &Path, mode: u32) -> Result<()> {
    let refused = |e| Error::os(format!("setting owner and mode of {}", folder.display()), &e);
    let other = fs::metadata(other).map_err(refused)?;
    if fs::metadata(folder).map_err(refused)?.uid() == ROOT && other.uid() != ROOT {
        chown(folder, Some(other.uid()), Some(other.gid())).map_err(refused)?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).map_err(refused)
}
