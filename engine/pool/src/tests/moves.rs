//! Several scopes seen as one tree: where members are found, what moves, and what is refused.

use super::{of, small_pool};
use crate::namespace::Namespace;
use engram_base::error::Kind;
use engram_base::id::Member;
use engram_base::scope::Scope;
use engram_files::versions::versions;
use engram_records::object::{NewObject, Placement};
use std::os::unix::fs::PermissionsExt;

fn scope_of(namespace: &Namespace, path: &str) -> Scope {
    let member = namespace.lookup(namespace.root(), path).unwrap().expect(path);
    namespace.scope_of(member).unwrap()
}

fn names(namespace: &Namespace, path: &str) -> Vec<String> {
    let Some(Member::Group(group)) = namespace.lookup(namespace.root(), path).unwrap() else {
        panic!("{path} is no group")
    };
    let members = namespace.list(group, None, usize::MAX).unwrap();
    members.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_group_shows_the_members_that_each_scope_has() {
    let (_dir, pool) = small_pool();
    let all = pool.namespace("default").unwrap();
    let root = all.root();
    let shared = all.put(root, "g/b", &NewObject::blob(), b"shared", of(Scope::Shared)).unwrap();
    let private = all.put(root, "g/a", &NewObject::blob(), b"private", of(Scope::Private)).unwrap();
    assert_eq!(names(&all, "g"), ["a", "b"]);
    assert_eq!(all.lookup(root, "g/a").unwrap(), Some(Member::Object(private)));
    assert_eq!(all.lookup(root, "g/b").unwrap(), Some(Member::Object(shared)));
    assert_eq!([scope_of(&all, "g/a"), scope_of(&all, "g/b")], [Scope::Private, Scope::Shared]);
    assert_eq!(scope_of(&all, "g"), Scope::Shared, "the private realm has a mirror of it alone");
    assert_eq!(all.path_of(Member::Object(private)).unwrap(), "g/a");

    // A member goes where its group is, unless its scope is said.
    all.put(root, "g/c", &NewObject::blob(), b"", Placement::default()).unwrap();
    assert_eq!(scope_of(&all, "g/c"), Scope::Shared);
    let taken = all.put(root, "g/b", &NewObject::blob(), b"", Placement::default()).unwrap_err();
    assert_eq!(taken.kind(), Kind::Exists);
    // The name of a private member hides a shared one, as long as it is there.
    let hides = all.put(root, "g/b", &NewObject::blob(), b"", of(Scope::Private)).unwrap();
    assert_eq!(all.lookup(root, "g/b").unwrap(), Some(Member::Object(hides)));
    assert_eq!(names(&all, "g"), ["a", "b", "c"]);
    all.delete(root, "g/b").unwrap();
    assert_eq!(all.lookup(root, "g/b").unwrap(), Some(Member::Object(shared)));
    all.rename(root, "g", root, "h").unwrap();
    assert_eq!(all.path_of(Member::Object(private)).unwrap(), "h/a", "its mirror is called so too");
    all.delete(root, "h").unwrap();
    assert_eq!(all.count(root).unwrap(), 0);
}

#[test]
fn a_move_takes_a_group_with_all_below_it_and_only_where_it_is_said() {
    let (_dir, pool) = small_pool();
    let all = pool.namespace("default").unwrap();
    let root = all.root();
    let large = vec![7; 3000];
    let oid = all.put(root, "g/in/a", &NewObject::blob(), &large, of(Scope::Private)).unwrap();
    all.put(root, "g/b", &NewObject::blob(), b"small", of(Scope::Private)).unwrap();
    let moved = all.transfer(root, "g", &[Scope::Private], Scope::Shared).unwrap();
    assert_eq!((moved.objects, moved.groups), (2, 2));
    assert_eq!(all.lookup(root, "g/in/a").unwrap(), Some(Member::Object(oid)), "its id stays");
    for path in ["g", "g/in", "g/in/a", "g/b"] {
        assert_eq!(scope_of(&all, path), Scope::Shared, "{path}");
    }
    let private = all.realm_of(Scope::Private, false).unwrap().unwrap();
    assert_eq!(private.count(root).unwrap(), 0, "something is left where it was");

    let refused =
        |path: &str, from: &[Scope], to| all.transfer(root, path, from, to).expect_err(path).kind();
    assert_eq!(refused("g/b", &[Scope::Shared], Scope::Shared), Kind::Argument);
    assert_eq!(refused("g/b", &[], Scope::Published), Kind::Argument);
    let both = [Scope::Published, Scope::Shared];
    assert_eq!(refused("g/b", &both, Scope::Private), Kind::Argument);
    assert_eq!(refused("g/b", &[Scope::Private], Scope::Published), Kind::Argument, "it is shared");
    assert_eq!(refused("g/none", &[Scope::Shared], Scope::Private), Kind::NotFound);
    let batch = all.batch().unwrap();
    all.put(root, "g/new", &NewObject::blob(), b"", Placement::default()).unwrap();
    assert_eq!(refused("g/b", &[Scope::Shared], Scope::Published), Kind::Busy);
    drop(batch);
    let snapshot = all.snapshot(None).unwrap();
    let of_it = snapshot.transfer(root, "g/b", &[Scope::Shared], Scope::Published).unwrap_err();
    assert_eq!(of_it.kind(), Kind::ReadOnly);
    assert_eq!(scope_of(&all, "g/b"), Scope::Shared, "a move that was refused has moved something");
}

#[test]
fn what_is_published_is_one_version_that_nobody_writes() {
    let (dir, pool) = small_pool();
    let all = pool.namespace("default").unwrap();
    let root = all.root();
    let folder = dir.path().join("pool/ns/default/published");
    let mut met = Vec::new();
    for name in ["a", "b"] {
        let oid =
            all.put(root, name, &NewObject::blob(), &[1; 5000], Placement::default()).unwrap();
        let moved = all.transfer(root, name, &[Scope::Shared], Scope::Published).unwrap();
        assert_eq!((moved.objects, moved.bytes), (1, 5000));
        let (there, unfinished) = versions(&folder).unwrap();
        assert_eq!((there.len(), unfinished.len()), (1, 0), "{there:?} {unfinished:?}");
        met.push(there[0]);
        assert_eq!(all.delete(root, name).unwrap_err().kind(), Kind::ReadOnly);
        let data = all.replace_payload(oid, 1, &[2; 5000]).unwrap_err();
        assert_eq!(data.kind(), Kind::ReadOnly);
    }
    assert!(met[0] < met[1], "{met:?}");
    let newest = folder.join(engram_files::versions::version_name(met[1]));
    for file in ["realm.toml", "catalog/data.mdb"] {
        let mode = newest.join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444, "{file}");
    }
    // Withdrawn, it is like any other, and the other member stays published.
    all.transfer(root, "a", &[Scope::Published], Scope::Shared).unwrap();
    assert_eq!([scope_of(&all, "a"), scope_of(&all, "b")], [Scope::Shared, Scope::Published]);
    all.delete(root, "a").unwrap();
    assert_eq!(all.lookup(root, "a").unwrap(), None);
    assert_eq!(all.count(root).unwrap(), 1);
}
