//! Locks of objects and groups: who keeps out whom, and what ends them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    Fixture, Line, alone, alone_with, attach, deadline, filled, fork, put, sound, spawn,
};
use engram::{Error, Kind, Lock, LockMode, Member, Mode, Pool, Realm, Result};

use LockMode::{Read, Write};

fn member(realm: &Realm, path: &str) -> Member {
    realm.lookup(realm.root(), path).unwrap().unwrap()
}

#[allow(clippy::unnecessary_wraps)] // as locks take it
fn wait(time: Duration) -> Result<()> {
    std::thread::sleep(time);
    Ok(())
}

/// Takes a lock at once, or not.
fn try_lock(realm: &Realm, path: &str, mode: LockMode) -> Result<Lock> {
    realm.lock(member(realm, path), mode, Some(Duration::ZERO), &mut wait)
}

/// Takes a lock, however long it takes.
fn take(realm: &Realm, path: &str, mode: LockMode) -> Lock {
    realm.lock(member(realm, path), mode, Some(deadline() - Instant::now()), &mut wait).unwrap()
}

fn refused(lock: Result<Lock>) -> Error {
    lock.map(|_| ()).expect_err("it was not refused")
}

fn with_two(fixture: &Fixture) -> (Realm, Pool, Realm) {
    let realm = fixture.realm();
    put(&realm, "run/a", &filled(1, 1, 9));
    put(&realm, "run/b", &filled(1, 1, 9));
    let (pool, other) = attach(&fixture.path, Mode::ReadWrite);
    (realm, pool, other)
}

/// In a thread of its own, where what it has not locked itself counts as another's.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn a_writer_is_alone_and_readers_are_together() {
    let fixture = Fixture::new(4 << 20);
    let (realm, _pool, other) = with_two(&fixture);
    for path in ["run", "run/a"] {
        for (held, asked, may) in
            [(Write, Write, false), (Write, Read, false), (Read, Write, false), (Read, Read, true)]
        {
            let lock = take(&realm, path, held);
            let got = elsewhere(|| try_lock(&other, path, asked).map(drop));
            assert_eq!(got.is_ok(), may, "{held:?}, then {asked:?}");
            if let Err(error) = got {
                assert_eq!(error.kind(), Kind::Busy);
                assert!(error.message().contains("another thread of this process"), "{error}");
            }
            assert!(elsewhere(|| try_lock(&other, "run/b", Write)).is_ok());
            assert!(lock.is_held() && lock.mode() == held);
            drop(lock);
            assert!(elsewhere(|| try_lock(&other, path, Write)).is_ok());
        }
    }
}

#[test]
fn a_thread_joins_its_own_lock_and_is_refused_more() {
    let fixture = Fixture::new(4 << 20);
    let (realm, _pool, other) = with_two(&fixture);
    let outer = take(&realm, "run/a", Write);
    let (again, reading) = (take(&realm, "run/a", Write), take(&realm, "run/a", Read));
    drop((outer, again));
    // The last to go ends it.
    assert!(elsewhere(|| try_lock(&other, "run/a", Read)).is_err());
    drop(reading);
    let reading = take(&realm, "run/a", Read);
    let more = refused(try_lock(&realm, "run/a", Write));
    assert!(more.kind() == Kind::Busy && more.message().contains("for reading"), "{more}");
    assert!(reading.is_held());
}

#[test]
fn a_writers_turn_comes_though_readers_never_cease() {
    let fixture = Fixture::new(4 << 20);
    let (realm, _pool, _other) = with_two(&fixture);
    let (over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = deadline();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Each asks again at once: hardly ever has none of them the lock.
                while !over.load(Ordering::Relaxed) && Instant::now() < until {
                    let lock = take(&realm, "run/a", Read);
                    taken.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(3));
                    drop(lock);
                }
            });
        }
        while taken.load(Ordering::Relaxed) < 10 {
            std::thread::yield_now();
        }
        drop(take(&realm, "run/a", Write));
        over.store(true, Ordering::Relaxed);
    });
    assert!(Instant::now() < until);
}

/// What runs while a thread waits (a handler of signals) does not pass for the lock's holder.
#[test]
fn nothing_is_had_within_the_waiting_for_it() {
    let fixture = Fixture::new(4 << 20);
    let (realm, _pool, other) = with_two(&fixture);
    let held = take(&other, "run/a", Write);
    elsewhere(|| {
        let mut within = None;
        let _ =
            realm.lock(member(&realm, "run/a"), Write, Some(Duration::from_millis(1)), &mut |_| {
                within = Some(try_lock(&realm, "run/a", Write).map(drop));
                Ok(())
            });
        let error = within.unwrap().unwrap_err();
        assert!(error.message().contains("waits for"), "{error}");
    });
    drop(held);
}

#[test]
fn what_cannot_be_written_is_locked_for_reading_alone() {
    let fixture = Fixture::new(4 << 20);
    let (realm, _pool, _other) = with_two(&fixture);
    let (_reading, reader) = attach(&fixture.path, Mode::Read);
    assert_eq!(refused(try_lock(&reader, "run/a", Write)).kind(), Kind::ReadOnly);
    let lock = take(&reader, "run/a", Read);
    assert!(elsewhere(|| try_lock(&realm, "run/a", Write)).is_err());
    drop(lock);
    let at = realm.snapshot(None).unwrap();
    assert_eq!(refused(try_lock(&at, "run/a", Write)).kind(), Kind::ReadOnly);
    assert!(try_lock(&at, "run/a", Read).is_ok());
}

#[test]
fn what_is_gone_cannot_be_locked_and_what_goes_stays_locked() {
    let fixture = Fixture::new(4 << 20);
    let (realm, _pool, other) = with_two(&fixture);
    let there = member(&realm, "run/a");
    let lock = take(&realm, "run/a", Write);
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock(there, Write, None, &mut wait).map(drop));
        realm.delete(realm.root(), "run/a").unwrap();
        assert!(lock.is_held());
        drop(lock);
        waiting.join().unwrap()
    });
    // Whether it asked before or after, it was told.
    assert_eq!(waiting.unwrap_err().kind(), Kind::NotFound);
    let gone = realm.lock(there, Read, Some(Duration::ZERO), &mut wait);
    assert_eq!(refused(gone).kind(), Kind::NotFound);
}

#[test]
fn waiting_ends_with_an_error_of_the_pause_or_the_closing() {
    let fixture = Fixture::new(4 << 20);
    let (realm, pool, other) = with_two(&fixture);
    let lock = take(&realm, "run/a", Write);
    let mut steps = Vec::new();
    let mut pause = |time| {
        steps.push(time);
        if steps.len() < 12 { Ok(()) } else { Err(Error::new(Kind::Os, "enough")) }
    };
    let there = member(&other, "run/a");
    let ended = elsewhere(|| other.lock(there, Read, None, &mut pause).map(drop).unwrap_err());
    assert_eq!(ended.message(), "enough");
    assert!(steps.is_sorted() && steps[11] > 50 * steps[0], "{steps:?}");
    // Nothing of the attempt is left.
    drop(lock);
    let lock = take(&realm, "run/a", Write);
    let closed = elsewhere(|| {
        let mut close = |_| {
            pool.close();
            Ok(())
        };
        other.lock(there, Read, None, &mut close).map(drop).unwrap_err()
    });
    assert_eq!(closed.kind(), Kind::Argument);
    drop(lock);
}

#[test]
fn closing_the_pool_lets_go_of_its_locks_alone() {
    let fixture = Fixture::new(4 << 20);
    let (realm, pool, other) = with_two(&fixture);
    let (ours, theirs) = (take(&realm, "run/a", Write), take(&other, "run/b", Write));
    pool.close();
    assert!(ours.is_held() && !theirs.is_held());
    assert!(elsewhere(|| try_lock(&realm, "run/b", Write)).is_ok());
    assert!(elsewhere(|| try_lock(&realm, "run/a", Write)).is_err());
    drop(theirs);
}

/// A library opens the pool for itself, and takes what its caller has locked already.
#[test]
fn a_lock_taken_through_two_openings_stays_until_both_are_done() {
    let fixture = Fixture::new(4 << 20);
    let (realm, pool, other) = with_two(&fixture);
    let free = || elsewhere(|| try_lock(&realm, "run/a", Write).map(drop)).is_ok();
    // The inner one's opening closes, then the outer block ends.
    let (outer, inner) = (take(&realm, "run/a", Write), take(&other, "run/a", Write));
    pool.close();
    assert!(outer.is_held() && !inner.is_held() && !free());
    drop(inner);
    assert!(!free());
    drop(outer);
    assert!(free());
    // The outer block ends, then the inner one's opening closes.
    let (pool, other) = attach(&fixture.path, Mode::ReadWrite);
    let (outer, inner) = (take(&realm, "run/a", Write), take(&other, "run/a", Read));
    drop(outer);
    assert!(inner.is_held() && !free());
    pool.close();
    assert!(!inner.is_held() && free());
    // The outer one's opening closes while the inner block runs.
    let (pool, other) = attach(&fixture.path, Mode::ReadWrite);
    let (outer, inner) = (take(&other, "run/a", Write), take(&realm, "run/a", Write));
    pool.close();
    assert!(!outer.is_held() && inner.is_held() && !free());
    drop(outer);
    assert!(inner.is_held() && !free());
    drop(inner);
    assert!(free());
}

#[test]
fn a_lock_names_its_holder_and_goes_with_it() {
    alone("a_lock_names_its_holder_and_goes_with_it", || {
        let fixture = Fixture::new(4 << 20);
        let (realm, _pool, _other) = with_two(&fixture);
        let holder = |mode| {
            let child = fork(|line| {
                let _lock = take(&realm, "run/a", mode);
                line.say(1);
                line.hear();
            });
            child.line.expect(1);
            child
        };
        let writer = holder(Write);
        let error = refused(try_lock(&realm, "run/a", Read));
        assert!(error.message().contains(&format!("process {}:", writer.pid)), "{error}");
        writer.kill();
        assert!(try_lock(&realm, "run/a", Write).is_ok());
        let readers = [holder(Read), holder(Read)];
        let error = refused(try_lock(&realm, "run/a", Write));
        for reader in &readers {
            assert!(error.message().contains(&reader.pid.to_string()), "{error}");
        }
        assert!(try_lock(&realm, "run/a", Read).is_ok());
        for reader in readers {
            reader.kill();
        }
        drop(take(&realm, "run/a", Write));
        sound(&fixture.path);
    });
}

#[test]
fn a_forked_child_holds_no_lock_of_its_parents() {
    alone("a_forked_child_holds_no_lock_of_its_parents", || {
        let fixture = Fixture::new(4 << 20);
        let (realm, _pool, other) = with_two(&fixture);
        let mut lock = Some(take(&realm, "run/a", Write));
        let child = fork(|line| {
            let inherited = lock.take().unwrap();
            assert!(!inherited.is_held());
            // Neither to be had nor let go of here.
            assert_eq!(refused(try_lock(&realm, "run/a", Read)).kind(), Kind::Busy);
            drop(inherited);
            assert_eq!(refused(try_lock(&realm, "run/a", Read)).kind(), Kind::Busy);
            line.say(1);
            line.expect(2);
            drop(take(&realm, "run/a", Write));
            line.say(3);
            line.expect(4);
        });
        child.line.expect(1);
        assert!(lock.as_ref().unwrap().is_held());
        assert!(elsewhere(|| try_lock(&other, "run/a", Read)).is_err());
        drop(lock);
        // The child is there still, and keeps nothing.
        drop(elsewhere(|| try_lock(&other, "run/a", Write)).unwrap());
        child.line.say(2);
        child.line.expect(3);
        child.line.say(4);
        child.finish();
    });
}

#[test]
fn a_child_forked_while_a_thread_waits_keeps_no_gate() {
    alone("a_child_forked_while_a_thread_waits_keeps_no_gate", || {
        let fixture = Fixture::new(4 << 20);
        let (realm, _pool, other) = with_two(&fixture);
        let lock = take(&realm, "run/a", Read);
        let (waits, child) = (AtomicBool::new(false), std::sync::Mutex::new(None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pause = |time| {
                    waits.store(true, Ordering::Release);
                    wait(time)
                };
                let there = member(&other, "run/a");
                drop(other.lock(there, Write, None, &mut pause).unwrap());
            });
            while !waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            *child.lock().unwrap() = Some(fork(|line| line.expect(1)));
            drop(lock);
        });
        drop(take(&realm, "run/a", Write));
        let child = child.into_inner().unwrap().unwrap();
        child.line.say(1);
        child.finish();
    });
}

/// Adds one to a number that only those who have the lock touch, in place, again and again.
fn count_up(realm: &Realm, rounds: u64) {
    for _ in 0..rounds {
        let lock = take(realm, "run", Write);
        let counter = crate::common::read(realm, "run/a");
        let next = u64::from_le_bytes(counter[..8].try_into().unwrap()) + 1;
        put(realm, "run/a", &next.to_le_bytes());
        drop(lock);
    }
}

#[test]
fn processes_take_turns_and_the_killed_leave_none_waiting() {
    const ROUNDS: u64 = 200;
    let test = "processes_take_turns_and_the_killed_leave_none_waiting";
    let work = |line: &Line, path: &std::path::Path| {
        let (_pool, realm) = attach(path, Mode::ReadWrite);
        line.say(0);
        count_up(&realm, line.hear());
        line.say(1);
    };
    let path = std::env::var_os("ENGRAM_TEST_LOCKS").map(std::path::PathBuf::from);
    alone_with(
        test,
        || {
            let fixture = Fixture::new(4 << 20);
            let realm = fixture.realm();
            put(&realm, "run/a", &0_u64.to_le_bytes());
            // SAFETY: this process of the test has one thread.
            unsafe { std::env::set_var("ENGRAM_TEST_LOCKS", &fixture.path) };
            let doomed = spawn();
            let workers = [spawn(), spawn()];
            let count = || {
                let at = realm.snapshot(None).unwrap();
                u64::from_le_bytes(crate::common::read(&at, "run/a").try_into().unwrap())
            };
            doomed.line.expect(0);
            doomed.line.say(u64::MAX);
            while count() < ROUNDS {
                std::thread::yield_now();
            }
            doomed.kill();
            let before = count();
            for worker in &workers {
                worker.line.expect(0);
                worker.line.say(ROUNDS);
            }
            for worker in workers {
                worker.line.expect(1);
                worker.finish();
            }
            // The count of one is there for the next: none was lost.
            assert_eq!(count(), before + 2 * ROUNDS);
            sound(&fixture.path);
        },
        |line| work(line, &path.clone().unwrap()),
    );
}
