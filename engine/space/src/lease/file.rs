//! The lease file: its layout, its mapping, its lock.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `ENGRLEAS` |
//! | 8 | 8 | the lease's id, which its name and its reservations carry |
//! | 16 | 8 | inode of the owner's PID namespace |
//! | 24 | 8 | start time of the owner, in clock ticks since boot |
//! | 32 | 4 | the owner's pid, for messages only: no pid decides anything |
//! | 36 | 4 | 1 once somebody has the lock because the owner is dead |
//! | 40 | 8 | since when the owner has it, in ns since 1970 |
//! | 64 | 8 | age |
//! | 128 | 8 | pin slots in use: only this many need be read |
//! | 192 | 8 | page of the catalog from which on to ask for its snapshots; all ones: it has none |
//! | 200 | 4 | 1 once a writer has asked, until the owner has looked; 2: it has no room at all |
//! | 1024 | 16 x 192 | locks: an id, and a mode (1 reads, 2 writes, 0 none); for messages only |
//! | 4096 | 8 x 8192 | pins: offsets plus one, and two more of what may be written; or zero |

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_media::map::MappedFile;

/// The pins that one lease holds; beyond them a view keeps the age instead.
pub const PINS_MAX: usize = 8192;
const PINS_AT: usize = 4096;
/// The locks that one lease lists; more are held all the same.
pub(crate) const LOCKS_LISTED: usize = 192;
/// The size of a lease file.
pub(crate) const LEASE_BYTES: u64 = (PINS_AT + PINS_MAX * 8) as u64;
/// A writer that extends the catalog asks whether a snapshot has reached its bound.
pub(crate) const ASKED: u32 = 1;
/// One that finds no room at all asks for every snapshot that keeps pages.
pub const CALLED_IN: u32 = 2;
/// What is added to a pin whose owner may write to the extent. Offsets are multiples of 64.
const WRITING: u64 = 2;
const MAGIC: u64 = u64::from_le_bytes(*b"ENGRLEAS");

/// A pin, as it stands in a slot.
pub(crate) fn pin_word(offset: u64, writing: bool) -> u64 {
    offset + 1 + if writing { WRITING } else { 0 }
}

/// The offset that a slot pins, and whether its owner may write there; `None` for a free slot.
pub(crate) fn pinned(word: u64) -> Option<(u64, bool)> {
    let pin = word.checked_sub(1)?;
    Some((pin & !WRITING, pin & WRITING != 0))
}

/// The first page of a lease file.
#[repr(C)]
pub(crate) struct LeaseHead {
    magic: AtomicU64,
    pub id: AtomicU64,
    pub pid_namespace: AtomicU64,
    pub start_time: AtomicU64,
    pub pid: AtomicU32,
    /// Whether the holder of the lock only reaps the owner.
    pub dead: AtomicU32,
    pub since: AtomicI64,
    _pad_owner: [u64; 2],
    pub age: AtomicU64,
    _pad_age: [u64; 7],
    pub pins_used: AtomicU64,
    _pad_pins: [u64; 7],
    /// Beyond this last page of the catalog, writers ask for the owner's snapshots.
    pub ask_at: AtomicU64,
    /// Whether one has asked, and how ([`ASKED`], [`CALLED_IN`]): the only word that others than
    /// the owner write.
    pub asked: AtomicU32,
    _pad_asked: [u32; 205],
    /// What the owner has locked.
    pub locks: [LockedWords; LOCKS_LISTED],
}

/// A lock in the list: the id is whole while the mode is not zero.
#[repr(C)]
pub(crate) struct LockedWords {
    pub id: AtomicU64,
    pub mode: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(LeaseHead, age) == 64);
const _: () = assert!(std::mem::offset_of!(LeaseHead, pins_used) == 128);
const _: () = assert!(std::mem::offset_of!(LeaseHead, ask_at) == 192);
const _: () = assert!(std::mem::offset_of!(LeaseHead, asked) == 200);
const _: () = assert!(std::mem::offset_of!(LeaseHead, locks) == 1024);
const _: () = assert!(std::mem::size_of::<LeaseHead>() <= PINS_AT);

/// A lease file, open and mapped.
pub struct LeaseFile {
    file: File,
    map: MappedFile,
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
        // All of its blocks are allocated (P3), so touching it cannot raise SIGBUS.
        let map = MappedFile::map(&file, LEASE_BYTES)
            .map_err(|error| error.context(format!("mapping the lease {}", path.display())))?;
        Ok(LeaseFile { file, map })
    }

    /// The head.
    #[allow(clippy::cast_ptr_alignment)] // a mapping begins at a page
    pub(crate) fn head(&self) -> &LeaseHead {
        // SAFETY: the mapping is page-aligned, larger than `LeaseHead`, made of atomics, and lives
        // as long as `self`.
        unsafe { &*self.map.as_ptr().cast::<LeaseHead>() }
    }

    /// Empties what a new owner begins with: no look-up, view, snapshot or lock.
    pub(crate) fn clear(&self) {
        let head = self.head();
        head.pins_used.store(0, Ordering::Relaxed);
        head.age.store(super::IDLE, Ordering::Relaxed);
        head.ask_at.store(u64::MAX, Ordering::Relaxed);
        head.asked.store(0, Ordering::Relaxed);
        head.dead.store(0, Ordering::Relaxed);
        for lock in &head.locks {
            lock.mode.store(0, Ordering::Relaxed);
        }
    }

    /// The pin slots.
    #[allow(clippy::cast_ptr_alignment)] // as above
    pub(crate) fn pins(&self) -> &[AtomicU64] {
        // SAFETY: `PINS_MAX` words at a page boundary inside the mapping, all atomics.
        unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(PINS_AT).cast::<AtomicU64>(), PINS_MAX)
        }
    }

    /// The age: `PIN`, `IDLE`, or the oldest snapshot in use.
    pub fn age(&self) -> u64 {
        self.head().age.load(Ordering::Acquire)
    }

    /// The offsets that are pinned.
    pub fn pinned(&self) -> impl Iterator<Item = u64> + '_ {
        let used = self.head().pins_used.load(Ordering::Acquire).min(PINS_MAX as u64) as usize;
        self.pins()[..used].iter().filter_map(|pin| Some(pinned(pin.load(Ordering::Acquire))?.0))
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

    /// Whether its process lives: somebody else has the lock, and not in order to reap it.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_locked_elsewhere() && self.head().dead.load(Ordering::Acquire) == 0
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
    engram_media::cgroup::admit(LEASE_BYTES, "a lease")?;
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
