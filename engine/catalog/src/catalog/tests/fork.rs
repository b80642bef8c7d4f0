//! Forking with a catalog open.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Headroom, Options, commit, kind, made};
use crate::catalog::{Catalog, Table};
use engram_base::error::Kind;

/// Runs `child` in a forked child, and asserts that it came through.
pub(super) fn forked(child: impl FnOnce()) {
    // SAFETY: glibc's allocator survives a fork of a process with threads; the child uses it and
    // what it is given, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let passed = catch_unwind(AssertUnwindSafe(child)).is_ok();
        // SAFETY: always sound.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; `status` is a valid place.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
}

fn put(catalog: &Catalog, key: &[u8], value: &[u8]) {
    commit(catalog, Headroom::Normal, |txn| txn.put(Table::Names, key, value)).expect("room");
}

/// Overwrites many rows, so that every page which no reader guards is used again.
fn churn(catalog: &Catalog) {
    for round in 0..200_u32 {
        commit(catalog, Headroom::Normal, |txn| {
            for row in 0..20_u32 {
                txn.put(Table::Objects, &row.to_be_bytes(), &round.to_be_bytes().repeat(100))?;
            }
            Ok(())
        })
        .expect("room");
    }
}

#[test]
fn a_child_abandons_and_opens_its_own_and_the_parents_snapshot_stays() {
    let (dir, catalog) = made(&Options::default());
    put(&catalog, b"a", b"before");
    commit(&catalog, Headroom::Normal, |txn| {
        for row in 0..20_u32 {
            txn.put(Table::Objects, &row.to_be_bytes(), &[9; 400])?;
        }
        Ok(())
    })
    .expect("room");
    // Two slots: one kept, one live.
    let (kept, live) = (catalog.read().expect("a slot"), catalog.read().expect("a slot"));
    drop(kept);
    let slots = catalog.env.readers_ever().expect("a count");
    forked(|| {
        // SAFETY: a bitwise copy, the original of which the child never drops: it exits.
        unsafe { std::ptr::read(&raw const catalog) }.abandon();
        let own = Catalog::open(dir.path(), &Options::default()).expect("its own");
        assert_eq!(own.read().expect("a slot").get(Table::Names, b"a"), Ok(Some(&b"before"[..])));
        put(&own, b"a", b"child");
        churn(&own);
        assert!(own.env.readers_ever().expect("a count") > slots);
    });
    assert_eq!(live.get(Table::Names, b"a"), Ok(Some(&b"before"[..])));
    for row in 0..20_u32 {
        assert_eq!(live.get(Table::Objects, &row.to_be_bytes()), Ok(Some(&[9; 400][..])));
    }
    let now = catalog.read().expect("the kept slot");
    assert_eq!(now.get(Table::Names, b"a"), Ok(Some(&b"child"[..])));
}

#[test]
fn a_child_is_refused_what_it_inherited_and_may_drop_it() {
    let (dir, catalog) = made(&Options::default());
    put(&catalog, b"a", b"1");
    let read = catalog.read().expect("a slot");
    let id = read.id();
    forked(|| {
        assert_eq!(kind(catalog.read()), Kind::Busy);
        assert_eq!(kind(catalog.write(Headroom::Normal)), Kind::Busy);
        assert_eq!(kind(catalog.extend(1)), Kind::Busy);
        assert_eq!(kind(catalog.sync()), Kind::Busy);
        assert_eq!(kind(read.get(Table::Names, b"a")), Kind::Busy);
        assert_eq!(kind(read.seek(Table::Names, b"a")), Kind::Busy);
        // The child forgets what it drops. SAFETY: bitwise copies, the originals of which the child
        // never drops: it exits.
        drop(unsafe { std::ptr::read(&raw const read) });
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(&raw const catalog) });
        let own = Catalog::open(dir.path(), &Options::default()).expect("its own");
        churn(&own);
        put(&own, b"a", b"2");
    });
    assert_eq!(read.id(), id);
    assert_eq!(read.get(Table::Names, b"a"), Ok(Some(&b"1"[..])));
    drop(read);
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"a"), Ok(Some(&b"2"[..])));
}

#[test]
fn a_fork_in_the_middle_of_a_transaction_leaves_it_to_the_parent() {
    let (dir, catalog) = made(&Options::default());
    commit(&catalog, Headroom::Normal, |txn| {
        txn.put(Table::Names, b"a", b"1")?;
        forked(|| {
            // SAFETY: a bitwise copy of what the child never drops otherwise: it exits.
            drop(unsafe { std::ptr::read(&raw const *txn) });
            // SAFETY: as above.
            let copy = unsafe { std::ptr::read(&raw const catalog) };
            copy.abandon();
            let own = Catalog::open(dir.path(), &Options::default()).expect("its own");
            assert_eq!(own.read().expect("a slot").get(Table::Names, b"a"), Ok(None));
        });
        txn.put(Table::Names, b"b", b"2")
    })
    .expect("the lock is still held, and given back");
    forked(|| {
        // SAFETY: as above.
        let copy = unsafe { std::ptr::read(&raw const catalog) };
        copy.abandon();
        let own = Catalog::open(dir.path(), &Options::default()).expect("its own");
        assert_eq!(own.read().expect("a slot").get(Table::Names, b"b"), Ok(Some(&b"2"[..])));
        put(&own, b"c", b"3");
    });
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"c"), Ok(Some(&b"3"[..])));
}

/// A child that has what it has inherited and does nothing with it, until it is killed.
struct Idle(i32);

impl Idle {
    fn fork() -> Idle {
        // SAFETY: the child calls nothing but `pause`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            loop {
                // SAFETY: always sound.
                unsafe { libc::pause() };
            }
        }
        Idle(pid)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: a child of this process, or of one that it has waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_parent_may_open_anew_what_a_child_keeps_open() {
    let (dir, catalog) = made(&Options::default());
    put(&catalog, b"a", b"1");
    let child = Idle::fork();
    drop(catalog);
    for round in 0..3_u8 {
        let catalog = Catalog::open(dir.path(), &Options::default()).expect("opened anew");
        put(&catalog, b"a", &[round]);
        assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"a"), Ok(Some(&[round][..])));
    }
    drop(child);
}

#[test]
#[cfg(lmdb_waits)]
fn a_reader_that_died_is_cleared_though_a_child_of_its_keeps_the_catalog_open() {
    let (dir, catalog) = made(&Options::default());
    put(&catalog, b"a", b"1");
    let mut reader = super::kill::Writer::fork(|mut line| {
        let own = Catalog::open(dir.path(), &Options::default())?;
        let read = own.read()?;
        let child = Idle::fork();
        std::io::Write::write_all(&mut line, &(child.0 as u64).to_ne_bytes()).expect("a reader");
        loop {
            std::hint::black_box(&read);
            // SAFETY: always sound.
            unsafe { libc::pause() };
        }
    });
    let pid = reader.pid as u32;
    let reads = || catalog.env.readers().expect("a list").iter().any(|(who, _)| *who == pid);
    let mut idle = [0; 8];
    std::io::Read::read_exact(&mut reader.acknowledged, &mut idle).expect("its child's pid");
    let _idle = Idle(u64::from_ne_bytes(idle) as i32);
    let mut status = 0;
    // SAFETY: our own child, not yet waited for; `status` is a valid place.
    unsafe {
        libc::kill(reader.pid, libc::SIGKILL);
        assert_eq!(libc::waitpid(reader.pid, &raw mut status, 0), reader.pid);
    }
    assert!(reads(), "its slot is there still");
    catalog.env.clear_dead_readers().expect("a table");
    assert!(!reads(), "a process that is gone reads nothing");
}
