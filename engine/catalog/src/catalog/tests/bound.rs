//! The bound against what LMDB really takes.

use std::sync::atomic::Ordering;

use super::{Catalog, Headroom, Options, Random, TempDir, commit, made};
use crate::catalog::{Table, WriteTxn};
use engram_base::error::Result;

/// How a transaction's keys are chosen.
#[derive(Clone, Copy, Debug)]
enum Order {
    Up,
    Down,
    Random,
    /// Downwards just below the greatest row of a page, each longer than what a split left free.
    Wedge,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
struct Shape {
    order: Order,
    rows: u64,
    key_bytes: usize,
    value_bytes: u64,
    deletions_percent: u64,
    tables: u64,
}

impl Shape {
    fn random(random: &mut Random) -> Shape {
        let order = match random.below(4) {
            0 => Order::Up,
            1 => Order::Down,
            2 => Order::Wedge,
            _ => Order::Random,
        };
        let rows = [1, 2, 5, 20, 100, 1000, 5000][random.below(7) as usize];
        let value_bytes = match rows {
            1..=20 => [0, 10, 200, 1500, 2100, 5000, 100_000, 2_000_000][random.below(8) as usize],
            21..=1000 => [0, 10, 200, 1500, 2100, 5000, 20_000][random.below(7) as usize],
            _ => [0, 10, 200, 1500][random.below(4) as usize],
        };
        Shape {
            order,
            rows,
            key_bytes: [8, 9, 16, 60, 200, 511][random.below(6) as usize],
            value_bytes,
            deletions_percent: [0, 0, 10, 50, 90, 100][random.below(6) as usize],
            tables: 1 + random.below(Table::COUNT as u64),
        }
    }

    fn key(&self, random: &mut Random, place: u64) -> Vec<u8> {
        let (head, length) = match self.order {
            Order::Up => (1 << 40 | place, self.key_bytes),
            Order::Down => ((1 << 40) - place, self.key_bytes),
            Order::Random => {
                (random.below(20_000), 8 + random.below(504) as usize % self.key_bytes)
            }
            Order::Wedge => (u64::MAX - place, 8 + random.below(504) as usize),
        };
        let mut key = head.to_be_bytes().to_vec();
        key.resize(length.clamp(8, 511), (random.below(4) * 80) as u8);
        key
    }

    fn apply(&self, random: &mut Random, txn: &mut WriteTxn<'_>, first: u64) -> Result<()> {
        for row in 0..self.rows {
            let table = Table::ALL[random.below(self.tables) as usize];
            let key = self.key(random, first + row);
            if random.below(100) < self.deletions_percent {
                let found = txn.seek(table, &key)?.next()?.map(|(key, _)| key.to_vec());
                if let Some(key) = found {
                    txn.delete(table, &key)?;
                }
            } else {
                let bytes = random.below(2 * self.value_bytes + 1);
                txn.put(table, &key, &vec![row as u8; bytes as usize])?;
            }
        }
        Ok(())
    }
}

/// The reader that sees old pages while transactions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    /// Nobody.
    None,
    /// One from the beginning on: no page is used again.
    Old,
    /// Some that come and go, with the catalog unable to grow: free pages are counted.
    Passing,
}

/// Runs random transactions on one catalog, and compares after each.
fn compare(seed: u64, rounds: u64, readers: Readers) {
    let (mut spare, mut nearest) = (u64::MAX, String::new());
    let (_dir, catalog): (TempDir, Catalog) = made(&Options::default());
    let mut held = Vec::new();
    if readers == Readers::Old {
        held.push(catalog.read().expect("a slot"));
    }
    let mut random = Random(seed);
    for round in 0..rounds {
        let shape = Shape::random(&mut random);
        let before = catalog.env.last_page().expect("a page");
        if readers == Readers::Passing {
            catalog.tight.store(true, Ordering::Relaxed);
            if random.below(3) == 0 {
                held.push(catalog.read().expect("a slot"));
            }
            if held.len() > 2 {
                held.remove(0);
            }
        }
        let mut bound = 0;
        let start = random.clone();
        commit(&catalog, Headroom::Normal, |txn| {
            random = start.clone();
            shape.apply(&mut random, txn, round << 16)?;
            bound = txn.bound_pages();
            Ok(())
        })
        .expect("room");
        let taken = catalog.env.last_page().expect("a page") - before;
        assert!(taken <= bound, "seed {seed} round {round}: {taken} > {bound} for {shape:?}");
        assert!(before + taken < catalog.growth().allocated_pages());
        if bound - taken < spare {
            (spare, nearest) = (bound - taken, format!("round {round}, {taken} pages, {shape:?}"));
        }
    }
    println!("seed {seed} {readers:?}: {spare} pages to spare in {nearest}");
}

/// Every seed on its own; more of them with `ENGRAM_SEEDS=first..last`.
fn compare_seeds(from: u64, to: u64, rounds: u64, readers: Readers) {
    let asked = std::env::var("ENGRAM_SEEDS").ok().and_then(|text| {
        let (first, last) = text.split_once("..")?;
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    let (from, to) = asked.unwrap_or((from, to));
    for seed in from..to {
        compare(seed, rounds, readers);
    }
}

#[test]
fn lmdb_never_takes_more_pages_than_the_bound_when_an_old_reader_keeps_all() {
    compare_seeds(0, 12, 25, Readers::Old);
}

#[test]
fn lmdb_never_takes_more_pages_than_the_bound_when_it_uses_pages_again() {
    compare_seeds(100, 110, 40, Readers::None);
}

#[test]
fn lmdb_never_takes_more_pages_than_the_bound_less_free_ones() {
    compare_seeds(200, 210, 40, Readers::Passing);
}

/// Commits what `rows` does; the fresh pages that it took, and the bound on them.
fn measured(
    catalog: &Catalog,
    mut rows: impl FnMut(&mut WriteTxn<'_>) -> Result<()>,
) -> (u64, u64) {
    let mut bound = 0;
    let before = catalog.env.last_page().expect("a page");
    commit(catalog, Headroom::Normal, |txn| {
        rows(txn)?;
        bound = txn.bound_pages();
        Ok(())
    })
    .expect("room");
    let taken = catalog.env.last_page().expect("a page") - before;
    assert!(taken <= bound, "{taken} > {bound}");
    (taken, bound)
}

#[test]
fn rows_that_split_a_page_each_are_within_the_bound() {
    let (_dir, catalog) = made(&Options::default());
    let _old = catalog.read().expect("a slot");
    // One full page of small rows. Then, from the greatest down, one behind each, a little longer
    // than what the splits before have left free: the split moves one small row, and no room comes.
    let rows = (catalog.env.page_bytes() as u16 - 16) / 12;
    measured(&catalog, |txn| {
        (0..rows).try_for_each(|row| txn.put(Table::Names, &row.to_be_bytes(), b""))
    });
    let (taken, _) = measured(&catalog, |txn| {
        (0..40).try_for_each(|split| {
            let mut key = (rows - 1 - split).to_be_bytes().to_vec();
            key.resize(12 * usize::from(split) + 12, 1);
            txn.put(Table::Names, &key, b"")
        })
    });
    assert!(taken > 40, "the rows split {taken} pages only; they are to be unlucky");
}

#[test]
fn deletions_that_change_the_page_beside_are_within_the_bound() {
    let (_dir, catalog) = made(&Options::default());
    let _old = catalog.read().expect("a slot");
    // Pages of 11 rows, 330 bytes each; of these 4 are left. One less is less than a quarter of a
    // page, so LMDB takes a row from the page before.
    let (pages, key) = (200_u64, |page: u64, row: u64| (page * 11 + row).to_be_bytes());
    measured(&catalog, |txn| {
        (0..pages * 11).try_for_each(|row| txn.put(Table::Names, &key(0, row), &[1; 312]))
    });
    measured(&catalog, |txn| {
        for page in 0..pages {
            for row in 4..11 {
                txn.delete(Table::Names, &key(page, row))?;
            }
        }
        Ok(())
    });
    let (taken, _) = measured(&catalog, |txn| {
        for page in (1..pages).step_by(2) {
            txn.delete(Table::Names, &key(page, 0))?;
        }
        Ok(())
    });
    assert!(taken > pages, "{taken} pages for {pages} changed; the deletions are to be unlucky");
}

#[test]
fn giving_up_very_many_pages_is_within_the_bound() {
    let (_dir, catalog) = made(&Options::default());
    let _old = catalog.read().expect("a slot");
    let large = vec![1; 5 << 20];
    for row in 0..20_u8 {
        measured(&catalog, |txn| txn.put(Table::Objects, &[row], &large));
    }
    let (taken, _) = measured(&catalog, |txn| {
        (0..20_u8).try_for_each(|row| txn.delete(Table::Objects, &[row]).map(|_| ()))
    });
    assert!(taken > 45, "{taken} pages; the list of freed ones alone is to be longer");
}

#[test]
fn a_thousand_rows_in_one_commit_ask_for_little_more_than_they_take() {
    let (_dir, catalog) = made(&Options::default());
    let (taken, bound) = measured(&catalog, |txn| {
        (0..1000_u64).try_for_each(|row| txn.put(Table::Objects, &row.to_be_bytes(), &[7; 100]))
    });
    assert!(bound < taken + 50, "{bound} for {taken}");
}

#[test]
fn more_dirty_pages_than_lmdb_lists_are_within_the_bound() {
    let (_dir, catalog) = made(&Options::default());
    let _old = catalog.read().expect("a slot");
    let mut random = Random(9);
    let shape = Shape {
        order: Order::Random,
        rows: 60_000,
        key_bytes: 60,
        value_bytes: 500,
        deletions_percent: 60,
        tables: 3,
    };
    let (taken, bound) = measured(&catalog, |txn| {
        for row in 0..130_000_u64 {
            txn.put(Table::Meta, &row.to_be_bytes(), &[1; 3000])?;
        }
        shape.apply(&mut random, txn, 0)
    });
    println!("{taken} pages, bound {bound}");
    assert!(bound < taken + taken / 4);
}

/// One row of a transaction that appends, and deletes what it or others have appended.
fn append_or_delete(random: &mut Random, txn: &mut WriteTxn<'_>, next: &mut u64) -> Result<()> {
    let table = if random.below(5) == 0 { Table::Chunks } else { Table::Objects };
    let value = vec![2; random.below([9, 331, 1901, 3001][*next as usize % 4]) as usize];
    let mut key = next.to_be_bytes().to_vec();
    match random.below(10) {
        0..4 => {
            let back = [4, 300, *next][random.below(3) as usize];
            let from = next.saturating_sub(random.below(back + 1)).to_be_bytes();
            let found = txn.seek(table, &from)?.next()?.map(|(key, _)| key.to_vec());
            found.map_or(Ok(()), |key| txn.delete(table, &key).map(drop))
        }
        4 => txn.put(table, &random.below(*next).to_be_bytes(), &value),
        5 => txn.put_new(table, &random.below(*next).to_be_bytes(), &value).map(drop),
        _ => {
            key.resize(8 + random.below(200) as usize, 1);
            *next += 1;
            txn.put(table, &key, &value)
        }
    }
}

#[test]
fn rows_that_are_appended_and_deleted_are_within_the_bound() {
    for seed in 0..20 {
        let (_dir, catalog) = made(&Options::default());
        let _old = (seed % 2 == 0).then(|| catalog.read().expect("a slot"));
        let (mut random, mut next) = (Random(seed), 1);
        for _ in 0..20 {
            let (start, first) = (random.clone(), next);
            measured(&catalog, |txn| {
                (random, next) = (start.clone(), first);
                let rows = [3, 20, 200, 1500][random.below(4) as usize];
                (0..rows).try_for_each(|_| append_or_delete(&mut random, txn, &mut next))
            });
        }
    }
}
