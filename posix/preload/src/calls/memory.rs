//! Maps of files: the pool's own memory, shown once more where the program wants it.
//!
//! A shared map of a file is no copy: pages of the pool's spans are mapped side by side, so that
//! all who map the file, read it or write it see the same bytes. A private map that is only read is
//! made so, too; one that may be written to gets a copy. What lies behind the file's last page is
//! mapped to nothing, and touching it is `SIGBUS`, as of any file. A map that may be written to has
//! space for all of the file first: without, `mmap` fails with `ENOSPC`. A shared map for reading
//! has its own range filled, too, where there is room: what others write into a hole is seen there.
//!
//! *Limits*: a file that grows behind a map is not seen there until it is mapped again. An array or
//! a blob as it was put whose memory begins within a page is copied for a private map, and refused
//! (`ENODEV`) for a shared one.
//!
//! Each map is in a list, with the view that keeps its memory, until all of it is unmapped. What
//! the file gives up meanwhile is free, but for what the map shows.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use engram::View;
use engram_fs::{Handle, Result};
use libc::off_t;

use crate::calls::descriptors::refused;
use crate::descriptions::What;
use crate::descriptors::{self, Held};
use crate::inside::{Inside, is_inside};
use crate::places::inside;
use crate::process::Spin;
use crate::real::{interpose, real, set_errno};

const PAGE: usize = 4096;
/// What asks for addresses below 2 GiB, which x86 alone knows.
#[cfg(target_arch = "x86_64")]
const LOW: c_int = libc::MAP_32BIT;
#[cfg(not(target_arch = "x86_64"))]
const LOW: c_int = 0;

/// A range of the program's addresses that shows a file.
#[derive(Clone)]
struct Shown {
    from: usize,
    to: usize,
    /// The offset in the file of its first byte.
    offset: u64,
    /// What may be done with it now.
    protection: c_int,
    /// Whether it may be made writable.
    may_write: bool,
    /// Whether others see what is written there.
    shared: bool,
    /// What keeps the memory; a copy needs nothing.
    view: Option<Arc<View>>,
    /// The open file, which is mapped again where it is remapped.
    handle: Handle,
}

impl Shown {
    /// The part of it between two addresses within it.
    fn part(&self, from: usize, to: usize) -> Shown {
        let offset = self.offset + (from - self.from) as u64;
        Shown { from, to, offset, ..self.clone() }
    }
}

/// Maps, in no order: there are few.
static SHOWN: Spin<Vec<Shown>> = Spin::new(Vec::new());

/// For a fork: nobody changes the list.
pub fn before_fork() {
    SHOWN.acquire();
}

/// On with it.
pub fn after_fork() {
    SHOWN.release();
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// What a program asks of `mmap`.
#[derive(Clone, Copy)]
struct Wanted {
    near: *mut c_void,
    size: usize,
    protection: c_int,
    flags: c_int,
    offset: u64,
}

impl Wanted {
    fn writes(self) -> bool {
        self.protection & libc::PROT_WRITE != 0
    }

    fn is_shared(self) -> bool {
        self.flags & libc::MAP_TYPE != libc::MAP_PRIVATE
    }

    /// Takes addresses, to which nothing is mapped yet.
    fn addresses(self) -> Result<*mut u8> {
        let fixed = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | LOW;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let flags = flags | self.flags & fixed;
        let (near, size, none) = (self.near, pages(self.size), libc::PROT_NONE);
        let (fd, offset) = (-1, 0);
        let at = real!(
            mmap(near: *mut c_void, size: usize, none: c_int, flags: c_int, fd: c_int,
                offset: off_t) -> *mut c_void
        );
        if at == libc::MAP_FAILED {
            return Err(refused(crate::real::errno(), "there are no such addresses"));
        }
        Ok(at.cast())
    }
}

/// Maps nothing behind a file's end: to touch it is `SIGBUS`, as of a file of the kernel's.
fn map_nothing(to: *mut u8, size: usize, protection: c_int) {
    if size == 0 {
        return;
    }
    // SAFETY: a name, and no flags.
    let empty = unsafe { libc::memfd_create(c"engram-end".as_ptr(), libc::MFD_CLOEXEC) };
    if empty < 0 {
        return;
    }
    let (at, flags, offset) = (to.cast::<c_void>(), libc::MAP_SHARED | libc::MAP_FIXED, 0);
    real!(
        mmap(at: *mut c_void, size: usize, protection: c_int, flags: c_int, empty: c_int,
            offset: off_t) -> *mut c_void
    );
    real!(close(empty: c_int) -> c_int);
}

/// Copies a file's bytes to addresses of the program's, for it alone.
fn map_copy(to: *mut u8, size: usize, handle: &Handle, wanted: Wanted) -> Result<()> {
    let (at, writable) = (to.cast::<c_void>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let (fd, offset) = (-1, 0);
    let mapped = real!(
        mmap(at: *mut c_void, size: usize, writable: c_int, flags: c_int, fd: c_int,
            offset: off_t) -> *mut c_void
    );
    if mapped == libc::MAP_FAILED {
        return Err(refused(crate::real::errno(), "there is no memory for a copy"));
    }
    // SAFETY: memory that was just mapped, and nobody knows of.
    let bytes = unsafe { std::slice::from_raw_parts_mut(to, size) };
    let mut done = 0;
    while done < size {
        match handle.read_any(wanted.offset + done as u64, &mut bytes[done..])? {
            0 => break,
            count => done += count,
        }
    }
    let protection = wanted.protection;
    real!(mprotect(at: *mut c_void, size: usize, protection: c_int) -> c_int);
    Ok(())
}

/// What the map shows of the file's memory, if that begins with a page, and where in the file it
/// does.
fn aligned(handle: &Handle, wanted: Wanted, write: bool) -> Result<Option<(u64, View)>> {
    let view = handle.view(wanted.offset, wanted.size as u64, write)?;
    Ok(view.filter(|(_, view)| view.as_ptr().addr().is_multiple_of(PAGE)))
}

/// The same, if the last page is the file's alone, too: behind a value that was put whole lies
/// another's. A file that lies in its record, or within a page, is given pages of its own, where
/// that can be: an array, or what is shown for reading, keeps its place.
fn whole_pages(handle: &Handle, wanted: Wanted, write: bool) -> Result<Option<(u64, View)>> {
    let view = || aligned(handle, wanted, write);
    if handle.has_whole_pages()?
        && let Some(view) = view()?
    {
        return Ok(Some(view));
    }
    match handle.take_pages() {
        Ok(()) => view(),
        // Without, what is not whole pages is copied for those who only read.
        Err(_) if !write => Ok(None),
        Err(error) => Err(error),
    }
}

/// Shows a file at addresses that were taken for it; the view that keeps its memory.
fn show(to: *mut u8, handle: &Handle, wanted: Wanted) -> Result<Option<Arc<View>>> {
    let size = handle.stat()?.size;
    let there_of = |size: u64| size.saturating_sub(wanted.offset).min(wanted.size as u64);
    let mut there = pages(there_of(size) as usize);
    let mut kept = None;
    if there > 0 {
        // A file within a page is not moved for those who read it alone.
        let copies = !wanted.is_shared() && (wanted.writes() || size < PAGE as u64);
        let may_write = wanted.is_shared() && handle.flags().write;
        if wanted.is_shared() && !may_write {
            // Where there is no room, or nobody may write, its holes stay what they are.
            let _ = handle.fill_holes(wanted.offset, there as u64);
        }
        let view = if copies { None } else { whole_pages(handle, wanted, may_write)? };
        match view {
            Some((begin, view)) => {
                let offset = wanted.offset - begin;
                // The file may have been cut since its size was asked for.
                there = there.min(pages(view.len()).saturating_sub(offset as usize));
                if there > 0 {
                    // SAFETY: the addresses were taken for this, and the list keeps the view.
                    unsafe { view.map_again(offset, there as u64, to, wanted.protection) }?;
                    kept = Some(Arc::new(view));
                }
            }
            None if there_of(handle.stat()?.size) == 0 => there = 0,
            None if may_write => {
                return Err(refused(
                    libc::ENODEV,
                    "its memory begins within a page, which a shared map does not show: map it \
                     private, or copy the file",
                ));
            }
            None if copies => map_copy(to, there, handle, wanted)?,
            None => kept = show_most(to, there, handle, wanted)?,
        }
    }
    map_nothing(to.wrapping_add(there), pages(wanted.size) - there, wanted.protection);
    Ok(kept)
}

/// Shows whole pages of memory that is not the file's alone behind its end, and copies of the rest.
fn show_most(
    to: *mut u8,
    there: usize,
    handle: &Handle,
    wanted: Wanted,
) -> Result<Option<Arc<View>>> {
    let mut shown = (0, None);
    if let Some((begin, view)) = aligned(handle, wanted, false)? {
        let offset = wanted.offset - begin;
        let len = view.len().saturating_sub(offset as usize).min(there) / PAGE * PAGE;
        if len > 0 {
            // SAFETY: the addresses were taken for this, and the list keeps the view.
            unsafe { view.map_again(offset, len as u64, to, wanted.protection) }?;
            shown = (len, Some(Arc::new(view)));
        }
    }
    let (len, kept) = shown;
    if len < there {
        let rest = Wanted { offset: wanted.offset + len as u64, ..wanted };
        map_copy(to.wrapping_add(len), there - len, handle, rest)?;
    }
    Ok(kept)
}

fn check(held: &Held, wanted: Wanted) -> Result<()> {
    if wanted.size == 0 || !wanted.offset.is_multiple_of(PAGE as u64) {
        return Err(refused(libc::EINVAL, "a map has whole pages, one at least"));
    }
    if held.description().what() != What::File {
        return Err(refused(libc::ENODEV, "a folder has no bytes to map"));
    }
    let flags = held.file()?.flags();
    if !flags.read || wanted.is_shared() && wanted.writes() && !flags.write {
        return Err(refused(libc::EACCES, "the file was not opened for such a map"));
    }
    Ok(())
}

fn map(held: &Held, wanted: Wanted) -> *mut c_void {
    let Some(inside) = Inside::enter() else {
        set_errno(libc::EDEADLK);
        return libc::MAP_FAILED;
    };
    let before = crate::real::errno();
    let made = || -> Result<*mut u8> {
        check(held, wanted)?;
        let handle = held.file()?;
        let at = wanted.addresses()?;
        match show(at, handle, wanted) {
            Ok(view) => {
                let from = at.addr();
                let new = Shown {
                    from,
                    to: from + pages(wanted.size),
                    offset: wanted.offset,
                    protection: wanted.protection,
                    may_write: !wanted.is_shared() || handle.flags().write,
                    shared: wanted.is_shared(),
                    view,
                    handle: handle.clone(),
                };
                forget(from, new.to);
                SHOWN.lock().push(new);
                Ok(at)
            }
            Err(error) => {
                let (at, size) = (at.cast::<c_void>(), pages(wanted.size));
                real!(munmap(at: *mut c_void, size: usize) -> c_int);
                Err(error)
            }
        }
    };
    let made = made();
    drop(inside);
    match made {
        Ok(at) => {
            set_errno(before);
            at.cast()
        }
        Err(error) => {
            set_errno(error.code);
            libc::MAP_FAILED
        }
    }
}

/// A range of addresses shows nothing of ours any more. Views that nobody uses then go.
fn forget(from: usize, to: usize) {
    drop(taken_out(from, to));
}

/// Takes what a range shows out of the list; of each map the part in the range.
///
/// That comes before the addresses are given back: another thread may be given them at once, and
/// puts what it maps there into the list.
fn taken_out(from: usize, to: usize) -> Vec<Shown> {
    let mut gone = Vec::new();
    let mut shown = SHOWN.lock();
    let mut at = 0;
    while at < shown.len() {
        let one = &shown[at];
        if one.to <= from || one.from >= to {
            at += 1;
            continue;
        }
        let one = shown.swap_remove(at);
        for (a, b) in [(one.from, from), (to, one.to)] {
            if a < b && one.from <= a && b <= one.to {
                shown.push(one.part(a, b));
            }
        }
        gone.push(one.part(one.from.max(from), one.to.min(to)));
        // Its parts lie outside of the range: what was swapped in is looked at next.
    }
    drop(shown);
    gone
}

/// Takes a range of addresses away by a call that does so, and what it shows; the call's answer.
fn take_away(from: usize, to: usize, call: impl FnOnce() -> c_int) -> c_int {
    let _inside = Inside::nested();
    let gone = taken_out(from, to);
    let done = call();
    if done != 0 {
        SHOWN.lock().extend(gone);
    }
    done
}

/// The maps in a range.
fn within(from: usize, to: usize) -> Vec<Shown> {
    let shown = SHOWN.lock();
    shown.iter().filter(|one| one.from < to && one.to > from).cloned().collect()
}

/// Whether a range may be protected so: a map for reading alone is not written to.
fn check_protection(from: usize, to: usize, protection: c_int) -> Result<()> {
    if protection & libc::PROT_WRITE == 0 {
        return Ok(());
    }
    for one in within(from, to) {
        if !one.may_write {
            return Err(refused(libc::EACCES, "the file was opened for reading alone"));
        }
        if !one.shared && one.view.is_some() {
            // It shows the pool's own memory: from now on it has a copy.
            let (a, b) = (one.from.max(from), one.to.min(to));
            let wanted = Wanted {
                near: std::ptr::null_mut(),
                size: b - a,
                protection,
                flags: libc::MAP_PRIVATE,
                offset: one.offset + (a - one.from) as u64,
            };
            let there = one.handle.stat()?.size.saturating_sub(wanted.offset);
            let there = pages(there as usize).min(b - a);
            if there > 0 {
                map_copy(std::ptr::without_provenance_mut(a), there, &one.handle, wanted)?;
            }
            // What is written there stays, however often it is protected otherwise.
            let copied = taken_out(a, b).into_iter();
            SHOWN.lock().extend(copied.map(|part| Shown { view: None, ..part }));
        }
    }
    Ok(())
}

/// Protects a range by a call that does so; the call's answer.
fn protect(at: *mut c_void, size: usize, protection: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if is_inside() || !is_ours(at, size) {
        return call();
    }
    let (from, to) = (at.addr(), at.addr().saturating_add(pages(size)));
    let allowed: c_int = inside(|| check_protection(from, to, protection).map(|()| 0));
    if allowed != 0 {
        return -1;
    }
    let done = call();
    if done == 0 {
        let _inside = Inside::nested();
        let protected = taken_out(from, to).into_iter();
        SHOWN.lock().extend(protected.map(|part| Shown { protection, ..part }));
    }
    done
}

/// Makes what was written in a range durable.
fn flush(from: usize, to: usize) -> c_int {
    inside(|| {
        for one in within(from, to).into_iter().filter(|one| one.shared) {
            one.handle.sync()?;
        }
        Ok(0)
    })
}

/// Whether a range has anything of ours.
pub fn is_ours(at: *mut c_void, size: usize) -> bool {
    let shown = SHOWN.lock();
    let (from, to) = (at.addr(), at.addr().saturating_add(size));
    shown.iter().any(|one| one.from < to && one.to > from)
}

interpose! {
    /// Maps a file, or memory.
    [mmap, mmap64](
        near: *mut c_void, size: usize, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void {
        if !is_inside() {
            let held = if flags & libc::MAP_ANONYMOUS == 0 { descriptors::get(fd) } else { None };
            if let Some(held) = held {
                let offset = offset as u64;
                return map(&held, Wanted { near, size, protection, flags, offset });
            }
            if flags & libc::MAP_FIXED != 0 && is_ours(near, size) {
                let mut at = libc::MAP_FAILED;
                take_away(near.addr(), near.addr() + pages(size), || {
                    at = real!(
                        mmap(near: *mut c_void, size: usize, protection: c_int, flags: c_int,
                            fd: c_int, offset: off_t) -> *mut c_void
                    );
                    c_int::from(at == libc::MAP_FAILED)
                });
                return at;
            }
        }
        real!(
            mmap(near: *mut c_void, size: usize, protection: c_int, flags: c_int, fd: c_int,
                offset: off_t) -> *mut c_void
        )
    }

    /// Takes a map away.
    [munmap](at: *mut c_void, size: usize) -> c_int {
        let call = || real!(munmap(at: *mut c_void, size: usize) -> c_int);
        if is_inside() || !is_ours(at, size) {
            return call();
        }
        take_away(at.addr(), at.addr().saturating_add(pages(size)), call)
    }

    /// Changes what may be done with a map.
    [mprotect](at: *mut c_void, size: usize, protection: c_int) -> c_int {
        protect(at, size, protection, || {
            real!(mprotect(at: *mut c_void, size: usize, protection: c_int) -> c_int)
        })
    }

    /// The same, by a key of the processor's.
    [pkey_mprotect](at: *mut c_void, size: usize, protection: c_int, key: c_int) -> c_int {
        protect(at, size, protection, || {
            real!(
                pkey_mprotect(at: *mut c_void, size: usize, protection: c_int, key: c_int)
                    -> c_int
            )
        })
    }

    /// Makes a map durable.
    [msync](at: *mut c_void, size: usize, flags: c_int) -> c_int {
        let done = real!(msync(at: *mut c_void, size: usize, flags: c_int) -> c_int);
        if done != 0 || is_inside() || flags & libc::MS_ASYNC != 0 || !is_ours(at, size) {
            return done;
        }
        flush(at.addr(), at.addr() + pages(size))
    }

    /// Advice; what would take bytes away is not for the pool's memory.
    [madvise](at: *mut c_void, size: usize, advice: c_int) -> c_int {
        if advice == libc::MADV_REMOVE && !is_inside() && is_ours(at, size) {
            set_errno(libc::EOPNOTSUPP);
            return -1;
        }
        real!(madvise(at: *mut c_void, size: usize, advice: c_int) -> c_int)
    }

    /// Gives a map another size, or another place.
    [mremap](
        at: *mut c_void, size: usize, wanted: usize, flags: c_int, to: *mut c_void
    ) -> *mut c_void {
        if is_inside() || !is_ours(at, size) {
            return real!(
                mremap(at: *mut c_void, size: usize, wanted: usize, flags: c_int,
                    to: *mut c_void) -> *mut c_void
            );
        }
        remap(at, size, wanted, flags, to)
    }
}

/// Maps anew what is of ours, as long as is wanted.
fn remap(
    at: *mut c_void,
    size: usize,
    wanted: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let from = at.addr();
    let found = within(from, from + 1).pop();
    let Some(one) = found.filter(|one| one.to >= from + pages(size) && wanted > 0) else {
        set_errno(libc::EFAULT);
        return libc::MAP_FAILED;
    };
    let moves = flags & libc::MREMAP_MAYMOVE != 0;
    if pages(wanted) <= pages(size) && flags & libc::MREMAP_FIXED == 0 {
        let (rest, gone) = (at.wrapping_byte_add(pages(wanted)), pages(size) - pages(wanted));
        let call = || real!(munmap(rest: *mut c_void, gone: usize) -> c_int);
        if gone > 0 && take_away(rest.addr(), rest.addr() + gone, call) != 0 {
            return libc::MAP_FAILED;
        }
        return at;
    }
    if !one.shared && one.view.is_none() {
        return move_copy(one.part(from, from + pages(size)), wanted, flags, to);
    }
    if !moves {
        set_errno(libc::ENOMEM);
        return libc::MAP_FAILED;
    }
    let Some(inside) = Inside::enter() else {
        set_errno(libc::EDEADLK);
        return libc::MAP_FAILED;
    };
    let fixed = if flags & libc::MREMAP_FIXED != 0 { libc::MAP_FIXED } else { 0 };
    let kind = if one.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let again = Wanted {
        near: if fixed != 0 { to } else { std::ptr::null_mut() },
        size: wanted,
        protection: one.protection,
        flags: kind | fixed,
        offset: one.offset + (from - one.from) as u64,
    };
    let made = again.addresses().and_then(|new| Ok((new, show(new, &one.handle, again)?)));
    let new = match made {
        Ok((new, view)) => {
            forget(from, from + pages(size));
            let shown = Shown {
                from: new.addr(),
                to: new.addr() + pages(wanted),
                offset: again.offset,
                view,
                ..one
            };
            SHOWN.lock().push(shown);
            let size = pages(size);
            real!(munmap(at: *mut c_void, size: usize) -> c_int);
            new.cast::<c_void>()
        }
        Err(error) => {
            set_errno(error.code);
            libc::MAP_FAILED
        }
    };
    drop(inside);
    new
}

/// Gives a copy another size, or another place: it is the program's own memory, with what was
/// written there. What it has more then is of the file.
fn move_copy(one: Shown, wanted: usize, flags: c_int, to: *mut c_void) -> *mut c_void {
    let (at, size) = (std::ptr::without_provenance_mut::<c_void>(one.from), one.to - one.from);
    let mut new = libc::MAP_FAILED;
    let moved = take_away(one.from, one.to, || {
        new = real!(
            mremap(at: *mut c_void, size: usize, wanted: usize, flags: c_int,
                to: *mut c_void) -> *mut c_void
        );
        c_int::from(new == libc::MAP_FAILED)
    });
    if moved != 0 {
        return libc::MAP_FAILED;
    }
    let (from, to) = (new.addr(), new.addr() + pages(wanted));
    let known = Shown { from, to, ..one };
    let filled: c_int = inside(|| {
        let there = known.handle.stat()?.size.saturating_sub(known.offset);
        let there = pages(there as usize).min(pages(wanted));
        if there > size {
            let more = Wanted {
                near: std::ptr::null_mut(),
                size: there - size,
                protection: known.protection,
                flags: libc::MAP_PRIVATE,
                offset: known.offset + size as u64,
            };
            map_copy(new.cast::<u8>().wrapping_add(size), more.size, &known.handle, more)?;
        }
        Ok(0)
    });
    let _inside = Inside::nested();
    forget(from, to);
    SHOWN.lock().push(known);
    // What could not be read is zeros, and what was written is there.
    let _ = filled;
    new
}
