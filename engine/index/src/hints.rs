//! Hints: what queries tell maintenance.
//!
//! A process that may write takes down which attributes its queries name. Keys that are asked for
//! together often enough are brought into one attribute group; and a query may say so itself
//! (`merge`), or where families are to be split by value (`split_on`), or from how many full
//! segments of objects on (`split_threshold`). The index then lies otherwise; answers are the same,
//! with hints or without, and settings are as they were. What a query may ask for is bounded, since
//! other queries pay for it: both halves of a split have a sixteenth of a segment's objects at
//! least, and a tag has [`HINTED_MAX`] such splits at most.
//!
//! Hints are of one process, and live until maintenance finds nothing left to do for them. Two
//! processes may want different things of the same keys. So keys that were seen to must be asked
//! for twice as often before they are seen to again: in the end the index rests. For the same
//! reason one look brings a key into one group at most, that of the most keys.

use std::cmp::Reverse;
use std::collections::HashMap;

use engram_columns::cell::{Cell, total_order};
use engram_columns::column_key::ColumnKey;
use engram_columns::literal::{Literal, cell_of, time_of};

/// How often keys are queried together before they are brought into one group.
const TOGETHER: u32 = 16;
/// How many sets of keys are counted.
const SETS_MAX: usize = 256;
/// How many hints wait.
const ASKED_MAX: usize = 64;

/// How many splits queries may have asked for in one tag.
pub(crate) const HINTED_MAX: usize = 16;

/// Where a hint's value may have a family split: of a date, that is at the text or at the instant,
/// whichever the key's values are.
pub fn split_places(value: &Literal) -> impl Iterator<Item = Cell<'static>> {
    let instant = time_of(value).filter(|cell| matches!(cell, Cell::Time(_)));
    std::iter::once(cell_of(value)).chain(instant)
}

/// Something to do that is not due by itself.
#[derive(Clone, Debug)]
pub enum Hint {
    /// Bring these keys, ascending, into one attribute group.
    Merge(Vec<ColumnKey>),
    /// Split what has the key: below the cell, and the others.
    SplitOn(ColumnKey, Cell<'static>),
    /// Split what has one of the keys, and more objects than so many full segments, by the values
    /// of one of them.
    SplitAbove(Vec<ColumnKey>, usize),
}

impl Hint {
    fn is(&self, other: &Hint) -> bool {
        match (self, other) {
            (Hint::Merge(a), Hint::Merge(b)) => a == b,
            (Hint::SplitOn(a, at), Hint::SplitOn(b, other)) => {
                a == b && total_order(at, other).is_eq()
            }
            (Hint::SplitAbove(a, most), Hint::SplitAbove(b, other)) => a == b && most == other,
            _ => false,
        }
    }
}

/// How often keys were asked for together, and how often they must be.
#[derive(Clone, Copy, Debug)]
struct Count {
    asked: u32,
    due_at: u32,
}

/// What the queries of one process have told.
#[derive(Default)]
pub(crate) struct Hints {
    together: HashMap<Vec<ColumnKey>, Count>,
    asked: Vec<Hint>,
}

impl Hints {
    /// Takes down that a query names these keys, ascending.
    pub(crate) fn count(&mut self, keys: Vec<ColumnKey>) {
        if let Some(count) = self.together.get_mut(&keys) {
            count.asked = count.asked.saturating_add(1);
            return;
        }
        if self.together.len() >= SETS_MAX {
            self.together.retain(|_, count| count.asked > 1 || count.due_at > TOGETHER);
        }
        if self.together.len() < SETS_MAX {
            self.together.insert(keys, Count { asked: 1, due_at: TOGETHER });
        }
    }

    /// Takes down what a query asks for.
    pub(crate) fn ask(&mut self, hint: Hint) {
        if self.asked.len() < ASKED_MAX && !self.asked.iter().any(|known| known.is(&hint)) {
            self.asked.push(hint);
        }
    }

    /// Whether any query has asked for something.
    pub(crate) fn any_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// What to do now: what was asked for, then what is queried together, most keys first.
    pub(crate) fn due(&self) -> Vec<Hint> {
        let often = self.together.iter().filter(|(_, count)| count.asked >= count.due_at);
        let mut often: Vec<&Vec<ColumnKey>> = often.map(|(keys, _)| keys).collect();
        often.sort_unstable_by_key(|keys| (Reverse(keys.len()), *keys));
        let often = often.into_iter().map(|keys| Hint::Merge(keys.clone()));
        self.asked.iter().cloned().chain(often).collect()
    }

    /// Forgets these hints: nothing is left to do for them.
    pub(crate) fn mark_done(&mut self, done: &[Hint]) {
        self.asked.retain(|hint| !done.iter().any(|done| done.is(hint)));
        for hint in done {
            if let Hint::Merge(keys) = hint
                && let Some(count) = self.together.get_mut(keys)
                && count.asked >= count.due_at
            {
                *count = Count { asked: 0, due_at: count.due_at.saturating_mul(2) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Hint, Hints, SETS_MAX, TOGETHER};

    fn merges(hints: &Hints) -> Vec<Vec<u32>> {
        let due = hints.due().into_iter().map(|hint| match hint {
            Hint::Merge(keys) => keys,
            other => panic!("{other:?}"),
        });
        due.collect()
    }

    #[test]
    fn keys_that_were_seen_to_are_asked_for_twice_as_often_before_the_next_time() {
        let mut hints = Hints::default();
        for round in 0..4 {
            let due_at = TOGETHER << round;
            for _ in 1..due_at {
                hints.count(vec![1, 2]);
            }
            assert!(hints.due().is_empty(), "round {round}");
            hints.count(vec![1, 2]);
            assert_eq!(merges(&hints), [[1, 2]]);
            let due = hints.due();
            hints.mark_done(&due);
            assert!(hints.due().is_empty());
        }
    }

    #[test]
    fn what_is_asked_for_comes_first_and_then_the_most_keys() {
        let mut hints = Hints::default();
        for _ in 0..TOGETHER {
            hints.count(vec![1, 2]);
            hints.count(vec![5, 6, 7]);
        }
        hints.ask(Hint::Merge(vec![8, 9]));
        hints.ask(Hint::Merge(vec![8, 9]));
        assert_eq!(merges(&hints), [vec![8, 9], vec![5, 6, 7], vec![1, 2]]);
        let due = hints.due();
        hints.ask(Hint::SplitOn(3, Cell::Int(0)));
        hints.mark_done(&due);
        assert!(matches!(hints.due()[..], [Hint::SplitOn(3, Cell::Int(0))]), "came meanwhile");
    }

    #[test]
    fn sets_of_keys_that_came_once_make_room_for_others() {
        let mut hints = Hints::default();
        for key in 0..2 * SETS_MAX as u32 {
            hints.count(vec![key, 1 << 20]);
            hints.count(vec![1 << 21, 1 << 22]);
        }
        assert_eq!(merges(&hints), [[1 << 21, 1 << 22]]);
        assert!(hints.together.len() <= SETS_MAX);
    }
}
