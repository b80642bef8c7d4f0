//! The protocols of leases and of reuse (P2, P3), in every order in which their steps can come.
//!
//! loom runs each test again and again: each time its threads give way to one another at other
//! places, and each load sees another of the stores that the memory model lets it see. What runs is
//! the code of the engine: a lease's look-ups, pins, snapshots and its hand-over at a fork
//! (`Lease`), the allocator's reading of leases (`LeaseList`), and its judgement of an extent that
//! was freed (`Floor::fate`). Only the words, fences and mutexes are loom's (`words.rs`).
//!
//! **The bound.** In one run, threads are interrupted where they could have gone on at most
//! [`PREEMPTIONS`] times, all together; how often one gives way because it waits or ends is not
//! bounded. All runs within the bound are tried. Every defect in `scripts/model.py` is found within
//! a smaller one, of three.
//!
//! **What stands for the rest** gives no more order than the real thing:
//!
//! * The catalog is a number and a list. LMDB's commit stores its id (`mti_txnid`) while it has the
//!   writer lock, and a reader begins from the id that it loads, without a lock. Both are relaxed
//!   here: LMDB's C asks for no order. What a snapshot shows, its id alone decides. The catalog's
//!   own pages are kept by LMDB's table of readers, which is not modelled.
//! * LMDB's writer lock is a mutex: each holder sees what former ones did. Threads of one process
//!   and processes take the same.
//! * The folder `leases/` is a list under a mutex, as the kernel's lock of a folder is for a
//!   process that renames a file into it and one that lists it.
//! * The lease epoch is raised by acquire and release. The growth page's is `SeqCst`, which loom
//!   takes for no more than that.
//! * The kernel's lock that says whether a process lives is a word: what a process did, it did
//!   before the kernel dropped its lock.
//! * The bytes of an extent are a cell. loom says when one is read and written at once, or in no
//!   order: so what is read through a pin must come before what is written when the pin has gone.
//! * An extent is written to as soon as it is taken, before its commit: that is the earliest that
//!   an allocator could.
//!
//! loom's `SeqCst` fences are a little stronger than the language's, each happening before the
//! next, and as strong as those of processors. The order of steps of an opening, a fork and a view
//! (`realm::open`, `fork`, `realm::look`) is repeated here, and `scripts/model.py` turns it round.

use std::path::PathBuf;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::super::list::{LeaseList, PeerLease};
use super::super::words::{AtomicU64, Mutex, Ordering, PINS_MAX, Words};
use super::super::{Hold, Lease, LeaseFile, ViewHold};
use crate::extent::reclaim::{Fate, FreedOf};
use engram_base::id::Oid;
use engram_records::extent::{Extent, PAGE};

/// How often threads are interrupted in one run, at most.
const PREEMPTIONS: usize = 4;
/// The commit that all begin with: it shows every object.
const FIRST: u64 = 1;
/// How many objects there are, each in an extent of its own.
const OBJECTS: usize = 2;

/// Runs a test in every way that the bound allows.
fn in_every_order(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

/// The file that was cut wherever an object is deleted.
const FILE: Oid = 7;

/// An object's extent: whole pages, of which no two touch.
fn extent(object: usize) -> Extent {
    Extent { offset: PAGE * (2 * object as u64 + 1), len: PAGE }
}

/// The bytes of an extent.
#[derive(Default)]
struct Bytes(UnsafeCell<()>);

// SAFETY: there are no bytes; loom judges who would touch them at once.
unsafe impl Sync for Bytes {}

/// A lease, as the folder has it.
#[derive(Clone)]
struct Named {
    words: Words,
    locked: Arc<AtomicBool>,
}

impl PeerLease for Named {
    fn words(&self) -> &Words {
        &self.words
    }

    fn is_alive(&self) -> bool {
        self.locked.load(Ordering::Acquire) && !self.words.is_reaped()
    }
}

/// What processes share of a realm.
struct Realm {
    /// LMDB's writer lock, and the rows of freed extents: an object, and the commit that freed it.
    freed: Mutex<Vec<(usize, u64)>>,
    /// The last commit, as LMDB tells readers.
    last: AtomicU64,
    /// For each object the commit that deleted it. That is what snapshots show, and no word of the
    /// model: a snapshot never changes.
    deleted: std::sync::Mutex<[u64; OBJECTS]>,
    folder: Mutex<Vec<Named>>,
    epoch: AtomicU64,
    extents: [Bytes; OBJECTS],
}

impl Realm {
    fn new() -> Arc<Self> {
        Arc::new(Realm {
            freed: Mutex::default(),
            last: AtomicU64::new(FIRST),
            deleted: std::sync::Mutex::new([u64::MAX; OBJECTS]),
            folder: Mutex::default(),
            epoch: AtomicU64::new(0),
            extents: <[Bytes; OBJECTS]>::default(),
        })
    }

    /// Runs a transaction, which is given the rows of freed extents and its id.
    fn commit<T>(&self, write: impl FnOnce(&mut Vec<(usize, u64)>, u64) -> T) -> T {
        let mut freed = self.freed.lock().unwrap();
        let id = self.last.load(Ordering::Relaxed) + 1;
        let done = write(&mut freed, id);
        self.last.store(id, Ordering::Relaxed);
        done
    }

    /// Deletes an object.
    fn delete(&self, object: usize) {
        self.commit(|freed, id| {
            self.deleted.lock().unwrap()[object] = id;
            freed.push((object, id));
        });
    }

    /// Whether a snapshot shows an object.
    fn shows(&self, object: usize, snapshot: u64) -> bool {
        snapshot < self.deleted.lock().unwrap()[object]
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn listed(&self) -> Vec<Named> {
        self.folder.lock().unwrap().clone()
    }

    fn read(&self, object: usize) {
        self.extents[object].0.with(|_| ());
    }

    fn write(&self, object: usize) {
        self.extents[object].0.with_mut(|_| ());
    }
}

/// A process that reads.
struct Reader {
    realm: Arc<Realm>,
    lease: Lease,
    locked: Arc<AtomicBool>,
}

impl Reader {
    /// A process that is opening the realm: nobody knows its lease yet.
    fn unnamed(realm: &Arc<Realm>) -> Self {
        let file = LeaseFile::modelled(Words::modelled());
        Reader {
            realm: Arc::clone(realm),
            lease: Lease { id: 1, path: PathBuf::new(), file, local: Mutex::default() },
            locked: Arc::new(AtomicBool::new(true)),
        }
    }

    /// A process that has the realm open.
    fn new(realm: &Arc<Realm>) -> Arc<Self> {
        let reader = Self::unnamed(realm);
        reader.name();
        reader.announce();
        Arc::new(reader)
    }

    /// Gives the lease its name.
    fn name(&self) {
        let words = self.lease.file().words().clone();
        let named = Named { words, locked: Arc::clone(&self.locked) };
        self.realm.folder.lock().unwrap().push(named);
    }

    /// Raises the epoch.
    fn announce(&self) {
        self.realm.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Begins a look-up; gives its snapshot.
    fn look(&self) -> u64 {
        self.lease.look(|| Ok(((), self.realm.last.load(Ordering::Relaxed)))).unwrap().1
    }

    /// Within a look-up, keeps a view of an object if it is there.
    fn pin(&self, object: usize, snapshot: u64) -> Option<Hold> {
        self.realm.shows(object, snapshot).then(|| self.lease.pin(extent(object), snapshot))
    }

    /// Looks an object up, and keeps a view of it if it is there.
    fn view(&self, object: usize) -> Option<Hold> {
        let snapshot = self.look();
        let view = self.pin(object, snapshot);
        self.lease.end_look(snapshot);
        view
    }

    /// Reads through a view, and lets go of it.
    fn read_last(&self, object: usize, view: Hold) {
        self.realm.read(object);
        self.lease.unpin(extent(object), view);
    }

    /// Views an object for a moment.
    fn glance(&self, object: usize) {
        if let Some(view) = self.view(object) {
            self.read_last(object, view);
        }
    }
}

/// A process that allocates, with what it knows of the others.
struct Allocator {
    realm: Arc<Realm>,
    others: LeaseList<Named>,
}

impl Allocator {
    /// A process that has listed the leases.
    fn new(realm: &Arc<Realm>) -> Self {
        let mut others = LeaseList::default();
        others.refresh(realm.epoch(), |_| Ok(realm.listed())).unwrap();
        Allocator { realm: Arc::clone(realm), others }
    }

    /// Takes every freed extent that may be taken, and writes to it. It may have a lease, too.
    fn reuse_beside(&mut self, own: Option<&Lease>) {
        let realm = Arc::clone(&self.realm);
        realm.commit(|freed, _| {
            let own = own.into_iter().map(Lease::file);
            let floor = self.others.floor(|| realm.epoch(), |_| Ok(realm.listed()), &own).unwrap();
            freed.retain(|&(object, by)| {
                let fate = floor.fate(extent(object), FreedOf::Cut(FILE), by);
                let free = matches!(fate, Fate::Free(_));
                if free {
                    realm.write(object);
                }
                !free
            });
        });
    }

    fn reuse(&mut self) {
        self.reuse_beside(None);
    }

    /// Whether somebody else may be writing to an object.
    fn is_written(&mut self, object: usize) -> bool {
        let realm = Arc::clone(&self.realm);
        realm.commit(|_, _| {
            let (epoch, list) = (|| realm.epoch(), |_: &mut Vec<_>| Ok(realm.listed()));
            self.others.others_write(epoch, list, extent(object).offset).unwrap()
        })
    }
}

/// Once all is over, everything that was freed can be taken: nothing holds it for ever.
fn all_is_free(realm: &Arc<Realm>) {
    Allocator::new(realm).reuse();
    assert!(realm.freed.lock().unwrap().is_empty(), "an extent is held by nobody, and kept");
}

/// Views a file of these extents, in every order with a process that cuts the first two from it and
/// allocates: all is free in the end.
fn beside_cuts(extents: usize, is: impl Fn(&ViewHold) -> bool + Copy + Send + Sync + 'static) {
    in_every_order(move || {
        let realm = Realm::new();
        let reader = Reader::new(&realm);
        let mut allocator = Allocator::new(&realm);
        let reading = thread::spawn(move || {
            let snapshot = reader.look();
            let there: Vec<usize> =
                (0..OBJECTS).filter(|object| reader.realm.shows(*object, snapshot)).collect();
            let more = OBJECTS..extents;
            let extents = there.iter().copied().chain(more).map(extent).collect();
            let shown = reader.lease.keep_shown(FILE, extents, snapshot);
            reader.lease.end_look(snapshot);
            assert!(there.len() < OBJECTS || is(&shown));
            there.into_iter().for_each(|object| reader.realm.read(object));
            reader.lease.leave_shown(FILE, &shown);
        });
        realm.delete(0);
        realm.delete(1);
        allocator.reuse();
        reading.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn a_view_of_a_file_keeps_each_of_its_runs() {
    beside_cuts(OBJECTS, |shown| matches!(shown, ViewHold::Runs(_)));
}

#[test]
fn a_view_of_more_runs_than_it_may_pin_keeps_all_that_is_cut() {
    beside_cuts(PINS_MAX + 1, |shown| matches!(shown, ViewHold::Whole(_)));
}

/// What a process does, in every order with another that deletes object 0 and allocates: all is
/// free in the end.
fn beside_a_deletion(work: impl Fn(&Reader) + Copy + Send + Sync + 'static) {
    in_every_order(move || {
        let realm = Realm::new();
        let reader = Reader::new(&realm);
        let mut allocator = Allocator::new(&realm);
        let working = thread::spawn(move || work(&reader));
        realm.delete(0);
        allocator.reuse();
        working.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn a_view_keeps_its_extent_from_a_process_that_deletes_and_allocates() {
    beside_a_deletion(|reader| reader.glance(0));
}

#[test]
fn a_view_keeps_its_extent_from_threads_of_its_own_process() {
    in_every_order(|| {
        let realm = Realm::new();
        let process = Arc::new(Reader::unnamed(&realm));
        let mut allocator = Allocator::new(&realm);
        let reader = Arc::clone(&process);
        let reading = thread::spawn(move || reader.glance(0));
        realm.delete(0);
        allocator.reuse_beside(Some(&process.lease));
        reading.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn what_one_process_frees_another_takes_only_when_nobody_views_it() {
    in_every_order(|| {
        let realm = Realm::new();
        let reader = Reader::new(&realm);
        let mut allocator = Allocator::new(&realm);
        let reading = thread::spawn(move || reader.glance(0));
        let deleter = Arc::clone(&realm);
        let deleting = thread::spawn(move || deleter.delete(0));
        allocator.reuse();
        reading.join().unwrap();
        deleting.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn threads_that_look_up_at_once_have_one_age_between_them() {
    in_every_order(|| {
        let realm = Realm::new();
        let reader = Reader::new(&realm);
        let mut allocator = Allocator::new(&realm);
        let beside = Arc::clone(&reader);
        let readings =
            [thread::spawn(move || reader.glance(0)), thread::spawn(move || beside.glance(0))];
        realm.delete(0);
        allocator.reuse();
        for reading in readings {
            reading.join().unwrap();
        }
        all_is_free(&realm);
    });
}

#[test]
fn a_process_that_opens_the_realm_is_seen_before_it_looks() {
    in_every_order(|| {
        let realm = Realm::new();
        let mut allocator = Allocator::new(&realm);
        let opened = Reader::unnamed(&realm);
        let reading = thread::spawn(move || {
            opened.name();
            opened.announce();
            opened.glance(0);
        });
        // It may list the leases before the opening is through, and has to list them again then.
        allocator.reuse();
        realm.delete(0);
        allocator.reuse();
        reading.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn a_view_that_a_fork_hands_on_is_seen_with_the_parent_or_the_child() {
    in_every_order(|| {
        let realm = Realm::new();
        let parent = Reader::new(&realm);
        let view = parent.view(0).unwrap();
        realm.delete(0);
        let mut allocator = Allocator::new(&realm);
        let child = Reader::unnamed(&realm);
        let forking = thread::spawn(move || {
            child.name();
            parent.lease.hand_on(&child.lease);
            child.announce();
            parent.read_last(0, view);
            child.read_last(0, view);
        });
        allocator.reuse();
        forking.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn a_view_that_may_write_is_seen_through_a_fork() {
    in_every_order(|| {
        let realm = Realm::new();
        let parent = Reader::new(&realm);
        let view = parent.view(0).unwrap();
        parent.lease.begin_writing(extent(0));
        let mut allocator = Allocator::new(&realm);
        let child = Reader::unnamed(&realm);
        let forking = thread::spawn(move || {
            child.name();
            parent.lease.hand_on(&child.lease);
            child.announce();
            parent.lease.end_writing(extent(0));
            parent.read_last(0, view);
        });
        assert!(allocator.is_written(0), "a view that may write is missed");
        forking.join().unwrap();
    });
}

#[test]
fn a_lease_that_is_taken_over_from_the_dead_is_a_live_one() {
    in_every_order(|| {
        let realm = Realm::new();
        let dead = Reader::new(&realm);
        assert!(dead.view(1).is_some());
        dead.locked.store(false, Ordering::Release);
        dead.lease.file().words().head().dead.store(1, Ordering::Release);
        let mut allocator = Allocator::new(&realm);
        let opening = thread::spawn(move || {
            dead.locked.store(true, Ordering::Release);
            let file = LeaseFile::modelled(dead.lease.file().words().clone());
            file.words().clear();
            let local = Mutex::default();
            let lease = Lease { id: dead.lease.id(), path: PathBuf::new(), file, local };
            let (realm, locked) = (Arc::clone(&dead.realm), Arc::clone(&dead.locked));
            let opened = Reader { realm, lease, locked };
            opened.announce();
            opened.glance(0);
        });
        realm.delete(0);
        allocator.reuse();
        opening.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn a_view_beyond_the_pin_list_is_kept_by_its_age() {
    beside_a_deletion(|reader| {
        for place in 0..PINS_MAX {
            assert_eq!(reader.lease.pin(extent(OBJECTS + place), FIRST), Hold::Pinned);
        }
        if let Some(view) = reader.view(0) {
            assert!(matches!(view, Hold::Aged(_)));
            reader.read_last(0, view);
        }
    });
}

#[test]
fn a_look_up_may_read_all_that_its_snapshot_shows() {
    in_every_order(|| {
        let realm = Realm::new();
        let reader = Reader::new(&realm);
        let mut allocator = Allocator::new(&realm);
        let reading = thread::spawn(move || {
            let snapshot = reader.look();
            for object in 0..OBJECTS {
                if reader.realm.shows(object, snapshot) {
                    reader.realm.read(object);
                }
            }
            reader.lease.end_look(snapshot);
        });
        realm.delete(0);
        realm.delete(1);
        allocator.reuse();
        reading.join().unwrap();
        all_is_free(&realm);
    });
}

#[test]
fn a_snapshot_keeps_what_it_shows_between_look_ups() {
    beside_a_deletion(|reader| {
        let snapshot = reader.look();
        reader.lease.hold_snapshot(snapshot, 0);
        reader.lease.end_look(snapshot);
        reader.lease.look_again(snapshot);
        let view = reader.pin(0, snapshot);
        reader.lease.end_look(snapshot);
        reader.lease.end_snapshot(snapshot, 0);
        if let Some(view) = view {
            reader.read_last(0, view);
        }
    });
}

#[test]
fn what_a_dead_process_viewed_is_taken_and_no_sooner() {
    beside_a_deletion(|reader| {
        if reader.view(0).is_some() {
            reader.realm.read(0);
        }
        reader.locked.store(false, Ordering::Release);
    });
}
