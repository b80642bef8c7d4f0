//! The catalog: every row of a realm, in one LMDB environment that never remaps.
//!
//! # Growing (P5)
//!
//! `data.mdb` is mapped once, at one constant size, and is that long from the first open on, so
//! LMDB's `ftruncate` at open changes nothing and no process ever sees a map that is too small. The
//! file is sparse. Only pages with blocks may be written, and `growth` says how many have some
//! ([`Growth::allocated_pages`], from the start of the file). In this order:
//!
//! 1. A writer begins (LMDB's writer lock), reads the last page used and the mark.
//! 2. Each row is admitted against mark, last page, reserve and the bound of `bound.rs`. A row that
//!    may not fit is refused before it is written, and [`WriteTxn::short_of`] says what is missing.
//! 3. The writer drops the transaction, calls [`Catalog::extend`], and begins again. That takes
//!    the lock of `growth`, not the writer lock: `fallocate` first, the mark after it. A writer
//!    that dies in between leaves blocks that the next extension finds.
//!
//! A mark read too early is too small and costs one more round. It never shrinks. Blocks beyond it
//! belong to the holder of the lock of `growth`, so those of a failed attempt are given back.
//!
//! The last [`RESERVE_PAGES`](bound::RESERVE_PAGES) are for [`Headroom::Relief`]: deleting copies
//! pages too. When nothing more can be had, free pages inside the file count: `extend` then says
//! "go on" once, and from there until it succeeds each transaction begins by counting the free
//! pages that no reader sees (`tight`). So a full pool takes new rows again after deletions, though
//! its filesystem is still full.
//!
//! # Readers wait for no other process (P6)
//!
//! [`Catalog::read`] takes no lock that another process can hold, but for the first use of a reader
//! slot (see `lmdb.rs`); slots are kept. Slots of processes that died are cleared at open, and
//! before growing, since what they saw cannot be reused.
//!
//! # A failed sync (P7)
//!
//! When `msync` fails, the kernel marks the pages clean all the same: syncing again would report
//! success and have written nothing. So a commit or sync that fails sets the poison word in
//! `growth`, which every process looks at under the writer lock before it writes. A commit whose
//! *last* sync fails is uncertain ([`WriteTxn::commit`]); one that fails before that is not there.
//!
//! LMDB gives the lock up before the word is set. A thread of this process that gets it meanwhile
//! would not see the failure (the kernel reports it once for each open file), so a durable
//! catalog's threads take a mutex around the whole transaction. Another process has a file of its
//! own, to which the kernel reports the failure again, at the `msync` of its own commit, over the
//! whole file.
//!
//! # Commits on persistent memory
//!
//! LMDB's commit page may be torn there. Each commit is *sealed*: see `seal.rs`.
//!
//! # Watchers
//!
//! Each commit leaves a note of the objects that it changes in the growth page (`news.rs`), and
//! rings the bell there when it is made ([`Growth::bell`]), if it has changed any.
//!
//! # The synced-close mark
//!
//! A catalog that is not durable is on the medium only while `clean` is set. It is set under the
//! writer lock, after everything has been synced ([`Catalog::close_clean`]), and cleared, synced,
//! under the writer lock before the next commit ([`WriteTxn::commit`]).

mod bound;
mod empty;
mod fill;
mod group_changes;
mod growth;
mod lmdb;
mod news;
mod seal;
mod stats;
mod table;
mod txn;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use fill::Filling;
pub use group_changes::GroupChanges;
pub use growth::{Growth, NotedFailure};
pub use lmdb::{Cursor, Txn};
pub use lmdb::{forks, note_fork, watch_forks};
pub use seal::roll_back_closed;
pub use stats::{CatalogStats, TableStats};
pub use table::Table;
pub use txn::{Headroom, ReadTxn, WriteTxn};

use bound::{PageBound, RESERVE_PAGES};
use empty::EmptyTables;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_media::boot_id;
use growth::FileRange;
use lmdb::Env;

/// Pages that a new catalog has blocks for.
const FIRST_PAGES: u64 = 2 * RESERVE_PAGES;

/// The least and the most by which a catalog grows.
const LEAST_STEP_BYTES: u64 = 1 << 20;
const GREATEST_STEP_BYTES: u64 = 64 << 20;

/// Pages that a transaction is expected to take beside those for its rows: copies, and the list of
/// free pages.
const EXPECTED_BESIDE: u64 = 96;

/// Room in `lock.mdb` for what LMDB keeps beside its readers, and for one reader.
const LOCK_HEAD_BYTES: u64 = 4096;
const LOCK_READER_BYTES: u64 = 64;

/// Free pages are counted up to here.
const ENOUGH_FREE_PAGES: u64 = 1 << 14;

/// How a catalog is made and opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the map: the same for every process, for as long as the catalog exists.
    pub map_size: u64,
    /// Whether each commit is synced.
    pub durable: bool,
    /// The mode of the catalog's files.
    pub file_mode: u32,
    /// How many threads, over all processes, may read at once.
    pub max_readers: u32,
    /// Whether it is opened for reading alone, without locks: nobody ever writes to it.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            map_size: 64 << 30,
            durable: false,
            file_mode: 0o600,
            max_readers: 4096,
            read_only: false,
        }
    }
}

/// An open catalog. A process has one at a time for a directory.
pub struct Catalog {
    env: Env,
    growth: Arc<Growth>,
    data: File,
    data_path: PathBuf,
    durable: bool,
    map_pages: u64,
    /// Growing has failed since it last succeeded: free pages are counted.
    tight: AtomicBool,
    /// A commit has failed.
    spent: AtomicBool,
    /// One writer at a time in this process, if durable: see the essay.
    thread_lock: Mutex<()>,
    /// Nobody writes to it: see `open_published`.
    read_only: bool,
}

impl Catalog {
    /// Makes a catalog in `dir`, which exists. On error what was made is removed.
    pub fn create(dir: &Path, options: &Options) -> Result<()> {
        let mut made = Made { paths: Vec::new() };
        let page_bytes = page_bytes();
        let least = (FIRST_PAGES + 1) * page_bytes;
        if options.map_size < least || !options.map_size.is_multiple_of(page_bytes) {
            fail!(
                Argument,
                "a catalog map of {} bytes; it must be a multiple of {page_bytes} from {least}",
                options.map_size
            );
        }
        let (data, growth) = made.begin(dir, options, FIRST_PAGES, None)?;
        let env = Env::open(dir, options, true)?;
        if options.durable {
            env.sync()?;
            sync_file(&data, &dir.join("data.mdb"))?;
            growth.sync()?;
            let opened = File::open(dir).map_err(|error| Error::os(dir.display(), &error))?;
            sync_file(&opened, dir)?;
        }
        made.paths.clear();
        Ok(())
    }

    /// Opens the catalog in `dir`. The process must not have it open.
    pub fn open(dir: &Path, options: &Options) -> Result<Catalog> {
        let data_path = dir.join("data.mdb");
        let (data, bytes) = growth::open_file(&data_path)?;
        if bytes != options.map_size {
            fail!(
                Corrupt,
                "{} has {bytes} bytes, not {}; restore the pool from a copy",
                data_path.display(),
                options.map_size
            );
        }
        let growth = open_growth(dir, options)?;
        let map_pages = options.map_size / page_bytes();
        let allocated = growth.allocated_pages();
        if !(FIRST_PAGES..map_pages).contains(&allocated) {
            fail!(
                Corrupt,
                "growth says that {allocated} pages of {} have blocks, of {map_pages}; run verify",
                data_path.display()
            );
        }
        if growth::blocks_bytes(&data, &data_path)? < allocated * page_bytes() {
            fill_holes(&data, allocated * page_bytes(), &data_path)?;
        }
        check_lock_file(&dir.join("lock.mdb"), options)?;
        seal::roll_back_unsealed(&data, &data_path, &growth, boot_id())?;

        let env = growth.one_opens(|| Env::open(dir, options, false))?;
        env.clear_dead_readers()?;
        growth.set_empty(EmptyTables::default());
        Ok(Catalog {
            env,
            growth: Arc::new(growth),
            data,
            data_path,
            durable: options.durable,
            map_pages,
            tight: AtomicBool::new(false),
            spent: AtomicBool::new(false),
            thread_lock: Mutex::new(()),
            read_only: false,
        })
    }

    /// Opens the catalog of a published version, of which `dir` has nothing but `data.mdb`: for
    /// reading alone, without locks, mapped as far as the file goes. Nobody writes to that file, so
    /// a snapshot of it needs no place in any table of readers.
    pub fn open_published(dir: &Path) -> Result<Catalog> {
        let data_path = dir.join("data.mdb");
        let (data, bytes) = growth::open_file_as(&data_path, false)?;
        if bytes < 2 * page_bytes() || !bytes.is_multiple_of(page_bytes()) {
            fail!(
                Corrupt,
                "{} has {bytes} bytes, which no published catalog has: publish anew, or restore it",
                data_path.display()
            );
        }
        let options = Options { map_size: bytes, read_only: true, ..Options::default() };
        let env = Env::open(dir, &options, false)?;
        let map_pages = bytes / page_bytes();
        if env.last_page()? >= map_pages {
            fail!(
                Corrupt,
                "{} was cut short: it has {map_pages} pages, the last in use is {}; publish anew, \
                 or restore it",
                data_path.display(),
                env.last_page()?
            );
        }
        let page = data.try_clone().map_err(|e| Error::os(data_path.display(), &e))?;
        let growth = Growth::alone(page, &data_path, map_pages)?;
        Ok(Catalog {
            env,
            growth: Arc::new(growth),
            data,
            data_path,
            durable: false,
            map_pages,
            tight: AtomicBool::new(false),
            spent: AtomicBool::new(false),
            thread_lock: Mutex::new(()),
            read_only: true,
        })
    }

    /// Makes a catalog in `dir` that begins as a copy of a published one.
    pub fn create_from(dir: &Path, options: &Options, published: &Path) -> Result<()> {
        let (source, bytes) = growth::open_file_as(&published.join("data.mdb"), false)?;
        let pages = bytes.div_ceil(page_bytes()) + FIRST_PAGES;
        let mut made = Made { paths: Vec::new() };
        made.begin(dir, options, pages, Some(&source))?;
        // It gives the file its length.
        drop(Env::open(dir, options, false)?);
        made.paths.clear();
        Ok(())
    }

    /// Writes what the last commit shows into a new `data.mdb` in `dir`, without free pages.
    pub fn copy_compact(&self, dir: &Path) -> Result<()> {
        self.env.copy_compact(dir)
    }

    /// A snapshot to read from. Waits for no writer.
    pub fn read(&self) -> Result<ReadTxn<'_>> {
        self.env.read().map(ReadTxn::new)
    }

    /// The id of the last committed transaction: a snapshot with this id is the newest there is.
    /// Far cheaper than beginning one.
    pub fn last_id(&self) -> Result<u64> {
        self.env.last_id()
    }

    /// Has readers that begin from now on see every commit of those who are dead.
    ///
    /// LMDB shows a commit to readers once it is written and synced. A writer that is killed after
    /// the writing and before that has committed; but only the next writer finds that, and shows
    /// it. A thread that has just got a lock from one that died would read what was there before,
    /// and then change what is there now. So it is the next writer, if there is anything to show;
    /// a writer that lives has seen to it when it began, and is not waited for.
    pub fn show_commits_of_the_dead(&self) -> Result<()> {
        // What a failed sync has left is no commit.
        if self.read_only || self.poisoned() || self.env.check_not_writing().is_err() {
            return Ok(());
        }
        let last = self.last_id()?;
        if self.read()?.id() < last
            && let Some(_next) = self.env.write_if_free()?
            && self.growth.is_persistent()
        {
            seal::seal_last(self)?;
        }
        Ok(())
    }

    /// Whether the last commit is known to have left a table empty; `false` says nothing. Far
    /// cheaper than a snapshot.
    pub fn knows_empty(&self, table: Table) -> Result<bool> {
        let last = self.last_id()?;
        Ok(self.growth.empty().after(last).has(table))
    }

    fn refuse_poisoned(&self) -> Result<()> {
        if self.read_only {
            fail!(
                ReadOnly,
                "{} is published: nothing of it can be changed; unpublish it first",
                self.data_path.display()
            );
        }
        if self.poisoned() {
            fail!(
                Corrupt,
                "the catalog is poisoned: a sync of it failed ({}); run verify, then open anew",
                self.data_path.display()
            );
        }
        Ok(())
    }

    /// Whether a commit has failed here: LMDB may refuse to read in this environment from then on,
    /// and it has to be opened anew.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Whether the catalog's file has a name.
    pub fn is_named(&self) -> bool {
        self.data.metadata().is_ok_and(|own| own.nlink() > 0)
    }

    /// Whether no other file has the name by which it was opened. If nothing has, its folder may go
    /// by another name.
    pub fn is_at_its_place(&self) -> bool {
        let Ok(here) = fs::metadata(&self.data_path) else { return true };
        let place = |about: &fs::Metadata| (about.dev(), about.ino());
        self.data.metadata().is_ok_and(|own| place(&own) == place(&here))
    }

    /// Waits for the writer lock and begins the write transaction.
    pub fn write(&self, headroom: Headroom) -> Result<WriteTxn<'_>> {
        // Before any lock that this thread may have.
        self.env.check_not_writing()?;
        let thread_lock =
            self.durable.then(|| self.thread_lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.refuse_poisoned()?;
        let raw = self.env.write()?;
        self.refuse_poisoned()?;
        if self.growth.is_persistent() {
            seal::seal_last(self)?;
        }
        let kept_back = match headroom {
            Headroom::Normal => RESERVE_PAGES,
            Headroom::Relief => 0,
        };
        let used = self.env.last_page()? + 1 + kept_back;
        let room = self.growth.allocated_pages().saturating_sub(used);
        let reusable = if self.tight.load(Ordering::Relaxed) {
            self.env.clear_dead_readers()?;
            self.env.free_pages(ENOUGH_FREE_PAGES, false)?
        } else {
            0
        };
        let bound = PageBound::new(self.env.page_bytes(), raw.free_tree()?, room, reusable);
        Ok(WriteTxn::new(self, raw, bound, thread_lock))
    }

    /// Makes room ahead for a transaction that will put about so many bytes, and as many `rows`
    /// into tables: it would otherwise find out row by row and begin again. A full filesystem is
    /// left for it to meet.
    pub fn expect(&self, bytes: u64, rows: impl IntoIterator<Item = (Table, u64)>) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let mut pages = bytes / self.env.page_bytes() * 5 / 4 + EXPECTED_BESIDE;
        // Without a reader slot to be had, the transaction finds out for itself.
        if let Ok(read) = self.read() {
            for (table, rows) in rows {
                if rows > 0 && !table.grows_at_its_end() {
                    // For all that is known, each row is in a leaf of its own, which is copied.
                    let tree = read.tree(table)?;
                    pages += rows.min(u64::from(tree.leaf)) + rows.min(u64::from(tree.branch));
                }
            }
        }
        let used = self.env.last_page()? + 1 + RESERVE_PAGES;
        if used + pages <= self.growth.allocated_pages() {
            return Ok(());
        }
        match self.extend(pages) {
            Err(error) if error.kind() != Kind::PoolFull => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives the catalog blocks for `pages` pages more than are used now and held in reserve.
    ///
    /// Call it when [`WriteTxn::short_of`] says so, without a write transaction, and begin again
    /// if it succeeds. If the filesystem has no room, it succeeds once all the same: transactions
    /// count free pages from then on. `PoolFull` if that has not helped.
    pub fn extend(&self, pages: u64) -> Result<()> {
        self.env.clear_dead_readers()?;
        let _lock = self.growth.lock()?;
        step!("catalog.locked");
        let allocated = self.growth.allocated_pages();
        let wanted = self.env.last_page()? + 1 + RESERVE_PAGES + pages;
        if wanted <= allocated {
            return Ok(());
        }
        let page_bytes = self.env.page_bytes();
        let step =
            (allocated / 8).clamp(LEAST_STEP_BYTES / page_bytes, GREATEST_STEP_BYTES / page_bytes);
        // `pages` is what was known when a row was refused. Twice that, or a batch whose rows
        // are many steps long would begin again at each.
        let most = wanted + GREATEST_STEP_BYTES / page_bytes;
        // LMDB leaves the last page of its map unused.
        let generous = (wanted + pages).min(most).max(allocated + step).min(self.map_pages - 1);
        let grown = match self.grow_to(allocated, generous.max(wanted)) {
            Err(error) if error.kind() == Kind::PoolFull && generous > wanted => {
                self.grow_to(allocated, wanted)
            }
            grown => grown,
        };
        match grown {
            Ok(()) => {
                self.tight.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.kind() == Kind::PoolFull => {
                if self.tight.swap(true, Ordering::Relaxed) { Err(error) } else { Ok(()) }
            }
            Err(error) => Err(error),
        }
    }

    /// Gives blocks to the pages from `allocated` to `pages`. The caller has the growth lock.
    fn grow_to(&self, allocated: u64, pages: u64) -> Result<()> {
        if pages >= self.map_pages {
            fail!(
                PoolFull,
                "the catalog {} would outgrow its map of {} pages; delete objects",
                self.data_path.display(),
                self.map_pages
            );
        }
        let page_bytes = self.env.page_bytes();
        let range =
            FileRange { from: allocated * page_bytes, to: pages * page_bytes, keep_size: true };
        let mut done = allocate(&self.data, range, &self.data_path);
        if done.is_ok() && self.durable {
            // The mark must not outlive the blocks.
            done = sync_file(&self.data, &self.data_path);
        }
        if let Err(error) = done {
            growth::release(&self.data, range);
            return Err(error);
        }
        step!("catalog.allocated");
        self.growth.set_allocated_pages(pages);
        step!("catalog.marked");
        Ok(())
    }

    /// Writes everything committed to the medium. A failure poisons the realm.
    pub fn sync(&self) -> Result<()> {
        self.env.check_process()?;
        self.env.sync().inspect_err(|_| self.poison())
    }

    /// Under the writer lock: calls `flush`, for what rows point to, syncs the catalog, and sets
    /// the synced-close mark. A failure poisons the realm.
    pub fn close_clean(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let _writer = self.write(Headroom::Relief)?;
        let synced = flush().and_then(|()| self.env.sync());
        synced.inspect_err(|_| self.poison())?;
        self.growth.set_clean(true);
        self.growth.sync().inspect_err(|_| self.growth.set_clean(false))
    }

    /// Refuses all further writing, by every process.
    pub fn poison(&self) {
        self.growth.set_poisoned(true);
        // If this fails too, the word stands in memory, where the other processes see it.
        let _ = self.growth.sync();
    }

    /// Whether a sync has failed.
    pub fn poisoned(&self) -> bool {
        self.growth.poisoned()
    }

    /// Allows writing again: for a caller that has verified the realm and has it alone.
    pub fn clear_poison(&self) {
        self.growth.set_poisoned(false);
        let _ = self.growth.sync();
    }

    /// The growth page.
    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// The growth page, for a thread that sleeps on its bell though the catalog be closed.
    pub fn shared_growth(&self) -> Arc<Growth> {
        Arc::clone(&self.growth)
    }

    /// Closes what a forked child inherited, without touching the parent's reader slots. To be
    /// done before the child opens the catalog anew: closing a descriptor of `lock.mdb` later
    /// would drop the locks that it then has. (Dropping a `Catalog` in a child does the same.)
    pub fn abandon(self) {
        self.env.abandon();
    }

    /// Runs `change` in one write transaction and commits it; again, where it needed more pages.
    pub fn run<T>(&self, change: impl FnMut(&mut WriteTxn<'_>) -> Result<T>) -> Result<T> {
        fill::run(self, change)
    }

    /// Every reader slot in use: its process, and the snapshot that it reads, if it reads one now.
    pub fn readers(&self) -> Result<Vec<(u32, Option<u64>)>> {
        self.env.readers()
    }

    /// Frees the reader slots of processes that are gone.
    pub fn clear_dead_readers(&self) -> Result<()> {
        self.env.clear_dead_readers()
    }

    /// Pages with rows on them, pages that the next transaction may take, and pages without rows
    /// that readers still see.
    pub fn pages(&self) -> Result<(u64, u64, u64)> {
        stats::pages(self)
    }

    /// What the catalog takes.
    pub fn stats(&self) -> Result<CatalogStats> {
        stats::stats(self)
    }

    /// Keeps a snapshot live beyond its borrow; the number to ask for it by. A caller that no
    /// longer needs it lets go of it: until then LMDB reuses no page that it shows.
    pub fn hold(&self, read: ReadTxn<'_>) -> u64 {
        self.env.hold(read.into_raw())
    }

    /// A held snapshot, to look through; waits while another thread does. `None` if there is none
    /// of this number.
    pub fn held(&self, number: u64) -> Result<Option<ReadTxn<'_>>> {
        Ok(self.env.held(number)?.map(ReadTxn::new))
    }

    /// Ends a held snapshot, unless somebody looks through it now. Whether it is gone.
    pub fn let_go(&self, number: u64) -> Result<bool> {
        self.env.let_go(number)
    }

    /// How many pages are free but for those who look at the snapshot of this transaction; counting
    /// stops at `enough`.
    pub fn pages_freed_since(&self, since: u64, enough: u64) -> Result<u64> {
        self.env.pages_freed_since(since, enough)
    }

    /// The last page in use.
    pub fn last_page(&self) -> Result<u64> {
        self.env.last_page()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.env.page_bytes()
    }
}

/// Raises the lease epoch of a catalog that this process does not have open: a forked child that
/// forks before it has used the realm.
pub fn raise_lease_epoch(dir: &Path, options: &Options) -> Result<()> {
    open_growth(dir, options)?.raise_lease_epoch();
    Ok(())
}

fn open_growth(dir: &Path, options: &Options) -> Result<Growth> {
    Growth::open(&dir.join("growth"), page_bytes(), options.map_size, options.durable)
}

/// LMDB's page size in a new environment: the system's, up to LMDB's greatest.
pub fn page_bytes() -> u64 {
    growth::system_page_bytes().min(1 << 15)
}

fn lock_bytes(options: &Options) -> u64 {
    LOCK_HEAD_BYTES + u64::from(options.max_readers) * LOCK_READER_BYTES
}

/// Allocates blocks, unless they are memory that the limit of this process's group cannot hold:
/// going beyond that is no error, but a kill.
fn allocate(file: &File, range: FileRange, path: &Path) -> Result<()> {
    if growth::is_in_memory(file) {
        admit_memory(range.to - range.from)?;
    }
    growth::allocate(file, range, path)
}

fn admit_memory(bytes: u64) -> Result<()> {
    engram_media::cgroup::admit(bytes, "the catalog")
}

fn sync_file(file: &File, path: &Path) -> Result<()> {
    let synced = file.sync_all();
    synced.map_err(|error| Error::os(format_args!("syncing {}", path.display()), &error))
}

/// Gives blocks to the holes that a copy of the pool may have made of zeros.
fn fill_holes(file: &File, bytes: u64, path: &Path) -> Result<()> {
    allocate(file, FileRange { from: 0, to: bytes, keep_size: true }, path)
}

/// Sees that `lock.mdb` is there and whole, by its name: opening and closing it would drop the
/// locks of an environment that this process has open on it.
fn check_lock_file(path: &Path, options: &Options) -> Result<()> {
    let refused = |error| Error::os(format_args!("opening {}", path.display()), &error);
    let about = fs::symlink_metadata(path).map_err(refused)?;
    let bytes = lock_bytes(options);
    if !about.is_file() || about.len() < bytes {
        fail!(
            Corrupt,
            "{} is no file of {bytes} bytes at least, but of {}; restore the pool from a copy",
            path.display(),
            about.len()
        );
    }
    if about.nlink() > 1 {
        fail!(Corrupt, "{} has another name; restore the pool from a copy", path.display());
    }
    if about.blocks() * 512 < about.len() {
        // A copy of a pool: nobody, so this process neither, has opened it yet.
        let (file, bytes) = growth::open_file(path)?;
        fill_holes(&file, bytes, path)?;
    }
    Ok(())
}

/// Files made so far; dropping removes them.
struct Made {
    paths: Vec<PathBuf>,
}

impl Made {
    /// The files of a catalog with blocks for so many pages: empty, or beginning as `source`.
    fn begin(
        &mut self,
        dir: &Path,
        options: &Options,
        pages: u64,
        source: Option<&File>,
    ) -> Result<(File, Growth)> {
        let blocks = FileRange { from: 0, to: pages * page_bytes(), keep_size: true };
        let lock = FileRange { from: 0, to: lock_bytes(options), keep_size: false };
        let data = self.file(&dir.join("data.mdb"), options.file_mode, |file, path| {
            allocate(file, blocks, path)?;
            let copied = source.map_or(Ok(0), |mut from| std::io::copy(&mut from, &mut &*file));
            copied
                .map(|_| ())
                .map_err(|e| Error::os(format_args!("filling {}", path.display()), &e))
        })?;
        // Closed again here, before LMDB first opens it: see `lmdb.rs`.
        self.file(&dir.join("lock.mdb"), options.file_mode, |file, path| {
            allocate(file, lock, path)?;
            // Nobody may sync it later: closing a descriptor of it drops locks.
            if options.durable { sync_file(file, path) } else { Ok(()) }
        })?;
        let path = dir.join("growth");
        let file = self.file(&path, options.file_mode, growth::allocate_page)?;
        let growth = Growth::create(file, &path, page_bytes(), options.map_size)?;
        growth.set_allocated_pages(pages);
        Ok((data, growth))
    }

    fn file(
        &mut self,
        path: &Path,
        mode: u32,
        prepare: impl FnOnce(&File, &Path) -> Result<()>,
    ) -> Result<File> {
        let file = growth::create_file(path, mode)?;
        self.paths.push(path.to_owned());
        prepare(&file, path)?;
        Ok(file)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}
