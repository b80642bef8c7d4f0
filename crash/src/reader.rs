//! A reader: looks at what everybody writes, and keeps views, until it is killed.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use engram::{Kind, Mode, Pool, Scope};

use crate::board::{STRANGER, WRITING};
use crate::common::{Held, check_together, check_values};
use crate::data::Random;
use crate::machine::{become_stranger, is_root, leave, rest};
use crate::operation::Urge;
use crate::pool::{open, view};
use crate::snapshot::Snapshot;
use crate::worker::Place;
use crate::{crowd, files, travel};

/// How many views it keeps.
const HELD_MAX: usize = 24;
/// In how many percent of its rounds a snapshot is taken, or let go.
const SNAPSHOT_PERCENT: u64 = 8;

/// Looks until it is told to end.
pub fn live(place: &Place) -> ! {
    if place.slot == STRANGER && is_root() {
        stranger(place);
    }
    place.settle();
    let own = place.own();
    let (pool, realm) = open(&place.path, Mode::Read);
    let namespace = view(&pool);
    let fs = files::shown(&namespace);
    let mut snapshot: Option<Snapshot> = None;
    let mut random = Random(own.seed.load(SeqCst));
    let mut held: Vec<Held> = Vec::new();
    while !place.is_over() {
        if own.urge.load(SeqCst) == Urge::Crowd as u32 {
            // Somebody stands still who writes a file of all: nothing else is looked at.
            own.checks.fetch_add(crowd::check(&fs), Relaxed);
            continue;
        }
        check_together(&realm);
        if random.percent(30) {
            own.checks.fetch_add(check_values(&realm), Relaxed);
        }
        if random.percent(10) {
            own.checks.fetch_add(crowd::check(&fs), Relaxed);
        }
        if held.len() == HELD_MAX {
            held.swap_remove(random.below(HELD_MAX as u64) as usize).check();
        }
        held.extend(Held::take(&realm, &mut random));
        if !held.is_empty() {
            held[random.below(held.len() as u64) as usize].check();
        }
        let slot = random.below(WRITING as u64) as usize;
        let (checks, _) = travel::check_run(&namespace, slot);
        if random.percent(SNAPSHOT_PERCENT) {
            snapshot = if snapshot.is_some() {
                None
            } else {
                Some(Snapshot::take(&namespace, slot, false))
            };
        }
        snapshot = snapshot.filter(Snapshot::check);
        own.checks.fetch_add(3 + checks, Relaxed);
        // Writers are to have most of the machine.
        rest(Duration::from_micros(300));
    }
    held.iter().for_each(Held::check);
    drop((held, snapshot));
    pool.close();
    own.ended.store(1, SeqCst);
    leave(0);
}

/// Somebody to whom all but what is published is closed, and who sees of a move all or nothing.
fn stranger(place: &Place) -> ! {
    become_stranger();
    place.settle();
    let own = place.own();
    let pool = Pool::open(&place.path, Mode::Read, true).expect("an open pool");
    let namespace = view(&pool);
    let mut random = Random(own.seed.load(SeqCst));
    while !place.is_over() {
        let slot = random.below(WRITING as u64) as usize;
        own.checks.fetch_add(travel::check_as_stranger(&namespace, slot), Relaxed);
        rest(Duration::from_millis(1));
    }
    let closed = namespace.realm_of(Scope::Shared, false).err().map(|error| error.kind());
    assert_eq!(closed, Some(Kind::Access), "a stranger opens the shared realm");
    pool.close();
    own.ended.store(1, SeqCst);
    leave(0);
}

/// Whether whoever is in a slot has a lease in the shared realm.
pub fn has_lease(slot: usize) -> bool {
    slot != STRANGER || !is_root()
}
