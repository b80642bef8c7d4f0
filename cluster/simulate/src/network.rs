//! How a message fares.

use std::collections::BTreeMap;

use crate::S;
use crate::inputs::Cut;
use crate::random::{Dice, hashed};

/// Who sends and is sent: the coordinator, then nodes, then clients.
pub(crate) type Actor = usize;

/// The coordinator.
pub(crate) const STORE: Actor = 0;

/// The network between all of them.
pub(crate) struct Network {
    seed: u64,
    /// How many of a thousand messages are lost, doubled, and late.
    lost: u64,
    doubled: u64,
    late: u64,
    sent: BTreeMap<(Actor, Actor), u64>,
    cuts: Vec<(Actor, Cut, u64)>,
    silent_until: u64,
    /// From when on and until when the coordinator hears nothing; it answers nothing at all.
    restarts: (u64, u64),
}

impl Network {
    pub(crate) fn new(seed: u64) -> Network {
        let mut dice = Dice::new(&[seed, 2]);
        let rate = |dice: &mut Dice| if dice.happens(500) { dice.below(30) } else { 0 };
        let (lost, doubled, late) = (rate(&mut dice), rate(&mut dice), rate(&mut dice));
        let (sent, cuts) = (BTreeMap::new(), Vec::new());
        Network { seed, lost, doubled, late, sent, cuts, silent_until: 0, restarts: (0, 0) }
    }

    /// Loses messages of a node until this moment.
    pub(crate) fn cut(&mut self, node: Actor, cut: Cut, until: u64) {
        self.cuts.push((node, cut, until));
    }

    /// Lets the coordinator be silent until this moment.
    pub(crate) fn silence(&mut self, until: u64) {
        self.silent_until = self.silent_until.max(until);
    }

    /// Lets the coordinator restart until this moment: it hears requests for a while yet.
    pub(crate) fn restart(&mut self, now: u64, until: u64) {
        self.restarts = (now + (until - now) / 4, until);
    }

    /// Lets every message through.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        (self.silent_until, self.restarts) = (0, (0, 0));
        (self.lost, self.late) = (0, 0);
    }

    fn is_cut(&mut self, now: u64, from: Actor, to: Actor) -> bool {
        if (from == STORE || to == STORE) && now < self.silent_until {
            return true;
        }
        let (deaf, until) = self.restarts;
        if now < until && (from == STORE || (to == STORE && now >= deaf)) {
            return true;
        }
        self.cuts.retain(|(_, _, until)| *until > now);
        self.cuts.iter().any(|&(node, cut, _)| {
            let (sends, is_sent) = (from == node, to == node);
            match cut {
                Cut::All => sends || is_sent,
                Cut::ToStore => sends && to == STORE,
                Cut::FromStore => is_sent && from == STORE,
                Cut::Store => (sends && to == STORE) || (is_sent && from == STORE),
                Cut::Peers => (sends && to != STORE) || (is_sent && from != STORE),
                Cut::ToPeers => sends && to != STORE,
                Cut::Late => false,
            }
        })
    }

    /// When a message that is sent now arrives: never, once, or twice.
    pub(crate) fn arrivals(&mut self, now: u64, from: Actor, to: Actor) -> Vec<u64> {
        let count = self.sent.entry((from, to)).or_default();
        *count += 1;
        let number = hashed(&[self.seed, from as u64, to as u64, *count]);
        if self.is_cut(now, from, to) {
            return Vec::new();
        }
        let is_late =
            |(node, cut, _): &&(Actor, Cut, u64)| *cut == Cut::Late && *node == from && to == STORE;
        let held = self.cuts.iter().filter(is_late).map(|(.., until)| *until).max();
        let now = held.map_or(now, |until| until.max(now));
        let mut dice = Dice::new(&[number]);
        if dice.happens(self.lost) {
            return Vec::new();
        }
        let times = if dice.happens(self.doubled) { 2 } else { 1 };
        (0..times)
            .map(|_| {
                let most = if dice.happens(self.late) { 30 * S } else { S / 50 };
                now + dice.between(S / 5000, most)
            })
            .collect()
    }
}
