//! Histories of calls, and whether there is an order of them that explains every answer.
//!
//! A history is linearizable if each call can be given an instant between its begin and its end so
//! that, done one after another at these instants, the calls have these answers. The search is
//! Wing and Gong's: take any call that began before the first end among those left, do it to a
//! plain map, and go on if the answer is the one that was given. An order that was tried once, by
//! the set of calls taken and the map, is not tried again. A call whose caller was killed may have
//! been done at any time after its begin, or never.

use std::collections::{BTreeMap, HashSet};

/// Which object a name stands for, in order of the names.
pub type Listing = Vec<(u64, u64)>;

/// A call. Names are numbers, and every value is written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Put { name: u64, value: u64 },
    Find { name: u64 },
    Read { oid: u64 },
    Replace { oid: u64, generation: u64, value: u64 },
    Delete { name: u64 },
    Rename { old: u64, new: u64 },
    List,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object that was made, or found.
    Oid(Option<u64>),
    /// Generation and value, unless the object was gone.
    Value(Option<(u64, u64)>),
    /// Whether the value was replaced; `None` if the object was gone.
    Swapped(Option<bool>),
    /// Done, or refused.
    Done(bool),
    /// All names, as one look finds them.
    Listed(Listing),
}

/// A call, and its answer if it came to one.
#[derive(Clone, Debug)]
pub struct Event {
    pub call: Call,
    pub answer: Option<Answer>,
    pub began: u64,
    pub ended: u64,
}

/// By name: object, generation, value.
type State = BTreeMap<u64, (u64, u64, u64)>;

/// Does a call to a plain map; `made` is the object that a put makes.
fn perform(state: &mut State, call: &Call, made: u64) -> Answer {
    match *call {
        Call::Put { name, value } => {
            state.insert(name, (made, 0, value));
            Answer::Oid(Some(made))
        }
        Call::Find { name } => Answer::Oid(state.get(&name).map(|(oid, ..)| *oid)),
        Call::Read { oid } => {
            let found = state.values().find(|(other, ..)| *other == oid);
            Answer::Value(found.map(|(_, generation, value)| (*generation, *value)))
        }
        Call::Replace { oid, generation, value } => {
            let found = state.values_mut().find(|(other, ..)| *other == oid);
            Answer::Swapped(found.map(|entry| {
                let same = entry.1 == generation;
                if same {
                    *entry = (oid, generation + 1, value);
                }
                same
            }))
        }
        Call::Delete { name } => Answer::Done(state.remove(&name).is_some()),
        Call::Rename { old, new } => {
            let fits = state.contains_key(&old) && (old == new || !state.contains_key(&new));
            if fits && let Some(entry) = state.remove(&old) {
                state.insert(new, entry);
            }
            Answer::Done(fits)
        }
        Call::List => Answer::Listed(state.iter().map(|(name, (oid, ..))| (*name, *oid)).collect()),
    }
}

/// The objects that an answer names.
fn named(answer: Option<&Answer>) -> Vec<u64> {
    match answer {
        Some(Answer::Oid(found)) => found.iter().copied().collect(),
        Some(Answer::Listed(all)) => all.iter().map(|(_, oid)| *oid).collect(),
        _ => Vec::new(),
    }
}

/// The object that a put has made. It said so; or it was killed, and then a reader of its value
/// knows it, or it is the one that others have met and nobody says to have made; or nobody saw it.
fn made_by(history: &[Event], place: usize) -> u64 {
    let Call::Put { value, .. } = history[place].call else { return 0 };
    if let Some(Answer::Oid(Some(oid))) = history[place].answer {
        return oid;
    }
    let reader = history.iter().find_map(|event| match (&event.call, &event.answer) {
        (Call::Read { oid }, Some(Answer::Value(Some((_, found))))) if *found == value => {
            Some(*oid)
        }
        _ => None,
    });
    let is_put = |event: &&Event| matches!(event.call, Call::Put { .. });
    let made: HashSet<u64> =
        history.iter().filter(is_put).flat_map(|event| named(event.answer.as_ref())).collect();
    let met = || history.iter().flat_map(|event| named(event.answer.as_ref()));
    let stray = || met().find(|oid| !made.contains(oid));
    reader.or_else(stray).unwrap_or(u64::MAX - place as u64)
}

/// Whether an order of the calls explains all answers.
pub fn is_linearizable(history: &[Event]) -> bool {
    let made: Vec<u64> = (0..history.len()).map(|place| made_by(history, place)).collect();
    let mut tried: HashSet<(Vec<bool>, State)> = HashSet::new();
    let mut left = vec![(vec![false; history.len()], State::new())];
    while let Some((taken, state)) = left.pop() {
        let open = || (0..history.len()).filter(|place| !taken[*place]);
        let answered = open().filter(|place| history[*place].answer.is_some());
        let Some(first_end) = answered.map(|place| history[place].ended).min() else {
            return true; // what is left was never answered
        };
        for place in open().filter(|place| history[*place].began <= first_end) {
            let event = &history[place];
            let mut next = state.clone();
            let answer = perform(&mut next, &event.call, made[place]);
            if event.answer.as_ref().is_none_or(|given| *given == answer) {
                let mut taken = taken.clone();
                taken[place] = true;
                if tried.insert((taken.clone(), next.clone())) {
                    left.push((taken, next));
                }
            }
        }
    }
    false
}
