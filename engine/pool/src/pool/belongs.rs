//! Which pool's folder a device belongs to.
//!
//! A pool's folder can be copied, and the copy's description names the same further devices. Two
//! pools that take space from one folder of a device would write over each other's values: each has
//! a catalog that knows nothing of the other's. So the part of a pool on a device says which folder
//! it belongs to: by inode, and by the number of the filesystem, which may be another after a
//! restart; then the path must be the same. The opening of a pool whose device belongs to another
//! folder is refused.
//!
//! A pool that was renamed is itself still. One that was moved to another filesystem, or restored
//! from a copy, is another folder: its user says that it is the one (`adopt`), which is refused
//! while the former folder is there and lists the device. A device of an earlier engine may say
//! nothing of where it belongs: it goes to the pool that is first opened for writing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::absolute;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::pool_lock::PoolLock;
use engram_files::folder::{give, open_folder};
use engram_files::pool_file::{CREATING, DESTROYING, POOL_FILE, PoolFile};
use engram_files::toml_file::{read_toml, write_toml};
use engram_media::{boot_id, devdax};

/// The file, in what the pool has on a device.
pub(super) const PLACE: &str = ".pool.toml";

/// A pool's folder, as a device tells of it. Numbers are hexadecimal: TOML's have a sign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PoolFolder {
    uuid: String,
    pool: String,
    device: String,
    inode: String,
    boot: String,
}

impl PoolFolder {
    fn of(pool: &Path, uuid: &str) -> Result<PoolFolder> {
        let meta = fs::metadata(pool)
            .map_err(|e| Error::os(format!("looking at {}", pool.display()), &e))?;
        Ok(PoolFolder {
            uuid: uuid.to_owned(),
            pool: pool.to_string_lossy().into_owned(),
            device: format!("{:x}", meta.dev()),
            inode: format!("{:x}", meta.ino()),
            boot: format!("{:032x}", u128::from_be_bytes(boot_id())),
        })
    }

    /// Whether it is the same folder.
    fn is(&self, other: &PoolFolder) -> bool {
        let restarted = self.boot != other.boot;
        let there = self.device == other.device || restarted && self.pool == other.pool;
        self.inode == other.inode && there
    }
}

/// What a device says of where it belongs, if anything.
fn read(device: &Path, uuid: &str) -> Result<Option<PoolFolder>> {
    if devdax::is_node(device) {
        return match devdax::note(device) {
            // Of a node that another pool has taken over, its label tells.
            Ok(note) => Ok(note
                .and_then(|text| toml::from_str(&text).ok())
                .filter(|place: &PoolFolder| place.uuid == uuid)),
            // A user who may not open the node uses nothing of it.
            Err(error) if error.kind() == Kind::Access => Ok(None),
            Err(error) => Err(error),
        };
    }
    let folder = device.join(uuid);
    match read_toml(&folder.join(PLACE)) {
        Ok(place) => Ok(Some(place)),
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Access) => Ok(None),
        Err(_) if !folder.is_dir() => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(device: &Path, file: &PoolFile, place: &PoolFolder) -> Result<()> {
    if devdax::is_node(device) {
        devdax::open(device, &file.label(), true)?;
        let text = toml::to_string(place)
            .map_err(|e| Error::new(Kind::Os, format!("writing to {}: {e}", device.display())))?;
        return devdax::set_note(device, &text);
    }
    let folder = device.join(&file.uuid);
    let file = folder.join(PLACE);
    write_toml(&file, place, 0o644)?;
    let meta = fs::metadata(&folder)
        .map_err(|e| Error::os(format!("looking at {}", folder.display()), &e))?;
    give(&file, meta.uid(), meta.gid())
}

/// Whether the folder that a device says it belongs to is another than this one, and has it still.
fn still_has(said: &PoolFolder, now: &PoolFolder, uuid: &str, device: &Path) -> bool {
    let former = Path::new(&said.pool);
    if PoolFolder::of(former, uuid).is_ok_and(|there| there.is(now)) {
        return false;
    }
    [POOL_FILE, CREATING, DESTROYING].iter().any(|marker| match PoolFile::load(former, marker) {
        Ok(file) => file.uuid == uuid && file.devices[1..].iter().any(|other| other == device),
        // A folder that cannot be looked at may be that.
        Err(error) => error.kind() == Kind::Access || former.join(marker).exists(),
    })
}

/// The refusal of a device that belongs to another folder.
fn refusal(path: &Path, device: &Path, said: &PoolFolder, there: bool) -> Error {
    let (path, device, former) = (path.display(), device.display(), &said.pool);
    if there {
        return Error::new(
            Kind::Busy,
            format!(
                "{path} is a copy of the pool {former}, and {device} is that one's: each would \
                 write over the other's values there. Use {former}; copy a pool with `engram \
                 backup`, or its devices with its folder (see \"Moving and copying a pool\")"
            ),
        );
    }
    Error::new(
        Kind::Format,
        format!(
            "{device} belongs to the pool {former}, which is not there any more: if {path} is that \
             pool, moved or restored, and no other copy of it is to be used, say so with `engram \
             adopt {path}`"
        ),
    )
}

/// Says on a device that is being given to a pool that it belongs there. On a node the label has
/// been written.
pub(super) fn claim(path: &Path, file: &PoolFile, device: &Path) -> Result<()> {
    write(device, file, &PoolFolder::of(path, &file.uuid)?)
}

/// Refuses a folder that is to become a device and has a copy's values already.
pub(super) fn check_new(path: &Path, file: &PoolFile, device: &Path) -> Result<()> {
    let now = PoolFolder::of(path, &file.uuid)?;
    match read(device, &file.uuid)? {
        Some(said) if !said.is(&now) => fail!(
            Exists,
            "device {} serves the pool {} already, of which {} is a copy: choose another folder, \
             or, if that pool is no more, remove {} first",
            device.display(),
            said.pool,
            path.display(),
            device.join(&file.uuid).display()
        ),
        _ => Ok(()),
    }
}

/// Refuses a pool that has a device which belongs to another folder.
pub fn check(path: &Path, file: &PoolFile) -> Result<()> {
    let Some(further) = file.devices.get(1..).filter(|further| !further.is_empty()) else {
        return Ok(());
    };
    let now = PoolFolder::of(path, &file.uuid)?;
    for device in further {
        if let Some(said) = read(device, &file.uuid)?
            && !said.is(&now)
        {
            let there = still_has(&said, &now, &file.uuid, device);
            return Err(refusal(path, device, &said, there));
        }
    }
    Ok(())
}

/// Says on devices that say nothing yet, or what is no more quite so, where they belong, as far as
/// this user may. To fail in it is no reason not to open the pool.
pub(super) fn record_pool_folder(path: &Path, file: &PoolFile) -> Result<()> {
    for device in &file.devices[1..] {
        let now = PoolFolder::of(path, &file.uuid)?;
        if read(device, &file.uuid)?.is_some_and(|said| said == now) {
            continue;
        }
        // Of two copies of a pool that said nothing, one is the first.
        let folder = open_folder(&device.join(&file.uuid)).ok();
        if folder.as_ref().is_some_and(|folder| folder.try_lock().is_err()) {
            continue;
        }
        let said = read(device, &file.uuid)?;
        if said.is_none_or(|said| said.is(&now)) {
            let _ = write(device, file, &now);
        }
    }
    check(path, file)
}

/// The devices from which what a pool has is to be removed, its own folder among them. With `force`
/// none is missed.
pub(super) fn to_clear(
    path: &Path,
    file: &PoolFile,
    whole: bool,
    force: bool,
) -> Result<Vec<PathBuf>> {
    let now = PoolFolder::of(path, &file.uuid)?;
    let mut found = vec![path.to_owned()];
    for device in &file.devices[1..] {
        let node = devdax::is_node(device);
        let nothing = |place: &Path| {
            fs::symlink_metadata(place).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        };
        if !node && (nothing(device) || whole && nothing(&device.join(&file.uuid))) {
            if force {
                continue;
            }
            fail!(
                NotFound,
                "device {} is missing, or has nothing of {}: mount it, and destroy the pool then; \
                 with force=True (--force) the rest is destroyed, and what is on it stays",
                device.display(),
                path.display()
            );
        }
        match read(device, &file.uuid)? {
            Some(said) if !said.is(&now) => {
                // The original's, of which this is a copy; or nobody knows whose.
                if !still_has(&said, &now, &file.uuid, device) && !force {
                    fail!(
                        Format,
                        "{} belongs to the pool {}, which is not there any more: if {} is that \
                         pool, say so with `engram adopt`, and destroy it then; with force=True \
                         (--force) the rest is destroyed, and what is on it stays",
                        device.display(),
                        said.pool,
                        path.display()
                    );
                }
            }
            _ => found.push(device.clone()),
        }
    }
    Ok(found)
}

/// See [`Pool::adopt`].
pub(super) fn adopt(path: &Path) -> Result<()> {
    let path = &absolute(path)?;
    let file = PoolFile::read(path)?;
    let _pool_lock = PoolLock::take(path)?;
    let now = PoolFolder::of(path, &file.uuid)?;
    for device in &file.devices[1..] {
        let said = read(device, &file.uuid)?.filter(|said| !said.is(&now));
        if let Some(said) = said
            && still_has(&said, &now, &file.uuid, device)
        {
            return Err(refusal(path, device, &said, true));
        }
    }
    file.devices[1..].iter().try_for_each(|device| write(device, &file, &now))
}

#[cfg(test)]
mod tests {
    use super::PoolFolder;

    fn folder() -> PoolFolder {
        let number = |digit: &str| digit.repeat(4);
        PoolFolder {
            uuid: number("1"),
            pool: "/data/pool".to_owned(),
            device: number("2"),
            inode: number("3"),
            boot: number("4"),
        }
    }

    #[test]
    fn a_renamed_pool_is_itself_and_a_copy_is_not() {
        let renamed = PoolFolder { pool: "/data/other".to_owned(), ..folder() };
        assert!(renamed.is(&folder()));
        let copied = PoolFolder { inode: "9".to_owned(), ..folder() };
        assert!(!copied.is(&folder()));
        let on_another_filesystem = PoolFolder { device: "9".to_owned(), ..folder() };
        assert!(!on_another_filesystem.is(&folder()));
    }

    #[test]
    fn after_a_restart_a_filesystem_may_have_another_number_at_the_same_path() {
        let restarted = PoolFolder { boot: "9".to_owned(), device: "9".to_owned(), ..folder() };
        assert!(restarted.is(&folder()) && folder().is(&restarted));
        let elsewhere = PoolFolder { pool: "/data/other".to_owned(), ..restarted.clone() };
        assert!(!elsewhere.is(&folder()));
        let another = PoolFolder { inode: "9".to_owned(), ..restarted };
        assert!(!another.is(&folder()));
    }
}
