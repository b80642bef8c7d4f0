//! Strangers: users who may enter a namespace, and share nothing in it, read what is published.

use std::path::Path;
use std::time::Duration;

use crate::common::{
    ALICE, BOB, Line, alone, become_user, check, filled, folder_of, fork, is_root, put,
};
use engram::{
    CreateOptions, Kind, Member, Mode, Payload, Pool, QueryOptions, Realm, Scope, WatchEnd,
};

const MIB: usize = 1 << 20;

/// Reads the object of this name as somebody who may not open the shared realm.
fn read_published(path: &Path, name: &str) -> Option<(u64, u64)> {
    let pool = Pool::open(path, Mode::Read, false).unwrap();
    let namespace = pool.namespace("open").unwrap();
    let refused = namespace.realm_of(Scope::Shared, false).err().expect("it is closed");
    assert_eq!(refused.kind(), Kind::Access, "{refused}");
    match namespace.lookup(namespace.root(), name).unwrap()? {
        Member::Group(_) => panic!("{name} is an array"),
        Member::Object(oid) => match namespace.payload(oid).unwrap().0 {
            Payload::Extent(view) => Some(check(&view)),
            Payload::Inline(_) => panic!("{name} is large"),
        },
    }
}

/// A new pool, and the shared realm of a namespace in it that all may enter.
fn opened_to_all(path: &Path) -> (Pool, Realm) {
    let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
    let pool = Pool::create(path, &options).unwrap();
    let realm = pool.create_namespace("open", 0o755, None, None).unwrap();
    (pool, realm)
}

/// A user who is not root publishes again beside what is published, and withdraws one of both.
#[test]
fn a_user_publishes_again_and_again() {
    let test = "a_user_publishes_again_and_again";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        fork(|_| {
            become_user(ALICE, ALICE);
            let (pool, realm) = opened_to_all(&path);
            let namespace = pool.namespace("open").unwrap();
            let moved = |name: &str, from: Scope, to: Scope| {
                namespace.transfer(namespace.root(), name, &[from], to).unwrap();
            };
            for (tag, name) in (1..).zip(["one", "two", "three"]) {
                put(&realm, name, &filled(tag, 1, MIB / 8));
                moved(name, Scope::Shared, Scope::Published);
            }
            moved("two", Scope::Published, Scope::Shared);
        })
        .finish();
        fork(|_| {
            become_user(BOB, BOB);
            assert_eq!(read_published(&path, "one"), Some((1, 1)));
            assert_eq!(read_published(&path, "two"), None);
            assert_eq!(read_published(&path, "three"), Some((3, 1)));
        })
        .finish();
    });
}

/// A user who may not use the shared realm cannot be woken, and hears of what is published all the
/// same.
#[test]
fn a_stranger_watches_what_is_published() {
    let test = "a_stranger_watches_what_is_published";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        let alice = fork(|line: &Line| {
            become_user(ALICE, ALICE);
            let (pool, realm) = opened_to_all(&path);
            let namespace = pool.namespace("open").unwrap();
            let publish = |name: &str| {
                let from = [Scope::Shared];
                namespace.transfer(namespace.root(), name, &from, Scope::Published).unwrap();
            };
            put(&realm, "early", &filled(1, 1, MIB / 8));
            publish("early");
            line.say(1);
            line.expect(2);
            put(&realm, "late", &filled(2, 1, MIB / 8));
            publish("late");
        });
        alice.line.expect(1);
        let bob = fork(|line: &Line| {
            become_user(BOB, BOB);
            let pool = Pool::open(&path, Mode::Read, false).unwrap();
            let namespace = pool.namespace("open").unwrap();
            let query = engram::query::parse("@name like '%e%'").unwrap();
            let watcher = namespace.watch(&query, &QueryOptions::default(), false).unwrap();
            line.say(1);
            let end = watcher.wait(Some(Duration::from_secs(60)), 0, &mut |_| Ok(()));
            assert_eq!(end, Ok(WatchEnd::Hits));
            let found = watcher.take(9).unwrap();
            assert_eq!(namespace.names_of(&found).unwrap(), [Some("late".to_owned())]);
        });
        bob.line.expect(1);
        alice.line.say(2);
        bob.finish();
        alice.finish();
    });
}

/// What is published is read by whom the mode admits, and by nobody written or made.
#[test]
fn strangers_read_what_is_published_and_write_nothing() {
    let test = "strangers_read_what_is_published_and_write_nothing";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        let alice = fork(|line: &Line| {
            become_user(ALICE, ALICE);
            let (pool, realm) = opened_to_all(&path);
            put(&realm, "shown", &filled(1, 1, MIB / 8));
            put(&realm, "kept", &filled(2, 1, MIB / 8));
            let namespace = pool.namespace("open").unwrap();
            let root = namespace.root();
            namespace.transfer(root, "shown", &[Scope::Shared], Scope::Published).unwrap();
            line.say(1);
            line.expect(2);
            namespace.transfer(root, "shown", &[Scope::Published], Scope::Shared).unwrap();
            line.say(3);
            line.expect(4);
        });
        alice.line.expect(1);
        let bob = fork(|line: &Line| {
            become_user(BOB, BOB);
            assert_eq!(read_published(&path, "shown"), Some((1, 1)));
            assert_eq!(read_published(&path, "kept"), None);
            let mut open = vec![path.join("ns/open/published")];
            let mut files = 0;
            while let Some(folder) = open.pop() {
                std::fs::create_dir(folder.join("mine")).expect_err("a folder of Alice's");
                for entry in std::fs::read_dir(folder).unwrap().flatten() {
                    let place = entry.path();
                    std::fs::remove_file(&place).expect_err("a file of Alice's");
                    if place.is_dir() {
                        open.push(place);
                        continue;
                    }
                    files += 1;
                    std::fs::File::options().write(true).open(&place).expect_err("it is 0444");
                }
            }
            assert_eq!(files, 2, "realm.toml and data.mdb");
            std::fs::read_dir(path.join("ns/open/shared")).expect_err("what is shared is closed");
            let pool = Pool::open(&path, Mode::Read, false).unwrap();
            let namespace = pool.namespace("open").unwrap();
            let shown = namespace.lookup(namespace.root(), "shown").unwrap();
            let Some(Member::Object(oid)) = shown else { panic!("{shown:?}") };
            let Payload::Extent(held) = namespace.payload(oid).unwrap().0 else { panic!() };
            line.say(5);
            line.expect(6);
            assert_eq!(namespace.lookup(namespace.root(), "shown").unwrap(), None);
            assert_eq!(read_published(&path, "shown"), None);
            assert_eq!(check(&held), (1, 1), "what is in view stays");
        });
        bob.line.expect(5);
        alice.line.say(2);
        alice.line.expect(3);
        bob.line.say(6);
        bob.finish();
        alice.line.say(4);
        alice.finish();
    });
}

/// A reader of what is published is not seen by the process that destroys the pool, and loses
/// nothing by it: views keep what they show, and anything looked for after that is gone.
#[test]
fn who_reads_what_is_published_keeps_it_when_the_pool_goes() {
    let test = "who_reads_what_is_published_keeps_it_when_the_pool_goes";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        fork(|_| {
            become_user(ALICE, ALICE);
            let (pool, realm) = opened_to_all(&path);
            let namespace = pool.namespace("open").unwrap();
            for (tag, name) in (1..).zip(["held", "other"]) {
                put(&realm, name, &filled(tag, 1, MIB / 8));
                let (from, to) = ([Scope::Shared], Scope::Published);
                namespace.transfer(namespace.root(), name, &from, to).unwrap();
            }
        })
        .finish();
        let bob = fork(|line: &Line| {
            become_user(BOB, BOB);
            let pool = Pool::open(&path, Mode::Read, false).unwrap();
            let namespace = pool.namespace("open").unwrap();
            let find = |name: &str| namespace.lookup(namespace.root(), name).unwrap();
            let Some(Member::Object(oid)) = find("held") else { panic!("it is an array") };
            let Payload::Extent(view) = namespace.payload(oid).unwrap().0 else {
                panic!("it is large")
            };
            line.say(1);
            line.expect(2);
            assert_eq!(check(&view), (1, 1));
            assert_eq!([find("held"), find("other")], [None; 2]);
            let gone = namespace.payload(oid).err().expect("it is gone");
            assert_eq!(gone.kind(), Kind::NotFound, "{gone}");
            assert_eq!(check(&view), (1, 1));
        });
        bob.line.expect(1);
        fork(|_| {
            become_user(ALICE, ALICE);
            Pool::destroy(&path).unwrap();
        })
        .finish();
        assert!(!path.exists());
        bob.line.say(2);
        bob.finish();
    });
}
