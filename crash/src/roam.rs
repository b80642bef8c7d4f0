//! A group that everybody moves between scopes, and in which everybody writes at the same time.
//!
//! Each worker has places of its own in `common/roam`, and an attribute of that group, and knows
//! what it has acknowledged there. Whose realm all that is in just then, nobody knows: any worker
//! moves the whole group, however many others are writing. Who meets what is on its way is refused,
//! and nothing has happened then.

use std::collections::BTreeMap;

use engram::{Error, Found, Kind, Member, Namespace, Oid, Realm, Result, Scope};

use crate::data::{Random, filled};
use crate::operation::{Outcome, index_mode};
use crate::pool::{array, number, number_of, over, with_words};

const GROUP: &str = "common/roam";
/// Places that a worker has in the group.
const PLACES: u64 = 4;
/// What is always there, and only moves: else a move would be over at once.
const ALWAYS: u64 = 24;

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Stores a value.
    Put { place: u64, words: usize },
    /// Deletes one.
    Delete { place: u64 },
    /// Sets an attribute of an object.
    Annotate { place: u64 },
    /// Sets the worker's attribute of the group.
    Label,
    /// Moves the group with all that is in it.
    Move { to: Scope },
}

/// An object as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    version: u64,
    words: usize,
    noted: Option<u64>,
}

/// What one worker has there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roaming {
    things: BTreeMap<u64, Thing>,
    label: Option<u64>,
}

/// Makes the group.
pub(crate) fn make(realm: &Realm) {
    for place in 0..ALWAYS {
        let path = format!("{GROUP}/always-{place}");
        let (new, data) = (array(5, Vec::new()), filled(place, 1, 5));
        realm.put(realm.root(), &path, &new, &data, over(index_mode(5))).expect("an object");
    }
}

fn path_of(slot: usize, place: u64) -> String {
    format!("{GROUP}/{slot}-{place}")
}

fn label_of(slot: usize) -> String {
    format!("label-{slot}")
}

/// What follows from a seed.
fn act(seed: u64) -> Act {
    let mut random = Random(seed);
    let place = random.below(PLACES);
    match random.below(10) {
        0..3 => Act::Put { place, words: [9, 40, 400, 3000][random.below(4) as usize] },
        3 => Act::Delete { place },
        4 => Act::Annotate { place },
        5 => Act::Label,
        to => Act::Move { to: if to % 2 == 0 { Scope::Private } else { Scope::Shared } },
    }
}

fn group_of(at: &Namespace) -> Result<Member> {
    Ok(at.lookup(at.root(), GROUP)?.expect("the group is always there"))
}

/// Does what follows from a seed. What is on its way refuses that: `BusyError`.
pub(crate) fn perform(at: &Namespace, slot: usize, seed: u64, version: u64) -> Result<()> {
    let root = at.root();
    match act(seed) {
        Act::Put { place, words } => {
            let new = array(words, vec![("q".to_owned(), number(version))]);
            let data = filled(slot as u64, version, words);
            at.put(root, &path_of(slot, place), &new, &data, over(index_mode(0))).map(drop)
        }
        Act::Delete { place } => at.delete(root, &path_of(slot, place)),
        Act::Annotate { place } => match at.lookup(root, &path_of(slot, place))? {
            Some(member) => at.set_attrs(member, &[("n".to_owned(), number(version))]),
            None => Err(Error::new(Kind::NotFound, "there is no such name")),
        },
        Act::Label => at.set_attrs(group_of(at)?, &[(label_of(slot), number(version))]),
        Act::Move { to } => {
            let from = if to == Scope::Private { Scope::Shared } else { Scope::Private };
            at.transfer(root, GROUP, &[from], to).map(drop)
        }
    }
}

impl Roaming {
    /// Does to the model what follows from a seed; how that must end, unless it was refused.
    pub(crate) fn imagine(&mut self, seed: u64, version: u64) -> Outcome {
        match act(seed) {
            Act::Put { place, words } => {
                self.things.insert(place, Thing { version, words, noted: None });
            }
            Act::Delete { place } => {
                if self.things.remove(&place).is_none() {
                    return Outcome::Refused;
                }
            }
            Act::Annotate { place } => match self.things.get_mut(&place) {
                Some(thing) => thing.noted = Some(version),
                None => return Outcome::Refused,
            },
            Act::Label => self.label = Some(version),
            Act::Move { .. } => {}
        }
        Outcome::Done
    }
}

/// Compares what a worker has there with its model; how many things were compared. With `at_rest`,
/// nobody moves anything meanwhile: then each is in one realm.
pub(crate) fn compare(
    at: &Namespace,
    slot: usize,
    model: &Roaming,
    at_rest: bool,
) -> std::result::Result<u64, String> {
    let told = |error: Error| error.to_string();
    let group = group_of(at).map_err(told)?;
    let label = at.attr(group, &label_of(slot)).map_err(told)?.as_ref().and_then(number_of);
    if label != model.label {
        return Err(format!("{GROUP} has {}={label:?}, not {:?}", label_of(slot), model.label));
    }
    for place in 0..PLACES {
        let path = path_of(slot, place);
        let found = match at.find(at.root(), &path).map_err(told)? {
            Some(Found::Object(info)) => Some(info.oid),
            Some(Found::Group(_)) => return Err(format!("{path} is a group")),
            None => None,
        };
        match (found, model.things.get(&place)) {
            (None, None) => {}
            (Some(oid), Some(thing)) => {
                check_thing(at, slot, oid, thing).map_err(|why| format!("{path}: {why}"))?;
                if at_rest {
                    in_one(at, oid).map_err(|why| format!("{path}: {why}"))?;
                }
            }
            (found, thing) => return Err(format!("{path} is {found:x?}, and must be {thing:?}")),
        }
    }
    let all = at.list(group.id(), None, usize::MAX).map_err(told)?;
    let always = all.iter().filter(|(name, _)| name.starts_with("always-")).count();
    if always as u64 != ALWAYS {
        return Err(format!("{GROUP} has {always} of {ALWAYS} that are always there"));
    }
    Ok(2 + PLACES)
}

fn check_thing(
    at: &Namespace,
    slot: usize,
    oid: Oid,
    thing: &Thing,
) -> std::result::Result<(), String> {
    let (payload, _) = at.payload(oid).map_err(|error| error.to_string())?;
    let (whose, words) = with_words(&payload, |words| (words.whole(), words.len()));
    if whose != Ok((slot as u64, thing.version)) || words != thing.words {
        return Err(format!("it is {whose:?} with {words} words, and must be {thing:?}"));
    }
    for (key, expected) in [("q", Some(thing.version)), ("n", thing.noted)] {
        let value = at.attr(Member::Object(oid), key).map_err(|error| error.to_string())?;
        let found = value.as_ref().and_then(number_of);
        if found != expected {
            return Err(format!("it has {key}={found:?}, not {expected:?}"));
        }
    }
    Ok(())
}

/// Whether one realm has an object, and no other.
fn in_one(at: &Namespace, oid: Oid) -> std::result::Result<(), String> {
    let mut homes = Vec::new();
    for scope in Scope::ALL {
        let realm = at.realm_of(scope, false).map_err(|error| error.to_string())?;
        if realm.is_some_and(|realm| realm.object(oid).is_ok()) {
            homes.push(scope);
        }
    }
    if homes.len() == 1 { Ok(()) } else { Err(format!("object {oid:#x} is in {homes:?}")) }
}
