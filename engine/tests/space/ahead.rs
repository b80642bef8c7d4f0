//! What batches reserve ahead.

use crate::common::{Fixture, Random, alone, bytes_of, fork, put_new, read, seed};
use engram::{Kind, Realm};

const MIB: u64 = 1 << 20;

/// Puts values of these lengths, one after the other, until the realm is full: how many there are.
fn until_full(realm: &Realm, lengths: &[usize]) -> usize {
    for (number, len) in lengths.iter().cycle().enumerate() {
        match put_new(realm, &format!("v{number}"), &bytes_of(number as u8, *len)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), Kind::PoolFull, "{error}");
                return number;
            }
        }
    }
    unreachable!("no pool holds them all")
}

/// Many values of one length take a few commits, and none of the space that was not needed stays
/// reserved.
#[test]
fn many_values_take_few_commits() {
    let fixture = Fixture::new(16 * MIB);
    let realm = fixture.realm();
    let before = realm.holders().unwrap().commits;
    realm.begin_batch().unwrap();
    for number in 0..100 {
        put_new(&realm, &format!("v{number}"), &bytes_of(number, 4096)).unwrap();
    }
    realm.commit_batch().unwrap();
    let holders = realm.holders().unwrap();
    let made = holders.commits - before;
    assert!(made <= 20, "{made} commits for 100 values");
    assert_eq!((holders.reserved, realm.space().unwrap().used), (0, 100 * 4096));
    for number in 0..100 {
        assert_eq!(read(&realm, &format!("v{number}")), bytes_of(number, 4096));
    }
}

/// A batch finds as much room as single values do, whatever it has reserved ahead; one that is
/// aborted leaves all of it.
#[test]
fn a_batch_fills_a_realm_as_single_values_do() {
    let mut random = Random(seed());
    for round in 0..6 {
        let count = 1 + random.below(12) as usize;
        let mut lengths: Vec<usize> =
            (0..count).map(|_| 4096 * (1 + random.below(24) as usize)).collect();
        if round % 2 == 0 {
            lengths = vec![lengths[0]; count];
        }
        let fixture = Fixture::new(4 * MIB);
        let realm = fixture.realm();
        let alone = until_full(&realm, &lengths);
        let other = Fixture::new(4 * MIB);
        let realm = other.realm();
        let mut last = 0;
        for keep in [false, true] {
            realm.begin_batch().unwrap();
            let together = until_full(&realm, &lengths);
            // Values of several lengths lie otherwise, and leave other gaps.
            let largest = realm.space().unwrap().largest_free;
            let wanted = lengths[together % lengths.len()];
            assert!(largest < wanted as u64, "{largest} bytes are free, {wanted} were asked for");
            let stored: usize = lengths.iter().cycle().take(together).sum();
            assert_eq!(realm.holders().unwrap().reserved, stored as u64, "nothing lies ready");
            if round % 2 == 0 {
                assert_eq!(together, alone, "{lengths:?}");
            }
            last = together - 1;
            if keep {
                realm.commit_batch().unwrap();
            } else {
                realm.abort_batch().unwrap();
                let (space, holders) = (realm.space().unwrap(), realm.holders().unwrap());
                assert_eq!((space.used, holders.reserved), (0, 0));
            }
        }
        let expected = bytes_of(last as u8, lengths[last % lengths.len()]);
        assert_eq!(read(&realm, &format!("v{last}")), expected);
    }
}

/// A value in chunks takes what its batch holds ready for other values, and many lengths leave
/// little ready.
#[test]
fn what_lies_ready_is_little_and_goes_back() {
    let fixture = Fixture::new(8 * MIB);
    let realm = fixture.realm();
    realm.begin_batch().unwrap();
    let mut stored = 0;
    for number in 0..200_u64 {
        let len = 4096 * (1 + number / 8);
        match put_new(&realm, &format!("v{number}"), &bytes_of(1, len as usize)) {
            Ok(_) => stored += len,
            Err(error) => {
                assert_eq!(error.kind(), Kind::PoolFull, "{error}");
                break;
            }
        }
        let ready = realm.holders().unwrap().reserved - stored;
        assert!(ready <= 2 * MIB && ready <= stored, "{ready} bytes lie ready of {stored}");
    }
    realm.abort_batch().unwrap();
    let fixture = Fixture::new(8 * MIB);
    let realm = fixture.realm();
    realm.begin_batch().unwrap();
    let stored = 70 * 65536;
    for number in 0..70 {
        put_new(&realm, &format!("w{number}"), &bytes_of(1, 65536)).unwrap();
    }
    let rest = 8 * MIB - realm.holders().unwrap().reserved;
    assert!(rest < 8 * MIB - stored, "nothing lies ready");
    drop(realm.scratch(rest + 65536, None).unwrap());
    realm.commit_batch().unwrap();
}

/// A child of a process that runs a batch uses none of its space.
#[test]
fn a_child_leaves_what_its_parent_has_reserved() {
    alone("a_child_leaves_what_its_parent_has_reserved", || {
        let fixture = Fixture::new(16 * MIB);
        let realm = fixture.realm();
        realm.begin_batch().unwrap();
        for number in 0..5 {
            put_new(&realm, &format!("p{number}"), &bytes_of(number, 4096)).unwrap();
        }
        let mut child = fork(|_| {
            for number in 0..50 {
                put_new(&realm, &format!("c{number}"), &bytes_of(100 + number, 4096)).unwrap();
            }
        });
        assert_eq!(child.wait(), 0);
        for number in 5..50 {
            put_new(&realm, &format!("p{number}"), &bytes_of(number, 4096)).unwrap();
        }
        realm.commit_batch().unwrap();
        for number in 0..50 {
            assert_eq!(read(&realm, &format!("p{number}")), bytes_of(number, 4096));
            assert_eq!(read(&realm, &format!("c{number}")), bytes_of(100 + number, 4096));
        }
        let (space, holders) = (realm.space().unwrap(), realm.holders().unwrap());
        assert_eq!((space.used, holders.reserved), (100 * 4096, 0));
    });
}
