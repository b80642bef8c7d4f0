//! The events, in the order of time.

use std::collections::BTreeMap;

use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Keys, LeaseId, Reply, Request, Revision};
use engram_protocol::holdings::Held;
use engram_protocol::manifest::Manifest;
use engram_protocol::map::Entry;
use engram_protocol::read::{Failure, Fetch};

use crate::client::Client;
use crate::inputs::{CLIENTS, Input, Kind};
use crate::network::{Actor, Network, STORE};
use crate::node::Node;
use crate::random::Dice;
use crate::store::Store;
use crate::truth::{I2, I4, Made, PEACE, Truth, Violation, never, seconds};
use crate::{S, Setup, Tally};

/// So long nothing fails at the end.
const PEACE_LASTS: u64 = 240 * S;

/// A clock that goes almost a quarter faster or slower than the coordinator's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begun: u64,
    millionths: u64,
}

impl Clock {
    pub(crate) fn of(seed: u64, actor: Actor) -> Clock {
        let mut dice = Dice::new(&[seed, actor as u64, 4]);
        Clock { begun: dice.below(1 << 50), millionths: 770_000 + dice.below(460_000) }
    }

    fn says(&self, at: u64) -> Moment {
        Moment(self.begun + (u128::from(at) * u128::from(self.millionths) / 1_000_000) as u64)
    }

    fn when(&self, says: Moment) -> u64 {
        let passed = u128::from(says.0.saturating_sub(self.begun));
        (passed * 1_000_000 / u128::from(self.millionths)) as u64 + 1
    }
}

/// What a process is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    Membership,
    Holdings,
    Maker,
    Strike(u64),
    Operation(u64),
}

/// To whom an answer is brought: a task of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) life: u64,
    pub(crate) task: Task,
}

/// What a holder says to a fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Whole(u64),
    NotThere,
    Failed,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Ask { back: Tag, token: u64, request: Request },
    Reply { back: Tag, token: u64, reply: Reply },
    Prepare { back: Tag, place: usize, held: Held, member: LeaseId },
    Prepared { back: Tag, place: usize, ok: bool },
    Fetch { back: Tag, fetch: Fetch },
    Fetched { back: Tag, attempt: u64, answer: Answer },
}

/// What a process wants, and what it tells of itself.
pub(crate) enum Out {
    Ask {
        task: Task,
        token: u64,
        request: Request,
    },
    Wake {
        task: Task,
        at: Moment,
    },
    Send {
        to: Actor,
        message: Message,
    },
    Prepare {
        to: Actor,
        back: Task,
        place: usize,
        held: Held,
        member: LeaseId,
    },
    Fetch {
        to: Actor,
        back: Task,
        fetch: Fetch,
    },
    Whole {
        node: String,
        member: LeaseId,
        held: Held,
    },
    Freed {
        node: String,
        member: Option<LeaseId>,
        held: Held,
    },
    Answers {
        node: String,
        member: LeaseId,
    },
    /// The maker was told that this took effect.
    Published {
        made: Vec<Made>,
        revision: Revision,
    },
    /// The maker was told that nothing of it took effect, and never will.
    NotPublished {
        made: Vec<Made>,
    },
    Read {
        path: String,
        acknowledged: Revision,
        about: Option<String>,
        end: Result<Revision, Failure>,
    },
    Refused,
    Tell(String),
}

enum Event {
    Arrives {
        from: Actor,
        to: Actor,
        message: Message,
    },
    Wakes {
        actor: Actor,
        life: u64,
        task: Task,
    },
    Input(Kind),
    /// The coordinator is there again.
    Restarted,
    /// A host, or another process of it, begins to serve again.
    Serves {
        node: Actor,
        life: u64,
    },
    Peace,
}

/// Everything.
pub(crate) struct World {
    setup: Setup,
    keys: Keys,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    store: Store,
    network: Network,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    /// The next timer of each task.
    wakes: BTreeMap<(Actor, u64, Task), u64>,
    truth: Truth,
    tally: Tally,
    lines: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(setup: &Setup, tells: bool) -> World {
        let keys = Keys::new("c");
        let nodes = (1..=setup.nodes).map(|actor| Node::new(setup, &keys, actor)).collect();
        let client = |number| Client::new(setup, &keys, setup.nodes + 1 + number);
        World {
            setup: *setup,
            now: 0,
            events: BTreeMap::new(),
            count: 0,
            store: Store::default(),
            network: Network::new(setup.seed),
            nodes,
            clients: (0..CLIENTS).map(client).collect(),
            wakes: BTreeMap::new(),
            truth: Truth::new(&keys),
            tally: Tally::default(),
            lines: tells.then(Vec::new),
            keys,
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }

    pub(crate) fn run(&mut self, inputs: &[Input]) -> Result<Tally, Violation> {
        for node in 1..=self.setup.nodes {
            let mut dice = Dice::new(&[self.setup.seed, node as u64, 5]);
            self.at(dice.below(S), Event::Serves { node, life: 0 });
        }
        for client in 0..CLIENTS {
            self.at(S, Event::Input(Kind::Leave { client }));
        }
        for input in inputs {
            self.at(input.at, Event::Input(input.kind.clone()));
        }
        let end = self.setup.seconds * S;
        self.at(end, Event::Peace);
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end + PEACE_LASTS {
                break;
            }
            self.now = at;
            self.tally.events += 1;
            self.happens(event)?;
        }
        self.check_peace()?;
        self.tally.struck = self.truth.struck;
        Ok(self.tally.clone())
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>11}  {}", seconds(self.now), text()));
        }
    }

    fn clock(&self, actor: Actor) -> Clock {
        match actor.checked_sub(self.setup.nodes + 1) {
            Some(client) => self.clients[client].clock,
            None => self.nodes[actor - 1].clock,
        }
    }

    fn life(&self, actor: Actor) -> u64 {
        match actor.checked_sub(self.setup.nodes + 1) {
            Some(client) => self.clients[client].life,
            None => self.nodes[actor - 1].life,
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrives { from, to: STORE, message } => self.asked(from, message),
            Event::Arrives { from, to, message } => match to.checked_sub(self.setup.nodes + 1) {
                Some(client) => self.client_gets(client, message),
                None => self.node_gets(to, from, message),
            },
            Event::Wakes { actor, life, task } => self.wakes(actor, life, task),
            Event::Input(kind) => self.input(kind),
            Event::Serves { node, life } => {
                let own = &mut self.nodes[node - 1];
                if own.is_up || own.life != life {
                    return Ok(());
                }
                let outs = own.serve(own.clock.says(self.now));
                self.done(node, outs)
            }
            Event::Restarted => {
                self.store.restarted(self.now);
                Ok(())
            }
            Event::Peace => self.peace(),
        }
    }

    /// The coordinator is asked something.
    fn asked(&mut self, from: Actor, message: Message) -> Result<(), Violation> {
        let Message::Ask { back, token, request } = message else { return Ok(()) };
        let reply = self.store.answer(self.now, &request);
        if let (Request::Commit(transaction), Reply::Committed { done: true, revision, .. }) =
            (&request, &reply)
        {
            if let Task::Operation(_) = back.task {
                let rows = transaction.changes.iter().filter_map(|change| match change {
                    engram_protocol::coordinator::Change::Put { value, .. } => Some(value),
                    engram_protocol::coordinator::Change::Delete { .. } => None,
                });
                for manifest in rows.filter_map(|value| Manifest::decode(value).ok()) {
                    self.truth.check_holders(self.now, &manifest.holders)?;
                }
                self.tally.published += 1;
            }
            if back.task == Task::Holdings {
                self.tally.entered += 1;
            }
            self.truth.committed(self.now, *revision, transaction)?;
        }
        self.send(STORE, from, &Message::Reply { back, token, reply });
        Ok(())
    }

    fn node_gets(&mut self, to: Actor, from: Actor, message: Message) -> Result<(), Violation> {
        let now = self.now;
        let node = &mut self.nodes[to - 1];
        if !node.is_up {
            return Ok(());
        }
        if now < node.paused_until {
            let at = node.paused_until;
            self.at(at, Event::Arrives { from, to, message });
            return Ok(());
        }
        let says = node.clock.says(now);
        let outs = match message {
            Message::Reply { back, .. } if back.life != node.life => Vec::new(),
            Message::Reply { back, token, reply } => node.reply(says, back, token, reply),
            Message::Prepare { back, place, held, member } => {
                let (ok, mut outs) = node.prepare(says, held, member, now < node.full_until);
                outs.push(Out::Send { to: from, message: Message::Prepared { back, place, ok } });
                outs
            }
            Message::Fetch { back, fetch } => node.fetch(says, from, back, fetch),
            _ => Vec::new(),
        };
        self.done(to, outs)
    }

    fn client_gets(&mut self, client: usize, message: Message) -> Result<(), Violation> {
        let own = &mut self.clients[client];
        let now = own.clock.says(self.now);
        let (Message::Reply { back, .. }
        | Message::Prepared { back, .. }
        | Message::Fetched { back, .. }) = &message
        else {
            return Ok(());
        };
        if back.life != own.life || own.is_gone {
            return Ok(());
        }
        let outs = match message {
            Message::Reply { back, token, reply } => own.reply(now, back.task, token, reply),
            Message::Prepared { back: Tag { task: Task::Operation(number), .. }, place, ok } => {
                own.prepared(now, number, place, ok)
            }
            Message::Fetched {
                back: Tag { task: Task::Operation(number), .. },
                attempt,
                answer,
            } => own.fetched(now, number, attempt, answer),
            _ => Vec::new(),
        };
        self.done(self.setup.nodes + 1 + client, outs)
    }

    fn wakes(&mut self, actor: Actor, life: u64, task: Task) -> Result<(), Violation> {
        if self.wakes.get(&(actor, life, task)) != Some(&self.now) {
            return Ok(());
        }
        self.wakes.remove(&(actor, life, task));
        if life != self.life(actor) {
            return Ok(());
        }
        let now = self.clock(actor).says(self.now);
        let outs = if let Some(client) = actor.checked_sub(self.setup.nodes + 1) {
            if self.clients[client].is_gone {
                return Ok(());
            }
            self.clients[client].tick(now, task)
        } else {
            let node = &mut self.nodes[actor - 1];
            if self.now < node.paused_until {
                let at = node.paused_until;
                self.wakes.insert((actor, life, task), at);
                self.at(at, Event::Wakes { actor, life, task });
                return Ok(());
            }
            if node.is_up { node.tick(now, task) } else { Vec::new() }
        };
        self.done(actor, outs)
    }

    fn input(&mut self, kind: Kind) -> Result<(), Violation> {
        self.tell(|| format!("{kind:?}"));
        let (now, nodes) = (self.now, self.setup.nodes);
        let name = |name: &u64| format!("n{name}");
        match kind {
            Kind::Publish { client, names, parts, replicas, long } => {
                let own = &mut self.clients[client];
                let says = own.clock.says(now);
                let names = names.iter().map(name).collect();
                let outs = own.publish(says, names, Vec::new(), parts, replicas, long);
                self.done(nodes + 1 + client, outs)
            }
            Kind::Replace { client, name: published, removed } => {
                let own = &mut self.clients[client];
                let published = published.iter().map(name).collect();
                let removed = removed.iter().map(name).collect();
                let outs = own.publish(own.clock.says(now), published, removed, 2, 1, 0);
                self.done(nodes + 1 + client, outs)
            }
            Kind::Remove { client, name: number } => {
                let own = &mut self.clients[client];
                let removed = vec![name(&number)];
                let outs = own.publish(own.clock.says(now), Vec::new(), removed, 0, 0, 0);
                self.done(nodes + 1 + client, outs)
            }
            Kind::Seal { client, name: number } => {
                let own = &mut self.clients[client];
                let outs = own.seal(own.clock.says(now), name(&number));
                self.done(nodes + 1 + client, outs)
            }
            Kind::Read { client, name: number } => {
                let own = &mut self.clients[client];
                let outs = own.read(own.clock.says(now), &name(&number), &self.truth);
                self.done(nodes + 1 + client, outs)
            }
            Kind::Leave { client } => {
                let own = &mut self.clients[client];
                let outs = own.begin(own.clock.says(now));
                self.done(nodes + 1 + client, outs)
            }
            failure => self.fails(&failure),
        }
    }

    /// Something fails, or stops.
    fn fails(&mut self, kind: &Kind) -> Result<(), Violation> {
        let (now, nodes) = (self.now, self.setup.nodes);
        match *kind {
            Kind::Cut { node, cut, long } => {
                self.network.cut(node % nodes + 1, cut, now + long);
                Ok(())
            }
            Kind::CutClient { client, cut, long } => {
                self.network.cut(nodes + 1 + client, cut, now + long);
                Ok(())
            }
            Kind::Silence { long } => {
                self.network.silence(now + long);
                Ok(())
            }
            Kind::Restart { long } => {
                self.network.restart(now, now + long);
                self.at(now + long, Event::Restarted);
                Ok(())
            }
            Kind::Pause { node, long } => {
                self.nodes[node % nodes].paused_until = now + long;
                Ok(())
            }
            Kind::Full { node, long } => {
                self.nodes[node % nodes].full_until = now + long;
                Ok(())
            }
            Kind::Crash { node, keeps, long } => {
                self.nodes[node % nodes].crash(keeps);
                self.serves_later(node % nodes, long);
                Ok(())
            }
            Kind::Death { node } => {
                self.nodes[node % nodes].die();
                self.serves_later(node % nodes, S / 2);
                Ok(())
            }
            Kind::Stop { node, long } => {
                let node = node % nodes;
                let own = &mut self.nodes[node];
                if !own.is_up || now < own.paused_until {
                    return Ok(());
                }
                let outs = own.leave(own.clock.says(now));
                self.done(node + 1, outs)?;
                // It has said so: the process ends when there was time for an answer, and the host
                // is booted meanwhile.
                let away = Kind::Crash { node, keeps: Some(1000), long };
                self.at(now + S, Event::Input(away));
                Ok(())
            }
            // What clients do is done above.
            _ => Ok(()),
        }
    }

    fn serves_later(&mut self, node: usize, long: u64) {
        let life = self.nodes[node].life;
        self.at(self.now + long, Event::Serves { node: node + 1, life });
    }

    /// Nothing fails any more, and clients end; those who have nothing under way live on.
    fn peace(&mut self) -> Result<(), Violation> {
        self.network.heal();
        for client in &mut self.clients {
            client.is_gone = client.has_begun();
        }
        for node in 0..self.setup.nodes {
            let own = &mut self.nodes[node];
            own.full_until = 0;
            own.paused_until = own.paused_until.min(self.now);
            if !own.is_up {
                let outs = own.serve(own.clock.says(self.now));
                self.done(node + 1, outs)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, from: Actor, to: Actor, message: &Message) {
        for at in self.network.arrivals(self.now, from, to) {
            self.at(at, Event::Arrives { from, to, message: message.clone() });
        }
    }

    /// Does what a process wants.
    fn done(&mut self, actor: Actor, outs: Vec<Out>) -> Result<(), Violation> {
        let life = self.life(actor);
        let tag = |task| Tag { life, task };
        for out in outs {
            match out {
                Out::Ask { task, token, request } => {
                    self.send(actor, STORE, &Message::Ask { back: tag(task), token, request });
                }
                Out::Send { to, message } => self.send(actor, to, &message),
                Out::Prepare { to, back, place, held, member } => {
                    let message = Message::Prepare { back: tag(back), place, held, member };
                    self.send(actor, to, &message);
                }
                Out::Fetch { to, back, fetch } => {
                    self.send(actor, to, &Message::Fetch { back: tag(back), fetch });
                }
                Out::Wake { task, at } => {
                    let at = self.clock(actor).when(at).max(self.now + 1);
                    let next = self.wakes.entry((actor, life, task)).or_insert(u64::MAX);
                    if at < *next {
                        *next = at;
                        self.at(at, Event::Wakes { actor, life, task });
                    }
                }
                Out::Tell(text) => self.tell(|| text),
                Out::Refused => self.tally.refused += 1,
                told => self.told(told)?,
            }
        }
        Ok(())
    }

    /// Compares what a process tells of itself with what is so.
    fn told(&mut self, told: Out) -> Result<(), Violation> {
        match told {
            Out::Whole { node, member, held } => {
                self.truth.is_whole(&node, member, &held);
                Ok(())
            }
            Out::Freed { node, member, held } => {
                self.tally.freed += 1;
                let row = self.store.row(&self.keys.name(&held.path));
                let manifest = row.and_then(|row| Manifest::decode(&row.value).ok());
                self.tell(|| format!("{node} frees {held:x?}"));
                self.truth.freed(self.now, &node, member, &held, manifest.as_ref())
            }
            Out::Answers { node, member } => self.truth.answers(self.now, &node, member),
            Out::Published { made, revision } => {
                for Made { path, .. } in &made {
                    self.truth.acknowledge(path, revision);
                }
                self.truth.published(self.now, &made)
            }
            Out::NotPublished { made } => self.truth.not_published(self.now, &made),
            Out::Read { path, acknowledged, about, end } => {
                self.tell(|| format!("{path} is read: {end:x?}"));
                match end {
                    Ok(revision) => {
                        self.tally.read += 1;
                        self.truth.read(self.now, &path, acknowledged, Some(revision))
                    }
                    Err(Failure::NotFound) => {
                        self.tally.unread += 1;
                        self.truth.read(self.now, &path, acknowledged, None)
                    }
                    Err(Failure::Missing(part)) => {
                        let what = format!("{path}: its holder has no part {part}");
                        never(self.now, I4, what)
                    }
                    Err(Failure::Lost(parts)) => {
                        self.tally.unread += 1;
                        self.check_lost(&path, about.as_deref(), &parts)
                    }
                    Err(Failure::Unreadable(why)) => never(self.now, I4, why),
                    Err(_) => {
                        self.tally.unread += 1;
                        Ok(())
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// What is said to be lost is not on a node that the manifest names.
    fn check_lost(&self, path: &str, about: Option<&str>, lost: &[u32]) -> Result<(), Violation> {
        let row = self.store.row(&self.keys.name(path));
        let manifest = row.and_then(|row| Manifest::decode(&row.value).ok());
        let Some(manifest) = manifest.filter(|own| Some(own.uuid.as_str()) == about) else {
            return Ok(());
        };
        for part in lost {
            for holder in manifest.holders_of(*part) {
                let place = (manifest.parts_uuid().to_owned(), *part);
                let has = |node: &&Node| {
                    node.uuid() == holder.node
                        && node.parts.contains_key(&place)
                        && !node.damaged.contains(&place)
                };
                if let Some(node) = self.nodes.iter().find(has) {
                    let what = format!("{path}: part {part} is lost, and lies at {}", node.uuid());
                    return never(self.now, I2, what);
                }
            }
        }
        Ok(())
    }

    /// After the time of peace all nodes are members that have entered what they have, all parts
    /// that are named are there, and no others.
    fn check_peace(&mut self) -> Result<(), Violation> {
        let names = self.keys.name("");
        let manifests: BTreeMap<String, Manifest> = (self.store.rows(&names))
            .map(|row| {
                (row.key[names.len()..].to_owned(), Manifest::decode(&row.value).expect("one"))
            })
            .collect();
        for node in &self.nodes {
            let says = node.clock.says(self.now);
            let Some(member) = node.membership.serves(says) else {
                let what = format!("{} is no member", node.uuid());
                return never(self.now, PEACE, what);
            };
            let row = self.store.row(&self.keys.node(&node.uuid()));
            let entry = row.and_then(|row| serde_json::from_slice::<Entry>(&row.value).ok());
            if !entry.is_some_and(|entry| entry.entered && entry.member == member) {
                let what = format!("{} has not entered what it has", node.uuid());
                return never(self.now, PEACE, what);
            }
            for (path, manifest) in &manifests {
                for part in 0..manifest.array().map_or(0, |boxes| boxes.parts.len() as u32) {
                    let is_own = |h: &&engram_protocol::manifest::Holder| {
                        h.node == node.uuid() && h.member == member
                    };
                    let is_named = manifest.holders_of(part).iter().any(is_own);
                    let is_here =
                        node.parts.contains_key(&(manifest.parts_uuid().to_owned(), part));
                    if is_named && !is_here {
                        let what = format!("{path}: part {part} is not at {}", node.uuid());
                        return never(self.now, I4, what);
                    }
                }
            }
            for held in node.parts.values() {
                // What is damaged is not entered again: a former life has it for good.
                let is_own = |h: &engram_protocol::manifest::Holder| {
                    h.node == node.uuid() && (h.member == member || node.is_damaged(held))
                };
                let is_named = manifests.get(&held.path).is_some_and(|manifest| {
                    manifest.parts_uuid() == held.uuid
                        && manifest.holders_of(held.part).into_iter().any(is_own)
                });
                if !is_named {
                    let what = format!("{} has {held:x?}, which nobody names", node.uuid());
                    return never(self.now, PEACE, what);
                }
            }
        }
        Ok(())
    }
}
