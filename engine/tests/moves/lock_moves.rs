//! Locks and moves between scopes: a locked member does not move, nobody has a lock of one that
//! moves, and a thread that waited has it where it comes to.
#![cfg(feature = "faults")]

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::moves::{begin, die_at, homes, names};
use crate::common::{
    Fixture, Line, Peer, Random, alone, attach, deadline, filled, fork, put, seed, sound,
};
use engram::{Error, Kind, Lock, LockMode, Mode, Namespace, Pool, Result, Scope, faults};

use LockMode::{Read, Write};
use Scope::{Private, Published, Shared};

fn open(path: &Path, mode: Mode) -> (Pool, Namespace) {
    let (pool, _) = attach(path, mode);
    let namespace = names(&pool);
    (pool, namespace)
}

fn lock(
    namespace: &Namespace,
    path: &str,
    mode: LockMode,
    within: Duration,
    pause: &mut dyn FnMut(Duration) -> Result<()>,
) -> Result<Lock> {
    let member = namespace.lookup(namespace.root(), path)?.expect("it is somewhere at any time");
    namespace.lock(member, mode, Some(within), pause)
}

#[allow(clippy::unnecessary_wraps)] // as locks take it
fn wait(time: Duration) -> Result<()> {
    std::thread::sleep(time);
    Ok(())
}

fn try_lock(namespace: &Namespace, path: &str, mode: LockMode) -> Result<Lock> {
    lock(namespace, path, mode, Duration::ZERO, &mut wait)
}

/// Takes a lock, however long that takes.
fn take(namespace: &Namespace, path: &str, mode: LockMode) -> Lock {
    lock(namespace, path, mode, deadline() - Instant::now(), &mut wait).expect("a lock")
}

/// A process that has a lock, until it is told a word.
fn holder(pool: &Path, path: &str, mode: LockMode) -> Peer {
    let peer = fork(|line| {
        let (_pool, namespace) = open(pool, Mode::ReadWrite);
        let lock = take(&namespace, path, mode);
        line.say(1);
        line.expect(2);
        drop(lock);
    });
    peer.line.expect(1);
    peer
}

fn busy<T>(done: Result<T>) -> Error {
    let error = done.map(drop).expect_err("it was not refused");
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    error
}

#[test]
fn nothing_moves_that_is_locked() {
    alone("nothing_moves_that_is_locked", || {
        for (from, to) in
            [(Shared, Private), (Private, Shared), (Shared, Published), (Private, Published)]
        {
            let fixture = Fixture::new(64 << 20);
            fixture.pool.close();
            begin(&fixture.path, from);
            let (pool, here) = open(&fixture.path, Mode::ReadWrite);
            let before = homes(&here);
            let transfer = |path: &str| here.transfer(here.root(), path, &[from], to);
            let refused = |path: &str, by: &str| {
                let error = busy(transfer(path));
                assert!(error.message().contains(by), "{path}: {error}");
                assert_eq!(here.leaving().unwrap(), 0, "marks are left of {path}: {error}");
                assert_eq!(homes(&here), before);
            };
            for mode in [Write, Read] {
                let peer = holder(&fixture.path, "run/deep/huge", mode);
                let by = format!("object \"run/deep/huge\" is locked by process {},", peer.pid);
                for path in ["run/deep/huge", "run/deep", "run", "/"] {
                    refused(path, &by);
                }
                peer.line.say(2);
                peer.finish();
                // Nor for its holder.
                let held = try_lock(&here, "run/large", mode).unwrap();
                refused("run/large", "object \"run/large\" is locked by this process,");
                refused("run", "object \"run/large\" is locked by this process,");
                drop(held);
            }
            // A lock of a group is of the group alone.
            let peer = holder(&fixture.path, "run", Write);
            refused("run", &format!("group \"run\" is locked by process {},", peer.pid));
            if from == Shared {
                assert_eq!(transfer("run/large").unwrap().objects, 1);
                here.transfer(here.root(), "run/large", &[to], from).unwrap();
            }
            peer.kill();
            assert_eq!(transfer("run").unwrap().objects, 3);
            assert!(homes(&here).values().all(|scope| *scope == to));
            drop(here);
            pool.close();
            sound(&fixture.path);
        }
    });
}

/// What happens while somebody waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    /// It has moved when that one asks again.
    Moved,
    /// It moves when that one asks again.
    Moving,
}

/// A thread waits for a lock of a member that moves to the first private realm of the namespace.
fn waiting_while_it_moves(meanwhile: Meanwhile, of: &'static str, stop: &'static str) {
    let fixture = Fixture::new(64 << 20);
    put(&fixture.realm(), "run/a", &filled(1, 1, 5000));
    fixture.pool.close();
    let (at, half_way) = Line::pair();
    let path = &fixture.path;
    let mover = fork(move |line| {
        faults::on_step(move |step| {
            if step == stop {
                half_way.say(3);
                half_way.expect(4);
            }
        });
        let (_pool, namespace) = open(path, Mode::ReadWrite);
        let held = take(&namespace, of, Write);
        line.say(1);
        line.expect(2);
        drop(held);
        namespace.transfer(namespace.root(), of, &[Shared], Private).unwrap();
        line.say(5);
        line.expect(6);
        // The one that waited has it here too.
        busy(try_lock(&namespace, of, Read));
        line.say(7);
        line.expect(8);
        drop(take(&namespace, of, Write));
    });
    mover.line.expect(1);
    let (pool, here) = open(path, Mode::ReadWrite);
    let pauses = Cell::new(0);
    let mut pause = |time| {
        pauses.set(pauses.get() + 1);
        match pauses.get() {
            // What was waited for is let go of, and marked, before it is asked for again.
            1 => {
                mover.line.say(2);
                at.expect(3);
                if meanwhile != Meanwhile::Moving {
                    at.say(4);
                    mover.line.expect(5);
                }
            }
            2 if meanwhile == Meanwhile::Moving => {
                at.say(4);
                mover.line.expect(5);
            }
            _ => wait(time)?,
        }
        Ok(())
    };
    let held = lock(&here, of, Write, deadline() - Instant::now(), &mut pause).unwrap();
    let waited = if meanwhile == Meanwhile::Moving { 2 } else { 1 };
    assert_eq!(pauses.get(), waited, "{meanwhile:?} {of} at {stop}");
    let member = here.lookup(here.root(), of).unwrap().unwrap();
    assert_eq!(here.scope_of(member).unwrap(), Private);
    mover.line.say(6);
    mover.line.expect(7);
    assert!(held.is_held());
    drop(held);
    mover.line.say(8);
    mover.finish();
    drop(here);
    pool.close();
    sound(path);
}

#[test]
fn who_waits_has_it_where_it_comes_to() {
    alone("who_waits_has_it_where_it_comes_to", || {
        for of in ["run", "run/a"] {
            for stop in ["transfer.marked", "transfer.copied", "transfer.arrived"] {
                waiting_while_it_moves(Meanwhile::Moving, of, stop);
            }
            waiting_while_it_moves(Meanwhile::Moved, of, "transfer.copied");
        }
    });
}

#[test]
fn what_a_dead_mover_has_left_is_mended_by_who_locks_it() {
    alone("what_a_dead_mover_has_left_is_mended_by_who_locks_it", || {
        for (way, step, ends) in [
            ((Shared, Private), "transfer.marked", Shared),
            ((Private, Shared), "transfer.copied", Private),
            ((Private, Shared), "transfer.arrived", Shared),
            ((Shared, Published), "publish.copied-in", Shared),
            ((Published, Shared), "unpublish.arrived", Shared),
        ] {
            let fixture = Fixture::new(64 << 20);
            fixture.pool.close();
            begin(&fixture.path, way.0);
            // Open before, so that no opening mends it.
            let (reading, reader) = open(&fixture.path, Mode::Read);
            let (pool, here) = open(&fixture.path, Mode::ReadWrite);
            assert!(die_at(&fixture.path, way.0, way.1, step), "{way:?}: {step} was not reached");
            let error = busy(try_lock(&reader, "run/large", Read));
            assert!(error.message().contains("on its way"), "{error}");
            // One that asks once, and one that would wait.
            let held = match way.0 {
                Shared => try_lock(&here, "run/large", Write).expect(step),
                _ => take(&here, "run/large", Write),
            };
            let member = here.lookup(here.root(), "run/large").unwrap().unwrap();
            assert_eq!((here.scope_of(member).unwrap(), here.leaving().unwrap()), (ends, 0));
            busy(std::thread::scope(|scope| {
                scope.spawn(|| try_lock(&reader, "run/large", Read)).join().unwrap()
            }));
            drop((held, here, reader));
            pool.close();
            reading.close();
            sound(&fixture.path);
        }
    });
}

/// Where on the board the number lies that only holders write, and where each player counts: the
/// mover, then the lockers.
const NUMBER: u64 = 0;
const COUNTS: [u64; 4] = [8, 16, 24, 32];

fn number(board: &File, at: u64) -> u64 {
    let mut word = [0; 8];
    board.read_exact_at(&mut word, at).unwrap();
    u64::from_le_bytes(word)
}

/// Leaves a number under the lock, and finds it again: nobody else has the lock.
fn lock_again_and_again(path: &Path, board: &File, of: &str, at: u64, line: &Line) {
    let (_pool, namespace) = open(path, Mode::ReadWrite);
    let mut random = Random(seed() ^ at);
    let mut rounds = 0_u64;
    while !line.is_ready() {
        let mode = if random.below(3) == 0 { Read } else { Write };
        let lock = take(&namespace, of, mode);
        if mode == Write {
            board.write_all_at(&random.next().to_le_bytes(), NUMBER).unwrap();
        }
        let mine = number(board, NUMBER);
        // At times for longer than a move takes.
        let most = if random.below(4) == 0 { 6000 } else { 200 };
        for _ in 0..3 {
            std::thread::sleep(Duration::from_micros(random.below(most)));
            assert_eq!(number(board, NUMBER), mine, "another writes, who has {of} for {mode:?}");
        }
        drop(lock);
        rounds += 1;
        board.write_all_at(&rounds.to_le_bytes(), at).unwrap();
        // Else it would hardly ever be free to move.
        std::thread::sleep(Duration::from_micros(500 + random.below(15_000)));
    }
}

fn move_again_and_again(path: &Path, board: &File, line: &Line) {
    let (_pool, namespace) = open(path, Mode::ReadWrite);
    let (mut moves, mut at) = (0_u64, Shared);
    while !line.is_ready() {
        let to = if at == Shared { Private } else { Shared };
        match namespace.transfer(namespace.root(), "run", &[at], to) {
            Ok(_) => {
                (moves, at) = (moves + 1, to);
                board.write_all_at(&moves.to_le_bytes(), COUNTS[0]).unwrap();
            }
            Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
        }
        // Else it would hardly ever be there to be locked.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// For one that moves itself, and for one below a group that moves.
#[test]
fn no_two_have_it_for_writing_while_it_moves() {
    const ENOUGH: u64 = 40;
    alone("no_two_have_it_for_writing_while_it_moves", || {
        for of in ["run", "run/a"] {
            let fixture = Fixture::new(64 << 20);
            put(&fixture.realm(), "run/a", &filled(1, 1, 5000));
            fixture.pool.close();
            let board = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(fixture.dir.path().join("board"))
                .unwrap();
            board.write_all_at(&[0; 40], 0).unwrap();
            let (path, board) = (&fixture.path, &board);
            let mut players = vec![fork(|line| move_again_and_again(path, board, line))];
            for at in &COUNTS[1..] {
                players.push(fork(|line| lock_again_and_again(path, board, of, *at, line)));
            }
            let until = deadline();
            let counts = || COUNTS.map(|at| number(board, at));
            while counts().iter().any(|count| *count < ENOUGH) {
                assert!(players.iter().all(|peer| !peer.line.is_ready()), "one has failed");
                assert!(Instant::now() < until, "too few moves, or locks: {:?}", counts());
                std::thread::sleep(Duration::from_millis(1));
            }
            for player in players {
                player.line.say(0);
                player.finish();
            }
            sound(&fixture.path);
        }
    });
}
