//! Batches beside other writers: applied whole, or not at all, whatever others do meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{
    Fixture, KEEP, OVER, alone, attach, check, filled, floats, fork, lookup, put, put_new, read,
    sound, view,
};
use engram::{Kind, Member, Mode, Payload, Realm, Result, Value, in_batch, when_ended};

/// A batch and what somebody else does before it ends: it must fail, and leave what the other did.
fn conflicts(
    what: &str,
    prepare: impl Fn(&Realm),
    batch: impl Fn(&Realm) -> Result<()>,
    other: impl Fn(&Realm) -> Result<()> + Sync,
) {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    prepare(&realm);
    realm.begin_batch().unwrap();
    batch(&realm).unwrap_or_else(|error| panic!("{what}: {error}"));
    let after = std::thread::scope(|scope| {
        let run = || {
            other(&realm).unwrap_or_else(|error| panic!("{what}: {error}"));
            crate::common::map_of(&realm, "")
        };
        scope.spawn(run).join().unwrap()
    });
    let error = realm.commit_batch().expect_err(what);
    assert_eq!(error.kind(), Kind::Busy, "{what}: {error}");
    assert_eq!(crate::common::map_of(&realm, ""), after, "{what}");
    sound(&fixture.path);
    for name in after.keys().filter(|name| !name.contains('/')) {
        realm.delete(realm.root(), name).unwrap();
    }
    // The batch's own space has come back.
    drop(realm.scratch(16 << 20, None).unwrap());
}

fn small(realm: &Realm, path: &str) -> Result<()> {
    put_new(realm, path, &filled(1, 1, 4)).map(drop)
}

fn large(realm: &Realm, path: &str) -> Result<()> {
    put_new(realm, path, &filled(1, 1, 5000)).map(drop)
}

fn group(realm: &Realm, path: &str) {
    realm.create_group(realm.root(), path, &[], &[], true).unwrap();
}

fn delete(realm: &Realm, path: &str) -> Result<()> {
    realm.delete(realm.root(), path)
}

fn rename(realm: &Realm, old: &str, new: &str) -> Result<()> {
    let root = realm.root();
    realm.rename(root, old, root, new)
}

fn annotate(realm: &Realm, key: &str) -> Result<()> {
    let member = Member::Object(lookup(realm, "x").unwrap());
    realm.set_attrs(member, &[(key.into(), Value::text("v"))])
}

#[test]
fn a_batch_that_relied_on_what_others_have_changed_is_not_applied() {
    conflicts("both make a name", |_| (), |r| large(r, "x"), |r| small(r, "x"));
    conflicts("both make a parent", |_| (), |r| small(r, "g/x"), |r| small(r, "g/y"));
    conflicts("the group goes", |r| group(r, "g"), |r| large(r, "g/x"), |r| delete(r, "g"));
    conflicts(
        "the group of a handle goes",
        |r| group(r, "g"),
        |r| {
            let gid = lookup(r, "g").unwrap();
            r.put(gid, "x", &floats(&[4]), &filled(1, 1, 4), KEEP).map(drop)
        },
        |r| delete(r, "g"),
    );
    conflicts(
        "a deleted group gets a member",
        |r| group(r, "g"),
        |r| delete(r, "g"),
        |r| small(r, "g/late"),
    );
    conflicts(
        "a deleted group's inner group gets a member",
        |r| group(r, "g/inner"),
        |r| delete(r, "g"),
        |r| large(r, "g/inner/late"),
    );
    conflicts(
        "an inner group leaves a deleted group",
        |r| group(r, "g/inner"),
        |r| delete(r, "g"),
        |r| rename(r, "g/inner", "kept"),
    );
    conflicts(
        "an object leaves a deleted group",
        |r| large(r, "g/x").unwrap(),
        |r| delete(r, "g"),
        |r| rename(r, "g/x", "kept"),
    );
    conflicts(
        "an object of a deleted group is replaced",
        |r| large(r, "g/x").unwrap(),
        |r| delete(r, "g"),
        |r| r.put(r.root(), "g/x", &floats(&[4]), &filled(2, 2, 4), OVER).map(drop),
    );
    conflicts(
        "two groups move into each other",
        |r| {
            group(r, "a");
            group(r, "b");
        },
        |r| rename(r, "a", "b/a"),
        |r| rename(r, "b", "a/b"),
    );
    conflicts(
        "an object is replaced by both",
        |r| large(r, "x").unwrap(),
        |r| r.put(r.root(), "x", &floats(&[5000]), &filled(2, 2, 5000), OVER).map(drop),
        |r| r.put(r.root(), "x", &floats(&[5000]), &filled(3, 3, 5000), OVER).map(drop),
    );
    conflicts(
        "both annotate",
        |r| small(r, "x").unwrap(),
        |r| annotate(r, "mine"),
        |r| annotate(r, "other"),
    );
}

/// Asking for space that is not there commits nothing, and must not pass for a commit: the next
/// one, which has that transaction's number, is somebody else's.
#[test]
fn a_batch_that_found_no_space_sees_what_others_have_changed() {
    conflicts(
        "no space, and both make a name",
        |r| {
            // New ids take no commit of their own from here on.
            small(r, "first").unwrap();
            small(r, "x").unwrap();
            r.delete(r.root(), "x").unwrap();
            drop(r.scratch(16 << 20, None).unwrap());
            assert_eq!(r.scratch(17 << 20, None).err().map(|e| e.kind()), Some(Kind::PoolFull));
        },
        |r| {
            small(r, "x")?;
            let refused = r.scratch(17 << 20, None).err().map(|e| e.kind());
            assert_eq!(refused, Some(Kind::PoolFull));
            Ok(())
        },
        |r| small(r, "x"),
    );
}

/// What a batch has not looked at does not concern it.
#[test]
fn a_batch_beside_others_that_touch_other_things_is_applied() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for name in ["g/a", "h/a"] {
        large(&realm, name).unwrap();
    }
    realm.begin_batch().unwrap();
    put(&realm, "g/a", &filled(2, 2, 5000));
    small(&realm, "g/b").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            put(&realm, "h/a", &filled(3, 3, 5000));
            small(&realm, "g/c").unwrap();
            realm.delete(realm.root(), "h").unwrap();
        });
    });
    realm.commit_batch().unwrap();
    assert_eq!(read(&realm, "g/a"), filled(2, 2, 5000));
    assert!(lookup(&realm, "g/b").is_some() && lookup(&realm, "g/c").is_some());
    assert_eq!(lookup(&realm, "h"), None);
    sound(&fixture.path);
}

#[test]
fn nothing_is_made_below_a_group_that_is_gone() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    group(&realm, "g");
    let gone = lookup(&realm, "g").unwrap();
    realm.delete(realm.root(), "g").unwrap();
    large(&realm, "x").unwrap();
    let root = realm.root();
    let in_batch = [false, true];
    for (path, batch) in ["a", "a/b", "a/b/c"].into_iter().flat_map(|p| in_batch.map(|b| (p, b))) {
        if batch {
            realm.begin_batch().unwrap();
        }
        let data = filled(1, 1, 5000);
        let refused = [
            realm.put(gone, path, &floats(&[4]), &data[..32], KEEP).map(drop),
            realm.put(gone, path, &floats(&[5000]), &data, KEEP).map(drop),
            realm.create_group(gone, path, &[], &[], true).map(drop),
            realm.rename(root, "x", gone, path),
            realm.allocate(gone, path, &floats(&[5000]), 40_000, KEEP).map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind(), Kind::NotFound, "{path}");
        }
        if batch {
            realm.commit_batch().unwrap();
        }
    }
    assert_eq!(realm.list(gone, None, 10).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(sound(&fixture.path).groups, 1);
}

/// A thread that ends without ending its batch undoes it, space and all.
#[test]
fn a_batch_that_nobody_ends_goes_with_its_thread() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    std::thread::scope(|scope| {
        let leave_it = || {
            realm.begin_batch().unwrap();
            large(&realm, "x").unwrap();
            small(&realm, "y").unwrap();
        };
        // Joined by name: a scope alone does not wait until a thread is gone altogether.
        scope.spawn(leave_it).join().unwrap();
    });
    assert!(crate::common::map_of(&realm, "").is_empty());
    drop(realm.scratch(16 << 20, None).unwrap());
    sound(&fixture.path);
}

/// What is to be done when a batch has ended is done then, the last first, and told how it ended;
/// by nobody else than the process that runs it.
#[test]
fn what_waits_for_the_end_of_a_batch_is_told_of_it() {
    alone("what_waits_for_the_end_of_a_batch_is_told_of_it", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let seen: Rc<RefCell<Vec<(u32, bool)>>> = Rc::default();
        let note = |number| {
            let seen = Rc::clone(&seen);
            when_ended(move |committed| seen.borrow_mut().push((number, committed)));
        };
        let taken = || std::mem::take(&mut *seen.borrow_mut());
        note(0);
        assert!(!in_batch());

        realm.begin_batch().unwrap();
        assert!(in_batch());
        note(1);
        let mut child = fork(|_| {
            drop(realm.lookup(realm.root(), "x"));
            assert!(!in_batch() && taken().is_empty());
        });
        assert_eq!(child.wait(), 0);
        small(&realm, "x").unwrap();
        realm.commit_batch().unwrap();
        assert_eq!(taken(), [(1, true)]);

        realm.begin_batch().unwrap();
        note(2);
        realm.begin_batch().unwrap();
        note(3);
        realm.commit_batch().unwrap();
        assert!(taken().is_empty());
        realm.abort_batch().unwrap();
        assert_eq!(taken(), [(3, false), (2, false)]);

        realm.begin_batch().unwrap();
        note(4);
        realm.begin_batch().unwrap();
        realm.abort_batch().unwrap();
        assert!(taken().is_empty());
        realm.commit_batch().unwrap_err();
        assert_eq!(taken(), [(4, false)]);

        let whole = fixture.pool.namespace("default").unwrap();
        let batch = whole.batch().unwrap();
        note(5);
        drop(batch);
        assert!(!in_batch());
        assert_eq!(taken(), [(5, false)]);
    });
}

/// Processes that run batches on one group, again until each has been applied.
#[test]
fn batches_of_many_processes_are_applied_one_after_the_other() {
    alone("batches_of_many_processes_are_applied_one_after_the_other", || {
        const ROUNDS: u64 = 25;
        let fixture = Fixture::new(32 << 20);
        put(&fixture.realm(), "count", &filled(0, 0, 600));
        fixture.pool.close();
        let writers = [1, 2, 3].map(|writer| {
            fork(|line| {
                let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                line.expect(1);
                for round in 0..ROUNDS {
                    loop {
                        realm.begin_batch().unwrap();
                        // A counter, and a trace of those who have counted: both or neither.
                        // Looking relies on nothing; making the trace relies on its not being
                        // there.
                        let oid = lookup(&realm, "count").unwrap();
                        let Ok(Payload::Extent(before)) = realm.view(oid, false) else {
                            realm.abort_batch().unwrap(); // replaced between these two lines
                            continue;
                        };
                        let (_, count) = check(&before);
                        put(&realm, "count", &filled(0, count + 1, 600));
                        let trace = filled(writer, round, 600);
                        if let Err(error) = put_new(&realm, &format!("trace/{count}"), &trace) {
                            assert_eq!(error.kind(), Kind::Exists, "{error}");
                            realm.abort_batch().unwrap();
                            continue;
                        }
                        match realm.commit_batch() {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
                        }
                    }
                }
            })
        });
        writers.iter().map(|writer| &writer.line).for_each(|line| line.say(1));
        writers.into_iter().for_each(crate::common::Peer::finish);
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        assert_eq!(check(&view(&realm, "count")), (0, 3 * ROUNDS));
        let mut counted = [0; 4];
        for count in 0..3 * ROUNDS {
            let (writer, round) = check(&view(&realm, &format!("trace/{count}")));
            assert_eq!(counted[writer as usize], round);
            counted[writer as usize] += 1;
        }
        assert_eq!(counted, [0, ROUNDS, ROUNDS, ROUNDS]);
        sound(&fixture.path);
    });
}

/// Attributes are set if those named are what they were, in a batch and without; else none is.
#[test]
fn attributes_are_set_if_they_are_what_they_were() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    group(&realm, "g");
    let gid = Member::Group(lookup(&realm, "g").unwrap());
    let text = |key: &str, value: &str| (key.to_owned(), Value::text(value));
    let now = |key: &str| realm.attr(gid, key).unwrap();
    realm.set_attrs(gid, &[text("a", "1"), text("b", "1")]).unwrap();
    for batched in [false, true] {
        let swap = |was: &[(String, Value)], to: &str| {
            if batched {
                realm.begin_batch().unwrap();
            }
            let done = realm.set_attrs_if(gid, was, &[text("a", to), text("c", to)]);
            if batched {
                realm.commit_batch().unwrap();
            }
            done
        };
        let refused =
            [vec![text("a", "0")], vec![text("none", "1")], vec![text("a", "1"), text("b", "0")]];
        for was in refused {
            assert_eq!(swap(&was, "2").unwrap_err().kind(), Kind::Busy);
            assert_eq!(now("a"), Some(Value::text("1")));
        }
        assert_eq!(now("c").is_some(), batched);
        swap(&[text("a", "1"), text("b", "1")], "2").unwrap();
        assert_eq!((now("a"), now("c")), (Some(Value::text("2")), Some(Value::text("2"))));
        swap(&[], "1").unwrap();
    }
}
