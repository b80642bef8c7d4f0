//! Moves between the realms of a namespace: a member that moves stays itself, and is there once.

use std::fmt::Write as _;
use std::path::Path;

use crate::common::{Fixture, KEEP, attach, filled, floats, put, sound};
use engram::query::parse;
use engram::{
    Gid, IndexSettings, Kind, Member, Mode, Moved, Namespace, Oid, Payload, Pool, QueryOptions,
    Realm, Scope, Value,
};

const SCOPES: [Scope; 3] = Scope::ALL;

fn view(pool: &Pool) -> Namespace {
    pool.namespace("default").unwrap()
}

fn realm(namespace: &Namespace, scope: Scope) -> Realm {
    namespace.realm_of(scope, true).unwrap().expect("there is one")
}

/// Every object below a group: path, OID, scope, contents, attributes, and what else is kept.
fn all(namespace: &Namespace) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![namespace.root()];
    while let Some(gid) = open.pop() {
        for (_, member) in namespace.list(gid, None, usize::MAX).unwrap() {
            let path = namespace.path_of(member).unwrap();
            let mut attrs = format!("{:?}", namespace.attrs(member).unwrap());
            match member {
                Member::Group(inner) => {
                    let info = namespace.group(inner).unwrap();
                    write!(attrs, "{:?}", (info.gid, info.owner, info.created, info.modified))
                        .unwrap();
                    write!(attrs, "{:?}", info.origin).unwrap();
                    open.push(inner);
                }
                Member::Object(oid) => {
                    let mut info = namespace.object(oid).unwrap();
                    info.scope = Scope::Shared;
                    write!(attrs, "{info:?} {:?}", digest(&bytes(namespace, oid))).unwrap();
                }
            }
            found.push(format!("{path} {attrs}"));
        }
    }
    found.sort();
    found
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
}

fn bytes(namespace: &Namespace, oid: Oid) -> Vec<u8> {
    match namespace.payload(oid).unwrap().0 {
        Payload::Inline(bytes) => bytes,
        // SAFETY: nobody writes to the view, which lives as long as this.
        Payload::Extent(view) => unsafe {
            std::slice::from_raw_parts(view.as_ptr(), view.len()).to_vec()
        },
    }
}

fn attrs() -> Vec<(String, Value)> {
    let numbers: Vec<u8> = (0..48).collect();
    vec![
        ("odd/key of some length".into(), Value::text("µ — ∂")),
        ("vector".into(), Value { dtype: floats(&[]).dtype, shape: vec![2, 3], data: numbers }),
        (
            "orbit".into(),
            Value { dtype: floats(&[]).dtype, shape: vec![], data: 7f64.to_le_bytes().to_vec() },
        ),
    ]
}

/// A tree in one realm: small and large values, groups, attributes, settings of the index.
fn build(realm: &Realm) -> Gid {
    let root = realm.root();
    let run = realm.create_group(root, "run", &attrs(), b"kept for export", false).unwrap();
    let settings = IndexSettings { segment_rows: Some(64), ..IndexSettings::default() };
    realm.set_index_settings(run, &settings).unwrap();
    realm.create_group(root, "run/deep/er", &attrs(), b"", false).unwrap();
    for (place, words) in [3usize, 100, 600, 9000, 300_000].into_iter().enumerate() {
        for group in ["run", "run/deep", "run/deep/er"] {
            let new = engram::NewObject {
                attrs: attrs(),
                dims: Some(vec!["x".into()]),
                origin: b"where it came from".to_vec(),
                ..floats(&[words as u64])
            };
            let data = filled(place as u64, 1, words);
            realm.put(root, &format!("{group}/{place}"), &new, &data, KEEP).unwrap();
        }
    }
    let (oid, group) = (crate::common::lookup(realm, "run/3").unwrap(), "run/deep/er");
    realm.set_read_only(Member::Object(oid), true).unwrap();
    realm.set_read_only(realm.lookup(root, group).unwrap().unwrap(), true).unwrap();
    run
}

/// The objects that a query finds.
fn hits(namespace: &Namespace, query: &str) -> Vec<Oid> {
    let answer = namespace.query(&parse(query).unwrap(), &QueryOptions::default()).unwrap();
    let distinct: std::collections::BTreeSet<_> = answer.oids.iter().collect();
    assert_eq!(distinct.len(), answer.oids.len(), "an object is there once");
    answer.oids
}

fn move_it(namespace: &Namespace, path: &str, from: Scope, to: Scope) -> Moved {
    namespace.transfer(namespace.root(), path, &[from], to).unwrap()
}

/// Puts what `build` makes into the realm of a scope.
fn begin(namespace: &Namespace, from: Scope) {
    let made = if from == Scope::Published { Scope::Shared } else { from };
    build(&realm(namespace, made));
    if from == Scope::Published {
        move_it(namespace, "run", Scope::Shared, Scope::Published);
    }
}

fn directions() -> impl Iterator<Item = (Scope, Scope)> {
    let pairs = SCOPES.into_iter().flat_map(|from| SCOPES.map(|to| (from, to)));
    pairs.filter(|(from, to)| from != to)
}

#[test]
fn what_moves_stays_itself_in_every_direction() {
    for (from, to) in directions() {
        let fixture = Fixture::new(64 << 20);
        let namespace = view(&fixture.pool);
        begin(&namespace, from);
        let before = all(&namespace);
        let found = hits(&namespace, "orbit = 7");
        assert_eq!((before.len(), found.len()), (18, 15));
        let moved = move_it(&namespace, "run", from, to);
        assert_eq!((moved.objects, moved.groups), (15, 3), "{from:?} to {to:?}");
        assert_eq!(all(&namespace), before, "{from:?} to {to:?}");
        assert_eq!(hits(&namespace, "orbit = 7"), found);
        assert_eq!(hits(&namespace, "@path contains \"deep/er\"").len(), 5);
        let read_only = |path| {
            let member = namespace.lookup(namespace.root(), path).unwrap().unwrap();
            realm(&namespace, to).is_read_only(member).unwrap()
        };
        let protected = ["run/3", "run/deep/3", "run/deep/er", "run/deep/er/0"].map(read_only);
        assert_eq!(protected, [true, false, true, true], "the hint goes along");
        for oid in &found {
            assert_eq!(namespace.scope_of(Member::Object(*oid)).unwrap(), to);
        }
        let left = namespace
            .realm_of(from, false)
            .unwrap()
            .map_or(0, |realm| realm.list(realm.root(), None, 10).unwrap().len());
        assert_eq!(left, 0, "nothing is left where it was");
        assert_eq!(move_it(&namespace, "run", from, to), Moved::default(), "it is there already");
        // One object back, alone: the groups above it are mirrors there.
        let back = move_it(&namespace, "run/deep/4", to, from);
        let home = realm(&namespace, from);
        let mirror = home.lookup(home.root(), "run/deep/er").unwrap();
        assert_eq!(mirror, None, "groups on other ways have no mirror");
        let run = home.lookup(home.root(), "run").unwrap().expect("a mirror");
        let told = home.attrs(run).unwrap().len();
        assert_eq!(told, if from == Scope::Private { 3 } else { 0 }, "names only, for others");
        assert_eq!(namespace.attrs(run).unwrap().len(), 3);
        assert_eq!((back.objects, back.groups, back.bytes), (1, 0, 2_400_000));
        assert_eq!(all(&namespace), before);
        assert_eq!(namespace.leaving().unwrap(), 0);
        fixture.pool.close();
        drop(namespace);
        sound(&fixture.path);
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        assert_eq!(all(&view(&pool)), before);
    }
}

#[test]
fn hits_of_a_query_move_together() {
    let fixture = Fixture::new(64 << 20);
    let namespace = view(&fixture.pool);
    build(&realm(&namespace, Scope::Private));
    let inner = namespace.lookup(namespace.root(), "run/deep/er").unwrap().expect("a group");
    namespace.set_read_only(inner, false).unwrap();
    let before = all(&namespace);
    let found = hits(&namespace, "@path contains \"deep/er\"");
    let moved = namespace.transfer_all(&found, &[Scope::Private], Scope::Shared).unwrap();
    assert_eq!((moved.objects, moved.groups), (5, 0));
    assert_eq!(all(&namespace), before);
    let every = hits(&namespace, "orbit = 7");
    let both = [Scope::Private, Scope::Shared];
    let moved = namespace.transfer_all(&every, &both, Scope::Published).unwrap();
    assert_eq!(moved.objects, 15, "from two realms, in one version");
    assert_eq!(all(&namespace), before);
    let moved = namespace.transfer(namespace.root(), "run", &both, Scope::Published).unwrap();
    assert_eq!((moved.objects, moved.groups), (0, 3));
    assert_eq!(all(&namespace), before);
    drop(namespace);
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn a_name_that_is_taken_refuses_all_of_it() {
    let fixture = Fixture::new(64 << 20);
    let namespace = view(&fixture.pool);
    let (private, shared) = (realm(&namespace, Scope::Private), realm(&namespace, Scope::Shared));
    build(&private);
    let inner = namespace.lookup(namespace.root(), "run/deep/er").unwrap().expect("a group");
    namespace.set_read_only(inner, false).unwrap();
    put(&shared, "run", &filled(3, 1, 9));
    put(&private, "one", &filled(1, 1, 9000));
    put(&shared, "one", &filled(2, 1, 9000));
    let before = all(&namespace);
    for path in ["run", "one", "run/deep/er/3"] {
        let root = namespace.root();
        let refused = namespace.transfer(root, path, &[Scope::Private], Scope::Shared);
        let refused = refused.expect_err("the name is taken");
        assert_eq!(refused.kind(), Kind::Exists, "{refused}");
        assert_eq!(all(&namespace), before);
        assert_eq!(namespace.leaving().unwrap(), 0, "nothing is marked");
    }
    shared.delete(shared.root(), "run").unwrap();
    move_it(&namespace, "run", Scope::Private, Scope::Shared);
    drop((namespace, private, shared));
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn a_target_without_room_leaves_all_as_it_was() {
    for to in [Scope::Shared, Scope::Published] {
        let fixture = Fixture::new(8 << 20);
        let namespace = view(&fixture.pool);
        let private = realm(&namespace, Scope::Private);
        private.resize(64 << 20).unwrap();
        for place in 0..4 {
            put(&private, &format!("run/{place}"), &filled(place, 1, 400_000));
        }
        let before = all(&namespace);
        let used = private.space().unwrap().used;
        let root = namespace.root();
        let refused = namespace.transfer(root, "run", &[Scope::Private], to);
        let refused = refused.expect_err("12.8 MB do not fit 8 MiB");
        assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
        assert_eq!(all(&namespace), before);
        assert_eq!((namespace.leaving().unwrap(), private.space().unwrap().used), (0, used));
        let shared = realm(&namespace, Scope::Shared).space().unwrap();
        assert_eq!(shared.used, 0, "what was reserved is given back");
        move_it(&namespace, "run/1", Scope::Private, to);
        assert_eq!(all(&namespace), before);
        drop((namespace, private));
        fixture.pool.close();
        sound(&fixture.path);
    }
}

/// The published files of a pool: path, mode, contents.
fn published_files(pool: &Path) -> Vec<(String, u32, u64)> {
    use std::os::unix::fs::PermissionsExt;
    let (mut files, mut open) = (Vec::new(), vec![pool.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_str().unwrap().contains("/published/") {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
                files.push((
                    path.display().to_string(),
                    mode,
                    digest(&std::fs::read(path).unwrap()),
                ));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn nobody_writes_what_is_published() {
    let fixture = Fixture::new(64 << 20);
    let namespace = view(&fixture.pool);
    begin(&namespace, Scope::Published);
    let files = published_files(&fixture.path);
    assert_eq!(files.len(), 3, "realm.toml, data.mdb, one span: {files:?}");
    assert!(files.iter().all(|(_, mode, _)| *mode == 0o444), "{files:?}");
    let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
    let other = view(&pool);
    let published = realm(&other, Scope::Published);
    let oid = hits(&other, "@name = \"4\"")[0];
    let (member, root) = (Member::Object(oid), other.root());
    let refusals = [
        published.put(root, "run/new", &floats(&[3]), &filled(1, 1, 3), KEEP).map(|_| ()),
        published.delete(root, "run/4"),
        published.rename(root, "run/4", root, "elsewhere"),
        published.set_attrs(member, &attrs()),
        published.view(oid, true).map(|_| ()),
        published.create_group(root, "g", &[], b"", false).map(|_| ()),
        published.replace_payload(oid, 0, b"").map(|_| ()),
    ];
    for refused in refusals {
        let refused = refused.expect_err("nobody writes there");
        assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
        assert!(refused.message().contains("published"), "{refused}");
    }
    for _ in 0..3 {
        all(&other);
    }
    let view = published.view(oid, false).unwrap();
    drop((published, other));
    pool.close();
    assert_eq!(published_files(&fixture.path), files, "reading changes no byte");
    let Payload::Extent(view) = view else { panic!("a large value lies in an extent") };
    assert_eq!(crate::common::check(&view), (4, 1), "a view outlives its pool");
}

#[test]
fn who_reads_an_older_version_goes_on() {
    let fixture = Fixture::new(64 << 20);
    let namespace = view(&fixture.pool);
    let shared = realm(&namespace, Scope::Shared);
    for name in ["a", "b", "c"] {
        put(&shared, name, &filled(u64::from(name.as_bytes()[0]), 1, 400_000));
    }
    move_it(&namespace, "a", Scope::Shared, Scope::Published);
    move_it(&namespace, "b", Scope::Shared, Scope::Published);
    let older = realm(&namespace, Scope::Published);
    let view = crate::common::view(&older, "a");
    move_it(&namespace, "c", Scope::Shared, Scope::Published);
    assert_eq!(older.list(older.root(), None, 9).unwrap().len(), 2, "it shows what was");
    move_it(&namespace, "a", Scope::Published, Scope::Shared);
    move_it(&namespace, "b", Scope::Published, Scope::Shared);
    assert_eq!(crate::common::check(&view), (97, 1), "what is in view stays");
    assert_eq!(
        crate::common::check(&crate::common::view(&older, "a")),
        (97, 1),
        "its span was mapped"
    );
    assert_eq!(older.list(older.root(), None, 9).unwrap().len(), 2);
    let spans = published_files(&fixture.path).into_iter().filter(|f| f.0.contains("span-"));
    assert_eq!(spans.count(), 1, "spans without a value are gone");
    assert_eq!(namespace.list(namespace.root(), None, 9).unwrap().len(), 3);
    let space = realm(&namespace, Scope::Published).space().unwrap();
    assert_eq!(space.used, 3_200_000u64.div_ceil(4096) * 4096);
    drop((namespace, older, shared, view));
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn receipts_of_moves_that_are_over_go_from_what_is_published() {
    let fixture = Fixture::new(64 << 20);
    let namespace = view(&fixture.pool);
    for (name, home) in [("mine", Scope::Private), ("ours", Scope::Shared)] {
        put(&realm(&namespace, home), name, &filled(1, 1, 100));
    }
    for _ in 0..20 {
        for (name, home) in [("mine", Scope::Private), ("ours", Scope::Shared)] {
            move_it(&namespace, name, home, Scope::Published);
            move_it(&namespace, name, Scope::Published, home);
        }
    }
    assert_eq!(namespace.receipts().unwrap(), 1, "that of the last move");
    drop(namespace);
    fixture.pool.close();
    sound(&fixture.path);
}

/// A mirror whose name a member has is a member still of the group that it lies in.
#[test]
fn a_group_that_holds_a_mirror_without_a_name_stays() {
    let fixture = Fixture::new(64 << 20);
    let namespace = view(&fixture.pool);
    let (root, shared) = (namespace.root(), realm(&namespace, Scope::Shared));
    let h = shared.create_group(root, "g/h", &[], b"", false).unwrap();
    let own = engram::Placement { scope: Some(Scope::Private), ..KEEP };
    let put_own = |parent, path: &str| {
        namespace.put(parent, path, &floats(&[9]), &filled(1, 1, 9), own).unwrap()
    };
    let (p, _k) = (put_own(root, "g/h/p"), put_own(root, "g/k"));
    // Somebody else gives the shared group the name that a private object has beside it.
    shared.rename(root, "g/h", root, "g/k").unwrap();
    let q = put_own(h, "q");
    // The name is free again, and the mirror has none still.
    realm(&namespace, Scope::Private).rename(root, "g/k", root, "g/z").unwrap();
    for to in [Scope::Published, Scope::Private, Scope::Published] {
        let from = if to == Scope::Private { Scope::Published } else { Scope::Private };
        move_it(&namespace, "g/z", from, to);
        for (oid, name) in [(p, "p"), (q, "q")] {
            let path = namespace.path_of(Member::Object(oid)).unwrap();
            assert_eq!(path, format!("g/k/{name}"), "{to:?}");
        }
        assert_eq!(sound(&fixture.path).objects, 3, "{to:?}");
    }
    // Emptied, it goes, and what held it.
    let private = realm(&namespace, Scope::Private);
    move_it(&namespace, "g/k/p", Scope::Private, Scope::Shared);
    assert!(private.lookup(root, "g").unwrap().is_some());
    move_it(&namespace, "g/k/q", Scope::Private, Scope::Shared);
    assert_eq!(private.lookup(root, "g").unwrap(), None, "mirrors of nothing");
    drop((namespace, shared, private));
    fixture.pool.close();
    sound(&fixture.path);
}
