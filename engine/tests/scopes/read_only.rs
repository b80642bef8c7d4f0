//! Read-only members: what is refused, by which name, and what is not.

use crate::common::moves::{names, value_of};
use crate::common::{
    Fixture, KEEP, OVER, alone, attach, filled, floats, fork, lookup, put, read, sound,
};
use engram::{
    IndexSettings, Kind, Member, Mode, Namespace, Placement, Realm, Result, Scope, Value,
};

const READ_ONLY: Placement = Placement { read_only: true, ..KEEP };

fn group(realm: &Realm, path: &str) -> u64 {
    realm.create_group(realm.root(), path, &[], &[], true).unwrap()
}

fn object(realm: &Realm, path: &str) -> Member {
    Member::Object(lookup(realm, path).unwrap())
}

fn attr() -> Vec<(String, Value)> {
    vec![("k".into(), Value::text("v"))]
}

/// Every change there is, of `g/x` (5000 words) and in `g`; each is refused, and names `by`.
fn all_refused(realm: &Realm, by: &str) {
    let root = realm.root();
    let Member::Object(oid) = object(realm, "g/x") else { unreachable!() };
    let generation = realm.payload(oid).unwrap().1;
    let data = filled(3, 3, 5000);
    let over = || realm.put(root, "g/x", &floats(&[5000]), &data, OVER).map(drop);
    let changes: Vec<(&str, Result<()>)> = vec![
        ("replace", realm.replace_payload(oid, generation, &data).map(drop)),
        ("overwrite", over()),
        ("allocate", realm.allocate(root, "g/x", &floats(&[5000]), 40_000, OVER).map(drop)),
        ("view", realm.view(oid, true).map(drop)),
        ("delete", realm.delete(root, "g/x")),
        ("delete above", realm.delete(root, "g")),
        ("rename", realm.rename(root, "g/x", root, "y")),
        ("annotate", realm.set_attrs(Member::Object(oid), &attr())),
        ("remove an attribute", realm.delete_attr(Member::Object(oid), "kept")),
    ];
    for (what, done) in changes {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), Kind::ReadOnly, "{what}: {error}");
        assert!(error.message().contains(by), "{what}: {error}");
    }
    realm.begin_batch().unwrap();
    assert_eq!(over().unwrap_err().kind(), Kind::ReadOnly);
    assert_eq!(realm.delete(root, "g").unwrap_err().kind(), Kind::ReadOnly);
    assert_eq!(realm.rename(root, "g/x", root, "y").unwrap_err().kind(), Kind::ReadOnly);
    realm.commit_batch().unwrap();
    assert_eq!(read(realm, "g/x"), filled(1, 1, 5000));
    assert!(realm.is_read_only(Member::Object(oid)).unwrap());
}

fn with_x() -> (Fixture, Realm) {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    put(&realm, "g/x", &filled(1, 1, 5000));
    put(&realm, "g/y", &filled(2, 1, 4));
    realm.set_attrs(object(&realm, "g/x"), &[("kept".into(), Value::text("v"))]).unwrap();
    (fixture, realm)
}

#[test]
fn a_read_only_object_stays_as_it_is_until_that_is_taken_back() {
    let (fixture, realm) = with_x();
    let x = object(&realm, "g/x");
    realm.set_read_only(x, true).unwrap();
    realm.set_read_only(x, true).unwrap();
    all_refused(&realm, "\"g/x\" is read-only");
    // Its neighbours are not, nor is its group: that may move with it.
    put(&realm, "g/y", &filled(2, 2, 5000));
    put(&realm, "g/z", &filled(2, 2, 4));
    realm.rename(realm.root(), "g", realm.root(), "h").unwrap();
    realm.rename(realm.root(), "h", realm.root(), "g").unwrap();
    sound(&fixture.path);
    realm.set_read_only(x, false).unwrap();
    assert!(!realm.is_read_only(x).unwrap());
    realm.delete(realm.root(), "g").unwrap();
    assert_eq!(sound(&fixture.path).used, 0);
}

#[test]
fn a_read_only_group_holds_all_that_is_below_it() {
    let (fixture, realm) = with_x();
    let (root, g) = (realm.root(), group(&realm, "g"));
    group(&realm, "g/inner/deep");
    realm.set_read_only(Member::Group(g), true).unwrap();
    all_refused(&realm, "the group \"g\" is read-only");
    let refused = |what: &str, done: Result<()>| {
        assert_eq!(done.expect_err(what).kind(), Kind::ReadOnly, "{what}");
    };
    let new = floats(&[5000]);
    let data = filled(4, 4, 5000);
    for path in ["g/new", "g/inner/deep/new", "g/made/up/new"] {
        refused(path, realm.put(root, path, &new, &data, KEEP).map(drop));
        refused(path, realm.put(root, path, &floats(&[1]), &data[..8], KEEP).map(drop));
        refused(path, realm.create_group(root, path, &[], &[], false).map(drop));
        refused(path, realm.allocate(root, path, &new, 40_000, KEEP).map(drop));
        refused(
            path,
            realm.rename(root, "free", root, path).or_else(|e| match e.kind() {
                Kind::NotFound => {
                    put(&realm, "free", &data);
                    realm.rename(root, "free", root, path)
                }
                _ => Err(e),
            }),
        );
    }
    refused("attrs", realm.set_attrs(Member::Group(g), &attr()));
    refused("origin", realm.set_origin(Member::Group(g), b"x"));
    refused("delete", realm.delete(root, "g/inner"));
    refused("rename", realm.rename(root, "g", root, "h"));
    // A member below cannot be let go alone; a group that is there may be asked for.
    refused("inner", realm.set_read_only(object(&realm, "g/y"), false));
    refused("inner", realm.set_read_only(object(&realm, "g/y"), true));
    assert_eq!(
        realm.create_group(root, "g/inner", &[], &[], true).unwrap(),
        group(&realm, "g/inner")
    );
    // The root holds all there is.
    realm.set_read_only(Member::Group(g), false).unwrap();
    realm.set_read_only(Member::Group(root), true).unwrap();
    all_refused(&realm, "the group \"/\" is read-only");
    refused("root", realm.put(root, "new", &new, &data, KEEP).map(drop));
    realm.set_read_only(Member::Group(root), false).unwrap();
    put(&realm, "g/x", &data);
    sound(&fixture.path);
}

#[test]
fn what_is_made_read_only_is_so_from_its_first_instant() {
    let (fixture, realm) = with_x();
    let root = realm.root();
    let data = filled(5, 5, 5000);
    realm.put(root, "kept", &floats(&[5000]), &data, READ_ONLY).unwrap();
    realm.put(root, "small", &floats(&[1]), &data[..8], READ_ONLY).unwrap();
    realm.create_zeroed(root, "zeros", &floats(&[5000]), READ_ONLY).unwrap();
    let space = realm.allocate(root, "space", &floats(&[5000]), 40_000, READ_ONLY).unwrap();
    space.write(&data);
    space.publish().unwrap();
    for path in ["kept", "small", "zeros", "space"] {
        assert!(realm.is_read_only(object(&realm, path)).unwrap());
        assert_eq!(realm.delete(root, path).unwrap_err().kind(), Kind::ReadOnly);
    }
    sound(&fixture.path);
}

#[test]
fn a_batch_sees_its_own_and_meets_others() {
    alone("a_batch_sees_its_own_and_meets_others", || {
        let (fixture, realm) = with_x();
        let root = realm.root();
        realm.begin_batch().unwrap();
        realm.set_read_only(object(&realm, "g/x"), true).unwrap();
        assert_eq!(realm.delete(root, "g").unwrap_err().kind(), Kind::ReadOnly);
        realm.abort_batch().unwrap();
        realm.set_attrs(object(&realm, "g/x"), &attr()).unwrap();
        realm.begin_batch().unwrap();
        put(&realm, "g/new", &filled(1, 1, 4));
        fork(|_| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            realm.set_read_only(Member::Group(group(&realm, "g")), true).unwrap();
        })
        .finish();
        assert_eq!(realm.commit_batch().unwrap_err().kind(), Kind::Busy);
        assert_eq!(lookup(&realm, "g/new"), None);
        all_refused(&realm, "the group \"g\" is read-only");
        sound(&fixture.path);
    });
}

/// A group with members of two scopes goes with all of them, or with none.
#[test]
fn what_is_read_only_in_one_realm_keeps_its_group_in_the_others() {
    let fixture = Fixture::new(64 << 20);
    let (shared, all) = (fixture.realm(), names(&fixture.pool));
    let (root, data) = (all.root(), filled(2, 1, 5000));
    put(&shared, "g/ours", &filled(1, 1, 5000));
    let own = Placement { scope: Some(Scope::Private), ..KEEP };
    let mine = Member::Object(all.put(root, "g/mine", &floats(&[5000]), &data, own).unwrap());
    let ours = object(&shared, "g/ours");
    let group = all.lookup(root, "g").unwrap().unwrap();
    let refused = |what: &str, done: Result<()>| {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), Kind::ReadOnly, "{what}: {error}");
        assert!(value_of(&all, mine.id()) == data, "{what}");
        assert!(value_of(&all, ours.id()) == filled(1, 1, 5000), "{what}");
    };
    for (what, member) in [("ours", ours), ("mine", mine), ("g", group)] {
        all.set_read_only(member, true).unwrap();
        assert!(all.is_read_only(member).unwrap());
        refused(what, all.delete(root, "g"));
        refused(what, all.set_attrs(member, &attr()));
        if what != "g" {
            refused(what, all.rename(root, &format!("g/{what}"), root, "away"));
            // The group above may be called otherwise, in each realm that has it.
            all.rename(root, "g", root, "h").unwrap();
            assert_eq!(all.path_of(member).unwrap(), format!("h/{what}"));
            all.rename(root, "h", root, "g").unwrap();
        }
        all.set_read_only(member, false).unwrap();
    }
    // A shared group that is read-only gets no new members, of any scope, and keeps those it has.
    all.set_read_only(group, true).unwrap();
    refused("rename", all.rename(root, "g", root, "h"));
    for path in ["g/new", "g/deep/new"] {
        refused(path, all.put(root, path, &floats(&[5000]), &data, own).map(drop));
        refused(path, all.put(root, path, &floats(&[5000]), &data, KEEP).map(drop));
        let group = all.create_group(root, path, &[], b"", false, Some(Scope::Private));
        refused(path, group.map(drop));
    }
    refused("annotate", all.set_attrs(mine, &attr()));
    refused("delete", all.delete(root, "g/mine"));
    all.set_read_only(group, false).unwrap();
    all.delete(root, "g").unwrap();
    drop((all, shared));
    fixture.pool.close();
    assert_eq!(sound(&fixture.path).used, 0);
}

/// Every change of `path`, a private array of 5000 words with the attribute `kept`, by path and by
/// id; and with a group above it, what a private group there is told.
fn changes_in(all: &Namespace, path: &str) -> Vec<(&'static str, Result<()>)> {
    let root = all.root();
    let Some(Member::Object(oid)) = all.lookup(root, path).unwrap() else { unreachable!() };
    let (member, generation) = (Member::Object(oid), all.payload(oid).unwrap().1);
    let (new, data) = (floats(&[5000]), filled(9, 9, 5000));
    let above = path.rsplit_once('/').unwrap().0;
    let own = Placement { scope: Some(Scope::Private), ..KEEP };
    vec![
        ("annotate", all.set_attrs(member, &attr())),
        ("remove an attribute", all.delete_attr(member, "kept")),
        ("in place", all.view_in_place(oid).map(drop)),
        ("view", all.view(oid, true).map(drop)),
        ("replace", all.replace_payload(oid, generation, &data).map(drop)),
        ("overwrite", all.put(root, path, &new, &data, OVER).map(drop)),
        ("overwrite with zeros", all.create_zeroed(root, path, &new, OVER).map(drop)),
        ("allocate", all.allocate(root, path, &new, 40_000, OVER).map(drop)),
        ("rename", all.rename(root, path, root, &format!("{above}/other"))),
        ("move out", all.rename(root, path, root, "outside")),
        ("move in", all.rename(root, "free", root, &format!("{above}/moved"))),
        ("make", all.put(root, &format!("{above}/new"), &new, &data, own).map(drop)),
        ("make deep", all.put(root, &format!("{above}/a/b/c"), &new, &data, own).map(drop)),
        ("allocate new", all.allocate(root, &format!("{above}/new"), &new, 40_000, own).map(drop)),
        ("protect", all.set_read_only(member, true)),
        ("delete", all.delete(root, path)),
        ("delete all", all.delete(root, above)),
        ("delete some", all.check_deletable(root, &[path.to_owned()]).map(drop)),
    ]
}

/// The word of a group holds for the members below it, whoever sees them: also in a group of its
/// own realm that lies in one of another.
#[test]
fn a_read_only_group_holds_what_is_below_it_in_other_scopes() {
    for (inner, published) in [("", false), ("/deep/deeper", false), ("", true), ("/deep", true)] {
        let fixture = Fixture::new(64 << 20);
        let all = names(&fixture.pool);
        let (root, data) = (all.root(), filled(2, 1, 5000));
        let own = Placement { scope: Some(Scope::Private), ..KEEP };
        all.create_group(root, "top/p", &[], b"", false, None).unwrap();
        let above = format!("top/p{inner}");
        if !inner.is_empty() {
            all.create_group(root, &above, &[], b"", false, Some(Scope::Private)).unwrap();
        }
        let path = format!("{above}/x");
        let x = Member::Object(all.put(root, &path, &floats(&[5000]), &data, own).unwrap());
        all.set_attrs(x, &[("kept".into(), Value::text("v"))]).unwrap();
        all.put(root, "free", &floats(&[5000]), &data, own).unwrap();
        // What holds may be the group above, or the one above that.
        for holds in ["top/p", "top"] {
            let group = all.lookup(root, holds).unwrap().unwrap();
            all.set_read_only(group, true).unwrap();
            if published {
                all.transfer(root, holds, &[Scope::Shared], Scope::Published).unwrap();
            }
            assert!(all.is_read_only(x).unwrap());
            let before = all.attrs(x).unwrap();
            let by = format!("the group {holds:?} is read-only");
            for batch in [false, true] {
                let batch = batch.then(|| all.batch().unwrap());
                for (what, done) in changes_in(&all, &path) {
                    let error = done.expect_err(what);
                    assert_eq!(error.kind(), Kind::ReadOnly, "{path}, {what}: {error}");
                    let own = what == "delete all" && above == "top/p";
                    assert!(own || error.message().contains(&by), "{path}, {what}: {error}");
                }
                if let Some(batch) = batch {
                    batch.commit().unwrap();
                }
            }
            assert!(value_of(&all, x.id()) == data && all.attrs(x).unwrap() == before);
            assert_eq!(all.path_of(x).unwrap(), path);
            // A setting of the index is no change of what is there, and a user who may look may
            // lock.
            if !inner.is_empty() {
                let deep = all.lookup(root, &above).unwrap().unwrap().id();
                all.set_index_settings(deep, &IndexSettings::default()).unwrap();
            }
            if published {
                all.transfer(root, holds, &[Scope::Published], Scope::Shared).unwrap();
            }
            all.set_read_only(group, false).unwrap();
            assert!(!all.is_read_only(x).unwrap());
        }
        all.set_attrs(x, &attr()).unwrap();
        drop(all.view_in_place(x.id()).unwrap());
        all.rename(root, &path, root, "outside").unwrap();
        all.delete(root, "top").unwrap();
        all.delete(root, "outside").unwrap();
        all.delete(root, "free").unwrap();
        drop(all);
        fixture.pool.close();
        assert_eq!(sound(&fixture.path).used, 0);
    }
}
