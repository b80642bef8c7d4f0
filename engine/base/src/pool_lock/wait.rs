//! Waiting for a lock of the kernel on a file that another process may keep for ever.
//!
//! `/proc/locks` names its holder; `pool_lock/watch.rs` says how long it is waited for.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::watch::{LockHolder, Watch};
use crate::error::{Error, Result};

/// Between two tries: at first, and in the end.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

/// Locks a file or folder, whatever signals come. `Busy` where its holder stands still, or has it
/// for longer than `most`.
pub fn wait_for(file: &File, path: &Path, most: Duration) -> Result<()> {
    let (mut pause, mut watch) = (PAUSE.0, Watch::begin());
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(e)) => {
                return Err(Error::os(format!("locking {}", path.display()), &e));
            }
        }
        let holders = || pids_of(file).into_iter().map(LockHolder::process).collect();
        if watch.is_vain(holders) || watch.waited() >= most {
            return Err(watch.busy(path.display()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
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

#[cfg(test)]
mod tests {
    use super::pids_at;

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
}
