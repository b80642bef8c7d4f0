//! How LMDB knows processes, and whether they live.
//!
//! LMDB notes the pid of a reader in its table, and locks the byte of that number in `lock.mdb`: a
//! process that dies loses its locks, and its readers are cleared. It asks for locks of the
//! *process* (`F_SETLK`). Those go with the first descriptor of the file that anything in the
//! process closes, so two copies of the engine in one process would take each other's away. And by
//! one pid for both, a copy that closes its environment would clear the other's readers.
//!
//! So LMDB's C is compiled to call two functions of this module where it says `getpid` and `fcntl`
//! (flags that `.cargo/config.toml` sets, beside the one of `wait.rs`):
//!
//! - [`engram_getpid`] gives the number of the copy (`engram_base::guest`).
//! - [`engram_fcntl`] asks for locks of the *open file description*, which is the environment's,
//!   where the descriptor is one of [`LOCK_FILES`]. Other C libraries of the program may have been
//!   compiled with the same flags; theirs stay as they are.
//!
//! A forked child inherits that description, and with it the lock of its parent's byte. So the lock
//! is a shared one: the parent may close the catalog and open it anew. And the byte of a process
//! that has died stays locked while such a child lives. So LMDB is told that a process is dead
//! where the byte is free, or where no process of that pid runs any more.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_long};

use engram_base::guest;
use engram_base::process::Life;

/// As many descriptors as Linux lets a process have, unless an administrator raises `fs.nr_open`.
const DESCRIPTORS: usize = 1 << 20;

/// The descriptors of `lock.mdb` files that environments of this process have, a bit each. (A child
/// may be forked at any instant, so there is no mutex.)
static LOCK_FILES: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

thread_local! {
    /// Whether this thread opens an environment.
    static OPENS: Cell<bool> = const { Cell::new(false) };
    /// The descriptor that LMDB has locked then.
    static LOCKED: Cell<Option<ReaderLock>> = const { Cell::new(None) };
}

/// The descriptor of an environment's `lock.mdb`, which LMDB closes with the environment.
#[derive(Clone, Copy)]
pub(super) struct ReaderLock(c_int);

impl ReaderLock {
    fn bit(self) -> Option<(&'static AtomicU64, u64)> {
        let number = usize::try_from(self.0).ok()?;
        Some((LOCK_FILES.get(number / 64)?, 1 << (number % 64)))
    }

    fn note(self) -> bool {
        self.bit().map(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed)).is_some()
    }

    fn is_noted(self) -> bool {
        self.bit().is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn descriptor(self) -> c_int {
        self.0
    }

    /// The descriptor is about to be closed, or has been.
    pub(super) fn forget(self) {
        if let Some((word, bit)) = self.bit() {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Runs the call that opens an environment; its code, and the descriptor of its `lock.mdb`, if it
/// has one: that is to be forgotten when the environment is closed.
pub(super) fn opening(call: impl FnOnce() -> c_int) -> (c_int, Option<ReaderLock>) {
    OPENS.set(true);
    let rc = call();
    OPENS.set(false);
    match LOCKED.take() {
        // LMDB has closed it.
        Some(file) if rc != 0 => {
            file.forget();
            (rc, None)
        }
        locked => (rc, locked),
    }
}

/// The number of this copy of the engine, in place of `getpid`.
#[unsafe(no_mangle)]
extern "C" fn engram_getpid() -> c_int {
    guest::number() as c_int
}

/// `fcntl`; locks of an environment are those of its open file description.
///
/// # Safety
///
/// As `fcntl`'s: for a command of locks, `argument` points to a `flock`.
#[unsafe(no_mangle)]
unsafe extern "C" fn engram_fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    let file = ReaderLock(fd);
    let own = match command {
        libc::F_SETLK => libc::F_OFD_SETLK,
        libc::F_SETLKW => libc::F_OFD_SETLKW,
        libc::F_GETLK => libc::F_OFD_GETLK,
        _ => command,
    };
    if own != command && OPENS.get() && file.note() {
        LOCKED.set(Some(file));
    }
    if own == command || !file.is_noted() {
        // SAFETY: the caller's promise.
        return unsafe { libc::fcntl(fd, command, argument) };
    }
    // SAFETY: the caller's promise. LMDB clears the whole of it, so its pid is zero as OFD locks
    // ask for.
    let lock = unsafe { &mut *(argument as *mut libc::flock) };
    let start = lock.l_start;
    if own == libc::F_OFD_SETLK && start == libc::off_t::from(engram_getpid()) {
        lock.l_type = libc::F_RDLCK as libc::c_short;
    }
    // SAFETY: a plain fcntl with a valid struct.
    let done = unsafe { libc::fcntl(fd, own, &raw mut *lock) };
    // What LMDB asks for is one byte, at the number of a process.
    let locked = done == 0 && lock.l_type != libc::F_UNLCK as libc::c_short;
    if own == libc::F_OFD_GETLK
        && locked
        && Life::of_process(guest::pid_of(start as u32)) == Life::Gone
    {
        lock.l_type = libc::F_UNLCK as libc::c_short;
    }
    done
}

/// Has the linker keep the functions, which only C calls.
pub(super) fn keep() {
    std::hint::black_box(engram_getpid as extern "C" fn() -> c_int);
    std::hint::black_box(engram_fcntl as unsafe extern "C" fn(c_int, c_int, c_long) -> c_int);
}
