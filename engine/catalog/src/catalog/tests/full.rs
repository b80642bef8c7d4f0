//! A catalog that cannot grow.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::fork::forked;
use super::{Headroom, Options, commit, directory, kind, made};
use crate::catalog::{Catalog, Table};
use engram_base::error::{Kind, Result};

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
const SMALL: Options = Options {
    map_size: 4 << 20,
    durable: false,
    file_mode: 0o600,
    max_readers: 8,
    read_only: false,
};

fn fill(catalog: &Catalog) -> u64 {
    fill_from(catalog, 0)
}

/// Puts rows until there is no room; how many.
fn fill_from(catalog: &Catalog, first: u64) -> u64 {
    for number in first.. {
        if let Err(error) = put(catalog, number) {
            assert_eq!(error.kind(), Kind::PoolFull, "{error}");
            return number - first;
        }
    }
    unreachable!("a catalog without end")
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

/// Mounts a tmpfs of 8 MiB on `dir`, for this process alone; false if it may not.
fn mount_small(dir: &Path) -> bool {
    let dir = CString::new(dir.as_os_str().as_bytes()).expect("no NUL");
    let (root, tmpfs, size) = (c"/", c"tmpfs", c"size=8m");
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: strings that end with NUL; a namespace of its own sees to it that nobody else's
    // mounts change.
    unsafe {
        let none = std::ptr::null();
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root.as_ptr(), none, private, none.cast()) == 0
            && libc::mount(tmpfs.as_ptr(), dir.as_ptr(), tmpfs.as_ptr(), 0, size.as_ptr().cast())
                == 0
    }
}

/// Makes a file of `bytes`, or of all that is left.
fn occupy(path: &Path, bytes: Option<u64>) {
    let mut file = File::create(path).expect("a file");
    let block = [1; 4096];
    let mut written = 0;
    while bytes.is_none_or(|bytes| written < bytes) && file.write_all(&block).is_ok() {
        written += 4096;
    }
}

#[test]
fn on_a_filesystem_that_is_really_full_nothing_dies_and_room_comes_back() {
    let dir = directory();
    // In a child, so that the mount goes with it.
    forked(|| {
        let dir = dir.path();
        if !mount_small(dir) {
            println!("skipped: this user may not mount");
            return;
        }
        let options = Options { max_readers: 8, ..Options::default() };
        let (mine, yours) = (dir.join("mine"), dir.join("yours"));
        fs::create_dir(&mine).expect("a directory");
        fs::create_dir(&yours).expect("a directory");
        occupy(&dir.join("other"), Some(3 << 20));
        Catalog::create(&mine, &options).expect("a new catalog");
        let catalog = Catalog::open(&mine, &options).expect("the catalog");
        let rows = fill(&catalog);
        occupy(&dir.join("rest"), None);
        assert_eq!(super::free_bytes(dir), 0);
        assert_eq!(kind(Catalog::create(&yours, &options)), Kind::PoolFull);
        assert_eq!(fs::read_dir(&yours).expect("it").count(), 0);
        for _ in 0..3 {
            for number in 0..rows {
                delete(&catalog, number).expect("deleting works on a full filesystem");
            }
            let again = fill(&catalog);
            assert!(again * 10 > rows * 9, "{again} of {rows}");
        }
        let before = catalog.growth().allocated_pages();
        fs::remove_file(dir.join("other")).expect("it");
        assert!(fill_from(&catalog, rows) > 500);
        assert!(catalog.growth().allocated_pages() > before + 500);
    });
}
