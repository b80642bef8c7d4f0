//! A bell: a word by which sleeping threads, of any process, hear that something was committed.
//!
//! The word is a number and, in its lowest bit, whether somebody may sleep. A commit *rings*: it
//! raises the number and clears the bit, in one step. If the bit was set, it wakes the threads that
//! sleep. So a bell that nobody listens to costs one atomic operation and no call of the kernel. A
//! process that slept and was killed, or stands still, has left the bit set once: the next ring
//! wakes nobody, and clears it.
//!
//! A thread that wants to sleep does it in this order:
//!
//! 1. *Listen*: take the number down.
//! 2. Look at what there is. Each commit that raised the number before step 1 is seen.
//! 3. *Sleep*: set the bit, if the number is what it was; and have the kernel put the thread to
//!    sleep if the word is so still.
//!
//! No ring is missed. One before step 1 is seen in step 2. One between 1 and 3 has raised the
//! number, so that step 3 does not sleep. One after the bit was set finds it, and wakes. Those are
//! all steps on one word, which all processes see in one order. (After 2^31 rings within step 2 the
//! number is the same again.)
//!
//! *What a ring cannot do*: a process that is killed between its commit and its ring, or between
//! the ring and the call of the kernel, leaves threads asleep. So every sleep has a bound, and the
//! caller looks then (its `HEARTBEAT`).

#[cfg(all(test, loom))]
mod model;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::futex;
use crate::futex::Awoken;
use engram_base::error::Result;
use engram_base::faults::step;

/// The bit that says that somebody may sleep.
const ASLEEP: u32 = 1;
/// By so much a ring raises the word.
const RING: u32 = 2;
/// On a kernel that cannot sleep on several words, a thread with several bells looks so often.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a bell is made of: a word of shared memory, or of a model.
trait BellWord {
    /// The word.
    fn load(&self) -> u32;
    /// Puts another in its place, if it is this one.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Wakes all threads that sleep on it.
    fn wake(&self);
}

/// The orders in which the word is read, and changed, in the model as well.
const LOAD: Ordering = Ordering::Acquire;
const EXCHANGE: Ordering = Ordering::AcqRel;

impl BellWord for AtomicU32 {
    fn load(&self) -> u32 {
        AtomicU32::load(self, LOAD)
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, EXCHANGE, LOAD).is_ok()
    }

    fn wake(&self) {
        futex::wake_all(self);
    }
}

/// A bell: one word, at its place in a file that several processes map.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct CommitBell(AtomicU32);

/// What somebody has taken down of a bell before looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard(u32);

impl CommitBell {
    /// Rings: wakes all threads that sleep, if any may.
    #[inline]
    pub fn ring(&self) {
        if raise(&self.0) {
            step!("bell.raised");
            self.0.wake();
            step!("bell.rung");
        }
    }

    /// Takes the number down, before looking at what there is.
    pub fn listen(&self) -> Heard {
        Heard(heard(&self.0))
    }
}

/// Sleeps until one of the bells has rung since it was listened to, for so long at most. Threads of
/// this process and of others may do so at once.
pub fn sleep(bells: &[(&CommitBell, Heard)], within: Duration) -> Result<Awoken> {
    let mut words = Vec::with_capacity(bells.len());
    for (bell, heard) in bells {
        match announce(&bell.0, heard.0) {
            Some(value) => words.push((&bell.0, value)),
            None => return Ok(Awoken::Called),
        }
    }
    step!("bell.sleeping");
    match words[..] {
        [] => {
            std::thread::sleep(within);
            Ok(Awoken::InTime)
        }
        [(word, value)] => futex::sleep(word, value, within),
        [(word, value), ..] => match futex::sleep_on_any(&words, within)? {
            Some(awoken) => Ok(awoken),
            None => match futex::sleep(word, value, within.min(LOOK_AGAIN))? {
                Awoken::InTime if within > LOOK_AGAIN => Ok(Awoken::Called),
                awoken => Ok(awoken),
            },
        },
    }
}

/// Raises the number and clears the bit; whether it was set.
#[inline]
fn raise(word: &impl BellWord) -> bool {
    loop {
        let was = word.load();
        if word.exchange(was, was.wrapping_add(RING) & !ASLEEP) {
            return was & ASLEEP != 0;
        }
    }
}

fn heard(word: &impl BellWord) -> u32 {
    word.load() & !ASLEEP
}

/// Sets the bit, if nobody has rung since; the word to sleep on.
fn announce(word: &impl BellWord, heard: u32) -> Option<u32> {
    let asleep = heard | ASLEEP;
    (word.exchange(heard, asleep) || word.load() == asleep).then_some(asleep)
}

#[cfg(test)]
mod tests {
    use super::{Awoken, CommitBell, sleep};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn a_ring_since_one_has_listened_is_never_slept_through() {
        let bell = CommitBell::default();
        let heard = bell.listen();
        bell.ring();
        assert_eq!(sleep(&[(&bell, heard)], LONG), Ok(Awoken::Called));
        assert_eq!(sleep(&[(&bell, bell.listen())], SHORT), Ok(Awoken::InTime));
        // A bit that was left set wakes nobody twice, and keeps nobody from sleeping.
        assert_eq!(sleep(&[(&bell, bell.listen())], SHORT), Ok(Awoken::InTime));
    }

    #[test]
    fn who_sleeps_is_woken_by_each_ring() {
        let (bell, other, rung) = (CommitBell::default(), CommitBell::default(), AtomicU64::new(0));
        let rings = 2000;
        thread::scope(|scope| {
            for both in [false, true] {
                let (bell, other, rung) = (&bell, &other, &rung);
                scope.spawn(move || {
                    loop {
                        let heard = [(bell, bell.listen()), (other, other.listen())];
                        if rung.load(Ordering::SeqCst) == rings {
                            break;
                        }
                        let bells = if both { &heard[..] } else { &heard[..1] };
                        assert_ne!(sleep(bells, LONG), Ok(Awoken::InTime), "a ring was missed");
                    }
                });
            }
            for _ in 0..rings {
                rung.fetch_add(1, Ordering::SeqCst);
                bell.ring();
            }
        });
    }
}
