//! Futexes: a thread sleeps until a word that several processes map is not what it was.
//!
//! The words lie in files, so no call here is of the private kind. A sleep may end for no reason,
//! and says no more than why the kernel woke the thread: whoever sleeps looks at the word again.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use engram_base::error::{Error, Result};

/// Why a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awoken {
    /// Somebody has woken this thread, or a word was not what was expected, or for no reason.
    Called,
    /// A signal has come.
    BySignal,
    /// The time was up.
    InTime,
}

/// A word, as `futex_waitv` is told of it.
#[repr(C)]
struct WaitedFor {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// The words are of 32 bits (`FUTEX2_SIZE_U32`), and of several processes.
const SIZE_U32: u32 = 2;

/// Sleeps while the word has this value, for so long at most.
pub fn sleep(word: &AtomicU32, value: u32, within: Duration) -> Result<Awoken> {
    let time = timespec(within);
    // SAFETY: the kernel reads a live word and a valid time, and writes to neither.
    let rc = unsafe {
        let (how, none) = (libc::FUTEX_WAIT, std::ptr::null::<u32>());
        libc::syscall(libc::SYS_futex, word.as_ptr(), how, value, &raw const time, none, 0)
    };
    after(rc)
}

/// Sleeps while each word has the value beside it, for so long at most. `None`: this kernel cannot
/// (Linux before 5.16, or a container that forbids it).
pub fn sleep_on_any(words: &[(&AtomicU32, u32)], within: Duration) -> Result<Option<Awoken>> {
    let all: Vec<WaitedFor> = words
        .iter()
        .map(|(word, value)| WaitedFor {
            value: u64::from(*value),
            address: word.as_ptr().addr() as u64,
            flags: SIZE_U32,
            reserved: 0,
        })
        .collect();
    let until = timespec(since_boot() + within);
    // SAFETY: as many valid entries as are said, each with the address of a live word, and a valid
    // time; the kernel reads them, and writes to none.
    let rc = unsafe {
        let (count, clock) = (all.len(), libc::CLOCK_MONOTONIC);
        libc::syscall(libc::SYS_futex_waitv, all.as_ptr(), count, 0, &raw const until, clock)
    };
    // A container's filter that does not know the call yet forbids it.
    let refused = || std::io::Error::last_os_error().raw_os_error();
    if rc < 0 && matches!(refused(), Some(libc::ENOSYS | libc::EPERM)) {
        return Ok(None);
    }
    after(rc).map(Some)
}

/// Wakes every thread that sleeps on the word, of any process.
pub fn wake_all(word: &AtomicU32) {
    let none = std::ptr::null::<u32>();
    // SAFETY: the address of a live word, which the kernel does not even read.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, none, none, 0);
    }
}

fn after(rc: libc::c_long) -> Result<Awoken> {
    if rc >= 0 {
        return Ok(Awoken::Called);
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(Awoken::Called),
        Some(libc::EINTR) => Ok(Awoken::BySignal),
        Some(libc::ETIMEDOUT) => Ok(Awoken::InTime),
        _ => Err(Error::os("cannot sleep until something is committed (futex)", &error)),
    }
}

fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a valid place; Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::{Awoken, sleep, sleep_on_any, wake_all};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn nobody_sleeps_on_a_word_that_has_changed() {
        let (one, other) = (AtomicU32::new(3), AtomicU32::new(4));
        assert_eq!(sleep(&one, 2, LONG), Ok(Awoken::Called));
        assert_eq!(sleep(&one, 3, SHORT), Ok(Awoken::InTime));
        if let Some(awoken) = sleep_on_any(&[(&one, 3), (&other, 3)], LONG).unwrap() {
            assert_eq!(awoken, Awoken::Called);
            let both = [(&one, 3), (&other, 4)];
            assert_eq!(sleep_on_any(&both, SHORT), Ok(Some(Awoken::InTime)));
        }
    }

    #[test]
    fn who_sleeps_on_several_words_is_woken_by_each() {
        for at in 0..2 {
            let words = [AtomicU32::new(0), AtomicU32::new(0)];
            thread::scope(|scope| {
                scope.spawn(|| {
                    let all = [(&words[0], 0), (&words[1], 0)];
                    while words[at].load(Ordering::SeqCst) == 0 {
                        if sleep_on_any(&all, LONG).unwrap().is_none() {
                            return;
                        }
                    }
                });
                words[at].store(1, Ordering::SeqCst);
                wake_all(&words[at]);
            });
        }
    }
}
