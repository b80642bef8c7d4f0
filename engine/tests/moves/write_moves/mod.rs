//! Plain changes of what another living process moves to and fro between two scopes: none is lost,
//! none is done twice, and none leaves a name or an object in two scopes.
//!
//! One process shares and unshares a group of 110 arrays again and again. Others change what is in
//! it, and the group itself, each in one way (`kinds`), each with names of its own. A writer is
//! stopped at any instant until a move has gone by, so that a look at the one scope and the write
//! to it often have a whole move between them.

mod kinds;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::moves::{homes, names};
use crate::common::{
    Fixture, Line, OVER, Peer, Random, alone, attach, deadline, filled, floats, fork, seed, sound,
};
use engram::{Kind, Member, Mode, Namespace, Realm, Scope};
use kinds::{Change, GROUP, KINDS, Model};

use Scope::{Private, Published, Shared};

/// How many arrays move.
const ARRAYS: usize = 110;
/// How long a writer stands still at most, if the mover has to wait for it.
const STILL: Duration = Duration::from_millis(60);

fn number(board: &File, place: usize) -> u64 {
    let mut word = [0; 8];
    board.read_exact_at(&mut word, place as u64 * 8).expect("the board");
    u64::from_le_bytes(word)
}

fn count(board: &File, place: usize) {
    let more = number(board, place) + 1;
    board.write_all_at(&more.to_le_bytes(), place as u64 * 8).expect("the board");
}

/// Moves the group until told to end.
fn move_on(path: &Path, board: &File, line: &Line) {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    let (root, mut at) = (namespace.root(), Shared);
    line.say(0);
    while !line.is_ready() {
        let to = if at == Shared { Private } else { Shared };
        match namespace.transfer(root, GROUP, &[at], to) {
            Ok(_) => {
                at = to;
                count(board, 0);
            }
            Err(error) => assert_eq!(error.kind(), Kind::Busy, "the mover: {error}"),
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Whether a change was refused as it may be, so that nothing of it has happened.
fn is_refusal(tag: &str, error: &engram::Error) -> bool {
    // A shared member lies in no private group: one that is renamed into such a group stays where
    // it is.
    let private = tag == "rename-into" && error.kind() == Kind::Argument;
    error.kind() == Kind::Busy || (private && error.message().contains("cannot lie in"))
}

/// Changes until told to end; then, when told that the mover stands still, looks at all of it.
fn write_on(
    path: &Path,
    board: &File,
    place: usize,
    tag: &'static str,
    change: Change,
    line: &Line,
) {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    let mut model = Model::new(tag, place as u64);
    let mut random = Random(seed() ^ place as u64);
    let told = |what: String| panic!("{tag}: {what}; there is {:?}", names_of(&namespace, tag));
    line.say(0);
    for n in 1.. {
        if line.is_ready() {
            break;
        }
        let before = model.clone();
        match change(&namespace, &mut model, n) {
            Ok(()) => count(board, place),
            Err(error) if is_refusal(tag, &error) => model = before.clone(),
            Err(error) => told(format!("{error} (change {n})")),
        }
        model.check_change(&before, &namespace).unwrap_or_else(told);
        if n % 16 == 0 {
            model.check(&namespace).unwrap_or_else(told);
        }
        std::thread::sleep(Duration::from_micros(random.below(300)));
    }
    line.expect(1);
    model.check(&namespace).unwrap_or_else(told);
    line.say(2);
    line.expect(3);
    model.check(&namespace).unwrap_or_else(told);
}

/// A namespace with the group that moves, and the private realm that it moves to.
fn begin() -> Fixture {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    for place in 0..ARRAYS {
        let path = format!("{GROUP}/a{place}");
        let (new, data) = (floats(&[5]), filled(9, place as u64 + 1, 5));
        namespace.put(namespace.root(), &path, &new, &data, OVER).expect("an array");
    }
    namespace.realm_of(Private, true).expect("a realm");
    drop(namespace);
    fixture.pool.close();
    fixture
}

/// Stops each writer in turn at any instant, and lets moves go by, so often.
fn disturb(writers: &[Peer], board: &File, rounds: usize) -> bool {
    let mut random = Random(seed());
    for round in 0..rounds * writers.len() {
        let writer = &writers[round % writers.len()];
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        if writers.iter().any(|writer| writer.line.is_ready()) {
            return false;
        }
        writer.stop();
        let (moves, until) = (number(board, 0) + 1 + random.below(2), Instant::now() + STILL);
        while number(board, 0) < moves && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
        writer.signal(libc::SIGCONT);
    }
    true
}

/// The names of objects and of true groups that a realm has, each with what it leads to.
fn names_in(realm: &Realm) -> BTreeMap<String, Member> {
    let (mut found, mut open) = (BTreeMap::new(), vec![(realm.root(), String::new())]);
    while let Some((gid, prefix)) = open.pop() {
        // It may be gone by now, where others move it still.
        for (name, member) in realm.list(gid, None, usize::MAX).unwrap_or_default() {
            let path = format!("{prefix}/{name}");
            if let Member::Group(inner) = member {
                open.push((inner, path.clone()));
            }
            found.insert(path, member);
        }
    }
    found
}

/// What each realm has under a writer's names.
fn names_of(namespace: &Namespace, tag: &str) -> Vec<(Scope, String, Member)> {
    let mut all = Vec::new();
    for scope in Scope::ALL {
        let Ok(Some(realm)) = namespace.realm_of(scope, false) else { continue };
        let named = names_in(&realm).into_iter().filter(|(path, _)| path.contains(tag));
        all.extend(named.map(|(path, member)| (scope, path, member)));
    }
    all
}

/// Nothing is in two scopes, all of the group is there, and it can be moved anywhere still.
fn whole_and_mobile(path: &Path) {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    let root = namespace.root();
    assert_eq!(namespace.leaving().expect("marks"), 0, "something is on its way, by nobody");
    homes(&namespace);
    let mut paths: HashMap<String, (Scope, Member)> = HashMap::new();
    for scope in Scope::ALL {
        let Some(realm) = namespace.realm_of(scope, false).expect("realms") else { continue };
        for (path, member) in names_in(&realm) {
            let Some((other, there)) = paths.insert(path.clone(), (scope, member)) else {
                continue;
            };
            let one = there == member && matches!(member, Member::Group(_));
            assert!(one, "{path} is {there:?} in {other:?}, and {member:?} in {scope:?}");
        }
    }
    let gid = namespace.lookup(root, GROUP).expect("a look-up").expect("the group").id();
    let arrays = |namespace: &Namespace| {
        let all = namespace.list(gid, None, usize::MAX).expect("a listing");
        all.iter()
            .filter(|(name, _)| name.strip_prefix('a').is_some_and(|n| n.parse::<u64>().is_ok()))
            .count()
    };
    assert_eq!(arrays(&namespace), ARRAYS);
    for (from, to) in [(Shared, Private), (Private, Shared), (Shared, Published)] {
        namespace.transfer(root, GROUP, &[from], to).expect("a move");
        assert_eq!(arrays(&namespace), ARRAYS);
    }
    let left = |(_, scope): (_, Scope)| scope != Published;
    let homes = homes(&namespace).into_iter();
    let named = homes.filter(|(oid, _)| {
        namespace.path_of(Member::Object(*oid)).expect("a path").starts_with(GROUP)
    });
    assert_eq!(named.filter(|home| left(*home)).count(), 0, "some of it has not moved");
    drop(namespace);
    pool.close();
    sound(path);
}

/// Has writers of these kinds meet the mover, each of them stopped so often.
fn meet(test: &str, kinds: &[(&'static str, Change)], rounds: usize) {
    alone(test, || {
        let fixture = begin();
        let path = &fixture.path;
        let board = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(fixture.dir.path().join("board"))
            .expect("a board");
        board.write_all_at(&vec![0; 8 * (kinds.len() + 1)], 0).expect("the board");
        let board = &board;
        let mover = fork(|line| move_on(path, board, line));
        let begin = |(at, (tag, change))| {
            fork(move |line| write_on(path, board, at + 1, tag, change, line))
        };
        let writers: Vec<Peer> = kinds.iter().copied().enumerate().map(begin).collect();
        std::iter::once(&mover).chain(&writers).for_each(|peer| peer.line.expect(0));
        let until = deadline();
        let mut well = disturb(&writers, board, rounds);
        let few = || (0..=kinds.len()).any(|place| number(board, place) < 20);
        while well && few() && !mover.line.is_ready() {
            assert!(Instant::now() < until, "too few changes, or moves");
            std::thread::sleep(Duration::from_millis(1));
            well = !writers.iter().any(|writer| writer.line.is_ready());
        }
        let mut failed = Vec::new();
        for (writer, (tag, _)) in writers.iter().zip(kinds) {
            if !writer.line.is_ready() {
                writer.line.say(1);
            }
            if writer.line.hear_if_any() != Some(2) {
                failed.push(*tag);
            }
        }
        if mover.line.is_ready() {
            failed.push("the mover");
        }
        assert!(failed.is_empty(), "failed: {failed:?}");
        mover.line.say(1);
        mover.finish();
        for writer in writers {
            writer.line.say(3);
            writer.finish();
        }
        let counts: Vec<u64> = (0..=kinds.len()).map(|place| number(board, place)).collect();
        println!("moves, and changes by each writer: {counts:?}");
        whole_and_mobile(path);
    });
}

/// One kind of change at a time, so that a failure says which.
fn meet_one(test: &str, tag: &str) {
    let kind = KINDS.into_iter().find(|(known, _)| *known == tag).expect("a kind");
    meet(test, &[kind], 40);
}

#[test]
fn put_over_meets_moves() {
    meet_one("put_over_meets_moves", "put-over");
}

#[test]
fn put_new_meets_moves() {
    meet_one("put_new_meets_moves", "put-new");
}

#[test]
fn allocate_meets_moves() {
    meet_one("allocate_meets_moves", "allocate");
}

#[test]
fn zeros_meets_moves() {
    meet_one("zeros_meets_moves", "zeros");
}

#[test]
fn batch_meets_moves() {
    meet_one("batch_meets_moves", "batch");
}

#[test]
fn delete_meets_moves() {
    meet_one("delete_meets_moves", "delete");
}

#[test]
fn rename_meets_moves() {
    meet_one("rename_meets_moves", "rename");
}

#[test]
fn rename_into_meets_moves() {
    meet_one("rename_into_meets_moves", "rename-into");
}

#[test]
fn attribute_meets_moves() {
    meet_one("attribute_meets_moves", "attribute");
}

#[test]
fn attribute_gone_meets_moves() {
    meet_one("attribute_gone_meets_moves", "attribute-gone");
}

#[test]
fn group_attribute_meets_moves() {
    meet_one("group_attribute_meets_moves", "group-attribute");
}

#[test]
fn group_attribute_gone_meets_moves() {
    meet_one("group_attribute_gone_meets_moves", "group-attribute-gone");
}

#[test]
fn replace_meets_moves() {
    meet_one("replace_meets_moves", "replace");
}

#[test]
fn read_only_meets_moves() {
    meet_one("read_only_meets_moves", "read-only");
}

#[test]
fn group_meets_moves() {
    meet_one("group_meets_moves", "group");
}

#[test]
fn group_gone_meets_moves() {
    meet_one("group_gone_meets_moves", "group-gone");
}

#[test]
fn all_kinds_meet_moves_at_once() {
    meet("all_kinds_meet_moves_at_once", &KINDS, 6);
}
