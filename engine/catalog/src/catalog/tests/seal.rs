//! Commits are sealed where they may be torn, and what is not sealed does not outlive a restart.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tempfile::TempDir;

use super::made;
use crate::catalog::seal::roll_back_unsealed;
use crate::catalog::{Catalog, Growth, Headroom, Options, Table, page_bytes};

const BOOT: [u8; 16] = [7; 16];

fn durable() -> (TempDir, Catalog) {
    let (dir, mut catalog) = made(&Options { durable: true, ..Options::default() });
    growth_of(&mut catalog).pretend_persistent(true);
    (dir, catalog)
}

/// The growth page of a catalog that nobody else has.
fn growth_of(catalog: &mut Catalog) -> &mut Growth {
    Arc::get_mut(&mut catalog.growth).expect("nobody sleeps")
}

fn commit(catalog: &Catalog, key: u8) -> u64 {
    let mut txn = catalog.write(Headroom::Normal).expect("a transaction");
    txn.put(Table::Meta, &[key], b"row").expect("a row");
    txn.commit().expect("a commit")
}

fn pages(data: &File) -> [Vec<u8>; 2] {
    [0, 1].map(|number| {
        let mut page = vec![0; 512];
        data.read_exact_at(&mut page, number * page_bytes()).expect("a page");
        page[16..152].to_vec()
    })
}

#[test]
fn a_commit_is_sealed_and_one_without_changes_is_none() {
    let (_dir, catalog) = durable();
    let id = commit(&catalog, 1);
    assert_eq!(catalog.growth.sealed(), id);
    let nothing = catalog.write(Headroom::Normal).expect("a transaction").commit();
    assert_eq!(nothing.expect("no commit"), id + 1, "the next one has this id");
    assert_eq!(catalog.growth.sealed(), id);
}

#[test]
fn a_writer_seals_what_the_one_before_it_has_not() {
    let (_dir, mut catalog) = durable();
    let sealed = commit(&catalog, 1);
    // It dies between its commit and the seal.
    growth_of(&mut catalog).pretend_persistent(false);
    let left = commit(&catalog, 2);
    assert_eq!(catalog.growth.sealed(), sealed);
    growth_of(&mut catalog).pretend_persistent(true);
    let txn = catalog.write(Headroom::Normal).expect("a transaction");
    assert_eq!(catalog.growth.sealed(), left, "before anything is changed");
    drop(txn);
}

#[test]
fn what_was_not_sealed_is_taken_back_after_a_restart_alone() {
    let (_dir, mut catalog) = durable();
    let sealed = [commit(&catalog, 1), commit(&catalog, 2)][1];
    growth_of(&mut catalog).pretend_persistent(false);
    let torn = commit(&catalog, 3);
    growth_of(&mut catalog).pretend_persistent(true);
    let (data, path) = (&catalog.data, &catalog.data_path);
    let before = pages(data);
    catalog.growth.set_boot_id(BOOT);
    roll_back_unsealed(data, path, &catalog.growth, BOOT).expect("nothing to do");
    roll_back_unsealed(data, path, &catalog.growth, [0; 16])
        .expect("nobody knows which boot it is");
    assert_eq!(pages(data), before, "others may be at work");
    roll_back_unsealed(data, path, &catalog.growth, [8; 16]).expect("rolled back");
    let [even, odd] = pages(data);
    assert_eq!(even, odd);
    assert_eq!(even, before[(sealed & 1) as usize]);
    assert_eq!(catalog.growth.boot_id(), [8; 16]);
    assert_eq!(torn, sealed + 1);
}

#[test]
fn a_seal_of_another_file_takes_nothing_back() {
    let (_dir, mut catalog) = durable();
    let sealed = commit(&catalog, 1);
    growth_of(&mut catalog).pretend_persistent(false);
    // As many commits, unsealed, as make both pages others than the sealed one.
    let last = [commit(&catalog, 2), commit(&catalog, 3), commit(&catalog, 4)][2];
    assert_eq!(last, sealed + 3);
    let before = pages(&catalog.data);
    let id = u64::from_le_bytes(before[(last & 1) as usize][128..].try_into().expect("an id"));
    assert_eq!(id, last);
    growth_of(&mut catalog).pretend_persistent(true);
    catalog.growth.set_boot_id(BOOT);
    roll_back_unsealed(&catalog.data, &catalog.data_path, &catalog.growth, [8; 16])
        .expect("rolled back");
    assert_eq!(pages(&catalog.data), before);
    // And where nothing is sealed, the seal goes: commits pass it by.
    growth_of(&mut catalog).pretend_persistent(false);
    roll_back_unsealed(&catalog.data, &catalog.data_path, &catalog.growth, [8; 16])
        .expect("rolled back");
    assert_eq!(catalog.growth.sealed(), 0);
}
