//! Several processes that move the same group between scopes again and again: each move is done, or
//! refused, and then another was at it; and nothing of the group is lost, or in two scopes.

use std::path::Path;

use crate::common::moves::{homes, names};
use crate::common::{
    Fixture, Line, OVER, Random, alone, attach, filled, floats, fork, seed, sound,
};
use engram::{Kind, Member, Mode, Namespace, Scope};

use Scope::{Private, Published, Shared};

const MOVES: u64 = 60;
const ARRAYS: u64 = 12;
/// Groups that have nothing in them move as others do.
const EMPTY: [&str; 3] = ["m/empty", "m/inner/empty", "m/empty/deeper"];

/// What a program calls, the scopes from which it moves, and the one to which.
type Call = (&'static str, &'static [Scope], Scope);

const SHARING: &[Call] = &[("share", &[Private], Shared), ("unshare", &[Shared], Private)];
const PUBLISHING: &[Call] = &[
    ("share", &[Private], Shared),
    ("publish", &[Private, Shared], Published),
    ("unpublish", &[Published], Shared),
    ("publish", &[Private, Shared], Published),
    ("unpublish", &[Published], Private),
];

fn make(namespace: &Namespace) {
    let root = namespace.root();
    for place in 0..ARRAYS {
        let path = format!("m/{}a{place}", if place % 2 == 0 { "" } else { "inner/" });
        let words = if place % 3 == 0 { 300 } else { 5 };
        let data = filled(place, 1, words);
        namespace.put(root, &path, &floats(&[words as u64]), &data, OVER).expect("an array");
    }
    for path in EMPTY {
        namespace.create_group(root, path, &[], b"", true, None).expect("a group");
    }
    namespace.realm_of(Private, true).expect("a realm");
}

/// All of it, by path.
fn seen(namespace: &Namespace) -> Vec<(String, Member)> {
    let (mut all, mut open) = (Vec::new(), vec![(namespace.root(), String::new())]);
    while let Some((gid, prefix)) = open.pop() {
        for (name, member) in namespace.list(gid, None, usize::MAX).expect("a listing") {
            let path = format!("{prefix}{name}");
            if let Member::Group(inner) = member {
                open.push((inner, format!("{path}/")));
            }
            all.push((path, member));
        }
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn move_on(path: &Path, line: &Line, mut random: Random, calls: &[Call], moves: u64) {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    let (root, before) = (namespace.root(), seen(&namespace));
    line.expect(0);
    let (mut done, mut calls) = (0, calls.iter().cycle());
    while done < moves {
        let (call, from, to) = calls.next().expect("they go round");
        let what = if random.below(4) == 0 { "m/inner" } else { "m" };
        match namespace.transfer(root, what, from, *to) {
            Ok(_) => done += 1,
            // Another is at it; or it is, by then, where the call does not move it from.
            Err(error) => {
                let stays = error.message().contains("and stays so");
                let fits = error.kind() == Kind::Busy || (error.kind() == Kind::Argument && stays);
                assert!(fits, "{call} {what}: {error}");
            }
        }
        assert_eq!(seen(&namespace), before, "after {call} {what}");
        std::thread::sleep(std::time::Duration::from_micros(random.below(400)));
    }
}

fn meet(test: &str, movers: u64, calls: &[Call], moves: u64) {
    alone(test, || {
        let fixture = Fixture::new(64 << 20);
        let path = &fixture.path;
        let namespace = names(&fixture.pool);
        make(&namespace);
        let before = seen(&namespace);
        drop(namespace);
        fixture.pool.close();
        let mut random = Random(seed());
        let movers: Vec<_> = (0..movers)
            .map(|_| {
                let seed = random.next();
                fork(|line| move_on(path, line, Random(seed), calls, moves))
            })
            .collect();
        for mover in &movers {
            mover.line.say(0);
        }
        movers.into_iter().for_each(crate::common::Peer::finish);
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        assert_eq!(seen(&namespace), before);
        assert_eq!(homes(&namespace).len() as u64, ARRAYS);
        drop(namespace);
        pool.close();
        sound(path);
    });
}

#[test]
fn two_that_share_and_unshare_the_same_meet() {
    let test = "two_that_share_and_unshare_the_same_meet";
    meet(test, 2, SHARING, MOVES);
}

#[test]
fn three_that_share_and_unshare_the_same_meet() {
    let test = "three_that_share_and_unshare_the_same_meet";
    meet(test, 3, SHARING, MOVES);
}

#[test]
fn four_that_publish_and_unpublish_the_same_meet() {
    let test = "four_that_publish_and_unpublish_the_same_meet";
    meet(test, 4, PUBLISHING, MOVES / 2);
}
