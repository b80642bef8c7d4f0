//! LMDB behind types: with `growth.rs`, the only place of the catalog where `unsafe` stands.
//!
//! # What LMDB asks of its caller, and where it is kept
//!
//! - *One environment per file and copy of the engine.* LMDB notes readers by the number of a
//!   process. The registry of open pools keeps a second environment away; the environment of
//!   another copy in the process has another number (`process.rs`).
//! - *A write transaction stays on its thread*: the writer mutex is a robust one and knows its
//!   owner. [`Write`] is neither `Send` nor `Sync`, and a thread that asks for a second one gets
//!   `Busy` instead of waiting for itself.
//! - *A read transaction is used by one thread at a time* (`MDB_NOTLS`): [`Read`] is not `Sync`.
//! - *Bytes returned are valid until the transaction ends or writes*: they borrow the transaction,
//!   and writing takes it by `&mut`.
//! - *Table handles are opened once*, before the environment is shared.
//!
//! # Readers
//!
//! A slot in LMDB's reader table costs a lock that other processes may hold, so it is taken once:
//! when a [`Read`] ends, its transaction is reset, which only stores "idle" in the slot, and goes
//! to a list in this process. The next [`Env::read`] renews it: two loads and a store.
//!
//! LMDB keeps two headers, and commit `n + 2` writes over that of commit `n`. A reader takes the
//! newest number first and copies the header of that number then. A reader that is interrupted in
//! between can copy a header of a later commit, or half of one: its number is not that of what it
//! sees, and all that is remembered or compared by numbers is wrong. (The pages it sees are safe:
//! its slot holds the lower number.) So [`Env::read`] looks at the newest number again when it has
//! the copy. Nobody writes to the header of commit `n` before `n + 1` is the newest number, so the
//! copy is whole if that is `n` still.
//!
//! # Fork
//!
//! A child has the parent's environment in its memory, but none of its locks, and the slots of the
//! reader table that its kept transactions point to are the parent's. Ending, resetting or renewing
//! one in the child would write into a slot that guards a snapshot of the parent, whose pages a
//! writer would then reuse under it. So every environment carries the number of forks behind this
//! process when it was opened. In a child that number differs: reading and writing are refused, and
//! dropping forgets transactions instead of ending them. `mdb_env_close` is then safe, since it
//! compares process ids before it touches a slot, and the descriptors that it closes are the
//! child's: the parent keeps its own, with the locks. One case is left: a thread that was writing
//! at the moment of the fork may have moved LMDB's list of freed pages, so that closing would free
//! it twice; the environment is then leaked whole (address range and two descriptors, until exec or
//! exit).
//!
//! None of this concerns an environment that was opened for reading alone, without locks: its
//! transactions have no slots in any table, so a child goes on with what it has inherited.

mod held_txns;
mod process;
mod shown;
mod txn;
mod wait;

pub use txn::Cursor;
pub use txn::Txn;
pub(super) use txn::{Read, TreeSize, Write, check_key, check_value};

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use lmdb_master_sys as ffi;

use super::{Options, Table};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::guest;

/// The longest key that LMDB takes.
pub(super) const MAX_KEY_BYTES: usize = 511;

/// The table of free pages: LMDB's own, always number 0.
const FREE_TABLE: ffi::MDB_dbi = 0;

/// How many forks lie between the program's start and this process, counted in each child.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// This process is a forked child that no handler has told of it.
pub fn note_fork() {
    count_fork();
}

/// How many forks lie between the program's start and this process.
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Sees to it, once, that a forked child knows that it is one.
pub fn watch_forks() -> Result<()> {
    static WATCHED: OnceLock<c_int> = OnceLock::new();
    let rc = *WATCHED.get_or_init(|| {
        // SAFETY: the handler is a function of this library and does one atomic addition, which
        // is safe in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) }
    });
    check("watching for forks", rc)
}

/// A kept read transaction: reset, holding its reader slot.
struct ReaderSlot(NonNull<ffi::MDB_txn>);

// SAFETY: with MDB_NOTLS a read transaction belongs to no thread; the owner of the `ReaderSlot` is
// the only one to use it.
unsafe impl Send for ReaderSlot {}

/// One open LMDB environment with its tables.
pub(super) struct Env {
    raw: NonNull<ffi::MDB_env>,
    tables: [ffi::MDB_dbi; Table::COUNT],
    page_bytes: u64,
    kept: Mutex<Vec<ReaderSlot>>,
    held: held_txns::HeldTxns,
    /// The thread that writes, as the address of a thread-local of its; 0 for none.
    writer: AtomicUsize,
    born: u64,
    abandoned: bool,
    /// Opened for reading alone, without locks: nobody else's state depends on this process.
    lockless: bool,
    lock_file: Option<process::ReaderLock>,
    shown: Option<shown::ShownCommit>,
    /// The catalog's folder, for messages.
    dir: PathBuf,
}

// SAFETY: LMDB's environment handle is made for use by many threads; the calls that are not
// (opening, closing, table handles) happen where `Env` is owned or borrowed mutably.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Env {
    /// Opens the environment in `dir`, whose files exist; makes the tables if asked.
    pub(super) fn open(dir: &Path, options: &Options, make_tables: bool) -> Result<Env> {
        watch_forks()?;
        wait::keep();
        process::keep();
        let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else {
            fail!(Argument, "the path {} has a NUL byte; choose another", dir.display());
        };
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid place for the handle.
        check("making an LMDB environment", unsafe { ffi::mdb_env_create(&raw mut raw) })?;
        let Some(raw) = NonNull::new(raw) else {
            fail!(Os, "LMDB made no environment");
        };
        let mut env = Env {
            raw,
            tables: [0; Table::COUNT],
            page_bytes: 0,
            kept: Mutex::new(Vec::new()),
            held: held_txns::HeldTxns::default(),
            writer: AtomicUsize::new(0),
            born: forks(),
            abandoned: false,
            lockless: options.read_only,
            lock_file: None,
            shown: None,
            dir: dir.to_owned(),
        };
        env.open_files(&path, options).map_err(|error| {
            error.context(format_args!("opening the catalog {}", dir.display()))
        })?;
        env.open_tables(make_tables)?;
        Ok(env)
    }

    fn open_files(&mut self, path: &CStr, options: &Options) -> Result<()> {
        let env = self.raw.as_ptr();
        let sync = if options.durable { 0 } else { ffi::MDB_NOSYNC };
        // No MDB_NORDAHEAD: a catalog is small beside the memory of a node that holds its arrays,
        // and reading ahead halves a cold start. MDB_NOMEMINIT has no meaning with MDB_WRITEMAP.
        let access = if options.read_only {
            ffi::MDB_RDONLY | ffi::MDB_NOLOCK
        } else {
            ffi::MDB_WRITEMAP | sync
        };
        let flags = access | ffi::MDB_NOTLS;
        let tables = Table::COUNT as u32;
        // SAFETY: the handle is ours, new and not yet open, as these calls demand.
        unsafe {
            check(
                "setting the map size",
                ffi::mdb_env_set_mapsize(env, options.map_size as usize),
            )?;
            check("setting the table count", ffi::mdb_env_set_maxdbs(env, tables))?;
            check("setting the readers", ffi::mdb_env_set_maxreaders(env, options.max_readers))?;
        }
        let (rc, lock_file) = process::opening(|| {
            // SAFETY: as above, and `path` ends with NUL.
            unsafe { ffi::mdb_env_open(env, path.as_ptr(), flags, options.file_mode) }
        });
        self.lock_file = lock_file;
        match rc {
            rc @ (libc::ENOMEM | libc::EFBIG) => fail!(
                Unsupported,
                "a map of {} bytes: {}; raise this process's limits (ulimit -v, ulimit -f)",
                options.map_size,
                text(rc)
            ),
            rc => check("mdb_env_open", rc)?,
        }
        self.shown = lock_file.map(shown::ShownCommit::map).transpose()?;
        let mut fd = -1;
        // SAFETY: the environment is open; setting a flag of its descriptor changes nothing that
        // LMDB relies on. (LMDB leaves this one open across exec.)
        let rc = unsafe {
            check("mdb_env_get_fd", ffi::mdb_env_get_fd(env, &raw mut fd))?;
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC)
        };
        if rc == -1 {
            return Err(Error::last_os("marking the catalog's descriptor close-on-exec"));
        }
        let mut stat = TreeSize::none();
        // SAFETY: the environment is open and `stat` is a valid place.
        check("mdb_env_stat", unsafe { ffi::mdb_env_stat(env, &raw mut stat) })?;
        self.page_bytes = u64::from(stat.ms_psize);
        self.check_lock_table()
    }

    /// LMDB walks as many readers as the lock table says, beyond its end if there are not so many.
    /// The first process to open it makes it anew; others find what is there.
    fn check_lock_table(&self) -> Result<()> {
        let info = self.info()?;
        if info.me_numreaders > info.me_maxreaders {
            fail!(
                Corrupt,
                "lock.mdb says that {} readers have been there at once, and has room for {}; close \
                 the pool in every process that has it open: the next to open it makes the table \
                 anew",
                info.me_numreaders,
                info.me_maxreaders
            );
        }
        Ok(())
    }

    fn open_tables(&mut self, make: bool) -> Result<()> {
        let mut tables = [0; Table::COUNT];
        let (begin, open) = if make { (0, ffi::MDB_CREATE) } else { (ffi::MDB_RDONLY, 0) };
        let refused = |rc| self.refusal("beginning to open the tables", rc);
        let txn = loop {
            let txn = self.begin(begin).map_err(refused)?;
            // SAFETY: the transaction is live.
            let id = unsafe { ffi::mdb_txn_id(txn.as_ptr()) as u64 };
            if make || self.is_whole(id) {
                break txn;
            }
            // SAFETY: the transaction is live, and not used again.
            unsafe { ffi::mdb_txn_abort(txn.as_ptr()) };
        };
        for table in Table::ALL {
            let Ok(name) = CString::new(table.name()) else {
                unreachable!("names of tables have no NUL")
            };
            // SAFETY: the transaction is live and this is the only one that opens tables, since
            // nobody else has this environment yet.
            let rc = unsafe {
                let dbi = &raw mut tables[table as usize];
                ffi::mdb_dbi_open(txn.as_ptr(), name.as_ptr(), open, dbi)
            };
            if rc != 0 {
                // SAFETY: the transaction is live, and not used again.
                unsafe { ffi::mdb_txn_abort(txn.as_ptr()) };
                fail!(
                    Corrupt,
                    "the catalog's table {} does not open ({}); run verify",
                    table.name(),
                    text(rc)
                );
            }
        }
        // SAFETY: the transaction is live, and not used again. Committing keeps the handles.
        check("opening the tables", unsafe { ffi::mdb_txn_commit(txn.as_ptr()) })?;
        self.tables = tables;
        Ok(())
    }

    /// LMDB's page size.
    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// How many reader slots have ever been in use at once, over all processes.
    #[cfg(test)]
    pub(super) fn readers_ever(&self) -> Result<u32> {
        self.info().map(|info| info.me_numreaders)
    }

    /// The last page that the last committed transaction uses. Under the writer lock: that the
    /// one now writing has begun from.
    pub(super) fn last_page(&self) -> Result<u64> {
        self.info().map(|info| info.me_last_pgno as u64)
    }

    /// The id of the last committed transaction: two loads, and no lock.
    pub(super) fn last_id(&self) -> Result<u64> {
        self.check_process()?;
        self.info().map(|info| info.me_last_txnid as u64)
    }

    fn info(&self) -> Result<ffi::MDB_envinfo> {
        let mut info = ffi::MDB_envinfo {
            me_mapaddr: ptr::null_mut(),
            me_mapsize: 0,
            me_last_pgno: 0,
            me_last_txnid: 0,
            me_maxreaders: 0,
            me_numreaders: 0,
        };
        // SAFETY: the environment is open and `info` is a valid place.
        check("mdb_env_info", unsafe { ffi::mdb_env_info(self.raw.as_ptr(), &raw mut info) })?;
        Ok(info)
    }

    /// Copies what the last committed transaction shows into a new `data.mdb` in `dir`, without
    /// free pages.
    pub(super) fn copy_compact(&self, dir: &Path) -> Result<()> {
        self.check_process()?;
        let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else {
            fail!(Argument, "the path {} has a NUL byte; choose another", dir.display());
        };
        let rc = wait::giving_up(|| {
            // SAFETY: the environment is open, and `path` ends with NUL.
            unsafe { ffi::mdb_env_copy2(self.raw.as_ptr(), path.as_ptr(), ffi::MDB_CP_COMPACT) }
        });
        let what = format_args!("copying the catalog to {}", dir.display());
        if rc == 0 { Ok(()) } else { Err(self.refusal(what, rc)) }
    }

    /// Writes every committed page to the medium.
    pub(super) fn sync(&self) -> Result<()> {
        // SAFETY: the environment is open.
        check("syncing the catalog", unsafe { ffi::mdb_env_sync(self.raw.as_ptr(), 1) })
    }

    /// Frees the reader slots of processes that are gone.
    pub(super) fn clear_dead_readers(&self) -> Result<()> {
        self.check_process()?;
        let rc = wait::giving_up(|| {
            // SAFETY: the environment is open; the count of dead readers may be left out.
            unsafe { ffi::mdb_reader_check(self.raw.as_ptr(), ptr::null_mut()) }
        });
        if rc == 0 { Ok(()) } else { Err(self.refusal("clearing dead readers", rc)) }
    }

    /// Every reader slot in use: its process, and the snapshot that it reads, if it reads one now.
    pub(super) fn readers(&self) -> Result<Vec<(u32, Option<u64>)>> {
        /// A part of LMDB's list, of lines: process, thread, and the snapshot or `-`.
        unsafe extern "C" fn part(text: *const c_char, list: *mut c_void) -> c_int {
            // SAFETY: LMDB passes a string, and the pointer given below.
            let (text, list) = unsafe { (CStr::from_ptr(text), &mut *list.cast::<String>()) };
            list.push_str(&text.to_string_lossy());
            0
        }
        self.check_process()?;
        let mut list = String::new();
        // SAFETY: the environment is open; `part` gets a pointer to `list` during this call.
        unsafe { ffi::mdb_reader_list(self.raw.as_ptr(), Some(part), (&raw mut list).cast()) };
        let reader = |line: &str| {
            let mut words = line.split_whitespace();
            let number = words.next()?.parse().ok()?; // of the heading it is none
            Some((guest::pid_of(number), words.nth(1)?.parse().ok()))
        };
        Ok(list.lines().filter_map(reader).collect())
    }

    /// The oldest snapshot that any reader holds.
    fn oldest_reader(&self) -> Result<u64> {
        Ok(self
            .readers()?
            .into_iter()
            .filter_map(|(_, snapshot)| snapshot)
            .min()
            .unwrap_or(u64::MAX))
    }

    /// How many free pages no reader can see, so that a transaction beginning now may take them;
    /// counting stops at `enough`. With `everything`, those that readers still see count too.
    pub(super) fn free_pages(&self, enough: u64, everything: bool) -> Result<u64> {
        let read = self.read()?;
        let oldest = if everything { u64::MAX } else { self.oldest_reader()?.min(read.id()) };
        let mut cursor = read.cursor(FREE_TABLE, &[])?;
        let mut pages = 0;
        while pages < enough {
            let Some((key, value)) = cursor.next()? else { break };
            let (Some(freed_by), Some(count)) = (word(key), word(value)) else {
                fail!(Corrupt, "the catalog's list of free pages is damaged; run verify");
            };
            if freed_by >= oldest {
                break;
            }
            pages += count;
        }
        Ok(pages)
    }

    /// Begins to read: the snapshot is the commit that its number names.
    pub(super) fn read(&self) -> Result<Read<'_>> {
        loop {
            let read = self.read_any()?;
            if self.is_whole(read.id()) {
                return Ok(read);
            }
        }
    }

    /// Whether a read transaction that has just begun, with this number, copied the header of that
    /// commit: see the essay. There is no such word without locks, where nobody writes, and where
    /// LMDB's C was compiled without the flags of `.cargo/config.toml`.
    fn is_whole(&self, id: u64) -> bool {
        // The number is in the reader's slot, and the copy made, before the word is read.
        fence(Ordering::SeqCst);
        self.shown.as_ref().is_none_or(|shown| shown.id() == id)
    }

    /// Begins a read transaction on a kept slot, or on a new one. A commit may have come between
    /// its number and its content.
    fn read_any(&self) -> Result<Read<'_>> {
        self.check_process()?;
        let slot = self.lock_kept().pop();
        if let Some(slot) = slot {
            // SAFETY: the transaction is reset, ours alone, and of this open environment.
            match unsafe { ffi::mdb_txn_renew(slot.0.as_ptr()) } {
                0 => return Ok(Read::new(self, slot.0)),
                // Another process took us for dead and freed the slot; it may be somebody
                // else's now. Ending this transaction would write into it: forget it.
                ffi::MDB_BAD_RSLOT => {}
                rc => {
                    self.lock_kept().push(slot);
                    return Err(error("renewing a read transaction", rc));
                }
            }
        }
        let mut begun = self.begin(ffi::MDB_RDONLY);
        if begun == Err(ffi::MDB_READERS_FULL) {
            self.clear_dead_readers()?;
            begun = self.begin(ffi::MDB_RDONLY);
        }
        let raw = begun.map_err(|rc| self.refusal("beginning to read the catalog", rc))?;
        Ok(Read::new(self, raw))
    }

    /// Refuses a second write transaction to the thread that has one.
    pub(super) fn check_not_writing(&self) -> Result<()> {
        if self.writer.load(Ordering::Relaxed) == this_thread() {
            fail!(Busy, "this thread is writing to the catalog already; end that first");
        }
        Ok(())
    }

    /// Waits for the writer lock and begins a write transaction. The thread has none.
    pub(super) fn write(&self) -> Result<Write<'_>> {
        self.check_process()?;
        let refused = |rc| self.refusal("beginning to write to the catalog", rc);
        self.begin(0).map_err(refused).map(|raw| self.begun(raw))
    }

    /// Begins a write transaction, unless somebody else writes. The thread has none.
    pub(super) fn write_if_free(&self) -> Result<Option<Write<'_>>> {
        self.check_process()?;
        match self.begin_by(0, |call| wait::trying(call)) {
            Ok(raw) => Ok(Some(self.begun(raw))),
            Err(libc::EBUSY) => Ok(None),
            Err(rc) => Err(self.refusal("beginning to write to the catalog", rc)),
        }
    }

    fn begun(&self, raw: NonNull<ffi::MDB_txn>) -> Write<'_> {
        // A full barrier: a child forked from now on sees the mark before it can see any list
        // that LMDB moves.
        self.writer.swap(this_thread(), Ordering::AcqRel);
        Write::new(self, raw)
    }

    fn begin(&self, flags: u32) -> std::result::Result<NonNull<ffi::MDB_txn>, c_int> {
        self.begin_by(flags, |call| wait::giving_up(call))
    }

    fn begin_by(
        &self,
        flags: u32,
        wait: impl FnOnce(&mut dyn FnMut() -> c_int) -> c_int,
    ) -> std::result::Result<NonNull<ffi::MDB_txn>, c_int> {
        let mut raw = ptr::null_mut();
        let rc = wait(&mut || {
            // SAFETY: the environment is open, and `raw` a valid place for the handle.
            unsafe { ffi::mdb_txn_begin(self.raw.as_ptr(), ptr::null_mut(), flags, &raw mut raw) }
        });
        if rc == 0 { NonNull::new(raw).ok_or(ffi::MDB_PROBLEM) } else { Err(rc) }
    }

    /// LMDB's refusal of a call that may give up a lock.
    #[cold]
    fn refusal(&self, what: impl Display, rc: c_int) -> Error {
        match wait::given_up() {
            Some(watch) if rc == libc::EBUSY => {
                watch.busy(format_args!("the catalog in {}", self.dir.display()))
            }
            _ => error(what, rc),
        }
    }

    fn held_table(&self) -> &held_txns::HeldTxns {
        &self.held
    }

    /// Ends a live read transaction, and keeps its slot for the next.
    fn retire(&self, slot: ReaderSlot) {
        // SAFETY: the transaction is live and ours; it is not used before it is renewed.
        unsafe { ffi::mdb_txn_reset(slot.0.as_ptr()) };
        self.lock_kept().push(slot);
    }

    fn lock_kept(&self) -> MutexGuard<'_, Vec<ReaderSlot>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process inherited the environment from the one that opened it.
    fn is_inherited(&self) -> bool {
        forks() != self.born && !self.lockless
    }

    /// Refuses a forked child what the parent has opened.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(inherited());
        }
        Ok(())
    }

    /// Closes an environment that a forked child inherited, leaving the parent's slots alone.
    pub(super) fn abandon(mut self) {
        self.abandoned = true;
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        let inherited = self.abandoned || self.is_inherited();
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Taken by moving the list as it is: in a child, another thread of the parent may have
        // been changing it.
        let kept = std::mem::take(kept);
        if inherited {
            std::mem::forget(kept);
            self.held.forget();
            if self.writer.load(Ordering::Acquire) != 0 {
                return;
            }
        } else {
            for slot in kept.into_iter().chain(self.held.take()) {
                // SAFETY: a kept transaction is reset, a held one live and used by nobody, since a
                // user of one borrows the environment; both are ours alone, and end only here.
                unsafe { ffi::mdb_txn_abort(slot.0.as_ptr()) };
            }
        }
        if let Some(file) = self.lock_file {
            file.forget();
        }
        // SAFETY: every transaction borrows the environment, so none is left in this process but
        // those forgotten above; nothing of them is used again. In a child, see the essay.
        unsafe { ffi::mdb_env_close(self.raw.as_ptr()) };
    }
}

/// A number for the calling thread: other than any thread's that is alive, and not 0.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| ptr::from_ref(here).addr())
}

fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().copied().map(u64::from_ne_bytes)
}

fn check(what: impl Display, rc: c_int) -> Result<()> {
    if rc == 0 { Ok(()) } else { Err(error(what, rc)) }
}

#[cold]
fn inherited() -> Error {
    Error::new(
        Kind::Busy,
        "this catalog was opened by the process that forked this one; open it anew here",
    )
}

/// LMDB's or the system's text for a code.
fn text(rc: c_int) -> String {
    // SAFETY: `mdb_strerror` returns a string that lives at least until its next call.
    unsafe { CStr::from_ptr(ffi::mdb_strerror(rc)) }.to_string_lossy().into_owned()
}

/// LMDB's refusal of `what`, with the kind that its code asks for.
#[cold]
fn error(what: impl Display, rc: c_int) -> Error {
    let (kind, remedy) = match rc {
        1.. => return Error::os(what, &std::io::Error::from_raw_os_error(rc)),
        ffi::MDB_MAP_FULL => (Kind::PoolFull, "the catalog has reached its map size"),
        ffi::MDB_TXN_FULL => (Kind::PoolFull, "the batch is too large; commit it in parts"),
        ffi::MDB_READERS_FULL => (Kind::Busy, "too many threads read at once; end some"),
        ffi::MDB_BAD_VALSIZE => (Kind::Argument, "keys have 1 to 511 bytes, values up to 4 GiB"),
        ffi::MDB_BAD_TXN => (Kind::Os, "the transaction failed before; drop it and begin again"),
        ffi::MDB_VERSION_MISMATCH => (
            Kind::Format,
            "another version of LMDB made this catalog, or a program with another C library \
             (glibc, musl) has it open: wait until that ends, or use one library for all",
        ),
        ffi::MDB_PANIC => (Kind::Corrupt, "an earlier failure; close the pool and open it again"),
        _ => (Kind::Corrupt, "the catalog is damaged; run verify"),
    };
    Error::new(kind, format!("{what}: {}; {remedy}", text(rc)))
}
