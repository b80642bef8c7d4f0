//! Stand-ins of files, on which ranges are locked (`lease::ranges`).
//!
//! A file's stand-in is `file-locks/OID` in the realm's folder, made by the first taker and removed
//! by the last. A taker opens it, and looks then whether it has its name still.
//!
//! A process that may not make files in the realm (it may only read there, or the realm is
//! published) has a stand-in of its own, in memory: its locks hold within the process.

use std::fs::File as StdFile;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::OpenFile;
use crate::realm::Setup;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::guest;
use engram_files::folder;
use engram_space::lease::{RangeLocks, own_stand_in};

/// The folder of a realm's stand-ins.
const STAND_INS: &str = "file-locks";

/// How often a taker finds a stand-in gone that was there, before it gives up.
const TRIES_MAX: u32 = 1000;

/// A stand-in that only this process has.
pub(super) type OwnStandIn = OnceLock<StdFile>;

/// Locks of a file's ranges for one taker, who has none yet.
pub(super) fn open(open: &OpenFile) -> Result<RangeLocks> {
    let setup = &open.core.setup;
    if !setup.immutable
        && let Some(locks) = open_shared(setup, &format!("{:016x}", open.oid))?
    {
        return Ok(locks);
    }
    if open.stand_in.get().is_none() {
        let _ = open.stand_in.set(own_stand_in()?);
    }
    RangeLocks::of_own(open.stand_in.get().expect("it has been set"))
}

/// The locks of a taker who has handed over a descriptor of the file's stand-in.
pub(super) fn handed(open: &OpenFile, descriptor: StdFile) -> RangeLocks {
    let path = open.core.setup.dir.join(STAND_INS).join(format!("{:016x}", open.oid));
    let of = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let named = std::fs::symlink_metadata(&path).map(of).ok();
    let is_named = named.is_some() && descriptor.metadata().map(of).ok() == named;
    RangeLocks::of_handed(descriptor, is_named.then_some(path))
}

/// Opens the stand-in that all processes share; `None` where this one may not make files.
fn open_shared(setup: &Setup, name: &str) -> Result<Option<RangeLocks>> {
    let folder = setup.dir.join(STAND_INS);
    let path = folder.join(name);
    for _ in 0..TRIES_MAX {
        // A link to nothing is there, too.
        if std::fs::symlink_metadata(&folder).is_ok() {
            folder::check_real(&setup.pool, &folder)?;
        }
        let mut options = StdFile::options();
        options.read(true).write(true);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        match options.open(&path) {
            Ok(file) => {
                if let Some(locks) = RangeLocks::of_shared(file, path.clone())? {
                    return Ok(Some(locks));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => match make(setup, &folder, &path) {
                Err(error) if error.kind() == Kind::NotFound => {
                    match make_folder(&setup.leases(), &folder) {
                        Err(error) if may_not(&error) => return Ok(None),
                        made => made?,
                    }
                }
                Err(error) if may_not(&error) => return Ok(None),
                made => made?,
            },
            Err(e) => {
                let error = Error::os(format!("opening {} for locks", path.display()), &e);
                // Who may make files there must not lock beside the others.
                let probe = folder.join(format!("{name}-probe-{}", guest::number()));
                let may_make = make(setup, &folder, &probe);
                let _ = std::fs::remove_file(&probe);
                return match may_make {
                    Err(why) if may_not(&why) && may_not(&error) => Ok(None),
                    _ => Err(error),
                };
            }
        }
    }
    fail!(Busy, "others make and remove {} again and again: try again", path.display())
}

/// Whether an error says that this process may not write there.
fn may_not(error: &Error) -> bool {
    matches!(error.kind(), Kind::Access | Kind::ReadOnly)
}

/// Makes a stand-in, unless there is one. It gets its name when it has its mode, so that nobody
/// meets it with another.
fn make(setup: &Setup, folder: &Path, path: &Path) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let refused = |e: io::Error| Error::os(format!("making {}", path.display()), &e);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let new = folder.join(format!("new-{}-{number}", guest::number()));
    let file = StdFile::options().write(true).create_new(true).mode(setup.file_mode).open(&new);
    let file = file.map_err(refused)?;
    let given = file
        .set_permissions(std::fs::Permissions::from_mode(setup.file_mode))
        .map_err(refused)
        .and_then(|()| folder::hand_over(&file, &new))
        .and_then(|()| match std::fs::hard_link(&new, path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(refused(e)),
            _ => Ok(()),
        });
    let _ = std::fs::remove_file(&new);
    given
}

/// Removes stand-ins that takers have left which died; nobody may have the realm open.
pub(super) fn clear_stand_ins(setup: &Setup) {
    // What stays is in nobody's way.
    let _ = std::fs::remove_dir_all(setup.dir.join(STAND_INS));
}

/// Makes the folder of stand-ins, as open to others as the one of leases.
fn make_folder(like: &Path, folder: &Path) -> Result<()> {
    let mode = std::fs::metadata(like)
        .map_err(|e| Error::os(format!("looking at {}", like.display()), &e))?
        .mode();
    match folder::make_folder(folder, mode & 0o7777) {
        Err(error) if error.kind() == Kind::Exists => Ok(()),
        made => made.and_then(|()| folder::like_another(folder, like)),
    }
}
