//! Waiting for a lock that nobody has.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::kill::Writer;
use super::{Headroom, Options, commit, directory};
use crate::catalog::{Catalog, Table};
use engram_base::error::Kind;
use engram_media::map::MappedFile;

/// Beside the owner's number in a robust mutex's word (futex(2)): somebody sleeps for it.
const WAITED_FOR: u32 = 1 << 31;

const BEYOND_DOUBT_MS: i32 = 30_000;

/// Whether there is anything to read before it is beyond doubt that nothing will come.
fn says_something(writer: &Writer) -> bool {
    let events = libc::POLLIN;
    let mut waited = libc::pollfd { fd: writer.acknowledged.as_raw_fd(), events, revents: 0 };
    // SAFETY: one place, valid during the call.
    unsafe { libc::poll(&raw mut waited, 1, BEYOND_DOUBT_MS) == 1 }
}

/// The words of a file's first page.
fn words_of(page: &MappedFile) -> impl Iterator<Item = &AtomicU32> {
    (0..1024).map(|at| {
        // SAFETY: within the page, which is mapped as long as `page` lives; aligned, since the page
        // is; touched by atomic operations alone.
        unsafe { AtomicU32::from_ptr(page.as_ptr().add(4 * at).cast()) }
    })
}

/// Makes the lock free without waking those who wait for it, as a death at the right instant does.
#[test]
fn who_waits_for_a_lock_that_is_free_gets_it_though_nobody_wakes_them() {
    let dir = directory();
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let path = dir.path();
    let mut holder = Writer::fork(|mut to| {
        let catalog = Catalog::open(path, &Options::default())?;
        let _txn = catalog.write(Headroom::Normal)?;
        let _ = to.write_all(&[1]);
        loop {
            std::thread::park();
        }
    });
    holder.acknowledged.read_exact(&mut [0]).expect("the holder has the lock");
    let waiter = Writer::fork(|mut to| {
        let catalog = Catalog::open(path, &Options::default())?;
        commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Meta, b"k", b"v"))?;
        let _ = to.write_all(&[1]);
        loop {
            std::thread::park();
        }
    });
    // This process has the catalog not open: closing the file drops nobody's locks.
    let file = File::options().read(true).write(true).open(path.join("lock.mdb")).expect("it");
    let page = MappedFile::map(&file, 4096).expect("its first page");
    let words: Vec<&AtomicU32> = words_of(&page).collect();
    let held = WAITED_FOR | holder.pid as u32;
    let is_waited_for = |word: &&AtomicU32| word.load(SeqCst) == held;
    let word = loop {
        if let Some(word) = words.iter().copied().find(is_waited_for) {
            break word;
        }
        std::thread::yield_now();
    };
    // It sleeps by now, or is about to; both must end.
    std::thread::sleep(std::time::Duration::from_millis(5));
    word.store(0, SeqCst);
    assert!(says_something(&waiter), "it waits for a lock that nobody has");
    waiter.kill_after(0);
    holder.kill_after(0);
}

/// Of a robust mutex that processes share, where its kind stands, in words, and what that is.
const KIND: (usize, u32) = (4, 16 | 128);

/// A process that stands still with the lock that readers take once is named to one that opens the
/// catalog.
#[test]
fn who_stands_still_with_the_readers_lock_is_named() {
    let dir = directory();
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let path = dir.path();
    let mut holder = Writer::fork(|mut to| {
        let catalog = Catalog::open(path, &Options::default())?;
        let file = File::options().read(true).write(true).open(path.join("lock.mdb"));
        let page = MappedFile::map(file.as_ref().expect("the lock file"), 4096)?;
        let words: Vec<&AtomicU32> = words_of(&page).collect();
        // The readers' lock comes first.
        let lock = (0..1020).find(|at| words[at + KIND.0].load(SeqCst) == KIND.1);
        let lock = page.as_ptr().wrapping_add(4 * lock.expect("LMDB has two"));
        // SAFETY: LMDB has initialised it, and it stays mapped.
        assert_eq!(unsafe { libc::pthread_mutex_lock(lock.cast()) }, 0);
        let _ = to.write_all(&[1]);
        loop {
            std::thread::park();
            std::hint::black_box((&catalog, &file));
        }
    });
    holder.acknowledged.read_exact(&mut [0]).expect("the holder has the lock");
    let refused = Catalog::open(path, &Options::default()).err().expect("nobody can read");
    assert_eq!(refused.kind(), Kind::Busy, "{refused}");
    assert!(refused.message().contains(&format!("process {}", holder.pid)), "{refused}");
    holder.kill_after(0);
    let catalog = Catalog::open(path, &Options::default()).expect("its lock came back");
    commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Meta, b"k", b"v")).expect("a commit");
}
