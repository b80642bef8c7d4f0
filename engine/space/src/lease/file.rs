//! The lease file: its making, its mapping, its lock. What is in it stands in `words`.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use super::words::{LEASE_BYTES, LeaseHead, Ordering, Words};
use crate::extent::Floor;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;

const MAGIC: u64 = u64::from_le_bytes(*b"ENGRLEAS");

/// A lease file, open and mapped.
pub struct LeaseFile {
    file: File,
    words: Words,
}

impl LeaseFile {
    /// Makes a file of full size at `path`, all of its blocks allocated.
    pub(crate) fn create(path: &Path, mode: u32) -> Result<Self> {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| Error::os(format!("making the lease {}", path.display()), &e))?;
        step!("lease.made");
        let built = file
            .set_permissions(std::fs::Permissions::from_mode(mode))
            .map_err(|e| Error::os(format!("setting the mode of {}", path.display()), &e))
            .and_then(|()| engram_files::folder::hand_over(&file, path))
            .and_then(|()| allocate_blocks(&file, path))
            .and_then(|()| Self::map(file, path));
        if built.is_err() {
            let _ = std::fs::remove_file(path);
        }
        let made = built?;
        made.head().magic.store(MAGIC, Ordering::Release);
        Ok(made)
    }

    /// Opens a file that somebody made; refuses what is not a lease.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path)
            .map_err(|e| match e.raw_os_error() {
                Some(libc::EISDIR | libc::ELOOP | libc::ENXIO) => Error::new(
                    Kind::Corrupt,
                    format!("{} is no lease, and no plain file", path.display()),
                ),
                _ => Error::os(format!("opening the lease {}", path.display()), &e),
            })?;
        let meta = file
            .metadata()
            .map_err(|e| Error::os(format!("reading the lease {}", path.display()), &e))?;
        if !meta.is_file() || meta.len() != LEASE_BYTES {
            fail!(
                Corrupt,
                "{} is no lease: {} bytes, not {LEASE_BYTES}",
                path.display(),
                meta.len()
            );
        }
        let lease = Self::map(file, path)?;
        if lease.head().magic.load(Ordering::Acquire) != MAGIC {
            fail!(Corrupt, "{} is no lease: its magic is wrong", path.display());
        }
        Ok(lease)
    }

    fn map(file: File, path: &Path) -> Result<Self> {
        let words = Words::map(&file)
            .map_err(|error| error.context(format!("mapping the lease {}", path.display())))?;
        Ok(LeaseFile { file, words })
    }

    /// A lease of a model, which has no file: nobody asks for its lock.
    #[cfg(all(loom, test))]
    pub(crate) fn modelled(words: Words) -> Self {
        LeaseFile { file: File::open("/dev/null").expect("every Linux has it"), words }
    }

    /// What is in it.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// The head.
    pub(crate) fn head(&self) -> &LeaseHead {
        self.words.head()
    }

    /// The age: `PIN`, `IDLE`, or the oldest snapshot in use.
    pub fn age(&self) -> u64 {
        self.words.age()
    }

    /// Notes what the lease keeps, extents and objects; how many pins it has.
    pub fn note_pins(&self, floor: &mut Floor) -> u64 {
        self.words.pinned().map(|pin| floor.keep(pin)).count() as u64
    }

    /// The user that the file belongs to.
    pub(crate) fn user(&self) -> u32 {
        use std::os::unix::fs::MetadataExt;
        self.file.metadata().map_or(u32::MAX, |meta| meta.uid())
    }

    /// Takes the lock if nobody has it. The kernel drops it with the last descriptor of this open
    /// file description, however its holders die.
    pub(crate) fn try_lock(&self) -> Result<bool> {
        Self::try_lock_file(&self.file)
    }

    /// Removes a file that somebody made for a lease and did not live to name, whole or not. One
    /// that is being made now may go too: its maker sees that, and makes another.
    pub(crate) fn remove_unnamed(path: &Path) {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(path);
        let Ok(file) = opened else { return };
        let free = Self::try_lock_file(&file).unwrap_or(false);
        if free && file.metadata().is_ok_and(|meta| meta.nlink() > 0) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn try_lock_file(file: &File) -> Result<bool> {
        let lock = whole_file(libc::F_WRLCK);
        // SAFETY: a plain fcntl on our own descriptor with a valid struct.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if done == 0 {
            return Ok(true);
        }
        match std::io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            e => Err(Error::os("locking a lease", &e)),
        }
    }

    /// Its descriptor, which has the lock.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether its process lives: somebody else has the lock, and not in order to reap it.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_locked_elsewhere() && !self.words.is_reaped()
    }

    /// Whether somebody else's open file description holds the lock.
    pub(crate) fn is_locked_elsewhere(&self) -> bool {
        let mut lock = whole_file(libc::F_WRLCK);
        // SAFETY: a plain fcntl on our own descriptor with a valid struct, which it fills in.
        let done = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
        // On an error the owner counts as alive: nothing of its is taken.
        done != 0 || lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Whether the name stands for this file.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        match (self.file.metadata(), std::fs::symlink_metadata(path)) {
            (Ok(ours), Ok(there)) => place(ours) == place(there),
            _ => false,
        }
    }

    /// The names this file still has; zero once it is unlinked.
    pub(crate) fn links(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        self.file.metadata().map_or(0, |meta| meta.nlink())
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    // SAFETY: `flock` is plain data, for which zeros are valid (OFD locks ask for pid zero).
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn allocate_blocks(file: &File, path: &Path) -> Result<()> {
    loop {
        // SAFETY: a plain fallocate on our own descriptor.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, LEASE_BYTES as libc::off_t) };
        if done == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(Error::os(format!("allocating the lease {}", path.display()), &error));
        }
    }
}
