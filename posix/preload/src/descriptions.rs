//! Descriptions: what `open` makes. All processes that have one share it.
//!
//! POSIX shares an open file's offset and flags between the descriptors that `dup` makes, a parent
//! and the child that it forks, and a program and the one that it becomes by `exec`. So they lie in
//! memory that all of these map: a table of 65,536 descriptions, in a file of the kernel's without
//! a name (`memfd_create`).
//!
//! # Whose they are
//!
//! Each process has a row in the table, with a bit for each description that it has. A description
//! counts the bits that stand for it, and is free at zero. A process that dies, or becomes another
//! program, leaves its row: a process that begins, or finds no room, looks for rows whose process
//! is gone, and takes their bits away. A fork's row is made by the parent, before there is a child,
//! so that nothing is free in between.
//!
//! A description that is used again has another generation, so that one that is handed over late is
//! not taken for another.
//!
//! # Offsets
//!
//! A read or a write that goes by the offset holds the description's lock meanwhile, so that two
//! writers write one behind the other. The lock's word is the holder's thread. One that dies with
//! it leaves it to the next: the offset is changed last.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engram::process::Life;

use crate::process;
use crate::real::real;

const MAGIC: u64 = u64::from_le_bytes(*b"ENGRDESC");
/// How many there are.
pub const DESCRIPTIONS: usize = 1 << 16;
const PROCESSES: usize = 4096;
const WORDS: usize = DESCRIPTIONS / 64;
/// The half of a description's uses that counts who has it; the other half counts from here on.
const HOLDERS: u64 = GENERATION - 1;
const GENERATION: u64 = 1 << 32;
/// Between two looks whether an offset is free again that somebody has for long.
const PAUSE: Duration = Duration::from_micros(100);
/// By which a program that is started finds the table: the numbers of two descriptors.
pub const HANDED: &CStr = c"ENGRAM_RUN_HANDED";

/// What a description is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// A file.
    File = 1,
    /// A folder.
    Folder = 2,
    /// A node that was opened by `O_PATH`.
    Node = 3,
}

/// A description.
#[repr(C, align(64))]
pub struct Description {
    /// How many processes have it, and, in the upper half, how often it was used again: one word,
    /// so that nobody takes a description over that is being used again.
    uses: AtomicU64,
    tree: AtomicU32,
    what: AtomicU32,
    node: AtomicU64,
    /// Those of `open`, as `F_SETFL` may have changed them.
    flags: AtomicU32,
    /// The thread that goes by the offset.
    lock: AtomicU32,
    offset: AtomicU64,
}

/// A process that has descriptions.
#[repr(C)]
struct Process {
    /// Its pid; 0: there is none.
    pid: AtomicU32,
    /// 1 while it is being made by its parent, whose pid that is.
    is_begun: AtomicU32,
    /// When it started.
    start: AtomicU64,
}

#[repr(C)]
struct Table {
    magic: AtomicU64,
    /// The file that stands for each of them among a process's descriptors.
    marker: [AtomicU64; 2],
    /// Where a free one is looked for next.
    next: AtomicUsize,
    processes: [Process; PROCESSES],
    descriptions: [Description; DESCRIPTIONS],
    rows: [[AtomicU64; WORDS]; PROCESSES],
}

/// The table, as this process has it.
pub struct Shared {
    table: &'static Table,
    /// The table's file.
    file: c_int,
    /// The descriptor of which each open file's is a copy.
    pub marker: c_int,
}

static SHARED: OnceLock<Option<Shared>> = OnceLock::new();
/// This process's row.
static ROW: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The row of the child that is being forked.
static CHILD: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The table; it is made when the first file is opened. `None`: the kernel gave none.
pub fn shared() -> Option<&'static Shared> {
    SHARED.get_or_init(Shared::make).as_ref()
}

/// The table, if there is one yet.
pub fn there() -> Option<&'static Shared> {
    SHARED.get().and_then(Option::as_ref)
}

/// The table that the program which was here before has handed on, if it has.
pub fn handed(file: c_int, marker: c_int) -> Option<&'static Shared> {
    SHARED.get_or_init(|| Shared::map(file, marker)).as_ref()
}

fn seal(fd: c_int, seals: c_int) {
    let (command, seals) = (libc::F_ADD_SEALS, c_long::from(seals));
    real!(fcntl(fd: c_int, command: c_int, seals: c_long) -> c_int);
}

/// Which file a descriptor stands for; `None`: it is closed.
pub fn file_of(fd: c_int) -> Option<[u64; 2]> {
    // SAFETY: plain data, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let to = &raw mut stat;
    let done = real!(fstat(fd: c_int, to: *mut libc::stat) -> c_int);
    (done == 0).then_some([stat.st_dev, stat.st_ino])
}

fn made(name: &CStr) -> Option<c_int> {
    let flags = libc::MFD_ALLOW_SEALING;
    // SAFETY: a string, and flags.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    (fd >= 0).then(|| crate::descriptors::hide(fd))
}

impl Shared {
    fn make() -> Option<Shared> {
        let file = made(c"engram-descriptions")?;
        let size = size_of::<Table>() as libc::off_t;
        if real!(ftruncate(file: c_int, size: libc::off_t) -> c_int) != 0 {
            return None;
        }
        seal(file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL);
        // The kernel is to neither read nor write by a descriptor of ours: it would be silent.
        let plain = made(c"engram-file")?;
        seal(plain, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE);
        let marker = reopened(plain)?;
        real!(close(plain: c_int) -> c_int);
        crate::descriptors::forget(plain);
        let marker = crate::descriptors::hide(marker);
        let shared = Shared { table: mapped(file)?, file, marker };
        let own = file_of(marker)?;
        shared.table.marker[0].store(own[0], Ordering::Relaxed);
        shared.table.marker[1].store(own[1], Ordering::Relaxed);
        shared.table.magic.store(MAGIC, Ordering::Release);
        shared.enter_process().then_some(shared)
    }

    fn map(file: c_int, marker: c_int) -> Option<Shared> {
        let table = mapped(file)?;
        let is_one = table.magic.load(Ordering::Acquire) == MAGIC;
        let shared = Shared { table, file, marker };
        crate::descriptors::note_hidden(file);
        crate::descriptors::note_hidden(marker);
        (is_one && shared.is_marker(marker) && shared.enter_process()).then_some(shared)
    }

    /// Whether a descriptor stands for one of them.
    pub fn is_marker(&self, fd: c_int) -> bool {
        let own = [0, 1].map(|at: usize| self.table.marker[at].load(Ordering::Relaxed));
        file_of(fd) == Some(own)
    }

    /// What a program that is started is to find in its environment.
    pub fn handed(&self) -> [c_int; 2] {
        [self.file, self.marker]
    }

    /// A description by its number.
    pub fn description(&self, number: usize) -> &'static Description {
        &self.table.descriptions[number]
    }

    /// Makes a description; `None`: there is no room for more.
    pub fn make_one(&self, tree: u32, node: u64, what: What, flags: c_int) -> Option<usize> {
        let found = self.free_one().or_else(|| {
            self.clear_gone();
            self.free_one()
        })?;
        let new = self.description(found);
        new.tree.store(tree, Ordering::Relaxed);
        new.node.store(node, Ordering::Relaxed);
        new.what.store(what as u32, Ordering::Relaxed);
        new.flags.store(flags as u32, Ordering::Relaxed);
        new.offset.store(0, Ordering::Relaxed);
        new.lock.store(0, Ordering::Release);
        if let Some(row) = self.row() {
            row[found / 64].fetch_or(1 << (found % 64), Ordering::Relaxed);
        }
        Some(found)
    }

    fn free_one(&self) -> Option<usize> {
        let from = self.table.next.load(Ordering::Relaxed);
        let free = |number: &usize| {
            let uses = &self.table.descriptions[*number].uses;
            let again =
                |uses: u64| (uses & HOLDERS == 0).then_some(uses.wrapping_add(GENERATION) | 1);
            uses.fetch_update(Ordering::Acquire, Ordering::Relaxed, again).is_ok()
        };
        let found = (0..DESCRIPTIONS).map(|at| (from + at) % DESCRIPTIONS).find(free)?;
        self.table.next.store(found + 1, Ordering::Relaxed);
        Some(found)
    }

    /// The process has the description, too: it was handed over. `false`: it is another by now.
    ///
    /// It is counted before the row says so. Who dies in between leaves it taken for ever, where
    /// the other way round it were given to another while somebody has it.
    pub fn take_over(&self, number: usize, generation: u32) -> bool {
        let Some(taken) = self.table.descriptions.get(number) else { return false };
        let bit = 1 << (number % 64);
        let Some(row) = self.row() else { return false };
        let more = |uses: u64| (uses >> 32 == u64::from(generation)).then_some(uses + 1);
        if taken.uses.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_err() {
            return false;
        }
        if row[number / 64].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            taken.uses.fetch_sub(1, Ordering::Release);
        }
        true
    }

    /// The process has it no more.
    pub fn give_up(&self, number: usize) {
        let bit = 1 << (number % 64);
        let Some(row) = self.row() else { return };
        if row[number / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
            self.table.descriptions[number].uses.fetch_sub(1, Ordering::Release);
        }
    }

    /// The descriptions that this process has.
    pub fn own(&self) -> impl Iterator<Item = usize> {
        let words = self.row().into_iter().flatten().enumerate();
        words.flat_map(|(at, word)| {
            let mut bits = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(at * 64 + bit)
            })
        })
    }

    /// This process's row; `None` in a child for which there was none: what it has stays taken.
    fn row(&self) -> Option<&'static [AtomicU64; WORDS]> {
        self.table.rows.get(ROW.load(Ordering::Relaxed))
    }

    /// Finds this process's row: its own from before an `exec`, or a free one.
    fn enter_process(&self) -> bool {
        let (pid, start) = (std::process::id(), own_start());
        let is_own = |row: &Process| {
            row.pid.load(Ordering::Acquire) == pid && row.start.load(Ordering::Relaxed) == start
        };
        let own = self.table.processes.iter().position(is_own);
        let Some(row) = own.or_else(|| self.free_row(pid)) else { return false };
        if own.is_none() {
            self.clear_row(row);
        }
        self.begin_row(row, pid);
        ROW.store(row, Ordering::Relaxed);
        true
    }

    /// Of what the program before had, this one has no more than this: all that was handed over has
    /// been taken over. Until then nobody else may take it for the last one's.
    pub fn keep_only(&self, is_kept: impl Fn(usize) -> bool) {
        self.own().filter(|number| !is_kept(*number)).for_each(|number| self.give_up(number));
    }

    fn begin_row(&self, row: usize, pid: u32) {
        let row = &self.table.processes[row];
        row.start.store(own_start(), Ordering::Relaxed);
        row.pid.store(pid, Ordering::Relaxed);
        row.is_begun.store(0, Ordering::Release);
    }

    fn free_row(&self, pid: u32) -> Option<usize> {
        let free = |row: &Process| {
            row.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let mut found = self.table.processes.iter().position(free);
        if found.is_none() {
            self.clear_gone();
            found = self.table.processes.iter().position(free);
        }
        let row = found?;
        self.table.processes[row].is_begun.store(1, Ordering::Release);
        Some(row)
    }

    /// Takes the bits of a row away.
    fn clear_row(&self, row: usize) {
        for (at, word) in self.table.rows[row].iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bits = word.swap(0, Ordering::Relaxed);
            for bit in (0..64).filter(|bit| bits & 1 << bit != 0) {
                let left = &self.table.descriptions[at * 64 + bit];
                left.uses.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Takes the rows of processes away that are gone.
    fn clear_gone(&self) {
        for (at, row) in self.table.processes.iter().enumerate() {
            let pid = row.pid.load(Ordering::Acquire);
            if pid == 0 || at == ROW.load(Ordering::Relaxed) {
                continue;
            }
            let is_begun = row.is_begun.load(Ordering::Acquire) != 0;
            let gone = match Life::of_process(pid) {
                Life::Gone => true,
                Life::Since(start) => {
                    let began = row.start.load(Ordering::Relaxed);
                    !is_begun && began != 0 && start != began
                }
                Life::Unknown => false,
            };
            // Of two that see it, one clears it.
            if gone && row.is_begun.swap(1, Ordering::AcqRel) == u32::from(is_begun) {
                self.clear_row(at);
                row.pid.store(0, Ordering::Release);
            }
        }
    }

    /// The process ends: it has none any more. Its row is taken by who finds it gone.
    pub fn leave(&self) {
        let row = ROW.load(Ordering::Relaxed);
        if row < PROCESSES {
            self.clear_row(row);
        }
    }

    /// Makes the row of a child that is about to be forked.
    pub fn before_fork(&self) {
        let row = self.free_row(std::process::id());
        CHILD.store(row.unwrap_or(usize::MAX), Ordering::Relaxed);
        let Some(own) = self.row() else { return };
        for (at, word) in own.iter().enumerate() {
            let bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            for bit in (0..64).filter(|bit| bits & 1 << bit != 0) {
                let shared = &self.table.descriptions[at * 64 + bit];
                shared.uses.fetch_add(1, Ordering::Relaxed);
            }
            // Of a child without a row they are counted, too: they stay taken.
            if let Some(row) = row {
                self.table.rows[row][at].store(bits, Ordering::Release);
            }
        }
    }

    /// The child's row is its own.
    pub fn in_child(&self) {
        let row = CHILD.load(Ordering::Relaxed);
        // Without one of its own it leaves its parent's alone.
        ROW.store(row, Ordering::Relaxed);
        if row != usize::MAX {
            self.begin_row(row, std::process::id());
        }
    }
}

fn mapped(file: c_int) -> Option<&'static Table> {
    let (near, size, offset) = (std::ptr::null_mut(), size_of::<Table>(), 0_i64);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let at = real!(
        mmap(near: *mut c_void, size: usize, protection: c_int, flags: c_int, file: c_int,
            offset: libc::off_t) -> *mut c_void
    );
    // SAFETY: a map of this size, of zeros or of a table, which is made of atomics; it stays.
    (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast::<Table>() })
}

/// The same file, by a description of the kernel's own, to which nothing can be read or written.
pub fn reopened(fd: c_int) -> Option<c_int> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let (path, flags) = (path.as_ptr(), libc::O_WRONLY);
    let new = real!(open(path: *const std::ffi::c_char, flags: c_int) -> c_int);
    (new >= 0).then_some(new)
}

/// When this process started.
fn own_start() -> u64 {
    match Life::of_process(std::process::id()) {
        Life::Since(start) => start,
        _ => 0,
    }
}

/// A description whose offset is this thread's.
pub struct Offset<'a>(&'a Description);

impl Description {
    /// Which tree it is of.
    pub fn tree(&self) -> u32 {
        self.tree.load(Ordering::Relaxed)
    }

    /// The node.
    pub fn node(&self) -> u64 {
        self.node.load(Ordering::Relaxed)
    }

    /// What it is of.
    pub fn what(&self) -> What {
        match self.what.load(Ordering::Relaxed) {
            2 => What::Folder,
            3 => What::Node,
            _ => What::File,
        }
    }

    /// How it was opened, as `F_GETFL` says.
    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed) as c_int
    }

    /// Changes that, as `F_SETFL` does.
    pub fn set_flags(&self, flags: c_int) {
        self.flags.store(flags as u32, Ordering::Relaxed);
    }

    /// Whether no other process has it.
    pub fn is_of_one(&self) -> bool {
        self.uses.load(Ordering::Acquire) & HOLDERS <= 1
    }

    /// How often it was used again.
    pub fn generation(&self) -> u32 {
        (self.uses.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Takes its lock.
    pub fn offset(&self) -> Offset<'_> {
        let own = process::thread();
        let mut looks = 0_u32;
        while let Err(holder) =
            self.lock.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
        {
            // No thread takes it twice: another of this number did, of the program before.
            if holder == own {
                break;
            }
            looks += 1;
            if looks.is_multiple_of(512) && Life::of_thread(holder) == Life::Gone {
                let taken =
                    self.lock.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    break;
                }
            } else if looks > 256 {
                // Its holder may be stopped.
                std::thread::sleep(PAUSE);
            } else if looks > 64 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Offset(self)
    }
}

impl Offset<'_> {
    /// Where the next read or write begins.
    pub fn get(&self) -> u64 {
        self.0.offset.load(Ordering::Relaxed)
    }

    /// Moves it.
    pub fn set(&self, offset: u64) {
        self.0.offset.store(offset, Ordering::Relaxed);
    }
}

impl Drop for Offset<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}
