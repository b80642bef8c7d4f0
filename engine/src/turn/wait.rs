//! Waiting for a lock of the kernel that another process may keep for ever.
//!
//! A process that is stopped keeps its locks, and so does one that means ill. Nobody waits for such
//! a one without end or word: as long as a holder is *at work* it is waited for, since making a
//! large version may take minutes; when it has stood still for [`STILL`], whoever waits gives up
//! with `BusyError` and its pid. At work is who uses the processor or waits for a disk, as
//! `/proc/<pid>/stat` has it; and when the lock goes from one holder to the next, the time begins
//! anew. Who holds it is in `/proc/locks`. A holder that is not to be seen there (of another
//! PID namespace) may be at work: it is waited for [`UNSEEN_MOST`]. None of this decides about
//! anything but how long one waits.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::lease;

/// So long a holder that does nothing is waited for.
const STILL: Duration = Duration::from_secs(5);
/// So long one that cannot be seen.
const UNSEEN_MOST: Duration = Duration::from_secs(20);
/// Between two tries: at first, and in the end.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));
/// Between two looks at who holds it.
const LOOK: Duration = Duration::from_millis(200);

/// Locks a file or folder, whatever signals come. `Busy` where somebody has it who stands still, or
/// has it for longer than `most`.
pub(crate) fn wait_for(file: &File, path: &Path, most: Duration) -> Result<()> {
    let begun = Instant::now();
    let (mut pause, mut looked) = (PAUSE.0, begun);
    let (mut holders, mut moved) = (Vec::new(), begun);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(e)) => {
                return Err(Error::os(format!("locking {}", path.display()), &e));
            }
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let now: Vec<Holder> = pids_of(file).into_iter().map(Holder::look).collect();
            if now.iter().any(|holder| holder.is_at_work(&holders)) {
                moved = looked;
            }
            holders = now;
            let still = if holders.is_empty() { UNSEEN_MOST } else { STILL };
            if moved.elapsed() >= still || begun.elapsed() >= most {
                return Err(busy(path, &holders, begun.elapsed()));
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// A process that has the lock.
#[derive(Clone, PartialEq, Eq)]
struct Holder {
    pid: u32,
    /// Its state and the processor time that it has used, in ticks; `None` if it is gone, and
    /// another process has inherited the lock, or if it may not be looked at.
    doing: Option<(char, u64)>,
}

impl Holder {
    fn look(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        Holder { pid, doing: stat.and_then(|stat| doing(&stat)) }
    }

    /// Whether it has done anything since those were looked at, or does now.
    fn is_at_work(&self, before: &[Holder]) -> bool {
        let runs = self.doing.is_some_and(|(state, _)| matches!(state, 'R' | 'D'));
        let known = before.iter().find(|holder| holder.pid == self.pid);
        // One that has just come has done something.
        runs || known.is_none_or(|known| self.ticks() > known.ticks())
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
        let whose = format!("of {}", lease::shown_user(user));
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

/// The processes that have this file locked, as far as the kernel tells.
fn pids_of(file: &File) -> Vec<u32> {
    let Ok(meta) = file.metadata() else { return Vec::new() };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let device = meta.dev();
    let place = format!("{:02x}:{:02x}:{}", libc::major(device), libc::minor(device), meta.ino());
    pids_at(&locks, &place)
}

/// The same, of the file at this place; those that wait for a lock are no holders.
fn pids_at(locks: &str, place: &str) -> Vec<u32> {
    let pid = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        (words.next()? == "FLOCK").then_some(())?;
        let pid = words.nth(2)?;
        (words.next()? == place).then(|| pid.parse().ok()).flatten()
    };
    let mut pids: Vec<u32> = locks.lines().filter_map(pid).filter(|&pid| pid != 0).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn busy(path: &Path, holders: &[Holder], waited: Duration) -> Error {
    let at = path.display();
    let who: Vec<String> = holders.iter().map(Holder::describe).collect();
    let who = if who.is_empty() {
        "a process that cannot be seen from here (perhaps of another container)".to_owned()
    } else {
        format!("process {}", who.join(", and process "))
    };
    let seconds = waited.as_secs();
    Error::new(
        Kind::Busy,
        format!(
            "{at} is locked by {who}: that has not let it go for {seconds} s; let that process go \
             on, or end it, and try again; nothing was changed"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::{doing, pids_at};

    #[test]
    fn holders_are_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1a:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1a:7 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 00:1a:7 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 14 00:1a:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 15 00:1a:77 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 0 00:1a:7 0 EOF\n\
                     6: FLOCK\n";
        assert_eq!(pids_at(locks, "00:1a:7"), [12, 14]);
        assert_eq!(pids_at(locks, "00:1b:7"), [0_u32; 0]);
    }

    #[test]
    fn what_a_process_does_is_read_whatever_its_name() {
        let stat = "7 (a) R) (b) T 1 7 7 0 -1 4194304 5 0 0 0 31 11 0 0 20 0 1 0 9 0 0";
        assert_eq!(doing(stat), Some(('T', 42)));
        assert_eq!(doing("7 (a) R 1 2"), None);
        assert_eq!(doing(""), None);
    }
}
