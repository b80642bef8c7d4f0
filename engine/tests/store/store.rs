//! The store as a Rust program uses it: objects, space, batches, processes.

use std::path::PathBuf;

use engram::{
    Class, CreateOptions, DType, Kind, Member, Mode, NewObject, Payload, Placement, Pool, Realm,
    Value, View,
};

/// A pool on tmpfs that is destroyed with the test.
struct Fixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
    pool: Pool,
}

impl Fixture {
    fn new(size: u64) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs at /dev/shm");
        let path = dir.path().join("pool");
        let pool = Pool::create(&path, &CreateOptions { size, ..CreateOptions::default() })
            .expect("a new pool");
        Fixture { _dir: dir, path, pool }
    }

    fn realm(&self) -> Realm {
        self.pool.realm("default").expect("the default namespace")
    }

    /// Verifies from this process, and says what is wrong.
    fn assert_sound(&self) -> engram::Report {
        let report = engram::verify(&self.path).expect("a walk");
        assert_eq!(report.problems, Vec::<String>::new());
        report
    }
}

fn floats(shape: &[u64]) -> NewObject {
    NewObject {
        class: Class::Array,
        dtype: DType::Scalar { kind: b'f', order: b'<', size: 8, unit: None },
        shape: shape.to_vec(),
        dims: None,
        attrs: Vec::new(),
        origin: Vec::new(),
        properties: Vec::new(),
        layout: engram::Layout::default(),
    }
}

fn bytes_of(byte: u8, len: u64) -> Vec<u8> {
    vec![byte; len as usize]
}

fn put(realm: &Realm, path: &str, byte: u8, items: u64) -> u64 {
    let overwrite = Placement { overwrite: true, ..Placement::default() };
    realm
        .put(realm.root(), path, &floats(&[items]), &bytes_of(byte, items * 8), overwrite)
        .expect("put")
}

fn read(realm: &Realm, path: &str) -> Vec<u8> {
    let member = realm.lookup(realm.root(), path).expect("a look-up").expect("there");
    match realm.payload(member.id()).expect("a payload").0 {
        Payload::Inline(bytes) => bytes,
        Payload::Extent(view) => contents(&view),
    }
}

fn contents(view: &View) -> Vec<u8> {
    // SAFETY: a live view of `len` bytes that these tests do not write to meanwhile.
    unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) }.to_vec()
}

fn view(realm: &Realm, oid: u64) -> View {
    match realm.view(oid, false).expect("a view") {
        Payload::Extent(view) => view,
        Payload::Inline(_) => panic!("the value is inline"),
    }
}

#[test]
fn small_and_large_values_come_back() {
    let fixture = Fixture::new(256 << 20);
    let realm = fixture.realm();
    for (path, items) in [("a/small", 4), ("a/large", 100_000), ("a/b/huge", 1_000_000)] {
        put(&realm, path, 7, items);
        assert_eq!(read(&realm, path), bytes_of(7, items * 8));
    }
    let group = realm.lookup(realm.root(), "a").unwrap().unwrap();
    let names: Vec<_> =
        realm.list(group.id(), None, 10).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["b", "large", "small"]);
    let huge = realm.lookup(realm.root(), "/a/b/huge").unwrap().unwrap();
    assert_eq!(realm.path_of(huge).unwrap(), "a/b/huge");
    let report = fixture.assert_sound();
    assert_eq!((report.objects, report.groups), (3, 3));
}

#[test]
fn a_pool_outlives_its_handles() {
    let fixture = Fixture::new(64 << 20);
    put(&fixture.realm(), "x", 3, 1000);
    fixture.pool.close();
    assert_eq!(fixture.pool.realm("default").err().map(|e| e.kind()), Some(Kind::Argument));
    let again = Pool::open(&fixture.path, Mode::Read, false).unwrap();
    let realm = again.realm("default").unwrap();
    assert_eq!(read(&realm, "x"), bytes_of(3, 8000));
    let refused = realm.delete(realm.root(), "x").unwrap_err();
    assert_eq!(refused.kind(), Kind::ReadOnly);
}

#[test]
fn attributes_are_set_changed_and_deleted() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "x", 1, 4);
    let member = Member::Object(oid);
    realm
        .set_attrs(member, &[("units".into(), Value::text("K")), ("b".into(), Value::text(""))])
        .unwrap();
    realm.set_attrs(member, &[("units".into(), Value::text("degC"))]).unwrap();
    let keys: Vec<_> = realm.attrs(member).unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["b", "units"]);
    assert_eq!(realm.attr(member, "units").unwrap(), Some(Value::text("degC")));
    realm.delete_attr(member, "units").unwrap();
    assert_eq!(realm.attr(member, "units").unwrap(), None);
    assert_eq!(realm.delete_attr(member, "units").unwrap_err().kind(), Kind::NotFound);
    fixture.assert_sound();
}

#[test]
fn replaced_and_deleted_space_is_used_again() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    // Ten times the pool's size in all: it fits only if what is replaced comes back.
    for round in 0..40_u8 {
        put(&realm, "x", round, 2 << 20);
        assert_eq!(read(&realm, "x")[0], round);
    }
    realm.delete(realm.root(), "x").unwrap();
    let report = fixture.assert_sound();
    assert_eq!(report.used, 0);
}

#[test]
fn delete_keeps_live_views_intact_and_their_space_alone() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "kept", 9, 1 << 20);
    let held = view(&realm, oid);
    realm.delete(realm.root(), "kept").unwrap();
    for round in 0..50_u8 {
        put(&realm, "other", round, 2 << 20);
    }
    assert_eq!(contents(&held), bytes_of(9, 8 << 20));
    let pending = realm.space().unwrap().pending;
    assert!(pending >= 8 << 20, "the view's extent is held: {pending}");
    drop(held);
    put(&realm, "other", 1, 1 << 20);
    put(&realm, "other", 2, 1 << 20);
    assert!(realm.space().unwrap().pending <= 8 << 20);
    fixture.assert_sound();
}

#[test]
fn a_pool_is_destroyed_under_views_that_keep_their_memory() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "x", 5, 1 << 20);
    let (kept, scratch) = (view(&realm, oid), realm.scratch(4096, None).unwrap());
    assert_eq!(Pool::destroy(&fixture.path).unwrap_err().kind(), Kind::Busy);
    fixture.pool.close();
    Pool::destroy(&fixture.path).unwrap();
    assert!(!fixture.path.exists());
    // Another pool takes its place while the views live on.
    let options = CreateOptions { size: 64 << 20, ..CreateOptions::default() };
    let again = Pool::create(&fixture.path, &options).unwrap();
    put(&again.realm("default").unwrap(), "x", 6, 1 << 20);
    assert_eq!(contents(&kept), bytes_of(5, 8 << 20));
    drop((kept, scratch));
    assert_eq!(read(&again.realm("default").unwrap(), "x"), bytes_of(6, 8 << 20));
    fixture.assert_sound();
}

#[test]
fn a_full_pool_is_an_error_and_deleting_makes_room() {
    let fixture = Fixture::new(32 << 20);
    let realm = fixture.realm();
    let mut stored = 0;
    let error = loop {
        let path = format!("a{stored}");
        let data = bytes_of(stored, 4 << 20);
        match realm.put(realm.root(), &path, &floats(&[512 << 10]), &data, Placement::default()) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::PoolFull);
    assert!(error.message().contains("its size is 32 MiB"), "{error}");
    assert_eq!(stored, 8, "every byte of the pool's size can be used");
    for index in 0..stored {
        assert_eq!(read(&realm, &format!("a{index}")), bytes_of(index, 4 << 20));
    }
    realm.delete(realm.root(), "a3").unwrap();
    put(&realm, "again", 77, 512 << 10);
    fixture.assert_sound();
}

#[test]
fn a_batch_is_all_or_nothing() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    put(&realm, "before", 1, 100_000);
    realm.begin_batch().unwrap();
    for index in 0..1000 {
        put(&realm, &format!("many/{index:04}"), 5, 4);
    }
    put(&realm, "large", 6, 100_000);
    realm.delete(realm.root(), "before").unwrap();
    assert_eq!(realm.lookup(realm.root(), "before").unwrap(), None);
    assert_eq!(read(&realm, "large"), bytes_of(6, 800_000));
    assert_eq!(read(&realm, "many/0500"), bytes_of(5, 32));
    // Another thread sees nothing of it yet.
    let other = realm.clone();
    let seen = std::thread::spawn(move || other.lookup(other.root(), "many").unwrap());
    assert_eq!(seen.join().unwrap(), None);
    realm.commit_batch().unwrap();
    assert_eq!(fixture.assert_sound().objects, 1001);

    realm.begin_batch().unwrap();
    realm.delete(realm.root(), "many").unwrap();
    put(&realm, "large", 8, 100_000);
    realm.abort_batch().unwrap();
    assert_eq!(read(&realm, "large"), bytes_of(6, 800_000));
    let report = fixture.assert_sound();
    assert_eq!(report.objects, 1001);
}

#[test]
fn a_batch_that_conflicts_is_undone() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    realm.begin_batch().unwrap();
    put(&realm, "mine", 1, 4);
    realm.put(realm.root(), "x", &floats(&[1]), &[0; 8], Placement::default()).unwrap();
    let other = realm.clone();
    std::thread::spawn(move || put(&other, "x", 2, 4)).join().unwrap();
    assert_eq!(realm.commit_batch().unwrap_err().kind(), Kind::Busy);
    assert_eq!(realm.lookup(realm.root(), "mine").unwrap(), None);
    assert_eq!(read(&realm, "x"), bytes_of(2, 32));
    fixture.assert_sound();
}

#[test]
fn a_batch_sees_what_others_put_between_its_own_names() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let other = |name: &'static str| {
        let other = realm.clone();
        std::thread::spawn(move || put(&other, name, 2, 4)).join().unwrap();
    };
    realm.begin_batch().unwrap();
    put(&realm, "b", 1, 4);
    put(&realm, "c", 1, 4);
    other("d");
    let refused = realm.put(realm.root(), "d", &floats(&[1]), &[0; 8], Placement::default());
    assert_eq!(refused.unwrap_err().kind(), Kind::Exists);
    put(&realm, "a", 1, 4);
    assert_eq!(realm.count(realm.root()).unwrap(), 4);
    // What it makes from what it saw is still checked at the end.
    put(&realm, "e", 1, 4);
    other("e");
    assert_eq!(realm.commit_batch().unwrap_err().kind(), Kind::Busy);
    assert_eq!(realm.count(realm.root()).unwrap(), 2);

    realm.begin_batch().unwrap();
    for name in ["z", "y", "x", "w", "f", "g/h", "g/i"] {
        put(&realm, name, 3, 4);
    }
    other("v");
    realm.commit_batch().unwrap();
    assert_eq!(realm.count(realm.root()).unwrap(), 9);
    fixture.assert_sound();
}

#[test]
fn a_batch_that_wrote_into_a_group_does_not_lose_anothers_attribute_of_it() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let group = realm.create_group(realm.root(), "g", &[], &[], false).unwrap();
    let attr = |key: &str| {
        vec![(key.to_owned(), Value { dtype: DType::bytes(), shape: vec![], data: vec![1] })]
    };
    realm.begin_batch().unwrap();
    put(&realm, "g/x", 1, 4);
    realm.put(group, "y", &floats(&[1]), &[0; 8], Placement::default()).unwrap();
    realm.set_attrs(Member::Group(group), &attr("mine")).unwrap();
    let other = realm.clone();
    let theirs = attr("theirs");
    std::thread::spawn(move || other.set_attrs(Member::Group(group), &theirs).unwrap())
        .join()
        .unwrap();
    assert_eq!(realm.commit_batch().unwrap_err().kind(), Kind::Busy);
    let attrs = realm.attrs(Member::Group(group)).unwrap();
    assert_eq!(attrs.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["theirs"]);
    fixture.assert_sound();
}

#[test]
fn a_group_moves_with_all_that_is_in_it_but_not_into_itself() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    put(&realm, "a/b/x", 1, 4);
    realm.rename(root, "a/b", root, "c/d").unwrap();
    assert_eq!(read(&realm, "c/d/x"), bytes_of(1, 32));
    assert_eq!(realm.rename(root, "c", root, "c/d/e").unwrap_err().kind(), Kind::Argument);
    assert_eq!(realm.rename(root, "gone", root, "y").unwrap_err().kind(), Kind::NotFound);
    fixture.assert_sound();
}

#[test]
fn an_operation_that_fails_in_a_batch_leaves_nothing_in_it() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    realm.begin_batch().unwrap();
    realm.create_group(root, "b", &[], &[], false).unwrap();
    assert_eq!(realm.rename(root, "b", root, "b/a/a").unwrap_err().kind(), Kind::Argument);
    let b = realm.lookup(root, "b").unwrap().unwrap();
    assert_eq!(realm.count(b.id()).unwrap(), 0);
    realm.commit_batch().unwrap();
    assert_eq!(fixture.assert_sound().groups, 2);
}

#[test]
fn compare_and_swap_sees_every_change() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let oid = put(&realm, "x", 0, 4);
    let (_, generation) = realm.payload(oid).unwrap();
    assert!(realm.replace_payload(oid, generation, &bytes_of(1, 32)).unwrap());
    assert!(!realm.replace_payload(oid, generation, &bytes_of(2, 32)).unwrap());
    // Promotion puts it into an extent, in which it is written in place.
    let Payload::Extent(view) = realm.view(oid, true).unwrap() else { panic!("not promoted") };
    assert!(view.is_writable());
    assert_eq!(contents(&view), bytes_of(1, 32));
    put(&realm, "x", 3, 4);
    assert_eq!(realm.replace_payload(oid, generation, &[0; 32]).unwrap_err().kind(), Kind::Busy);
    assert_eq!(realm.flush(oid).unwrap_err().kind(), Kind::Busy);
    assert_eq!(contents(&view), bytes_of(1, 32));
    fixture.assert_sound();
}

#[test]
fn an_allocation_is_published_or_gone() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let new = floats(&[1000]);
    let allocation = realm.allocate(root, "a/x", &new, 8000, Placement::default()).unwrap();
    assert_eq!(realm.lookup(root, "a").unwrap(), None);
    allocation.publish().unwrap();
    assert!(realm.lookup(root, "a/x").unwrap().is_some());
    let dropped = realm.allocate(root, "a/y", &new, 8000, Placement::default()).unwrap();
    let late = dropped.view();
    drop(dropped);
    assert_eq!(realm.lookup(root, "a/y").unwrap(), None);
    assert_eq!(late.len(), 8000);
    drop(late);
    let scratch = realm.scratch(1 << 20, None).unwrap();
    assert_eq!(realm.space().unwrap().pids.len(), 1);
    drop(scratch);
    fixture.assert_sound();
}
