//! Making a pool, copying one and taking one away, killed at every system call: the next process
//! makes the pool anew there, or takes it away, and nobody has to clear anything up by hand.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Fixture, KEEP, alone, filled, floats, fork, put, sound};
use crate::syscalls::{Call, Hook};
use engram::{CreateOptions, Kind, Mode, Placement, Pool, Scope};

const ROOM: u64 = 4 << 20;
/// By then there is a description, whatever is made.
const EARLY: u64 = 24;

/// Kills this process before the call of this number that is about what lies below a folder.
struct Killer {
    root: PathBuf,
    left: AtomicU64,
}

impl Killer {
    fn is_ours(&self, call: &Call<'_>) -> bool {
        let path = call.path.map(|path| Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())));
        match path {
            Some(path) if path.is_absolute() => path.starts_with(&self.root),
            _ if call.fd >= 0 => fs::read_link(format!("/proc/self/fd/{}", call.fd))
                .is_ok_and(|file| file.starts_with(&self.root)),
            _ => false,
        }
    }
}

impl Hook for Killer {
    fn before(&self, call: &Call<'_>) -> Option<i32> {
        if self.is_ours(call) && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // SAFETY: sends this process a signal.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        None
    }

    fn after(&self, _: &Call<'_>, _: i64) {}
}

/// Does it in a process that is killed before its call of this number below `root`; `false` if it
/// has fewer, and was done.
pub fn killed_at(nth: u64, root: &Path, work: impl FnOnce()) -> bool {
    let mut dying = fork(|_| {
        crate::syscalls::hook(Killer { root: root.to_owned(), left: AtomicU64::new(nth) });
        crate::syscalls::arm(true);
        work();
        crate::syscalls::arm(false);
    });
    let status = dying.wait();
    assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0, "{status:#x} at {nth}");
    libc::WIFSIGNALED(status)
}

fn options() -> CreateOptions {
    CreateOptions { size: ROOM, ..CreateOptions::default() }
}

/// What is at the path: whether a whole pool. Anything else is told with what to do.
fn is_whole(path: &Path, nth: u64) -> bool {
    match Pool::open(path, Mode::ReadWrite, true) {
        Ok(pool) => {
            pool.close();
            sound(path);
            true
        }
        Err(error) if path.exists() => {
            assert_eq!(error.kind(), Kind::Format, "{nth}: {error}");
            assert!(error.message().contains("engram destroy"), "{nth}: {error}");
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), Kind::NotFound, "{nth}: {error}");
            false
        }
    }
}

/// Takes away what there is; then there is nothing, and nothing beside it.
fn clear(path: &Path, nth: u64) {
    let there = path.exists();
    match Pool::destroy(path) {
        Ok(()) => assert!(there, "{nth}"),
        Err(error) => assert!(!there && error.kind() == Kind::NotFound, "{nth}: {error}"),
    }
    let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "{nth}: {left:?}");
}

/// What there is of private realms.
fn leavings(pool: &Path) -> Vec<PathBuf> {
    let mut all = vec![pool.to_owned()];
    let mut found = Vec::new();
    while let Some(next) = all.pop() {
        for entry in fs::read_dir(&next).unwrap().flatten() {
            if next.ends_with("private") {
                found.push(entry.path());
            } else if entry.file_type().unwrap().is_dir() {
                all.push(entry.path());
            }
        }
    }
    found
}

/// Runs `work`, which makes a pool at the path, killed at its calls: what there is then is taken
/// away, or the pool is made anew over it. Both at each of the first calls, which lead to what has
/// no description yet; in turn at some of the others. How many there were.
fn try_each(path: &Path, work: impl Fn()) -> u64 {
    let (root, mut nth, mut kills) = (path.parent().unwrap(), 1, 0);
    loop {
        let early = nth <= EARLY;
        for anew in [false, true] {
            if !early && anew != nth.is_multiple_of(2) {
                continue;
            }
            if !killed_at(nth, root, &work) {
                assert!(is_whole(path, nth));
                clear(path, nth);
                return kills;
            }
            kills += 1;
            if !is_whole(path, nth) && anew {
                work();
                assert!(is_whole(path, nth), "{nth}");
            }
            clear(path, nth);
        }
        nth += if early { 1 } else { 5 };
    }
}

#[test]
fn a_pool_that_somebody_died_making_is_made_anew_or_taken_away() {
    alone("a_pool_that_somebody_died_making_is_made_anew_or_taken_away", || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        let kills = try_each(&path, || Pool::create(&path, &options()).unwrap().close());
        assert!(kills > EARLY, "{kills}");
        println!("{kills} kills");
    });
}

#[test]
fn a_copy_that_somebody_died_making_is_made_anew_or_taken_away() {
    alone("a_copy_that_somebody_died_making_is_made_anew_or_taken_away", || {
        let fixture = Fixture::new(ROOM);
        put(&fixture.realm(), "x", &filled(1, 1, 5000));
        fixture.pool.close();
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("copy");
        let kills = try_each(&path, || {
            let pool = Pool::open(&fixture.path, Mode::Read, true).unwrap();
            engram::backup(&pool, &path, true).unwrap();
        });
        assert!(kills > EARLY, "{kills}");
        println!("{kills} kills");
        sound(&fixture.path);
    });
}

#[test]
fn a_pool_that_somebody_died_destroying_is_destroyed_again() {
    alone("a_pool_that_somebody_died_destroying_is_destroyed_again", || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        for nth in 1.. {
            Pool::create(&path, &options()).unwrap().close();
            let killed = killed_at(nth, dir.path(), || Pool::destroy(&path).unwrap());
            if !killed {
                assert!(!path.exists() && nth > 5, "{nth}");
                println!("{} kills", nth - 1);
                break;
            }
            is_whole(&path, nth);
            clear(&path, nth);
        }
    });
}

/// A private realm that its user died removing is there, or goes when it is removed again; nothing
/// of it is left.
#[test]
fn a_private_realm_that_somebody_died_removing_goes_with_the_next_try() {
    alone("a_private_realm_that_somebody_died_removing_goes_with_the_next_try", || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("pool");
        let open = || Pool::open(&path, Mode::ReadWrite, true).unwrap();
        Pool::create(&path, &options()).unwrap().close();
        let keep = || {
            let pool = open();
            let namespace = pool.namespace("default").unwrap();
            let placement = Placement { scope: Some(Scope::Private), ..KEEP };
            let (new, data) = (floats(&[5000]), filled(1, 1, 5000));
            namespace.put(namespace.root(), "own", &new, &data, placement).unwrap();
            pool.close();
        };
        let has_own = || {
            let pool = open();
            let namespace = pool.namespace("default").unwrap();
            let found = namespace.lookup(namespace.root(), "own").unwrap().is_some();
            pool.close();
            found
        };
        let mut nth = 1;
        loop {
            if !has_own() {
                keep();
            }
            let work = || open().remove_private("default").unwrap();
            if !killed_at(nth, dir.path(), work) {
                assert!(nth > 20, "{nth}");
                println!("{} kills", nth / 3);
                break;
            }
            sound(&path);
            if nth.is_multiple_of(2) && !has_own() {
                keep();
                assert!(has_own(), "{nth}");
            }
            let pool = open();
            match pool.remove_private("default") {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), Kind::NotFound, "{nth}: {error}"),
            }
            pool.close();
            assert_eq!(leavings(&path), Vec::<PathBuf>::new(), "{nth}");
            nth += 3;
        }
        assert_eq!(leavings(&path), Vec::<PathBuf>::new());
        Pool::destroy(&path).unwrap();
    });
}

/// Only what is ours goes: a file of somebody else's stays, and so does the folder that it is in.
#[test]
fn what_is_not_ours_stays_where_somebody_died_making_a_pool() {
    let fixture = Fixture::new(ROOM);
    fixture.pool.close();
    let (path, other) = (&fixture.path, fixture.path.join("notes.txt"));
    let other_folder = fixture.path.join("notes");
    fs::rename(path.join("pool.toml"), path.join("creating.toml")).unwrap();
    fs::write(&other, b"mine").unwrap();
    fs::create_dir(&other_folder).unwrap();
    let error = Pool::create(path, &options()).err().unwrap();
    assert_eq!(error.kind(), Kind::Exists, "{error}");
    assert!(!path.join("ns").exists() && !path.join("creating.toml").exists());
    for _ in 0..2 {
        assert_eq!(Pool::destroy(path).unwrap_err().kind(), Kind::Format);
        assert_eq!(Pool::create(path, &options()).err().unwrap().kind(), Kind::Exists);
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        assert!(other_folder.is_dir());
    }
    fs::remove_file(&other).unwrap();
    assert_eq!(Pool::destroy(path).unwrap_err().kind(), Kind::Format, "a folder is something");
    fs::remove_dir(&other_folder).unwrap();
    Pool::destroy(path).unwrap();
    assert!(!path.exists());
}
