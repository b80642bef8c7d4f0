//! A process that keeps a lock and does nothing keeps nobody waiting for ever: the others are told
//! who it is.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    ALICE, BOB, Fixture, KEEP, Line, Peer, alone, attach, become_user, deadline, filled, floats,
    folder_of, fork, is_root, lookup, put, put_new, read, sound,
};
use engram::{CreateOptions, Error, IndexMode, Kind, Mode, Placement, Pool, Scope, faults};

const MIB: usize = 1 << 20;

/// `BusyError` that names the process and what it has locked.
#[track_caller]
fn names(error: &Error, peer: &Peer, locked: &Path) {
    let message = error.message();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(message.contains(&format!("process {}", peer.pid)), "{error}");
    assert!(message.contains(&format!("{} is locked", locked.display())), "{error}");
}

/// A process of this one's that does `work`, and stops at a step of it, the first time.
fn stopped_at(step: &'static str, work: impl FnOnce()) -> Peer {
    let peer = fork(|line| {
        let (ours, theirs) = (std::process::id(), line);
        let stopped = AtomicBool::new(false);
        // SAFETY: stops this process, once, until somebody lets it go on.
        faults::on_step(move |at| {
            let here = at == step && std::process::id() == ours;
            if here && !stopped.swap(true, Ordering::Relaxed) {
                unsafe { libc::raise(libc::SIGSTOP) };
            }
        });
        work();
        theirs.say(1);
    });
    let mut status = 0;
    // SAFETY: our own child; `status` is a valid place.
    let pid = unsafe { libc::waitpid(peer.pid, &raw mut status, libc::WUNTRACED) };
    assert!(pid == peer.pid && libc::WIFSTOPPED(status), "{step} is not reached: {status:#x}");
    peer
}

fn publish(path: &Path, name: &str) -> engram::Result<()> {
    let pool = Pool::open(path, Mode::ReadWrite, true)?;
    let namespace = pool.namespace("default")?;
    namespace.transfer(namespace.root(), name, &[Scope::Shared], Scope::Published).map(drop)
}

/// A publisher that is stopped holds the others up for seconds; they change nothing, and go on when
/// it does, or dies.
#[test]
fn a_publisher_that_is_stopped_is_named_to_the_others() {
    alone("a_publisher_that_is_stopped_is_named_to_the_others", || {
        let fixture = Fixture::new(32 << 20);
        for (tag, name) in (1..).zip(["a", "b", "c"]) {
            put(&fixture.realm(), name, &filled(tag, 1, MIB / 8));
        }
        fixture.pool.close();
        let path = &fixture.path;
        let goes_on = stopped_at("publish.copied", || publish(path, "a").unwrap());
        let refused = publish(path, "b").unwrap_err();
        names(&refused, &goes_on, &fixture.realm_dir());
        assert!(refused.message().contains("is stopped"), "{refused}");
        let scope = |name: &str| {
            let pool = Pool::open(path, Mode::Read, true).unwrap();
            let namespace = pool.namespace("default").unwrap();
            let member = namespace.lookup(namespace.root(), name).unwrap().unwrap();
            namespace.scope_of(member).unwrap()
        };
        assert_eq!([scope("a"), scope("b")], [Scope::Shared, Scope::Shared]);
        // Nobody else is held up: others write, and open the pool.
        let (pool, realm) = attach(path, Mode::ReadWrite);
        put(&realm, "d", &filled(4, 1, MIB / 8));
        pool.close();
        goes_on.signal(libc::SIGCONT);
        goes_on.line.expect(1);
        goes_on.finish();
        publish(path, "b").unwrap();
        let dies = stopped_at("publish.begun", || publish(path, "c").unwrap());
        dies.kill();
        publish(path, "c").unwrap();
        assert_eq!(["a", "b", "c"].map(scope), [Scope::Published; 3]);
        sound(path);
    });
}

/// Puts one large value by an opening of its own, unless something has the name.
fn write(path: &Path, name: &str, tag: u64) -> engram::Result<()> {
    let (pool, realm) = attach(path, Mode::ReadWrite);
    let done = put_new(&realm, name, &filled(tag, 1, MIB / 8));
    pool.close();
    done.map(drop)
}

/// A writer that is stopped inside a commit has the catalog's writer lock. Another writer is told
/// so; reading, opening and closing are not held up; all goes on when it does, or when it dies.
#[test]
fn a_writer_that_is_stopped_in_a_commit_is_named() {
    alone("a_writer_that_is_stopped_in_a_commit_is_named", || {
        let fixture = Fixture::new(16 << 20);
        let (path, large) = (&fixture.path, |tag| filled(tag, 1, MIB / 8));
        put(&fixture.realm(), "a", &large(1));
        fixture.pool.close();
        // It has something to give back, and cannot.
        let closes = fork(|line| {
            let (pool, realm) = attach(path, Mode::ReadWrite);
            let space = realm.scratch(8 << 20, None).unwrap();
            line.say(1);
            line.expect(2);
            pool.close();
            drop(space);
            line.say(3);
        });
        closes.line.expect(1);
        // It dies with objects that nobody has indexed yet.
        fork(|_| {
            let (_pool, realm) = attach(path, Mode::ReadWrite);
            let later = Placement { index: Some(IndexMode::Async), ..KEEP };
            realm.put(realm.root(), "later", &floats(&[1]), &[0; 8], later).unwrap();
        })
        .finish();
        let goes_on = stopped_at("commit.changed", || write(path, "b", 2).unwrap());
        closes.line.say(2);
        let (pool, realm) = attach(path, Mode::ReadWrite);
        let locked = fixture.realm_dir().join("catalog");
        let refused = put_new(&realm, "c", &large(3)).unwrap_err();
        names(&refused, &goes_on, &locked);
        assert!(refused.message().contains("is stopped"), "{refused}");
        names(&realm.delete(realm.root(), "a").unwrap_err(), &goes_on, &locked);
        assert!(read(&realm, "a") == large(1) && lookup(&realm, "b").is_none());
        closes.line.expect(3);
        closes.finish();
        goes_on.signal(libc::SIGCONT);
        goes_on.line.expect(1);
        goes_on.finish();
        // The thread that indexes the queue has not given up.
        let until = deadline();
        while realm.index_stats().unwrap().queued > 0 {
            assert!(Instant::now() < until, "nobody indexes what is queued");
            std::thread::sleep(Duration::from_millis(20));
        }
        pool.close();
        write(path, "c", 3).unwrap();
        let dies = stopped_at("commit.changed", || write(path, "d", 4).unwrap());
        names(&write(path, "e", 5).unwrap_err(), &dies, &locked);
        dies.kill();
        write(path, "e", 5).unwrap();
        let (pool, realm) = attach(path, Mode::ReadWrite);
        for (tag, name) in [(1, "a"), (2, "b"), (3, "c"), (5, "e")] {
            assert!(read(&realm, name) == large(tag), "{name}");
        }
        assert_eq!(lookup(&realm, "d"), None);
        drop(realm.scratch(8 << 20, None).expect("what the one that closed had reserved"));
        pool.close();
        sound(path);
    });
}

fn work_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A process that works is waited for, however long it takes; so is one that takes turns with
/// others.
#[test]
fn a_writer_that_works_is_waited_for() {
    alone("a_writer_that_works_is_waited_for", || {
        let fixture = Fixture::new(16 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let works = fork(|line| {
            let (ours, begun) = (std::process::id(), AtomicBool::new(false));
            let held = Instant::now() + Duration::from_secs(6);
            // Longer than one that stands still is waited for.
            faults::on_step(move |at| {
                let here = at == "commit.changed" && std::process::id() == ours;
                if here && !begun.swap(true, Ordering::Relaxed) {
                    work_until(held);
                }
            });
            let (_pool, realm) = attach(path, Mode::ReadWrite);
            line.say(1);
            put(&realm, "a", &filled(1, 1, 9));
            line.say(2);
        });
        works.line.expect(1);
        write(path, "b", 2).unwrap();
        works.line.expect(2);
        works.finish();
        sound(path);
    });
}

/// A process that is stopped while it compacts keeps nobody from being told so.
#[test]
fn who_is_stopped_while_compacting_is_named() {
    alone("who_is_stopped_while_compacting_is_named", || {
        let fixture = Fixture::new(32 << 20);
        put(&fixture.realm(), "a", &filled(1, 1, MIB / 8));
        fixture.pool.close();
        let path = &fixture.path;
        let stopped = stopped_at("compact.rows", || drop(engram::compact(path).unwrap()));
        let refused = Pool::open(path, Mode::ReadWrite, true).err().unwrap();
        names(&refused, &stopped, &fixture.realm_dir().join("compacting"));
        stopped.kill();
        sound(path);
    });
}

/// Something that takes the pool lock.
type Act = fn(&Path) -> engram::Result<()>;

/// A stranger who locks the pool's folder cannot hold up for ever those who make or remove parts of
/// it.
#[test]
fn a_strangers_lock_on_the_pools_folder_is_named() {
    let test = "a_strangers_lock_on_the_pools_folder_is_named";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
        fork(|_| {
            become_user(ALICE, ALICE);
            Pool::create(&path, &options).unwrap();
        })
        .finish();
        let bob = fork(|line: &Line| {
            become_user(BOB, BOB);
            let folder = File::open(&path).unwrap();
            folder.lock().unwrap();
            line.say(1);
            line.expect(2);
        });
        bob.line.expect(1);
        let acts: [Act; 4] = [
            Pool::destroy,
            |path| engram::compact(path).map(drop),
            |path| {
                let pool = Pool::open(path, Mode::ReadWrite, true)?;
                pool.create_namespace("more", 0o700, None, None).map(drop)
            },
            |path| {
                let pool = Pool::open(path, Mode::ReadWrite, true)?;
                pool.namespace("default")?.realm_of(Scope::Private, true).map(drop)
            },
        ];
        let alices: Vec<Peer> = acts
            .iter()
            .map(|act| {
                fork(|_| {
                    become_user(ALICE, ALICE);
                    let refused = act(&path).unwrap_err();
                    names(&refused, &bob, &path);
                    assert!(refused.message().contains(&BOB.to_string()), "{refused}");
                })
            })
            .collect();
        alices.into_iter().for_each(Peer::finish);
        bob.line.say(2);
        bob.finish();
        sound(&path);
        Pool::destroy(&path).unwrap();
    });
}
