//! Other processes: forked with all that this one has, or spawned afresh from the test program.
//!
//! Nobody sleeps: processes tell each other words through two pipes, and a process that waits for a
//! word or for an end gives up after [`deadline`]. A process that a test started dies with the
//! test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ALONE: &str = "ENGRAM_TEST_ALONE";
const LINE: &str = "ENGRAM_TEST_LINE";

/// When a test that has not ended has failed: `ENGRAM_TEST_SECONDS` from now.
pub fn deadline() -> Instant {
    let seconds = std::env::var("ENGRAM_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    Instant::now() + Duration::from_secs(seconds.unwrap_or(100))
}

/// One end of a conversation between two processes, a word at a time.
pub struct Line {
    from: File,
    to: File,
}

/// Waits until another process has made this file.
pub fn wait_for(file: &Path) {
    let until = deadline();
    while !file.exists() {
        assert!(Instant::now() < until, "{} does not come", file.display());
        std::thread::yield_now();
    }
}

impl Line {
    /// Both ends.
    pub fn pair() -> (Line, Line) {
        let (a_from, b_to) = pipe();
        let (b_from, a_to) = pipe();
        (Line { from: a_from, to: a_to }, Line { from: b_from, to: b_to })
    }

    /// The same end once more.
    pub fn another(&self) -> Line {
        let again = |end: &File| end.try_clone().expect("a descriptor");
        Line { from: again(&self.from), to: again(&self.to) }
    }

    /// Tells the other side a word.
    pub fn say(&self, word: u64) {
        (&self.to).write_all(&word.to_le_bytes()).expect("the other side listens");
    }

    /// The next word; fails the test when the other side has gone, or says nothing.
    pub fn hear(&self) -> u64 {
        self.hear_if_any().expect("the other side has gone")
    }

    /// The next word, or `None` when the other side has gone.
    pub fn hear_if_any(&self) -> Option<u64> {
        let mut word = [0; 8];
        let mut have = 0;
        while have < 8 {
            wait_readable(self.from.as_raw_fd(), deadline());
            match (&self.from).read(&mut word[have..]) {
                Ok(0) => return None,
                Ok(more) => have += more,
                Err(error) => panic!("hearing: {error}"),
            }
        }
        Some(u64::from_le_bytes(word))
    }

    /// Waits for this word.
    pub fn expect(&self, word: u64) {
        assert_eq!(self.hear(), word);
    }

    /// Whether a word, or the end, is there now.
    pub fn is_ready(&self) -> bool {
        is_readable(self.from.as_raw_fd(), 0)
    }
}

fn pipe() -> (File, File) {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: a place for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: new descriptors, each owned once.
    unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) }
}

fn is_readable(fd: RawFd, millis: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, millis) == 1 }
}

fn wait_readable(fd: RawFd, until: Instant) {
    while !is_readable(fd, 1000) {
        assert!(Instant::now() < until, "nothing was heard in time");
    }
}

/// Another process. It is killed when this is dropped.
pub struct Peer {
    pub pid: i32,
    pub line: Line,
    ended: bool,
}

impl Peer {
    fn new(pid: i32, line: Line) -> Peer {
        Peer { pid, line, ended: false }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: i32) {
        assert!(!self.ended);
        // SAFETY: our own child, not yet waited for.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }

    /// Stops the process, and waits until it stands still.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: our own child; `status` is a valid place.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WUNTRACED) };
        assert!(pid == self.pid && libc::WIFSTOPPED(status));
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        let status = self.wait();
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    }

    /// Waits until the process ends in good order.
    pub fn finish(mut self) {
        let status = self.wait();
        assert!(libc::WIFEXITED(status), "process {} died: {status:#x}", self.pid);
        assert_eq!(libc::WEXITSTATUS(status), 0, "process {} failed", self.pid);
    }

    /// Waits until the process is gone; its wait status.
    pub fn wait(&mut self) -> i32 {
        // SAFETY: a descriptor for our own child, which is not yet waited for.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) } as RawFd;
        assert!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor, owned once.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        wait_readable(fd.as_raw_fd(), deadline());
        let mut status = 0;
        // SAFETY: our own child; `status` is a valid place.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        self.ended = true;
        status
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.ended {
            // SAFETY: our own child, not yet waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Forks a process that does `work` with all that this one has, and ends.
pub fn fork(work: impl FnOnce(&Line)) -> Peer {
    let (ours, theirs) = Line::pair();
    // SAFETY: the C library's allocator survives the fork of a process with threads; the child
    // does its work and leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            drop(ours);
            // SAFETY: asks for a signal when the forking thread is gone.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let done = catch_unwind(AssertUnwindSafe(|| work(&theirs)));
            // SAFETY: always sound; nothing of the parent's is torn down.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
        pid => Peer::new(pid, ours),
    }
}

/// Starts this test program anew in a process of its own, which runs the same test's `spawned`
/// work (see [`alone_with`]).
pub fn spawn() -> Peer {
    let (ours, theirs) = Line::pair();
    let ends = [theirs.from.into_raw_fd(), theirs.to.into_raw_fd()];
    let keep_on_exec = |keep: bool| {
        for end in ends {
            // SAFETY: our own descriptors.
            unsafe { libc::fcntl(end, libc::F_SETFD, if keep { 0 } else { libc::FD_CLOEXEC }) };
        }
    };
    let mut command = this_program(&std::env::var(ALONE).expect("`alone` runs this"));
    command.env(LINE, format!("{},{}", ends[0], ends[1]));
    keep_on_exec(true);
    let started = command.spawn();
    keep_on_exec(false);
    for end in ends {
        // SAFETY: our own descriptors, owned by nobody else.
        unsafe { libc::close(end) };
    }
    Peer::new(started.expect("this program starts").id() as i32, ours)
}

fn this_program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, test);
    command
}

/// The test's name as its program lists it, with its modules: its thread is called so.
fn listed(test: &str) -> String {
    let thread = std::thread::current();
    let name = thread.name().expect("a test's thread has a name");
    let modules = name.strip_suffix(test).expect("the test that runs is named");
    assert!(modules.is_empty() || modules.ends_with("::"), "{name} is not {test}");
    name.to_owned()
}

/// Runs a test in a process of its own, so that its forks copy nobody else's pools.
pub fn alone(test: &str, work: impl FnOnce()) {
    alone_with(test, work, |_| panic!("this test spawns nothing"));
}

/// As [`alone`]; in the processes that [`spawn`] starts, `spawned` runs instead.
#[expect(clippy::zombie_processes, reason = "`Peer` waits for it")]
pub fn alone_with(test: &str, work: impl FnOnce(), spawned: impl FnOnce(&Line)) {
    if let Ok(ends) = std::env::var(LINE) {
        let (from, to) = ends.split_once(',').expect("two descriptors");
        // SAFETY: `spawn` has left these two to this process.
        let end = |text: &str| unsafe { File::from_raw_fd(text.parse().expect("a descriptor")) };
        // SAFETY: asks for a signal when the starting thread is gone.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let line = Line { from: end(from), to: end(to) };
        // What this process starts itself must not hold the line open.
        for end in [&line.from, &line.to] {
            // SAFETY: our own descriptor.
            unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        return spawned(&line);
    }
    if std::env::var_os(ALONE).is_some() {
        // SAFETY: asks for a signal when the starting thread is gone.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        return work();
    }
    let output = tempfile::tempfile().expect("a file for what the test says");
    let to = || Stdio::from(output.try_clone().expect("a descriptor"));
    let mut command = this_program(&listed(test));
    command.stdin(Stdio::null()).stdout(to()).stderr(to());
    let child = command.spawn().expect("this program starts");
    let (line, _) = Line::pair();
    let status = Peer::new(child.id() as i32, line).wait();
    let said = std::fs::read(format!("/proc/self/fd/{}", output.as_raw_fd())).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let passed = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    assert!(passed && said.contains("1 passed"), "status {status:#x}; it said:\n{said}");
    let told = |line: &str| {
        let count = line.find("forbidden: ").map(|at| line[at..].to_owned());
        count.or_else(|| line.contains("skipped").then(|| line.to_owned()))
    };
    for line in said.lines().filter_map(told) {
        println!("{line}");
    }
}

/// Ends this process where it reaches a step, as SIGKILL does.
pub fn die_at_step(step: &'static str) {
    #[cfg(not(feature = "faults"))]
    panic!("a build without faults has no step {step}");
    #[cfg(feature = "faults")]
    engram::faults::on_step(move |at| {
        if at == step {
            // SAFETY: ends this process, and never returns.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    });
}
