//! Deaths at every step of a file: what was acknowledged is there, and the next goes on.

use super::common::{Fixture, Line, alone, attach, die_at_step, fork, sound};
use super::{all, created, make};
use engram::{Member, Mode, Realm};

/// The steps of files.
fn steps() -> impl Iterator<Item = &'static str> {
    let of_files = |step: &&str| {
        ["file.", "links.", "names.", "orphans.", "rename."]
            .iter()
            .any(|kind| step.starts_with(kind))
    };
    engram::faults::ALL.iter().copied().filter(of_files)
}

/// What a process does, and says after each that it has done it.
fn work(realm: &Realm, told: &Line) {
    let root = realm.root();
    let file = created(realm, "new");
    file.append(b"small").unwrap();
    told.say(1);
    file.append(&[b'a'; 10_000]).unwrap();
    told.say(2);
    file.write_at(200_000, b"far").unwrap();
    told.say(3);
    file.write_at(100_000, &[b'b'; 5000]).unwrap();
    told.say(4);
    file.punch(100_000, 4096 * 2).unwrap();
    told.say(5);
    file.set_size(6_000).unwrap();
    told.say(6);
    file.set_size(90_000).unwrap();
    told.say(7);
    file.sync().unwrap();
    realm.link(file.oid(), root, "further").unwrap();
    realm.unlink(root, "new").unwrap();
    told.say(8);
    realm.make_group(root, "group", b"properties", None).unwrap();
    make(realm, "other");
    realm.rename_over(root, "further", root, "other", engram::Clash::Exchange).unwrap();
    told.say(9);
    realm.unlink(root, "other").unwrap();
    file.append(&vec![b'c'; 300_000]).unwrap();
    drop(file);
    told.say(10);
}

/// What of the file must be so after so many words.
fn expected(realm: &Realm, done: u64) {
    let root = realm.root();
    let found = ["new", "further", "other"].iter().find_map(|name| {
        match realm.lookup(root, name).unwrap() {
            Some(Member::Object(oid)) => {
                let file = realm.open_file(oid, true).unwrap();
                // The other one of the exchange is empty.
                (file.size().unwrap() > 0 || done == 0).then_some(file)
            }
            _ => None,
        }
    });
    if (1..9).contains(&done) {
        let file = found.as_ref().expect("it has a name");
        let bytes = all(file);
        assert!(bytes.starts_with(b"small"), "after {done}: {:?}", &bytes[..bytes.len().min(9)]);
        let a = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == b'a');
        if (2..5).contains(&done) {
            assert!(a(5..10_005), "after {done}");
        }
        if done == 3 || done == 4 {
            assert_eq!(&bytes[200_000..200_003], b"far");
        }
        if done == 7 || done == 8 {
            assert!(bytes.len() == 90_000 && bytes[6_000..].iter().all(|byte| *byte == 0));
        }
        // It goes on where the dead one held the tail.
        let size = bytes.len() as u64;
        assert_eq!(file.append(b"next"), Ok(size));
        assert!(all(file)[..bytes.len()] == bytes);
    }
    if done == 10 {
        assert!(found.is_none());
    }
}

#[test]
fn a_process_may_die_at_any_step_of_a_file() {
    alone("a_process_may_die_at_any_step_of_a_file", || {
        let mut met = 0;
        for step in steps() {
            let fixture = Fixture::new(64 << 20);
            // The realm is there, and somebody has it open.
            let realm = fixture.realm();
            super::common::put(&realm, "array", &[1; 8000]);
            let mut peer = fork(|told| {
                let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                die_at_step(step);
                work(&realm, told);
            });
            let status = peer.wait();
            let mut done = 0;
            while let Some(word) = peer.line.hear_if_any() {
                done = word;
            }
            let killed = libc::WIFSIGNALED(status);
            met += u64::from(killed);
            assert!(killed || status == 0, "{step}: status {status:#x}");
            sound(&fixture.path);
            expected(&realm, done);
            sound(&fixture.path);
        }
        assert!(met > 15, "{met} steps were met");
    });
}
