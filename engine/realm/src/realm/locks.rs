//! Locks of objects and groups: advisory, between processes and threads.
//!
//! A lock keeps out those who ask for one, and nobody else: look-ups, replaces and views go on
//! without. It belongs to the thread that took it. The same thread may ask for a lock again, and
//! joins it. But a thread that has it for reading cannot have it for writing as well: two threads
//! that tried would wait for each other for ever, so that is refused.
//!
//! **Waiting.** The kernel's own waiting can be ended by no deadline and no Ctrl-C that Python
//! would see, so a waiting thread asks again and again, in steps that grow to some milliseconds;
//! the gate (`lease::locks`) sees to it that a writer's turn comes.
//!
//! **Moves.** An object that moves to another realm is locked there by its next holder, on another
//! file. So no locked member moves, and nobody has a lock of a member that moves. The mover marks
//! the members that go (`leaving`), and asks the kernel then whether anybody has one of them
//! locked: if so, the marks go, and that is `BusyError` (`Core::refuse_locked`). The lock taker
//! takes the lock, and looks for marks then: if there is one, it lets go, and tries again where the
//! member is by then. One of the two sees the other, whichever came first, since the kernel puts
//! the taking and the asking in an order: an asking that came before the taking came after the
//! marks. The marks stand until the member is gone from here, and, while it is not to be in two
//! realms, those of one of them keep everybody out; a lock taker that finds it gone, or its home
//! elsewhere, tries there. A published realm has no locks: nobody writes there, and a lock of one
//! of its members for reading holds nothing. Gates keep nothing from moving: a thread that waits
//! there looks, once it has the lock.
//!
//! **Ends.** With its last holder here, and with the process, however that ends: the kernel drops
//! it. A holder is one taking of it, through one session: it ends with its block, or with its
//! session. A lock that a thread has taken through two openings of a pool stays until both are done
//! with it. A forked child has no part in it. That an object is replaced or deleted ends no lock of
//! it: the lock is of the OID.
//!
//! The leases say who has a lock, for messages: `BusyError` names pids. The list has room for so
//! many, and has nobody who only waits; so where it tells nothing, the kernel is asked what the
//! processes have locked by their descriptors, which it tells of this user's. Neither decides
//! anything.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::realm::core::Core;
use crate::realm::{Mode, Realm};
use crate::session::Session;
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_base::id::Member;
use engram_base::mutex::lock;
use engram_catalog::{Table, forks};
use engram_ops::group;
use engram_ops::marks;
use engram_space::lease;
use engram_space::lease::{LockFile, LockMode};

/// The file of a realm's locks.
const LOCKS: &str = "locks";

/// The steps in which one waits.
const STEP_MIN: Duration = Duration::from_micros(50);
const STEP_MAX: Duration = Duration::from_millis(10);

/// How long a mover waits for those who took a lock of a member only to see that it moves.
const PATIENCE: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4)];

/// Makes the file on whose bytes objects are locked. It stays empty.
pub fn prepare_locks(realm: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let path = realm.join(LOCKS);
    let refused = |e| Error::os(format!("making {}", path.display()), &e);
    let mut options = File::options();
    options.write(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&path).map_err(refused)?;
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(refused)?;
    engram_files::folder::hand_over(&file, &path)
}

/// A lock that this process has, or waits for.
struct LocalLock {
    id: u64,
    mode: LockMode,
    thread: ThreadId,
    /// Whether it is taken.
    taken: AtomicBool,
    /// Its takings: the number of each, and the session that it came through. Looked at while
    /// `Locks::held` is locked.
    takings: Mutex<Vec<(u64, usize)>>,
    /// `None` in a published realm: nobody ever writes there, so all may have it for reading.
    file: Option<LockFile>,
}

/// The locks that this process has in a realm, or waits for.
#[derive(Default)]
pub(crate) struct Locks {
    held: Mutex<Vec<Arc<LocalLock>>>,
}

impl Locks {
    /// In a forked child: closes the descriptors, which takes nothing from the parent.
    pub(crate) fn forget(&self) {
        for held in std::mem::take(&mut *lock(&self.held)) {
            if let Some(file) = &held.file {
                file.close_inherited();
            }
        }
    }
}

/// A lock, as its holder has it. Dropping it lets go.
pub struct Lock {
    core: Arc<Core>,
    held: Arc<LocalLock>,
    /// Which taking of it this is.
    taking: u64,
    forks: u64,
}

impl Lock {
    /// What it allows.
    pub fn mode(&self) -> LockMode {
        self.held.mode
    }

    /// Whether it is held still: not once its pool is closed, nor in a forked child.
    pub fn is_held(&self) -> bool {
        let _state = self.core.gate.read();
        let all = lock(&self.core.holdings.locks.held);
        all.iter().any(|held| Arc::ptr_eq(held, &self.held))
            && lock(&self.held.takings).iter().any(|(taking, _)| *taking == self.taking)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.forks == forks() {
            let it = |held: &Arc<LocalLock>| Arc::ptr_eq(held, &self.held);
            end_takings(&self.core, it, |(taking, _)| taking == self.taking);
        }
    }
}

/// See [`Realm::lock_here`].
pub(super) fn lock_here(
    realm: &Realm,
    member: Member,
    mode: LockMode,
    wait: &mut Wait,
    pause: &mut dyn FnMut(Duration) -> Result<()>,
) -> Result<Option<Lock>> {
    let core = realm.readable()?;
    if mode == LockMode::Write && (realm.mode() == Mode::Read || core.setup.immutable) {
        fail!(
            ReadOnly,
            "what cannot be written here (mode \"r\", a snapshot, published) is not locked for \
             writing: lock it with \"r\""
        );
    }
    check_there(realm, member)?;
    if let Some(joined) = join_lock(core, &realm.session, member.id(), mode)? {
        // The session may just have closed, and let go of all that it had until then.
        realm.readable()?;
        return Ok(Some(joined));
    }
    if let Some(moving) = moving(realm, member)? {
        return wait.step(realm, pause, |_| Err(moving)).map(|()| None);
    }
    let taking = begin_lock(core, &realm.session, member.id(), mode)?;
    if let Some(file) = &taking.held.file {
        while !file.try_gate(mode)? {
            wait.step(realm, pause, |waited| refused(realm, member, mode, true, waited))?;
        }
        while !file.try_lock(mode)? {
            wait.step(realm, pause, |waited| refused(realm, member, mode, false, waited))?;
        }
        file.leave_gate()?;
    }
    enlist(core, &taking.held)?;
    if realm.mode() != Mode::Read {
        core.enter()?.catalog().show_commits_of_the_dead()?;
    }
    // In this order: what is not marked now does not go before the lock does.
    let moving = moving(realm, member)?;
    // The session may have closed, and the object may be gone, while one waited.
    check_there(realm, member)?;
    match moving {
        None => Ok(Some(taking)),
        Some(moving) => {
            drop(taking);
            wait.step(realm, pause, |_| Err(moving)).map(|()| None)
        }
    }
}

/// What to say of a member that is on its way, as the newest commit has it. In a snapshot
/// nothing moves.
fn moving(realm: &Realm, member: Member) -> Result<Option<Error>> {
    let core = realm.readable()?;
    if realm.at().is_some() || core.setup.immutable {
        return Ok(None);
    }
    let inside = core.enter()?;
    let txn = inside.read()?;
    match txn.entries(Table::Transfers)? {
        0 => Ok(None),
        _ => marks::on_its_way(&mut txn.rows(), member.id()),
    }
}

fn check_there(realm: &Realm, member: Member) -> Result<()> {
    match member {
        Member::Group(gid) => realm.group(gid).map(drop),
        Member::Object(oid) => realm.object(oid).map(drop),
    }
}

fn refused(
    realm: &Realm,
    member: Member,
    mode: LockMode,
    at_gate: bool,
    waited: Duration,
) -> Result<()> {
    let core = realm.readable()?;
    let (holders, has_it) = lock_holders(core, member.id(), mode, at_gate)?;
    let path = realm.path_of(member).unwrap_or_default();
    let (what, by) = (kind_of(member), named(&holders, "another thread of this process"));
    let how = if has_it { "locked" } else { "waited for, to be locked for writing," };
    fail!(
        Busy,
        "{what} {path:?} is {how} by {by}: waited {:.3} s; try again later, or wait longer \
         (timeout=)",
        waited.as_secs_f64()
    )
}

/// Waiting for a lock.
pub struct Wait {
    began: Instant,
    within: Option<Duration>,
    step: Duration,
}

impl Wait {
    /// A wait that ends after so long, in all its steps together; `None`: never by itself.
    pub fn new(within: Option<Duration>) -> Self {
        Wait { began: Instant::now(), within, step: STEP_MIN }
    }

    fn step(
        &mut self,
        realm: &Realm,
        pause: &mut dyn FnMut(Duration) -> Result<()>,
        refuse: impl FnOnce(Duration) -> Result<()>,
    ) -> Result<()> {
        let waited = self.began.elapsed();
        let left = self.within.map_or(Duration::MAX, |within| within.saturating_sub(waited));
        if left.is_zero() {
            return refuse(waited);
        }
        pause(self.step.min(left))?;
        self.step = (self.step * 2).min(STEP_MAX);
        // A pool that was closed meanwhile is waited for no more.
        realm.readable().map(|_| ())
    }
}

fn kind_of(member: Member) -> &'static str {
    match member {
        Member::Group(_) => "group",
        Member::Object(_) => "object",
    }
}

/// Names the holders of a lock, in words.
fn named(pids: &[u32], ourselves: &str) -> String {
    match pids {
        [] => "another process".to_owned(),
        [pid] if *pid == std::process::id() => ourselves.to_owned(),
        [pid] => format!("process {pid}"),
        pids => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("processes {}", pids.join(", "))
        }
    }
}

fn address(session: &Session) -> usize {
    std::ptr::from_ref(session).addr()
}

/// A number that no other taking of this process has.
fn next_taking() -> u64 {
    static TAKINGS: AtomicU64 = AtomicU64::new(0);
    TAKINGS.fetch_add(1, Ordering::Relaxed)
}

/// What this thread has locked already, once more; `None` if it has not.
fn join_lock(core: &Arc<Core>, session: &Session, id: u64, mode: LockMode) -> Result<Option<Lock>> {
    let _inside = core.enter()?;
    let held = lock(&core.holdings.locks.held);
    let mine = |held: &&Arc<LocalLock>| held.id == id && held.thread == thread::current().id();
    let Some(held) = held.iter().find(mine) else { return Ok(None) };
    if held.mode < mode {
        fail!(
            Busy,
            "this thread has locked {id:#x} for reading: let go of that before locking it for \
             writing (two who waited for each other's reading to end would wait for ever)"
        );
    }
    if !held.taken.load(Ordering::Acquire) {
        fail!(Busy, "this thread waits for {id:#x} already: it cannot have it within that");
    }
    let taking = next_taking();
    lock(&held.takings).push((taking, address(session)));
    Ok(Some(Lock { core: Arc::clone(core), held: Arc::clone(held), taking, forks: forks() }))
}

/// A lock to be taken. It is in the list from the start, so that a child that is forked while
/// one waits does not keep the gate.
fn begin_lock(core: &Arc<Core>, session: &Session, id: u64, mode: LockMode) -> Result<Lock> {
    let _inside = core.enter()?;
    let file = if core.setup.immutable {
        None
    } else {
        Some(LockFile::open(&core.setup.dir.join(LOCKS), id)?)
    };
    let taking = next_taking();
    let held = Arc::new(LocalLock {
        id,
        mode,
        thread: thread::current().id(),
        taken: AtomicBool::new(false),
        takings: Mutex::new(vec![(taking, address(session))]),
        file,
    });
    lock(&core.holdings.locks.held).push(Arc::clone(&held));
    Ok(Lock { core: Arc::clone(core), held, taking, forks: forks() })
}

fn enlist(core: &Core, held: &LocalLock) -> Result<()> {
    held.taken.store(true, Ordering::Release);
    if let Some(lease) = &core.enter()?.state().lease {
        lease.list_lock(held.id, held.mode.number());
    }
    Ok(())
}

/// Ends those takings of these locks, and lets go of what nobody here has any more.
fn end_takings(
    core: &Core,
    among: impl Fn(&Arc<LocalLock>) -> bool,
    ends: impl Fn((u64, usize)) -> bool,
) {
    // Inside, so that no child inherits the list locked.
    let state = core.gate.read();
    let mut all = lock(&core.holdings.locks.held);
    all.retain(|held| {
        if !among(held) {
            return true;
        }
        let mut takings = lock(&held.takings);
        takings.retain(|taking| !ends(*taking));
        if !takings.is_empty() {
            return true;
        }
        if held.taken.load(Ordering::Acquire)
            && let Some(lease) = &state.lease
        {
            lease.unlist_lock(held.id, held.mode.number());
        }
        if let Some(file) = &held.file {
            file.unlock();
        }
        false
    });
}

/// Lets go of what a session has taken, but for what another has taken as well.
pub(crate) fn unlock_all_of(core: &Core, session: &Session) {
    end_takings(core, |_| true, |(_, of)| of == address(session));
}

/// `BusyError`, if anybody has one of these members locked, which are marked as going.
pub fn refuse_locked(core: &Core, going: &[Member]) -> Result<()> {
    let mut places: Vec<_> = going.iter().map(|going| (lease::place(going.id()), *going)).collect();
    places.sort_unstable_by_key(|(at, _)| *at);
    let mut patience = PATIENCE.into_iter();
    loop {
        let Some(member) = first_locked(core, &places)? else { return Ok(()) };
        if let Some(time) = patience.next() {
            thread::sleep(time);
            continue;
        }
        let (holders, _) = lock_holders(core, member.id(), LockMode::Write, false)?;
        let path = {
            let inside = core.enter()?;
            group::path_of(&mut inside.read()?.rows(), member).unwrap_or_default()
        };
        let (what, by) = (kind_of(member), named(&holders, "this process"));
        fail!(
            Busy,
            "{what} {path:?} is locked by {by}, and what is locked does not move: move it when \
             that is let go of"
        );
    }
}

/// One that is locked, of members in the order of their places in the file.
fn first_locked(core: &Core, places: &[(i64, Member)]) -> Result<Option<Member>> {
    // Inside, so that no child inherits the descriptor.
    let _inside = core.enter()?;
    let held = lease::held(&core.setup.dir.join(LOCKS))?;
    Ok(held.iter().find_map(|range| {
        let next = places.partition_point(|(at, _)| at < range.start());
        places.get(next).filter(|(at, _)| range.contains(at)).map(|(_, member)| *member)
    }))
}

/// The pids of those who have a lock which stands in the way of this one. If none is known, a
/// process at the gate gets the pids of those who have passed it and wait for the lock, and then
/// `false`.
fn lock_holders(core: &Core, id: u64, mode: LockMode, at_gate: bool) -> Result<(Vec<u32>, bool)> {
    let inside = core.enter()?;
    // A writer is in everybody's way, readers in a writer's.
    let least = match mode {
        LockMode::Read => LockMode::Write,
        LockMode::Write => LockMode::Read,
    };
    let mut peers = lock(&core.space.peers);
    let epoch = inside.catalog().growth().lease_epoch();
    peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
    let mut pids = peers.lockers(id, least.number());
    let stands = |held: &Arc<LocalLock>| {
        held.taken.load(Ordering::Acquire) && held.id == id && held.mode >= least
    };
    if lock(&core.holdings.locks.held).iter().any(stands) {
        pids.push(std::process::id());
    }
    if !pids.is_empty() || core.setup.immutable {
        return Ok((pids, true));
    }
    let live = peers.alive().into_iter().map(|(_, owner)| owner.pid);
    let all: Vec<u32> = live.chain([std::process::id()]).collect();
    let path = core.setup.dir.join(LOCKS);
    let by_files = |place, least| lease::holders_by_files(&path, place, least, &all);
    let has_it = by_files(lease::place(id), least);
    if !has_it.is_empty() || !at_gate {
        return Ok((has_it, true));
    }
    let gate = by_files(lease::gate(id), LockMode::Write);
    let unknown = gate.is_empty();
    Ok((gate, unknown))
}
