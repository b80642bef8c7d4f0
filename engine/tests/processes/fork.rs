//! Forking with open pools (protocol P4): both sides go on, and nobody loses what it holds.

use crate::common::{
    Fixture, OVER, alone, attach, bytes_of, check, churn, contents, filled, floats, fork, lookup,
    put, read, sound, view,
};
use engram::{Kind, Mode};

const MIB: usize = 1 << 20;

#[test]
fn both_sides_of_a_fork_go_on_reading_and_writing() {
    alone("both_sides_of_a_fork_go_on_reading_and_writing", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        put(&realm, "before", &filled(1, 1, 5000));
        let child = fork(|line| {
            assert_eq!(read(&realm, "before"), filled(1, 1, 5000));
            for index in 0..300 {
                line.say(put(&realm, &format!("child/{index}"), &filled(2, index, 200)));
                assert_eq!(read(&realm, &format!("child/{index}")), filled(2, index, 200));
            }
        });
        let mut ids = Vec::new();
        for index in 0..300 {
            ids.push(put(&realm, &format!("parent/{index}"), &filled(3, index, 200)));
            assert_eq!(read(&realm, &format!("parent/{index}")), filled(3, index, 200));
            ids.push(child.line.hear());
        }
        child.finish();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id was given out twice");
        for index in 0..300 {
            assert_eq!(read(&realm, &format!("child/{index}")), filled(2, index, 200));
        }
        assert_eq!(sound(&fixture.path).objects, 601);
    });
}

#[test]
fn views_stay_on_either_side_when_the_other_drops_its_own() {
    alone("views_stay_on_either_side_when_the_other_drops_its_own", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        for name in ["child keeps", "parent keeps"] {
            put(&realm, name, &filled(1, 1, MIB / 8));
        }
        let childs = view(&realm, "child keeps");
        let mut parents = Some(view(&realm, "parent keeps"));
        churn(&realm, 1);
        let child = fork(|line| {
            line.expect(1);
            drop(parents.take());
            line.say(2);
            line.expect(3);
            assert_eq!(check(&childs), (1, 1));
        });
        drop(childs);
        for name in ["child keeps", "parent keeps"] {
            realm.delete(realm.root(), name).unwrap();
        }
        child.line.say(1);
        child.line.expect(2);
        churn(&realm, 2);
        child.line.say(3);
        child.finish();
        assert_eq!(check(&parents.unwrap()), (1, 1));
        sound(&fixture.path);
    });
}

#[test]
fn forks_in_one_thread_do_not_disturb_the_others() {
    alone("forks_in_one_thread_do_not_disturb_the_others", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (realm, stop) = (&realm, &stop);
                scope.spawn(move || {
                    let mut round = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let name = format!("t{thread}/{}", round % 5);
                        let words = [4, 300, 9000][round as usize % 3];
                        put(realm, &name, &filled(thread, round, words));
                        if words > 128 {
                            assert_eq!(check(&view(realm, &name)), (thread, round));
                        } else {
                            assert_eq!(read(realm, &name), filled(thread, round, words));
                        }
                        round += 1;
                    }
                });
            }
            for round in 0..60 {
                let child = fork(|_| {
                    let name = format!("child/{round}");
                    put(&realm, &name, &filled(9, round, 1000));
                    assert_eq!(check(&view(&realm, &name)), (9, round));
                });
                child.finish();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        for round in 0..60 {
            assert_eq!(read(&realm, &format!("child/{round}")), filled(9, round, 1000));
        }
        sound(&fixture.path);
    });
}

#[test]
fn a_batch_stays_with_the_parent() {
    alone("a_batch_stays_with_the_parent", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        realm.begin_batch().unwrap();
        put(&realm, "small", &filled(1, 1, 4));
        put(&realm, "large", &filled(1, 2, 5000));
        fork(|_| {
            // The child sees nothing of it, has no batch, and what it does is done at once.
            assert_eq!(lookup(&realm, "small"), None);
            assert_eq!(realm.commit_batch().unwrap_err().kind(), Kind::Busy);
            put(&realm, "child", &filled(2, 1, 5000));
            realm.begin_batch().unwrap();
            put(&realm, "childs batch", &filled(2, 2, 5000));
            realm.commit_batch().unwrap();
        })
        .finish();
        assert_eq!(lookup(&realm, "childs batch").is_some(), lookup(&realm, "small").is_some());
        put(&realm, "after", &filled(1, 3, 4));
        realm.commit_batch().unwrap();
        assert_eq!(read(&realm, "large"), filled(1, 2, 5000));
        assert_eq!(read(&realm, "child"), filled(2, 1, 5000));
        assert_eq!(sound(&fixture.path).objects, 5);
    });
}

#[test]
fn only_the_process_that_allocated_can_publish() {
    alone("only_the_process_that_allocated_can_publish", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let new = floats(&[5000]);
        let space = realm.allocate(realm.root(), "x", &new, 40_000, OVER).unwrap();
        let dropped = realm.allocate(realm.root(), "y", &new, 40_000, OVER).unwrap();
        // SAFETY: the allocation's own memory.
        unsafe { space.view().as_ptr().write_bytes(7, 40_000) };
        let mut both = Some((space, dropped));
        fork(|_| {
            let (space, dropped) = both.take().unwrap();
            let memory = space.view();
            assert_eq!(space.publish().err().map(|e| e.kind()), Some(Kind::Busy));
            drop(dropped);
            assert_eq!(contents(&memory), bytes_of(7, 40_000));
            // What the child has let go of is not given to anybody.
            for round in 0..50 {
                put(&realm, "child", &filled(5, round, 5000));
            }
            assert_eq!(contents(&memory), bytes_of(7, 40_000));
        })
        .finish();
        let (space, dropped) = both.take().unwrap();
        space.publish().unwrap();
        dropped.publish().unwrap();
        assert_eq!(read(&realm, "x"), bytes_of(7, 40_000));
        sound(&fixture.path);
    });
}

#[test]
fn a_childs_scratch_stays_when_the_parent_drops_it() {
    alone("a_childs_scratch_stays_when_the_parent_drops_it", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let scratch = realm.scratch(MIB as u64, None).unwrap();
        let data = filled(4, 4, MIB / 8);
        // SAFETY: the scratch's own memory.
        unsafe { scratch.as_ptr().copy_from(data.as_ptr(), MIB) };
        let child = fork(|line| {
            line.expect(1);
            assert_eq!(check(&scratch), (4, 4));
        });
        drop(scratch);
        churn(&realm, 2);
        child.line.say(1);
        child.finish();
        drop(realm.scratch(16 << 20, None).unwrap());
        sound(&fixture.path);
    });
}

#[test]
fn a_child_that_closes_its_pool_leaves_the_parents_open() {
    alone("a_child_that_closes_its_pool_leaves_the_parents_open", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, 5000));
        let held = view(&realm, "x");
        for _ in 0..5 {
            fork(|_| {
                fixture.pool.close();
                assert_eq!(realm.space().err().map(|e| e.kind()), Some(Kind::Argument));
                assert_eq!(check(&held), (1, 1));
                let (_pool, again) = attach(&fixture.path, Mode::ReadWrite);
                put(&again, "y", &filled(2, 2, 5000));
            })
            .finish();
        }
        put(&realm, "x", &filled(1, 2, 5000));
        churn(&realm, 2);
        assert_eq!(check(&held), (1, 1));
        assert_eq!(read(&realm, "y"), filled(2, 2, 5000));
        sound(&fixture.path);
    });
}

/// With no spare lease left and none to be made, the parent goes on with its own.
#[test]
fn without_a_spare_lease_a_fork_drops_no_pin() {
    alone("without_a_spare_lease_a_fork_drops_no_pin", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, MIB / 8));
        put(&realm, "y", &filled(1, 1, MIB / 8));
        let (x, mut y) = (view(&realm, "x"), Some(view(&realm, "y")));
        churn(&realm, 1);
        let_files_grow(false);
        remove_spares(&fixture);
        let child = fork(|line| {
            line.expect(1);
            let_files_grow(true);
            assert_eq!(check(&x), (1, 1));
            put(&realm, "child", &filled(2, 1, 5000));
            drop(y.take());
            line.say(2);
            line.expect(3);
            assert_eq!(check(&x), (1, 1));
        });
        let_files_grow(true);
        drop(x);
        for name in ["x", "y"] {
            realm.delete(realm.root(), name).unwrap();
        }
        churn(&realm, 2);
        child.line.say(1);
        child.line.expect(2);
        churn(&realm, 2);
        child.line.say(3);
        child.finish();
        assert_eq!(check(y.as_ref().unwrap()), (1, 1));
        drop(y);
        sound(&fixture.path);
        // What the lease kept for the child comes back when both sides are gone.
        fixture.pool.close();
        drop(realm);
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        realm.delete(realm.root(), "child").unwrap();
        drop(realm.scratch(16 << 20, None).unwrap());
        assert_eq!(fixture.leases().iter().filter(|n| !n.starts_with("spare")).count(), 1);
    });
}

#[test]
fn after_a_fork_without_a_spare_lease_the_parent_can_open_the_pool_anew() {
    alone("after_a_fork_without_a_spare_lease_the_parent_can_open_the_pool_anew", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "there", &filled(1, 1, 5000));
        let seen = view(&realm, "there");
        // The fork finds no spare, and can make none.
        let_files_grow(false);
        remove_spares(&fixture);
        let child = fork(|line| {
            line.expect(1);
            let_files_grow(true);
            assert_eq!(read(&realm, "there"), filled(1, 1, 5000));
        });
        let_files_grow(true);
        drop((seen, realm));
        fixture.pool.close();
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        put(&realm, "more", &filled(2, 1, 100));
        child.line.say(1);
        child.finish();
        assert_eq!(sound(&fixture.path).objects, 2);
    });
}

/// Lets no file of this process grow any more, so that no lease can be made; pipes can. Or lets
/// them grow again.
fn let_files_grow(grow: bool) {
    let most = if grow { libc::RLIM_INFINITY } else { 0 };
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: ignores a signal, and sets a limit of this process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

/// Takes away the leases that wait for a fork, this process's and the realm's.
fn remove_spares(fixture: &Fixture) {
    for name in fixture.leases().iter().filter(|name| name.starts_with("spare")) {
        std::fs::remove_file(fixture.realm_dir().join("leases").join(name)).unwrap();
    }
}

/// The leases in the folder that are nobody's spare.
fn named(fixture: &Fixture) -> usize {
    fixture.leases().iter().filter(|name| !name.starts_with("spare")).count()
}

/// Four children live; two of them got a lease. The parent goes on, and what they view stays.
#[test]
fn children_that_find_no_room_for_a_lease_take_none_from_the_parent() {
    alone("children_that_find_no_room_for_a_lease_take_none_from_the_parent", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, MIB / 8));
        put(&realm, "small", &filled(1, 1, 16));
        let x = view(&realm, "x");
        let_files_grow(false);
        let children: Vec<_> = (0..4)
            .map(|_| {
                fork(|line| {
                    line.expect(1);
                    assert_eq!(check(&x), (1, 1));
                    let found = realm.lookup(realm.root(), "small");
                    let_files_grow(true);
                    match found {
                        Ok(found) => assert!(found.is_some()),
                        Err(error) => {
                            assert!(error.to_string().contains("was forked from one"), "{error}");
                            assert_eq!(read(&realm, "small"), filled(1, 1, 16));
                            line.say(7);
                        }
                    }
                    line.say(2);
                    line.expect(3);
                    assert_eq!(check(&x), (1, 1));
                })
            })
            .collect();
        assert_eq!(read(&realm, "small"), filled(1, 1, 16));
        put(&realm, "small", &filled(2, 2, 16));
        let_files_grow(true);
        drop(x);
        realm.delete(realm.root(), "x").unwrap();
        churn(&realm, 3);
        let mut without = 0;
        for (index, child) in children.iter().enumerate() {
            put(&realm, "small", &filled(1, 1, 16));
            child.line.say(1);
            if index >= 2 {
                child.line.expect(7);
                without += 1;
            }
            child.line.expect(2);
            churn(&realm, 2);
        }
        assert_eq!(without, 2);
        for child in children {
            child.line.say(3);
            child.finish();
        }
        fixture.pool.close();
        drop(realm);
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        drop(realm.scratch(15 << 20, None).unwrap());
        assert_eq!(named(&fixture), 1, "{:?}", fixture.leases());
        sound(&fixture.path);
    });
}

/// The lease of a child that ended without closing the pool is that of the next; a process that
/// only reads does not leave one for each.
#[test]
fn a_process_that_forks_again_and_again_leaves_no_lease_for_each_child() {
    alone("a_process_that_forks_again_and_again_leaves_no_lease_for_each_child", || {
        let fixture = Fixture::new(16 << 20);
        put(&fixture.realm(), "x", &filled(1, 1, 5000));
        fixture.pool.close();
        for mode in [Mode::Read, Mode::ReadWrite] {
            let (pool, realm) = attach(&fixture.path, mode);
            let held = view(&realm, "x");
            let lasting = fork(|line| {
                assert_eq!(read(&realm, "x"), filled(1, 1, 5000));
                line.say(1);
                line.expect(2);
                assert_eq!(check(&held), (1, 1));
            });
            lasting.line.expect(1);
            for index in 0..40 {
                fork(|_| {
                    // One that uses the pool sweeps up after its siblings.
                    if index > 20 {
                        assert_eq!(read(&realm, "x"), filled(1, 1, 5000));
                    }
                })
                .finish();
                // Its own, that of the child that lives, that of the last; and spares.
                assert!(fixture.leases().len() <= 8, "{mode:?}: {:?}", fixture.leases());
            }
            lasting.line.say(2);
            lasting.finish();
            drop((held, realm));
            pool.close();
            assert_eq!(named(&fixture), 0, "{mode:?}: {:?}", fixture.leases());
        }
        // Children of a child that is gone are swept up by those who open the pool to read.
        let child = fork(|_| {
            let pool = attach(&fixture.path, Mode::Read);
            (0..3).for_each(|_| fork(|_| ()).finish());
            // It ends as its children do, without closing.
            std::mem::forget(pool);
        });
        child.finish();
        assert!(named(&fixture) >= 2, "{:?}", fixture.leases());
        let (pool, _realm) = attach(&fixture.path, Mode::Read);
        assert_eq!(named(&fixture), 1, "{:?}", fixture.leases());
        pool.close();
        sound(&fixture.path);
    });
}

/// The lease of a child that died goes to the next, and what it had reserved goes to nobody.
#[test]
fn what_a_dead_child_had_reserved_comes_back_though_its_lease_is_another_childs() {
    alone("what_a_dead_child_had_reserved_comes_back_though_its_lease_is_another_childs", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, 5000));
        let dying = fork(|line| {
            let scratch = realm.scratch(8 << 20, None).unwrap();
            line.say(1);
            line.hear();
            drop(scratch);
        });
        dying.line.expect(1);
        dying.kill();
        let before = fixture.leases();
        // The first takes the spare, and the lease becomes the spare that the second takes.
        let next = [1, 2].map(|value| {
            fork(move |line| {
                assert_eq!(line.hear(), value);
            })
        });
        assert_eq!(fixture.leases().len(), before.len() + 1, "{before:?}");
        // It comes back while they live.
        drop(realm.scratch(15 << 20, None).unwrap());
        for (value, child) in (1..).zip(next) {
            child.line.say(value);
            child.finish();
        }
        sound(&fixture.path);
    });
}
