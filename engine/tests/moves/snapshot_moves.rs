//! Snapshots of several realms: of one moment, while members move between them; and what ends them.
#![cfg(feature = "faults")]

use std::collections::BTreeMap;

use crate::common::moves::{OBJECTS, names, play, seen_once, toys};
use crate::common::{Fixture, Random, alone, attach, check, filled, fork, put, seed, sound};
use engram::{Kind, Mode, Namespace, Payload, Scope};

/// Each snapshot has every object once, and goes on having it so, whatever moves meanwhile.
#[test]
fn a_snapshot_has_every_object_once_whatever_moves_meanwhile() {
    alone("a_snapshot_has_every_object_once_whatever_moves_meanwhile", || {
        let fixture = Fixture::new(64 << 20);
        let path = &fixture.path;
        let oids = toys(&fixture.pool);
        let mut random = Random(seed());
        let movers: Vec<_> = (0..2)
            .map(|_| {
                let seed = random.next();
                let mover = fork(|line| {
                    fixture.pool.close();
                    play(path, line, Random(seed));
                });
                mover.line.expect(0);
                mover
            })
            .collect();
        for mode in [Mode::ReadWrite, Mode::Read] {
            let (pool, _) = attach(path, mode);
            let namespace = names(&pool);
            let (mut ways, mut older) = (BTreeMap::new(), None::<(Namespace, BTreeMap<_, _>)>);
            for round in 0..300 {
                let held = namespace.snapshot(None).unwrap();
                let seen = seen_once(&held, &oids);
                if let Some((older, before)) = older.take_if(|_| round % 3 == 0) {
                    // As it was, though its published version may be long gone.
                    assert_eq!(seen_once(&older, &oids), before);
                    older.end_snapshot();
                }
                *ways.entry(seen.values().copied().collect::<Vec<_>>()).or_insert(0) += 1;
                if older.is_none() {
                    older = Some((held, seen));
                }
            }
            println!("{mode:?}: {} ways of being in {OBJECTS} places", ways.len());
            assert!(ways.len() > 10, "nothing moved: {ways:?}");
            drop((older, namespace));
            pool.close();
        }
        for mover in movers {
            mover.line.say(0);
            mover.finish();
        }
        fixture.pool.close();
        sound(path);
    });
}

fn value(namespace: &Namespace, path: &str) -> (u64, u64) {
    let oid = namespace.lookup(namespace.root(), path).unwrap().expect("it is there").id();
    let Payload::Extent(view) = namespace.payload(oid).unwrap().0 else { unreachable!() };
    check(&view)
}

/// A snapshot of three realms ends with the opening that took it, and with no other; a forked
/// child has no part in it, and takes its own.
#[test]
fn a_snapshot_of_three_realms_belongs_to_its_opening() {
    alone("a_snapshot_of_three_realms_belongs_to_its_opening", || {
        let fixture = Fixture::new(64 << 20);
        let oids = toys(&fixture.pool);
        let namespace = names(&fixture.pool);
        let root = namespace.root();
        namespace.transfer(root, "g0/o2", &[Scope::Shared], Scope::Private).unwrap();
        namespace.transfer(root, "g1/o1", &[Scope::Shared], Scope::Published).unwrap();
        let held = namespace.snapshot(None).unwrap();
        let before = seen_once(&held, &oids);
        // Others open and close the same pool in this process.
        let (other, realm) = attach(&fixture.path, Mode::ReadWrite);
        put(&realm, "g0/o0", &filled(9, 9, 5000));
        let own = names(&other).snapshot(None).unwrap();
        assert_eq!(value(&own, "g0/o0"), (9, 9));
        drop(realm);
        other.close();
        let refused = own.lookup(root, "g0/o0").unwrap_err();
        assert_eq!(refused.kind(), Kind::Argument, "{refused}");
        assert_eq!((seen_once(&held, &oids), value(&held, "g0/o0")), (before.clone(), (0, 1)));
        // A published object is withdrawn, and its memory goes: the snapshot has it still.
        namespace.transfer(root, "g1/o1", &[Scope::Published], Scope::Shared).unwrap();
        let child = fork(|line| {
            let refused = held.lookup(root, "g0/o0").unwrap_err();
            assert_eq!(refused.kind(), Kind::Busy, "{refused}");
            held.end_snapshot();
            let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
            let own = names(&pool).snapshot(None).unwrap();
            assert_eq!((value(&own, "g0/o0"), value(&own, "g1/o1")), ((9, 9), (1, 1)));
            line.say(1);
            line.expect(2);
        });
        child.line.expect(1);
        assert_eq!((seen_once(&held, &oids), value(&held, "g0/o0")), (before, (0, 1)));
        child.line.say(2);
        child.finish();
        // Closed and opened again: it has ended, and the next one shows what is.
        fixture.pool.close();
        let refused = held.lookup(root, "g0/o0").unwrap_err();
        assert_eq!(refused.kind(), Kind::Argument, "{refused}");
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        let again = names(&pool).snapshot(None).unwrap();
        assert_eq!(value(&again, "g0/o0"), (9, 9));
        assert!(held.lookup(root, "g0/o0").is_err());
        drop((again, held, namespace, own));
        pool.close();
        sound(&fixture.path);
    });
}
