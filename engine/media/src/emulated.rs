//! Persistent memory, emulated, for evaluation alone: memory that takes as long as that would.
//!
//! The figures that papers on persistent memory report were measured on machines that few have. A
//! pool that was made to emulate it copies as any other, and then waits until a device of the
//! published latency and bandwidth would be done. Bandwidth is the device's, so processes share it:
//! each copy books its time on the device's clock, which all of them map, and waits for the end of
//! what it booked.
//!
//! Only what the engine copies is paced: puts, allocations that are written, boxes that are stored
//! and loaded, values that are read. A computation on a view has the machine's own memory.
//!
//! Figures of such a pool are no measurement of a medium, and are to be labelled as emulated.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::map::{MappedFile, PAGE};
use engram_base::error::{Error, Result};

/// The file in the pool's folder that has the device's clock.
pub const CLOCK_FILE: &str = "emulated";

/// A clock that is further ahead was left by a machine that has started anew since, in ns.
const AHEAD_MAX_NS: u64 = 10_000_000_000;

/// A way to use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// 300 ns, 30 GB/s.
    Read,
    /// 125 ns, 8 GB/s.
    Write,
}

impl Access {
    /// How long one access takes, beside what its bytes do.
    const fn latency_ns(self) -> u64 {
        match self {
            Access::Read => 300,
            Access::Write => 125,
        }
    }

    /// How long the device is busy with so many bytes.
    const fn busy_ns(self, bytes: u64) -> u64 {
        match self {
            Access::Read => bytes / 30,
            Access::Write => bytes / 8,
        }
    }
}

/// The device's clock: until when it is busy.
#[derive(Debug)]
pub struct Emulated {
    page: MappedFile,
}

impl Emulated {
    /// The clock of the pool at `pool`; made, if it is not there yet.
    pub fn open(pool: &Path) -> Result<Emulated> {
        let path = pool.join(CLOCK_FILE);
        let failed = |e| {
            let what = format!("{} emulates persistent memory for its maker alone", pool.display());
            Error::os(what, &e)
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(failed)?;
        // Written, not truncated: a page that has no block cannot be mapped safely.
        if file.metadata().map_err(failed)?.len() < PAGE {
            file.write_all_at(&[0; PAGE as usize], 0).map_err(failed)?;
        }
        Ok(Emulated { page: MappedFile::map(&file, PAGE)? })
    }

    /// Does work that uses the device, and waits until that would be done with it.
    pub fn paced<T>(&self, access: Access, bytes: u64, work: impl FnOnce() -> T) -> T {
        let until = self.book(access, bytes);
        let done = work();
        while now_ns() < until {
            std::hint::spin_loop();
        }
        done
    }

    /// Books the device for so many bytes; when it is done with them.
    fn book(&self, access: Access, bytes: u64) -> u64 {
        let now = now_ns();
        let end = |busy_until: u64| {
            let ahead = busy_until.saturating_sub(now);
            let start = if ahead > AHEAD_MAX_NS { now } else { now.max(busy_until) };
            start + access.busy_ns(bytes)
        };
        let clock = self.clock();
        let mut seen = clock.load(Ordering::Relaxed);
        // Only the time is agreed on: nothing else hangs on the order of these.
        while let Err(other) =
            clock.compare_exchange_weak(seen, end(seen), Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = other;
        }
        end(seen) + access.latency_ns()
    }

    fn clock(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped for reading and writing as long as `self` lives, its start is
        // aligned, and every process touches the number by atomic operations alone.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().cast()) }
    }

    /// Lets go of the file, so that its filesystem can be unmounted.
    pub fn let_go(&self) {
        self.page.exchange(0);
    }
}

/// The time since the machine started: the same in every process.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a local; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_busy_for_as_long_as_all_who_use_it_book() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) =
            (Emulated::open(dir.path()).unwrap(), Emulated::open(dir.path()).unwrap());
        let start = now_ns();
        // 8 MB at 8 GB/s are a millisecond, whoever of the two writes them.
        let first = one.book(Access::Write, 8_000_000);
        let second = other.book(Access::Write, 8_000_000);
        assert!(first >= start + 1_000_125, "{first} {start}");
        assert_eq!(second, first + 1_000_000);
        let read = one.book(Access::Read, 30_000_000);
        assert_eq!(read, second + 1_000_000 - 125 + 300);
        assert_eq!(one.paced(Access::Read, 0, || 7), 7);
        assert!(now_ns() >= second, "a read waits for what was booked before it");
    }

    #[test]
    fn a_clock_that_another_boot_has_left_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let device = Emulated::open(dir.path()).unwrap();
        device.clock().store(u64::MAX / 2, Ordering::Relaxed);
        let start = now_ns();
        assert!(device.book(Access::Write, 800) < start + AHEAD_MAX_NS);
    }
}
