//! What the catalog promises, one claim a test.

mod bound;
pub(crate) mod fork;
mod full;
mod kill;
mod seal;
#[cfg(lmdb_waits)]
mod wait;

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::lmdb::Env;
use super::{Catalog, EmptyTables, Headroom, Options, Table, WriteTxn};
use engram_base::error::{Kind, Result};

/// An empty directory: where `ENGRAM_TEST_DIRECTORY` says, or on a tmpfs with room, or anywhere.
fn directory() -> TempDir {
    if let Some(path) = std::env::var_os("ENGRAM_TEST_DIRECTORY") {
        return tempfile::tempdir_in(path).expect("a directory");
    }
    let shm = Path::new("/dev/shm");
    let made =
        if free_bytes(shm) > 1 << 30 { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("a directory")
}

fn free_bytes(path: &Path) -> u64 {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let mut about = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with NUL; `about` is a valid place, and zeros are a valid value.
    let about = unsafe {
        libc::statvfs(path.as_ptr(), about.as_mut_ptr());
        about.assume_init()
    };
    about.f_bavail * about.f_frsize
}

/// A new catalog with these options.
fn made(options: &Options) -> (TempDir, Catalog) {
    let dir = directory();
    Catalog::create(dir.path(), options).expect("a new catalog");
    let catalog = Catalog::open(dir.path(), options).expect("the new catalog");
    (dir, catalog)
}

/// A generator of numbers; a seed gives the same ones always (splitmix64).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Commits what `rows` does, growing as often as needed: what a realm's commit does.
fn commit(
    catalog: &Catalog,
    headroom: Headroom,
    mut rows: impl FnMut(&mut super::WriteTxn<'_>) -> Result<()>,
) -> Result<u64> {
    loop {
        let mut txn = catalog.write(headroom)?;
        match rows(&mut txn) {
            Ok(()) => return txn.commit(),
            Err(error) => match txn.short_of() {
                Some(pages) => {
                    drop(txn);
                    catalog.extend(pages)?;
                }
                None => return Err(error),
            },
        }
    }
}

fn kind<T>(result: Result<T>) -> Kind {
    match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.kind(),
    }
}

#[test]
fn rows_are_found_again_after_reopening() {
    let (dir, catalog) = made(&Options::default());
    let id = commit(&catalog, Headroom::Normal, |txn| {
        for number in 0..100_u32 {
            txn.put(Table::Objects, &number.to_be_bytes(), b"record")?;
        }
        txn.put(Table::Meta, b"empty", b"")
    })
    .expect("room");
    drop(catalog);
    let catalog = Catalog::open(dir.path(), &Options::default()).expect("the catalog");
    let read = catalog.read().expect("a slot");
    assert_eq!(read.id(), id);
    assert_eq!(read.get(Table::Objects, &7_u32.to_be_bytes()), Ok(Some(&b"record"[..])));
    assert_eq!(read.get(Table::Meta, b"empty"), Ok(Some(&b""[..])));
    assert_eq!(read.get(Table::Groups, b"none"), Ok(None));
    let mut rows = read.seek(Table::Objects, &98_u32.to_be_bytes()).expect("a cursor");
    assert_eq!(rows.next(), Ok(Some((&98_u32.to_be_bytes()[..], &b"record"[..]))));
    assert_eq!(rows.next(), Ok(Some((&99_u32.to_be_bytes()[..], &b"record"[..]))));
    assert_eq!(rows.next(), Ok(None));
    assert_eq!(rows.next(), Ok(None));
    let last = read.last(Table::Objects).expect("a row").expect("a row");
    assert_eq!(last, (&99_u32.to_be_bytes()[..], &b"record"[..]));
    assert_eq!(read.last(Table::Groups), Ok(None));
}

#[test]
fn a_cursor_finds_what_a_look_up_finds() {
    let (_dir, catalog) = made(&Options::default());
    commit(&catalog, Headroom::Normal, |txn| {
        // Every third number, over several pages.
        for number in (0..3000_u32).step_by(3) {
            txn.put(Table::Objects, &number.to_be_bytes(), &number.to_le_bytes())?;
        }
        Ok(())
    })
    .expect("room");
    let read = catalog.read().expect("a slot");
    let mut rows = read.seek(Table::Objects, &[]).expect("a cursor");
    let scattered = (0..3000).map(|place| place * 1999 % 3001);
    for number in (0..3010_u32).chain((0..3010).rev()).chain(scattered) {
        let key = number.to_be_bytes();
        assert_eq!(rows.find(&key), read.get(Table::Objects, &key), "{number}");
    }
    assert_eq!(rows.find(&6_u32.to_be_bytes()), Ok(Some(&6_u32.to_le_bytes()[..])));
    assert_eq!(rows.next(), Ok(Some((&9_u32.to_be_bytes()[..], &9_u32.to_le_bytes()[..]))));
    assert_eq!(rows.find(&7_u32.to_be_bytes()), Ok(None));
    assert_eq!(rows.next(), Ok(None));
    let mut none = read.seek(Table::Groups, &[]).expect("a cursor");
    assert_eq!(none.find(b"any"), Ok(None));
}

#[test]
fn a_cursor_from_nowhere_starts_at_the_first_row() {
    let (_dir, catalog) = made(&Options::default());
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, b"b", b"1")).expect("room");
    let read = catalog.read().expect("a slot");
    assert_eq!(
        read.seek(Table::Names, b"").expect("a cursor").next(),
        Ok(Some((&b"b"[..], &b"1"[..])))
    );
    assert_eq!(read.seek(Table::Names, b"c").expect("a cursor").next(), Ok(None));
}

#[test]
fn a_writer_sees_its_own_rows_and_a_reader_does_not_until_they_are_committed() {
    let (_dir, catalog) = made(&Options::default());
    let before = catalog.read().expect("a slot");
    let mut txn = catalog.write(Headroom::Normal).expect("the lock");
    txn.put(Table::Names, b"a", b"1").expect("room");
    txn.put(Table::Names, b"b", b"2").expect("room");
    assert_eq!(txn.get(Table::Names, b"a"), Ok(Some(&b"1"[..])));
    assert_eq!(txn.delete(Table::Names, b"a"), Ok(true));
    assert_eq!(txn.delete(Table::Names, b"a"), Ok(false));
    assert_eq!(
        txn.seek(Table::Names, b"a").expect("a cursor").next(),
        Ok(Some((&b"b"[..], &b"2"[..])))
    );
    assert_eq!(txn.last(Table::Names), Ok(Some((&b"b"[..], &b"2"[..]))));
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"b"), Ok(None));
    txn.commit().expect("a commit");
    assert_eq!(before.get(Table::Names, b"b"), Ok(None));
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"b"), Ok(Some(&b"2"[..])));
}

#[test]
fn a_dropped_transaction_leaves_nothing() {
    let (_dir, catalog) = made(&Options::default());
    let mut txn = catalog.write(Headroom::Normal).expect("the lock");
    let id = txn.id();
    txn.put(Table::Names, b"a", b"1").expect("room");
    drop(txn);
    let txn = catalog.write(Headroom::Normal).expect("the lock");
    assert_eq!(txn.get(Table::Names, b"a"), Ok(None));
    assert_eq!(txn.id(), id);
}

#[test]
fn a_new_row_leaves_one_that_is_there_as_it_is_and_says_what_it_holds() {
    let (_dir, catalog) = made(&Options::default());
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, b"old", b"before")).unwrap();
    commit(&catalog, Headroom::Normal, |txn| {
        assert_eq!(txn.put_new(Table::Names, b"old", b"after")?.as_deref(), Some(&b"before"[..]));
        assert!(!txn.is_changed());
        assert_eq!(txn.put_new(Table::Names, b"new", b"row")?, None);
        assert_eq!(txn.put_new(Table::Names, b"new", b"again")?.as_deref(), Some(&b"row"[..]));
        Ok(())
    })
    .unwrap();
    let read = catalog.read().unwrap();
    assert_eq!(read.get(Table::Names, b"old").unwrap(), Some(&b"before"[..]));
    assert_eq!(read.get(Table::Names, b"new").unwrap(), Some(&b"row"[..]));
}

#[test]
fn a_row_that_is_there_is_found_without_room_for_a_new_one() {
    let (_dir, catalog) = made(&Options::default());
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, b"old", b"before")).unwrap();
    let row = [1; 3000];
    let mut rows = 0_u64;
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    while txn.put(Table::Objects, &rows.to_be_bytes(), &row).is_ok() {
        rows += 1;
    }
    assert!(txn.short_of().is_some());
    drop(txn);
    let mut txn = catalog.write(Headroom::Normal).unwrap();
    (0..rows).for_each(|number| txn.put(Table::Objects, &number.to_be_bytes(), &row).unwrap());
    let large = vec![1; 1 << 20];
    let there = txn.put_new(Table::Names, b"old", &large).unwrap();
    assert_eq!((there.as_deref(), txn.short_of()), (Some(&b"before"[..]), None));
    assert_eq!(kind(txn.put_new(Table::Names, b"new", &large)), Kind::PoolFull);
    assert!(txn.short_of().is_some());
}

#[test]
fn a_transaction_that_was_expected_does_not_begin_again() {
    const ROWS: u64 = 1000;
    let (_dir, catalog) = made(&Options::default());
    let mut random = Random(17);
    let row = [7; 320];
    let allocated = catalog.growth().allocated_pages();
    for round in 0..30 {
        let bytes = ROWS * (row.len() as u64 + 60);
        catalog.expect(bytes, [(Table::Objects, ROWS), (Table::Names, ROWS)]).unwrap();
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        for number in 0..ROWS {
            // Names in no order: each may be in a leaf of its own.
            let name = [random.next().to_be_bytes(), random.next().to_be_bytes()].concat();
            txn.put(Table::Names, &name, &row[..9]).unwrap();
            txn.put(Table::Objects, &(round * ROWS + number).to_be_bytes(), &row).unwrap();
        }
        assert_eq!(txn.short_of(), None, "round {round}");
        txn.commit().unwrap();
    }
    assert!(catalog.growth().allocated_pages() > 2 * allocated, "it never had to grow");
}

#[test]
fn keys_are_1_to_511_bytes() {
    let (_dir, catalog) = made(&Options::default());
    for length in [0, 512] {
        let key = vec![b'k'; length];
        let mut txn = catalog.write(Headroom::Normal).expect("the lock");
        assert_eq!(kind(txn.put(Table::Names, &key, b"")), Kind::Argument);
        assert_eq!(kind(txn.delete(Table::Names, &key)), Kind::Argument);
        assert_eq!(kind(txn.get(Table::Names, &key)), Kind::Argument);
        assert_eq!(txn.short_of(), None);
    }
    let key = [b'k'; 511];
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, &key, b"v")).expect("room");
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, &key), Ok(Some(&b"v"[..])));
}

#[test]
fn files_get_their_mode_and_their_blocks_before_they_are_used() {
    let options = Options { file_mode: 0o660, ..Options::default() };
    let (dir, catalog) = made(&options);
    for name in ["data.mdb", "lock.mdb", "growth"] {
        let about = fs::metadata(dir.path().join(name)).expect("the file");
        assert_eq!(about.permissions().mode() & 0o7777, 0o660, "{name}");
        let bytes = match name {
            "data.mdb" => catalog.growth().allocated_pages() * catalog.env.page_bytes(),
            _ => about.len(),
        };
        assert!(about.blocks() * 512 >= bytes, "{name}");
    }
    assert_eq!(fs::metadata(dir.path().join("data.mdb")).expect("it").len(), options.map_size);
}

#[test]
fn creating_is_all_or_nothing_and_touches_no_other_file() {
    let dir = directory();
    fs::write(dir.path().join("growth"), b"mine").expect("a file");
    assert_eq!(kind(Catalog::create(dir.path(), &Options::default())), Kind::Exists);
    assert_eq!(names(dir.path()), ["growth"]);
    assert_eq!(fs::read(dir.path().join("growth")).expect("it"), b"mine");
    fs::remove_file(dir.path().join("growth")).expect("it");
    for map_size in [1 << 20, (1 << 30) + 1] {
        let options = Options { map_size, ..Options::default() };
        assert_eq!(kind(Catalog::create(dir.path(), &options)), Kind::Argument);
    }
    assert_eq!(names(dir.path()), [""; 0]);
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    assert_eq!(kind(Catalog::create(dir.path(), &Options::default())), Kind::Exists);
    Catalog::open(dir.path(), &Options::default()).expect("the catalog, whole");
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the directory");
    entries.map(|entry| entry.expect("it").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn opening_makes_no_file_and_refuses_what_does_not_fit() {
    let dir = directory();
    assert_eq!(kind(Catalog::open(dir.path(), &Options::default())), Kind::NotFound);
    assert_eq!(names(dir.path()), [""; 0]);
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let smaller = Options { map_size: 1 << 30, ..Options::default() };
    assert_eq!(kind(Catalog::open(dir.path(), &smaller)), Kind::Corrupt);
    let lock = dir.path().join("lock.mdb");
    let kept = dir.path().join("kept");
    fs::rename(&lock, &kept).expect("it");
    assert_eq!(kind(Catalog::open(dir.path(), &Options::default())), Kind::NotFound);
    assert!(!lock.exists());
    fs::rename(&kept, &lock).expect("it");
    let growth = dir.path().join("growth");
    let bytes = fs::read(&growth).expect("it");
    for (at, expected) in [(0, Kind::Corrupt), (8, Kind::Format), (16, Kind::Format)] {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        fs::write(&growth, changed).expect("it");
        assert_eq!(kind(Catalog::open(dir.path(), &Options::default())), expected, "byte {at}");
    }
    fs::write(&growth, &bytes[..100]).expect("it");
    assert_eq!(kind(Catalog::open(dir.path(), &Options::default())), Kind::Corrupt);
    fs::write(&growth, bytes).expect("it");
    Catalog::open(dir.path(), &Options::default()).expect("the catalog");
}

/// Of the count of readers in LMDB's lock table, the byte that is worth most.
const READERS_LAST_BYTE: u64 = 19;

/// Damage in the table of a closed catalog is gone with the next opening; a process that joins
/// others is told of it, and reads nothing behind the end.
#[test]
fn a_lock_table_of_more_readers_than_it_has_room_for_is_refused() {
    let (dir, catalog) = made(&Options::default());
    let lock = File::options().write(true).open(dir.path().join("lock.mdb")).expect("it");
    let damage = || lock.write_all_at(&[1], READERS_LAST_BYTE).expect("a write");
    damage();
    let joined = Env::open(dir.path(), &Options::default(), false);
    assert_eq!(joined.map(|_| ()).expect_err("no table").kind(), Kind::Corrupt);
    lock.write_all_at(&[0], READERS_LAST_BYTE).expect("a write");
    drop(catalog);
    damage();
    Catalog::open(dir.path(), &Options::default()).expect("a table made anew");
}

#[test]
fn a_copy_with_holes_gets_its_blocks_at_open() {
    let (dir, catalog) = made(&Options::default());
    let bytes = catalog.growth().allocated_pages() * catalog.env.page_bytes();
    drop(catalog);
    let path = dir.path().join("data.mdb");
    let (file, _) = super::growth::open_file(&path).expect("it");
    let hole = super::FileRange { from: bytes / 2, to: bytes, keep_size: true };
    super::growth::release(&file, hole);
    assert!(file.metadata().expect("it").blocks() * 512 < bytes);
    let _catalog = Catalog::open(dir.path(), &Options::default()).expect("the catalog");
    assert!(file.metadata().expect("it").blocks() * 512 >= bytes);
}

#[test]
fn a_poisoned_catalog_is_read_but_not_written_by_any_process_until_cleared() {
    let (dir, catalog) = made(&Options::default());
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, b"a", b"1")).expect("room");
    catalog.poison();
    assert_eq!(kind(catalog.write(Headroom::Relief)), Kind::Corrupt);
    drop(catalog);
    let catalog = Catalog::open(dir.path(), &Options::default()).expect("the catalog");
    assert!(catalog.poisoned());
    assert_eq!(kind(catalog.write(Headroom::Normal)), Kind::Corrupt);
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"a"), Ok(Some(&b"1"[..])));
    catalog.clear_poison();
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, b"a", b"2")).expect("room");
}

#[test]
fn the_synced_close_mark_goes_with_the_next_commit() {
    let (_dir, catalog) = made(&Options::default());
    assert!(!catalog.growth().clean());
    let mut flushed = false;
    let flush = || {
        flushed = true;
        Ok(())
    };
    catalog.close_clean(flush).expect("a sync");
    assert!(flushed && catalog.growth().clean());
    drop(catalog.write(Headroom::Normal).expect("the lock"));
    assert!(catalog.growth().clean());
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Names, b"a", b"1")).expect("room");
    assert!(!catalog.growth().clean());
}

#[test]
fn a_durable_catalog_commits_from_many_threads() {
    let (_dir, catalog) = made(&Options { durable: true, ..Options::default() });
    std::thread::scope(|threads| {
        for thread in 0..4_u8 {
            let catalog = &catalog;
            threads.spawn(move || {
                for number in 0..20_u8 {
                    let rows = |txn: &mut super::WriteTxn<'_>| {
                        txn.put(Table::Objects, &[thread, number], b"record")
                    };
                    commit(catalog, Headroom::Normal, rows).expect("room");
                }
            });
        }
    });
    let stats = catalog.stats().expect("numbers");
    assert_eq!(stats.tables[Table::Objects as usize].entries, 80);
}

#[test]
fn the_growth_page_keeps_what_it_is_given() {
    let (dir, catalog) = made(&Options::default());
    let id = *b"0123456789abcdef";
    catalog.growth().set_boot_id(id);
    assert_eq!(catalog.growth().raise_lease_epoch(), 1);
    assert_eq!(catalog.growth().raise_lease_epoch(), 2);
    catalog.growth().sync().expect("a sync");
    drop(catalog);
    let catalog = Catalog::open(dir.path(), &Options::default()).expect("the catalog");
    assert_eq!(catalog.growth().boot_id(), id);
    assert_eq!(catalog.growth().lease_epoch(), 2);
}

#[test]
fn a_table_is_taken_for_empty_until_it_has_a_row_and_no_wrong_word_outlives_an_opening() {
    let (dir, catalog) = made(&Options::default());
    let is_empty = |catalog: &Catalog| {
        catalog.write(Headroom::Normal).unwrap().is_empty(Table::Transfers).unwrap()
    };
    let put = |catalog: &Catalog, table, keep: bool| {
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        txn.is_empty(Table::Transfers).unwrap();
        txn.put(table, b"key", b"value").unwrap();
        if keep {
            txn.commit().unwrap();
        }
    };
    put(&catalog, Table::Meta, true);
    let last = catalog.last_id().unwrap();
    assert!(catalog.growth.empty().after(last).has(Table::Transfers), "it need not be asked for");
    put(&catalog, Table::Transfers, false);
    assert!(is_empty(&catalog));
    put(&catalog, Table::Transfers, true);
    assert!(!is_empty(&catalog));
    let mut wrong = EmptyTables::default().as_of(catalog.last_id().unwrap());
    wrong.add(Table::Transfers);
    catalog.growth.set_empty(wrong);
    drop(catalog);
    let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
    assert!(!is_empty(&catalog));
}

#[test]
fn one_thread_reading_again_and_again_holds_one_slot() {
    let (_dir, catalog) = made(&Options::default());
    for _ in 0..100 {
        drop(catalog.read().expect("a slot"));
    }
    let (first, second) = (catalog.read().expect("a slot"), catalog.read().expect("a slot"));
    assert_eq!(first.id(), second.id());
    assert_eq!(catalog.env.readers_ever(), Ok(2));
}

#[test]
fn more_readers_than_slots_are_told_so_and_served_when_one_ends() {
    let (_dir, catalog) = made(&Options { max_readers: 8, ..Options::default() });
    let mut reads = Vec::new();
    let error = loop {
        match catalog.read() {
            Ok(read) => reads.push(read),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Busy);
    assert!((8..200).contains(&reads.len()), "{}", reads.len());
    reads.pop();
    catalog.read().expect("the slot given back");
}

#[test]
fn a_thread_that_writes_twice_is_refused_instead_of_waiting_for_itself() {
    for durable in [false, true] {
        let (_dir, catalog) = made(&Options { durable, ..Options::default() });
        let txn = catalog.write(Headroom::Normal).expect("the lock");
        assert_eq!(kind(catalog.write(Headroom::Normal)), Kind::Busy);
        drop(txn);
        catalog.write(Headroom::Normal).expect("the lock").commit().expect("nothing to commit");
        catalog.write(Headroom::Normal).expect("the lock");
    }
}

#[test]
fn threads_write_in_turns_and_read_at_once() {
    let (_dir, catalog) = made(&Options::default());
    std::thread::scope(|threads| {
        for thread in 0..4_u8 {
            let catalog = &catalog;
            threads.spawn(move || {
                for number in 0..500_u16 {
                    let [high, low] = number.to_be_bytes();
                    let key = [thread, high, low];
                    let rows = |txn: &mut super::WriteTxn<'_>| {
                        txn.put(Table::Objects, &key, &key)?;
                        txn.put(Table::Names, &key, &key)
                    };
                    commit(catalog, Headroom::Normal, rows).expect("room");
                    let read = catalog.read().expect("a slot");
                    assert_eq!(read.get(Table::Names, &key), Ok(Some(&key[..])));
                }
            });
        }
    });
    let stats = catalog.stats().expect("numbers");
    assert_eq!(stats.tables[Table::Names as usize].entries, 2000);
    assert!(stats.free_pages > 0 && stats.last_page < stats.allocated_pages);
}

/// More threads than the machine has CPUs: some are interrupted while they begin to read.
#[test]
fn a_snapshot_shows_the_commit_of_its_number() {
    for durable in [false, true] {
        let (_dir, catalog) = made(&Options { durable, ..Options::default() });
        let commits = if durable { 5_000 } else { 60_000 };
        let write = || commit(&catalog, Headroom::Normal, write_own_id).expect("room");
        let ended = AtomicBool::new(false);
        write();
        std::thread::scope(|threads| {
            let read = || {
                while !ended.load(Ordering::Relaxed) {
                    let read = catalog.read().expect("a slot");
                    let shown = read.get(Table::Meta, b"own id").expect("a row");
                    assert_eq!(shown, Some(&read.id().to_ne_bytes()[..]));
                }
            };
            let readers: Vec<_> = (0..8).map(|_| threads.spawn(read)).collect();
            let written = std::panic::catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..commits {
                    write();
                }
            }));
            ended.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().expect("its own number");
            }
            written.expect("commits");
        });
        assert!(catalog.env.readers_ever().expect("numbers") <= 8, "a slot for each thread");
    }
}

fn write_own_id(txn: &mut WriteTxn<'_>) -> Result<()> {
    let id = txn.id();
    txn.put(Table::Meta, b"own id", &id.to_ne_bytes())
}

#[test]
fn a_commit_tells_which_objects_it_changes_and_rings() {
    let (_dir, catalog) = made(&Options::default());
    let growth = catalog.growth();
    let commit = |change: &dyn Fn(&mut WriteTxn<'_>)| {
        let mut txn = catalog.write(Headroom::Normal).expect("a transaction");
        change(&mut txn);
        let heard = growth.bell().listen();
        let id = txn.commit().expect("a commit");
        (growth.changed(id - 1, id), growth.bell().listen() != heard)
    };
    let id = |number: u64| number.to_be_bytes();
    let put = |table: Table, number: u64| {
        commit(&move |txn| txn.put(table, &id(number), b"row").expect("a row"))
    };
    assert_eq!(put(Table::Objects, 7), (Some(vec![7]), true));
    assert_eq!(put(Table::Objects, 7), (Some(vec![7]), true));
    assert_eq!(put(Table::Queue, 7), (Some(vec![]), false), "that is no news");
    assert_eq!(put(Table::Groups, 5), (Some(vec![]), false), "a new group changes no object");
    assert_eq!(put(Table::Groups, 5), (None, true), "a group that changes may change any");
    let gone = commit(&|txn| {
        assert!(!txn.delete(Table::Objects, &id(6)).expect("nothing"));
        assert!(txn.delete(Table::Objects, &id(7)).expect("it"));
        assert!(txn.delete(Table::Groups, &id(5)).expect("it"));
        assert_eq!(txn.put_new(Table::Objects, &id(8), b"row"), Ok(None));
        assert!(txn.put_new(Table::Objects, &id(8), b"other").expect("it").is_some());
    });
    assert_eq!(gone, (Some(vec![7, 8]), true));
    let many = commit(&|txn| {
        (0..1000).for_each(|number| txn.put(Table::Objects, &id(number), b"row").expect("a row"));
    });
    assert_eq!(many, (None, true));
}
