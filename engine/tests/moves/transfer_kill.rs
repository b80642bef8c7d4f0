//! Moves whose process is killed at every step: nothing is lost, nothing is there twice, and all of
//! a move is on one side.
#![cfg(feature = "faults")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{
    Fixture, KEEP, alone, attach, die_at_step, filled, floats, fork, put, sound, wait_for,
};
use engram::{
    Kind, Member, Mode, Namespace, Oid, Payload, Pool, QueryOptions, Scope, Value, faults, query,
};

const SCOPES: [Scope; 3] = Scope::ALL;

/// How often everything is done: `make crash` asks for more.
fn rounds() -> u64 {
    let asked = std::env::var("ENGRAM_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(1)
}

fn view(pool: &Pool) -> Namespace {
    pool.namespace("default").unwrap()
}

/// What is there: paths, identities and contents, whatever the scope.
fn all(namespace: &Namespace) -> Vec<(String, u64, u64)> {
    let (mut found, mut open) = (Vec::new(), vec![namespace.root()]);
    while let Some(gid) = open.pop() {
        for (_, member) in namespace.list(gid, None, usize::MAX).unwrap() {
            let sum = match member {
                Member::Group(inner) => {
                    open.push(inner);
                    0
                }
                Member::Object(oid) => sum(&contents(namespace, oid)),
            };
            found.push((namespace.path_of(member).unwrap(), member.id(), sum));
        }
    }
    found.sort();
    found
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
}

fn contents(namespace: &Namespace, oid: Oid) -> Vec<u8> {
    match namespace.payload(oid).unwrap().0 {
        Payload::Inline(bytes) => bytes,
        Payload::Extent(view) => crate::common::contents(&view),
    }
}

fn move_run(namespace: &Namespace, from: Scope, to: Scope) {
    namespace.transfer(namespace.root(), "run", &[from], to).unwrap();
}

/// A small tree in one scope.
fn begin(path: &Path, from: Scope) -> Vec<(String, u64, u64)> {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = view(&pool);
    let made = if from == Scope::Published { Scope::Shared } else { from };
    let realm = namespace.realm_of(made, true).unwrap().unwrap();
    let attrs = vec![("orbit".to_owned(), Value::text("seven"))];
    realm.create_group(realm.root(), "run/deep", &attrs, b"", false).unwrap();
    for (name, words) in [("run/inline", 9usize), ("run/large", 9000), ("run/deep/huge", 90_000)] {
        let new = engram::NewObject { attrs: attrs.clone(), ..floats(&[words as u64]) };
        realm.put(realm.root(), name, &new, &filled(words as u64, 1, words), KEEP).unwrap();
    }
    if from == Scope::Published {
        move_run(&namespace, Scope::Shared, Scope::Published);
    }
    all(&namespace)
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Moves in a process that dies at its `nth` step; whether it came so far.
fn die_moving(path: &Path, from: Scope, to: Scope, nth: u64) -> bool {
    let mut mover = fork(|_| {
        faults::on_step(move |_| {
            if COUNTING.load(Ordering::SeqCst) && STEPS.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                // SAFETY: ends this process, and never returns.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = view(&pool);
        COUNTING.store(true, Ordering::SeqCst);
        move_run(&namespace, from, to);
        COUNTING.store(false, Ordering::SeqCst);
    });
    let status = mover.wait();
    assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0, "{status:#x}");
    libc::WIFSIGNALED(status)
}

/// Which scope all objects have.
fn side(namespace: &Namespace, there: &[(String, u64, u64)]) -> Scope {
    let objects = there.iter().filter(|(_, _, sum)| *sum != 0);
    let scopes: Vec<Scope> =
        objects.map(|(_, oid, _)| namespace.scope_of(Member::Object(*oid)).unwrap()).collect();
    assert!(scopes.windows(2).all(|two| two[0] == two[1]), "a move is on two sides: {scopes:?}");
    scopes[0]
}

fn killed_at_every_step(from: Scope, to: Scope) {
    for _ in 0..rounds() {
        killed_once_at_every_step(from, to);
    }
}

fn killed_once_at_every_step(from: Scope, to: Scope) {
    let fixture = Fixture::new(64 << 20);
    fixture.pool.close();
    let path = &fixture.path;
    let there = begin(path, from);
    assert_eq!(there.len(), 5);
    let (mut nth, mut stayed, mut went) = (1, 0, 0);
    while die_moving(path, from, to, nth) {
        // A reader ends nothing, and sees each once.
        let (pool, _) = attach(path, Mode::Read);
        assert_eq!(all(&view(&pool)), there, "{from:?} to {to:?}, before recovery, step {nth}");
        pool.close();
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = view(&pool);
        assert_eq!(all(&namespace), there, "{from:?} to {to:?}, step {nth}");
        assert_eq!(namespace.leaving().unwrap(), 0, "{from:?} to {to:?}, step {nth}");
        let at = side(&namespace, &there);
        if at == to {
            went += 1;
            move_run(&namespace, to, from);
            assert_eq!(side(&namespace, &there), from);
        } else {
            assert_eq!(at, from);
            stayed += 1;
        }
        for scope in [Scope::Private, Scope::Shared] {
            if let Some(realm) = namespace.realm_of(scope, false).unwrap() {
                let expected = if scope == from { (72_000 + 720_000u64).div_ceil(4096) } else { 0 };
                let used = realm.space().unwrap().used.div_ceil(4096);
                assert!(used <= expected + 2, "{scope:?} uses {used} pages after step {nth}");
            }
        }
        drop(namespace);
        pool.close();
        sound(path);
        nth += 1;
    }
    println!("{from:?} to {to:?}: {} kills, {stayed} stayed, {went} went", nth - 1);
    assert!(nth > 10 && stayed > 0 && went > 0, "the steps are on both sides of the move");
}

#[test]
fn a_share_that_dies_is_all_or_nothing() {
    alone("a_share_that_dies_is_all_or_nothing", || {
        killed_at_every_step(Scope::Private, Scope::Shared);
    });
}

#[test]
fn an_unshare_that_dies_is_all_or_nothing() {
    alone("an_unshare_that_dies_is_all_or_nothing", || {
        killed_at_every_step(Scope::Shared, Scope::Private);
    });
}

#[test]
fn a_publication_that_dies_is_all_or_nothing() {
    alone("a_publication_that_dies_is_all_or_nothing", || {
        killed_at_every_step(Scope::Shared, Scope::Published);
    });
}

#[test]
fn a_publication_of_ones_own_that_dies_is_all_or_nothing() {
    alone("a_publication_of_ones_own_that_dies_is_all_or_nothing", || {
        killed_at_every_step(Scope::Private, Scope::Published);
    });
}

#[test]
fn a_withdrawal_that_dies_is_all_or_nothing() {
    alone("a_withdrawal_that_dies_is_all_or_nothing", || {
        killed_at_every_step(Scope::Published, Scope::Shared);
    });
}

#[test]
fn a_withdrawal_to_oneself_that_dies_is_all_or_nothing() {
    alone("a_withdrawal_to_oneself_that_dies_is_all_or_nothing", || {
        killed_at_every_step(Scope::Published, Scope::Private);
    });
}

#[test]
fn who_meets_a_move_of_the_dead_ends_it() {
    alone("who_meets_a_move_of_the_dead_ends_it", || {
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let there = begin(path, Scope::Shared);
        let oid = there.iter().find(|(path, ..)| path == "run/large").unwrap().1;
        let (pool, shared) = attach(path, Mode::ReadWrite);
        let namespace = view(&pool);
        let mut mover = fork(|_| {
            faults::on_step(|step| {
                if step == "transfer.copied" {
                    // SAFETY: ends this process, and never returns.
                    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                }
            });
            let (pool, _) = attach(path, Mode::ReadWrite);
            move_run(&view(&pool), Scope::Shared, Scope::Private);
        });
        assert!(libc::WIFSIGNALED(mover.wait()));
        let refused = shared.view(oid, true).err().expect("the realm alone ends no move");
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        namespace.view(oid, true).expect("who was open before ends it");
        assert_eq!((namespace.leaving().unwrap(), all(&namespace)), (0, there));
        drop((namespace, shared));
        pool.close();
        sound(path);
    });
}

#[test]
fn what_is_on_its_way_is_read_and_not_changed() {
    alone("what_is_on_its_way_is_read_and_not_changed", || {
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let there = begin(path, Scope::Shared);
        let (at, go) = (fixture.dir.path().join("at"), fixture.dir.path().join("go"));
        let mover = fork(|_| {
            let (at, go) = (at.clone(), go.clone());
            faults::on_step(move |step| {
                if step == "transfer.copied" {
                    std::fs::write(&at, b"").unwrap();
                    wait_for(&go);
                }
            });
            let (pool, _) = attach(path, Mode::ReadWrite);
            move_run(&view(&pool), Scope::Shared, Scope::Private);
        });
        wait_for(&at);
        let (pool, shared) = attach(path, Mode::ReadWrite);
        let namespace = view(&pool);
        assert_eq!(all(&namespace), there, "it is read as ever");
        let root = namespace.root();
        let oid = crate::common::lookup(&shared, "run/large").unwrap();
        let inline = crate::common::lookup(&shared, "run/inline").unwrap();
        let generation = shared.object(inline).unwrap().generation;
        let attrs = [("a".to_owned(), Value::text("b"))];
        let batch = shared.batch().unwrap();
        shared.set_attrs(Member::Object(oid), &attrs).unwrap();
        let refusals = [
            batch.commit(),
            shared.delete(root, "run"),
            shared.delete(root, "run/deep/huge"),
            shared.rename(root, "run/large", root, "other"),
            shared.rename(root, "run", root, "other"),
            shared.set_attrs(Member::Object(oid), &attrs),
            shared.view(oid, true).map(|_| ()),
            shared.view(inline, true).map(|_| ()),
            shared.flush(oid),
            shared.replace_payload(inline, generation, &[0; 72]).map(|_| ()),
            crate::common::put_new(&shared, "run/large", &filled(1, 1, 9)).map(|_| ()),
            namespace.transfer(root, "run", &[Scope::Shared], Scope::Published).map(|_| ()),
        ];
        for (place, refused) in refusals.into_iter().enumerate() {
            let refused = refused.err().unwrap_or_else(|| panic!("change {place} is let pass"));
            let right = [Kind::Busy, Kind::Exists].contains(&refused.kind());
            assert!(right, "change {place}: {refused}");
        }
        // Nothing new comes into it, which would be left behind in sight of others.
        let late = crate::common::put_new(&shared, "run/late", &filled(5, 1, 9));
        assert_eq!(late.expect_err("it would stay here").kind(), Kind::Busy);
        std::fs::write(&go, b"").unwrap();
        mover.finish();
        assert_eq!(all(&namespace).len(), there.len());
        assert_eq!(namespace.scope_of(Member::Object(oid)).unwrap(), Scope::Private);
        drop((namespace, shared));
        pool.close();
        sound(path);
    });
}

/// Looks for the object in every way, and finds it once, as it is.
fn poll(namespace: &Namespace, oid: Oid) {
    let root = namespace.root();
    let found = namespace.lookup(root, "run/large").unwrap();
    assert_eq!(found, Some(Member::Object(oid)), "by its path");
    let Some(Member::Group(run)) = namespace.lookup(root, "run").unwrap() else {
        panic!("the group is not there")
    };
    let names = namespace.list(run, None, usize::MAX).unwrap();
    let large = names.iter().filter(|(name, member)| name == "large" && member.id() == oid);
    assert_eq!(large.count(), 1, "in a listing: {names:?}");
    assert_eq!(sum(&contents(namespace, oid)), sum(&filled(9000, 1, 9000)));
    let query = query::parse("orbit = \"seven\" and @name = \"large\"").unwrap();
    let answer = namespace.query(&query, &QueryOptions::default()).unwrap();
    assert_eq!(answer.oids, [oid], "by a query");
    let snapshot = namespace.snapshot(None).unwrap();
    let found = snapshot.lookup(root, "run/large").unwrap();
    assert_eq!(found, Some(Member::Object(oid)), "in a snapshot");
    assert_eq!(sum(&contents(&snapshot, oid)), sum(&filled(9000, 1, 9000)), "in a snapshot");
}

#[test]
fn who_looks_while_it_moves_finds_it_once() {
    alone("who_looks_while_it_moves_finds_it_once", || {
        let polls = 1500 * rounds();
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let there = begin(path, Scope::Shared);
        let oid = there.iter().find(|(path, ..)| path == "run/large").unwrap().1;
        let readers: Vec<_> = [Mode::Read, Mode::ReadWrite]
            .into_iter()
            .map(|mode| {
                fork(|line| {
                    let (pool, _) = attach(path, mode);
                    let namespace = view(&pool);
                    line.say(0);
                    for _ in 0..polls {
                        poll(&namespace, oid);
                    }
                    line.say(1);
                    line.expect(2);
                })
            })
            .collect();
        for reader in &readers {
            reader.line.expect(0);
        }
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = view(&pool);
        let (mut moves, mut at) = (0, Scope::Shared);
        while !readers.iter().all(|reader| reader.line.is_ready()) {
            let to = SCOPES[(moves % 3) as usize];
            if to != at {
                move_run(&namespace, at, to);
                at = to;
            }
            moves += 1;
        }
        println!("{moves} moves under {polls} polls of two readers");
        for reader in readers {
            reader.line.expect(1);
            reader.line.say(2);
            reader.finish();
        }
        drop(namespace);
        pool.close();
        sound(path);
    });
}

#[test]
fn who_opens_or_verifies_while_versions_come_and_go_finds_one() {
    alone("who_opens_or_verifies_while_versions_come_and_go_finds_one", || {
        const OPENINGS: u64 = 60;
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let there = begin(path, Scope::Published);
        let publisher = fork(|line| {
            let (pool, realm) = attach(path, Mode::ReadWrite);
            let namespace = view(&pool);
            // Once: one that replaced it would be another object, and the one that was listed gone.
            put(&realm, "more", &filled(3, 1, 300));
            while !line.is_ready() {
                for (from, to) in [(1, 2), (2, 1)] {
                    let (root, from) = (namespace.root(), [SCOPES[from]]);
                    namespace.transfer(root, "more", &from, SCOPES[to]).unwrap();
                }
            }
        });
        for _ in 0..OPENINGS {
            let (pool, _) = attach(path, Mode::Read);
            let mut found = all(&view(&pool));
            found.retain(|(path, ..)| path != "more");
            assert_eq!(found, there);
            pool.close();
            let report = engram::verify(path).unwrap();
            assert_eq!(report.problems, Vec::<String>::new());
        }
        publisher.line.say(0);
        publisher.finish();
    });
}

#[test]
fn who_publishes_after_a_death_tells_of_the_version_of_the_dead() {
    alone("who_publishes_after_a_death_tells_of_the_version_of_the_dead", || {
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let there = begin(path, Scope::Published);
        let (pool, _) = attach(path, Mode::Read);
        let namespace = view(&pool);
        let mut dying = fork(|_| {
            die_at_step("publish.renamed");
            let (pool, _) = attach(path, Mode::ReadWrite);
            move_run(&view(&pool), Scope::Published, Scope::Shared);
        });
        assert!(libc::WIFSIGNALED(dying.wait()));
        let stands = fixture.dir.path().join("stands");
        let next = fork(|_| {
            let stands = stands.clone();
            faults::on_step(move |step| {
                if step == "publish.begun" {
                    std::fs::write(&stands, b"").unwrap();
                    std::thread::sleep(std::time::Duration::from_secs(3600));
                }
            });
            let (pool, realm) = attach(path, Mode::ReadWrite);
            put(&realm, "more", &filled(1, 1, 9));
            let namespace = view(&pool);
            let (root, from) = (namespace.root(), [Scope::Shared]);
            namespace.transfer(root, "more", &from, Scope::Published).unwrap();
        });
        wait_for(&stands);
        let mut seen = all(&namespace.snapshot(None).unwrap());
        seen.retain(|(path, ..)| path != "more");
        assert_eq!(seen, there);
        next.kill();
        pool.close();
        sound(path);
    });
}

/// A private realm has its name before its maker tells of it. A process that knows of the shared
/// realm alone, and meets what has moved since, would make another group of the same name.
#[test]
fn a_realm_whose_maker_died_before_it_told_is_told_of_by_the_next() {
    alone("a_realm_whose_maker_died_before_it_told_is_told_of_by_the_next", || {
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let there = begin(path, Scope::Shared);
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = view(&pool);
        let mut maker = fork(|_| {
            die_at_step("private.found");
            let (pool, _) = attach(path, Mode::ReadWrite);
            let _ = view(&pool).realm_of(Scope::Private, true);
        });
        assert!(libc::WIFSIGNALED(maker.wait()));
        fork(|_| {
            let (pool, _) = attach(path, Mode::ReadWrite);
            move_run(&view(&pool), Scope::Shared, Scope::Private);
        })
        .finish();
        let run = namespace.lookup(namespace.root(), "run").unwrap();
        assert_eq!(run.map(Member::id), Some(there[0].1));
        let new = floats(&[9]);
        let more = namespace.put(namespace.root(), "run/more", &new, &filled(9, 1, 9), KEEP);
        assert_eq!(namespace.scope_of(Member::Object(more.unwrap())).unwrap(), Scope::Private);
        let mut seen = all(&namespace);
        seen.retain(|(path, ..)| path != "run/more");
        assert_eq!(seen, there);
        pool.close();
        sound(path);
    });
}

/// Its readers, and `verify`, see by its name whether what they miss has gone with it.
#[test]
fn an_older_version_loses_its_name_before_its_files_and_these_before_its_spans() {
    alone("an_older_version_loses_its_name_before_its_files_and_these_before_its_spans", || {
        let fixture = Fixture::new(64 << 20);
        let uuid = fixture.pool.uuid().to_owned();
        fixture.pool.close();
        let path = &fixture.path;
        begin(path, Scope::Published);
        let names = |folder: &Path| {
            let entries = std::fs::read_dir(folder).unwrap().flatten();
            let names = entries.map(|e| e.file_name().into_string().unwrap());
            names.filter(|name| !name.starts_with(".new-")).collect::<Vec<_>>()
        };
        let spans = path.join(uuid).join("default/published");
        let versions = path.join("ns/default/published");
        let older = names(&versions);
        fork(|_| {
            let met = std::sync::Arc::new(AtomicU64::new(0));
            let (told, spans, versions) = (met.clone(), spans.clone(), versions.clone());
            faults::on_step(move |step| {
                let now = || names(&versions);
                let right = match step {
                    "publish.unnamed" => !now().contains(&older[0]) && !names(&spans).is_empty(),
                    "publish.outdated" => now().len() == 1 && !names(&spans).is_empty(),
                    _ => return,
                };
                told.fetch_add(if right { 1 } else { 100 }, Ordering::Relaxed);
            });
            let (pool, _) = attach(path, Mode::ReadWrite);
            move_run(&view(&pool), Scope::Published, Scope::Shared);
            assert_eq!(met.load(Ordering::Relaxed), 2);
            pool.close();
        })
        .finish();
        assert_eq!((names(&spans).len(), names(&versions).len()), (0, 1));
        sound(path);
    });
}
