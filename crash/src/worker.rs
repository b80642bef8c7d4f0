//! A worker: does operations until it is killed, and writes each down before and after.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use engram::faults::{ALL, on_step};
use engram::query::parse;
use engram::{
    Error, Gid, Kind, Member, Mode, Namespace, Oid, Payload, Pool, QueryOptions, Realm, Result,
    Sighting, View,
};
use engram_fs::{Fs, OpenFlags};

use crate::board::{Board, Slot, Trap, child_of, is_program};
use crate::common::{self, Held};
use crate::data::{Random, Words, filled, word_of};
use crate::locks::Locked;
use crate::machine::{die, fork, ignore_children, leave, me, on_library_step, rest, set_word};
use crate::operation::{Choice, Name, Operation, Outcome, Urge, batch, index_mode};
use crate::pool::{array, ask, change_mode, group, member, number, object, open, over, view};
use crate::snapshot::Snapshot;
use crate::{crowd, files, grids, roam, travel};

/// How many views a worker keeps.
const HELD_MAX: usize = 12;
/// How often it looks at one of them.
const LOOK_EVERY: u64 = 6;
/// For how many operations it keeps a lock.
const LOCKED_FOR: u64 = 3;
/// How many times it looks at a snapshot.
const SNAPSHOT_LOOKS: u32 = 3;
/// Attributes `x0`, `x1`, … of each object.
const EXTRA: u64 = 6;
/// The longest attribute that makes the catalog grow.
const PAD_MAX: u64 = 24 << 20;

static BOARD: OnceLock<&'static Board> = OnceLock::new();
static HERE: AtomicUsize = AtomicUsize::new(0);
static NUMBERS: LazyLock<HashMap<&str, usize>> =
    LazyLock::new(|| ALL.iter().copied().zip(0..).collect());

/// Where this process works, and whom it dies with.
#[derive(Clone)]
pub struct Place {
    /// What all processes share.
    pub board: &'static Board,
    /// Its slot.
    pub slot: usize,
    /// The pool.
    pub path: PathBuf,
    /// The controller.
    pub controller: i32,
}

impl Place {
    /// Its part of the board.
    pub fn own(&self) -> &'static Slot {
        &self.board.slots[self.slot]
    }

    /// Begins a life in this process: from here on traps spring, and what goes wrong is noted.
    pub fn settle(&self) {
        self.own().pid.store(me(), SeqCst);
        HERE.store(self.slot, SeqCst);
        let _ = BOARD.set(self.board);
        let (slot, board) = (self.slot, self.board);
        std::panic::set_hook(Box::new(move |panic| {
            let slot = if me() == board.slots[slot].pid.load(SeqCst) { slot } else { current() };
            eprintln!("worker {slot}: {panic}");
            board.slots[slot].failed.store(1, SeqCst);
            leave(101);
        }));
        on_step(move |step| pass(board, NUMBERS[step]));
        if is_program(self.slot) {
            on_library_step(|step| {
                let (board, step) = (BOARD.get().expect("set when it settled"), NUMBERS[step]);
                board.passed_by_programs[step].fetch_add(1, Relaxed);
                pass(board, step);
            });
        }
    }

    /// Forks, if the slot for this worker's child is free: the child's place, in the child.
    pub fn fork(&self) -> Option<Place> {
        let place = Place { slot: child_of(self.slot)?, ..self.clone() };
        place.own().ready.compare_exchange(1, 0, SeqCst, SeqCst).ok()?;
        ignore_children();
        let pid = fork();
        place.own().pid.store(if pid == 0 { me() } else { pid }, SeqCst);
        if pid != 0 {
            return None;
        }
        HERE.store(place.slot, SeqCst);
        Some(place)
    }

    /// Whether to end; stands still while the controller asks for that.
    pub fn is_over(&self) -> bool {
        let own = self.own();
        while self.board.pause.load(SeqCst) != 0 {
            own.parked.store(1, SeqCst);
            rest(Duration::from_micros(200));
            self.die_alone();
        }
        own.parked.store(0, SeqCst);
        own.quit.load(SeqCst) != 0 || own.is_full()
    }

    /// Dies if the controller is gone.
    pub fn die_alone(&self) {
        if !std::path::Path::new(&format!("/proc/{}", self.controller)).exists() {
            die();
        }
    }
}

/// The slot of this process. One that was forked a moment ago, within the engine's own handler,
/// still thinks it is its parent.
fn current() -> usize {
    let here = HERE.load(SeqCst);
    let board = BOARD.get().expect("set when it settled");
    let pid = me();
    match child_of(here) {
        Some(child) if board.slots[here].pid.load(SeqCst) != pid => {
            board.slots[child].pid.store(pid, SeqCst);
            child
        }
        _ => here,
    }
}

/// A step was reached.
fn pass(board: &'static Board, step: usize) {
    board.passed[step].fetch_add(1, Relaxed);
    let own = &board.slots[current()];
    if own.trap.load(SeqCst) != step as u32 + 1 {
        return;
    }
    let passes = own.passes.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    if passes.is_ok() {
        return;
    }
    own.sprung.store(step as u32 + 1, SeqCst);
    if own.trap_kind.load(SeqCst) == Trap::Die as u32 {
        die();
    }
    while own.trap.load(SeqCst) != 0 {
        rest(Duration::from_micros(100));
    }
}

/// A worker that writes.
pub struct Worker {
    place: Place,
    pool: Pool,
    realm: Realm,
    namespace: Namespace,
    fs: Fs,
    open: files::Open,
    held: Vec<Held>,
    snapshot: Option<(Snapshot, u32)>,
    locked: Option<Locked>,
    watched: Option<Watched>,
    choice: Choice,
}

impl Worker {
    /// Works in a process of its own until it is told to end.
    pub fn live(place: &Place) -> ! {
        place.settle();
        let (pool, realm) = open(&place.path, Mode::ReadWrite);
        let namespace = view(&pool);
        Self::new(place.clone(), pool, realm, namespace).run()
    }

    fn new(place: Place, pool: Pool, realm: Realm, namespace: Namespace) -> Self {
        let choice = choice_of(&place);
        let (held, snapshot, locked, watched) = (Vec::new(), None, None, None);
        let (fs, open) = (files::shown(&namespace), files::Open::default());
        Worker { place, pool, realm, namespace, fs, open, held, snapshot, locked, watched, choice }
    }

    fn run(mut self) -> ! {
        let own = self.place.own();
        let mut number = 0_u64;
        while !self.is_over(number) {
            number += 1;
            let operation = self.choice.next(Urge::from_word(own.urge.load(SeqCst)));
            own.begin(&operation);
            let outcome = Outcome::of(self.perform(&operation), &operation);
            own.end(outcome);
            if number.is_multiple_of(LOOK_EVERY) && !self.held.is_empty() {
                let place = self.choice.random.below(self.held.len() as u64) as usize;
                self.held[place].check();
                own.checks.fetch_add(1, Relaxed);
            }
            if number.is_multiple_of(64) {
                self.place.die_alone();
            }
        }
        self.held.iter().for_each(Held::check);
        drop(std::mem::take(&mut self.held));
        self.close();
        own.ended.store(1, SeqCst);
        leave(0);
    }

    /// Whether to end. A lock is held for some operations, and never while one stands still: the
    /// others are to get it.
    fn is_over(&mut self, number: u64) -> bool {
        let board = self.place.board;
        let long = |locked: &Locked| number > locked.since + LOCKED_FOR;
        if self.locked.as_ref().is_some_and(long) || board.pause.load(SeqCst) != 0 {
            if let Some(locked) = self.locked.take() {
                locked.let_go(board);
            }
        } else if let Some(locked) = &self.locked {
            locked.check(board);
            self.place.own().checks.fetch_add(1, Relaxed);
        }
        self.place.is_over()
    }

    /// Closes the pool: with it end the lock and the snapshot, if there are any.
    fn close(&mut self) {
        self.pool.close();
        self.open = files::Open::default();
        if let Some(locked) = self.locked.take() {
            locked.is_over();
        }
        self.snapshot = None;
    }

    fn path(&self, name: Name) -> String {
        name.path(self.place.slot)
    }

    fn data(&self, version: u64, words: u32) -> Vec<u8> {
        filled(self.place.slot as u64, version, words as usize)
    }

    fn perform(&mut self, operation: &Operation) -> Result<()> {
        use Operation as O;
        match operation {
            O::Batch { seed, version, many } => self.batch(&batch(*seed, *version, *many)),
            O::Common { seed, version } => {
                common::write(&self.realm, &mut Random(*seed), self.place.slot as u64, *version);
                Ok(())
            }
            O::Query { seed } => self.query(&mut Random(*seed)),
            O::Maintain => self.realm.maintain().map(drop),
            O::Drain => self.realm.drain_queue(100).map(drop),
            O::Hold { seed } => {
                if self.held.len() == HELD_MAX {
                    self.held.remove(0).check();
                }
                self.held.extend(Held::take(&self.realm, &mut Random(*seed)));
                Ok(())
            }
            O::Fork => {
                self.fork();
                Ok(())
            }
            O::Reopen { drop_views } => {
                self.reopen(*drop_views);
                Ok(())
            }
            O::Arrive { .. } | O::Leave { .. } | O::Move { .. } | O::MoveRun { .. } => {
                travel::perform(&self.namespace, self.place.slot, operation)
            }
            O::Roam { seed, version } => {
                roam::perform(&self.namespace, self.place.slot, *seed, *version)
            }
            O::Grid { seed, version } => {
                grids::perform(&self.namespace, self.place.slot, *seed, *version)
            }
            O::File { seed, version } => {
                files::perform(&self.fs, &mut self.open, self.place.slot, *seed, *version)
            }
            O::Crowd { seed, version } => {
                crowd::perform(&self.fs, self.place.slot, *seed, *version)
            }
            O::Snap => {
                self.snap();
                Ok(())
            }
            O::Lock { seed } => {
                self.lock(*seed);
                Ok(())
            }
            O::Mode { which } => change_mode(&self.place.path, *which),
            O::Watch => self.watch(),
            _ => self.write(operation),
        }
    }

    /// What writes to the worker's own objects.
    fn write(&self, operation: &Operation) -> Result<()> {
        use Operation as O;
        let (realm, root) = (&self.realm, self.realm.root());
        match operation {
            O::Put { name, version, words, index } => {
                let data = self.data(*version, *words);
                let new = array(*words as usize, self.attrs(*version));
                let placement = over(index_mode(*index));
                realm.put(root, &self.path(*name), &new, &data, placement).map(drop)
            }
            O::Allocate { name, version, words, index } => {
                let space = self.allocate(*name, *version, *words, *index)?;
                space.publish().map(drop)
            }
            O::Abandon { name, version, words } => {
                self.allocate(*name, *version, *words, 0).map(drop)
            }
            O::Zeroed { name, version, words } => {
                let new = array(*words as usize, self.attrs(*version));
                let placement = over(index_mode(0));
                realm.create_zeroed(root, &self.path(*name), &new, placement).map(drop)
            }
            O::Replace { name, version } => self.replace(self.own(*name)?, *version),
            O::InPlace { name, version } => self.in_place(self.own(*name)?, *version),
            O::Delete { name } => realm.delete(root, &self.path(*name)),
            O::DeleteGroup { group } => {
                realm.delete(root, &format!("w{}/g{group}", self.place.slot))
            }
            O::Rename { old, new } => realm.rename(root, &self.path(*old), root, &self.path(*new)),
            O::Annotate { name, version } => {
                let member = self.member(*name)?;
                realm.set_attrs(member, &[("a".to_owned(), number(*version))])
            }
            O::NewKey { name, version } => {
                let (member, key) =
                    (self.member(*name)?, format!("k{}-{version}", self.place.slot));
                realm.set_attrs(member, &[(key.clone(), number(*version))])?;
                realm.delete_attr(member, &key)
            }
            O::Pad { name } => self.pad(self.member(*name)?),
            O::Scratch { words } => realm.scratch(u64::from(*words) * 8, None).map(drop),
            O::Grow => {
                let most = realm.space()?.largest_free + (1 << 20);
                realm.scratch(most, None).map(drop)
            }
            _ => unreachable!("{operation:?} writes nothing of the worker's own"),
        }
    }

    fn attrs(&self, version: u64) -> Vec<(String, engram::Value)> {
        let slot = self.place.slot as u64;
        let mut attrs = [("v", version), ("w", slot), ("s", version % 7)]
            .map(|(key, value)| (key.to_owned(), number(value)))
            .to_vec();
        // More than one attribute group has room for.
        attrs.extend((0..EXTRA).map(|place| (format!("x{place}"), number(version % (2 + place)))));
        attrs
    }

    fn member(&self, name: Name) -> Result<Member> {
        member(&self.realm, &self.path(name)).ok_or_else(gone)
    }

    fn own(&self, name: Name) -> Result<Oid> {
        object(&self.realm, &self.path(name)).ok_or_else(gone)
    }

    fn allocate(
        &self,
        name: Name,
        version: u64,
        words: u32,
        index: u8,
    ) -> Result<engram::RealmAllocation> {
        let new = array(words as usize, self.attrs(version));
        let (root, path) = (self.realm.root(), self.path(name));
        let placement = over(index_mode(index));
        let nbytes = u64::from(words) * 8;
        let space = self.realm.allocate(root, &path, &new, nbytes, placement)?;
        fill(&space.view(), self.place.slot, version);
        Ok(space)
    }

    fn replace(&self, oid: Oid, version: u64) -> Result<()> {
        let (payload, generation) = self.realm.payload(oid)?;
        let words = crate::pool::with_words(&payload, |words: Words<'_>| words.len());
        let data = self.data(version, words as u32);
        let swapped = self.realm.replace_payload(oid, generation, &data)?;
        assert!(swapped, "nobody else writes to object {oid:#x}");
        Ok(())
    }

    /// Writes through memory, or as a file.
    fn in_place(&self, oid: Oid, version: u64) -> Result<()> {
        if version.is_multiple_of(2) {
            let flags = OpenFlags { write: true, ..OpenFlags::default() };
            let file = self.fs.open(oid, flags)?;
            let data = self.data(version, (file.stat()?.size / 8) as u32);
            return Ok(file.write(0, &data).map(drop)?);
        }
        let Payload::Extent(view) = self.realm.view(oid, true)? else {
            panic!("object {oid:#x} is inline in a view for writing");
        };
        fill(&view, self.place.slot, version);
        self.realm.flush(oid)
    }

    /// Makes the catalog grow, and takes what did it away again.
    fn pad(&self, member: Member) -> Result<()> {
        let most = self.realm.space()?.catalog.min(PAD_MAX);
        let text = "p".repeat(most as usize);
        let padded = self.realm.set_attrs(member, &[("pad".into(), engram::Value::text(&text))]);
        padded?;
        self.realm.delete_attr(member, "pad")
    }

    fn batch(&self, operations: &[Operation]) -> Result<()> {
        self.realm.begin_batch()?;
        for operation in operations {
            match self.write(operation).map_err(|error| error.kind()) {
                Ok(()) | Err(Kind::NotFound | Kind::Exists) => {}
                Err(_) => {
                    self.realm.abort_batch()?;
                    return Err(Error::new(Kind::PoolFull, "no room for the whole batch"));
                }
            }
        }
        self.realm.commit_batch()
    }

    /// Asks for what the worker has, by the index and without, and hints what to do about it.
    fn query(&self, random: &mut Random) -> Result<()> {
        let below = group(&self.realm, &format!("w{}", self.place.slot)).ok_or_else(gone)?;
        let text = ["v >= 0", "a >= 0", "s = 3 and v > 9", "s < 4 or a > 5"];
        let text = text[random.below(4) as usize];
        let indexed = ask(&self.realm, below, text, false)?;
        assert_eq!(
            indexed,
            ask(&self.realm, below, text, true)?,
            "{text:?} below w{}",
            self.place.slot
        );
        let hint = QueryOptions {
            merge: true,
            split_threshold: random.percent(3).then_some(2),
            root: Some(below),
            ..QueryOptions::default()
        };
        let (one, other) = (random.below(EXTRA), random.below(EXTRA));
        self.realm.query(&parse(&format!("x{one} > 0 and x{other} >= 0"))?, &hint).map(drop)?;
        self.place.own().checks.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Keeps track of what a query finds by what commits say that they have changed, and sleeps
    /// until somebody commits something, for a moment.
    fn watch(&mut self) -> Result<()> {
        let below = group(&self.realm, &format!("w{}", self.place.slot)).ok_or_else(gone)?;
        let known = self.watched.take().filter(|watched| watched.below == below);
        let mut watched = known.unwrap_or_else(|| Watched::new(below));
        let query = parse("v >= 0")?;
        let options = QueryOptions { root: Some(below), ..QueryOptions::default() };
        let (at, sighting) = self.realm.sight(&query, &options, watched.at)?;
        watched.at = Some(at);
        match sighting {
            Sighting::Whole(all) => watched.known = all.into_iter().collect(),
            Sighting::Changed(judged) => {
                for (oid, is_found) in judged {
                    if is_found {
                        watched.known.insert(oid);
                    } else {
                        watched.known.remove(&oid);
                    }
                }
            }
        }
        let found = ask(&self.realm, below, "v >= 0", false)?.into_iter().collect();
        assert_eq!(watched.known, found, "what was told of is not what is there");
        self.watched = Some(watched);
        let watcher = self.namespace.watch(&query, &QueryOptions::default(), false)?;
        watcher.wait(Some(Duration::from_millis(1)), 0, &mut |_| Ok(())).map(drop)
    }

    /// Takes a snapshot, or looks at the one that is held.
    fn snap(&mut self) {
        self.snapshot = match self.snapshot.take() {
            None => Some((Snapshot::take(&self.namespace, self.place.slot, true), SNAPSHOT_LOOKS)),
            Some((snapshot, looks)) => {
                let looks = if snapshot.check() { looks - 1 } else { 0 };
                (looks > 0).then_some((snapshot, looks))
            }
        };
        self.place.own().checks.fetch_add(1, Relaxed);
    }

    /// Locks something, if nothing is locked.
    fn lock(&mut self, seed: u64) {
        if self.locked.is_none() {
            let since = self.place.own().acked.load(SeqCst);
            self.locked = Locked::take(&self.namespace, self.place.board, seed, since);
        }
    }

    /// Forks a worker that goes on with what this one has, in the slot for its child.
    fn fork(&mut self) {
        if let Some(place) = self.place.fork() {
            let held = std::mem::take(&mut self.held);
            held.iter().for_each(Held::check);
            if let Some(locked) = self.locked.take() {
                locked.is_over();
            }
            if let Some((snapshot, _)) = self.snapshot.take() {
                snapshot.forget();
            }
            // What its parent has open is open in it, too, until it lets go.
            self.open = files::Open::default();
            let (pool, realm) = (self.pool.clone(), self.realm.clone());
            let mut child = Worker::new(place, pool, realm, self.namespace.clone());
            child.held = held;
            child.run();
        }
    }

    fn reopen(&mut self, drop_views: bool) {
        if drop_views {
            self.held.iter().for_each(Held::check);
            self.held.clear();
        }
        self.close();
        let leases = self.place.path.join("ns/open/shared/leases");
        if self.choice.random.percent(25) {
            // Whoever opens the pool next makes the realm's spare anew.
            let _ = std::fs::remove_file(leases.join("spare"));
        }
        (self.pool, self.realm) = open(&self.place.path, Mode::ReadWrite);
        self.namespace = view(&self.pool);
        self.fs = files::shown(&self.namespace);
    }
}

/// What a worker knows of a group by what it was told of commits.
struct Watched {
    below: Gid,
    at: Option<u64>,
    known: BTreeSet<Oid>,
}

impl Watched {
    fn new(below: Gid) -> Self {
        Watched { below, at: None, known: BTreeSet::new() }
    }
}

fn choice_of(place: &Place) -> Choice {
    let own = place.own();
    let life = u64::from(own.life.load(SeqCst));
    Choice { random: Random(own.seed.load(SeqCst)), version: life << 24 }
}

fn gone() -> Error {
    Error::new(Kind::NotFound, "there is no such name")
}

/// Writes every word of a version, where it lies.
fn fill(view: &View, slot: usize, version: u64) {
    for place in 0..view.len() / 8 {
        set_word(view, place, word_of(slot as u64, version, place));
    }
}
