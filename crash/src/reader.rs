//! A reader: looks at what everybody writes, and keeps views, until it is killed.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use engram_engine::Mode;

use crate::common::{Held, check_together, check_values};
use crate::data::Random;
use crate::machine::{leave, rest};
use crate::pool::open;
use crate::worker::Place;

/// How many views it keeps.
const HELD_MAX: usize = 24;

/// Looks until it is told to end.
pub fn live(place: &Place) -> ! {
    place.settle();
    let own = place.own();
    let (pool, realm) = open(&place.path, Mode::Read);
    let mut random = Random(own.seed.load(SeqCst));
    let mut held: Vec<Held> = Vec::new();
    while !place.is_over() {
        check_together(&realm);
        if random.percent(30) {
            own.checks.fetch_add(check_values(&realm), Relaxed);
        }
        if held.len() == HELD_MAX {
            held.swap_remove(random.below(HELD_MAX as u64) as usize).check();
        }
        held.extend(Held::take(&realm, &mut random));
        if !held.is_empty() {
            held[random.below(held.len() as u64) as usize].check();
        }
        own.checks.fetch_add(2, Relaxed);
        // Writers are to have most of the machine.
        rest(Duration::from_micros(300));
    }
    held.iter().for_each(Held::check);
    drop(held);
    pool.close();
    own.ended.store(1, SeqCst);
    leave(0);
}
