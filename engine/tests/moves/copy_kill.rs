//! Copies and moves into another pool whose process is killed at every step: a copy is there whole
//! or not at all, what moves is in one of the pools at least, and the same move again ends it.
#![cfg(feature = "faults")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::moves::{Quiet, Seen, all, begin, names};
use crate::common::{Fixture, alone, attach, fork, sound};
use engram::{CopyOptions, CopyPlan, Kind, Mode, Namespace, Pool, Result, Scope, faults};

fn put(plan: &CopyPlan, to: &Namespace) -> Result<()> {
    plan.put(to, to.root(), "there/run", CopyOptions::default(), &mut Quiet).map(drop)
}

fn copy(from: &Namespace, to: &Namespace) {
    put(&CopyPlan::of(from, from.root(), "run").unwrap(), to).unwrap();
}

/// As the package does it: what is there already, and the same, only goes from here.
fn move_away(from: &Namespace, to: &Namespace) {
    let departure = from.begin_departure(from.root(), "run").unwrap();
    let plan = CopyPlan::of(from, from.root(), "run").unwrap();
    match put(&plan, to) {
        Err(error) if error.kind() == Kind::Exists => {
            let there = CopyPlan::of(to, to.root(), "there/run").unwrap();
            assert_eq!(plan.difference(&there).unwrap(), None, "after {error}");
        }
        done => done.unwrap(),
    }
    departure.go(&plan).unwrap();
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Acts in a process that dies at its `nth` step; whether it came so far.
fn die(from: &Path, to: &Path, act: fn(&Namespace, &Namespace), nth: u64) -> bool {
    let mut mover = fork(|_| {
        faults::on_step(move |_| {
            if COUNTING.load(Ordering::SeqCst) && STEPS.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                // SAFETY: ends this process, and never returns.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        let (source, _) = attach(from, Mode::ReadWrite);
        let (target, _) = attach(to, Mode::ReadWrite);
        let (source, target) = (names(&source), names(&target));
        COUNTING.store(true, Ordering::SeqCst);
        act(&source, &target);
        COUNTING.store(false, Ordering::SeqCst);
    });
    let status = mover.wait();
    assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0, "{status:#x}");
    libc::WIFSIGNALED(status)
}

/// What lies below `run`: the rest of each path, and the digest of its value.
fn below(seen: &[Seen]) -> Vec<(String, u64)> {
    let rest = |path: &str| path.split_once("run").map(|(_, rest)| rest.to_owned());
    let mut found: Vec<_> =
        seen.iter().filter_map(|(path, _, digest)| Some((rest(path)?, *digest))).collect();
    found.sort_unstable();
    found
}

fn open(path: &Path) -> (Pool, Namespace) {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    (pool, namespace)
}

fn killed_at_every_step(scope: Scope, act: fn(&Namespace, &Namespace), moves: bool) {
    let (here, there) = (Fixture::new(64 << 20), Fixture::new(64 << 20));
    here.pool.close();
    there.pool.close();
    let (from, to) = (&here.path, &there.path);
    let mut made = begin(from, scope);
    let wanted = below(&made);
    assert_eq!(wanted.len(), 5);
    let (mut nth, mut kept, mut both, mut gone) = (1, 0, 0, 0);
    while die(from, to, act, nth) {
        let ((pool, source), (other, target)) = (open(from), open(to));
        assert_eq!(source.leaving().unwrap(), 0, "marks after step {nth}");
        let (left, come) = (all(&source), all(&target));
        let copies = below(&come);
        assert!(
            copies.is_empty() || copies == wanted,
            "a part of a copy at step {nth}: {copies:?}"
        );
        if left.is_empty() {
            assert!(moves && copies == wanted, "lost at step {nth}");
            gone += 1;
        } else {
            assert_eq!(left, made, "step {nth}");
            if copies.is_empty() { kept += 1 } else { both += 1 }
        }
        // Nothing is in its way, and nothing of it is there twice.
        if moves && !left.is_empty() {
            move_away(&source, &target);
            assert_eq!((all(&source).len(), below(&all(&target))), (0, wanted.clone()));
        }
        if !copies.is_empty() || moves {
            target.delete(target.root(), "there").unwrap();
        }
        drop((source, target));
        pool.close();
        other.close();
        if moves {
            made = begin(from, scope);
        }
        nth += 1;
    }
    assert!(kept > 0 && both > 0 && (gone > 0) == moves, "{kept} kept, {both} both, {gone} gone");
    sound(from);
    sound(to);
}

#[test]
fn a_copy_that_is_killed_is_there_whole_or_not_at_all() {
    alone("a_copy_that_is_killed_is_there_whole_or_not_at_all", || {
        for scope in [Scope::Private, Scope::Shared, Scope::Published] {
            killed_at_every_step(scope, copy, false);
        }
    });
}

#[test]
fn a_move_to_another_pool_that_is_killed_loses_nothing_and_is_ended_by_another() {
    let name = "a_move_to_another_pool_that_is_killed_loses_nothing_and_is_ended_by_another";
    alone(name, || {
        for scope in [Scope::Private, Scope::Shared] {
            killed_at_every_step(scope, move_away, true);
        }
    });
}
