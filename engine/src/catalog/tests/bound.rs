//! The bound against what LMDB really takes.

use super::{Catalog, Headroom, Options, Random, TempDir, commit, made};
use crate::catalog::{Table, WriteTxn};
use crate::error::Result;

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

/// Runs random transactions and compares. `kept` keeps every page from being used again.
fn compare(seed: u64, rounds: u64, kept: bool) {
    println!("seed {seed}");
    let (_dir, catalog): (TempDir, Catalog) = made(&Options::default());
    let _old = kept.then(|| catalog.read().expect("a slot"));
    let mut random = Random(seed);
    for round in 0..rounds {
        let shape = Shape::random(&mut random);
        let before = catalog.env.last_page().expect("a page");
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
    }
}

#[test]
fn lmdb_never_takes_more_pages_than_the_bound_when_an_old_reader_keeps_all() {
    for seed in 0..12 {
        compare(seed, 25, true);
    }
}

#[test]
fn lmdb_never_takes_more_pages_than_the_bound_when_it_uses_pages_again() {
    for seed in 100..112 {
        compare(seed, 40, false);
    }
}

#[test]
fn a_thousand_rows_in_one_commit_ask_for_little_more_than_they_take() {
    let (_dir, catalog) = made(&Options::default());
    let mut bound = 0;
    let before = catalog.env.last_page().expect("a page");
    commit(&catalog, Headroom::Normal, |txn| {
        for row in 0..1000_u64 {
            txn.put(Table::Objects, &row.to_be_bytes(), &[7; 100])?;
        }
        bound = txn.bound_pages();
        Ok(())
    })
    .expect("room");
    let taken = catalog.env.last_page().expect("a page") - before;
    assert!((taken..taken + 50).contains(&bound), "{bound} for {taken}");
}
