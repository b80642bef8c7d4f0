//! Leases: what a process looks up, views and has reserved in a realm (protocols P2, P3, P4).
//!
//! **Who writes what.** A lease is one file, `leases/<random u64>`. Only its owner writes it: its
//! *age* and its *pins*. Every process that allocates reads it. Its reservations are in the
//! catalog, in rows that carry its id. One word is others' to write: `asked`, by which a writer
//! asks for snapshots that keep the catalog from reusing its pages (`realm::snapshot`). Its locks
//! are listed for messages; the kernel has the locks themselves (`realm::locks`).
//!
//! **Alive or dead.** The owner holds an open-file-description lock on the file from before it got
//! its name until the process is gone; the kernel drops it then, however that happened. A process
//! that finds the lock free takes it, takes back the reservations, and unlinks the file. A pid is
//! written for messages, and decides nothing.
//!
//! **Look-up (reader).** (1) age = PIN; (2) `SeqCst` fence; (3) begin the catalog's read
//! transaction;
//! (4) age = its id; (5) read the row; (6) for a view, store the pin (release); (7) end; (8) age =
//! IDLE. The allocator's side, and why one of the two always sees the other, stands above
//! `extent::reclaim`. Several threads of one process look up at once: the age in the file is the
//! least over a counted set (`Local`), kept under one mutex of the process, which no other process
//! can hold.
//!
//! **Every order of the steps** is tried in a model: `make model` runs this code, the allocator's
//! reading of leases, and its judgement of freed extents on words of which a load may see any store
//! that the memory model allows (`tests/model.rs`). Without a fence, without PIN, or with the pins
//! read before the age, it finds an extent in two hands.
//!
//! **A new lease is seen in time.** A lease is renamed into place, then `lease_epoch` in the
//! catalog's shared page is raised, and only then is the first look-up begun. An allocator that
//! read the old epoch has, in that look-up's view, committed already all that it may reuse.
//!
//! **An object that is open** has a slot, too: its id, from within the look-up that finds it.
//! Reclaim spares what it had if it goes meanwhile.
//!
//! **A file is cut** while it is viewed, and its first segment may be an extent that was viewed
//! before it was a file. So a pin of whole pages says how many, and keeps each part of them. A view
//! of a file has a pin for each run of pages that it shows. One that shows very many has a single
//! slot with the object's id instead (`shown`): then reclaim spares all that is cut from it.
//!
//! **A full pin list** keeps the age: the view holds its look-up's age instead of a pin, which
//! guards its extent (and, until it ends, everything freed since).
//!
//! **Fork.** Open-file-description locks are shared with children. So before a fork the parent
//! makes the child a lease of its own with a copy of every pin in the same slots; afterwards each
//! side closes the other's descriptor (`fork`). Leases of children that are dead are used again for
//! the next (`children`). If none can be made, the parent goes on with its own and never drops what
//! is pinned in it at that moment (`keep_for_child`); the child keeps the descriptor, and with it
//! the lock, so that what it has inherited stays when the parent is gone.
//!
//! **A full mount.** A lease needs blocks, and a full mount has none; then nothing could be opened
//! to delete from. So one allocated spare stands ready in the realm (`leases/spare`), and one more
//! in each process for its next fork (`leases/spare-<id>`). A fork that finds its own used up takes
//! the realm's, which is back as soon as the child's lease is swept up: a process that forks again
//! and again on a full mount uses up none.

mod children;
mod file;
mod held_snapshots;
mod list;
mod locks;
mod peers;
mod ranges;
mod shown;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

pub use children::Children;
pub use file::LeaseFile;
pub use locks::LockMode;
pub use locks::{LockFile, gate, held, holders_by_files, place};
pub use peers::{Dead, Peers};
pub use ranges::{LockedRange, RangeLocks, own_stand_in};
pub use shown::ViewHold;
pub(crate) use words::Pin;
pub use words::{CALLED_IN, ObjectUse, PINS_MAX, UsedObject};
use words::{Mutex, MutexGuard, Ordering, fence, pin_word};

use engram_base::clock;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::guest;
use engram_base::id::Oid;
use engram_base::random;
use engram_records::extent::Extent;

/// No look-up runs.
pub const IDLE: u64 = u64::MAX;
/// The realm's spare.
const SPARE: &str = "spare";
/// How often one asks for a spare while somebody else has its lock.
const SPARE_TRIES: u32 = 1000;
/// How often of these at once; then it is waited between, for its holder may have no processor.
const SPARE_TRIES_AT_ONCE: u32 = 100;
const SPARE_WAIT: Duration = Duration::from_millis(2);
/// A look-up is about to begin, on a snapshot not yet known.
pub(crate) const PIN: u64 = 0;

/// This copy of the engine in this process, as leases record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The pid, for messages.
    pub pid: u32,
    /// Its number, which tells it from a guest of the process.
    pub copy: u32,
    /// When it started; with the pid, names this process among all since boot.
    pub start_time: u64,
    /// Its PID namespace.
    pub pid_namespace: u64,
}

impl Owner {
    /// This copy.
    pub fn current() -> Self {
        use std::os::unix::fs::MetadataExt;
        let start_time = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
            // The name in parentheses may hold spaces; fields are counted from its end.
            stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
        });
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        Owner {
            pid: std::process::id(),
            copy: guest::number(),
            start_time: start_time.unwrap_or(0),
            pid_namespace,
        }
    }

    fn write(self, file: &LeaseFile) {
        let head = file.head();
        head.pid_namespace.store(self.pid_namespace, Ordering::Relaxed);
        head.start_time.store(self.start_time, Ordering::Relaxed);
        head.copy.store(self.copy, Ordering::Relaxed);
        // For those who look who is there: a clock that is far off keeps nobody from opening.
        let now = clock::since_1970(std::time::SystemTime::now());
        let shown = now.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        head.since.store(shown, Ordering::Relaxed);
        head.pid.store(self.pid, Ordering::Release);
    }

    /// The owner that a lease file names.
    pub(crate) fn of(file: &LeaseFile) -> Self {
        let head = file.head();
        Owner {
            pid: head.pid.load(Ordering::Acquire),
            copy: head.copy.load(Ordering::Relaxed),
            start_time: head.start_time.load(Ordering::Relaxed),
            pid_namespace: head.pid_namespace.load(Ordering::Relaxed),
        }
    }
}

/// A lease, as anybody sees it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseStatus {
    /// Its id.
    pub id: u64,
    /// The owner's pid, for messages.
    pub pid: u32,
    /// The user that the file belongs to.
    pub user: u32,
    /// Since when, in ns since 1970.
    pub since: i64,
    /// Whether its process lives.
    pub alive: bool,
}

impl LeaseStatus {
    fn of(id: u64, file: &LeaseFile, alive: bool) -> Self {
        let since = file.head().since.load(Ordering::Relaxed);
        LeaseStatus { id, pid: Owner::of(file).pid, user: file.user(), since, alive }
    }
}

/// What only this process knows of its lease.
#[derive(Clone, Default)]
struct Local {
    /// Look-ups that are about to begin.
    pinning: u32,
    /// The snapshots in use, each with how many look-ups and unpinned views hold it.
    ages: Vec<(u64, u32)>,
    /// The snapshots held beyond a look-up, and from which page of the catalog on to ask for each.
    snapshots: Vec<(u64, u64)>,
    /// For each pin, as its slot has it while nobody writes, the slot and how many share it.
    pins: HashMap<u64, (usize, u32)>,
    /// For each extent that views may write to, by the word of its pin, how many.
    writers: HashMap<u64, u32>,
    /// Slots that were used and are free again.
    free_slots: Vec<usize>,
    /// Slots that were ever used.
    slots_used: usize,
    /// Whether a child may have the lock as well, for what was pinned when it was forked.
    shared: bool,
}

/// How a view keeps its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// By a pin.
    Pinned,
    /// By an age, since the pin list was full.
    Aged(u64),
}

/// This process's lease in one realm.
pub struct Lease {
    id: u64,
    path: PathBuf,
    file: LeaseFile,
    local: Mutex<Local>,
}

impl Lease {
    /// Takes the realm's spare or makes a file, locks it, and gives it its name.
    /// On error nothing is left but, at worst, a spare without a name.
    pub fn create(dir: &Path, mode: u32) -> Result<Self> {
        let owner = Owner::current();
        loop {
            let id = random::id()?;
            let (file, from) = match prepared(dir, mode, id) {
                Ok(Some(prepared)) => prepared,
                Ok(None) => continue,
                Err(error) if error.kind() == Kind::PoolFull => {
                    return Self::of_the_dead(dir, owner)?.ok_or(error);
                }
                Err(error) => return Err(error),
            };
            step!("lease.locked");
            let path = dir.join(format!("{id:016x}"));
            if let Some(lease) = Self::name(file, &from, path, id, owner)? {
                step!("lease.named");
                ensure_spare(dir, mode);
                return Ok(lease);
            }
        }
    }

    /// On a full mount without a spare: takes over the lease of a process that is gone, under its
    /// name. The reservations of that process are this one's to take back then, which `realm::open`
    /// does.
    fn of_the_dead(dir: &Path, owner: Owner) -> Result<Option<Self>> {
        let entries = std::fs::read_dir(dir)
            .map_err(|e| Error::os(format!("listing the leases in {}", dir.display()), &e))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let Some(id) = entry.file_name().to_str().and_then(|n| u64::from_str_radix(n, 16).ok())
            else {
                continue;
            };
            let Ok(file) = LeaseFile::open(&path) else { continue };
            if file.try_lock()? && file.is_at(&path) {
                file.words().clear();
                owner.write(&file);
                return Ok(Some(Lease { id, path, file, local: Mutex::default() }));
            }
        }
        Ok(None)
    }

    /// Gives a locked file its name; `None` when somebody removed it meanwhile.
    fn name(
        file: LeaseFile,
        from: &Path,
        path: PathBuf,
        id: u64,
        owner: Owner,
    ) -> Result<Option<Self>> {
        let head = file.head();
        head.id.store(id, Ordering::Relaxed);
        file.words().clear();
        owner.write(&file);
        match std::fs::rename(from, &path) {
            Ok(()) if file.is_at(&path) => {
                Ok(Some(Lease { id, path, file, local: Mutex::default() }))
            }
            // The realm's spare was taken and made anew since we opened it: not ours to name.
            Ok(()) => {
                let _ = std::fs::remove_file(&path);
                Ok(None)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::os(format!("naming the lease {}", path.display()), &e)),
        }
    }

    /// Whether its file has a name. Others take a process whose lease has none for dead.
    pub fn is_named(&self) -> bool {
        self.file.links() > 0
    }

    /// Makes `child` a copy of this lease, pins in the same slots, under its own id (P4).
    /// Called before a fork, while no look-up runs in this process.
    pub fn fork(&self, prepared: Spare, dir: &Path) -> Result<Lease> {
        let id = random::id()?;
        let path = dir.join(format!("{id:016x}"));
        // The child's pid is not known yet; it writes its own (`adopt`).
        let owner = Owner { pid: 0, ..Owner::of(&self.file) };
        let Some(child) = Self::name(prepared.file, &prepared.path, path, id, owner)? else {
            fail!(
                Busy,
                "the spare lease {} was removed: is the pool being destroyed?",
                prepared.path.display()
            )
        };
        self.hand_on(&child);
        step!("fork.leased");
        Ok(child)
    }

    /// Gives a child what this lease holds: every pin in the same slot, every age.
    fn hand_on(&self, child: &Lease) {
        let mut local = self.lock().clone();
        // A child has no part in the parent's snapshots, and is the only one with its lease.
        local.snapshots.clear();
        local.shared = false;
        for (slot, pin) in self.file.words().pins()[..local.slots_used].iter().enumerate() {
            child.file.words().pins()[slot].store(pin.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        child.file.head().pins_used.store(local.slots_used as u64, Ordering::Relaxed);
        *child.lock() = local;
        child.publish_age(&child.lock());
        fence(Ordering::SeqCst);
    }

    /// In the child: writes who owns the lease now.
    pub fn adopt(&self) {
        Owner::current().write(&self.file);
    }

    /// In the parent, before a fork whose child gets no lease: what this lease keeps now, it keeps
    /// for ever, since the child may view it.
    pub fn keep_for_child(&self) {
        let mut local = self.lock();
        if local.pins.is_empty() && local.ages.is_empty() {
            return;
        }
        local.pins.values_mut().for_each(|(_, count)| *count += 1);
        local.writers.values_mut().for_each(|count| *count += 1);
        local.ages.iter_mut().for_each(|(_, count)| *count += 1);
        local.shared = true;
    }

    /// Whether it keeps anything for a child that has no lease of its own.
    pub fn is_shared(&self) -> bool {
        self.lock().shared
    }

    /// Whether its owner has ended it, and a child of the owner keeps it for its views. To others
    /// it is of no process that runs: its owner, opening the realm anew while the child lives,
    /// would else find a second copy of the engine in itself.
    pub fn is_left(owner: Owner) -> bool {
        owner.start_time == 0
    }

    /// Leaves it to the program that this process is about to become: the descriptor that keeps it,
    /// for that program to inherit. To others it is of no process that runs, as in [`Lease::end`].
    pub fn leave(&self) -> RawFd {
        self.file.head().start_time.store(0, Ordering::Release);
        self.descriptor()
    }

    /// The descriptor that keeps it.
    pub fn descriptor(&self) -> RawFd {
        self.file.descriptor()
    }

    /// The id that reservations carry.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Begins a look-up: `begin` begins the catalog's read transaction and tells its id.
    pub fn look<T>(&self, begin: impl FnOnce() -> Result<(T, u64)>) -> Result<(T, u64)> {
        self.change(|local| local.pinning += 1);
        fence(Ordering::SeqCst);
        let begun = begin();
        self.change(|local| {
            local.pinning -= 1;
            if let Ok((_, age)) = &begun {
                hold_age(local, *age);
            }
        });
        begun
    }

    /// Ends a look-up that began with this age.
    pub fn end_look(&self, age: u64) {
        self.change(|local| drop_age(local, age));
    }

    /// Keeps an extent from reuse, with each part of it if it is of whole pages. The caller is
    /// within a look-up of this age that shows it, or has it reserved.
    pub fn pin(&self, extent: Extent, age: u64) -> Hold {
        let word = pin_word(extent, false);
        self.take_slot(word, age, |local| pin_word(extent, local.writers.contains_key(&word)))
    }

    /// Keeps an object open, or viewed. The caller is within a look-up of this age that shows it.
    pub fn use_object(&self, oid: Oid, how: ObjectUse, age: u64) -> Hold {
        let word = UsedObject::of(oid, how).word();
        self.take_slot(word, age, |_| word)
    }

    /// Gives up one hold on an object.
    pub fn leave_object(&self, oid: Oid, how: ObjectUse, hold: Hold) {
        self.give_slot(UsedObject::of(oid, how).word(), hold);
    }

    /// Has a slot say a word; `shown` is what it says at first.
    fn take_slot(&self, word: u64, age: u64, shown: impl FnOnce(&Local) -> u64) -> Hold {
        let mut local = self.lock();
        if let Some((_, count)) = local.pins.get_mut(&word) {
            *count += 1;
            return Hold::Pinned;
        }
        let slot = match local.free_slots.pop() {
            Some(slot) => slot,
            None if local.slots_used < PINS_MAX => {
                local.slots_used += 1;
                local.slots_used - 1
            }
            None => {
                hold_age(&mut local, age);
                self.publish_age(&local);
                return Hold::Aged(age);
            }
        };
        local.pins.insert(word, (slot, 1));
        self.file.words().pins()[slot].store(shown(&local), Ordering::Release);
        // Readers of the list read the count after the age (acquire), so they see this slot.
        self.file.head().pins_used.store(local.slots_used as u64, Ordering::Release);
        Hold::Pinned
    }

    /// Gives up one hold on an extent.
    pub fn unpin(&self, extent: Extent, hold: Hold) {
        self.give_slot(pin_word(extent, false), hold);
    }

    fn give_slot(&self, word: u64, hold: Hold) {
        let mut local = self.lock();
        match hold {
            Hold::Aged(age) => {
                drop_age(&mut local, age);
                self.publish_age(&local);
            }
            Hold::Pinned => {
                let Some((slot, count)) = local.pins.get_mut(&word) else { return };
                *count -= 1;
                if *count == 0 {
                    let slot = *slot;
                    local.pins.remove(&word);
                    local.free_slots.push(slot);
                    self.file.words().pins()[slot].store(0, Ordering::Release);
                }
            }
        }
    }

    /// A view that holds an extent may write to it from now on; others see that.
    pub fn begin_writing(&self, extent: Extent) {
        let (word, mut local) = (pin_word(extent, false), self.lock());
        let count = local.writers.entry(word).or_default();
        *count += 1;
        if *count == 1
            && let Some((slot, _)) = local.pins.get(&word)
        {
            self.file.words().pins()[*slot].store(pin_word(extent, true), Ordering::Release);
        }
    }

    /// Takes back that a view writes here, as its pin goes next. Says whether it was the last
    /// writer here.
    pub fn end_writing(&self, extent: Extent) -> bool {
        let (word, mut local) = (pin_word(extent, false), self.lock());
        let Some(count) = local.writers.get_mut(&word) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        local.writers.remove(&word);
        if let Some((slot, _)) = local.pins.get(&word) {
            self.file.words().pins()[*slot].store(word, Ordering::Release);
        }
        true
    }

    /// Whether a view of this process may write to an extent.
    pub fn writes(&self, extent: Extent) -> bool {
        self.lock().writers.contains_key(&pin_word(extent, false))
    }

    /// Whether so many slots are free.
    fn has_room(&self, slots: usize) -> bool {
        self.lock().pins.len() + slots <= PINS_MAX
    }

    /// How many extents are pinned, and objects open.
    pub fn pinned(&self) -> usize {
        self.lock().pins.len()
    }

    /// What others see of it.
    pub fn seen(&self) -> LeaseStatus {
        LeaseStatus::of(self.id, &self.file, true)
    }

    /// The file, to be read as everybody else's.
    pub fn file(&self) -> &LeaseFile {
        &self.file
    }

    /// Ends the lease in good order: its reservations are taken back already.
    ///
    /// Where the mount was too full for a spare, the file becomes the realm's spare, so that the
    /// next process finds one. A lease that a child may need stays; whoever finds its lock free
    /// sweeps it up.
    pub fn end(self) {
        if self.is_shared() {
            self.file.head().start_time.store(0, Ordering::Release);
        } else {
            give_up(&self.path);
        }
    }

    fn change(&self, edit: impl FnOnce(&mut Local)) {
        let mut local = self.lock();
        edit(&mut local);
        self.publish_age(&local);
    }

    fn publish_age(&self, local: &Local) {
        let age = match local.pinning {
            0 => {
                let held = local.snapshots.iter().map(|(age, _)| *age);
                local.ages.iter().map(|(age, _)| *age).chain(held).min().unwrap_or(IDLE)
            }
            _ => PIN,
        };
        self.file.head().age.store(age, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hold_age(local: &mut Local, age: u64) {
    match local.ages.iter_mut().find(|(held, _)| *held == age) {
        Some((_, count)) => *count += 1,
        None => local.ages.push((age, 1)),
    }
}

fn drop_age(local: &mut Local, age: u64) {
    if let Some(place) = local.ages.iter().position(|(held, _)| *held == age) {
        local.ages[place].1 -= 1;
        if local.ages[place].1 == 0 {
            local.ages.swap_remove(place);
        }
    }
}

/// An allocated, locked lease file that has no owner's name yet.
pub struct Spare {
    file: LeaseFile,
    path: PathBuf,
}

impl Spare {
    /// Makes a spare for this process's next fork. One that is swept up before it is locked, by a
    /// process that takes it for a dead one's, is made again.
    pub fn create(dir: &Path, mode: u32) -> Result<Self> {
        for _ in 0..SPARE_TRIES {
            let path = dir.join(format!("spare-{:016x}", random::id()?));
            let file = LeaseFile::create(&path, mode)?;
            step!("spare.made");
            if file.try_lock()? && file.links() > 0 {
                return Ok(Spare { file, path });
            }
            let _ = std::fs::remove_file(&path);
        }
        fail!(Busy, "spare leases in {} are taken for those of the dead: try again", dir.display())
    }

    /// The realm's, for a fork on a full mount; `None` if it is gone or in other hands.
    /// It stays the realm's until it gets a name.
    pub fn of_realm(dir: &Path) -> Option<Self> {
        let path = dir.join(SPARE);
        let file = LeaseFile::open(&path).ok()?;
        let ours = file.try_lock().ok()? && file.is_at(&path);
        ours.then_some(Spare { file, path })
    }

    /// Removes the spare: its process ends in good order.
    pub fn end(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A locked file to become the lease: a new one, or the realm's spare where the mount is full.
/// `None`: a process that sweeps up after the dead got hold of it first; try again.
fn prepared(dir: &Path, mode: u32, id: u64) -> Result<Option<(LeaseFile, PathBuf)>> {
    let path = dir.join(format!("new-{id:016x}"));
    match LeaseFile::create(&path, mode) {
        Ok(file) => Ok(file.try_lock()?.then_some((file, path))),
        Err(error) if error.kind() == Kind::PoolFull => {
            let spare = dir.join(SPARE);
            for tries in 0..SPARE_TRIES {
                match LeaseFile::open(&spare) {
                    Ok(file) if file.try_lock()? && file.is_at(&spare) => {
                        return Ok(Some((file, spare)));
                    }
                    // Its last owner, or the parent of this process, is about to let go of it; or
                    // somebody looks whether it lives.
                    Ok(_) if tries < SPARE_TRIES_AT_ONCE => thread::yield_now(),
                    Ok(_) => thread::sleep(SPARE_WAIT),
                    Err(_) => break,
                }
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Takes a lease's name away. On a full mount its blocks are the only ones for the next: they
/// become the realm's spare, if it has none. (Linked, not renamed: no spare is replaced.)
fn give_up(path: &Path) {
    let _ = std::fs::hard_link(path, path.with_file_name(SPARE));
    step!("lease.linked-as-spare");
    let _ = std::fs::remove_file(path);
}

/// Sees to it that the realm has a spare, if there is room for one.
pub fn ensure_spare(dir: &Path, mode: u32) {
    let spare = dir.join(SPARE);
    match LeaseFile::open(&spare) {
        // What a loss of power has left of one helps nobody.
        Err(error) if error.kind() == Kind::Corrupt => LeaseFile::remove_unnamed(&spare),
        Err(error) if error.kind() == Kind::NotFound => {}
        _ => return,
    }
    let Ok(id) = random::id() else { return };
    let path = dir.join(format!("new-{id:016x}"));
    if LeaseFile::create(&path, mode).is_ok() {
        // Linked, not renamed: the spare that another process is just taking is not replaced.
        step!("spare.fresh");
        let _ = std::fs::hard_link(&path, &spare);
        step!("spare.linked");
        let _ = std::fs::remove_file(&path);
    }
}
