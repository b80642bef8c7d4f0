//! The tail: the right to change a file's size, and to remove its segments (F4).

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

/// A tail that is held.
pub(super) struct Tail {
    head: FileHead,
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.head.leave_tail();
    }
}

/// Takes the tail if nobody has it.
pub(super) fn try_take(open: &OpenFile, head: &FileHead) -> Result<Option<Tail>> {
    let lease = open.core.enter()?.lease().id();
    Ok(head.take_tail(0, lease).is_ok().then(|| Tail { head: head.clone() }))
}

/// Waits for the tail. A dead holder's is taken over: there is nothing to mend.
pub(super) fn take(open: &OpenFile, head: &FileHead) -> Result<Tail> {
    let core = &open.core;
    let lease = core.enter()?.lease().id();
    let (mut tries, begun, mut looked) = (0_u32, Instant::now(), None::<Instant>);
    loop {
        let Err(holder) = head.take_tail(0, lease) else {
            step!("file.tail");
            return Ok(Tail { head: head.clone() });
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
        if holder != lease && !is_alive(core, holder)? && head.take_tail(holder, lease).is_ok() {
            step!("file.tail-taken");
            return Ok(Tail { head: head.clone() });
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
