//! Names of files: further ones, others' names, none at all.

use super::common::{Fixture, alone, attach, fork, sound};
use super::{all, created, make, make_open, make_with};
use engram::{
    Clash, Kind, Member, Mode, NamedFile, NamesSeen, NewObject, Placement, Realm, Scope, Seek,
};

#[test]
fn a_file_has_many_names_and_goes_with_the_last() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let oid = make_with(&realm, "one", b"bytes");
    let group = realm.make_group(root, "group", b"", None).unwrap();
    realm.link(oid, root, "two").unwrap();
    realm.link(oid, group, "three").unwrap();
    assert_eq!(realm.count_names(oid), Ok(3));
    assert_eq!(realm.link(oid, root, "two").unwrap_err().kind(), Kind::Exists);
    for name in ["one", "two", "group/three"] {
        assert_eq!(realm.lookup(root, name), Ok(Some(Member::Object(oid))), "{name}");
    }
    sound(&fixture.path);
    // The record's own name goes: another takes its place.
    realm.unlink(root, "one").unwrap();
    assert_eq!((realm.count_names(oid), realm.lookup(root, "one")), (Ok(2), Ok(None)));
    let path = realm.path_of(Member::Object(oid)).unwrap();
    assert!(["two", "group/three"].contains(&path.as_str()), "{path}");
    sound(&fixture.path);
    realm.rename(root, "two", group, "four").unwrap();
    sound(&fixture.path);
    // A group that goes takes the names in it.
    realm.link(oid, root, "last").unwrap();
    realm.delete(root, "group").unwrap();
    assert_eq!(
        (realm.count_names(oid), realm.path_of(Member::Object(oid))),
        (Ok(1), Ok("last".into()))
    );
    sound(&fixture.path);
    realm.unlink(root, "last").unwrap();
    assert_eq!(realm.object(oid).unwrap_err().kind(), Kind::NotFound);
    sound(&fixture.path);
}

#[test]
fn a_file_is_found_judged_and_opened_by_its_name() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let oid = make_with(&realm, "file", b"bytes");
    realm.make_group(root, "group", b"", None).unwrap();
    let named = |name: &str, write, says: bool| {
        let judge = |asked, _: u32, kept: &[u8]| {
            assert!(asked == oid && !kept.is_empty());
            says
        };
        realm.open_named(root, name, write, &judge)
    };
    let Ok(NamedFile::File(file)) = named("file", true, true) else { panic!("it is a file") };
    assert_eq!((file.oid(), all(&file)), (oid, b"bytes".to_vec()));
    assert!(matches!(named("file", false, false), Ok(NamedFile::Unsure)));
    assert!(matches!(named("group", false, true), Ok(NamedFile::Unsure)));
    assert!(matches!(named("none", false, true), Ok(NamedFile::Absent)));
    // Opened twice, it is the same: what one writes the other reads.
    let Ok(NamedFile::File(other)) = named("file", false, true) else { panic!("it is a file") };
    file.append(b", more").unwrap();
    assert_eq!(all(&other), b"bytes, more");
    // It stays as long as it is open.
    realm.unlink(root, "file").unwrap();
    assert!(matches!(named("file", false, true), Ok(NamedFile::Absent)));
    assert_eq!(all(&other), b"bytes, more");
    sound(&fixture.path);
}

#[test]
fn a_file_is_made_and_open_or_neither() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    make_with(&realm, "there", b"bytes");
    let refused = |path: &str| make_open(&realm, path).err().map(|error| error.kind());
    assert_eq!(refused("there"), Some(Kind::Exists));
    assert_eq!(refused("there/below"), Some(Kind::Exists));
    assert_eq!(refused(".."), Some(Kind::InvalidName));
    let batch = realm.batch().unwrap();
    assert_eq!(refused("new"), Some(Kind::Busy), "a batch cannot undo what is written");
    batch.abort().unwrap();
    assert_eq!(realm.holders().unwrap().leases[0].pins, 0, "what was not made is not listed");
    let file = make_open(&realm, "new").unwrap();
    file.append(b"a file").unwrap();
    assert_eq!(realm.lookup(root, "new"), Ok(Some(Member::Object(file.oid()))));
    realm.unlink(root, "new").unwrap();
    assert_eq!((file.is_orphan(), all(&file)), (Ok(true), b"a file".to_vec()));
    sound(&fixture.path);
}

#[test]
fn what_is_found_says_how_many_names_it_has() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let names = |name: &str| realm.find_counted(root, name).unwrap().map(|(_, names)| names);
    let oid = make_with(&realm, "one", b"bytes");
    assert_eq!((names("one"), names("two")), (Some(1), None));
    realm.link(oid, root, "two").unwrap();
    assert_eq!((names("one"), names("two")), (Some(2), Some(2)));
    make_with(&realm, "other", b"bytes");
    assert_eq!(names("other"), Some(1));
    realm.unlink(root, "one").unwrap();
    assert_eq!((names("one"), names("two")), (None, Some(1)));
}

#[test]
fn groups_stay_the_same_until_one_is_changed() {
    alone("groups_stay_the_same_until_one_is_changed", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let root = realm.root();
        let group = realm.make_group(root, "group", b"", None).unwrap();
        let at = || realm.last_commit().unwrap();
        let same = |commit| realm.same_groups().unwrap().contains(&commit);
        let before = at();
        assert_eq!(realm.same_groups().map(|same| *same.end()), Ok(before), "it is the newest one");
        make(&realm, "one");
        drop(created(&realm, "two"));
        realm.unlink(root, "one").unwrap();
        assert!(same(before) && same(at()), "objects came and went");
        let changes: [&dyn Fn(); 4] = [
            &|| assert!(realm.make_group(root, "other", b"", None).is_ok()),
            &|| realm.set_properties(Member::Group(group), None, &|_, _| Ok(vec![7])).unwrap(),
            &|| realm.rename_over(root, "group", root, "renamed", Clash::Refuse).unwrap(),
            &|| realm.remove_empty(root, "renamed").unwrap(),
        ];
        for change in changes {
            let before = at();
            change();
            assert!(!same(before) && same(at()));
        }
        // Another process may have changed any.
        let before = at();
        let peer = fork(|_| drop(created(&attach(&fixture.path, Mode::ReadWrite).1, "three")));
        peer.finish();
        assert!(!same(before) && same(at()));
        let after = at();
        make(&realm, "four");
        assert!(!same(before) && same(after));
    });
}

#[test]
fn a_name_is_changed_only_if_it_leads_to_what_was_seen() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let (one, two) = (make_with(&realm, "one", b"1"), make_with(&realm, "two", b"2"));
    let (group, other) = (
        realm.make_group(root, "group", b"", None).unwrap(),
        realm.make_group(root, "other", b"", None).unwrap(),
    );
    let absent = |done: engram::Result<()>| done.unwrap_err().kind();
    assert_eq!(absent(realm.unlink_if(root, "one", &|oid, _, _| oid == two)), Kind::NotFound);
    assert_eq!(absent(realm.unlink_if(root, "none", &|_, _, _| true)), Kind::NotFound);
    assert_eq!(absent(realm.remove_empty_if(root, "group", other)), Kind::NotFound);
    let rename = |new: &str, member, there| {
        let was = NamesSeen { member: Member::Object(member), there };
        realm.rename_over_if(root, "one", root, new, Clash::Replace, was)
    };
    assert_eq!(absent(rename("two", two, Some(Member::Object(two)))), Kind::NotFound);
    assert_eq!(absent(rename("two", one, None)), Kind::NotFound, "something has come");
    assert_eq!(absent(rename("new", one, Some(Member::Object(two)))), Kind::NotFound);
    for (name, member) in [("one", Member::Object(one)), ("two", Member::Object(two))] {
        assert_eq!(realm.lookup(root, name), Ok(Some(member)));
    }
    rename("two", one, Some(Member::Object(two))).unwrap();
    assert_eq!(realm.lookup(root, "two"), Ok(Some(Member::Object(one))));
    realm.unlink_if(root, "two", &|oid, _, kept| oid == one && !kept.is_empty()).unwrap();
    realm.remove_empty_if(root, "group", group).unwrap();
    assert_eq!(realm.lookup(root, "two"), Ok(None));
    assert_eq!(realm.lookup(root, "group"), Ok(None));
    sound(&fixture.path);
}

#[test]
fn a_name_is_replaced_exchanged_or_kept() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let (one, two) = (make_with(&realm, "one", b"1"), make_with(&realm, "two", b"2"));
    let refused = realm.rename_over(root, "one", root, "two", Clash::Refuse).unwrap_err();
    assert_eq!(refused.kind(), Kind::Exists);
    realm.rename_over(root, "one", root, "two", Clash::Exchange).unwrap();
    assert_eq!(realm.lookup(root, "one"), Ok(Some(Member::Object(two))));
    assert_eq!(realm.lookup(root, "two"), Ok(Some(Member::Object(one))));
    realm.rename_over(root, "one", root, "two", Clash::Replace).unwrap();
    assert_eq!(realm.lookup(root, "two"), Ok(Some(Member::Object(two))));
    assert_eq!(realm.object(one).unwrap_err().kind(), Kind::NotFound);
    sound(&fixture.path);
    let group = realm.make_group(root, "group", b"", None).unwrap();
    let inner = realm.make_group(group, "inner", b"", None).unwrap();
    let full = realm.make_group(root, "full", b"", None).unwrap();
    realm.rename(root, "two", full, "member").unwrap();
    for (old, new) in [("group", "full"), ("full/member", "group"), ("group", "full/member")] {
        let refused = realm.rename_over(root, old, root, new, Clash::Replace).unwrap_err();
        assert_eq!(refused.kind(), Kind::Exists, "{old} to {new}");
    }
    let refused = realm.rename_over(root, "group", inner, "within", Clash::Replace).unwrap_err();
    assert_eq!(refused.kind(), Kind::Argument, "into itself");
    let refused = realm.rename_over(root, "full", group, "inner", Clash::Exchange);
    assert_eq!(refused, Ok(()));
    assert_eq!(realm.lookup(root, "full"), Ok(Some(Member::Group(inner))));
    assert_eq!(realm.lookup(root, "group/inner/member"), Ok(Some(Member::Object(two))));
    let refused = realm.rename_over(root, "group", group, "inner", Clash::Exchange).unwrap_err();
    assert_eq!(refused.kind(), Kind::Argument, "one is in the other");
    // An empty group gives its place up.
    realm.rename_over(group, "inner", root, "full", Clash::Replace).unwrap();
    assert_eq!(realm.lookup(root, "full/member"), Ok(Some(Member::Object(two))));
    sound(&fixture.path);
}

#[test]
fn a_group_says_when_its_names_changed_and_how_many_groups_are_in_it() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    assert_eq!(realm.group_times(root), Ok(None), "no file system has been here");
    realm.create_group(root, "array-group", &[], &[], false).unwrap();
    assert_eq!(realm.group_times(root), Ok(None));
    make(&realm, "file");
    let times = realm.group_times(root).unwrap().unwrap();
    assert_eq!(times.groups, 1, "those that were there are counted");
    let group = realm.make_group(root, "group", b"", None).unwrap();
    let later = realm.group_times(root).unwrap().unwrap();
    assert!(later.groups == 2 && later.written >= times.written);
    realm.set_group_times(root, 77).unwrap();
    assert_eq!(realm.group_times(root).unwrap().unwrap().written, 77);
    // Whoever changes a name in it says so, arrays too.
    super::common::put(&realm, "group/array", &[1; 64]);
    realm.rename(root, "group/array", root, "array").unwrap();
    assert!(realm.group_times(root).unwrap().unwrap().written > 77);
    realm.rename(root, "array-group", group, "moved").unwrap();
    assert_eq!(realm.group_times(root).unwrap().unwrap().groups, 1);
    assert_eq!(realm.group_times(group).unwrap().unwrap().groups, 1);
    assert_eq!(realm.remove_empty(root, "group").unwrap_err().kind(), Kind::Exists);
    realm.remove_empty(group, "moved").unwrap();
    realm.remove_empty(root, "group").unwrap();
    assert_eq!(realm.group_times(root).unwrap().unwrap().groups, 0);
    let batch = realm.batch().unwrap();
    realm.create_group(root, "by/batch", &[], &[], false).unwrap();
    super::common::put(&realm, "by/array", &[1; 64]);
    batch.commit().unwrap();
    assert_eq!(realm.group_times(root).unwrap().unwrap().groups, 1);
    sound(&fixture.path);
}

#[test]
fn an_open_file_lives_on_without_a_name_and_its_space_comes_back() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let before = realm.space().unwrap();
    for way in 0..3 {
        let file = created(&realm, "file");
        let other = (way == 2).then(|| created(&realm, "other"));
        file.append(&vec![1; 100_000]).unwrap();
        match way {
            0 => realm.unlink(root, "file").unwrap(),
            1 => realm.delete(root, "file").unwrap(),
            _ => realm.rename_over(root, "other", root, "file", Clash::Replace).unwrap(),
        }
        assert_eq!(realm.object(file.oid()).unwrap_err().kind(), Kind::NotFound);
        file.append(&vec![2; 100_000]).unwrap();
        file.write_at(300_000, b"end").unwrap();
        file.punch(0, 50_000).unwrap();
        assert_eq!((file.size(), all(&file)[150_000]), (Ok(300_003), 2));
        sound(&fixture.path);
        let report = engram::verify(&fixture.path).unwrap();
        assert!(report.used > 150_000, "{report:?}");
        // By its id it can be opened as long as somebody has it open.
        let again = realm.open_file(file.oid(), true).unwrap();
        drop(file);
        assert_eq!(again.size(), Ok(300_003));
        let oid = again.oid();
        drop(again);
        assert_eq!(realm.open_file(oid, false).err().map(|e| e.kind()), Some(Kind::NotFound));
        drop(other);
        if way == 2 {
            realm.unlink(root, "file").unwrap();
        }
        assert_eq!(realm.space().unwrap().used, before.used, "way {way}");
    }
    // A small one, too.
    let small = created(&realm, "small");
    small.append(b"bytes").unwrap();
    realm.unlink(root, "small").unwrap();
    small.append(b" more").unwrap();
    assert_eq!(all(&small), b"bytes more");
    drop(small);
    sound(&fixture.path);
    drop((realm, fixture.pool));
    let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
    assert_eq!(realm.count(realm.root()), Ok(0));
}

#[test]
fn an_open_file_without_a_name_is_opened_again_whichever_realms_there_are() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let all_realms = fixture.pool.namespace("default").unwrap();
    make_with(&realm, "own", b"moves");
    all_realms.transfer(realm.root(), "own", &[Scope::Shared], Scope::Private).unwrap();
    let oid = make_with(&realm, "file", b"bytes");
    let file = all_realms.open_file(oid, true).unwrap();
    realm.unlink(realm.root(), "file").unwrap();
    for write in [true, false] {
        let again = all_realms.open_file(oid, write).unwrap();
        assert_eq!(all(&again), b"bytes");
    }
    drop(file);
    let gone = all_realms.open_file(oid, false).err().map(|error| error.kind());
    assert_eq!(gone, Some(Kind::NotFound));
    sound(&fixture.path);
}

#[test]
fn properties_are_kept_and_changed() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let oid = make(&realm, "file");
    assert!(!realm.object(oid).unwrap().properties.is_empty());
    let member = Member::Object(oid);
    realm.set_properties(member, Some(12), &|_, before| Ok([before, b"!"].concat())).unwrap();
    let info = realm.object(oid).unwrap();
    assert!(info.owner == 12 && info.properties.ends_with(b"so on!"));
    let group = realm.make_group(realm.root(), "group", b"as it was", None).unwrap();
    realm.set_properties(Member::Group(group), None, &|_, _| Ok(b"other".to_vec())).unwrap();
    assert_eq!(realm.group(group).unwrap().properties, b"other");
    sound(&fixture.path);
}

#[test]
fn what_is_open_goes_on_however_it_was_made_and_whichever_way_its_name_goes() {
    type Remove = fn(&Realm);
    let ways: [(&str, Remove); 4] = [
        ("unlink", |realm| realm.unlink(realm.root(), "f").unwrap()),
        ("delete", |realm| realm.delete(realm.root(), "f").unwrap()),
        ("batch", |realm| {
            let batch = realm.batch().unwrap();
            realm.delete(realm.root(), "f").unwrap();
            batch.commit().unwrap();
        }),
        ("replace", |realm| {
            let placement = Placement { overwrite: true, ..Placement::default() };
            realm.put(realm.root(), "f", &NewObject::blob(), b"new", placement).unwrap();
        }),
    ];
    for (way, remove) in ways {
        // As a file system makes it, and as a program puts it; small, in an extent, in segments.
        for (plain, len, more) in [(true, 3, 0), (true, 9_000, 0), (false, 3, 0), (false, 3, 9_000)]
        {
            let fixture = Fixture::new(64 << 20);
            let realm = fixture.realm();
            let empty = realm.space().unwrap().used;
            let bytes = vec![7; len];
            let oid = if plain {
                let placement = Placement::default();
                realm.put(realm.root(), "f", &NewObject::blob(), &bytes, placement).unwrap()
            } else {
                make_with(&realm, "f", &bytes)
            };
            let file = realm.open_file(oid, true).unwrap();
            file.append(&vec![8; more]).unwrap();
            remove(&realm);
            assert_eq!(all(&file), [bytes, vec![8; more]].concat(), "{way} {plain} {len} {more}");
            file.append(b"after").unwrap();
            assert_eq!(file.size().unwrap(), (len + more + 5) as u64);
            assert!(file.is_orphan().unwrap());
            sound(&fixture.path);
            drop(file);
            sound(&fixture.path);
            assert_eq!(realm.space().unwrap().used, empty, "{way} {plain} {len} {more}");
        }
    }
}

#[test]
fn a_file_with_segments_that_nobody_has_open_goes_with_its_batch() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let empty = realm.space().unwrap().used;
    created(&realm, "f").append(&vec![8; 90_000]).unwrap();
    let batch = realm.batch().unwrap();
    realm.delete(realm.root(), "f").unwrap();
    batch.commit().unwrap();
    sound(&fixture.path);
    assert_eq!(realm.space().unwrap().used, empty);
}

#[test]
fn names_that_cannot_be_are_refused_by_each_operation() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let oid = make(&realm, "f");
    for name in ["", ".", "..", "a/b", "nul\0", &"x".repeat(300)] {
        let refused = [
            realm.link(oid, realm.root(), name).unwrap_err(),
            realm.make_group(realm.root(), name, b"", None).unwrap_err(),
            realm.unlink(realm.root(), name).unwrap_err(),
            realm.remove_empty(realm.root(), name).unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == Kind::InvalidName), "{refused:?}");
    }
    sound(&fixture.path);
}

#[test]
fn a_file_that_was_just_opened_knows_its_segments() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let file = created(&realm, "f");
    file.write_at(1 << 20, b"far").unwrap();
    let oid = file.oid();
    drop(file);
    let file = realm.open_file(oid, true).unwrap();
    assert_eq!(file.segments().unwrap().len(), 1);
    assert_eq!(file.seek(Seek::Data, 0), Ok(Some(1 << 20)));
    drop(file);
    assert_eq!(realm.open_file(oid, true).unwrap().set_times(Some(5), None), Ok(true));
}
