//! Every system call that can fail is made to fail, each time that it is made, in everything that a
//! program does with a pool.
//!
//! An operation that fails says what failed, and leaves everything as it was; or it goes on without
//! what it could not have, and is whole. After a sync that failed the realm takes no more writes
//! until it has been verified (P7). Whatever failed, the pool verifies afterwards, and works.
//!
//! `ENGRAM_FAILPOINTS=all` tries every errno at every call; otherwise each call gets one of them.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/syscalls.rs"]
mod syscalls;

mod operations;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{OVER, filled, floats, lookup, map_of};
use engram::{Error, Kind, Member, Mode, Pool, Result};
use operations::{IN_PARTS, OF_FILES, OPERATIONS, Operation, Place, SYNCED, options};
use syscalls::{Call, Hook};

/// The calls that are made to fail, and how each can.
const CALLS: &[(&str, &[i32])] = &[
    ("fallocate", &[libc::ENOSPC, libc::EINTR, libc::EIO, libc::EDQUOT]),
    ("mmap", &[libc::ENOMEM]),
    ("msync", &[libc::EIO]),
    ("fsync", &[libc::EIO, libc::ENOSPC, libc::EDQUOT]),
    ("fdatasync", &[libc::EIO, libc::ENOSPC]),
    ("write", &[libc::ENOSPC, libc::EIO, libc::EDQUOT]),
    ("pwrite", &[libc::ENOSPC, libc::EIO]),
    ("open", &[libc::EMFILE, libc::EIO, libc::ENOMEM]),
    ("flock", &[libc::ENOLCK, libc::EINTR]),
    ("fcntl", &[libc::ENOLCK]),
    ("ftruncate", &[libc::ENOSPC, libc::EIO]),
    ("rename", &[libc::ENOSPC, libc::EIO]),
    ("link", &[libc::ENOSPC, libc::EIO]),
    ("mkdir", &[libc::ENOSPC, libc::EDQUOT]),
    ("unlink", &[libc::EIO]),
    ("rmdir", &[libc::EIO]),
    ("chmod", &[libc::EIO]),
    ("fchmod", &[libc::EIO]),
];

/// What this process and its children share.
#[repr(C)]
struct Shared {
    /// Which of `CALLS` fails, from one on; 0 for none.
    call: AtomicU64,
    /// It fails when this comes down to zero.
    left: AtomicU64,
    errno: AtomicU64,
    /// How often it has failed.
    fired: AtomicU64,
    /// How often each was called.
    seen: [AtomicU64; 32],
    /// What is being tried: the operation, the call, which of them, the errno.
    now: [AtomicU64; 4],
    tried: AtomicU64,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<usize> = OnceLock::new();
    let at = *SHARED.get_or_init(|| {
        // SAFETY: a new mapping at a place of the kernel's choosing.
        let at = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        at as usize
    });
    // SAFETY: a page of zeros, which these atomics may be, for as long as the process lives.
    unsafe { &*(at as *const Shared) }
}

/// Makes one call fail.
struct Failer {
    root: PathBuf,
}

impl Failer {
    /// Whether a call is about the pool.
    fn is_ours(&self, call: &Call<'_>) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let path = call.path.map(|path| std::ffi::OsStr::from_bytes(path.to_bytes()));
        match (call.name, path) {
            ("msync", _) => true,
            // Addresses for an arena; everything else without a file is the program's own.
            ("mmap", _) if call.fd < 0 => call.len >= 1 << 30,
            ("fcntl", _) if !is_lock(call.flags) => false,
            (_, Some(path)) if Path::new(path).is_absolute() => {
                Path::new(path).starts_with(&self.root)
            }
            _ => std::fs::read_link(format!("/proc/self/fd/{}", call.fd))
                .is_ok_and(|file| file.starts_with(&self.root)),
        }
    }
}

fn is_lock(command: i32) -> bool {
    matches!(command, libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW)
}

impl Hook for Failer {
    fn before(&self, call: &Call<'_>) -> Option<i32> {
        let place = CALLS.iter().position(|(name, _)| *name == call.name)?;
        if !self.is_ours(call) {
            return None;
        }
        let shared = shared();
        shared.seen[place].fetch_add(1, Ordering::SeqCst);
        if shared.call.load(Ordering::SeqCst) != place as u64 + 1 {
            return None;
        }
        if shared.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return None;
        }
        shared.fired.fetch_add(1, Ordering::SeqCst);
        Some(shared.errno.load(Ordering::SeqCst) as i32)
    }

    fn after(&self, _: &Call<'_>, _: i64) {}
}

/// What there is, as far as it can be seen.
type Seen = Option<BTreeMap<String, Option<Vec<u8>>>>;

/// Everything in the pool, and the names of its namespaces and devices.
fn seen(pool: &Pool) -> BTreeMap<String, Option<Vec<u8>>> {
    let realm = pool.realm("default").expect("the default namespace");
    let mut all = map_of(&realm, "");
    for namespace in pool.namespaces().expect("namespaces") {
        all.insert(format!("namespace {}", namespace.name), None);
    }
    all.insert(format!("{} devices", pool.devices().expect("devices").len()), None);
    for path in ["kept/large", "moved/there"] {
        if let Some(oid) = lookup(&realm, path) {
            let attrs = realm.attrs(Member::Object(oid)).expect("attributes");
            all.insert(format!("{path}: {attrs:?}"), None);
        }
    }
    all
}

/// Whether there is anything but an empty folder, which is as good as none.
fn is_something(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut names| names.next().is_some())
}

/// What is seen of a closed or open pool; `None`: there is none.
fn look(place: &mut Place) -> Seen {
    if let Some(pool) = &place.pool {
        return Some(seen(pool));
    }
    if !is_something(&place.path) || place.path.join("destroying.toml").exists() {
        return None;
    }
    let pool = Pool::open(&place.path, Mode::Read, false).expect("it opens");
    let seen = seen(&pool);
    pool.close();
    Some(seen)
}

/// What is wrong with how an operation went, if anything.
type Verdict = std::result::Result<(), String>;

/// One attempt: the operation, with one call that fails.
struct Trial<'o> {
    operation: &'o Operation,
    call: usize,
    errno: i32,
}

impl Trial<'_> {
    /// Does it in a fresh pool below `dir`; says how often the call failed.
    fn run(&self, dir: &Path, nth: u64, whole: &Seen) -> (u64, Verdict) {
        let root = dir.join("trial");
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir(&root).expect("a folder");
        let mut place = Place { path: root.join("pool"), root, pool: None };
        (self.operation.prepare)(&mut place);
        let before = look(&mut place);
        let shared = shared();
        shared.fired.store(0, Ordering::SeqCst);
        shared.left.store(nth, Ordering::SeqCst);
        shared.errno.store(self.errno as u64, Ordering::SeqCst);
        shared.call.store(self.call as u64 + 1, Ordering::SeqCst);
        syscalls::arm(true);
        let result = catch_unwind(AssertUnwindSafe(|| (self.operation.work)(&mut place)));
        syscalls::arm(false);
        shared.call.store(0, Ordering::SeqCst);
        let fired = shared.fired.load(Ordering::SeqCst);
        if syscalls::left_open() && place.pool.is_some() {
            return (fired, Err("addresses of the arena are anybody's".into()));
        }
        let Ok(result) = result else { return (fired, Err("it panicked".into())) };
        let judged = self.judge(&mut place, &result, &before, whole);
        let after = catch_unwind(AssertUnwindSafe(|| afterwards(&mut place)));
        let after = after.unwrap_or_else(|_| Err("what came after it panicked".into()));
        let said = |what: String| match &result {
            Ok(()) => format!("it succeeded; {what}"),
            Err(error) => format!("it said {:?}: {error}; {what}", error.kind()),
        };
        (fired, judged.and(after).map_err(said))
    }

    fn judge(
        &self,
        place: &mut Place,
        result: &Result<()>,
        before: &Seen,
        whole: &Seen,
    ) -> Verdict {
        let now = catch_unwind(AssertUnwindSafe(|| look(place)));
        let Ok(now) = now else { return Err("nothing can be seen".into()) };
        let name = self.operation.name;
        let Err(error) = result else {
            return if now == *whole { Ok(()) } else { Err(differ(&now, whole)) };
        };
        if self.errno == libc::EINTR {
            return Err("a signal is no failure".into());
        }
        let poisoned = place.pool.as_ref().is_some_and(is_poisoned);
        // Half destroyed: it says so to a process that opens it, and is destroyed by one that goes
        // on.
        if name == "destroy" && now.is_none() {
            return Ok(());
        }
        // The description is in place, and nobody knows whether it is on the medium.
        if name == "add a device" && now == *whole && error.message().contains("pool.toml") {
            return Ok(());
        }
        let part = IN_PARTS.contains(&name) && is_between(&now, before, whole);
        let uncertain = error.kind() == Kind::CommitUncertain;
        let unsynced = SYNCED.contains(&name) && poisoned;
        if now != *before && !((uncertain || unsynced) && now == *whole) && !part {
            return Err(format!("not as before: {}", differ(&now, before)));
        }
        if name == "fork" {
            return Ok(());
        }
        // LMDB takes any refusal of its lock for another process's lock, waits for a shared one,
        // and finds a lock file that nobody has filled.
        if CALLS[self.call].0 == "fcntl" && error.message().contains("MDB_INVALID") {
            return Ok(());
        }
        let full = matches!(self.errno, libc::ENOSPC | libc::EDQUOT | libc::ENOMEM);
        let fits = match error.kind() {
            Kind::PoolFull | Kind::Unsupported => full,
            Kind::Corrupt | Kind::CommitUncertain => poisoned,
            Kind::Os => !full || poisoned,
            _ => false,
        };
        if !fits {
            return Err("of the wrong kind".into());
        }
        let told = std::io::Error::from_raw_os_error(self.errno).to_string();
        let told = told.split(" (").next().unwrap_or_default();
        if !error.message().contains(told) && !error.message().contains("poisoned") {
            return Err(format!("it does not say {told:?}"));
        }
        Ok(())
    }
}

/// Whether writing is refused, since a sync has failed.
fn is_poisoned(pool: &Pool) -> bool {
    let Ok(realm) = pool.realm("default") else { return false };
    let refused = realm.delete(realm.root(), "no such thing");
    refused.is_err_and(|error| error.message().contains("poisoned"))
}

/// In what two differ.
fn differ(now: &Seen, expected: &Seen) -> String {
    let (Some(now), Some(expected)) = (now, expected) else {
        return format!("a pool: {}, expected: {}", now.is_some(), expected.is_some());
    };
    let more: Vec<_> = now.keys().filter(|path| !expected.contains_key(*path)).take(3).collect();
    let less: Vec<_> = expected.keys().filter(|path| !now.contains_key(*path)).take(3).collect();
    let other = now.iter().find(|(path, is)| expected.get(*path).is_some_and(|was| was != *is));
    format!("more: {more:?}, missing: {less:?}, other: {:?}", other.map(|(path, _)| path))
}

/// Whether all that was there is, and nothing that is never.
fn is_between(now: &Seen, before: &Seen, whole: &Seen) -> bool {
    let (Some(now), Some(before), Some(whole)) = (now, before, whole) else { return false };
    let kept = before.iter().all(|(path, is)| now.get(path) == Some(is));
    kept && now.iter().all(|(path, is)| whole.get(path) == Some(is))
}

/// Whatever failed: the pool verifies, and works; or there is none, and one can be made.
fn afterwards(place: &mut Place) -> Verdict {
    let said = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let work = |pool: &Pool| -> Result<()> {
        let realm = pool.realm("default")?;
        let data = filled(9, 9, 3_000);
        realm.put(realm.root(), "after/large", &floats(&[3_000]), &data, OVER)?;
        realm.put(realm.root(), "after/small", &floats(&[10]), &filled(9, 9, 10), OVER)?;
        assert_eq!(common::read(&realm, "after/large"), data);
        realm.delete(realm.root(), "after")
    };
    if let Some(pool) = place.pool.take() {
        let worked = if is_poisoned(&pool) { Ok(()) } else { work(&pool) };
        pool.close();
        worked.map_err(said("no work after it"))?;
    }
    if is_something(&place.path) && Pool::open(&place.path, Mode::Read, false).is_err() {
        Pool::destroy(&place.path).map_err(said("what is left cannot be destroyed"))?;
    }
    if !is_something(&place.path) {
        let pool = Pool::create(&place.path, &options()).map_err(said("no new pool"))?;
        pool.close();
    }
    for _ in 0..2 {
        let report = engram::verify(&place.path).map_err(said("verify"))?;
        if !report.problems.is_empty() {
            return Err(format!("verify: {}", report.problems.join("; ")));
        }
        let pool = Pool::open(&place.path, Mode::ReadWrite, false).map_err(said("no opening"))?;
        let worked = work(&pool);
        pool.close();
        worked.map_err(said("no work after opening"))?;
    }
    Ok(())
}

/// Everything that is tried.
fn operations() -> Vec<&'static Operation> {
    OPERATIONS.iter().chain(OF_FILES).collect()
}

/// Every failure of one operation, in a process of its own.
fn every_failure(number: usize, dir: &Path, all: bool) {
    let operation = operations()[number];
    // Without a failure: what is there then.
    let mut place = Place { root: dir.join("whole"), path: dir.join("whole/pool"), pool: None };
    std::fs::create_dir(&place.root).expect("a folder");
    (operation.prepare)(&mut place);
    (operation.work)(&mut place).unwrap_or_else(|e| panic!("{}: {e}", operation.name));
    let whole = look(&mut place);
    drop(place.pool.take());
    for (call, (name, errnos)) in CALLS.iter().enumerate() {
        for nth in 1.. {
            let mut fired = 0;
            let start = nth as usize % errnos.len();
            let chosen = if all { &errnos[..] } else { &errnos[start..=start] };
            for &errno in chosen {
                for (place, value) in
                    [number, call, nth as usize, errno as usize].iter().enumerate()
                {
                    shared().now[place].store(*value as u64, Ordering::SeqCst);
                }
                let trial = Trial { operation, call, errno };
                let (times, verdict) = trial.run(dir, nth, &whole);
                fired = times;
                if times > 0 {
                    shared().tried.fetch_add(1, Ordering::SeqCst);
                }
                if let Err(problem) = verdict {
                    let error = std::io::Error::from_raw_os_error(errno);
                    println!("FAILED {}, {name} {nth}: {error}: {problem}", operation.name);
                    shared().seen[31].fetch_add(1, Ordering::SeqCst);
                }
            }
            if fired == 0 {
                break;
            }
        }
    }
}

/// One operation's failures, in a process of its own; whether that ended well.
fn try_all_of(number: usize, dir: &Path, all: bool) -> bool {
    let operation = operations()[number];
    std::fs::create_dir(dir).expect("a folder");
    // SAFETY: this process has one thread; the child does its part and ends.
    let child = match unsafe { libc::fork() } {
        0 => {
            every_failure(number, dir, all);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: a child of ours, and a place for its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    std::fs::remove_dir_all(dir).expect("pools go");
    if status != 0 {
        let [call, nth, errno] = [1, 2, 3].map(|at| shared().now[at].load(Ordering::SeqCst));
        let call = CALLS[call as usize].0;
        println!("DIED {}: status {status:#x}, {call} {nth}, errno {errno}", operation.name);
    }
    status == 0
}

fn main() {
    // A check that panics says so in its verdict.
    std::panic::set_hook(Box::new(|_| {}));
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
    syscalls::hook(Failer { root: dir.path().to_owned() });
    let all = std::env::var("ENGRAM_FAILPOINTS").is_ok_and(|which| which == "all");
    let only = std::env::var("ENGRAM_OPERATION").ok();
    let shared = shared();
    let mut died = 0;
    for disk in [true, false] {
        // In memory little can fail that cannot on a disk: a short run leaves it out.
        if !disk && !all {
            break;
        }
        syscalls::pretend_disk(disk);
        println!("{:35} {:>10}", if disk { "on a disk" } else { "in memory" }, "failures");
        for (number, operation) in operations().into_iter().enumerate() {
            if only.as_ref().is_some_and(|only| only != operation.name) {
                continue;
            }
            let before = shared.tried.load(Ordering::SeqCst);
            died += u64::from(!try_all_of(number, &dir.path().join(number.to_string()), all));
            let tried = shared.tried.load(Ordering::SeqCst) - before;
            println!("{:35} {tried:10}", operation.name);
        }
    }
    let tried = shared.tried.load(Ordering::SeqCst);
    let wrong = shared.seen[31].load(Ordering::SeqCst) + died;
    println!("{tried} failures tried, {wrong} not met as they should be");
    assert_eq!(wrong, 0, "failures that were not met as they should be");
}
