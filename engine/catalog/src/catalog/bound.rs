//! How many pages a write transaction may take beyond those that LMDB has used before.
//!
//! # Why
//!
//! LMDB writes through its map (`MDB_WRITEMAP`). A page of the map without a block behind it is a
//! SIGBUS when the filesystem is full, so before each row is written, the pages that the
//! transaction may come to need are compared with the blocks that are known to exist. LMDB does
//! not say how many pages a transaction has taken; what follows bounds it from what LMDB does say
//! (each table's depth and its branch, leaf and overflow pages), read back after every row.
//!
//! # The bound
//!
//! LMDB takes a page in four cases (`mdb_page_alloc` and its callers in `mdb.c`). *Fresh* pages are
//! those that come from the end of the file; without readers most come from the list of free pages.
//!
//! 1. **A copy** of a page that was there when the transaction began, at the first change to it.
//!    A page is copied once. A put changes the pages on its path: one leaf and depth - 1 branches.
//!    A deletion that leaves a page too empty also changes the page beside it, on each level: twice
//!    as many. So copies are at most min(leaves passed, leaves at the beginning) and likewise for
//!    branches, over all rows. Rows that are appended as the last of their table (`MDB_APPEND`) all
//!    take the path to the last leaf. The first of them copies it; whatever splits and merges then
//!    do at that end, they do on pages that this transaction has, and all count as one. (A merge
//!    touches the page that stays, the child that becomes the root was touched, and a spilled page
//!    keeps its number.)
//! 2. **A split**, or a new root. Each adds one to the table's number of branch or leaf pages. What
//!    lowers the number is either a merge of a page that this transaction made or copied: it is
//!    *loose*, and LMDB takes loose pages before all others; or a merge of one that it had not
//!    touched, which then is not copied either (1 has counted it); or the root's going when the
//!    tree becomes lower, which is lost for this transaction, and seen in the depth. So at the
//!    moment the last fresh page is taken, when no loose one is left, splits have taken at most
//!    what the number of pages has grown by, plus the levels lost; the greatest value that this
//!    ever had is the bound, table by table. (A merged page that LMDB has *spilled*, as it may
//!    when nearly 131 071 are dirty, is lost too. From then on merges are not set off. A deletion
//!    merges leaves or makes no merge at all, and splits branches only; so if leaves become fewer,
//!    splits are at most what branches have grown by, plus one hidden by a merge on each level
//!    between root and leaf.)
//! 3. **Overflow pages** for a value whose node would be larger than half a page: one run of
//!    ceil((16 + bytes) / page). Free pages serve a run of several only if they lie together,
//!    so such runs are counted as fresh always.
//! 4. **At commit**: the root of each changed table goes into its place on the one page of the
//!    table of tables (a copy); and the list of free pages is saved. For that LMDB deletes the
//!    records that it has used up, writes the rest of them anew and adds one record with every page
//!    freed: at most two of every page that the list has, plus the record: 8 bytes for each page
//!    copied, merged or given up, in one run, twice if it grows while it is written.
//!
//! Before a row, the worst that this row alone can do is added: a put copies its path, splits each
//! level and makes a root; a deletion copies two pages a level and, where a longer key replaces
//! another in the branches (up to three times), splits these. After the row, what happened stands
//! in its place. This is why a batch of thousands of rows asks for about what it takes, and not for
//! thousands of times the worst row.
//!
//! # Free pages
//!
//! `reusable` is 0 but for a catalog that could not grow (see `Catalog::extend`). Then it is the
//! number of free pages that no reader could see when the transaction began. LMDB takes every
//! single page from them first. If runs have taken x of them, singles get x fewer, and runs x fewer
//! fresh ones: fresh pages are at most runs + max(0, singles - reusable), whatever x is.
//!
//! One thing is not bounded: a reader about to begin may, for an instant, show an older snapshot in
//! its slot than it will settle for (`mdb_txn_renew0`). Should LMDB look in that instant, in a
//! catalog that cannot grow, with no block to spare, it takes a fresh page instead of a free one.
//! The process would die by SIGBUS; the realm would not notice (as with any death of a writer).

use super::lmdb::TreeSize;
use super::table::Table;

/// Pages that are kept back for deletions and take-backs.
pub(super) const RESERVE_PAGES: u64 = 256;

/// Pages that the table of free pages may take for its own splits and roots, that rounding may
/// hide, and the one page of the table of tables.
const SLACK_PAGES: u64 = 32;

/// Dirty pages from which LMDB may be spilling: its list has 131 071, and it leaves room for twice
/// the row that comes.
const SPILL_PAGES: u64 = 120_000;

/// Tables that a transaction usually changes.
const TABLES_USUAL: usize = 4;

/// What one transaction has done to one table. Page numbers have 32 bits here: at LMDB's smallest
/// page that is 16 TiB, and every transaction passes these by value.
#[derive(Clone, Copy, Default)]
struct Usage {
    begun_leaf: u32,
    begun_branch: u32,
    now: TreeSize,
    /// Leaf and branch pages that rows have passed.
    leaves: u32,
    branches: u32,
    /// Whether the path to the last leaf is among them.
    passed_last: bool,
    /// By how much splits outweigh merges, and the most that this has been.
    grown: i32,
    peak: u32,
}

impl Usage {
    /// Pages taken one by one, but for overflow pages.
    fn singles(&self) -> u64 {
        let copies = self.leaves.min(self.begun_leaf) + self.branches.min(self.begun_branch);
        u64::from(copies) + u64::from(self.peak)
    }

    /// Notes the table's new size. If merges may have lost pages, only splits count.
    fn grow(&mut self, now: TreeSize, may_lose: bool) {
        let more = |now: u32, before: u32| i32::wrapping_sub(now as i32, before as i32);
        let leaves = more(now.leaf, self.now.leaf);
        let levels = self.now.depth.saturating_sub(now.depth) as i32;
        let branches = more(now.branch, self.now.branch) + levels;
        self.grown += if may_lose && leaves < 0 {
            // Splits of branches that as many merges may hide: one on each level between.
            (branches + self.now.depth.saturating_sub(2) as i32).max(0)
        } else {
            leaves + branches
        };
        self.peak = self.peak.max(self.grown.max(0) as u32);
        self.now = now;
    }
}

/// The leaf that a put has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// The table's last: the row was appended.
    Last,
    /// Whichever.
    Any,
}

/// The overflow pages of one value.
#[derive(Clone, Copy, Default)]
pub(super) struct Overflow {
    singles: u64,
    runs: u64,
}

/// The pages that one write transaction may take.
pub(super) struct PageBound {
    page_shift: u32,
    /// Where each table is in `tables`, from 1 on; 0 if its size is not known.
    places: [u8; Table::COUNT],
    /// Pages that have blocks and may be taken.
    room: u64,
    reusable: u64,
    /// Pages taken one by one so far, and those that the commit will take so.
    singles: u64,
    /// Pages taken in runs so far.
    runs: u64,
    /// Overflow pages given up.
    freed: u64,
    /// The few tables that the transaction changes: it is moved about, and all would be a kilobyte.
    tables: Vec<Usage>,
}

impl PageBound {
    /// The bound of a transaction that has begun, with the size of the table of free pages.
    pub(super) fn new(page_bytes: u64, free: TreeSize, room: u64, reusable: u64) -> PageBound {
        let free = u64::from(free.branch) + u64::from(free.leaf) + u64::from(free.overflow);
        PageBound {
            page_shift: page_bytes.trailing_zeros(),
            places: [0; Table::COUNT],
            room,
            reusable,
            singles: 2 * free + SLACK_PAGES,
            runs: 0,
            freed: 0,
            tables: Vec::with_capacity(TABLES_USUAL),
        }
    }

    /// Whether `table`'s size is known; if not, [`Self::meet`] comes first.
    pub(super) fn knows(&self, table: Table) -> bool {
        self.places[table as usize] != 0
    }

    /// Where a table is that is known.
    fn place(&self, table: Table) -> usize {
        usize::from(self.places[table as usize]) - 1
    }

    fn depth(&self, table: Table) -> u64 {
        u64::from(self.tables[self.place(table)].now.depth)
    }

    /// Takes down `table`'s size at the beginning.
    pub(super) fn meet(&mut self, table: Table, tree: TreeSize) {
        let (begun_leaf, begun_branch) = (tree.leaf, tree.branch);
        self.tables.push(Usage { begun_leaf, begun_branch, now: tree, ..Usage::default() });
        self.places[table as usize] = self.tables.len() as u8;
    }

    /// What a value takes outside its leaf.
    pub(super) fn overflow(&self, key_len: usize, value_len: usize) -> Overflow {
        // As LMDB: half of a page without its header, made even, less a pointer.
        let node_max = ((((1 << self.page_shift) - 16) / 2) & !1) - 2;
        if 8 + key_len + value_len <= node_max {
            return Overflow::default();
        }
        match self.overflow_pages(value_len as u64) {
            1 => Overflow { singles: 1, runs: 0 },
            pages => Overflow { singles: 0, runs: pages },
        }
    }

    /// The pages short, if a put cannot be given what it may need.
    pub(super) fn refuses_put(&self, table: Table, overflow: Overflow) -> Option<u64> {
        let depth = self.depth(table);
        self.short(2 * depth + 1 + overflow.singles, overflow.runs)
    }

    /// The pages short, if a deletion cannot be given what it may need.
    pub(super) fn refuses_delete(&self, table: Table) -> Option<u64> {
        let depth = self.depth(table);
        self.short(5 * depth + 1, 0)
    }

    /// The pages short, if the transaction as it stands may not be committed.
    pub(super) fn refuses(&self) -> Option<u64> {
        self.short(0, 0)
    }

    fn short(&self, singles: u64, runs: u64) -> Option<u64> {
        let pages = self.fresh_pages(singles, runs);
        (pages > self.room).then_some(pages)
    }

    /// The most fresh pages that the transaction takes up to and with its commit.
    pub(super) fn fresh_pages(&self, more_singles: u64, more_runs: u64) -> u64 {
        let singles = self.singles + more_singles;
        let mut runs = self.runs + more_runs;
        let listed = singles + runs + self.freed;
        let record = self.overflow_pages(8 * (listed + 1));
        if record > 1 {
            runs += 2 * record;
        }
        runs + singles.saturating_sub(self.reusable)
    }

    /// Takes down a put that was done, and `table`'s size after it.
    pub(super) fn did_put(
        &mut self,
        table: Table,
        overflow: Overflow,
        passed: Passed,
        now: TreeSize,
    ) {
        let at = self.place(table);
        let usage = &mut self.tables[at];
        let before = usage.singles();
        let again = passed == Passed::Last && std::mem::replace(&mut usage.passed_last, true);
        if !again {
            usage.leaves += 1;
            usage.branches += usage.now.depth.saturating_sub(1);
        }
        let had = u64::from(usage.now.overflow) + overflow.singles + overflow.runs;
        self.freed += had.saturating_sub(u64::from(now.overflow));
        self.runs += overflow.runs;
        usage.grow(now, false);
        self.singles += usage.singles() - before + overflow.singles;
    }

    /// Takes down a deletion that was done, and `table`'s size after it.
    pub(super) fn did_delete(&mut self, table: Table, now: TreeSize) {
        let may_spill = self.singles + 2 * self.runs > SPILL_PAGES;
        let at = self.place(table);
        let usage = &mut self.tables[at];
        let before = usage.singles();
        let depth = usage.now.depth;
        usage.leaves += 2;
        usage.branches += 2 * depth.saturating_sub(1);
        self.freed += u64::from(usage.now.overflow.saturating_sub(now.overflow));
        usage.grow(now, may_spill);
        self.singles += usage.singles() - before;
    }

    fn overflow_pages(&self, bytes: u64) -> u64 {
        (16 + bytes + (1 << self.page_shift) - 1) >> self.page_shift
    }
}
