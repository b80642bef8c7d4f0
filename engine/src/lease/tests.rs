//! What a lease shows to allocators, step by step.

use std::cell::RefCell;

use super::{Hold, IDLE, Lease, LeaseFile, PIN, PINS_MAX, Peers};
use crate::catalog::without_forks;
use crate::extent::Floor;

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
    lease.pin(64, 7);
    lease.end_look(7);
    assert_eq!(seen(&dir).age, 9);
    lease.end_look(9);
    // What is left is the pin: the age guards look-ups alone.
    let after = seen(&dir);
    assert_eq!((after.age, after.pins.into_iter().collect::<Vec<_>>()), (IDLE, vec![64]));
}

#[test]
fn a_look_up_that_cannot_begin_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    let refused = lease.look(|| -> crate::Result<((), u64)> { crate::fail!(Busy, "no slot") });
    assert!(refused.is_err());
    assert_eq!(seen(&dir).age, IDLE);
}

#[test]
fn pins_beyond_the_list_keep_the_age_and_free_slots_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    for place in 0..PINS_MAX as u64 {
        assert_eq!(lease.pin(place * 64, 5), Hold::Pinned);
    }
    let beyond = PINS_MAX as u64 * 64;
    assert_eq!(lease.pin(beyond, 5), Hold::Aged(5));
    assert_eq!(lease.pin(0, 6), Hold::Pinned, "it has a pin already");
    assert_eq!((seen(&dir).age, seen(&dir).pins.len()), (5, PINS_MAX));
    lease.unpin(0, Hold::Pinned);
    assert!(seen(&dir).pins.contains(&0), "one of two is left");
    lease.unpin(0, Hold::Pinned);
    assert!(!seen(&dir).pins.contains(&0));
    assert_eq!(lease.pin(beyond + 64, 8), Hold::Pinned);
    lease.unpin(beyond, Hold::Aged(5));
    assert_eq!((seen(&dir).age, seen(&dir).pins.len()), (IDLE, PINS_MAX));
}

#[test]
fn a_lease_whose_owner_is_gone_holds_nothing() {
    let _alone = without_forks();
    let dir = tempfile::tempdir().unwrap();
    let lease = Lease::create(dir.path(), 0o600).unwrap();
    lease.pin(64, 5);
    lease.look(|| Ok(((), 5))).unwrap();
    assert_eq!(seen(&dir).age, 5);
    drop(lease);
    assert_eq!((seen(&dir).age, seen(&dir).pins.len()), (IDLE, 0));
    // Whoever looks first takes it back, alone.
    let mut peers = [Peers::default(), Peers::default()];
    for known in &mut peers {
        known.refresh(dir.path(), 1, 0).unwrap();
    }
    let mut found = peers.each_mut().map(Peers::dead);
    assert_eq!(found.each_ref().map(Vec::len), [1, 0]);
    found[0].pop().unwrap().bury();
    assert!(peers[1].dead().is_empty());
}
