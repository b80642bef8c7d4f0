//! The tail: the right to change a file's size, and to remove its segments (F4).
//!
//! A process that leaves its lease to the program which it becomes holds none by then: nobody would
//! ever let go of it, and the lease lives on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::OpenFile;
use crate::realm::core::Core;
use crate::realm::dead;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_space::head::FileHead;

/// How often one asks for a tail at once, and how often with other threads let in between.
const TRIES_AT_ONCE: u32 = 100;
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_micros(200);
/// How often it is asked whether the holder lives.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// After so long the holder stands still.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many tails this process holds. With [`CLOSED`] in it, none of its threads takes one.
static HELD: AtomicU32 = AtomicU32::new(0);
const CLOSED: u32 = 1 << 31;

/// A tail that is held.
pub(super) struct Tail {
    head: FileHead,
}

impl Tail {
    /// Takes a tail from a holder, or from nobody; else who has it. While this process holds still
    /// ([`close`]), that is one of its own threads.
    fn take(head: &FileHead, from: u64, lease: u64) -> std::result::Result<Tail, u64> {
        let more = |held: u32| (held & CLOSED == 0).then_some(held + 1);
        if HELD.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_err() {
            return Err(lease);
        }
        let taken = head.take_tail(from, lease).map(|()| Tail { head: head.clone() });
        taken.inspect_err(|_| leave())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.head.leave_tail();
        leave();
    }
}

fn leave() {
    HELD.fetch_sub(1, Ordering::Release);
}

/// Waits until no thread of this process holds a tail; none takes one until [`open`]. The caller
/// has no lock that the holder of a tail may wait for. A thread that a fault has thrown out of a
/// copy holds its tail for ever, and is waited for no longer than [`PATIENCE`].
pub(crate) fn close() {
    let begun = Instant::now();
    let waits = || {
        thread::sleep(PAUSE);
        begun.elapsed() < PATIENCE
    };
    while HELD.fetch_or(CLOSED, Ordering::Acquire) & CLOSED != 0 && waits() {}
    while HELD.load(Ordering::Acquire) != CLOSED && waits() {}
}

/// Tails may be taken again.
pub(crate) fn open() {
    HELD.fetch_and(!CLOSED, Ordering::Release);
}

/// In a child: it holds none of those that its parent held.
pub(crate) fn forget() {
    HELD.store(0, Ordering::Relaxed);
}

/// Takes the tail if nobody has it.
pub(super) fn try_take(open: &OpenFile, head: &FileHead) -> Result<Option<Tail>> {
    let lease = open.core.enter()?.lease().id();
    Ok(Tail::take(head, 0, lease).ok())
}

/// Waits for the tail. A dead holder's is taken over: there is nothing to mend.
pub(super) fn take(open: &OpenFile, head: &FileHead) -> Result<Tail> {
    let core = &open.core;
    let lease = core.enter()?.lease().id();
    let (mut tries, begun, mut looked) = (0_u32, Instant::now(), None::<Instant>);
    loop {
        let holder = match Tail::take(head, 0, lease) {
            Ok(tail) => {
                step!("file.tail");
                return Ok(tail);
            }
            Err(holder) => holder,
        };
        tries = tries.saturating_add(1);
        match tries {
            ..TRIES_AT_ONCE => std::hint::spin_loop(),
            TRIES_AT_ONCE..TRIES => thread::yield_now(),
            _ => thread::sleep(PAUSE),
        }
        let due = tries >= TRIES && looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if !due {
            continue;
        }
        looked = Some(Instant::now());
        // A thread of this process lets go of it, as long as the process lives.
        if holder != lease
            && !is_alive(core, holder)?
            && let Ok(tail) = Tail::take(head, holder, lease)
        {
            step!("file.tail-taken");
            return Ok(tail);
        }
        if begun.elapsed() >= PATIENCE {
            fail!(
                Busy,
                "the file {:#x} is being extended or cut by the lease {holder:016x}, which stands \
                 still: look who that is (`engram stats`), and let it go on or end it",
                open.oid
            );
        }
    }
}

/// Whether the process of a lease lives.
fn is_alive(core: &Core, lease: u64) -> Result<bool> {
    let inside = core.enter()?;
    dead::is_alive(core, &inside, lease)
}
