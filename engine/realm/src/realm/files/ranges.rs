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

use super::OpenFile;
use crate::realm::Setup;
use engram_base::error::{Error, Kind, Result};
use engram_files::folder;
use engram_space::lease::{RangeLocks, own_stand_in};

/// The folder of a realm's stand-ins.
const STAND_INS: &str = "file-locks";

/// A stand-in that only this process has.
pub(super) type OwnStandIn = OnceLock<StdFile>;

/// Locks of a file's ranges for one taker, who has none yet.
pub(super) fn open(open: &OpenFile) -> Result<RangeLocks> {
    let setup = &open.core.setup;
    if !setup.immutable {
        match open_shared(setup, &format!("{:016x}", open.oid)) {
            Err(error) if matches!(error.kind(), Kind::Access | Kind::ReadOnly) => {}
            opened => return opened,
        }
    }
    if open.stand_in.get().is_none() {
        let _ = open.stand_in.set(own_stand_in()?);
    }
    RangeLocks::of_own(open.stand_in.get().expect("it has been set"))
}

/// Opens the stand-in that all processes share.
fn open_shared(setup: &Setup, name: &str) -> Result<RangeLocks> {
    let folder = setup.dir.join(STAND_INS);
    let path = folder.join(name);
    let refused = |e: io::Error| Error::os(format!("opening {} for locks", path.display()), &e);
    loop {
        // A link to nothing is there, too.
        if std::fs::symlink_metadata(&folder).is_ok() {
            folder::check_real(&setup.pool, &folder)?;
        }
        let mut options = StdFile::options();
        options.read(true).write(true).mode(setup.file_mode);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let opened = options.open(&path);
        let file = match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match options.create_new(true).open(&path) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        make_folder(&setup.leases(), &folder)?;
                        continue;
                    }
                    made => {
                        let file = made.map_err(refused)?;
                        let allowed = std::fs::Permissions::from_mode(setup.file_mode);
                        file.set_permissions(allowed).map_err(refused)?;
                        folder::hand_over(&file, &path)?;
                        file
                    }
                }
            }
            opened => opened.map_err(refused)?,
        };
        if let Some(locks) = RangeLocks::of_shared(file, path.clone())? {
            return Ok(locks);
        }
    }
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
