//! The bell in every order in which its steps can come, by loom (`make model`).
//!
//! What runs is the engine's code: to listen, to set the bit, to raise. The word is loom's. What a
//! commit does is a number that is stored without any order, as LMDB's id is, under a mutex that
//! stands for the writer lock. The kernel is a mutex and a condition, as its own lock and queue for
//! the word are: it compares under its lock, and puts the thread to sleep. A watcher that sleeps
//! though all has been committed that ever will be is a deadlock, which loom finds.

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{BellWord, EXCHANGE, LOAD, announce, heard, raise};

/// How often threads are interrupted in one run, at most.
const PREEMPTIONS: usize = 3;

#[derive(Default)]
struct LoomBell {
    word: AtomicU32,
    /// How often somebody was woken.
    kernel: Mutex<u32>,
    woken: Condvar,
    committed: AtomicU64,
    writer_lock: Mutex<()>,
}

impl BellWord for LoomBell {
    fn load(&self) -> u32 {
        self.word.load(LOAD)
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, EXCHANGE, LOAD).is_ok()
    }

    fn wake(&self) {
        *self.kernel.lock().expect("the kernel") += 1;
        self.woken.notify_all();
    }
}

impl LoomBell {
    fn commit(&self) {
        let lock = self.writer_lock.lock().expect("the writer lock");
        let before = self.committed.load(Ordering::Relaxed);
        self.committed.store(before + 1, Ordering::Relaxed);
        drop(lock);
        if raise(self) {
            self.wake();
        }
    }

    /// Watches until so much is committed.
    fn watch(&self, all: u64) {
        loop {
            let number = heard(self);
            if self.committed.load(Ordering::Relaxed) == all {
                return;
            }
            if let Some(value) = announce(self, number) {
                self.sleep(value);
            }
        }
    }

    fn sleep(&self, value: u32) {
        let kernel = self.kernel.lock().expect("the kernel");
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.woken.wait(kernel));
        }
    }

    fn calls(&self) -> u32 {
        *self.kernel.lock().expect("the kernel")
    }
}

fn in_every_order(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

fn all_at_once(writers: u64, watchers: usize) {
    in_every_order(move || {
        let bell = Arc::new(LoomBell::default());
        let mut threads = Vec::new();
        for _ in 0..writers {
            let bell = Arc::clone(&bell);
            threads.push(thread::spawn(move || bell.commit()));
        }
        for _ in 1..watchers {
            let bell = Arc::clone(&bell);
            threads.push(thread::spawn(move || bell.watch(writers)));
        }
        bell.watch(writers);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn a_watcher_sleeps_through_no_commit() {
    all_at_once(2, 1);
}

#[test]
fn each_of_two_watchers_sleeps_through_no_commit() {
    all_at_once(1, 2);
}

/// A watcher that was killed when it had announced its sleep leaves the bit set.
#[test]
fn the_dead_cost_one_call() {
    in_every_order(|| {
        let bell = Arc::new(LoomBell::default());
        let other = Arc::clone(&bell);
        let dead = thread::spawn(move || announce(&*other, heard(&*other)));
        bell.commit();
        bell.commit();
        dead.join().expect("no panic");
        let calls = bell.calls();
        assert!(calls <= 1, "the dead have cost {calls} calls");
        bell.commit();
        bell.commit();
        assert!(bell.calls() <= 1, "the dead have cost {} calls", bell.calls());
    });
}
