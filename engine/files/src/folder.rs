//! Whose the folders and files of a realm are: its owner's and its group's, whoever makes them.
//!
//! Everybody of a realm must be able to open what anybody of it has made: a lease that cannot be
//! read may pin anything, so nothing could be allocated beside it. Files get the realm's mode
//! whatever the umask, and its group by the folder's setgid bit. Root, who may work in any realm,
//! gives what it makes there to the folder's owner.
//!
//! A name is on the medium only when its folder has been synced: syncing a file does not name it.
//! So a process that makes a file or folder that something durable will lead to syncs the folder
//! that names it first ([`sync_names`]), whatever the pool promises: it happens once for each.
//!
//! **Who else writes there.** Members of a group may rename what lies in a shared realm's folders,
//! and everybody may make things in a device's folder that is open to all. So nothing is given a
//! mode or an owner by its name: it is opened, no link followed, and given them only if it is what
//! this process has just made, where it made it ([`own`]). Otherwise a link put in its place would
//! have root give somebody's file away. Folders that were there before must be real ones
//! ([`check_real`]), and on a device theirs whose pool it is ([`check_theirs`]).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::scope::Scope;
use engram_base::user;

/// The mode of folders in which all who come there may make things of their own.
pub const STICKY: u32 = 0o1777;
const ROOT: u32 = 0;

/// Opens a folder; anything else is refused at once, a FIFO too.
pub fn open_folder(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC).open(path)
}

/// Opens a file or folder that this user has just made, to give it a mode or an owner. Anything
/// that somebody has put in its place is refused: a link, another user's, a file with another name,
/// or anything that does not lie at this path without links.
pub fn own(path: &Path) -> Result<File> {
    let shown = path.display();
    let refused = |e| Error::os(format!("opening {shown}"), &e);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
            fail!(Access, "{shown} was made here, and something else is there now: look who did it")
        }
        opened => opened.map_err(refused)?,
    };
    let meta = file.metadata().map_err(refused)?;
    let sole = meta.is_dir() || meta.is_file() && meta.nlink() == 1;
    if !sole || meta.uid() != user::current() || !lies_at(&file, path) {
        fail!(
            Access,
            "{shown} was made here, and something else of user {} is there now: look who did it",
            meta.uid()
        );
    }
    Ok(file)
}

/// Gives what is a user's own a mode, and a group; what lies there and is another's, or has other
/// names, is left as it is. No link is followed. Root may do so for others.
pub fn give_mode(path: &Path, owner: u32, group: u32, mode: u32) -> Result<()> {
    let refused = |e| Error::os(format!("setting the mode of {}", path.display()), &e);
    let there = fs::symlink_metadata(path).map_err(refused)?;
    if there.uid() != owner || there.is_symlink() {
        return Ok(());
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(refused)?;
    // Again, of what is open: something else may have been put there meanwhile.
    let meta = file.metadata().map_err(refused)?;
    let sole = meta.is_dir() || meta.is_file() && meta.nlink() == 1;
    if !sole || meta.uid() != owner || !lies_at(&file, path) {
        return Ok(());
    }
    if meta.gid() != group {
        fchown(&file, None, Some(group)).map_err(refused)?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(refused)?;
    file.sync_all().map_err(refused)
}

/// Whether an open file lies at this path, without any link on the way. Where there is no /proc,
/// nothing tells.
fn lies_at(file: &File, path: &Path) -> bool {
    let place = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    place.map_or(true, |place| place.as_path() == path)
}

/// Gives what this process has made exactly this mode.
pub fn set_mode(path: &Path, mode: u32) -> Result<()> {
    own(path)?
        .set_permissions(fs::Permissions::from_mode(mode))
        .map_err(|e| Error::os(format!("setting the mode of {}", path.display()), &e))
}

/// Makes a folder with exactly this mode, whatever the umask.
pub fn make_folder(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new()
        .mode(mode & 0o700)
        .create(path)
        .map_err(|e| Error::os(format!("making {}", path.display()), &e))?;
    set_mode(path, mode).inspect_err(|_| drop(fs::remove_dir(path)))
}

/// Refuses where anything between the pool's folder and this one, itself included, is no real
/// folder. A folder that is missing, or cannot be looked at, is left to the process that opens it.
pub fn check_real(pool: &Path, folder: &Path) -> Result<()> {
    let below = folder.ancestors().take_while(|above| *above != pool);
    for place in below {
        let Ok(meta) = fs::symlink_metadata(place) else { continue };
        if !meta.is_dir() {
            fail!(
                Corrupt,
                "{} should be a folder of the pool, and is {} of user {}: no link is followed \
                 there; take it away, or restore the folder",
                place.display(),
                what_is(&meta),
                meta.uid()
            );
        }
    }
    Ok(())
}

fn what_is(meta: &fs::Metadata) -> &'static str {
    if meta.is_symlink() {
        "a symbolic link"
    } else if meta.is_dir() {
        "a folder"
    } else {
        "a file"
    }
}

/// Refuses what a namespace has on a device, if it is not a real folder of root's, this user's, or
/// theirs whose the pool and the namespace are: a device's folder may be open to all.
pub fn check_theirs(namespace: &Path, folder: &Path) -> Result<()> {
    let shown = folder.display();
    let meta = match fs::symlink_metadata(folder) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::os(format!("looking at {shown}"), &e)),
    };
    let owner = |path: &Path| fs::metadata(path).map(|meta| meta.uid()).ok();
    let theirs = [Some(ROOT), Some(user::current()), owner(namespace), owner(all_of(namespace))];
    if !meta.is_dir() || !theirs.contains(&Some(meta.uid())) {
        fail!(
            Access,
            "{shown} should be a folder of the pool, and is {} that user {} has put there: have \
             it taken away",
            what_is(&meta),
            meta.uid()
        );
    }
    Ok(())
}

/// The folder of all namespaces, which is the pool's maker's.
fn all_of(namespace: &Path) -> &Path {
    namespace.parent().expect("<pool>/ns/<namespace>")
}

/// Gives a new file to the owner and the group of its folder, if root has made it for another.
pub fn hand_over(file: &File, path: &Path) -> Result<()> {
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
/// group that may write in the realm need not be allowed to make folders on the device. A folder
/// that is there already is checked, and synced again: the process that made it may have died
/// before.
///
/// # Panics
///
/// If `outer` is not `<device>/<uuid>/<namespace>`, or `namespace` not `<pool>/ns/<namespace>`.
pub fn make_for_namespace(namespace: &Path, outer: &Path) -> Result<()> {
    let private = outer.join(Scope::Private.as_str());
    let above = outer.parent().expect("<device>/<uuid>/<namespace>");
    let meta = fs::metadata(namespace)
        .map_err(|e| Error::os(format!("looking at {}", namespace.display()), &e))?;
    let made = |folder: &Path| match make_folder(folder, 0o700) {
        Err(error) if error.kind() == Kind::Exists => Ok(false),
        made => made.map(|()| true),
    };
    if made(above)? {
        like(above, all_of(namespace), 0o755)?;
    }
    check_theirs(namespace, above)?;
    if made(outer)? {
        give_to_group(outer, meta.gid())?;
        like(outer, namespace, meta.mode() & 0o7777)?;
    }
    check_theirs(namespace, outer)?;
    let published = outer.join(Scope::Published.as_str());
    if made(&published)? {
        let versions = namespace.join(Scope::Published.as_str());
        let meta = fs::metadata(&versions)
            .map_err(|e| Error::os(format!("looking at {}", versions.display()), &e))?;
        give_to_group(&published, meta.gid())?;
        like(&published, namespace, meta.mode() & 0o7777)?;
    }
    check_theirs(namespace, &published)?;
    if made(&private)? {
        like(&private, namespace, STICKY)?;
    }
    check_theirs(namespace, &private)?;
    // The process that made them may have died before this.
    [above, outer, &private].into_iter().try_for_each(sync_names_above)
}

/// Sees to it that the names in a folder, as they are now, survive power loss.
pub fn sync_names(folder: &Path) -> Result<()> {
    let synced = open_folder(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::os(format!("syncing the folder {}", folder.display()), &e))
}

/// As [`sync_names`], of the folder that names this file or folder. Where this user may enter it
/// and not read it, it belongs to another, who has made the name.
pub fn sync_names_above(path: &Path) -> Result<()> {
    match sync_names(path.parent().unwrap_or(Path::new("/"))) {
        Err(error) if error.kind() == Kind::Access => Ok(()),
        synced => synced,
    }
}

/// Makes the folder of a realm's spans on a device, with the realm's own owner, group and mode.
pub fn make_for_spans(realm: &Path, folder: &Path) -> Result<()> {
    let meta = fs::metadata(realm)
        .map_err(|e| Error::os(format!("looking at {}", realm.display()), &e))?;
    match make_folder(folder, 0o700) {
        Err(error) if error.kind() == Kind::Exists => {
            check_real(folder.parent().unwrap_or(folder), folder)?;
            return sync_names_above(folder);
        }
        made => made?,
    }
    give_to_group(folder, meta.gid())?;
    like(folder, realm, meta.mode() & 0o7777)?;
    sync_names_above(folder)
}

/// Gives a folder that this process has made to a group.
pub fn give_to_group(folder: &Path, group: u32) -> Result<()> {
    fchown(own(folder)?, None, Some(group))
        .map_err(|e| Error::os(format!("giving {} to its group", folder.display()), &e))
}

/// Gives a file or folder that root has made for others to its owner. For anybody else it is done:
/// anything that a user makes is the user's.
pub fn give(made: &Path, owner: u32, group: u32) -> Result<()> {
    if user::current() != ROOT || owner == ROOT {
        return Ok(());
    }
    fchown(own(made)?, Some(owner), Some(group))
        .map_err(|e| Error::os(format!("giving {} to its owner", made.display()), &e))
}

/// Whether this is a real folder, and the user's.
pub fn belongs_to(folder: &Path, user: u32) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == user)
}

/// Whether a user's own folder is there, in a place where anybody may have put something: a real
/// folder, the user's, and closed to others. Anything else is refused.
pub fn check_own(folder: &Path, user: u32) -> Result<bool> {
    let shown = folder.display();
    let meta = match fs::symlink_metadata(folder) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::os(format!("looking at {shown}"), &e)),
    };
    if !meta.is_dir() || meta.uid() != user {
        fail!(
            Access,
            "{shown} should be the private folder of user {user}, and is {} that user {} has put \
             there: have that user, or the namespace's owner, take it away",
            what_is(&meta),
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

/// Gives what root has made the owner of something else, and its mode.
pub fn like_another(made: &Path, other: &Path) -> Result<()> {
    let meta = fs::metadata(other)
        .map_err(|e| Error::os(format!("looking at {}", other.display()), &e))?;
    like(made, other, meta.mode() & 0o7777)
}

/// Gives a folder that root has made the owner of another one, and the mode.
fn like(folder: &Path, other: &Path, mode: u32) -> Result<()> {
    let refused = |e| Error::os(format!("setting owner and mode of {}", folder.display()), &e);
    let other = fs::metadata(other).map_err(refused)?;
    let made = own(folder)?;
    if user::current() == ROOT && other.uid() != ROOT {
        fchown(&made, Some(other.uid()), Some(other.gid())).map_err(refused)?;
    }
    made.set_permissions(fs::Permissions::from_mode(mode)).map_err(refused)
}

#[cfg(test)]
mod tests;
