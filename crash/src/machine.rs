//! Processes, signals and memory that outlives its writer: all that is unsafe here.
//!
//! The controller forks workers and never opens a pool itself: whatever it knows of a worker, it
//! reads in a [`Board`], memory that all of them share and that no death takes away.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use engram::View;

/// Memory shared by this process and all that it forks, and by the programs that these become.
pub struct Shared<T> {
    at: NonNull<T>,
    /// The file that it is, which has no name.
    file: File,
}

/// Types made of atomics alone, for which zeros are a value.
///
/// # Safety
///
/// Every field is an atomic or an array of such.
pub unsafe trait Atomics {}

impl<T: Atomics> Shared<T> {
    /// Zeros.
    ///
    /// # Panics
    ///
    /// If the kernel gives no memory.
    pub fn zeroed() -> Self {
        // SAFETY: a name and no flags: programs that are started inherit it.
        let fd = unsafe { libc::memfd_create(c"engram-crash".as_ptr(), 0) };
        assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        let file = inherited(fd);
        file.set_len(size_of::<T>() as u64).expect("room for it");
        Shared::of(file)
    }

    /// What another process shares: the file that it is.
    ///
    /// # Panics
    ///
    /// If the kernel does not map it.
    pub fn of(file: File) -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (len, fd) = (size_of::<T>(), file.as_raw_fd());
        assert_eq!(file.metadata().expect("its length").len(), len as u64);
        // SAFETY: a new mapping at a place of the kernel's choice, of a file of this length.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
        assert!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Shared { at: NonNull::new(at.cast()).expect("not null"), file }
    }

    /// The number by which a program inherits it.
    pub fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A file that the program which was here before has left open.
pub fn inherited(fd: RawFd) -> File {
    // SAFETY: nobody else in this program knows the number: whoever left it open is gone, or has
    // just made it.
    unsafe { File::from_raw_fd(fd) }
}

/// Has the preloaded library tell a function of each step of its engine.
///
/// # Panics
///
/// If the program runs without the library, or that has no steps.
pub fn on_library_step(told: fn(&'static str)) {
    static TOLD: OnceLock<fn(&'static str)> = OnceLock::new();
    extern "C" fn pass_on(step: *const u8, len: usize) {
        // SAFETY: the library's names of steps are constants.
        let bytes = unsafe { std::slice::from_raw_parts(step, len) };
        if let Some(told) = TOLD.get() {
            told(std::str::from_utf8(bytes).expect("a step's name"));
        }
    }
    type Hook = extern "C" fn(*const u8, usize);
    // SAFETY: asks the dynamic linker for a name.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"engram_preload_on_step".as_ptr()) };
    assert!(!at.is_null(), "the preloaded library is not there, or was built without steps");
    // SAFETY: the library's function of this name has this type.
    let ask = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(Hook)>(at) };
    assert!(TOLD.set(told).is_ok(), "steps are told already");
    ask(pass_on);
}

impl<T: Atomics> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is as long as `T`, aligned to a page, never unmapped, and zeros are
        // a value of atomics; others change it through atomics alone.
        unsafe { self.at.as_ref() }
    }
}

// SAFETY: it is reached through shared references to atomics alone.
unsafe impl<T: Atomics> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Shared<T> {}

/// This process.
pub fn me() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::getpid() }
}

/// Kills this process, as the kernel does: nothing more of it runs.
pub fn die() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        rest(Duration::from_secs(1));
    }
}

/// Ends this process without ending what its libraries keep.
pub fn leave(code: i32) -> ! {
    // SAFETY: always sound.
    unsafe { libc::_exit(code) }
}

/// Lets time pass.
pub fn rest(time: Duration) {
    std::thread::sleep(time);
}

/// Nanoseconds on the clock that all processes share.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// From now on, children that have lost their parent are this process's.
pub fn adopt_orphans() {
    // SAFETY: sets an attribute of this process.
    let set = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    assert_eq!(set, 0, "becoming a subreaper: {}", std::io::Error::last_os_error());
}

/// From now on, this process's own children leave nothing behind when they end.
pub fn ignore_children() {
    // SAFETY: no handler, but a disposition.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Dies with the process `parent`, however that ends.
pub fn die_with_parent() {
    // SAFETY: asks for a signal when the forking thread is gone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Whether this is root, who can become others.
pub fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

/// Becomes a user who shares nothing with anybody.
///
/// # Panics
///
/// If the kernel refuses.
pub fn become_stranger() {
    const STRANGER: u32 = 40_077;
    // SAFETY: this process, which has one thread, gives its rights away.
    let became = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(STRANGER) == 0
            && libc::setuid(STRANGER) == 0
    };
    assert!(became, "becoming a stranger: {}", std::io::Error::last_os_error());
    // It has lost that.
    die_with_parent();
}

/// Forks: zero in the child, its pid in the parent.
pub fn fork() -> i32 {
    // SAFETY: the C library's allocator survives a fork of a process with threads, and the engine
    // has its handlers; the child does its work and leaves by `leave`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    pid
}

/// A process, whoever's child it is.
pub struct Handle {
    pub pid: i32,
    fd: OwnedFd,
}

impl Handle {
    /// `None` if it is gone already, and reaped.
    pub fn of(pid: i32) -> Option<Self> {
        // SAFETY: asks for a descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
        // SAFETY: a new descriptor, owned once.
        (fd >= 0).then(|| Handle { pid, fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Kills it, if it lives.
    pub fn kill(&self) {
        let none = std::ptr::null::<libc::siginfo_t>();
        let fd = self.fd.as_raw_fd();
        // SAFETY: a signal to the process that the descriptor stands for.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
    }

    /// Whether it has ended, waiting for it up to so many milliseconds.
    pub fn ended(&self, millis: i32) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, millis) == 1 }
    }

    /// Its wait status, if it was this process's child and has ended.
    pub fn reap(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: `status` is a valid place.
        let reaped = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
        (reaped == self.pid).then_some(status)
    }
}

/// Whether a wait status says that a process was killed.
pub fn was_killed(status: i32) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
}

/// Waits for a child; what it left with, or `None` if a signal ended it.
pub fn wait(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: our own child; `status` is a valid place.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (waited == pid && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status))
}

/// The children of this process, those of its dead children too.
///
/// Each process is asked whose child it is: the kernel's own list of children leaves some out while
/// others come and go.
///
/// # Panics
///
/// If the kernel does not list processes.
pub fn children() -> Vec<i32> {
    let own = me();
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(own)).collect()
}

/// Whose child a process is, if there is such a process.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name stands in parentheses, and may have some of its own; its state follows.
    let (_name, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// A word of a view. Nobody moves the memory; somebody may be writing there.
///
/// # Panics
///
/// If the view is shorter.
#[expect(clippy::cast_ptr_alignment, reason = "every extent is aligned to 64 bytes")]
pub fn word(view: &View, place: usize) -> u64 {
    assert!((place + 1) * 8 <= view.len());
    // SAFETY: within the view, which is live, and aligned.
    unsafe { view.as_ptr().cast::<u64>().add(place).read_volatile() }
}

/// Writes a word in place.
///
/// # Panics
///
/// If the view is shorter, or not for writing.
#[expect(clippy::cast_ptr_alignment, reason = "every extent is aligned to 64 bytes")]
pub fn set_word(view: &View, place: usize, word: u64) {
    assert!((place + 1) * 8 <= view.len() && view.is_writable());
    // SAFETY: within the view, which is live, for writing, and aligned.
    unsafe { view.as_ptr().cast::<u64>().add(place).write_volatile(word) }
}
