//! Whether those who have a lock are at work: how long one waits for them, and what is said then.
//!
//! A process that is stopped keeps its locks, and so does one that means ill. Nobody waits for such
//! a one without end or word: as long as a holder is *at work* it is waited for, since making a
//! large version, or deleting a large group, may take minutes; when it has stood still for
//! [`IDLE_MOST`], the waiting process gives up with `BusyError` and its pid. A process is at work
//! if it uses the processor or waits for a disk, as `/proc/<pid>/stat` has it; and when the lock
//! goes from one holder to the next, the time begins anew. A holder that is not to be seen there
//! may be at work: it is waited for [`UNSEEN_MOST`]. None of this decides about anything but how
//! long one waits.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::user;

/// So long a holder that does nothing is waited for.
const IDLE_MOST: Duration = Duration::from_secs(5);
/// So long one that cannot be seen.
const UNSEEN_MOST: Duration = Duration::from_secs(20);
/// Between two looks at its holder.
const LOOK: Duration = Duration::from_millis(200);

/// A process that waits for a lock, and what the holders have done meanwhile.
#[derive(Clone)]
pub struct Watch {
    begun: Instant,
    looked: Instant,
    /// When a holder was last at work, or the lock went to another.
    moved: Instant,
    holders: Vec<LockHolder>,
}

impl Watch {
    /// Begins to wait.
    pub fn begin() -> Self {
        let now = Instant::now();
        Watch { begun: now, looked: now, moved: now, holders: Vec::new() }
    }

    /// Begins to wait again after having given up: a holder that has done nothing since then is not
    /// waited for anew.
    #[must_use]
    pub fn again(&self) -> Self {
        let now = Instant::now();
        Watch { begun: now, looked: now, ..self.clone() }
    }

    /// Notes that the lock was seen free: its next holder has just come.
    pub fn was_free(&mut self) {
        self.moved = Instant::now();
        self.holders.clear();
    }

    /// Looks at those who have the lock, if it is time to; whether to give up. None that can be
    /// seen is an empty list.
    pub fn is_vain(&mut self, holders: impl FnOnce() -> Vec<LockHolder>) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let now = holders();
        if now.iter().any(|holder| holder.is_at_work(&self.holders)) {
            self.moved = self.looked;
        }
        self.holders = now;
        let most = if self.holders.is_empty() { UNSEEN_MOST } else { IDLE_MOST };
        self.moved.elapsed() >= most
    }

    /// How long it has been waited for.
    pub(crate) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The error of a process that gives up.
    pub fn busy(&self, locked: impl Display) -> Error {
        let who: Vec<String> = self.holders.iter().map(LockHolder::describe).collect();
        let who = if who.is_empty() {
            "a process that cannot be seen from here (perhaps of another container)".to_owned()
        } else {
            format!("process {}", who.join(", and process "))
        };
        let seconds = self.begun.min(self.moved).elapsed().as_secs();
        Error::new(
            Kind::Busy,
            format!(
                "{locked} is locked by {who}: that has not let it go for {seconds} s; let that \
                 process go on, or end it, and try again; nothing was changed"
            ),
        )
    }
}

/// A process that has the lock, or one thread of it.
#[derive(Clone, PartialEq, Eq)]
pub struct LockHolder {
    pid: u32,
    thread: Option<u32>,
    /// Its state and the processor time that it has used, in ticks; `None` if it is gone, and
    /// another process has inherited the lock, or if it may not be looked at.
    doing: Option<(char, u64)>,
}

impl LockHolder {
    /// A process that has it, whichever of its threads.
    pub(crate) fn process(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        LockHolder { pid, thread: None, doing: stat.and_then(|stat| doing(&stat)) }
    }

    /// A thread that has it; `None` if it cannot be seen.
    pub fn thread(thread: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let pid =
            status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
        Some(LockHolder { pid, thread: Some(thread), doing: doing(&stat) })
    }

    /// Whether it has done anything since those were looked at, or does now.
    fn is_at_work(&self, before: &[LockHolder]) -> bool {
        let runs = self.doing.is_some_and(|(state, _)| matches!(state, 'R' | 'D'));
        let same = |known: &&LockHolder| (known.pid, known.thread) == (self.pid, self.thread);
        // One that has just come has done something.
        runs || before.iter().find(same).is_none_or(|known| self.ticks() > known.ticks())
    }

    fn ticks(&self) -> u64 {
        self.doing.map_or(0, |(_, ticks)| ticks)
    }

    fn describe(&self) -> String {
        let pid = self.pid;
        if pid == std::process::id() {
            return format!("{pid}, which is this process itself, in another thread");
        }
        let user = fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
        let Ok(user) = user else {
            return format!("{pid}, which has ended, and left it to a process that it had forked");
        };
        let whose = format!("of {}", user::shown(user));
        match self.doing {
            Some(('T' | 't', _)) => format!("{pid} {whose}, which is stopped (kill -CONT {pid})"),
            _ => format!("{pid} {whose}"),
        }
    }
}

/// What a line of `/proc/<pid>/stat` says: the state, and the ticks in user and kernel mode.
fn doing(stat: &str) -> Option<(char, u64)> {
    // The name before it is in parentheses, and may have any in it.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = words.next()?.chars().next()?;
    let mut ticks = words.skip(10).map(|word| word.parse::<u64>().unwrap_or(0));
    Some((state, ticks.next()?.saturating_add(ticks.next()?)))
}

#[cfg(test)]
mod tests {
    use super::{LockHolder, doing};

    #[test]
    fn what_a_process_does_is_read_whatever_its_name() {
        let stat = "7 (a) R) (b) T 1 7 7 0 -1 4194304 5 0 0 0 31 11 0 0 20 0 1 0 9 0 0";
        assert_eq!(doing(stat), Some(('T', 42)));
        assert_eq!(doing("7 (a) R 1 2"), None);
        assert_eq!(doing(""), None);
    }

    #[test]
    fn a_thread_is_one_of_its_process() {
        let here = || {
            let named = std::fs::read_link("/proc/thread-self").expect("proc(5)");
            let thread = named.file_name().unwrap().to_str().unwrap().parse().unwrap();
            (thread, LockHolder::thread(thread).expect("it is to be seen"))
        };
        let (thread, holder) = std::thread::spawn(here).join().unwrap();
        assert_ne!(thread, std::process::id());
        assert_eq!((holder.pid, holder.thread), (std::process::id(), Some(thread)));
        assert!(LockHolder::thread(u32::MAX >> 1).is_none());
    }
}
