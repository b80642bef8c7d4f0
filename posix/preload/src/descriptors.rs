//! Numbers of open files, and the descriptions that they stand for.
//!
//! The kernel gives the numbers. That of a file of ours is a copy of one descriptor, the *marker*,
//! to which nothing can be read or written, so that a call which is not known here fails and is not
//! silent. Before another program is started, each number that it inherits is *made real*: it
//! becomes a description of the kernel's own of the marker's file, whose offset is the number of
//! the description here, and its generation. So the library in that program knows it.
//!
//! # Hidden ones
//!
//! The engine has descriptors, too. They are moved to high numbers, so that a program finds the
//! numbers free that it would have without this library, and are closed by the engine alone: the
//! program's `close` of one says `EBADF`, as for a number that nobody has.
//!
//! # Counting
//!
//! What a description is of lies in a place of this process, by its number: the open file of the
//! engine. Each descriptor counts as a user of it, and so does a call that goes on. The last one
//! closes the file.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_uint};
use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use engram_fs::{Asked, Errno, Folder, Handle, Ino, OpenFlags, Opened as FsOpened, Result};

use crate::calls::locks;
use crate::descriptions::{self, DESCRIPTIONS, Description, Shared, What};
use crate::inside::Inside;
use crate::keepers;
use crate::process::Spin;
use crate::real::{real, set_errno};
use crate::streams::standard;
use crate::traced;
use crate::trees::{self, Opened, Tree};

/// As many as Linux lets a process have, unless an administrator raises `fs.nr_open`.
const NUMBERS: usize = 1 << 20;
/// A number of the engine's own.
const HIDDEN: u32 = u32::MAX;

/// By number: 0, or the description's and one, or [`HIDDEN`].
static NUMBER: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];
/// The highest number that ever was one of ours, and one.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// What an open file is here. Nothing is zeros, so that the places of descriptions take no room in
/// the library's file.
#[repr(u8)]
pub enum Body {
    /// Nobody has the place.
    Nothing = 0,
    /// A file.
    File(Handle),
    /// A folder.
    Folder(Folder),
    /// A node alone.
    Node,
    /// It was handed over, and nobody has asked for it yet.
    Handed,
}

struct Place {
    users: AtomicU32,
    /// It is made of what was handed over under the lock.
    body: UnsafeCell<Body>,
    making: Spin<()>,
}

// SAFETY: the body changes while nobody has the place (`users` is zero), or under `making` from
// `Handed` to what it is, before anybody is given it.
unsafe impl Sync for Place {}

static PLACES: [Place; DESCRIPTIONS] = [const {
    Place { users: AtomicU32::new(0), body: UnsafeCell::new(Body::Nothing), making: Spin::new(()) }
}; DESCRIPTIONS];

/// An open file, as long as a call goes on.
pub struct Held {
    number: usize,
    shared: &'static Shared,
}

fn number_of(fd: c_int) -> Option<&'static AtomicU32> {
    NUMBER.get(usize::try_from(fd).ok()?)
}

/// Whether a descriptor is of ours.
pub fn is_ours(fd: c_int) -> bool {
    number_of(fd).is_some_and(|number| !matches!(number.load(Ordering::Acquire), 0 | HIDDEN))
}

/// The open file of a number.
pub fn get(fd: c_int) -> Option<Held> {
    let word = number_of(fd)?;
    loop {
        let number = word.load(Ordering::Acquire);
        if matches!(number, 0 | HIDDEN) {
            return None;
        }
        let held = Held::of(number as usize - 1);
        // Another thread may have closed it in between.
        if word.load(Ordering::Acquire) == number
            && let Some(held) = held
        {
            return Some(held);
        }
    }
}

/// The node that a number stands for.
pub fn node(fd: c_int) -> Option<(&'static Tree, Ino)> {
    let held = get(fd)?;
    Some((held.tree()?, held.description().node()))
}

impl Held {
    /// That of a description, if this process has it.
    pub fn of(number: usize) -> Option<Held> {
        let users = &PLACES.get(number)?.users;
        let more = |count: u32| (count > 0).then_some(count + 1);
        users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok()?;
        Some(Held { number, shared: descriptions::there()? })
    }

    /// What all who have it share.
    pub fn description(&self) -> &'static Description {
        self.shared.description(self.number)
    }

    /// The number of the description.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The tree that it is of.
    pub fn tree(&self) -> Option<&'static Tree> {
        trees::all().get(self.description().tree() as usize)
    }

    /// The pool that it is of. The thread is inside.
    pub fn opened(&self) -> Result<&'static Opened> {
        match self.tree() {
            Some(tree) => tree.open(),
            None => Err(Errno::new(libc::ESTALE, "its prefix is not one of this program's")),
        }
    }

    /// What it is here. The thread is inside.
    pub fn body(&self) -> Result<&Body> {
        let place = &PLACES[self.number];
        // SAFETY: nobody changes a body while there are users, but from `Handed`, under the lock.
        let body = unsafe { &*place.body.get() };
        if !matches!(body, Body::Nothing | Body::Handed) {
            return Ok(body);
        }
        // A pool that is opened first has all open that was handed.
        self.opened()?;
        let _making = place.making.lock();
        // SAFETY: under the lock.
        let body = unsafe { &mut *place.body.get() };
        if matches!(body, Body::Nothing | Body::Handed) {
            *body = self.reopened()?;
        }
        Ok(body)
    }

    fn reopened(&self) -> Result<Body> {
        let description = self.description();
        let (fs, node) = (&self.opened()?.fs, description.node());
        Ok(match description.what() {
            What::File => Body::File(fs.open(node, flags_of(description.flags()))?),
            What::Folder => Body::Folder(fs.open_folder(node)?),
            What::Node => Body::Node,
        })
    }

    /// The file; what is none is refused as the kernel does. The thread is inside.
    pub fn file(&self) -> Result<&Handle> {
        match self.body()? {
            Body::File(handle) => Ok(handle),
            Body::Folder(_) => Err(Errno::new(libc::EISDIR, "a folder has no bytes")),
            _ => Err(Errno::new(libc::EBADF, "it was opened by O_PATH, for its name alone")),
        }
    }

    /// The folder; an error of anything else. The thread is inside.
    pub fn folder(&self) -> Result<&Folder> {
        match self.body()? {
            Body::Folder(folder) => Ok(folder),
            _ => Err(Errno::new(libc::ENOTDIR, "what is open is no folder")),
        }
    }

    /// The file system, as this process asks it. The thread is inside.
    pub fn asked(&self) -> Result<Asked<'static>> {
        Ok(self.opened()?.fs.asked_by(crate::process::caller()))
    }
}

/// The engine's flags of an open file, which is not to be cut again.
fn flags_of(flags: c_int) -> OpenFlags {
    OpenFlags { truncate: false, ..OpenFlags::of(flags) }
}

impl Drop for Held {
    fn drop(&mut self) {
        let place = &PLACES[self.number];
        if place.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _inside = Inside::nested();
            locks::given_up(self, self.description().is_of_one());
            // SAFETY: nobody has it: from zero users there is no way back but a new description.
            let body = unsafe { place.body.get().replace(Body::Nothing) };
            drop(body);
            self.shared.give_up(self.number);
        }
    }
}

fn raise_highest(fd: c_int) {
    HIGHEST.fetch_max(fd as u32 + 1, Ordering::Relaxed);
}

/// Gives what was opened a number, with the flags of `open`. The thread is inside.
pub fn add(tree: &Tree, opened: FsOpened, flags: c_int) -> Result<c_int> {
    let (node, what, body) = match opened {
        FsOpened::File(handle) => (handle.ino(), What::File, Body::File(handle)),
        FsOpened::Folder(folder) => (folder.ino(), What::Folder, Body::Folder(folder)),
        FsOpened::Node(stat) => (stat.ino, What::Node, Body::Node),
    };
    let Some(shared) = descriptions::shared() else {
        return Err(Errno::new(libc::ENFILE, "the kernel gives no memory for descriptions"));
    };
    let kept = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY);
    let kept = kept & !libc::O_CLOEXEC;
    let Some(number) = shared.make_one(tree.number, node, what, kept) else {
        return Err(Errno::new(libc::ENFILE, "65,536 files of ours are open, and no more fit"));
    };
    let place = &PLACES[number];
    drop(keepers::taken_out(number));
    // SAFETY: the description is new, so nobody has the place.
    unsafe { *place.body.get() = body };
    place.users.store(1, Ordering::Release);
    let held = Held { number, shared };
    let fd = copied(shared.marker, 0, flags & libc::O_CLOEXEC != 0);
    let Some(word) = number_of(fd) else {
        return Err(Errno::new(libc::EMFILE, "this process may open no more files"));
    };
    raise_highest(fd);
    word.store(number as u32 + 1, Ordering::Release);
    std::mem::forget(held);
    traced::opened(fd);
    standard::follow(fd);
    Ok(fd)
}

/// A copy of a descriptor of the kernel's, with the lowest free number from one on.
fn copied(fd: c_int, from: c_int, cloexec: bool) -> c_int {
    let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let from = c_long::from(from);
    real!(fcntl(fd: c_int, command: c_int, from: c_long) -> c_int)
}

/// A number that the kernel has given for a copy of `fd` stands for the same.
pub fn copy(fd: c_int, new: c_int) {
    let Some(word) = number_of(new) else { return };
    let held = get(fd);
    let value = held.as_ref().map_or(0, |held| held.number as u32 + 1);
    if held.is_some() {
        raise_highest(new);
    }
    std::mem::forget(held);
    give_back(word.swap(value, Ordering::AcqRel));
    standard::follow(new);
}

/// What stood at a number has one descriptor less.
fn give_back(number: u32) {
    if !matches!(number, 0 | HIDDEN)
        && let Some(shared) = descriptions::there()
    {
        locks::closed(&Held { number: number as usize - 1, shared });
    }
}

/// A number is about to be closed, or has been: it stands for nothing of ours any more. `false`: it
/// is a hidden one, and stays.
pub fn close(fd: c_int) -> bool {
    let Some(word) = number_of(fd) else { return true };
    loop {
        match word.load(Ordering::Acquire) {
            HIDDEN => return false,
            0 => return true,
            number => {
                let was = word.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
                if was.is_ok() {
                    give_back(number);
                    standard::follow(fd);
                    return true;
                }
            }
        }
    }
}

/// Whether a number is the engine's own.
pub fn is_hidden(fd: c_int) -> bool {
    number_of(fd).is_some_and(|word| word.load(Ordering::Relaxed) == HIDDEN)
}

/// Notes a number as the engine's own.
pub fn note_hidden(fd: c_int) {
    if let Some(word) = number_of(fd) {
        raise_highest(fd);
        word.store(HIDDEN, Ordering::Release);
    }
}

/// The engine has closed a number of its own.
pub fn forget(fd: c_int) {
    if let Some(word) = number_of(fd) {
        let _ = word.compare_exchange(HIDDEN, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Moves a descriptor of the engine's out of the program's way; its new number.
pub fn hide(fd: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    let command = libc::F_GETFD;
    let flags = real!(fcntl(fd: c_int, command: c_int) -> c_int);
    let high = copied(fd, high(), flags & libc::FD_CLOEXEC != 0);
    if high < 0 {
        // There is no room there: it stays where it is.
        note_hidden(fd);
        return fd;
    }
    real!(close(fd: c_int) -> c_int);
    note_hidden(high);
    high
}

/// From which number on the engine's descriptors lie.
pub fn high() -> c_int {
    static HIGH: AtomicU32 = AtomicU32::new(0);
    let known = HIGH.load(Ordering::Relaxed);
    if known != 0 {
        return known as c_int;
    }
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: a place for the limit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let high = (limit.rlim_cur / 2).clamp(16, 1 << 16) as u32;
    HIGH.store(high, Ordering::Relaxed);
    high as c_int
}

/// The numbers of a range that are ours or hidden, in order.
pub fn in_range(first: c_uint, last: c_uint) -> impl Iterator<Item = (c_int, bool)> {
    let end = last.saturating_add(1).min(HIGHEST.load(Ordering::Relaxed));
    (first..end.max(first)).filter_map(|fd| match NUMBER[fd as usize].load(Ordering::Acquire) {
        0 => None,
        number => Some((fd as c_int, number == HIDDEN)),
    })
}

/// What the C library itself writes to a number of ours meanwhile, by functions of its own. The
/// kernel has a file of memory there so long; this library's calls go on to what the number stands
/// for.
pub fn caught(fd: c_int, work: impl FnOnce()) -> Vec<u8> {
    let Some(shared) = descriptions::there() else { return Vec::new() };
    // SAFETY: a string, and a flag.
    let memory = unsafe { libc::memfd_create(c"engram-caught".as_ptr(), libc::MFD_CLOEXEC) };
    if memory < 0 {
        return Vec::new();
    }
    let command = libc::F_GETFD;
    let flags = real!(fcntl(fd: c_int, command: c_int) -> c_int);
    let cloexec = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
    real!(dup3(memory: c_int, fd: c_int, cloexec: c_int) -> c_int);
    work();
    let marker = shared.marker;
    real!(dup3(marker: c_int, fd: c_int, cloexec: c_int) -> c_int);
    // SAFETY: a descriptor that was just made, and nobody else has.
    let mut memory = unsafe { std::fs::File::from_raw_fd(memory) };
    let mut bytes = Vec::new();
    let read = memory.rewind().and_then(|()| memory.read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

/// The numbers of ours that a program inherits which is about to be started.
pub fn inherited() -> impl Iterator<Item = c_int> {
    in_range(0, c_uint::MAX).map(|(fd, _)| fd).filter(|fd| {
        let (fd, command) = (*fd, libc::F_GETFD);
        let flags = real!(fcntl(fd: c_int, command: c_int) -> c_int);
        is_ours(fd) && flags & libc::FD_CLOEXEC == 0
    })
}

/// Whether a program inherits numbers of ours that is about to be started.
pub fn passes_any() -> bool {
    inherited().next().is_some()
}

/// Makes them real. What they stand for is given, since another thread may have closed one: who
/// lets go of the last of it needs the engine, and the process's descriptors.
pub fn make_real() -> Vec<Held> {
    let held = |fd| Some((fd, get(fd)?));
    let all: Vec<(c_int, Held)> = inherited().filter_map(held).collect();
    for (fd, held) in &all {
        make_real_of(*fd, held, 0);
    }
    all.into_iter().map(|(_, held)| held).collect()
}

/// Makes a number of ours real, which has this flag of `dup3` then.
pub fn make_one_real(fd: c_int, flags: c_int) {
    if let Some(held) = get(fd) {
        make_real_of(fd, &held, flags);
    }
}

fn make_real_of(fd: c_int, held: &Held, flags: c_int) {
    let Some(shared) = descriptions::there() else { return };
    let generation = u64::from(held.description().generation());
    let place = (held.number as u64 | generation << 20) as i64;
    let (nothing, whence) = (0_i64, libc::SEEK_CUR);
    if real!(lseek(fd: c_int, nothing: libc::off_t, whence: c_int) -> libc::off_t) == place {
        return;
    }
    let Some(new) = descriptions::reopened(shared.marker) else { return };
    let whence = libc::SEEK_SET;
    real!(lseek(new: c_int, place: libc::off_t, whence: c_int) -> libc::off_t);
    // Another thread may have closed it, and have the kernel's file by that number.
    if shared.is_marker(fd) {
        real!(dup3(new: c_int, fd: c_int, flags: c_int) -> c_int);
    }
    real!(close(new: c_int) -> c_int);
}

/// Knows the numbers again that the program before has handed on: by the table's, the marker's, and
/// those of leases. Without a number it is another file's by now. What it gives are the leases.
pub fn adopt(numbers: &[Option<c_int>]) -> Vec<c_int> {
    let [file, marker, leases @ ..] = numbers else { return Vec::new() };
    let leases: Vec<c_int> = leases.iter().copied().flatten().collect();
    for fd in &leases {
        note_hidden(*fd);
    }
    let (Some(file), Some(marker)) = (*file, *marker) else { return leases };
    let Some(shared) = descriptions::handed(file, marker) else { return leases };
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers: Vec<c_int> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter(|fd| !is_hidden(*fd)).for_each(take_in);
    shared.keep_only(|number| PLACES[number].users.load(Ordering::Relaxed) > 0);
    leases
}

/// Knows a number that has come from outside, if it was one of ours there.
pub fn take_in(fd: c_int) {
    static TAKING: Spin<()> = Spin::new(());
    let Some(shared) = descriptions::there().filter(|shared| shared.is_marker(fd)) else { return };
    let (nothing, whence) = (0_i64, libc::SEEK_CUR);
    let at = real!(lseek(fd: c_int, nothing: libc::off_t, whence: c_int) -> libc::off_t);
    let (number, generation) = ((at & 0xf_ffff) as usize, (at >> 20) as u32);
    let (Some(word), Some(place)) = (number_of(fd), PLACES.get(number)) else { return };
    let _taking = TAKING.lock();
    let more = |count: u32| (count > 0).then_some(count + 1);
    if place.users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_err() {
        if !shared.take_over(number, generation) {
            return;
        }
        drop(keepers::taken_out(number));
        // SAFETY: nobody has the place, and no other takes it meanwhile.
        unsafe { *place.body.get() = Body::Handed };
        place.users.store(1, Ordering::Release);
    }
    raise_highest(fd);
    word.store(number as u32 + 1, Ordering::Release);
    crate::streams::standard::follow(fd);
}

/// Makes a row for the child.
pub fn before_fork() {
    if let Some(shared) = descriptions::there() {
        shared.before_fork();
    }
}

/// On with it, in the parent.
pub fn after_fork() {}

/// The child has descriptors, and no calls of other threads that go on.
pub fn in_child() {
    let Some(shared) = descriptions::there() else { return };
    shared.in_child();
    let mut counts: Vec<(usize, u32)> = Vec::new();
    for (fd, hidden) in in_range(0, c_uint::MAX) {
        if hidden {
            continue;
        }
        let number = NUMBER[fd as usize].load(Ordering::Relaxed) as usize - 1;
        match counts.iter_mut().find(|(known, _)| *known == number) {
            Some((_, count)) => *count += 1,
            None => counts.push((number, 1)),
        }
    }
    for (number, count) in counts {
        PLACES[number].users.store(count, Ordering::Relaxed);
    }
}

/// Says that a number is nobody's.
pub fn bad_number() -> c_int {
    set_errno(libc::EBADF);
    -1
}
