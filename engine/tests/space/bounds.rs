//! What a size binds, what a closed pool keeps, and what a read-only mount says.

use crate::common::{Fixture, KEEP, alone, filled, floats, small_tmpfs};
use engram::{CreateOptions, Kind, Mode, Namespace, Placement, Pool, Scope};

const MIB: u64 = 1 << 20;
const PRIVATE: Placement = Placement { scope: Some(Scope::Private), ..KEEP };

/// Puts so many MiB in private.
fn put(namespace: &Namespace, name: &str, mib: u64) -> engram::Result<()> {
    let words = (mib * MIB / 8) as usize;
    let new = floats(&[words as u64]);
    namespace.put(namespace.root(), name, &new, &filled(1, 1, words), PRIVATE).map(drop)
}

fn sizes(namespace: &Namespace) -> [u64; 2] {
    [Scope::Shared, Scope::Private].map(|scope| {
        let realm = namespace.realm_of(scope, false).unwrap().expect("a realm");
        realm.space().unwrap().size / MIB
    })
}

/// What `resize` sets binds what is private as well, there already or yet to come.
#[test]
fn a_size_binds_what_is_private_too() {
    let fixture = Fixture::new(20 * MIB);
    let namespace = fixture.pool.namespace("default").unwrap();
    put(&namespace, "first", 1).unwrap();
    let full = put(&namespace, "big", 30).expect_err("no room");
    assert_eq!(full.kind(), Kind::PoolFull);
    assert!(full.message().contains("private part of namespace \"default\""), "{full}");
    assert!(full.message().contains("pool.resize"), "{full}");
    namespace.resize(60 * MIB).unwrap();
    assert_eq!(sizes(&namespace), [60, 60]);
    put(&namespace, "big", 30).unwrap();
    // Not below what it has; and a size that is refused binds nothing.
    namespace.resize(20 * MIB).unwrap();
    let [shared, private] = sizes(&namespace);
    assert!(shared == 20 && (32..60).contains(&private), "{shared} {private}");
    let (words, root) = ((18 * MIB / 8) as usize, namespace.root());
    let new = floats(&[words as u64]);
    namespace.put(root, "shared", &new, &filled(2, 2, words), KEEP).unwrap();
    assert_eq!(namespace.resize(2 * MIB).unwrap_err().kind(), Kind::Argument);
    assert_eq!(sizes(&namespace), [20, private]);
    // Of a namespace in which nobody has anything in private yet.
    fixture.pool.create_namespace("new", 0o755, None, Some(8 * MIB)).unwrap();
    let new = fixture.pool.namespace("new").unwrap();
    new.resize(40 * MIB).unwrap();
    put(&new, "big", 30).unwrap();
    assert_eq!(sizes(&new), [40, 40]);
    let text = std::fs::read_to_string(fixture.path.join("ns/new/namespace.toml")).unwrap();
    assert!(text.contains(&format!("size = {}", 40 * MIB)), "{text}");
}

/// Nothing of a closed pool is mapped, though handles of it live on; those that go on in other
/// openings are told as before.
#[test]
fn a_closed_pool_lets_go_of_all_its_files() {
    alone("a_closed_pool_lets_go_of_all_its_files", || {
        let fixture = Fixture::new(16 * MIB);
        let mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains("/pool/")).count()
        };
        let namespace = fixture.pool.namespace("default").unwrap();
        let other = Pool::open(&fixture.path, Mode::ReadWrite, true).unwrap();
        let seen = other.namespace("default").unwrap();
        fixture.pool.close();
        put(&namespace, "late", 1).expect_err("it is closed");
        assert!(mapped() > 0);
        put(&seen, "x", 1).unwrap();
        assert_eq!(seen.scopes().unwrap(), [Scope::Private, Scope::Shared]);
        other.close();
        assert_eq!(mapped(), 0);
        assert_eq!(namespace.lookup(namespace.root(), "x").unwrap_err().kind(), Kind::Argument);
        drop((namespace, seen));
    });
}

#[test]
fn a_pool_on_a_read_only_mount_says_what_to_do() {
    let test = "a_pool_on_a_read_only_mount_says_what_to_do";
    alone(test, || {
        let Some(mount) = small_tmpfs(test, 64 << 20) else { return };
        let path = mount.path().join("pool");
        let options = CreateOptions { size: 4 * MIB, ..CreateOptions::default() };
        Pool::create(&path, &options).unwrap().close();
        let mut remount = std::process::Command::new("mount");
        remount.args(["-o", "remount,ro"]).arg(mount.path());
        assert!(remount.status().unwrap().success());
        for mode in [Mode::Read, Mode::ReadWrite] {
            let error = Pool::open(&path, mode, true).err().expect("nothing can be written");
            assert_eq!(error.kind(), Kind::ReadOnly, "{error}");
            assert!(error.message().contains("copy the pool's folder"), "{error}");
        }
    });
}
