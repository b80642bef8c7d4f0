//! What a process has in the kernel's place: who asks, the working folder, and what a child gets.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_long};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use engram_fs::{Caller, Forking, Ino, OpenFiles};

use crate::inside::Inside;
use crate::real::{errno, real, set_errno};
use crate::trees::{self, Tree};

/// A lock for a few instructions, which a fork can take and give back on both sides. No signal
/// handler comes in between.
pub struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is touched under the lock alone.
unsafe impl<T: Send> Sync for Spin<T> {}

/// The lock, until this is dropped.
pub struct Spun<'a, T>(&'a Spin<T>);

impl<T> Spin<T> {
    /// A lock that nobody has.
    pub const fn new(value: T) -> Self {
        Spin { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes it, to be given back by [`Spin::release`].
    pub fn acquire(&self) {
        crate::handlers::hold();
        let mut looks = 0_u32;
        while self.taken.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Gives it back.
    pub fn release(&self) {
        self.taken.store(false, Ordering::Release);
        crate::handlers::let_go();
    }

    /// Takes it.
    pub fn lock(&self) -> Spun<'_, T> {
        self.acquire();
        Spun(self)
    }
}

impl<T> Drop for Spun<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<T> Deref for Spun<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: under the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Spun<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: under the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

// Who asks.

/// Callers that this process has been. There are few, and a call has one while others come, so none
/// is freed.
static CALLERS: Spin<Vec<&'static Caller>> = Spin::new(Vec::new());
static CALLER: AtomicPtr<Caller> = AtomicPtr::new(std::ptr::null_mut());
/// The user and the group that opened the pools, and whether there is one.
static OPENER: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
static HAS_OPENER: AtomicBool = AtomicBool::new(false);
/// Whether this process asks as another user or group than those.
static IS_ANOTHER: AtomicBool = AtomicBool::new(false);

/// The caller, as whom this process asks.
pub fn caller() -> &'static Caller {
    // SAFETY: null, or a caller that is never freed.
    match unsafe { CALLER.load(Ordering::Acquire).as_ref() } {
        Some(caller) => caller,
        None => note_caller(None),
    }
}

/// The caller with the process's real user and group, as `access` asks.
pub fn real_caller() -> Caller {
    // SAFETY: always sound.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    Caller { uid, gid, ..caller().clone() }
}

/// Notes who asks from now on: users or groups have changed, or the umask, which is given.
pub fn note_caller(umask: Option<u32>) -> &'static Caller {
    // SAFETY: always sound.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: null, or a caller that is never freed.
    let known = unsafe { CALLER.load(Ordering::Acquire).as_ref() };
    let umask = umask.or(known.map(|known| known.umask)).unwrap_or_else(umask_now);
    become_one(Caller { uid, gid, groups: groups(), umask })
}

/// Notes as whom files are asked for from now on, if the kernel has allowed it.
pub fn note_files_of(user: Option<u32>, group: Option<u32>) {
    let now = |number: c_long| set_fs(number, u32::MAX) as u32;
    let (uid, gid) = (now(libc::SYS_setfsuid), now(libc::SYS_setfsgid));
    let mut new = caller().clone();
    new.uid = user.filter(|user| *user == uid).unwrap_or(new.uid);
    new.gid = group.filter(|group| *group == gid).unwrap_or(new.gid);
    become_one(new);
}

/// Asks as this caller from now on.
fn become_one(new: Caller) -> &'static Caller {
    let mut callers = CALLERS.lock();
    let new = match callers.iter().find(|known| ***known == new) {
        Some(known) => known,
        None => {
            let new: &'static Caller = Box::leak(Box::new(new));
            callers.push(new);
            new
        }
    };
    CALLER.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
    note_another(new);
    new
}

fn note_another(caller: &Caller) {
    let [uid, gid] = [0, 1].map(|at: usize| OPENER[at].load(Ordering::Relaxed));
    let is_another = HAS_OPENER.load(Ordering::Relaxed) && (caller.uid, caller.gid) != (uid, gid);
    IS_ANOTHER.store(is_another, Ordering::Relaxed);
}

fn groups() -> Vec<u32> {
    // SAFETY: asks for their number, and then for as many.
    unsafe {
        let count = libc::getgroups(0, std::ptr::null_mut());
        let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
        let count = libc::getgroups(groups.len() as c_int, groups.as_mut_ptr());
        groups.truncate(usize::try_from(count).unwrap_or(0));
        groups
    }
}

fn umask_now() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

/// Notes who opens a pool; the first one counts.
pub fn note_opener() {
    let caller = caller();
    if !HAS_OPENER.swap(true, Ordering::Relaxed) {
        OPENER[0].store(caller.uid, Ordering::Relaxed);
        OPENER[1].store(caller.gid, Ordering::Relaxed);
    }
    note_another(caller);
}

/// The user and the group that the kernel has for this thread's files.
pub struct User {
    uid: c_long,
    gid: c_long,
}

/// Asks the kernel for files as who opened the pools; `None` if that is who asks anyway.
pub fn as_opener() -> Option<User> {
    if !IS_ANOTHER.load(Ordering::Relaxed) {
        return None;
    }
    let [uid, gid] = [0, 1].map(|at: usize| OPENER[at].load(Ordering::Relaxed));
    Some(User { uid: set_fs(libc::SYS_setfsuid, uid), gid: set_fs(libc::SYS_setfsgid, gid) })
}

impl User {
    /// Back to who asked.
    pub fn resume(self) {
        set_fs(libc::SYS_setfsgid, self.gid as u32);
        set_fs(libc::SYS_setfsuid, self.uid as u32);
    }
}

/// Sets it for this thread alone, where the kernel allows it; what it was.
fn set_fs(number: c_long, id: u32) -> c_long {
    real!(syscall(number: c_long, id: u32) -> c_long)
}

// The thread.

thread_local! {
    /// The kernel's number of this thread; 0: it was not asked for yet.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's number of the calling thread, which is asked for once.
pub fn thread() -> u32 {
    if THREAD.get() == 0 {
        // SAFETY: always sound.
        THREAD.set(unsafe { libc::gettid() } as u32);
    }
    THREAD.get()
}

/// Whether the process has this thread alone. Where nobody says, it has others.
pub fn is_alone() -> bool {
    // SAFETY: plain data, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let (path, to) = (c"/proc/self/task".as_ptr(), &raw mut stat);
    let done = real!(stat(path: *const std::ffi::c_char, to: *mut libc::stat) -> c_int);
    // A folder has a link from above, its own, and one from each folder in it.
    done == 0 && stat.st_nlink == 3
}

// The working folder.

/// The folder that the program is in, if it is of ours: its tree's number and one, and its own.
static FOLDER: (AtomicU32, AtomicU64) = (AtomicU32::new(0), AtomicU64::new(0));
/// The folder that was above it when the program went there.
static ABOVE: AtomicU64 = AtomicU64::new(0);
/// The folder that the kernel has for the process.
static KERNEL_FOLDER: Spin<Vec<u8>> = Spin::new(Vec::new());
/// Whether a prefix may be reached from there by a relative path.
static IS_NEAR: AtomicBool = AtomicBool::new(true);

/// The program's working folder, if it is of ours.
pub fn folder() -> Option<(&'static Tree, Ino)> {
    let number = FOLDER.0.load(Ordering::Acquire);
    let tree = trees::all().get(number.checked_sub(1)? as usize)?;
    Some((tree, FOLDER.1.load(Ordering::Acquire)))
}

/// The folder above it, which is where `..` leads from there also when it was removed.
pub fn above() -> Ino {
    ABOVE.load(Ordering::Acquire)
}

/// The program goes to a folder of ours, which is in this one.
pub fn go_to(tree: &Tree, ino: Ino, above: Ino) {
    ABOVE.store(above, Ordering::Release);
    FOLDER.1.store(ino, Ordering::Release);
    FOLDER.0.store(tree.number + 1, Ordering::Release);
}

/// The program has gone to a folder of the kernel's.
pub fn went_to_kernels() {
    FOLDER.0.store(0, Ordering::Release);
    let mut path = vec![0_u8; 4096];
    let (into, size) = (path.as_mut_ptr().cast::<std::ffi::c_char>(), path.len());
    let found = real!(getcwd(into: *mut std::ffi::c_char, size: usize) -> *mut std::ffi::c_char);
    // SAFETY: the string that it has written.
    let path = (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_bytes().to_vec());
    let path = path.unwrap_or_default();
    let is_above = |tree: &Tree| path == b"/" || tree.prefix.starts_with(&path);
    IS_NEAR.store(trees::all().iter().any(is_above), Ordering::Relaxed);
    *KERNEL_FOLDER.lock() = path;
}

/// Whether a relative path may lead to a prefix from the kernel's working folder.
pub fn is_near() -> bool {
    IS_NEAR.load(Ordering::Relaxed)
}

/// The kernel's working folder.
pub fn kernel_folder() -> Vec<u8> {
    KERNEL_FOLDER.lock().clone()
}

// Forks.

/// Begins a child by a call that runs no handlers of `pthread_atfork`, and does what ours do.
pub fn fork_by(begin: impl FnOnce() -> c_int) -> c_int {
    enter_fork();
    let pid = engram::around_fork(|| {
        before_fork();
        let pid = begin();
        if pid == 0 {
            in_child();
        } else {
            after_fork();
        }
        pid
    });
    let why = errno();
    if pid == 0 {
        leave_fork_in_child();
    } else {
        leave_fork();
    }
    set_errno(why);
    pid
}

extern "C" fn before_fork() {
    CALLERS.acquire();
    crate::calls::pipes::before_fork();
    KERNEL_FOLDER.acquire();
    crate::calls::memory::before_fork();
    crate::descriptors::before_fork();
}

extern "C" fn after_fork() {
    crate::descriptors::after_fork();
    crate::calls::memory::after_fork();
    KERNEL_FOLDER.release();
    crate::calls::pipes::after_fork();
    CALLERS.release();
}

extern "C" fn in_child() {
    THREAD.set(0);
    after_fork();
    crate::descriptors::in_child();
}

thread_local! {
    /// The thread that forks is inside: the engine opens files, too, for the child.
    static FORKING: Cell<Option<Inside>> = const { Cell::new(None) };
    /// The locks of files, of which none is taken or let go of meanwhile.
    static LOCKS: Cell<Vec<Forking<'static>>> = const { Cell::new(Vec::new()) };
    /// The lists of open files, which nobody changes meanwhile.
    static OPEN: Cell<Vec<OpenFiles<'static>>> = const { Cell::new(Vec::new()) };
}

/// Before what the engine does for the child. Whoever opens a pool meanwhile would wait for that.
extern "C" fn enter_fork() {
    FORKING.set(Some(Inside::nested()));
    crate::streams::before_fork();
    crate::keepers::hold();
    trees::all().iter().for_each(Tree::hold);
    let opened = trees::all().iter().filter_map(|tree| {
        let locks = tree.opened()?.locks.before_fork();
        Some((tree.number, locks))
    });
    let mut locks: Vec<_> = opened.collect();
    crate::keepers::before_fork(&mut locks);
    LOCKS.set(locks.into_iter().map(|(_, locks)| locks).collect());
    let opened = trees::all().iter().filter_map(Tree::opened);
    OPEN.set(opened.map(|opened| opened.fs.before_fork()).collect());
}

/// After it, in the child: it has none of what its parent has locked as a process.
extern "C" fn leave_fork_in_child() {
    drop(OPEN.take());
    for locks in LOCKS.take() {
        locks.drop_of(crate::calls::locks::is_a_process);
    }
    leave_fork();
}

/// After it, on both sides.
extern "C" fn leave_fork() {
    drop(OPEN.take());
    drop(LOCKS.take());
    trees::all().iter().for_each(Tree::resume);
    crate::keepers::resume();
    crate::streams::after_fork();
    drop(FORKING.take());
}

/// What happens before the program's `main`.
extern "C" fn begin() {
    if trees::all().is_empty() {
        if trees::is_asked() {
            crate::traced::begin();
            trees::say_what_is_wrong();
        }
        return;
    }
    crate::real::find_all();
    crate::handlers::begin();
    engram::become_guest();
    went_to_kernels();
    // Before a fork, those functions are first which were given last; after it, they are last.
    // SAFETY: functions of this library, which stays.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    let _ = engram::watch_forks();
    // SAFETY: as above.
    unsafe {
        libc::pthread_atfork(Some(enter_fork), Some(leave_fork), Some(leave_fork_in_child));
    }
    crate::traced::begin();
    trees::say_what_is_wrong();
    crate::handing::take_over();
    crate::streams::standard::begin();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
