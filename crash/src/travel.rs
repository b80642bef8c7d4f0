//! What goes from scope to scope: objects of each worker's own, and a group that is always there.
//!
//! The worker of a slot has some places in `w<slot>/t`, whose objects are private, shared or
//! published, and a group `w<slot>/run`, made with the pool, that is moved whole and never deleted.
//! So whoever looks, at any instant and whoever has died, finds all of the run, once, in one scope;
//! and a stranger finds all of it or nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use engram::query::parse;
use engram::{
    Error, Found, Gid, Kind, Member, Namespace, Oid, Payload, QueryOptions, Realm, Result, Scope,
};

use crate::data::{Random, filled};
use crate::machine::rest;
use crate::model::{Item, Model};
use crate::operation::{Operation, index_mode};
use crate::pool::{array, number, number_of, over, with_words};

/// Places that a worker has for what travels.
pub const PLACES: u8 = 5;
/// The lengths, in words, of what is in a run: inline, a page, and more.
pub(crate) const RUN_WORDS: [usize; 3] = [9, 700, 20_000];
/// Whose values these are: no slot's.
const RUN_TAG: u64 = 1 << 32;

/// What was found, or what is wrong.
type Checked<T> = std::result::Result<T, String>;

/// The path of a place.
fn path_of(slot: usize, place: u8) -> String {
    format!("w{slot}/t/{place}")
}

fn run_of(slot: usize) -> String {
    format!("w{slot}/run")
}

/// Makes what is to travel.
pub(crate) fn make(realm: &Realm, slot: usize) {
    let root = realm.root();
    realm.create_group(root, &format!("w{slot}/t"), &[], &[], false).expect("a group");
    for (place, words) in RUN_WORDS.into_iter().enumerate() {
        let new = array(words, vec![("r".to_owned(), number(slot as u64))]);
        let data = filled(RUN_TAG + slot as u64, place as u64, words);
        let path = format!("{}/{place}", run_of(slot));
        realm.put(root, &path, &new, &data, over(index_mode(0))).expect("an object");
    }
}

/// A scope for a number.
pub(crate) fn scope(number: u8) -> Scope {
    Scope::ALL[number as usize % Scope::ALL.len()]
}

/// Where things move from, on their way to `to`.
fn sources(from: u8, to: u8) -> Vec<Scope> {
    match scope(to) {
        Scope::Published => vec![Scope::Private, Scope::Shared],
        _ => vec![scope(from)],
    }
}

fn member(namespace: &Namespace, path: &str) -> Result<Option<Member>> {
    namespace.lookup(namespace.root(), path)
}

/// Does an operation on what travels.
pub(crate) fn perform(namespace: &Namespace, slot: usize, operation: &Operation) -> Result<()> {
    let root = namespace.root();
    match operation {
        Operation::Arrive { place, version, words, private } => {
            let path = path_of(slot, *place);
            let words = *words as usize;
            let new = array(words, vec![("t".to_owned(), number(*version))]);
            let mut placement = over(index_mode(0));
            if *private && member(namespace, &path)?.is_none() {
                placement.scope = Some(Scope::Private);
            }
            let data = filled(slot as u64, *version, words);
            namespace.put(root, &path, &new, &data, placement).map(drop).map_err(refusal)
        }
        Operation::Leave { place } => {
            namespace.delete(root, &path_of(slot, *place)).map_err(refusal)
        }
        Operation::Move { places, from, to } => {
            let mut oids = Vec::new();
            for place in (0..PLACES).filter(|place| places >> place & 1 == 1) {
                if let Some(Member::Object(oid)) = member(namespace, &path_of(slot, place))? {
                    oids.push(oid);
                }
            }
            let from = sources(*from, *to);
            patiently(|| namespace.transfer_all(&oids, &from, scope(*to))).map(drop)
        }
        Operation::MoveRun { to } => {
            let run = member(namespace, &run_of(slot))?.expect("the run is always there");
            let at = namespace.scope_of(run)?;
            if at == scope(*to) {
                return Ok(());
            }
            let from = sources(at as u8, *to);
            patiently(|| namespace.transfer(root, &run_of(slot), &from, scope(*to))).map(drop)
        }
        _ => unreachable!("{operation:?} moves nothing"),
    }
}

/// Does a move, whoever is in its way: one who stands at a step stands there for long.
fn patiently<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match work() {
            Err(error) if error.kind() == Kind::Busy => rest(Duration::from_millis(1)),
            done => return done,
        }
    }
}

/// What is published is refused: nothing has changed.
fn refusal(error: Error) -> Error {
    if error.kind() == Kind::ReadOnly {
        return Error::new(Kind::NotFound, error.message().to_owned());
    }
    error
}

/// An object on its way, as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traveller {
    /// What it is.
    pub item: Item,
    /// Who sees it.
    pub scope: Scope,
}

/// What travels, as it must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Travellers {
    /// By their places.
    pub by_place: BTreeMap<u8, Traveller>,
    /// Where the run is.
    pub run: Scope,
}

impl Travellers {
    /// Does to the model what an operation does to the pool; whether it is refused.
    pub(crate) fn imagine(&mut self, operation: &Operation) -> bool {
        match operation {
            Operation::Arrive { place, version, words, private } => {
                let here = if *private { Scope::Private } else { Scope::Shared };
                let scope = self.by_place.get(place).map_or(here, |there| there.scope);
                if scope == Scope::Published {
                    return true;
                }
                self.by_place.insert(*place, Traveller { item: item(*version, *words), scope });
            }
            Operation::Leave { place } => match self.by_place.get(place) {
                Some(there) if there.scope != Scope::Published => {
                    self.by_place.remove(place);
                }
                _ => return true,
            },
            Operation::Move { places, from, to } => {
                let from = sources(*from, *to);
                for (place, traveller) in &mut self.by_place {
                    if places >> place & 1 == 1 && from.contains(&traveller.scope) {
                        traveller.scope = scope(*to);
                    }
                }
            }
            Operation::MoveRun { to } => self.run = scope(*to),
            _ => {}
        }
        false
    }
}

fn item(version: u64, words: u32) -> Item {
    let (versions, index) = (vec![version], index_mode(0));
    Item { words, versions, made: version, noted: None, index }
}

/// What somebody sees of a group, by the names in it.
fn listed(namespace: &Namespace, gid: Gid) -> Result<Vec<engram::ObjectInfo>> {
    let all = namespace.list_found(gid, None, 100)?;
    let objects = all.into_iter().map(|(name, found)| match found {
        Found::Object(info) => info,
        Found::Group(gid) => panic!("{name} is the group {gid:#x}"),
    });
    Ok(objects.collect())
}

/// The objects of this value of an attribute, or with it at all, each as often as it is found.
fn having(namespace: &Namespace, below: Gid, text: &str) -> Result<Vec<Oid>> {
    let options = QueryOptions { root: Some(below), ..QueryOptions::default() };
    Ok(namespace.query(&parse(text)?, &options)?.oids)
}

/// The group at a path.
fn group_at(namespace: &Namespace, path: &str) -> Option<Gid> {
    match member(namespace, path).expect("a look-up") {
        Some(Member::Group(gid)) => Some(gid),
        Some(Member::Object(oid)) => panic!("{path} is the object {oid:#x}"),
        None => None,
    }
}

/// Looks at the run of a slot: all of it, once, in one scope. How many things were looked at.
///
/// # Panics
///
/// If it is not so.
pub(crate) fn check_run(namespace: &Namespace, slot: usize) -> (u64, Scope) {
    let path = run_of(slot);
    let gid = group_at(namespace, &path).unwrap_or_else(|| panic!("{path} is gone"));
    let all = listed(namespace, gid).expect("a listing");
    let seen = || all.iter().map(|info| (&info.name, info.scope)).collect::<Vec<_>>();
    assert_eq!(all.len(), RUN_WORDS.len(), "{path} has {:?}", seen());
    let one = all.iter().all(|info| info.scope == all[0].scope);
    assert!(one, "{path} is on two sides: {:?}", seen());
    for (place, info) in all.iter().enumerate() {
        let (payload, _) = namespace.payload(info.oid).expect("a value");
        check_value(&payload, slot, place, &format!("{path}/{}", info.name));
    }
    (2 + all.len() as u64, all[0].scope)
}

fn check_value(payload: &Payload, slot: usize, place: usize, path: &str) {
    let whole = with_words(payload, |words| words.whole());
    let expected = Ok((RUN_TAG + slot as u64, place as u64));
    assert_eq!(whole, expected, "{path}");
}

/// Looks at a run as somebody to whom it may be closed: all of it, or nothing; and only what is
/// published.
///
/// # Panics
///
/// If it is not so.
pub(crate) fn check_as_stranger(namespace: &Namespace, slot: usize) -> u64 {
    let mut checks = 1;
    for path in [run_of(slot), format!("w{slot}/t")] {
        let Some(gid) = group_at(namespace, &path) else { continue };
        // It may be withdrawn between two looks.
        let all = listed(namespace, gid).unwrap_or_default();
        let none_or_all = all.is_empty() || all.len() == RUN_WORDS.len();
        assert!(none_or_all || path != run_of(slot), "{path} has {} members", all.len());
        for (place, info) in all.iter().enumerate() {
            assert_eq!(info.scope, Scope::Published, "a stranger sees {path}/{}", info.name);
            match namespace.payload(info.oid) {
                Ok((payload, _)) if path == run_of(slot) => {
                    check_value(&payload, slot, place, &path);
                }
                Ok((payload, _)) => {
                    let whole = with_words(&payload, |words| words.whole());
                    assert!(whole.is_ok_and(|(tag, _)| tag == slot as u64), "{path}");
                }
                Err(error) => assert_eq!(error.kind(), Kind::NotFound, "{error}"),
            }
            checks += 2;
        }
    }
    checks
}

/// Compares what travels with a model; how many things were compared.
pub(crate) fn compare(namespace: &Namespace, slot: usize, model: &Model) -> Checked<u64> {
    let told = |error: Error| error.to_string();
    let (mut checks, run) = check_run(namespace, slot);
    let model = &model.travellers;
    if run != model.run {
        return Err(format!("the run of w{slot} is {run:?}, not {:?}", model.run));
    }
    let below = group_at(namespace, &run_of(slot)).ok_or("the run is gone")?;
    let mut oids: Vec<Oid> =
        listed(namespace, below).map_err(told)?.iter().map(|i| i.oid).collect();
    only_in(namespace, &oids, run)?;
    oids.sort_unstable();
    let found = having(namespace, below, &format!("r = {slot}")).map_err(told)?;
    if found != oids {
        return Err(format!("a query finds {found:x?} of the run of w{slot}, not {oids:x?}"));
    }
    let path = format!("w{slot}/t");
    let gid = group_at(namespace, &path).ok_or(format!("{path} is gone"))?;
    let all = listed(namespace, gid).map_err(told)?;
    let names: Vec<String> = all.iter().map(|info| info.name.clone()).collect();
    let expected: Vec<String> = model.by_place.keys().map(u8::to_string).collect();
    if names != expected {
        return Err(format!("{path} has {names:?}, not {expected:?}"));
    }
    for (info, (place, traveller)) in all.iter().zip(&model.by_place) {
        let path = path_of(slot, *place);
        if info.scope != traveller.scope {
            return Err(format!("{path} is {:?}, not {:?}", info.scope, traveller.scope));
        }
        only_in(namespace, &[info.oid], info.scope)?;
        let (payload, _) = namespace.payload(info.oid).map_err(told)?;
        if let Some(why) = with_words(&payload, |words| traveller.item.misfit(slot, &words)) {
            return Err(format!("{path}: {why}"));
        }
        let made = namespace.attr(Member::Object(info.oid), "t").map_err(told)?;
        let made = made.as_ref().and_then(number_of);
        if made != Some(traveller.item.made) {
            return Err(format!("{path} has t={made:?}, not {}", traveller.item.made));
        }
        checks += 5;
    }
    let found = having(namespace, gid, "t >= 0").map_err(told)?;
    let mut oids: Vec<Oid> = all.iter().map(|info| info.oid).collect();
    oids.sort_unstable();
    if found != oids {
        return Err(format!("a query finds {found:x?} in {path}, not {oids:x?}"));
    }
    Ok(checks + 4)
}

/// Whether the realm of one scope has these objects, and no other realm has.
fn only_in(namespace: &Namespace, oids: &[Oid], scope: Scope) -> Checked<()> {
    for other in Scope::ALL {
        let realm = namespace.realm_of(other, false).map_err(|error| error.to_string())?;
        for oid in oids {
            let there = realm.as_ref().is_some_and(|realm| realm.object(*oid).is_ok());
            if there != (other == scope) {
                return Err(format!(
                    "object {oid:#x} is {}in the {other:?} realm, and belongs to the {scope:?} one",
                    if there { "" } else { "not " }
                ));
            }
        }
    }
    Ok(())
}

/// Brings everything back to the private realm, so that it can be deleted.
///
/// # Panics
///
/// If that fails.
pub(crate) fn withdraw_all(namespace: &Namespace, slots: usize) {
    let (from, to) = ([Scope::Published], Scope::Shared);
    for slot in 0..slots {
        let mut oids = Vec::new();
        for path in [run_of(slot), format!("w{slot}/t")] {
            let gid = group_at(namespace, &path).expect("it is always there");
            oids.extend(listed(namespace, gid).expect("a listing").iter().map(|info| info.oid));
        }
        if namespace.scope_of(run_member(namespace, slot)).expect("a scope") == Scope::Published {
            let run = run_of(slot);
            namespace.transfer(namespace.root(), &run, &from, to).expect("withdrawing");
        }
        namespace.transfer_all(&oids, &from, to).expect("withdrawing");
    }
}

fn run_member(namespace: &Namespace, slot: usize) -> Member {
    let found = member(namespace, &run_of(slot)).expect("a look-up");
    found.expect("the run is always there")
}

/// An operation on what travels.
pub(crate) fn any(random: &mut Random, version: u64, publishing: bool) -> Operation {
    let place = random.below(u64::from(PLACES)) as u8;
    let scope = |random: &mut Random| {
        let to = [0, 1, 0, 1, 2][random.below(5) as usize];
        if publishing && random.percent(40) { 2 } else { to }
    };
    match random.below(8) {
        0..3 => {
            let most = [20, 120, 1500, 6000][random.below(4) as usize];
            let words = 3 + random.below(most) as u32;
            Operation::Arrive { place, version, words, private: random.percent(50) }
        }
        3 => Operation::Leave { place },
        4 | 5 => {
            let to = scope(random);
            let from = (to + 1 + random.below(2) as u8) % 3;
            Operation::Move { places: random.below(1 << PLACES) as u8, from, to }
        }
        _ => Operation::MoveRun { to: scope(random) },
    }
}
