//! Who keeps a lock and does nothing keeps nobody waiting for ever: the others are told who it is.

mod common;

use std::fs::File;
use std::path::Path;

use common::{
    ALICE, BOB, Fixture, Line, Peer, alone, attach, become_user, filled, folder_of, fork, is_root,
    put, sound,
};
use engram_engine::{CreateOptions, Error, Kind, Mode, Pool, Scope, faults};

const MIB: usize = 1 << 20;

/// `BusyError` that names the process and what it has locked.
#[track_caller]
fn names(error: &Error, peer: &Peer, locked: &Path) {
    let message = error.message();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(message.contains(&format!("process {}", peer.pid)), "{error}");
    assert!(message.contains(&format!("{} is locked", locked.display())), "{error}");
}

/// A process of this one's that does `work`, and stops for good at a step of it.
fn stopped_at(step: &'static str, work: impl FnOnce()) -> Peer {
    let peer = fork(|line| {
        let (ours, theirs) = (std::process::id(), line);
        // SAFETY: stops this process until somebody lets it go on.
        faults::on_step(move |at| {
            if at == step && std::process::id() == ours {
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

fn publish(path: &Path, name: &str) -> engram_engine::Result<()> {
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

/// Who compacts and is stopped keeps nobody from being told so.
#[test]
fn who_is_stopped_while_compacting_is_named() {
    alone("who_is_stopped_while_compacting_is_named", || {
        let fixture = Fixture::new(32 << 20);
        put(&fixture.realm(), "a", &filled(1, 1, MIB / 8));
        fixture.pool.close();
        let path = &fixture.path;
        let stopped = stopped_at("compact.rows", || drop(Pool::compact(path).unwrap()));
        let refused = Pool::open(path, Mode::ReadWrite, true).err().unwrap();
        names(&refused, &stopped, &fixture.realm_dir().join("compacting"));
        stopped.kill();
        sound(path);
    });
}

/// Something that takes the pool's turn.
type Act = fn(&Path) -> engram_engine::Result<()>;

/// A stranger who locks the pool's folder cannot hold up for ever who makes or removes parts of it.
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
            |path| Pool::compact(path).map(drop),
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
