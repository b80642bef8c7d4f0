//! Span files: every byte allocated before anybody maps one.
//!
//! A write into a mapped page that has no block is a SIGBUS when the filesystem is full. So a span
//! is never made by `ftruncate`, which leaves holes, but by `fallocate`, which takes the blocks or
//! says that there are none. The order in [`create`]:
//!
//! 1. create, exclusively, so that no other's file is ever taken over;
//! 2. look at the memory that may be taken (tmpfs: beyond it the kernel kills, see `cgroup`);
//! 3. make huge pages (tmpfs), as far as there are any: an attempt, whose failure means nothing;
//! 4. allocate everything; on any error remove the file, so that a refusal leaves nothing behind;
//! 5. on persistent memory: write zeros to all of it. The blocks are there, but the filesystem
//!    calls them unwritten, and would commit its journal at the first store into each;
//! 6. on a durable mount: sync the file, then its directory.
//!
//! Only then may a row point to it. A process that dies in between leaves a file that no row points
//! to: bytes that are free, which the next taker of that name removes.
//!
//! Why huge pages are made by hand: a tmpfs is nearly always mounted with `huge=never`, the
//! default, and then each process that comes to a page of 4 KiB for the first time takes a fault
//! for it. `MADV_COLLAPSE` makes huge pages whatever the mount says, out of units that have one
//! page each. Measured on /dev/shm, GB/s: allocating 16 against 4 by `fallocate` alone, the first
//! copy into the new span 16 against 3.3, and the same again for the first copy of every other
//! process. A span is a multiple of 2 MiB, so this costs no byte: every page it makes is a page of
//! the span. It is tried on new files alone, so no data of anybody's is ever moved by it.
//!
//! Why not at any price: a virtual machine's host may have taken back what lies free in large
//! pieces (free page reporting), and gives it back page by page at the first touch. Measured so:
//! huge pages at 0.25 to 1 GB/s, where small pages, out of what was in use a moment ago, come at 6.
//! So [`create`] makes huge pages only as long as they come quickly ([`Pace`]). A caller that asks
//! for space beforehand (`prefault`) has the time: [`make_huge`] gives what there is.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::filesystem::{Free, FsKind, Mount};
use super::map::{HUGE, PAGE, collapse};
use super::{Medium, cgroup};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::size::ByteSize;

/// What is made of huge pages in the first call, and at most in one, which no signal interrupts.
const HUGE_STEPS: (u64, u64) = (4 << 20, 256 << 20);
/// Huge pages that come more slowly, in bytes in a microsecond, come from memory that is not there
/// yet, or one page after the other: small pages, and `first_touch`, are faster.
const HUGE_SPEED: u64 = 2000;
/// So many steps in a row must be slow: one may be so because others had the processor.
const HUGE_SLOW: u32 = 2;
/// How many steps of this process, up to the last one, were slow, and when that was.
static SLOW: Mutex<Option<(u32, Instant)>> = Mutex::new(None);
/// For so long nothing is tried again.
const HUGE_PAUSE: Duration = Duration::from_secs(10);
/// Memory is allocated in steps, so that a signal costs at most one step: an interrupted
/// `fallocate` gives back all of its call (before Linux 5.18 any signal interrupts it).
const STEP: u64 = 64 << 20;
/// Signals that come faster than steps complete make the steps smaller, down to this.
const STEP_LEAST: u64 = 64 << 10;

/// Creates the file `path` of `len` allocated, zero bytes with exactly the permissions `mode`.
///
/// On error there is no such file (if one was there before, it is untouched and the error is
/// `Exists`): `PoolFull` names the mount or the memory limit; make room and call again.
pub fn create(path: &Path, len: u64, mode: u32, mount: &Mount) -> Result<File> {
    check_length(path, len)?;
    let shown = path.display();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
        .map_err(|e| Error::os(format_args!("cannot create {shown}"), &e))?;
    fill(&file, path, len, mode, mount).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(file)
}

/// Steps 2 to 6 of [`create`].
fn fill(file: &File, path: &Path, len: u64, mode: u32, mount: &Mount) -> Result<()> {
    let shown = path.display();
    let medium = Medium::of(file)?;
    let memory = medium == Medium::Memory;
    if memory {
        cgroup::admit(len, &format!("allocating {shown}"))?;
    }
    // The process's umask has no say in who shares a realm.
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(|e| Error::os(format_args!("cannot set mode {mode:o} of {shown}"), &e))?;
    if mount.kind == FsKind::Tmpfs && len >= HUGE {
        let before = *slow_steps();
        if let Some(mut pace) = Pace::quick(before) {
            huge_pages(file, len, &mut pace);
        }
    }
    allocate(file, path, len, if memory { STEP } else { len })?;
    if medium == Medium::Dax {
        write_zeros(file, len).map_err(|e| Error::os(format_args!("cannot zero {shown}"), &e))?;
    }
    if mount.durable {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        file.sync_all()
            .and_then(|()| File::open(parent)?.sync_all())
            .map_err(|e| Error::os(format_args!("cannot sync {shown} and its directory"), &e))?;
    }
    Ok(())
}

/// Opens the span file `path`, which must be a plain file of exactly `len` bytes.
///
/// With `writable`, space that is missing (a copy that left out the zeros) is allocated again, but
/// for the `vacant` ranges, by offset: (offset, bytes).
/// On error nothing has changed: `Corrupt` says what stands there instead.
pub fn open(path: &Path, len: u64, writable: bool, vacant: &[FilePart]) -> Result<File> {
    check_length(path, len)?;
    let shown = path.display();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(writable)
        // A FIFO that somebody put here must not make the open wait.
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => {
                Error::new(Kind::Corrupt, format!("{shown} is a symbolic link, not a span file"))
            }
            Some(libc::ENXIO | libc::EISDIR) => {
                Error::new(Kind::Corrupt, format!("{shown} is not a plain file"))
            }
            _ => Error::os(format_args!("cannot open {shown}"), &e),
        })?;
    let meta = file
        .metadata()
        .map_err(|e| Error::os(format_args!("cannot look at {shown} (fstat)"), &e))?;
    if !meta.is_file() {
        fail!(Corrupt, "{shown} is not a plain file");
    }
    if writable && meta.nlink() > 1 {
        fail!(
            Corrupt,
            "{shown} has another name, so what is written here would be in another's file too; \
             copy pools with `engram backup`, not by links"
        );
    }
    if meta.len() != len {
        fail!(
            Corrupt,
            "{shown} is {} bytes long and should be {len}: it was truncated or replaced; restore \
             it from a copy of the whole pool",
            meta.len()
        );
    }
    // What is vacant may have blocks: how many the rest lacks is not known by their number.
    let missing = len.saturating_sub(meta.blocks().saturating_mul(512));
    if writable && missing > 0 {
        let mut at = 0;
        for range in vacant.iter().chain([&FilePart { offset: len, len: 0 }]) {
            if range.offset > at {
                let gap = FilePart { offset: at, len: range.offset - at };
                allocate_missing(&file, path, gap, missing)?;
            }
            at = range.offset + range.len;
        }
    }
    Ok(file)
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
}

/// Gives blocks to a range of a span's file that lacks some; what has blocks stays as it is. On
/// error a part of it may have some.
pub fn allocate_range(file: &File, path: &Path, range: FilePart) -> Result<()> {
    allocate_missing(file, path, range, range.len)
}

/// The same for a range that lacks no more than so many bytes.
fn allocate_missing(file: &File, path: &Path, range: FilePart, missing: u64) -> Result<()> {
    if Medium::of(file)? == Medium::Memory {
        cgroup::admit(
            range.len.min(missing),
            &format!("allocating what {} lacks", path.display()),
        )?;
    }
    let end = range.offset + range.len;
    check_file_limit(end).map_err(|e| e.context(path.display()))?;
    in_steps(range.len, STEP, |done, now| fallocate(file, range.offset + done, now))
        .map_err(|e| refusal(&e, path, range.len))
}

/// Gives the blocks of whole pages of a file back to the filesystem, which reads zeros there
/// from then on. Nobody may look at them, nor come to before they have blocks again.
pub fn punch(file: &File, range: FilePart) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, len) = (range.offset as i64, range.len as i64);
    // SAFETY: the call takes numbers alone.
    retry(|| match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    })
}

/// A span has bytes, and no more than a file can have.
fn check_length(path: &Path, len: u64) -> Result<()> {
    if len == 0 || i64::try_from(len).is_err() {
        fail!(Argument, "a span of {len} bytes cannot be: {}", path.display());
    }
    Ok(())
}

fn slow_steps() -> MutexGuard<'static, Option<(u32, Instant)>> {
    SLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How huge pages come, and whether to go on making them.
struct Pace {
    step: u64,
    slow: u32,
    patient: bool,
}

impl Pace {
    /// Begins the pace of a new span. `before` counts the steps that were slow, and says when the
    /// last one was. `None` says not to use huge pages, because they were slow a moment ago.
    fn quick(before: Option<(u32, Instant)>) -> Option<Self> {
        let (slow, since) = before.unzip();
        let slow = slow.unwrap_or(0);
        let at_rest = slow >= HUGE_SLOW && since.is_some_and(|at| at.elapsed() < HUGE_PAUSE);
        let step = if slow < HUGE_SLOW { HUGE_STEPS.0 } else { HUGE };
        (!at_rest).then_some(Pace { step, slow, patient: false })
    }

    /// Takes in that so many bytes took that time, and says whether to go on.
    fn goes_on(&mut self, bytes: u64, took: Duration) -> bool {
        if took.as_micros() as u64 * HUGE_SPEED > bytes {
            self.slow += 1;
            self.step = HUGE_STEPS.0;
        } else {
            self.slow = 0;
            self.step = (self.step * 2).clamp(HUGE_STEPS.0, HUGE_STEPS.1);
        }
        self.patient || self.slow < HUGE_SLOW
    }
}

/// Makes a tmpfs file's `len` bytes of huge pages, however long that takes, as far as the kernel
/// has any. Whatever else has the file mapped sees no difference.
pub fn make_huge(file: &File, len: u64) -> u64 {
    huge_pages(file, len, &mut Pace { patient: true, step: HUGE_STEPS.0, slow: 0 })
}

/// Makes a tmpfs file of `len` bytes of huge pages, as far as that can be done now; what it
/// leaves out, [`allocate`] allocates. Says up to which byte it came.
fn huge_pages(file: &File, len: u64, pace: &mut Pace) -> u64 {
    // The last page first: it gives the file its length, without which nothing can be mapped.
    if check_file_limit(len).is_err()
        || fallocate(file, len - PAGE.min(len), PAGE.min(len)).is_err()
    {
        return 0;
    }
    let whole = len - len % HUGE;
    let mut done = 0;
    while done < whole {
        let now = pace.step.min(whole - done);
        let start = Instant::now();
        for unit in (done..done + now).step_by(HUGE as usize) {
            if retry(|| fallocate(file, unit, PAGE)).is_err() {
                return done;
            }
        }
        match collapse(file, done, now) {
            Ok(()) => {}
            // A page was busy for a moment: its unit stays as it is.
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
            // Memory is short or scattered, or the kernel has no such pages or no such call.
            Err(_) => return done,
        }
        done += now;
        let goes_on = pace.goes_on(now, start.elapsed());
        *slow_steps() = Some((pace.slow, Instant::now()));
        if !goes_on {
            return done;
        }
    }
    done
}

/// Allocates the first `len` bytes of `file`, in steps, whatever signals come.
fn allocate(file: &File, path: &Path, len: u64, step: u64) -> Result<()> {
    check_file_limit(len).map_err(|e| e.context(path.display()))?;
    in_steps(len, step, |offset, now| fallocate(file, offset, now))
        .map_err(|e| refusal(&e, path, len))
}

/// Covers `[0, len)` by calls of at most `step` bytes. An interrupted one is made again, smaller.
fn in_steps(
    len: u64,
    mut step: u64,
    mut call: impl FnMut(u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let now = step.min(len - done);
        match call(done, now) {
            Ok(()) => done += now,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => step = (now / 2).max(STEP_LEAST),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes zeros over the first `len` bytes.
fn write_zeros(file: &File, len: u64) -> io::Result<()> {
    let zeros = vec![0; HUGE as usize];
    let mut done = 0;
    while done < len {
        let now = HUGE.min(len - done);
        file.write_all_at(&zeros[..now as usize], done)?;
        done += now;
    }
    Ok(())
}

/// One `fallocate`, which also makes the file as long as where it ends.
fn fallocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: the call takes numbers alone.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, offset as i64, len as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls until no signal interrupts.
fn retry(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// What a failed `fallocate` means.
fn refusal(error: &io::Error, path: &Path, len: u64) -> Error {
    let shown = path.display();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Error::new(
            Kind::Unsupported,
            format!(
                "the filesystem of {shown} cannot allocate space ahead (fallocate): use tmpfs, \
                 ext4 or xfs"
            ),
        ),
        Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM) => {
            let dir = path.parent().unwrap_or(path);
            let none = Free { bytes: 0, bound: None };
            let free = super::filesystem::free(dir).unwrap_or(none);
            Error::new(
                Kind::PoolFull,
                format!(
                    "{shown} needs {}, its filesystem has {} free ({error}): {}",
                    ByteSize(len),
                    ByteSize(free.bytes),
                    free.remedy()
                ),
            )
        }
        _ => Error::os(format_args!("cannot allocate {len} bytes for {shown}"), error),
    }
}

/// Growing a file beyond `RLIMIT_FSIZE` is a signal that kills, not an error: so ask first.
fn check_file_limit(len: u64) -> Result<()> {
    match file_limit() {
        Some(limit) if len > limit => fail!(
            PoolFull,
            "a file of {} is needed, and this process may write files of {} at most \
             (RLIMIT_FSIZE): raise it with `ulimit -f`",
            ByteSize(len),
            ByteSize(limit)
        ),
        _ => Ok(()),
    }
}

/// Up to which byte this process may write to files. A write beyond it is the same signal, also
/// where the file is longer.
pub(super) fn file_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: `limit` is what the call fills; on failure it says "no limit" still.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests;
