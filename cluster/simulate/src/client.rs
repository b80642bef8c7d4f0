//! Those who publish and read: a process that has no pool of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engram_protocol::Action;
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Keys, LeaseId, Reply, Request, Revision, Row};
use engram_protocol::holdings::Held;
use engram_protocol::lease::TTL;
use engram_protocol::maker::Maker;
use engram_protocol::manifest::{Boxes, Content, Holder, Manifest, Part};
use engram_protocol::map::Map;
use engram_protocol::publish::{Outcome, Proposal, Publish, Seen};
use engram_protocol::read::{Failure, Fetch, Fetched, Read, Step, Wanted};
use engram_protocol::strike::{Strike, Verdict};

use crate::Setup;
use crate::network::Actor;
use crate::node::content;
use crate::random::Dice;
use crate::truth::{Made, Truth};
use crate::world::{Answer, Clock, Out, Task};

/// So long a holder is waited for.
const DEADLINE: Duration = Duration::from_secs(8);

/// A read, and what was known when it began.
struct Reading {
    read: Read,
    path: String,
    acknowledged: Revision,
    /// The uuid of the manifest that it was about last.
    about: Option<String>,
    /// What is fetched, and until when it is waited for.
    fetches: BTreeMap<u64, (Fetch, Moment)>,
}

/// A publication: parts are made, then the names are committed.
struct Publication {
    paths: Vec<String>,
    parts: u32,
    replicas: u32,
    /// The names that are removed.
    removed: Vec<String>,
    /// Whether no parts are made: the name is published anew with those that it has.
    seals: bool,
    /// As whom its parts are made: it is published as the same, even if the process has begun anew.
    maker: LeaseId,
    began: Moment,
    seen: Seen,
    proposals: Vec<Proposal>,
    /// Parts that are being made: by place, who makes them.
    waits: BTreeMap<usize, Holder>,
    /// How long its maker is at other things when its parts are made, and when it is committed.
    long: u64,
    commits_at: Option<Moment>,
    publish: Option<Publish>,
}

enum Operation {
    Read(Box<Reading>),
    Publish(Box<Publication>),
}

/// A process.
pub(crate) struct Client {
    actor: Actor,
    keys: Keys,
    setup: Setup,
    pub(crate) clock: Clock,
    pub(crate) life: u64,
    maker: Maker,
    map: Map,
    operations: BTreeMap<u64, Operation>,
    strikes: BTreeMap<u64, Strike>,
    /// Who is being looked at.
    suspects: BTreeSet<(String, LeaseId)>,
    count: u64,
    /// The publications that may take effect yet, by their numbers.
    begun: BTreeSet<u64>,
    pub(crate) is_gone: bool,
}

/// The tokens of questions that no machine of the protocol asks.
const NAMES: u64 = 1 << 40;
const MAP: u64 = NAMES + 1;

impl Client {
    pub(crate) fn new(setup: &Setup, keys: &Keys, actor: Actor) -> Client {
        Client {
            actor,
            keys: keys.clone(),
            setup: *setup,
            clock: Clock::of(setup.seed, actor),
            life: 0,
            maker: Maker::new(keys, TTL),
            map: Map::default(),
            operations: BTreeMap::new(),
            strikes: BTreeMap::new(),
            suspects: BTreeSet::new(),
            count: 0,
            begun: BTreeSet::new(),
            is_gone: false,
        }
    }

    /// A process begins, in place of one that has ended.
    pub(crate) fn begin(&mut self, now: Moment) -> Vec<Out> {
        self.life += 1;
        self.maker = Maker::new(&self.keys, TTL);
        self.map = Map::default();
        self.operations.clear();
        self.begun.clear();
        self.strikes.clear();
        self.suspects.clear();
        let actions = self.maker.start(now);
        self.plain(Task::Maker, actions, |_| None)
    }

    /// Publishes the first of these names, and removes the others.
    pub(crate) fn publish(
        &mut self,
        now: Moment,
        paths: Vec<String>,
        removed: Vec<String>,
        parts: u32,
        replicas: u32,
        long: u64,
    ) -> Vec<Out> {
        let mut paths = paths;
        paths.extend(removed.iter().cloned());
        let publication = Publication {
            paths,
            parts,
            replicas,
            removed,
            seals: false,
            maker: 0,
            began: now,
            seen: Seen::default(),
            proposals: Vec::new(),
            waits: BTreeMap::new(),
            long,
            commits_at: None,
            publish: None,
        };
        self.begin_publication(now, publication)
    }

    /// Publishes a name anew with the parts that it has, as those that were written in place are.
    pub(crate) fn seal(&mut self, now: Moment, path: String) -> Vec<Out> {
        let publication = Publication {
            paths: vec![path],
            parts: 0,
            replicas: 1,
            removed: Vec::new(),
            seals: true,
            maker: 0,
            began: now,
            seen: Seen::default(),
            proposals: Vec::new(),
            waits: BTreeMap::new(),
            long: 0,
            commits_at: None,
            publish: None,
        };
        self.begin_publication(now, publication)
    }

    fn begin_publication(&mut self, now: Moment, publication: Publication) -> Vec<Out> {
        let mut keys: Vec<_> = publication.paths.iter().map(|path| self.keys.name(path)).collect();
        keys.push(self.keys.removed());
        let task = self.add(Operation::Publish(Box::new(publication)));
        self.begun.insert(self.count);
        let mut outs = vec![
            Out::Ask { task, token: NAMES, request: Request::Get { keys } },
            Out::Wake { task, at: now + DEADLINE },
        ];
        if self.map.serving().next().is_none() {
            outs.push(self.ask_map(task));
        }
        outs
    }

    /// Reads a name.
    pub(crate) fn read(&mut self, now: Moment, path: &str, truth: &Truth) -> Vec<Out> {
        let map = self.map.clone();
        let (wanted, rules) = (Wanted::All, self.setup.rules);
        let mut read = Read::new(&self.keys, path, wanted, None, map, now + DEADLINE * 6, rules);
        let actions = read.start(now);
        let (path, fetches) = (path.to_owned(), BTreeMap::new());
        let acknowledged = truth.acknowledged(&path);
        let reading = Reading { read, path, acknowledged, about: None, fetches };
        let task = self.add(Operation::Read(Box::new(reading)));
        self.of_read(now, task, actions)
    }

    fn add(&mut self, operation: Operation) -> Task {
        self.count += 1;
        self.operations.insert(self.count, operation);
        Task::Operation(self.count)
    }

    fn ask_map(&self, task: Task) -> Out {
        Out::Ask { task, token: MAP, request: Request::List { prefix: self.keys.map() } }
    }

    /// A timer of one of its tasks.
    pub(crate) fn tick(&mut self, now: Moment, task: Task) -> Vec<Out> {
        match task {
            Task::Maker => {
                let actions = self.maker.tick(now);
                self.plain(task, actions, |_| None)
            }
            Task::Strike(number) => {
                let actions = self.strikes.get_mut(&number).map_or(Vec::new(), |s| s.tick(now));
                self.of_strike(number, actions)
            }
            Task::Operation(number) => match self.operations.get_mut(&number) {
                Some(Operation::Read(reading)) => {
                    let late: Vec<u64> = (reading.fetches.iter())
                        .filter_map(|(attempt, (_, until))| (now >= *until).then_some(*attempt))
                        .collect();
                    let mut actions = reading.read.tick(now);
                    for attempt in late {
                        reading.fetches.remove(&attempt);
                        actions.extend(reading.read.fetched(now, attempt, Fetched::Failed));
                    }
                    self.of_read(now, task, actions)
                }
                Some(Operation::Publish(_)) => self.tick_publication(now, number),
                None => Vec::new(),
            },
            Task::Membership | Task::Holdings => Vec::new(),
        }
    }

    fn tick_publication(&mut self, now: Moment, number: u64) -> Vec<Out> {
        let task = Task::Operation(number);
        let Some(Operation::Publish(publication)) = self.operations.get_mut(&number) else {
            return Vec::new();
        };
        if let Some(publish) = &mut publication.publish {
            let actions = publish.tick(now);
            return self.of_publish(task, actions);
        }
        let until = publication.commits_at.unwrap_or(publication.began + DEADLINE);
        if now >= until && publication.commits_at.is_some() {
            return self.commit(now, number);
        }
        if now < until {
            return vec![Out::Wake { task, at: until }];
        }
        let silent: Vec<Holder> = publication.waits.values().cloned().collect();
        self.give_up(now, number, silent)
    }

    /// Whether a publication may take effect yet.
    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// A publication has taken effect, or never will.
    fn has_ended(&mut self, number: u64) {
        self.begun.remove(&number);
        let first = self.begun.first().copied();
        self.maker.has_ended_below(first.unwrap_or(self.count + 1));
    }

    /// Ends a publication before it was committed: its parts are for those who hold them to free.
    fn give_up(&mut self, now: Moment, number: u64, silent: Vec<Holder>) -> Vec<Out> {
        self.operations.remove(&number);
        self.has_ended(number);
        self.map = Map::default();
        let mut outs = vec![Out::Refused];
        for Holder { node, member } in silent {
            outs.extend(self.suspect(now, &node, member));
        }
        outs
    }

    /// A reply of the coordinator to one of its tasks.
    pub(crate) fn reply(&mut self, now: Moment, task: Task, token: u64, reply: Reply) -> Vec<Out> {
        match task {
            Task::Maker => {
                let actions = self.maker.reply(now, token, &reply);
                self.plain(task, actions, |notice| Some(format!("{notice:x?}")))
            }
            Task::Strike(number) => {
                let strike = self.strikes.get_mut(&number);
                let actions = strike.map_or(Vec::new(), |s| s.reply(now, token, reply));
                self.of_strike(number, actions)
            }
            Task::Operation(number) => match self.operations.get_mut(&number) {
                Some(Operation::Read(reading)) => {
                    let actions = reading.read.reply(now, token, reply);
                    self.of_read(now, task, actions)
                }
                Some(Operation::Publish(publication)) => match &mut publication.publish {
                    Some(publish) => {
                        let actions = publish.reply(now, token, reply);
                        self.of_publish(task, actions)
                    }
                    None => self.looked(now, number, token, reply),
                },
                None => Vec::new(),
            },
            Task::Membership | Task::Holdings => Vec::new(),
        }
    }

    /// The names or the map were looked up: when both are there, parts are made.
    fn looked(&mut self, now: Moment, number: u64, token: u64, reply: Reply) -> Vec<Out> {
        let Some(Operation::Publish(publication)) = self.operations.get_mut(&number) else {
            return Vec::new();
        };
        let Reply::Rows { revision, rows } = reply else { return Vec::new() };
        if token == MAP {
            self.map = Map::of(&self.keys, &rows).expect("the map can be read");
        } else if publication.proposals.is_empty() {
            publication.proposals = proposals(&self.keys, publication, revision, &rows);
            let removed = rows.iter().find(|row| row.key == self.keys.removed());
            publication.seen.removed = removed.map_or(0, |row| row.modified);
        }
        let is_made = !publication.waits.is_empty() || publication.commits_at.is_some();
        if publication.proposals.is_empty() || is_made {
            return Vec::new();
        }
        if publication.seals && publication.proposals[0].manifest.is_none() {
            return self.give_up(now, number, Vec::new());
        }
        if self.map.serving().next().is_none() {
            return Vec::new();
        }
        let there = publication.proposals.iter().filter_map(|each| each.manifest.as_ref());
        let mut holders = there.flat_map(|manifest| &manifest.holders);
        if publication.seals && !holders.all(|own| self.map.is_member(own, self.setup.rules)) {
            return self.give_up(now, number, Vec::new());
        }
        self.make_parts(now, number)
    }

    fn make_parts(&mut self, now: Moment, number: u64) -> Vec<Out> {
        let Some(Operation::Publish(publication)) = self.operations.get_mut(&number) else {
            return Vec::new();
        };
        let Some(maker) = self.maker.id() else { return self.give_up(now, number, Vec::new()) };
        publication.maker = maker;
        publication.seen.epoch = self.map.epoch;
        let mut dice = Dice::new(&[self.setup.seed, self.actor as u64, self.count, 3]);
        let mut outs = Vec::new();
        // Failures look for the first nodes: so do publications.
        let serving: Vec<_> = self.map.serving().take(8).collect();
        {
            for (place, proposal) in publication.proposals.iter_mut().enumerate() {
                let uuid = format!("{:x}-{:x}-{:x}-{place}", self.actor, self.life, number);
                let Some(manifest) = proposal.manifest.as_mut() else { continue };
                let before = std::mem::replace(&mut manifest.uuid, uuid.clone());
                let Content::Array(boxes) = &mut manifest.content else { continue };
                if publication.seals {
                    boxes.made.get_or_insert(before);
                    continue;
                }
                for (part, made) in boxes.parts.iter_mut().enumerate() {
                    let part = part as u32;
                    made.checksum = Some(content(&uuid, part));
                    let first = dice.below(serving.len() as u64) as usize;
                    for replica in 0..(publication.replicas as usize).min(serving.len()) {
                        let entry = serving[(first + replica) % serving.len()];
                        let (node, member) = (entry.identity.node.clone(), entry.member);
                        let holder = Holder { node, member };
                        let known = manifest.holders.iter().position(|other| *other == holder);
                        let at = known.unwrap_or_else(|| {
                            manifest.holders.push(holder.clone());
                            manifest.holders.len() - 1
                        });
                        made.holders.push(at as u32);
                        let (path, uuid) = (proposal.path.clone(), uuid.clone());
                        let checksum = made.checksum;
                        let begun = number;
                        let held = Held { path, uuid, part, maker, begun, checksum };
                        let place = publication.waits.len();
                        publication.waits.insert(place, holder);
                        let to = entry.identity.address.parse().expect("an actor");
                        let back = Task::Operation(number);
                        outs.push(Out::Prepare { to, back, place, held, member });
                    }
                }
            }
        }
        if publication.waits.is_empty() { self.commit(now, number) } else { outs }
    }

    /// A holder says whether it has made a part.
    pub(crate) fn prepared(
        &mut self,
        now: Moment,
        number: u64,
        place: usize,
        ok: bool,
    ) -> Vec<Out> {
        let Some(Operation::Publish(publication)) = self.operations.get_mut(&number) else {
            return Vec::new();
        };
        if publication.publish.is_some() {
            return Vec::new();
        }
        if !ok {
            return self.give_up(now, number, Vec::new());
        }
        publication.waits.remove(&place);
        if !publication.waits.is_empty() || publication.commits_at.is_some() {
            return Vec::new();
        }
        if publication.long > 0 {
            let at = now + Duration::from_nanos(publication.long);
            publication.commits_at = Some(at);
            return vec![Out::Wake { task: Task::Operation(number), at }];
        }
        self.commit(now, number)
    }

    fn commit(&mut self, now: Moment, number: u64) -> Vec<Out> {
        let Some(Operation::Publish(publication)) = self.operations.get_mut(&number) else {
            return Vec::new();
        };
        let maker = publication.maker;
        let (proposals, seen) = (publication.proposals.clone(), publication.seen);
        let deadline = now + DEADLINE * 3;
        let mut publish =
            Publish::new(&self.keys, maker, proposals, seen, deadline, self.setup.rules);
        let actions = publish.start(now);
        publication.publish = Some(publish);
        self.of_publish(Task::Operation(number), actions)
    }

    /// A holder's answer to a fetch.
    pub(crate) fn fetched(
        &mut self,
        now: Moment,
        number: u64,
        attempt: u64,
        answer: Answer,
    ) -> Vec<Out> {
        let Some(Operation::Read(reading)) = self.operations.get_mut(&number) else {
            return Vec::new();
        };
        let Some((fetch, _)) = reading.fetches.remove(&attempt) else { return Vec::new() };
        let end = match answer {
            Answer::Whole(bytes) if bytes == content(&fetch.uuid, fetch.part) => Fetched::Whole,
            Answer::NotThere => Fetched::NotThere,
            Answer::Whole(_) => Fetched::Differs,
            Answer::Failed => Fetched::Failed,
        };
        let actions = reading.read.fetched(now, attempt, end);
        self.of_read(now, Task::Operation(number), actions)
    }

    fn suspect(&mut self, now: Moment, node: &str, member: LeaseId) -> Vec<Out> {
        if !self.suspects.insert((node.to_owned(), member)) {
            return Vec::new();
        }
        self.count += 1;
        let mut strike = Strike::new(&self.keys, node, member, 0, self.setup.rules);
        let actions = strike.start(now);
        self.strikes.insert(self.count, strike);
        self.of_strike(self.count, actions)
    }

    fn of_strike(&mut self, number: u64, actions: Vec<Action<Verdict>>) -> Vec<Out> {
        let ended = actions.iter().any(|action| matches!(action, Action::Own(_)));
        let outs =
            self.plain(Task::Strike(number), actions, |verdict| Some(format!("{verdict:?}")));
        if ended {
            self.strikes.remove(&number);
            self.suspects.clear();
        }
        outs
    }

    fn of_publish(&mut self, task: Task, actions: Vec<Action<Outcome>>) -> Vec<Out> {
        let Task::Operation(number) = task else { return Vec::new() };
        let mut outs = Vec::new();
        for action in actions {
            match action {
                Action::Own(outcome) => {
                    let Some(Operation::Publish(ended)) = self.operations.remove(&number) else {
                        continue;
                    };
                    outs.push(Out::Tell(format!("{:?} ends: {outcome:x?}", ended.paths)));
                    if outcome != Outcome::Unknown {
                        self.has_ended(number);
                    }
                    let made = |proposal: Proposal| {
                        let uuid = proposal.manifest.map(|manifest| manifest.uuid);
                        Made { path: proposal.path, uuid, seen: proposal.seen }
                    };
                    let made = ended.proposals.into_iter().map(made).collect();
                    match outcome {
                        Outcome::Published(revision) => {
                            outs.push(Out::Published { made, revision });
                        }
                        outcome => {
                            self.map = Map::default();
                            outs.push(Out::Refused);
                            if outcome != Outcome::Unknown {
                                outs.push(Out::NotPublished { made });
                            }
                        }
                    }
                }
                other => outs.extend(self.plain(task, vec![other], |_: Outcome| None)),
            }
        }
        outs
    }

    fn of_read(&mut self, now: Moment, task: Task, actions: Vec<Action<Step>>) -> Vec<Out> {
        let Task::Operation(number) = task else { return Vec::new() };
        let mut outs = Vec::new();
        if let Some(Operation::Read(reading)) = self.operations.get_mut(&number)
            && let Some(manifest) = reading.read.manifest()
        {
            reading.about = Some(manifest.uuid.clone());
        }
        for action in actions {
            let Action::Own(step) = action else {
                outs.extend(self.plain(task, vec![action], |_: Step| None));
                continue;
            };
            match step {
                Step::Fetch(fetch) => {
                    let Some(Operation::Read(reading)) = self.operations.get_mut(&number) else {
                        continue;
                    };
                    let (until, attempt) = (now + DEADLINE, fetch.attempt);
                    reading.fetches.insert(attempt, (fetch.clone(), until));
                    let to = fetch.address.parse().expect("an actor");
                    outs.push(Out::Fetch { to, back: task, fetch });
                    outs.push(Out::Wake { task, at: until });
                }
                Step::Suspect { node, member } => outs.extend(self.suspect(now, &node, member)),
                Step::Done { modified, .. } => outs.extend(self.ended(number, Ok(modified))),
                Step::Failed(why) => outs.extend(self.ended(number, Err(why))),
            }
        }
        outs
    }

    fn ended(&mut self, number: u64, end: Result<Revision, Failure>) -> Vec<Out> {
        let Some(Operation::Read(reading)) = self.operations.remove(&number) else {
            return Vec::new();
        };
        let Reading { read, path, acknowledged, about, .. } = *reading;
        self.map = read.into_map();
        vec![Out::Read { path, acknowledged, about, end }]
    }

    /// What needs no more than to be passed on.
    fn plain<T>(
        &self,
        task: Task,
        actions: Vec<Action<T>>,
        told: impl Fn(T) -> Option<String>,
    ) -> Vec<Out> {
        let pass = |action| match action {
            Action::Ask { token, request } => Some(Out::Ask { task, token, request }),
            Action::Wake(at) => Some(Out::Wake { task, at }),
            Action::Own(own) => {
                told(own).map(|text| Out::Tell(format!("client {}: {text}", self.actor)))
            }
        };
        actions.into_iter().filter_map(pass).collect()
    }
}

/// What names are to be, after they were looked up at this revision: parts without holders yet.
fn proposals(
    keys: &Keys,
    publication: &Publication,
    revision: Revision,
    rows: &[Row],
) -> Vec<Proposal> {
    let part = |number: u32| Part {
        offsets: vec![u64::from(number) * 10],
        counts: vec![10],
        ..Part::default()
    };
    let of = |path: &String| {
        let row = rows.iter().find(|row| row.key == keys.name(path));
        let parts: Vec<Part> = (0..publication.parts).map(part).collect();
        let (shape, replicas) = (vec![parts.len() as u64 * 10], publication.replicas);
        let dtype = "<f8".to_owned();
        let boxes = Boxes { dtype, shape, replicas, sealed: true, parts, ..Boxes::default() };
        let (uuid, generation) = (String::new(), revision);
        let (holders, content) = (Vec::new(), Content::Array(boxes));
        let manifest = Manifest { uuid, generation, holders, content };
        if publication.seals {
            let there = row.and_then(|row| Manifest::decode(&row.value).ok());
            let seen = row.map_or(0, |row| row.modified);
            let seen_uuid = there.as_ref().map(|there| there.uuid.clone());
            let manifest = there.map(|there| Manifest { generation, ..there });
            return Proposal { path: path.clone(), seen, seen_uuid, manifest };
        }
        let manifest = (!publication.removed.contains(path)).then_some(manifest);
        let seen = row.map_or(0, |row| row.modified);
        let seen_uuid = row.and_then(|row| Manifest::decode(&row.value).ok()).map(|now| now.uuid);
        Proposal { path: path.clone(), seen, seen_uuid, manifest }
    };
    publication.paths.iter().map(of).collect()
}
