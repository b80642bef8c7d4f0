//! Look-ups and views (protocol P2): nobody's memory is given away while somebody looks at it.

use crate::common::{
    Fixture, KEEP, Line, Peer, Random, alone, alone_with, attach, check, churn, filled, floats,
    fork, lookup, put, seed, sound, spawn, view,
};
use engram::{Mode, Payload, Realm, View};

const MIB: usize = 1 << 20;
const NAMES: u64 = 6;

fn name(tag: u64) -> String {
    format!("group/{tag}")
}

/// Looks names up and checks every byte behind them, until the line breaks.
fn look_and_check(realm: &Realm, line: &Line, seed: u64) {
    let mut random = Random(seed);
    let mut held: Vec<(u64, u64, View)> = Vec::new();
    let mut looked = 0_u64;
    while !line.is_ready() {
        let tag = random.below(NAMES);
        let Some(oid) = lookup(realm, &name(tag)) else { continue };
        // Between looking up and viewing it may be deleted: that is an error, not a wild view.
        let Ok(Payload::Extent(view)) = realm.view(oid, false) else { continue };
        let (found, version) = check(&view);
        assert_eq!(found, tag, "the array of another name");
        held.push((found, version, view));
        if held.len() > 8 {
            let (tag, version, view) = held.swap_remove(random.below(8) as usize);
            assert_eq!(check(&view), (tag, version));
        }
        looked += 1;
    }
    for (tag, version, view) in held {
        assert_eq!(check(&view), (tag, version));
    }
    line.say(looked);
}

/// Readers in processes that were forked and spawned, with threads; writers that replace and
/// delete what they look at, in a pool so small that space is used again at once.
#[test]
fn a_look_up_that_races_with_delete_and_reuse_sees_whole_values() {
    let test = "a_look_up_that_races_with_delete_and_reuse_sees_whole_values";
    alone_with(
        test,
        || {
            let seed = seed();
            let fixture = Fixture::new(16 << 20);
            let realm = fixture.realm();
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var("ENGRAM_TEST_POOL", &fixture.path) };
            let mut readers: Vec<Peer> = vec![fork(|line| look_and_check(&realm, line, seed ^ 1))];
            readers.push(spawn());
            let writer = fork(|line| replace(&realm, line, seed ^ 2, 0));
            let mut random = Random(seed);
            for version in 0..700 {
                replace_one(&realm, &mut random, version << 1);
            }
            writer.line.say(0);
            writer.line.expect(1);
            writer.finish();
            for reader in readers {
                reader.line.say(0);
                assert!(reader.line.hear() > 0, "a reader saw nothing");
                reader.finish();
            }
            sound(&fixture.path);
        },
        |line| {
            let path = std::env::var("ENGRAM_TEST_POOL").unwrap();
            let (_pool, realm) = attach(path.as_ref(), Mode::Read);
            std::thread::scope(|scope| {
                let (ours, theirs) = Line::pair();
                let realm = &realm;
                let second = scope.spawn(move || look_and_check(realm, &theirs, 3));
                look_and_check(realm, line, 4);
                ours.say(0);
                ours.hear();
                second.join().unwrap();
            });
        },
    );
}

/// Replaces until it hears a word.
fn replace(realm: &Realm, line: &Line, seed: u64, mut version: u64) {
    let mut random = Random(seed);
    while !line.is_ready() {
        version += 1;
        replace_one(realm, &mut random, version << 1 | 1);
    }
    line.say(1);
}

/// Puts, allocates or deletes one of the names.
fn replace_one(realm: &Realm, random: &mut Random, version: u64) {
    let tag = random.below(NAMES);
    let words = 150 + random.below(20_000) as usize;
    let data = filled(tag, version, words);
    match random.below(8) {
        0 => drop(realm.delete(realm.root(), &name(tag))),
        1 => {
            let new = floats(&[words as u64]);
            let over = engram::Placement { overwrite: true, ..engram::Placement::default() };
            let len = data.len() as u64;
            let space = realm.allocate(realm.root(), &name(tag), &new, len, over).unwrap();
            // SAFETY: the allocation's own memory.
            unsafe { space.view().as_ptr().copy_from(data.as_ptr(), data.len()) };
            space.publish().unwrap();
        }
        _ => drop(put(realm, &name(tag), &data)),
    }
}

#[test]
fn delete_in_one_process_keeps_views_in_others_intact() {
    alone_with(
        "delete_in_one_process_keeps_views_in_others_intact",
        || {
            let fixture = Fixture::new(16 << 20);
            let realm = fixture.realm();
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var("ENGRAM_TEST_POOL", &fixture.path) };
            for tag in 0..NAMES {
                put(&realm, &name(tag), &filled(tag, 1, MIB / 8));
            }
            churn(&realm, 1);
            let viewers = [spawn(), fork(|line| view_all(&realm, line))];
            for viewer in &viewers {
                viewer.line.expect(1);
            }
            realm.delete(realm.root(), "group").unwrap();
            churn(&realm, 2);
            for viewer in &viewers {
                viewer.line.say(2);
            }
            viewers.into_iter().for_each(Peer::finish);
            drop(realm.scratch(16 << 20, None).unwrap());
            sound(&fixture.path);
        },
        |line| {
            let path = std::env::var("ENGRAM_TEST_POOL").unwrap();
            let (pool, realm) = attach(path.as_ref(), Mode::Read);
            let held: Vec<_> = (0..NAMES).map(|tag| view(&realm, &name(tag))).collect();
            // Closing ends handles, never views.
            pool.close();
            line.say(1);
            line.expect(2);
            (0..).zip(&held).for_each(|(tag, view)| assert_eq!(check(view), (tag, 1)));
        },
    );
}

fn view_all(realm: &Realm, line: &Line) {
    let held: Vec<_> = (0..NAMES).map(|tag| view(realm, &name(tag))).collect();
    line.say(1);
    line.expect(2);
    (0..).zip(&held).for_each(|(tag, view)| assert_eq!(check(view), (tag, 1)));
}

#[test]
fn a_view_held_for_long_keeps_its_own_extent_and_no_other_space() {
    alone("a_view_held_for_long_keeps_its_own_extent_and_no_other_space", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, &name(0), &filled(0, 1, MIB / 8));
        let viewer = fork(|line| {
            let held = view(&realm, &name(0));
            line.say(1);
            line.expect(2);
            assert_eq!(check(&held), (0, 1));
        });
        viewer.line.expect(1);
        let words = 32 << 10;
        for version in 2..3000 {
            put(&realm, &name(0), &filled(0, version, if version < 20 { words } else { 200 }));
        }
        // The view's, the last replaced, and the one in flight.
        let pending = realm.space().unwrap().pending;
        assert!(pending <= (MIB + 2 * 8 * words) as u64, "{pending} bytes are held");
        viewer.line.say(2);
        viewer.finish();
        put(&realm, &name(1), &filled(1, 1, 200));
        put(&realm, &name(1), &filled(1, 2, 200));
        assert!(realm.space().unwrap().pending <= 4096);
        sound(&fixture.path);
    });
}

/// More views than a lease has pins: those beyond keep the age.
#[test]
fn views_beyond_the_pin_list_keep_their_memory_too() {
    const VIEWS: u64 = 8192 + 600;
    const PART: usize = 16 << 10;
    alone("views_beyond_the_pin_list_keep_their_memory_too", || {
        let fixture = Fixture::new(24 << 20);
        let realm = fixture.realm();
        realm.begin_batch().unwrap();
        for tag in 0..VIEWS {
            put(&realm, &format!("many/{tag}"), &filled(tag, 1, 160));
        }
        realm.commit_batch().unwrap();
        let viewer = fork(|line| {
            let mut held: Vec<_> =
                (0..VIEWS).map(|tag| Some(view(&realm, &format!("many/{tag}")))).collect();
            line.say(1);
            line.expect(2);
            (0..).zip(held.iter().flatten()).for_each(|(tag, v)| assert_eq!(check(v), (tag, 1)));
            // Pins come free; the views without one keep what they have.
            held[..600].fill(None);
            line.say(3);
            line.expect(4);
            for tag in 600..VIEWS {
                assert_eq!(check(held[tag as usize].as_ref().unwrap()), (tag, 1));
            }
        });
        viewer.line.expect(1);
        realm.delete(realm.root(), "many").unwrap();
        // An age guards all that is freed after it, so the memory written to here stays written to.
        let fill = |most: u64| {
            let more = |_| realm.scratch(PART as u64, None).ok();
            let parts: Vec<_> = (0..most).map_while(more).collect();
            for part in &parts {
                // SAFETY: the scratch's own memory.
                unsafe { part.as_ptr().write_bytes(0xee, PART) };
            }
            parts
        };
        // The extent that the views have is freed last, and would be taken first: it fits best.
        let first = fill(200);
        viewer.line.say(2);
        viewer.line.expect(3);
        let rest = fill(2000);
        assert!(first.len() == 200 && (400..900).contains(&rest.len()), "{}", rest.len());
        viewer.line.say(4);
        viewer.finish();
        drop((first, rest));
        drop(realm.scratch(24 << 20, None).unwrap());
        sound(&fixture.path);
    });
}

/// Two views of one object, and a view of an object that is allocated: each counts.
#[test]
fn an_extent_is_kept_until_the_last_view_of_it_is_gone() {
    alone("an_extent_is_kept_until_the_last_view_of_it_is_gone", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let new = floats(&[MIB as u64 / 8]);
        let space = realm.allocate(realm.root(), "x", &new, MIB as u64, KEEP).unwrap();
        let first = space.view();
        let data = filled(1, 1, MIB / 8);
        // SAFETY: the allocation's own memory.
        unsafe { first.as_ptr().copy_from(data.as_ptr(), data.len()) };
        space.publish().unwrap();
        let (second, third) = (view(&realm, "x"), view(&realm, "x"));
        let fourth = third.clone();
        realm.delete(realm.root(), "x").unwrap();
        for held in [first, second, third] {
            churn(&realm, 1);
            assert_eq!(check(&held), (1, 1));
        }
        churn(&realm, 1);
        assert_eq!(check(&fourth), (1, 1));
        drop(fourth);
        drop(realm.scratch(16 << 20, None).unwrap());
    });
}
