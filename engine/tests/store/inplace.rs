//! Writing in place (protocol P8), and what memory shows before anything was written (P9).

use crate::common::{
    Fixture, KEEP, Line, Peer, alone, attach, blob, bytes_of, check, contents, filled, floats,
    fork, lookup, put, put_new, read, sound, view,
};
use engram::{Kind, Mode, Payload, Realm, View};

const MIB: usize = 1 << 20;

fn writable(realm: &Realm, path: &str) -> View {
    let oid = lookup(realm, path).unwrap();
    match realm.view(oid, true).expect("a view") {
        Payload::Extent(view) => {
            assert!(view.is_writable());
            view
        }
        Payload::Inline(_) => panic!("{path} is inline"),
    }
}

/// Writes an array through a view.
fn write_through(view: &View, data: &[u8]) {
    assert_eq!(view.len(), data.len());
    // SAFETY: a writable view of as many bytes.
    unsafe { view.as_ptr().copy_from(data.as_ptr(), data.len()) };
}

#[test]
fn what_one_process_writes_in_place_others_see_until_it_is_replaced() {
    alone("what_one_process_writes_in_place_others_see_until_it_is_replaced", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let oid = put(&realm, "x", &filled(1, 1, 9000));
        let other = fork(|line| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            let held = view(&realm, "x");
            line.say(1);
            line.expect(2);
            assert_eq!(check(&held), (1, 2), "a view shows what is written in place");
            put(&realm, "x", &filled(2, 1, 9000));
            line.say(3);
            line.expect(4);
            assert_eq!(check(&view(&realm, "x")), (2, 1), "nobody writes into the new one");
            assert_eq!(check(&held), (1, 3), "the old one lives on with its views");
        });
        other.line.expect(1);
        let held = writable(&realm, "x");
        write_through(&held, &filled(1, 2, 9000));
        realm.flush(oid).unwrap();
        other.line.say(2);
        other.line.expect(3);
        // Replaced: a write into nothing is refused; the memory itself is still ours.
        assert_eq!(realm.flush(oid).unwrap_err().kind(), Kind::Busy);
        assert_eq!(realm.view(oid, true).err().unwrap().kind(), Kind::NotFound);
        assert_eq!(
            realm.replace_payload(oid, 0, &bytes_of(0, 72_000)).unwrap_err().kind(),
            Kind::Busy
        );
        write_through(&held, &filled(1, 3, 9000));
        other.line.say(4);
        other.finish();
        sound(&fixture.path);
    });
}

/// A reader of a value sees it, wherever it goes meanwhile: out of its extent into its row.
#[cfg(feature = "faults")]
#[test]
fn a_value_that_moves_while_it_is_read_is_read() {
    alone("a_value_that_moves_while_it_is_read_is_read", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let oid = realm.put(realm.root(), "a", &blob(), &[1; 5000], KEEP).unwrap();
        let path = fixture.path.clone();
        let other = fork(|line| {
            let (_pool, realm) = attach(&path, Mode::ReadWrite);
            line.expect(1);
            let (_, generation) = realm.payload(oid).unwrap();
            assert!(realm.replace_payload(oid, generation, &[2; 10]).unwrap());
            line.say(2);
        });
        let (line, moved) = (std::sync::Mutex::new(other), std::sync::Once::new());
        engram::faults::on_step(move |step| {
            if step == "view.sought" {
                moved.call_once(|| {
                    let other = line.lock().unwrap();
                    other.line.say(1);
                    other.line.expect(2);
                });
            }
        });
        match realm.payload(oid).unwrap().0 {
            Payload::Inline(bytes) => assert_eq!(bytes, [2; 10]),
            Payload::Extent(_) => panic!("it lies in its row"),
        }
    });
}

/// Adds one to a number in a value, by compare and swap, so often.
fn count_up(realm: &Realm, path: &str, times: u64, line: &Line) {
    let oid = lookup(realm, path).unwrap();
    line.expect(1);
    for _ in 0..times {
        loop {
            let (payload, generation) = realm.payload(oid).unwrap();
            let mut bytes = match payload {
                Payload::Inline(bytes) => bytes,
                Payload::Extent(view) => contents(&view),
            };
            let count = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + 1;
            bytes[..8].copy_from_slice(&count.to_le_bytes());
            // The value moves between its row and an extent as it grows and shrinks.
            bytes.resize(if count.is_multiple_of(3) { 3000 } else { 64 }, 7);
            if realm.replace_payload(oid, generation, &bytes).unwrap() {
                break;
            }
        }
    }
}

#[test]
fn no_swap_of_a_value_is_lost() {
    alone("no_swap_of_a_value_is_lost", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        realm.put(realm.root(), "count", &blob(), &[0; 64], KEEP).unwrap();
        let peers: Vec<Peer> =
            (0..3).map(|_| fork(|line| count_up(&realm, "count", 100, line))).collect();
        peers.iter().map(|peer| &peer.line).for_each(|line| line.say(1));
        peers.into_iter().for_each(Peer::finish);
        assert_eq!(read(&realm, "count")[..8], 300_u64.to_le_bytes());
        realm.delete(realm.root(), "count").unwrap();
        drop(realm.scratch(16 << 20, None).unwrap());
        sound(&fixture.path);
    });
}

/// An array keeps its dtype and shape, so whatever replaces its value has as many bytes.
#[test]
fn an_arrays_value_keeps_its_length() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for (name, words) in [("small", 16), ("large", 9000)] {
        let oid = put(&realm, name, &filled(1, 1, words));
        let (_, generation) = realm.payload(oid).unwrap();
        for wrong in [0, words - 1, words + 1, 20_000] {
            let data = bytes_of(7, wrong * 8);
            let refused = realm.replace_payload(oid, generation, &data).unwrap_err();
            assert_eq!(refused.kind(), Kind::Argument, "{name}: {refused}");
        }
        assert_eq!(read(&realm, name), filled(1, 1, words));
        assert!(realm.replace_payload(oid, generation, &filled(1, 2, words)).unwrap());
        assert_eq!(read(&realm, name), filled(1, 2, words));
    }
    realm.delete(realm.root(), "large").unwrap();
    drop(realm.scratch(16 << 20, None).unwrap());
    sound(&fixture.path);
}

/// A small array moves out of its row once, whoever asks first; everybody writes to the same.
#[test]
fn processes_that_write_a_small_array_in_place_write_to_one() {
    alone("processes_that_write_a_small_array_in_place_write_to_one", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        for round in 0..30 {
            let name = format!("x{round}");
            put_new(&realm, &name, &filled(round, 1, 16)).unwrap();
            let peers = [3, 4, 5].map(|place| {
                let (realm, name) = (&realm, &name);
                fork(move |line| {
                    line.expect(1);
                    let held = writable(realm, name);
                    // SAFETY: a word of this process's own in the writable view.
                    unsafe { held.as_ptr().add(place * 8).write_bytes(0xaa, 8) };
                    line.say(2);
                })
            });
            peers.iter().map(|peer| &peer.line).for_each(|line| line.say(1));
            peers.iter().map(|peer| &peer.line).for_each(|line| line.expect(2));
            let mut expected = filled(round, 1, 16);
            expected[24..48].fill(0xaa);
            assert_eq!(contents(&view(&realm, &name)), expected);
            peers.into_iter().for_each(Peer::finish);
        }
        sound(&fixture.path);
    });
}

/// Whether any 8 bytes of the memory are a word of an array with this tag.
fn shows(view: &View, tag: u64) -> bool {
    let bytes = contents(view);
    bytes.chunks_exact(8).any(|word| word == tag.to_le_bytes())
}

/// Fills all of a realm with arrays that carry a tag, and deletes them.
fn dirty(realm: &Realm, tag: u64) {
    let data = tag.to_le_bytes().repeat(MIB / 8);
    let parts = (0..).map_while(|n| put_new(realm, &format!("dirt/{n}"), &data).ok()).count();
    assert!(parts > 4);
    realm.delete(realm.root(), "dirt").unwrap();
}

#[test]
fn new_space_shows_zeros_or_its_own_realms_old_bytes_and_no_others() {
    const SECRET: u64 = 0x5ec2_e75e_c2e7_5ec2;
    let fixture = Fixture::new(8 << 20);
    let secret = fixture.pool.create_namespace("secret", 0o700, None, None).unwrap();
    let other = fixture.pool.create_namespace("other", 0o700, None, None).unwrap();
    let new = floats(&[4 * MIB as u64 / 8]);
    dirty(&secret, SECRET);
    let space = secret.allocate(secret.root(), "x", &new, 4 * MIB as u64, KEEP).unwrap();
    assert!(shows(&space.view(), SECRET), "the test must be able to see it");
    drop(space);
    let oid = secret.create_zeroed(secret.root(), "zeros", &new, KEEP).unwrap();
    let Payload::Extent(zeros) = secret.view(oid, false).unwrap() else { panic!("inline") };
    assert!(contents(&zeros).iter().all(|byte| *byte == 0), "zeros, on space that was used");
    drop(zeros);
    let clean = |realm: &Realm| {
        let space = realm.allocate(realm.root(), "x", &new, 4 * MIB as u64, KEEP).unwrap();
        assert!(!shows(&space.view(), SECRET));
        let scratch = realm.scratch(4 * MIB as u64, None).unwrap();
        assert!(!shows(&scratch, SECRET));
    };
    clean(&other);
    // A realm that comes after it, and has its very name.
    drop(secret);
    fixture.pool.remove_namespace("secret").unwrap();
    clean(&fixture.pool.create_namespace("secret", 0o700, None, None).unwrap());
    clean(&fixture.realm());
    sound(&fixture.path);
}

/// In a batch only what the batch has made is written in place: the rest could not be undone.
#[test]
fn a_batch_writes_in_place_only_to_what_it_has_made() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let before = put(&realm, "before", &filled(1, 1, 9000));
    realm.begin_batch().unwrap();
    let made = put(&realm, "made", &filled(2, 2, 9000));
    let small = put(&realm, "small", &filled(3, 3, 16));
    assert_eq!(realm.view(before, true).err().unwrap().kind(), Kind::Busy);
    assert_eq!(
        realm.replace_payload(before, 0, &bytes_of(0, 72_000)).unwrap_err().kind(),
        Kind::Busy
    );
    write_through(&writable(&realm, "made"), &filled(2, 3, 9000));
    write_through(&writable(&realm, "small"), &filled(3, 4, 16));
    assert!(realm.payload(made).is_ok() && realm.payload(small).is_ok());
    realm.commit_batch().unwrap();
    assert_eq!(check(&view(&realm, "made")), (2, 3));
    assert_eq!(check(&view(&realm, "small")), (3, 4));
    put(&realm, "made", &filled(2, 4, 100));
    sound(&fixture.path);
}
