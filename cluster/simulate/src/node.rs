//! Those who hold: a host with a node pool, and the process that serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engram_protocol::Action;
use engram_protocol::clock::Moment;
use engram_protocol::coordinator::{Keys, LeaseId, Reply};
use engram_protocol::holdings::{Duty, Held, Holdings};
use engram_protocol::map::Identity;
use engram_protocol::membership::{Membership, News};
use engram_protocol::read::Fetch;

use crate::network::Actor;
use crate::random::{Dice, hashed};
use crate::world::{Answer, Clock, Message, Out, Tag, Task};
use crate::{S, Setup};

/// So many of a thousand parts that a host keeps when it goes down are damaged.
const DAMAGED: u64 = 100;

/// A part that is on its way.
struct Transfer {
    to: Actor,
    back: Tag,
    fetch: Fetch,
    ends: Moment,
}

/// A host.
pub(crate) struct Node {
    actor: Actor,
    keys: Keys,
    setup: Setup,
    pub(crate) clock: Clock,
    boots: u64,
    pools: u64,
    /// One more with each process that serves: what was meant for another is not taken.
    pub(crate) life: u64,
    pub(crate) is_up: bool,
    pub(crate) paused_until: u64,
    pub(crate) full_until: u64,
    /// What lies in the pool.
    pub(crate) parts: BTreeMap<(String, u32), Held>,
    /// Those of them whose bytes are not those that were written.
    pub(crate) damaged: BTreeSet<(String, u32)>,
    pub(crate) membership: Membership,
    holdings: Option<Holdings>,
    transfers: BTreeMap<u64, Transfer>,
    /// Parts whose bytes are summed up, and until when.
    checks: BTreeMap<u64, (Held, Moment)>,
    count: u64,
}

impl Node {
    pub(crate) fn new(setup: &Setup, keys: &Keys, actor: Actor) -> Node {
        let clock = Clock::of(setup.seed, actor);
        let nobody = Membership::new(keys, Identity::default(), Duration::ZERO, setup.rules);
        Node {
            actor,
            keys: keys.clone(),
            setup: *setup,
            clock,
            boots: 0,
            pools: 0,
            life: 0,
            is_up: false,
            paused_until: 0,
            full_until: 0,
            parts: BTreeMap::new(),
            damaged: BTreeSet::new(),
            membership: nobody,
            holdings: None,
            transfers: BTreeMap::new(),
            checks: BTreeMap::new(),
            count: 0,
        }
    }

    /// The uuid of the node: it lies in its pool.
    pub(crate) fn uuid(&self) -> String {
        format!("node-{}-{}", self.actor, self.pools)
    }

    /// A process begins to serve the pool.
    pub(crate) fn serve(&mut self, now: Moment) -> Vec<Out> {
        self.life += 1;
        self.is_up = true;
        self.holdings = None;
        self.transfers.clear();
        self.checks.clear();
        let identity = Identity {
            node: self.uuid(),
            pool: self.uuid(),
            host: format!("host-{}", self.actor),
            path: "/pool".to_owned(),
            boot: format!("boot-{}", self.boots),
            address: self.actor.to_string(),
            weight: 1.0,
            format: 1,
            version: String::new(),
        };
        // Another process of the host may have been told another time to live.
        let mut dice = Dice::new(&[self.setup.seed, self.actor as u64, self.life, 8]);
        let ttl = Duration::from_secs([5, 15, 15, 40][dice.below(4) as usize]);
        self.membership = Membership::new(&self.keys, identity, ttl, self.setup.rules);
        let actions = self.membership.start(now);
        self.of_membership(now, actions)
    }

    /// The process that serves dies; what lies in the pool stays.
    pub(crate) fn die(&mut self) {
        self.life += 1;
        self.is_up = false;
    }

    /// The host goes down. It keeps so many of a thousand parts, some of them damaged, or loses the
    /// pool.
    pub(crate) fn crash(&mut self, keeps: Option<u64>) {
        self.die();
        self.boots += 1;
        self.paused_until = 0;
        match keeps {
            None => {
                self.pools += 1;
                self.parts.clear();
                self.damaged.clear();
            }
            Some(keeps) => {
                let (seed, boots) = (self.setup.seed, self.boots);
                let damaged = &mut self.damaged;
                self.parts.retain(|(uuid, part), _| {
                    let hash =
                        uuid.bytes().fold(0, |all, byte| all * 31 % 1_000_003 + u64::from(byte));
                    let mut dice = Dice::new(&[seed, boots, hash, u64::from(*part)]);
                    let stays = dice.happens(keeps);
                    if stays && dice.happens(DAMAGED) {
                        damaged.insert((uuid.clone(), *part));
                    }
                    stays
                });
            }
        }
    }

    /// The member leaves the map.
    pub(crate) fn leave(&mut self, now: Moment) -> Vec<Out> {
        let actions = self.membership.leave(now, 0);
        self.of_membership(now, actions)
    }

    /// A timer of one of its tasks.
    pub(crate) fn tick(&mut self, now: Moment, task: Task) -> Vec<Out> {
        match task {
            Task::Membership => {
                let actions = self.membership.tick(now);
                self.of_membership(now, actions)
            }
            Task::Holdings => {
                let actions = self.holdings.as_mut().map_or(Vec::new(), |own| own.tick(now));
                self.of_holdings(now, actions)
            }
            Task::Operation(number) if self.checks.contains_key(&number) => {
                self.checked(now, number)
            }
            Task::Operation(number) => self.last_byte(now, number),
            Task::Maker | Task::Strike(_) => Vec::new(),
        }
    }

    /// A reply of the coordinator to one of its tasks.
    pub(crate) fn reply(&mut self, now: Moment, tag: Tag, token: u64, reply: Reply) -> Vec<Out> {
        match tag.task {
            Task::Membership => {
                let actions = self.membership.reply(now, token, reply);
                self.of_membership(now, actions)
            }
            // A reply to what a former member had asked is of no use to this one.
            Task::Holdings => {
                let actions =
                    self.holdings.as_mut().map_or(Vec::new(), |own| own.reply(now, token, reply));
                self.of_holdings(now, actions)
            }
            _ => Vec::new(),
        }
    }

    /// A client wants a part to be made, by this member.
    pub(crate) fn prepare(
        &mut self,
        now: Moment,
        held: Held,
        member: LeaseId,
        is_full: bool,
    ) -> (bool, Vec<Out>) {
        if is_full || !self.membership.answers(now, member) {
            return (false, Vec::new());
        }
        self.parts.insert((held.uuid.clone(), held.part), held.clone());
        if let Some(own) = &mut self.holdings {
            own.add(held.clone());
        }
        (true, vec![Out::Whole { node: self.uuid(), member, held }])
    }

    /// A client asks for a part.
    pub(crate) fn fetch(&mut self, now: Moment, to: Actor, back: Tag, fetch: Fetch) -> Vec<Out> {
        let answer = if !self.membership.answers(now, fetch.member) {
            Answer::Failed
        } else if self.parts.contains_key(&(fetch.uuid.clone(), fetch.part)) {
            self.count += 1;
            let mut dice = Dice::new(&[self.setup.seed, self.actor as u64, self.count]);
            let most = if dice.happens(100) { 6 * S } else { S / 10 };
            let ends = Moment(now.0 + dice.between(S / 1000, most));
            // It is pinned: it is sent even if it is freed meanwhile.
            self.transfers.insert(self.count, Transfer { to, back, fetch, ends });
            return vec![Out::Wake { task: Task::Operation(self.count), at: ends }];
        } else {
            Answer::NotThere
        };
        vec![Node::answered(to, back, &fetch, answer)]
    }

    /// The last byte of a part is about to be sent.
    fn last_byte(&mut self, now: Moment, number: u64) -> Vec<Out> {
        let Some(transfer) = self.transfers.remove(&number) else { return Vec::new() };
        if now < transfer.ends {
            let at = transfer.ends;
            self.transfers.insert(number, transfer);
            return vec![Out::Wake { task: Task::Operation(number), at }];
        }
        let Transfer { to, back, fetch, .. } = transfer;
        if !self.membership.answers(now, fetch.member) {
            return vec![Node::answered(to, back, &fetch, Answer::Failed)];
        }
        let member = self.membership.member().expect("it answers");
        let is_damaged = self.damaged.contains(&(fetch.uuid.clone(), fetch.part));
        let bytes = content(&fetch.uuid, fetch.part) ^ u64::from(is_damaged);
        let answer = Answer::Whole(bytes);
        let sent = Node::answered(to, back, &fetch, answer);
        vec![Out::Answers { node: self.uuid(), member }, sent]
    }

    fn answered(to: Actor, back: Tag, fetch: &Fetch, answer: Answer) -> Out {
        Out::Send { to, message: Message::Fetched { back, attempt: fetch.attempt, answer } }
    }

    fn of_membership(&mut self, now: Moment, actions: Vec<Action<News>>) -> Vec<Out> {
        let mut outs = Vec::new();
        for action in actions {
            match action {
                Action::Ask { token, request } => {
                    outs.push(Out::Ask { task: Task::Membership, token, request });
                }
                Action::Wake(at) => outs.push(Out::Wake { task: Task::Membership, at }),
                Action::Own(News::Joined { member, entered }) => {
                    outs.extend(self.joined(now, member, entered));
                }
                Action::Own(news) => {
                    if news == News::Left {
                        self.holdings = None;
                    }
                    outs.push(Out::Tell(format!("{}: {news:?}", self.uuid())));
                }
            }
        }
        outs
    }

    fn joined(&mut self, now: Moment, member: LeaseId, entered: bool) -> Vec<Out> {
        let node = self.uuid();
        let parts = self.parts.values().cloned();
        let mut own = Holdings::new(&self.keys, &node, member, parts, entered, self.setup.rules);
        let actions = own.tick(now);
        self.holdings = Some(own);
        let what = if entered { "goes on as" } else { "joins as" };
        let mut outs = vec![Out::Tell(format!("{node} {what} {member:x}"))];
        let whole = |held: &Held| Out::Whole { node: node.clone(), member, held: held.clone() };
        let is_whole = |held: &&Held| !self.is_damaged(held);
        outs.extend(self.parts.values().filter(is_whole).map(whole));
        outs.extend(self.of_holdings(now, actions));
        outs
    }

    pub(crate) fn is_damaged(&self, held: &Held) -> bool {
        self.damaged.contains(&(held.uuid.clone(), held.part))
    }

    /// A part's bytes are being summed up, and were at this moment.
    fn checked(&mut self, now: Moment, number: u64) -> Vec<Out> {
        let Some((held, ends)) = self.checks.remove(&number) else { return Vec::new() };
        if now < ends {
            self.checks.insert(number, (held, ends));
            return vec![Out::Wake { task: Task::Operation(number), at: ends }];
        }
        let mut dice = Dice::new(&[self.setup.seed, self.actor as u64, number, 6]);
        let is_there = self.parts.contains_key(&(held.uuid.clone(), held.part));
        // Now and then they cannot be looked at.
        let whole = (!dice.happens(50)).then(|| is_there && !self.is_damaged(&held));
        let own = self.holdings.as_mut();
        let actions = own.map_or(Vec::new(), |own| own.checked(now, &held, whole));
        self.of_holdings(now, actions)
    }

    fn of_holdings(&mut self, now: Moment, actions: Vec<Action<Duty>>) -> Vec<Out> {
        let mut outs = Vec::new();
        for action in actions {
            match action {
                Action::Ask { token, request } => {
                    outs.push(Out::Ask { task: Task::Holdings, token, request });
                }
                Action::Wake(at) => outs.push(Out::Wake { task: Task::Holdings, at }),
                Action::Own(Duty::Check(held)) => {
                    self.count += 1;
                    let mut dice = Dice::new(&[self.setup.seed, self.actor as u64, self.count, 7]);
                    let most = if dice.happens(200) { 40 * S } else { S };
                    let ends = Moment(now.0 + dice.between(S / 1000, most));
                    self.checks.insert(self.count, (held, ends));
                    outs.push(Out::Wake { task: Task::Operation(self.count), at: ends });
                }
                Action::Own(Duty::Free(held)) => {
                    let place = (held.uuid.clone(), held.part);
                    self.parts.remove(&place);
                    self.damaged.remove(&place);
                    let member = self.membership.member();
                    outs.push(Out::Freed { node: self.uuid(), member, held });
                }
                Action::Own(Duty::AllEntered) => {
                    let actions = self.membership.all_entered(now);
                    outs.extend(self.of_membership(now, actions));
                }
            }
        }
        outs
    }
}

/// What a part's bytes sum up to.
pub(crate) fn content(uuid: &str, part: u32) -> u64 {
    let uuid = uuid.bytes().fold(7, |all, byte| hashed(&[all, u64::from(byte)]));
    hashed(&[uuid, u64::from(part)])
}
