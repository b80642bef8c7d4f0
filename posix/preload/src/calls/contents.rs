//! Reading, writing and sizing files; making them durable.

use std::ffi::{c_char, c_int, c_void};

use engram_fs::trace::{Operation, Way};
use engram_fs::{Handle, Result};
use libc::{iovec, off_t};

use crate::calls::descriptors::refused;
use crate::descriptions::What;
use crate::descriptors::{self, Held};
use crate::inside::is_inside;
use crate::places::{by_path, inside};
use crate::real::{interpose, real, set_errno};
use crate::traced;

/// The most that one call reads or writes, as Linux has it.
const MOST: usize = 0x7fff_f000;

/// The open file of a descriptor, if it is of ours and the call is the program's.
pub fn held(fd: c_int) -> Option<Held> {
    if is_inside() { None } else { descriptors::get(fd) }
}

/// Memory of the program's, of which this many bytes are to be filled.
unsafe fn room<'a>(to: *mut c_void, size: usize) -> &'a mut [u8] {
    if size == 0 {
        return &mut [];
    }
    // SAFETY: the program's buffer, which nobody else uses meanwhile.
    unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), size.min(MOST)) }
}

/// Memory of the program's.
unsafe fn bytes<'a>(from: *const c_void, size: usize) -> &'a [u8] {
    if size == 0 {
        return &[];
    }
    // SAFETY: the program's buffer, which nobody changes meanwhile.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size.min(MOST)) }
}

fn place(offset: off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| refused(libc::EINVAL, "an offset is not negative"))
}

/// Whether a file was opened to be read; what was not is refused before anything else.
pub fn readable(held: &Held) -> Result<&Handle> {
    let file = held.file()?;
    if held.description().flags() & libc::O_ACCMODE == libc::O_WRONLY {
        return Err(refused(libc::EBADF, "the file was opened for writing alone"));
    }
    Ok(file)
}

/// Reads by the offset.
pub fn read_on(held: &Held, to: &mut [u8]) -> isize {
    inside(|| {
        let file = readable(held)?;
        let offset = held.description().offset();
        let count = file.read(offset.get(), to)?;
        traced::transfer(Way::Read, held, file, offset.get(), count);
        offset.set(offset.get() + count as u64);
        Ok(count as isize)
    })
}

/// Whether what is written to a file goes behind its end.
fn appends(held: &Held) -> bool {
    held.description().flags() & libc::O_APPEND != 0
}

/// Writes by the offset, or behind the end.
pub fn write_on(held: &Held, from: &[u8]) -> isize {
    write_on_as(held, from, appends(held))
}

fn write_on_as(held: &Held, from: &[u8], append: bool) -> isize {
    inside(|| {
        let file = writable(held)?;
        let offset = held.description().offset();
        let (at, count) = file.write_as(append, offset.get(), from)?;
        traced::transfer(Way::Write, held, file, at, count);
        offset.set(at + count as u64);
        Ok(count as isize)
    })
}

/// The file, if it was opened to be written, and this user may leave its mode as it is.
pub fn writable(held: &Held) -> Result<&Handle> {
    if held.description().what() == What::Folder {
        return Err(refused(libc::EBADF, "a folder is opened for reading alone"));
    }
    let file = held.file()?;
    if !file.flags().write {
        return Err(refused(libc::EBADF, "the file was opened for reading alone"));
    }
    held.asked()?.before_write(file)?;
    Ok(file)
}

pub fn read_at(held: &Held, to: &mut [u8], offset: off_t) -> isize {
    inside(|| {
        let (file, at) = (readable(held)?, place(offset)?);
        let count = file.read(at, to)?;
        traced::transfer(Way::Read, held, file, at, count);
        Ok(count as isize)
    })
}

pub fn write_at(held: &Held, from: &[u8], offset: off_t) -> isize {
    // As Linux has it: what was opened to append is appended to, whatever the offset.
    write_at_as(held, from, offset, appends(held))
}

fn write_at_as(held: &Held, from: &[u8], offset: off_t, append: bool) -> isize {
    inside(|| {
        let at = place(offset)?;
        let file = writable(held)?;
        let (at, count) = file.write_as(append, at, from)?;
        traced::transfer(Way::Write, held, file, at, count);
        Ok(count as isize)
    })
}

/// The parts of the program's memory that a call names.
unsafe fn parts<'a>(list: *const iovec, count: c_int) -> Option<&'a [iovec]> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 1024);
    let Some(count) = count else {
        set_errno(libc::EINVAL);
        return None;
    };
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: the program's list.
    let parts = unsafe { std::slice::from_raw_parts(list, count) };
    if parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len)).is_none() {
        set_errno(libc::EINVAL);
        return None;
    }
    Some(parts)
}

/// All parts, one behind the other.
unsafe fn gathered(parts: &[iovec]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.iov_len).sum());
    for part in parts {
        // SAFETY: the program's memory.
        all.extend_from_slice(unsafe { bytes(part.iov_base, part.iov_len) });
    }
    all
}

/// Fills the parts by `read`, which is given the bytes read so far and says how many it has read.
unsafe fn scattered(parts: &[iovec], read: impl Fn(&mut [u8], usize) -> isize) -> isize {
    let mut done = 0;
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        // SAFETY: the program's memory.
        let into = unsafe { room(part.iov_base, part.iov_len) };
        let wanted = into.len();
        let count = read(into, done);
        if count < 0 {
            return if done > 0 { done as isize } else { count };
        }
        done += count as usize;
        if (count as usize) < wanted {
            break;
        }
    }
    done as isize
}

/// Writes parts that lie behind each other in the file: as one, so that no other comes between.
unsafe fn write_parts(held: &Held, parts: &[iovec], offset: Option<off_t>, append: bool) -> isize {
    let write = |from: &[u8]| match offset {
        Some(offset) => write_at_as(held, from, offset, append),
        None => write_on_as(held, from, append),
    };
    // SAFETY: the program's memory.
    unsafe {
        match parts {
            [part] => write(bytes(part.iov_base, part.iov_len)),
            parts => write(&gathered(parts)),
        }
    }
}

/// The flags of a call that tells them, if all of them are known.
fn known(flags: c_int, more: c_int) -> Option<c_int> {
    let all = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | more;
    if flags & !all != 0 {
        set_errno(libc::EOPNOTSUPP);
        return None;
    }
    Some(flags)
}

/// Reads parts that lie behind each other in the file.
unsafe fn read_parts(held: &Held, parts: &[iovec], offset: Option<off_t>) -> isize {
    // SAFETY: the program's memory.
    unsafe {
        match offset {
            None => scattered(parts, |into, _| read_on(held, into)),
            Some(offset) => {
                scattered(parts, |into, done| read_at(held, into, offset + done as i64))
            }
        }
    }
}

interpose! {
    /// Reads on.
    [read, __read](fd: c_int, to: *mut c_void, size: usize) -> isize {
        match held(fd) {
            // SAFETY: the program's promise.
            Some(held) => read_on(&held, unsafe { room(to, size) }),
            None => real!(read(fd: c_int, to: *mut c_void, size: usize) -> isize),
        }
    }

    /// Reads on, into memory of a known size.
    [__read_chk](fd: c_int, to: *mut c_void, size: usize, room_there: usize) -> isize {
        match held(fd) {
            Some(held) if size <= room_there => {
                // SAFETY: the program's promise.
                read_on(&held, unsafe { room(to, size) })
            }
            _ => real!(
                __read_chk(fd: c_int, to: *mut c_void, size: usize, room_there: usize) -> isize
            ),
        }
    }

    /// Writes on.
    [write, __write](fd: c_int, from: *const c_void, size: usize) -> isize {
        match held(fd) {
            // SAFETY: the program's promise.
            Some(held) => write_on(&held, unsafe { bytes(from, size) }),
            None => real!(write(fd: c_int, from: *const c_void, size: usize) -> isize),
        }
    }

    /// Reads from an offset.
    [pread, pread64, __pread64](
        fd: c_int, to: *mut c_void, size: usize, offset: off_t
    ) -> isize {
        match held(fd) {
            // SAFETY: the program's promise.
            Some(held) => read_at(&held, unsafe { room(to, size) }, offset),
            None => real!(
                pread(fd: c_int, to: *mut c_void, size: usize, offset: off_t) -> isize
            ),
        }
    }

    /// Reads from an offset, into memory of a known size.
    [__pread_chk, __pread64_chk](
        fd: c_int, to: *mut c_void, size: usize, offset: off_t, room_there: usize
    ) -> isize {
        match held(fd) {
            Some(held) if size <= room_there => {
                // SAFETY: the program's promise.
                read_at(&held, unsafe { room(to, size) }, offset)
            }
            _ => real!(
                __pread_chk(fd: c_int, to: *mut c_void, size: usize, offset: off_t,
                    room_there: usize) -> isize
            ),
        }
    }

    /// Writes at an offset.
    [pwrite, pwrite64, __pwrite64](
        fd: c_int, from: *const c_void, size: usize, offset: off_t
    ) -> isize {
        match held(fd) {
            // SAFETY: the program's promise.
            Some(held) => write_at(&held, unsafe { bytes(from, size) }, offset),
            None => real!(
                pwrite(fd: c_int, from: *const c_void, size: usize, offset: off_t) -> isize
            ),
        }
    }

    /// Reads on, into several parts.
    [readv](fd: c_int, to: *const iovec, count: c_int) -> isize {
        let Some(held) = held(fd) else {
            return real!(readv(fd: c_int, to: *const iovec, count: c_int) -> isize);
        };
        // SAFETY: the program's promise.
        unsafe {
            match parts(to, count) {
                Some(parts) => read_parts(&held, parts, None),
                None => -1,
            }
        }
    }

    /// Writes on, from several parts.
    [writev](fd: c_int, from: *const iovec, count: c_int) -> isize {
        let Some(held) = held(fd) else {
            return real!(writev(fd: c_int, from: *const iovec, count: c_int) -> isize);
        };
        // SAFETY: the program's promise.
        unsafe {
            match parts(from, count) {
                Some(parts) => write_parts(&held, parts, None, appends(&held)),
                None => -1,
            }
        }
    }

    /// Reads from an offset, into several parts.
    [preadv, preadv64](fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> isize {
        let Some(held) = held(fd) else {
            return real!(
                preadv(fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> isize
            );
        };
        // SAFETY: the program's promise.
        unsafe {
            match parts(to, count) {
                Some(parts) => read_parts(&held, parts, Some(offset)),
                None => -1,
            }
        }
    }

    /// Writes at an offset, from several parts.
    [pwritev, pwritev64](fd: c_int, from: *const iovec, count: c_int, offset: off_t) -> isize {
        let Some(held) = held(fd) else {
            return real!(
                pwritev(fd: c_int, from: *const iovec, count: c_int, offset: off_t) -> isize
            );
        };
        // SAFETY: the program's promise.
        unsafe {
            match parts(from, count) {
                Some(parts) => write_parts(&held, parts, Some(offset), appends(&held)),
                None => -1,
            }
        }
    }

    /// The same by flags, all of which a file in memory has kept.
    [preadv2, preadv64v2](
        fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> isize {
        let Some(held) = held(fd) else {
            return real!(
                preadv2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int)
                    -> isize
            );
        };
        if known(flags, 0).is_none() {
            return -1;
        }
        // SAFETY: the program's promise.
        unsafe {
            match parts(to, count) {
                Some(parts) => read_parts(&held, parts, (offset != -1).then_some(offset)),
                None => -1,
            }
        }
    }

    /// The same by flags.
    [pwritev2, pwritev64v2](
        fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> isize {
        let Some(held) = held(fd) else {
            return real!(
                pwritev2(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int)
                    -> isize
            );
        };
        let Some(flags) = known(flags, libc::RWF_APPEND) else { return -1 };
        let (offset, append) = ((offset != -1).then_some(offset), flags & libc::RWF_APPEND != 0);
        // SAFETY: the program's promise.
        let written = unsafe {
            match parts(from, count) {
                Some(parts) => write_parts(&held, parts, offset, append || appends(&held)),
                None => return -1,
            }
        };
        let durable = flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        if written >= 0 && durable && sync_held(&held) != 0 { -1 } else { written }
    }

    /// Gives a file another size.
    [truncate, truncate64](path: *const c_char, size: off_t) -> c_int {
        if size < 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        // SAFETY: the program's promise.
        let done = unsafe {
            by_path(
                libc::AT_FDCWD,
                path,
                |_, _, asked, at| asked.truncate(at, size as u64).map(|()| 0),
                |_, path| real!(truncate(path: *const c_char, size: off_t) -> c_int),
            )
        };
        traced::done(done, Operation::Truncate, libc::AT_FDCWD, path)
    }

    /// Gives an open file another size.
    [ftruncate, ftruncate64](fd: c_int, size: off_t) -> c_int {
        let Some(held) = held(fd) else {
            return real!(ftruncate(fd: c_int, size: off_t) -> c_int);
        };
        inside(|| {
            let size = place(size)?;
            held.asked()?.set_size(sizable(&held)?, size)?;
            traced::held(Operation::Truncate, &held);
            Ok(0)
        })
    }

    /// Sees to space, or makes a hole.
    [fallocate, fallocate64](fd: c_int, mode: c_int, offset: off_t, size: off_t) -> c_int {
        let Some(held) = held(fd) else {
            return real!(
                fallocate(fd: c_int, mode: c_int, offset: off_t, size: off_t) -> c_int
            );
        };
        inside(|| {
            let (offset, size) = (place(offset)?, place(size)?);
            writable(&held)?.fallocate(mode, offset, size)?;
            Ok(0)
        })
    }

    /// Sees to space; the number of the error is what it returns.
    [posix_fallocate, posix_fallocate64](fd: c_int, offset: off_t, size: off_t) -> c_int {
        let Some(held) = held(fd) else {
            return real!(posix_fallocate(fd: c_int, offset: off_t, size: off_t) -> c_int);
        };
        let before = crate::real::errno();
        let done = inside(|| {
            let (offset, size) = (place(offset)?, place(size)?);
            writable(&held)?.fallocate(0, offset, size)?;
            Ok(0)
        });
        let code = crate::real::errno();
        set_errno(before);
        if done == 0 { 0 } else { code }
    }

    /// Advice, of which memory has no need.
    [posix_fadvise, posix_fadvise64](
        fd: c_int, offset: off_t, size: off_t, advice: c_int
    ) -> c_int {
        match held(fd) {
            Some(_) if (0..=5).contains(&advice) && size >= 0 => 0,
            Some(_) => libc::EINVAL,
            None => real!(
                posix_fadvise(fd: c_int, offset: off_t, size: off_t, advice: c_int) -> c_int
            ),
        }
    }

    /// Reads ahead, of which memory has no need.
    [readahead](fd: c_int, offset: off_t, size: usize) -> isize {
        match held(fd) {
            Some(held) => inside(|| readable(&held).map(|_| 0)),
            None => real!(readahead(fd: c_int, offset: off_t, size: usize) -> isize),
        }
    }

    /// Makes a file durable.
    [fsync](fd: c_int) -> c_int {
        match held(fd) {
            Some(held) => sync_held(&held),
            None => real!(fsync(fd: c_int) -> c_int),
        }
    }

    /// Makes a file's bytes durable.
    [fdatasync](fd: c_int) -> c_int {
        match held(fd) {
            Some(held) => sync_held(&held),
            None => real!(fdatasync(fd: c_int) -> c_int),
        }
    }

    /// Makes a range durable: all of the file.
    [sync_file_range](fd: c_int, offset: off_t, size: off_t, flags: c_uint_) -> c_int {
        match held(fd) {
            Some(held) => sync_held(&held),
            None => real!(
                sync_file_range(fd: c_int, offset: off_t, size: off_t, flags: c_uint_) -> c_int
            ),
        }
    }

    /// Makes a file system durable: names are, and of bytes those of the file.
    [syncfs](fd: c_int) -> c_int {
        match held(fd) {
            Some(held) => sync_held(&held),
            None => real!(syncfs(fd: c_int) -> c_int),
        }
    }
}

#[expect(non_camel_case_types, reason = "C's unsigned, within the definitions")]
type c_uint_ = std::ffi::c_uint;

/// A file whose size is to be set: what is none of ours to size is `EINVAL`, as Linux has it.
fn sizable(held: &Held) -> Result<&Handle> {
    let file = held.file().map_err(|error| match error.code {
        libc::EISDIR => refused(libc::EINVAL, "a folder has no size to be set"),
        _ => error,
    })?;
    if !file.flags().write {
        return Err(refused(libc::EINVAL, "the file was opened for reading alone"));
    }
    Ok(file)
}

pub fn sync_held(held: &Held) -> c_int {
    inside(|| {
        if held.description().what() != What::Folder {
            held.file()?.sync()?;
        }
        traced::held(Operation::Fsync, held);
        Ok(0)
    })
}
