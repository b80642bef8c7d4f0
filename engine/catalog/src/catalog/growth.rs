//! The growth page: what every process of a realm must know besides LMDB's own pages.
//!
//! One page of the file `growth`, mapped shared by each process that has the catalog open. Every
//! field is one atomic word, so no reader sees half of one; each field has its own rule:
//!
//! * `allocated_pages`: written by the holder of this file's lock, after the blocks exist; it only
//!   grows. Read by a writer, under LMDB's writer lock. An older value is smaller: the writer grows
//!   once more for nothing.
//! * `poison`: set by the process that sees a sync fail, cleared by the process that reopens after
//!   `verify`. Read by a writer, under the writer lock (see `Catalog::write`).
//! * `clean`: set and cleared under LMDB's writer lock, and read there: it is never stale.
//! * `boot_id`: as `clean`; read at opening.
//! * `sealed`: only grows, while the page is persistent memory; see `seal.rs`.
//! * `lease_epoch`: the lease protocol's; see there. Its model has acquire and release here, so no
//!   less will do.
//! * `failure`, `failed_at`: of maintenance that failed and was not done since: what, how, in which
//!   process, and when. Each is a word, and for people alone.
//! * `empty`: which tables are empty, as of which commit; see `empty.rs`. Written under LMDB's
//!   writer lock by each commit that changes something; cleared at each opening.
//! * `removing`: the last transaction that has looked whether anybody has an object open which it
//!   removes. Written under the writer lock before it looks. A process that opens an object lists
//!   it first and reads this then: one of the two sees the other. Of one that died it is an id that
//!   no commit has yet.
//! * `bell`: rung after each commit that may change what a query finds (`engram_media::bell`).
//! * `news_head`, `news`: what each of the last commits has changed; see `news.rs`. Written as
//!   `empty` is.
//!
//! The file's lock is `flock`: it belongs to the open file, so the kernel drops it with the last
//! process that has it; threads of one process take a mutex first.
//!
//! The file's first byte has a lock of its own, for a process that opens the catalog
//! ([`Growth::one_opens`]). The first to open `lock.mdb` finds nobody's lock on it, takes its own,
//! and makes what is in it anew: mutexes, no readers, no last transaction, and then the last
//! transaction that the data file tells of. Others that open it wait for that lock, and take what
//! they find then for made. If the first is killed meanwhile, they go on from *no* transaction:
//! their commits overwrite the last ones. So one opens at a time, by a lock that outlives LMDB's:
//! the kernel drops locks of processes (LMDB's) as it closes a dead one's descriptors, and those of
//! open files (this one) after that. The process that gets it either finds one that has opened, or
//! finds none, and is the first.
//!
//! | Offset | Bytes | Field |
//! |---|---|---|
//! | 0 | 8 | magic `ENGRGROW` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | bytes per page of the catalog |
//! | 16 | 8 | bytes of the catalog's map |
//! | 24 | 8 | `allocated_pages` |
//! | 32 | 8 | `lease_epoch` |
//! | 40 | 16 | `boot_id` |
//! | 56 | 4 | `poison` |
//! | 60 | 4 | `clean` |
//! | 64 | 8 | `sealed` |
//! | 72 | 56 | zeros |
//! | 128 | 8 | `empty` |
//! | 136 | 8 | `removing` |
//! | 144 | 48 | zeros |
//! | 192 | 8 | `failure` |
//! | 200 | 8 | `failed_at` |
//! | 208 | 48 | zeros |
//! | 256 | 4 | `bell` |
//! | 260 | 60 | zeros |
//! | 320 | 8 | `news_head` |
//! | 328 | 696 | zeros |
//! | 1024 | 3072 | `news` |

use std::fs::{File, OpenOptions, Permissions};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::empty::EmptyTables;
use super::news::{Changed, News};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::Oid;
use engram_media::bell::CommitBell;
use engram_media::persist;
use engram_media::span::{FilePart, punch};

const MAGIC: [u8; 8] = *b"ENGRGROW";
const VERSION: u32 = 1;
const FILE_BYTES: u64 = 4096;

/// The page as it lies in the file; integers are little-endian.
#[repr(C)]
struct GrowthPage {
    magic: [u8; 8],
    version: u32,
    page_bytes: u32,
    map_bytes: u64,
    allocated_pages: AtomicU64,
    lease_epoch: AtomicU64,
    boot_id: [AtomicU64; 2],
    poison: AtomicU32,
    clean: AtomicU32,
    /// At the beginning of a cache line, of which it is the only field.
    sealed: AtomicU64,
    _zeros: [u64; 7],
    /// Likewise, with what is beside it: every commit writes it.
    empty: AtomicU64,
    removing: AtomicU64,
    _more_zeros: [u64; 6],
    failure: AtomicU64,
    failed_at: AtomicU64,
    _zeros_to_the_bell: [u64; 6],
    /// Likewise: watchers write it, too.
    bell: CommitBell,
    _zeros_beside_the_bell: [u32; 15],
    news_head: AtomicU64,
    _zeros_to_the_news: [u64; 87],
    news: News,
}

const _: () = {
    assert!(cfg!(target_endian = "little"), "the growth page is little-endian, and mapped");
    assert!(offset_of!(GrowthPage, version) == 8);
    assert!(offset_of!(GrowthPage, page_bytes) == 12);
    assert!(offset_of!(GrowthPage, map_bytes) == 16);
    assert!(offset_of!(GrowthPage, allocated_pages) == 24);
    assert!(offset_of!(GrowthPage, lease_epoch) == 32);
    assert!(offset_of!(GrowthPage, boot_id) == 40);
    assert!(offset_of!(GrowthPage, poison) == 56);
    assert!(offset_of!(GrowthPage, clean) == 60);
    assert!(offset_of!(GrowthPage, sealed) == 64);
    assert!(offset_of!(GrowthPage, empty) == 128);
    assert!(offset_of!(GrowthPage, removing) == 136);
    assert!(offset_of!(GrowthPage, failure) == 192);
    assert!(offset_of!(GrowthPage, failed_at) == 200);
    assert!(offset_of!(GrowthPage, bell) == 256);
    assert!(offset_of!(GrowthPage, news_head) == 320);
    assert!(offset_of!(GrowthPage, news) == 1024);
    assert!(size_of::<GrowthPage>() == FILE_BYTES as usize);
};

/// A failure of maintenance, as the page has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotedFailure {
    /// What failed, how and in which process: of no meaning here.
    pub word: u64,
    /// When, in ns since 1970.
    pub at: u64,
}

/// The mapped growth page of one catalog.
pub struct Growth {
    page: NonNull<GrowthPage>,
    file: File,
    path: PathBuf,
    thread_lock: Mutex<()>,
    /// Whether the page is persistent memory: lines that are written back are durable.
    persistent: bool,
    /// The greatest id of whose seal this process has written the line back.
    flushed: AtomicU64,
}

// SAFETY: the page is mapped as long as `Growth` lives; fields that change are atomics, the others
// are not written after the file was made.
unsafe impl Send for Growth {}
// SAFETY: as above.
unsafe impl Sync for Growth {}

impl Growth {
    /// Writes what does not change into a new file that [`allocate_page`] has filled.
    pub(super) fn create(file: File, path: &Path, page_bytes: u64, map_bytes: u64) -> Result<Self> {
        let growth = Self::map(file, path, false)?;
        let page = growth.page.as_ptr();
        // SAFETY: the page is mapped for writing and aligned; nobody else knows the file yet.
        unsafe {
            (*page).page_bytes = page_bytes as u32;
            (*page).map_bytes = map_bytes;
            (*page).version = VERSION;
            (*page).magic = MAGIC;
        }
        Ok(growth)
    }

    /// Maps the page of a catalog made with these sizes; as persistent memory, if its commits are
    /// to survive a loss of power (`durable`) and the kernel grants it.
    pub(super) fn open(
        path: &Path,
        page_bytes: u64,
        map_bytes: u64,
        durable: bool,
    ) -> Result<Self> {
        let (file, bytes) = open_file(path)?;
        if bytes != FILE_BYTES {
            fail!(
                Corrupt,
                "{} has {bytes} bytes, not {FILE_BYTES}; restore the pool from a copy",
                path.display()
            );
        }
        let growth = Self::map(file, path, durable)?;
        let page = growth.page();
        if page.magic != MAGIC {
            fail!(Corrupt, "{} is not a growth page; restore the pool from a copy", path.display());
        }
        if page.version != VERSION {
            fail!(
                Format,
                "{} has version {}, this Engram knows {VERSION}; use a newer Engram",
                path.display(),
                page.version
            );
        }
        if u64::from(page.page_bytes) != page_bytes || page.map_bytes != map_bytes {
            fail!(
                Format,
                "the catalog was made with pages of {} and a map of {} bytes, not {page_bytes} and \
                 {map_bytes} ({}); correct realm.toml",
                page.page_bytes,
                page.map_bytes,
                path.display()
            );
        }
        Ok(growth)
    }

    /// A page that no other process sees, for a catalog that nobody writes to.
    pub(super) fn alone(file: File, path: &Path, pages: u64) -> Result<Self> {
        let growth = Self::map_as(file, path, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        growth.set_allocated_pages(pages);
        Ok(growth)
    }

    fn map(file: File, path: &Path, durable: bool) -> Result<Self> {
        if durable {
            let again = file.try_clone().map_err(|e| Error::os(path.display(), &e))?;
            let synced = Self::map_as(again, path, libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC);
            if let Ok(growth) = synced {
                return Ok(growth);
            }
        }
        Self::map_as(file, path, libc::MAP_SHARED)
    }

    fn map_as(file: File, path: &Path, flags: i32) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choosing; the file has this length.
        let at = unsafe {
            let bytes = FILE_BYTES as usize;
            let fd = if flags & libc::MAP_ANONYMOUS != 0 { -1 } else { file.as_raw_fd() };
            libc::mmap(ptr::null_mut(), bytes, protection, flags, fd, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os(format_args!("mapping {}", path.display())));
        }
        let Some(page) = NonNull::new(at.cast()) else {
            fail!(Os, "{} was mapped at address 0", path.display());
        };
        Ok(Growth {
            page,
            file,
            path: path.to_owned(),
            thread_lock: Mutex::new(()),
            persistent: flags & libc::MAP_SYNC != 0,
            flushed: AtomicU64::new(0),
        })
    }

    fn page(&self) -> &GrowthPage {
        // SAFETY: the page is mapped, aligned and of this size as long as `self` lives; the words
        // that other processes change in it are atomics.
        unsafe { self.page.as_ref() }
    }

    /// How many pages of `data.mdb`, from its start, have blocks.
    pub fn allocated_pages(&self) -> u64 {
        self.page().allocated_pages.load(Ordering::Acquire)
    }

    pub(super) fn set_allocated_pages(&self, pages: u64) {
        self.page().allocated_pages.store(pages, Ordering::Release);
    }

    /// The bytes of a page of the catalog.
    pub(super) fn page_bytes(&self) -> u64 {
        u64::from(self.page().page_bytes)
    }

    /// Whether the page is persistent memory, so that commits are sealed.
    pub(super) fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Takes the page for persistent memory, or not, in tests where there is none.
    #[cfg(test)]
    pub(super) fn pretend_persistent(&mut self, persistent: bool) {
        self.persistent = persistent;
    }

    /// The greatest transaction that is sealed; 0 for none.
    pub(super) fn sealed(&self) -> u64 {
        self.page().sealed.load(Ordering::Acquire)
    }

    /// Takes the seal away, where commits are not sealed.
    pub(super) fn unseal(&self) {
        self.page().sealed.store(0, Ordering::Release);
    }

    /// Seals a transaction whose commit is on the medium. When this returns, so is the seal.
    pub(super) fn seal(&self, id: u64) {
        let sealed = &raw const self.page().sealed;
        self.page().sealed.fetch_max(id, Ordering::AcqRel);
        // SAFETY: the word lies in the mapped page.
        unsafe { persist::flush_lines(sealed.cast(), size_of::<AtomicU64>()) };
        persist::fence();
        self.flushed.fetch_max(id, Ordering::AcqRel);
    }

    /// Whether this process knows that the seal of a transaction is on the medium.
    pub(super) fn has_flushed(&self, id: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= id
    }

    /// Which tables were empty after which commit.
    pub(super) fn empty(&self) -> EmptyTables {
        EmptyTables::of_word(self.page().empty.load(Ordering::Relaxed))
    }

    /// Says which tables will be empty after a commit, under the writer lock and before it; or, at
    /// an opening, that nothing is known.
    pub(super) fn set_empty(&self, empty: EmptyTables) {
        self.page().empty.store(empty.word(), Ordering::Relaxed);
    }

    /// The last transaction that looked whether an object is open which it removes.
    pub fn removing(&self) -> u64 {
        self.page().removing.load(Ordering::SeqCst)
    }

    /// Says that a transaction is about to look whether an object is open which it removes; under
    /// the writer lock.
    pub fn set_removing(&self, id: u64) {
        self.page().removing.store(id, Ordering::SeqCst);
    }

    /// The bell that is rung after each commit that may change what a query finds.
    pub fn bell(&self) -> &CommitBell {
        &self.page().bell
    }

    /// Tells what a commit changes, under the writer lock and before it.
    pub(super) fn tell(&self, id: u64, changed: &Changed) {
        self.page().news.tell(&self.page().news_head, id, changed);
    }

    /// The objects that the commits after one and up to another, which is visible, have put or
    /// removed, in that order, some more than once. `None` if that is not known, or what queries
    /// say of any object may be different.
    pub fn changed(&self, after: u64, upto: u64) -> Option<Vec<Oid>> {
        self.page().news.between(&self.page().news_head, after, upto)
    }

    /// The lease epoch.
    pub fn lease_epoch(&self) -> u64 {
        self.page().lease_epoch.load(Ordering::SeqCst)
    }

    /// Raises the lease epoch by one, and returns it.
    pub fn raise_lease_epoch(&self) -> u64 {
        self.page().lease_epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The failure of maintenance that was noted last, if it was not made good since.
    pub fn failure(&self) -> Option<NotedFailure> {
        let word = self.page().failure.load(Ordering::Acquire);
        let at = self.page().failed_at.load(Ordering::Relaxed);
        (word != 0).then_some(NotedFailure { word, at })
    }

    /// Notes a failure for all processes; with the word 0, that there is none.
    pub fn set_failure(&self, failure: NotedFailure) {
        self.page().failed_at.store(failure.at, Ordering::Relaxed);
        self.page().failure.store(failure.word, Ordering::Release);
    }

    /// Whether a sync has failed, so that nothing more may be written.
    pub fn poisoned(&self) -> bool {
        self.page().poison.load(Ordering::Acquire) != 0
    }

    pub(super) fn set_poisoned(&self, poisoned: bool) {
        self.page().poison.store(poisoned.into(), Ordering::Release);
    }

    /// Whether everything committed is also on the medium (the synced-close mark).
    pub fn clean(&self) -> bool {
        self.page().clean.load(Ordering::Acquire) != 0
    }

    pub(super) fn set_clean(&self, clean: bool) {
        self.page().clean.store(clean.into(), Ordering::Release);
    }

    /// The boot of the machine in which the catalog was last written to.
    pub fn boot_id(&self) -> [u8; 16] {
        let [low, high] = &self.page().boot_id;
        let both = [low.load(Ordering::Acquire), high.load(Ordering::Acquire)];
        let mut id = [0; 16];
        id[..8].copy_from_slice(&both[0].to_le_bytes());
        id[8..].copy_from_slice(&both[1].to_le_bytes());
        id
    }

    /// Stores the boot id. Only for a process that has the catalog to itself or holds its writer
    /// lock.
    pub fn set_boot_id(&self, id: [u8; 16]) {
        let both = u128::from_le_bytes(id);
        self.page().boot_id[0].store(both as u64, Ordering::Release);
        self.page().boot_id[1].store((both >> 64) as u64, Ordering::Release);
    }

    /// Writes the page to the medium.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is this mapping.
        let rc =
            unsafe { libc::msync(self.page.as_ptr().cast(), FILE_BYTES as usize, libc::MS_SYNC) };
        if rc != 0 {
            return Err(Error::last_os(format_args!("syncing {}", self.path.display())));
        }
        Ok(())
    }

    /// Waits until no other thread or process grows the catalog.
    pub(super) fn lock(&self) -> Result<GrowthLock<'_>> {
        let thread_lock = self.thread_lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // SAFETY: the descriptor is open.
            if unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX) } == 0 {
                return Ok(GrowthLock { file: &self.file, _thread_lock: thread_lock });
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(Error::os(format_args!("locking {}", self.path.display()), &error));
            }
        }
    }
}

impl Growth {
    /// Runs `open` while no other process runs it.
    pub(super) fn one_opens<T>(&self, open: impl FnOnce() -> Result<T>) -> Result<T> {
        self.set_opening(libc::F_WRLCK)?;
        let opened = open();
        // By name: a child forked by another thread meanwhile has the same open file.
        self.set_opening(libc::F_UNLCK)?;
        opened
    }

    fn set_opening(&self, kind: libc::c_int) -> Result<()> {
        // SAFETY: `flock` is plain data, for which zeros are valid (OFD locks ask for pid zero).
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_len = 1;
        loop {
            // SAFETY: a plain fcntl on our own descriptor with a valid struct.
            let done =
                unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
            if done == 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(Error::os(format_args!("locking {}", self.path.display()), &error));
            }
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, which nothing borrows any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), FILE_BYTES as usize) };
    }
}

/// The right to grow the catalog; given up when dropped.
pub(super) struct GrowthLock<'g> {
    file: &'g File,
    _thread_lock: MutexGuard<'g, ()>,
}

impl Drop for GrowthLock<'_> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open. Unlocking by name, not by closing: a child forked
        // meanwhile has the same open file.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// A new regular file with exactly this mode, whatever the umask.
pub(super) fn create_file(path: &Path, mode: u32) -> Result<File> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let what = format_args!("making {}", path.display());
    let file = opened.map_err(|error| Error::os(what, &error))?;
    let set = file.set_permissions(Permissions::from_mode(mode));
    set.map_err(|error| Error::os(format_args!("making {}", path.display()), &error))?;
    Ok(file)
}

/// An existing regular file for reading and writing, and its length.
pub(super) fn open_file(path: &Path) -> Result<(File, u64)> {
    open_file_as(path, true)
}

/// The same, for reading alone where it is not `writable`.
pub(super) fn open_file_as(path: &Path, writable: bool) -> Result<(File, u64)> {
    let opened = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let refused = |error| Error::os(format_args!("opening {}", path.display()), &error);
    let file = opened.map_err(refused)?;
    let about = file.metadata().map_err(refused)?;
    if !about.is_file() {
        fail!(Corrupt, "{} is not a regular file; restore the pool from a copy", path.display());
    }
    if writable && about.nlink() > 1 {
        fail!(
            Corrupt,
            "{} has another name, so what is written here would be in another's file too; copy \
             pools with `engram backup`, not by links",
            path.display()
        );
    }
    Ok((file, about.len()))
}

/// A range of a file that is to have blocks.
#[derive(Clone, Copy)]
pub(super) struct FileRange {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) keep_size: bool,
}

/// Gives blocks to a range of a file. A part that had some keeps its bytes. On error part of the
/// range may have got some.
pub(super) fn allocate(file: &File, range: FileRange, path: &Path) -> Result<()> {
    const LEAST_STEP_BYTES: u64 = 64 << 10;
    let mode = if range.keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
    let (mut from, mut step) = (range.from, u64::MAX);
    while from < range.to {
        let bytes = (range.to - from).min(step);
        // SAFETY: the descriptor is open; allocating changes no byte that is there.
        let rc = unsafe { libc::fallocate(file.as_raw_fd(), mode, from as i64, bytes as i64) };
        if rc == 0 {
            from += bytes;
            continue;
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            let what =
                format_args!("allocating {} bytes of {}", range.to - range.from, path.display());
            return Err(Error::os(what, &error));
        }
        // tmpfs undoes what a signal interrupts: with a timer running, a large step never ends.
        step = (bytes / 2).max(LEAST_STEP_BYTES);
    }
    Ok(())
}

/// Takes the blocks of a range away, as far as the filesystem can.
pub(super) fn release(file: &File, range: FileRange) {
    let _ = punch(file, FilePart { offset: range.from, len: range.to - range.from });
}

/// Gives a new growth file its one block.
pub(super) fn allocate_page(file: &File, path: &Path) -> Result<()> {
    allocate(file, FileRange { from: 0, to: FILE_BYTES, keep_size: false }, path)
}

/// The bytes that a file has blocks for.
pub(super) fn blocks_bytes(file: &File, path: &Path) -> Result<u64> {
    let what = format_args!("looking at {}", path.display());
    let about = file.metadata().map_err(|error| Error::os(what, &error))?;
    Ok(about.blocks() * 512)
}

/// Whether a file's blocks are memory.
pub(super) fn is_in_memory(file: &File) -> bool {
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open, `about` a valid place; zeros are a valid value of it.
    let about = unsafe {
        libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr());
        about.assume_init()
    };
    about.f_type as u64 == libc::TMPFS_MAGIC as u64 // signed in glibc alone
}

/// The system's page size.
pub(super) fn system_page_bytes() -> u64 {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}
