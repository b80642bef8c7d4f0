//! Files in backups, compactions, moves, published versions, salvages.

use super::common::{Fixture, attach, sound};
use super::{all, created, make};
use engram::{Clash, Kind, Member, Mode, NamesSeen, Realm, Scope};

/// A file with a hole, bytes, and a further name.
fn sparse(realm: &Realm) -> Vec<u8> {
    let file = created(realm, "sparse");
    file.write_at(10_000, &vec![3; 100_000]).unwrap();
    file.write_at(1 << 20, b"end").unwrap();
    file.punch(50_000, 20_000).unwrap();
    realm.link(file.oid(), realm.root(), "further").unwrap();
    all(&file)
}

fn bytes_at(realm: &Realm, path: &str) -> Vec<u8> {
    let member = realm.lookup(realm.root(), path).unwrap();
    let Some(Member::Object(oid)) = member else { panic!("{path} is {member:?}") };
    all(&realm.open_file(oid, false).unwrap())
}

#[test]
fn a_backup_has_files_as_they_are_and_nobodys_orphans() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let bytes = sparse(&realm);
    let orphan = created(&realm, "orphan");
    orphan.append(&vec![9; 50_000]).unwrap();
    realm.unlink(realm.root(), "orphan").unwrap();
    let open = created(&realm, "open");
    open.append(&vec![5; 70_000]).unwrap();
    let copy = fixture.dir.path().join("copy");
    engram::backup(&fixture.pool, &copy, true).unwrap();
    sound(&copy);
    let (_pool, copied) = attach(&copy, Mode::ReadWrite);
    assert!(bytes_at(&copied, "sparse") == bytes && bytes_at(&copied, "further") == bytes);
    assert_eq!(bytes_at(&copied, "open"), vec![5; 70_000]);
    let used = copied.space().unwrap().used;
    assert!(used < 300_000, "holes stay holes, orphans stay behind: {used}");
    // The copy's files change like any others.
    let Some(Member::Object(oid)) = copied.lookup(copied.root(), "open").unwrap() else { panic!() };
    let file = copied.open_file(oid, true).unwrap();
    assert_eq!(file.append(&[6; 100]), Ok(70_000));
    drop(file);
    sound(&copy);
}

#[test]
fn compaction_keeps_files() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let bytes = sparse(&realm);
    for round in 0..200 {
        let file = created(&realm, &format!("gone-{round}"));
        file.append(&vec![1; 20_000]).unwrap();
        drop(file);
        realm.unlink(realm.root(), &format!("gone-{round}")).unwrap();
    }
    let Fixture { dir: _dir, path, pool } = fixture;
    drop((realm, pool));
    engram::compact(&path).unwrap();
    sound(&path);
    // The heads name transactions of the old catalog; a session that only reads goes on, too.
    let (pool, realm) = attach(&path, Mode::Read);
    assert!(bytes_at(&realm, "sparse") == bytes);
    drop((realm, pool));
    let (_pool, realm) = attach(&path, Mode::ReadWrite);
    assert!(bytes_at(&realm, "sparse") == bytes && bytes_at(&realm, "further") == bytes);
    let Some(Member::Object(oid)) = realm.lookup(realm.root(), "sparse").unwrap() else { panic!() };
    realm.open_file(oid, true).unwrap().append(&vec![4; 200_000]).unwrap();
    sound(&path);
}

#[test]
fn files_move_and_are_published_but_not_while_they_are_open_or_have_further_names() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let all_realms = fixture.pool.namespace("default").unwrap();
    let bytes = sparse(&realm);
    let publish = |name: &str| {
        all_realms.transfer(all_realms.root(), name, &[Scope::Shared], Scope::Published)
    };
    assert_eq!(publish("sparse").unwrap_err().kind(), Kind::Argument, "it has two names");
    realm.unlink(realm.root(), "further").unwrap();
    let Some(Member::Object(oid)) = realm.lookup(realm.root(), "sparse").unwrap() else { panic!() };
    let file = realm.open_file(oid, true).unwrap();
    assert_eq!(publish("sparse").unwrap_err().kind(), Kind::Busy, "it is open");
    file.append(b"more").unwrap();
    drop(file);
    publish("sparse").unwrap();
    sound(&fixture.path);
    let published = all_realms.open_file(oid, false).unwrap();
    let mut read = vec![0; bytes.len() + 4];
    assert_eq!(published.read_at(0, &mut read).unwrap(), read.len());
    assert!(read[..bytes.len()] == bytes && &read[bytes.len()..] == b"more");
    assert_eq!(all_realms.open_file(oid, true).err().map(|e| e.kind()), Some(Kind::ReadOnly));
    drop(published);
    all_realms.transfer(all_realms.root(), "sparse", &[Scope::Published], Scope::Shared).unwrap();
    let file = all_realms.open_file(oid, true).unwrap();
    assert_eq!(file.append(b"!"), Ok(read.len() as u64));
    drop(file);
    sound(&fixture.path);
}

#[test]
fn moves_and_deletions_count_a_folders_groups() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let all_realms = fixture.pool.namespace("default").unwrap();
    let root = realm.root();
    let folder = realm.make_group(root, "folder", b"", None).unwrap();
    let inner = realm.make_group(folder, "inner", b"", None).unwrap();
    realm.make_group(inner, "deep", b"", None).unwrap();
    created(&realm, "folder/inner/file").append(&vec![1; 20_000]).unwrap();
    let groups = |gid| all_realms.group_times(gid).unwrap().map(|times| times.groups);
    assert_eq!((groups(root), groups(folder), groups(inner)), (Some(1), Some(1), Some(1)));
    let shared = [Scope::Shared];
    all_realms.transfer(root, "folder/inner", &shared, Scope::Private).unwrap();
    sound(&fixture.path);
    assert_eq!(groups(folder), Some(0));
    all_realms.transfer(root, "folder/inner", &[Scope::Private], Scope::Shared).unwrap();
    sound(&fixture.path);
    assert_eq!(groups(folder), Some(1));
    all_realms.transfer(root, "folder", &shared, Scope::Private).unwrap();
    sound(&fixture.path);
    all_realms.delete(root, "folder").unwrap();
    sound(&fixture.path);
    assert_eq!(groups(root), Some(0));
}

#[test]
fn names_change_in_two_realms_as_they_do_in_one() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let all_realms = fixture.pool.namespace("default").unwrap();
    let root = realm.root();
    let folder = realm.make_group(root, "folder", b"", None).unwrap();
    let (one, two) = (make(&realm, "one"), make(&realm, "folder/two"));
    all_realms.transfer(root, "folder/two", &[Scope::Shared], Scope::Private).unwrap();
    let rename = |old, new, clash| {
        all_realms.rename_over(root, old, root, new, clash).err().map(|error| error.kind())
    };
    assert_eq!(rename("one", "nothing", Clash::Exchange), Some(Kind::NotFound));
    assert_eq!(rename("one", "folder", Clash::Refuse), Some(Kind::Exists));
    assert_eq!(rename("one", "other", Clash::Replace), None);
    assert_eq!(all_realms.lookup(root, "other"), Ok(Some(Member::Object(one))));
    let seen = |member, there| NamesSeen { member: Member::Object(member), there };
    let rename_if = |old, new, was| {
        let renamed = all_realms.rename_over_if(root, old, root, new, Clash::Replace, was);
        renamed.err().map(|error| error.kind())
    };
    let another = Some(Member::Object(two));
    assert_eq!(rename_if("other", "new", seen(two, None)), Some(Kind::NotFound));
    assert_eq!(rename_if("other", "new", seen(one, another)), Some(Kind::NotFound));
    assert_eq!(rename_if("other", "new", seen(one, None)), None);
    let unlink_if = |was| {
        let is_it = |oid, _: u32, _: &[u8]| oid == was;
        all_realms.unlink_if(folder, "two", &is_it).map_err(|error| error.kind())
    };
    assert_eq!(unlink_if(one), Err(Kind::NotFound));
    let removed = all_realms.remove_empty_if(root, "folder", root).map_err(|error| error.kind());
    assert_eq!(removed, Err(Kind::NotFound), "it is another group");
    assert_eq!(all_realms.same_groups(), Ok(None), "there are two realms");
    let remove = || all_realms.remove_empty(root, "folder").err().map(|error| error.kind());
    assert_eq!(remove(), Some(Kind::Exists), "it has a private member");
    unlink_if(two).unwrap();
    assert_eq!(all_realms.object(two).map(drop).map_err(|e| e.kind()), Err(Kind::NotFound));
    assert_eq!(remove(), None);
    assert_eq!(all_realms.lookup(root, "folder"), Ok(None));
    let private = all_realms.realm_of(Scope::Private, false).unwrap().unwrap();
    assert_eq!(private.lookup(root, "folder"), Ok(None), "nothing is left of it there");
    sound(&fixture.path);
}
