//! The shared counter that says whether there is more than the shared realm.
//!
//! Most namespaces have no other realm, and their operations must not pay for those that have. So
//! there is one number in the file `scopes`, mapped by every process that may write it, that is, by
//! those that may use the shared realm. It is raised by every process that finds a private realm
//! or publishes. As long as it is what it was, nothing has come since the handle last looked. That
//! costs one load.
//!
//! A user who may not write the shared realm does not map the file: those who may write a file
//! could cut it short, and to touch the page then is a SIGBUS. Such users trust nobody here. They
//! look at the folders each time.

use std::fs::{self, File};
use std::io::ErrorKind::NotFound;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_files::folder::hand_over;
use engram_media::shared_counter::SharedCounter;

/// The file's name.
pub(super) const SCOPES: &str = "scopes";

/// Makes the file, with exactly this mode, in the namespace's folder.
pub(super) fn make(namespace: &Path, mode: u32) -> Result<()> {
    let path = namespace.join(SCOPES);
    let made = File::create_new(&path).and_then(|mut file| {
        // Written, not cut to length: a page that is mapped has a block.
        file.write_all(&[0; SharedCounter::FILE_BYTES as usize])?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        Ok(file)
    });
    let file = made.map_err(|e| Error::os(format!("making {}", path.display()), &e))?;
    hand_over(&file, &path)
}

/// What is wrong with the file, if anything, as far as this user may look.
pub(super) fn problem(namespace: &Path) -> Option<Error> {
    open(namespace).err().filter(|error| error.kind() != Kind::Access)
}

/// Maps the shared counter, for a user who may write it.
pub(super) fn open(namespace: &Path) -> Result<SharedCounter> {
    let path = namespace.join(SCOPES);
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)
        .map_err(|e| match e.kind() {
            // A namespace has it from before it has its name.
            NotFound => Error::new(
                Kind::Corrupt,
                format!(
                    "{} is gone: what the pool holds can be exported with --salvage",
                    path.display()
                ),
            ),
            _ => Error::os(format!("opening {}", path.display()), &e),
        })?;
    let refused = |e| Error::os(format!("looking at {}", path.display()), &e);
    if file.metadata().map_err(refused)?.nlink() != 1 {
        fail!(
            Corrupt,
            "{} has another name, so what is written here would be in another's file too: take \
             it away, and restore it from a copy",
            path.display()
        );
    }
    SharedCounter::map(&file).map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::{Kind, SCOPES, make, open, problem};
    use std::fs;

    #[test]
    fn the_shared_counter_is_one_file_with_one_name() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(open(dir.path()).err().unwrap().kind(), Kind::Corrupt, "it is not there");
        make(dir.path(), 0o660).unwrap();
        assert!(problem(dir.path()).is_none());
        let (one, other) = (open(dir.path()).unwrap(), open(dir.path()).unwrap());
        let before = other.get();
        assert!(one.raise());
        assert_ne!(other.get(), before, "two mappings are not of one number");

        let (file, second) = (dir.path().join(SCOPES), dir.path().join("second"));
        fs::hard_link(&file, &second).unwrap();
        assert_eq!(problem(dir.path()).unwrap().kind(), Kind::Corrupt, "another name for it");
        fs::rename(&second, &file).unwrap(); // two names of one file: nothing happens
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&second, &file).unwrap();
        assert!(problem(dir.path()).is_some(), "a link was followed");
    }
}
