//! What changes between a call's look and its act: the call is answered as if nobody had come
//! between, and never done to another node than was judged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use engram_fs::{Answer, At, Caller, Clash, Fs, Opened, ROOT, Unanswered};

use crate::Both;
use crate::steps::caller;

/// So often each of two does what is in the other's way.
const ROUNDS: usize = 3000;

fn at(path: &str) -> At<'_> {
    At::path(ROOT, path.as_bytes())
}

fn code<T>(answer: Answer<T>) -> i32 {
    match answer {
        Ok(_) => 0,
        Err(Unanswered::Refused(error)) => error.code,
        Err(Unanswered::Leaves(leaves)) => panic!("it leaves: {leaves:?}"),
        Err(Unanswered::Expected) => panic!("no stage brings anything here"),
    }
}

fn make(fs: &Fs, who: &Caller, path: &str) -> i32 {
    code(fs.asked_by(who).open(at(path), libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644))
}

/// Says that the rounds are over, also if one of them fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `one` for as long as `other` has rounds to run.
fn beside(one: impl Fn() + Sync, other: impl Fn(usize)) {
    beside_many(1, one, other);
}

/// The same, in so many threads.
fn beside_many(threads: usize, one: impl Fn() + Sync, other: impl Fn(usize)) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    one();
                }
            });
        }
        let _over = Over(&over);
        (0..ROUNDS).for_each(other);
    });
}

#[test]
fn nobody_unlinks_what_another_has_made_under_the_name() {
    let both = Both::new();
    let fs = &both.ours.fs;
    let (root, one, other) = (caller(0, 0, &[]), caller(1, 1, &[]), caller(65534, 65534, &[]));
    fs.asked_by(&root).mkdir(at("sticky"), 0o777).unwrap();
    fs.asked_by(&root).chmod(at("sticky"), 0o1777, true).unwrap();
    // Two threads of the one make and unlink a file; one of them may be about to unlink what the
    // other has, when somebody else makes another under that name.
    let own = || {
        make(fs, &one, "sticky/file");
        match code(fs.asked_by(&one).unlink(at("sticky/file"))) {
            0 | libc::ENOENT | libc::EPERM => {}
            number => panic!("unlinked: {number}"),
        }
    };
    beside_many(2, own, |_| {
        while make(fs, &other, "sticky/file") != 0 {}
        for _ in 0..3 {
            assert_eq!(fs.asked_by(&other).stat(at("sticky/file"), true).unwrap().uid, 65534);
        }
        assert_eq!(code(fs.asked_by(&other).unlink(at("sticky/file"))), 0);
    });
    both.close();
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_always_there() {
    let both = Both::new();
    let fs = &both.ours.fs;
    let root = caller(0, 0, &[]);
    let asked = fs.asked_by(&root);
    asked.mkdir(at("folder"), 0o755).unwrap();
    asked.symlink(b"folder", at("link")).unwrap();
    make(fs, &root, "folder/name");
    beside(
        || {
            assert_eq!(make(fs, &root, "folder/new"), 0);
            assert_eq!(code(asked.rename(at("folder/new"), at("folder/name"), Clash::Replace)), 0);
        },
        |round| {
            let path = if round % 2 == 0 { "folder/name" } else { "link/name" };
            assert_eq!(asked.stat(at(path), true).unwrap().nlink, 1);
            let Ok(Opened::File(file)) = asked.open(at(path), libc::O_RDWR, 0) else {
                panic!("it is there, and a file")
            };
            drop(file);
            asked.chmod(at(path), 0o600, true).unwrap();
            asked.open(at(path), libc::O_CREAT | libc::O_WRONLY, 0o644).unwrap();
        },
    );
    both.close();
}

#[test]
fn what_is_made_by_two_is_opened_by_both() {
    let both = Both::new();
    let fs = &both.ours.fs;
    let root = caller(0, 0, &[]);
    let asked = fs.asked_by(&root);
    let open = || {
        let flags = libc::O_CREAT | libc::O_WRONLY;
        assert_eq!(code(asked.open(at("file"), flags, 0o644)), 0);
    };
    // Each of three makes it, if the others have not made it just now, or taken it away.
    let make = || {
        code(asked.unlink(at("file")));
        open();
    };
    beside_many(2, make, |_| open());
    both.close();
}

#[test]
fn a_mode_is_seen_as_soon_as_it_is_set() {
    let both = Both::new();
    let fs = &both.ours.fs;
    let (root, one) = (caller(0, 0, &[]), caller(1, 1, &[]));
    let asked = fs.asked_by(&root);
    asked.mkdir(at("a"), 0o755).unwrap();
    asked.mkdir(at("a/b"), 0o755).unwrap();
    asked.mkdir(at("other"), 0o755).unwrap();
    make(fs, &root, "a/b/file");
    // Others commit meanwhile, so that what is remembered is now old, and now new.
    beside(
        || {
            make(fs, &root, "other/file");
            code(asked.unlink(at("other/file")));
        },
        |round| {
            let path = if round % 2 == 0 { "a" } else { "a/b" };
            for (mode, expected) in [(0o700, libc::EACCES), (0o755, 0)] {
                asked.chmod(at(path), mode, true).unwrap();
                for _ in 0..2 {
                    assert_eq!(code(fs.asked_by(&one).stat(at("a/b/file"), true)), expected);
                }
            }
            asked.rename(at("a/b"), at("a/c"), Clash::Replace).unwrap();
            assert_eq!(code(fs.asked_by(&one).stat(at("a/b/file"), true)), libc::ENOENT);
            asked.rename(at("a/c"), at("a/b"), Clash::Replace).unwrap();
        },
    );
    both.close();
}

#[test]
fn what_is_given_away_meanwhile_keeps_no_set_user_id() {
    let both = Both::new();
    let fs = &both.ours.fs;
    let (root, one) = (caller(0, 0, &[]), caller(1, 1, &[]));
    let asked = fs.asked_by(&root);
    make(fs, &root, "file");
    beside(
        || {
            code(fs.asked_by(&one).chmod(at("file"), 0o4755, true));
        },
        |_| {
            asked.chown(at("file"), Some(1), None, true).unwrap();
            asked.chown(at("file"), Some(0), None, true).unwrap();
            let stat = asked.stat(at("file"), true).unwrap();
            assert_eq!((stat.uid, stat.mode & 0o4000), (0, 0), "root's by a user's wish");
        },
    );
    both.close();
}
