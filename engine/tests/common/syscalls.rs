//! System calls, met before and after they happen: for the engine, for LMDB and for std alike.
//!
//! A test program that has this module has functions of the C library's names in it, which the
//! linker prefers. Each asks the program's [`Hook`], which may let the call happen, or make it
//! fail; then it calls the kernel itself. Calls that a hook makes are not met again.

#![allow(dead_code, reason = "each test program uses its part")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One call, as far as hooks care.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The system call's name; those that differ in nothing that matters share one.
    pub name: &'static str,
    /// The descriptor, or -1.
    pub fd: c_int,
    /// The address.
    pub at: usize,
    /// How many bytes.
    pub len: usize,
    /// Flags, or the command of `fcntl`.
    pub flags: c_int,
    /// The path, or the path's last part; of two, the first.
    pub path: Option<&'a CStr>,
}

/// The one that is asked before and after each call.
pub trait Hook: Send + Sync {
    /// Before the call. An errno: the call does not happen, and fails with it.
    fn before(&self, call: &Call<'_>) -> Option<c_int>;
    /// After the call, whose result this is.
    fn after(&self, call: &Call<'_>, result: i64);
    /// Random bytes, where they are to be the same in each run.
    fn random(&self, _bytes: &mut [u8]) -> bool {
        false
    }
}

static HOOK: OnceLock<Box<dyn Hook>> = OnceLock::new();
static ARMED: AtomicBool = AtomicBool::new(false);
thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

/// Sets the program's hook; once.
pub fn hook(hook: impl Hook + 'static) {
    assert!(HOOK.set(Box::new(hook)).is_ok(), "there is a hook already");
}

/// From now on calls are met, or not.
pub fn arm(armed: bool) {
    ARMED.store(armed, Ordering::SeqCst);
}

/// Runs `work` without its calls being met.
pub fn unmet<T>(work: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let done = work();
    INSIDE.set(before);
    done
}

/// The hook, if this call is to be met.
fn met() -> Option<&'static dyn Hook> {
    if !ARMED.load(Ordering::SeqCst) || INSIDE.get() {
        return None;
    }
    HOOK.get().map(|hook| &**hook)
}

fn meet(call: &Call<'_>, kernel: impl FnOnce() -> i64) -> i64 {
    let Some(hook) = met() else { return kernel() };
    INSIDE.set(true);
    let refused = hook.before(call);
    let result = if refused.is_some() { -1 } else { kernel() };
    let errno = refused.unwrap_or_else(|| std::io::Error::last_os_error().raw_os_error().unwrap());
    hook.after(call, result);
    INSIDE.set(false);
    // SAFETY: this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    result
}

const NOTHING: Call<'static> = Call { name: "", fd: -1, at: 0, len: 0, flags: 0, path: None };

/// # Safety
///
/// As the system call: the path is null, or ends in NUL and outlives the call.
unsafe fn path<'a>(path: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's contract.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// `name(arguments) -> result = number(what the kernel gets); how hooks see it`.
macro_rules! stand_before {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty
        = $number:ident($($given:expr),*); $call:expr;)*) => {$(
        /// Stands before the C library's.
        ///
        /// # Safety
        ///
        /// As of the system call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            let call = $call;
            // SAFETY: the caller's contract.
            meet(&call, || unsafe { libc::syscall(libc::$number, $($given),*) }) as $result
        }
    )*};
}

stand_before! {
    msync(at: *mut c_void, len: usize, flags: c_int) -> c_int
        = SYS_msync(at, len, flags);
        Call { name: "msync", at: at as usize, len, flags, ..NOTHING };
    fsync(fd: c_int) -> c_int = SYS_fsync(fd); Call { name: "fsync", fd, ..NOTHING };
    fdatasync(fd: c_int) -> c_int = SYS_fdatasync(fd); Call { name: "fdatasync", fd, ..NOTHING };
    fallocate(fd: c_int, flags: c_int, from: i64, len: i64) -> c_int
        = SYS_fallocate(fd, flags, from, len);
        Call { name: "fallocate", fd, flags, len: len as usize, ..NOTHING };
    fallocate64(fd: c_int, flags: c_int, from: i64, len: i64) -> c_int
        = SYS_fallocate(fd, flags, from, len);
        Call { name: "fallocate", fd, flags, len: len as usize, ..NOTHING };
    ftruncate(fd: c_int, len: i64) -> c_int = SYS_ftruncate(fd, len);
        Call { name: "ftruncate", fd, len: len as usize, ..NOTHING };
    ftruncate64(fd: c_int, len: i64) -> c_int = SYS_ftruncate(fd, len);
        Call { name: "ftruncate", fd, len: len as usize, ..NOTHING };
    write(fd: c_int, from: *const c_void, len: usize) -> isize = SYS_write(fd, from, len);
        Call { name: "write", fd, len, ..NOTHING };
    pwrite(fd: c_int, from: *const c_void, len: usize, to: i64) -> isize
        = SYS_pwrite64(fd, from, len, to);
        Call { name: "pwrite", fd, len, ..NOTHING };
    pwrite64(fd: c_int, from: *const c_void, len: usize, to: i64) -> isize
        = SYS_pwrite64(fd, from, len, to);
        Call { name: "pwrite", fd, len, ..NOTHING };
    rename(from: *const c_char, to: *const c_char) -> c_int
        = SYS_renameat(libc::AT_FDCWD, from, libc::AT_FDCWD, to);
        Call { name: "rename", path: unsafe { path(from) }, ..NOTHING };
    linkat(fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char, flags: c_int) -> c_int
        = SYS_linkat(fd, from, to_fd, to, flags);
        Call { name: "link", fd, flags, path: unsafe { path(from) }, ..NOTHING };
    unlink(named: *const c_char) -> c_int = SYS_unlinkat(libc::AT_FDCWD, named, 0);
        Call { name: "unlink", path: unsafe { path(named) }, ..NOTHING };
    unlinkat(fd: c_int, named: *const c_char, flags: c_int) -> c_int
        = SYS_unlinkat(fd, named, flags);
        Call { name: "unlink", fd, flags, path: unsafe { path(named) }, ..NOTHING };
    rmdir(named: *const c_char) -> c_int
        = SYS_unlinkat(libc::AT_FDCWD, named, libc::AT_REMOVEDIR);
        Call { name: "rmdir", path: unsafe { path(named) }, ..NOTHING };
    mkdir(named: *const c_char, mode: c_uint) -> c_int
        = SYS_mkdirat(libc::AT_FDCWD, named, mode);
        Call { name: "mkdir", path: unsafe { path(named) }, ..NOTHING };
    chmod(named: *const c_char, mode: c_uint) -> c_int
        = SYS_fchmodat(libc::AT_FDCWD, named, mode);
        Call { name: "chmod", path: unsafe { path(named) }, ..NOTHING };
    fchmod(fd: c_int, mode: c_uint) -> c_int = SYS_fchmod(fd, mode);
        Call { name: "fchmod", fd, ..NOTHING };
    flock(fd: c_int, flags: c_int) -> c_int = SYS_flock(fd, flags);
        Call { name: "flock", fd, flags, ..NOTHING };
    fcntl(fd: c_int, flags: c_int, argument: usize) -> c_int = SYS_fcntl(fd, flags, argument);
        Call { name: "fcntl", fd, flags, at: argument, ..NOTHING };
    fcntl64(fd: c_int, flags: c_int, argument: usize) -> c_int = SYS_fcntl(fd, flags, argument);
        Call { name: "fcntl", fd, flags, at: argument, ..NOTHING };
}

/// A mapping: the one call whose result hooks need as an address.
///
/// # Safety
///
/// As of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // Without the flag tmpfs maps as well, and the engine takes it for persistent memory.
    let flags = if DAX.load(Ordering::SeqCst) { flags & !libc::MAP_SYNC } else { flags };
    let call = Call { name: "mmap", fd, at: offset as usize, len, flags, path: None };
    let mut reached = false;
    let kernel = || {
        reached = true;
        // SAFETY: the caller's contract.
        unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) }
    };
    let mapped = meet(&call, kernel) as *mut c_void;
    if !reached && flags & libc::MAP_FIXED != 0 {
        // As some kernels fail: what was there is gone.
        // SAFETY: the caller gives these addresses up.
        unsafe { libc::syscall(libc::SYS_munmap, at, len) };
        HOLE[0].store(at as usize, Ordering::SeqCst);
        HOLE[1].store(len, Ordering::SeqCst);
    } else if mapped == at && at as usize == HOLE[0].load(Ordering::SeqCst) {
        HOLE[1].store(0, Ordering::SeqCst);
    }
    mapped
}

/// Addresses that a mapping which failed has given up, and that nobody has mapped since.
static HOLE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Whether anybody could map something there now. From now on there are none.
pub fn left_open() -> bool {
    let at = HOLE[0].swap(0, Ordering::SeqCst) as *mut c_void;
    let len = HOLE[1].swap(0, Ordering::SeqCst);
    if len == 0 {
        return false;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a mapping that replaces none, and goes again.
    unsafe {
        let mapped = libc::syscall(libc::SYS_mmap, at, len, libc::PROT_NONE, flags, -1, 0i64);
        mapped == at as i64 && libc::syscall(libc::SYS_munmap, at, len) == 0
    }
}

/// As `mmap`.
///
/// # Safety
///
/// As of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

/// Random bytes: the hook's, if it has some.
///
/// # Safety
///
/// As of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize {
    if let Some(hook) = met() {
        // SAFETY: the caller's contract.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
        if hook.random(bytes) {
            return len as isize;
        }
    }
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_getrandom, to, len, flags) as isize }
}

macro_rules! opening {
    ($($name:ident($($fd:ident)?) = $at:expr;)*) => {$(
        /// Stands before the C library's.
        ///
        /// # Safety
        ///
        /// As of the system call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($fd: c_int,)? named: *const c_char, flags: c_int, mode: c_uint,
        ) -> c_int {
            // SAFETY: the caller's contract.
            unsafe { open_at($at, named, flags, mode) }
        }
    )*};
}

opening! {
    open() = libc::AT_FDCWD;
    open64() = libc::AT_FDCWD;
    openat(fd) = fd;
    openat64(fd) = fd;
}

/// # Safety
///
/// As of the system call.
unsafe fn open_at(fd: c_int, named: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's contract.
    let path = unsafe { path(named) };
    if path.is_some_and(|path| path.to_bytes().ends_with(b"/mountinfo"))
        && DISK.load(Ordering::SeqCst)
        && !INSIDE.get()
    {
        return unmet(mounts_of_disks);
    }
    let call = Call { name: "open", fd, flags, path, ..NOTHING };
    // SAFETY: the caller's contract.
    let kernel = || unsafe { libc::syscall(libc::SYS_openat, fd, named, flags, mode) };
    meet(&call, kernel) as c_int
}

/// Whether tmpfs is taken for a disk's filesystem.
static DISK: AtomicBool = AtomicBool::new(false);
const EXT4: i64 = 0xEF53;

/// From now on every tmpfs looks like ext4, or not: pools in memory promise to survive power
/// failures, and a test sees to what that takes.
pub fn pretend_disk(disk: bool) {
    DISK.store(disk, Ordering::SeqCst);
}

/// Whether tmpfs is taken for persistent memory.
static DAX: AtomicBool = AtomicBool::new(false);

/// From now on `MAP_SYNC` is granted, or not: files are kept on persistent memory.
pub fn pretend_dax(dax: bool) {
    DAX.store(dax, Ordering::SeqCst);
}

/// The mounts, each tmpfs under another name.
fn mounts_of_disks() -> c_int {
    use std::io::{Seek, Write};
    use std::os::fd::{FromRawFd, IntoRawFd};
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // SAFETY: a new descriptor, owned once.
    let mut file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"m".as_ptr(), 0)) };
    file.write_all(mounts.replace(" - tmpfs ", " - ext4 ").as_bytes()).expect("memory");
    file.rewind().expect("a file");
    file.into_raw_fd()
}

/// # Safety
///
/// `about` is what a successful `statfs` has filled.
unsafe fn disguise(done: i64, about: *mut libc::statfs) -> c_int {
    if done == 0 && DISK.load(Ordering::SeqCst) {
        // SAFETY: the caller's contract.
        unsafe { (*about).f_type = EXT4 };
    }
    done as c_int
}

/// # Safety
///
/// As of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statfs(named: *const c_char, about: *mut libc::statfs) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { disguise(libc::syscall(libc::SYS_statfs, named, about), about) }
}

/// # Safety
///
/// As of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatfs(fd: c_int, about: *mut libc::statfs) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { disguise(libc::syscall(libc::SYS_fstatfs, fd, about), about) }
}
