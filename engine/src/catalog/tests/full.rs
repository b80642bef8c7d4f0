//! A catalog that cannot grow.

use super::{Headroom, Options, commit, kind, made};
use crate::catalog::{Catalog, Table};
use crate::error::{Kind, Result};

fn put(catalog: &Catalog, number: u64) -> Result<u64> {
    commit(catalog, Headroom::Normal, |txn| {
        txn.put(Table::Objects, &number.to_be_bytes(), &[1; 700])?;
        txn.put(Table::Names, &number.to_be_bytes(), &[2; 20])
    })
}

fn delete(catalog: &Catalog, number: u64) -> Result<u64> {
    commit(catalog, Headroom::Relief, |txn| {
        txn.delete(Table::Objects, &number.to_be_bytes())?;
        txn.delete(Table::Names, &number.to_be_bytes())?;
        Ok(())
    })
}

/// A map of 4 MiB stands for a filesystem of that size.
const SMALL: Options =
    Options { map_size: 4 << 20, durable: false, file_mode: 0o600, max_readers: 8 };

fn fill(catalog: &Catalog) -> u64 {
    let mut number = 0;
    loop {
        match put(catalog, number) {
            Ok(_) => number += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::PoolFull, "{error}");
                return number;
            }
        }
    }
}

#[test]
fn a_full_catalog_can_be_emptied_and_filled_again_many_times() {
    let (_dir, catalog) = made(&SMALL);
    let mut held = Vec::new();
    for _ in 0..5 {
        let rows = fill(&catalog);
        held.push(rows);
        for number in 0..rows {
            delete(&catalog, number).expect("deleting works in a full catalog");
        }
    }
    println!("{held:?}");
    assert!(held.iter().all(|&rows| rows > 500 && rows * 10 > held[0] * 9), "{held:?}");
    let stats = catalog.stats().expect("numbers");
    assert!(stats.last_page < stats.allocated_pages);
}

#[test]
fn a_refused_row_changes_nothing_and_later_deletions_make_room_for_it() {
    let (_dir, catalog) = made(&SMALL);
    let rows = fill(&catalog);
    let before = catalog.stats().expect("numbers");
    assert_eq!(kind(put(&catalog, rows)), Kind::PoolFull);
    assert_eq!(catalog.stats().expect("numbers"), before);
    for number in 0..100 {
        delete(&catalog, number).expect("deleting works in a full catalog");
    }
    put(&catalog, rows).expect("room again");
}

#[test]
fn deletions_while_an_old_reader_keeps_every_page_use_the_reserve_only() {
    let (_dir, catalog) = made(&SMALL);
    let rows = fill(&catalog);
    let old = catalog.read().expect("a slot");
    let mut deleted = 0;
    while deleted < rows && delete(&catalog, deleted).is_ok() {
        deleted += 1;
    }
    println!("{deleted} of {rows}");
    assert!(deleted >= 5, "{deleted}");
    assert_eq!(old.get(Table::Names, &0_u64.to_be_bytes()), Ok(Some(&[2; 20][..])));
    drop(old);
    for number in deleted..rows {
        delete(&catalog, number).expect("pages are used again once the reader is gone");
    }
    assert_eq!(catalog.stats().expect("numbers").tables[Table::Objects as usize].entries, 0);
}

#[test]
fn a_transaction_that_was_refused_a_row_cannot_be_committed() {
    let (_dir, catalog) = made(&SMALL);
    let rows = fill(&catalog);
    let mut txn = catalog.write(Headroom::Normal).expect("the lock");
    let mut number = rows;
    while txn.put(Table::Objects, &number.to_be_bytes(), &[1; 700]).is_ok() {
        number += 1;
    }
    assert!(txn.short_of().is_some());
    assert_eq!(kind(txn.commit()), Kind::PoolFull);
}

#[test]
fn the_mark_is_never_ahead_of_the_blocks() {
    use std::os::unix::fs::MetadataExt;
    let (dir, catalog) = made(&Options::default());
    for number in 0..4000 {
        put(&catalog, number).expect("room");
        let blocks = std::fs::metadata(dir.path().join("data.mdb")).expect("it").blocks();
        assert!(blocks * 512 >= catalog.growth().allocated_pages() * 4096);
    }
    assert!(catalog.growth().allocated_pages() > 1000);
}
