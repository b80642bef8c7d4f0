//! A small catalog, walked page by page: as it is, and with damage planted in each of its pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use super::{Checked, PageWalk, Pages};
use crate::verify::meta::TREE_BYTES;
use crate::verify::nodes::{HEAD, PageNode, TREE, nodes_of, u16_at, u64_at};
use engram_base::error::Kind;
use engram_catalog::rows::Rows;
use engram_catalog::testing::MemoryRows;
use engram_catalog::{Catalog, Options, Table};

const MAP_BYTES: u64 = 16 << 20;
/// More rows than any table here has.
const MANY: usize = 1 << 20;

/// A copy of a catalog's file, and what a sound walk of it should find.
struct World {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
    page: usize,
    rows: MemoryRows,
    transaction: u64,
}

impl World {
    /// A catalog with a tree of three levels, values that have pages of their own, and free pages.
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { map_size: MAP_BYTES, ..Options::default() };
        Catalog::create(dir.path(), &options).unwrap();
        let catalog = Catalog::open(dir.path(), &options).unwrap();
        let put = |table, from: u32, to: u32, bytes: usize| {
            catalog
                .run(|txn| {
                    (from..to).try_for_each(|number| {
                        let value = number.to_le_bytes().repeat(bytes / 4);
                        txn.put(table, format!("key {number:060}").as_bytes(), &value)
                    })
                })
                .unwrap();
        };
        put(Table::Names, 0, 2200, 40);
        put(Table::Objects, 0, 40, 9000);
        put(Table::Meta, 0, 3, 8);
        let delete = |from: u32, to: u32| {
            catalog
                .run(|txn| {
                    (from..to).try_for_each(|number| {
                        txn.delete(Table::Objects, format!("key {number:060}").as_bytes()).map(drop)
                    })
                })
                .unwrap();
        };
        delete(3, 20);
        delete(30, 35);
        let txn = catalog.read().unwrap();
        let (rows, transaction) = (MemoryRows::of(&txn).unwrap(), txn.id());
        drop(txn);
        let page = engram_catalog::page_bytes() as usize;
        let mut bytes = fs::read(dir.path().join("data.mdb")).unwrap();
        let world = World { dir, bytes: Vec::new(), page, rows, transaction };
        let last = world.pages(&bytes).metas[0].1.last_page as usize;
        bytes.truncate((last + 1) * page);
        World { bytes, ..world }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("copy.mdb")
    }

    /// These bytes as a catalog's file.
    fn pages(&self, bytes: &[u8]) -> Pages {
        fs::write(self.path(), bytes).unwrap();
        Pages::open(&self.path()).unwrap()
    }

    /// What a walk of these bytes says, and the rows that it hands out.
    fn walk(&self, bytes: &[u8]) -> (Checked, MemoryRows, usize) {
        let (mut rows, mut loose) = (MemoryRows::default(), 0);
        let mut take = |table: Option<Table>, key: &[u8], value: &[u8]| match table {
            Some(table) => rows.put(table, key, value),
            None => loose += 1,
        };
        let checked = self.pages(bytes).walk(None, &mut take, &mut || {});
        (checked, rows, loose)
    }

    /// The sound bytes with this change of one page.
    fn with(&self, number: u64, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        change(&mut bytes[number as usize * self.page..][..self.page]);
        bytes
    }

    fn page_of(&self, number: u64) -> &[u8] {
        &self.bytes[number as usize * self.page..][..self.page]
    }

    /// The pages of tables and of the list of tables that begin with a head of their own.
    fn used(&self) -> Vec<u64> {
        let pages = self.pages(&self.bytes);
        let meta = pages.metas[0].1;
        let mut walk = PageWalk {
            pages: &pages,
            last: meta.last_page,
            seen: Vec::new(),
            problems: Vec::new(),
            take: &mut |_, _, _| {},
            pulse: &mut || {},
            visited: 0,
        };
        walk.begin().unwrap();
        walk.free(&meta);
        let free = |number: u64| walk.seen[(number / 64) as usize] & (1 << (number % 64)) != 0;
        let headed = |number: &u64| u64_at(self.page_of(*number), 0) == Some(*number);
        (2..=meta.last_page).filter(|number| !free(*number)).filter(headed).collect()
    }
}

fn set(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn a_sound_catalog_is_walked_to_its_last_row_and_nothing_is_said_of_it() {
    let world = World::new();
    let (checked, rows, loose) = world.walk(&world.bytes);
    assert_eq!((checked.problems, loose), (Vec::<String>::new(), 0));
    assert_eq!(checked.transaction, world.transaction);
    assert_eq!(rows, world.rows);
    let kinds = world.used().into_iter().map(|number| u16_at(world.page_of(number), 10).unwrap());
    let mut counted = BTreeMap::<u16, u32>::new();
    kinds.for_each(|kind| *counted.entry(kind).or_default() += 1);
    assert!(counted[&1] >= 3 && counted[&2] > 20 && counted[&4] > 10, "{counted:?}");
}

#[test]
fn damage_to_the_head_or_the_nodes_of_any_page_is_told_and_the_other_rows_are_still_found() {
    let world = World::new();
    let mut true_rows = world.rows.clone();
    let rows_of = |node: &PageNode<'_>| if node.flags == TREE { MANY } else { 1 };
    let all: usize = Table::ALL.iter().map(|table| world.rows.entries(*table)).sum();
    for number in world.used() {
        let page = world.page_of(number);
        let kind = u16_at(page, 10).unwrap();
        let [lower, upper] = [12, 14].map(|at| u16_at(page, at).unwrap());
        let mut damaged = vec![
            ("its number", world.with(number, |page| set(page, 0, &(number + 1).to_ne_bytes()))),
            ("its kind", world.with(number, |page| set(page, 10, &0x40_u16.to_ne_bytes()))),
        ];
        // So many rows may be lost: those of a leaf, or, where a way is, all.
        let most = match kind {
            4 => 1,
            2 => nodes_of(page, number, true).unwrap().iter().map(rows_of).sum(),
            _ => all,
        };
        if kind != 4 {
            let bounds =
                [("below", upper + 2, upper), ("none", 0, upper), ("odd", lower + 1, upper)];
            for (what, lower, upper) in bounds {
                let bytes = world.with(number, |page| {
                    set(page, 12, &[lower.to_ne_bytes(), upper.to_ne_bytes()].concat());
                });
                damaged.push((what, bytes));
            }
            let nodes = nodes_of(page, number, kind == 2).unwrap().len();
            let last = HEAD + 2 * (nodes - 1);
            damaged
                .push(("twice", world.with(number, |page| page.copy_within(HEAD..HEAD + 2, last))));
            if nodes > 2 {
                let swapped = world.with(number, |page| {
                    let [one, two] = [last - 2, last].map(|at| [page[at], page[at + 1]]);
                    set(page, last - 2, &[two, one].concat());
                });
                damaged.push(("order", swapped));
            }
        }
        for (what, bytes) in damaged {
            let sound = what == "twice" && bytes == world.bytes;
            let (checked, rows, _) = world.walk(&bytes);
            assert!(sound || !checked.problems.is_empty(), "page {number}, {what}");
            for table in Table::ALL {
                for (key, value) in rows.in_order(table) {
                    let true_row = true_rows.get(table, key).unwrap();
                    assert_eq!(true_row.as_deref(), Some(value), "page {number}, {what}");
                }
            }
            let found: usize = Table::ALL.iter().map(|table| rows.entries(*table)).sum();
            assert!(found + most >= all, "page {number}, {what}: {found} rows of {all}");
        }
    }
}

#[test]
fn rows_of_a_leaf_that_no_branch_leads_to_any_more_are_handed_out_as_of_no_table() {
    let world = World::new();
    let branch = |number: &u64| u16_at(world.page_of(*number), 10) == Some(1);
    let number = world.used().into_iter().find(branch).expect("a tree of several levels");
    let below = nodes_of(world.page_of(number), number, false).unwrap();
    let (place, target) = (below[1].at, below[1].word);
    let bytes = world.with(number, |page| set(page, place, &[0xff, 0xff, 0xff]));
    let (checked, rows, loose) = world.walk(&bytes);
    assert!(checked.problems.iter().any(|what| what.contains("beyond the last")));
    assert!(checked.problems.iter().any(|what| what.contains("neither free nor in any table")));
    let leaf = u16_at(world.page_of(target), 10) == Some(2);
    assert!(loose > 0 && (!leaf || rows != world.rows), "{loose} rows");
}

#[test]
fn a_page_of_two_trees_a_wrong_count_and_a_gap_between_nodes_are_each_told_by_what_they_are() {
    let world = World::new();
    let told = |bytes: &[u8], what: &str| {
        let problems = world.walk(bytes).0.problems;
        assert!(problems.iter().any(|problem| problem.contains(what)), "{what}: {problems:?}");
    };
    let mut tried = [0; 3];
    for number in world.used() {
        let page = world.page_of(number);
        let kind = u16_at(page, 10).unwrap();
        if kind == 4 {
            continue;
        }
        let [lower, upper] = [12, 14].map(|at| u16_at(page, at).unwrap());
        if lower + 2 <= upper {
            let gap = world.with(number, |page| set(page, 14, &(upper - 2).to_ne_bytes()));
            told(&gap, "leave a gap");
            tried[0] += 1;
        }
        let nodes = nodes_of(page, number, kind == 2).unwrap();
        if kind == 1 {
            let first = (nodes[0].word as u16).to_ne_bytes();
            let at = nodes[1].at;
            told(&world.with(number, |page| set(page, at, &first)), "and in something else");
            tried[1] += 1;
        }
        for node in nodes.iter().filter(|node| node.flags == TREE) {
            let entries = node.at + 8 + node.key.len() + 32;
            let more = u64_at(page, entries).unwrap() + 1;
            let bytes = world.with(number, |page| set(page, entries, &more.to_ne_bytes()));
            let name = String::from_utf8_lossy(node.key).into_owned();
            told(&bytes, &name);
            tried[2] += 1;
        }
    }
    assert!(tried[0] > 9 && tried[1] > 2 && tried[2] == Table::COUNT, "{tried:?}");
}

#[test]
fn one_sound_meta_page_is_enough_and_none_is_an_error() {
    let world = World::new();
    for number in [0, 1] {
        for change in [(10, 0x02), (HEAD, 0), (HEAD + 4, 2), (HEAD + 8, 1), (HEAD + 24, 1)] {
            let bytes = world.with(number, |page| page[change.0] = change.1);
            let pages = world.pages(&bytes);
            assert_eq!(pages.metas.len(), 1, "{change:?}");
            assert!(pages.problems[0].starts_with(&format!("page {number}: ")));
        }
    }
    let mut bytes = world.bytes.clone();
    for number in [0, 1] {
        set(&mut bytes, number * world.page + HEAD, &[0; 4]);
    }
    fs::write(world.path(), &bytes).unwrap();
    let refused = Pages::open(&world.path()).err().unwrap();
    assert_eq!(refused.kind(), Kind::Corrupt);
    fs::remove_file(world.path()).unwrap();
    std::os::unix::fs::symlink(Path::new("data.mdb"), world.path()).unwrap();
    assert!(Pages::open(&world.path()).is_err(), "no link is followed");
    fs::remove_file(world.path()).unwrap();
}

#[test]
fn a_header_whose_writer_has_not_set_its_number_yet_is_no_damage() {
    let world = World::new();
    let options = Options { map_size: MAP_BYTES, ..Options::default() };
    let catalog = Catalog::open(world.dir.path(), &options).unwrap();
    catalog.run(|txn| txn.put(Table::Meta, b"later", b"row")).unwrap();
    drop(catalog);
    let mut bytes = fs::read(world.dir.path().join("data.mdb")).unwrap();
    let number = (world.transaction + 1) as usize % 2;
    let at = number * world.page + HEAD + 24 + 2 * TREE_BYTES + 8;
    assert_eq!(u64_at(&bytes, at), Some(world.transaction + 1));
    set(&mut bytes, at, &(world.transaction - 1).to_le_bytes());
    let (checked, rows, _) = world.walk(&bytes);
    assert_eq!(checked.problems, Vec::<String>::new());
    assert_eq!((checked.transaction, rows), (world.transaction, world.rows.clone()));
}

#[test]
fn a_file_that_was_cut_short_is_told_so() {
    let world = World::new();
    for pages in [3, world.bytes.len() / world.page / 2] {
        let (checked, _, _) = world.walk(&world.bytes[..pages * world.page]);
        assert!(checked.problems[0].contains("its last page would be"), "{:?}", checked.problems);
    }
    let (checked, rows, _) = world.walk(&world.bytes[..2 * world.page]);
    assert!(!checked.problems.is_empty() && rows == MemoryRows::default());
}

#[test]
fn a_byte_that_has_changed_anywhere_makes_no_walk_panic_or_lose_rows_in_silence() {
    let world = World::new();
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let change = (any::<Index>(), any::<Index>(), 1..=u8::MAX, any::<bool>());
    let run = |(page, at, other, head): (Index, Index, u8, bool)| {
        let mut bytes = world.bytes.clone();
        let from = page.index(bytes.len() / world.page) * world.page;
        bytes[from + at.index(if head { 64 } else { world.page })] ^= other;
        let (checked, rows, _) = world.walk(&bytes);
        if checked.problems.is_empty() {
            for table in Table::ALL {
                prop_assert_eq!(rows.entries(table), world.rows.entries(table), "{:?}", table);
            }
        }
        Ok(())
    };
    TestRunner::new(config).run(&change, run).unwrap();
}

#[test]
fn pages_that_others_change_are_read_until_they_are_of_one_moment() {
    let mut seen = [(94, 97), (96, 97), (98, 97), (98, 97), (98, 99)].into_iter();
    assert_eq!(super::settled(|| seen.next().unwrap()), (98, 97));
    let mut readings = 0;
    let restless = super::settled(|| {
        readings += 1;
        readings
    });
    assert_eq!(restless, super::READINGS_MAX + 1);
}
