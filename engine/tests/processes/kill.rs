//! Writers killed at any instant: every acknowledged write is there, nothing is there by halves,
//! and nothing leaks.

use std::collections::BTreeMap;

use crate::common::{
    Fixture, Line, OVER, Peer, Random, alone, attach, filled, floats, fork, map_of, seed, sound,
};
use engram::{Kind, Member, Mode, Realm, Value};

/// What a writer does in one step, all of it or nothing.
#[derive(Clone, Debug)]
enum Step {
    Put { name: String, version: u64, words: usize },
    Allocate { name: String, version: u64, words: usize },
    Delete { name: String },
    Rename { old: String, new: String },
    Annotate { name: String, version: u64 },
    Scratch { words: usize },
    Batch { steps: Vec<Step> },
}

/// What an array holds and what it is annotated with.
type Model = BTreeMap<String, (u64, usize, u64)>;

/// The steps of a writer follow from its seed: its parent can tell what it was about to do.
struct Steps {
    random: Random,
    writer: u64,
    version: u64,
}

impl Steps {
    fn name(&mut self) -> String {
        let (group, name) = (self.random.below(2), self.random.below(5));
        format!("w{}/g{group}/{name}", self.writer)
    }

    fn words(&mut self) -> usize {
        let most = [10, 120, 2000, 20_000][self.random.below(4) as usize];
        3 + self.random.below(most) as usize
    }

    fn next(&mut self, within_batch: bool) -> Step {
        self.version += 1;
        let (name, version) = (self.name(), self.version);
        match self.random.below(if within_batch { 6 } else { 9 }) {
            0 | 1 => Step::Put { name, version, words: self.words() },
            2 => Step::Allocate { name, version, words: 129 + self.words() },
            3 => Step::Delete { name },
            4 => Step::Rename { old: name, new: self.name() },
            5 => Step::Annotate { name, version },
            6 => Step::Scratch { words: self.words() },
            _ => {
                let many = 2 + self.random.below(6);
                Step::Batch { steps: (0..many).map(|_| self.next(true)).collect() }
            }
        }
    }
}

/// Does the step. A step that its own rules refuse changes nothing.
fn perform(realm: &Realm, writer: u64, step: &Step) -> Result<(), Kind> {
    let root = realm.root();
    let done = match step {
        Step::Put { name, version, words } => {
            let data = filled(writer, *version, *words);
            realm.put(root, name, &floats(&[*words as u64]), &data, OVER).map(|_| ())
        }
        Step::Allocate { name, version, words } => {
            let (data, new) = (filled(writer, *version, *words), floats(&[*words as u64]));
            realm.allocate(root, name, &new, data.len() as u64, OVER).and_then(|space| {
                // SAFETY: the allocation's own memory.
                unsafe { space.view().as_ptr().copy_from(data.as_ptr(), data.len()) };
                space.publish().map(|_| ())
            })
        }
        Step::Delete { name } => realm.delete(root, name),
        Step::Rename { old, new } => realm.rename(root, old, root, new),
        Step::Annotate { name, version } => match realm.lookup(root, name).unwrap() {
            Some(member) => realm.set_attrs(member, &[("v".into(), version_value(*version))]),
            None => Ok(()),
        },
        Step::Scratch { words } => realm.scratch(*words as u64 * 8, None).map(drop),
        Step::Batch { steps } => {
            realm.begin_batch().unwrap();
            for step in steps {
                let _ = perform(realm, writer, step);
            }
            realm.commit_batch()
        }
    };
    done.map_err(|error| error.kind())
}

fn version_value(version: u64) -> Value {
    Value::text(&version.to_string())
}

/// What the step does to the model.
fn imagine(model: &mut Model, step: &Step) {
    match step {
        Step::Put { name, version, words } | Step::Allocate { name, version, words } => {
            model.insert(name.clone(), (*version, *words, 0));
        }
        Step::Delete { name } => drop(model.remove(name)),
        Step::Rename { old, new } => {
            if !model.contains_key(new)
                && let Some(moved) = model.remove(old)
            {
                model.insert(new.clone(), moved);
            }
        }
        Step::Annotate { name, version } => {
            if let Some((_, _, attr)) = model.get_mut(name) {
                *attr = *version;
            }
        }
        Step::Scratch { .. } => {}
        Step::Batch { steps } => steps.iter().for_each(|step| imagine(model, step)),
    }
}

/// Writes until it is killed, and acknowledges each step.
fn write_for_ever(realm: &Realm, line: &Line, mut steps: Steps) {
    for number in 0.. {
        let step = steps.next(false);
        match perform(realm, steps.writer, &step) {
            Ok(()) | Err(Kind::NotFound | Kind::Exists) => {}
            Err(kind) => panic!("{kind:?} from {step:?}"),
        }
        line.say(number);
    }
}

/// What the realm holds of a writer, as its model would say it.
fn held_by(realm: &Realm, writer: u64) -> Model {
    let mut held = Model::new();
    for (name, bytes) in map_of(realm, &format!("w{writer}")) {
        let Some(bytes) = bytes else { continue };
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap());
        assert_eq!(word(0), writer, "{name}");
        assert_eq!(bytes, filled(writer, word(1), bytes.len() / 8), "{name} is torn");
        let oid = realm.lookup(realm.root(), &name).unwrap().unwrap().id();
        let attr = realm.attr(Member::Object(oid), "v").unwrap();
        let attr = attr.map_or(0, |v| String::from_utf8(v.data).unwrap().parse().unwrap());
        held.insert(name, (word(1), bytes.len() / 8, attr));
    }
    held
}

/// The bytes that the model's arrays take in the arena.
fn extent_bytes(model: &Model) -> u64 {
    let of = |words: usize| match words as u64 * 8 {
        0..=1024 => 0,
        bytes @ ..0x1_0000 => bytes.div_ceil(64) * 64,
        bytes => bytes.div_ceil(4096) * 4096,
    };
    model.values().map(|&(_, words, _)| of(words)).sum()
}

/// A writer, what it will do, and what it has acknowledged.
struct Writer {
    peer: Peer,
    steps: Steps,
    seed: u64,
}

impl Writer {
    /// Kills it when it has acknowledged about so many steps; applies to the model what it has
    /// acknowledged, and the step after that if it is there.
    fn kill(mut self, realm: impl FnOnce() -> Realm, acks: u64, spins: u64, model: &mut Model) {
        for number in 0..acks {
            self.peer.line.expect(number);
        }
        (0..spins).for_each(|_| std::hint::spin_loop());
        self.peer.signal(libc::SIGKILL);
        let mut done = acks;
        while let Some(number) = self.peer.line.hear_if_any() {
            assert_eq!(number, done);
            done += 1;
        }
        self.peer.wait();
        for _ in 0..done {
            imagine(model, &self.steps.next(false));
        }
        let next = self.steps.next(false);
        let held = held_by(&realm(), self.steps.writer);
        let mut after = model.clone();
        imagine(&mut after, &next);
        if held == after {
            *model = after;
        }
        assert_eq!(&held, model, "seed {} after {done} steps, in {next:?}", self.seed);
    }
}

#[test]
fn killed_writers_lose_nothing_acknowledged_and_leave_nothing_behind() {
    const SIZE: u64 = 32 << 20;
    alone("killed_writers_lose_nothing_acknowledged_and_leave_nothing_behind", || {
        let mut random = Random(seed());
        let fixture = Fixture::new(SIZE);
        fixture.pool.close();
        let mut models = [Model::new(), Model::new()];
        for round in 0..75_u64 {
            // In every other round the writers inherit the pool; else each opens it itself.
            let opened = (round % 2 == 0).then(|| attach(&fixture.path, Mode::ReadWrite));
            let writers = [0, 1].map(|writer| {
                let seed = random.next();
                let version = round << 32;
                let steps = || Steps { random: Random(seed), writer, version };
                let peer = fork(|line| {
                    let attached = || attach(&fixture.path, Mode::ReadWrite);
                    let (_pool, realm) = opened.clone().unwrap_or_else(attached);
                    write_for_ever(&realm, line, steps());
                });
                Writer { peer, steps: steps(), seed }
            });
            for (writer, model) in writers.into_iter().zip(&mut models) {
                let (acks, spins) = (random.below(30), random.below(40_000));
                let realm = || match &opened {
                    Some((_pool, realm)) => realm.clone(),
                    None => attach(&fixture.path, Mode::Read).1,
                };
                writer.kill(realm, acks, spins, model);
            }
            let report = sound(&fixture.path);
            assert_eq!(report.objects as usize, models.iter().map(Model::len).sum::<usize>());
            assert_eq!(report.used, models.iter().map(extent_bytes).sum::<u64>());
        }
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        assert_eq!(realm.space().unwrap().pids, [std::process::id()]);
        let others = |name: &String| name.as_str() != "spare";
        assert_eq!(fixture.leases().iter().filter(|name| others(name)).count(), 2);
        for writer in ["w0", "w1"] {
            realm.delete(realm.root(), writer).unwrap();
        }
        drop(realm.scratch(SIZE, None).unwrap());
        assert_eq!(sound(&fixture.path).used, 0);
    });
}
