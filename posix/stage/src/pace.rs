//! How fast a stage goes: so many bytes, and so many files, a second.
//!
//! Workers ask before they move bytes or make a file, and wait until it is their turn. A limit may
//! be raised and lowered while they work: whoever waits looks again at least every [`LOOK_AGAIN`].
//!
//! *Protocol*: a limit is a bucket that fills at its rate, and holds what comes in [`BURST`]. A
//! worker takes what it needs, also if the bucket goes below nothing then, and waits beforehand
//! until there is anything in it. So a piece of any size passes, and the mean is the rate.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a bucket holds at most: what comes in this time.
const BURST: Duration = Duration::from_millis(50);
/// Whoever waits looks this often whether the rate has changed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A limit that can be changed.
struct Bucket {
    /// What it gets a second; `None`: there is no limit.
    rate: Option<u64>,
    /// What is in it; below 0, somebody has taken more than there was.
    left: f64,
    since: Instant,
}

#[expect(clippy::cast_precision_loss, reason = "rates are not counted to the byte")]
impl Bucket {
    fn new(rate: Option<u64>) -> Bucket {
        Bucket { rate, left: 0.0, since: Instant::now() }
    }

    /// Takes `count` if there is anything; else how long it takes until there is.
    fn take(&mut self, count: u64, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        // A rate of 0 stands still until it is raised.
        let rate = rate as f64;
        let filled = now.saturating_duration_since(self.since).as_secs_f64() * rate;
        self.left = (self.left + filled).min(rate * BURST.as_secs_f64());
        self.since = now;
        if self.left < 0.0 || rate == 0.0 {
            let wait = if rate == 0.0 { f64::MAX } else { -self.left / rate };
            return Err(Duration::try_from_secs_f64(wait).unwrap_or(LOOK_AGAIN));
        }
        self.left -= count as f64;
        Ok(())
    }

    fn set(&mut self, rate: Option<u64>, now: Instant) {
        if self.rate != rate {
            // What was taken in advance was taken at the former rate.
            self.left = self.left.max(0.0);
            (self.rate, self.since) = (rate, now);
        }
    }
}

/// A limit of bytes, and one of files.
type Both = [Option<u64>; 2];

struct Limits {
    /// What was asked for.
    own: Both,
    /// The part of what all stages of a file system may do together.
    part: Both,
    buckets: [Bucket; 2],
}

impl Limits {
    /// What holds: the lower of two limits.
    fn apply(&mut self, now: Instant) {
        for (at, bucket) in self.buckets.iter_mut().enumerate() {
            let both = [self.own[at], self.part[at]];
            bucket.set(both.into_iter().flatten().min(), now);
        }
    }
}

/// The limits of a stage.
pub struct Pace {
    limits: Mutex<Limits>,
    changed: Condvar,
}

const BYTES: usize = 0;
const FILES: usize = 1;

impl Pace {
    /// So many bytes and files a second; `None`: as fast as it goes.
    pub fn new(bytes: Option<u64>, files: Option<u64>) -> Pace {
        let limits = Limits {
            own: [bytes, files],
            part: [None, None],
            buckets: [Bucket::new(bytes), Bucket::new(files)],
        };
        Pace { limits: Mutex::new(limits), changed: Condvar::new() }
    }

    fn held(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the limits.
    pub fn set(&self, bytes: Option<u64>, files: Option<u64>) {
        self.change(|limits| limits.own = [bytes, files]);
    }

    /// Changes the part of what all stages of a file system may do together.
    pub fn set_part(&self, bytes: Option<u64>, files: Option<u64>) {
        self.change(|limits| limits.part = [bytes, files]);
    }

    fn change(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.held();
        change(&mut limits);
        limits.apply(Instant::now());
        drop(limits);
        self.changed.notify_all();
    }

    /// The limits as they are: the lower of what was asked for and the part of all.
    pub fn limits(&self) -> (Option<u64>, Option<u64>) {
        let limits = self.held();
        (limits.buckets[BYTES].rate, limits.buckets[FILES].rate)
    }

    /// Waits until so many bytes may be moved; `false`: `ended` says that nobody goes on.
    pub fn bytes(&self, count: u64, ended: impl Fn() -> bool) -> bool {
        self.take(BYTES, count, ended)
    }

    /// Waits until a file may be made, opened or removed.
    pub fn file(&self, ended: impl Fn() -> bool) -> bool {
        self.take(FILES, 1, ended)
    }

    fn take(&self, which: usize, count: u64, ended: impl Fn() -> bool) -> bool {
        let mut limits = self.held();
        loop {
            if ended() {
                return false;
            }
            let taken = limits.buckets[which].take(count, Instant::now());
            let Err(wait) = taken else { return true };
            let wait = wait.min(LOOK_AGAIN);
            let woken = self.changed.wait_timeout(limits, wait);
            limits = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "rates are not counted to the byte")]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{BURST, Bucket, Pace};

    proptest! {
        /// Simulated: a taker that waits as it is told has the rate as its mean, whatever pieces.
        #[test]
        fn the_mean_is_the_rate(
            rate in 1_000_u64..1_000_000_000,
            pieces in prop::collection::vec(1_u64..10_000_000, 10..100),
        ) {
            let begin = Instant::now();
            let (mut bucket, mut now) = (Bucket::new(Some(rate)), begin);
            bucket.since = begin;
            let (mut taken, mut last) = (0, 0);
            for piece in pieces {
                while let Err(wait) = bucket.take(piece, now) {
                    now += wait + Duration::from_nanos(1);
                }
                taken += piece;
                last = piece;
            }
            let seconds = (now - begin).as_secs_f64();
            let most = seconds * rate as f64 + rate as f64 * BURST.as_secs_f64();
            // The last piece is taken in advance.
            prop_assert!((taken - last) as f64 <= most * 1.000_1 + 1.0, "{taken} in {seconds} s");
        }
    }

    #[test]
    fn a_limit_of_nothing_stands_still_until_it_is_raised() {
        let pace = Pace::new(Some(0), None);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| pace.bytes(1 << 30, || false));
            assert!(!worker.is_finished());
            pace.set(None, None);
            assert!(worker.join().expect("no panic"));
        });
        assert!(!Pace::new(Some(0), None).bytes(1, || begun.elapsed() > Duration::from_millis(1)));
        let pace = Pace::new(Some(7), None);
        pace.set_part(Some(9), Some(3));
        assert_eq!(pace.limits(), (Some(7), Some(3)), "the lower one holds");
        pace.set(None, None);
        assert_eq!(pace.limits(), (Some(9), Some(3)));
    }
}
