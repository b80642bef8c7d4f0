//! Watching: who sleeps is woken by a commit of any process, misses none, and costs writers nothing
//! once it is gone.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Fixture, KEEP, OVER, Peer, Random, alone, blob, deadline, fork, seed, sound};
use engram::query::parse;
use engram::{
    CreateOptions, DType, IndexMode, Kind, Member, Mode, Namespace, NewObject, Oid, Placement,
    Pool, QueryOptions, Scope, Value, WatchEnd, Watcher, faults,
};

const LONG: Option<Duration> = Some(Duration::from_secs(60));
const NOW: Option<Duration> = Some(Duration::ZERO);

fn number(value: i64) -> Value {
    let (dtype, data) = (DType::scalar(b'i', b'<', 8), value.to_le_bytes().to_vec());
    Value { dtype, shape: Vec::new(), data }
}

fn with_step(step: i64) -> NewObject {
    NewObject { attrs: vec![("step".to_owned(), number(step))], ..blob() }
}

fn put(namespace: &Namespace, path: &str, new: &NewObject) -> Oid {
    namespace.put(namespace.root(), path, new, b"value", OVER).expect("put")
}

fn open(path: &Path) -> (Pool, Namespace) {
    let pool = Pool::open(path, Mode::ReadWrite, true).expect("an open pool");
    let namespace = pool.namespace("default").expect("the default namespace");
    (pool, namespace)
}

fn watch(namespace: &Namespace, query: &str) -> Watcher {
    watch_with(namespace, query, &QueryOptions::default(), false).expect("a watcher")
}

fn watch_with(
    namespace: &Namespace,
    query: &str,
    options: &QueryOptions,
    existing: bool,
) -> engram::Result<Watcher> {
    namespace.watch(&parse(query).expect("a query"), options, existing)
}

/// Waits for something, and takes it.
fn next(watcher: &Watcher) -> Vec<Oid> {
    let end = watcher.wait(LONG, watcher.calls(), &mut |_| Ok(())).expect("a wait");
    assert_eq!(end, WatchEnd::Hits);
    watcher.take(usize::MAX).expect("hits")
}

/// What is there without waiting.
fn now(watcher: &Watcher) -> Vec<Oid> {
    watcher.wait(NOW, watcher.calls(), &mut |_| Ok(())).expect("a look");
    watcher.take(usize::MAX).expect("hits")
}

/// A process that watches, and says each hit; 0 each time before it sleeps.
fn watching(path: &Path, query: &str) -> Peer {
    let peer = fork(|line| {
        let told = line.another();
        faults::on_step(move |at| {
            if at == "bell.sleeping" {
                told.say(0);
            }
        });
        let (_pool, namespace) = open(path);
        let watcher = watch(&namespace, query);
        line.say(1);
        loop {
            for oid in next(&watcher) {
                line.say(oid);
            }
        }
    });
    peer.line.expect(1);
    peer.line.expect(0);
    peer
}

/// The next hit that a watching process says.
fn said(peer: &Peer) -> Oid {
    loop {
        match peer.line.hear() {
            0 => {}
            oid => return oid,
        }
    }
}

/// Counts how often this process calls the kernel to wake somebody.
fn count_calls() -> Arc<AtomicU64> {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    faults::on_step(move |at| {
        if at == "bell.rung" {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    calls
}

/// A thousand rounds, each of which would take a second if the bell did not wake.
#[test]
fn a_watcher_is_woken_by_commits_of_another_process() {
    alone("a_watcher_is_woken_by_commits_of_another_process", || {
        let fixture = Fixture::new(32 << 20);
        let peer = watching(&fixture.path, "exists(step)");
        let (_pool, namespace) = open(&fixture.path);
        for round in 0..1000 {
            put(&namespace, "other", &blob());
            let oid = put(&namespace, "a", &with_step(round));
            assert_eq!(said(&peer), oid);
        }
        // Nothing is committed for longer than a heartbeat, and what comes then is heard.
        for _ in 0..2 {
            peer.line.expect(0);
        }
        let oid = put(&namespace, "a", &with_step(0));
        assert_eq!(said(&peer), oid);
    });
}

#[test]
fn who_is_dead_or_stands_still_costs_a_writer_one_call_at_most() {
    alone("who_is_dead_or_stands_still_costs_a_writer_one_call_at_most", || {
        let fixture = Fixture::new(32 << 20);
        let (_pool, namespace) = open(&fixture.path);
        let peers: Vec<Peer> = (0..3).map(|_| watching(&fixture.path, "exists(step)")).collect();
        for peer in &peers {
            peer.stop();
        }
        let calls = count_calls();
        let before = calls.load(Ordering::SeqCst);
        let put_many = || -> Vec<Oid> {
            (0..200).map(|step| put(&namespace, &format!("s{step}"), &with_step(step))).collect()
        };
        let oids = put_many();
        assert!(calls.load(Ordering::SeqCst) <= before + 1, "those that stand still cost calls");
        let mut peers = peers.into_iter();
        let gone_on = peers.next().expect("a peer");
        gone_on.signal(libc::SIGCONT);
        let mut told: Vec<Oid> = oids.iter().map(|_| said(&gone_on)).collect();
        told.sort_unstable();
        assert_eq!(told, oids, "one that goes on has missed something");
        gone_on.kill();
        peers.for_each(Peer::kill);
        put(&namespace, "once", &blob());
        let before = calls.load(Ordering::SeqCst);
        put_many();
        assert_eq!(calls.load(Ordering::SeqCst), before, "the dead cost calls");
    });
}

#[test]
fn a_commit_whose_writer_dies_before_it_rings_is_seen() {
    alone("a_commit_whose_writer_dies_before_it_rings_is_seen", || {
        let fixture = Fixture::new(32 << 20);
        let (path, (_pool, namespace)) = (fixture.path.clone(), open(&fixture.path));
        let watcher = watch(&namespace, "exists(step)");
        let (slept, dies): &(AtomicU64, Mutex<&str>) = Box::leak(Box::default());
        faults::on_step(|at| {
            if at == "bell.sleeping" {
                slept.fetch_add(1, Ordering::SeqCst);
            } else if *dies.lock().expect("a word") == at {
                // SAFETY: ends this process, and never returns.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        for step in ["commit.changed", "commit.made", "bell.raised", "bell.rung"] {
            thread::scope(|scope| {
                let before = slept.load(Ordering::SeqCst);
                let hits = scope.spawn(|| next(&watcher));
                let until = deadline();
                while slept.load(Ordering::SeqCst) == before {
                    assert!(Instant::now() < until);
                    thread::yield_now();
                }
                let mut writer = fork(|_| {
                    let (_pool, namespace) = open(&path);
                    *dies.lock().expect("a word") = step;
                    put(&namespace, "dies", &with_step(1));
                });
                assert!(libc::WIFSIGNALED(writer.wait()), "{step} is not reached");
                let there = namespace.lookup(namespace.root(), "dies").expect("a look-up");
                assert_eq!(there.is_some(), step != "commit.changed");
                let expected = match there {
                    Some(member) => member.id(),
                    // It never was: the watcher sleeps on, and hears of the next.
                    None => put(&namespace, "lives", &with_step(1)),
                };
                assert_eq!(hits.join().expect("no panic"), [expected], "{step}");
            });
        }
    });
}

#[test]
fn what_begins_to_match_is_given_once_and_what_goes_on_is_not() {
    let fixture = Fixture::new(32 << 20);
    let (_pool, namespace) = open(&fixture.path);
    let root = namespace.root();
    let first = put(&namespace, "g/first", &with_step(1));
    let bare = put(&namespace, "bare", &blob());
    let all = watch_with(&namespace, "exists(step)", &QueryOptions::default(), true).expect("it");
    assert_eq!(next(&all), [first], "what is there already was asked for");
    let watcher = watch(&namespace, "step >= 1");
    assert_eq!(now(&watcher), []);
    let set = |oid, step| {
        namespace.set_attrs(Member::Object(oid), &[("step".to_owned(), number(step))]).expect("it");
    };
    set(bare, 2);
    assert_eq!(next(&watcher), [bare], "an attribute makes an object match");
    set(bare, 3);
    assert_eq!(now(&watcher), [], "it matches as before");
    set(bare, 0);
    assert_eq!(now(&watcher), []);
    set(bare, 4);
    assert_eq!(now(&watcher), [bare], "it matches again");
    set(bare, 0);
    set(bare, 4);
    assert_eq!(now(&watcher), [], "no look has seen it not match");
    let replaced = put(&namespace, "bare", &with_step(9));
    assert_eq!(now(&watcher), [replaced], "another object");
    namespace.delete(root, "bare").expect("it");
    assert_eq!(now(&watcher), []);
    let again = put(&namespace, "bare", &with_step(9));
    assert_eq!(now(&watcher), [again], "another of the same name");
    namespace.delete_attr(Member::Object(again), "step").expect("it");
    assert_eq!(now(&watcher), []);
}

#[test]
fn groups_paths_and_names_are_watched_as_well() {
    let fixture = Fixture::new(32 << 20);
    let (_pool, namespace) = open(&fixture.path);
    let root = namespace.root();
    let one = put(&namespace, "a/b/one", &blob());
    let under = watch(&namespace, "under('c')");
    let named = watch(&namespace, "@name = 'two'");
    let run = watch(&namespace, "group.run = 7");
    let a = namespace.lookup(root, "a").expect("it").expect("it").id();
    let below = QueryOptions { root: Some(a), ..QueryOptions::default() };
    let scoped = watch_with(&namespace, "", &below, false).expect("a watcher");
    put(&namespace, "elsewhere", &blob());
    assert_eq!(now(&scoped), [], "it is not below the group");
    let two = put(&namespace, "a/other", &blob());
    assert_eq!(now(&scoped), [two]);
    namespace.rename(root, "a/other", root, "a/two").expect("it");
    assert_eq!((now(&named), now(&scoped)), (vec![two], vec![]));
    namespace.set_attrs(Member::Group(a), &[("run".to_owned(), number(7))]).expect("it");
    assert_eq!(now(&run), [one, two], "an attribute of the group above");
    namespace.rename(root, "a/b", root, "c").expect("it");
    assert_eq!(now(&under), [one], "a group has moved");
    namespace.delete(root, "a").expect("it");
    let error = scoped.wait(NOW, 0, &mut |_| Ok(())).expect_err("the group is gone");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[test]
fn many_at_once_and_other_modes_of_the_index_are_given_whole() {
    let fixture = Fixture::new(64 << 20);
    let (_pool, namespace) = open(&fixture.path);
    let watcher = watch(&namespace, "exists(step)");
    let any = watch(&namespace, "@name contains 'x'");
    for many in [1, 2, 50, 96, 97, 3000] {
        let batch = namespace.batch().expect("a batch");
        let name = |at: usize| format!("x{many}-{at}");
        let oids: Vec<Oid> =
            (0..many).map(|at| put(&namespace, &name(at), &with_step(1))).collect();
        let busy = watcher.wait(NOW, 0, &mut |_| Ok(())).expect_err("a batch runs");
        assert_eq!(busy.kind(), Kind::Busy, "{busy}");
        batch.commit().expect("a commit");
        assert_eq!((next(&watcher), next(&any)), (oids.clone(), oids));
    }
    for mode in [IndexMode::Async, IndexMode::None] {
        let place = Placement { index: Some(mode), ..KEEP };
        let name = format!("x{mode:?}");
        let new = with_step(3);
        let oid = namespace.put(namespace.root(), &name, &new, b"value", place).expect("put");
        assert_eq!(now(&any), [oid]);
        // Without an index an object has no attributes that a query sees.
        assert_eq!(now(&watcher).len(), usize::from(mode == IndexMode::Async));
    }
}

#[test]
fn what_cannot_be_watched_is_refused_by_name() {
    let fixture = Fixture::new(32 << 20);
    let (pool, namespace) = open(&fixture.path);
    let options = QueryOptions::default();
    for query in ["exists(step) limit 3", "exists(step) order by step"] {
        let error = watch_with(&namespace, query, &options, false).err().expect("refused");
        assert_eq!(error.kind(), Kind::Argument, "{error}");
    }
    let snapshot = namespace.snapshot(None).expect("a snapshot");
    let error = watch_with(&snapshot, "exists(step)", &options, false).err().expect("refused");
    assert_eq!(error.kind(), Kind::Argument, "{error}");
    drop(snapshot);
    let watcher = watch(&namespace, "exists(step)");
    fork(|_| {
        let error = watcher.wait(NOW, 0, &mut |_| Ok(())).expect_err("the parent's");
        assert!(error.kind() == Kind::Argument && error.message().contains("fork"), "{error}");
        assert!(watcher.take(1).is_err());
        watcher.close();
        // Another one works here.
        let oid = put(&namespace, "child", &with_step(1));
        let own = watch_with(&namespace, "exists(step)", &QueryOptions::default(), true);
        assert_eq!(next(&own.expect("a watcher")), [oid]);
    })
    .finish();
    assert_eq!(next(&watcher).len(), 1);
    pool.close();
    let error = watcher.wait(LONG, 0, &mut |_| Ok(())).expect_err("closed");
    assert!(error.kind() == Kind::Argument && error.message().contains("closed"), "{error}");
}

#[test]
fn who_sleeps_is_woken_by_those_who_close_call_back_or_signal() {
    alone("who_sleeps_is_woken_by_those_who_close_call_back_or_signal", || {
        let fixture = Fixture::new(32 << 20);
        let (pool, namespace) = open(&fixture.path);
        let watcher = watch(&namespace, "exists(step)");
        let slept: &'static AtomicU64 = Box::leak(Box::default());
        faults::on_step(|at| {
            if at == "bell.sleeping" {
                slept.fetch_add(1, Ordering::SeqCst);
            }
        });
        let asleep = |work: &dyn Fn()| {
            let before = slept.load(Ordering::SeqCst);
            thread::scope(|scope| {
                let calls = watcher.calls();
                let watcher = &watcher;
                let end = scope.spawn(move || watcher_waits(watcher, calls));
                let until = deadline();
                while slept.load(Ordering::SeqCst) == before {
                    assert!(Instant::now() < until);
                    thread::yield_now();
                }
                work();
                end.join().expect("no panic")
            })
        };
        assert_eq!(asleep(&|| watcher.call_back()), Ok(WatchEnd::Called));
        assert_eq!(asleep(&|| _ = put(&namespace, "a", &with_step(1))), Ok(WatchEnd::Hits));
        watcher.take(9).expect("it");
        let before = watcher.calls();
        watcher.call_back();
        assert_eq!(watcher.wait(LONG, before, &mut |_| Ok(())), Ok(WatchEnd::Called));
        let stop = |_| Err(engram::Error::new(Kind::Os, "a signal that came before the sleep"));
        let ended = watcher.wait(LONG, watcher.calls(), &mut { stop });
        assert_eq!(ended.map_err(|error| error.kind()), Err(Kind::Os), "a heartbeat asks");
        assert_eq!(asleep(&|| watcher.close()), Ok(WatchEnd::Closed));
        assert_eq!(watcher.wait(LONG, before, &mut |_| Ok(())), Ok(WatchEnd::Closed));
        let watcher = watch(&namespace, "exists(step)");
        let end = thread::scope(|scope| {
            let end = scope.spawn(|| watcher_waits(&watcher, 0));
            pool.close();
            end.join().expect("no panic")
        });
        assert_eq!(end.map_err(|error| error.kind()), Err(Kind::Argument));
    });
}

fn watcher_waits(watcher: &Watcher, calls: u64) -> engram::Result<WatchEnd> {
    watcher.wait(LONG, calls, &mut |_| Ok(()))
}

#[test]
fn a_pool_that_is_removed_is_named_to_who_sleeps() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let path = dir.path().join("pool");
    let options = CreateOptions { size: 16 << 20, force: true, ..CreateOptions::default() };
    drop(Pool::create(&path, &options).expect("a pool"));
    let (_pool, namespace) = open(&path);
    let watcher = watch(&namespace, "exists(step)");
    let moved = dir.path().join("moved");
    std::fs::rename(&path, &moved).expect("another name");
    let (_other, through) = open(&moved);
    let oid = put(&through, "a", &with_step(1));
    assert_eq!(next(&watcher), [oid], "a pool that goes by another name is the same");
    std::fs::rename(&moved, &path).expect("its name");
    std::fs::remove_dir_all(&path).expect("removed");
    let error = watcher.wait(LONG, 0, &mut |_| Ok(())).expect_err("it is gone");
    assert_eq!(error.kind(), Kind::PoolGone, "{error}");
}

#[test]
fn what_comes_to_any_scope_that_one_sees_is_given() {
    alone("what_comes_to_any_scope_that_one_sees_is_given", || {
        let fixture = Fixture::new(64 << 20);
        let peer = watching(&fixture.path, "exists(step)");
        let (_pool, namespace) = open(&fixture.path);
        let root = namespace.root();
        let private = Placement { scope: Some(Scope::Private), ..KEEP };
        let mine = namespace.put(root, "mine", &with_step(1), b"v", private).expect("put");
        assert_eq!(said(&peer), mine, "a private realm has come");
        for round in 0..200 {
            let scope = if round % 2 == 0 { Scope::Private } else { Scope::Shared };
            let place = Placement { scope: Some(scope), ..KEEP };
            let path = format!("n{round}");
            let oid = namespace.put(root, &path, &with_step(round), b"v", place).expect("put");
            assert_eq!(said(&peer), oid);
        }
        let own = watch(&namespace, "exists(step)");
        let published = watch(&namespace, "@scope = 'published'");
        let moved = namespace.transfer(root, "n1", &[Scope::Shared], Scope::Published);
        moved.expect("published");
        assert_eq!(now(&published).len(), 1);
        assert_eq!(now(&own), [], "it was seen before it moved");
    });
}

/// What a writer has made match, as it says in a file: the id of an object, each time.
struct Log(File);

impl Log {
    fn say(&self, oid: Oid) {
        (&self.0).write_all(&oid.to_le_bytes()).expect("the log takes it");
    }
}

fn write_at_random(path: &Path, writer: u64, seed: u64, log: &Log) {
    let (_pool, namespace) = open(path);
    let (root, mut random) = (namespace.root(), Random(seed ^ writer));
    loop {
        let path = format!("w{writer}/g{}/{}", random.below(2), random.below(6));
        match random.below(10) {
            0..=3 => {
                let oid = put(&namespace, &path, &with_step(1));
                log.say(oid);
            }
            4 => drop(put(&namespace, &path, &blob())),
            5 => drop(namespace.delete(root, &path)),
            6 => {
                if let Ok(Some(Member::Object(oid))) = namespace.lookup(root, &path) {
                    let step = random.below(2) as i64 * 2 - 1;
                    log.say(oid);
                    let _ = namespace
                        .set_attrs(Member::Object(oid), &[("step".to_owned(), number(step))]);
                }
            }
            7 => {
                let to = format!("w{writer}/g{}/{}", random.below(2), random.below(6));
                drop(namespace.rename(root, &path, root, &to));
            }
            8 => {
                let (from, to) = (format!("w{writer}/g0"), format!("w{writer}/g{}", 7));
                drop(namespace.rename(root, &from, root, &to));
                drop(namespace.rename(root, &to, root, &from));
            }
            _ => {
                let batch = namespace.batch().expect("a batch");
                let many = 1 + random.below(120);
                let oids: Vec<Oid> = (0..many)
                    .map(|at| {
                        put(&namespace, &format!("w{writer}/g1/b{}", at % 130), &with_step(1))
                    })
                    .collect();
                if batch.commit().is_ok() {
                    for oid in oids {
                        log.say(oid);
                    }
                }
            }
        }
    }
}

/// A process that watches until it hears a word, and says then what it was given, in order.
fn watch_until_told(path: &Path) -> Peer {
    let peer = fork(|line| {
        let (_pool, namespace) = open(path);
        let watcher = watch(&namespace, "step > 0");
        line.say(1);
        let mut given = Vec::new();
        while !line.is_ready() {
            let short = Some(Duration::from_millis(20));
            watcher.wait(short, watcher.calls(), &mut |_| Ok(())).expect("a wait");
            given.extend(watcher.take(usize::MAX).expect("hits"));
        }
        given.extend(now(&watcher));
        line.say(given.len() as u64);
        for oid in given {
            line.say(oid);
        }
    });
    peer.line.expect(1);
    peer
}

/// Writers of which some are killed all the time, and watchers of which some are: each that lives
/// has seen all that there is in the end, and nothing more often than it came.
#[test]
fn watchers_have_seen_what_there_is_whatever_happens() {
    alone("watchers_have_seen_what_there_is_whatever_happens", || {
        let (fixture, seed) = (Fixture::new(128 << 20), seed());
        let log_path = fixture.dir.path().join("log");
        let appended = || File::options().append(true).create(true).open(&log_path).expect("a log");
        let mut random = Random(seed);
        let (pool, namespace) = open(&fixture.path);
        let early: Vec<Oid> =
            (0..20).map(|at| put(&namespace, &format!("early/{at}"), &with_step(1))).collect();
        let watchers: Vec<Peer> = (0..3).map(|_| watch_until_told(&fixture.path)).collect();
        let begin = |writer: u64, round: u64| {
            let log = Log(appended());
            fork(|_| write_at_random(&fixture.path, writer, seed.wrapping_add(round), &log))
        };
        let mut writers: Vec<Peer> = (0..3).map(|writer| begin(writer, 0)).collect();
        let mut killed = 0;
        for round in 1..30 {
            let doomed = watch_until_told(&fixture.path);
            thread::sleep(Duration::from_millis(random.below(60)));
            let at = random.below(3) as usize;
            let gone = std::mem::replace(&mut writers[at], begin(at as u64, round));
            gone.kill();
            doomed.kill();
            killed += 1;
        }
        for writer in writers {
            writer.kill();
            killed += 1;
        }
        let query = parse("step > 0").expect("a query");
        let last = namespace.query(&query, &QueryOptions::default()).expect("an answer").oids;
        let mut came: HashMap<Oid, u64> = HashMap::new();
        let mut bytes = Vec::new();
        File::open(&log_path).and_then(|mut log| log.read_to_end(&mut bytes)).expect("the log");
        for word in bytes.chunks_exact(8) {
            *came.entry(u64::from_le_bytes(word.try_into().expect("8 bytes"))).or_default() += 1;
        }
        for watcher in watchers {
            watcher.line.say(1);
            let count = watcher.line.hear();
            let given: Vec<Oid> = (0..count).map(|_| watcher.line.hear()).collect();
            let mut times: HashMap<Oid, u64> = HashMap::new();
            for oid in &given {
                *times.entry(*oid).or_default() += 1;
            }
            let missed: Vec<&Oid> = last
                .iter()
                .filter(|oid| !times.contains_key(oid) && !early.contains(oid))
                .collect();
            assert!(missed.is_empty(), "{} of {} were missed", missed.len(), last.len());
            let known: HashSet<Oid> = early.iter().copied().collect();
            assert!(given.iter().all(|oid| !known.contains(oid)), "what was there was given");
            // What a writer has made just before it was killed is in no log: a batch at most.
            let unlogged = times.keys().filter(|oid| !came.contains_key(oid)).count();
            assert!(unlogged <= killed * 120, "{unlogged} objects that nobody has made");
            let more = times.iter().find(|(oid, times)| came.get(oid).is_some_and(|c| c < times));
            assert_eq!(more, None, "given more often than it came");
            println!("{count} hits, {unlogged} of no log");
            watcher.finish();
        }
        drop((namespace, pool));
        sound(&fixture.path);
    });
}
