//! What the wrapper costs above bare LMDB. Run with `--release -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::{Headroom, Options, commit, made};
use crate::catalog::{Catalog, Table};

const ROUNDS: u64 = 21;
const OPERATIONS: u32 = 5000;

/// The median time of an operation, in nanoseconds.
fn median_ns(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn timed(operations: u32, mut work: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    for number in 0..u64::from(operations) {
        work(number);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(operations)
}

fn ours(catalog: &Catalog, number: u64) {
    commit(catalog, Headroom::Normal, |txn| {
        txn.put(Table::Objects, &number.to_be_bytes(), &[1; 100])?;
        txn.put(Table::Names, &number.to_be_bytes(), &[2; 24])
    })
    .expect("room");
}

#[test]
#[ignore = "a measurement"]
fn a_commit_of_two_rows_costs_little_more_than_bare_lmdb() {
    let (_dir, catalog) = made(&Options::default());
    let (_other, plain) = made(&Options::default());
    for number in 0..200_000 {
        ours(&catalog, number);
        ours(&plain, number);
    }
    let (mut own, mut bare, mut next) = (Vec::new(), Vec::new(), 200_000);
    for _ in 0..ROUNDS {
        catalog.extend(20_000).expect("room");
        plain.extend(20_000).expect("room");
        own.push(timed(OPERATIONS, |number| ours(&catalog, next + number)));
        bare.push(timed(OPERATIONS, |number| {
            let number = next + number;
            plain.env.bare_commit(&number.to_be_bytes(), &[1; 100], &[2; 24]);
        }));
        next += u64::from(OPERATIONS);
    }
    let (own, bare) = (median_ns(own), median_ns(bare));
    println!("commit of two rows: {own:.0} ns, bare LMDB {bare:.0} ns, ratio {:.3}", own / bare);
    assert!(own < bare * 1.25);
}

#[test]
#[ignore = "a measurement"]
fn reading_one_row_costs_little_more_than_bare_lmdb() {
    let (_dir, catalog) = made(&Options::default());
    for number in 0..200_000 {
        ours(&catalog, number);
    }
    let key = |number: u64| (number * 7919 % 200_000).to_be_bytes();
    let (mut own, mut bare, mut inside) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(timed(OPERATIONS, |number| {
            let read = catalog.read().expect("a slot");
            black_box(read.get(Table::Names, &key(number)).expect("a row"));
        }));
        bare.push(catalog.env.bare_reads(OPERATIONS, key));
        let read = catalog.read().expect("a slot");
        inside.push(timed(OPERATIONS, |number| {
            black_box(read.get(Table::Names, &key(number)).expect("a row"));
        }));
    }
    let (own, bare) = (median_ns(own), median_ns(bare));
    println!(
        "renew, get, reset: {own:.0} ns, bare LMDB {bare:.0} ns; get alone {:.0} ns",
        median_ns(inside)
    );
    assert!(own < bare + 300.0);
}

#[test]
#[ignore = "a measurement"]
fn a_batch_costs_little_a_row() {
    let (_dir, catalog) = made(&Options::default());
    let (_other, plain) = made(&Options::default());
    let (mut own, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let rows = u64::from(OPERATIONS);
        let first = round * rows;
        catalog.extend(20_000).expect("room");
        plain.extend(20_000).expect("room");
        own.push(timed(1, |_| {
            commit(&catalog, Headroom::Normal, |txn| {
                for number in first..first + rows {
                    txn.put(Table::Objects, &number.to_be_bytes(), &[1; 100])?;
                }
                Ok(())
            })
            .expect("room");
        }));
        bare.push(timed(1, |_| plain.env.bare_batch(first, rows, &[1; 100])));
    }
    let (own, bare) =
        (median_ns(own) / f64::from(OPERATIONS), median_ns(bare) / f64::from(OPERATIONS));
    println!("a row of a batch: {own:.0} ns, bare LMDB {bare:.0} ns, ratio {:.3}", own / bare);
}
