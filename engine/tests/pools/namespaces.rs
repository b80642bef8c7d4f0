//! Making and removing pools and namespaces while others do the same, or use them.

use std::path::Path;

use crate::common::{Fixture, Peer, alone, attach, check, filled, fork, put, read, sound, view};
use engram::{CreateOptions, Kind, Mode, Pool, Result};

/// Lets `many` processes do something at the same moment; what each says of it.
fn at_once(many: u64, work: impl Fn(u64) -> u64) -> Vec<u64> {
    let peers: Vec<Peer> = (0..many)
        .map(|number| {
            fork(|line| {
                line.say(0);
                line.expect(1);
                line.say(work(number));
            })
        })
        .collect();
    peers.iter().map(|peer| &peer.line).for_each(|line| line.expect(0));
    peers.iter().map(|peer| &peer.line).for_each(|line| line.say(1));
    let said = peers.iter().map(|peer| peer.line.hear()).collect();
    peers.into_iter().for_each(Peer::finish);
    said
}

/// 0 for a success, else the error's kind.
fn outcome<T>(result: Result<T>) -> u64 {
    result.map_or_else(|error| error.kind() as u64, |_| 0)
}

/// One has made it, and the others were told that it exists.
fn assert_one_winner(said: &[u64]) {
    let exists = Kind::Exists as u64;
    assert_eq!(said.iter().filter(|&&kind| kind == 0).count(), 1, "{said:?}");
    assert!(said.iter().all(|&kind| kind == 0 || kind == exists), "{said:?}");
}

fn create(path: &Path) -> Result<Pool> {
    Pool::create(path, &CreateOptions { size: 16 << 20, ..CreateOptions::default() })
}

#[test]
fn of_processes_that_make_one_pool_exactly_one_does() {
    alone("of_processes_that_make_one_pool_exactly_one_does", || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for round in 0..20 {
            let path = dir.path().join(format!("pool{round}"));
            if round % 2 == 0 {
                std::fs::create_dir(&path).unwrap();
            }
            let said = at_once(3, |number| {
                let made = create(&path);
                if let Ok(pool) = &made {
                    let realm = pool.realm("default").unwrap();
                    put(&realm, "by", &filled(number, 1, 5000));
                }
                outcome(made)
            });
            assert_one_winner(&said);
            let winner = said.iter().position(|&kind| kind == 0).unwrap() as u64;
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            assert_eq!(check(&view(&realm, "by")), (winner, 1));
            sound(&path);
            drop(realm);
            pool.close();
            Pool::destroy(&path).unwrap();
            assert!(!path.exists());
        }
    });
}

#[test]
fn of_processes_that_make_one_namespace_exactly_one_does() {
    alone("of_processes_that_make_one_namespace_exactly_one_does", || {
        let fixture = Fixture::new(16 << 20);
        for round in 0..20 {
            let name = format!("n{round}");
            let said = at_once(2, |number| {
                let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
                // Threads of one process race as processes do.
                let again = pool.clone();
                let make = |pool: &Pool, thread| {
                    let made = pool.create_namespace(&name, 0o700, None, None);
                    if let Ok(realm) = &made {
                        put(realm, "by", &filled(number, thread, 5000));
                    }
                    outcome(made)
                };
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| make(&again, 2));
                    make(&pool, 1) << 8 | other.join().unwrap()
                })
            });
            let said: Vec<u64> = said.iter().flat_map(|both| [both >> 8, both & 0xff]).collect();
            assert_one_winner(&said);
            let winner = said.iter().position(|&kind| kind == 0).unwrap() as u64;
            let realm = fixture.pool.realm(&name).unwrap();
            assert_eq!(check(&view(&realm, "by")), (winner / 2, winner % 2 + 1));
        }
        assert_eq!(fixture.pool.namespaces().unwrap().len(), 21);
        assert_eq!(sound(&fixture.path).namespaces, 21);
    });
}

/// The maker of a namespace keeps what is put into it, though others remove the one of that name
/// before: neither the folder nor the spans of the new one go with the old.
#[test]
fn a_namespace_is_not_removed_with_the_one_that_had_its_name() {
    alone("a_namespace_is_not_removed_with_the_one_that_had_its_name", || {
        let fixture = Fixture::new(16 << 20);
        let path = &fixture.path;
        at_once(3, |number| {
            let (pool, _) = attach(path, Mode::ReadWrite);
            for version in 0..60 {
                match pool.create_namespace("x", 0o700, None, None) {
                    Ok(realm) => {
                        put(&realm, "a", &filled(number, version, 50_000));
                        // Another process finds it whole: the spans are there by name.
                        fork(|_| {
                            pool.close();
                            let pool = Pool::open(path, Mode::Read, false).unwrap();
                            let realm = pool.realm("x").unwrap();
                            assert_eq!(check(&view(&realm, "a")), (number, version));
                        })
                        .finish();
                    }
                    Err(error) => assert_eq!(error.kind(), Kind::Exists, "{error}"),
                }
                match pool.remove_namespace("x") {
                    Ok(()) => {}
                    Err(e) => assert!(matches!(e.kind(), Kind::Busy | Kind::NotFound), "{e}"),
                }
            }
            0
        });
        let left = std::fs::read_dir(path.join("ns")).unwrap();
        let hidden = left
            .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with('.'));
        assert_eq!(hidden.count(), 0);
        sound(path);
    });
}

#[test]
fn a_namespace_that_others_have_open_is_not_removed() {
    alone("a_namespace_that_others_have_open_is_not_removed", || {
        let fixture = Fixture::new(16 << 20);
        let path = &fixture.path;
        let realm = fixture.pool.create_namespace("x", 0o700, None, None).unwrap();
        put(&realm, "a", &filled(1, 1, 5000));
        // One process has the namespace open, another has only a view of it left.
        let opened = fork(|line| {
            let pool = Pool::open(path, Mode::Read, false).unwrap();
            let realm = pool.realm("x").unwrap();
            line.say(1);
            line.expect(2);
            assert_eq!(check(&view(&realm, "a")), (1, 1));
        });
        let viewing = fork(|line| {
            let held = view(&realm, "a");
            fixture.pool.close();
            line.say(1);
            line.expect(2);
            assert_eq!(check(&held), (1, 1));
        });
        opened.line.expect(1);
        viewing.line.expect(1);
        for last in [opened, viewing] {
            let error = fixture.pool.remove_namespace("x").unwrap_err();
            assert_eq!(error.kind(), Kind::Busy);
            assert!(error.message().contains(&last.pid.to_string()), "{error}");
            // A refusal changes nothing: the handle that is there goes on.
            assert_eq!(read(&realm, "a"), filled(1, 1, 5000));
            last.line.say(2);
            last.finish();
        }
        // Another session in this very process counts as well.
        let other = Pool::open(path, Mode::Read, false).unwrap();
        other.realm("x").unwrap();
        assert_eq!(fixture.pool.remove_namespace("x").unwrap_err().kind(), Kind::Busy);
        other.close();
        // It gone, the handle that was there before the refusal still goes on.
        assert_eq!(read(&realm, "a"), filled(1, 1, 5000));
        fixture.pool.remove_namespace("x").unwrap();
        assert!(!path.join("ns/x").exists());
        assert_eq!(fixture.pool.remove_namespace("x").unwrap_err().kind(), Kind::NotFound);
        assert_eq!(realm.space().unwrap_err().kind(), Kind::NotFound);
    });
}

#[test]
fn a_pool_that_others_have_open_is_not_destroyed() {
    alone("a_pool_that_others_have_open_is_not_destroyed", || {
        let fixture = Fixture::new(16 << 20);
        let path = &fixture.path;
        put(&fixture.realm(), "b", &filled(2, 2, 5000));
        let viewing = fork(|line| {
            let held = view(&fixture.realm(), "b");
            fixture.pool.close();
            line.say(1);
            line.expect(2);
            assert_eq!(check(&held), (2, 2));
            line.say(3);
            line.hear_if_any();
        });
        viewing.line.expect(1);
        fixture.pool.close();
        assert_eq!(Pool::destroy(path).unwrap_err().kind(), Kind::Busy);
        let (pool, realm) = attach(path, Mode::ReadWrite);
        assert_eq!(Pool::destroy(path).unwrap_err().kind(), Kind::Busy);
        assert_eq!(read(&realm, "b"), filled(2, 2, 5000));
        pool.close();
        viewing.line.say(2);
        viewing.line.expect(3);
        viewing.kill();
        Pool::destroy(path).unwrap();
        assert!(!path.exists());
        assert_eq!(Pool::destroy(path).unwrap_err().kind(), Kind::NotFound);
    });
}

/// A process killed while it makes and removes namespaces leaves nothing that the next one does
/// not clear away.
#[test]
fn namespaces_that_were_left_half_made_or_half_removed_are_cleared_away() {
    alone("namespaces_that_were_left_half_made_or_half_removed_are_cleared_away", || {
        let mut random = crate::common::Random(crate::common::seed());
        let fixture = Fixture::new(16 << 20);
        let path = &fixture.path;
        for _ in 0..40 {
            let maker = fork(|line| {
                for round in 0_u64.. {
                    let name = format!("n{}", round % 3);
                    match fixture.pool.create_namespace(&name, 0o700, None, None) {
                        Ok(realm) => drop(put(&realm, "a", &filled(round, 1, 5000))),
                        Err(error) => assert_eq!(error.kind(), Kind::Exists, "{error}"),
                    }
                    line.say(round);
                    if round % 2 == 0 {
                        fixture.pool.remove_namespace(&name).unwrap();
                    }
                }
            });
            for round in 0..=random.below(4) {
                maker.line.expect(round);
            }
            (0..random.below(100_000)).for_each(|_| std::hint::spin_loop());
            maker.kill();
        }
        for name in ["n0", "n1", "n2"] {
            let made = fixture.pool.create_namespace(name, 0o700, None, None);
            assert!(made.is_ok() || made.is_err_and(|error| error.kind() == Kind::Exists));
            fixture.pool.remove_namespace(name).unwrap();
        }
        let list = |dir: &Path| -> Vec<_> {
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(list(&path.join("ns")), ["default"]);
        assert_eq!(list(&path.join(fixture.pool.uuid())), ["default"]);
        sound(path);
    });
}

#[test]
fn a_mode_that_lets_all_others_write_is_refused() {
    let fixture = Fixture::new(16 << 20);
    for mode in [0o777, 0o707, 0o702] {
        let refused = fixture.pool.create_namespace("x", mode, None, None).err().unwrap();
        assert_eq!(refused.kind(), Kind::Argument, "{refused}");
        assert!(refused.message().contains(&format!("{:#o}", mode & !0o002)), "{refused}");
    }
    assert_eq!(fixture.pool.namespaces().unwrap().len(), 1);
    fixture.pool.create_namespace("x", 0o775, None, None).unwrap();
}
