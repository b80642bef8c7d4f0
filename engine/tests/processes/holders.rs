//! Who holds what: leases, views, reservations, readers, told while their processes live and die.

use crate::common::{Fixture, alone, attach, bytes_of, filled, fork, put, read, sound, view};
use engram::{Holders, Kind, LeaseInfo, Mode, Realm};

fn of(realm: &Realm, pid: i32) -> (Holders, LeaseInfo) {
    let holders = realm.holders().unwrap();
    let lease = holders.leases.iter().find(|lease| lease.pid == pid as u32);
    let lease = lease.unwrap_or_else(|| panic!("no lease of {pid} in {holders:?}")).clone();
    (holders, lease)
}

#[test]
fn each_holder_is_told_with_what_it_holds() {
    alone("each_holder_is_told_with_what_it_holds", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, 100_000));
        put(&realm, "y", &filled(1, 1, 100_000));
        let viewer = fork(|line| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::Read);
            let kept = view(&realm, "x");
            line.say(1);
            line.hear();
            drop(kept);
            line.say(2);
            line.hear();
        });
        viewer.line.expect(1);
        let reserver = fork(|line| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            let kept = realm.scratch(1 << 20, None).unwrap();
            line.say(1);
            line.hear();
            std::mem::forget(kept);
        });
        reserver.line.expect(1);
        let (_, lease) = of(&realm, viewer.pid);
        assert_eq!((lease.pins, lease.held, lease.alive, lease.own), (1, 0, true, false));
        realm.delete(realm.root(), "x").unwrap();
        realm.delete(realm.root(), "y").unwrap();
        let (holders, lease) = of(&realm, viewer.pid);
        assert_eq!(lease.held, 802_816);
        assert_eq!((holders.held, holders.reclaimable), (802_816, 802_816));
        let (_, other) = of(&realm, reserver.pid);
        assert_eq!((other.reserved, other.held), (1 << 20, 0));
        let (_, own) = of(&realm, std::process::id() as i32);
        assert!(own.own && own.alive && own.behind.is_none());
        assert!(own.since <= lease.since && own.since > 0);
        // The error names them both.
        let full = realm.scratch(15 << 20, None).err().unwrap();
        assert_eq!(full.kind(), Kind::PoolFull);
        for pid in [viewer.pid, reserver.pid] {
            assert!(full.message().contains(&format!("(pid {pid})")), "{full}");
        }
        // The dead are told of as such, until somebody takes back what they had.
        let pid = reserver.pid;
        reserver.kill();
        let (_, dead) = of(&realm, pid);
        assert_eq!((dead.alive, dead.reserved), (false, 1 << 20));
        realm.space().unwrap();
        assert!(realm.holders().unwrap().leases.iter().all(|lease| lease.pid != pid as u32));
        viewer.line.say(0);
        viewer.line.expect(2);
        assert_eq!(of(&realm, viewer.pid).0.held, 0);
        viewer.line.say(0);
        viewer.finish();
        drop(realm.scratch(16 << 20, None).unwrap());
        sound(&fixture.path);
    });
}

/// A reader that stands still in a snapshot keeps the catalog's pages: it is named, and how far
/// behind it is.
#[test]
fn the_oldest_reader_is_named() {
    alone("the_oldest_reader_is_named", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        for name in 0..50 {
            put(&realm, &format!("{name}"), &bytes_of(1, 1000));
        }
        assert_eq!(realm.holders().unwrap().oldest(), None);
        let reader = fork(|line| {
            fixture.pool.close();
            let (pool, _realm) = attach(&fixture.path, Mode::Read);
            pool.close();
            let catalog = crate::common::catalog_of(&fixture);
            let txn = catalog.read().unwrap();
            line.say(txn.id());
            line.hear();
            drop(txn);
        });
        let at = reader.line.hear();
        for name in 0..50 {
            put(&realm, &format!("{name}"), &bytes_of(2, 1000));
        }
        let holders = realm.holders().unwrap();
        assert_eq!(holders.oldest(), Some((reader.pid as u32, holders.commits - at)));
        assert!(holders.commits - at >= 50);
        assert!(holders.catalog.held > 0, "{holders:?}");
        let of = |h: &Holders| h.catalog.used + h.catalog.free + h.catalog.held;
        assert!(of(&holders) <= holders.catalog.allocated);
        // Of one that was killed nobody is told any more.
        let pid = reader.pid as u32;
        reader.kill();
        let after = realm.holders().unwrap();
        assert_eq!(after.oldest(), None);
        assert!(after.readers.iter().all(|reader| reader.pid != pid), "{after:?}");
        put(&realm, "more", &bytes_of(2, 1000));
        let after = realm.holders().unwrap();
        assert_eq!((after.oldest(), after.catalog.held), (None, 0));
        assert_eq!(read(&realm, "more"), bytes_of(2, 1000));
    });
}
