//! Waiting for a lock that nobody has.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::kill::Writer;
use super::{Headroom, Options, commit, directory};
use crate::catalog::{Catalog, Table};
use crate::media::map::MappedFile;

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

/// Makes the lock free without waking who waits for it, as a death at the right instant does.
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
    let words = (0..1024).map(|at| {
        // SAFETY: within the page, which is mapped as long as `page` lives; aligned, since the page
        // is; touched by atomic operations alone.
        unsafe { AtomicU32::from_ptr(page.as_ptr().add(4 * at).cast()) }
    });
    let words: Vec<&AtomicU32> = words.collect();
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
