//! A small tree that moves between the scopes of a namespace, and what stays true of it.

use std::collections::BTreeMap;
use std::path::Path;

use engram::{
    CopiedIds, Copier, Kind, Member, Mode, Namespace, NewObject, Oid, Payload, Pool, QueryOptions,
    Result, Scope, Value, query,
};

use super::{KEEP, Line, Random, attach, contents, filled, floats, fork, put};

/// A member as it is seen: path, identity, digest of its value (0 for groups).
pub type Seen = (String, u64, u64);

/// The default namespace of a pool, as its user sees it.
pub fn names(pool: &Pool) -> Namespace {
    pool.namespace("default").expect("the default namespace")
}

/// A copier that has nothing to say.
pub struct Quiet;

impl Copier for Quiet {
    fn copied(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn origins(&mut self, _: &CopiedIds, kept: Vec<(u64, Vec<u8>)>) -> Result<Vec<(u64, Vec<u8>)>> {
        Ok(kept)
    }

    fn properties(&self, kept: &[u8], _: bool) -> Vec<u8> {
        kept.to_vec()
    }
}

/// Every way from one scope to another.
pub fn ways() -> impl Iterator<Item = (Scope, Scope)> {
    let pairs = Scope::ALL.into_iter().flat_map(|from| Scope::ALL.map(|to| (from, to)));
    pairs.filter(|(from, to)| from != to)
}

/// A copy of an object's value.
pub fn value_of(namespace: &Namespace, oid: Oid) -> Vec<u8> {
    match namespace.payload(oid).expect("a payload").0 {
        Payload::Inline(bytes) => bytes,
        Payload::Extent(view) => contents(&view),
    }
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
}

/// All that a user sees.
pub fn all(namespace: &Namespace) -> Vec<Seen> {
    let (mut found, mut open) = (Vec::new(), vec![namespace.root()]);
    while let Some(gid) = open.pop() {
        for (_, member) in namespace.list(gid, None, usize::MAX).expect("a listing") {
            let digest = match member {
                Member::Group(inner) => {
                    open.push(inner);
                    0
                }
                Member::Object(oid) => digest(&value_of(namespace, oid)),
            };
            found.push((namespace.path_of(member).expect("a path"), member.id(), digest));
        }
    }
    found.sort();
    found
}

/// The objects of each realm that its user may open, by the realms themselves: each is in one.
pub fn homes(namespace: &Namespace) -> BTreeMap<Oid, Scope> {
    let every = query::parse("order by @path").expect("a query");
    let mut homes = BTreeMap::new();
    for scope in Scope::ALL {
        let Some(realm) = namespace.realm_of(scope, false).expect("realms") else { continue };
        let answer = realm.query(&every, &QueryOptions::default()).expect("an answer");
        for oid in answer.oids {
            let before = homes.insert(oid, scope);
            assert_eq!(before, None, "{oid:#x} is in two realms, the second is {scope:?}");
        }
    }
    homes
}

/// Makes three objects in two groups, which lie in one scope.
pub fn begin(path: &Path, from: Scope) -> Vec<Seen> {
    let (pool, _) = attach(path, Mode::ReadWrite);
    let namespace = names(&pool);
    let made = if from == Scope::Published { Scope::Shared } else { from };
    let realm = namespace.realm_of(made, true).expect("a realm").expect("there is one");
    let attrs = vec![("orbit".to_owned(), Value::text("seven"))];
    realm.create_group(realm.root(), "run/deep", &attrs, b"", false).expect("a group");
    for (name, words) in [("run/inline", 9usize), ("run/large", 9000), ("run/deep/huge", 90_000)] {
        let new = NewObject { attrs: attrs.clone(), ..floats(&[words as u64]) };
        realm.put(realm.root(), name, &new, &filled(words as u64, 1, words), KEEP).expect("put");
    }
    if from == Scope::Published {
        move_run(&namespace, Scope::Shared, Scope::Published);
    }
    let there = all(&namespace);
    drop((namespace, realm));
    pool.close();
    there
}

/// Moves that tree.
pub fn move_run(namespace: &Namespace, from: Scope, to: Scope) {
    namespace.transfer(namespace.root(), "run", &[from], to).expect("a move");
}

/// Moves it in a process that dies as it reaches a step; whether it did.
#[cfg(feature = "faults")]
pub fn die_at(path: &Path, from: Scope, to: Scope, step: &'static str) -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};
    static MOVING: AtomicBool = AtomicBool::new(false);
    let mut mover = fork(|_| {
        engram::faults::on_step(move |at| {
            if at == step && MOVING.load(Ordering::SeqCst) {
                // SAFETY: ends this process, and never returns.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        MOVING.store(true, Ordering::SeqCst);
        move_run(&namespace, from, to);
        MOVING.store(false, Ordering::SeqCst);
    });
    let status = mover.wait();
    assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0, "{status:#x}");
    libc::WIFSIGNALED(status)
}

/// The steps of moves.
#[cfg(feature = "faults")]
pub fn steps() -> impl Iterator<Item = &'static str> {
    let moves = ["transfer.", "publish.", "unpublish."];
    let all = engram::faults::ALL.iter().copied();
    all.filter(move |step| moves.iter().any(|of| step.starts_with(of)))
}

/// How many objects `play` plays with.
pub const OBJECTS: u64 = 6;
const WORDS: usize = 5000;

/// Puts them, in what is shared, beside an empty private realm; their ids.
pub fn toys(pool: &Pool) -> Vec<Oid> {
    let namespace = names(pool);
    let shared = namespace.realm_of(Scope::Shared, false).expect("a realm").expect("there");
    namespace.realm_of(Scope::Private, true).expect("a realm");
    (0..OBJECTS).map(|at| put(&shared, &name(at), &filled(at, 1, WORDS))).collect()
}

fn name(at: u64) -> String {
    format!("g{}/o{at}", at % 2)
}

/// Moves objects about, and renames them, until told to end or killed.
pub fn play(path: &Path, line: &Line, mut random: Random) {
    let pool = Pool::open(path, Mode::ReadWrite, true).expect("it does");
    let namespace = names(&pool);
    let root = namespace.root();
    line.say(0);
    while !line.is_ready() {
        let path = match random.below(4) {
            0 => format!("g{}", random.below(2)),
            _ => name(random.below(OBJECTS)),
        };
        let to = Scope::ALL[random.below(3) as usize];
        let from: Vec<Scope> = Scope::ALL.into_iter().filter(|scope| *scope != to).collect();
        let from = if to == Scope::Published { from } else { vec![from[random.below(2) as usize]] };
        let done = match random.below(5) {
            0 => {
                let (there, away) = (name(random.below(OBJECTS)), "away");
                namespace
                    .rename(root, &there, root, away)
                    .and_then(|()| namespace.rename(root, away, root, &there))
            }
            _ => namespace.transfer(root, &path, &from, to).map(drop),
        };
        // Others move and rename the same objects.
        if let Err(error) = done {
            let others = [Kind::Busy, Kind::NotFound, Kind::Argument, Kind::ReadOnly, Kind::Exists];
            assert!(others.contains(&error.kind()), "{error}");
        }
    }
}

/// Every object is in one realm, with its value; whatever it is called just then.
pub fn whole(namespace: &Namespace, oids: &[Oid]) -> BTreeMap<Oid, Scope> {
    let homes = homes(namespace);
    assert_eq!(homes.keys().copied().collect::<Vec<_>>(), oids);
    assert_eq!(seen_once(namespace, oids), homes);
    homes
}

/// Every object is seen once, by each way of looking, with its value. One that is just arriving may
/// be in two realms, as one object.
pub fn seen_once(namespace: &Namespace, oids: &[Oid]) -> BTreeMap<Oid, Scope> {
    let seen = all(namespace).into_iter().filter(|(.., digest)| *digest != 0);
    let mut seen: Vec<(Oid, String)> = seen.map(|(path, oid, _)| (oid, path)).collect();
    seen.sort();
    assert_eq!(seen.iter().map(|(oid, _)| *oid).collect::<Vec<_>>(), oids, "{seen:?}");
    let every = query::parse("order by @path").expect("a query");
    let mut found = namespace.query(&every, &QueryOptions::default()).expect("an answer").oids;
    found.sort_unstable();
    assert_eq!(found, oids);
    let scope = |(at, (oid, path)): (usize, &(Oid, String))| {
        assert!(value_of(namespace, *oid) == filled(at as u64, 1, WORDS), "{path}");
        let member = namespace.lookup(namespace.root(), path).expect("a look-up");
        assert_eq!(member, Some(Member::Object(*oid)), "{path}");
        (*oid, namespace.scope_of(Member::Object(*oid)).expect("a scope"))
    };
    seen.iter().enumerate().map(scope).collect()
}
