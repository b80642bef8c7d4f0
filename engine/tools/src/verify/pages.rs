//! The pages of a catalog, read without LMDB: before that is trusted with them.
//!
//! LMDB believes what its pages say, so a damaged one can make it read anywhere. This reader
//! believes nothing: it reads page by page from the file (no mapping, so no signal), checks every
//! number before it is used, visits no page twice, and goes no deeper than LMDB's own cursors do.
//! It checks all that LMDB itself relies on, and all that LMDB keeps exactly: each page says its
//! own number and kind; nodes fill a page without gap or overlap; keys ascend, and lie between
//! those of the branch above; trees are as deep, as large and as long as they claim; and each page
//! up to the last is in one tree, or in the list of free pages, and only once.
//!
//! The same walk gives `salvage` its rows, from whatever pages are sound.
//!
//! The layout is that of LMDB's data version 1, with the machine's own byte order and word.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::meta::{Meta, TREE_BYTES, TreeHead};
use super::nodes::{
    BIG, Between, HEAD, PageNode, TREE, in_order, nodes_of, u16_at, u32_at, u64_at,
};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_catalog::Table;

/// Tables that pools of format 6 and before do not have.
const LATER: [Table; 3] = [Table::Links, Table::Orphans, Table::GroupTimes];
/// LMDB's cursors go no deeper.
const TREE_DEPTH_MAX: u16 = 32;
/// A tree without pages has this root.
const NO_PAGE: u64 = u64::MAX;
/// The most that is said of one catalog.
const PROBLEMS_MAX: usize = 200;
/// After so many pages one can see that the walk goes on.
const PULSE_PAGES: u64 = 4096;
/// How often meta pages are read that never come to rest.
const READINGS_MAX: usize = 100;

const OVERFLOW: u16 = 0x04;

/// Takes rows as they are met: their table (`None` in a page that no tree leads to), key, value.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Option<Table>, &[u8], &[u8]);

/// Tables of format 5 that there are no more: `upgrade` and salvage meet them.
const EARLIER: [&str; 1] = ["index_names"];

/// A catalog's file, and what its meta pages say.
pub(crate) struct Pages {
    file: File,
    /// Whether it may be of an earlier format.
    may_be_earlier: bool,
    path: PathBuf,
    page: usize,
    /// The meta pages that can be read, the newer first, and where each lies.
    metas: Vec<(u64, Meta)>,
    /// What is wrong with the others.
    problems: Vec<String>,
}

/// What a walk found.
#[derive(Default)]
pub(crate) struct Checked {
    /// What is wrong, each with its page.
    pub problems: Vec<String>,
    /// The transaction whose snapshot was walked.
    pub transaction: u64,
}

/// What reads the same twice, of what others may change meanwhile; or after so many readings what
/// was read last.
fn settled<T: PartialEq>(mut read: impl FnMut() -> T) -> T {
    let mut before = read();
    for _ in 0..READINGS_MAX {
        let now = read();
        if now == before {
            return now;
        }
        before = now;
    }
    before
}

impl Pages {
    /// Opens `data.mdb`, and reads its meta pages. An error if not even one of them is sound.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_as(path, false)
    }

    /// The same, of a catalog that may be of an earlier format.
    pub(crate) fn open_earlier(path: &Path) -> Result<Self> {
        Self::open_as(path, true)
    }

    fn open_as(path: &Path, may_be_earlier: bool) -> Result<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(|e| Error::os(format!("opening {}", path.display()), &e))?;
        let page = engram_catalog::page_bytes() as usize;
        let (path, metas, problems) = (path.to_owned(), Vec::new(), Vec::new());
        let mut pages = Pages { file, may_be_earlier, path, page, metas, problems };
        // Others may commit between two readings: both pages are to be of one moment.
        let read = settled(|| [0, 1].map(|number| pages.read(number, 1)));
        for (number, bytes) in (0..).zip(read) {
            match bytes.and_then(|bytes| Meta::parse(&bytes, number, page as u64)) {
                Ok(meta) => pages.metas.push((number, meta)),
                Err(error) => pages.problems.push(format!("page {number}: {error}")),
            }
        }
        pages.metas.sort_by_key(|(_, meta)| std::cmp::Reverse(meta.transaction));
        if pages.metas.is_empty() {
            fail!(
                Corrupt,
                "{} has no sound meta page: {}; nothing in it can be found",
                pages.path.display(),
                pages.problems.join("; ")
            );
        }
        Ok(pages)
    }

    /// The newest transaction that the file has now.
    pub(crate) fn newest(&self) -> Option<u64> {
        let parse =
            |number| Meta::parse(&self.read(number, 1).ok()?, number, self.page as u64).ok();
        (0..2).filter_map(parse).map(|meta| meta.transaction).max()
    }

    /// The last page that the newest snapshot uses.
    pub(crate) fn last_page(&self) -> u64 {
        self.metas.first().map_or(0, |(_, meta)| meta.last_page)
    }

    /// Walks the newest snapshot, or that of a transaction; faults are listed, and rows of sound
    /// pages are handed to `take`.
    pub(crate) fn walk(
        &self,
        transaction: Option<u64>,
        take: Take<'_>,
        pulse: &mut dyn FnMut(),
    ) -> Checked {
        let chosen = match transaction {
            Some(id) => self.metas.iter().find(|(_, meta)| meta.transaction == id),
            None => self.metas.first(),
        };
        let Some((_, meta)) = chosen else {
            let problems = vec!["no meta page has the snapshot that is walked".to_owned()];
            return Checked { problems, ..Checked::default() };
        };
        let mut walk = PageWalk {
            pages: self,
            last: meta.last_page,
            seen: Vec::new(),
            problems: self.problems.clone(),
            take,
            pulse,
            visited: 0,
        };
        walk.metas(&self.metas);
        match walk.begin() {
            Ok(()) => {
                let before = walk.problems.len();
                walk.free(meta);
                // The free pages are known then, and a page that is in nothing was lost.
                let free_known = walk.problems.len() == before;
                walk.tables(meta);
                walk.rest(free_known);
            }
            Err(error) => walk.problem(error),
        }
        let problems = walk.problems;
        Checked { problems, transaction: meta.transaction }
    }

    /// Reads pages from the file.
    fn read(&self, number: u64, count: u64) -> Result<Vec<u8>> {
        let place = number.checked_mul(self.page as u64).filter(|at| *at < i64::MAX as u64);
        let bytes = usize::try_from(count).ok().and_then(|n| n.checked_mul(self.page));
        let (Some(place), Some(bytes)) = (place, bytes) else {
            fail!(Corrupt, "there can be no page {number}")
        };
        let length = self.file.metadata().map_or(0, |meta| meta.len());
        if place.saturating_add(bytes as u64) > length {
            fail!(Corrupt, "{count} pages from {number} on lie beyond the end of the file");
        }
        let mut page = vec![0; bytes];
        self.file.read_exact_at(&mut page, place).map_err(|e| {
            Error::os(format!("reading page {number} of {}", self.path.display()), &e)
        })?;
        Ok(page)
    }
}

/// What a page is found to be part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Free,
    Main,
    Table(Table),
    /// A table that an earlier format had; nobody asks for its rows.
    Earlier(&'static str),
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Free => "the list of free pages",
            Of::Main => "the list of tables",
            Of::Table(table) => table.name(),
            Of::Earlier(name) => name,
        }
    }
}

/// Sums of what a walk of one tree has met.
#[derive(Default)]
struct Met {
    branch: u64,
    leaf: u64,
    overflow: u64,
    entries: u64,
}

struct PageWalk<'w, 't> {
    pages: &'w Pages,
    last: u64,
    /// A bit for each page that something has.
    seen: Vec<u64>,
    problems: Vec<String>,
    take: Take<'t>,
    pulse: &'t mut dyn FnMut(),
    visited: u64,
}

impl PageWalk<'_, '_> {
    fn problem(&mut self, what: impl std::fmt::Display) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(format!("catalog: {what}"));
        }
    }

    /// Makes room for a bit for each page.
    fn begin(&mut self) -> Result<()> {
        let length = self.pages.file.metadata().map_or(0, |meta| meta.len());
        let pages = length / self.pages.page as u64;
        if self.last >= pages {
            let last = self.last;
            // The walk goes on within the file.
            self.last = pages.saturating_sub(1);
            self.problem(format!("its last page would be {last}, and the file has {pages}"));
        }
        if self.last < 1 {
            fail!(Corrupt, "the file has no page beside the meta pages");
        }
        self.seen = vec![0; (self.last / 64 + 1) as usize];
        self.seen[0] = 0b11;
        Ok(())
    }

    /// Notes that something has a page; false if something else has.
    fn claim(&mut self, number: u64, of: Of) -> bool {
        if number > self.last {
            self.problem(format!("{} leads to page {number}, beyond the last", of.name()));
            return false;
        }
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen[word] & bit != 0 {
            self.problem(format!("page {number} is in {}, and in something else", of.name()));
            return false;
        }
        self.seen[word] |= bit;
        self.visited += 1;
        if self.visited.is_multiple_of(PULSE_PAGES) {
            (self.pulse)();
        }
        true
    }

    /// What the meta pages say of each other.
    fn metas(&mut self, metas: &[(u64, Meta)]) {
        // After a loss of power both say the same (`catalog/seal.rs`).
        let same = matches!(metas, [(_, new), (_, old)] if new == old);
        for (place, (number, meta)) in metas.iter().enumerate() {
            if !same && meta.transaction % 2 != *number && meta.transaction != 0 {
                let id = meta.transaction;
                self.problem(format!("page {number} says transaction {id}, which is the other's"));
            }
            match self.last_freeing(meta) {
                // A writer sets the number last. It may be about to, or have died there.
                Ok(Some(id)) if place > 0 && id == meta.transaction + 2 => {}
                Ok(Some(id)) if id != meta.transaction => self.problem(format!(
                    "page {number} says transaction {}, and its last pages were freed by {id}",
                    meta.transaction
                )),
                _ => {}
            }
        }
        if let [(_, new), (_, old)] = metas {
            let follows = new.transaction == old.transaction + 1;
            if !follows && !same && new.transaction != 0 {
                self.problem(format!(
                    "the meta pages are of transactions {} and {}, not of one and the next",
                    old.transaction, new.transaction
                ));
            }
            if (new.map_bytes, new.flags) != (old.map_bytes, old.flags) {
                self.problem("the meta pages disagree about the map");
            }
        }
    }

    /// The greatest key in a snapshot's list of free pages: each transaction frees some.
    fn last_freeing(&self, meta: &Meta) -> Result<Option<u64>> {
        let mut number = meta.free.root;
        if number == NO_PAGE {
            return Ok(None);
        }
        for level in 1..=meta.free.depth.min(TREE_DEPTH_MAX) {
            let page = self.pages.read(number, 1)?;
            let nodes = nodes_of(&page, number, level == meta.free.depth)?;
            let Some(node) = nodes.last() else { fail!(Corrupt, "page {number} is empty") };
            if level == meta.free.depth {
                return Ok(u64_at(node.key, 0));
            }
            number = node.word;
        }
        Ok(None)
    }

    /// The list of free pages: who freed them → how many, then each, descending.
    fn free(&mut self, meta: &Meta) {
        let mut rows = Vec::new();
        self.tree(Of::Free, &meta.free, &mut |_, key, value| {
            rows.push((u64_at(key, 0).unwrap_or(0), value.to_vec()));
        });
        for (by, value) in rows {
            if by > meta.transaction {
                self.problem(format!("pages were freed by transaction {by}, which is to come"));
            }
            let count = u64_at(&value, 0).unwrap_or(u64::MAX);
            let room = (value.len() / 8).saturating_sub(1) as u64;
            if value.len() % 8 != 0 || count > room {
                self.problem(format!("transaction {by} freed {count} pages, {room} are listed"));
                continue;
            }
            let mut before = u64::MAX;
            for place in 1..=count as usize {
                let number = u64_at(&value, place * 8).unwrap_or(0);
                if number >= before || number < 2 {
                    self.problem(format!("page {number} is out of order among the free ones"));
                }
                before = number;
                self.claim(number, Of::Free);
            }
        }
    }

    /// Every table, by the list of them.
    fn tables(&mut self, meta: &Meta) {
        let mut heads = Vec::new();
        self.tree(Of::Main, &meta.main, &mut |_, key, value| {
            heads.push((key.to_vec(), value.to_vec()));
        });
        let mut missing: Vec<Table> = Table::ALL.to_vec();
        // An earlier index may lie in other tables: it is made anew. And some tables are new.
        let earlier = self.pages.may_be_earlier;
        let may_be_missing =
            |table: &Table| table.name().starts_with("index_") || LATER.contains(table);
        missing.retain(|table| !(earlier && may_be_missing(table)));
        for (name, value) in heads {
            match (self.table_called(&name), TreeHead::parse(&value, 0)) {
                (Some(of), Some(tree)) if value.len() == TREE_BYTES => {
                    missing.retain(|other| of != Of::Table(*other));
                    if tree.flags != 0 || tree.pad != 0 {
                        self.problem(format!("table `{}` has unknown flags", of.name()));
                    }
                    self.tree(of, &tree, &mut |_, _, _| {});
                }
                _ => {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    self.problem(format!("{name:?} in the list of tables is no table"));
                }
            }
        }
        for table in missing {
            self.problem(format!("table `{}` is missing", table.name()));
        }
    }

    /// The table of this name, if there is one, or was.
    fn table_called(&self, name: &[u8]) -> Option<Of> {
        let is = |other: &str| other.as_bytes() == name;
        let now = Table::ALL.into_iter().find(|table| is(table.name())).map(Of::Table);
        let before = || EARLIER.into_iter().find(|other| is(other)).map(Of::Earlier);
        now.or_else(|| before().filter(|_| self.pages.may_be_earlier))
    }

    /// What nothing has: pages of a tree whose way is damaged, whose rows may be sound.
    fn rest(&mut self, free_known: bool) {
        let mut lost = Vec::new();
        for number in 2..=self.last {
            if self.seen[(number / 64) as usize] & (1 << (number % 64)) == 0 {
                lost.push(number);
            }
        }
        if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            let count = lost.len();
            self.problem(format!(
                "{count} pages from {first} to {last} are neither free nor in any table"
            ));
        }
        if !free_known {
            return;
        }
        for number in lost {
            let Ok(page) = self.pages.read(number, 1) else { continue };
            let Ok(nodes) = nodes_of(&page, number, true) else { continue };
            for node in nodes {
                if node.flags == 0 {
                    (self.take)(None, node.key, node.data);
                } else if let Some(value) = self.big_value(&node) {
                    (self.take)(None, node.key, &value);
                }
            }
        }
    }

    fn big_value(&self, node: &PageNode<'_>) -> Option<Vec<u8>> {
        let first = u64_at(node.data, 0).filter(|_| node.flags == BIG)?;
        self.overflow(first, node.word).ok()
    }

    /// A tree, and whether it is what its head says.
    fn tree(&mut self, of: Of, tree: &TreeHead, each: Take<'_>) {
        if tree.root == NO_PAGE {
            if *tree != TreeHead::EMPTY.like(tree) {
                self.problem(format!("{} has no page, and says it has some", of.name()));
            }
            return;
        }
        if tree.depth == 0 || tree.depth > TREE_DEPTH_MAX {
            self.problem(format!("{} cannot be {} levels deep", of.name(), tree.depth));
            return;
        }
        let mut met = Met::default();
        self.branch(of, tree.root, tree.depth, Between::default(), &mut met, each);
        let said = [tree.branch, tree.leaf, tree.overflow, tree.entries];
        let found = [met.branch, met.leaf, met.overflow, met.entries];
        if said != found {
            self.problem(format!(
                "{} says {said:?} branch, leaf and overflow pages and rows; {found:?} are there",
                of.name()
            ));
        }
    }

    /// A page of a tree, and what is below it; `level` is 1 at the leaves.
    fn branch(
        &mut self,
        of: Of,
        number: u64,
        level: u16,
        between: Between<'_>,
        met: &mut Met,
        each: Take<'_>,
    ) {
        if !self.claim(number, of) {
            return;
        }
        let page = match self.pages.read(number, 1) {
            Ok(page) => page,
            Err(error) => return self.problem(format!("{}: {error}", of.name())),
        };
        let nodes = match nodes_of(&page, number, level == 1) {
            Ok(nodes) => nodes,
            Err(error) => return self.problem(format!("{}: {error}", of.name())),
        };
        if let Err(error) = in_order(&nodes, of == Of::Free, level == 1, between) {
            self.problem(format!("page {number} of {}: {error}", of.name()));
            // Its rows are whole all the same; the pages below a branch that errs are not followed.
            if level > 1 {
                return;
            }
        }
        if level == 1 {
            met.leaf += 1;
            return self.leaf(of, number, &nodes, met, each);
        }
        met.branch += 1;
        for (place, node) in nodes.iter().enumerate() {
            let from = if place == 0 { between.from } else { Some(node.key) };
            let to = nodes.get(place + 1).map(|next| next.key).or(between.to);
            self.branch(of, node.word, level - 1, Between { from, to }, met, each);
        }
    }

    fn leaf(&mut self, of: Of, number: u64, nodes: &[PageNode<'_>], met: &mut Met, each: Take<'_>) {
        for node in nodes {
            met.entries += 1;
            let allowed = match of {
                Of::Main => node.flags == TREE,
                _ => node.flags == 0 || node.flags == BIG,
            };
            if !allowed {
                let flags = node.flags;
                self.problem(format!("page {number} of {} has a row of kind {flags}", of.name()));
                continue;
            }
            let table = match of {
                Of::Table(table) => Some(table),
                Of::Free | Of::Main | Of::Earlier(_) => None,
            };
            if node.flags != BIG {
                self.give(of, table, node.key, node.data, each);
                continue;
            }
            let first = u64_at(node.data, 0).unwrap_or(NO_PAGE);
            match self.overflow(first, node.word) {
                Ok(value) => {
                    let count = (HEAD + value.len()).div_ceil(self.pages.page) as u64;
                    met.overflow += count;
                    if (first..first.saturating_add(count)).all(|page| self.claim(page, of)) {
                        self.give(of, table, node.key, &value, each);
                    }
                }
                Err(error) => self.problem(format!("page {number} of {}: {error}", of.name())),
            }
        }
    }

    fn give(&mut self, of: Of, table: Option<Table>, key: &[u8], value: &[u8], each: Take<'_>) {
        each(table, key, value);
        if let Of::Table(_) = of {
            (self.take)(table, key, value);
        }
    }

    /// A value that lies in pages of its own.
    fn overflow(&self, first: u64, bytes: u64) -> Result<Vec<u8>> {
        let page = self.pages.page as u64;
        let count = (HEAD as u64 + bytes).div_ceil(page);
        if first < 2 || first.checked_add(count).is_none_or(|end| end > self.last + 1) {
            fail!(Corrupt, "a value of {bytes} bytes cannot lie in page {first}");
        }
        let mut value = self.pages.read(first, count)?;
        let says = (u64_at(&value, 0), u16_at(&value, 10), u32_at(&value, 12));
        if says != (Some(first), Some(OVERFLOW), u32::try_from(count).ok()) {
            fail!(Corrupt, "page {first} is not the first of {count} of a long value");
        }
        value.drain(..HEAD);
        value.truncate(bytes as usize);
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
