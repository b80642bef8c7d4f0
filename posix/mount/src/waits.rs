//! Programs that wait for a lock, until the kernel has forgotten its pages of what they locked, or
//! for a file that a stage is to bring.
//!
//! A waiting request must keep no thread that serves from the others. So one thread has all that
//! wait: it tries for each again and again, in steps that grow to some milliseconds, and answers
//! those that have got theirs. The kernel does not tell this crate's library of a signal to a
//! program that waits. So the thread looks whether one is pending there, and answers `EINTR` then:
//! a waiting program can be interrupted, and killed.
//!
//! Pages are forgotten here as well (`cached`): the kernel may wait for threads that serve.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engram_fs::{ByteRange, Errno, Fs, Handle, Ino, LockMode, Locks, Stat, Taker};
use fuser::{Generation, ReplyEmpty, ReplyEntry};

use crate::cached::Seen;
use crate::convert::attr_of;

const STEP_MIN: Duration = Duration::from_micros(200);
const STEP_MAX: Duration = Duration::from_millis(5);

/// A program that waits.
pub struct Waiting {
    /// Its thread that does.
    pub thread: u32,
    pub wish: Wish,
}

/// What a program waits for.
pub enum Wish {
    Lock {
        handle: Arc<Handle>,
        taker: Taker,
        mode: LockMode,
        range: ByteRange,
        /// Whether it has the lock already.
        locked: bool,
        reply: ReplyEmpty,
    },
    Name(Wanted),
}

/// A name that a stage is to bring ([`engram_fs::expected`]).
pub struct Wanted {
    pub fs: Fs,
    /// So long the kernel may keep what it is told of the name.
    pub time: Duration,
    pub folder: Ino,
    pub name: OsString,
    pub reply: ReplyEntry,
}

impl Wanted {
    /// What there is to say of the name; `None`: it is still on its way.
    fn look(&self) -> Option<engram_fs::Result<Stat>> {
        let name = self.name.as_bytes();
        // In this order: what is not on its way any more is found.
        let is_expected = self.fs.is_expected(self.folder, name);
        (!is_expected).then(|| self.fs.lookup(self.folder, name))
    }

    fn answer(self, found: engram_fs::Result<Stat>) {
        match found {
            Ok(stat) => self.reply.entry(&self.time, &attr_of(&stat), Generation(0)),
            Err(error) => self.reply.error(fuser::Errno::from_i32(error.code)),
        }
    }
}

impl Waiting {
    fn fail(self, code: i32) {
        match self.wish {
            Wish::Lock { reply, .. } => reply.error(fuser::Errno::from_i32(code)),
            Wish::Name(Wanted { reply, .. }) => reply.error(fuser::Errno::from_i32(code)),
        }
    }
}

/// Hands programs that wait to the thread that has them.
#[derive(Default)]
pub struct Waits {
    sender: Mutex<Option<Sender<Waiting>>>,
}

impl Waits {
    /// Takes one more; the thread begins with the first.
    pub fn add(&self, locks: &Arc<Locks>, seen: &Arc<Seen>, waiting: Waiting) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let (new, arriving) = channel();
            let (locks, seen) = (Arc::clone(locks), Arc::clone(seen));
            let wait = move || serve(&locks, &seen, &arriving);
            if std::thread::Builder::new().name("engram-waits".to_owned()).spawn(wait).is_err() {
                return waiting.fail(libc::ENOLCK);
            }
            *sender = Some(new);
        }
        let sent = sender.as_ref().map(|sender| sender.send(waiting));
        if let Some(Err(back)) = sent {
            back.0.fail(libc::ENOLCK);
        }
    }
}

/// Tries for all that wait until the file system ends.
fn serve(locks: &Locks, seen: &Seen, arriving: &Receiver<Waiting>) {
    let mut all: Vec<Waiting> = Vec::new();
    let mut step = STEP_MIN;
    loop {
        let arrived = if all.is_empty() {
            arriving.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            arriving.recv_timeout(step)
        };
        match arrived {
            Ok(waiting) => {
                all.push(waiting);
                step = STEP_MIN;
            }
            Err(RecvTimeoutError::Timeout) => step = (step * 2).min(STEP_MAX),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let before = all.len();
        all = all.into_iter().filter_map(|waiting| try_for(locks, seen, waiting)).collect();
        if all.len() < before {
            step = STEP_MIN;
        }
    }
}

/// Tries for one, and answers it if that is the end; or gives it back.
fn try_for(locks: &Locks, seen: &Seen, waiting: Waiting) -> Option<Waiting> {
    match &waiting.wish {
        Wish::Lock { handle, taker, mode, range, locked, .. } => {
            let tried =
                if *locked { Ok(true) } else { locks.try_lock(handle, *taker, *mode, *range) };
            match tried {
                Ok(true) => seen.forget(handle),
                Ok(false) => return interrupted(waiting),
                Err(Errno { code, .. }) => {
                    waiting.fail(code);
                    return None;
                }
            }
        }
        Wish::Name(wanted) => match wanted.look() {
            None => return interrupted(waiting),
            Some(found) => {
                if let Wish::Name(wanted) = waiting.wish {
                    wanted.answer(found);
                }
                return None;
            }
        },
    }
    if let Wish::Lock { reply, .. } = waiting.wish {
        reply.ok();
    }
    None
}

/// Answers one that has a signal, or gives it back.
fn interrupted(waiting: Waiting) -> Option<Waiting> {
    if !has_signal(waiting.thread) {
        return Some(waiting);
    }
    waiting.fail(libc::EINTR);
    None
}

/// Whether a thread has a signal that it would take, or is gone. Of one that cannot be seen from
/// here nothing is known.
///
/// A signal to the process is one thread's to take, and that is the first one where it does not
/// block it. A thread that was told of a signal which another takes would see an error that is
/// none.
/// One that kills is pending for each thread.
fn has_signal(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let status = match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => status,
        Err(e) => return matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
    };
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mask = |name| value(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let is_first = value("Tgid:") == value("Pid:");
    let pending = mask("SigPnd:") | if is_first { mask("ShdPnd:") } else { 0 };
    pending & !mask("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::has_signal;

    #[test]
    fn a_thread_without_a_signal_waits_on_and_one_that_is_gone_does_not() {
        assert!(!has_signal(std::process::id()));
        assert!(!has_signal(0), "of one that is not seen nothing is known");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(has_signal(child.id()));
    }
}
