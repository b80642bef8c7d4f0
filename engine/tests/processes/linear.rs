//! Linearizability: several processes put, find, read, replace, delete, move and list a few names;
//! one order of all calls explains all answers, also where a process was killed in the middle.

use crate::common::moves::names;
use crate::common::{Fixture, Line, OVER, Peer, Random, alone, attach, blob, filled, fork, seed};
use crate::history::{Answer, Call, Event, is_linearizable};
use engram::{Error, Found, Kind, Mode, Namespace, Payload, Scope};

const NAMES: u64 = 3;
const CALLS: u64 = 40;
const PROCESSES: u64 = 4;

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A value's length in words follows from the value: some are inline, some are extents.
fn words(value: u64) -> usize {
    if value.is_multiple_of(3) { 200 } else { 10 }
}

/// The value that a payload holds, all of it.
fn value_of(payload: &Payload) -> u64 {
    let bytes = match payload {
        Payload::Inline(bytes) => bytes.clone(),
        Payload::Extent(view) => crate::common::contents(view),
    };
    let value = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert_eq!(bytes, filled(7, value, words(value)), "a value is torn");
    value
}

/// Whether a call has met what another process moves to another scope: nothing of it has happened.
fn is_on_its_way(error: &Error) -> bool {
    error.kind() == Kind::Busy && error.message().contains("on its way")
}

/// Makes a call; again and again, if what it is about is on its way.
fn perform(realm: &Namespace, call: &Call) -> Answer {
    loop {
        match try_to(realm, call) {
            Err(error) if is_on_its_way(&error) => {}
            Err(error) => panic!("{call:?} ended with {error}"),
            Ok(answer) => return answer,
        }
    }
}

fn try_to(realm: &Namespace, call: &Call) -> engram::Result<Answer> {
    let root = realm.root();
    let path = |name: u64| format!("few/{name}");
    let done = |done: engram::Result<()>| match done {
        Ok(()) => Ok(Answer::Done(true)),
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Exists) => {
            Ok(Answer::Done(false))
        }
        Err(error) => Err(error),
    };
    Ok(match *call {
        Call::Put { name, value } => {
            let data = filled(7, value, words(value));
            Answer::Oid(Some(realm.put(root, &path(name), &blob(), &data, OVER)?))
        }
        Call::Find { name } => match realm.find(root, &path(name))? {
            Some(Found::Object(info)) => Answer::Oid(Some(info.oid)),
            Some(Found::Group(_)) => panic!("a group was found"),
            None => Answer::Oid(None),
        },
        Call::Read { oid } => match realm.payload(oid) {
            Ok((payload, generation)) => {
                Answer::Value(Some((generation.into(), value_of(&payload))))
            }
            Err(error) if error.kind() == Kind::NotFound => Answer::Value(None),
            // It became longer than a record, or shorter, between the two looks of one read.
            Err(error) if error.kind() == Kind::Busy => return try_to(realm, call),
            Err(error) => return Err(error),
        },
        Call::Replace { oid, generation, value } => {
            let data = filled(7, value, words(value));
            match realm.replace_payload(oid, generation as u32, &data) {
                Ok(swapped) => Answer::Swapped(Some(swapped)),
                Err(error) if error.kind() == Kind::Busy && !is_on_its_way(&error) => {
                    Answer::Swapped(None)
                }
                Err(error) => return Err(error),
            }
        }
        Call::Delete { name } => done(realm.delete(root, &path(name)))?,
        Call::Rename { old, new } => done(realm.rename(root, &path(old), root, &path(new)))?,
        Call::List => {
            let gid = realm.lookup(root, "few")?.expect("the group").id();
            let listed = realm.list_found(gid, None, 100)?;
            let entry = |(name, found): (String, Found)| match found {
                Found::Object(info) => (name.parse().unwrap(), info.oid),
                Found::Group(_) => panic!("{name} is a group"),
            };
            Answer::Listed(listed.into_iter().map(entry).collect())
        }
    })
}

/// A call as four words.
fn call_words(call: &Call) -> [u64; 4] {
    match *call {
        Call::Put { name, value } => [1, name, value, 0],
        Call::Find { name } => [2, name, 0, 0],
        Call::Read { oid } => [3, oid, 0, 0],
        Call::Replace { oid, generation, value } => [4, oid, generation, value],
        Call::Delete { name } => [5, name, 0, 0],
        Call::Rename { old, new } => [6, old, new, 0],
        Call::List => [7, 0, 0, 0],
    }
}

fn call_of([kind, a, b, c]: [u64; 4]) -> Call {
    match kind {
        1 => Call::Put { name: a, value: b },
        2 => Call::Find { name: a },
        3 => Call::Read { oid: a },
        4 => Call::Replace { oid: a, generation: b, value: c },
        5 => Call::Delete { name: a },
        6 => Call::Rename { old: a, new: b },
        _ => Call::List,
    }
}

/// An answer as words, their number first.
fn answer_words(answer: &Answer) -> Vec<u64> {
    match answer {
        Answer::Oid(oid) => [1].into_iter().chain(*oid).collect(),
        Answer::Value(found) => {
            [2].into_iter().chain(found.iter().flat_map(|f| [f.0, f.1])).collect()
        }
        Answer::Swapped(done) => [3].into_iter().chain(done.map(u64::from)).collect(),
        Answer::Done(done) => vec![4, u64::from(*done)],
        Answer::Listed(all) => [5].into_iter().chain(all.iter().flat_map(|e| [e.0, e.1])).collect(),
    }
}

fn answer_of(words: &[u64]) -> Answer {
    let rest = &words[1..];
    match words[0] {
        1 => Answer::Oid(rest.first().copied()),
        2 => Answer::Value((rest.len() == 2).then(|| (rest[0], rest[1]))),
        3 => Answer::Swapped(rest.first().map(|word| *word == 1)),
        4 => Answer::Done(rest[0] == 1),
        _ => Answer::Listed(rest.chunks(2).map(|pair| (pair[0], pair[1])).collect()),
    }
}

/// Calls, each said before it is made and its answer after.
fn call_often(realm: &Namespace, line: &Line, process: u64, mut random: Random) {
    let (mut oid, mut generation) = (0, 0);
    for number in 0..CALLS {
        let (name, value) = (random.below(NAMES), 1 + process + PROCESSES * number);
        let call = match random.below(9) {
            0 | 1 => Call::Put { name, value },
            3 if oid != 0 => Call::Read { oid },
            4 | 5 if oid != 0 => Call::Replace { oid, generation, value },
            6 => Call::Delete { name },
            7 => Call::Rename { old: name, new: random.below(NAMES) },
            8 => Call::List,
            _ => Call::Find { name },
        };
        for word in call_words(&call) {
            line.say(word);
        }
        line.say(now());
        let answer = perform(realm, &call);
        let ended = now();
        match &answer {
            Answer::Oid(Some(found)) => (oid, generation) = (*found, 0),
            Answer::Value(Some((found, _))) => generation = *found,
            _ => {}
        }
        let words = answer_words(&answer);
        line.say(ended);
        line.say(words.len() as u64);
        for word in words {
            line.say(word);
        }
    }
}

/// What a process has said, to its end or as far as it came.
fn heard(line: &Line, mut kill_after: Option<u64>, kill: impl Fn()) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(first) = line.hear_if_any() {
        let rest = [(); 4].map(|()| line.hear_if_any());
        let [Some(a), Some(b), Some(c), Some(began)] = rest else { break };
        let mut event =
            Event { call: call_of([first, a, b, c]), answer: None, began, ended: u64::MAX };
        let answer = line.hear_if_any().and_then(|ended| {
            let words = (0..line.hear_if_any()?).map(|_| line.hear_if_any());
            Some((ended, words.collect::<Option<Vec<u64>>>()?))
        });
        if let Some((ended, words)) = answer {
            (event.ended, event.answer) = (ended, Some(answer_of(&words)));
        }
        events.push(event);
        if kill_after.is_some_and(|many| events.len() as u64 >= many) {
            kill_after = None;
            kill();
        }
    }
    events
}

/// Moves the group of all names to and fro between two scopes, until told to end.
fn mover(fixture: &Fixture) -> Peer {
    fork(|line| {
        let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
        let namespace = names(&pool);
        let (mut at, mut to) = (Scope::Shared, Scope::Private);
        line.say(1);
        while !line.is_ready() {
            match namespace.transfer(namespace.root(), "few", &[at], to) {
                Ok(_) => (at, to) = (to, at),
                Err(error) => assert!(error.kind() == Kind::Busy, "the mover: {error}"),
            }
            // Else it would hardly ever be there to be changed.
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    })
}

fn explained(rounds: u64, moving: bool) {
    let mut random = Random(seed());
    for round in 0..rounds {
        let fixture = Fixture::new(16 << 20);
        let namespace = names(&fixture.pool);
        namespace.create_group(namespace.root(), "few", &[], &[], false, None).unwrap();
        drop(namespace);
        fixture.pool.close();
        let mover = moving.then(|| mover(&fixture));
        if let Some(mover) = &mover {
            mover.line.expect(1);
        }
        let peers = [(); PROCESSES as usize].map(|()| random.next());
        let mut process = 0;
        let mut peers = peers.map(|seed| {
            process += 1;
            fork(|line| {
                let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
                line.expect(1);
                call_often(&names(&pool), line, process - 1, Random(seed));
            })
        });
        for peer in &peers {
            peer.line.say(1);
        }
        // In every other round one process is killed somewhere.
        let mut after = (round % 2 == 1).then(|| 1 + random.below(CALLS));
        let mut history = Vec::new();
        for peer in &peers {
            let events = heard(&peer.line, after.take(), || peer.signal(libc::SIGKILL));
            history.extend(events);
        }
        for peer in &mut peers {
            peer.wait();
        }
        if let Some(mover) = mover {
            mover.line.say(0);
            mover.finish();
        }
        history.sort_by_key(|event| event.began);
        assert!(is_linearizable(&history), "no order explains round {round}: {history:#?}");
        crate::common::sound(&fixture.path);
    }
}

#[test]
fn one_order_of_all_calls_explains_what_several_processes_have_seen() {
    alone("one_order_of_all_calls_explains_what_several_processes_have_seen", || {
        explained(25, false);
    });
}

/// The same while another process moves all of it between scopes.
#[test]
fn one_order_explains_it_while_all_of_it_moves() {
    alone("one_order_explains_it_while_all_of_it_moves", || explained(20, true));
}

/// A call that ran from one instant to another.
fn event(began: u64, ended: u64, call: Call, answer: Answer) -> Event {
    Event { call, answer: Some(answer), began, ended }
}

fn put(began: u64, ended: u64, name: u64, value: u64) -> Event {
    event(began, ended, Call::Put { name, value }, Answer::Oid(Some(100 + value)))
}

fn find(began: u64, ended: u64, name: u64, oid: Option<u64>) -> Event {
    event(began, ended, Call::Find { name }, Answer::Oid(oid))
}

#[test]
fn the_search_finds_orders_that_are_there() {
    // The second put ends last, and was done first.
    let good = [put(0, 9, 1, 1), put(1, 10, 1, 2), find(11, 12, 1, Some(101))];
    assert!(is_linearizable(&good));
    // A killed put may have been done, long after it began, or never.
    let killed = Event { answer: None, ended: u64::MAX, ..put(0, 0, 1, 1) };
    let read = event(5, 6, Call::Read { oid: 77 }, Answer::Value(Some((0, 1))));
    let seen = [killed.clone(), find(1, 2, 1, None), find(3, 4, 1, Some(77)), read];
    assert!(is_linearizable(&seen));
    assert!(is_linearizable(&[killed.clone(), find(1, 2, 1, None)]));
    // What it made, nobody may have read before it was replaced.
    let call = Call::Replace { oid: 77, generation: 0, value: 5 };
    let swapped = event(5, 6, call, Answer::Swapped(Some(true)));
    assert!(is_linearizable(&[killed, find(3, 4, 1, Some(77)), swapped]));
}

#[test]
fn the_search_finds_no_order_where_there_is_none() {
    let stale = vec![put(0, 1, 1, 1), put(2, 3, 1, 2), find(4, 5, 1, Some(101))];
    let lost = vec![put(0, 1, 1, 1), find(2, 3, 1, None)];
    let back =
        vec![put(0, 1, 1, 1), put(2, 9, 1, 2), find(3, 4, 1, Some(102)), find(5, 6, 1, Some(101))];
    let replace = |began, value| {
        let call = Call::Replace { oid: 101, generation: 0, value };
        event(began, began + 3, call, Answer::Swapped(Some(true)))
    };
    let twice = vec![put(0, 1, 1, 1), replace(2, 5), replace(3, 6)];
    let delete = |began| event(began, began + 3, Call::Delete { name: 1 }, Answer::Done(true));
    let deleted = vec![put(0, 1, 1, 1), delete(2), delete(3)];
    let rename = event(4, 5, Call::Rename { old: 1, new: 2 }, Answer::Done(true));
    let listed = event(3, 6, Call::List, Answer::Listed(vec![(1, 101), (2, 101)]));
    let mixed = vec![put(0, 1, 1, 1), rename, listed];
    for bad in [stale, lost, back, twice, deleted, mixed] {
        assert!(!is_linearizable(&bad), "{bad:?}");
    }
}
