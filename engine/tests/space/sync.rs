//! What a realm of durability `system` promises (protocols P1, P7, P8): bytes reach the medium
//! before the row that points to them, and a sync that fails ends all writing.
//!
//! This program's own `msync` stands before the C library's, for the engine and for LMDB alike: it
//! writes down what is synced, and fails when it is told to.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::{
    Fixture, KEEP, OVER, alone, attach, check, filled, floats, fork, put, read, sound, view,
};
use engram::catalog::{Catalog, Options, Table};
use engram::{Class, CreateOptions, Durability, Kind, Mode, NewObject, Pool, Realm};

const WORDS: usize = 40_000;

/// Every range synced since it was last looked at.
static SYNCED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// Which of the next calls fails: counted down to zero.
static FAILS_IN: AtomicI64 = AtomicI64::new(i64::MAX);
/// Asked at each call, before it is done.
type Witness = Box<dyn Fn(usize, usize) + Send>;
static WITNESS: Mutex<Option<Witness>> = Mutex::new(None);

/// Stands before the C library's.
///
/// # Safety
///
/// As of the system call.
///
/// # Panics
///
/// After another panic within it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(at: *mut libc::c_void, len: usize, flags: i32) -> i32 {
    if let Some(witness) = WITNESS.lock().unwrap().as_ref() {
        witness(at as usize, len);
    }
    SYNCED.lock().unwrap().push((at as usize, len));
    if FAILS_IN.fetch_sub(1, Ordering::SeqCst) == 1 {
        // SAFETY: this thread's own errno.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_msync, at, len, flags) as i32 }
}

/// A pool of durability `system` on a disk, if there is one.
fn durable(test: &str) -> Option<Fixture> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = CreateOptions {
        size: 16 << 20,
        durability: Some(Durability::System),
        ..CreateOptions::default()
    };
    match Pool::create(&dir.path().join("pool"), &options) {
        Ok(pool) => {
            assert_eq!(pool.durability(), Durability::System);
            Some(Fixture { path: dir.path().join("pool"), dir, pool })
        }
        Err(error) => {
            println!("{test} is skipped: {error}");
            None
        }
    }
}

fn forget_syncs() {
    SYNCED.lock().unwrap().clear();
}

/// Whether every byte of the range was synced since.
fn was_synced(at: usize, len: usize) -> bool {
    SYNCED.lock().unwrap().iter().any(|&(from, bytes)| from <= at && at + len <= from + bytes)
}

/// Runs `write` and checks, when its bytes are being synced, that no other process sees the object.
fn assert_flushed_before_it_is_seen(fixture: &Fixture, name: &str, write: impl FnOnce() -> usize) {
    let path = fixture.path.clone();
    let watcher = fork(|line| {
        fixture.pool.close();
        let (_pool, realm) = attach(&path, Mode::Read);
        while let Some(word) = line.hear_if_any() {
            let there = realm.lookup(realm.root(), &format!("x{word}")).unwrap();
            line.say(u64::from(there.is_some()));
        }
    });
    let number = name[1..].parse::<u64>().unwrap();
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let (watching, line) = (std::sync::Arc::clone(&seen), Mutex::new(watcher));
    forget_syncs();
    *WITNESS.lock().unwrap() = Some(Box::new(move |at, len| {
        let watcher = line.lock().unwrap();
        watcher.line.say(number);
        watching.lock().unwrap().push((at, len, watcher.line.hear()));
    }));
    let at = write();
    *WITNESS.lock().unwrap() = None;
    let seen = seen.lock().unwrap();
    let flushed =
        seen.iter().position(|&(from, len, _)| from <= at && at + WORDS * 8 <= from + len);
    let first_seen = seen.iter().position(|&(_, _, there)| there == 1);
    let flushed = flushed.unwrap_or_else(|| panic!("{name} was never flushed"));
    assert!(
        first_seen.is_none_or(|first| first > flushed),
        "{name} was seen before it was flushed"
    );
    // And the commit itself is synced after that.
    assert!(seen.len() > flushed + 1, "{name}: nothing was synced after the bytes");
}

#[test]
fn bytes_reach_the_medium_before_the_row_that_points_to_them() {
    let test = "bytes_reach_the_medium_before_the_row_that_points_to_them";
    alone(test, || {
        let Some(fixture) = durable(test) else { return };
        let realm = fixture.realm();
        let (root, new) = (realm.root(), floats(&[WORDS as u64]));
        let address = |name: &str| view(&realm, name).as_ptr() as usize;
        assert_flushed_before_it_is_seen(&fixture, "x1", || {
            put(&realm, "x1", &filled(1, 1, WORDS));
            address("x1")
        });
        assert_flushed_before_it_is_seen(&fixture, "x2", || {
            let space = realm.allocate(root, "x2", &new, WORDS as u64 * 8, KEEP).unwrap();
            let at = space.view().as_ptr();
            let data = filled(2, 2, WORDS);
            // SAFETY: the allocation's own memory.
            unsafe { at.copy_from(data.as_ptr(), data.len()) };
            space.publish().unwrap();
            at as usize
        });
        assert_flushed_before_it_is_seen(&fixture, "x3", || {
            realm.create_zeroed(root, "x3", &new, OVER).unwrap();
            address("x3")
        });
        assert_flushed_before_it_is_seen(&fixture, "x4", || {
            realm.begin_batch().unwrap();
            put(&realm, "x4", &filled(4, 4, WORDS));
            realm.commit_batch().unwrap();
            address("x4")
        });
        // In place: what was written is flushed when it is asked for (P8).
        let oid = crate::common::lookup(&realm, "x1").unwrap();
        forget_syncs();
        realm.flush(oid).unwrap();
        assert!(was_synced(address("x1"), WORDS * 8));
        // A value that moves out of its row, and one that is replaced there.
        let text = NewObject { class: Class::Blob, ..floats(&[]) };
        realm.put(root, "x5", &text, &filled(5, 5, 16), KEEP).unwrap();
        let oid = crate::common::lookup(&realm, "x5").unwrap();
        forget_syncs();
        drop(realm.view(oid, true).unwrap());
        assert!(was_synced(address("x5"), 128));
        let (_, generation) = realm.payload(oid).unwrap();
        forget_syncs();
        assert!(realm.replace_payload(oid, generation, &filled(5, 6, WORDS)).unwrap());
        assert!(was_synced(address("x5"), WORDS * 8));
        sound(&fixture.path);
    });
}

/// What fails, and after how many syncs.
fn fail_in(calls: i64) {
    FAILS_IN.store(calls, Ordering::SeqCst);
}

fn assert_poisoned(realm: &Realm, when: &str) {
    let error = realm.delete(realm.root(), "kept").expect_err(when);
    assert_eq!(error.kind(), Kind::Corrupt, "{when}: {error}");
    assert!(error.message().contains("poisoned"), "{when}: {error}");
    assert_eq!(check(&view(realm, "kept")), (1, 1), "{when}");
}

type Work = dyn Fn(&Realm) -> engram::Result<()>;

#[test]
fn a_sync_that_fails_ends_writing_for_every_process() {
    let test = "a_sync_that_fails_ends_writing_for_every_process";
    alone(test, || {
        let Some(fixture) = durable(test) else { return };
        let path = &fixture.path;
        put(&fixture.realm(), "kept", &filled(1, 1, WORDS));
        fixture.pool.close();
        // In the bytes, in the commit's pages, in its meta page; in place. Whether a commit is
        // there whose meta page was not synced, the writer does not know.
        let works: [(&str, &Work); 3] = [
            ("put", &|realm| {
                let new = floats(&[WORDS as u64]);
                realm.put(realm.root(), "new", &new, &filled(2, 2, WORDS), OVER).map(drop)
            }),
            ("small put", &|realm| {
                realm.put(realm.root(), "new", &floats(&[8]), &filled(2, 2, 8), OVER).map(drop)
            }),
            ("flush", &|realm| realm.flush(crate::common::lookup(realm, "kept").unwrap())),
        ];
        for (what, work) in works {
            let mut uncertain = 0;
            for calls in 1.. {
                let other = fork(|line| {
                    let (_pool, realm) = attach(path, Mode::ReadWrite);
                    line.say(1);
                    if line.hear() == 1 {
                        assert_poisoned(&realm, what);
                    }
                });
                other.line.expect(1);
                let (pool, realm) = attach(path, Mode::ReadWrite);
                // Ids and space are at hand, so that every sync is the work's own.
                put(&realm, "new", &filled(1, 2, WORDS));
                let before = read(&realm, "new");
                fail_in(calls);
                let done = work(&realm);
                let failed = FAILS_IN.swap(i64::MAX, Ordering::SeqCst) <= 0;
                assert_eq!(done.is_err(), failed, "{what}: sync {calls} failed");
                if failed {
                    assert_poisoned(&realm, what);
                }
                let kind = done.map_err(|error| error.kind());
                uncertain += usize::from(kind == Err(Kind::CommitUncertain));
                other.line.say(u64::from(failed));
                other.finish();
                drop(realm);
                pool.close();
                let (pool, realm) = attach(path, Mode::Read);
                assert_eq!(check(&view(&realm, "kept")), (1, 1), "{what}");
                // The process that is the first to open it takes what the meta page says.
                let is_new = read(&realm, "new") != before;
                let changes = what != "flush";
                let may_be_new = matches!(kind, Ok(()) | Err(Kind::CommitUncertain));
                assert_eq!(is_new, changes && may_be_new, "{what}: sync {calls}: {kind:?}");
                drop(realm);
                pool.close();
                sound(path);
                if !failed {
                    assert!(calls > 1, "{what} syncs nothing");
                    assert_eq!(uncertain, usize::from(changes), "{what}");
                    break;
                }
            }
        }
        let (_pool, realm) = attach(path, Mode::ReadWrite);
        put(&realm, "after", &filled(3, 3, WORDS));
        drop(realm.scratch(1 << 20, None).unwrap());
        sound(path);
    });
}

/// A pool that is refused until it was verified stays refused while its account is wrong: while it
/// is verified, and after that, however often. Then its account is right again.
fn stays_refused(path: &Path) {
    let refused = || {
        for mode in [Mode::Read, Mode::ReadWrite] {
            let error = Pool::open(path, mode, false).err().expect("a refusal");
            assert_eq!(error.kind(), Kind::Unverified);
            assert!(error.message().contains("verify"), "{error}");
        }
    };
    refused();
    let used = account(path, None);
    account(path, Some(used + 4096));
    for _ in 0..2 {
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            refused();
        };
        let report = engram::verify_with(path, &mut look).unwrap();
        assert!(report.problems[0].contains("the account says"), "{:?}", report.problems);
        assert!(looks > 0, "nobody tried to open it meanwhile");
        refused();
    }
    account(path, Some(used));
}

/// What a pool, which nobody has open, says of its bytes in use; or has it say.
fn account(path: &Path, say: Option<u64>) -> u64 {
    let options = Options { file_mode: 0o600, ..Options::default() };
    let catalog = Catalog::open(&path.join("ns/default/shared/catalog"), &options).unwrap();
    if let Some(used) = say {
        catalog.run(|txn| txn.put(Table::Meta, b"used", &used.to_le_bytes())).unwrap();
    }
    let read = catalog.read().unwrap();
    u64::from_le_bytes(read.get(Table::Meta, b"used").unwrap().unwrap().try_into().unwrap())
}

/// A pool of durability `process` on a disk is taken after a restart only if it was closed well.
#[test]
fn after_a_restart_a_process_pool_on_a_disk_must_have_been_closed_well() {
    let test = "after_a_restart_a_process_pool_on_a_disk_must_have_been_closed_well";
    alone(test, || {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("pool");
        let durability = Some(Durability::Process);
        let options = CreateOptions { size: 16 << 20, durability, ..CreateOptions::default() };
        let pool = match Pool::create(&path, &options) {
            Ok(pool) => pool,
            Err(error) => return println!("{test} is skipped: {error}"),
        };
        if !pool.devices().unwrap()[0].durable {
            return println!("{test} is skipped: it takes a disk");
        }
        // The boot id on media becomes another's, as after a restart.
        let restart = || {
            let options = Options { file_mode: 0o600, ..Options::default() };
            let dir = path.join("ns/default/shared/catalog");
            let catalog = Catalog::open(&dir, &options).unwrap();
            catalog.growth().set_boot_id([7; 16]);
            assert!(catalog.read().unwrap().get(Table::Meta, b"used").unwrap().is_some());
        };
        forget_syncs();
        put(&pool.realm("default").unwrap(), "x", &filled(1, 1, WORDS));
        assert!(!was_synced(view(&pool.realm("default").unwrap(), "x").as_ptr() as usize, 8));
        pool.close();
        restart();
        let (pool, realm) = attach(&path, Mode::ReadWrite);
        assert_eq!(check(&view(&realm, "x")), (1, 1));
        put(&realm, "y", &filled(2, 2, WORDS));
        drop(realm);
        pool.close();
        // Closed by nobody: the process dies.
        let dying = fork(|line| {
            let (_pool, realm) = attach(&path, Mode::ReadWrite);
            put(&realm, "y", &filled(2, 3, WORDS));
            // More than `verify` looks at in one go.
            for number in 0..2000 {
                put(&realm, &format!("small/{number}"), &[0; 8]);
            }
            line.say(1);
            line.hear();
        });
        dying.line.expect(1);
        dying.kill();
        fork(|_| {
            restart();
            stays_refused(&path);
            assert_eq!(engram::verify(&path).unwrap().problems, Vec::<String>::new());
            let (_pool, realm) = attach(&path, Mode::ReadWrite);
            put(&realm, "z", &filled(3, 3, WORDS));
        })
        .finish();
    });
}
