//! Bytes from one descriptor to another.
//!
//! Between two files of ours the file system copies. Where one end is the kernel's, bytes go
//! through memory of this process: `sendfile` and `splice` do what they would do; `copy_file_range`
//! says `EXDEV`, as between any two file systems, and programs copy then by themselves.

use std::ffi::{c_int, c_uint, c_void};

use engram_fs::Result;
use libc::off_t;

use crate::calls::contents::{held, read_at, read_on, readable, writable, write_at, write_on};
use crate::calls::descriptors::refused;
use crate::descriptors::Held;
use crate::places::inside;
use crate::real::{interpose, real, set_errno};

/// So much is moved at once; a caller asks for the rest.
const PIECE: usize = 1 << 20;
/// The most that one call copies within the pool.
const COPY_MOST: u64 = 1 << 30;

/// One end: of ours, or of the kernel's; and where it begins, if not at its offset.
struct End {
    fd: c_int,
    held: Option<Held>,
    place: *mut off_t,
}

impl End {
    fn new(fd: c_int, place: *mut off_t) -> End {
        End { fd, held: held(fd), place }
    }

    fn place(&self) -> Option<off_t> {
        // SAFETY: null, or the program's.
        unsafe { self.place.as_ref() }.copied()
    }

    /// So many bytes have been moved: the program's place is behind them.
    fn passed(&self, count: isize) {
        // SAFETY: null, or the program's.
        if let Some(place) = unsafe { self.place.as_mut() }
            && count > 0
        {
            *place += count as off_t;
        }
    }

    fn read(&self, to: &mut [u8]) -> isize {
        let (fd, at, size) = (self.fd, to.as_mut_ptr().cast::<c_void>(), to.len());
        match (&self.held, self.place()) {
            (Some(held), None) => read_on(held, to),
            (Some(held), Some(place)) => read_at(held, to, place),
            (None, None) => real!(read(fd: c_int, at: *mut c_void, size: usize) -> isize),
            (None, Some(place)) => real!(
                pread(fd: c_int, at: *mut c_void, size: usize, place: off_t) -> isize
            ),
        }
    }

    fn write(&self, from: &[u8]) -> isize {
        let (fd, at, size) = (self.fd, from.as_ptr().cast::<c_void>(), from.len());
        match (&self.held, self.place()) {
            (Some(held), None) => write_on(held, from),
            (Some(held), Some(place)) => write_at(held, from, place),
            (None, None) => real!(write(fd: c_int, at: *const c_void, size: usize) -> isize),
            (None, Some(place)) => real!(
                pwrite(fd: c_int, at: *const c_void, size: usize, place: off_t) -> isize
            ),
        }
    }

    /// Goes back over bytes that were read and not written.
    fn unread(&self, count: isize) {
        if let (Some(held), None) = (&self.held, self.place()) {
            let offset = held.description().offset();
            offset.set(offset.get().saturating_sub(count as u64));
        }
    }
}

/// Moves bytes through memory. What cannot be written goes back to a file of ours; a pipe's is lost
/// no less than by any program that reads it.
fn through_memory(from: &End, to: &End, size: usize) -> isize {
    let mut piece = vec![0; size.min(PIECE)];
    let mut done = 0;
    while done < size as isize {
        let wanted = piece.len().min(size - done as usize);
        let read = from.read(&mut piece[..wanted]);
        if read <= 0 {
            return if done > 0 { done } else { read };
        }
        let written = to.write(&piece[..read as usize]);
        from.unread(read - written.max(0));
        from.passed(written);
        to.passed(written);
        if written < 0 {
            return if done > 0 { done } else { written };
        }
        done += written;
        // A pipe or a socket gives what there is, and takes what fits.
        if written < read || from.held.is_none() || to.held.is_none() {
            break;
        }
    }
    done
}

fn place_of(end: &End, held: &Held) -> Result<u64> {
    match end.place() {
        Some(place) => {
            u64::try_from(place).map_err(|_| refused(libc::EINVAL, "an offset is not negative"))
        }
        None => Ok(held.description().offset().get()),
    }
}

fn copy(from: &End, to: &End, size: usize) -> isize {
    let (Some(ours), Some(other)) = (&from.held, &to.held) else {
        set_errno(libc::EXDEV);
        return -1;
    };
    inside(|| {
        let one_tree = ours.description().tree() == other.description().tree();
        if !one_tree {
            return Err(refused(libc::EXDEV, "the two files are of two pools"));
        }
        let source = readable(ours)?;
        other.file()?; // a folder has no bytes: that is told before how it was opened
        let target = writable(other)?;
        if other.description().flags() & libc::O_APPEND != 0 {
            return Err(refused(libc::EBADF, "what is appended to is not copied into"));
        }
        let (at, into) = (place_of(from, ours)?, place_of(to, other)?);
        let copied = source.copy_range(at, target, into, (size as u64).min(COPY_MOST))?;
        for (end, held, place) in [(from, ours, at), (to, other, into)] {
            end.passed(copied as isize);
            if end.place.is_null() {
                held.description().offset().set(place + copied);
            }
        }
        Ok(copied as isize)
    })
}

interpose! {
    /// Copies between files.
    [copy_file_range](
        from: c_int, place: *mut off_t, to: c_int, place_to: *mut off_t, size: usize, flags: c_uint
    ) -> isize {
        let (source, target) = (End::new(from, place), End::new(to, place_to));
        if source.held.is_some() || target.held.is_some() {
            if flags != 0 {
                set_errno(libc::EINVAL);
                return -1;
            }
            return copy(&source, &target, size);
        }
        real!(
            copy_file_range(from: c_int, place: *mut off_t, to: c_int, place_to: *mut off_t,
                size: usize, flags: c_uint) -> isize
        )
    }

    /// Sends a file's bytes.
    [sendfile, sendfile64](to: c_int, from: c_int, place: *mut off_t, size: usize) -> isize {
        let (source, target) = (End::new(from, place), End::new(to, std::ptr::null_mut()));
        if source.held.is_some() || target.held.is_some() {
            return through_memory(&source, &target, size);
        }
        real!(sendfile(to: c_int, from: c_int, place: *mut off_t, size: usize) -> isize)
    }

    /// Moves bytes from a pipe, or into one.
    [splice](
        from: c_int, place: *mut off_t, to: c_int, place_to: *mut off_t, size: usize, flags: c_uint
    ) -> isize {
        let (source, target) = (End::new(from, place), End::new(to, place_to));
        if source.held.is_some() && target.held.is_some() {
            set_errno(libc::EINVAL); // one of the two is a pipe
            return -1;
        }
        if source.held.is_some() || target.held.is_some() {
            return through_memory(&source, &target, size);
        }
        real!(
            splice(from: c_int, place: *mut off_t, to: c_int, place_to: *mut off_t, size: usize,
                flags: c_uint) -> isize
        )
    }

    /// Makes everything durable: the files of ours that are open, and what the kernel has.
    [sync]() -> () {
        for (fd, hidden) in crate::descriptors::in_range(0, c_uint::MAX) {
            if let Some(held) = held(fd).filter(|_| !hidden) {
                super::contents::sync_held(&held);
            }
        }
        real!(sync() -> ());
    }
}
