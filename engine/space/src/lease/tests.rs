//! What a lease shows to allocators, step by step.

#[cfg(loom)]
mod model;

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::sample::Index;

use super::words::LOCKS_LISTED;
use super::{CALLED_IN, Hold, IDLE, Lease, LeaseFile, PIN, PINS_MAX, Peers, ViewHold};
use crate::extent::Floor;
use engram_records::extent::{Extent, LINE, PAGE};

/// An extent of one line.
fn line(offset: u64) -> Extent {
    Extent { offset, len: LINE }
}

/// What an allocator of another process sees now.
fn seen(dir: &tempfile::TempDir) -> Floor {
    let none = std::iter::empty::<&LeaseFile>();
    Peers::default().floor(dir.path(), || 1, 0, &none).unwrap()
}

#[test]
fn a_look_up_shows_itself_from_before_it_begins_until_after_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    assert_eq!(seen(&dir).age, IDLE);
    let during = RefCell::new(Vec::new());
    let begin = |id: u64| {
        during.borrow_mut().push(seen(&dir).age);
        Ok(((), id))
    };
    lease.look(|| begin(7)).unwrap();
    assert_eq!(seen(&dir).age, 7);
    // Another thread's begins while the first runs: none is newer than that.
    lease.look(|| begin(9)).unwrap();
    assert_eq!(*during.borrow(), [PIN, PIN]);
    assert_eq!(seen(&dir).age, 7);
    lease.pin(line(64), 7);
    lease.end_look(7);
    assert_eq!(seen(&dir).age, 9);
    lease.end_look(9);
    // Only the pin is left: the age guards look-ups alone.
    let after = seen(&dir);
    assert_eq!((after.age, after.pins.into_iter().collect::<Vec<_>>()), (IDLE, vec![64]));
}

#[test]
fn a_look_up_that_cannot_begin_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    let refused = lease
        .look(|| -> engram_base::error::Result<((), u64)> { engram_base::fail!(Busy, "no slot") });
    assert!(refused.is_err());
    assert_eq!(seen(&dir).age, IDLE);
}

#[test]
fn pins_beyond_the_list_keep_the_age_and_free_slots_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    for place in 0..PINS_MAX as u64 {
        assert_eq!(lease.pin(line(place * 64), 5), Hold::Pinned);
    }
    let beyond = PINS_MAX as u64 * 64;
    assert_eq!(lease.pin(line(beyond), 5), Hold::Aged(5));
    assert_eq!(lease.pin(line(0), 6), Hold::Pinned, "it has a pin already");
    assert_eq!((seen(&dir).age, seen(&dir).pins.len()), (5, PINS_MAX));
    lease.unpin(line(0), Hold::Pinned);
    assert!(seen(&dir).pins.contains(&0), "one of two is left");
    lease.unpin(line(0), Hold::Pinned);
    assert!(!seen(&dir).pins.contains(&0));
    assert_eq!(lease.pin(line(beyond + 64), 8), Hold::Pinned);
    lease.unpin(line(beyond), Hold::Aged(5));
    assert_eq!((seen(&dir).age, seen(&dir).pins.len()), (IDLE, PINS_MAX));
}

#[test]
fn a_view_of_a_file_pins_the_runs_that_it_shows_or_the_object_if_these_are_many() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    let page = |number: u64| Extent { offset: number * PAGE, len: PAGE };
    let pages_seen = || seen(&dir).pages.joined().to_vec();
    let few = lease.keep_shown(7, vec![page(9), page(2), page(3)], 5);
    let also = lease.keep_shown(7, vec![page(9)], 5);
    let runs = [Extent { offset: 2 * PAGE, len: 2 * PAGE }, page(9)];
    assert_eq!((pages_seen(), lease.pinned()), (runs.to_vec(), 2), "two have one pin");
    lease.leave_shown(7, &few);
    assert_eq!(pages_seen(), [page(9)]);
    lease.leave_shown(7, &also);
    assert_eq!(lease.pinned(), 0);
    // Each other page: none touches the next.
    let many = lease.keep_shown(7, (0..500).map(|number| page(2 * number)).collect(), 5);
    assert_eq!(many, ViewHold::Whole(Hold::Pinned));
    let floor = seen(&dir);
    assert_eq!((floor.pages.joined(), floor.objects.len(), lease.pinned()), (&[][..], 1, 1));
    // One slot is left.
    (1..PINS_MAX as u64 - 1)
        .for_each(|place| assert_eq!(lease.pin(line(place * 64), 5), Hold::Pinned));
    let two = lease.keep_shown(8, vec![page(2), page(4)], 5);
    assert_eq!((two.clone(), seen(&dir).objects.len()), (ViewHold::Whole(Hold::Pinned), 2));
    let no_slot = lease.keep_shown(9, vec![page(2)], 5);
    assert_eq!((&no_slot, seen(&dir).age), (&ViewHold::Whole(Hold::Aged(5)), 5));
    lease.leave_shown(9, &no_slot);
    lease.leave_shown(8, &two);
    lease.leave_shown(7, &many);
    assert_eq!((seen(&dir).objects.len(), seen(&dir).age), (0, IDLE));
}

#[test]
fn a_lease_whose_owner_is_gone_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    lease.pin(line(64), 5);
    lease.look(|| Ok(((), 5))).unwrap();
    assert_eq!(seen(&dir).age, 5);
    drop(lease);
    assert_eq!((seen(&dir).age, seen(&dir).pins.len()), (IDLE, 0));
    // The first to look takes it back, alone.
    let mut peers = [Peers::default(), Peers::default()];
    for known in &mut peers {
        known.refresh(dir.path(), 1, 0).unwrap();
    }
    let mut found = peers.each_mut().map(Peers::dead);
    assert_eq!(found.each_ref().map(Vec::len), [1, 0]);
    found[0].pop().unwrap().reap();
    assert!(peers[1].dead().is_empty());
}

/// What somebody does with a lease.
#[derive(Clone, Debug)]
enum Step {
    Look(u64),
    EndLook(Index),
    Pin(u64),
    Unpin(Index),
    HoldSnapshot(u64),
    EndSnapshot(Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        (1..9u64).prop_map(Step::Look),
        index().prop_map(Step::EndLook),
        (0..5u64).prop_map(|place| Step::Pin(place * 64)),
        index().prop_map(Step::Unpin),
        (1..9u64).prop_map(Step::HoldSnapshot),
        index().prop_map(Step::EndSnapshot),
    ]
}

fn take<T>(from: &mut Vec<T>, which: Index) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(which.index(from.len())))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_allocator_sees_the_least_age_and_every_pin_that_is_held(
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::create(dir.path(), 0o600).unwrap();
        let (mut looks, mut pins, mut snapshots) = (Vec::new(), Vec::new(), Vec::new());
        for step in &steps {
            match step {
                Step::Look(age) => {
                    lease.look(|| Ok(((), *age))).unwrap();
                    looks.push(*age);
                }
                Step::EndLook(which) => {
                    if let Some(age) = take(&mut looks, *which) {
                        lease.end_look(age);
                    }
                }
                Step::Pin(offset) => {
                    prop_assert_eq!(lease.pin(line(*offset), 3), Hold::Pinned);
                    pins.push(*offset);
                }
                Step::Unpin(which) => {
                    if let Some(offset) = take(&mut pins, *which) {
                        lease.unpin(line(offset), Hold::Pinned);
                    }
                }
                Step::HoldSnapshot(age) => {
                    lease.hold_snapshot(*age, 10 * age);
                    snapshots.push(*age);
                }
                Step::EndSnapshot(which) => {
                    if let Some(age) = take(&mut snapshots, *which) {
                        lease.end_snapshot(age, 10 * age);
                    }
                }
            }
            let floor = seen(&dir);
            let least = looks.iter().chain(&snapshots).copied().min().unwrap_or(IDLE);
            prop_assert_eq!(floor.age, least);
            prop_assert_eq!(floor.pins, pins.iter().copied().collect());
        }
    }
}

#[test]
fn a_view_that_may_write_is_seen_until_the_last_such_view_goes() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    let written = |offset| Peers::default().others_write(dir.path(), || 1, 0, offset).unwrap();
    for _ in 0..2 {
        lease.pin(line(64), 5);
    }
    assert!(!written(64) && !lease.writes(line(64)));
    for _ in 0..2 {
        lease.begin_writing(line(64));
    }
    assert!(written(64) && lease.writes(line(64)) && !written(128));
    assert_eq!(seen(&dir).pins.into_iter().collect::<Vec<_>>(), [64], "it is one pin still");
    assert!(!lease.end_writing(line(64)) && written(64), "one of two is left");
    assert!(lease.end_writing(line(64)) && !written(64) && !lease.writes(line(64)));
    assert!(!lease.end_writing(line(64)), "there was none");
}

#[test]
fn a_snapshot_is_asked_for_once_where_its_page_is_reached_and_asked_for_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    let mut peers = Peers::default();
    peers.refresh(dir.path(), 1, 0).unwrap();
    assert_eq!((peers.ask(u64::MAX - 1), peers.call_in()), (0, 0), "it holds none");
    lease.hold_snapshot(7, 100);
    assert_eq!((peers.ask(99), lease.was_asked()), (0, None));
    assert_eq!([peers.ask(100), peers.ask(101)], [1, 0]);
    assert!(peers.are_asked());
    let asked = lease.was_asked().unwrap();
    assert_eq!([peers.call_in(), peers.call_in()], [1, 0], "that is more than was asked");
    lease.answer(asked);
    assert_eq!(lease.was_asked(), Some(CALLED_IN), "who asked for more is answered next");
    lease.answer(CALLED_IN);
    assert!(!peers.are_asked());
    lease.ask_later(7, 100, 200);
    assert_eq!([peers.ask(199), peers.ask(200)], [0, 1]);
    assert_eq!(peers.oldest().map(|(age, _)| age), Some(7));
    lease.end_snapshot(7, 200);
    assert_eq!(peers.oldest(), None);
}

#[test]
fn locks_are_listed_as_far_as_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    let mut peers = Peers::default();
    peers.refresh(dir.path(), 1, 0).unwrap();
    let me = std::process::id();
    let all = LOCKS_LISTED as u64;
    for id in 0..all + 5 {
        lease.list_lock(id, 1);
    }
    let listed = |peers: &Peers, id, least| peers.lockers(id, least) == [me];
    assert!(listed(&peers, all - 1, 1) && !listed(&peers, all - 1, 2), "it reads");
    assert!(!listed(&peers, all, 1), "beyond the list; it is held all the same");
    lease.unlist_lock(all, 1);
    lease.unlist_lock(3, 2);
    assert!(listed(&peers, 3, 1), "another lock than that");
    lease.unlist_lock(3, 1);
    lease.list_lock(all, 2);
    assert!(!listed(&peers, 3, 1) && listed(&peers, all, 2), "its place is taken again");
}
