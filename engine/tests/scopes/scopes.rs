//! Scopes: who sees what of a namespace, and where it lies.

use crate::common::{Fixture, KEEP, alone, attach, filled, floats, fork, put, read, sound};
use engram::query::parse;
use engram::{
    DType, Gid, Kind, Member, Mode, Namespace, NewObject, Payload, Placement, Pool, QueryOptions,
    Scope, Value,
};

#[test]
fn a_private_realm_is_made_at_its_first_use_and_found_again() {
    let fixture = Fixture::new(32 << 20);
    let namespace = fixture.pool.namespace("default").unwrap();
    assert_eq!(namespace.scopes().unwrap(), [Scope::Shared]);
    assert!(namespace.realm_of(Scope::Private, false).unwrap().is_none());
    let other = attach(&fixture.path, Mode::ReadWrite).0.namespace("default").unwrap();
    let private = namespace.realm_of(Scope::Private, true).unwrap().unwrap();
    assert_eq!(private.scope(), Scope::Private);
    assert_eq!(private.root(), fixture.realm().root(), "the same GIDs everywhere");
    put(&private, "mine", &filled(1, 1, 50_000));
    assert_eq!(namespace.scopes().unwrap(), [Scope::Private, Scope::Shared]);
    drop(other);
    let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
    let again = pool.namespace("default").unwrap();
    let found = again.realm_of(Scope::Private, false).unwrap().expect("it is there");
    assert_eq!(read(&found, "mine"), filled(1, 1, 50_000));
    drop((found, again));
    pool.close();
    let report = sound(&fixture.path);
    assert_eq!((report.namespaces, report.objects), (1, 1));
    drop((private, namespace));
    fixture.pool.close();
    Pool::destroy(&fixture.path).unwrap();
    assert!(!fixture.path.exists());
}

#[test]
fn who_may_not_write_makes_no_private_realm() {
    let fixture = Fixture::new(32 << 20);
    let pool = Pool::open(&fixture.path, Mode::Read, true).unwrap();
    let namespace = pool.namespace("default").unwrap();
    let refused = namespace.realm_of(Scope::Private, true).err().expect("a refusal");
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
}

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

/// Puts a small array with an attribute `k`.
fn put_in(
    view: &Namespace,
    parent: Gid,
    path: &str,
    k: i64,
    scope: Option<Scope>,
) -> engram::Result<u64> {
    let attrs = vec![("k".to_owned(), int(k))];
    let new = NewObject { attrs, ..floats(&[1]) };
    view.put(parent, path, &new, &k.to_le_bytes(), Placement { overwrite: true, scope, ..KEEP })
}

fn group_in(view: &Namespace, path: &str, scope: Option<Scope>) -> Gid {
    view.create_group(view.root(), path, &[], &[], false, scope).unwrap()
}

fn value_of(view: &Namespace, oid: u64) -> i64 {
    match view.payload(oid).unwrap().0 {
        Payload::Inline(bytes) => i64::from_le_bytes(bytes.try_into().unwrap()),
        Payload::Extent(_) => panic!("eight bytes lie in the catalog"),
    }
}

fn names_in(view: &Namespace, gid: Gid) -> Vec<String> {
    view.list(gid, None, usize::MAX).unwrap().into_iter().map(|(name, _)| name).collect()
}

fn found(view: &Namespace, query: &str) -> Vec<String> {
    view.query_paths(&parse(query).unwrap(), &QueryOptions::default()).unwrap()
}

const PRIVATE: Option<Scope> = Some(Scope::Private);
const SHARED: Option<Scope> = Some(Scope::Shared);

#[test]
fn new_members_have_the_scope_of_their_group() {
    let fixture = Fixture::new(32 << 20);
    let view = fixture.pool.namespace("default").unwrap();
    let root = view.root();
    let open = group_in(&view, "open", None);
    let own = group_in(&view, "own", PRIVATE);
    let a = put_in(&view, open, "a", 1, None).unwrap();
    let b = put_in(&view, own, "deep/b", 2, None).unwrap();
    let c = put_in(&view, open, "c", 3, PRIVATE).unwrap();
    let scope = |oid| view.scope_of(Member::Object(oid)).unwrap();
    assert_eq!([scope(a), scope(b), scope(c)], [Scope::Shared, Scope::Private, Scope::Private]);
    assert_eq!(view.scope_of(Member::Group(own)).unwrap(), Scope::Private);
    assert_eq!(view.scope_of(Member::Group(root)).unwrap(), Scope::Shared);
    // A user who sees the shared realm alone sees nothing of the others, not even that they are
    // there.
    let shared = fixture.realm();
    assert_eq!(shared.list(root, None, 9).unwrap().len(), 1);
    assert_eq!(shared.list(open, None, 9).unwrap().len(), 1);
    assert_eq!(names_in(&view, open), ["a", "c"]);
    assert_eq!(view.path_of(Member::Object(b)).unwrap(), "own/deep/b");
    assert_eq!(view.path_of(Member::Object(c)).unwrap(), "open/c");
    // Handles go by OID, wherever the object lies.
    assert_eq!([a, b, c].map(|oid| value_of(&view, oid)), [1, 2, 3]);
    assert_eq!(view.attr(Member::Object(c), "k").unwrap(), Some(int(3)));
    // What others may see cannot lie where they may not look.
    let refused = put_in(&view, own, "x", 1, SHARED).unwrap_err();
    assert_eq!(refused.kind(), Kind::Argument, "{refused}");
    let refused = view.rename(root, "open", own, "open").unwrap_err();
    assert_eq!(refused.kind(), Kind::Argument, "{refused}");
    let refused = put_in(&view, root, "x", 1, Some(Scope::Published)).unwrap_err();
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
    sound_after(fixture, view);
}

#[allow(clippy::needless_pass_by_value)] // both end here
fn sound_after(fixture: Fixture, view: Namespace) {
    drop(view);
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn a_private_name_shadows_a_shared_one() {
    let fixture = Fixture::new(32 << 20);
    let view = fixture.pool.namespace("default").unwrap();
    let root = view.root();
    let shared = put_in(&view, root, "x", 1, None).unwrap();
    let own = put_in(&view, root, "x", 2, PRIVATE).unwrap();
    assert_eq!(view.lookup(root, "x").unwrap(), Some(Member::Object(own)));
    assert_eq!(names_in(&view, root), ["x"]);
    assert_eq!(view.count(root).unwrap(), 1);
    assert_eq!(found(&view, "k >= 0"), ["x"]);
    assert_eq!(view.query_count(&parse("k >= 0").unwrap(), &QueryOptions::default()), Ok(1));
    assert_eq!(found(&view, "k = 1"), Vec::<String>::new());
    // Without a scope, a member that is seen is replaced where it is; one that would be hidden is
    // refused.
    let own = put_in(&view, root, "x", 3, None).unwrap_or(own);
    assert_eq!(view.scope_of(Member::Object(own)).unwrap(), Scope::Private);
    assert_eq!(put_in(&view, root, "x", 4, SHARED).unwrap_err().kind(), Kind::Exists);
    view.delete(root, "x").unwrap();
    assert_eq!(view.lookup(root, "x").unwrap(), Some(Member::Object(shared)));
    assert_eq!(value_of(&view, shared), 1);
    // A private object hides a shared group, and all that is in it.
    let below = put_in(&view, root, "g/deep/y", 5, None).unwrap();
    put_in(&view, root, "g", 6, PRIVATE).unwrap();
    assert_eq!(found(&view, "k > 4"), ["g"]);
    assert_eq!(value_of(&view, below), 5, "a handle finds it all the same");
    sound_after(fixture, view);
}

#[test]
fn a_private_member_follows_its_shared_group() {
    let fixture = Fixture::new(32 << 20);
    let view = fixture.pool.namespace("default").unwrap();
    let (root, others) = (view.root(), fixture.realm());
    let group = group_in(&view, "a/b", None);
    let attrs = [("site".to_owned(), int(7))];
    let own = put_in(&view, group, "x", 1, PRIVATE).unwrap();
    let path = || view.path_of(Member::Object(own)).unwrap();
    assert_eq!(path(), "a/b/x");
    // Somebody else moves it; and gives it an attribute that the private realm has no number for.
    others.rename(root, "a/b", root, "c/d").unwrap();
    others.set_attrs(Member::Group(group), &attrs).unwrap();
    assert_eq!(path(), "c/d/x");
    assert_eq!(view.lookup(root, "a/b/x").unwrap(), None);
    assert_eq!(names_in(&view, root), ["a", "c"]);
    assert_eq!(names_in(&view, view.lookup(root, "a").unwrap().unwrap().id()), [""; 0]);
    for query in ["group.site = 7", "@path = \"c/d/x\"", "under(\"c\")", "@group = \"c/d\""] {
        assert_eq!(found(&view, query), ["c/d/x"], "{query}");
    }
    assert_eq!(found(&view, "under(\"a\")"), [""; 0]);
    // The name that the mirror still has is free for others.
    let again = put_in(&view, root, "a/b/y", 2, PRIVATE).unwrap();
    assert_eq!(view.path_of(Member::Object(again)).unwrap(), "a/b/y");
    assert_eq!(names_in(&view, group), ["x"]);
    // Somebody else deletes it: what is private stays, in a group of its own.
    others.delete(root, "c").unwrap();
    assert_eq!(path(), "c/d/x");
    assert_eq!(view.scope_of(Member::Group(group)).unwrap(), Scope::Private);
    assert_eq!(value_of(&view, view.lookup(root, "c/d/x").unwrap().unwrap().id()), 1);
    put_in(&view, group, "z", 3, None).unwrap();
    assert_eq!(found(&view, "under(\"c\")"), ["c/d/x", "c/d/z"]);
    view.delete(root, "c").unwrap();
    assert_eq!(view.lookup(root, "c").unwrap(), None);
    sound_after(fixture, view);
}

#[test]
fn a_batch_covers_the_scope_of_its_first_write() {
    let fixture = Fixture::new(32 << 20);
    let view = fixture.pool.namespace("default").unwrap();
    let root = view.root();
    let batch = view.batch().unwrap();
    put_in(&view, root, "a", 1, PRIVATE).unwrap();
    put_in(&view, root, "b", 2, PRIVATE).unwrap();
    let refused = put_in(&view, root, "c", 3, SHARED).unwrap_err();
    assert_eq!(refused.kind(), Kind::Busy, "{refused}");
    assert_eq!(names_in(&view, root), ["a", "b"]);
    assert_eq!(found(&view, "k > 0"), ["a", "b"]);
    let other = attach(&fixture.path, Mode::ReadWrite).0.namespace("default").unwrap();
    drop(other);
    batch.commit().unwrap();
    assert_eq!(names_in(&view, root), ["a", "b"]);
    let batch = view.batch().unwrap();
    put_in(&view, root, "c", 3, None).unwrap();
    assert_eq!(put_in(&view, root, "d", 3, PRIVATE).unwrap_err().kind(), Kind::Busy);
    batch.abort().unwrap();
    assert_eq!(names_in(&view, root), ["a", "b"]);
    sound_after(fixture, view);
}

#[test]
fn a_view_learns_of_a_private_realm_that_another_process_makes() {
    alone("a_view_learns_of_a_private_realm_that_another_process_makes", || {
        let fixture = Fixture::new(32 << 20);
        let view = fixture.pool.namespace("default").unwrap();
        fork(|_| {
            let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
            let view = pool.namespace("default").unwrap();
            put_in(&view, view.root(), "x", 8, PRIVATE).unwrap();
        })
        .finish();
        assert_eq!(names_in(&view, view.root()), ["x"]);
        assert_eq!(found(&view, "@scope = \"private\""), ["x"]);
        // A child that forks while the view looks at two realms goes on with both.
        fork(|_| {
            assert_eq!(names_in(&view, view.root()), ["x"]);
            put_in(&view, view.root(), "y", 9, None).unwrap();
        })
        .finish();
        assert_eq!(found(&view, "k > 0 order by @scope desc"), ["y", "x"]);
    });
}
