//! Writers killed at any instant.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Headroom, Options, Random, commit, directory};
use crate::catalog::{Catalog, Table};
use engram_base::error::Result;

/// A child that writes until it is killed, and its acknowledgements.
pub(super) struct Writer {
    pub(super) pid: i32,
    pub(super) acknowledged: File,
}

impl Writer {
    /// Forks a child that opens the catalog in `dir` and commits one step after the other.
    fn start(dir: &Path, first: u64, seed: u64) -> Writer {
        Writer::fork(|to| write_for_ever(dir, first, seed, to))
    }

    /// Forks a child that does `work`, with a pipe to acknowledge what it has done.
    pub(super) fn fork(work: impl FnOnce(File) -> Result<()>) -> Writer {
        let mut ends = [0; 2];
        // SAFETY: a place for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: glibc's allocator survives a fork of a process with threads; the child uses it
        // and what it is given, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        // SAFETY: new descriptors, of which each is owned once.
        let (reading, writing) =
            unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
        if pid == 0 {
            drop(reading);
            let _ = work(writing);
            // SAFETY: always sound.
            unsafe { libc::_exit(1) };
        }
        Writer { pid, acknowledged: reading }
    }

    /// Waits for some acknowledgements, kills, and returns the last step acknowledged.
    pub(super) fn kill_after(mut self, steps: u64) -> Option<u64> {
        let mut last = None;
        let mut word = [0; 8];
        for _ in 0..steps {
            self.acknowledged.read_exact(&mut word).expect("the child writes");
            last = Some(u64::from_ne_bytes(word));
        }
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while self.acknowledged.read_exact(&mut word).is_ok() {
            last = Some(u64::from_ne_bytes(word));
        }
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is a valid place.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
        last
    }
}

fn write_for_ever(dir: &Path, first: u64, seed: u64, mut to: File) -> Result<()> {
    let catalog = Catalog::open(dir, &Options::default())?;
    let mut random = Random(seed);
    for step in first.. {
        write_step(&catalog, step, &mut random)?;
        if to.write_all(&step.to_ne_bytes()).is_err() {
            break;
        }
    }
    Ok(())
}

/// One commit: the step's row in two tables, and deletions and large values to stir.
fn write_step(catalog: &Catalog, step: u64, random: &mut Random) -> Result<u64> {
    let bytes = [10, 300, 3000, 30_000][random.below(4) as usize];
    let old = random.below(step + 1);
    commit(catalog, Headroom::Normal, |txn| {
        let value = vec![step as u8; bytes];
        txn.put(Table::Objects, &step.to_be_bytes(), &value)?;
        txn.put(Table::Names, &step.to_be_bytes(), &(bytes as u64).to_be_bytes())?;
        txn.put(Table::Meta, b"last", &step.to_be_bytes())?;
        if old.is_multiple_of(3) && old < step {
            txn.delete(Table::Objects, &old.to_be_bytes())?;
            txn.delete(Table::Names, &old.to_be_bytes())?;
        }
        Ok(())
    })
}

/// The last step committed, after seeing that the two tables agree, byte for byte.
fn verified(catalog: &Catalog) -> Option<u64> {
    let read = catalog.read().expect("a slot");
    let mut names = read.seek(Table::Names, b"").expect("a cursor");
    let mut objects = read.seek(Table::Objects, b"").expect("a cursor");
    while let Some((key, value)) = names.next().expect("a row") {
        let (other, bytes) = objects.next().expect("a row").expect("as many rows");
        assert_eq!(key, other);
        assert_eq!(value, (bytes.len() as u64).to_be_bytes());
        assert!(bytes.iter().all(|&byte| byte == key[7]));
    }
    assert_eq!(objects.next(), Ok(None));
    let last = read.get(Table::Meta, b"last").expect("a row")?;
    Some(u64::from_be_bytes(last.try_into().expect("8 bytes")))
}

/// Kills a writer again and again. With `held`, this process has the catalog open all the while.
fn kill_again_and_again(held: bool, rounds: u64, seed: u64) {
    println!("seed {seed}");
    let dir = directory();
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let mut catalog = None;
    let mut random = Random(seed);
    let mut next = 0;
    for round in 0..rounds {
        if held && catalog.is_none() {
            catalog = Some(Catalog::open(dir.path(), &Options::default()).expect("the catalog"));
        }
        let writer = Writer::start(dir.path(), next, seed + round);
        let acknowledged = writer.kill_after(1 + random.below(60)).expect("at least one");
        let opened;
        let catalog = if let Some(catalog) = &catalog {
            catalog
        } else {
            opened = Catalog::open(dir.path(), &Options::default()).expect("no repair is needed");
            &opened
        };
        let last = verified(catalog).expect("something was committed");
        // The step in flight may have been committed or not; nothing acknowledged is missing.
        assert!(last == acknowledged || last == acknowledged + 1, "{last} {acknowledged}");
        write_step(catalog, last + 1, &mut random).expect("the dead writer's lock is free");
        assert_eq!(verified(catalog), Some(last + 1));
        next = last + 2;
    }
}

#[test]
fn a_killed_writer_loses_nothing_acknowledged_and_opening_needs_no_repair() {
    kill_again_and_again(false, 60, 1);
}

#[test]
fn a_killed_writer_leaves_the_lock_to_a_process_that_has_the_catalog_open() {
    kill_again_and_again(true, 60, 2);
}

#[test]
fn two_writers_killed_in_turn_leave_a_whole_catalog() {
    let dir = directory();
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let mut random = Random(3);
    let mut next = 0;
    for round in 0..20 {
        let (one, other) = (
            Writer::start(dir.path(), next, round),
            Writer::start(dir.path(), next + (1 << 32), round + 100),
        );
        let first = one.kill_after(1 + random.below(30)).expect("at least one");
        let second = other.kill_after(1 + random.below(30)).expect("at least one");
        let catalog = Catalog::open(dir.path(), &Options::default()).expect("no repair");
        verified(&catalog).expect("something was committed");
        let read = catalog.read().expect("a slot");
        for step in [first, second] {
            let found = read.get(Table::Names, &step.to_be_bytes()).expect("a row").is_some();
            assert!(found || step % 3 == 0, "step {step} is missing");
        }
        next = first + 2;
    }
}

#[test]
fn readers_and_growth_do_not_wait_for_a_process_that_stopped_in_a_transaction() {
    let dir = directory();
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let catalog = Catalog::open(dir.path(), &Options::default()).expect("the catalog");
    write_step(&catalog, 0, &mut Random(4)).expect("room");
    let stopped = Writer::fork(|mut to| {
        let catalog = Catalog::open(dir.path(), &Options::default())?;
        let _read = catalog.read()?;
        let mut txn = catalog.write(Headroom::Normal)?;
        txn.put(Table::Names, b"never", b"committed")?;
        let _ = to.write_all(&7_u64.to_ne_bytes());
        loop {
            // SAFETY: always sound.
            unsafe { libc::pause() };
        }
    });
    let mut word = [0; 8];
    (&stopped.acknowledged).read_exact(&mut word).expect("the child writes");
    // The first use of a slot, and of a kept one.
    for _ in 0..2 {
        let read = catalog.read().expect("a slot");
        assert_eq!(read.get(Table::Names, b"never"), Ok(None));
    }
    let before = catalog.growth().allocated_pages();
    catalog.extend(before).expect("room");
    assert!(catalog.growth().allocated_pages() > before);
    assert_eq!(stopped.kill_after(0), None);
    write_step(&catalog, 1, &mut Random(5)).expect("the dead writer's lock is free");
    assert_eq!(catalog.read().expect("a slot").get(Table::Names, b"never"), Ok(None));
}

/// Where `lock.mdb` has the id of the commit that LMDB shows to readers: behind two words of four
/// bytes each.
const SHOWN_AT: u64 = 8;

#[test]
fn a_commit_whose_writer_died_before_it_showed_it_can_be_shown() {
    let dir = directory();
    Catalog::create(dir.path(), &Options::default()).expect("a new catalog");
    let catalog = Catalog::open(dir.path(), &Options::default()).expect("a catalog");
    let last = |catalog: &Catalog| {
        let read = catalog.read().expect("a slot");
        let row = read.get(Table::Meta, b"last").expect("a row").map(<[u8]>::to_vec);
        (read.id(), row)
    };
    let (before, _) = last(&catalog);
    catalog.show_commits_of_the_dead().expect("nothing to show");
    let dead = Writer::fork(|mut to| {
        let catalog = Catalog::open(dir.path(), &Options::default())?;
        commit(&catalog, Headroom::Normal, |txn| txn.put(Table::Meta, b"last", b"dead"))?;
        // As if it were still in that commit: it has the lock, and has not shown what it wrote.
        let _write = catalog.write(Headroom::Normal)?;
        let file = File::options().read(true).write(true).open(dir.path().join("lock.mdb"));
        let (file, mut shown) = (file.expect("a lock file"), [0; 8]);
        file.read_exact_at(&mut shown, SHOWN_AT).expect("the word");
        assert_eq!(u64::from_ne_bytes(shown), before + 1);
        file.write_all_at(&before.to_ne_bytes(), SHOWN_AT).expect("the word");
        to.write_all(&1_u64.to_ne_bytes()).expect("the parent listens");
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    });
    let mut listening = dead.acknowledged.try_clone().expect("a descriptor");
    listening.read_exact(&mut [0; 8]).expect("the child writes");
    // Nobody waits for a writer that lives.
    catalog.show_commits_of_the_dead().expect("it is busy");
    assert_eq!(last(&catalog), (before, None));

    dead.kill_after(0);
    assert_eq!(last(&catalog), (before, None), "LMDB shows it by itself: this can go");
    catalog.show_commits_of_the_dead().expect("its lock");
    assert_eq!(last(&catalog), (before + 1, Some(b"dead".to_vec())));
}
