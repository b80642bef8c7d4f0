//! What a file says of itself: kind, mode, owner, times; and its file system.

use std::ffi::{c_char, c_int, c_uint};

use engram_fs::trace::Operation;
use engram_fs::{At, Stat, Statfs, Time};
use libc::{gid_t, mode_t, timespec, timeval, uid_t};

use crate::calls::descriptors::refused;
use crate::descriptors::{self, Held};
use crate::inside::is_inside;
use crate::places::{by_path, inside};
use crate::process;
use crate::real::{interpose, real, set_errno};
use crate::traced;
use crate::trees::Tree;

const HERE: c_int = libc::AT_FDCWD;
const BLOCK: i64 = 4096;
/// What file systems of ours are to `statfs`: "ENGR".
const KIND: i64 = 0x454e_4752;

/// The device that a tree is, as long as the program runs: one that no real file system has.
fn device(tree: &Tree) -> u64 {
    libc::makedev(0xe46, tree.number)
}

const NS: i64 = 1_000_000_000;

fn seconds(ns: i64) -> (i64, i64) {
    (ns.div_euclid(NS), ns.rem_euclid(NS))
}

/// Tells C what is known of a node.
unsafe fn tell(tree: &Tree, stat: &Stat, to: *mut libc::stat) {
    // SAFETY: plain data, for which zeros are valid.
    let mut told: libc::stat = unsafe { std::mem::zeroed() };
    told.st_dev = device(tree);
    told.st_ino = stat.ino;
    told.st_mode = stat.full_mode();
    told.st_nlink = stat.nlink.into();
    told.st_uid = stat.uid;
    told.st_gid = stat.gid;
    told.st_rdev = stat.rdev;
    told.st_size = stat.size as i64;
    told.st_blksize = BLOCK as _;
    told.st_blocks = stat.blocks as i64;
    (told.st_atime, told.st_atime_nsec) = seconds(stat.accessed);
    (told.st_mtime, told.st_mtime_nsec) = seconds(stat.written);
    (told.st_ctime, told.st_ctime_nsec) = seconds(stat.changed);
    // SAFETY: the program's promise.
    unsafe { to.write(told) };
}

/// What is known of an open file. The thread is inside.
fn stat_of(held: &Held) -> engram_fs::Result<Stat> {
    match held.file() {
        Ok(file) => file.stat(),
        Err(_) => held.opened()?.fs.stat(held.description().node()),
    }
}

fn held(fd: c_int) -> Option<Held> {
    if is_inside() { None } else { descriptors::get(fd) }
}

unsafe fn stat_held(held: &Held, to: *mut libc::stat) -> c_int {
    inside(|| {
        let stat = stat_of(held)?;
        let Some(tree) = held.tree() else { return Err(refused(libc::ESTALE, "its tree is gone")) };
        // SAFETY: the program's promise.
        unsafe { tell(tree, &stat, to) };
        traced::held(Operation::Stat, held);
        Ok(0)
    })
}

/// Whether a call means the descriptor itself.
unsafe fn is_empty(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: a string, as the program gave it.
    flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

unsafe fn stat_at(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        if is_empty(path, flags)
            && let Some(held) = held(folder)
        {
            return stat_held(&held, to);
        }
        let done = by_path(
            folder,
            path,
            |tree, _, asked, at| {
                let stat = asked.stat(at, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
                tell(tree, &stat, to);
                Ok(0)
            },
            |folder, path| {
                real!(
                    fstatat(folder: c_int, path: *const c_char, to: *mut libc::stat,
                        flags: c_int) -> c_int
                )
            },
        );
        traced::done(done, Operation::Stat, folder, path)
    }
}

fn stat_fd(fd: c_int, to: *mut libc::stat) -> c_int {
    match held(fd) {
        // SAFETY: the program's promise.
        Some(held) => unsafe { stat_held(&held, to) },
        None if !is_inside() && descriptors::is_hidden(fd) => descriptors::bad_number(),
        None => real!(fstat(fd: c_int, to: *mut libc::stat) -> c_int),
    }
}

fn time_of(at: i64) -> libc::statx_timestamp {
    // SAFETY: plain data, for which zeros are valid.
    let mut told: libc::statx_timestamp = unsafe { std::mem::zeroed() };
    let (seconds, nanoseconds) = seconds(at);
    (told.tv_sec, told.tv_nsec) = (seconds, nanoseconds as u32);
    told
}

unsafe fn tell_x(tree: &Tree, stat: &Stat, to: *mut libc::statx) {
    // SAFETY: plain data, for which zeros are valid.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    told.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    told.stx_blksize = BLOCK as u32;
    told.stx_nlink = stat.nlink;
    (told.stx_uid, told.stx_gid) = (stat.uid, stat.gid);
    told.stx_mode = stat.full_mode() as u16;
    (told.stx_ino, told.stx_size, told.stx_blocks) = (stat.ino, stat.size, stat.blocks);
    told.stx_atime = time_of(stat.accessed);
    told.stx_btime = time_of(stat.created);
    told.stx_ctime = time_of(stat.changed);
    told.stx_mtime = time_of(stat.written);
    (told.stx_rdev_major, told.stx_rdev_minor) = (libc::major(stat.rdev), libc::minor(stat.rdev));
    let device = device(tree);
    (told.stx_dev_major, told.stx_dev_minor) = (libc::major(device), libc::minor(device));
    // SAFETY: the program's promise.
    unsafe { to.write(told) };
}

unsafe fn statx_at(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        if is_empty(path, flags)
            && let Some(held) = held(folder)
        {
            return inside(|| {
                let stat = stat_of(&held)?;
                held.tree().into_iter().for_each(|tree| tell_x(tree, &stat, to));
                Ok(0)
            });
        }
        let done = by_path(
            folder,
            path,
            |tree, _, asked, at| {
                let stat = asked.stat(at, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
                tell_x(tree, &stat, to);
                Ok(0)
            },
            |folder, path| {
                real!(
                    statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint,
                        to: *mut libc::statx) -> c_int
                )
            },
        );
        traced::done(done, Operation::Stat, folder, path)
    }
}

unsafe fn chmod_at(folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    // SAFETY: a string, as the program gave it.
    unsafe {
        let done = by_path(
            folder,
            path,
            |_, _, asked, at| {
                asked.chmod(at, mode, flags & libc::AT_SYMLINK_NOFOLLOW == 0).map(|()| 0)
            },
            |folder, path| {
                real!(
                    fchmodat(folder: c_int, path: *const c_char, mode: mode_t, flags: c_int)
                        -> c_int
                )
            },
        );
        traced::done(done, Operation::Setattr, folder, path)
    }
}

fn given(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

unsafe fn chown_at(
    folder: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    // SAFETY: a string, as the program gave it.
    unsafe {
        if is_empty(path, flags)
            && let Some(held) = held(folder)
        {
            return chown_held(&held, uid, gid);
        }
        let done = by_path(
            folder,
            path,
            |_, _, asked, at| {
                let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
                asked.chown(at, given(uid), given(gid), follow).map(|()| 0)
            },
            |folder, path| {
                real!(
                    fchownat(folder: c_int, path: *const c_char, uid: uid_t, gid: gid_t,
                        flags: c_int) -> c_int
                )
            },
        );
        traced::done(done, Operation::Setattr, folder, path)
    }
}

/// Does something to the node of a descriptor; the thread is inside.
fn on_held(
    held: &Held,
    act: impl FnOnce(engram_fs::Asked<'static>, At<'static>) -> engram_fs::Answer<()>,
) -> c_int {
    inside(|| {
        if held.description().flags() & libc::O_PATH != 0 {
            return Err(refused(libc::EBADF, "it was opened by O_PATH, for its name alone"));
        }
        match act(held.asked()?, At::node(held.description().node())) {
            Ok(()) => Ok(0),
            Err(engram_fs::Unanswered::Refused(error)) => Err(error),
            Err(_) => Err(refused(libc::EXDEV, "a node leads nowhere")),
        }
    })
}

fn chown_held(held: &Held, uid: uid_t, gid: gid_t) -> c_int {
    on_held(held, |asked, at| asked.chown(at, given(uid), given(gid), true))
}

/// A time to be set; `None`: it stays.
fn time(at: timespec) -> engram_fs::Result<Option<Time>> {
    Ok(match at.tv_nsec {
        libc::UTIME_NOW => Some(Time::Now),
        libc::UTIME_OMIT => None,
        ns @ 0..NS => {
            let seconds = at.tv_sec.saturating_mul(NS);
            Some(Time::At(seconds.saturating_add(ns)))
        }
        _ => return Err(refused(libc::EINVAL, "a second has a thousand million nanoseconds")),
    })
}

type Times = (Option<Time>, Option<Time>);

unsafe fn times_of(times: *const timespec) -> engram_fs::Result<Times> {
    if times.is_null() {
        return Ok((Some(Time::Now), Some(Time::Now)));
    }
    // SAFETY: two of them, as the program promises.
    let [accessed, written] = unsafe { [*times, *times.add(1)] };
    Ok((time(accessed)?, time(written)?))
}

unsafe fn utimes_at(
    folder: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        if (path.is_null() || is_empty(path, flags))
            && let Some(held) = held(folder)
        {
            return utimes_held(&held, times);
        }
        let done = by_path(
            folder,
            path,
            |_, _, asked, at| {
                let (accessed, written) = times_of(times)?;
                let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
                asked.utimes(at, accessed, written, follow).map(|()| 0)
            },
            |folder, path| {
                real!(
                    utimensat(folder: c_int, path: *const c_char, times: *const timespec,
                        flags: c_int) -> c_int
                )
            },
        );
        traced::done(done, Operation::Setattr, folder, path)
    }
}

unsafe fn utimes_held(held: &Held, times: *const timespec) -> c_int {
    // SAFETY: as the program promises.
    on_held(held, |asked, at| {
        let (accessed, written) = unsafe { times_of(times) }?;
        asked.utimes(at, accessed, written, true)
    })
}

/// Times in microseconds; null, where they are to be now.
unsafe fn finer(times: *const timeval, to: &mut [timespec; 2]) -> Option<*const timespec> {
    if times.is_null() {
        return Some(std::ptr::null());
    }
    for (at, to) in to.iter_mut().enumerate() {
        // SAFETY: two of them, as the program promises.
        let given = unsafe { *times.add(at) };
        if !(0..1_000_000).contains(&given.tv_usec) {
            set_errno(libc::EINVAL);
            return None;
        }
        *to = timespec { tv_sec: given.tv_sec, tv_nsec: given.tv_usec * 1000 };
    }
    Some(to.as_ptr())
}

const NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

unsafe fn utimes_by_us(
    folder: c_int,
    path: *const c_char,
    times: *const timeval,
    flags: c_int,
) -> c_int {
    let mut finely = [NO_TIME; 2];
    // SAFETY: as the program promises.
    unsafe {
        match finer(times, &mut finely) {
            Some(times) => utimes_at(folder, path, times, flags),
            None => -1,
        }
    }
}

unsafe fn tell_fs(found: Statfs, to: *mut libc::statfs) {
    // SAFETY: plain data, for which zeros are valid.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    told.f_type = KIND as _;
    told.f_bsize = BLOCK as _;
    told.f_frsize = BLOCK as _;
    told.f_blocks = found.size / BLOCK as u64;
    told.f_bfree = found.free / BLOCK as u64;
    told.f_bavail = told.f_bfree;
    told.f_files = u64::MAX >> 1;
    told.f_ffree = u64::MAX >> 1;
    told.f_namelen = 255;
    // SAFETY: the program's promise.
    unsafe { to.write(told) };
}

unsafe fn tell_vfs(found: Statfs, to: *mut libc::statvfs) {
    // SAFETY: plain data, for which zeros are valid.
    let mut told: libc::statvfs = unsafe { std::mem::zeroed() };
    told.f_bsize = BLOCK as u64;
    told.f_frsize = BLOCK as u64;
    told.f_blocks = found.size / BLOCK as u64;
    told.f_bfree = found.free / BLOCK as u64;
    told.f_bavail = told.f_bfree;
    told.f_files = u64::MAX >> 1;
    told.f_ffree = u64::MAX >> 1;
    told.f_favail = u64::MAX >> 1;
    told.f_namemax = 255;
    // SAFETY: the program's promise.
    unsafe { to.write(told) };
}

interpose! {
    /// What is known of a path.
    [stat, stat64](path: *const c_char, to: *mut libc::stat) -> c_int {
        // SAFETY: the program's promise.
        unsafe { stat_at(HERE, path, to, 0) }
    }

    /// What is known of a path itself.
    [lstat, lstat64](path: *const c_char, to: *mut libc::stat) -> c_int {
        // SAFETY: the program's promise.
        unsafe { stat_at(HERE, path, to, libc::AT_SYMLINK_NOFOLLOW) }
    }

    /// What is known of an open file.
    [fstat, fstat64](fd: c_int, to: *mut libc::stat) -> c_int {
        stat_fd(fd, to)
    }

    /// What is known of a path from a folder.
    [fstatat, fstatat64](folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int)
        -> c_int
    {
        // SAFETY: the program's promise.
        unsafe { stat_at(folder, path, to, flags) }
    }

    /// As programs asked until 2.32.
    [__xstat, __xstat64](_version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
        // SAFETY: the program's promise.
        unsafe { stat_at(HERE, path, to, 0) }
    }

    /// As programs asked until 2.32.
    [__lxstat, __lxstat64](_version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
        // SAFETY: the program's promise.
        unsafe { stat_at(HERE, path, to, libc::AT_SYMLINK_NOFOLLOW) }
    }

    /// As programs asked until 2.32.
    [__fxstat, __fxstat64](_version: c_int, fd: c_int, to: *mut libc::stat) -> c_int {
        stat_fd(fd, to)
    }

    /// As programs asked until 2.32.
    [__fxstatat, __fxstatat64](
        _version: c_int, folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe { stat_at(folder, path, to, flags) }
    }

    /// What is known of a path, in more words.
    [statx](
        folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe { statx_at(folder, path, flags, mask, to) }
    }

    /// Changes a mode.
    [chmod](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { chmod_at(HERE, path, mode, 0) }
    }

    /// Changes a symbolic link's mode, which it keeps.
    [lchmod](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { chmod_at(HERE, path, mode, libc::AT_SYMLINK_NOFOLLOW) }
    }

    /// Changes a mode, from a folder.
    [fchmodat](folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { chmod_at(folder, path, mode, flags) }
    }

    /// Changes an open file's mode.
    [fchmod](fd: c_int, mode: mode_t) -> c_int {
        match held(fd) {
            Some(held) => on_held(&held, |asked, at| asked.chmod(at, mode, true)),
            None => real!(fchmod(fd: c_int, mode: mode_t) -> c_int),
        }
    }

    /// Changes an owner.
    [chown](path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { chown_at(HERE, path, uid, gid, 0) }
    }

    /// Changes the owner of a path itself.
    [lchown](path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { chown_at(HERE, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW) }
    }

    /// Changes an owner, from a folder.
    [fchownat](folder: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int)
        -> c_int
    {
        // SAFETY: the program's promise.
        unsafe { chown_at(folder, path, uid, gid, flags) }
    }

    /// Changes an open file's owner.
    [fchown](fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        match held(fd) {
            Some(held) => chown_held(&held, uid, gid),
            None => real!(fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int),
        }
    }

    /// Sets times, from a folder.
    [utimensat](folder: c_int, path: *const c_char, times: *const timespec, flags: c_int)
        -> c_int
    {
        // SAFETY: the program's promise.
        unsafe { utimes_at(folder, path, times, flags) }
    }

    /// Sets an open file's times.
    [futimens](fd: c_int, times: *const timespec) -> c_int {
        match held(fd) {
            // SAFETY: the program's promise.
            Some(held) => unsafe { utimes_held(&held, times) },
            None => real!(futimens(fd: c_int, times: *const timespec) -> c_int),
        }
    }

    /// Sets times, in microseconds.
    [utimes](path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: the program's promise.
        unsafe { utimes_by_us(HERE, path, times, 0) }
    }

    /// Sets the times of a path itself, in microseconds.
    [lutimes](path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: the program's promise.
        unsafe { utimes_by_us(HERE, path, times, libc::AT_SYMLINK_NOFOLLOW) }
    }

    /// Sets times from a folder, in microseconds.
    [futimesat](folder: c_int, path: *const c_char, times: *const timeval) -> c_int {
        // SAFETY: the program's promise.
        unsafe { utimes_by_us(folder, path, times, 0) }
    }

    /// Sets an open file's times, in microseconds.
    [futimes](fd: c_int, times: *const timeval) -> c_int {
        let Some(held) = held(fd) else {
            return real!(futimes(fd: c_int, times: *const timeval) -> c_int);
        };
        let mut finely = [NO_TIME; 2];
        // SAFETY: the program's promise.
        unsafe {
            match finer(times, &mut finely) {
                Some(times) => utimes_held(&held, times),
                None => -1,
            }
        }
    }

    /// Sets times, in seconds.
    [utime](path: *const c_char, times: *const libc::utimbuf) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if times.is_null() {
                return utimes_at(HERE, path, std::ptr::null(), 0);
            }
            let at = |tv_sec: i64| timespec { tv_sec, tv_nsec: 0 };
            let times = [at((*times).actime), at((*times).modtime)];
            utimes_at(HERE, path, times.as_ptr(), 0)
        }
    }

    /// What a file system has.
    [statfs, statfs64, __statfs](path: *const c_char, to: *mut libc::statfs) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| {
                    tell_fs(asked.statfs(at)?, to);
                    Ok(0)
                },
                |_, path| real!(statfs(path: *const c_char, to: *mut libc::statfs) -> c_int),
            )
        }
    }

    /// What an open file's file system has.
    [fstatfs, fstatfs64](fd: c_int, to: *mut libc::statfs) -> c_int {
        match held(fd) {
            Some(held) => inside(|| {
                // SAFETY: the program's promise.
                unsafe { tell_fs(held.opened()?.fs.statfs()?, to) };
                Ok(0)
            }),
            None => real!(fstatfs(fd: c_int, to: *mut libc::statfs) -> c_int),
        }
    }

    /// What a file system has, in POSIX's words.
    [statvfs, statvfs64](path: *const c_char, to: *mut libc::statvfs) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| {
                    tell_vfs(asked.statfs(at)?, to);
                    Ok(0)
                },
                |_, path| real!(statvfs(path: *const c_char, to: *mut libc::statvfs) -> c_int),
            )
        }
    }

    /// What an open file's file system has, in POSIX's words.
    [fstatvfs, fstatvfs64](fd: c_int, to: *mut libc::statvfs) -> c_int {
        match held(fd) {
            Some(held) => inside(|| {
                // SAFETY: the program's promise.
                unsafe { tell_vfs(held.opened()?.fs.statfs()?, to) };
                Ok(0)
            }),
            None => real!(fstatvfs(fd: c_int, to: *mut libc::statvfs) -> c_int),
        }
    }

    /// What is taken off the mode of what is made.
    [umask](mask: mode_t) -> mode_t {
        let before = real!(umask(mask: mode_t) -> mode_t);
        if !crate::trees::all().is_empty() {
            process::note_caller(Some(mask & 0o777));
        }
        before
    }
}
