//! The board: what workers do, written down before and after, where no death can take it.
//!
//! A worker writes an operation into its log and raises `started`; does it; writes how it ended and
//! raises `acked`. So after a kill the controller knows every operation that was acknowledged, and
//! the one, if any, that may have been done or not. The board also carries what the controller
//! wants of a worker: to stand still, to die at a step, to do something rare.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

use crate::machine::Atomics;
use crate::operation::{Operation, Outcome};

/// Workers that the controller forks.
pub const WRITERS: usize = 3;
/// The first slot of a program: a worker that reaches the pool by libc's calls alone.
pub const FIRST_PROGRAM: usize = 2 * WRITERS;
/// Programs that the controller starts.
pub const PROGRAMS: usize = 2;
/// Slots of workers that write: those of writers, of a child of each, of programs, of theirs.
pub const WRITING: usize = FIRST_PROGRAM + 2 * PROGRAMS;
/// Processes that read.
pub const READERS: usize = 2;
/// The slot of the reader that is a stranger to the namespace, where this is root's campaign.
pub const STRANGER: usize = WRITING + READERS - 1;
/// All slots.
pub const SLOTS: usize = WRITING + READERS;
/// How many operations one life may have.
pub const LOG: usize = 1 << 14;
/// How many objects are locked.
pub const LOCKS: usize = 2;
/// How many files are locked.
pub const FILE_LOCKS: usize = 3;
/// How many steps there may be.
pub const STEPS: usize = 512;

/// Whether a slot is for a program, or for a program's child.
pub fn is_program(slot: usize) -> bool {
    (FIRST_PROGRAM..WRITING).contains(&slot)
}

/// The slot for the child of a worker, if it may have one.
pub fn child_of(slot: usize) -> Option<usize> {
    match slot {
        0..WRITERS => Some(slot + WRITERS),
        FIRST_PROGRAM.. if slot < FIRST_PROGRAM + PROGRAMS => Some(slot + PROGRAMS),
        _ => None,
    }
}

/// Whether a slot is for a worker's child.
pub fn is_child(slot: usize) -> bool {
    slot < WRITING && child_of(slot).is_none()
}

/// What a worker does at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Trap {
    /// Dies.
    Die = 0,
    /// Stands still, with all locks that it has.
    Hold = 1,
}

/// One operation in a log.
pub struct Entry {
    words: [AtomicU64; 4],
    outcome: AtomicU32,
}

/// One worker's part of the board.
pub struct Slot {
    /// Its pid; 0 while nobody works here.
    pub pid: AtomicI32,
    /// Its lives so far: each has its own seed.
    pub life: AtomicU32,
    /// The seed of this life.
    pub seed: AtomicU64,
    /// Whether a parent may fork into it (for children).
    pub ready: AtomicU32,
    /// Operations begun.
    pub started: AtomicU64,
    /// Operations ended.
    pub acked: AtomicU64,
    /// Whether it stands still, as `Board::pause` asks.
    pub parked: AtomicU32,
    /// The step to be trapped at, plus one; 0 for none.
    pub trap: AtomicU32,
    /// How often to pass it before.
    pub passes: AtomicU32,
    /// What to do there: a [`Trap`].
    pub trap_kind: AtomicU32,
    /// The step at which the trap has sprung, plus one.
    pub sprung: AtomicU32,
    /// What it shall do often: an [`crate::operation::Urge`].
    pub urge: AtomicU32,
    /// Whether it shall end in good order.
    pub quit: AtomicU32,
    /// Whether it has.
    pub ended: AtomicU32,
    /// Whether it met something wrong.
    pub failed: AtomicU32,
    /// Checks of views and snapshots that it made.
    pub checks: AtomicU64,
    log: [Entry; LOG],
}

/// What all processes share.
pub struct Board {
    /// Whether all shall stand still between two operations.
    pub pause: AtomicU32,
    /// How often each step was passed.
    pub passed: [AtomicU64; STEPS],
    /// How often the preloaded library's engine passed it, in programs.
    pub passed_by_programs: [AtomicU64; STEPS],
    /// Who has each file's lock, or had it last: a number of its own.
    pub file_locks: [AtomicU64; FILE_LOCKS],
    /// Who has each lock for writing, or had it last: a number of its own.
    pub locks: [AtomicU64; LOCKS],
    /// One for each worker.
    pub slots: [Slot; SLOTS],
}

// SAFETY: atomics alone.
unsafe impl Atomics for Board {}

impl Slot {
    /// Makes it ready for a new life.
    pub fn renew(&self, seed: u64) {
        for word in [&self.parked, &self.trap, &self.sprung, &self.urge, &self.quit, &self.ended] {
            word.store(0, SeqCst);
        }
        self.started.store(0, SeqCst);
        self.acked.store(0, SeqCst);
        self.seed.store(seed, SeqCst);
        self.life.fetch_add(1, SeqCst);
        self.pid.store(0, SeqCst);
    }

    /// Writes down what is about to be done.
    pub fn begin(&self, operation: &Operation) {
        let number = self.started.load(SeqCst);
        let entry = &self.log[number as usize];
        for (place, word) in entry.words.iter().zip(operation.to_words()) {
            place.store(word, SeqCst);
        }
        self.started.store(number + 1, SeqCst);
    }

    /// Writes down how it ended.
    pub fn end(&self, outcome: Outcome) {
        let number = self.acked.load(SeqCst);
        self.log[number as usize].outcome.store(outcome as u32, SeqCst);
        self.acked.store(number + 1, SeqCst);
    }

    /// Whether the log has no room.
    pub fn is_full(&self) -> bool {
        self.started.load(SeqCst) as usize == LOG
    }

    /// An operation that was begun.
    pub fn operation(&self, number: u64) -> Operation {
        let entry = &self.log[number as usize];
        Operation::from_words(std::array::from_fn(|place| entry.words[place].load(SeqCst)))
    }

    /// How one ended.
    pub fn outcome(&self, number: u64) -> Outcome {
        Outcome::from_word(self.log[number as usize].outcome.load(SeqCst))
    }

    /// Sets a trap.
    pub fn arm(&self, step: usize, passes: u32, kind: Trap) {
        self.sprung.store(0, SeqCst);
        self.passes.store(passes, SeqCst);
        self.trap_kind.store(kind as u32, SeqCst);
        self.trap.store(step as u32 + 1, SeqCst);
    }

    /// Takes it away again.
    pub fn disarm(&self) {
        self.trap.store(0, SeqCst);
        self.urge.store(0, SeqCst);
    }

    /// The step at which it has sprung.
    pub fn sprung_at(&self) -> Option<usize> {
        (self.sprung.load(SeqCst) as usize).checked_sub(1)
    }
}
