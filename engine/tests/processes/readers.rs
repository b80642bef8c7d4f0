//! Readers wait for no other process (P6), and a failed sync ends writing, not reading (P7).

use crate::common::{
    Fixture, Line, alone, attach, catalog_of, check, churn, filled, fork, put, read, report_of,
    sound, view,
};
use engram::catalog::{Headroom, Table};
use engram::{Found, Kind, Member, Mode, Payload, Realm, Value};

/// Looks, reads, views and lists whatever a reader can.
fn read_everything(realm: &Realm, version: u64) {
    let root = realm.root();
    assert_eq!(read(realm, "g/small"), filled(1, version, 8));
    assert_eq!(check(&view(realm, "g/large")), (2, version));
    let group = realm.lookup(root, "g").unwrap().unwrap();
    assert_eq!(realm.count(group.id()).unwrap(), 2);
    let large = realm.lookup(root, "g/large").unwrap().unwrap();
    assert_eq!(realm.path_of(large).unwrap(), "g/large");
    assert_eq!(realm.object(large.id()).unwrap().nbytes, 80_000);
    assert_eq!(realm.group(group.id()).unwrap().name, "g");
    assert_eq!(realm.attr(large, "units").unwrap(), Some(Value::text("K")));
    assert_eq!(realm.attrs(large).unwrap().len(), 1);
    let (payload, _) = realm.payload(large.id()).unwrap();
    assert!(matches!(payload, Payload::Extent(view) if view.len() == 80_000));
    assert_eq!(realm.space().unwrap().used, 81_920);
}

fn write_everything(realm: &Realm, version: u64) {
    put(realm, "g/small", &filled(1, version, 8));
    let oid = put(realm, "g/large", &filled(2, version, 10_000));
    realm.set_attrs(Member::Object(oid), &[("units".into(), Value::text("K"))]).unwrap();
}

#[test]
fn readers_go_on_while_a_writer_stands_still_within_its_transaction() {
    alone("readers_go_on_while_a_writer_stands_still_within_its_transaction", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        write_everything(&realm, 1);
        let reader = fork(|line| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::Read);
            read_everything(&realm, 1);
            line.say(1);
            line.expect(2);
            // The writer lock is held by a process that stands still.
            read_everything(&realm, 1);
            let (_again, realm) = attach(&fixture.path, Mode::Read);
            read_everything(&realm, 1);
            line.say(3);
        });
        reader.line.expect(1);
        // A process has died with a lease, which the next writer will take back.
        let dead = fork(|line| {
            let space = realm.scratch(1 << 20, None).unwrap();
            line.say(1);
            line.hear_if_any();
            drop(space);
        });
        dead.line.expect(1);
        dead.kill();
        drop(realm);
        fixture.pool.close();
        let writer = fork(|line| {
            let catalog = catalog_of(&fixture);
            let mut txn = catalog.write(Headroom::Normal).unwrap();
            txn.put(Table::Meta, b"a row of the transaction", b"").unwrap();
            line.say(1);
            line.expect(2);
            drop(txn);
        });
        writer.line.expect(1);
        writer.stop();
        // One more opens it only now.
        let late = fork(|line| {
            let (pool, realm) = attach(&fixture.path, Mode::Read);
            read_everything(&realm, 1);
            pool.close();
            line.say(3);
        });
        reader.line.say(2);
        reader.line.expect(3);
        late.line.expect(3);
        let waiting = fork(|line| {
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            line.say(1);
            write_everything(&realm, 2);
            line.say(2);
        });
        writer.signal(libc::SIGCONT);
        writer.line.say(2);
        writer.finish();
        waiting.line.expect(1);
        waiting.line.expect(2);
        for peer in [reader, late, waiting] {
            peer.finish();
        }
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        read_everything(&realm, 2);
        assert_eq!(realm.space().unwrap().pids, [std::process::id()]);
        sound(&fixture.path);
    });
}

/// Every kind of writing; each must be refused by name.
fn refuse_everything(realm: &Realm) {
    let root = realm.root();
    let large = realm.lookup(root, "g/large").unwrap().unwrap();
    let new = crate::common::floats(&[10_000]);
    let data = filled(3, 3, 10_000);
    let small = crate::common::floats(&[8]);
    let refused = [
        realm.put(root, "new", &new, &data, crate::common::KEEP).map(drop),
        realm.put(root, "new", &small, &data[..64], crate::common::KEEP).map(drop),
        realm.allocate(root, "new", &new, 80_000, crate::common::KEEP).map(drop),
        realm.scratch(80_000, None).map(drop),
        realm.delete(root, "g"),
        realm.rename(root, "g", root, "h"),
        realm.set_attrs(large, &[("units".into(), Value::text("m"))]),
        realm.delete_attr(large, "units"),
        realm.create_group(root, "new", &[], &[], false).map(drop),
        realm.resize(32 << 20),
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("a refusal");
        assert_eq!(error.kind(), Kind::Corrupt, "{place}: {error}");
        assert!(error.message().contains("poisoned"), "{place}: {error}");
    }
    realm.begin_batch().unwrap();
    crate::common::lookup(realm, "g");
    // Within a batch the refusal may come at its end.
    let put = realm.put(root, "new", &small, &data[..64], crate::common::KEEP).map(drop);
    let refused = put.and(realm.commit_batch()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Corrupt);
    let _ = realm.abort_batch();
}

/// After a sync has failed in one process no process writes any more, and all go on reading,
/// until verify has found the realm sound.
#[test]
fn a_poisoned_realm_is_read_and_not_written_until_it_is_verified() {
    alone("a_poisoned_realm_is_read_and_not_written_until_it_is_verified", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        write_everything(&realm, 1);
        let peer = fork(|line| {
            line.expect(1);
            refuse_everything(&realm);
            read_everything(&realm, 1);
            line.say(2);
            // Killed here: a dead lease must not keep anybody from reading, or from verifying.
            line.hear();
        });
        let poisoner = fork(|_| {
            fixture.pool.close();
            catalog_of(&fixture).poison();
        });
        poisoner.finish();
        refuse_everything(&realm);
        read_everything(&realm, 1);
        // While another process has it open, verify finds it sound and leaves it poisoned.
        assert_eq!(report_of(&fixture.path).problems, Vec::<String>::new());
        refuse_everything(&realm);
        peer.line.say(1);
        peer.line.expect(2);
        peer.kill();
        drop(realm);
        fixture.pool.close();
        for mode in [Mode::Read, Mode::ReadWrite] {
            let (pool, realm) = attach(&fixture.path, mode);
            read_everything(&realm, 1);
            pool.close();
        }
        assert_eq!(engram::verify(&fixture.path).unwrap().problems, Vec::<String>::new());
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        write_everything(&realm, 2);
        read_everything(&realm, 2);
        churn(&realm, 1);
        sound(&fixture.path);
    });
}

/// What a writer that was killed within its transaction had not committed is not there, and the
/// next writer goes on at once.
#[test]
fn a_writer_that_dies_within_its_transaction_holds_nobody_up() {
    alone("a_writer_that_dies_within_its_transaction_holds_nobody_up", || {
        let fixture = Fixture::new(16 << 20);
        write_everything(&fixture.realm(), 1);
        fixture.pool.close();
        for round in 2..12 {
            let writer = fork(|line: &Line| {
                let catalog = catalog_of(&fixture);
                let mut txn = catalog.write(Headroom::Normal).unwrap();
                for row in 0_u64..round * 50 {
                    txn.put(Table::Names, &row.to_be_bytes(), b"nonsense").unwrap();
                }
                line.say(1);
                line.hear();
            });
            writer.line.expect(1);
            writer.kill();
            let (pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            read_everything(&realm, round - 1);
            write_everything(&realm, round);
            drop(realm);
            pool.close();
            sound(&fixture.path);
        }
    });
}

#[test]
fn a_name_that_is_replaced_again_and_again_is_always_there() {
    const LOOKS: u64 = 20_000;
    alone("a_name_that_is_replaced_again_and_again_is_always_there", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "g/a", &filled(1, 0, 1));
        put(&realm, "g/b", &filled(1, 0, 1));
        let group = realm.lookup(realm.root(), "g").unwrap().unwrap().id();
        let writer = fork(|line| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            line.say(1);
            for version in 1.. {
                put(&realm, "g/a", &filled(1, version, 1));
                if realm.lookup(realm.root(), "enough").unwrap().is_some() {
                    break;
                }
            }
            line.say(2);
        });
        writer.line.expect(1);
        let mut seen = std::collections::HashSet::new();
        let mut looks = 0;
        // As many again and again, until the writer has had its turns: else this shows nothing.
        while looks < LOOKS || (seen.len() <= 100 && looks < 1000 * LOOKS) {
            looks += 1;
            match realm.find(realm.root(), "g/a").expect("a name that is never missing") {
                Some(Found::Object(info)) => _ = seen.insert(info.oid),
                other => panic!("{other:?}"),
            }
            let listed = realm.list_found(group, None, 10).expect("a listing");
            assert_eq!(listed.len(), 2);
        }
        put(&realm, "enough", &filled(1, 0, 1));
        writer.line.expect(2);
        assert!(seen.len() > 100, "{looks} looks saw {} objects", seen.len());
    });
}
