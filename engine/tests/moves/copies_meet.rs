//! Several processes that move one group between two pools and between scopes, and copy it: each
//! step is done, or refused because another is at it. In the end the group is in one of the pools,
//! whole, and each copy that anybody saw was whole.

use std::path::Path;

use crate::common::moves::{Quiet, names, value_of};
use crate::common::{
    Fixture, KEEP, Line, Random, alone, attach, filled, floats, fork, seed, sound,
};
use engram::{CopyOptions, CopyPlan, Error, Kind, Member, Mode, Namespace, Result, Scope};

const STEPS: u64 = 300;
const ARRAYS: u64 = 6;

fn words(place: u64) -> usize {
    if place.is_multiple_of(3) { 40_000 } else { 5 }
}

fn make(namespace: &Namespace) {
    for place in 0..ARRAYS {
        let path = format!("m/{}a{place}", if place.is_multiple_of(2) { "" } else { "inner/" });
        let words = words(place);
        let data = filled(place, 1, words);
        namespace.put(namespace.root(), &path, &floats(&[words as u64]), &data, KEEP).unwrap();
    }
}

/// Fails unless a group is there with all that is in it.
fn whole(namespace: &Namespace, path: &str) {
    let Some(Member::Group(group)) = namespace.lookup(namespace.root(), path).unwrap() else {
        panic!("{path} is no group")
    };
    for place in 0..ARRAYS {
        let inner = format!("{}a{place}", if place.is_multiple_of(2) { "" } else { "inner/" });
        let Some(Member::Object(oid)) = namespace.lookup(group, &inner).unwrap() else {
            panic!("{path} has no {inner}")
        };
        assert_eq!(value_of(namespace, oid), filled(place, 1, words(place)), "{path}/{inner}");
    }
}

fn put(from: &Namespace, to: &Namespace, name: &str) -> Result<CopyPlan> {
    let plan = CopyPlan::of(from, from.root(), "m")?;
    plan.put(to, to.root(), name, CopyOptions::default(), &mut Quiet)?;
    Ok(plan)
}

/// As the package does it.
fn move_away(from: &Namespace, to: &Namespace) -> Result<()> {
    let departure = from.begin_departure(from.root(), "m")?;
    let plan = match put(from, to, "m") {
        Err(error) if error.kind() == Kind::Exists => {
            let plan = CopyPlan::of(from, from.root(), "m")?;
            let there = CopyPlan::of(to, to.root(), "m")?;
            assert_eq!(plan.difference(&there)?, None, "two that differ");
            plan
        }
        done => done?,
    };
    departure.go(&plan)
}

/// Whether a refusal says that another was at it, or has it elsewhere by now.
fn meets(error: &Error) -> bool {
    matches!(error.kind(), Kind::Busy | Kind::NotFound) || error.message().contains("stays so")
}

fn act(pools: [&Path; 2], line: &Line, mut random: Random, number: u64) {
    let (one, _) = attach(pools[0], Mode::ReadWrite);
    let (other, _) = attach(pools[1], Mode::ReadWrite);
    let both = [names(&one), names(&other)];
    line.expect(0);
    for step in 0..STEPS {
        let at = random.below(2) as usize;
        let (from, to) = (&both[at], &both[1 - at]);
        let copy = format!("copy-{number}-{step}");
        let done = match random.below(4) {
            0 | 1 => move_away(from, to),
            2 => put(from, to, &copy).map(|_| {
                whole(to, &copy);
                to.delete(to.root(), &copy).unwrap();
            }),
            _ if random.below(2) == 0 => {
                from.transfer(from.root(), "m", &[Scope::Private], Scope::Shared).map(drop)
            }
            _ => from.transfer(from.root(), "m", &[Scope::Shared], Scope::Private).map(drop),
        };
        if let Err(error) = done {
            assert!(meets(&error), "step {step} of {number}: {error}");
        }
    }
}

#[test]
fn moves_between_pools_and_scopes_meet_copies_and_lose_nothing() {
    alone("moves_between_pools_and_scopes_meet_copies_and_lose_nothing", || {
        let (here, there) = (Fixture::new(128 << 20), Fixture::new(128 << 20));
        make(&names(&here.pool));
        here.pool.close();
        there.pool.close();
        let mut random = Random(seed());
        let pools = [here.path.as_path(), there.path.as_path()];
        let actors: Vec<_> = (0..4)
            .map(|number| {
                let seed = random.next();
                fork(|line| act(pools, line, Random(seed), number))
            })
            .collect();
        for actor in &actors {
            actor.line.say(0);
        }
        actors.into_iter().for_each(crate::common::Peer::finish);
        let (one, _) = attach(pools[0], Mode::ReadWrite);
        let (other, _) = attach(pools[1], Mode::ReadWrite);
        let both = [names(&one), names(&other)];
        let mut places = 0;
        for each in &both {
            let found = each.list(each.root(), None, usize::MAX).unwrap();
            assert!(found.iter().all(|(name, _)| name == "m"), "{found:?}");
            if !found.is_empty() {
                whole(each, "m");
                places += 1;
            }
        }
        assert_eq!(places, 1, "it is in {places} places");
        drop(both);
        one.close();
        other.close();
        sound(pools[0]);
        sound(pools[1]);
    });
}
