//! Pools with a devdax node: it serves one realm of one pool, and no two owners get its bytes.
//!
//! Any machine has files that pass for nodes (the feature `faults`): their names end in `.dax`. On
//! a machine with a real one, `ENGRAM_TEST_DEVDAX` names it, and it serves instead.
#![cfg(feature = "faults")]

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::common::moves::{homes, names, value_of};
use crate::common::{KEEP, alone, attach, check, filled, floats, fork, put, sound, view};
use engram::{CreateOptions, Kind, Mode, NewObject, Placement, Pool, Realm, Scope};

const WORDS: usize = 300_000;
const MIB: u64 = 1 << 20;
/// Where the data of a node begins.
const LABEL: u64 = 2 * MIB;

struct Place {
    dir: tempfile::TempDir,
    node: PathBuf,
    real: bool,
}

/// A folder for pools, and a node that nobody has. Real ones are used by one test at a time.
fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let real = std::env::var_os("ENGRAM_TEST_DEVDAX").map(PathBuf::from);
    let node = real.clone().unwrap_or_else(|| dir.path().join("node.dax"));
    if real.is_none() {
        File::create(&node).unwrap().set_len(LABEL + 24 * MIB).unwrap();
    }
    Place { dir, node, real: real.is_some() }
}

impl Place {
    fn pool(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self, force: bool) -> CreateOptions {
        CreateOptions {
            size: 64 << 20,
            devices: vec![self.node.clone()],
            force,
            checksums: true,
            ..CreateOptions::default()
        }
    }

    /// Makes a pool whose second device is the node.
    fn create(&self, name: &str) -> Pool {
        // A test that failed may have left its label on a real node.
        Pool::create(&self.pool(name), &self.options(self.real)).unwrap()
    }
}

const ON_NODE: Placement = Placement { device: Some(1), ..KEEP };

fn put_on_node(realm: &Realm, name: &str, seed: u64) {
    let new: NewObject = floats(&[WORDS as u64]);
    realm.put(realm.root(), name, &new, &filled(seed, seed, WORDS), ON_NODE).unwrap();
}

fn seen(path: &Path, name: &str) -> (u64, u64) {
    let (pool, realm) = attach(path, Mode::Read);
    let seen = check(&view(&realm, name));
    drop(realm);
    pool.close();
    seen
}

#[test]
fn values_on_a_node_are_there_for_every_process_and_after_it() {
    let test = "values_on_a_node_are_there_for_every_process_and_after_it";
    alone(test, || {
        let place = place();
        let pool = place.create("pool");
        let realm = pool.realm("default").unwrap();
        let before = pool.devices().unwrap();
        assert_eq!((before[1].filesystem.as_str(), &before[1].path), ("devdax", &place.node));
        put_on_node(&realm, "a", 1);
        put_on_node(&realm, "b", 2);
        let after = pool.devices().unwrap();
        let taken = before[1].free - after[1].free;
        assert!(taken >= 16 * WORDS as u64 && taken.is_multiple_of(2 * MIB), "{taken} taken");
        let spans = place.pool("pool").join(pool.uuid()).join("default/shared");
        assert_eq!(std::fs::read_dir(spans).unwrap().count(), 0, "no span on the folder");
        let path = place.pool("pool");
        fork(|_| {
            let (_pool, realm) = attach(&path, Mode::ReadWrite);
            assert_eq!(check(&view(&realm, "a")), (1, 1));
            put_on_node(&realm, "c", 3);
        })
        .finish();
        assert_eq!(check(&view(&realm, "c")), (3, 3));
        drop(realm);
        pool.close();
        sound(&path);
        for (name, value) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(seen(&path, name), (value, value));
        }
        Pool::destroy(&path).unwrap();
    });
}

/// A process that dies at any step of growing leaves ranges that nobody has, and the next one takes
/// them.
#[test]
fn a_death_while_a_node_is_taken_gives_no_range_twice() {
    let test = "a_death_while_a_node_is_taken_gives_no_range_twice";
    alone(test, || {
        for step in ["grow.locked", "grow.made", "commit.changed", "grow.committed"] {
            let place = place();
            let path = place.pool("pool");
            let pool = place.create("pool");
            let free = pool.devices().unwrap()[1].free;
            pool.close();
            let mut dying = fork(|_| {
                let (_pool, realm) = attach(&path, Mode::ReadWrite);
                let growing = std::sync::atomic::AtomicBool::new(false);
                engram::faults::on_step(move |name| {
                    use std::sync::atomic::Ordering::Relaxed;
                    growing.fetch_or(name == "grow.locked", Relaxed);
                    if name == step && growing.load(Relaxed) {
                        // SAFETY: this process's own end.
                        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                    }
                });
                put_on_node(&realm, "lost", 9);
            });
            assert!(libc::WIFSIGNALED(dying.wait()), "{step} was reached");
            sound(&path);
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            put_on_node(&realm, "a", 1);
            let rest = pool.devices().unwrap()[1].free;
            assert!(free - rest <= 16 * MIB, "{step}: {free} before, {rest} after");
            assert_eq!(check(&view(&realm, "a")), (1, 1), "{step}");
            drop(realm);
            pool.close();
            sound(&path);
            Pool::destroy(&path).unwrap();
        }
    });
}

#[test]
fn a_node_serves_one_pool_and_says_whose_it_is() {
    let test = "a_node_serves_one_pool_and_says_whose_it_is";
    alone(test, || {
        let place = place();
        let first = place.create("first");
        let error = Pool::create(&place.pool("second"), &place.options(false)).err().unwrap();
        assert_eq!(error.kind(), Kind::Exists);
        assert!(error.message().contains(first.uuid()), "{error}");
        assert!(!place.pool("second").exists());
        put_on_node(&first.realm("default").unwrap(), "a", 1);
        // Added later, and twice.
        let options = CreateOptions { size: 64 << 20, ..CreateOptions::default() };
        let second = Pool::create(&place.pool("second"), &options).unwrap();
        assert_eq!(second.add_device(&place.node, false).unwrap_err().kind(), Kind::Exists);
        assert_eq!(second.devices().unwrap().len(), 1);
        assert_eq!(first.add_device(&place.node, true).unwrap_err().kind(), Kind::Exists);
        first.close();
        sound(&place.pool("first"));
        // Taken over by force: the first pool finds out, and nothing of its is shown.
        second.add_device(&place.node, true).unwrap();
        let (pool, realm) = attach(&place.pool("first"), Mode::ReadWrite);
        let found = crate::common::lookup(&realm, "a").unwrap();
        let error = realm.view(found, false).err().unwrap();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().contains(second.uuid()), "{error}");
        drop(realm);
        pool.close();
        assert!(!engram::verify(&place.pool("first")).unwrap().problems.is_empty());
        // What the other pool wrote is not shown in space that it left.
        let realm = second.realm("default").unwrap();
        let space = realm
            .allocate(realm.root(), "b", &floats(&[WORDS as u64]), WORDS as u64 * 8, ON_NODE)
            .unwrap();
        let memory = space.view();
        // SAFETY: the allocation's own memory.
        let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), WORDS * 8) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        drop((space, memory, realm));
        second.close();
        // The one that lost the node leaves it alone when it goes.
        Pool::destroy(&place.pool("first")).unwrap();
        sound(&place.pool("second"));
        Pool::destroy(&place.pool("second")).unwrap();
        // Now it is nobody's.
        Pool::create(&place.pool("third"), &place.options(false)).unwrap().close();
        Pool::destroy(&place.pool("third")).unwrap();
    });
}

#[test]
fn a_node_serves_the_default_namespace_alone() {
    let test = "a_node_serves_the_default_namespace_alone";
    alone(test, || {
        let place = place();
        let pool = place.create("pool");
        let realm = pool.create_namespace("icesat", 0o700, None, None).unwrap();
        let new = floats(&[WORDS as u64]);
        let error = realm.put(realm.root(), "a", &new, &filled(1, 1, WORDS), ON_NODE).unwrap_err();
        assert_eq!(error.kind(), Kind::Argument);
        assert!(error.message().contains("devdax"), "{error}");
        let free = pool.devices().unwrap()[1].free;
        put(&realm, "a", &filled(1, 1, WORDS));
        assert_eq!(pool.devices().unwrap()[1].free, free);
        drop(realm);
        pool.remove_namespace("icesat").unwrap();
        pool.close();
        sound(&place.pool("pool"));
        Pool::destroy(&place.pool("pool")).unwrap();
    });
}

/// Compacting gives ranges back, and they are taken again, by the next process.
#[test]
fn ranges_that_compacting_gives_back_are_taken_again() {
    let test = "ranges_that_compacting_gives_back_are_taken_again";
    alone(test, || {
        let place = place();
        if place.real {
            return println!("{test} is skipped: it takes a node that is small");
        }
        let path = place.pool("pool");
        let put = |realm: &Realm, name: &str, seed: u64, bytes: u64| {
            let new = floats(&[bytes / 8]);
            let data = filled(seed, seed, bytes as usize / 8);
            realm.put(realm.root(), name, &new, &data, ON_NODE).unwrap();
        };
        let pool = place.create("pool");
        let realm = pool.realm("default").unwrap();
        put(&realm, "a", 1, 15 * MIB);
        put(&realm, "b", 2, 7 * MIB);
        assert_eq!(pool.devices().unwrap()[1].free, 0);
        realm.delete(realm.root(), "a").unwrap();
        drop(realm);
        pool.close();
        engram::compact(&path).unwrap();
        sound(&path);
        let (pool, realm) = attach(&path, Mode::ReadWrite);
        assert_eq!(pool.devices().unwrap()[1].free, 16 * MIB);
        put(&realm, "c", 3, 15 * MIB);
        assert_eq!(check(&view(&realm, "b")), (2, 2));
        assert_eq!(check(&view(&realm, "c")), (3, 3));
        drop(realm);
        pool.close();
        sound(&path);
        Pool::destroy(&path).unwrap();
    });
}

#[test]
fn a_pool_begins_in_a_folder() {
    let place = place();
    let options = CreateOptions { size: 4 << 20, ..CreateOptions::default() };
    let error = Pool::create(&place.node, &options).err().unwrap();
    assert_eq!(error.kind(), Kind::Exists);
    assert!(error.message().contains("further device"), "{error}");
}

/// A value that a node has no more room for goes to the folder; asked for the node, it is an error.
#[test]
fn a_full_node_is_an_error_and_another_device_helps() {
    let test = "a_full_node_is_an_error_and_another_device_helps";
    alone(test, || {
        let place = place();
        if place.real {
            return println!("{test} is skipped: it takes a node that is small");
        }
        let pool = place.create("pool");
        let realm = pool.realm("default").unwrap();
        let new = floats(&[3 * MIB / 8]);
        let data = vec![5; 3 << 20];
        let mut fitted = 0;
        let error = loop {
            match realm.put(realm.root(), &format!("x{fitted}"), &new, &data, ON_NODE) {
                Ok(_) => fitted += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), Kind::PoolFull);
        assert!((6..=8).contains(&fitted), "{fitted} arrays of 3 MiB in 24");
        realm.put(realm.root(), "more", &new, &data, KEEP).unwrap();
        drop(realm);
        pool.close();
        sound(&place.pool("pool"));
    });
}

/// What lies on a node is published, shared again, copied and restored, and the pool compacted.
#[test]
fn what_lies_on_a_node_is_published_copied_and_restored() {
    let test = "what_lies_on_a_node_is_published_copied_and_restored";
    alone(test, || {
        let place = place();
        let path = place.pool("pool");
        let pool = place.create("pool");
        let realm = pool.realm("default").unwrap();
        for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
            put_on_node(&realm, name, seed);
        }
        drop(realm);
        let namespace = names(&pool);
        let root = namespace.root();
        let all = |namespace: &engram::Namespace| {
            [("a", 1), ("b", 2), ("c", 3)].map(|(name, seed)| {
                let member = namespace.lookup(root, name).unwrap().unwrap();
                assert!(value_of(namespace, member.id()) == filled(seed, seed, WORDS), "{name}");
                namespace.scope_of(member).unwrap()
            })
        };
        let free = pool.devices().unwrap()[1].free;
        namespace.transfer(root, "a", &[Scope::Shared], Scope::Published).unwrap();
        namespace.transfer(root, "b", &[Scope::Shared], Scope::Private).unwrap();
        let scopes = [Scope::Published, Scope::Private, Scope::Shared];
        assert_eq!(all(&namespace), scopes);
        // A node has one mode and one owner: what is of another scope lies in a folder.
        let spans = path.join(pool.uuid()).join("default");
        for folder in ["published".to_owned(), format!("private/{}", user())] {
            assert_eq!(std::fs::read_dir(spans.join(folder)).unwrap().count(), 1);
        }
        let copy = place.pool("copy");
        let report = engram::backup(&pool, &copy, true).unwrap();
        assert_eq!((report.realms, report.objects, report.skipped.len()), (3, 3, 0));
        assert_eq!(sound(&copy).used, report.bytes);
        let (restored, _) = attach(&copy, Mode::ReadWrite);
        assert_eq!(restored.devices().unwrap().len(), 1);
        let there = names(&restored);
        assert_eq!((all(&there), homes(&there)), (scopes, homes(&namespace)));
        there.transfer(root, "a", &[Scope::Published], Scope::Shared).unwrap();
        there.transfer(root, "c", &[Scope::Shared], Scope::Published).unwrap();
        assert_eq!(all(&there), [Scope::Shared, Scope::Private, Scope::Published]);
        drop(there);
        restored.close();
        sound(&copy);
        Pool::destroy(&copy).unwrap();
        // Back onto the node, and compacted, with all of it there.
        namespace.transfer(root, "a", &[Scope::Published], Scope::Shared).unwrap();
        assert!(pool.devices().unwrap()[1].free <= free);
        drop(namespace);
        pool.close();
        engram::compact(&path).unwrap();
        sound(&path);
        let (pool, _) = attach(&path, Mode::ReadWrite);
        assert_eq!(all(&names(&pool)), [Scope::Shared, Scope::Private, Scope::Shared]);
        pool.close();
        Pool::destroy(&path).unwrap();
    });
}

fn user() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}
